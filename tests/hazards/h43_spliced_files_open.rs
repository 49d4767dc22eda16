//! Files put together from row groups must open everywhere and hold every row.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{StringArray, TimestampMicrosecondArray};
use iceberg::spec::PrimitiveType;

use crate::rewrite::support::{Lake, primitive};

#[tokio::test]
async fn h43_nineteen_small_files_with_timestamptz_and_text_open_as_one() {
    let fields = vec![("at", primitive(PrimitiveType::Timestamptz)), ("text", primitive(PrimitiveType::String))];
    let lake = Lake::new(fields, &[]);
    let (mut files, mut batches) = (Vec::new(), Vec::new());
    for file in 0..19i64 {
        let at = TimestampMicrosecondArray::from_iter((0..50).map(|row| (row != 7).then_some(file * 1_000_000 + row)));
        let text = StringArray::from_iter((0..50).map(|row| (row % 10 != 3).then(|| format!("row {row} of {file} ü"))));
        let batch = lake.batch(vec![Arc::new(at.with_timezone("+00:00")), Arc::new(text)]);
        files.push(lake.file(&format!("in{file}"), batch.clone()).await);
        batches.push(batch);
    }
    let made = lake.splice("out", files, 1 << 30, HashMap::new()).await.unwrap();
    assert_eq!(made.len(), 1);
    let read = lake.read(&made[0].output.path).await;
    assert_eq!(read.footer.num_row_groups(), 19);
    assert_eq!(read.rows, arrow_select::concat::concat_batches(&lake.arrow(), &batches).unwrap());
    assert_eq!((made[0].output.records, made[0].data_file.null_value_counts().clone()), (950, HashMap::from([(1, 19), (2, 95)])));
    let ordinals: Vec<_> = read.footer.row_groups().iter().map(|group| group.ordinal()).collect();
    assert_eq!(ordinals, (0..19).map(Some).collect::<Vec<_>>());
}
