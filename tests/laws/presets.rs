//! Other products' presets: their own numbers, and our laws under each.

use std::collections::BTreeMap;

use afterwrite::decide::plan::Cause;
use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::model::ident::TableName;
use afterwrite::model::mode::Mode;
use afterwrite::model::policy::Policy;
use afterwrite::model::preset::Preset;
use afterwrite::settings::{Settings, resolve};
use proptest::prelude::*;

use super::fixed_point::worlds;
use super::world::{MIB, World};

fn policy(keys: &str) -> Policy {
    let settings = Settings::read(&format!("[defaults]\n{keys}"), []).unwrap();
    let (policy, warnings) = resolve(&settings, &TableName::new("lake", "sales", "orders"), &BTreeMap::new());
    assert_eq!(warnings, vec![]);
    policy
}

fn preset(preset: Preset) -> Policy {
    policy(&format!("preset = \"{}\"", preset.name()))
}

/// Files: how many, of how many MiB.
fn world(of: Preset, files: &[(u64, u64)]) -> World {
    let mut world = World::new(preset(of));
    for (count, mib) in files {
        (0..*count).for_each(|_| world.append(mib * MIB, 1000));
    }
    world
}

fn fires(world: &World) -> Option<String> {
    match world.judge().verdict {
        Verdict::Now { rule, .. } => Some(rule),
        _ => None,
    }
}

fn rule(name: &str) -> Option<String> {
    Some(name.to_owned())
}

#[test]
fn delta_compacts_fifty_files_below_half_of_its_size() {
    let of = |files: &[(u64, u64)]| fires(&world(Preset::Delta, files));
    assert_eq!((of(&[(49, 1)]), of(&[(50, 1)])), (None, rule("delta-small-files")));
    assert_eq!(of(&[(49, 1), (9, 64)]), None);
}

#[test]
fn amoro_compacts_fragments_or_as_much_undersized_as_a_file() {
    let of = |files: &[(u64, u64)]| fires(&world(Preset::Amoro, files));
    assert_eq!((of(&[(12, 1)]), of(&[(1, 1)])), (rule("amoro-minor"), None));
    let recently = |files: &[(u64, u64)], hours: i64| {
        let mut world = world(Preset::Amoro, files);
        world.policy.cooldown_ms = 0;
        world.memory.last_rewrite_ms = Some(world.now_ms - hours * 3_600_000);
        fires(&world)
    };
    assert_eq!([(2, 0), (2, 1), (11, 0), (12, 0)].map(|(n, hours)| recently(&[(n, 1)], hours).is_some()), [false, true, false, true]);
    // 2 × 60 MiB are no fragments, and together less than a file; 4 become two files
    assert_eq!((recently(&[(2, 60)], 0), recently(&[(4, 60)], 0)), (None, rule("amoro-major")));
    let mut deletes = world(Preset::Amoro, &[(1, 120)]);
    deletes.memory.last_rewrite_ms = Some(deletes.now_ms - 300_000);
    deletes.delete_positions(99, |_| true);
    assert_eq!(fires(&deletes), None);
    deletes.delete_positions(1, |_| true);
    assert_eq!(fires(&deletes), rule("deletes"));
    let mut keys = world(Preset::Amoro, &[(1, 120)]);
    keys.memory.last_rewrite_ms = Some(keys.now_ms - 300_000);
    (0..11).for_each(|_| keys.delete_keys(1));
    assert_eq!(fires(&keys), None);
    keys.delete_keys(1);
    assert_eq!(fires(&keys), rule("amoro-minor-deletes"));
}

#[test]
fn amoros_health_is_among_the_checks() {
    let check = world(Preset::Amoro, &[(100, 1)]).judge().checks.into_iter().find(|c| c.name == "preset.amoro-health").unwrap();
    assert_eq!((check.value, check.note.as_str()), (61.0, "small files 1 of 40, equality deletes 40 of 40, position deletes 20 of 20"));
}

#[test]
fn iceberg_compacts_five_files_that_are_too_small_or_much_that_is_deleted() {
    let of = |files: &[(u64, u64)]| fires(&world(Preset::Iceberg, files));
    assert_eq!((of(&[(4, 1), (9, 384)]), of(&[(5, 1)])), (None, rule("iceberg-inputs")));
    let deleted = |records| {
        let mut world = world(Preset::Iceberg, &[(1, 500)]);
        world.delete_keys(records);
        fires(&world)
    };
    assert_eq!((deleted(299), deleted(300)), (None, rule("deletes")));
}

#[test]
fn governance_asks_for_the_share_of_small_files() {
    let of = |small, large| fires(&world(Preset::PyicebergGovernance, &[(small, 31), (large, 32)]));
    assert_eq!((of(3, 7), of(29, 71), of(0, 0)), (rule("governance-small-files"), None, None));
}

