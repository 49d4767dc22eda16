//! An output that is not valid Parquet, or not the inputs' bytes, is never
//! committed.

use std::fs;
use std::sync::Arc;

use afterwrite::model::plan::Path;
use afterwrite::model::refusal::Refusal;
use arrow_schema::{DataType, Schema};
use iceberg::spec::DataContentType;
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::reading::proving::{Rewrite, failure, prove, re_encode, splice};
use crate::reading::value::{Value, batch, row};
use crate::reading::{Lake, NullCounts, Placed, describe, field, write};

fn lake() -> Lake {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a"), row(2, "b")]);
    lake.append(2, &[row(3, "c")]);
    lake
}

async fn re_encoded(lake: &mut Lake) -> Rewrite {
    let (batches, read) = lake.read().await.unwrap();
    re_encode(lake, &batches, read)
}

fn local(rewrite: &Rewrite) -> String {
    rewrite.outputs[0].file_path().trim_start_matches("file://").to_owned()
}

#[tokio::test]
async fn h43_a_right_output_is_proven_both_ways() {
    let mut lake = lake();
    let rewrite = re_encoded(&mut lake).await;
    let encoded = prove(&lake, rewrite).await.unwrap();
    let rewrite = splice(&mut lake);
    assert_eq!(rewrite.path, Path::Splice);
    let spliced = prove(&lake, rewrite).await.unwrap();
    assert_eq!((encoded.rows, encoded.null_counts, encoded.columns), (3, 2, 2));
    assert_eq!((spliced.rows, spliced.null_counts, spliced.columns), (3, 2, 2));
}

#[tokio::test]
async fn h43_a_changed_byte_of_a_copied_chunk_is_seen() {
    let mut lake = lake();
    let rewrite = splice(&mut lake);
    let path = local(&rewrite);
    let mut bytes = fs::read(&path).unwrap();
    // The last value of the last chunk: `c` becomes `d`, still valid Parquet.
    let at = bytes.windows(5).rposition(|w| w == b"\x01\x00\x00\x00c").unwrap() + 4;
    bytes[at] = b'd';
    fs::write(&path, bytes).unwrap();
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("row group 1: column 1 holds other bytes"), "{why}");
}

#[tokio::test]
async fn h43_a_changed_value_of_a_re_encoded_output_is_seen() {
    let mut lake = lake();
    let rewrite = re_encoded(&mut lake).await;
    let path = local(&rewrite);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|w| w == b"\x01\x00\x00\x00c").unwrap() + 4;
    bytes[at] = b'd';
    fs::write(&path, bytes).unwrap();
    let why = failure(&lake, rewrite).await;
    assert!(why.starts_with("column 2: read as"), "{why}");
}

#[tokio::test]
async fn h43_a_cut_output_is_seen() {
    let mut lake = lake();
    let rewrite = re_encoded(&mut lake).await;
    let path = local(&rewrite);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("bytes, described as"), "{why}");
}

#[tokio::test]
async fn h43_a_broken_footer_is_seen() {
    let mut lake = lake();
    let rewrite = splice(&mut lake);
    let path = local(&rewrite);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 1] = b'X';
    fs::write(&path, bytes).unwrap();
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("out-"), "{why}");
}

#[tokio::test]
async fn h43_a_missing_output_is_seen() {
    let mut lake = lake();
    let rewrite = splice(&mut lake);
    fs::remove_file(local(&rewrite)).unwrap();
    let why = failure(&lake, rewrite).await;
    assert!(why.ends_with("the output does not exist"), "{why}");
}

#[tokio::test]
async fn h43_a_row_group_copied_twice_or_left_out_is_seen() {
    let mut lake = lake();
    let mut rewrite = splice(&mut lake);
    rewrite.outputs.push(rewrite.outputs[0].clone());
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("are not the 6 rows read back"), "{why}");
    let mut rewrite = splice(&mut lake);
    rewrite.outputs.clear();
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("are not the 0 rows read back"), "{why}");
}

/// A file of one page with a checksum, which our writer does not make: the field
/// is put into the page header by hand, and the footer made anew.
fn with_checksum(path: &str, change: u32) {
    let bytes = fs::read(path).unwrap();
    let footer = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(bytes.clone())).unwrap();
    let chunk = footer.row_group(0).column(0).clone();
    let (start, length) = chunk.byte_range();
    let page = &bytes[start as usize..(start + length) as usize];
    // Fields 1 to 3 are a type byte and a number each; field 5 follows.
    let mut at = 0;
    for _ in 0..3 {
        assert_eq!(page[at], 0x15);
        at += 1;
        while page[at] & 0x80 != 0 {
            at += 1;
        }
        at += 1;
    }
    assert_eq!(page[at], 0x2c);
    let data = &page[page.len() - 16..];
    let crc = crc32(data) ^ change;
    let signed = crc as i32;
    let mut number = ((signed << 1) ^ (signed >> 31)) as u32;
    let mut field = vec![0x15];
    while number >= 0x80 {
        field.push(number as u8 | 0x80);
        number >>= 7;
    }
    field.extend([number as u8, 0x1c]);
    let grown = field.len() as i64 - 1;
    let mut out = [&bytes[..start as usize], &page[..at], &field, &page[at + 1..]].concat();
    let longer = chunk.clone().into_builder().set_total_compressed_size(chunk.compressed_size() + grown).build().unwrap();
    let group = footer.row_group(0).clone().into_builder().set_column_metadata(vec![longer]).build().unwrap();
    let footer = footer.into_builder().set_row_groups(vec![group]).build();
    ParquetMetaDataWriter::new(&mut out, &footer).finish().unwrap();
    fs::write(path, out).unwrap();
}

fn crc32(data: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 != 0 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !data.iter().fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A table of one file of two longs with a checksum.
fn checked(change: u32) -> Lake {
    let mut lake = Lake::new(serde_json::json!([{"id": 1, "name": "id", "required": true, "type": "long"}]));
    let schema = Arc::new(Schema::new(vec![field("id", DataType::Int64, false, 1)]));
    let rows = batch(&schema, &[vec![Value::Int(7)], vec![Value::Int(8)]]);
    let path = lake.path("data");
    let plain = WriterProperties::builder().set_dictionary_enabled(false).set_statistics_enabled(EnabledStatistics::None);
    write(&path, &rows, plain.build());
    with_checksum(path.trim_start_matches("file://"), change);
    let file = describe(&path, DataContentType::Data, &NullCounts::of(&rows)).build().unwrap();
    lake.data.push(Placed { file, sequence: 1 });
    lake
}

#[tokio::test]
async fn h43_a_page_with_a_wrong_checksum_is_refused() {
    assert_eq!(checked(0).values().await, [[Value::Int(7)], [Value::Int(8)]]);
    let (refusal, detail) = checked(1).refusal().await;
    assert_eq!(refusal, Refusal::Damaged);
    assert!(detail.contains("CRC"), "{detail}");
}
