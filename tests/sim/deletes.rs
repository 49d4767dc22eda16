//! Writers that delete rows: by keys, by places and by vectors.

use std::collections::BTreeSet;

use iceberg::spec::FormatVersion;

use super::model::Row;
use super::now;
use super::reader::{Kept, Live};
use super::world::{State, World};
use super::writers::{ID, P, Scene, U, file_of};
use crate::fixture::files::{self, Bounds};
use crate::fixture::{Cell, Change, File};

impl World {
    /// Equality deletes, and often the same keys anew, as a change stream writes them.
    pub(super) fn upsert(&self, state: &mut State, scene: &Scene<'_>) {
        let keys_by = self.key_columns(state, scene);
        let named: Vec<&str> = keys_by.iter().filter_map(|id| scene.name_of(*id)).collect();
        let victim = match state.dice.pick(scene.rows.rows()) {
            Some(row) if !state.dice.one_in(4) => Row::clone(row),
            _ => self.row(state, scene),
        };
        let mut keys = vec![victim.clone()];
        if let Some(other) = scene.rows.rows().iter().find(|row| Scene::same_partition(row, &victim) && row.u != victim.u) {
            keys.push(Row::clone(other));
        }
        let spec_id = self.spec_of_delete(state, scene);
        let mut change = scene.of.change().delete_equal_under(spec_id, &named, keys.iter().map(|row| scene.cells(row)));
        let mut groups = vec![];
        if !state.dice.one_in(3) {
            let group = self.group(state, scene, Some(&victim));
            change = change.append(group.iter().map(|row| scene.cells(row)));
            groups.push(group);
            if state.dice.one_in(3) {
                let place = state.dice.below(groups[0].len());
                change = change.delete_own_positions(&[(0, place as i64)]);
                groups[0].remove(place);
                return self.land_upsert(state, scene, (keys_by.as_slice(), keys.as_slice(), spec_id), change, groups);
            }
        }
        self.land_upsert(state, scene, (keys_by.as_slice(), keys.as_slice(), spec_id), change, groups);
    }

    fn land_upsert(&self, state: &mut State, scene: &Scene<'_>, delete: (&[i32], &[Row], i32), change: Change<'_>, groups: Vec<Vec<Row>>) {
        let (columns, keys, spec_id) = delete;
        let spec = scene.metadata.partition_spec_by_id(spec_id).unwrap();
        if spec.is_unpartitioned() && scene.metadata.partition_specs_iter().count() > 1 {
            self.gate.count("global equality deletes");
        }
        let cells: Vec<Vec<Cell>> = keys.iter().map(|row| scene.cells(row)).collect();
        let partition = files::partition(&now(scene.of.load()), spec_id, scene.schema(), &cells);
        let scope = files::key(spec_id, &partition);
        let rows = scene.rows.equal(columns, keys, &scope, spec.is_unpartitioned());
        let what = format!("equality delete by {columns:?} under spec {spec_id}");
        self.land(state, scene, &what, change, rows, groups);
    }

    fn key_columns(&self, state: &mut State, scene: &Scene<'_>) -> Vec<i32> {
        let known: Vec<i32> = scene.schema().as_struct().fields().iter().map(|f| f.id).collect();
        match state.dice.below(5) {
            0 | 1 => vec![ID],
            2 => vec![ID, P],
            3 => vec![U],
            _ => BTreeSet::from([ID, *state.dice.pick(&known).unwrap()]).into_iter().collect(),
        }
    }

    /// The default spec, or an older one; an unpartitioned one makes it global.
    fn spec_of_delete(&self, state: &mut State, scene: &Scene<'_>) -> i32 {
        let all: Vec<i32> = scene.metadata.partition_specs_iter().map(|s| s.spec_id()).collect();
        if state.dice.one_in(4) {
            let mut sorted = all;
            sorted.sort_unstable();
            return *state.dice.pick(&sorted).unwrap();
        }
        scene.metadata.default_partition_spec_id()
    }

