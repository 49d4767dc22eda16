//! Reflection, so that `grpcurl` needs no files.

use tonic_reflection::pb::{v1, v1alpha};

use super::*;

const SERVICES: [&str; 4] = ["afterwrite.v1.CommitHook", "afterwrite.v1.Layout", "afterwrite.v1.Statistics", "grpc.health.v1.Health"];

#[tokio::test]
async fn every_service_is_listed_and_described_in_v1() {
    use v1::server_reflection_request::MessageRequest;
    use v1::server_reflection_response::MessageResponse;
    let running = running(&Fake::new(), &options()).await;
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel(&running).await);
    let ask = |request| v1::ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let asks = vec![
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("afterwrite.v1.CommitHook".into())),
    ];
    let mut answers = client.server_reflection_info(tokio_stream::iter(asks)).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) = answers.message().await.unwrap().unwrap().message_response else {
        panic!("no list")
    };
    let names: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
    assert!(SERVICES.iter().all(|s| names.iter().any(|n| n == s)), "{names:?}");
    let Some(MessageResponse::FileDescriptorResponse(file)) = answers.message().await.unwrap().unwrap().message_response else {
        panic!("no file")
    };
    assert!(!file.file_descriptor_proto.is_empty());
}

#[tokio::test]
async fn every_service_is_listed_in_v1alpha() {
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;
    let running = running(&Fake::new(), &options()).await;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel(&running).await);
    let ask = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(MessageRequest::ListServices(String::new())) };
    let mut answers = client.server_reflection_info(tokio_stream::iter([ask])).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) = answers.message().await.unwrap().unwrap().message_response else {
        panic!("no list")
    };
    let names: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
    assert!(SERVICES.iter().all(|s| names.iter().any(|n| n == s)), "{names:?}");
}
