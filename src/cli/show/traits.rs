//! Traits by their names.

use super::super::human;
use super::table;
use crate::model::outside::{Outside, Stat, Told};
use crate::model::traits::{ALL, Traits};
use crate::proto::v1;

/// Every trait with its value, unit, kind and scope.
pub fn traits(traits: &Traits) -> String {
    let rows = ALL.iter().map(|t| {
        let value = t.of(traits).map_or_else(|| "not known".to_owned(), human::number);
        let told = traits.outside.told().find(|(stat, _)| stat.name() == t.name);
        let meaning = told.map_or_else(|| t.meaning.to_owned(), |(_, told)| format!("{}; told {} s ago", t.meaning, told.age_ms / 1000));
        vec![t.name.into(), value, t.unit.name().into(), t.kind.name().into(), t.scope.name().into(), meaning]
    });
    table(&["trait", "value", "unit", "kind", "scope", "meaning"], &["value"], rows)
}

/// Those of a decision that came over the wire.
pub fn traits_of(made: &v1::Decision) -> String {
    made.traits.as_ref().map(|t| traits(&read(t))).unwrap_or_default()
}

/// As far as the registry asks for them.
fn read(t: &v1::Traits) -> Traits {
    Traits {
        small_file_count: t.small_file_count,
        file_count_reduction: t.file_count_reduction,
        file_entropy: t.file_entropy,
        file_entropy_normalized: t.file_entropy_normalized,
        delete_ratio: t.delete_ratio,
        delete_file_count: t.delete_file_count,
        manifest_count: t.manifest_count,
        metadata_bytes: t.metadata_bytes,
        compute_cost: t.compute_cost,
        write_amplification: t.write_amplification,
        commit_rate: t.commit_rate,
        quiet_for_ms: t.quiet_for_ms,
        known_since_ms: t.known_since_ms,
        read_rate: t.read_rate,
        quota_used: t.quota_used,
        equality_delete_files: t.equality_delete_files,
        commits_since_rewrite: t.commits_since_rewrite,
        partition_age_ms: t.partition_age_ms,
        outside: outside(t),
        ..Traits::default()
    }
}

fn outside(t: &v1::Traits) -> Outside {
    let mut outside = Outside::default();
    for told in &t.outside {
        if let Some(stat) = Stat::ALL.into_iter().find(|stat| stat.name() == told.name) {
            outside.set(stat, Told { value: told.value, age_ms: told.age_ms });
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trait_is_shown_with_its_value_unit_kind_and_scope() {
        let wire = v1::Traits {
            small_file_count: 1,
            file_count_reduction: 2,
            file_entropy: 3.0,
            file_entropy_normalized: 4.0,
            delete_ratio: 5.0,
            delete_file_count: 6,
            manifest_count: 7,
            metadata_bytes: 8,
            compute_cost: 9.0,
            write_amplification: 10.0,
            commit_rate: 11.0,
            quiet_for_ms: Some(12),
            known_since_ms: Some(0),
            read_rate: Some(13.0),
            quota_used: None,
            equality_delete_files: 15,
            outside: vec![v1::OutsideTrait { name: "open_calls".into(), value: 20.0, age_ms: 61_000 }],
            ..v1::Traits::default()
        };
        let text = traits_of(&v1::Decision { traits: Some(wire), ..v1::Decision::default() });
        let cells = |line: &str| line.split("  ").map(|c| c.trim().to_owned()).filter(|c| !c.is_empty()).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> =
            text.lines().map(cells).filter(|c| ALL.iter().any(|t| Some(t.name) == c.first().map(String::as_str))).collect();
        let values: Vec<&str> = rows.iter().filter_map(|r| r.get(1)).map(String::as_str).collect();
        assert_eq!(
            values,
            [
                "1",
                "2",
                "3",
                "4",
                "5",
                "6",
                "7",
                "8",
                "9",
                "10",
                "11",
                "12",
                "13",
                "not known",
                "15",
                "not known",
                "not known",
                "not known",
                "not known",
                "20"
            ]
        );
        assert!(rows[19][5].ends_with("; told 61 s ago"), "{:?}", rows[19]);
        assert_eq!(rows[1][2..5], ["files", "benefit", "partition"]);
        assert_eq!(rows[13], ["quota_used", "not known", "ratio", "context", "tenant", "live objects over the tenant's quota"]);
    }
}
