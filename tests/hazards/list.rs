//! Every hazard by its number: the tests that hold it, the refusal that names it, or the
//! part of the product that is yet to come and with it its test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use afterwrite::model::refusal::Refusal;
use syn::visit::Visit;

/// How a hazard is held.
enum Held {
    /// By these tests, which are to be found by name.
    By(&'static [&'static str]),
    /// The product refuses the case by this name; every refusal has its test.
    Refused(Refusal),
    /// Nothing in the product can bring it about before this part of it is there.
    Later(Part),
}

/// What is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Expiring snapshots.
    Expiry,
    /// Removing files that no table names.
    Orphans,
    /// Keeping the table's own metadata files small.
    Metadata,
}

use Held::{By, Later, Refused};
use Part::{Expiry, Metadata, Orphans};

#[rustfmt::skip]
const HAZARDS: &[(u32, &str, Held)] = &[
    (1, "a delete committed while we rewrite", By(&["h01_a_row_deleted_by_position_during_rewrite_stays_deleted", "h01_deletes_of_several_files_become_one_of_the_output_and_the_old_ones_go"])),
    (2, "a starting sequence number hides a lost delete", By(&["h02_a_delete_between_start_and_commit_is_neither_lost_nor_dropped"])),
    (3, "commit outcome unknown, then clean-up", By(&["h03_a_commit_that_was_applied_is_found_whatever_its_answer_was"])),
    (4, "409 after a hidden retry", By(&["h04_a_conflict_that_our_own_doubled_request_caused_is_a_success"])),
    (6, "a crash after the commit, before it was noted", By(&["h06_a_restart_finds_that_the_commit_landed_and_deletes_nothing"])),
    (7, "two tables, one location", Later(Orphans)),
    (8, "path spelling: scheme and authority", Later(Orphans)),
    (9, "the reachable set misses a kind of file", Later(Orphans)),
    (10, "a stale view inside the cleaner", Later(Orphans)),
    (11, "files in flight of other writers", Later(Orphans)),
    (13, "expiry deletes files that another ref needs", Later(Expiry)),
    (14, "a large file split, half rewritten", By(&["h14_a_file_just_over_the_target_that_is_rewritten_loses_no_tail"])),
    (15, "compaction written as append", By(&["h15_four_files_of_fifty_rows_become_one_of_two_hundred_and_four_tombstones"])),
    (16, "dead manifest entries come back to life", By(&["h16_a_deleted_file_does_not_come_back_when_its_manifest_is_rewritten"])),
    (17, "survivors stamped anew", By(&["h17_a_survivor_keeps_snapshot_id_both_sequence_numbers_and_every_metric"])),
    (19, "the scope of equality deletes", By(&["h19_an_upsert_keeps_its_own_new_row"])),
    (20, "position deletes: equal sequence, odd bounds", By(&["h20_a_position_delete_of_the_same_commit_applies", "h20_whatever_the_bounds_say_every_delete_applies_to_the_files_it_names"])),
    (22, "both kinds of delete on one file", By(&["h22_all_subsets_of_deletes_in_all_orders_of_commit"])),
    (24, "rooted at an old pointer", By(&["h24_an_old_pointer_delivered_late_leaves_the_current_state"])),
    (25, "old files removed before the new ones are durable", By(&["h25_the_snapshot_before_a_rewrite_stays_readable"])),
    (26, "deletion vectors invisible to conflict checks", By(&["h26_vectors_that_came_meanwhile_are_carried_over_and_their_neighbours_stay", "h26_a_vector_that_gives_rows_back_is_a_conflict"])),
    (27, "deletion vectors left behind or taken away", By(&["h27_vectors_go_with_their_files_and_their_neighbours_stay"])),
    (29, "a second rewrite doubles data", By(&["h29_a_rewrite_of_what_was_rewritten_changes_no_row"])),
    (30, "a store without atomic put", By(&["sqlite_keeps_the_promises_of_a_catalog", "memory_keeps_the_promises_of_a_catalog"])),
    (32, "files without field ids", By(&["h32_a_name_mapping_finds_flat_and_nested_columns", "h32_without_a_mapping_the_file_is_refused"])),
    (36, "same tuple, different spec", By(&["h36_each_spec_is_its_own_group_and_outputs_keep_their_spec"])),
    (39, "a retry loses merged manifests", By(&["h39_a_retry_keeps_the_files_of_the_writer_that_won"])),
    (40, "cleaner and compactor without mutual exclusion", Later(Expiry)),
    (42, "partial progress and missing records", By(&["h42_a_group_that_conflicts_leaves_the_others_landed"])),
    (43, "invalid Parquet reported as success", By(&["h43_nineteen_small_files_with_timestamptz_and_text_open_as_one"])),
    (44, "expiry breaks a stream writer's memory", Later(Expiry)),
    (46, "encrypted tables", Refused(Refusal::Encrypted)),
    (47, "void fields and dropped source columns", By(&["h47_files_of_a_spec_whose_source_column_is_dropped_are_compacted_under_it"])),
    (49, "rename, then another table of the name", By(&["a_table_created_again_under_a_name_is_another_table", "a_renamed_table_keeps_its_state_and_what_its_partitions_remember"])),
    (50, "gc.enabled=false and borrowed files", Later(Expiry)),
    (54, "a job stuck in committing", By(&["h54_a_catalog_down_for_ten_minutes_in_any_state_leaves_nothing_stuck"])),
    (55, "catalogs that answer oddly", By(&["a_refusal_of_the_catalog_itself_is_one", "a_table_is_not_taken_for_gone_unless_the_catalog_itself_says_so"])),
    (57, "replace or overwrite", By(&["h57_a_reader_of_appends_sees_nothing_of_a_rewrite_and_all_that_follows"])),
    (58, "replace snapshots that stall readers", By(&["h58_a_replace_of_three_hundred_files_is_one_manifest_to_a_reader", "test_h58_a_replace_of_three_hundred_files_holds_up_no_spark_stream"])),
    (59, "row lineage", By(&["h59_ids_and_sequence_numbers_stay_on_every_way"])),
    (61, "metrics modes ignored", By(&["h61_a_megabyte_of_json_takes_only_what_its_mode_allows", "h61_a_bound_that_cannot_be_rounded_up_is_dropped"])),
    (63, "writer properties ignored", By(&["h63_codecs_are_those_of_the_table"])),
    (64, "a sort order claimed, not kept", By(&["h64_a_sorted_tables_outputs_claim_no_order"])),
    (65, "the wrong branch", By(&["h65_a_branch_is_compacted_only_when_it_is_named_and_no_other_is_touched_by_it", "h65_files_that_two_branches_share_are_replaced_in_each_by_itself"])),
    (67, "column statistics forgotten", By(&["h67_table_statistics_go_along_and_partition_statistics_do_not"])),
    (69, "sorting never happens on healthy sizes", By(&["h69_files_of_the_target_size_are_named_healthy_and_nothing_is_said_to_be_done", "h69_a_rule_that_asks_for_sorting_is_refused_by_name"])),
    (70, "a bin just over the target", By(&["h70_a_bin_just_over_the_target_makes_one_file"])),
    (74, "never commits under a stream", By(&["h74_a_slow_rewrite_lands_under_a_stream_of_deletes_and_appends"])),
    (75, "stale plans rewritten for nothing", By(&["h75_a_plan_whose_input_was_replaced_is_dropped_before_any_read"])),
    (76, "policy loops", By(&["h76_thresholds_that_no_rewrite_can_satisfy_still_come_to_rest"])),
    (78, "a lock left behind", By(&["a_lease_and_a_place_end_with_their_process_or_their_job", "a_job_commits_from_the_tables_one_place_once_another_process_has_left_it"])),
    (79, "one writer a partition is too slow", By(&["groups_of_one_partition_run_side_by_side", "no_file_is_in_two_jobs_at_once"])),
    (80, "equality deletes in memory", By(&["h80_a_million_deletes_over_twenty_files_fit_in_256_mib", "h80_more_deletes_than_fit_are_refused_before_they_are_loaded"])),
    (81, "sort without spill", By(&["h81_a_sorted_table_is_rewritten_in_the_order_of_its_files"])),
    (83, "wide tables and big values", By(&["h83_five_thousand_columns_of_ten_rows_are_one_row_group"])),
    (84, "credentials expire in long jobs", By(&["credentials_are_renewed_by_loading_again_or_by_their_own_endpoint", "a_token_refused_at_the_commit_is_renewed_once_and_the_commit_lands_once"])),
    (85, "metadata.json grows", Later(Metadata)),
    (86, "manifests grow", By(&["h86_two_hundred_replace_commits_leave_few_manifests"])),
    (89, "a Kafka offset stored before its record was processed", By(&["an_offset_moves_when_the_look_is_absorbed_and_not_before", "what_was_not_absorbed_is_read_again_by_the_next_process"])),
    (90, "a Kafka gap jumped over", By(&["a_gap_is_never_jumped", "a_record_that_cannot_be_read_is_parked_and_blocks_nothing"])),
    (91, "events lost, phantom or out of order", By(&["h91_lost_doubled_invented_and_shuffled_events_leave_the_traits_of_a_recomputation"])),
    (92, "a storm of commits", By(&["h92_ten_thousand_events_in_a_second_are_at_most_one_load_a_table_and_window"])),
    (93, "a writer deletes what it committed", By(&["h93_a_commit_that_was_applied_is_told_as_success_whatever_the_answer"])),
    (94, "expiry makes a stream append twice", Later(Expiry)),
    (96, "a path or summary key does not name a partition", By(&["h96_values_that_share_a_path_are_different_partitions"])),
    (97, "dangling deletes", By(&["h97_a_trigger_on_deletes_that_apply_to_nothing_asks_once_and_is_silent"])),
    (98, "work that changes nothing, for ever", By(&["h98_file_granularity_deletes_are_worked_on_once_in_ten_rounds"])),
    (100, "one Puffin file, many vectors, a misleading name", By(&["h100_vectors_of_one_file_are_counted_by_blob_each_in_its_partition"])),
    (101, "names that change on the wire", By(&["h101_every_table_is_listed_and_loaded_whatever_its_name"])),
    (102, "the catalog sends clients around the proxy", By(&["h102_a_uri_in_the_config_answer_names_the_proxy_and_tokens_are_left_alone"])),
    (103, "reports before the commit", By(&["h103_a_commit_two_seconds_after_its_report_is_found"])),
    (105, "our commit makes the user's statement fail", By(&["h105_work_waits_for_a_merge_that_is_expected_and_begins_right_after_it", "test_ten_merges_of_some_seconds_all_land_under_an_active_trigger"])),
    (111, "a rollback between plan and commit", By(&["h111_a_row_restored_by_rollback_stays_restored"])),
    (112, "writers that drop files without saying so", By(&["h112_a_data_file_left_out_without_an_entry_is_noticed_at_once"])),
    (113, "quadratic rewriting", By(&["h113_commits_of_1_mib_are_rewritten_at_most_1_plus_log4_times"])),
    (114, "a proof that reads its own mistake", By(&["h114_a_reader_that_null_fills_a_column_is_caught"])),
    (115, "a legal file that a reader gets wrong", By(&["h115_dictionaries_that_fall_back_midway_leave_none_after_a_plain_page"])),
];

