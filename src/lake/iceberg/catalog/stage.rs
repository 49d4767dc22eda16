//! All of a commit before the swap, for catalogs that hold only a pointer.

use iceberg::{TableRequirement, TableUpdate};

use super::metadata_file;
use super::{Answer, Loaded};
use crate::lake::clock::Chance;
use crate::lake::iceberg::store::Store;
use crate::lake::{Control, Result};
use crate::model::killpoint::KillPoint;

/// A commit that is ready for its swap, or one that is answered without it.
pub enum Staged {
    /// The new metadata file is durable; its location.
    Ready(String),
    /// Answered; the catalog need not be asked.
    Answered(Answer),
}

/// Checks the requirements on the base, applies the updates, and writes the new
/// metadata file.
///
/// Invariants checked:
/// * every requirement holds on the base whose location the swap will assert, so
///   that a swap which succeeds has held them too;
/// * `control` knows the file before it is begun, and the asserted location before
///   the catalog is asked;
/// * the file is durable before the catalog can point at it.
///
/// A crash leaves at most the metadata file, which `control` was told of. Files of
/// older versions are never removed, whatever the table's properties say.
///
/// # Errors
/// Those of the store and of `control`. The catalog has not been asked then.
pub async fn stage(
    base: &Loaded,
    requirements: &[TableRequirement],
    updates: Vec<TableUpdate>,
    chance: &dyn Chance,
    control: &dyn Control,
) -> Result<Staged> {
    for requirement in requirements {
        if requirement.check(Some(&base.metadata)).is_err() {
            return Ok(Staged::Answered(Answer::Moved));
        }
    }
    let rejected = |reason: String| Ok(Staged::Answered(Answer::Rejected(reason)));
    let mut builder = base.metadata.as_ref().clone().into_builder(Some(base.metadata_location.clone()));
    for update in updates {
        builder = match update.apply(builder) {
            Ok(builder) => builder,
            Err(e) => return rejected(format!("an update does not apply: {e}")),
        };
    }
    let metadata = match builder.build() {
        Ok(built) => built.metadata,
        Err(e) => return rejected(format!("the updates make no valid table: {e}")),
    };
    let bytes = match metadata_file::encode(&metadata) {
        Ok(bytes) => bytes,
        Err(why) => return rejected(why),
    };
    let location = metadata_file::next_location(&metadata, Some(&base.metadata_location), chance);
    control.will_write(&location).await?;
    Store::new(&base.io).write(&location, bytes.into()).await?;
    control.will_commit(&base.metadata_location).await?;
    control.reached(KillPoint::MetadataWritten);
    Ok(Staged::Ready(location))
}
