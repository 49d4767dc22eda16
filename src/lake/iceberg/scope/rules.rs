//! Which deletes apply to which data files: the format's scope rules, pure.

use std::collections::HashMap;

use super::named::Named;
use crate::model::file::{Content, FileKey};
use crate::model::plan::{LiveDelete, LiveFile};

/// What a live delete file can reach within its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Every data file of a strictly lower sequence number.
    Older,
    /// The data files it names, as it spells them, of an equal or lower sequence
    /// number.
    Named(Named),
    /// The data files it names, which only its rows tell.
    Unread,
}

/// A live delete file that may reach a scope: it is of the scope's spec and
/// tuple, or an equality delete of an unpartitioned spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaching {
    /// The file.
    pub delete: LiveDelete,
    /// An equality delete of an unpartitioned spec: it reaches every partition
    /// of every spec.
    pub global: bool,
    /// What it reaches.
    pub targets: Targets,
}

impl Reaching {
    /// Whether the delete applies to a data file of a partition that it reaches.
    ///
    /// * Equality delete: its data sequence number is strictly greater.
    /// * Position delete: equal or greater, and the path is named, in the same
    ///   spelling. Rows not read yet may name any path.
    pub fn applies(&self, file: &str, data_sequence: i64) -> bool {
        match &self.targets {
            Targets::Older => self.delete.data_sequence > data_sequence,
            Targets::Named(paths) => self.delete.data_sequence >= data_sequence && paths.contains(file),
            Targets::Unread => self.delete.data_sequence >= data_sequence,
        }
    }
}

