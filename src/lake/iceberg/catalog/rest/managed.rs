//! Services that may compact the tables of their catalog by themselves, and do not
//! show it in the protocol.

use std::collections::BTreeMap;

use hyper::Uri;

use crate::lake::iceberg::table::MANAGED_KEY;

/// Why the service at `uri` may compact its tables; `None` where none is known to, or
/// where the catalog's own properties say that it is told not to.
///
/// Glue does so where a table's or the whole catalog's optimizer is on, which only an
/// interface of its own tells. S3 Tables are known by their buckets, whatever catalog
/// they are reached through.
pub fn service(name: &str, uri: &str, properties: &BTreeMap<String, String>) -> Option<String> {
    let says = |key: &str, value: &str| properties.get(key).is_some_and(|v| v.eq_ignore_ascii_case(value));
    let host = uri.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_ascii_lowercase)).unwrap_or_default();
    let aws = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|end| host.ends_with(end));
    let addressed = aws && host.split('.').any(|label| matches!(label, "glue" | "glue-fips"));
    let is_glue = addressed || says("rest.signing-name", "glue");
    (is_glue && !says(MANAGED_KEY, "off")).then(|| {
        format!("catalog `{name}` is AWS Glue, whose optimizers may compact this table: the protocol does not tell whether they do")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(uri: &str, properties: &[(&str, &str)]) -> bool {
        let properties = properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        service("lake", uri, &properties).is_some()
    }

    #[test]
    fn glue_is_known_by_its_address_or_the_name_that_requests_are_signed_for() {
        let signed = ("rest.signing-name", "glue");
        for (uri, properties) in [
            ("https://glue.eu-central-1.amazonaws.com/iceberg", &[][..]),
            ("https://glue-fips.us-east-1.amazonaws.com/iceberg", &[]),
            ("https://vpce-1.glue.us-east-1.vpce.amazonaws.com/iceberg", &[]),
            ("https://gateway.example.com/iceberg", &[signed]),
        ] {
            assert!(told(uri, properties), "{uri}");
        }
        for (uri, properties) in [
            ("https://s3tables.us-east-1.amazonaws.com/iceberg", &[("rest.signing-name", "s3tables")][..]),
            ("https://glue.example.com/iceberg", &[]),
            ("http://127.0.0.1:8181", &[]),
            ("https://glue.eu-central-1.amazonaws.com/iceberg", &[("afterwrite.managed-compaction", "off")]),
            ("https://gateway.example.com/iceberg", &[signed, ("afterwrite.managed-compaction", "off")]),
        ] {
            assert!(!told(uri, properties), "{uri} {properties:?}");
        }
    }
}
