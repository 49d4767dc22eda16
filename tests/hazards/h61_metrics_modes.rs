//! What manifests tell of a column follows the table's metrics modes, and a cut
//! bound never excludes a value.

use std::sync::Arc;

use arrow_array::{ArrayRef, LargeBinaryArray, StringArray};
use iceberg::spec::{DataFile, Datum, PrimitiveType};

use crate::rewrite::support::{Lake, MEMORY, primitive};

async fn described(mode: &str, texts: &[&str], blobs: &[&[u8]]) -> DataFile {
    let fields = vec![("json", primitive(PrimitiveType::String)), ("blob", primitive(PrimitiveType::Binary))];
    let properties = [("write.metadata.metrics.default", mode)];
    let lake = Lake::new(fields, &properties);
    let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(texts.to_vec())), Arc::new(LargeBinaryArray::from(blobs.to_vec()))];
    lake.encode("a", vec![lake.batch(columns)], 1 << 30, MEMORY).await.unwrap().remove(0).data_file
}

#[tokio::test]
async fn h61_a_megabyte_of_json_takes_only_what_its_mode_allows() {
    let (low, high) = ("a".repeat(1 << 20), "z".repeat(1 << 20));
    let texts = [low.as_str(), high.as_str()];
    let blobs: [&[u8]; 2] = [b"a", b"b"];
    let none = described("none", &texts, &blobs).await;
    assert_eq!((none.value_counts().len(), none.lower_bounds().len(), none.column_sizes().len()), (0, 0, 2));
    let counts = described("counts", &texts, &blobs).await;
    assert_eq!((counts.value_counts()[&1], counts.null_value_counts()[&1], counts.upper_bounds().len()), (2, 0, 0));
    let cut = described("truncate(16)", &texts, &blobs).await;
    assert_eq!(cut.lower_bounds()[&1], Datum::string("a".repeat(16)));
    assert_eq!(cut.upper_bounds()[&1], Datum::string(format!("{}{{", "z".repeat(15))));
    let full = described("full", &texts, &blobs).await;
    assert!(full.lower_bounds()[&1] <= Datum::string(&low) && full.upper_bounds()[&1] >= Datum::string(&high));
    assert!(full.upper_bounds()[&1].to_bytes().unwrap().len() <= 4096);
    assert_eq!(full.lower_bounds()[&2], Datum::binary(*b"a"));
}

#[tokio::test]
async fn h61_a_bound_that_cannot_be_rounded_up_is_dropped() {
    let last = "\u{10FFFF}".repeat(20);
    let file = described("truncate(16)", &["a", &last], &[&[0xFF; 20], &[0]]).await;
    assert_eq!(file.upper_bounds().len(), 0);
    assert_eq!(file.lower_bounds()[&1], Datum::string("a"));
    let nearly = format!("b{last}");
    let file = described("truncate(16)", &["a", &nearly], &[&[0xFE, 0xFF], &[0]]).await;
    assert_eq!(file.upper_bounds()[&1], Datum::string("c"));
    assert_eq!(file.upper_bounds()[&2], Datum::binary([0xFE, 0xFF]));
    let surrogates = format!("{}x", "\u{D7FF}".repeat(16));
    let file = described("truncate(16)", &["a", &surrogates], &[&[0u8][..]; 2]).await;
    assert_eq!(file.upper_bounds()[&1], Datum::string(format!("{}\u{E000}", "\u{D7FF}".repeat(15))));
}
