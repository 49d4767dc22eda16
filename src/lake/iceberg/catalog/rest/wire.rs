//! Paths of the protocol: what the server decodes is what was meant.

use std::fmt::Write as _;

use crate::model::ident::TableName;

/// The separator of namespace levels in a path, unless the catalog says otherwise.
pub const SEPARATOR: &str = "%1F";

/// The paths below one catalog's base URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The base URI with `/v1`, and the prefix where there is one.
    root: String,
    /// Between namespace levels, as it stands in a path.
    separator: String,
}

/// The path of the configuration, which has no prefix.
pub fn config(uri: &str, warehouse: Option<&str>) -> String {
    let query = warehouse.map(|w| format!("?warehouse={}", encode(w))).unwrap_or_default();
    format!("{}/v1/config{query}", base(uri))
}

/// Where tokens are had when the settings name no other place.
pub fn tokens(uri: &str) -> String {
    format!("{}/v1/oauth/tokens", base(uri))
}

fn base(uri: &str) -> &str {
    let uri = uri.trim_end_matches('/');
    uri.strip_suffix("/v1").unwrap_or(uri)
}

impl Paths {
    /// `prefix` is pasted as the catalog gave it, which may be encoded or not;
    /// `separator` is given encoded, as it stands in a path.
    pub fn new(uri: &str, prefix: Option<&str>, separator: Option<&str>) -> Self {
        let mut root = format!("{}/v1", base(uri));
        match prefix.map(|p| p.trim_matches('/')) {
            None | Some("") => {}
            Some(prefix) => {
                root.push('/');
                root.push_str(&encode_rest(prefix));
            }
        }
        Self { root, separator: separator.filter(|s| !s.is_empty()).unwrap_or(SEPARATOR).into() }
    }

    /// Namespaces below a parent, or the outermost ones.
    pub fn namespaces(&self, parent: &[String], page: &Page<'_>) -> String {
        let mut query = page.query();
        if !parent.is_empty() {
            let joined = parent.join(&decode(&self.separator));
            query.push(format!("parent={}", encode(&joined)));
        }
        format!("{}/namespaces{}", self.root, question(&query))
    }

    /// Where a namespace is made.
    pub fn new_namespace(&self) -> String {
        format!("{}/namespaces", self.root)
    }

    /// The tables of a namespace.
    pub fn tables(&self, namespace: &[String], page: &Page<'_>) -> String {
        format!("{}/namespaces/{}/tables{}", self.root, self.namespace(namespace), question(&page.query()))
    }

    /// One table.
    pub fn table(&self, name: &TableName) -> String {
        format!("{}/namespaces/{}/tables/{}", self.root, self.namespace(&name.namespace), encode(&name.table))
    }

    /// One table with only the snapshots that a reference names.
    pub fn table_refs(&self, name: &TableName) -> String {
        format!("{}?snapshots=refs", self.table(name))
    }

    /// A table's storage credentials.
    pub fn credentials(&self, name: &TableName) -> String {
        format!("{}/credentials", self.table(name))
    }

    fn namespace(&self, levels: &[String]) -> String {
        levels.iter().map(|level| encode(level)).collect::<Vec<_>>().join(&self.separator)
    }
}

/// Which page of a listing is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'a> {
    /// The token of the last answer; empty asks for pages without having one.
    pub token: &'a str,
    /// How many names a page may hold, where that is set.
    pub size: Option<u32>,
}

impl Page<'_> {
    fn query(&self) -> Vec<String> {
        let mut query = vec![format!("pageToken={}", encode(self.token))];
        query.extend(self.size.map(|size| format!("pageSize={size}")));
        query
    }
}

fn question(query: &[String]) -> String {
    if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) }
}

/// Percent-encodes all but the unreserved characters of RFC 3986: a space is
/// `%20`, never `+`.
pub fn encode(text: &str) -> String {
    encode_but(text, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

/// Encodes only what cannot stand in a path: text that is encoded already stays.
fn encode_rest(text: &str) -> String {
    encode_but(text, |byte| byte.is_ascii_alphanumeric() || b"-._~%/!$&'()*+,;=:@".contains(&byte))
}

fn encode_but(text: &str, plain: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Decodes `%XX`; what is no such sequence stays.
pub fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &[&str], table: &str) -> TableName {
        TableName { catalog: "lake".into(), namespace: namespace.iter().map(|s| (*s).into()).collect(), table: table.into() }
    }

    #[test]
    fn names_are_encoded_as_the_reference_server_decodes_them() {
        let paths = Paths::new("http://h:1/", None, None);
        for (namespace, table, path) in [
            (&["db"][..], "t", "db/tables/t"),
            (&["a", "b c"], "t x", "a%1Fb%20c/tables/t%20x"),
            (&["a.b"], "t+x", "a.b/tables/t%2Bx"),
            (&["ü"], "100%/a", "%C3%BC/tables/100%25%2Fa"),
            (&["a\u{1f}b"], "~-_", "a%1Fb/tables/~-_"),
        ] {
            assert_eq!(paths.table(&name(namespace, table)), format!("http://h:1/v1/namespaces/{path}"));
        }
    }

    #[test]
    fn a_prefix_is_pasted_as_it_came_and_only_what_cannot_stand_in_a_path_is_encoded() {
        for (prefix, root) in [
            (None, "v1"),
            (Some(""), "v1"),
            (Some("main%7Cwarehouse"), "v1/main%7Cwarehouse"),
            (Some("main|ware house"), "v1/main%7Cware%20house"),
            (Some("/catalogs/1234/"), "v1/catalogs/1234"),
            (Some("arn%3Aaws%3As3tables%3Aeu%3A1%3Abucket%2Fb"), "v1/arn%3Aaws%3As3tables%3Aeu%3A1%3Abucket%2Fb"),
        ] {
            assert_eq!(
                Paths::new("http://h/api/v1/", prefix, None).new_namespace(),
                format!("http://h/api/{root}/namespaces"),
                "{prefix:?}"
            );
        }
    }

    #[test]
    fn the_separator_is_the_catalogs_in_paths_and_decoded_in_queries() {
        let (levels, page) = (["a".to_owned(), "b".to_owned()], Page { token: "x=1", size: Some(7) });
        let dot = Paths::new("http://h", None, Some("%2E"));
        assert_eq!(dot.tables(&levels, &Page::default()), "http://h/v1/namespaces/a%2Eb/tables?pageToken=");
        assert_eq!(dot.namespaces(&levels, &page), "http://h/v1/namespaces?pageToken=x%3D1&pageSize=7&parent=a.b");
        let default = Paths::new("http://h", None, None);
        assert_eq!(default.namespaces(&levels, &Page::default()), "http://h/v1/namespaces?pageToken=&parent=a%1Fb");
    }

    #[test]
    fn config_and_tokens_stand_beside_the_prefix() {
        assert_eq!(config("http://h/cat/", Some("arn:aws:s3/x y")), "http://h/cat/v1/config?warehouse=arn%3Aaws%3As3%2Fx%20y");
        assert_eq!(config("http://h", None), "http://h/v1/config");
        assert_eq!(tokens("http://h/cat"), "http://h/cat/v1/oauth/tokens");
    }

    proptest::proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(text in ".*") {
            proptest::prop_assert_eq!(decode(&encode(&text)), text);
        }

        #[test]
        fn decoding_never_panics(text in "[%a-f0-9ü]*") {
            decode(&text);
        }
    }
}
