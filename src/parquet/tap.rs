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

/// The shared end of a pipe between an encoder and a store.
#[derive(Clone)]
pub struct Tap(Arc<Mutex<Pieces>>);

struct Pieces {
    size: usize,
    full: VecDeque<Bytes>,
    open: Vec<u8>,
}

impl Default for Tap {
    fn default() -> Self {
        Self::with_pieces(PIECE)
    }
}

impl Tap {
    /// A tap that gives pieces of this size.
    pub fn with_pieces(size: usize) -> Self {
        Self(Arc::new(Mutex::new(Pieces { size, full: VecDeque::new(), open: Vec::new() })))
    }

    /// The next full piece, if there is one.
    pub fn next_piece(&self) -> Option<Bytes> {
        self.lock().full.pop_front()
    }

    /// What is left after the last full piece; may be empty.
    pub fn rest(&self) -> Bytes {
        rooms::share(std::mem::take(&mut self.lock().open))
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Tap {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut pieces = self.lock();
        let size = pieces.size;
        if pieces.open.capacity() == 0 {
            pieces.open = rooms::take(size);
        }
        let room = size.saturating_sub(pieces.open.len());
        let taken = buf.get(..room.min(buf.len())).unwrap_or(buf);
        pieces.open.extend_from_slice(taken);
        if pieces.open.len() >= size {
            let piece = std::mem::take(&mut pieces.open);
            pieces.full.push_back(rooms::share(piece));
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
}
