//! Deletion vectors: the deleted rows of one data file, as a blob of a Puffin file.

use roaring::RoaringTreemap;

use super::file::Store;
use crate::lake::{Error, Result};
use crate::model::plan::LiveDelete;

/// What a blob begins with after its length.
pub const MAGIC: [u8; 4] = [0xd1, 0xd3, 0x39, 0x64];

/// The bytes of a vector's blob.
///
/// Errs `NotFound`, `Unreachable`, or refused `Damaged` when the file is shorter.
pub async fn blob(store: &Store, delete: &LiveDelete) -> Result<bytes::Bytes> {
    let path = &delete.key.path;
    let start = delete.key.offset.and_then(|offset| u64::try_from(offset).ok());
    let end = start.and_then(|start| start.checked_add(delete.bytes));
    let (start, end) = start.zip(end).ok_or_else(|| Error::damaged(path, "a deletion vector without a place in its file"))?;
    store.range(path, start..end).await
}

/// Reads a vector: the rows that it deletes, as many as its manifest entry states.
///
/// Errs as [`blob`], and refused `Damaged` where the blob is not what the
/// specification says.
pub async fn read(store: &Store, delete: &LiveDelete) -> Result<RoaringTreemap> {
    let bytes = blob(store, delete).await?;
    let damaged = |why: String| Error::damaged(&delete.key.path, format_args!("the vector at {:?}: {why}", delete.key.offset));
    let rows = parse(&bytes).map_err(damaged)?;
    match rows.len() == delete.records {
        true => Ok(rows),
        false => Err(damaged(format!("{} rows where the manifest states {}", rows.len(), delete.records))),
    }
}

/// The bitmap of a blob: its length and the magic number before it, its checksum
/// behind it.
fn parse(blob: &[u8]) -> std::result::Result<RoaringTreemap, String> {
    let (length, rest) = blob.split_first_chunk::<4>().ok_or("it has no length")?;
    let (body, sum) = rest.split_last_chunk::<4>().ok_or("it has no checksum")?;
    if usize::try_from(u32::from_be_bytes(*length)) != Ok(body.len()) {
        return Err(format!("its length is {} of {} bytes", u32::from_be_bytes(*length), body.len()));
    }
    if crc32fast::hash(body) != u32::from_be_bytes(*sum) {
        return Err("its checksum is another".into());
    }
    let mut bitmap = body.strip_prefix(&MAGIC).ok_or("it does not begin as a deletion vector does")?;
    let rows = RoaringTreemap::deserialize_from(&mut bitmap).map_err(|e| e.to_string())?;
    if !bitmap.is_empty() {
        return Err(format!("{} bytes follow its bitmap", bitmap.len()));
    }
    match rows.max().is_some_and(|row| i64::try_from(row).is_err()) {
        true => Err("a row beyond any file".into()),
        false => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A blob as the specification has it.
    fn encoded(rows: &RoaringTreemap) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        rows.serialize_into(&mut body).unwrap();
        let mut blob = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        blob.extend(&body);
        blob.extend(crc32fast::hash(&body).to_be_bytes());
        blob
    }

    #[test]
    fn a_vector_is_read_as_it_was_written() {
        let rows: RoaringTreemap = [0, 3, 70_000, 1 << 33].into_iter().collect();
        assert_eq!(parse(&encoded(&rows)), Ok(rows));
    }

    #[test]
    fn no_byte_of_a_vector_can_be_another_unseen() {
        let rows: RoaringTreemap = (10..400).chain([9_000]).collect();
        let blob = encoded(&rows);
        for place in 0..blob.len() {
            let mut other = blob.clone();
            other[place] ^= 1;
            assert!(parse(&other).is_err(), "byte {place}");
        }
        for length in 0..blob.len() {
            assert!(parse(&blob[..length]).is_err(), "{length} bytes");
        }
    }
}
