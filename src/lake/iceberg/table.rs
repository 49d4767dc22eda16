//! One Iceberg table, loaded at one moment.

use std::sync::Arc;

use super::catalog::{Catalog, Loaded};
use crate::model::table::TableView;

/// A loaded table with the catalog it came from.
#[derive(Clone)]
pub struct IcebergTable {
    /// Metadata and file access.
    pub loaded: Loaded,
    /// The metadata, reduced.
    pub view: TableView,
    /// Where its commits go.
    pub catalog: Arc<dyn Catalog>,
}
