use clap::{CommandFactory, Parser};

use super::args::*;
use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn refused(line: &str) -> String {
    let error = parse(line).unwrap_err();
    assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()));
    error.to_string()
}

#[test]
fn the_definitions_hold_together() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_takes_what_its_help_says() {
    let lines = [
        "afterwrite serve",
        "afterwrite serve --listen 0.0.0.0:1 --http 127.0.0.1:0 --insecure --tls-cert c --tls-key k --token t",
        "afterwrite demo --dir d --scale 0.1 --commits 40",
        "afterwrite inspect lake.db.t --ref audit --json",
        "afterwrite why lake.db.t",
        "afterwrite why lake.db.t month=12 --server https://h:1 --token t --ca f",
        "afterwrite plan lake.a.b.t --partition 12",
        "afterwrite --config c.toml compact lake.db.t --dry-run --json",
        "afterwrite report lake.db.t --snapshot 1 --snapshot -9223372036854775808 --ref audit",
        "afterwrite watch",
        "afterwrite jobs --table lake.db.t --limit 3",
        "afterwrite cancel J",
        "afterwrite undo J",
        "afterwrite pause",
        "afterwrite resume lake.db.t",
        "afterwrite hold lake.db.t --for 2h --holder backfill",
        "afterwrite release lake.db.t",
        "afterwrite completions zsh",
        "afterwrite config --example",
    ];
    for line in lines {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn a_report_names_its_snapshots_in_order_with_their_signs() {
    let cli = parse("afterwrite report lake.db.t --snapshot 7 --snapshot -8").unwrap();
    let Command::Report(report) = cli.command else { panic!("a report was asked for") };
    assert_eq!((report.table.to_string(), report.snapshots, report.reference), ("lake.db.t".to_owned(), vec![7, -8], None));
}

#[test]
fn a_wrong_command_line_is_told_what_to_write() {
    let text = refused("afterwrite inspect t");
    assert!(text.contains("`t` is not a table name: write `catalog.namespace.table`, each part non-empty"), "{text}");
    let text = refused("afterwrite serve --tls-cert c");
    assert!(text.contains("--tls-key"), "{text}");
    let text = refused("afterwrite report lake.db.t --snapshot 1e3");
    assert!(text.contains("invalid value '1e3' for '--snapshot <ID>'"), "{text}");
}

#[test]
fn help_documents_every_exit_code() {
    let help = Cli::command().render_long_help().to_string();
    for exit in Exit::ALL {
        assert!(help.contains(exit.words()), "{exit:?}");
    }
    assert_eq!(Exit::ALL.iter().map(|e| e.code()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 64, 130, 143]);
    assert!(help.contains("  64\tthe settings cannot be used"), "{help}");
}

#[test]
fn every_shell_gets_a_script() {
    use clap::ValueEnum;
    for shell in clap_complete::Shell::value_variants() {
        let script = String::from_utf8(completions(*shell)).unwrap();
        assert!(script.contains("inspect") && script.contains("dry-run"), "{shell}");
    }
}

mod numbers {
    use super::human::*;

    #[test]
    fn sizes_are_short_and_never_read_1024() {
        let sizes = [0, 1023, 1024, 1536, 102_400, 1_048_575, 1 << 20, 512 << 20, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "100 KiB", "1.0 MiB", "1.0 MiB", "512 MiB", "16.0 EiB"]);
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1_234_567, u64::MAX].map(count), ["0", "999", "1 000", "1 234 567", "18 446 744 073 709 551 615"]);
    }

    #[test]
    fn durations_keep_two_figures_that_matter() {
        let times = [0.0, 0.254, 9.99, 12.34, 59.9, 59.96, 245.0, 3599.6, 7380.0, -1.0].map(seconds);
        assert_eq!(
            times,
            ["0.00 s", "0.25 s", "9.99 s", "12.3 s", "59.9 s", "1 min 00 s", "4 min 05 s", "1 h 00 min", "2 h 03 min", "0.00 s"]
        );
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let texts = [0.0, 8.0, 0.125, 0.1 + 0.2, 12345.678, 2.5e11, 2.748e-7].map(number);
        assert_eq!(texts, ["0", "8", "0.125", "0.3", "12345.678", "2.500e11", "2.748e-7"]);
        assert_eq!([0.0, 0.5, 0.001].map(gb_hours), ["0.00 GB-h", "0.50 GB-h", "1.0e-3 GB-h"]);
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(safe("a\u{1b}[2Jb\nü"), "a\\u{1b}[2Jb\\nü");
    }

    #[test]
    fn a_moment_is_utc_and_an_impossible_one_is_its_number() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(i64::MAX), "9223372036854775807 ms");
    }
}
