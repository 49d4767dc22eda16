//! AWS signatures, for the Iceberg endpoints of Glue and S3 Tables.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::Uri;
use hyper::header::{HOST, HeaderName, HeaderValue};
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner, StaticCredentialProvider};
use reqsign_core::{Context, HttpSend, OsEnv};
use reqsign_file_read_tokio::TokioFileRead;

use super::http::{Http, Request};

const LARGEST: usize = 1 << 20;

/// Signs requests.
pub struct Signer(reqsign_core::Signer<Credential>);

impl Signer {
    /// From the properties by their Iceberg names: `rest.signing-name`,
    /// `rest.signing-region`, `rest.access-key-id`, `rest.secret-access-key`,
    /// `rest.session-token`. Without keys, what the machine has: environment,
    /// profile, web identity, container or instance role.
    ///
    /// # Errors
    /// A text, when the region is not known.
    pub fn open(properties: &BTreeMap<String, String>, http: &Http) -> Result<Self, String> {
        let get = |key: &str| properties.get(key).map(String::as_str);
        let region = get("rest.signing-region").or_else(|| get("client.region")).map(str::to_owned);
        let region = region.or_else(|| std::env::var("AWS_REGION").ok()).ok_or("rest.signing-region is not set")?;
        let signer = RequestSigner::new(get("rest.signing-name").unwrap_or("execute-api"), &region);
        let context = Context::new().with_file_read(TokioFileRead).with_http_send(Sender(http.clone())).with_env(OsEnv);
        let signer = match (get("rest.access-key-id"), get("rest.secret-access-key")) {
            (Some(id), Some(secret)) => {
                let keys = StaticCredentialProvider::new(id, secret);
                let keys = match get("rest.session-token") {
                    Some(token) => keys.with_session_token(token),
                    None => keys,
                };
                reqsign_core::Signer::new(context, keys, signer)
            }
            (None, None) => reqsign_core::Signer::new(context, DefaultCredentialProvider::new(), signer),
            _ => return Err("rest.access-key-id and rest.secret-access-key are needed together".into()),
        };
        Ok(Self(signer))
    }

    /// Signs head and body.
    ///
    /// # Errors
    /// A text, when there are no credentials.
    pub async fn sign(&self, request: &mut Request) -> Result<(), String> {
        let digest = reqsign_core::hash::hex_sha256(request.body());
        let digest = HeaderValue::from_str(&digest).map_err(|e| e.to_string())?;
        request.headers_mut().insert(HeaderName::from_static("x-amz-content-sha256"), digest);
        let (mut parts, body) = std::mem::take(request).into_parts();
        let uri = parts.uri.clone();
        parts.uri = doubled(&uri)?;
        let signed = self.0.sign(&mut parts, None).await;
        parts.uri = uri;
        parts.headers.remove(HOST);
        *request = Request::from_parts(parts, body);
        signed.map_err(|e| format!("the request cannot be signed: {e}"))
    }
}

/// Every service but S3 wants the path encoded once more under the signature than
/// on the wire; the signer encodes as S3 does.
fn doubled(uri: &Uri) -> Result<Uri, String> {
    let mut parts = uri.clone().into_parts();
    let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let path = format!("{}{query}", uri.path().replace('%', "%25"));
    parts.path_and_query = Some(path.parse().map_err(|e| format!("{path}: {e}"))?);
    Uri::from_parts(parts).map_err(|e| e.to_string())
}

/// How the machine's own credentials are asked for.
struct Sender(Http);

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl HttpSend for Sender {
    async fn http_send(&self, request: hyper::Request<Bytes>) -> reqsign_core::Result<hyper::Response<Bytes>> {
        let answer = self.0.read(request, LARGEST).await.map_err(reqsign_core::Error::unexpected)?;
        let mut response = hyper::Response::new(answer.body);
        *response.status_mut() = hyper::StatusCode::from_u16(answer.status).unwrap_or(hyper::StatusCode::BAD_GATEWAY);
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::super::http;
    use super::*;

    #[test]
    fn the_signed_path_is_encoded_once_more() {
        let uri: Uri = "https://h/v1/arn%3Aaws/namespaces/a%1Fb?parent=a%1Fb".parse().unwrap();
        assert_eq!(doubled(&uri).unwrap().to_string(), "https://h/v1/arn%253Aaws/namespaces/a%251Fb?parent=a%1Fb");
    }

    #[tokio::test]
    async fn a_signature_covers_the_body_and_shows_no_secret() {
        let keys = [("rest.access-key-id", "AKID"), ("rest.secret-access-key", "s3cr3t"), ("rest.signing-region", "eu-west-1")];
        let mut properties: BTreeMap<String, String> = keys.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        properties.insert("rest.signing-name".into(), "glue".into());
        let http = Http::new(http::Patience::of(&properties)).unwrap();
        let signer = Signer::open(&properties, &http).unwrap();
        let mut request =
            http::request(hyper::Method::POST, "https://glue.eu-west-1.amazonaws.com/iceberg/v1/x", Bytes::from("{}")).unwrap();
        signer.sign(&mut request).await.unwrap();
        let authorization = request.headers()["authorization"].to_str().unwrap();
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{authorization}");
        assert!(authorization.contains("/eu-west-1/glue/aws4_request") && !authorization.contains("s3cr3t"), "{authorization}");
        let digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(request.headers()["x-amz-content-sha256"], digest);
        assert_eq!(request.uri().path(), "/iceberg/v1/x");
    }

    #[test]
    fn half_a_key_or_no_region_is_a_mistake() {
        let http = Http::new(http::Patience::of(&BTreeMap::new())).unwrap();
        let open = |set: &[(&str, &str)]| {
            let properties = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            Signer::open(&properties, &http).err()
        };
        assert!(open(&[("rest.signing-region", "r"), ("rest.access-key-id", "a")]).unwrap().contains("together"));
    }
}
