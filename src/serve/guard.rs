//! The bearer token.

use std::fmt;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// A secret that callers must show. Never printed.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token; `None` when the text is empty or holds anything but visible
    /// ASCII, which no HTTP header could carry.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// The value of the `authorization` header that shows it.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Compares in a time that does not depend on where they differ.
    fn is_shown_by(&self, header: &[u8]) -> bool {
        let Some((scheme, shown)) = header.split_at_checked("bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(shown.ct_eq(self.0.as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why a call without the token is not taken.
const NONE_SHOWN: &str = "no token was sent: send the header `authorization: Bearer <token>`";
const NOT_OURS: &str = "the token is not the server's";

/// Lets a call pass that shows the token, or any when there is none.
#[derive(Clone, Debug)]
pub(super) struct Guard(pub(super) Option<Token>);

impl Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(token) = &self.0 else { return Ok(request) };
        match request.metadata().get("authorization") {
            None => Err(Status::unauthenticated(NONE_SHOWN)),
            Some(header) if token.is_shown_by(header.as_bytes()) => Ok(request),
            Some(_) => Err(Status::unauthenticated(NOT_OURS)),
        }
    }
}

/// The same over HTTP.
pub(super) async fn pass(State(guard): State<Guard>, request: axum::extract::Request, next: Next) -> Response {
    let Some(token) = &guard.0 else { return next.run(request).await };
    let why = match request.headers().get(header::AUTHORIZATION) {
        None => NONE_SHOWN,
        Some(shown) if token.is_shown_by(shown.as_bytes()) => return next.run(request).await,
        Some(_) => NOT_OURS,
    };
    let said = axum::Json(serde_json::json!({ "error": why }));
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], said).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_passes() {
        let token = Token::new("s3cret").unwrap();
        let headers: [&[u8]; 7] =
            [b"Bearer s3cret", b"bearer s3cret", b"Bearer s3cre", b"Bearer s3crett", b"Bearer ", b"s3cret", b"Basic s3cret"];
        assert_eq!(headers.map(|h| token.is_shown_by(h)), [true, true, false, false, false, false, false]);
    }

    #[test]
    fn a_token_is_never_printed_and_never_empty() {
        assert_eq!(format!("{:?}", Token::new("s3cret").unwrap()), "Token(…)");
        assert!(["", "  ", "a b", "ü"].map(Token::new).iter().all(Option::is_none));
    }
}
