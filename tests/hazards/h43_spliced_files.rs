//! An output that is not valid Parquet, or not the inputs' bytes, is never
//! committed.

use std::fs;

use afterwrite::model::plan::Path;

use crate::reading::Lake;
use crate::reading::proving::{Rewrite, failure, prove, re_encode, splice};
use crate::reading::value::row;

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
    // The same rows have the same hash, whichever way they were written.
    assert_eq!(spliced, encoded);
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
