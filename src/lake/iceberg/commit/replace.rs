//! The manifests of a replace snapshot: a function of the base, the plans and the
//! outputs. Nothing is kept from one try to the next but the outputs' data files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::spec::{DataFile, ManifestContentType, ManifestFile};

use super::manifests::{self, Draft, Line, Target};
use super::merge::Rules;
use crate::lake::iceberg::scope::head::{self, Head};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::FileKey;

/// Manifests read or written at one time.
const AT_ONCE: usize = 8;

/// What a commit changes in the base's manifests.
pub struct Edit {
    /// Files to remove, by the place in the head's list of their manifest.
    pub doomed: BTreeMap<usize, HashSet<FileKey>>,
    /// Files to add.
    pub added: Vec<Batch>,
}

/// Files to add.
pub struct Batch {
    /// Data or delete files.
    pub content: ManifestContentType,
    /// Their spec.
    pub spec_id: i32,
    /// The files.
    pub files: Vec<DataFile>,
    /// Their explicit data sequence number.
    pub sequence: i64,
}

/// Manifests hold files of one content and one spec.
type Group = (ManifestContentType, i32);

impl Edit {
    /// The files to add of a content and spec.
    fn added(&self, (content, spec_id): Group) -> impl Iterator<Item = &Batch> {
        self.added.iter().filter(move |batch| (batch.content, batch.spec_id) == (content, spec_id) && !batch.files.is_empty())
    }
}

/// Writes the changed manifests and gives the new list: new manifests first, then
/// those of the base in their order. A manifest without live files that this
/// commit did not write is left out.
///
/// # Errors
/// As [`manifests::rewrite`] and [`Draft::write`].
pub async fn manifests(table: &IcebergTable, head: &Head, edit: Edit, target: &Target<'_>, folder: &Folder) -> Result<Vec<ManifestFile>> {
    let rules = Rules::of(table.loaded.metadata.properties());
    let mut written = Vec::new();
    let mut gone: BTreeSet<usize> = edit.doomed.keys().copied().collect();
    for (content, spec_id) in groups(head, &edit) {
        let adds = edit.added((content, spec_id)).next().is_some();
        let own = if adds { Some(added(table, &edit, (content, spec_id))?) } else { None };
        let mut joined = joined(head, (content, spec_id), None, adds, |sizes, new| rules.choose(sizes, new));
        if joined.is_empty() {
            joined = self::joined(head, (content, spec_id), Some(&edit), adds, |sizes, new| rules.choose_changed(sizes, new));
        }
        let mut pending = Pending { own, joining: !joined.is_empty(), apart: Vec::new() };
        let (none, mut drafts) = (HashSet::new(), Vec::new());
        for (place, manifest) in of_group(head, content, spec_id) {
            let doomed = edit.doomed.get(&place);
            if doomed.is_some() || joined.contains(&place) {
                let draft = manifests::rewrite(table, manifest, doomed.unwrap_or(&none));
                drafts.push(async move { draft.await.map(|draft| (place, doomed.is_some(), draft)) });
            }
        }
        let mut drafts = stream::iter(drafts).buffered(AT_ONCE);
        while let Some((place, changed, draft)) = drafts.try_next().await? {
            if pending.take(draft, joined.contains(&place), changed)? {
                gone.insert(place);
            }
        }
        let mut writes = Vec::new();
        for (number, draft) in (written.len()..).zip(pending.own.into_iter().chain(pending.apart)) {
            let path = folder.manifest(number);
            writes.push(async move { draft.write(target, &path).await });
        }
        written.extend(stream::iter(writes).buffered(AT_ONCE).try_collect::<Vec<ManifestFile>>().await?);
    }
    let kept = head.manifests.iter().enumerate().filter(|(place, m)| !gone.contains(place) && !head::is_empty(m));
    written.extend(kept.map(|(_, m)| m.clone()));
    Ok(written)
}

/// The manifests of one spec and content on their way into new ones.
struct Pending {
    /// The one that takes what is joined: it begins with the added files.
    own: Option<Draft>,
    joining: bool,
    apart: Vec<Draft>,
}

