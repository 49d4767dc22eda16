//! The fake lake behind the ports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use afterwrite::lake::asserted::{Asserted, AssertedHead};
use afterwrite::lake::clock::Clock;
use afterwrite::lake::{Commit, Control, Error, Format, Member, NotLanded, Output, Pointer, Proof, Result, Table, Written};
use afterwrite::model::file::{Entry, ManifestRef};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::outcome::{Conflict, Outcome, Resolution};
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{AttemptId, LiveFile, Path, Plan, ScopeFiles};
use afterwrite::model::table::{Operation, TableView};
use async_trait::async_trait;
use uuid::Uuid;

use super::{Fault, Foreign, Lake, ROOT, Version, name};

#[async_trait]
impl Format for Lake {
    fn catalogs(&self) -> Vec<String> {
        vec!["lake".into()]
    }

    async fn list(&self, _: &str) -> Result<Vec<Pointer>> {
        let location = self.with(|s| s.table.as_ref().map(|t| t.location.clone()));
        Ok(location.into_iter().map(|metadata_location| Pointer { name: name(), metadata_location }).collect())
    }

    async fn load(&self, name: &TableName, _: &str) -> Result<Option<Arc<dyn Table>>> {
        self.answers().await;
        let now = self.clock.now_ms();
        let version = self.with(|s| {
            if now < s.down_until {
                return Err(Error::unreachable(format!("catalog of {name}"), anyhow::anyhow!("down")));
            }
            s.writer(now);
            let foreign = s.on_load.pop_front().unwrap_or(Foreign::Nothing);
            s.act(foreign);
            let version = s.table.clone();
            s.arrive();
            Ok(version)
        })?;
        Ok(version.map(|version| Arc::new(FakeTable::new(version, self.clone())) as Arc<dyn Table>))
    }
}

impl Lake {
    /// Comes back while calls are answered.
    async fn answers(&self) {
        if self.with(|s| s.hung) {
            std::future::pending::<()>().await;
        }
    }
}

struct FakeTable {
    lake: Lake,
    version: Version,
    view: TableView,
}

impl FakeTable {
    fn new(version: Version, lake: Lake) -> Self {
        let view = TableView {
            ident: TableIdent::iceberg(Uuid::from_u128(version.uuid)),
            name: name(),
            metadata_location: version.location.clone(),
            location: ROOT.into(),
            format_version: 2,
            reference: "main".into(),
            head: version.head,
            snapshots: version.snapshots.iter().map(|(id, s)| (*id, s.info.clone())).collect(),
            last_sequence_number: version.snapshots.values().map(|s| s.info.sequence_number).max().unwrap_or_default(),
            specs: BTreeMap::new(),
            properties: BTreeMap::new(),
            created_ms: 0,
            refused: vec![],
        };
        Self { lake, version, view }
    }

    async fn output(&self, attempt: &AttemptId, n: usize, rows: Vec<u64>, control: &dyn Control) -> Result<Output> {
        control.check()?;
        let path = format!("{ROOT}data/{}-{n}.parquet", attempt.0);
        if !self.lake.with(|s| s.unnamed) {
            control.will_write(&path).await?;
        }
        self.lake.with(|s| s.put(&path, vec![]));
        control.reached(KillPoint::OutputBegun);
        self.lake.answers().await;
        let records = u64::try_from(rows.len()).unwrap();
        self.lake.with(|s| s.put(&path, rows));
        Ok(Output { path, bytes: records * 4, records })
    }

    /// What a commit depends on.
    fn asserted(&self) -> String {
        let head = AssertedHead { reference: "main".into(), snapshot_id: self.version.head, sequence_number: None };
        let head = self.lake.with(|s| s.heads).then_some(head);
        Asserted { metadata_location: self.version.location.clone(), head }.to_string()
    }

