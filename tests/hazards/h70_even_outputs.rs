//! Outputs are as many as planning expects and of one size: no small file is
//! left over that would ask for the next rewrite.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, LargeBinaryArray, RecordBatch};
use iceberg::spec::PrimitiveType;

use crate::rewrite::support::{Lake, MEMORY, noise, primitive};

const TARGET: u64 = 1 << 20;

fn table() -> Lake {
    // Dictionaries would only blur the sizes.
    Lake::new(vec![("blob", primitive(PrimitiveType::Binary))], &[("write.parquet.dict-size-bytes", "1")])
}

/// Rows of one KiB that do not compress.
fn rows(lake: &Lake, kib: u64, seed: u64) -> RecordBatch {
    let data = noise(seed, kib as usize * 1024);
    let column: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values(data.chunks(1024)));
    lake.batch(vec![column])
}

async fn encoded(kib: u64) -> Vec<u64> {
    let lake = table();
    let batches = (0..kib).step_by(16).map(|from| rows(&lake, 16.min(kib - from), from)).collect();
    lake.encode("a", batches, TARGET, MEMORY).await.unwrap().iter().map(|made| made.output.bytes).collect()
}

#[tokio::test]
async fn h70_a_bin_just_over_the_target_makes_one_file() {
    assert_eq!(encoded(1075).await.len(), 1);
    let lake = table();
    let files = vec![lake.file("a", rows(&lake, 614, 1)).await, lake.file("b", rows(&lake, 461, 2)).await];
    assert_eq!(lake.splice("out", files, TARGET, HashMap::new()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn h70_outputs_come_out_even_and_as_many_as_expected() {
    for (kib, files) in [(2000, 2), (2150, 2), (2800, 3), (5700, 6)] {
        let sizes = encoded(kib).await;
        assert_eq!(sizes.len(), files, "{kib} KiB: {sizes:?}");
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(most - least <= 80 << 10, "{kib} KiB: {sizes:?}");
    }
}

#[tokio::test]
async fn h70_spliced_outputs_are_even_too() {
    let lake = table();
    let mut files = Vec::new();
    for number in 0..14u64 {
        files.push(lake.file(&format!("in{number}"), rows(&lake, 200, number)).await);
    }
    let made = lake.splice("out", files, TARGET, HashMap::new()).await.unwrap();
    let groups: Vec<usize> = made.iter().map(|made| made.data_file.split_offsets().unwrap().len()).collect();
    assert_eq!(groups, [5, 4, 5]);
}
