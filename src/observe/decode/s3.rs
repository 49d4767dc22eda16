//! Notifications of object stores: S3 (over SQS, SNS or Kafka), MinIO (over Kafka
//! or as a webhook), EventBridge.
//!
//! Only a new metadata file matters. It is written before the catalog's pointer
//! moves, and one whose commit lost the race stays for ever: the most that it can
//! mean is a look at the table that lies there.

use serde::Deserialize;

use super::json::read;
use super::{Decoded, Draft, Where, unescape_form};
use crate::model::event::Certainty;

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "Records")]
    records: Option<Vec<Notice>>,
    /// The first message of a queue.
    #[serde(rename = "Event")]
    event: Option<String>,
    /// SNS wraps the body in a text.
    #[serde(rename = "Message")]
    message: Option<String>,
    /// EventBridge.
    #[serde(rename = "detail-type")]
    detail_type: Option<String>,
    detail: Option<Detail>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notice {
    event_name: String,
    s3: Option<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    bucket: Bucket,
    object: Object,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
struct Object {
    key: String,
}

pub(super) fn decode(value: &[u8]) -> Decoded {
    match read::<Body>(value)? {
        Body { message: Some(inner), records: None, .. } => body(read(inner.as_bytes())?),
        outer => body(outer),
    }
}

fn body(body: Body) -> Decoded {
    match body {
        Body { records: Some(records), .. } => Ok(records.into_iter().filter_map(notice).collect()),
        Body { detail: Some(detail), detail_type: Some(kind), .. } => {
            let made = kind == "Object Created";
            Ok(made.then(|| draft(&detail.bucket.name, &detail.object.key)).flatten().into_iter().collect())
        }
        Body { event: Some(test), .. } if test == "s3:TestEvent" => Ok(Vec::new()),
        _ => Err("it holds neither `Records` nor `detail`".into()),
    }
}

fn notice(notice: Notice) -> Option<Draft> {
    let name = notice.event_name.strip_prefix("s3:").unwrap_or(&notice.event_name);
    let detail = notice.s3.filter(|_| name.starts_with("ObjectCreated:"))?;
    draft(&detail.bucket.name, &unescape_form(&detail.object.key))
}

fn draft(bucket: &str, key: &str) -> Option<Draft> {
    let is_metadata = key.ends_with(".metadata.json") || key.ends_with(".metadata.json.gz");
    is_metadata.then(|| Draft::of(Where::At { location: format!("s3://{bucket}/{key}"), or: None }, Certainty::Hint))
}