/// Numbers that were given up: what they stood for is held under another.
const GIVEN_UP: &[u32] = &[
    5, 12, 18, 21, 23, 28, 31, 33, 34, 35, 37, 38, 41, 45, 48, 51, 52, 53, 56, 60, 62, 66, 68, 71, 72, 73, 77, 82, 87, 88, 95, 99, 104,
    106, 107, 108, 109, 110,
];
/// The highest number given.
const LAST: u32 = 115;

/// Names of tests that run, with the files that they are in.
#[derive(Default)]
struct Tests(BTreeMap<String, PathBuf>, PathBuf);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let has = |name: &str| function.attrs.iter().any(|a| a.path().segments.last().is_some_and(|s| s.ident == name));
        if has("test") && !has("ignore") {
            self.0.insert(function.sig.ident.to_string(), self.1.clone());
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        // those of `proptest!`, whose arguments are no Rust
        let tokens = called.tokens.to_string().replace(' ', "");
        for after in tokens.split("#[test]").skip(1) {
            let name = after.split_once("fn").map_or("", |(_, rest)| rest.split('(').next().unwrap_or_default());
            self.0.insert(name.to_owned(), self.1.clone());
        }
    }
}

fn tests() -> Tests {
    let root = crate::fixture::root();
    let mut tests = Tests::default();
    let mut folders = vec![root.join("src"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = || std::fs::read_to_string(&path).unwrap();
            match path.extension().and_then(|e| e.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("rs") => {
                    tests.1.clone_from(&path);
                    tests.visit_file(&syn::parse_file(&text()).unwrap());
                }
                Some("py") if named(&path).starts_with("test_") => {
                    let names = text()
                        .lines()
                        .filter_map(|l| l.strip_prefix("def ")?.split_once('(').map(|(n, _)| n.to_owned()))
                        .collect::<Vec<_>>();
                    tests.0.extend(names.into_iter().filter(|n| n.starts_with("test_")).map(|name| (name, path.clone())));
                }
                _ => {}
            }
        }
    }
    tests
}

