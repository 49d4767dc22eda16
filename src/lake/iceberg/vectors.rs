//! Deletion vectors, written as format v3 asks for them: one Puffin file with a blob
//! for each data file.

use std::collections::HashMap;

use iceberg::io::FileIO;
use iceberg::puffin::{Blob, CompressionCodec, DELETION_VECTOR_V1, PuffinReader, PuffinWriter};
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat};
use roaring::RoaringTreemap;

use super::positions::At;
use super::read::vector::MAGIC;
use super::rewrite::place::Places;
use super::store::Store;
use super::table::IcebergTable;
use crate::lake::{Control, Error, Result};

/// Field id of a row's position, of which a vector is.
const ROW_POSITION: i32 = 2_147_483_645;
/// Stands for the snapshot and the sequence number that the vector comes into the table with.
const INHERITED: i64 = -1;
/// The crate's writer writes here; the store, which makes files durable, takes its bytes on.
const IN_MEMORY: &str = "memory:/puffin";

/// Writes the deleted `rows` of data files, none without any, and describes each vector.
/// The bytes of all vectors are held in memory.
///
/// A crash leaves a file of which `control` was told.
///
/// # Errors
/// [`Error::Setup`] when there are none; `damaged` refusals; store errors.
pub async fn write(table: &IcebergTable, at: At<'_>, rows: &[(&str, &RoaringTreemap)], control: &dyn Control) -> Result<Vec<DataFile>> {
    let metadata = &table.loaded.metadata;
    let spec_id = at.partition.spec_id;
    let spec = metadata.partition_spec_by_id(spec_id);
    let spec = spec.ok_or_else(|| Error::damaged(&table.loaded.metadata_location, format!("no partition spec {spec_id}")))?;
    let path = Places::new(metadata, spec, &at.partition.tuple, at.attempt)?.path(at.number);
    let path = format!("{}.puffin", path.strip_suffix(".parquet").unwrap_or(&path));
    let tuple = table.partition_types(spec_id)?.to_struct(&at.partition.tuple).map_err(|why| Error::damaged(&path, why))?;
    let failed = |why: String| Error::Setup(format!("{path}: {why}"));
    if rows.is_empty() || rows.iter().any(|(_, rows)| rows.is_empty()) {
        return Err(failed("no row to delete".into()));
    }
    let (bytes, places) = encoded(rows).await.map_err(|e| failed(format!("{e:#}")))?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    control.will_write(&path).await?;
    Store::new(&table.loaded.io).write(&path, bytes).await?;
    let mut described = Vec::with_capacity(rows.len());
    for ((data_file, rows), (offset, length)) in rows.iter().zip(places) {
        let vector = DataFileBuilder::default()
            .content(DataContentType::PositionDeletes)
            .file_path(path.clone())
            .file_format(DataFileFormat::Puffin)
            .partition(tuple.clone())
            .partition_spec_id(spec_id)
            .record_count(rows.len())
            .file_size_in_bytes(size)
            .referenced_data_file(Some((*data_file).to_owned()))
            .content_offset(Some(offset))
            .content_size_in_bytes(Some(length))
            .build();
        described.push(vector.map_err(|e| failed(format!("the vector of {data_file} cannot be described: {e}")))?);
    }
    Ok(described)
}

/// The file, and where in it each vector lies: offset and length.
async fn encoded(rows: &[(&str, &RoaringTreemap)]) -> anyhow::Result<(bytes::Bytes, Vec<(i64, i64)>)> {
    let memory = FileIO::new_with_memory();
    let told = HashMap::from([("created-by".to_owned(), concat!("afterwrite ", env!("CARGO_PKG_VERSION")).to_owned())]);
    let mut writer = PuffinWriter::new(&memory.new_output(IN_MEMORY)?, told, false).await?;
    for (data_file, rows) in rows {
        let properties = [("referenced-data-file", (*data_file).to_owned()), ("cardinality", rows.len().to_string())];
        let blob = Blob::builder()
            .r#type(DELETION_VECTOR_V1.into())
            .fields(vec![ROW_POSITION])
            .snapshot_id(INHERITED)
            .sequence_number(INHERITED)
            .data(blob(rows)?)
            .properties(properties.map(|(key, value)| (key.to_owned(), value)).into())
            .build();
        writer.add(blob, CompressionCodec::None).await?;
    }
    writer.close().await?;
    let file = memory.new_input(IN_MEMORY)?;
    let footer = PuffinReader::new(memory.new_input(IN_MEMORY)?).file_metadata().await?.clone();
    anyhow::ensure!(footer.blobs().len() == rows.len(), "{} vectors are written, {} were to be", footer.blobs().len(), rows.len());
    let place = |blob: &iceberg::puffin::BlobMetadata| Ok((i64::try_from(blob.offset())?, i64::try_from(blob.length())?));
    let places: anyhow::Result<Vec<_>> = footer.blobs().iter().map(place).collect();
    Ok((file.read().await?, places?))
}

/// The bytes of a vector: the length of what follows but the checksum, the magic number,
/// the bitmap, and the checksum of both.
fn blob(rows: &RoaringTreemap) -> anyhow::Result<Vec<u8>> {
    let mut body = MAGIC.to_vec();
    rows.serialize_into(&mut body)?;
    let mut blob = u32::try_from(body.len())?.to_be_bytes().to_vec();
    blob.extend(&body);
    blob.extend(crc32fast::hash(&body).to_be_bytes());
    Ok(blob)
}
