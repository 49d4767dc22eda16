//! Garbage, floods and oversized messages: a clear status, nothing disturbed.

use afterwrite::proto::v1;
use afterwrite::proto::v1::ack::Status;
use bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::*;

/// Sends bytes as they are and reads an answer as it is.
#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;
    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

async fn send(running: &Running, message: Bytes) -> Result<tonic::Response<Bytes>, tonic::Status> {
    send_raw(channel(running).await, message).await
}

/// Reports a commit in bytes of one's own.
pub async fn send_raw(channel: tonic::transport::Channel, message: Bytes) -> Result<tonic::Response<Bytes>, tonic::Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = "/afterwrite.v1.CommitHook/ReportCommit".parse().unwrap();
    grpc.unary(tonic::Request::new(message), path, Raw).await
}

async fn works(running: &Running) {
    let answer = hook(running).await.report_commit(thin("lake.db.t")).await.unwrap().into_inner();
    assert_eq!(answer.status(), Status::Accepted);
}

#[tokio::test]
async fn a_message_of_ten_megabytes_is_refused_and_nothing_is_disturbed() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut hook = hook(&running).await;
    let refused = hook.report_commit(thin(&"x".repeat(10 << 20))).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    assert!(refused.message().contains("the limit is: 4194304 bytes"), "{refused}");
    assert_eq!(hook.report_commit(thin("lake.db.t")).await.unwrap().into_inner().status(), Status::Accepted, "the same connection goes on");
    works(&running).await;
    assert_eq!(fake.heard.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn an_oversized_message_ends_its_stream_only() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let events =
        [thin("lake.db.t"), thin(&"x".repeat(5 << 20)), thin("lake.db.t")].map(|event| v1::SequencedEvent { seq: 1, event: Some(event) });
    let mut acks = hook(&running).await.report_commits(tokio_stream::iter(events)).await.unwrap().into_inner();
    assert_eq!(acks.message().await.unwrap().unwrap().status(), Status::Accepted);
    assert_eq!(acks.message().await.unwrap_err().code(), Code::OutOfRange);
    works(&running).await;
}

#[tokio::test]
async fn a_garbage_message_is_refused_and_nothing_is_disturbed() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\x0a\x7f", b"\x0a\x02\xff\xfe", b"{\"table\": \"lake.db.t\"}"] {
        let refused = send(&running, Bytes::from_static(garbage)).await.unwrap_err();
        assert!(matches!(refused.code(), Code::Internal | Code::InvalidArgument), "{garbage:?}: {refused}");
        assert!(refused.message().contains("decode"), "{garbage:?}: {refused}");
    }
    assert_eq!(fake.heard.lock().unwrap().len(), 0);
    works(&running).await;
}

#[tokio::test]
async fn an_empty_message_names_no_table_and_an_unknown_field_is_passed_over() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    assert_eq!(send(&running, Bytes::new()).await.unwrap_err().code(), Code::InvalidArgument);
    let newer = b"\x0a\x09lake.db.t\xf2\x3f\x03new";
    assert!(send(&running, Bytes::from_static(newer)).await.is_ok(), "a newer client's field is no error");
}

#[tokio::test]
async fn garbage_bytes_on_the_port_disturb_nobody() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut held = Vec::new();
    for garbage in
        [&b"\0\0\0"[..], b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff", &[0xab; 65536]]
    {
        let mut stream = TcpStream::connect(running.grpc_addr()).await.unwrap();
        let _ = stream.write_all(garbage).await;
        held.push(stream);
    }
    works(&running).await;
    let mut answer = Vec::new();
    let last = held.last_mut().unwrap();
    let _ = tokio::time::timeout(LONG, last.read_to_end(&mut answer)).await.expect("a connection that speaks no HTTP/2 is closed");
    works(&running).await;
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut grpc = tonic::client::Grpc::new(channel(&running).await);
    grpc.ready().await.unwrap();
    let path = "/afterwrite.v1.CommitHook/Erase".parse().unwrap();
    assert_eq!(grpc.unary(tonic::Request::new(Bytes::new()), path, Raw).await.unwrap_err().code(), Code::Unimplemented);
}
