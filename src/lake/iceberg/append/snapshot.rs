//! One try to add files to a table.

use std::collections::HashSet;

use iceberg::spec::{ManifestContentType, ManifestFile, Snapshot};
use iceberg::{TableRequirement, TableUpdate};

use super::Staged;
use super::delete::live_files;
use super::summary::summary;
use crate::lake::iceberg::catalog::Answer;
use crate::lake::iceberg::commit::manifests::{Draft, Line, Target, schema_for};
use crate::lake::iceberg::commit::replace::Folder;
use crate::lake::iceberg::commit::{branch, free_id, ids};
use crate::lake::iceberg::lineage;
use crate::lake::iceberg::scope::head::{self, Head};
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::outcome::{Conflict, Outcome};
use crate::model::refusal::{Refusal, Refused};

/// What makes one try unlike any other.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Wall clock in milliseconds since the epoch.
    pub now_ms: i64,
    /// A random number for ids and file names.
    pub nonce: u64,
}

/// A manifest entry without a sequence number of its own: it has its snapshot's,
/// whichever that will be.
const INHERITED: i64 = -1;

/// One try to add staged files, on this load of the table as base.
///
/// Invariants checked:
/// * every data file in which a row is deleted is live in the base, else
///   [`Conflict::InputGone`]: the rows lie elsewhere now, and must be found anew;
/// * the catalog swaps only if the table and its branch's head are still the base's.
///
/// Crash: before the catalog is asked, manifests of which `control` was told are
/// left; after it, the table holds the snapshot or it does not.
///
/// # Errors
/// Only when nothing landed: refusals, and those of store and catalog.
pub async fn commit(table: &IcebergTable, staged: &Staged, stamp: Stamp, control: &dyn Control) -> Result<Outcome> {
    let gone = gone(table, staged).await?;
    if !gone.is_empty() {
        return Ok(Outcome::Conflict(Conflict::InputGone { files: gone }));
    }
    let head = head::read(table).await?;
    let snapshot = build(table, head.as_ref(), staged, stamp, control).await?;
    let snapshot_id = snapshot.snapshot_id();
    let requirements = vec![
        TableRequirement::UuidMatch { uuid: table.loaded.metadata.uuid() },
        TableRequirement::RefSnapshotIdMatch { r#ref: table.view.reference.clone(), snapshot_id: table.view.head },
    ];
    let updates = vec![
        TableUpdate::AddSnapshot { snapshot },
        TableUpdate::SetSnapshotRef { ref_name: table.view.reference.clone(), reference: branch(table, snapshot_id)? },
    ];
    Ok(match table.catalog.commit(&table.loaded, requirements, updates, control).await? {
        Answer::Landed(_) => Outcome::Landed { snapshot_id },
        Answer::Moved => Outcome::Conflict(Conflict::MetadataMoved),
        Answer::Rejected(reason) => Outcome::Rejected { reason },
        Answer::Unknown(reason) => Outcome::Unknown { reason },
    })
}

/// The targets of deletes that are not live any more.
async fn gone(table: &IcebergTable, staged: &Staged) -> Result<Vec<String>> {
    if staged.targets.is_empty() {
        return Ok(Vec::new());
    }
    let live: HashSet<String> = live_files(table).await?.into_iter().map(|e| e.entry.key.path.to_string()).collect();
    Ok(staged.targets.iter().filter(|path| !live.contains(*path)).cloned().collect())
}

async fn build(table: &IcebergTable, head: Option<&Head>, staged: &Staged, stamp: Stamp, control: &dyn Control) -> Result<Snapshot> {
    let metadata = &table.loaded.metadata;
    if lineage::is_kept(metadata) && !staged.deletes.is_empty() {
        return Err(Refused::new(Refusal::FormatVersion, "format 3 takes no new position deletes").into());
    }
    let sequence =
        metadata.last_sequence_number().checked_add(1).ok_or_else(|| Error::Setup("the table's sequence numbers are used up".into()))?;
    let snapshot_id = free_id(metadata, stamp.nonce);
    let target = Target { store: Store::new(&table.loaded.io), format: metadata.format_version(), snapshot_id, control };
    let folder = Folder::of(table, stamp.nonce);
    let mut manifests = added(table, staged, &target, &folder).await?;
    manifests.extend(head.iter().flat_map(|h| &h.manifests).filter(|m| !head::is_empty(m)).cloned());
    let parent = head.map(|h| &h.snapshot);
    let parent_id = parent.map(|p| p.snapshot_id());
    let list = folder.list(snapshot_id);
    let listed = ids::assign(metadata, manifests)?;
    let given = listed.ids;
    target.write_list(&list, parent_id, sequence, listed).await?;
    let seen_ms = parent.map_or(i64::MIN, |p| p.timestamp_ms()).max(metadata.last_updated_ms());
    let snapshot = Snapshot::builder()
        .with_snapshot_id(snapshot_id)
        .with_parent_snapshot_id(parent_id)
        .with_sequence_number(sequence)
        .with_timestamp_ms(stamp.now_ms.max(seen_ms))
        .with_manifest_list(list)
        .with_summary(summary(staged, parent.map(|p| p.summary())))
        .with_schema_id(metadata.current_schema_id());
    Ok(match given {
        Some(ids) => snapshot.with_row_range(ids.first, ids.rows).build(),
        None => snapshot.build(),
    })
}

/// The manifests of the files: one for each content and spec.
async fn added(table: &IcebergTable, staged: &Staged, target: &Target<'_>, folder: &Folder) -> Result<Vec<ManifestFile>> {
    let mut drafts: Vec<(ManifestContentType, i32, Draft)> = Vec::new();
    let data = staged.data.iter().map(|f| (ManifestContentType::Data, f));
    let deletes = staged.deletes.iter().map(|f| (ManifestContentType::Deletes, f));
    for (content, made) in data.chain(deletes) {
        let spec_id = made.spec_id;
        let line = Line::Added(made.file.clone(), INHERITED);
        match drafts.iter_mut().find(|(c, s, _)| (*c, *s) == (content, spec_id)) {
            Some((_, _, draft)) => draft.lines.push(line),
            None => {
                let (schema, spec) = schema_for(table, spec_id)?;
                drafts.push((content, spec_id, Draft { content, schema, spec, lines: vec![line] }));
            }
        }
    }
    let mut written = Vec::with_capacity(drafts.len());
    for (_, _, draft) in drafts {
        let path = folder.manifest(written.len());
        written.push(draft.write(target, &path).await?);
    }
    Ok(written)
}
