//! H100: one Puffin file, many vectors, a misleading name. A vector is known by
//! path and offset, and its bytes count once.

use afterwrite::model::file::{Content, FileKey};
use afterwrite::model::table::Operation;

use crate::orient::absorb::{orient, right_look};
use crate::orient::fake::{File, Make, World, data, file, part};

/// A vector in one shared file, whose name says Parquet.
fn vector(partition: &str, offset: i64, bytes: u64, cardinality: u64) -> File {
    let key = FileKey { path: "memory://t/shared.parquet".into(), offset: Some(offset) };
    File { key: Some(key), ..file(Content::DeletionVector, &part(partition), bytes, cardinality) }
}

#[test]
fn h100_vectors_of_one_file_are_counted_by_blob_each_in_its_partition() {
    let mut world = World::with([data(&part("a"), 100, 50), data(&part("a"), 100, 50), data(&part("b"), 100, 50)]);
    let orient = orient();
    right_look(&orient, &world.load());
    world.commit(Make::append([vector("a", 4, 30, 5), vector("a", 34, 20, 6), vector("b", 54, 10, 7)]));
    let layout = right_look(&orient, &world.load()).state.layout.clone();
    let of = |name: &str| layout.partition(&part(name)).unwrap().deletion_vectors;
    assert_eq!((of("a").files, of("a").bytes, of("a").records), (2, 50, 11));
    assert_eq!((of("b").files, of("b").bytes, of("b").records), (1, 10, 7));
    assert_eq!((layout.deletes().files, layout.deletes().records), (3, 18));
}

#[test]
fn h100_a_replaced_data_file_takes_its_own_vector_along_and_no_other() {
    let mut world = World::with([data(&part("a"), 100, 50), data(&part("b"), 100, 50)]);
    world.commit(Make::append([vector("a", 4, 30, 5), vector("b", 34, 10, 7)]));
    let orient = orient();
    right_look(&orient, &world.load());
    let rewritten = world.live_keys().into_iter().next().unwrap();
    let own = FileKey { path: "memory://t/shared.parquet".into(), offset: Some(4) };
    world.commit(Make { add: vec![data(&part("a"), 90, 45)], remove: [rewritten, own].into(), ..Make::new(Operation::Replace) });
    let layout = right_look(&orient, &world.load()).state.layout.clone();
    assert_eq!(layout.partition(&part("a")).unwrap().deletion_vectors.files, 0);
    assert_eq!(layout.partition(&part("b")).unwrap().deletion_vectors.bytes, 10);
}
