//! The commands that ask a running sidecar.

use super::args::{Backlog, Doors, Report, Server, Watch, Why};
use super::exit::Exit;
use super::{human, show};
use crate::proto::v1;
use crate::proto::v1::ack::Status;
use crate::serve::Token;
use crate::serve::client::{Client, Error, Target};

/// A command that did not succeed: what to say, and how to exit.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// How to exit.
    pub exit: Exit,
    /// What to say.
    pub why: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use tonic::Code;
        let exit = match &error {
            Error::Address(_) | Error::Certificate(_) => Exit::Usage,
            Error::Unreachable { .. } => Exit::Unreachable,
            Error::Answered { code: Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled, .. } => Exit::Unreachable,
            Error::Answered { code: Code::NotFound, .. } => Exit::NotFound,
            Error::Answered { code: Code::FailedPrecondition, .. } => Exit::Refused,
            Error::Answered { .. } => Exit::Failed,
        };
        Self { exit, why: error.to_string() }
    }
}

async fn connect(server: &Server) -> Result<Client, Failure> {
    let token = match server.token.as_deref() {
        None | Some("") => None,
        Some(text) => Some(Token::new(text).ok_or_else(|| Failure {
            exit: Exit::Usage,
            why: "the token holds a space or a character that is not visible ASCII; write it as `serve` was given it".to_owned(),
        })?),
    };
    let target = Target { server: server.server.clone(), token, ca: server.ca.clone() };
    Ok(Client::connect(&target).await?)
}

/// `report`: returns what to print.
///
/// # Errors
/// When the sidecar is not there or does not take the event.
pub async fn report(args: &Report, json: bool) -> Result<String, Failure> {
    let snapshots = args.snapshots.iter().map(|id| v1::SnapshotChange { snapshot_id: id.to_string(), ..Default::default() });
    let path =
        v1::TablePath { catalog: args.table.catalog.clone(), namespace: args.table.namespace.clone(), table: args.table.table.clone() };
    let event = v1::CommitEvent {
        path: Some(path),
        r#ref: args.reference.clone().unwrap_or_default(),
        snapshots: snapshots.collect(),
        sender: concat!("afterwrite-cli/", env!("CARGO_PKG_VERSION")).to_owned(),
        ..Default::default()
    };
    let ack = connect(&args.server).await?.report(event).await?;
    let (status, words) = match ack.status() {
        Status::Accepted => ("accepted", "marked for a look"),
        Status::Duplicate => ("duplicate", "heard of before"),
        Status::RetryLater => ("retry-later", "not taken; try later"),
        Status::Ignored => ("ignored", "nothing to look at"),
        Status::Rejected | Status::Unspecified => ("rejected", "not taken"),
    };
    let table = args.table.to_string();
    if json {
        return Ok(serde_json::json!({ "table": table, "status": status, "reason": ack.reason }).to_string());
    }
    let note = if ack.reason.is_empty() { String::new() } else { format!(" ({})", ack.reason) };
    Ok(human::safe(&format!("{table}: {words}{note}")))
}

/// `why`: returns what to print.
///
/// # Errors
/// When the sidecar is not there, or knows no such table or partition.
pub async fn why(args: &Why, json: bool) -> Result<String, Failure> {
    let partition = args.partition.as_deref().unwrap_or_default();
    let table = &args.branch.table;
    let made = connect(&args.server).await?.why_on(&table.to_string(), &args.branch.reference, partition).await?;
    if made.is_empty() && !partition.is_empty() {
        let why = format!("{table} has no decision on a partition `{partition}`; `why {table}` lists those it has");
        return Err(Failure { exit: Exit::NotFound, why });
    }
    if json {
        return Ok(show::decisions_json(&made));
    }
    let traits = made.first().filter(|_| !partition.is_empty()).map(show::traits_of).unwrap_or_default();
    Ok([show::decisions(&made), traits].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n"))
}

/// `doors`: returns what to print.
///
/// # Errors
/// When the sidecar is not there.
pub async fn doors(args: &Doors, json: bool) -> Result<String, Failure> {
    let doors = connect(&args.server).await?.doors().await?;
    Ok(show::doors(&doors, json))
}

/// `backlog`: returns what to print.
///
/// # Errors
/// When the sidecar is not there.
pub async fn backlog(args: &Backlog, json: bool) -> Result<String, Failure> {
    let client = connect(&args.server).await?;
    let candidates = if args.candidates > 0 { client.candidates(args.candidates).await? } else { Vec::new() };
    Ok(show::backlog(&client.backlog().await?, &candidates, json))
}

/// `watch`: tells each line to `say` until `say` returns false.
///
/// # Errors
/// When the sidecar is not there, knows no such table, or goes away.
pub async fn watch(args: &Watch, json: bool, mut say: impl FnMut(&str) -> bool) -> Result<(), Failure> {
    let table = args.table.as_ref().map(ToString::to_string).unwrap_or_default();
    let client = connect(&args.server).await?;
    let mut stream = client.watch(&table).await?;
    loop {
        let next = stream.message().await.map_err(|s| client.answered(&s))?;
        let Some(message) = next else {
            let why = format!("the sidecar at {} has ended: nothing more is decided there", args.server.server);
            return Err(Failure { exit: Exit::Unreachable, why });
        };
        if let Some(item) = &message.item
            && !say(&show::watched(item, json))
        {
            return Ok(());
        }
    }
}
