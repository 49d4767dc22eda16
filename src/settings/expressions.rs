//! Users' own traits, filters and triggers, each by its name.
//!
//! Traits may name each other, but in a circle; filters and triggers may name all.

use figment::value::Value;

use super::section::Section;
use super::units::{self, Read};
use crate::model::expression::{Expression, Own, Type, names};
use crate::model::mode::Mode;
use crate::model::policy::{Filter, Policy, Rule, Takes};

/// Everything that expressions add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expressions {
    /// Traits.
    pub traits: Vec<Own>,
    /// Filters.
    pub filters: Vec<Filter>,
    /// Triggers.
    pub triggers: Vec<Rule>,
}

impl Expressions {
    pub(super) fn read(top: &mut Section<'_>) -> Self {
        let traits = traits(top);
        let mut all = Self { traits, ..Self::default() };
        for (name, value) in named(top, "filter") {
            let mut section = top.nested(&format!("filter.{name}"), value);
            let holds = expression(&mut section, "holds", &all.traits);
            section.finish();
            all.filters.extend(holds.map(|holds| Filter { name, holds }));
        }
        for (name, value) in named(top, "trigger") {
            let mut section = top.nested(&format!("trigger.{name}"), value);
            let when = expression(&mut section, "when", &all.traits);
            let takes = section.read("takes", takes).unwrap_or_default();
            section.finish();
            all.triggers.extend(when.map(|when| Rule::Own { name, when, takes }));
        }
        all
    }

    /// Each in a line.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let weighs = |own: &Own| if own.weight == 0.0 { String::new() } else { format!(" weighs {}", own.weight) };
        let traits = self.traits.iter().map(move |own| format!("trait    {} is {}{}", own.name, own.is, weighs(own)));
        let filters = self.filters.iter().map(|filter| format!("filter   {} holds {}", filter.name, filter.holds));
        let triggers = self.triggers.iter().filter_map(|rule| match rule {
            Rule::Own { name, when, takes } => Some(format!("trigger  {name} when {when} takes {}", takes.name())),
            _ => None,
        });
        traits.chain(filters).chain(triggers)
    }

    /// The trigger of that name.
    pub(super) fn trigger(&self, name: &str) -> Option<&Rule> {
        self.triggers.iter().find(|rule| rule.name() == name)
    }

    /// Names of triggers, with a comma behind each.
    pub(super) fn trigger_names(&self) -> String {
        self.triggers.iter().map(|rule| format!("{}, ", rule.name())).collect()
    }

    /// Filters by their names.
    pub(super) fn filters(&self, value: &Value) -> Read<Vec<Filter>> {
        let none = match value {
            Value::Array(_, values) => values.is_empty(),
            other => units::text(other)?.trim().is_empty(),
        };
        let wanted = if none { Vec::new() } else { units::words(value)? };
        let known = || match self.filters.as_slice() {
            [] => "there is none: write [filter.NAME] with holds = \"…\"".to_owned(),
            all => format!("there are {}", all.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", ")),
        };
        let find = |name: &String| self.filters.iter().find(|f| f.name == *name).cloned();
        wanted.iter().map(|name| find(name).ok_or_else(|| format!("unknown filter `{name}`; {}", known()))).collect()
    }
}

/// Own traits, those that others name before them.
fn traits(top: &mut Section<'_>) -> Vec<Own> {
    let mut waiting = Vec::new();
    for (name, value) in named(top, "trait") {
        let mut section = top.nested(&format!("trait.{name}"), value);
        let meaning = section.read("meaning", units::text).unwrap_or_default();
        let is = required(&mut section, "is");
        let weight = section.read("weight", |v| units::number(v, -100.0, 100.0)).unwrap_or(0.0);
        section.finish();
        waiting.extend(is.map(|is| (name, is, meaning, weight)));
    }
    let mut traits: Vec<Own> = Vec::new();
    loop {
        let before = waiting.len();
        let mut mistakes = Vec::new();
        waiting.retain(|(name, is, meaning, weight)| match Expression::of_type(is, &traits, Type::Number) {
            Ok(is) => {
                traits.push(Own { name: name.as_str().into(), is, meaning: meaning.clone(), weight: *weight });
                false
            }
            Err(mistake) => {
                mistakes.push((name.clone(), mistake));
                true
            }
        });
        if waiting.is_empty() {
            return traits;
        }
        if waiting.len() == before {
            for (name, mistake) in mistakes {
                top.mistake(&format!("trait.{name}.is"), mistake.to_string());
            }
            return traits;
        }
    }
}