fn named(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The number in a name such as `h01_a_row_stays_deleted`.
fn number(name: &str) -> Option<u32> {
    name.strip_prefix('h')?.split_once('_')?.0.parse().ok()
}

#[test]
fn every_hazard_has_its_test_or_its_refusal_or_comes_later() {
    let tests = tests();
    let mut missing = Vec::new();
    for (hazard, title, held) in HAZARDS {
        match held {
            By(names) => {
                missing.extend(names.is_empty().then(|| format!("h{hazard:02} {title}: by no test")));
                let absent = names.iter().filter(|name| !tests.0.contains_key(**name));
                missing.extend(absent.map(|name| format!("h{hazard:02} {title}: there is no test {name}")));
                let strange = names.iter().filter(|name| number(name).is_some() && !names.iter().any(|n| number(n) == Some(*hazard)));
                missing.extend(strange.map(|name| format!("h{hazard:02} {title}: {name} is another's")));
            }
            Refused(refusal) => missing.extend((!Refusal::ALL.contains(refusal)).then(|| format!("h{hazard:02}: {refusal}"))),
            Later(part) => {
                let early = tests.0.keys().filter(|name| number(name) == Some(*hazard));
                missing.extend(early.map(|name| format!("h{hazard:02} {title}: {name} is there before {part:?}")));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_number_is_a_hazard_once_and_every_test_and_file_of_a_number_is_one_of_a_hazard() {
    let numbers: Vec<u32> = HAZARDS.iter().map(|(hazard, ..)| *hazard).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let mut all: Vec<u32> = numbers.iter().chain(GIVEN_UP).copied().collect();
    all.sort_unstable();
    assert_eq!(all, (1..=LAST).collect::<Vec<_>>());
    let known: BTreeSet<u32> = numbers.into_iter().collect();
    let tests = tests();
    let files = tests.0.values().map(|path| named(path));
    let strange: BTreeSet<String> =
        tests.0.keys().cloned().chain(files).filter(|n| number(n).is_some_and(|n| !known.contains(&n))).collect();
    assert_eq!(strange, BTreeSet::new());
}

#[test]
fn tests_are_found_in_macros_and_those_that_do_not_run_are_not() {
    let source = r"
        #[test] fn plain() {}
        #[tokio::test] async fn timed() {}
        #[test] #[ignore] fn left_out() {}
        fn helper() {}
        mod within { #[test] fn deeper() {} }
        proptest! { #[test] fn of_a_law(n in 0..3) {} }
    ";
    let mut tests = Tests::default();
    tests.visit_file(&syn::parse_file(source).unwrap());
    assert_eq!(tests.0.keys().collect::<Vec<_>>(), ["deeper", "of_a_law", "plain", "timed"]);
    assert_eq!(["h01_a", "h115_b", "helper", "h_x", "hx1_y"].map(number), [Some(1), Some(115), None, None, None]);
}
