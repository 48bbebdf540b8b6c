use super::*;

fn message(flags: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![flags];
    bytes.extend(u32::try_from(length).expect("a length").to_be_bytes());
    bytes.extend((0..length).map(|at| u8::try_from(at % 251).expect("a byte")));
    bytes
}

/// Feeds the stream in pieces; what passed, and what was passed at most behind the last whole message.
fn play(stream: &[u8], pieces: &mut dyn FnMut() -> usize) -> (Vec<u8>, Messages) {
    let (mut messages, mut passed, mut rest) = (Messages::default(), Vec::new(), stream);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(pieces().clamp(1, rest.len()));
        passed.extend_from_slice(&messages.take(Bytes::copy_from_slice(piece)));
        rest = after;
    }
    (passed, messages)
}

#[test]
fn whole_messages_pass_however_they_are_cut_up_and_nothing_is_lost() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let lengths: Vec<usize> =
            (0..rng.usize(1..8)).map(|_| [0, 1, 4, 300, KEEP - HEAD, KEEP, 3 * KEEP][rng.usize(..7)]).collect();
        let whole: Vec<u8> = lengths.iter().flat_map(|length| message(0, *length)).collect();
        let cut = rng.usize(..=whole.len());
        let pieces = [1, 5, 100, 70_000][rng.usize(..4)];
        let (passed, messages) = play(&whole[..cut], &mut || rng.usize(1..=pieces));
        assert_eq!([&passed[..], &messages.kept].concat(), &whole[..cut], "nothing is lost, nothing is added");
        assert!(messages.kept.len() < KEEP, "{} kept", messages.kept.len());
        // Where it was cut.
        let mut at = 0;
        let last = lengths.iter().map(|length| length + HEAD).find(|length| {
            let over = at + length > cut;
            at += if over { 0 } else { *length };
            over
        });
        let large = last.is_some_and(|length| length > KEEP && cut >= at + HEAD);
        assert_eq!(messages.are_open(), !large, "{lengths:?} cut at {cut}");
        assert_eq!(passed.len(), if large { cut } else { at }, "{lengths:?} cut at {cut}");
    }
}

#[test]
fn behind_its_own_last_message_a_stream_has_no_other() {
    let (passed, messages) = play(&[message(0, 9), message(2, 2)].concat(), &mut || 3);
    assert_eq!(passed.len(), 14 + 7);
    assert!(messages.ended && !messages.are_open());
}

#[test]
fn an_answer_is_one_by_its_type_and_if_it_promised_no_length() {
    let headers = |fields: &[(&'static str, &'static str)]| {
        fields.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    };
    for (fields, want) in [
        (&[("content-type", "application/connect+json")][..], true),
        (&[("content-type", "Application/Connect+proto")], true),
        (&[("content-type", "application/json")], false),
        (&[("content-type", "application/connect+json"), ("content-length", "7")], false),
        (&[], false),
    ] {
        assert_eq!(ConnectStream::is_one(&headers(fields)), want, "{fields:?}");
    }
}
