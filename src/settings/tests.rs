use std::path::PathBuf;

use super::*;
use crate::model::economy::{Norm, Ranking, Select};
use crate::model::policy::{Policy, Rule};

fn read(toml: &str) -> Result<Settings, Error> {
    Settings::read(toml, [])
}

fn with_env(toml: &str, environment: &[(&str, &str)]) -> Result<Settings, Error> {
    Settings::read(toml, environment.iter().map(|(k, v)| (k.to_string(), v.to_string())))
}

/// The key's path and the message of each mistake.
fn mistakes(result: Result<Settings, Error>) -> Vec<(String, String)> {
    result.unwrap_err().0.into_iter().map(|m| (m.key, m.message)).collect()
}

fn policy(toml: &str, properties: &[(&str, &str)]) -> (Policy, Vec<Warning>) {
    let properties = properties.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    resolve(&read(toml).unwrap(), &TableName::new("lake", "sales", "orders"), &properties)
}

use crate::model::ident::TableName;

#[test]
fn no_file_and_no_environment_give_full_defaults() {
    let settings = read("").unwrap();
    assert_eq!(settings.server, Server::default());
    assert_eq!((settings.cache, settings.poll, settings.budget), (Cache::default(), Poll::default(), BudgetLimits::default()));
    assert_eq!((settings.catalogs.len(), settings.tables.len(), settings.instance), (0, 0, None));
    assert_eq!(settings.defaults, PolicySettings::default());
    assert_eq!(policy("", &[]), (Policy::default(), vec![]));
    let load = Settings::load(None).unwrap();
    assert_eq!(load.server, Server::default());
}

#[test]
fn the_example_sets_every_key_to_its_default() {
    let example = read(Settings::example()).unwrap();
    let plain = read("").unwrap();
    assert_eq!(example.defaults.over(Policy::default()), Policy::default());
    // every key of a policy is in the example
    let unset = Policy { enabled: false, act: true, rules: vec![], tier_files: 3, ..Policy::default() };
    assert_eq!(example.defaults.over(unset), Policy::default());
    assert!(!format!("{:?}", example.defaults).replace("Some(None)", "off").contains("None"), "{:?}", example.defaults);
    assert_eq!(Settings { defaults: PolicySettings::default(), ..example }, plain);
}

#[test]
fn the_example_is_right_where_it_is_commented_out() {
    let lines = Settings::example().lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || rest.contains(" = ") && !rest.contains("insecure = true") && !rest.contains('…') => rest,
        _ => line,
    });
    let text = lines.filter(|l| !l.starts_with("tls_cert") && !l.starts_with("tls_key")).collect::<Vec<_>>().join("\n");
    let settings = read(&text).unwrap();
    let lake = &settings.catalogs["lake"];
    assert_eq!((lake.uri.as_str(), lake.refs.as_slice()), ("sqlite:///data/catalog.db", &["main".to_string()][..]));
    assert_eq!(lake.properties["s3.path-style-access"], "true");
    assert_eq!((settings.tables.len(), settings.instance.as_deref()), (1, Some("afterwrite-1")));
    assert_eq!(settings.tenant_of("lake.sales.orders").map(|t| t.quota_objects), Some(Some(1_000_000)));
}

#[test]
fn every_mistake_is_reported_at_once_with_its_keys_path() {
    let toml = r#"
        colour = "red"
        [server]
        listen = "here"
        [poll]
        min = 5
        [budget]
        concurrent_jobs = 0
        [defaults]
        small_ratio = 1.5
        quiet-windo = "5s"
        rules = ["small-files", "large-files"]
        [catalog.lake]
        type = "hive"
        warehouse = "file:///w"
        [[table]]
        match = "lake.*"
        [[table]]
        match = "lake.sales.*"
        cooldown = "soon"
    "#;
    let found: Vec<String> = mistakes(read(toml)).into_iter().map(|(key, _)| key).collect();
    let expected = [
        "server.listen",
        "catalog.lake.type",
        "catalog.lake.uri",
        "poll.min",
        "budget.concurrent_jobs",
        "defaults.small_ratio",
        "defaults.rules",
        "defaults.quiet-windo",
        "table[0].match",
        "table[1].cooldown",
        "colour",
    ];
    assert_eq!(found, expected);
}