/// Each table below a key, by a name that can be one.
fn named(top: &mut Section<'_>, key: &'static str) -> Vec<(String, Value)> {
    let given = match top.take(key) {
        None => return Vec::new(),
        Some(Value::Dict(_, given)) => given,
        Some(_) => {
            top.mistake(key, format!("expected tables: write [{key}.NAME]"));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for (name, value) in given {
        match check_name(key, &name) {
            Ok(()) => found.push((name, value)),
            Err(why) => top.mistake(&format!("{key}.{name}"), why),
        }
    }
    found
}

/// Names of traits are words of expressions; others may have hyphens.
fn check_name(key: &str, name: &str) -> Result<(), String> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || (c == '-' && key != "trait");
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(letter) || name.len() > 60 {
        let also = if key == "trait" { "" } else { ", hyphens" };
        return Err(format!("no name: write lower-case letters, digits{also} and `_`, a letter first"));
    }
    let reserved = ["known", "default", "true", "false", "null", "in", "score", "request", "queue", "mode"];
    let taken = names().contains(&name)
        || reserved.contains(&name)
        || Mode::named(name).is_some()
        || Policy::default().rules.iter().any(|rule| rule.name() == name);
    if taken { Err(format!("`{name}` is taken")) } else { Ok(()) }
}

fn required(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    match section.take(key) {
        None => {
            section.mistake(key, "is missing: write for example \"small_file_count >= 20 && default(read_rate, 0) > 10\"");
            None
        }
        Some(value) => units::text(&value).map_err(|why| section.mistake(key, why)).ok(),
    }
}

fn expression(section: &mut Section<'_>, key: &'static str, own: &[Own]) -> Option<Expression> {
    let text = required(section, key)?;
    Expression::of_type(&text, own, Type::Truth).map_err(|mistake| section.mistake(key, mistake.to_string())).ok()
}

fn takes(value: &Value) -> Read<Takes> {
    let written = units::text(value)?;
    let known = || Takes::ALL.map(Takes::name).join(", ");
    Takes::ALL
        .into_iter()
        .find(|takes| takes.name() == written.trim())
        .ok_or_else(|| format!("expected one of {}, found `{written}`", known()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Settings, resolve};
    use crate::model::ident::TableName;
    use crate::model::policy::{Policy, Rule, Takes};

    const OWN: &str = "
[trait.weight]
is = \"waste * 2\"
weight = -0.25
[trait.waste]
is = \"small_file_count * default(read_rate, 1)\"
meaning = \"files that reads open for nothing\"
[filter.calm]
holds = \"commit_rate < 30\"
[trigger.read-often]
when = \"weight > 40\"
takes = \"full-tiers\"
";

    fn settings(more: &str) -> Settings {
        Settings::read(&format!("{OWN}{more}"), []).unwrap()
    }

    fn policy(more: &str, properties: &[(&str, &str)]) -> (Policy, usize) {
        let properties: BTreeMap<String, String> = properties.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let (policy, warnings) = resolve(&settings(more), &TableName::new("lake", "sales", "orders"), &properties);
        (policy, warnings.len())
    }

    fn mistakes(toml: &str) -> Vec<(String, String)> {
        Settings::read(toml, []).unwrap_err().0.into_iter().map(|m| (m.key, m.message)).collect()
    }

    #[test]
    fn expressions_are_used_by_their_names_in_settings_and_properties() {
        let more = "[defaults]\nrules = [\"read-often\", \"deletes\"]\nfilters = [\"calm\"]";
        let (found, _) = policy(more, &[]);
        assert_eq!(found.rules.iter().map(Rule::name).collect::<Vec<_>>(), ["read-often", "deletes"]);
        assert!(matches!(&found.rules[0], Rule::Own { takes: Takes::FullTiers, when, .. } if when.to_string() == "weight > 40"));
        assert_eq!(found.filters.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["calm"]);
        assert_eq!(found.own.iter().map(|own| &*own.name).collect::<Vec<_>>(), ["waste", "weight"]);
        let (found, warnings) = policy("", &[("afterwrite.rules", "read-often"), ("afterwrite.filters", "calm")]);
        assert_eq!((found.rules.len(), found.filters.len(), warnings), (1, 1, 0));
        let summary = settings(more).summary();
        let lines = [
            "trait    weight is waste * 2 weighs -0.25",
            "filter   calm holds commit_rate < 30",
            "trigger  read-often when weight > 40 takes full-tiers",
        ];
        assert!(lines.iter().all(|line| summary.contains(line)), "{summary}");
        let (found, warnings) = policy(more, &[("afterwrite.filters", ""), ("afterwrite.rules", "nothing")]);
        assert_eq!((found.filters.len(), found.rules.len(), warnings), (0, 2, 1));
    }

    #[test]
    fn mistakes_name_the_key_and_the_place() {
        let toml = "[trait.a]\nis = \"b\"\n[trait.b]\nis = \"a + nosuch\"\n[filter.f]\nholds = \"data_files\"\n[trigger.t]\nwhen = \"1 +\"\ntakes = \"some\"\n";
        let found = mistakes(toml);
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["trait.a.is", "trait.b.is", "filter.f.holds", "trigger.t.when", "trigger.t.takes"]);
        assert!(found[0].1.starts_with("column 1: unknown trait `b`"), "{found:?}");
        assert_eq!(found[2].1, "column 1: it gives a number, and true or false is needed");
        assert_eq!(found[4].1, "expected one of merge, full-tiers, deletes, all, found `some`");
    }

    #[test]
    fn a_name_is_a_word_that_is_not_taken() {
        let why = |name: &str| mistakes(&format!("[trait.{name}]\nis = \"1\"")).remove(0).1;
        assert_eq!(why("read_rate"), "`read_rate` is taken");
        assert!(why("Big").starts_with("no name") && why("\"a.b\"").starts_with("no name") && why("a-b").starts_with("no name"));
        let trigger = |name: &str| mistakes(&format!("[trigger.{name}]\nwhen = \"true\"")).remove(0).1;
        assert_eq!((trigger("deletes"), trigger("periodic")), ("`deletes` is taken".into(), "`periodic` is taken".into()));
        assert_eq!(mistakes("[filter.f]")[0].0, "filter.f.holds");
        assert_eq!(
            mistakes("[defaults]\nfilters = [\"x\"]")[0],
            ("defaults.filters".into(), "unknown filter `x`; there is none: write [filter.NAME] with holds = \"…\"".into())
        );
    }
}
