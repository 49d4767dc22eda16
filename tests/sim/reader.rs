//! The naive reader of what is in the store: every delete held against every row.
//! Files never change, so that each is read once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{DataContentType, DataFile, ManifestFile, ManifestList, Snapshot, TableMetadata};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::now;
use super::store::Objects;
use crate::fixture::files::{FILE_PATH, POS};
use crate::fixture::oracle;

/// The rows of a file, as texts by field id.
pub struct Rows {
    pub count: usize,
    pub columns: BTreeMap<i32, Vec<String>>,
}

impl Rows {
    pub fn key(&self, row: usize, ids: &[i32]) -> Vec<String> {
        ids.iter().map(|id| self.columns.get(id).map_or("NULL", |column| column[row].as_str()).to_owned()).collect()
    }
}

/// A live file.
#[derive(Clone)]
pub struct Live {
    pub data: DataFile,
    pub sequence: i64,
    pub spec_id: i32,
}

impl Live {
    pub fn is_data(&self) -> bool {
        self.data.content_type() == DataContentType::Data
    }

    fn same_scope(&self, other: &Live) -> bool {
        self.spec_id == other.spec_id && self.data.partition() == other.data.partition()
    }
}

/// A data file with those of its rows that live.
pub struct Kept {
    pub file: Live,
    pub rows: Arc<Rows>,
    pub kept: Vec<bool>,
}

pub struct Reader {
    objects: Arc<Objects>,
    lists: HashMap<String, Arc<Vec<ManifestFile>>>,
    manifests: HashMap<String, Arc<Vec<Live>>>,
    files: HashMap<String, Arc<Rows>>,
}

const REMEMBERED: usize = 4000;

impl Reader {
    pub fn new(objects: Arc<Objects>) -> Self {
        Self { objects, lists: HashMap::new(), manifests: HashMap::new(), files: HashMap::new() }
    }

    /// A snapshot's manifests. Errs with the path of what is missing.
    pub fn list(&mut self, metadata: &TableMetadata, snapshot: &Snapshot) -> Result<Arc<Vec<ManifestFile>>, String> {
        let path = snapshot.manifest_list();
        if let Some(list) = self.lists.get(path) {
            return Ok(Arc::clone(list));
        }
        let bytes = self.objects.get(path).ok_or(path)?;
        let list = ManifestList::parse_with_version(&bytes, metadata.format_version()).map_err(|e| format!("{path}: {e}"))?;
        let list = Arc::new(list.entries().to_vec());
        self.lists.insert(path.into(), Arc::clone(&list));
        Ok(list)
    }

    fn manifest(&mut self, manifest: &ManifestFile) -> Result<Arc<Vec<Live>>, String> {
        let path = &manifest.manifest_path;
        if let Some(live) = self.manifests.get(path) {
            return Ok(Arc::clone(live));
        }
        if !self.objects.has(path) {
            return Err(path.clone());
        }
        let read = now(manifest.load_manifest(&self.objects.io(None))).map_err(|e| format!("{path}: {e}"))?;
        let alive = read.entries().iter().filter(|e| e.is_alive());
        let spec_id = manifest.partition_spec_id;
        let live = alive.map(|e| Live { data: e.data_file().clone(), sequence: e.sequence_number().unwrap_or(0), spec_id }).collect();
        let live = Arc::new(live);
        self.manifests.insert(path.clone(), Arc::clone(&live));
        Ok(live)
    }

    /// The live files of a snapshot.
    pub fn live(&mut self, metadata: &TableMetadata, snapshot: &Snapshot) -> Result<Vec<Live>, String> {
        let mut all = vec![];
        for manifest in self.list(metadata, snapshot)?.iter() {
            all.extend(self.manifest(manifest)?.iter().cloned());
        }
        Ok(all)
    }

    /// Every file that a snapshot needs.
    pub fn reach(&mut self, metadata: &TableMetadata, snapshot: &Snapshot) -> Result<BTreeSet<String>, String> {
        let mut all = BTreeSet::from([snapshot.manifest_list().to_owned()]);
        for manifest in self.list(metadata, snapshot)?.iter() {
            all.insert(manifest.manifest_path.clone());
            all.extend(self.manifest(manifest)?.iter().map(|live| live.data.file_path().to_owned()));
        }
        Ok(all)
    }

    pub fn rows(&mut self, path: &str) -> Result<Arc<Rows>, String> {
        if let Some(rows) = self.files.get(path) {
            return Ok(Arc::clone(rows));
        }
        if self.files.len() > REMEMBERED {
            self.files.clear();
            self.manifests.clear();
            self.lists.clear();
        }
        let bytes = self.objects.get(path).ok_or(path)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()).map_err(|e| format!("{path}: {e}"))?;
        let batches: Vec<_> = reader.collect::<Result<_, _>>().map_err(|e| format!("{path}: {e}"))?;
        let mut rows = Rows { count: batches.iter().map(|b| b.num_rows()).sum(), columns: BTreeMap::new() };
        if let Some(first) = batches.first() {
            let ids: Vec<i32> = first.schema().fields().iter().filter_map(|f| f.metadata().get("PARQUET:field_id")?.parse().ok()).collect();
            for row in oracle::texts(&batches, &ids) {
                for (id, text) in ids.iter().zip(row) {
                    rows.columns.entry(*id).or_default().push(text);
                }
            }
        }
        let rows = Arc::new(rows);
        self.files.insert(path.into(), Arc::clone(&rows));
        Ok(rows)
    }

    /// The data files of a snapshot, with the rows that no delete applies to.
    pub fn kept(&mut self, metadata: &TableMetadata, snapshot: &Snapshot) -> Result<Vec<Kept>, String> {
        let live = self.live(metadata, snapshot)?;
        let deletes: Vec<(Live, Arc<Rows>)> =
            live.iter().filter(|l| !l.is_data()).map(|l| Ok((l.clone(), self.rows(l.data.file_path())?))).collect::<Result<_, String>>()?;
        let mut all = vec![];
        for file in live.into_iter().filter(Live::is_data) {
            let rows = self.rows(file.data.file_path())?;
            let mut kept = vec![true; rows.count];
            for (delete, of) in &deletes {
                strike(metadata, &file, &rows, delete, of, &mut kept);
            }
            all.push(Kept { file, rows, kept });
        }
        Ok(all)
    }
}

/// One delete file on one data file, by the words of the specification.
fn strike(metadata: &TableMetadata, file: &Live, rows: &Rows, delete: &Live, of: &Rows, kept: &mut [bool]) {
    let same = delete.same_scope(file);
    match delete.data.content_type() {
        DataContentType::EqualityDeletes => {
            let global = metadata.partition_spec_by_id(delete.spec_id).unwrap().is_unpartitioned();
            if delete.sequence <= file.sequence || !(same || global) {
                return;
            }
            let ids = delete.data.equality_ids().unwrap();
            let keys: HashSet<Vec<String>> = (0..of.count).map(|row| of.key(row, &ids)).collect();
            kept.iter_mut().enumerate().for_each(|(row, kept)| *kept &= !keys.contains(&rows.key(row, &ids)));
        }
        DataContentType::PositionDeletes if delete.sequence >= file.sequence && same => {
            for row in 0..of.count {
                if of.columns[&FILE_PATH][row] == file.data.file_path()
                    && let Some(kept) = kept.get_mut(of.columns[&POS][row].parse::<usize>().unwrap())
                {
                    *kept = false;
                }
            }
        }
        _ => {}
    }
}
