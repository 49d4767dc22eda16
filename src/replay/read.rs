//! Reads a recording.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::lines::{Line, VERSION};
use super::recorder::Recorder;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// A line is none of a recording's.
    #[error("{path}, line {line}: not a line of a recording: {why}")]
    Line {
        /// The file.
        path: String,
        /// Its number, from 1.
        line: u64,
        /// The cause.
        why: String,
    },
    /// Another version of the program wrote it.
    #[error("{path} was written by {program} (version {found} of recordings; this one reads {VERSION}): replay it with that program")]
    Version {
        /// The file.
        path: String,
        /// Who wrote it.
        program: String,
        /// Its version.
        found: u32,
    },
    /// Nothing is in it.
    #[error("{path} holds no decision yet")]
    Empty {
        /// The file.
        path: String,
    },
}

/// The part of every version's first line that tells the version.
#[derive(serde::Deserialize)]
struct Head {
    begins: Versioned,
}

#[derive(serde::Deserialize)]
struct Versioned {
    version: u32,
    #[serde(default)]
    program: String,
}

/// Hands every line of a recording over, oldest first: those of the file before, where
/// there is one, then those of the file. A last line that was cut off is left out.
///
/// # Errors
/// When a file, or a line of it, cannot be read.
pub fn each(path: &Path, mut take: impl FnMut(Line)) -> Result<(), Error> {
    let mut lines = 0;
    let before = Recorder::before(path);
    let both = before.is_file().then_some(before.as_path()).into_iter().chain([path]);
    for file in both {
        lines += of_file(file, &mut take)?;
    }
    if lines == 0 { Err(Error::Empty { path: path.display().to_string() }) } else { Ok(()) }
}

fn of_file(path: &Path, take: &mut impl FnMut(Line)) -> Result<u64, Error> {
    let shown = || path.display().to_string();
    let failed = |source| Error::File { path: shown(), source };
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if reader.read_until(b'\n', &mut text).map_err(failed)? == 0 {
            return Ok(line - 1);
        }
        let whole = text.ends_with(b"\n");
        if text.starts_with(b"{\"begins\"")
            && let Ok(Head { begins }) = serde_json::from_slice::<Head>(&text)
            && begins.version != VERSION
        {
            return Err(Error::Version { path: shown(), program: begins.program, found: begins.version });
        }
        match serde_json::from_slice::<Line>(&text) {
            Ok(Line::Begins(begins)) => take(Line::Begins(begins)),
            Ok(_) if line == 1 => {
                return Err(Error::Line { path: shown(), line, why: "the first line should say how it begins".to_owned() });
            }
            Ok(read) => take(read),
            Err(_) if !whole => return Ok(line - 1),
            Err(error) => return Err(Error::Line { path: shown(), line, why: error.to_string() }),
        }
    }
    Ok(0)
}
