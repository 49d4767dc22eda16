//! Whatever is committed while a rewrite is in flight, our commit changes no row,
//! by a reader that shares nothing with the product; and where nothing but appends,
//! upserts, deletes by key and, once the outputs were written, by position came, it
//! lands.

use afterwrite::lake::iceberg::{rewrite, scope, verify};
use afterwrite::lake::{Error, Written};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::partition::{PartitionKey, Value};
use afterwrite::model::plan::{AttemptId, Plan};
use afterwrite::model::refusal::Refusal;
use iceberg::TableUpdate;
use iceberg::spec::{DataContentType, Literal, PrimitiveLiteral, PrimitiveType, Transform};
use proptest::prelude::*;

use crate::fixture::rewrite::plan;
use crate::fixture::{Bounds, Cell, File, Row, Table, Watch, oracle};

/// Columns `id`, `v`, `p` and `w`; files of spec 0, which is unpartitioned, and of
/// spec 1, by `p`.
async fn table() -> Table {
    let columns = [("id", PrimitiveType::Long), ("v", PrimitiveType::String), ("p", PrimitiveType::Int), ("w", PrimitiveType::Long)];
    let t = Table::plain().columns(&columns).past().create().await;
    t.append([cells(100, 0, 0), cells(101, 0, 1)]).await;
    t.evolve_spec(&[("p", "p", Transform::Identity)]).await;
    t
}

fn cells(id: i64, p: i64, w: i64) -> Row {
    let w = if w == 0 { Cell::Null } else { Cell::Int(w) };
    vec![Cell::Int(id), Cell::Text(format!("v{}", id % 3)), Cell::Int(p), w]
}

/// Rows of a partition: (id, w).
type Rows = Vec<(i64, i64)>;

#[derive(Clone, Debug)]
enum Step {
    Append(i64, Rows),
    /// Deletes the keys and writes them anew, in one snapshot.
    Upsert(i64, Rows),
    /// By `id`, `v` or `w`, in a partition or in all.
    DeleteBy {
        column: &'static str,
        partition: Option<i64>,
        row: (i64, i64),
    },
    DeletePosition(usize, i64),
    /// The same, entered in the partition of another file: engines differ on it.
    DeleteAstray(usize, usize, i64, Bounds),
    /// A delete by `w` of a writer that goes by the first schema.
    StaleDelete(i64),
    DropW,
    RestoreW,
    /// A delete file is taken back, or written anew under a new number.
    TakeBack(usize),
    Renew(usize),
    Rollback(usize),
    Plan(usize, u8),
    Write,
    Commit,
}

fn place() -> impl Strategy<Value = usize> {
    0..64_usize
}

fn one(files: &[File], place: usize) -> Option<&File> {
    files.get(place % files.len().max(1))
}

