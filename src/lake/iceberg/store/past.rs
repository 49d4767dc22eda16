//! Large local files, written and read past the system's cache.
//!
//! What a rewrite writes is read once, for the proof, and then by others at another
//! time. In the cache it would push out what others read; to copy it into fresh pages
//! costs more than to hand it to the device; and all of it would go to the device at
//! once, when it is synced.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use rustix::io::Errno;

use crate::parquet::rooms;
use crate::parquet::tap::ALIGN;

/// A file that grows. Bytes go past the cache while they lie as the device wants them,
/// in memory and in the file, and the file system has that way.
pub struct Growing {
    file: File,
    path: PathBuf,
    at: u64,
    past: bool,
    able: bool,
}

impl Growing {
    /// A file that was made and is empty.
    pub fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, at: 0, past: false, able: true }
    }

    /// Appends all bytes.
    ///
    /// # Errors
    /// Those of the file system; some of the bytes may be written then.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.turn(is_aligned(self.at, bytes))?;
            match self.file.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.at = self.at.saturating_add(written as u64);
                    bytes = bytes.get(written..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // the device wants more than we know
                Err(error) if self.past && Errno::from_io_error(&error) == Some(Errno::INVAL) => self.able = false,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Goes on past the cache or through it.
    fn turn(&mut self, past: bool) -> io::Result<()> {
        let past = past && self.able;
        if past == self.past {
            return Ok(());
        }
        match set_past(&self.file, past) {
            Err(_) if past => self.able = false,
            Err(error) => return Err(error),
            Ok(()) => self.past = past,
        }
        if self.past {
            written(|paths| {
                if paths.len() >= MOST_PATHS {
                    paths.clear();
                }
                paths.insert(self.path.clone());
            });
        }
        Ok(())
    }
}

fn is_aligned(at: u64, bytes: &[u8]) -> bool {
    at.is_multiple_of(ALIGN as u64) && bytes.len().is_multiple_of(ALIGN) && bytes.as_ptr().align_offset(ALIGN) == 0
}

/// Bytes of a file that this process has written past the cache; `None` of another, and
/// where it cannot be read so: then it is to be read as any file, which tells why.
pub fn read(path: &Path, range: &Range<u64>) -> Option<Bytes> {
    if range.is_empty() || !written(|paths| paths.contains(path)) {
        return None;
    }
    let file = File::open(path).ok()?;
    if set_past(&file, true).is_err() || file.metadata().ok()?.len() < range.end {
        return None;
    }
    let from = range.start - range.start % ALIGN as u64;
    let needed = usize::try_from(range.end - from).ok()?;
    let whole = needed.checked_next_multiple_of(ALIGN)?;
    let mut room = rooms::take(whole.checked_add(ALIGN)?);
    let skip = room.as_ptr().align_offset(ALIGN);
    if skip > ALIGN {
        return None;
    }
    room.resize(skip + whole, 0);
    let mut filled = 0;
    while filled < needed {
        match file.read_at(room.get_mut(skip + filled..)?, from + filled as u64) {
            Ok(0) => return None,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    let start = skip + usize::try_from(range.start - from).ok()?;
    Some(rooms::share(room).slice(start..skip + needed))
}

/// The files that were written past the cache.
fn written<T>(look: impl FnOnce(&mut HashSet<PathBuf>) -> T) -> T {
    static PATHS: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);
    look(&mut PATHS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Files remembered; one that is forgotten is read through the cache.
const MOST_PATHS: usize = 10_000;

#[cfg(target_os = "linux")]
fn set_past(file: &File, past: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(rustix::fs::OFlags::DIRECT, past);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn set_past(_: &File, _: bool) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet::tap::{SMALL_PIECE, Tap};

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn what_is_written_past_the_cache_and_through_it_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Growing::new(File::create(&path).unwrap(), path.clone());
        let data = bytes(SMALL_PIECE * 2 + 777);
        let mut tap = Tap::aligned();
        tap.write_all(&data).unwrap();
        while let Some(piece) = tap.next_piece() {
            file.write_all(&piece).unwrap();
            assert!(file.past || !file.able, "pieces are aligned");
        }
        file.write_all(&tap.rest()).unwrap();
        assert!(!file.past);
        // nothing is aligned behind an odd end
        file.write_all(&data).unwrap();
        assert!(!file.past);
        let whole = [data.as_slice(), &data].concat();
        assert!(std::fs::read(&path).unwrap() == whole);
        if !file.able {
            return;
        }
        let size = whole.len() as u64;
        for range in [0..1, 0..size, 4095..4097, 1000..100_000, size - 5..size] {
            let (from, to) = (range.start as usize, range.end as usize);
            assert_eq!(read(&path, &range).unwrap().as_ref(), &whole[from..to], "{range:?}");
        }
        assert!(read(&path, &(0..size + 1)).is_none() && read(&path, &(5..5)).is_none());
    }

    #[test]
    fn another_file_is_none_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Growing::new(File::create(&path).unwrap(), path.clone());
        file.write_all(b"small").unwrap();
        assert!(read(&path, &(0..5)).is_none());
        assert!(read(&dir.path().join("absent"), &(0..5)).is_none());
    }

    #[test]
    fn a_file_system_without_that_way_is_written_through_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Growing { able: false, ..Growing::new(File::create(&path).unwrap(), path.clone()) };
        let data = bytes(SMALL_PIECE + 1);
        let mut tap = Tap::aligned();
        tap.write_all(&data).unwrap();
        while let Some(piece) = tap.next_piece() {
            file.write_all(&piece).unwrap();
        }
        file.write_all(&tap.rest()).unwrap();
        assert!(std::fs::read(&path).unwrap() == data && read(&path, &(0..1)).is_none());
    }
}
