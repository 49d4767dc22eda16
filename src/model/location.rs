//! Object locations, parsed: engines spell one path in several ways, and text
//! equality is not identity.

use std::fmt;

/// A location split into the class of store, the authority and the key.
///
/// Two spellings of one object compare equal (`file:/d/x` and `file:///d/x`;
/// `s3://b/k`, `s3a://b/k` and `s3n://b/k`). The text itself is kept elsewhere:
/// a path read from metadata is used exactly as it is spelled there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// `file`, `s3`, `gs`, `abfs`, `memory`, or the scheme as spelled.
    pub class: String,
    /// Bucket, container and account, or host; empty for local files.
    pub authority: String,
    /// The key without a leading slash, byte for byte.
    pub key: String,
}

impl Location {
    /// Parses any text; one without a scheme is a local path.
    pub fn parse(text: &str) -> Self {
        let Some((scheme, rest)) = text.split_once(':').filter(|(s, _)| is_scheme(s)) else {
            return Self { class: "file".into(), authority: String::new(), key: text.trim_start_matches('/').into() };
        };
        let class = match scheme.to_ascii_lowercase().as_str() {
            "s3" | "s3a" | "s3n" => "s3".into(),
            "gs" | "gcs" => "gs".into(),
            "abfs" | "abfss" | "wasb" | "wasbs" => "abfs".into(),
            other => other.to_owned(),
        };
        let (authority, key) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            None => ("", rest),
        };
        Self { class, authority: authority.into(), key: key.trim_start_matches('/').into() }
    }

    /// Whether this location lies under `prefix` (or is it).
    pub fn is_under(&self, prefix: &Location) -> bool {
        let folder = prefix.key.trim_end_matches('/');
        self.class == prefix.class
            && self.authority == prefix.authority
            && self.key.strip_prefix(folder).is_some_and(|rest| folder.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.class, self.authority, self.key)
    }
}

fn is_scheme(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_object_are_equal() {
        assert_eq!(Location::parse("file:/d/x"), Location::parse("file:///d/x"));
        assert_eq!(Location::parse("/d/x"), Location::parse("file:///d/x"));
        assert_eq!(Location::parse("s3a://b/t/f"), Location::parse("s3://b/t/f"));
        assert_ne!(Location::parse("s3://b1/t/f"), Location::parse("s3://b2/t/f"));
    }

    #[test]
    fn a_sibling_folder_is_not_under() {
        let table = Location::parse("s3://b/t");
        assert!(Location::parse("s3a://b/t/data/f").is_under(&table));
        assert!(!Location::parse("s3://b/t2/data/f").is_under(&table));
    }

    #[test]
    fn keys_keep_their_bytes() {
        assert_eq!(Location::parse("s3://b/a%2Fb+c d").key, "a%2Fb+c d");
    }
}
