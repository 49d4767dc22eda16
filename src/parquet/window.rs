//! A part of a file that is at hand, by its places in the file.

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// Bytes of a file from a position on.
#[derive(Clone)]
pub struct Window {
    /// The position.
    pub start: u64,
    /// The bytes.
    pub bytes: Bytes,
}

impl Length for Window {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Window {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let from = start.checked_sub(self.start).and_then(|from| usize::try_from(from).ok()).filter(|from| *from <= self.bytes.len());
        let from = from.ok_or_else(|| ParquetError::EOF(format!("byte {start} was not read")))?;
        Ok(self.bytes.slice(from..).reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let from = start.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let end = from.and_then(|from| from.checked_add(length)).filter(|end| *end <= self.bytes.len());
        match from.zip(end) {
            Some((from, end)) => Ok(self.bytes.slice(from..end)),
            None => Err(ParquetError::EOF(format!("bytes {start} and {length} on were not read"))),
        }
    }
}