    /// Asks for the inputs of all to be replaced by their outputs.
    async fn replace(&self, members: &[&Member<'_>], commit: &Commit<'_>) -> Result<Outcome> {
        // where a format that carries deletes over has written them
        members.iter().for_each(|m| m.control.reached(KillPoint::DeletesCarried));
        self.lake.with(|s| s.asked.push(members.len()));
        let (first, control) = (members[0].attempt, &All(members.iter().map(|m| m.control).collect()));
        let manifest = format!("{ROOT}metadata/{}-{:x}.avro", first.0, commit.nonce);
        let location = format!("{ROOT}metadata/{}-{:x}.json", first.0, commit.nonce);
        let id = i64::try_from(self.lake.with(|s| s.fresh())).unwrap();
        let attempts = AttemptId(members.iter().map(|m| m.attempt.0.as_str()).collect::<Vec<_>>().join(" "));
        let next = self.version.clone().with(id, location, manifest.clone(), Operation::Replace, Some(&attempts), |s, _| {
            for Member { plan, written, .. } in members {
                for input in &plan.inputs {
                    s.data.remove(&input.path);
                    s.deletes.retain(|_, d| d.target != input.path);
                }
                for output in &written.outputs {
                    let path: Arc<str> = output.path.as_str().into();
                    let (bytes, records, data_sequence) = (output.bytes, output.records, plan.sequence_number);
                    s.data.insert(
                        Arc::clone(&path),
                        LiveFile { path, bytes, records, data_sequence, sort_order_id: None, first_row_id: None, deletes: vec![] },
                    );
                }
            }
        });
        self.swap(&Commit { attempt: first, control, ..*commit }, Some(&manifest), next).await
    }

    /// Writes the metadata of `next`, then asks the catalog to swap to it.
    async fn swap(&self, commit: &Commit<'_>, manifest: Option<&str>, next: Version) -> Result<Outcome> {
        if let Some(manifest) = manifest {
            commit.control.will_write(manifest).await?;
            self.lake.with(|s| s.put(manifest, vec![]));
        }
        commit.control.reached(KillPoint::ManifestsWritten);
        self.lake.answers().await;
        let fault = self.lake.with(|s| s.faults.pop_front()).unwrap_or(Fault::None);
        if fault == Fault::ErrorBefore {
            return Err(Error::unreachable("store", anyhow::anyhow!("reset")));
        }
        commit.control.will_write(&next.location).await?;
        self.lake.with(|s| s.put(&next.location, vec![]));
        commit.control.will_commit(&self.asserted()).await?;
        commit.control.reached(KillPoint::MetadataWritten);
        self.lake.answers().await;
        let head = next.head.unwrap();
        let moved = self.lake.with(|s| {
            if fault == Fault::Moved {
                s.append(1);
            }
            let moved = s.table.as_ref().is_none_or(|t| t.location != self.version.location);
            match fault {
                Fault::UnknownLater => s.later.push((self.version.location.clone(), next)),
                Fault::UnknownLost | Fault::Rejected => {}
                _ if moved => {}
                _ => s.table = Some(next),
            }
            moved
        });
        match fault {
            Fault::UnknownLanded | Fault::UnknownLost | Fault::UnknownLater => Ok(Outcome::Unknown { reason: format!("{fault:?}") }),
            Fault::ErrorLanded => Err(Error::unreachable("catalog", anyhow::anyhow!("504"))),
            Fault::Rejected => Ok(Outcome::Rejected { reason: "no".into() }),
            _ if moved => Ok(Outcome::Conflict(Conflict::MetadataMoved)),
            _ => Ok(Outcome::Landed { snapshot_id: head }),
        }
    }
}

/// The controls of all as one.
struct All<'a>(Vec<&'a dyn Control>);

#[async_trait]
impl Control for All<'_> {
    async fn will_write(&self, path: &str) -> Result<()> {
        self.0[0].will_write(path).await
    }

    async fn will_commit(&self, asserted: &str) -> Result<()> {
        self.check()?;
        for control in &self.0 {
            control.will_commit(asserted).await?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(|control| control.check())
    }

    fn progress(&self, _: u64, _: u64) {}

    fn reached(&self, point: KillPoint) {
        self.0[0].reached(point);
    }
}

#[async_trait]
impl Table for FakeTable {
    fn view(&self) -> &TableView {
        &self.view
    }

    async fn manifests(&self, _: i64) -> Result<Vec<ManifestRef>> {
        Ok(vec![])
    }

    async fn entries(&self, _: &ManifestRef) -> Result<Vec<Entry>> {
        Ok(vec![])
    }

    async fn scope(&self, scope: &PartitionKey) -> Result<ScopeFiles> {
        self.lake.answers().await;
        Ok(self.version.head_snapshot().unwrap().files(scope))
    }