#[test]
fn mistakes_say_what_to_write() {
    let message = |toml: &str| mistakes(read(toml)).remove(0).1;
    assert_eq!(message("[server]\nlisten = \"here\""), "`here` is not an address; write for example 127.0.0.1:7411 or [::1]:7411");
    assert_eq!(message("[cache]\nsize = 1"), "unknown key; known here: memory");
    assert_eq!(message("[defaults]\nrules = [\"fast\"]"), "unknown rule `fast`: write small-files, entropy or deletes");
    assert_eq!(message("[defaults]\nmemory_limit = \"1MiB\""), "expected at least 16MiB, found 1048576 bytes");
    assert_eq!(message("[defaults]\nqueue_min_reduction = \"no\""), "expected a number, found `no`; or \"off\" to queue nothing");
    assert_eq!(message("[poll]\nmin = \"1h\""), "3600000 ms is longer than max, 300000 ms");
    assert_eq!(message("server = 5"), "expected a table");
    assert_eq!(message("table = 5"), "expected a list of tables: write [[table]]");
    assert_eq!(
        message("[catalog.\"a.b\"]\ntype = \"sql\"\nuri = \"sqlite:c.db\"\nwarehouse = \"w\""),
        "a catalog's name is one part of `catalog.namespace.table`: not empty, without dots"
    );
    let error = read("[cache]\nsize = 1").unwrap_err().to_string();
    assert_eq!(error, "the settings cannot be used\n  cache.size: unknown key; known here: memory");
}

#[test]
fn a_text_that_is_no_toml_says_where() {
    let message = mistakes(read("[server\nlisten = 1")).remove(0).1;
    assert!(message.contains("line 1, column 8"), "{message}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let message = mistakes(Settings::load(Some(Path::new("/nowhere/afterwrite.toml")))).remove(0).1;
    assert!(message.starts_with("cannot read /nowhere/afterwrite.toml: "), "{message}");
}

#[test]
fn a_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("afterwrite.toml");
    std::fs::write(&path, "[cache]\nmemory = \"1MiB\"").unwrap();
    assert_eq!(Settings::load(Some(&path)).unwrap().cache.memory, 1 << 20);
}

#[test]
fn the_environment_comes_after_the_file() {
    let environment = [
        ("AFTERWRITE_CACHE__MEMORY", "2MiB"),
        ("AFTERWRITE_SERVER__TOKEN", "0123"),
        ("AFTERWRITE_SERVER__MAX_MESSAGE_BYTES", "100"),
        ("AFTERWRITE_DEFAULTS__RULES", "deletes,entropy"),
        ("AFTERWRITE_DEFAULTS__ACT", "true"),
        ("AFTERWRITE_INSTANCE", "west"),
        ("AFTERWRITE_LOG", "debug"),
        ("PATH", "/bin"),
    ];
    let settings = with_env("[cache]\nmemory = \"1MiB\"\n[server]\nhttp = \"127.0.0.1:1\"", &environment).unwrap();
    assert_eq!((settings.cache.memory, settings.server.max_message_bytes), (2 << 20, 100));
    assert_eq!((settings.server.token.as_deref(), settings.server.http.port()), (Some("0123"), 1));
    assert_eq!(settings.defaults.rules.unwrap().iter().map(Rule::name).collect::<Vec<_>>(), ["deletes", "entropy"]);
    assert_eq!((settings.defaults.act, settings.instance.as_deref()), (Some(true), Some("west")));
    assert!(Settings::read("", [("AFTERWRITE_CLAIMS".into(), "true".into())]).unwrap().claims);
}

#[test]
fn a_mistake_in_the_environment_is_one() {
    assert_eq!(
        mistakes(with_env("", &[("AFTERWRITE_POLL__MAXIMUM", "5s")])),
        [("poll.maximum".to_string(), "unknown key; known here: min, max".to_string())]
    );
}