fn rows() -> impl Strategy<Value = Rows> {
    prop::collection::vec((0..6_i64, 0..3_i64), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    let column = prop::sample::select(vec!["id", "v", "w"]);
    let bounds = prop::sample::select(vec![Bounds::Exact, Bounds::Referenced, Bounds::FileColumn]);
    prop_oneof![
        4 => (0..2_i64, rows()).prop_map(|(p, rows)| Step::Append(p, rows)),
        5 => (0..2_i64, rows()).prop_map(|(p, rows)| Step::Upsert(p, rows)),
        3 => (column, prop::option::of(0..2_i64), (0..6_i64, 0..3_i64))
            .prop_map(|(column, partition, row)| Step::DeleteBy { column, partition, row }),
        3 => (place(), 0..3_i64).prop_map(|(file, at)| Step::DeletePosition(file, at)),
        1 => (place(), place(), 0..3_i64, bounds).prop_map(|(file, like, at, bounds)| Step::DeleteAstray(file, like, at, bounds)),
        1 => (0..3_i64).prop_map(Step::StaleDelete),
        1 => Just(Step::DropW),
        1 => Just(Step::RestoreW),
        1 => place().prop_map(Step::TakeBack),
        1 => place().prop_map(Step::Renew),
        1 => place().prop_map(Step::Rollback),
    ]
}

/// A history around one rewrite or two: what comes before the plan, before the
/// outputs, and before the commit.
fn history() -> impl Strategy<Value = Vec<Step>> {
    let some = |most: usize| prop::collection::vec(step(), 0..most);
    let round = (some(6), place(), any::<u8>(), some(3), some(4)).prop_map(|(before, at, which, write, commit)| {
        [before, vec![Step::Plan(at, which)], write, vec![Step::Write], commit, vec![Step::Commit]].concat()
    });
    prop::collection::vec(round, 1..3).prop_map(|rounds| rounds.concat())
}

/// A rewrite in flight.
struct Flight {
    plan: Plan,
    written: Option<Written>,
    /// Whether nothing came but what must leave it good.
    calm: bool,
}

struct Play {
    t: Table,
    heads: Vec<i64>,
    stale: Vec<File>,
    has_w: bool,
    flight: Option<Flight>,
    tries: usize,
    landed: usize,
}

impl Play {
    async fn new() -> Self {
        let t = table().await;
        let mut stale = vec![];
        for w in 0..3 {
            let (mut made, _) = t.change().delete_equal_under(0, &["w"], [cells(0, 0, w)]).stage(&t.load().await).await;
            stale.push(made.deletes.remove(0));
        }
        Self { heads: vec![t.head().await], t, stale, has_w: true, flight: None, tries: 0, landed: 0 }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Append(p, rows) => drop(self.t.append(self.rows(p, &rows)).await),
            Step::Upsert(p, rows) => {
                let rows = self.rows(p, &rows);
                drop(self.t.change().delete_equal(&["id"], rows.clone()).append(rows).commit().await);
            }
            Step::DeleteBy { column, partition, row } => self.delete_by(column, partition, row).await,
            Step::DeletePosition(file, at) => self.delete_position(file, at).await,
            Step::DeleteAstray(file, like, at, bounds) => self.delete_astray(file, like, at, bounds).await,
            Step::StaleDelete(w) => self.stale_delete(w).await,
            Step::DropW | Step::RestoreW => self.evolve(matches!(step, Step::RestoreW)).await,
            Step::TakeBack(which) => self.change_delete(which, false).await,
            Step::Renew(which) => self.change_delete(which, true).await,
            Step::Rollback(to) => {
                self.t.set_main(self.heads[to % self.heads.len()]).await;
                self.storm();
            }
            Step::Plan(at, which) => self.plan(at, which).await,
            Step::Write => self.write().await,
            Step::Commit => self.commit().await,
        }
        self.heads.push(self.t.head().await);
    }

    /// Rows as the schema of now has them.
    fn rows(&self, p: i64, rows: &[(i64, i64)]) -> Vec<Row> {
        rows.iter().map(|(id, w)| cells(*id, p, *w)[..if self.has_w { 4 } else { 3 }].to_vec()).collect()
    }

    /// Something came that may ask for a new plan.
    fn storm(&mut self) {
        self.flight.iter_mut().for_each(|f| f.calm = false);
    }

    async fn delete_by(&mut self, column: &'static str, partition: Option<i64>, (id, w): (i64, i64)) {
        if column == "w" && !self.has_w {
            return;
        }
        let row = self.rows(partition.unwrap_or(0), &[(id, w)]);
        let spec = if partition.is_some() { 1 } else { 0 };
        self.t.change().delete_equal_under(spec, &[column], row).commit().await;
    }

    async fn live(&self, content: DataContentType) -> Vec<File> {
        let live = oracle::live(&self.t.load().await).await.into_iter().filter(|l| l.file.content_type() == content);
        live.map(|l| file_of(&l)).collect()
    }

    async fn delete_position(&mut self, which: usize, at: i64) {
        let files = self.live(DataContentType::Data).await;
        if let Some(file) = one(&files, which) {
            self.t.change().delete_positions(&[(file, at)]).commit().await;
            // what comes after the outputs is carried over to them
            if self.flight.as_ref().is_some_and(|f| f.written.is_none()) {
                self.storm();
            }
        }
    }

    async fn delete_astray(&mut self, which: usize, like: usize, at: i64, bounds: Bounds) {
        let files = self.live(DataContentType::Data).await;
        if let (Some(file), Some(like)) = (one(&files, which), one(&files, like)) {
            self.t.change().delete_positions_in(like, &[(file, at)], bounds).commit().await;
            self.storm();
        }
    }

    async fn stale_delete(&mut self, w: i64) {
        let delete = self.stale[usize::try_from(w).unwrap()].clone();
        if self.live(DataContentType::EqualityDeletes).await.iter().all(|live| live.path != delete.path) {
            self.t.change().add_delete(delete).commit().await;
            if !self.has_w {
                self.storm();
            }
        }
    }

    async fn evolve(&mut self, has_w: bool) {
        if has_w != self.has_w {
            match has_w {
                true => self.t.update(vec![TableUpdate::SetCurrentSchema { schema_id: 0 }]).await,
                false => self.t.evolve_schema(|fields| fields.truncate(3)).await,
            }
            self.has_w = has_w;
            self.storm();
        }
    }

    async fn change_delete(&mut self, which: usize, renew: bool) {
        let deletes = self.live(DataContentType::EqualityDeletes).await;
        if let Some(delete) = one(&deletes, which) {
            let change = self.t.change().remove(&[delete]);
            if renew {
                change.add_delete(delete.clone()).commit().await
            } else {
                change.commit().await
            };
            self.storm();
        }
    }

    /// Any of the files of a partition, at least one.
    async fn plan(&mut self, at: usize, which: u8) {
        let files = self.live(DataContentType::Data).await;
        let Some(first) = one(&files, at) else { return };
        let wanted = |path: &str| {
            let place = files.iter().position(|f| f.path == path).unwrap();
            path == first.path || which >> (place % 8) & 1 == 1
        };
        let table = self.t.load().await;
        match scope::read(&table, &first.partition).await {
            Ok(now) => self.flight = Some(Flight { plan: plan(&table, &now, wanted), written: None, calm: true }),
            Err(error) => assert!(is_stray(&error), "{error}"),
        }
    }

    /// As a job does it: the plan is held against a fresh load first.
    async fn write(&mut self) {
        let Some(mut flight) = self.flight.take() else { return };
        let table = self.t.load().await;
        let fits = match scope::read(&table, &flight.plan.scope).await {
            Ok(now) => flight.plan.check(&now).is_ok(),
            Err(error) => !is_stray(&error),
        };
        if !fits {
            assert!(!flight.calm);
            return;
        }
        self.tries += 1;
        let attempt = AttemptId(format!("a{}.0", self.tries));
        match rewrite::run(&table, &flight.plan, &attempt, &Watch::default()).await {
            Ok(written) => {
                verify::run(&table, &flight.plan, &written).await.unwrap();
                flight.written = Some(written);
                self.flight = Some(flight);
            }
            // a plan that was made before a rollback reads a snapshot that deletes otherwise
            Err(Error::Refused(refused)) => assert!(!flight.calm, "{refused:?}"),
            Err(other) => panic!("{other}"),
        }
    }

    async fn commit(&mut self) {
        let Some(Flight { plan, written: Some(written), calm }) = self.flight.take() else { return };
        let before = (self.t.rows().await, self.t.rows_by_path().await);
        let base = self.t.load().await;
        let outcome = self.t.commit_on(&base, &plan, &written, &format!("a{}.1", self.tries), &Watch::default()).await;
        assert_eq!((self.t.rows().await, self.t.rows_by_path().await), before, "{outcome:?}");
        match outcome {
            Ok(Outcome::Landed { .. }) => self.landed += 1,
            Ok(Outcome::Conflict(_)) => assert!(!calm, "{outcome:?}"),
            Err(error) => assert!(!calm && is_stray(&error), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

fn is_stray(error: &Error) -> bool {
    matches!(error, Error::Refused(refused) if refused.refusal == Refusal::StrayDelete)
}

fn file_of(live: &oracle::Live) -> File {
    let partition = match live.file.partition().iter().next() {
        Some(Some(Literal::Primitive(PrimitiveLiteral::Int(p)))) => {
            PartitionKey { spec_id: live.spec_id, tuple: [Some(Value::Int(*p))].into() }
        }
        _ => PartitionKey::unpartitioned(live.spec_id),
    };
    File { path: live.file.file_path().to_owned(), data: live.file.clone(), partition }
}

/// Enough for every run; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    ProptestConfig { cases: if asked { usual.cases } else { 64 }, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn h01_no_commit_of_ours_changes_a_row_whatever_came_while_it_was_in_flight(steps in history()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut play = Play::new().await;
            for step in steps {
                play.step(step).await;
            }
        });
    }
}