#[test]
fn openhouse_ranks_all_by_its_vectors() {
    let of = |files: &[(u64, u64)]| match world(Preset::Openhouse, files).judge().verdict {
        Verdict::Queued { gb_hours, gain, rule: None } => (gain, (gb_hours * 1e6).round()),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(&[(100, 10)]), (98, 777_778.0));
    assert_eq!(of(&[(20, 100), (3, 502), (1, 800)]), (16, 1_055_556.0));
    assert_eq!(of(&[(5000, 1)]), (4990, 1_888_889.0));
    assert_eq!(preset(Preset::Openhouse).gain_weight, 0.7);
}

#[test]
fn keys_beside_a_preset_come_after_it_and_the_settings_of_a_pattern_after_both() {
    let of = policy("small_ratio = 0.3\npreset = \"delta\"");
    assert_eq!((of.scale.small_permille, of.scale.target, of.rules.len()), (300, 128 * MIB, 1));
    let toml = "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:///c.db\"\nwarehouse = \"w\"\n[defaults]\npreset = \"openhouse\"\n[[table]]\nmatch = \"lake.**\"\npreset = \"hudi\"\n";
    let settings = Settings::read(toml, []).unwrap();
    let name = TableName::new("lake", "sales", "orders");
    let (of, _) = resolve(&settings, &name, &BTreeMap::new());
    assert_eq!((of.preset, of.rules.len(), of.pace.mode), (Some(Preset::Hudi), 2, Mode::Queued));
    let properties = [("afterwrite.preset".to_owned(), "iceberg".to_owned()), ("afterwrite.mode".to_owned(), "immediate".to_owned())];
    let (of, warnings) = resolve(&settings, &name, &properties.into());
    assert_eq!((of.preset, of.pace.mode, warnings), (Some(Preset::Iceberg), Mode::Immediate, vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn under_every_preset_work_comes_to_an_end(mut world in worlds(), at in 0usize..Preset::ALL.len()) {
        let own = preset(Preset::ALL[at]);
        world.policy = Policy { max_job_bytes: world.policy.max_job_bytes, ..own };
        for _ in 0..40 {
            world.pass_cooldown();
            match world.turn().planned {
                None | Some(Err(_)) => return Ok(()),
                Some(Ok(_)) => {}
            }
        }
        prop_assert!(false, "it does not end: {:?}", world.sizes());
    }

    #[test]
    fn under_every_mode_work_is_that_of_the_policy_or_waits_by_name(mut world in worlds(), at in 0usize..Mode::ALL.len(), pressed in any::<bool>()) {
        let plain = world.judge().verdict;
        world.policy.pace.mode = Mode::ALL[at];
        world.policy.pace.quota_pressure = if pressed { 0.0 } else { 1.0 };
        let decision = world.judge();
        prop_assert_eq!(&decision, &world.judge());
        match (&plain, &decision.verdict, Mode::ALL[at]) {
            (plain, verdict, Mode::Immediate) => prop_assert_eq!(plain, verdict),
            (Verdict::Now { rule, gain, .. }, Verdict::Queued { rule: Some(kept), gain: same, .. }, Mode::Queued) => {
                prop_assert_eq!((rule, gain), (kept, same));
                // its plan is the rule's
                prop_assert!(matches!(Cause::of(&decision, &world.policy), Some(Cause::Rule(_))));
            }
            (plain, verdict, Mode::Queued) => prop_assert_eq!(plain, verdict),
            (Verdict::Queued { .. }, Verdict::Not { reason }, Mode::OffPeak) => {
                prop_assert!(matches!(reason, Reason::NotDue { .. }), "{:?}", reason)
            }
            (plain, verdict, Mode::OffPeak) => prop_assert_eq!(plain, verdict),
            (_, Verdict::Now { rule, .. }, mode) => {
                prop_assert_eq!(rule.as_str(), mode.name());
                prop_assert_eq!(Cause::of(&decision, &world.policy), Some(Cause::Due(mode)));
            }
            (_, Verdict::Not { reason }, Mode::QuotaPressure) => prop_assert!(matches!(reason, Reason::NoPressure | Reason::Healthy)),
            (_, Verdict::Not { reason }, _) => prop_assert!(matches!(reason, Reason::Healthy)),
            (_, verdict, mode) => prop_assert!(false, "{:?} in {:?}", verdict, mode),
        }
    }

    #[test]
    fn periodic_work_comes_to_an_end(mut world in worlds()) {
        world.policy.pace.mode = Mode::Periodic;
        world.policy.pace.schedule = "every 1s".parse().unwrap();
        for _ in 0..40 {
            world.pass_cooldown();
            match world.turn().planned {
                None | Some(Err(_)) => return Ok(()),
                Some(Ok(_)) => {}
            }
        }
        prop_assert!(false, "it does not end: {:?}", world.sizes());
    }
}
