//! What is wrong with a configuration, told so that it can be put right at once.

use std::fmt;

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Debug)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    /// One fault a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// One thing that is wrong. Nothing in it is a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key's path, e.g. `server.listen[1]`; empty where the text is not TOML.
    pub key: String,
    /// The value as it was read, masked where it may be secret; `None` where it does not matter.
    pub value: Option<String>,
    /// Where it was written.
    pub place: Place,
    /// What is wrong.
    pub wrong: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            f.write_str(&self.key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}; {}", self.wrong, self.remedy)
    }
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the file, at this line; the first is 1.
    Line(usize),
    /// In the environment variable of this name.
    Variable(String),
    /// Nowhere: it is the default.
    Unset,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Unset => f.write_str("not set"),
        }
    }
}

/// A fault before it is known whose it is: what is wrong with a text, and what would be right.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) wrong: String,
    pub(crate) remedy: String,
}

impl Wrong {
    pub(crate) fn new(wrong: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { wrong: wrong.into(), remedy: remedy.into() }
    }
}

/// What stands in place of a secret.
pub(crate) const MASK: &str = "***";

/// A text as faults show it: quoted, on one line, short, without what may be a URL's password or token.
pub(crate) fn shown(text: &str) -> String {
    const MAX: usize = 80;
    let masked = without_credentials(text);
    if masked.chars().count() <= MAX {
        return format!("{masked:?}");
    }
    let start: String = masked.chars().take(MAX).collect();
    format!("{:?}", start + "…")
}

/// Masks user, password and query. It works on the text, because a text that is not a URL may be one
/// with a typing error: it masks too much rather than too little.
pub(crate) fn without_credentials(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = text.split_at(start);
    let mut masked = match rest.rfind('@') {
        Some(at) => format!("{scheme}{MASK}{}", &rest[at..]),
        None => text.to_owned(),
    };
    if start > 0
        && let Some(at) = masked.find('?')
    {
        masked.truncate(at + 1);
        masked.push_str(MASK);
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked_even_where_the_url_is_broken() {
        for (text, want) in [
            ("http://host/path", r#""http://host/path""#),
            ("http://user:pw@host", r#""http://***@host""#),
            ("http://user:p@w/x?y#z@host:x", r#""http://***@host:x""#),
            ("user:pw@host", r#""***@host""#),
            ("http://host/?key=pw", r#""http://host/?***""#),
            ("a\nb\u{1b}", r#""a\nb\u{1b}""#),
        ] {
            assert_eq!(shown(text), want);
        }
        assert_eq!(shown(&"x".repeat(200)).chars().count(), 83);
    }
}