#[test]
fn a_catalog_can_be_set_from_the_environment_alone() {
    let environment = [
        ("AFTERWRITE_CATALOG__LAKE__TYPE", "sql"),
        ("AFTERWRITE_CATALOG__LAKE__URI", "postgres://u@h/db"),
        ("AFTERWRITE_CATALOG__LAKE__WAREHOUSE", "s3://b"),
        ("AFTERWRITE_CATALOG__LAKE__S3__PATH_STYLE_ACCESS", "true"),
    ];
    let settings = with_env("", &environment).unwrap();
    let properties = BTreeMap::from([("s3.path-style-access".to_string(), "true".to_string())]);
    let refs = vec!["main".to_string()];
    let lake =
        Catalog { kind: CatalogKind::Sql, uri: "postgres://u@h/db".into(), warehouse: "s3://b".into(), properties, refs, proxy: None };
    assert_eq!(settings.catalogs, BTreeMap::from([("lake".to_string(), lake)]));
}

#[test]
fn catalog_properties_are_one_name_quoted_or_not() {
    let catalog = |lines: &str| read(&format!("[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:c.db\"\nwarehouse = \"w\"\n{lines}"));
    let plain = catalog("s3.endpoint = \"http://h\"\ns3.region = \"x\"\n").unwrap();
    let quoted = catalog("\"s3.endpoint\" = \"http://h\"\n\"s3.region\" = \"x\"\n").unwrap();
    assert_eq!(plain.catalogs, quoted.catalogs);
    assert_eq!(plain.catalogs["lake"].properties["s3.endpoint"], "http://h");
    let found = mistakes(catalog("\"s3.endpoint\" = \"http://a\"\ns3.endpoint = \"http://b\"\ns3.list = [1]"));
    let keys: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["catalog.lake.s3.list", "catalog.lake.s3.endpoint"]);
}

#[test]
fn a_certificate_needs_its_key() {
    let mistakes = read("[server]\ntls_cert = \"c\"").unwrap_err();
    assert_eq!(mistakes.0.into_iter().map(|m| m.key).collect::<Vec<_>>(), ["server.tls_key"]);
}

#[test]
fn the_journal_lies_in_the_users_data_folder() {
    let path = |environment: &[(&str, &str)]| with_env("", environment).unwrap().journal.path;
    assert_eq!(path(&[("HOME", "/home/u")]), PathBuf::from("/home/u/.local/share/afterwrite/journal.db"));
    assert_eq!(path(&[("HOME", "/home/u"), ("XDG_DATA_HOME", "/data")]), PathBuf::from("/data/afterwrite/journal.db"));
    assert_eq!(path(&[]), PathBuf::from("afterwrite/journal.db"));
    assert_eq!(read("[journal]\npath = \"/j.db\"").unwrap().journal.path, PathBuf::from("/j.db"));
}

#[test]
fn patterns_hold_in_their_order_field_by_field() {
    let toml = r#"
        [defaults]
        cooldown = "1s"
        [catalog.lake]
        type = "sql"
        uri = "sqlite:///c.db"
        warehouse = "file:///w"
        [[table]]
        match = "lake.sales.*"
        act = true
        cooldown = "2s"
        quiet_window = "3s"
        [[table]]
        match = "lake.**"
        cooldown = "4s"
        [[table]]
        match = "lake.hr.*"
        enabled = false
    "#;
    let (policy, warnings) = policy(toml, &[]);
    assert_eq!((policy.act, policy.cooldown_ms, policy.quiet_window_ms, policy.enabled), (true, 4000, 3000, true));
    assert_eq!(warnings, []);
}

#[test]
fn a_star_is_one_part_of_a_name_and_two_are_any() {
    let matches = |pattern: &str, name: &str| {
        let rule = TableRule { pattern: pattern.into(), policy: PolicySettings::default() };
        rule.matches(&name.parse().unwrap())
    };
    assert!(matches("lake.sales.*", "lake.sales.orders"));
    assert!(matches("lake.sales.ord*", "lake.sales.orders"));
    assert!(!matches("lake.sales.*", "lake.sales.eu.orders"));
    assert!(matches("lake.**", "lake.sales.eu.orders"));
    assert!(matches("**", "lake.sales.orders"));
    assert!(!matches("lake.sales.*", "lake.hr.people"));
}

