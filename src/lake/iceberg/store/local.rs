//! What only a local file system can do: tell its free space, and lose a file to
//! a power cut unless it is synced.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use crate::model::location::Location;

/// The local path of a location; `None` for one in another store.
pub fn path(location: &str) -> Option<PathBuf> {
    let location = Location::parse(location);
    (location.class == "file" && location.authority.is_empty()).then(|| Path::new("/").join(location.key))
}

/// Makes a file durable: its bytes, its name in its folder, and the folders' own
/// names. Folders above the file's that this process may not open are left out:
/// it cannot have made them.
///
/// A folder's own name is synced once: the file's folder is synced for every
/// file, those above it only until the chain of them is known to be durable.
pub async fn sync(file: PathBuf) -> io::Result<()> {
    blocking(move || {
        File::open(&file)?.sync_all()?;
        let mut chain = Vec::new();
        for (height, folder) in file.ancestors().skip(1).enumerate() {
            let opened = match File::open(folder) {
                Ok(opened) => opened,
                Err(e) if height == 0 => return Err(e),
                Err(_) => break,
            };
            let identity = identity(&opened);
            if height > 0 && identity.is_some_and(|folder| durable(|names| names.contains(&folder))) {
                break;
            }
            opened.sync_all()?;
            chain.push(identity);
            if height >= FRESH_FOLDERS {
                break;
            }
        }
        // not before all above it are synced
        durable(|names| {
            if names.len() > MOST_FOLDERS {
                names.clear();
            }
            names.extend(chain.into_iter().skip(1).flatten());
        });
        Ok(())
    })
    .await
}

/// What tells a folder from one that was removed and made again: its place on
/// the device, which may be used again, and when it was made.
type Identity = (u64, u64, SystemTime);

/// `None` where the file system does not tell when a folder was made.
fn identity(folder: &File) -> Option<Identity> {
    let found = folder.metadata().ok()?;
    Some((found.dev(), found.ino(), found.created().ok()?))
}

/// The folders that were synced with all above them.
fn durable<T>(look: impl FnOnce(&mut HashSet<Identity>) -> T) -> T {
    static FOLDERS: LazyLock<Mutex<HashSet<Identity>>> = LazyLock::new(Mutex::default);
    look(&mut FOLDERS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Folders remembered as durable.
const MOST_FOLDERS: usize = 10_000;

/// How many folders above a file may be as new as the file: the partition's
/// fields, `data`, and the table's own.
const FRESH_FOLDERS: usize = 6;

/// Lets the system give up what it holds in memory of files that nobody will read soon.
/// What is written next takes its place, not memory that is fresh: a virtual machine
/// asks its host for that, which costs several times as much as the copy, and elsewhere
/// it would push out what others read.
///
/// A hint: where it fails nothing is lost but time, and a reader finds the files on disk.
pub async fn forget(files: Vec<PathBuf>) {
    if files.is_empty() {
        return;
    }
    let work = move || {
        files.iter().for_each(|file| hint(file));
        Ok(())
    };
    let _ = blocking(work).await;
}

#[cfg(target_os = "linux")]
fn hint(file: &Path) {
    if let Ok(file) = File::open(file) {
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

#[cfg(not(target_os = "linux"))]
fn hint(_: &Path) {}

/// Bytes that this process may still write below a folder, which need not exist yet.
pub async fn free_space(folder: PathBuf) -> io::Result<u64> {
    blocking(move || {
        let existing = folder.ancestors().find(|f| f.exists()).unwrap_or(Path::new("/"));
        let stat = rustix::fs::statvfs(existing)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
