//! Memory that is used again: what the system gives anew for each large buffer
//! costs more than filling it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Smaller buffers are left to the allocator.
const SMALLEST: usize = 32 << 10;
/// Larger ones are given back at once.
const LARGEST: usize = 8 << 20;
/// Most bytes that are kept for later.
const MOST: usize = 32 << 20;

/// What most pages take, decompressed.
pub const PAGE: usize = 160 << 10;

/// Buffers that nobody uses.
static KEPT: Shelf = Shelf(Mutex::new(Kept { rooms: Vec::new(), bytes: 0 }));

/// An empty buffer with room for so many bytes.
pub fn take(bytes: usize) -> Vec<u8> {
    KEPT.take(bytes)
}

/// Gives a buffer back.
pub fn give(room: Vec<u8>) {
    KEPT.give(room);
}

/// What a buffer holds, to be shared: it is given back when the last one who
/// shares it is done.
pub fn share(filled: Vec<u8>) -> Bytes {
    match kind(filled.capacity()) {
        Some(_) => Bytes::from_owner(Shared(filled)),
        None => filled.into(),
    }
}

struct Shared(Vec<u8>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

/// Whether buffers of this size are kept.
fn kind(capacity: usize) -> Option<usize> {
    (SMALLEST..=LARGEST).contains(&capacity).then_some(capacity)
}

/// A size that many fit: a quarter of the power of two below it is the step.
fn rounded(bytes: usize) -> usize {
    let step = (bytes.checked_next_power_of_two().unwrap_or(bytes) / 8).max(1);
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

struct Shelf(Mutex<Kept>);

/// The one that was given last comes last: its memory is still near.
struct Kept {
    rooms: Vec<Vec<u8>>,
    bytes: usize,
}

impl Shelf {
    fn take(&self, bytes: usize) -> Vec<u8> {
        if !(SMALLEST..=LARGEST).contains(&bytes) {
            return Vec::with_capacity(bytes);
        }
        let wanted = rounded(bytes);
        let mut kept = self.lock();
        // twice as much would be waste
        let fits = |room: &Vec<u8>| (wanted..wanted.saturating_mul(2)).contains(&room.capacity());
        match kept.rooms.iter().rposition(fits) {
            Some(place) => {
                let room = kept.rooms.remove(place);
                kept.bytes = kept.bytes.saturating_sub(room.capacity());
                room
            }
            None => {
                drop(kept);
                Vec::with_capacity(wanted)
            }
        }
    }

    fn give(&self, mut room: Vec<u8>) {
        room.clear();
        let Some(size) = kind(room.capacity()) else { return };
        let mut gone = Vec::new();
        let mut kept = self.lock();
        kept.bytes = kept.bytes.saturating_add(size);
        kept.rooms.push(room);
        while kept.bytes > MOST && !kept.rooms.is_empty() {
            let oldest = kept.rooms.remove(0);
            kept.bytes = kept.bytes.saturating_sub(oldest.capacity());
            gone.push(oldest);
        }
        // the system takes its time
        drop(kept);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf() -> Shelf {
        Shelf(Mutex::new(Kept { rooms: Vec::new(), bytes: 0 }))
    }

    #[test]
    fn a_buffer_is_used_again_empty_and_for_what_fits() {
        let shelf = shelf();
        let mut room = shelf.take(100_000);
        room.extend_from_slice(&[7; 100_000]);
        let place = room.as_ptr();
        shelf.give(room);
        let (larger, smaller) = (shelf.take(200_000), shelf.take(40_000));
        assert!(larger.capacity() >= 200_000 && larger.as_ptr() != place, "too small for this one");
        assert_ne!(smaller.as_ptr(), place, "too large for that one");
        let again = shelf.take(90_000);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        let other = shelf.take(90_000);
        assert_ne!(other.as_ptr(), place, "it is in use");
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let shelf = shelf();
        shelf.give(Vec::with_capacity(SMALLEST - 1));
        shelf.give(Vec::with_capacity(LARGEST + 1));
        assert_eq!(shelf.lock().bytes, 0, "neither small ones nor large ones");
        (0..100).for_each(|_| shelf.give(Vec::with_capacity(1 << 20)));
        let kept = shelf.lock();
        assert_eq!((kept.bytes, kept.rooms.len()), (MOST, MOST >> 20));
    }

    #[test]
    fn what_is_shared_is_what_was_filled() {
        for size in [0, 1, SMALLEST, LARGEST + 1] {
            let mut room = take(size);
            room.resize(size, 3);
            let shared = share(room);
            let part = shared.slice(size / 2..);
            drop(shared);
            assert_eq!(part, vec![3; size - size / 2]);
        }
    }

    #[test]
    fn sizes_are_rounded_up_by_less_than_a_quarter() {
        for bytes in [SMALLEST, SMALLEST + 1, 100_001, 800_000, LARGEST] {
            let rounded = rounded(bytes);
            assert!(rounded >= bytes && rounded <= bytes + bytes / 4 + 1, "{bytes}: {rounded}");
        }
    }
}
