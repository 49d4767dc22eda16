//! Garbage, floods and oversized messages: a clear status, nothing disturbed.

use afterwrite::proto::v1;
use afterwrite::proto::v1::ack::Status;
use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tower_service::Service;

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
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
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
    assert_eq!(acks.message().await.unwrap_err().code(), Code::ResourceExhausted);
    works(&running).await;
}

#[tokio::test]
async fn a_garbage_message_is_refused_and_nothing_is_disturbed() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let read = "the message is not what the method takes: failed to decode Protobuf message: ";
    for (garbage, what) in [
        (&b"\xff\xff\xff\xff"[..], "invalid varint"),
        (b"\x0a\x7f", "CommitEvent.table: buffer underflow"),
        (b"\x0a\x02\xff\xfe", "CommitEvent.table: invalid string value: data is not UTF-8 encoded"),
        (b"{\"table\": \"lake.db.t\"}", ""),
    ] {
        let refused = send(&running, Bytes::from_static(garbage)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{garbage:?}: {refused}");
        assert!(refused.message().starts_with(&format!("{read}{what}")), "{garbage:?}: {refused}");
    }
    let mut grpc = tonic::client::Grpc::new(channel(&running).await);
    grpc.ready().await.unwrap();
    let path = "/afterwrite.v1.Layout/GetLayout".parse().unwrap();
    let refused = grpc.unary(tonic::Request::new(Bytes::from_static(b"\xff")), path, Raw).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert_eq!(fake.heard.lock().unwrap().len(), 0);
    works(&running).await;
}

#[tokio::test]
async fn a_garbage_message_of_a_stream_is_rejected_by_its_number_and_the_stream_goes_on() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let good = |seq, table| v1::SequencedEvent { seq, event: Some(thin(table)) }.encode_to_vec();
    let messages = [
        good(1, "lake.db.a"),
        b"\x08\x07\x12\x7f".to_vec(),
        b"\xff\xff".to_vec(),
        // what follows the fault would read as an empty message, a large one, and no message
        b"\x08\x08\x12\x7f\0\0\0\0\0".to_vec(),
        b"\x08\x09\x12\x7f\0\0\x3f\xff\xff".to_vec(),
        b"\x08\x0a\x12\x05\x0a\x01\xff\x10\x01".to_vec(),
        good(4, "lake.db.b"),
    ]
    .map(Bytes::from);
    let mut grpc = tonic::client::Grpc::new(channel(&running).await);
    grpc.ready().await.unwrap();
    let path = "/afterwrite.v1.CommitHook/ReportCommits".parse().unwrap();
    let request = tonic::Request::new(tokio_stream::iter(messages));
    let mut answers = grpc.streaming(request, path, Raw).await.unwrap().into_inner();
    let mut acks = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        acks.push(v1::Ack::decode(answer).unwrap());
    }
    let seen: Vec<_> = acks.iter().map(|ack| (ack.seq, ack.status())).collect();
    let rejected = [7, 0, 8, 9, 10].map(|seq| (seq, Status::Rejected));
    assert_eq!(seen, [&[(1, Status::Accepted)], &rejected[..], &[(4, Status::Accepted)]].concat());
    let why = "the message is not what the method takes: failed to decode Protobuf message: SequencedEvent.event: buffer underflow";
    assert!(acks[1].reason.starts_with(why), "{}", acks[1].reason);
    assert_eq!(fake.heard.lock().unwrap().len(), 2);
}

/// The status that answers a body sent in one HTTP/2 request as it is.
async fn framed(running: &Running, method: &str, body: &'static [u8]) -> tonic::Status {
    let request = tonic::codegen::http::Request::post(format!("http://{}/afterwrite.v1.CommitHook/{method}", running.grpc_addr()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(http_body_util::Full::new(Bytes::from_static(body))))
        .unwrap();
    let mut channel = channel(running).await;
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    let answer = channel.call(request).await.unwrap();
    let begun = tonic::Status::from_header_map(answer.headers());
    let ended = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
    begun.or_else(|| tonic::Status::from_header_map(ended.trailers()?)).expect("it ends with a status")
}

#[tokio::test]
async fn what_is_no_frame_of_a_message_is_refused_and_nothing_is_disturbed() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    for method in ["ReportCommit", "ReportCommits"] {
        for (body, what) in [
            (&b"\x08\0\0\0\0"[..], "protocol error: received message with invalid compression flag: 8"),
            (b"\0\0\0\0\x09short", "Unexpected EOF decoding stream."),
        ] {
            let refused = framed(&running, method, body).await;
            assert_eq!(refused.code(), Code::InvalidArgument, "{method} {body:?}: {refused}");
            assert!(refused.message().starts_with(&format!("the request is not one gRPC message: {what}")), "{method}: {refused}");
        }
    }
    // what gRPC itself says of it
    let compressed = framed(&running, "ReportCommit", b"\x01\0\0\0\x01x").await;
    assert_eq!(compressed.code(), Code::Internal, "{compressed}");
    let nothing = framed(&running, "ReportCommit", b"").await;
    assert_eq!(nothing.code(), Code::InvalidArgument, "{nothing}");
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
