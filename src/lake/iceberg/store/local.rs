//! What only a local file system can do: tell its free space, and lose a file to
//! a power cut unless it is synced.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::model::location::Location;

/// The local path of a location; `None` for one in another store.
pub fn path(location: &str) -> Option<PathBuf> {
    let location = Location::parse(location);
    (location.class == "file" && location.authority.is_empty()).then(|| Path::new("/").join(location.key))
}

/// Makes a file durable: its bytes, its name in its folder, and the folders' own
/// names. Folders above the file's that this process may not open are left out:
/// it cannot have made them.
pub async fn sync(file: PathBuf) -> io::Result<()> {
    blocking(move || {
        File::open(&file)?.sync_all()?;
        for (height, folder) in file.ancestors().skip(1).enumerate() {
            match File::open(folder) {
                Ok(folder) => folder.sync_all()?,
                Err(e) if height == 0 => return Err(e),
                Err(_) => break,
            }
            if height >= FRESH_FOLDERS {
                break;
            }
        }
        Ok(())
    })
    .await
}

/// How many folders above a file may be as new as the file: the partition's
/// fields, `data`, and the table's own.
const FRESH_FOLDERS: usize = 6;

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
