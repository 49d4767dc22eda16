//! What is refused is refused by name, with what was found and where; nothing is
//! changed, and the rest of the table is compacted.

use std::sync::Arc;
use std::time::Duration;

use afterwrite::lake::Table as _;
use afterwrite::model::refusal::Refusal;
use arrow_array::{Int32Array, Int64Array, RecordBatch, StringArray};
use iceberg::TableUpdate;
use iceberg::spec::{
    DataContentType, DataFileBuilder, DataFileFormat, Literal, NestedField, PrimitiveLiteral, PrimitiveType, Struct, Type,
};
use serde_json::{Value, json};

use super::NAME;
use crate::fixture::process::{Ended, Place, local, over_rest};
use crate::fixture::{File, Spec, Table, files, row};

/// A table whose partition 7 cannot be compacted, with what `compact` says of it.
struct Case {
    place: Place,
    table: Table,
    arguments: Vec<&'static str>,
    found: &'static str,
}

impl Case {
    async fn new(settings: &str, spec: impl FnOnce(Spec) -> Spec, found: &'static str) -> Self {
        let place = Place::new(settings);
        let table = spec(Table::partitioned_by_p()).in_sqlite(place.path()).create().await;
        Self { place, table, arguments: vec![], found }
    }

    async fn with_files(spec: impl FnOnce(Spec) -> Spec, found: &'static str) -> Self {
        let case = Self::new("", spec, found).await;
        // as many as make a larger file of one tier
        for id in 1..5 {
            case.table.append([row(id, "a", 7)]).await;
        }
        case
    }

    /// Describes a file of partition 7 that is not written.
    fn described(&self, name: &str, change: impl FnOnce(&mut DataFileBuilder)) -> File {
        let path = format!("file://{}/warehouse/ns/t/data/{name}", self.place.path().display());
        let mut builder = DataFileBuilder::default();
        builder.content(DataContentType::Data).file_path(path.clone()).file_format(DataFileFormat::Parquet);
        builder.partition(Struct::from_iter([Some(Literal::int(7))])).partition_spec_id(0).record_count(1).file_size_in_bytes(100);
        change(&mut builder);
        let partition = afterwrite::model::partition::PartitionKey {
            spec_id: 0,
            tuple: Arc::from([Some(afterwrite::model::partition::Value::Int(7))]),
        };
        File { path, data: builder.build().unwrap(), partition }
    }

    async fn add(&self, file: File) {
        self.table.change().add_file(file).commit().await;
    }
}

