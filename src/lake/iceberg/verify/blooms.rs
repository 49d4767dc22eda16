//! Bloom filters of the outputs: a value that one denies is a row that readers skip.
//!
//! Read by the format's text, without the `parquet` crate, which writes them.

use bytes::Bytes;
use parquet::file::metadata::ColumnChunkMetaData;
use xxhash_rust::xxh64::xxh64;

use super::{failed, unproven};
use crate::lake::iceberg::read::file::ParquetFile;
use crate::lake::{Error, Result};
use crate::model::refusal::Refusal;
use crate::parquet::fault::Fault;
use crate::parquet::thrift::{Reader, wire};

/// Most bytes of a filter's header.
const HEADER: u64 = 64;
/// Bytes of a block.
const BLOCK: usize = 32;
/// What the hash is multiplied by for each word of a block, by the format.
const SALT: [u32; 8] = [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A split block filter over the hashes of values.
pub struct Filter {
    bits: Bytes,
}

impl Filter {
    /// Whether a value may be among those that the filter is of, by its bytes in
    /// `PLAIN` without a length.
    pub fn may_hold(&self, value: &[u8]) -> bool {
        let hash = xxh64(value, 0);
        let blocks = (self.bits.len() / BLOCK) as u64;
        let block = usize::try_from((hash >> 32).wrapping_mul(blocks) >> 32).unwrap_or(usize::MAX);
        let Some(words) = self.bits.chunks_exact(BLOCK).nth(block) else { return false };
        let words = words.chunks_exact(4).filter_map(|word| word.try_into().ok()).map(u32::from_le_bytes);
        words.zip(SALT).all(|(word, salt)| word & (1 << ((hash as u32).wrapping_mul(salt) >> 27)) != 0)
    }
}

/// Bytes of a filter's bits, and of the header in front of them.
///
/// Errs when it is no header, or of a filter that is not known.
fn header(bytes: &[u8]) -> std::result::Result<(usize, usize), Fault> {
    let mut reader = Reader::new(bytes);
    let (mut length, mut last, mut kinds) = (None, 0, 0);
    while let Some((id, kind)) = reader.field(&mut last)? {
        match (id, kind) {
            (1, wire::I32) => length = usize::try_from(reader.i32(kind)?).ok(),
            // algorithm, hash and compression: of each the first one is the only one
            (2..=4, wire::STRUCT) => {
                let mut member = 0;
                while let Some((id, kind)) = reader.field(&mut member)? {
                    kinds += i32::from(id == 1);
                    reader.skip(kind)?;
                }
            }
            (_, kind) => reader.skip(kind)?,
        }
    }
    match length.filter(|length| *length > 0 && length % BLOCK == 0 && kinds == 3) {
        Some(length) => Ok((length, reader.position())),
        None => Err(Fault::damaged("a bloom filter of a kind that is not known")),
    }
}

/// The filter of a chunk, of `most` bytes at most; `None` where it has none.
///
/// Errs `Damaged` when it is none that is known.
pub async fn filter(file: &ParquetFile, chunk: &ColumnChunkMetaData, most: u64) -> Result<Option<Filter>> {
    let Some(start) = chunk.bloom_filter_offset() else { return Ok(None) };
    let wrong = |why: &dyn std::fmt::Display| Error::damaged(&file.path, format_args!("bloom filter of {}: {why}", chunk.column_path()));
    let (start, size) = (u64::try_from(start).map_err(|e| wrong(&e))?, file.size());
    let head = file.bytes(start.min(size)..start.saturating_add(HEADER).min(size)).await?;
    let (length, head) = header(&head).map_err(|fault| match fault {
        Fault::Damaged(why) | Fault::Unfit(why) => wrong(&why),
    })?;
    let whole = (head + length) as u64;
    if chunk.bloom_filter_length().is_some_and(|told| u64::try_from(told) != Ok(whole)) {
        return Err(wrong(&"the footer states another length than its header"));
    }
    if whole > most {
        return Err(file.refuse(Refusal::TooLargeForMemory, format_args!("a bloom filter of {whole} bytes")));
    }
    let from = start.saturating_add(head as u64);
    Ok(Some(Filter { bits: file.bytes(from..from.saturating_add(length as u64)).await? }))
}

/// Checks that the filters of a copied row group are those of the input's. An output
/// may leave one out.
///
/// Errs [`Error::Proof`] naming the column, and as the input does.
pub async fn same(input: &ParquetFile, from: usize, output: &ParquetFile, to: usize, memory: u64) -> Result<()> {
    let groups = (input.footer().row_groups().get(from), output.footer().row_groups().get(to));
    let (Some(from), Some(to)) = groups else { return Ok(()) };
    for (old, new) in from.columns().iter().zip(to.columns()) {
        let Some(copy) = filter(output, new, memory / 8).await.map_err(unproven)? else { continue };
        let same = filter(input, old, memory / 8).await?.is_some_and(|original| original.bits == copy.bits);
        if !same {
            return Err(failed(&output.path, format_args!("the bloom filter of {} is not that of {}", new.column_path(), input.path)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::bloom_filter::Sbbf;

    use super::*;

    #[test]
    fn a_filter_is_read_as_the_crate_writes_it() {
        let mut written = Sbbf::new_with_ndv_fpp(100, 0.01).unwrap();
        (0..100i64).for_each(|n| written.insert(&(n * 7)));
        written.insert("text");
        let mut bytes = Vec::new();
        written.write(&mut bytes).unwrap();
        let (length, head) = header(&bytes).unwrap();
        assert_eq!(head + length, bytes.len());
        let filter = Filter { bits: Bytes::from(bytes).slice(head..) };
        assert!((0..100i64).all(|n| filter.may_hold(&(n * 7).to_le_bytes())) && filter.may_hold(b"text"));
        let (found, expected): (Vec<bool>, Vec<bool>) =
            (1000..3000i64).map(|n| (filter.may_hold(&n.to_le_bytes()), written.check(&n))).unzip();
        assert_eq!(found, expected);
        assert!(found.iter().filter(|held| **held).count() < 100);
    }

    #[test]
    fn what_is_no_filter_is_said() {
        let mut bytes = Vec::new();
        Sbbf::new_with_num_of_bytes(64).write(&mut bytes).unwrap();
        assert_eq!(header(&bytes).unwrap().0, 64);
        for at in 0..8 {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            let _ = header(&other);
        }
        assert!(header(&[0]).is_err() && header(&[]).is_err());
    }
}
