//! What is refused is refused by name, with what was found and where; nothing is
//! changed, and the rest of the table is compacted.

use afterwrite::model::refusal::Refusal;
use iceberg::spec::{Literal, NestedField, PrimitiveLiteral, PrimitiveType, Type};
use serde_json::{Value, json};

use super::NAME;
use crate::fixture::process::Place;
use crate::fixture::{Spec, Table, row};

struct Refused {
    place: Place,
    table: Table,
}

impl Refused {
    /// Two small files of partition 7, changed by the caller.
    async fn new(spec: impl FnOnce(Spec) -> Spec) -> Self {
        let place = Place::new("");
        let table = spec(Table::partitioned_by_p()).in_sqlite(place.path()).create().await;
        Self { place, table }
    }

    async fn two_files(&self) {
        self.table.append([row(1, "a", 7)]).await;
        self.table.append([row(2, "b", 7)]).await;
    }

    /// What `compact` says of the first partition: refused, and nothing written.
    async fn row(&self, more: &[&str]) -> Value {
        let before = self.place.files();
        let ended = self.place.run(&[&["compact", NAME, "--json"], more].concat()).await.expect(3);
        let files = self.place.files();
        assert_eq!(files, before);
        let line = ended.lines().remove(0);
        assert_eq!(line["result"], "refused", "{line}");
        line
    }

    async fn says(&self, more: &[&str], refusal: Refusal, detail: &str) {
        let line = self.row(more).await;
        assert_eq!(line["refusal"], refusal.code(), "{line}");
        assert!(line["detail"].as_str().unwrap().contains(detail), "{line}");
    }
}

#[tokio::test]
async fn a_table_of_a_newer_format_is_refused_by_every_command() {
    let t = Refused::new(Spec::v3).await;
    t.says(&[], Refusal::FormatVersion, "format version 3; 1 and 2 are handled").await;
    t.place.run(&["inspect", NAME, "--json"]).await.expect(3);
    assert_eq!(t.place.run(&["plan", NAME, "--json"]).await.expect(3).each("verdict"), ["refused"]);
}

#[tokio::test]
async fn a_branch_that_is_not_there_is_refused() {
    let t = Refused::new(|s| s).await;
    t.two_files().await;
    t.says(&["--ref", "audit"], Refusal::Branch, "there is no branch `audit`").await;
}

#[tokio::test]
async fn a_column_with_a_default_that_old_files_lack_is_refused() {
    let t = Refused::new(|s| s).await;
    t.two_files().await;
    t.table
        .evolve_schema(|fields| {
            let added = NestedField::optional(9, "d", Type::Primitive(PrimitiveType::Long));
            fields.push(added.with_initial_default(Literal::Primitive(PrimitiveLiteral::Long(5))));
        })
        .await;
    t.says(&[], Refusal::DefaultValue, "column d has an initial default").await;
}

#[tokio::test]
async fn a_file_that_is_damaged_is_refused_and_other_partitions_are_compacted() {
    let t = Refused::new(|s| s).await;
    t.two_files().await;
    t.table.append([row(3, "c", 8)]).await;
    let whole = t.table.append([row(4, "d", 8)]).await;
    let bad = t.table.append([row(5, "e", 7)]).await;
    let path = crate::fixture::process::local(&bad.path);
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::write(&path, vec![0u8; usize::try_from(length).unwrap()]).unwrap();
    let ended = t.place.run(&["compact", NAME, "--json"]).await.expect(3);
    assert_eq!((ended.each("result"), ended.each("refusal")), (vec![json!("refused"), json!("committed")], vec![json!("damaged"), Value::Null]));
    assert!(ended.lines()[0]["detail"].as_str().unwrap().contains(&bad.path), "{}", ended.out);
    assert!(!t.table.load().await.loaded.metadata_location.is_empty() && whole.path != bad.path);
    t.place.assert_settled().await;
}

#[tokio::test]
async fn more_deletes_than_fit_the_memory_are_refused() {
    let t = Refused::new(|s| s.property("afterwrite.memory-limit", "16MiB")).await;
    t.two_files().await;
    for n in 0..6 {
        let keys = (0..40_000).map(|i| row(1_000_000 + n * 40_000 + i, &format!("key {i} of many that are long enough to fill the memory"), 7));
        t.table.change().delete_equal(&["id", "v"], keys).commit().await;
    }
    let line = t.row(&[]).await;
    assert_eq!(line["refusal"], Refusal::TooManyDeletes.code(), "{line}");
}
