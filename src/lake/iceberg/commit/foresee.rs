//! What a commit would refuse, told before the rewrite is made.

use futures::stream::{self, StreamExt, TryStreamExt};

use super::{manifests, refuse, replace};
use crate::lake::iceberg::scope::{self, head, tuple};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::FileKey;
use crate::model::plan::Plan;

/// Manifests read at one time.
const AT_ONCE: usize = 8;

/// Errs as [`super::commit`] would on this state of the table because of what it
/// holds: the spec of the outputs has no type, or a manifest in which an input lies
/// cannot be written anew. A plan that no longer fits the state is no error: the
/// commit's own validation tells that. Nothing is written.
///
/// # Errors
/// Refusals `format-version`, `encrypted`, `unresolved-spec`, `damaged`; store errors.
pub async fn foresee(table: &IcebergTable, plan: &Plan) -> Result<()> {
    let metadata = &table.loaded.metadata;
    refuse(metadata)?;
    let (schema, spec) = manifests::schema_for(table, plan.scope.spec_id)?;
    let damaged = |why: String| Error::damaged(&table.loaded.metadata_location, why);
    let fields = spec.partition_type(&schema).map_err(|e| damaged(e.to_string()))?;
    tuple::to_struct(&plan.scope.tuple, &fields).map_err(|e| damaged(e.to_string()))?;
    let Some(head) = head::read(table).await? else { return Ok(()) };
    let state = scope::read_state(table, &head, &plan.scope).await?;
    let inputs: Vec<FileKey> = plan.inputs.iter().map(|f| FileKey { path: f.path.clone(), offset: None }).collect();
    let live = inputs.iter().filter(|key| state.homes.contains_key(key));
    let mut drafts = Vec::new();
    for (home, doomed) in replace::by_home(&state.homes, live)? {
        let Some(manifest) = head.manifests.get(home) else { continue };
        drafts.push(async move { manifests::rewrite(table, manifest, &doomed).await?.partition_type().map(|_| ()) });
    }
    stream::iter(drafts).buffered(AT_ONCE).try_collect().await
}
