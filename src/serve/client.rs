//! Calls a sidecar that runs: for the command line.

use std::path::Path;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use super::guard::Token;
use super::tls::settle_provider;
use crate::proto::v1;
use crate::proto::v1::commit_hook_client::CommitHookClient;
use crate::proto::v1::layout_client::LayoutClient;

/// Why a sidecar did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("server `{0}` is not an address; write it like `http://127.0.0.1:7411` or `https://host:7411`")]
    Address(String),
    /// The certificate file cannot be used.
    #[error("certificate {0}")]
    Certificate(String),
    /// It cannot be reached.
    #[error("no sidecar answers at {server}: {why}; start one with `afterwrite serve`, or name another with --server")]
    Unreachable {
        /// Its address.
        server: String,
        /// The cause.
        why: String,
    },
    /// It answered with an error.
    #[error("{server} answered {code:?}: {message}")]
    Answered {
        /// Its address.
        server: String,
        /// The gRPC status.
        code: tonic::Code,
        /// Its words.
        message: String,
    },
}

/// Where a sidecar is and how to speak to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// `http://…` or `https://…`.
    pub server: String,
    /// The token to show.
    pub token: Option<Token>,
    /// A PEM file with the certificates to trust, in place of the system's.
    pub ca: Option<std::path::PathBuf>,
}

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Shows the token with every call.
#[derive(Clone)]
pub struct Shown(Option<MetadataValue<Ascii>>);

impl Interceptor for Shown {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}

/// A connection to a sidecar.
pub struct Client {
    server: String,
    channel: InterceptedService<Channel, Shown>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When the address cannot be read or nobody answers there.
    pub async fn connect(target: &Target) -> Result<Self, Error> {
        let server = target.server.clone();
        let endpoint = Endpoint::from_shared(server.clone()).map_err(|_| Error::Address(server.clone()))?.connect_timeout(PATIENCE);
        let endpoint = if server.starts_with("https://") {
            settle_provider();
            let tls = match &target.ca {
                Some(path) => ClientTlsConfig::new().ca_certificate(certificate(path).await?),
                None => ClientTlsConfig::new().with_enabled_roots(),
            };
            endpoint.tls_config(tls).map_err(|e| Error::Certificate(e.to_string()))?
        } else if server.starts_with("http://") {
            endpoint
        } else {
            return Err(Error::Address(server));
        };
        let channel = endpoint.connect().await.map_err(|e| Error::Unreachable { server: server.clone(), why: causes(&e) })?;
        let header = target.token.as_ref().and_then(|t| t.header().parse().ok());
        Ok(Self { server, channel: InterceptedService::new(channel, Shown(header)) })
    }

    /// Reports a commit.
    ///
    /// # Errors
    /// When the sidecar does not take the event.
    pub async fn report(&self, event: v1::CommitEvent) -> Result<v1::Ack, Error> {
        let mut hook = CommitHookClient::new(self.channel.clone());
        self.answer(hook.report_commit(timed(event)).await)
    }

    /// Asks for the last decisions on a table.
    ///
    /// # Errors
    /// When the sidecar does not answer the question.
    pub async fn why(&self, table: &str, partition: &str) -> Result<Vec<v1::Decision>, Error> {
        self.why_on(table, "", partition).await
    }

    /// The same on a branch; on `main` when that is empty.
    ///
    /// # Errors
    /// As [`Client::why`].
    pub async fn why_on(&self, table: &str, branch: &str, partition: &str) -> Result<Vec<v1::Decision>, Error> {
        let ask = v1::WhyRequest { table: table.to_owned(), path: None, partition: partition.to_owned(), r#ref: branch.to_owned() };
        let answer = self.answer(LayoutClient::new(self.channel.clone()).why(timed(ask)).await)?;
        Ok(answer.decisions)
    }

    /// Follows decisions as they are made, of one table or, when it is empty, of all.
    ///
    /// # Errors
    /// When the sidecar does not take the call.
    pub async fn watch(&self, table: &str) -> Result<tonic::Streaming<v1::WatchDecisionsResponse>, Error> {
        let ask = v1::WatchDecisionsRequest { table: table.to_owned() };
        self.answer(LayoutClient::new(self.channel.clone()).watch_decisions(ask).await)
    }

    /// Asks for what waits.
    ///
    /// # Errors
    /// When the sidecar does not answer.
    pub async fn backlog(&self) -> Result<v1::GetBacklogResponse, Error> {
        self.answer(LayoutClient::new(self.channel.clone()).get_backlog(timed(v1::GetBacklogRequest {})).await)
    }

    /// Asks for the best candidates.
    ///
    /// # Errors
    /// When the sidecar does not answer.
    pub async fn candidates(&self, limit: u32) -> Result<Vec<v1::Candidate>, Error> {
        let ask = v1::ListCandidatesRequest { limit };
        Ok(self.answer(LayoutClient::new(self.channel.clone()).list_candidates(timed(ask)).await)?.candidates)
    }

    /// Asks for every source of events.
    ///
    /// # Errors
    /// When the sidecar does not answer.
    pub async fn doors(&self) -> Result<Vec<v1::Door>, Error> {
        let answer = self.answer(LayoutClient::new(self.channel.clone()).list_doors(timed(v1::ListDoorsRequest {})).await)?;
        Ok(answer.doors)
    }

    fn answer<T>(&self, answer: Result<tonic::Response<T>, Status>) -> Result<T, Error> {
        answer.map(tonic::Response::into_inner).map_err(|status| self.answered(&status))
    }

    /// A status of this sidecar, as an error that names it.
    pub fn answered(&self, status: &Status) -> Error {
        Error::Answered { server: self.server.clone(), code: status.code(), message: status.message().to_owned() }
    }
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}

async fn certificate(path: &Path) -> Result<Certificate, Error> {
    let pem = tokio::fs::read(path).await.map_err(|e| Error::Certificate(format!("{}: {e}", path.display())))?;
    Ok(Certificate::from_pem(pem))
}

/// An error with its causes: the outermost alone says only "transport error".
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        // some causes say no more than what they caused
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
