use std::sync::Arc;

use super::*;
use crate::decide::judge;
use crate::decide::testing::{Given, MIB};
use crate::model::file::Content;
use crate::model::partition::PartitionKey;
use crate::model::plan::Bound;

const LIMITS: BudgetLimits = BudgetLimits { gb_hours_per_hour: 8.0, carry_over_hours: 2.0, concurrent_jobs: 2 };

fn key(path: &str) -> FileKey {
    FileKey { path: path.into(), offset: None }
}

/// Files by path, size and the deletes on them; each has 1000 rows and a
/// sequence number by its place.
fn scope(files: &[(&str, u64, &[&str])]) -> ScopeFiles {
    let mut scope =
        ScopeFiles { snapshot_id: 42, sequence_number: 99, scope: PartitionKey::unpartitioned(0), files: vec![], deletes: BTreeMap::new() };
    for (place, (path, bytes, deletes)) in files.iter().enumerate() {
        let deletes: Vec<FileKey> = deletes.iter().map(|d| key(d)).collect();
        for delete in &deletes {
            let live = LiveDelete { key: delete.clone(), content: Content::PositionDeletes, bytes: 10, records: 50, data_sequence: 50 };
            scope.deletes.insert(delete.clone(), live);
        }
        scope.files.push(LiveFile {
            path: Arc::from(*path),
            bytes: *bytes,
            records: 1000,
            data_sequence: place as i64,
            sort_order_id: None,
            first_row_id: None,
            deletes,
        });
    }
    scope.files.sort_by(|a, b| a.path.cmp(&b.path));
    scope
}

fn small(count: usize, bytes: u64) -> ScopeFiles {
    let names: Vec<String> = (0..count).map(|i| format!("f{i:03}")).collect();
    scope(&names.iter().map(|n| (n.as_str(), bytes, &[][..])).collect::<Vec<_>>())
}

fn make(policy: &Policy, cause: &Cause, scope: &ScopeFiles) -> Result<Vec<Plan>, Reason> {
    let name = TableName::new("lake", "sales", "orders");
    let table = TableIdent::iceberg(uuid::Uuid::from_u128(7));
    plans(&Order { table, name: &name, reference: "main", policy, limits: &LIMITS, cause }, scope)
}

fn inputs(plan: &Plan) -> Vec<&str> {
    plan.inputs.iter().map(|f| &*f.path).collect()
}

fn small_files() -> Cause {
    Cause::Rule(Rule::SmallFiles { min_reduction_ratio: 0.1 })
}

fn deletes() -> Cause {
    Cause::Rule(Rule::Deletes { min_ratio: 0.1, min_files_per_data_file: 3 })
}

#[test]
fn a_plan_names_everything_that_it_stands_on() {
    let policy = Policy::default();
    let made = make(&policy, &small_files(), &small(8, MIB)).unwrap();
    assert_eq!(made.len(), 1);
    let plan = &made[0];
    assert_eq!((plan.snapshot_id, plan.sequence_number, plan.reference.as_str(), plan.reason.as_str()), (42, 99, "main", "small-files"));
    assert_eq!((plan.inputs.len(), plan.input_bytes(), plan.deletes.len()), (8, 8 * MIB, 0));
    assert_eq!(plan.target_file_size, 8 * MIB);
    assert_eq!(plan.bound, Bound { gb_hours: super::super::budget::gb_hours(512 << 20, 150_671), millis: 60_671, memory: 512 << 20 });
}

#[test]
fn only_the_full_tier_is_taken() {
    let mut scope = small(8, MIB);
    scope.files.push(LiveFile {
        path: "g".into(),
        bytes: 40 * MIB,
        records: 1,
        data_sequence: 1,
        sort_order_id: None,
        first_row_id: None,
        deletes: vec![],
    });
    scope.files.push(LiveFile {
        path: "h".into(),
        bytes: 500 * MIB,
        records: 1,
        data_sequence: 1,
        sort_order_id: None,
        first_row_id: None,
        deletes: vec![],
    });
    let made = make(&Policy::default(), &small_files(), &scope).unwrap();
    assert_eq!(made[0].inputs.len(), 8);
    assert!(made[0].inputs.iter().all(|f| f.bytes == MIB));
}

