//! The naive reader of what is in the store: every delete held against every row.
//! Files never change, so that each is read once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::{DataContentType, DataFile, DataFileFormat, ManifestContentType, ManifestFile, ManifestList, Snapshot, TableMetadata};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use roaring::RoaringTreemap;

use super::now;
use super::store::Objects;
use crate::fixture::files::{FILE_PATH, POS};
use crate::fixture::{Manifests, oracle};

/// The rows of a file, as texts by field id.
pub struct Rows {
    /// Of all files that were read.
    serial: u32,
    pub count: usize,
    pub columns: BTreeMap<i32, Vec<String>>,
}

impl Rows {
    pub fn key(&self, row: usize, ids: &[i32]) -> Vec<String> {
        ids.iter().map(|id| self.columns.get(id).map_or("NULL", |column| column[row].as_str()).to_owned()).collect()
    }

    /// A number that is stored for a row, where one is.
    pub fn number(&self, row: usize, id: i32) -> Option<i64> {
        self.columns.get(&id)?.get(row)?.parse().ok()
    }
}

/// An entry of a manifest that is alive.
struct Entry {
    data: Arc<DataFile>,
    sequence: i64,
    /// Rows of the entries before it that have no first row id of their own.
    before: i64,
}

/// A live file.
#[derive(Clone)]
pub struct Live {
    pub data: Arc<DataFile>,
    pub sequence: i64,
    pub spec_id: i32,
    /// The id of its first row: its own, else counted on from its manifest's.
    pub first_row_id: Option<i64>,
}

impl Live {
    pub fn is_data(&self) -> bool {
        self.data.content_type() == DataContentType::Data
    }

    /// Whether it is the deletion vector of a data file.
    pub fn is_vector_of(&self, path: &str) -> bool {
        self.is_vector() && self.data.referenced_data_file().as_deref() == Some(path)
    }

    fn is_vector(&self) -> bool {
        !self.is_data() && self.data.file_format() == DataFileFormat::Puffin
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
    /// Rows that a position delete or a vector names.
    pub named: BTreeSet<usize>,
}

/// What a delete file says.
enum Said {
    /// Rows with these values in these columns.
    Keys(u32, Vec<i32>, HashSet<Vec<String>>),
    /// Rows at these places of these files.
    Places(HashMap<String, Vec<usize>>),
}

struct Delete {
    of: Live,
    said: Arc<Said>,
}

impl Delete {
    /// By the words of the specification, whatever the rows.
    fn applies(&self, metadata: &TableMetadata, file: &Live) -> bool {
        let same = self.of.same_scope(file);
        match self.of.data.content_type() {
            DataContentType::EqualityDeletes => {
                let global = metadata.partition_spec_by_id(self.of.spec_id).unwrap().is_unpartitioned();
                self.of.sequence > file.sequence && (same || global)
            }
            DataContentType::PositionDeletes if self.of.is_vector() => {
                self.of.sequence >= file.sequence && same && self.of.is_vector_of(file.data.file_path())
            }
            _ => self.of.sequence >= file.sequence && same,
        }
    }
}

pub struct Reader {
    objects: Arc<Objects>,
    /// As the foreign writers read them, too.
    read: Arc<Manifests>,
    lists: HashMap<String, Arc<Vec<ManifestFile>>>,
    manifests: HashMap<String, Arc<Vec<Entry>>>,
    reached: HashMap<String, Arc<Vec<Arc<str>>>>,
    files: HashMap<String, Arc<Rows>>,
    deletes: HashMap<String, Arc<Said>>,
    /// Rows of a file that have one of the keys of a delete file.
    hits: HashMap<(u32, u32), Arc<Vec<usize>>>,
    lines: HashMap<(u32, Vec<i32>), Arc<Vec<String>>>,
    serial: u32,
}

const REMEMBERED: usize = 4000;

impl Reader {
    pub fn new(objects: Arc<Objects>, read: Arc<Manifests>) -> Self {
        Self {
            objects,
            read,
            lists: HashMap::new(),
            manifests: HashMap::new(),
            reached: HashMap::new(),
            files: HashMap::new(),
            deletes: HashMap::new(),
            hits: HashMap::new(),
            lines: HashMap::new(),
            serial: 0,
        }
    }

