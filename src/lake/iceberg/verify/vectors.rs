//! Deletion vectors read a second time: the blob by its file's own footer, the bitmap
//! by the words of its specification.

use iceberg::puffin::PuffinReader;
use roaring::RoaringTreemap;

use crate::lake::iceberg::read::file::Store;
use crate::lake::{Error, Result};
use crate::model::plan::LiveDelete;

/// The rows that a vector of one data file deletes.
///
/// Errs `NotFound`, `Unreachable`, or refused `Damaged` where file and manifest do not
/// agree on whose vector it is, where it lies and how many rows it deletes.
pub async fn rows(store: &Store, delete: &LiveDelete, of: &str) -> Result<RoaringTreemap> {
    let path = &*delete.key.path;
    let bytes = store.whole(path).await?;
    let damaged = |why: &dyn std::fmt::Display| Error::damaged(path, format_args!("the vector of {of}: {why}"));
    let memory = iceberg::io::FileIO::new_with_memory();
    let copied = async {
        memory.new_output(COPY)?.write(bytes.clone()).await?;
        PuffinReader::new(memory.new_input(COPY)?).file_metadata().await.cloned()
    };
    let footer = copied.await.map_err(|e| damaged(&e))?;
    let start = delete.key.offset.and_then(|offset| u64::try_from(offset).ok());
    let blob = footer.blobs().iter().find(|blob| Some(blob.offset()) == start && blob.length() == delete.bytes);
    let blob = blob.ok_or_else(|| damaged(&"the file's footer tells of no blob in its place"))?;
    let told = |key: &str| blob.properties().get(key).map(String::as_str);
    let records = delete.records.to_string();
    if blob.blob_type() != TYPE || told("referenced-data-file") != Some(of) || told("cardinality") != Some(&records) {
        return Err(damaged(&format_args!("the file's footer tells of a {} with {:?}", blob.blob_type(), blob.properties())));
    }
    let range = usize::try_from(blob.offset()).ok().zip(usize::try_from(blob.offset().saturating_add(blob.length())).ok());
    let blob = range.and_then(|(start, end)| bytes.get(start..end)).ok_or_else(|| damaged(&"it ends behind its file"))?;
    // its length, the magic number and the checksum were read by the first reading
    let bitmap = blob.get(8..blob.len().saturating_sub(4)).ok_or_else(|| damaged(&"it has no bitmap"))?;
    decoded(bitmap).ok_or_else(|| damaged(&"its bitmap does not decode"))
}

/// What blobs of vectors are called.
const TYPE: &str = "deletion-vector-v1";
/// Where the footer is read from.
const COPY: &str = "memory:/puffin";
/// Marks a bitmap without run containers.
const PLAIN: u32 = 12346;
/// Marks one with them, in its lower half.
const RUNS: u32 = 12347;
/// Most values of an array container.
const ARRAY: u32 = 4096;
/// Fewest containers of a bitmap with runs that has offsets.
const OFFSETS: u32 = 4;

/// Bytes from the front on.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u32> {
        self.take().map(u16::from_le_bytes).map(u32::from)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }
}

/// The values of 64-bit bitmaps in the portable form: how many there are, and each with
/// the upper halves of its values in front.
fn decoded(bytes: &[u8]) -> Option<RoaringTreemap> {
    let mut bytes = Bytes(bytes);
    let mut rows = RoaringTreemap::new();
    for _ in 0..u64::from_le_bytes(bytes.take()?) {
        let upper = u64::from(bytes.u32()?) << 32;
        half(&mut bytes, |value| {
            rows.insert(upper | u64::from(value));
        })?;
    }
    bytes.0.is_empty().then_some(rows)
}

/// The values of one 32-bit bitmap.
fn half(bytes: &mut Bytes<'_>, mut hear: impl FnMut(u32)) -> Option<()> {
    let cookie = bytes.u32()?;
    let (count, runs) = match cookie {
        PLAIN => (bytes.u32()?, None),
        _ if cookie & 0xffff == RUNS => {
            let count = (cookie >> 16) + 1;
            let flags: Vec<u8> = (0..count.div_ceil(8)).map(|_| bytes.take::<1>().map(|[flag]| flag)).collect::<Option<_>>()?;
            (count, Some(flags))
        }
        _ => return None,
    };
    let heads: Vec<(u32, u32)> = (0..count).map(|_| Some((bytes.u16()?, bytes.u16()? + 1))).collect::<Option<_>>()?;
    if runs.is_none() || count >= OFFSETS {
        bytes.skip(usize::try_from(count).ok()?.checked_mul(4)?)?;
    }
    for (place, (key, values)) in heads.into_iter().enumerate() {
        let is_run = runs.as_ref().and_then(|flags| flags.get(place / 8)).is_some_and(|flag| flag >> (place % 8) & 1 == 1);
        container(bytes, is_run, values, |low| hear(key << 16 | low))?;
    }
    Some(())
}

/// The lower halves of one container's values.
fn container(bytes: &mut Bytes<'_>, is_run: bool, values: u32, mut hear: impl FnMut(u32)) -> Option<()> {
    if is_run {
        for _ in 0..bytes.u16()? {
            let (start, more) = (bytes.u16()?, bytes.u16()?);
            (start..=start.checked_add(more).filter(|end| *end <= 0xffff)?).for_each(&mut hear);
        }
        return Some(());
    }
    if values <= ARRAY {
        for _ in 0..values {
            hear(bytes.u16()?);
        }
        return Some(());
    }
    for word in 0..1024 {
        let bits = u64::from_le_bytes(bytes.take()?);
        (0..64).filter(|bit| bits >> bit & 1 == 1).for_each(|bit| hear(word * 64 + bit));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(rows: &RoaringTreemap) -> Option<RoaringTreemap> {
        let mut bytes = Vec::new();
        rows.serialize_into(&mut bytes).unwrap();
        decoded(&bytes)
    }

    #[test]
    fn every_kind_of_container_reads_as_the_other_reader_reads_it() {
        let sparse: RoaringTreemap = (0..5000).map(|n| n * 65_537).collect();
        let dense: RoaringTreemap = (0..60_000).filter(|n| n % 3 != 0).chain([1 << 40]).collect();
        let mut runs: RoaringTreemap = (100..50_000).chain(200_000..400_000).chain([7 << 33]).collect();
        runs.optimize();
        for rows in [RoaringTreemap::new(), sparse, dense, runs] {
            assert_eq!(again(&rows), Some(rows));
        }
    }

    #[test]
    fn a_bitmap_that_ends_early_is_none() {
        let mut rows: RoaringTreemap = (0..9000).chain([70_000, 70_002]).collect();
        rows.optimize();
        let mut bytes = Vec::new();
        rows.serialize_into(&mut bytes).unwrap();
        assert!((0..bytes.len()).all(|length| decoded(&bytes[..length]).is_none()));
    }
}
