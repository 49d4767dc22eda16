//! Shutting out a commit whose request was lost.
//!
//! A catalog that compares heads applies a lost request for as long as the branch
//! stands where the request asserts it. But its snapshot has a sequence number, and
//! the format forbids to add one whose number is taken. So the number is taken: by a
//! snapshot that the same commit adds and removes again, of which nothing stays but
//! the higher number. Then a snapshot with the taken number is offered, to see that
//! the catalog does refuse it.

use hyper::Method;
use hyper::header::HeaderMap;
use iceberg::spec::{FormatVersion, Operation, Snapshot, Summary, TableMetadata};
use iceberg::{TableRequirement, TableUpdate};
use serde::Deserialize;

use super::LARGEST_METADATA;
use super::answer::{Verdict, classify};
use super::client::Client;
use super::config::Config;
use crate::lake::Result;
use crate::lake::asserted::AssertedHead;
use crate::lake::iceberg::catalog::Loaded;
use crate::lake::iceberg::commit::parentless;
use crate::lake::iceberg::lineage;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Answered {
    metadata: Numbered,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Numbered {
    last_sequence_number: i64,
}

/// Whether every request that asserted this head and was sent before is shut out.
///
/// Invariants checked:
/// * the branch stands at the asserted head, in the very commit that takes the
///   number: no such request has landed;
/// * the catalog answers that the number is taken;
/// * it refuses another snapshot with a number that is taken, and says that this is
///   why: any other refusal proves nothing;
/// * no snapshot is listed that may descend from one of ours.
///
/// A crash leaves at most a higher sequence number, which has no meaning of its own.
///
/// # Errors
/// When the catalog did not say what became of a request: nothing is proven.
pub async fn fence(client: &Client, config: &Config, table: &Loaded, asserted: &AssertedHead) -> Result<bool> {
    let metadata = table.metadata.as_ref();
    let head = metadata.snapshot_for_ref(&asserted.reference);
    let (Some(taken), Some(head)) = (asserted.sequence_number, head) else { return Ok(false) };
    if metadata.format_version() == FormatVersion::V1 || Some(head.snapshot_id()) != asserted.snapshot_id {
        return Ok(false);
    }
    let (Some(wanted), Some(free)) = (taken.checked_add(1), metadata.last_sequence_number().checked_add(1)) else { return Ok(false) };
    let uuid = TableRequirement::UuidMatch { uuid: metadata.uuid() };
    let stands = TableRequirement::RefSnapshotIdMatch { r#ref: asserted.reference.clone(), snapshot_id: asserted.snapshot_id };
    if parentless(metadata, |s| s.sequence_number() <= taken).is_some() {
        return Ok(false);
    }
    let asserts = [uuid, stands];
    let mut top = metadata.last_sequence_number();
    if top < wanted {
        if ask(client, config, table, &asserts, &passing(client, metadata, head, free), wanted).await? != Said::Applied {
            return Ok(false);
        }
        top = free;
    }
    // the highest number: a catalog that takes it all the same does not fall behind itself
    let said = ask(client, config, table, &asserts, &passing(client, metadata, head, top), top).await?;
    Ok(matches!(said, Said::Refused(why) if why.contains("sequence number")))
}

/// What a catalog said to a commit.
#[derive(PartialEq, Eq)]
enum Said {
    Applied,
    Refused(String),
}

/// A snapshot that comes and goes in one commit: the head's own files once more.
fn passing(client: &Client, metadata: &TableMetadata, head: &Snapshot, sequence: i64) -> Vec<TableUpdate> {
    let mut id = i64::try_from(client.chance.next() >> 1).unwrap_or(1).max(1);
    while metadata.snapshot_by_id(id).is_some() {
        id = id.checked_add(1).unwrap_or(1);
    }
    let summary = Summary { operation: Operation::Replace, additional_properties: Default::default() };
    let snapshot = Snapshot::builder()
        .with_snapshot_id(id)
        .with_parent_snapshot_id(Some(head.snapshot_id()))
        .with_sequence_number(sequence)
        .with_timestamp_ms(client.clock.now_ms().max(metadata.last_updated_ms()))
        .with_manifest_list(head.manifest_list().to_owned())
        .with_summary(summary)
        .with_schema_id(metadata.current_schema_id());
    let snapshot = match lineage::is_kept(metadata) {
        true => snapshot.with_row_range(metadata.next_row_id(), 0).build(),
        false => snapshot.build(),
    };
    vec![TableUpdate::AddSnapshot { snapshot }, TableUpdate::RemoveSnapshots { snapshot_ids: vec![id] }]
}

/// What the catalog says to a commit, after which at least this number is taken.
async fn ask(
    client: &Client,
    config: &Config,
    table: &Loaded,
    requirements: &[TableRequirement],
    updates: &[TableUpdate],
    taken: i64,
) -> Result<Said> {
    let address = config.paths.table(&table.name);
    let body = serde_json::json!({ "requirements": requirements, "updates": updates });
    let body = serde_json::to_vec(&body).map_err(|e| client.setup(&address, e.to_string()))?;
    let request = client.request(Method::POST, &address, body.into(), &HeaderMap::new()).await?;
    let connection = client.http.connect(request.uri()).await.map_err(|why| client.unreachable(&address, why))?;
    let answered = connection.send(request, LARGEST_METADATA).await.map_err(|why| client.unreachable(&address, why))?;
    match classify(answered.status, &answered.body) {
        Verdict::Accepted => {
            let answer: Answered = client.parse(&address, &answered.body)?;
            match answer.metadata.last_sequence_number >= taken {
                true => Ok(Said::Applied),
                false => Err(client.unreachable(&address, format!("sequence number {taken} was not taken"))),
            }
        }
        Verdict::Moved(why) | Verdict::Refused(why) => Ok(Said::Refused(why)),
        Verdict::Unauthorized { why, .. } | Verdict::Unknown(why) => Err(client.unreachable(&address, why)),
    }
}