#[test]
fn the_target_comes_from_the_nearest_place() {
    let toml = "[defaults]\ntarget_file_size = \"100MiB\"";
    let target = |properties: &[(&str, &str)]| policy(toml, properties).0.scale.target;
    assert_eq!(policy("", &[]).0.scale.target, 512 << 20);
    assert_eq!(target(&[]), 100 << 20);
    assert_eq!(target(&[("write.target-file-size-bytes", "1000")]), 1000);
    assert_eq!(target(&[("write.target-file-size-bytes", "1000"), ("afterwrite.target-file-size-bytes", "2000")]), 2000);
}

#[test]
fn a_table_that_is_enabled_by_its_property_may_be_rewritten() {
    let act = |properties: &[(&str, &str)]| (policy("", properties).0.enabled, policy("", properties).0.act);
    assert_eq!(act(&[]), (true, false));
    assert_eq!(act(&[("afterwrite.enabled", "true")]), (true, true));
    assert_eq!(act(&[("afterwrite.enabled", "true"), ("afterwrite.act", "false")]), (true, false));
    let toml = "[defaults]\nact = true";
    assert!(!policy(toml, &[("afterwrite.enabled", "false")]).0.enabled);
}

#[test]
fn properties_override_field_by_field() {
    let properties = [
        ("afterwrite.small-ratio", "0.5"),
        ("afterwrite.quiet-window", "7s"),
        ("afterwrite.cooldown", "8s"),
        ("afterwrite.rules", "deletes"),
        ("afterwrite.queue-min-reduction", "off"),
        ("owner", "someone"),
    ];
    let (policy, warnings) = policy("", &properties);
    assert_eq!((policy.scale.small_permille, policy.quiet_window_ms, policy.cooldown_ms), (500, 7000, 8000));
    assert_eq!(policy.rules, [Rule::Deletes { min_ratio: 0.1, min_files_per_data_file: 16 }]);
    assert_eq!((policy.queue_min_reduction, warnings), (None, vec![]));
}

#[test]
fn a_table_is_held_until_a_moment_and_kept_out_of_for_a_time() {
    let held = |until: &str| policy("", &[("afterwrite.hold-until", until)]);
    assert_eq!((policy("", &[]).0.hold_until_ms, policy("", &[]).0.keep_out_ms), (None, 600_000));
    for until in ["1970-01-01T01:00:00Z", "1970-01-01T03:00:00.000+02:00", "3600000"] {
        assert_eq!((held(until).0.hold_until_ms, held(until).1), (Some(3_600_000), vec![]), "{until}");
    }
    assert_eq!(held("off").0.hold_until_ms, None);
    let wrong = held("tomorrow");
    assert_eq!((wrong.0.hold_until_ms, wrong.1[0].property.as_str()), (None, "afterwrite.hold-until"));
    assert!(wrong.1[0].message.contains("write for example 2026-01-31T22:00:00Z"), "{wrong:?}");
    assert_eq!(policy("[defaults]\nkeep_out = \"0s\"", &[("afterwrite.keep-out", "30s")]).0.keep_out_ms, 30_000);
}

#[test]
fn a_bad_property_is_a_warning_and_what_held_before_holds() {
    let toml = "[defaults]\nquiet_window = \"3s\"";
    let properties = [
        ("write.target-file-size-bytes", "big"),
        ("afterwrite.target-file-size-bytes", "0"),
        ("afterwrite.quiet-window", "soon"),
        ("afterwrite.cooldown", "8s"),
        ("afterwrite.colour", "red"),
    ];
    let (policy, warnings) = policy(toml, &properties);
    assert_eq!((policy.quiet_window_ms, policy.cooldown_ms, policy.scale.target), (3000, 8000, 512 << 20));
    let named: Vec<_> = warnings.iter().map(|w| w.property.as_str()).collect();
    assert_eq!(
        named,
        ["write.target-file-size-bytes", "afterwrite.target-file-size-bytes", "afterwrite.quiet-window", "afterwrite.colour"]
    );
    assert!(warnings[2].message.starts_with("`soon` is not a duration"), "{warnings:?}");
}

