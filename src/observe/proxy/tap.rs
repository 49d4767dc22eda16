//! A bounded copy of a body. What is too large to be kept passes through; a tap
//! that fails never fails a request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Any error on the way of a body.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// A body without bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is known.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// How many bytes may be kept at one time by all requests together.
#[derive(Clone, Debug)]
pub struct Room {
    used: Arc<AtomicUsize>,
    most: usize,
}

impl Room {
    /// Room for `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { used: Arc::default(), most }
    }

    /// Bytes kept now.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    fn take(&self, bytes: usize) -> bool {
        let taken =
            self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| used.checked_add(bytes).filter(|sum| *sum <= self.most));
        taken.is_ok()
    }
}

/// A part of the room, given back when dropped.
#[derive(Debug)]
pub struct Held {
    room: Room,
    bytes: usize,
}

impl Held {
    /// Takes more room; false, and nothing is taken, when there is none.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let fits = self.room.take(bytes);
        if fits {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        fits
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// What was kept of a body.
pub enum Kept {
    /// All of it.
    Whole(Bytes, Held),
    /// More than may be kept: the whole body, to be passed through.
    Large(Body),
    /// It broke off: what came before, and why.
    Broken(Bytes, Error),
}

/// Keeps a body of at most `limit` bytes, while the room has space.
pub async fn keep<B>(body: B, limit: usize, room: &Room) -> Kept
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Error>,
{
    let mut body = body;
    let mut kept = BytesMut::new();
    let mut held = Held { room: room.clone(), bytes: 0 };
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Kept::Large(body.map_err(Into::into).boxed_unsync());
    }
    loop {
        let data = match body.frame().await {
            None => return Kept::Whole(kept.freeze(), held),
            Some(Err(error)) => return Kept::Broken(kept.freeze(), error.into()),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        let fits = kept.len().saturating_add(data.len()) <= limit && held.grow(data.len());
        kept.extend_from_slice(&data);
        if !fits {
            return Kept::Large(chain(kept.freeze(), Some(body), None));
        }
    }
}

/// What came of a body that broke off, and the break.
pub fn broken(before: Bytes, error: Error) -> Body {
    chain::<Empty<Bytes>>(before, None, Some(error))
}

fn chain<B>(first: Bytes, rest: Option<B>, error: Option<Error>) -> Body
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Error>,
{
    Chain { first: Some(first).filter(|f| !f.is_empty()), rest, error }.boxed_unsync()
}

/// Bytes, then a body, then perhaps an error.
struct Chain<B> {
    first: Option<Bytes>,
    rest: Option<B>,
    error: Option<Error>,
}

impl<B> HttpBody for Chain<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Some(rest) = self.rest.as_mut() {
            match Pin::new(rest).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(frame)) => return Poll::Ready(Some(frame.map_err(Into::into))),
                Poll::Ready(None) => self.rest = None,
            }
        }
        Poll::Ready(self.error.take().map(Err))
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, |f| u64::try_from(f.len()).unwrap_or(u64::MAX));
        match (self.rest.as_ref().map(HttpBody::size_hint), &self.error) {
            (Some(rest), None) => match rest.exact() {
                Some(exact) => SizeHint::with_exact(exact.saturating_add(first)),
                None => SizeHint::default(),
            },
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    fn pieces(pieces: &[&'static str], error: bool) -> impl HttpBody<Data = Bytes, Error = Error> + Send + Unpin + use<> {
        let mut frames: Vec<Result<Frame<Bytes>, Error>> =
            pieces.iter().map(|p| Ok(Frame::data(Bytes::from_static(p.as_bytes())))).collect();
        if error {
            frames.push(Err("cut".into()));
        }
        StreamBody::new(stream::iter(frames))
    }

    #[tokio::test]
    async fn a_body_within_the_limit_is_kept_and_its_room_given_back() {
        let room = Room::new(100);
        let Kept::Whole(bytes, held) = keep(pieces(&["ab", "", "cde"], false), 5, &room).await else { panic!("not whole") };
        assert_eq!((bytes.as_ref(), room.used()), (&b"abcde"[..], 5));
        drop(held);
        assert_eq!(room.used(), 0);
    }

    #[tokio::test]
    async fn a_larger_body_passes_whole_and_keeps_nothing() {
        let room = Room::new(100);
        let Kept::Large(body) = keep(pieces(&["abc", "def", "ghi"], false), 5, &room).await else { panic!("kept") };
        assert_eq!(room.used(), 0);
        assert_eq!(body.collect().await.unwrap().to_bytes().as_ref(), b"abcdefghi");
        let Kept::Large(known) = keep(Full::new(Bytes::from_static(b"abcdef")), 5, &room).await else { panic!("kept") };
        assert_eq!(known.size_hint().exact(), Some(6));
    }

    #[tokio::test]
    async fn requests_share_the_room() {
        let room = Room::new(6);
        let Kept::Whole(_, held) = keep(pieces(&["abcd"], false), 5, &room).await else { panic!("not whole") };
        let Kept::Large(second) = keep(pieces(&["abcd"], false), 5, &room).await else { panic!("kept beyond the room") };
        assert_eq!(second.collect().await.unwrap().to_bytes().len(), 4);
        drop(held);
        assert!(matches!(keep(pieces(&["abcd"], false), 5, &room).await, Kept::Whole(..)));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_told_from_one_that_ends() {
        let room = Room::new(100);
        let Kept::Broken(before, error) = keep(pieces(&["ab"], true), 5, &room).await else { panic!("not broken") };
        assert_eq!((before.as_ref(), error.to_string().as_str(), room.used()), (&b"ab"[..], "cut", 0));
        let mut again = broken(before, error);
        assert_eq!(again.frame().await.unwrap().unwrap().into_data().unwrap().as_ref(), b"ab");
        assert_eq!(again.frame().await.unwrap().unwrap_err().to_string(), "cut");
        assert!(again.frame().await.is_none());
    }
}
