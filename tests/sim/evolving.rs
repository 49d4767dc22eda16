//! What is done to tables without touching rows: schema, spec, references, snapshots.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iceberg::TableUpdate;
use iceberg::spec::{
    FormatVersion, NestedField, PartitionField, PrimitiveType, Schema, SnapshotReference, SnapshotRetention, Transform, Type,
    UnboundPartitionField, UnboundPartitionSpec,
};

use super::world::{State, World};
use super::writers::{ID, P, Scene, U};
use super::{hold, now};

impl World {
    fn update(&self, scene: &Scene<'_>, what: &str, updates: Vec<TableUpdate>) {
        now(scene.of.update(updates));
        self.foreign.fetch_add(1, Ordering::SeqCst);
        self.gate.note(|| format!("table {}: {what}", scene.table));
    }

    /// The schema that has the column which was dropped last: its values are in the files,
    /// as long as nobody has written any since.
    pub(super) fn schema_of_before(&self, state: &State, scene: &Scene<'_>) -> Option<i32> {
        let made = self.made(scene.table);
        state.dropped.get(&scene.table).filter(|(_, then)| *then == made).map(|(schema_id, _)| *schema_id)
    }

    pub(super) fn set_schema_back(&self, state: &mut State, scene: &Scene<'_>) {
        let Some(schema_id) = self.schema_of_before(state, scene) else { return };
        state.dropped.remove(&scene.table);
        self.update(scene, &format!("schema {schema_id} set again"), vec![TableUpdate::SetCurrentSchema { schema_id }]);
    }

    pub(super) fn evolve_schema(&self, state: &mut State, scene: &Scene<'_>) {
        let mut fields = scene.fields();
        let serial = {
            state.serial += 1;
            state.serial
        };
        let extra: Vec<usize> = (0..fields.len()).filter(|at| ![ID, P, U].contains(&fields[*at].id)).collect();
        let what = match state.dice.below(5) {
            0 | 1 if fields.len() < 9 => {
                let kind = [PrimitiveType::Int, PrimitiveType::Long, PrimitiveType::String][state.dice.below(3)].clone();
                let id = scene.metadata.last_column_id() + 1;
                // a name that was there before comes back with another id
                let name = format!("x{}", state.dice.below(4));
                if fields.iter().any(|f| f.name == name) {
                    return;
                }
                fields.push(NestedField::optional(id, &name, Type::Primitive(kind)));
                format!("column {name} added as {id}")
            }
            2 => {
                let Some(at) = state.dice.pick(&extra).copied() else { return };
                let gone = fields.remove(at);
                state.dropped.insert(scene.table, (scene.metadata.current_schema_id(), self.made(scene.table)));
                format!("column {} ({}) dropped", gone.name, gone.id)
            }
            3 => {
                let at = state.dice.below(fields.len());
                if fields[at].id == U {
                    return;
                }
                fields[at].name = format!("r{serial}");
                format!("column {} renamed to r{serial}", fields[at].id)
            }
            _ => {
                let ints: Vec<usize> = (0..fields.len())
                    .filter(|at| fields[*at].id != P && *fields[*at].field_type == Type::Primitive(PrimitiveType::Int))
                    .collect();
                let Some(at) = state.dice.pick(&ints).copied() else { return };
                *fields[at].field_type = Type::Primitive(PrimitiveType::Long);
                format!("column {} widened to long", fields[at].id)
            }
        };
        let schema = Schema::builder().with_fields(fields.into_iter().map(Arc::new)).build().unwrap();
        let updates = vec![TableUpdate::AddSchema { schema }, TableUpdate::SetCurrentSchema { schema_id: -1 }];
        self.update(scene, &what, updates);
    }

    pub(super) fn evolve_spec(&self, state: &mut State, scene: &Scene<'_>) {
        if scene.metadata.partition_specs_iter().count() > 4 {
            return;
        }
        if scene.metadata.format_version() == FormatVersion::V1 {
            return self.evolve_spec_in_place(state, scene);
        }
        let (id, p) = (scene.name_of(ID).unwrap().to_owned(), scene.name_of(P).unwrap().to_owned());
        let fields: Vec<(&str, &str, Transform)> = match state.dice.below(4) {
            0 => vec![],
            1 => vec![(p.as_str(), "p_part", Transform::Identity)],
            2 => vec![(id.as_str(), "id_bucket", Transform::Bucket(2))],
            _ => vec![(p.as_str(), "p_part", Transform::Identity), (id.as_str(), "id_bucket", Transform::Bucket(2))],
        };
        let spec_id = now(scene.of.evolve_spec(&fields));
        self.foreign.fetch_add(1, Ordering::SeqCst);
        self.gate.note(|| format!("table {}: spec {spec_id} of {} fields", scene.table, fields.len()));
    }

