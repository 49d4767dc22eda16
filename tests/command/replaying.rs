//! Recordings made by `serve`, and what `replay`, `tune` and `costs` make of them.

use std::time::Duration;

use serde_json::json;

use super::{NAME, keys};
use crate::fixture::process::Place;
use crate::fixture::{Table, row};

/// The sixth small file brings the one job.
const RULES: &str = "[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\ntier_files = 6\nrules = [\"small-files\"]\nqueue_min_reduction = \"off\"\n";

/// A table written to while `serve` records, until it was rewritten.
async fn recorded() -> (Place, String) {
    let place = Place::new("");
    let path = place.path().join("decisions.jsonl").display().to_string();
    let prices = "[prices]\ngb_hour = 1.0\nthousand_requests = 1.0\ngb_month = 0.02\nscans_per_hour = 6.0\n";
    place.configure(&format!("[record]\npath = \"{path}\"\n[poll]\nmin = \"1s\"\nmax = \"1s\"\n{prices}{RULES}"));
    let table = Table::plain().in_sqlite(place.path()).create().await;
    table.append([row(0, "v", 0)]).await;
    let serving = place.serve().await;
    for _ in 0..200 {
        if std::fs::read_to_string(&path).is_ok_and(|text| text.contains("\"judged\"")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for id in 1..6 {
        table.append([row(id, "v", 0)]).await;
    }
    let mut landed = false;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let jobs = place.run(&["jobs", "--json"]).await.expect(0);
        landed = jobs.each("state").contains(&json!("committed"));
        if landed {
            break;
        }
    }
    assert!(landed);
    assert_eq!(serving.terminate().await, Some(0));
    (place, path)
}

#[tokio::test]
async fn a_recording_is_replayed_and_tried_under_another_policy() {
    let (place, path) = recorded().await;
    let again = place.run(&["replay", &path, "--json"]).await.expect(0).lines();
    assert_eq!((&again[0]["kind"], &again[0]["differing"]), (&json!("exact"), &json!(0)));
    assert!(again[0]["decisions"].as_u64().unwrap() > 0 && again[0]["rounds"].as_u64().unwrap() > 0);
    assert_eq!((&again[1]["name"], &again[1]["jobs"], &again[1]["files_dropped"]), (&json!("recorded"), &json!(1), &json!(5)));
    let text = place.run(&["replay", &path]).await.expect(0).out;
    assert!(text.contains("all came out as recorded"), "{text}");

    let policy = place.path().join("policy.toml");
    std::fs::write(&policy, "[defaults]\nrules = []\nqueue_min_reduction = \"off\"\n").unwrap();
    let other = place.run(&["replay", &path, "--policy", policy.to_str().unwrap(), "--json"]).await.expect(0).lines();
    assert!(other[0]["differing"].as_u64().unwrap() > 0);
    let told: Vec<_> = other.iter().skip(1).map(|line| (&line["name"], &line["jobs"], &line["files_at_end"])).collect();
    let expected = [
        (&json!("recorded"), &json!(1), &json!(1)),
        (&json!("recorded, modelled"), &json!(1), &json!(1)),
        (&json!("policy, modelled"), &json!(0), &json!(6)),
    ];
    assert_eq!(told, expected);
    // the settings that were there decide the same
    let same = place.path().join("same.toml");
    std::fs::write(&same, RULES).unwrap();
    let same = place.run(&["replay", &path, "--policy", same.to_str().unwrap(), "--json"]).await.expect(0).lines();
    assert_eq!((&same[0]["differing"], same[2]["jobs"] == same[3]["jobs"]), (&json!(0), true));

    // a decision that would be made otherwise is told, and the command fails
    let text = std::fs::read_to_string(&path).unwrap();
    let altered = place.path().join("altered.jsonl");
    std::fs::write(&altered, text.replacen("\"tier_files\":6", "\"tier_files\":60", 1)).unwrap();
    let told = place.run(&["replay", altered.to_str().unwrap()]).await.expect(1);
    assert!(told.out.contains("came out otherwise") && told.out.contains("ns.t"), "{}", told.out);
    place.run(&["replay", "nowhere.jsonl"]).await.expect(7);
}

#[tokio::test]
async fn a_tuned_policy_is_a_settings_file_with_what_speaks_for_it() {
    let (place, path) = recorded().await;
    let out = place.path().join("tuned.toml").display().to_string();
    let args = ["tune", "--recording", &path, "--objective", "gb-hours", "--trials", "40", "--seed", "7"];
    let shown = place.run(&[&args[..], &["--out", &out]].concat()).await.expect(0).out;
    assert!(shown.contains("now, modelled") && shown.contains("tuned, modelled"), "{shown}");
    let printed = place.run(&args).await.expect(0).out;
    let written = std::fs::read_to_string(&out).unwrap();
    assert_eq!(printed.trim_end(), written.trim_end());
    assert!(written.contains("gb-hours") && written.contains("seed 7") && written.contains("[defaults]"), "{written}");
    place.run(&[&args[..], &["--out", &out]].concat()).await.expect(1);
    let mut bare = crate::fixture::process::bare(place.path());
    bare.args(["--config", &out, "config"]);
    crate::fixture::process::finish(bare).await.expect(0);
    place.run(&["replay", &path, "--policy", &out]).await.expect(0);

    // the table's own snapshots serve as well, without any recording
    let printed = place.run(&["tune", "--table", NAME, "--trials", "10"]).await.expect(0).out;
    assert!(printed.contains("the snapshots of lake.ns.t") && printed.contains("[defaults]"), "{printed}");
    place.run(&["tune"]).await.expect(2);
}

#[tokio::test]
async fn costs_are_told_a_table_and_month() {
    let (place, _) = recorded().await;
    let rows = place.run(&["costs", "--json"]).await.expect(0).lines();
    assert_eq!(rows.len(), 1);
    let expected = ["currency", "gb_hours", "jobs", "kept_a_month", "kept_bytes", "month", "requests", "saved", "spent", "table"];
    assert_eq!(keys(&rows[0]), expected);
    let number = |key: &str| rows[0][key].as_f64().unwrap();
    assert_eq!((&rows[0]["table"], &rows[0]["jobs"], &rows[0]["currency"]), (&json!(NAME), &json!(1), &json!("USD")));
    assert!((number("spent") - number("gb_hours") - number("requests") / 1000.0).abs() < 1e-12);
    // the files that were replaced are still there for the snapshots before
    assert!(number("kept_bytes") > 0.0 && (number("kept_a_month") - number("kept_bytes") / 1e9 * 0.02).abs() < 1e-12);
    assert!(number("saved") >= 0.0);
    let text = place.run(&["costs", "--table", NAME]).await.expect(0).out;
    assert!(text.contains("in USD; saved: requests of 6 scans of each table an hour"), "{text}");
    assert_eq!(place.run(&["costs", "--table", "lake.ns.other"]).await.expect(0).out, "no jobs\n");
    place.configure(RULES);
    let text = place.run(&["costs"]).await.expect(0).out;
    assert!(text.contains("no [prices] are set"), "{text}");
}