impl Pending {
    /// Takes a draft in. False when it is not needed: it was only to be joined, and
    /// its partition type is not that of the others.
    fn take(&mut self, draft: Draft, join: bool, changed: bool) -> Result<bool> {
        if join && self.joining {
            match &mut self.own {
                None => {
                    self.own = Some(draft);
                    return Ok(true);
                }
                Some(own) if own.partition_type()? == draft.partition_type()? => {
                    own.lines.extend(draft.lines);
                    return Ok(true);
                }
                Some(_) => {}
            }
        }
        if changed {
            self.apart.push(draft);
        }
        Ok(changed)
    }
}

/// Each kind of manifest that changes, data first.
fn groups(head: &Head, edit: &Edit) -> Vec<Group> {
    let mut groups = Vec::new();
    let added = edit.added.iter().filter(|batch| batch.content == ManifestContentType::Data || !batch.files.is_empty());
    let changed = edit.doomed.keys().filter_map(|place| head.manifests.get(*place));
    for group in added.map(|b| (b.content, b.spec_id)).chain(changed.map(|m| (m.content, m.partition_spec_id))) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.sort_by_key(|(content, spec_id)| (*content as i32, *spec_id));
    groups
}

fn of_group(head: &Head, content: ManifestContentType, spec_id: i32) -> impl Iterator<Item = (usize, &ManifestFile)> {
    head.manifests.iter().enumerate().filter(move |(_, m)| m.content == content && m.partition_spec_id == spec_id && !head::is_empty(m))
}

/// The places of the manifests that are joined into one: among all, or those that an
/// edit changes.
fn joined(
    head: &Head,
    (content, spec_id): Group,
    changed: Option<&Edit>,
    adds: bool,
    choose: impl Fn(&[u64], usize) -> Vec<usize>,
) -> BTreeSet<usize> {
    let group = of_group(head, content, spec_id).filter(|(place, _)| changed.is_none_or(|edit| edit.doomed.contains_key(place)));
    let (places, sizes): (Vec<_>, Vec<_>) = group.map(|(p, m)| (p, u64::try_from(m.manifest_length).unwrap_or(u64::MAX))).unzip();
    choose(&sizes, usize::from(adds)).into_iter().filter_map(|at| places.get(at).copied()).collect()
}

fn added(table: &IcebergTable, edit: &Edit, group: Group) -> Result<Draft> {
    let (schema, spec) = manifests::schema_for(table, group.1)?;
    let lines = edit.added(group).flat_map(|batch| batch.files.iter().map(|f| Line::Added(f.clone(), batch.sequence))).collect();
    Ok(Draft { content: group.0, schema, spec, lines })
}

/// Names of the files of one try, below the table's metadata folder.
pub struct Folder {
    base: String,
    nonce: u64,
}

impl Folder {
    /// The metadata folder of the table, as its properties and location spell it.
    pub fn of(table: &IcebergTable, nonce: u64) -> Self {
        let metadata = &table.loaded.metadata;
        let base = match metadata.properties().get("write.metadata.path") {
            Some(path) => path.trim_end_matches('/').to_owned(),
            None => format!("{}/metadata", metadata.location().trim_end_matches('/')),
        };
        Self { base, nonce }
    }

    /// The n-th manifest.
    pub fn manifest(&self, n: usize) -> String {
        format!("{}/afterwrite-{:016x}-m{n}.avro", self.base, self.nonce)
    }

    /// The manifest list.
    pub fn list(&self, snapshot_id: i64) -> String {
        format!("{}/snap-{snapshot_id}-1-afterwrite-{:016x}.avro", self.base, self.nonce)
    }
}

/// Where each doomed file lies, in the order of the list.
///
/// # Errors
/// `damaged`, when the base's state names a file whose manifest it does not know.
pub fn by_home<'a>(homes: &HashMap<FileKey, usize>, files: impl Iterator<Item = &'a FileKey>) -> Result<BTreeMap<usize, HashSet<FileKey>>> {
    let mut doomed: BTreeMap<usize, HashSet<FileKey>> = BTreeMap::new();
    for key in files {
        let home = homes.get(key).ok_or_else(|| Error::damaged(&key.path, "is in no manifest of the base"))?;
        doomed.entry(*home).or_default().insert(key.clone());
    }
    Ok(doomed)
}
