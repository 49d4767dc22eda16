//! An object store in memory: objects appear whole, and every call of the product
//! passes the gate.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg::io::{
    FileIO, FileIOBuilder, FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig, StorageFactory,
};
use iceberg::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::gate::{Call, Gate};
use super::hold;

/// The objects, which outlive processes.
#[derive(Default)]
pub struct Objects(Mutex<State>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    /// What the product wrote, whether it is there still or not.
    ours: BTreeSet<String>,
    /// What the product deleted since it was last asked.
    deleted: Vec<String>,
}

impl Objects {
    pub fn get(&self, path: &str) -> Option<Bytes> {
        hold(&self.0).objects.get(path).cloned()
    }

    pub fn has(&self, path: &str) -> bool {
        hold(&self.0).objects.contains_key(path)
    }

    pub fn remove(&self, path: &str) {
        hold(&self.0).objects.remove(path);
    }

    pub fn put(&self, path: &str, bytes: Bytes) {
        hold(&self.0).objects.insert(path.into(), bytes);
    }

    pub fn take_deleted(&self) -> Vec<String> {
        std::mem::take(&mut hold(&self.0).deleted)
    }

    /// What the product wrote and is there.
    pub fn ours(&self) -> Vec<String> {
        let state = hold(&self.0);
        state.ours.iter().filter(|path| state.objects.contains_key(*path)).cloned().collect()
    }

    /// As the product reaches them; without a gate as others do.
    pub fn io(self: &Arc<Self>, gate: Option<Arc<Gate>>) -> FileIO {
        FileIOBuilder::new(Arc::new(Shop { door: Some(Door { objects: Arc::clone(self), gate }) })).build()
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Shop {
    /// Not for writing down.
    #[serde(skip)]
    door: Option<Door>,
}

#[derive(Clone)]
struct Door {
    objects: Arc<Objects>,
    gate: Option<Arc<Gate>>,
}

impl std::fmt::Debug for Shop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("simulated store")
    }
}

#[typetag::serde(name = "afterwrite-simulated-factory")]
impl StorageFactory for Shop {
    fn build(&self, _config: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

fn unavailable(what: &str) -> Error {
    Error::new(ErrorKind::Unexpected, format!("503 Slow Down: {what}"))
}

fn absent(path: &str) -> Error {
    Error::new(ErrorKind::DataInvalid, format!("File not found: {path}"))
}

impl Door {
    /// Whether the call fails.
    async fn pass(&self, call: Call, path: &str) -> Result<()> {
        match &self.gate {
            Some(gate) if gate.pass(call, path).await => Err(unavailable(path)),
            _ => Ok(()),
        }
    }

    /// The same again is a retry; anything else is written over.
    fn put(&self, path: &str, bytes: Bytes) {
        if let Some(gate) = &self.gate {
            if self.objects.get(path).is_some_and(|before| before != bytes) {
                gate.wrong(format!("the product writes over {path}"));
            }
            hold(&self.objects.0).ours.insert(path.into());
        }
        self.objects.put(path, bytes);
    }

    /// A write that fails may have been done.
    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        if let Err(error) = self.pass(Call::Write, path).await {
            let done = self.gate.as_ref().is_some_and(|gate| gate.dice().one_in(2));
            if done {
                self.put(path, bytes);
            }
            return Err(error);
        }
        self.put(path, bytes);
        Ok(())
    }
}

impl Shop {
    fn door(&self) -> Result<&Door> {
        self.door.as_ref().ok_or_else(|| unavailable("a copy"))
    }
}

#[async_trait]
#[typetag::serde(name = "afterwrite-simulated")]
impl Storage for Shop {
    async fn exists(&self, path: &str) -> Result<bool> {
        let door = self.door()?;
        door.pass(Call::Read, path).await?;
        Ok(door.objects.has(path))
    }

    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        let door = self.door()?;
        door.pass(Call::Read, path).await?;
        let bytes = door.objects.get(path).ok_or_else(|| absent(path))?;
        Ok(FileMetadata { size: bytes.len() as u64 })
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        let door = self.door()?;
        door.pass(Call::Read, path).await?;
        door.objects.get(path).ok_or_else(|| absent(path))
    }

    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        Ok(Box::new(Reader { door: self.door()?.clone(), path: path.into() }))
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.door()?.write(path, bytes).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        Ok(Box::new(Writer { door: self.door()?.clone(), path: path.into(), bytes: Vec::new() }))
    }

    async fn delete(&self, path: &str) -> Result<()> {
        let door = self.door()?;
        door.pass(Call::Delete, path).await?;
        if door.gate.is_some() {
            hold(&door.objects.0).deleted.push(path.into());
        }
        door.objects.remove(path);
        Ok(())
    }

    async fn delete_prefix(&self, path: &str) -> Result<()> {
        if let Some(gate) = &self.door()?.gate {
            gate.wrong(format!("the product deletes all below {path}"));
        }
        Err(unavailable(path))
    }

    async fn delete_stream(&self, mut paths: BoxStream<'static, String>) -> Result<()> {
        while let Some(path) = paths.next().await {
            self.delete(&path).await?;
        }
        Ok(())
    }

    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.into()))
    }

    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.into()))
    }
}

struct Reader {
    door: Door,
    path: String,
}

#[async_trait]
impl FileRead for Reader {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.door.pass(Call::Read, &format!("{} {range:?}", self.path)).await?;
        let bytes = self.door.objects.get(&self.path).ok_or_else(|| absent(&self.path))?;
        let (from, to) = (range.start as usize, range.end as usize);
        if from > to || to > bytes.len() {
            return Err(Error::new(ErrorKind::DataInvalid, format!("416 {from}..{to} of {}: {}", bytes.len(), self.path)));
        }
        Ok(bytes.slice(from..to))
    }
}

struct Writer {
    door: Door,
    path: String,
    bytes: Vec<u8>,
}

#[async_trait]
impl FileWrite for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        self.door.write(&self.path, std::mem::take(&mut self.bytes).into()).await
    }
}