/// Enters into each file the keys of the deletes that apply to it, ascending.
/// Position deletes do not apply to a file that has a deletion vector: it holds
/// their rows too.
pub fn join(files: &mut [LiveFile], reaching: &[Reaching]) {
    let mut by_path: HashMap<&str, Vec<&Reaching>> = HashMap::new();
    let mut others = Vec::new();
    for delete in reaching {
        match &delete.targets {
            Targets::Named(paths) => paths.iter().for_each(|p| by_path.entry(p).or_default().push(delete)),
            Targets::Older | Targets::Unread => others.push(delete),
        }
    }
    for file in files {
        let named = by_path.get(&*file.path).into_iter().flatten();
        let mut applying: Vec<_> = others.iter().chain(named).filter(|d| d.applies(&file.path, file.data_sequence)).collect();
        if applying.iter().any(|d| d.delete.content == Content::DeletionVector) {
            applying.retain(|d| d.delete.content != Content::PositionDeletes);
        }
        let mut keys: Vec<FileKey> = applying.into_iter().map(|d| d.delete.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        file.deletes = keys;
    }
}

/// The single data file that a position delete's metadata names, when that can
/// be trusted: `referenced_data_file`, or equal, untruncated `file_path` bounds.
///
/// Bounds may be cut to a prefix. A cut bound names no file, so equal bounds are
/// believed only when they look like a whole data file path and are not of a
/// length at which writers cut (16 characters by the table default, 64 bytes by
/// Parquet writers). Unequal or inverted bounds tell nothing.
pub fn single_target<'a>(referenced: Option<&'a str>, lower: Option<&'a str>, upper: Option<&'a str>) -> Option<&'a str> {
    if referenced.is_some() {
        return referenced;
    }
    let (lower, upper) = (lower?, upper?);
    let whole = lower == upper && lower.to_ascii_lowercase().ends_with(".parquet");
    let cut = lower.chars().count() == 16 || lower.len() == 64;
    (whole && !cut).then_some(lower)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn file(path: &str, data_sequence: i64) -> LiveFile {
        LiveFile { path: path.into(), bytes: 1, records: 1, data_sequence, sort_order_id: None, first_row_id: None, deletes: vec![] }
    }

    fn delete(name: &str, data_sequence: i64, targets: Targets) -> Reaching {
        let content = if targets == Targets::Older { Content::EqualityDeletes } else { Content::PositionDeletes };
        let key = FileKey { path: name.into(), offset: None };
        Reaching { delete: LiveDelete { key, content, bytes: 1, records: 1, data_sequence }, global: false, targets }
    }

    fn named(paths: &[&str]) -> Targets {
        Targets::Named(Arc::new(paths.iter().map(|p| Arc::from(*p)).collect()))
    }

    fn applied(files: &mut [LiveFile], reaching: &[Reaching]) -> Vec<Vec<String>> {
        join(files, reaching);
        files.iter().map(|f| f.deletes.iter().map(|k| k.path.to_string()).collect()).collect()
    }

    #[test]
    fn an_equality_delete_reaches_strictly_older_files_only() {
        let mut files = [file("a", 1), file("b", 2), file("c", 3)];
        assert_eq!(applied(&mut files, &[delete("e", 2, Targets::Older)]), [vec!["e"], vec![], vec![]]);
    }

    #[test]
    fn a_position_delete_reaches_the_files_it_names_up_to_its_own_sequence() {
        let mut files = [file("a", 1), file("b", 2), file("c", 3), file("d", 1)];
        assert_eq!(applied(&mut files, &[delete("p", 2, named(&["a", "b", "c"]))]), [vec!["p"], vec!["p"], vec![], vec![]]);
    }

    #[test]
    fn a_vector_takes_the_place_of_the_position_deletes_of_its_file_and_of_no_other() {
        let mut files = [file("a", 1), file("b", 1)];
        let mut vector = delete("v", 3, named(&["a"]));
        vector.delete.content = Content::DeletionVector;
        let others = [delete("p", 2, named(&["a", "b"])), delete("e", 2, Targets::Older), vector];
        assert_eq!(applied(&mut files, &others), [vec!["e", "v"], vec!["e", "p"]]);
        // one that is older than its file is none
        let mut newer = [file("a", 4)];
        assert_eq!(applied(&mut newer, &others), [Vec::<String>::new()]);
    }

    #[test]
    fn an_unread_position_delete_may_apply_to_any_file() {
        let mut files = [file("a", 1), file("b", 3)];
        assert_eq!(applied(&mut files, &[delete("p", 2, Targets::Unread)]), [vec!["p"], vec![]]);
    }

    #[test]
    fn another_spelling_of_a_path_is_not_the_path() {
        let mut files = [file("file:/d/a.parquet", 1)];
        assert_eq!(applied(&mut files, &[delete("p", 1, named(&["file:///d/a.parquet"]))]), [Vec::<String>::new()]);
    }

    #[test]
    fn keys_are_ascending_whatever_the_order_of_the_manifests() {
        let mut files = [file("a", 1)];
        let reaching = [delete("z", 2, Targets::Older), delete("m", 2, named(&["a"])), delete("b", 2, Targets::Older)];
        assert_eq!(applied(&mut files, &reaching), [vec!["b", "m", "z"]]);
    }

    #[test]
    fn bounds_name_a_file_only_when_equal_whole_and_not_cut() {
        let whole = "s3://b/t/data/f1.parquet";
        assert_eq!(single_target(None, Some(whole), Some(whole)), Some(whole));
        assert_eq!(single_target(Some("s3a://b/t/data/f1.parquet"), None, None), Some("s3a://b/t/data/f1.parquet"));
        assert_eq!(single_target(None, Some("s3://b/t/data/f2.parquet"), Some(whole)), None);
        assert_eq!(single_target(None, Some("s3://b/t/data/f1"), Some("s3://b/t/data/f1")), None);
        assert_eq!(single_target(None, Some("s3://b/t/.parquet"), Some("s3://b/t/.parquet")), Some("s3://b/t/.parquet"));
        assert_eq!(single_target(None, Some("s3://b/t.parquet"), Some("s3://b/t.parquet")), None);
        assert_eq!(single_target(None, Some(whole), None), None);
    }
}
