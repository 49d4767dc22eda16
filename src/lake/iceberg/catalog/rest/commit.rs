//! One commit: one request, whose answer is read with suspicion.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use iceberg::{TableRequirement, TableUpdate};
use serde::Deserialize;

use super::LARGEST_METADATA;
use super::answer::{Verdict, classify};
use super::client::{Client, copy};
use super::config::Config;
use super::http::{Request, Response};
use super::list;
use crate::lake::asserted::{Asserted, AssertedHead};
use crate::lake::iceberg::catalog::{Answer, Loaded};
use crate::lake::{Control, Error, Result};
use crate::model::killpoint::KillPoint;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The answer to a commit that landed.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Landed {
    metadata_location: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    #[serde(default)]
    snapshots: Vec<Snapshot>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Snapshot {
    snapshot_id: i64,
}

/// Asks for one commit.
///
/// Invariants checked:
/// * the requirements hold on the base: what cannot land is not asked for;
/// * the catalog is reached and a token is at hand before `control` is told that
///   it will be asked, so that most failures are proofs;
/// * the request is sent on a connection of its own, and by nothing sent again;
/// * success is believed only from a whole answer that lists our snapshot.
///
/// One case sends the same bytes a second time: credentials refused by 401 or 419
/// where new ones can be had. Those are checked before the request is looked at,
/// so the first was not applied; and if something in between had doubled it and
/// the other copy was, both copies carry the same snapshot, sequence number and
/// asserted head, of which a catalog applies at most one. It is still one attempt:
/// one attempt id tells what became of either copy.
///
/// A crash leaves no file of the catalog's metadata to us; what became of the
/// request is resolved by the attempt id in the table.
///
/// # Errors
/// Only before the catalog is asked.
pub async fn commit(
    client: &Client,
    config: &Config,
    base: &Loaded,
    requirements: &[TableRequirement],
    updates: &[TableUpdate],
    control: &dyn Control,
) -> Result<Answer> {
    if requirements.iter().any(|r| r.check(Some(&base.metadata)).is_err()) {
        return Ok(Answer::Moved);
    }
    let address = config.paths.table(&base.name);
    let body = serde_json::json!({ "requirements": requirements, "updates": updates });
    let body = serde_json::to_vec(&body).map_err(|e| client.setup(&address, format!("the commit cannot be written: {e}")))?;
    let extra = if config.idempotent { key(client)? } else { HeaderMap::new() };
    let request = client.request(Method::POST, &address, body.clone().into(), &extra).await?;
    let connection = client.http.connect(request.uri()).await.map_err(|why| client.unreachable(&address, why))?;
    control.will_commit(&asserted(base, requirements, updates).to_string()).await?;
    control.reached(KillPoint::MetadataWritten);

    let sent = copy(&request);
    let answered = connection.send(request, LARGEST_METADATA).await;
    let (status, answer) = match answered {
        Ok(answered) if matches!(answered.status, 401 | 419) && client.auth.refused(&sent).await => {
            match again(client, &address, body.into(), &extra).await {
                Ok(Ok(answered)) => (answered.status, answered.body),
                Ok(Err(why)) => return Ok(Answer::Unknown(format!("catalog `{}`: {why}", client.name))),
                // not sent again: the first answer stands
                Err(error) => {
                    tracing::warn!(catalog = client.name, %error, "a commit whose credentials were refused is not asked for again");
                    (answered.status, answered.body)
                }
            }
        }
        Ok(answered) => (answered.status, answered.body),
        Err(why) => return Ok(Answer::Unknown(format!("catalog `{}`: {why}", client.name))),
    };
    let verdict = classify(status, &answer);
    match verdict {
        Verdict::Moved(why) if !has_moved(client, config, base).await => {
            let why = format!("{why}, yet nothing has moved: another copy of the request may be worked on");
            Ok(Answer::Unknown(format!("catalog `{}`: {why}", client.name)))
        }
        verdict => Ok(arm(client, verdict, &answer, updates)),
    }
}

/// Whether somebody was faster. Each commit moves the metadata location; a conflict
/// while it stands still may be that of a second copy of the request, made by
/// something in between, while the first is still worked on.
async fn has_moved(client: &Client, config: &Config, base: &Loaded) -> bool {
    let found = list::location(client, config, &base.name).await;
    // what cannot be seen has not moved
    found.is_ok_and(|location| location.as_deref() != Some(base.metadata_location.as_str()))
}

/// The same request with new credentials; the outer error is proof that it was not
/// sent.
async fn again(client: &Client, address: &str, body: Bytes, extra: &HeaderMap) -> Result<std::result::Result<Response, String>> {
    let request: Request = client.request(Method::POST, address, body, extra).await?;
    let connection = client.http.connect(request.uri()).await.map_err(|why| client.unreachable(address, why))?;
    Ok(connection.send(request, LARGEST_METADATA).await)
}

fn arm(client: &Client, verdict: Verdict, body: &[u8], updates: &[TableUpdate]) -> Answer {
    let told = |why: String| format!("catalog `{}`: {why}", client.name);
    match verdict {
        Verdict::Accepted => match landed(body, updates) {
            Ok(location) => Answer::Landed(location),
            Err(why) => Answer::Unknown(told(why)),
        },
        Verdict::Moved(why) => {
            tracing::debug!(catalog = client.name, why, "a commit was refused because the table moved");
            Answer::Moved
        }
        Verdict::Refused(why) | Verdict::Unauthorized { why, told: true } => Answer::Rejected(told(why)),
        Verdict::Unauthorized { why, told: false } | Verdict::Unknown(why) => Answer::Unknown(told(why)),
    }
}

/// The new metadata location, from a whole answer that lists what was added.
fn landed(body: &[u8], updates: &[TableUpdate]) -> std::result::Result<String, String> {
    let landed: Landed = serde_json::from_slice(body).map_err(|e| format!("200, but the answer cannot be read: {e}"))?;
    let listed = |id: i64| landed.metadata.snapshots.iter().any(|s| s.snapshot_id == id);
    for update in updates {
        if let TableUpdate::AddSnapshot { snapshot } = update
            && !listed(snapshot.snapshot_id())
        {
            return Err(format!("200, but the answer does not list snapshot {}", snapshot.snapshot_id()));
        }
    }
    Ok(landed.metadata_location)
}

/// What the request depends on: the head that it asserts, and the sequence number
/// that its snapshot takes.
fn asserted(base: &Loaded, requirements: &[TableRequirement], updates: &[TableUpdate]) -> Asserted {
    let adds = updates.iter().any(|u| matches!(u, TableUpdate::AddSnapshot { .. }));
    let sequence_number = adds.then(|| base.metadata.last_sequence_number());
    let head = requirements.iter().find_map(|r| match r {
        TableRequirement::RefSnapshotIdMatch { r#ref, snapshot_id } => {
            Some(AssertedHead { reference: r#ref.clone(), snapshot_id: *snapshot_id, sequence_number })
        }
        _ => None,
    });
    Asserted { metadata_location: base.metadata_location.clone(), head }
}

/// A key by which the catalog knows a commit again.
fn key(client: &Client) -> Result<HeaderMap> {
    let (high, low) = (client.chance.next().to_be_bytes(), client.chance.next().to_be_bytes());
    let mut random = [0; 10];
    random.iter_mut().zip(high.iter().chain(&low)).for_each(|(to, from)| *to = *from);
    let millis = u64::try_from(client.clock.now_ms()).unwrap_or(0);
    let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
    let value = HeaderValue::from_str(&uuid.to_string()).map_err(|e| Error::Setup(e.to_string()))?;
    Ok(HeaderMap::from_iter([(IDEMPOTENCY_KEY, value)]))
}

#[cfg(test)]
mod tests {
    use iceberg::spec::{Operation, Snapshot as Spec, Summary};

    use super::*;

    fn adds(id: i64) -> Vec<TableUpdate> {
        let summary = Summary { operation: Operation::Replace, additional_properties: Default::default() };
        let snapshot = Spec::builder().with_snapshot_id(id).with_sequence_number(1).with_timestamp_ms(1).with_manifest_list("m");
        vec![TableUpdate::AddSnapshot { snapshot: snapshot.with_summary(summary).build() }]
    }

    #[test]
    fn success_is_believed_only_from_an_answer_that_lists_our_snapshot() {
        let whole = r#"{"metadata-location":"m2","metadata":{"snapshots":[{"snapshot-id":7},{"snapshot-id":9007199254740993}]}}"#;
        assert_eq!(landed(whole.as_bytes(), &adds(9_007_199_254_740_993)), Ok("m2".into()));
        assert!(landed(whole.as_bytes(), &adds(8)).is_err_and(|why| why.contains("snapshot 8")));
        for cut in 0..whole.len() {
            assert!(landed(&whole.as_bytes()[..cut], &adds(7)).is_err(), "{}", &whole[..cut]);
        }
        assert!(landed(br#"{"metadata":{"snapshots":[{"snapshot-id":7}]}}"#, &adds(7)).is_err());
        assert!(landed(b"<html>ok</html>", &adds(7)).is_err());
    }
}
