//! A writer that a synchronous Parquet encoder writes into and an asynchronous
//! store is fed from, in pieces of one size.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::rooms;

/// Size of the pieces: object stores want all parts of an upload but the last
/// to be equal and of at least 5 MiB.
pub const PIECE: usize = 8 << 20;

/// Size of the pieces for a store that takes any: what is written stays near.
pub const SMALL_PIECE: usize = 1 << 20;

/// Where aligned pieces begin in memory, and what their size is a multiple of: devices
/// take such memory as it is.
pub const ALIGN: usize = 4096;

/// The shared end of a pipe between an encoder and a store.
#[derive(Clone)]
pub struct Tap(Arc<Mutex<Pieces>>);

struct Pieces {
    size: usize,
    align: usize,
    full: VecDeque<Bytes>,
    /// The piece that is being filled, behind `skip` bytes.
    open: Vec<u8>,
    skip: usize,
}

impl Pieces {
    fn begin(&mut self) {
        self.open = rooms::take(self.size.saturating_add(self.align - 1));
        self.skip = self.open.as_ptr().align_offset(self.align).min(self.align - 1);
        self.open.resize(self.skip, 0);
    }

    fn end(&mut self) -> Bytes {
        let skip = self.skip.min(self.open.len());
        rooms::share(std::mem::take(&mut self.open)).slice(skip..)
    }
}

impl Default for Tap {
    fn default() -> Self {
        Self::with_pieces(PIECE)
    }
}

impl Tap {
    /// A tap that gives pieces of this size.
    pub fn with_pieces(size: usize) -> Self {
        Self::new(size, 1)
    }

    /// A tap that gives pieces of [`SMALL_PIECE`], each at a multiple of [`ALIGN`] in
    /// memory.
    pub fn aligned() -> Self {
        Self::new(SMALL_PIECE, ALIGN)
    }

    fn new(size: usize, align: usize) -> Self {
        Self(Arc::new(Mutex::new(Pieces { size, align, full: VecDeque::new(), open: Vec::new(), skip: 0 })))
    }

    /// The next full piece, if there is one.
    pub fn next_piece(&self) -> Option<Bytes> {
        self.lock().full.pop_front()
    }

    /// What is left after the last full piece; may be empty.
    pub fn rest(&self) -> Bytes {
        self.lock().end()
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Tap {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut pieces = self.lock();
        if pieces.open.capacity() == 0 {
            pieces.begin();
        }
        let end = pieces.size.saturating_add(pieces.skip);
        let room = end.saturating_sub(pieces.open.len());
        let taken = buf.get(..room.min(buf.len())).unwrap_or(buf);
        pieces.open.extend_from_slice(taken);
        if pieces.open.len() >= end {
            let piece = pieces.end();
            pieces.full.push_back(piece);
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn pieces_are_of_one_size_and_nothing_is_lost() {
        let mut tap = Tap::default();
        let data: Vec<u8> = (0..PIECE * 2 + 5).map(|i| (i % 251) as u8).collect();
        for part in data.chunks(1_000_003) {
            tap.write_all(part).unwrap();
        }
        let (a, b) = (tap.next_piece().unwrap(), tap.next_piece().unwrap());
        assert_eq!((a.len(), b.len(), tap.next_piece()), (PIECE, PIECE, None));
        let whole: Vec<u8> = [a, b, tap.rest()].concat();
        assert!(whole == data);
        assert!(tap.rest().is_empty());
    }

    #[test]
    fn aligned_pieces_lie_where_a_device_takes_them() {
        let mut tap = Tap::aligned();
        assert!(tap.rest().is_empty());
        let data: Vec<u8> = (0..SMALL_PIECE * 3 + 5).map(|i| (i % 251) as u8).collect();
        for part in data.chunks(1001) {
            tap.write_all(part).unwrap();
        }
        let full: Vec<Bytes> = std::iter::from_fn(|| tap.next_piece()).collect();
        assert_eq!(full.len(), 3);
        assert!(full.iter().all(|piece| piece.len() == SMALL_PIECE && piece.as_ptr().align_offset(ALIGN) == 0));
        assert!([full.concat(), tap.rest().to_vec()].concat() == data);
        assert!(tap.rest().is_empty());
    }
}