#[test]
fn a_request_takes_every_small_file_and_every_file_with_deletes() {
    let scope = scope(&[("a", MIB, &[]), ("b", 40 * MIB, &[]), ("c", 500 * MIB, &["d"]), ("e", 500 * MIB, &[])]);
    let made = make(&Policy::default(), &Cause::Request, &scope).unwrap();
    assert_eq!(made.iter().map(inputs).collect::<Vec<_>>(), [["a", "b", "c"]]);
    assert_eq!(made[0].deletes.iter().map(|d| &*d.key.path).collect::<Vec<_>>(), ["d"]);
    assert_eq!(made[0].reason, "request");
}

#[test]
fn a_request_without_anything_to_gain_makes_no_plan() {
    for files in [&[("a", MIB, &[][..])][..], &[("a", 500 * MIB, &[])], &[]] {
        assert_eq!(make(&Policy::default(), &Cause::Request, &scope(files)), Err(Reason::NothingToGain));
    }
}

#[test]
fn one_file_is_rewritten_only_for_its_deletes() {
    let scope = scope(&[("a", MIB, &["d"])]);
    let made = make(&Policy::default(), &Cause::Request, &scope).unwrap();
    assert_eq!(inputs(&made[0]), ["a"]);
}

#[test]
fn outputs_are_cut_evenly() {
    let made = make(&Policy::default(), &Cause::Request, &small(7, 100 * MIB)).unwrap();
    // 700 MiB at 512: two of 350
    assert_eq!(made[0].target_file_size, 350 * MIB);
}

#[test]
fn jobs_are_bounded_disjoint_and_oldest_first() {
    let policy = Policy { max_job_bytes: 50 * MIB, ..Policy::default() };
    let mut scope = small(10, 10 * MIB);
    for (place, file) in scope.files.iter_mut().enumerate() {
        file.data_sequence = 100 - place as i64;
    }
    let made = make(&policy, &small_files(), &scope).unwrap();
    let names: Vec<_> = made.iter().map(inputs).collect();
    assert_eq!(names, [["f005", "f006", "f007", "f008", "f009"], ["f000", "f001", "f002", "f003", "f004"]]);
}

#[test]
fn a_job_left_with_one_file_is_not_planned() {
    let policy = Policy { max_job_bytes: 50 * MIB, ..Policy::default() };
    let made = make(&policy, &small_files(), &small(11, 10 * MIB)).unwrap();
    assert_eq!(made.iter().map(|p| p.inputs.len()).collect::<Vec<_>>(), [5, 5]);
}

#[test]
fn a_file_larger_than_any_job_is_left_out() {
    let policy = Policy { max_job_bytes: 100 * MIB, ..Policy::default() };
    let big = scope(&[("a", 500 * MIB, &["d"])]);
    assert_eq!(make(&policy, &deletes(), &big), Err(Reason::NothingToGain));
}

#[test]
fn every_job_fits_a_budget_that_is_small() {
    let limits = BudgetLimits { gb_hours_per_hour: 0.035, carry_over_hours: 1.0, concurrent_jobs: 1 };
    let mut policy = Policy { memory_limit: 1_000_000_000, ..Policy::default() };
    policy.cost.rewrite_bytes_per_hour = 1e9;
    let name = TableName::new("lake", "sales", "orders");
    let table = TableIdent::iceberg(uuid::Uuid::from_u128(7));
    let order = Order { table, name: &name, reference: "main", policy: &policy, limits: &limits, cause: &small_files() };
    let made = plans(&order, &small(20, MIB)).unwrap();
    // 36 s at 1 GB and 90 s to end: 10 MB that take it, half of that by the least safety: 4 files of 1 MiB
    assert_eq!(made.iter().map(|p| p.inputs.len()).collect::<Vec<_>>(), [4, 4, 4, 4, 4]);
    let mut budget = super::super::budget::Budget::new(&crate::model::economy::Budgets::of(&limits), 0);
    assert!(made.iter().all(|p| p.bound.gb_hours <= 0.035 && p.bound.millis == 36_000));
    let _reservation = budget.reserve(&made[0].bound, 0).unwrap();
}

#[test]
fn files_heavy_with_deletes_are_taken_and_light_ones_left() {
    // each delete has 50 records: two are 10 % of a file
    let scope = scope(&[("light", 500 * MIB, &["d1"]), ("share", 500 * MIB, &["d1", "d2"]), ("clean", 500 * MIB, &[])]);
    let made = make(&Policy::default(), &deletes(), &scope).unwrap();
    assert_eq!(inputs(&made[0]), ["share"]);
    assert_eq!(made[0].deletes.len(), 2);
}

