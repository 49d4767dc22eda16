//! Bodies as they were before they were packed for the way.

use std::io::Read;

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use flate2::read::MultiGzDecoder;

/// Unpacks a gzipped body, up to `max_bytes`.
///
/// # Errors
/// When it is packed in another way, or is too large.
pub(super) fn plain(headers: &HeaderMap, body: Bytes, max_bytes: usize) -> Result<Bytes, String> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase());
    match encoding.as_deref() {
        None | Some(b"identity") => Ok(body),
        Some(b"gzip" | b"x-gzip") => {
            let mut plain = Vec::new();
            let most = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
            MultiGzDecoder::new(body.as_ref()).take(most).read_to_end(&mut plain).map_err(|e| format!("content-encoding: gzip: {e}"))?;
            if plain.len() > max_bytes {
                return Err(format!("content-encoding: the body unpacks to more than {max_bytes} bytes"));
            }
            Ok(plain.into())
        }
        Some(_) => Err("content-encoding: only gzip is unpacked; send the body as it is".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(plain: &[u8]) -> Bytes {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(plain).unwrap();
        packer.finish().unwrap().into()
    }

    fn open(encoding: &str, body: Bytes) -> Result<Bytes, String> {
        let headers = [(header::CONTENT_ENCODING, encoding.parse().unwrap())].into_iter().collect();
        plain(&headers, body, 1000)
    }

    #[test]
    fn gzip_is_unpacked_within_the_bound() {
        assert_eq!(open("gzip", gzip(&[7; 1000])).unwrap(), vec![7; 1000]);
        assert_eq!(open("GZIP", gzip(&[7; 1001])).unwrap_err(), "content-encoding: the body unpacks to more than 1000 bytes");
        assert!(open("gzip", Bytes::from_static(b"{}")).unwrap_err().starts_with("content-encoding: gzip: "));
        assert!(open("br", Bytes::new()).unwrap_err().contains("only gzip"));
    }
}
