//! Texts that nobody can guess.

use ring::rand::{SecureRandom as _, SystemRandom};

/// Lower-case letters and digits.
pub(crate) fn random_name(length: usize) -> anyhow::Result<String> {
    random_text(length, b"0123456789abcdefghijklmnopqrstuv")
}

/// Hexadecimal digits.
pub(crate) fn random_hex(length: usize) -> anyhow::Result<String> {
    random_text(length, b"0123456789abcdef")
}

/// The alphabet's length must divide 256, so that all characters are equally likely.
fn random_text(length: usize, alphabet: &[u8]) -> anyhow::Result<String> {
    let mut bytes = vec![0; length];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
    let pick = |byte: &u8| char::from(alphabet[usize::from(*byte) % alphabet.len()]);
    Ok(bytes.iter().map(pick).collect())
}