async fn case(refusal: Refusal) -> Option<Case> {
    let case = match refusal {
        // metadata of a newer format cannot be read at all: see below
        Refusal::FormatVersion => return None,
        Refusal::Encrypted => Case::with_files(|s| s.property("encryption.key-id", "k"), "encryption").await,
        Refusal::FileFormat => {
            let case = Case::with_files(|s| s, "x.orc: is Orc, not Parquet").await;
            case.add(case.described("x.orc", |b| {
                b.file_format(DataFileFormat::Orc);
            }))
            .await;
            case
        }
        Refusal::DeletionVector => {
            let case = Case::with_files(|s| s, "a deletion vector before format 3").await;
            let file = case.table.append([row(3, "c", 7)]).await;
            let vector = case.described("x.puffin", |b| {
                b.content(DataContentType::PositionDeletes).file_format(DataFileFormat::Puffin);
                b.referenced_data_file(Some(file.path.clone())).content_offset(Some(4)).content_size_in_bytes(Some(40));
            });
            case.table.change().add_delete(vector).commit().await;
            case
        }
        Refusal::StrayDelete => {
            let case = Case::with_files(|s| s, "which the table spells").await;
            let file = case.table.append([row(3, "c", 7)]).await;
            let spelled = File { path: file.path.replacen("file://", "file:", 1), ..file };
            case.table.change().delete_positions(&[(&spelled, 0)]).commit().await;
            case
        }
        Refusal::NoFieldIds => without_ids().await,
        Refusal::ColumnType => {
            let case = Case::with_files(|s| s, "column none of type fixed(0)").await;
            let added = NestedField::optional(9, "none", Type::Primitive(PrimitiveType::Fixed(0)));
            case.table.evolve_schema(|fields| fields.push(added)).await;
            case
        }
        Refusal::DefaultValue => {
            let case = Case::with_files(|s| s, "column d has an initial default in format version 2").await;
            let added = NestedField::optional(9, "d", Type::Primitive(PrimitiveType::Long));
            let added = added.with_initial_default(Literal::Primitive(PrimitiveLiteral::Long(5)));
            case.table.evolve_schema(|fields| fields.push(added)).await;
            case
        }
        Refusal::UnresolvedSpec => {
            let case = Case::with_files(|s| s, "spec 0").await;
            case.table.evolve_spec(&[]).await;
            case.table.evolve_schema(|fields| fields.retain(|f| f.name != "p")).await;
            case.table.update(vec![TableUpdate::RemoveSchemas { schema_ids: vec![0] }]).await;
            case
        }
        Refusal::Branch => {
            let case = Case { arguments: vec!["--ref", "audit"], ..Case::with_files(|s| s, "another branch than `main`").await };
            case.table.change().branch("audit").append([row(9, "audit", 7)]).commit().await;
            case
        }
        Refusal::TooManyDeletes => {
            let case = Case::with_files(|s| s.property("afterwrite.memory-limit", "16MiB"), "delete").await;
            for n in 0..6 {
                let keys =
                    (0..40_000).map(|i| row(n * 40_000 + i + 100, &format!("key {i} of many that are long enough to fill the memory"), 7));
                case.table.change().delete_equal(&["id", "v"], keys).commit().await;
            }
            case
        }
        Refusal::TooLargeForMemory => {
            let case = Case::with_files(|s| s.property("afterwrite.memory-limit", "16MiB"), "bytes").await;
            // digits that no encoding shortens to nothing
            let large: String = (0..1_000_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
            for n in 3..7 {
                case.table.append([row(n, &large, 7)]).await;
            }
            case
        }
        Refusal::Damaged => {
            let case = Case::with_files(|s| s, ".parquet").await;
            let bad = local(&case.table.append([row(3, "c", 7)]).await.path);
            let length = usize::try_from(std::fs::metadata(&bad).unwrap().len()).unwrap();
            std::fs::write(&bad, vec![0u8; length]).unwrap();
            case
        }
        Refusal::ManagedCompaction => {
            let case = Case::with_files(|s| s, "lies in an S3 table bucket").await;
            let metadata = format!("file://{}/warehouse/ns/t/metadata", case.place.path().display());
            let updates = [("write.metadata.path".to_owned(), metadata)].into();
            let location = "s3://b6c3f-abc--table-s3".into();
            case.table.update(vec![TableUpdate::SetProperties { updates }, TableUpdate::SetLocation { location }]).await;
            case
        }
        Refusal::NoSpace => {
            let settings = "[budget]\ngb_hours_per_hour = 1000000\n[defaults]\ntarget_file_size = \"1000TiB\"\nmax_job_size = \"10000TiB\"\nmax_job_time = \"10000h\"\nrewrite_bytes_per_hour = \"10000TB\"";
            let case = Case::new(settings, |s| s, "bytes are free, the outputs may take").await;
            for name in ["w.parquet", "x.parquet", "y.parquet", "z.parquet"] {
                case.add(case.described(name, |b| {
                    b.file_size_in_bytes(100 << 40);
                }))
                .await;
            }
            case
        }
    };
    Some(case)
}

/// Files whose columns have names and no ids, as migrated tables have them.
async fn without_ids() -> Case {
    let case = Case::new("", |s| s, "field id").await;
    for n in 0..4 {
        let columns: [(&str, arrow_array::ArrayRef); 3] = [
            ("id", Arc::new(Int64Array::from(vec![n]))),
            ("v", Arc::new(StringArray::from(vec!["v"]))),
            ("p", Arc::new(Int32Array::from(vec![7]))),
        ];
        let bytes = files::parquet(&[RecordBatch::try_from_iter(columns).unwrap()]);
        let file = case.described(&format!("x{n}.parquet"), |b| {
            b.file_size_in_bytes(bytes.len() as u64);
        });
        std::fs::create_dir_all(local(&file.path).parent().unwrap()).unwrap();
        std::fs::write(local(&file.path), &bytes).unwrap();
        case.add(file).await;
    }
    case
}

/// What was wrong with the first line of a command that should be refused; `word` is
/// the key that says that it was, `name` the one by which.
fn misses(ended: &Ended, refusal: Refusal, found: &str, (word, name): (&str, &str)) -> Option<String> {
    let line = ended.lines().into_iter().next().unwrap_or_default();
    let detail = line["detail"].as_str().unwrap_or_default();
    let named = ended.code == Some(3) && line[word] == "refused" && line[name] == refusal.code();
    let told = detail.contains(found) && detail.ends_with(&format!("; {}", refusal.advice()));
    (!named || !told).then(|| format!("{refusal}: {ended:?}"))
}

#[tokio::test]
async fn every_refusal_reaches_the_user_of_compact_plan_and_a_dry_run_with_what_to_do() {
    let mut wrong = vec![];
    for &refusal in Refusal::ALL {
        let Some(case) = case(refusal).await else { continue };
        let (before, head) = (case.place.files(), case.table.load().await.view().head);
        let run = async |words: &[&str]| case.place.run(&[words, &["--json"], &case.arguments[..]].concat()).await;
        let planned = run(&["plan", NAME]).await;
        wrong.extend(misses(&planned, refusal, case.found, ("verdict", "reason")));
        let dry = run(&["compact", NAME, "--dry-run"]).await;
        wrong.extend(misses(&dry, refusal, case.found, ("result", "refusal")));
        let compacted = run(&["compact", NAME]).await;
        wrong.extend(misses(&compacted, refusal, case.found, ("result", "refusal")));
        // free space is another from one moment to the next
        let details = [&planned, &dry, &compacted].map(|ended| ended.each("detail"));
        if refusal != Refusal::NoSpace && details.iter().any(|d| *d != details[0]) {
            wrong.push(format!("{refusal}: not told alike: {details:?}"));
        }
        assert_eq!((case.place.files(), case.table.load().await.view().head), (before, head), "{refusal}: something was changed");
        case.place.assert_settled().await;
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Two files are work enough, and nothing is done about it.
const ADVISED: &str = "tier_files = 2\nqueue_min_reduction = 1\n";

#[tokio::test]
async fn every_refusal_is_shown_by_why_of_a_table_that_is_only_advised() {
    let mut wrong = vec![];
    // another branch than `main` is not followed by `serve`
    for &refusal in Refusal::ALL.iter().filter(|r| **r != Refusal::Branch) {
        let Some(case) = case(refusal).await else { continue };
        case.place.advise(ADVISED);
        let (before, head) = (case.place.files(), case.table.load().await.view().head);
        let serving = case.place.serve().await;
        let ask = async || case.place.run(&["why", NAME, "--server", &serving.grpc, "--json"]).await;
        let is_shown = |ended: &Ended| {
            let told = ended.lines().into_iter().any(|line| {
                let detail = line["detail"].as_str().unwrap_or_default();
                line["reason"] == refusal.code() && detail.contains(case.found) && detail.ends_with(&format!("; {}", refusal.advice()))
            });
            told || (ended.code == Some(3) && ended.err.contains(refusal.code()) && ended.err.contains(case.found))
        };
        let mut ended = ask().await;
        for _ in 0..200 {
            if is_shown(&ended) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            ended = ask().await;
        }
        if !is_shown(&ended) {
            wrong.push(format!("{refusal}: {ended:?}"));
        }
        assert_eq!(serving.terminate().await, Some(0));
        assert_eq!((case.place.files(), case.table.load().await.view().head), (before, head), "{refusal}: something was changed");
        case.place.assert_settled().await;
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn a_refused_partition_does_not_hold_up_the_others() {
    let case = case(Refusal::Damaged).await.unwrap();
    case.table.append([row(4, "d", 8)]).await;
    case.table.append([row(5, "e", 8)]).await;
    let ended = case.place.run(&["compact", NAME, "--json"]).await.expect(3);
    assert_eq!(ended.each("result"), ["refused", "committed"]);
    assert_eq!(ended.each("refusal"), [json!("damaged"), Value::Null]);
    case.place.assert_settled().await;
}

#[tokio::test]
async fn a_table_of_a_newer_format_is_refused_by_name_whatever_is_asked() {
    if over_rest().is_some() {
        return; // such a catalog reads the metadata itself
    }
    let case = Case::with_files(|s| s, "format version 4").await;
    let pointer = local(&case.table.load().await.view().metadata_location);
    let mut metadata: Value = serde_json::from_slice(&std::fs::read(&pointer).unwrap()).unwrap();
    metadata["format-version"] = json!(4);
    std::fs::write(&pointer, metadata.to_string()).unwrap();
    let before = case.place.files();
    for words in [&["inspect", NAME][..], &["plan", NAME], &["compact", NAME]] {
        let ended = case.place.run(words).await.expect(3);
        assert!(ended.err.contains("format-version") && ended.err.contains(case.found), "{words:?}: {ended:?}");
    }
    assert_eq!(case.place.files(), before);
}
