//! Bytes in pieces: what is copied stays where it was read into.

use std::collections::VecDeque;
use std::io::Read;

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::rooms;

/// Bytes in order.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    whole: VecDeque<Bytes>,
    open: Vec<u8>,
    length: usize,
}

/// What is shorter is copied: a piece of its own costs as much.
const SHORTEST: usize = 2 << 10;
/// Room for what is copied.
const ROOM: usize = 128 << 10;

impl Pieces {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends a copy.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.open.capacity() - self.open.len() < bytes.len() {
            self.finish();
            self.open = rooms::take(ROOM.max(bytes.len()));
        }
        self.open.extend_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends bytes that are shared.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SHORTEST {
            return self.extend(&bytes);
        }
        self.seal();
        self.length += bytes.len();
        self.whole.push_back(bytes);
    }

    /// Ends what is copied. Where it takes little of its room, the room goes on to
    /// what is copied next.
    fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        if self.open.len() < self.open.capacity() / 2 {
            self.whole.push_back(Bytes::copy_from_slice(&self.open));
            self.open.clear();
        } else {
            self.whole.push_back(rooms::share(std::mem::take(&mut self.open)));
        }
    }

    /// Gives back the room that was not needed: nothing more is to come.
    pub fn finish(&mut self) {
        self.seal();
        rooms::give(std::mem::take(&mut self.open));
    }

    /// All of them in one piece.
    pub fn concat(mut self) -> Bytes {
        self.seal();
        match self.whole.len() {
            1 => self.whole.pop_front().unwrap_or_default(),
            _ => self
                .whole
                .iter()
                .fold(Vec::with_capacity(self.length), |mut all, piece| {
                    all.extend_from_slice(piece);
                    all
                })
                .into(),
        }
    }
}

impl Length for Pieces {
    fn len(&self) -> u64 {
        self.length as u64
    }
}

impl ChunkReader for Pieces {
    type T = Stream;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Stream> {
        let mut stream = Stream(self.whole.clone());
        stream.0.push_back(Bytes::copy_from_slice(&self.open));
        let left = std::io::copy(&mut stream.by_ref().take(start), &mut std::io::sink())?;
        if left == start { Ok(stream) } else { Err(ParquetError::EOF(format!("byte {start} of {}", self.length))) }
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let mut bytes = Vec::with_capacity(length.min(self.length));
        self.get_read(start)?.take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() == length { Ok(bytes.into()) } else { Err(ParquetError::EOF(format!("bytes {start} and {length} on"))) }
    }
}

/// The bytes from a place on, each piece given up when it is read.
pub struct Stream(VecDeque<Bytes>);

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        let Some(piece) = self.0.front_mut() else { return Ok(0) };
        let count = piece.len().min(into.len());
        if let (Some(to), Some(from)) = (into.get_mut(..count), piece.get(..count)) {
            to.copy_from_slice(from);
        }
        piece.advance(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_back_in_order(parts in prop::collection::vec((any::<u8>(), 0usize..9000, any::<bool>()), 0..40), from in 0usize..100_000) {
            let (mut pieces, mut all) = (Pieces::default(), Vec::new());
            for (byte, length, shared) in parts {
                let bytes = vec![byte; length];
                all.extend_from_slice(&bytes);
                if shared { pieces.push(bytes.into()) } else { pieces.extend(&bytes) }
            }
            prop_assert_eq!(pieces.len(), all.len());
            let rest = pieces.get_read(from as u64).map(|mut stream| {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).map(|_| rest).unwrap()
            });
            prop_assert_eq!(rest.ok(), all.get(from..).map(<[u8]>::to_vec));
            let middle = from..from + 100;
            prop_assert_eq!(pieces.get_bytes(from as u64, 100).ok().map(|b| b.to_vec()), all.get(middle).map(<[u8]>::to_vec));
            prop_assert_eq!(pieces.concat(), all);
        }
    }
}
