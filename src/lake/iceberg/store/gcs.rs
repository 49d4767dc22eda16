//! Writes to Google Cloud Storage: the store client names an object that it uploads in one
//! request by the percent-encoding of its name, and finds it under its name no more.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use iceberg::io::FileWrite;
use iceberg::{Error, ErrorKind, Result};
use opendal::layers::{HttpClientLayer, RetryLayer, TimeoutLayer};
use opendal::raw::{HttpBody, HttpClient, HttpFetch};
use opendal::services::GcsConfig;
use opendal::{Buffer, Operator};

/// Where objects are uploaded in one request.
const UPLOAD: &str = "/upload/storage/v1/b/";

/// Bucket and name of an object; `None` for a path of another store.
pub fn object(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("gs://")?.split_once('/')
}

/// Begins an object.
pub async fn writer(properties: &HashMap<String, String>, bucket: &str, name: &str) -> Result<Box<dyn FileWrite>> {
    Ok(Box::new(Writer(operator(properties, bucket)?.writer(name).await.map_err(failed)?)))
}

/// Writes a whole object.
pub async fn write(properties: &HashMap<String, String>, bucket: &str, name: &str, bytes: Bytes) -> Result<()> {
    operator(properties, bucket)?.write(name, bytes).await.map(drop).map_err(failed)
}

/// As the client makes one of the same properties, with its requests mended.
fn operator(properties: &HashMap<String, String>, bucket: &str) -> Result<Operator> {
    let set = |key: &str| properties.get(key).cloned();
    let is_on = |key: &str| set(key).is_some_and(|value| ["true", "t", "1", "on"].contains(&value.to_lowercase().as_str()));
    let open = properties.contains_key("gcs.no-auth");
    let mut config = GcsConfig::default();
    config.bucket = bucket.to_owned();
    config.credential = set("gcs.credentials-json");
    config.token = set("gcs.oauth2.token");
    config.endpoint = set("gcs.service.path");
    config.skip_signature = open || is_on("gcs.allow-anonymous");
    config.disable_vm_metadata = open || is_on("gcs.disable-vm-metadata");
    config.disable_config_load = open || is_on("gcs.disable-config-load");
    let mended = HttpClientLayer::new(HttpClient::with(Mended(HttpClient::new().map_err(failed)?)));
    let operator = Operator::from_config(config).map_err(failed)?.finish().layer(mended);
    // each try has its own time
    Ok(operator.layer(TimeoutLayer::new()).layer(RetryLayer::new()))
}

fn failed(error: opendal::Error) -> Error {
    Error::new(ErrorKind::Unexpected, "Failure in doing io operation").with_source(error)
}

/// Sends requests with their object's name encoded once.
struct Mended(HttpClient);

impl HttpFetch for Mended {
    async fn fetch(&self, mut request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        if let Some(uri) = encoded_once(request.uri()) {
            *request.uri_mut() = uri;
        }
        self.0.fetch(request).await
    }
}

/// The URI of an upload whose name was encoded twice, with the name encoded once.
fn encoded_once(uri: &Uri) -> Option<Uri> {
    let (before, name) = uri.query().filter(|_| uri.path().starts_with(UPLOAD))?.split_once("&name=")?;
    let (name, after) = name.split_once('&').map_or((name, None), |(name, after)| (name, Some(after)));
    let query = [Some(format!("{before}&name={}", name.replace("%25", "%"))), after.map(str::to_owned)];
    let query = query.into_iter().flatten().collect::<Vec<_>>().join("&");
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{query}", uri.path()).parse().ok()?);
    Uri::from_parts(parts).ok()
}

struct Writer(opendal::Writer);

#[async_trait]
impl FileWrite for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.0.write(bytes).await.map_err(failed)
    }

    async fn close(&mut self) -> Result<()> {
        self.0.close().await.map(drop).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_named_by_one_encoding_of_its_name() {
        let once = |uri: &str| encoded_once(&uri.parse().unwrap()).map(|uri| uri.to_string());
        let upload = "https://storage.googleapis.com/upload/storage/v1/b/bucket/o?uploadType=media";
        // of `a/p=%2F x`
        let twice = "a%252Fp%253D%25252F%2520x";
        assert_eq!(once(&format!("{upload}&name={twice}")), Some(format!("{upload}&name=a%2Fp%3D%252F%20x")));
        assert_eq!(
            once(&format!("{upload}&name={twice}&predefinedAcl=b")),
            Some(format!("{upload}&name=a%2Fp%3D%252F%20x&predefinedAcl=b"))
        );
        assert_eq!(once("https://storage.googleapis.com/storage/v1/b/bucket/o/a%2Fb?alt=media"), None);
        assert_eq!(once("https://storage.googleapis.com/bucket/a%2Fb?partNumber=1&name=a"), None);
    }

    #[test]
    fn only_paths_of_this_store_are_told_apart() {
        assert_eq!(object("gs://b/a/b c"), Some(("b", "a/b c")));
        assert_eq!([object("s3://b/a"), object("gs://b"), object("file:/a")], [None; 3]);
    }
}