#[test]
fn rules_are_names_or_tables_with_their_thresholds() {
    let toml = "[defaults]\nrules = [\"entropy\", { rule = \"deletes\", min-ratio = 0.3 }]";
    let expected = [Rule::Entropy { min_entropy: 0.6, min_small_files: 8 }, Rule::Deletes { min_ratio: 0.3, min_files_per_data_file: 16 }];
    assert_eq!(policy(toml, &[]).0.rules, expected);
    assert_eq!(policy("[defaults]\nrules = []", &[]).0.rules, []);
    let wrong = |rule: &str| mistakes(read(&format!("[defaults]\nrules = [{rule}]"))).remove(0).1;
    assert!(
        wrong("{ rule = \"deletes\", ratio = 1 }").starts_with("rule `deletes`: unknown field"),
        "{}",
        wrong("{ rule = \"deletes\", ratio = 1 }")
    );
    assert_eq!(wrong("{ min_ratio = 1 }"), "a rule needs its name: rule = \"small-files\"");
}

#[test]
fn a_rest_catalog_needs_no_warehouse_and_shows_no_credential() {
    let toml = "[catalog.r]\ntype = \"rest\"\nuri = \"https://h/api\"\ncredential = \"id:s3cr3t\"\nheader.X-Realm = \"s3cr3t\"";
    let settings = read(toml).unwrap();
    let catalog = &settings.catalogs["r"];
    assert_eq!((catalog.kind, catalog.warehouse.as_str()), (CatalogKind::Rest, ""));
    assert_eq!(catalog.properties["credential"], "id:s3cr3t");
    assert_eq!(catalog.properties["header.X-Realm"], "s3cr3t");
    for shown in [format!("{settings:?}"), settings.summary(), settings.summary_json().to_string()] {
        assert!(shown.contains("https://h/api") && !shown.contains("s3cr3t"), "{shown}");
    }
    let message = mistakes(read("[catalog.r]\ntype = \"rest\"")).remove(0).1;
    assert_eq!(message, "is missing: write for example \"https://catalog.example.com/api\"");
}

#[test]
fn what_cannot_work_is_told_when_it_is_read_and_all_at_once() {
    let toml = r#"
        [server]
        http = "127.0.0.1:7411"
        token = "two words"
        [catalog.a]
        type = "sql"
        uri = "mysql://u:s3cret@h/d"
        warehouse = "hdfs://n/w"
        s3.endpoint = "minio:9000"
        [catalog.b]
        type = "rest"
        uri = "https://h/api/v1"
        proxy.listen = "127.0.0.1:7411"
        [catalog.c]
        uri = "sqlite:///c.db"
        [[table]]
        match = "d.sales.*"
        [[table]]
        match = "**"
        [[table]]
        match = "*.sales.*"
    "#;
    let found = mistakes(read(toml));
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    let expected = [
        "server.token",
        "catalog.a.uri",
        "catalog.a.warehouse",
        "catalog.a.s3.endpoint",
        "catalog.b.uri",
        "catalog.c.type",
        "catalog.c.warehouse",
        "table[0].match",
        "server.http",
        "catalog.b.proxy.listen",
    ];
    assert_eq!(keys, expected, "{found:?}");
    assert_eq!(found[7].1, "`d.sales.*` can match no table: no catalog `d` is configured; known: a, b, c");
    assert_eq!(found[8].1, "127.0.0.1:7411 is the address of server.listen already");
    assert!(!found.iter().any(|(_, message)| message.contains("s3cret")), "{found:?}");
}

