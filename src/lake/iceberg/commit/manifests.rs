//! Rewriting manifests: survivors keep their history, the dead stay dead.

use std::collections::HashSet;

use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileFormat, FormatVersion, ManifestContentType, ManifestEntry, ManifestFile, ManifestListWriter,
    ManifestStatus, ManifestWriterBuilder, PartitionSpec, SchemaRef, StructType,
};

use super::ids::{Inherited, Listed};
use crate::lake::iceberg::manifest::{self, Unreadable};
use crate::lake::iceberg::scope::head;
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::file::FileKey;
use crate::model::refusal::{Refusal, Refused};

/// A manifest to be written, held whole in memory: a few KB an entry, which the
/// size limit of merged manifests bounds.
pub struct Draft {
    /// Data or delete files.
    pub content: ManifestContentType,
    /// Schema that types the bounds and the partition.
    pub schema: SchemaRef,
    /// Partition spec of every entry.
    pub spec: PartitionSpec,
    /// The entries.
    pub lines: Vec<Line>,
}

/// One entry of a [`Draft`].
pub enum Line {
    /// A file of this commit, with its explicit data sequence number.
    Added(DataFile, i64),
    /// A survivor, with the history it had.
    Existing(DataFile, History),
    /// A file that this commit removes, with the history it had.
    Deleted(DataFile, History),
}

/// What an entry inherited when its file came into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The snapshot that added the file.
    pub snapshot_id: i64,
    /// Data sequence number.
    pub data_sequence: i64,
    /// File sequence number.
    pub file_sequence: i64,
}

impl Draft {
    /// The partition type of the entries.
    ///
    /// # Errors
    /// `unresolved-spec`, when the draft's schema does not type the spec.
    pub fn partition_type(&self) -> Result<StructType> {
        let unresolved = |why: String| Refused::new(Refusal::UnresolvedSpec, format!("spec {}: {why}", self.spec.spec_id()));
        let fields = self.spec.partition_type(&self.schema).map_err(|e| unresolved(e.to_string()))?;
        match fields.fields().iter().find(|f| f.field_type.as_primitive_type().is_none()) {
            Some(field) => Err(unresolved(format!("field `{}` is not a primitive", field.name)).into()),
            None => Ok(fields),
        }
    }

    /// Writes the manifest; its path is told to the control first.
    ///
    /// # Errors
    /// `unresolved-spec`; `damaged`, when a tuple does not fit the spec; store errors.
    pub async fn write(self, at: &Target<'_>, path: &str) -> Result<ManifestFile> {
        let fields = self.partition_type()?.fields().len();
        let failed = |e: iceberg::Error| Error::damaged(path, e);
        let memory = FileIO::new_with_memory();
        let output = memory.new_output(IN_MEMORY).map_err(failed)?;
        let builder = ManifestWriterBuilder::new(output, Some(at.snapshot_id), self.schema, self.spec);
        let mut writer = match (at.format, self.content) {
            (FormatVersion::V1, ManifestContentType::Data) => builder.build_v1(),
            (FormatVersion::V2, ManifestContentType::Data) => builder.build_v2_data(),
            (FormatVersion::V2, ManifestContentType::Deletes) => builder.build_v2_deletes(),
            (FormatVersion::V3, ManifestContentType::Data) => builder.build_v3_data(),
            (FormatVersion::V3, ManifestContentType::Deletes) => builder.build_v3_deletes(),
            (version, content) => {
                return Err(Refused::new(Refusal::FormatVersion, format!("a manifest of {content} in format {version}")).into());
            }
        };
        for line in self.lines {
            let file = line.file();
            if file.partition().fields().len() != fields {
                return Err(Error::damaged(file.file_path(), format!("its tuple does not have {fields} values")));
            }
            let name = file.file_path().to_owned();
            match line {
                Line::Added(file, sequence) => writer.add_file(file, sequence),
                Line::Existing(file, h) => writer.add_existing_file(file, h.snapshot_id, h.data_sequence, Some(h.file_sequence)),
                Line::Deleted(file, h) => writer.add_delete_file(file, h.data_sequence, Some(h.file_sequence)),
            }
            .map_err(|e| Error::damaged(&name, e))?;
        }
        let mut manifest = writer.write_manifest_file().await.map_err(failed)?;
        at.move_out(&memory, path).await?;
        path.clone_into(&mut manifest.manifest_path);
        Ok(manifest)
    }
}

impl Line {
    fn file(&self) -> &DataFile {
        match self {
            Self::Added(file, _) | Self::Existing(file, _) | Self::Deleted(file, _) => file,
        }
    }
}

/// Where and for whom manifests are written.
pub struct Target<'a> {
    /// The table's files.
    pub store: Store,
    /// The table's format version.
    pub format: FormatVersion,
    /// The snapshot being made.
    pub snapshot_id: i64,
    /// Told of every file.
    pub control: &'a dyn Control,
}

/// The crate's writers write here; the store, which makes files durable, takes
/// their bytes on.
const IN_MEMORY: &str = "memory:/file";

