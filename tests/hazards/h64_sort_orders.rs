//! H64, H69 and H81: this product does not sort. A sorted table's outputs claim no order,
//! keep that of its files, and files of healthy sizes are said to be healthy and no more.

use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::{AttemptId, Path};
use afterwrite::model::policy::Policy;
use afterwrite::settings::Settings;
use iceberg::TableUpdate;
use iceberg::spec::{NullOrder, SortDirection, SortField, SortOrder, Transform};

use crate::fixture::{File, Table, Watch, oracle, row};
use crate::laws::world::{MIB, World};

/// A table sorted by its first column, descending, of files that are.
async fn sorted() -> (Table, Vec<File>) {
    let t = Table::plain().create().await;
    let field =
        SortField::builder().source_id(1).transform(Transform::Identity).direction(SortDirection::Descending).null_order(NullOrder::First);
    let sort_order = SortOrder::builder().with_order_id(1).with_sort_field(field.build()).build_unbound().unwrap();
    t.update(vec![TableUpdate::AddSortOrder { sort_order }, TableUpdate::SetDefaultSortOrder { sort_order_id: -1 }]).await;
    let mut files = vec![];
    for ids in [[3, 1], [9, 2], [8, 7]] {
        files.push(t.append(ids.map(|id| row(id, "v", 0))).await);
    }
    (t, files)
}

async fn rewritten(t: &Table, files: &[File]) -> Path {
    let (table, mut plan) = (t.load().await, t.plan_all(&files[0]).await);
    plan.bound.memory = 256 << 20;
    let written = rewrite::run(&table, &plan, &AttemptId("a1.0".into()), &Watch::default()).await.unwrap();
    verify::run(&table, &plan, &written).await.unwrap();
    let outcome = t.commit(&plan, &written, "a1").await;
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    written.path
}

#[tokio::test]
async fn h64_a_sorted_tables_outputs_claim_no_order() {
    let (t, files) = sorted().await;
    let rows = t.rows().await;
    rewritten(&t, &files).await;
    let live = oracle::live(&t.load().await).await;
    assert_eq!(live.iter().map(|l| l.file.sort_order_id().unwrap_or(0)).collect::<Vec<_>>(), [0]);
    assert_eq!(t.rows().await, rows);
}

#[tokio::test]
async fn h81_a_sorted_table_is_rewritten_in_the_order_of_its_files() {
    let (t, files) = sorted().await;
    rewritten(&t, &files).await;
    let table = t.load().await;
    let live = oracle::live(&table).await;
    let batches = oracle::read(&table, live[0].file.file_path()).await;
    let ids: Vec<String> = oracle::texts(&batches, &[1]).into_iter().flatten().collect();
    let mut by_path: Vec<_> = files.iter().zip([["3", "1"], ["9", "2"], ["8", "7"]]).collect();
    by_path.sort_by_key(|(file, _)| file.path.clone());
    assert_eq!(ids, by_path.into_iter().flat_map(|(_, ids)| ids).collect::<Vec<_>>());
}

#[test]
fn h69_files_of_the_target_size_are_named_healthy_and_nothing_is_said_to_be_done() {
    let mut world = World::new(Policy::default());
    for _ in 0..10 {
        world.append(512 * MIB, 1000);
    }
    assert_eq!(world.judge().verdict, Verdict::Not { reason: Reason::Healthy });
    assert!(world.turn().planned.is_none());
    assert_eq!(world.rewrites, 0);
}

#[test]
fn h69_a_rule_that_asks_for_sorting_is_refused_by_name() {
    let wrong = |toml: &str| Settings::read(toml, []).err().unwrap().to_string();
    let why = "rule `sort`: rewrites keep the order of rows, and nothing tells how far files overlap";
    for rules in ["[\"small-files\", \"sort\"]", "\"sort\"", "[{ rule = \"sort\", depth = 4 }]"] {
        let told = wrong(&format!("[defaults]\nrules = {rules}\n"));
        assert!(told.contains(&format!("defaults.rules: {why}")), "{told}");
    }
    let told = wrong("[trigger.overlapping]\nwhen = \"overlap_depth > 4\"\n");
    assert!(told.contains("unknown trait `overlap_depth`"), "{told}");
}