/// The laws above speak of landed commits: many of the histories must have some.
#[tokio::test]
async fn h01_an_upsert_stream_around_a_rewrite_lands_it() {
    let mut play = Play::new().await;
    for step in [
        Step::Append(1, vec![(1, 1), (2, 2)]),
        Step::Upsert(1, vec![(1, 2), (3, 0)]),
        Step::Plan(1, 0xff),
        Step::Upsert(1, vec![(2, 1)]),
        Step::DeleteBy { column: "v", partition: None, row: (1, 0) },
        Step::Write,
        Step::Upsert(1, vec![(1, 1), (5, 0)]),
        Step::DeleteBy { column: "w", partition: Some(1), row: (0, 0) },
        Step::Commit,
    ] {
        play.step(step).await;
    }
    assert_eq!(play.landed, 1);
}

/// The rewrite applied the delete under its old number; under the new one it reaches
/// the outputs, which do not have its column.
#[tokio::test]
async fn h01_a_delete_that_was_applied_and_entered_anew_is_held_against_the_outputs_columns() {
    let mut play = Play::new().await;
    for step in [Step::StaleDelete(0), Step::Plan(0, 0), Step::Renew(0), Step::DropW, Step::Write, Step::Commit] {
        play.step(step).await;
    }
    assert_eq!(play.landed, 0);
}