#[test]
fn the_summary_says_what_holds_for_every_table_and_for_each_pattern() {
    let toml = "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:c.db\"\nwarehouse = \"w\"\n[defaults]\ncooldown = \"2m\"\n[[table]]\nmatch = \"lake.ns.*\"\nact = true";
    let settings = read(toml).unwrap();
    let text = settings.summary();
    for line in
        ["defaults enabled = true", "         act = false", "         cooldown = \"2m\"", "table    lake.ns.*", "         act = true"]
    {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    let json = settings.summary_json();
    assert_eq!(json["defaults"]["cooldown"], "\"2m\"");
    assert_eq!(json["tables"], serde_json::json!([{ "match": "lake.ns.*", "sets": { "act": "true" } }]));
}

#[test]
fn budgets_tenants_and_ranking_are_read_from_their_sections() {
    let settings = read(
        r#"
        [catalog.lake]
        type = "sql"
        uri = "sqlite:///c.db"
        warehouse = "file:///w"
        [budget]
        gb_hours_per_hour = 4
        bytes_per_hour = "1GiB"
        [budget.table]
        commits-per-hour = 6
        [[tenant]]
        name = "night"
        match = "lake.sales.night_*, lake.logs.*"
        concurrent_jobs = 1
        [[tenant]]
        name = "sales"
        match = ["lake.sales.*"]
        quota_objects = 100
        [ranking]
        normalize = "rank"
        select = "top-k"
        top_k = 3
        corrected = true
        [prices]
        gb_hour = 0.05
        currency = "EUR"
        "#,
    )
    .unwrap();
    let tenant = |name: &str| settings.tenant_of(name).map(|t| t.name.to_string());
    assert_eq!(
        (tenant("lake.sales.night_run"), tenant("lake.sales.orders"), tenant("lake.hr.pay")),
        (Some("night".into()), Some("sales".into()), None)
    );
    let budgets = &settings.budgets;
    assert_eq!(
        (budgets.overall.gb_hours_per_hour, budgets.more.bytes_per_hour, budgets.per_table.commits_per_hour),
        (4.0, Some(1 << 30), Some(6))
    );
    assert_eq!((budgets.tenants[0].limits.concurrent_jobs, budgets.tenants[1].quota_objects), (Some(1), Some(100)));
    let expected = Ranking { norm: Norm::Rank, select: Select::TopK(3), corrected: true, ..Ranking::default() };
    assert_eq!((settings.ranking, settings.prices.gb_hour, settings.prices.currency.as_str()), (expected, 0.05, "EUR"));
}

#[test]
fn what_is_wrong_with_budgets_tenants_and_ranking_is_told_by_its_key() {
    let toml = r#"
        [catalog.lake]
        type = "sql"
        uri = "sqlite:///c.db"
        warehouse = "file:///w"
        [budget]
        bytes_per_hour = "much"
        [budget.table]
        jobs = 1
        [[tenant]]
        name = "a"
        match = ["pond.x.y"]
        [[tenant]]
        match = ["lake.x.y"]
        [[tenant]]
        name = "b"
        match = ["lake.x.y"]
        [[tenant]]
        name = "b"
        match = ["lake.x.z"]
        [ranking]
        normalize = "max"
        select = "top-k"
    "#;
    let expected = [
        ("budget.bytes_per_hour", "`much` is not a size; write for example 512MiB, 1GB or a number of bytes; or \"off\" for none"),
        ("budget.table.jobs", "unknown key; known here: bytes_per_hour, commits_per_hour, gb_hours_per_hour, concurrent_jobs"),
        ("ranking.normalize", "expected min-max or rank, found `max`"),
        ("ranking.select", "top-k needs the key top_k beside it: how many"),
        ("tenant[0].match", "`pond.x.y` can match no table: no catalog `pond` is configured; known: lake"),
        ("tenant[1].name", "is missing: write for example \"sales\""),
        ("tenant[3]", "there is a tenant `b` already"),
    ];
    assert_eq!(mistakes(read(toml)), expected.map(|(key, message)| (key.to_owned(), message.to_owned())));
    assert_eq!(
        mistakes(read("[ranking]\nselect = \"greedy\"\ntop_k = 4\n")),
        [("ranking.top_k".to_owned(), "is used only with select = \"top-k\"".to_owned())]
    );
}