    fn next(&mut self) -> u32 {
        self.serial += 1;
        self.serial
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

    fn manifest(&mut self, manifest: &ManifestFile) -> Result<Arc<Vec<Entry>>, String> {
        let path = &manifest.manifest_path;
        if let Some(live) = self.manifests.get(path) {
            return Ok(Arc::clone(live));
        }
        if !self.objects.has(path) {
            return Err(path.clone());
        }
        let read = now(self.read.read(&self.objects.io(None), manifest)).map_err(|e| format!("{path}: {e}"))?;
        let mut before = 0;
        let alive = read.entries().iter().filter(|e| e.is_alive()).map(|entry| {
            let (data, at) = (Arc::new(entry.data_file().clone()), before);
            if data.first_row_id().is_none() {
                before += data.record_count() as i64;
            }
            Entry { data, sequence: entry.sequence_number().unwrap_or(0), before: at }
        });
        let live = Arc::new(alive.collect::<Vec<_>>());
        self.manifests.insert(path.clone(), Arc::clone(&live));
        Ok(live)
    }

    /// The live files of a snapshot.
    pub fn live(&mut self, metadata: &TableMetadata, snapshot: &Snapshot) -> Result<Vec<Live>, String> {
        let mut all = vec![];
        for manifest in self.list(metadata, snapshot)?.iter() {
            let first = manifest.first_row_id.filter(|_| manifest.content == ManifestContentType::Data);
            let spec_id = manifest.partition_spec_id;
            all.extend(self.manifest(manifest)?.iter().map(|entry| {
                let first_row_id = first.map(|first| entry.data.first_row_id().unwrap_or(first as i64 + entry.before));
                Live { data: Arc::clone(&entry.data), sequence: entry.sequence, spec_id, first_row_id }
            }));
        }
        Ok(all)
    }

    /// Every file that a snapshot needs.
    pub fn reach(&mut self, metadata: &TableMetadata, snapshot: &Snapshot) -> Result<Arc<Vec<Arc<str>>>, String> {
        if let Some(all) = self.reached.get(snapshot.manifest_list()) {
            return Ok(Arc::clone(all));
        }
        let mut all: BTreeSet<Arc<str>> = [Arc::from(snapshot.manifest_list())].into();
        for manifest in self.list(metadata, snapshot)?.iter() {
            all.insert(manifest.manifest_path.as_str().into());
            all.extend(self.manifest(manifest)?.iter().map(|live| Arc::from(live.data.file_path())));
        }
        let all = Arc::new(all.into_iter().collect::<Vec<_>>());
        self.reached.insert(snapshot.manifest_list().into(), Arc::clone(&all));
        Ok(all)
    }

    pub fn rows(&mut self, path: &str) -> Result<Arc<Rows>, String> {
        if let Some(rows) = self.files.get(path) {
            return Ok(Arc::clone(rows));
        }
        if self.files.len() > REMEMBERED {
            *self = Self { serial: self.serial, ..Self::new(Arc::clone(&self.objects), Arc::clone(&self.read)) };
        }
        let bytes = self.objects.get(path).ok_or(path)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()).map_err(|e| format!("{path}: {e}"))?;
        let batches: Vec<_> = reader.collect::<Result<_, _>>().map_err(|e| format!("{path}: {e}"))?;
        let count = batches.iter().map(|b| b.num_rows()).sum();
        let mut rows = Rows { serial: self.next(), count, columns: BTreeMap::new() };
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

    /// Each row of a file as one text, by these columns.
    pub fn lines(&mut self, rows: &Rows, ids: &[i32]) -> Arc<Vec<String>> {
        let lines = self.lines.entry((rows.serial, ids.to_vec()));
        Arc::clone(lines.or_insert_with(|| Arc::new((0..rows.count).map(|row| rows.key(row, ids).join("|")).collect())))
    }

    fn said(&mut self, delete: &DataFile) -> Result<Arc<Said>, String> {
        let key = format!("{} {:?} {:?}", delete.file_path(), delete.content_offset(), delete.equality_ids());
        if let Some(said) = self.deletes.get(&key) {
            return Ok(Arc::clone(said));
        }
        let said = Arc::new(match (delete.content_type(), delete.file_format()) {
            (DataContentType::EqualityDeletes, _) => {
                let (rows, ids) = (self.rows(delete.file_path())?, delete.equality_ids().unwrap());
                let keys = (0..rows.count).map(|row| rows.key(row, &ids)).collect();
                Said::Keys(self.next(), ids, keys)
            }
            (_, DataFileFormat::Puffin) => {
                let of = delete.referenced_data_file().ok_or_else(|| format!("{key}: a vector of no file"))?;
                Said::Places([(of, self.vector(delete)?)].into())
            }
            _ => {
                let (rows, mut places) = (self.rows(delete.file_path())?, HashMap::<String, Vec<usize>>::new());
                for row in 0..rows.count {
                    let place = rows.columns[&POS][row].parse().unwrap();
                    places.entry(rows.columns[&FILE_PATH][row].clone()).or_default().push(place);
                }
                Said::Places(places)
            }
        });
        self.deletes.insert(key, Arc::clone(&said));
        Ok(said)
    }

    /// The places that a vector names: behind its length and its four magic bytes.
    fn vector(&self, vector: &DataFile) -> Result<Vec<usize>, String> {
        let path = vector.file_path();
        let bytes = self.objects.get(path).ok_or(path)?;
        let from = vector.content_offset().ok_or_else(|| format!("{path}: a vector at no offset"))? as usize;
        let body = bytes.get(from + 8..).ok_or_else(|| format!("{path}: a vector past the end"))?;
        let places = RoaringTreemap::deserialize_from(body).map_err(|e| format!("{path}: {e}"))?;
        if places.len() != vector.record_count() {
            return Err(format!("{path}: a vector of {} rows is said to have {}", places.len(), vector.record_count()));
        }
        Ok(places.iter().map(|place| place as usize).collect())
    }

    /// The rows of a file that a delete names, whether it applies or not.
    fn hit(&mut self, file: &Live, rows: &Rows, said: &Said) -> Arc<Vec<usize>> {
        match said {
            Said::Places(places) => Arc::new(places.get(file.data.file_path()).cloned().unwrap_or_default()),
            Said::Keys(serial, ids, keys) => {
                let hits = self.hits.entry((rows.serial, *serial));
                let find = || (0..rows.count).filter(|row| keys.contains(&rows.key(*row, ids))).collect();
                Arc::clone(hits.or_insert_with(|| Arc::new(find())))
            }
        }
    }

    /// The data files of a snapshot, with the rows that no delete applies to.
    pub fn kept(&mut self, metadata: &TableMetadata, snapshot: &Snapshot) -> Result<Vec<Kept>, String> {
        let live = self.live(metadata, snapshot)?;
        let mut deletes = vec![];
        for of in live.iter().filter(|live| !live.is_data()).cloned() {
            let said = self.said(&of.data)?;
            deletes.push(Delete { of, said });
        }
        let mut all = vec![];
        for file in live.into_iter().filter(Live::is_data) {
            let rows = self.rows(file.data.file_path())?;
            let (mut kept, mut named) = (vec![true; rows.count], BTreeSet::new());
            let applying: Vec<&Delete> = deletes.iter().filter(|delete| delete.applies(metadata, &file)).collect();
            let vectors = applying.iter().filter(|delete| delete.of.is_vector()).count();
            if vectors > 1 {
                return Err(format!("{} has {vectors} vectors", file.data.file_path()));
            }
            for delete in applying {
                let positions = delete.of.data.content_type() == DataContentType::PositionDeletes;
                // a vector holds what was deleted by position before
                if positions && vectors > 0 && !delete.of.is_vector() {
                    continue;
                }
                for row in self.hit(&file, &rows, &delete.said).iter().copied().filter(|row| *row < rows.count) {
                    kept[row] = false;
                    named.extend(positions.then_some(row));
                }
            }
            all.push(Kept { file, rows, kept, named });
        }
        Ok(all)
    }
}
