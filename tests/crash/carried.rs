//! A process that dies while it carries deletes over, and one that does not.

use afterwrite::act::JobState;
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::partition::PartitionKey;
use iceberg::spec::DataContentType;

use super::points::killed;
use super::world::World;
use crate::fixture::process::overtake;
use crate::fixture::{File, oracle};

/// A table of which a row is deleted at the moment at which our first commit would
/// land.
async fn overtaken(mut world: World) -> World {
    let live = oracle::live(&world.table.load().await).await;
    let has_vector = |path: &str| live.iter().any(|l| l.file.referenced_data_file().as_deref() == Some(path));
    let free = live.iter().find(|l| l.file.content_type() == DataContentType::Data && !has_vector(l.file.file_path()));
    let data = free.unwrap().file.clone();
    let file = File { path: data.file_path().to_owned(), data, partition: PartitionKey::unpartitioned(0) };
    let before = world.table.load().await.view.metadata_location;
    match world.table.load().await.view.format_version {
        3 => world.table.delete_by_vectors(&[(&file, &[3])]).await,
        _ => drop(world.table.change().delete_positions(&[(&file, 2)]).commit().await),
    }
    let after = world.table.load().await.view.metadata_location;
    let all = world.rows.len();
    world.rows = world.seen().await;
    world.before = world.place.files().into_iter().collect();
    assert_eq!(world.rows.len(), all - 1);
    overtake(&world.place, &before, &after).await;
    world
}

/// One of each format that has deletes.
async fn worlds() -> [World; 2] {
    [World::of_one_partition().await, World::of_format_3().await]
}

#[tokio::test]
async fn a_row_deleted_as_the_first_try_would_land_is_carried_over_by_the_second() {
    for world in worlds().await {
        let world = overtaken(world).await;

        let ended = world.compact().await.expect(0);

        assert_eq!(ended.each("result"), ["committed"], "{}", ended.out);
        assert_eq!((ended.each("deletes_carried"), ended.each("wasted_bytes")), (vec![1.into()], vec![0.into()]));
        assert_eq!(world.seen().await, world.rows);
        world.place.assert_settled().await;
        world.place.assert_accounted(&world.table, &world.before).await;
        let told = world.place.run(&["jobs", "--json"]).await.expect(0);
        assert_eq!(told.each("deletes_carried"), [1]);
    }
}

#[tokio::test]
async fn a_process_that_dies_with_carried_deletes_written_leaves_nothing_of_them() {
    for world in worlds().await {
        let world = overtaken(world).await;
        let ended = world.compact_killed_at(KillPoint::DeletesCarried.code()).await;
        assert!(killed(&ended), "{ended:?}");
        assert_eq!(world.seen().await, world.rows);
        assert!(!world.jobs().await[0].state.is_final());
        let written = |world: &World| world.place.files().iter().filter(|f| f.to_string_lossy().contains("-deletes")).count();
        assert_eq!(written(&world), 1);

        let ended = world.compact().await.expect(0);

        assert_eq!((ended.each("result"), written(&world)), (vec!["committed".into()], 0), "{}", ended.out);
        let states: Vec<JobState> = world.jobs().await.iter().rev().map(|j| j.state).collect();
        assert_eq!(states, [JobState::Failed, JobState::Committed]);
        world.assert_whole(1).await;
    }
}
