//! Settings, completions, and files that are not what they should be.

use serde_json::json;
use sqlx::{Connection, SqliteConnection};

use super::{NAME, keys, small};
use crate::fixture::process::{Place, bare, finish};

#[tokio::test]
async fn every_mistake_is_told_at_once() {
    let place = Place::new("[server]\nlisten = \"here\"\nspeed = 1\n[poll]\nmin = \"soon\"\n[defaults]\ncooldown = 5");
    for command in [&["compact", NAME][..], &["serve"], &["config"], &["jobs"]] {
        let ended = place.run(command).await.expect(64);
        assert!(ended.err.starts_with("error: the settings cannot be used\n"), "{}", ended.err);
        for key in ["server.listen", "server.speed", "poll.min", "defaults.cooldown"] {
            assert!(ended.err.contains(&format!("\n  {key}: ")), "{key}: {}", ended.err);
        }
    }
}

#[tokio::test]
async fn a_settings_file_that_is_missing_is_named() {
    let place = Place::new("");
    std::fs::remove_file(place.path().join("afterwrite.toml")).unwrap();
    let ended = place.run(&["config"]).await.expect(64);
    assert!(ended.err.contains("cannot read ") && ended.err.contains("afterwrite.toml: No such file"), "{}", ended.err);
}

#[tokio::test]
async fn config_shows_what_holds_and_its_example_is_a_settings_file() {
    let place = Place::new("[[table]]\nmatch = \"lake.ns.*\"\nact = true");
    let text = place.run(&["config"]).await.expect(0).out;
    assert!(text.starts_with("grpc     127.0.0.1:7411\nhttp     127.0.0.1:7412\n"), "{text}");
    let line = place.run(&["config", "--json"]).await.expect(0).lines().remove(0);
    let expected = [
        "cache_bytes",
        "catalogs",
        "concurrent_jobs",
        "defaults",
        "gb_hours_per_hour",
        "grpc",
        "http",
        "journal",
        "kafka",
        "poll_max_ms",
        "poll_min_ms",
        "tables",
    ];
    assert_eq!(keys(&line), expected);
    assert_eq!(
        (&line["grpc"], &line["tables"], &line["catalogs"][0]["name"]),
        (&json!("127.0.0.1:7411"), &json!([{ "match": "lake.ns.*", "sets": { "act": "true" } }]), &json!("lake"))
    );
    assert_eq!(line["defaults"]["target_file_size"], "\"512MiB\"");
    assert!(text.contains("\ndefaults enabled = true\n         act = false\n"), "{text}");

    let example = place.run(&["config", "--example"]).await.expect(0).out;
    std::fs::write(place.path().join("afterwrite.toml"), example).unwrap();
    assert!(place.run(&["config"]).await.expect(0).out.starts_with("grpc     127.0.0.1:7411\n"));
}

/// A shell, what it is given to load the script that `$1` names, and the words that it
/// then has for `afterwrite comp`.
const SHELLS: [(&str, &[&str], &str); 3] = [
    (
        "bash",
        &["--norc", "--noprofile"],
        r#". "$1" && complete -p afterwrite >/dev/null && COMP_WORDS=(afterwrite comp) COMP_CWORD=1 && _afterwrite afterwrite comp afterwrite && printf '%s\n' "${COMPREPLY[@]}""#,
    ),
    (
        "zsh",
        &["-f"],
        r#"autoload -Uz compinit && compinit -u -D && . "$1" && [ "$_comps[afterwrite]" = _afterwrite ] && _describe() { print -l -- ${(P)@[-1]%%:*} } && _afterwrite_commands"#,
    ),
    ("fish", &["--no-config"], r#"source $argv[1]; and complete -C "afterwrite comp" | string split -f 1 \t"#),
];

#[tokio::test]
async fn completions_load_in_the_shell_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, options, load) in SHELLS {
        let mut command = bare(folder.path());
        command.args(["completions", shell]);
        let ended = finish(command).await.expect(0);
        let script = folder.path().join(format!("afterwrite.{shell}"));
        std::fs::write(&script, &ended.out).unwrap();

        let mut command = std::process::Command::new(shell);
        command.args(options).arg("-c").arg(load);
        if shell != "fish" {
            command.arg(shell);
        }
        command.arg(&script).env("HOME", folder.path()).current_dir(folder.path());
        match command.output() {
            Ok(output) => {
                let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                assert!(output.status.success() && err.is_empty(), "{shell}: {out}{err}");
                let mut words: Vec<&str> = out.lines().filter(|word| word.starts_with("comp")).collect();
                words.sort_unstable();
                assert_eq!(words, ["compact", "completions"], "{shell}: {out}");
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{shell}: {error}");
                println!("{shell} is not installed: its script is not loaded");
            }
        }
    }
}

#[tokio::test]
async fn the_file_of_another_program_is_no_journal_and_is_left_as_it_is() {
    let place = Place::new("");
    small(&place).await;
    let journal = place.path().join("journal.db");
    let mut other = SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", journal.display())).await.unwrap();
    sqlx::raw_sql("CREATE TABLE bookmarks (url TEXT)").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    // a file shorter than a page is an empty one to SQLite
    for content in [std::fs::read(&journal).unwrap(), b"[notes]\nof = \"somebody\"\n".to_vec()] {
        std::fs::write(&journal, &content).unwrap();
        for command in [&["jobs"][..], &["compact", NAME], &["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]] {
            let ended = place.run(command).await.expect(64);
            let expected = format!("error: {} is a database of another program, not a journal: give another path\n", journal.display());
            assert!(ended.err.ends_with(&expected), "{}", ended.err);
        }
        assert_eq!(std::fs::read(&journal).unwrap(), content);
    }
}

#[tokio::test]
async fn help_tells_every_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bare(folder.path());
    command.arg("--help");
    let help = finish(command).await.expect(0).out;
    for exit in afterwrite::cli::Exit::ALL {
        assert!(help.contains(exit.words()), "{exit:?}");
    }
}
