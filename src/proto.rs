//! The public protocol, `afterwrite.v1`, generated from `proto/`.

use std::marker::PhantomData;

use bytes::Buf;
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// Messages and clients, version 1.
#[allow(missing_docs, clippy::all, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub mod v1 {
    tonic::include_proto!("afterwrite.v1");
}

/// Services, version 1.
#[allow(missing_docs, clippy::all, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub mod services {
    include!(concat!(env!("OUT_DIR"), "/services/afterwrite.v1.rs"));
}

/// The protocol's descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/afterwrite.v1.bin"));

/// What the services read.
pub trait Read: Sized {
    /// A message from its bytes.
    ///
    /// # Errors
    /// When they are not such a message.
    fn read(bytes: impl Buf) -> Result<Self, DecodeError>;
}

impl<M: Message + Default> Read for M {
    fn read(bytes: impl Buf) -> Result<Self, DecodeError> {
        M::decode(bytes)
    }
}

/// A `SequencedEvent` as a service reads it: one that is garbage is an answer of its
/// own, and the stream goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequenced {
    /// The sender's number; 0 when what could be read holds none.
    pub seq: u64,
    /// The event, or why there is none.
    pub event: Result<v1::CommitEvent, String>,
}

impl Read for Sequenced {
    fn read(bytes: impl Buf) -> Result<Self, DecodeError> {
        let mut message = v1::SequencedEvent::default();
        let event = match message.merge(bytes) {
            Ok(()) => message.event.ok_or_else(|| "event: it is not set".to_owned()),
            Err(error) => Err(unread(&error)),
        };
        Ok(Self { seq: message.seq, event })
    }
}

/// Protobuf, where a message that cannot be read is its sender's fault and is told so.
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Read + Send + 'static> tonic::codec::Codec for Codec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Reader<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Reader(PhantomData)
    }
}

/// The reading half of [`Codec`].
pub struct Reader<U>(PhantomData<U>);

impl<U: Read> Decoder for Reader<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // all of it, read or not: what is left would be taken for the next message
        let whole = bytes.copy_to_bytes(bytes.remaining());
        U::read(whole).map(Some).map_err(|error| Status::invalid_argument(unread(&error)))
    }
}

fn unread(error: &DecodeError) -> String {
    format!("the message is not what the method takes: {error}; `afterwrite.v1` tells, which reflection serves")
}
