//! What a caller is told of a request that is not as gRPC frames it: the transport
//! says "internal" of bytes that it cannot take apart, and "out of range" of too many.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower_service::Service;

/// What the transport's words begin with when a message's frame is at fault. Of a
/// compressed message without a named compression gRPC demands "internal".
const FRAMES: [&str; 4] = [
    "protocol error: received message with invalid compression flag",
    "Unexpected EOF decoding stream",
    "Missing request message",
    "Error decompressing",
];

/// The status to send in place of the transport's.
pub(super) fn told(status: Status) -> Status {
    let text = status.message();
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(text),
        Code::Internal if FRAMES.iter().any(|f| text.starts_with(f)) => {
            Status::invalid_argument(format!("the request is not one gRPC message: {text}"))
        }
        _ => status,
    }
}

/// A service whose calls end with the status that [`told`] makes of theirs, when they
/// end before they have answered anything.
#[derive(Clone)]
pub(super) struct Plain<S>(pub(super) S);

impl<S: NamedService> NamedService for Plain<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<Request<B>> for Plain<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            match Status::from_header_map(answer.headers()) {
                Some(status) if status.code() != Code::Ok => Ok(told(status).into_http()),
                _ => Ok(answer),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_services_say_themselves_is_said_as_it_is() {
        let said = |status: Status| (status.code(), status.message().to_owned());
        for status in [Status::internal("a defect"), Status::not_found("no table"), Status::unavailable("later")] {
            assert_eq!(said(told(status.clone())), said(status));
        }
        assert_eq!(said(told(Status::out_of_range("too large"))), (Code::ResourceExhausted, "too large".into()));
    }
}
