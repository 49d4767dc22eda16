//! Table names between the wire and us.
//!
//! A space travels as `+` or `%20`, a namespace separator as `%1F` or as the
//! catalog says in its config answer. What is decoded here only makes a hint:
//! where a spelling is not certain, every table that it may mean is named.

use std::sync::{Arc, Mutex, PoisonError};

use crate::model::ident::TableName;

/// The separator of namespace levels unless a catalog says otherwise.
const UNIT: &str = "%1F";

/// The separator that the catalog last named in a config answer.
#[derive(Clone, Debug, Default)]
pub struct Separator(Arc<Mutex<Option<String>>>);

impl Separator {
    /// Takes note of the `namespace-separator` of a config answer; none means the
    /// protocol's own.
    pub fn learn(&self, named: Option<&str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = named.filter(|n| !n.is_empty()).map(str::to_owned);
    }

    fn learnt(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every table that two path segments may mean, the likeliest first.
    pub fn tables(&self, catalog: &str, namespace: &str, table: &str) -> Vec<TableName> {
        let levels = self.levels(namespace);
        let mut names = Vec::new();
        for plus_is_space in [true, false] {
            let namespace: Option<Vec<String>> = levels.iter().map(|l| decode(l, plus_is_space)).collect();
            let (Some(namespace), Some(table)) = (namespace, decode(table, plus_is_space)) else { continue };
            if namespace.iter().any(String::is_empty) || table.is_empty() {
                continue;
            }
            let name = TableName { catalog: catalog.to_owned(), namespace, table };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Every table of a name that stands in a body below a namespace segment.
    pub fn tables_below(&self, catalog: &str, namespace: &str, table: &str) -> Vec<TableName> {
        self.tables(catalog, namespace, &encode(table))
    }

    /// The raw levels of a namespace segment.
    fn levels<'n>(&self, namespace: &'n str) -> Vec<&'n str> {
        let mut separators = vec![UNIT.to_owned(), UNIT.to_lowercase(), "\u{1f}".to_owned()];
        if let Some(learnt) = self.learnt() {
            separators.extend(decode(&learnt, false));
            separators.push(learnt.to_lowercase());
            separators.push(learnt);
        }
        let mut levels = vec![namespace];
        for separator in separators.iter().filter(|s| !s.is_empty()) {
            levels = levels.into_iter().flat_map(|level| level.split(separator.as_str())).collect();
        }
        levels
    }

    /// The paths at which a table may be loaded, the likeliest first.
    pub fn paths(&self, base: &str, namespace: &[String], table: &str) -> Vec<String> {
        let levels: Vec<String> = namespace.iter().map(|level| encode(level)).collect();
        let mut separators: Vec<String> = self.learnt().into_iter().collect();
        separators.push(UNIT.to_owned());
        let mut paths: Vec<String> = Vec::new();
        for separator in separators {
            let path = format!("{base}/namespaces/{}/tables/{}", levels.join(&separator), encode(table));
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }
}

/// Percent-decodes a segment; `None` when it is not UTF-8 afterwards.
fn decode(raw: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high * 16 + low);
                    rest = after;
                }
                _ => bytes.push(b'%'),
            },
            (b'+', _) if plus_is_space => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// Percent-encodes all but letters, digits and `-._~`.
fn encode(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spelled(separator: &Separator, namespace: &str, table: &str) -> Vec<String> {
        let show = |n: TableName| format!("{}|{}", n.namespace.join("|"), n.table);
        separator.tables("lake", namespace, table).into_iter().map(show).collect()
    }

    #[test]
    fn every_spelling_of_a_space_and_a_separator_finds_its_table() {
        let default = Separator::default();
        assert_eq!(spelled(&default, "a", "t%20x"), ["a|t x"]);
        assert_eq!(spelled(&default, "a", "t+x"), ["a|t x", "a|t+x"]);
        assert_eq!(spelled(&default, "a", "t%2Bx"), ["a|t+x"]);
        assert_eq!(spelled(&default, "a%1Fb%1fc", "t"), ["a|b|c|t"]);
        assert_eq!(spelled(&default, "a.b", "t.u%2Fv%25"), ["a.b|t.u/v%"]);
        assert_eq!(spelled(&default, "%C3%BC", "ü"), ["ü|ü"]);
        assert_eq!(spelled(&default, "a", "%FF"), Vec::<String>::new());
        assert_eq!(spelled(&default, "a", "50%"), ["a|50%"]);
        let dotted = Separator::default();
        dotted.learn(Some("%2E"));
        assert_eq!(spelled(&dotted, "a%2Eb", "t.u"), ["a|b|t.u"]);
        assert_eq!(spelled(&dotted, "a.b", "t"), ["a|b|t"]);
        dotted.learn(None);
        assert_eq!(spelled(&dotted, "a.b", "t"), ["a.b|t"]);
    }

    #[test]
    fn a_table_of_a_transaction_is_asked_for_in_the_catalogs_spelling_first() {
        let separator = Separator::default();
        let namespace = ["a b".to_owned(), "ü/".to_owned()];
        assert_eq!(separator.paths("/v1/p", &namespace, "t+x%"), ["/v1/p/namespaces/a%20b%1F%C3%BC%2F/tables/t%2Bx%25"]);
        separator.learn(Some("%2E"));
        let paths = separator.paths("/v1", &namespace, "t");
        assert_eq!(paths, ["/v1/namespaces/a%20b%2E%C3%BC%2F/tables/t", "/v1/namespaces/a%20b%1F%C3%BC%2F/tables/t"]);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in "\\PC{0,20}") {
            prop_assert_eq!(decode(&encode(&text), true), Some(text));
        }

        #[test]
        fn nothing_that_a_path_may_hold_is_too_odd(namespace in "\\PC{0,20}", table in "[%+0-9a-f]{0,20}") {
            Separator::default().tables("lake", &namespace, &table);
        }
    }
}
