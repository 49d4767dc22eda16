//! Words that are never shown.

use std::fmt;

/// A credential. It is shown as `***`, whatever prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a word secret.
    pub fn new(word: impl Into<String>) -> Self {
        Self(word.into())
    }

    /// The word itself, for the wire and nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        assert_eq!(format!("{:?}", Some(Secret::new("s3cr3t"))), "Some(***)");
    }
}