    async fn rewrite(&self, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> Result<Written> {
        self.lake.answers().await;
        let head = self.version.head_snapshot().unwrap();
        let mut rows = Vec::new();
        for input in &plan.inputs {
            control.check()?;
            let read = self.lake.with(|s| {
                s.reads += 1;
                head.live_rows(&input.path, &s.store)
            });
            let count = u64::try_from(read.len()).unwrap();
            rows.extend(read);
            let time = self.lake.with(|s| s.rewrite_ms);
            self.lake.clock.sleep(Duration::from_millis(time)).await;
            control.progress(count, 10);
        }
        let rows_in = plan.input_records();
        let rows_deleted = rows_in - u64::try_from(rows.len()).unwrap();
        if self.lake.with(|s| s.spare) {
            self.output(attempt, 9, vec![], control).await?;
        }
        let second = rows.split_off(rows.len() / 2);
        let mut outputs = vec![self.output(attempt, 0, rows, control).await?];
        outputs.push(self.output(attempt, 1, second, control).await?);
        let detail = Arc::new(());
        Ok(Written {
            path: Path::ReEncode,
            path_reason: "fake".into(),
            outputs,
            rows_in,
            rows_deleted,
            bytes_read: plan.input_bytes(),
            detail,
        })
    }

    async fn verify(&self, plan: &Plan, written: &Written) -> Result<Proof> {
        self.lake.answers().await;
        if let Some(gone) = self.lake.with(|s| written.outputs.iter().find(|o| !s.store.contains_key(&o.path))) {
            return Err(Error::NotFound { path: gone.path.clone() });
        }
        let head = self.version.head_snapshot().unwrap();
        let (mut expected, mut found): (Vec<u64>, Vec<u64>) = self.lake.with(|s| {
            let inputs = plan.inputs.iter().flat_map(|f| head.live_rows(&f.path, &s.store)).collect();
            (inputs, written.outputs.iter().flat_map(|o| s.store[&o.path].clone()).collect())
        });
        expected.sort_unstable();
        found.sort_unstable();
        if expected != found || self.lake.with(|s| s.disproved) {
            return Err(Error::Proof("rows differ".into()));
        }
        Ok(Proof { rows: u64::try_from(found.len()).unwrap(), null_counts: 0, columns: 1, hash: "00".into() })
    }

    async fn commit(&self, plan: &Plan, written: &Written, commit: &Commit<'_>) -> Result<Outcome> {
        let member = Member { plan, written, attempt: commit.attempt, control: commit.control };
        self.commit_joined(&[member], commit).await.pop().unwrap()
    }

    async fn commit_joined(&self, members: &[Member<'_>], commit: &Commit<'_>) -> Vec<Result<Outcome>> {
        self.lake.answers().await;
        self.lake.with(|s| {
            let foreign = s.before_commit.pop_front().unwrap_or(Foreign::Nothing);
            s.act(foreign);
        });
        let time = self.lake.with(|s| s.commit_ms);
        if time > 0 {
            self.lake.clock.sleep(Duration::from_millis(time)).await;
        }
        let mut told: Vec<Option<Result<Outcome>>> = vec![];
        for member in members {
            let conflict = member.plan.check(&self.scope(&member.plan.scope).await.unwrap()).err();
            let stopped = member.control.check().err().map(Err);
            told.push(stopped.or(conflict.map(|conflict| Ok(Outcome::Conflict(conflict)))));
        }
        let left: Vec<&Member<'_>> = members.iter().zip(&told).filter(|(_, told)| told.is_none()).map(|(m, _)| m).collect();
        let shared = match left.is_empty() {
            true => Err(Error::Setup("nobody is left".into())),
            false => self.replace(&left, commit).await,
        };
        let mut shared = match shared {
            Err(error) if left.len() > 1 => Err(Error::unreachable("others", anyhow::anyhow!("{error}"))),
            shared => shared,
        };
        let mut answer = || match &mut shared {
            Ok(outcome) => Ok(outcome.clone()),
            Err(error) => Err(std::mem::replace(error, Error::unreachable("others", anyhow::anyhow!("failed")))),
        };
        told.into_iter().map(|told| told.unwrap_or_else(&mut answer)).collect()
    }

    fn find_attempt(&self, attempt: &AttemptId, asserted: &str) -> Resolution {
        let made = |carried: &String| attempt.made(carried);
        let found = self.version.snapshots.values().find(|s| s.info.attempt.as_ref().is_some_and(made));
        match found {
            Some(snapshot) => Resolution::Landed { snapshot_id: snapshot.info.id },
            None if self.version.location == asserted => Resolution::Open { reason: "it could still land".into() },
            None => Resolution::NotLanded,
        }
    }

    async fn fence(&self, asserted: &str) -> Result<bool> {
        self.lake.answers().await;
        Ok(self.lake.with(|s| s.fence(asserted)))
    }

    async fn undo(&self, snapshot_id: i64, commit: &Commit<'_>) -> Result<Outcome> {
        self.lake.answers().await;
        if self.version.head != Some(snapshot_id) {
            return Ok(Outcome::Rejected { reason: "not the head".into() });
        }
        let mut next = self.version.clone();
        let location = format!("{ROOT}metadata/{}-{:x}.json", commit.attempt.0, commit.nonce);
        next.log.push(std::mem::replace(&mut next.location, location));
        next.head = next.snapshots[&snapshot_id].info.parent;
        self.swap(commit, None, next).await
    }

    async fn remove_outputs(&self, proof: &NotLanded, paths: &[String]) -> Result<()> {
        self.lake.answers().await;
        self.lake.with(|s| {
            if s.removals_fail > 0 {
                s.removals_fail -= 1;
                return Err(Error::unreachable(format!("removing files of {}", proof.attempt().0), anyhow::anyhow!("down")));
            }
            for path in paths {
                assert!(path.starts_with(ROOT), "{path} is outside the table");
                s.store.remove(path);
            }
            Ok(())
        })
    }
}