#[test]
fn a_file_with_many_deletes_is_heavy_whatever_they_delete() {
    let mut scope = scope(&[("many", 500 * MIB, &["d1", "d2", "d3"]), ("few", 500 * MIB, &["d1"])]);
    scope.deletes.values_mut().for_each(|d| d.records = 1);
    assert_eq!(inputs(&make(&Policy::default(), &deletes(), &scope).unwrap()[0]), ["many"]);
}

#[test]
fn small_neighbours_that_rise_go_along_with_heavy_files() {
    let scope = scope(&[("heavy", 10 * MIB, &["d1", "d2"]), ("tiny", MIB, &[]), ("alike", 12 * MIB, &[]), ("larger", 40 * MIB, &[])]);
    let made = make(&Policy::default(), &deletes(), &scope).unwrap();
    assert_eq!(inputs(&made[0]), ["heavy", "tiny"]);
}

#[test]
fn deletes_that_apply_to_nothing_make_no_plan() {
    let mut scope = small(3, 500 * MIB);
    let live = LiveDelete { key: key("d"), content: Content::EqualityDeletes, bytes: 9, records: 1_000_000, data_sequence: 1 };
    scope.deletes.insert(key("d"), live);
    assert_eq!(make(&Policy::default(), &deletes(), &scope), Err(Reason::NothingToGain));
}

#[test]
fn deletes_on_merged_files_are_joined_whatever_the_cause() {
    let mut files: Vec<(String, Vec<&str>)> = (0..8).map(|i| (format!("f{i}"), vec![])).collect();
    files[3].1 = vec!["d2", "d1"];
    files[5].1 = vec!["d2"];
    let borrowed: Vec<(&str, u64, &[&str])> = files.iter().map(|(n, d)| (n.as_str(), MIB, d.as_slice())).collect();
    let made = make(&Policy::default(), &small_files(), &scope(&borrowed)).unwrap();
    assert_eq!(made[0].deletes.iter().map(|d| &*d.key.path).collect::<Vec<_>>(), ["d1", "d2"]);
}

#[test]
fn deletion_vectors_are_joined_by_their_place_in_a_shared_file() {
    let mut scope = scope(&[("a", MIB, &[]), ("b", MIB, &[])]);
    let vector = |offset| FileKey { path: "dv".into(), offset: Some(offset) };
    for (file, offset) in scope.files.iter_mut().zip([4, 40]) {
        file.deletes.push(vector(offset));
        let delete = LiveDelete { key: vector(offset), content: Content::DeletionVector, bytes: 36, records: 1, data_sequence: 9 };
        scope.deletes.insert(vector(offset), delete);
    }
    let made = make(&Policy::default(), &Cause::Request, &scope).unwrap();
    assert_eq!(made[0].deletes.iter().map(|d| d.key.offset).collect::<Vec<_>>(), [Some(4), Some(40)]);
}

#[test]
fn a_delete_that_is_nowhere_is_refused_as_damage() {
    let mut scope = scope(&[("a", MIB, &["d"])]);
    scope.deletes.clear();
    let refused = Refused::new(Refusal::Damaged, "d is said to apply to a and is not among the partition's deletes");
    assert_eq!(make(&Policy::default(), &Cause::Request, &scope), Err(Reason::Refused(refused)));
}

#[test]
fn a_decision_gives_its_plan_the_cause() {
    let mut given = Given::small_files(8);
    let decision = judge(&given.case());
    assert_eq!(Cause::of(&decision, &given.policy), Some(small_files()));
    assert_eq!(make(&given.policy, &small_files(), &small(8, MIB)).unwrap()[0].reason, "small-files");
    given.policy.rules.clear();
    assert_eq!(Cause::of(&decision, &given.policy), None);
    assert_eq!(Cause::of(&judge(&given.case()), &given.policy), Some(Cause::Score));
    given.paused = true;
    assert_eq!(Cause::of(&judge(&given.case()), &given.policy), None);
}

#[test]
fn the_most_deletes_on_a_file_are_known_from_the_join() {
    assert_eq!(max_deletes_on_file(&scope(&[("a", 1, &["d1"]), ("b", 1, &["d1", "d2"])])), 2);
    assert_eq!(max_deletes_on_file(&scope(&[])), 0);
}
