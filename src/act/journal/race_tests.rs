//! Processes that race for leases and for the place to commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::tests::{holder, job, plan};
use super::*;
use crate::lake::clock::{Chance, SystemChance};

/// Names the folder of a race to its processes.
const RACE: &str = "AFTERWRITE_TEST_RACE";
const PROCESSES: usize = 2;
const ROUNDS: usize = 60;

/// A file that only one may have made at a time.
struct Mark(PathBuf);

impl Mark {
    fn make(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        assert!(fs::File::create_new(&path).is_ok(), "{name} is in two hands");
        Self(path)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Takes leases on two of four files, and the table's place, again and again; what
/// it has got is marked while it has it. Returns what it was refused.
async fn race(folder: &Path, id: &str) -> (u32, u32) {
    let journal = SqliteJournal::open(&folder.join("journal.db")).await.unwrap();
    journal.claim(&holder(id, Role::Command), &[]).await.unwrap();
    let _ready = Mark::make(folder, &format!("ready-{id}"));
    let ready =
        || fs::read_dir(folder).unwrap().filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("ready-")).count();
    while ready() < PROCESSES && !folder.join("off").exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let _ = fs::File::create(folder.join("off"));
    let mut refused = (0, 0);
    for round in 0..ROUNDS {
        let first = SystemChance.next() % 3;
        let files = [format!("file-{first}"), format!("file-{}", first + 1)];
        let wanted = plan(1, &files.each_ref().map(String::as_str));
        let job = Job { id: JobId(format!("{id}-{round}")), holder: id.into(), plan: wanted, ..job("") };
        if !journal.request(&job, &[]).await.unwrap() {
            refused.0 += 1;
            continue;
        }
        let marks = files.map(|file| Mark::make(folder, &file));
        match journal.take_place(id, &job.id, &[]).await.unwrap() {
            true => {
                let place = Mark::make(folder, "place");
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(place);
                journal.leave_place(id, &job.id).await.unwrap();
            }
            false => refused.1 += 1,
        }
        drop(marks);
        let end = Step { holder: id, job: &job.id, to: JobState::Failed, at_ms: 1, note: "", numbers: None };
        journal.advance(end).await.unwrap();
    }
    refused
}

fn run(folder: &Path, id: &str) -> (u32, u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(race(folder, id))
}

#[test]
#[ignore = "a process of the test below"]
fn a_process_of_a_race() {
    let Ok(folder) = std::env::var(RACE) else { return };
    let refused = run(Path::new(&folder), &std::process::id().to_string());
    println!("refused {refused:?}");
}

#[test]
fn of_two_processes_never_both_lease_a_file_or_commit_to_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["act::journal::race_tests::a_process_of_a_race", "--exact", "--ignored", "--nocapture"]);
        command.env(RACE, folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    for process in processes {
        let ended = process.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{out}{err}");
        assert!(out.contains("refused (") && out.contains("1 passed"), "the process did not race: {out}");
    }
}

#[test]
fn of_two_handles_in_one_process_neither_does() {
    let met = (0..50).any(|_| {
        let folder = tempfile::tempdir().unwrap();
        let handles = ["a", "b"].map(|id| {
            let folder = folder.path().to_owned();
            std::thread::spawn(move || run(&folder, id))
        });
        let refused = handles.map(|handle| handle.join().unwrap());
        refused.iter().any(|(leases, _)| *leases > 0) && refused.iter().any(|(_, places)| *places > 0)
    });
    assert!(met, "the handles never met");
}

#[tokio::test]
async fn a_lease_and_a_place_end_with_their_process_or_their_job() {
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteJournal::open(&dir.path().join("journal.db")).await.unwrap();
    for journal in [Box::new(sqlite) as Box<dyn Journal>, Box::new(MemoryJournal::default())] {
        journal.claim(&holder("h", Role::Serve), &[]).await.unwrap();
        journal.claim(&holder("g", Role::Command), &[]).await.unwrap();
        let of = |id: &str, by: &str, files: &[&str]| Job { holder: by.into(), plan: plan(1, files), ..job(id) };
        assert!(journal.request(&of("j1", "h", &["a", "b"]), &[]).await.unwrap());
        let (first, other) = (JobId("j1".into()), JobId("j2".into()));
        assert!(!journal.request(&of("j0", "g", &["b", "c"]), &[]).await.unwrap());
        assert_eq!(journal.job(&JobId("j0".into())).await.unwrap(), None, "what is refused is not entered");
        assert!(journal.request(&of("j2", "g", &["c"]), &[]).await.unwrap(), "other files of the table are free");
        assert!(journal.request(&Job { plan: plan(2, &["a"]), ..of("j3", "g", &[]) }, &[]).await.unwrap(), "and so is another table");

        assert!(journal.take_place("h", &first, &[]).await.unwrap());
        assert!(journal.take_place("h", &first, &[]).await.unwrap(), "a job may ask again for what it has");
        assert!(!journal.take_place("g", &other, &[]).await.unwrap());
        assert!(journal.take_place("g", &JobId("j3".into()), &[]).await.unwrap());
        assert!(matches!(journal.take_place("g", &first, &[]).await, Err(Error::TakenOver(_))));
        journal.leave_place("g", &first).await.unwrap();
        assert!(!journal.take_place("g", &other, &[]).await.unwrap(), "only its holder gives it back");
        journal.leave_place("h", &first).await.unwrap();
        assert!(journal.take_place("g", &other, &[]).await.unwrap());
        assert!(journal.take_place("h", &first, &["g".into()]).await.unwrap(), "a dead process has none");
        journal.adopt(&first, "h", "g").await.unwrap();
        journal.adopt(&first, "g", "h").await.unwrap();
        journal.leave_place("g", &other).await.unwrap();
        assert!(journal.take_place("g", &other, &[]).await.unwrap(), "a job that is taken over has lost it");

        assert!(!journal.request(&of("j4", "g", &["a"]), &[]).await.unwrap());
        assert!(journal.request(&of("j5", "g", &["a"]), &["h".into()]).await.unwrap(), "a dead process leases nothing");
        journal.release("g").await.unwrap();
        assert!(journal.request(&of("j6", "h", &["c"]), &[]).await.unwrap(), "nor does one that has left");
        assert!(journal.take_place("h", &first, &[]).await.unwrap());
        journal.claim(&holder("g", Role::Command), &[]).await.unwrap();
        let end = Step { holder: "g", job: &other, to: JobState::Failed, at_ms: 1, note: "", numbers: None };
        journal.advance(end).await.unwrap();
        let end = Step { holder: "h", job: &JobId("j6".into()), to: JobState::Failed, at_ms: 1, note: "", numbers: None };
        journal.advance(end).await.unwrap();
        assert!(journal.request(&of("j7", "g", &["c"]), &[]).await.unwrap(), "an ended job has none");
    }
}

/// Opens the file and closes it again.
fn opens(path: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        SqliteJournal::open(path).await?.close().await;
        Ok(())
    })
}

#[test]
fn many_that_open_a_new_file_at_once_wait_for_each_other() {
    for _ in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        std::thread::scope(|scope| {
            let opening: Vec<_> = (0..6).map(|_| scope.spawn(|| opens(&path))).collect();
            for opened in opening {
                opened.join().unwrap().unwrap();
            }
        });
    }
}
