//! The `CommitHook` service: hears of commits, answers from memory.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::backend::Backend;
use super::{hold, plain};
use crate::model::event::{Door, Heard};
use crate::observe::grpc::{decode, table_name};
use crate::proto::Sequenced;
use crate::proto::services::commit_hook_server::CommitHook;
use crate::proto::v1::ack::Status as AckStatus;
use crate::proto::v1::{Ack, CommitEvent, HoldTableRequest, HoldTableResponse, ReleaseTableRequest, ReleaseTableResponse};
use crate::telemetry;

pub(super) struct Hook {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) stop: CancellationToken,
}

/// What is said when the inbox is full.
const FULL: &str = "too many tables wait for a look; try later, or leave it to polling";

/// Why an event marks no table.
enum Refused {
    /// It cannot be read.
    Invalid(String),
    /// It names a catalog that is not configured.
    NotFound(String),
    /// It is about what nobody looks after: there is nothing to mend.
    Elsewhere(String),
}

impl Hook {
    fn take(&self, event: Result<&CommitEvent, String>) -> Result<(Heard, String), Refused> {
        let taken = event.map_err(Refused::Invalid).and_then(|event| self.hear(event));
        match &taken {
            Ok((heard, _)) => telemetry::event_heard(Door::Grpc, *heard),
            Err(refused) => {
                telemetry::event_rejected(Door::Grpc);
                self.note(refused);
            }
        }
        taken
    }

    /// Notes an event that did not come as far as the inbox, which counts the others.
    fn note(&self, refused: &Refused) {
        let Some(entrance) = self.backend.entrance() else { return };
        let source = entrance.ledger().source(Door::Grpc, "");
        source.received(self.backend.now_ms());
        let example = |why: &String| entrance.example(String::new(), why.clone());
        match refused {
            Refused::Invalid(why) => source.parked(example(why)),
            Refused::NotFound(why) | Refused::Elsewhere(why) => source.dropped(example(why)),
        }
    }

    fn hear(&self, event: &CommitEvent) -> Result<(Heard, String), Refused> {
        let event = decode(event, Door::Grpc, self.backend.now_ms()).map_err(|e| Refused::Invalid(e.to_string()))?;
        check_catalog(&self.backend.catalogs(), &event.table.catalog).map_err(Refused::NotFound)?;
        self.backend.check_branch(&event.table, event.reference.as_deref()).map_err(Refused::Elsewhere)?;
        let answer = self.backend.hear(event);
        Ok((answer.heard, answer.note))
    }

    fn answer(&self, message: Sequenced) -> Ack {
        let Sequenced { seq, event } = message;
        match self.take(event.as_ref().map_err(Clone::clone)) {
            Ok((Heard::Accepted, note)) => ack(seq, AckStatus::Accepted, &note),
            Ok((Heard::Duplicate, note)) => ack(seq, AckStatus::Duplicate, &note),
            Ok((Heard::Full, _)) => ack(seq, AckStatus::RetryLater, FULL),
            Err(Refused::Elsewhere(why)) => ack(seq, AckStatus::Ignored, &why),
            Err(Refused::Invalid(why) | Refused::NotFound(why)) => ack(seq, AckStatus::Rejected, &why),
        }
    }
}

fn ack(seq: u64, status: AckStatus, reason: &str) -> Ack {
    Ack { seq, status: status.into(), reason: reason.to_owned() }
}

/// Whether a catalog is configured; else which are.
pub(super) fn check_catalog(known: &[String], catalog: &str) -> Result<(), String> {
    if known.iter().any(|k| k == catalog) {
        return Ok(());
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!("no catalog `{catalog}` is configured; known catalogs: {known}"))
}

#[tonic::async_trait]
impl CommitHook for Hook {
    async fn report_commit(&self, request: Request<CommitEvent>) -> Result<Response<Ack>, Status> {
        match self.take(Ok(request.get_ref())) {
            Ok((Heard::Accepted, note)) => Ok(Response::new(ack(0, AckStatus::Accepted, &note))),
            Ok((Heard::Duplicate, note)) => Ok(Response::new(ack(0, AckStatus::Duplicate, &note))),
            Ok((Heard::Full, _)) => Err(Status::unavailable(FULL)),
            Err(Refused::Elsewhere(why)) => Ok(Response::new(ack(0, AckStatus::Ignored, &why))),
            Err(Refused::Invalid(why)) => Err(Status::invalid_argument(why)),
            Err(Refused::NotFound(why)) => Err(Status::not_found(why)),
        }
    }

    async fn hold_table(&self, request: Request<HoldTableRequest>) -> Result<Response<HoldTableResponse>, Status> {
        let ask = request.into_inner();
        let name = table_name(&ask.table, ask.path.as_ref()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let time = std::time::Duration::from_secs(ask.seconds);
        let until_ms = hold::hold(self.backend.as_ref(), &name, &ask.holder, time).await?;
        Ok(Response::new(HoldTableResponse { until_ms }))
    }

    async fn release_table(&self, request: Request<ReleaseTableRequest>) -> Result<Response<ReleaseTableResponse>, Status> {
        let ask = request.into_inner();
        let name = table_name(&ask.table, ask.path.as_ref()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let released = hold::release(self.backend.as_ref(), &name, &ask.holder).await?;
        Ok(Response::new(ReleaseTableResponse { released: u32::try_from(released).unwrap_or(u32::MAX) }))
    }

    type ReportCommitsStream = Pin<Box<dyn Stream<Item = Result<Ack, Status>> + Send>>;

    async fn report_commits(&self, request: Request<Streaming<Sequenced>>) -> Result<Response<Self::ReportCommitsStream>, Status> {
        let hook = Hook { backend: self.backend.clone(), stop: self.stop.clone() };
        let stop = self.stop.clone();
        let acks = request.into_inner().map(move |message| message.map(|m| hook.answer(m)).map_err(plain::told));
        Ok(Response::new(Box::pin(acks.take_until(stop.cancelled_owned()))))
    }
}