impl Target<'_> {
    /// Writes the manifest list of the snapshot; its path is told to the control first.
    /// In format v3 every data manifest in it has row ids: see [`super::ids::assign`].
    ///
    /// # Errors
    /// As [`Draft::write`].
    pub async fn write_list(&self, path: &str, parent: Option<i64>, sequence: i64, list: Listed) -> Result<()> {
        let failed = |e: iceberg::Error| Error::damaged(path, e);
        let memory = FileIO::new_with_memory();
        let out = memory.new_output(IN_MEMORY).map_err(failed)?.writer().await.map_err(failed)?;
        let mut writer = match self.format {
            FormatVersion::V1 => ManifestListWriter::v1(out, self.snapshot_id, parent),
            FormatVersion::V2 => ManifestListWriter::v2(out, self.snapshot_id, parent, sequence),
            FormatVersion::V3 => ManifestListWriter::v3(out, self.snapshot_id, parent, sequence, list.ids.map(|ids| ids.first)),
        };
        writer.add_manifests(list.manifests.into_iter()).map_err(failed)?;
        writer.close().await.map_err(failed)?;
        self.move_out(&memory, path).await
    }

    async fn move_out(&self, memory: &FileIO, path: &str) -> Result<()> {
        let bytes = async { memory.new_input(IN_MEMORY)?.read().await }.await.map_err(|e| Error::damaged(path, e))?;
        self.control.will_write(path).await?;
        self.store.write(path, bytes).await
    }
}

/// Reads a manifest of the base and drops from it the files of `doomed`. The
/// draft has the manifest's own schema and spec: a partition source column that
/// was dropped since is in no newer one. Survivors keep the row ids that they
/// inherited, as their own.
///
/// # Errors
/// Store errors; `unresolved-spec` or `damaged`, naming the manifest; `damaged`
/// when a doomed file is not live in it.
pub async fn rewrite(table: &IcebergTable, source: &ManifestFile, doomed: &HashSet<FileKey>) -> Result<Draft> {
    let bytes = Store::new(&table.loaded.io).read(&source.manifest_path).await?;
    let (metadata, entries) = manifest::parse(&bytes, |_| true).map_err(|e| unreadable(table, source, &e))?;
    let mut live = Vec::with_capacity(entries.len());
    let mut ids = Inherited::of(&table.loaded.metadata, source);
    for mut entry in entries {
        if entry.is_alive() {
            ids.enter(&mut entry.data_file, source)?;
            let history = history(&entry, source)
                .ok_or_else(|| Error::damaged(&source.manifest_path, format!("{} is live without a sequence number", entry.file_path())))?;
            live.push((entry.data_file, history));
        }
    }
    let lines = split(live, doomed);
    let removed = lines.iter().filter(|l| matches!(l, Line::Deleted(..))).count();
    if removed != doomed.len() {
        let why = format!("{removed} of {} files to remove are live in it", doomed.len());
        return Err(Error::damaged(&source.manifest_path, why));
    }
    Ok(Draft { content: source.content, schema: metadata.schema, spec: metadata.partition_spec, lines })
}

/// The lines of a rewritten manifest. Entries that were dead before are not
/// passed in: a tombstone belongs to the snapshot that made it.
fn split(live: Vec<(DataFile, History)>, doomed: &HashSet<FileKey>) -> Vec<Line> {
    live.into_iter()
        .map(|(file, history)| match doomed.contains(&key(&file)) {
            true => Line::Deleted(file, history),
            false => Line::Existing(file, history),
        })
        .collect()
}

/// The identity of a manifest entry's file. Only deletion vectors share a path.
pub fn key(file: &DataFile) -> FileKey {
    let vector = file.content_type() == DataContentType::PositionDeletes && file.file_format() == DataFileFormat::Puffin;
    FileKey { path: file.file_path().into(), offset: vector.then(|| file.content_offset()).flatten() }
}

/// An entry's history, inherited where the entry leaves it out. `None` when the
/// format does not let it be left out there.
fn history(entry: &ManifestEntry, manifest: &ManifestFile) -> Option<History> {
    let inherits = entry.status == ManifestStatus::Added || manifest.sequence_number == 0;
    let inherited = inherits.then_some(manifest.sequence_number);
    let data_sequence = entry.sequence_number.or(inherited)?;
    // Early v2 writers kept no file sequence number; then it is the data's own.
    let file_sequence = entry.file_sequence_number.or(inherited).unwrap_or(data_sequence);
    Some(History { snapshot_id: entry.snapshot_id.unwrap_or(manifest.added_snapshot_id), data_sequence, file_sequence })
}

fn unreadable(table: &IcebergTable, manifest: &ManifestFile, why: &Unreadable) -> Error {
    let metadata = &table.loaded.metadata;
    let spec = metadata.partition_spec_by_id(manifest.partition_spec_id);
    if spec.is_none_or(|s| s.partition_type(metadata.current_schema()).is_err()) {
        let detail = format!("{}: spec {}: {why}", manifest.manifest_path, manifest.partition_spec_id);
        return Refused::new(Refusal::UnresolvedSpec, detail).into();
    }
    Error::damaged(&manifest.manifest_path, why)
}

/// The schema that types new files of a spec: the current one or, where a source
/// column was dropped, the newest that still types it.
///
/// # Errors
/// `unresolved-spec`, when no schema does.
pub fn schema_for(table: &IcebergTable, spec_id: i32) -> Result<(SchemaRef, PartitionSpec)> {
    let metadata = &table.loaded.metadata;
    let unresolved = || Refused::new(Refusal::UnresolvedSpec, format!("spec {spec_id}: no schema types all of its fields"));
    let spec = metadata.partition_spec_by_id(spec_id).ok_or_else(unresolved)?;
    let schema = head::schemas(metadata).find(|s| spec.partition_type(s).is_ok()).ok_or_else(unresolved)?;
    Ok((schema.clone(), spec.as_ref().clone()))
}
