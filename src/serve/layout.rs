//! The `Layout` service: what is known, and why it was decided.

use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{Stream, StreamExt, future};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::backend::{Backend, Error, Page};
use super::hook::check_catalog;
use super::map;
use crate::model::ident::{MAIN, TableName};
use crate::model::partition::PartitionKey;
use crate::observe::grpc::table_name;
use crate::proto::services::layout_server::Layout;
use crate::proto::v1;
use crate::proto::v1::watch_decisions_response::Item;
use crate::telemetry;

pub(super) struct Layouts {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) stop: CancellationToken,
}

/// Rows of a page when none are asked for, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

fn page_size(asked: u32) -> usize {
    match usize::try_from(asked).unwrap_or(MAX_PAGE) {
        0 => PAGE,
        n => n.min(MAX_PAGE),
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = match &error {
            Error::Refused(refused) => format!("refused ({}): {}", refused.refusal, refused.told()),
            other => other.to_string(),
        };
        match error {
            Error::NotFound(_) => Self::not_found(text),
            Error::Refused(_) | Error::Unasked(_) => Self::failed_precondition(text),
            Error::Unavailable(_) => Self::unavailable(text),
            Error::Invalid(_) => Self::invalid_argument(text),
            Error::Internal(_) => Self::internal(text),
        }
    }
}

impl Layouts {
    fn name(&self, text: &str, path: Option<&v1::TablePath>) -> Result<TableName, Status> {
        let name = table_name(text, path).map_err(|e| Status::invalid_argument(e.to_string()))?;
        check_catalog(&self.backend.catalogs(), &name.catalog).map_err(Status::not_found)?;
        Ok(name)
    }
}

fn branch(text: &str) -> &str {
    if text.is_empty() { MAIN } else { text }
}

/// A page token: the last key of the page, so that it outlives changes.
fn token(last: Option<&PartitionKey>) -> String {
    let json = last.and_then(|key| serde_json::to_vec(key).ok());
    json.map(|bytes| URL_SAFE_NO_PAD.encode(bytes)).unwrap_or_default()
}

fn untoken(text: &str) -> Result<Option<PartitionKey>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let key = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    key.map(Some).ok_or_else(|| {
        Status::invalid_argument("page_token: not a token of this server; send `next_page_token` as it came, or leave it empty")
    })
}

#[tonic::async_trait]
impl Layout for Layouts {
    async fn get_layout(&self, request: Request<v1::GetLayoutRequest>) -> Result<Response<v1::GetLayoutResponse>, Status> {
        let ask = request.into_inner();
        let name = self.name(&ask.table, ask.path.as_ref())?;
        let layout = self.backend.get_layout(&name, branch(&ask.r#ref)).await?;
        Ok(Response::new(map::layout(&layout)))
    }

    async fn list_partitions(&self, request: Request<v1::ListPartitionsRequest>) -> Result<Response<v1::ListPartitionsResponse>, Status> {
        let ask = request.into_inner();
        let name = self.name(&ask.table, ask.path.as_ref())?;
        let page = Page { size: page_size(ask.page_size), after: untoken(&ask.page_token)? };
        let found = self.backend.list_partitions(&name, branch(&ask.r#ref), page).await?;
        let last = found.rows.last().filter(|_| found.more).map(|row| &row.partition);
        Ok(Response::new(v1::ListPartitionsResponse {
            snapshot_id: map::id(found.snapshot_id),
            next_page_token: token(last),
            partitions: found.rows.iter().map(map::partition_layout).collect(),
        }))
    }

    async fn list_candidates(&self, request: Request<v1::ListCandidatesRequest>) -> Result<Response<v1::ListCandidatesResponse>, Status> {
        let found = self.backend.list_candidates(page_size(request.get_ref().limit)).await?;
        Ok(Response::new(v1::ListCandidatesResponse { candidates: found.iter().map(map::candidate).collect() }))
    }

    async fn get_backlog(&self, _: Request<v1::GetBacklogRequest>) -> Result<Response<v1::GetBacklogResponse>, Status> {
        Ok(Response::new(map::backlog(&self.backend.backlog().await?)))
    }

    async fn why(&self, request: Request<v1::WhyRequest>) -> Result<Response<v1::WhyResponse>, Status> {
        let ask = request.into_inner();
        let name = self.name(&ask.table, ask.path.as_ref())?;
        let filter = Some(ask.partition.as_str()).filter(|f| !f.is_empty());
        let found = self.backend.why_on(&name, branch(&ask.r#ref), filter).await?;
        Ok(Response::new(v1::WhyResponse { decisions: found.iter().map(map::decision).collect() }))
    }

    async fn list_doors(&self, _: Request<v1::ListDoorsRequest>) -> Result<Response<v1::ListDoorsResponse>, Status> {
        Ok(Response::new(v1::ListDoorsResponse { doors: self.backend.doors().into_iter().map(map::door).collect() }))
    }

    type WatchDecisionsStream = Pin<Box<dyn Stream<Item = Result<v1::WatchDecisionsResponse, Status>> + Send>>;

    async fn watch_decisions(&self, request: Request<v1::WatchDecisionsRequest>) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        let only = match request.get_ref().table.as_str() {
            "" => None,
            text => Some(self.name(text, None)?),
        };
        // before the table is asked for, so that nothing is missed between
        let made = self.backend.watch();
        if let Some(name) = &only {
            // a catalog that does not answer now may answer later
            if let Err(error @ (Error::NotFound(_) | Error::Refused(_))) = self.backend.is_followed(name).await {
                return Err(error.into());
            }
        }
        let items = BroadcastStream::new(made).filter_map(move |next| {
            let item = match next {
                Ok(made) if only.as_ref().is_none_or(|name| *name == made.decision.name) => Some(Item::Decision(map::decision(&made))),
                Ok(_) => None,
                Err(BroadcastStreamRecvError::Lagged(missed)) => {
                    telemetry::watcher_missed(missed);
                    Some(Item::Missed(missed))
                }
            };
            future::ready(item.map(|item| Ok(v1::WatchDecisionsResponse { item: Some(item) })))
        });
        Ok(Response::new(Box::pin(items.take_until(self.stop.clone().cancelled_owned()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::partition::Value;

    #[test]
    fn a_page_token_names_the_last_key_and_survives_the_wire() {
        let key = PartitionKey {
            spec_id: 3,
            tuple: std::sync::Arc::from([None, Some(Value::Uuid(u128::MAX)), Some(Value::String("ü/".into()))]),
        };
        assert_eq!(untoken(&token(Some(&key))).unwrap(), Some(key));
        assert_eq!((token(None).as_str(), untoken("").unwrap()), ("", None));
    }

    #[test]
    fn a_page_holds_a_hundred_rows_unless_told_and_never_more_than_a_thousand() {
        assert_eq!([0, 1, 1000, 1001, u32::MAX].map(page_size), [100, 1, 1000, 1000, 1000]);
    }

    proptest::proptest! {
        #[test]
        fn no_page_token_panics(text in ".{0,64}") {
            let _ = untoken(&text);
        }
    }
}