    /// Some live rows of one partition, by file, and what else is known of them.
    fn victims(&self, state: &mut State, scene: &Scene<'_>) -> Vec<(Kept, Vec<usize>)> {
        let Some(head) = scene.metadata.current_snapshot() else { return vec![] };
        let kept = state.reader.kept(&scene.metadata, head).unwrap();
        let Some(first) = state.dice.pick(&kept) else { return vec![] };
        let scope = files::key(first.file.spec_id, first.file.data.partition());
        let (mut victims, mut count) = (vec![], 0);
        for file in kept.into_iter().filter(|k| files::key(k.file.spec_id, k.file.data.partition()) == scope) {
            let live = (0..file.rows.count).filter(|row| file.kept[*row]);
            let rows: Vec<usize> = live.filter(|_| state.dice.one_in(4)).take(4 - count).collect();
            count += rows.len();
            if !rows.is_empty() {
                victims.push((file, rows));
            }
        }
        victims
    }

    /// Deletes of a few rows by their places: by a file of positions or, in format 3, by
    /// vectors.
    pub(super) fn delete_rows(&self, state: &mut State, scene: &Scene<'_>) {
        let victims = self.victims(state, scene);
        let of = |(file, rows): &(Kept, Vec<usize>)| rows.iter().map(|row| file.rows.number(*row, U).unwrap()).collect::<Vec<_>>();
        let gone: BTreeSet<i64> = victims.iter().flat_map(of).collect();
        if gone.is_empty() {
            return;
        }
        let rows = scene.rows.without(|row| gone.contains(&row.u));
        if scene.metadata.format_version() == FormatVersion::V3 {
            let change = self.vectors(state, scene, &victims);
            self.gate.count("vectors");
            return self.land(state, scene, &format!("{} rows deleted by vectors", gone.len()), change, rows, vec![]);
        }
        let places = victims.iter().flat_map(|(file, rows)| rows.iter().map(|row| (file_of(&file.file), *row as i64)));
        let places: Vec<(File, i64)> = places.collect();
        let bounds = match state.dice.below(6) {
            0 => Bounds::Absent,
            1 => Bounds::Cut(24),
            2 if victims.len() == 1 => Bounds::Referenced,
            _ => Bounds::Exact,
        };
        let named: Vec<(&File, i64)> = places.iter().map(|(file, at)| (file, *at)).collect();
        let change = scene.of.change().delete_positions_with(&named, bounds);
        self.land(state, scene, &format!("{} positions deleted", gone.len()), change, rows, vec![]);
    }

    /// One Puffin file of vectors: each names what was deleted by position before, too, and
    /// takes the place of the vector that its file has.
    fn vectors<'s>(&self, state: &mut State, scene: &Scene<'s>, victims: &[(Kept, Vec<usize>)]) -> Change<'s> {
        let named = |(file, rows): &(Kept, Vec<usize>)| -> (File, Vec<u64>) {
            let all: BTreeSet<u64> = rows.iter().chain(&file.named).map(|row| *row as u64).collect();
            (file_of(&file.file), all.into_iter().collect())
        };
        let named: Vec<(File, Vec<u64>)> = victims.iter().map(named).collect();
        let of: Vec<(&File, &[u64])> = named.iter().map(|(file, rows)| (file, rows.as_slice())).collect();
        let files = self.files(state, scene);
        let old: Vec<File> = files.iter().filter(|old| named.iter().any(|(file, _)| old.is_vector_of(&file.path))).map(file_of).collect();
        let new = now(scene.of.vectors(&of));
        new.into_iter().fold(scene.of.change(), Change::add_delete).remove(&old.iter().collect::<Vec<_>>())
    }

    /// Data files with their vectors, which a writer of format 3 removes with them; some
    /// leave them behind.
    pub(super) fn with_vectors<'f>(&self, state: &mut State, data: Vec<&'f Live>, all: &'f [Live]) -> Vec<&'f Live> {
        if state.dice.one_in(4) {
            return data;
        }
        let of = |live: &&Live| data.iter().any(|file| live.is_vector_of(file.data.file_path()));
        data.iter().copied().chain(all.iter().filter(of)).collect()
    }
}
