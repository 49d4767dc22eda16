//! One output file on its way to the store.

use iceberg::io::{FileIO, FileWrite};

use crate::lake::iceberg::store::local;
use crate::lake::{Control, Error, Result};
use crate::model::killpoint::KillPoint;
use crate::parquet::tap::{PIECE, Tap};

/// An output file that is journaled and begun, and not yet closed.
///
/// A crash leaves a file whose path `control` was told of; an error drops the
/// writer and leaves the file likewise. Clean-up is the journal's.
pub struct Sink<'a> {
    path: String,
    control: &'a dyn Control,
    writer: Box<dyn FileWrite>,
    tap: Tap,
    bytes: u64,
}

impl<'a> Sink<'a> {
    /// Journals the path, then begins the file.
    pub async fn begin(io: &FileIO, control: &'a dyn Control, path: String) -> Result<Self> {
        control.will_write(&path).await?;
        control.reached(KillPoint::OutputNamed);
        let failed = |e| Error::unreachable(format!("beginning {path}"), e);
        let writer = io.new_output(&path).map_err(failed)?.writer().await.map_err(failed)?;
        let tap = if local::path(&path).is_some() { Tap::aligned() } else { Tap::with_pieces(PIECE) };
        Ok(Self { path, control, writer, tap, bytes: 0 })
    }

    /// What an encoder writes into.
    pub fn tap(&self) -> Tap {
        self.tap.clone()
    }

    /// The file's path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Sends the full pieces that the encoder has written.
    pub async fn drain(&mut self) -> Result<()> {
        while let Some(piece) = self.tap.next_piece() {
            self.send(piece).await?;
        }
        Ok(())
    }

    /// Sends what is left and closes the file; its size in bytes. A local file
    /// and its folder are on disk when this returns.
    pub async fn close(mut self) -> Result<u64> {
        self.drain().await?;
        let rest = self.tap.rest();
        if !rest.is_empty() {
            self.send(rest).await?;
        }
        self.writer.close().await.map_err(|e| Error::unreachable(format!("closing {}", self.path), e))?;
        if let Some(file) = local::path(&self.path) {
            local::sync(file).await.map_err(|e| Error::unreachable(format!("making {} durable", self.path), e))?;
        }
        Ok(self.bytes)
    }

    async fn send(&mut self, piece: bytes::Bytes) -> Result<()> {
        let size = piece.len() as u64;
        self.writer.write(piece).await.map_err(|e| Error::unreachable(format!("writing {}", self.path), e))?;
        if self.bytes == 0 {
            self.control.reached(KillPoint::OutputBegun);
        }
        self.bytes += size;
        Ok(())
    }
}
