//! The bytes of a file for a reader that does not wait: what was fetched ahead,
//! and else windows, fetched while the reader's blocking thread waits.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use tokio::runtime::Handle;

use super::file::FileReader;

/// Bytes of a file, by where they begin.
pub type Piece = (u64, Bytes);

/// Bytes of one file. Used on threads that may block.
pub struct Window {
    reader: FileReader,
    ahead: Arc<Vec<Piece>>,
    windows: Windows,
    held: Arc<Mutex<Vec<Piece>>>,
    failure: Failure,
    runtime: Handle,
}

/// Why a fetch failed: readers of Arrow batches pass on no more than its text.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<ParquetError>>>);

impl Failure {
    /// The failed fetch behind an error, or the error.
    pub fn behind(&self, error: impl Into<ParquetError>) -> ParquetError {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.unwrap_or_else(|| error.into())
    }
}

/// What is fetched when something was not fetched ahead.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// How many are held: one for each place that is read from in turn.
    pub count: usize,
    /// Bytes of each; more only where more is asked for at once.
    pub length: u64,
}

impl Window {
    /// Bytes of `reader`'s file, of which `ahead` are fetched already, and others on `runtime`.
    pub fn new(reader: FileReader, ahead: Arc<Vec<Piece>>, windows: Windows, runtime: &Handle) -> Self {
        Self { reader, ahead, windows, held: Arc::default(), failure: Failure::default(), runtime: runtime.clone() }
    }

    /// Where a failed fetch is remembered.
    pub fn failure(&self) -> Failure {
        self.failure.clone()
    }

    /// The bytes of a range; where `some` will do, at least one of them.
    fn bytes(&self, range: Range<u64>, some: bool) -> parquet::errors::Result<Bytes> {
        if range.end > self.reader.size() {
            return Err(ParquetError::EOF(format!("bytes {range:?} of a file of {} bytes", self.reader.size())));
        }
        let cut = |piece: &Piece| within(piece, &range, some);
        if let Some(bytes) = self.ahead.iter().find_map(cut) {
            return Ok(bytes);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = held.iter().find_map(cut) {
            return Ok(bytes);
        }
        if held.len() >= self.windows.count {
            // The one that this place was read from last lies just before it.
            let left = held.iter().enumerate().filter(|(_, (start, _))| *start <= range.start).max_by_key(|(_, (start, _))| *start);
            let left = left.map_or(0, |(place, _)| place);
            held.remove(left);
        }
        let until = range.start.saturating_add(self.windows.length).max(range.end).min(self.reader.size());
        let fetched = self.runtime.block_on(self.reader.fetch(range.start..until)).map_err(|error| {
            *self.failure.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            ParquetError::General("the store failed".into())
        });
        let piece = (range.start, fetched?);
        let bytes = cut(&piece).ok_or_else(|| ParquetError::EOF(format!("bytes {range:?} were not read")))?;
        held.push(piece);
        Ok(bytes)
    }
}

/// The part of a piece that is wanted, if all of it is there, or `some`.
fn within((start, bytes): &Piece, wanted: &Range<u64>, some: bool) -> Option<Bytes> {
    let from = usize::try_from(wanted.start.checked_sub(*start)?).ok()?;
    let to = usize::try_from(wanted.end.checked_sub(*start)?).ok()?;
    let end = to.min(bytes.len());
    (from <= end && (end == to || (some && from < end))).then(|| bytes.slice(from..end))
}

impl Length for Window {
    fn len(&self) -> u64 {
        self.reader.size()
    }
}

impl ChunkReader for Window {
    type T = Stream;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Stream> {
        let window = Self {
            reader: self.reader.clone(),
            ahead: Arc::clone(&self.ahead),
            windows: self.windows,
            held: Arc::clone(&self.held),
            failure: self.failure.clone(),
            runtime: self.runtime.clone(),
        };
        Ok(Stream { window, at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.bytes(start..start.saturating_add(u64::try_from(length)?), false)
    }
}

/// A file's bytes from a place on.
pub struct Stream {
    window: Window,
    at: u64,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = u64::try_from(into.len()).unwrap_or(u64::MAX);
        let end = self.at.saturating_add(wanted).min(self.window.reader.size());
        if end <= self.at {
            return Ok(0);
        }
        let bytes = self.window.bytes(self.at..end, true).map_err(io::Error::other)?;
        let count = bytes.len().min(into.len());
        into.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        self.at += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_gives_what_is_asked_for_whole_or_as_much_as_it_has() {
        let piece = (10, Bytes::from_static(b"abcdef"));
        assert_eq!(within(&piece, &(12..14), false).unwrap().as_ref(), b"cd");
        assert_eq!(within(&piece, &(14..20), false), None);
        assert_eq!(within(&piece, &(14..20), true).unwrap().as_ref(), b"ef");
        assert_eq!(within(&piece, &(16..20), true), None);
        assert_eq!(within(&piece, &(9..11), true), None);
    }
}
