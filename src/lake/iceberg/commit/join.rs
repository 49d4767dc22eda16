//! Several rewrites of one table in one snapshot.

use async_trait::async_trait;

use super::{Ready, is_for, land, prepare, without_snapshot};
use crate::lake::iceberg::scope::head::{self, Head};
use crate::lake::iceberg::scope::{self, State};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Commit, Control, Error, Member, Result};
use crate::model::killpoint::KillPoint;
use crate::model::outcome::Outcome;
use crate::model::partition::PartitionKey;

/// One attempt for several rewrites of different partitions; see
/// [`commit`](super::commit), all of which holds for each. An answer for each, in their
/// order.
///
/// Invariants checked: no partition is in it twice; a member that does not fit the base
/// falls out before anything is built; the catalog is asked when the controls of all that
/// are left were told, and not unless none of them must stop.
///
/// Crash: manifests and their list are named under the first member that is left, files
/// that carry deletes over under their own. The snapshot carries the ids of all.
pub async fn commit_joined(table: &IcebergTable, members: &[Member<'_>], commit: &Commit<'_>) -> Vec<Result<Outcome>> {
    let mut told: Vec<Option<Result<Outcome>>> = members.iter().map(|member| check(table, member, members).transpose()).collect();
    let mut ready = Vec::new();
    let head = match head::read(table).await {
        Ok(head) => head,
        Err(error) => return all(told, || Err(shared(&error))),
    };
    let Some(head) = head else {
        let gone = members.iter().map(|member| Ok(Outcome::Conflict(without_snapshot(member.plan))));
        return told.into_iter().zip(gone).map(|(told, gone)| told.unwrap_or(gone)).collect();
    };
    let left: Vec<_> = members.iter().zip(&mut told).filter(|(_, told)| told.is_none()).collect();
    let scopes: Vec<_> = left.iter().map(|(member, _)| member.plan.scope.clone()).collect();
    let states = states(table, &head, &scopes).await;
    for ((member, told), state) in left.into_iter().zip(states) {
        let fits = match state {
            Ok(state) => prepare(table, &head, *member, state, commit).await,
            Err(error) => Err(error),
        };
        match fits {
            Ok(Ok(fits)) => ready.push(fits),
            Ok(Err(conflict)) => *told = Some(Ok(Outcome::Conflict(conflict))),
            Err(error) => *told = Some(Err(error)),
        }
    }
    match land_joined(table, &head, &ready, commit).await {
        None => all(told, || Err(Error::Setup("nothing was left to be committed".into()))),
        Some(Ok(outcome)) => all(told, || Ok(outcome.clone())),
        Some(Err(error)) if ready.len() > 1 => all(told, || Err(shared(&error))),
        Some(Err(error)) => {
            let mut error = Some(error);
            all(told, || Err(error.take().unwrap_or_else(|| Error::Setup("the commit failed".into()))))
        }
    }
}

/// What can be told of a member before the base is read; `None` when it may go on.
fn check(table: &IcebergTable, member: &Member<'_>, members: &[Member<'_>]) -> Result<Option<Outcome>> {
    let first = members.iter().find(|other| other.plan.scope == member.plan.scope);
    if first.is_some_and(|first| first.attempt != member.attempt) {
        return Err(Error::unreachable("a commit with others", anyhow::anyhow!("another of the same partition is among them")));
    }
    member.control.check()?;
    Ok(is_for(table, member.plan)?.map(Outcome::Conflict))
}

/// The answers, with the same for all that have none yet.
fn all(told: Vec<Option<Result<Outcome>>>, mut rest: impl FnMut() -> Result<Outcome>) -> Vec<Result<Outcome>> {
    told.into_iter().map(|told| told.unwrap_or_else(&mut rest)).collect()
}

/// An error that may be due to another member.
fn shared(error: &Error) -> Error {
    Error::unreachable("a commit with others", anyhow::anyhow!("{error}"))
}

/// The states of the partitions; read at once, or each by itself where one cannot be.
async fn states(table: &IcebergTable, head: &Head, scopes: &[PartitionKey]) -> Vec<Result<State>> {
    if let Ok(states) = scope::read_states(table, head, scopes).await {
        return states.into_iter().map(Ok).collect();
    }
    let mut states = Vec::with_capacity(scopes.len());
    for scope in scopes {
        states.push(scope::read_state(table, head, scope).await);
    }
    states
}

/// `None` when nothing is left.
async fn land_joined(table: &IcebergTable, head: &Head, ready: &[Ready<'_>], commit: &Commit<'_>) -> Option<Result<Outcome>> {
    let first = ready.first()?;
    let joint = Joint { members: ready.iter().map(|r| r.member.control).collect(), first: first.member.control };
    Some(land(table, head, ready, &Commit { attempt: first.member.attempt, control: &joint, ..*commit }).await)
}

/// The controls of all members as one.
struct Joint<'a> {
    members: Vec<&'a dyn Control>,
    /// Files that are nobody's own are its own.
    first: &'a dyn Control,
}

#[async_trait]
impl Control for Joint<'_> {
    async fn will_write(&self, path: &str) -> Result<()> {
        self.first.will_write(path).await
    }

    async fn will_commit(&self, asserted: &str) -> Result<()> {
        // one that must stop stops all before any is told
        self.check()?;
        for member in &self.members {
            member.will_commit(asserted).await?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.members.iter().try_for_each(|member| member.check())
    }

    fn progress(&self, rows: u64, bytes: u64) {
        self.first.progress(rows, bytes);
    }

    fn reached(&self, point: KillPoint) {
        self.first.reached(point);
    }
}
