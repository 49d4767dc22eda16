//! Free space, where the store can tell.

use std::path::Path;

use crate::lake::Result;
use crate::model::location::Location;
use crate::model::refusal::{Refusal, Refused};

/// Errs when the outputs would go to a local file system with less free space
/// than `bytes`. Says nothing of other stores, nor when the system does not answer.
pub fn check(location: &str, bytes: u64) -> Result<()> {
    match free(location) {
        Some(free) if free < bytes => {
            Err(Refused::new(Refusal::NoSpace, format!("{location}: {free} bytes are free, the outputs may take {bytes}")).into())
        }
        _ => Ok(()),
    }
}

/// Free bytes of the file system that holds a local location, or the nearest
/// folder above it that exists.
fn free(location: &str) -> Option<u64> {
    let place = local_path(location)?;
    let found = Path::new(&place).ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// The path of a local location; `None` for other stores.
pub fn local_path(location: &str) -> Option<String> {
    let parsed = Location::parse(location);
    (parsed.class == "file").then(|| format!("/{}", parsed.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::Error;

    #[test]
    fn a_full_disk_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let location = format!("file://{}/not/yet/there", folder.path().display());
        assert!(check(&location, 1).is_ok());
        let Err(Error::Refused(refused)) = check(&location, u64::MAX) else { panic!("not refused") };
        assert_eq!(refused.refusal, Refusal::NoSpace);
        assert!(check("s3://bucket/t", u64::MAX).is_ok());
    }
}