    /// In format 1 a field keeps its place and its id, and one that goes becomes void.
    fn evolve_spec_in_place(&self, state: &mut State, scene: &Scene<'_>) {
        state.serial += 1;
        let mut fields: Vec<UnboundPartitionField> =
            scene.metadata.default_partition_spec().fields().iter().cloned().map(PartitionField::into_unbound).collect();
        // the crate takes two void fields of one column for the same
        let void: BTreeSet<i32> = fields.iter().filter(|field| field.transform == Transform::Void).map(|field| field.source_id).collect();
        for field in &mut fields {
            if !void.contains(&field.source_id) && state.dice.one_in(2) {
                (field.name, field.transform) = (format!("void{}_{}", state.serial, field.source_id), Transform::Void);
            }
        }
        let (source_id, transform) = if state.dice.one_in(2) { (P, Transform::Identity) } else { (ID, Transform::Bucket(2)) };
        if !fields.iter().any(|field| (field.source_id, field.transform) == (source_id, transform)) {
            let field_id = Some(1000 + i32::try_from(fields.len()).unwrap());
            fields.push(UnboundPartitionField { source_id, field_id, name: format!("part{}", state.serial), transform });
        }
        let what = format!("spec in place: {fields:?}");
        let spec = UnboundPartitionSpec::builder().add_partition_fields(fields).unwrap().build();
        self.update(scene, &what, vec![TableUpdate::AddSpec { spec }, TableUpdate::SetDefaultSpec { spec_id: -1 }]);
        self.gate.count("spec changes in format 1");
    }

    /// Drops some snapshots that no reference names, and what only they needed.
    pub(super) fn expire(&self, state: &mut State, scene: &Scene<'_>) {
        let whole = serde_json::to_value(&scene.metadata).unwrap();
        let mut named: BTreeSet<i64> =
            whole["refs"].as_object().into_iter().flatten().filter_map(|(_, r)| r["snapshot-id"].as_i64()).collect();
        named.extend(scene.head());
        let mut free: Vec<i64> = scene.metadata.snapshots().map(|s| s.snapshot_id()).filter(|id| !named.contains(id)).collect();
        free.sort_by_key(|id| scene.metadata.snapshot_by_id(*id).map(|s| (s.sequence_number(), s.timestamp_ms(), s.snapshot_id())));
        let all = state.dice.one_in(3);
        let keep = if all { 0 } else { 3 };
        let gone: Vec<i64> = free.iter().take(free.len().saturating_sub(keep)).copied().collect();
        if gone.is_empty() {
            return;
        }
        // what is gone cannot be looked at any more
        if let Err(wrong) = self.check_table(state, scene.table) {
            return self.gate.wrong(wrong);
        }
        let of = |id: &i64| scene.metadata.snapshot_by_id(*id).cloned().unwrap();
        let before: Vec<_> = gone.iter().map(of).map(|s| state.reader.reach(&scene.metadata, &s).unwrap()).collect();
        if hold(&self.account).began_on(&scene.of.name, &gone) {
            self.gate.count("expiries of what a job was planned on");
        }
        self.update(scene, &format!("{} snapshots expired", gone.len()), vec![TableUpdate::RemoveSnapshots { snapshot_ids: gone }]);
        let metadata = self.metadata(scene.table);
        let after: Vec<_> = metadata.snapshots().map(|s| state.reader.reach(&metadata, s).unwrap()).collect();
        let after: HashSet<&str> = after.iter().flat_map(|paths| paths.iter().map(|path| &**path)).collect();
        let unneeded = before.iter().flat_map(|paths| paths.iter()).filter(|path| !after.contains(&***path));
        unneeded.for_each(|path| self.objects.remove(path));
    }

    /// Raises the table to the next version of the format.
    pub(super) fn upgrade(&self, state: &mut State, scene: &Scene<'_>) {
        // the snapshots of before are read by the format of before
        if let Err(wrong) = self.check_table(state, scene.table) {
            return self.gate.wrong(wrong);
        }
        let format_version = match scene.metadata.format_version() {
            FormatVersion::V1 => FormatVersion::V2,
            _ => FormatVersion::V3,
        };
        self.update(scene, &format!("raised to format {format_version}"), vec![TableUpdate::UpgradeFormatVersion { format_version }]);
    }

    pub(super) fn roll_back(&self, state: &mut State, scene: &Scene<'_>) {
        let mut ancestors = vec![];
        let mut at = scene.metadata.current_snapshot().cloned();
        while let Some(snapshot) = at {
            at = snapshot.parent_snapshot_id().and_then(|id| scene.metadata.snapshot_by_id(id)).cloned();
            ancestors.extend(at.iter().map(|s| s.snapshot_id()));
        }
        ancestors.truncate(3);
        let Some(to) = state.dice.pick(&ancestors).copied() else { return };
        self.set_ref(scene, "main", SnapshotReference::new(to, SnapshotRetention::branch(None, None, None)));
        state.mail.push((scene.table, to));
    }

    pub(super) fn tag(&self, state: &mut State, scene: &Scene<'_>) {
        let Some(head) = scene.head() else { return };
        let name = ["old", "older"][state.dice.below(2)];
        let retention = SnapshotRetention::Tag { max_ref_age_ms: None };
        self.set_ref(scene, name, SnapshotReference::new(head, retention));
    }

    fn set_ref(&self, scene: &Scene<'_>, name: &str, reference: SnapshotReference) {
        let what = format!("{name} set to {}", reference.snapshot_id);
        self.update(scene, &what, vec![TableUpdate::SetSnapshotRef { ref_name: name.into(), reference }]);
    }
}
