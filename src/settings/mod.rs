//! Settings: one file in TOML, the environment over it, full defaults without
//! either; and what they mean for one table.
//!
//! A key may be written with `_` or `-`. From the environment, `AFTERWRITE_` and
//! the key's path joined by `__`: `AFTERWRITE_SERVER__LISTEN`. All mistakes are
//! reported at once, each with the path of its key.

mod budget;
mod cache;
mod catalog;
mod environment;
mod expressions;
mod journal;
mod kafka;
mod policy;
mod poll;
mod preset;
mod proxy;
mod ranking;
mod record;
mod resolve;
mod section;
mod server;
mod shown;
mod table;
mod units;
mod uri;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use figment::Figment;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Tag, Value};

use crate::model::economy::{Budgets, Prices, Ranking, Tenant};
use crate::model::policy::{BudgetLimits, Policy};
use section::Section;

pub use budget::{Capacity, FreeFrom};
pub use cache::Cache;
pub use catalog::{Catalog, CatalogKind};
pub use expressions::Expressions;
pub use journal::Journal;
pub use kafka::{Kafka, Topic as KafkaTopic};
pub use policy::PolicySettings;
pub use poll::Poll;
pub use proxy::Proxy;
pub use record::Record;
pub use resolve::{Warning, resolve, resolve_over};
pub use server::Server;
pub use table::TableRule;

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The doors.
    pub server: Server,
    /// Catalogs by the name under which engines know them.
    pub catalogs: BTreeMap<String, Catalog>,
    /// Kafka topics to hear of commits from.
    pub kafka: BTreeMap<String, Kafka>,
    /// Where the journal lies.
    pub journal: Journal,
    /// The cache of layouts.
    pub cache: Cache,
    /// How often tables are looked at when no event comes.
    pub poll: Poll,
    /// What all jobs share.
    pub budget: BudgetLimits,
    /// All budgets: what jobs share, what tables and tenants may spend.
    pub budgets: Budgets,
    /// What a cluster has free, where the overall budget follows it.
    pub capacity: Capacity,
    /// How candidates are compared and chosen.
    pub ranking: Ranking,
    /// What resources cost.
    pub prices: Prices,
    /// Users' own traits, filters and triggers.
    pub expressions: Expressions,
    /// Where decisions are recorded.
    pub record: Record,
    /// What holds for every table.
    pub defaults: PolicySettings,
    /// What holds for the tables of a pattern; later rules win, field by field.
    pub tables: Vec<TableRule>,
    /// The lasting id of this process, written into its snapshots; made and
    /// journaled when it is not set.
    pub instance: Option<String>,
    /// Whether a table is claimed, by a property of its own, before it is rewritten: due
    /// where other sidecars, with journals of their own, act in the same catalogs.
    pub claims: bool,
}

/// One mistake in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The path of the key; empty for the file as a whole.
    pub key: String,
    /// What is wrong with it and what to write instead.
    pub message: String,
}

/// Every mistake in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error(pub Vec<Mistake>);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings cannot be used")?;
        for mistake in &self.0 {
            match mistake.key.as_str() {
                "" => write!(f, "\n  {}", mistake.message)?,
                key => write!(f, "\n  {key}: {}", mistake.message)?,
            }
        }
        Ok(())
    }
}

impl Settings {
    /// Reads a file, if one is given, and the environment of the process.
    pub fn load(file: Option<&Path>) -> Result<Self, Error> {
        let text = match file {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path)
                .map_err(|e| Error(vec![Mistake { key: String::new(), message: format!("cannot read {}: {e}", path.display()) }]))?,
        };
        let environment = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::read(&text, environment)
    }

    /// Reads a TOML text and an environment.
    pub fn read(toml: &str, environment: impl IntoIterator<Item = (String, String)>) -> Result<Self, Error> {
        let environment: BTreeMap<String, String> = environment.into_iter().collect();
        let figment = Figment::from(Toml::string(toml)).merge(environment::Environment(&environment));
        let values: Dict = figment
            .extract()
            .map_err(|e| Error(e.into_iter().map(|e| Mistake { key: String::new(), message: e.to_string() }).collect()))?;
        let mut mistakes = Vec::new();
        let settings = Self::from_section(Section::new("", Value::Dict(Tag::Default, values), &mut mistakes), &environment);
        if mistakes.is_empty() { Ok(settings) } else { Err(Error(mistakes)) }
    }

    /// The sections that a TOML text sets.
    ///
    /// # Errors
    /// When it is no TOML.
    pub fn sections(toml: &str) -> Result<BTreeSet<String>, Error> {
        let read: Result<Dict, _> = Figment::from(Toml::string(toml)).extract();
        let values = read.map_err(|e| Error(vec![Mistake { key: String::new(), message: e.to_string() }]))?;
        Ok(values.into_keys().collect())
    }

    /// The tenant of the table of that name: the first whose pattern holds.
    pub fn tenant_of(&self, name: &str) -> Option<&Tenant> {
        self.budgets.tenants.iter().find(|t| t.patterns.iter().any(|pattern| table::matches(pattern, name)))
    }

    /// A commented file that sets every key to its default.
    pub fn example() -> &'static str {
        include_str!("example.toml")
    }

    /// What holds, in a few lines without secrets.
    pub fn summary(&self) -> String {
        let mut lines = vec![
            format!("grpc     {}", self.server.listen),
            format!("http     {}", self.server.http),
            format!("journal  {}", self.journal.path.display()),
            format!("cache    {} bytes", self.cache.memory),
            format!("poll     every {} to {} ms", self.poll.min_ms, self.poll.max_ms),
            format!("budget   {} GB-hours an hour, {} jobs at a time", self.budget.gb_hours_per_hour, self.budget.concurrent_jobs),
        ];
        for (name, catalog) in &self.catalogs {
            let warehouse = match (catalog.kind, catalog.warehouse.as_str()) {
                (CatalogKind::Rest, "") => String::new(),
                (CatalogKind::Rest, warehouse) => format!(", warehouse {warehouse}"),
                (CatalogKind::Sql, folder) => format!(" with its tables under {folder}"),
            };
            lines.push(format!("catalog  {name}: {}{warehouse}", without_password(&catalog.uri)));
            if let Some(proxy) = &catalog.proxy {
                lines.push(format!("proxy    {} in front of {}", proxy.listen, proxy.upstream));
            }
        }
        for (name, kafka) in &self.kafka {
            let topics: Vec<String> = kafka.topics.iter().map(|t| format!("{} ({})", t.topic, t.format)).collect();
            lines.push(format!("kafka    {name}: {} of {} as {}", topics.join(", "), kafka.brokers, kafka.group));
        }
        if self.server.token.is_some() {
            lines.push("token    is asked of callers".to_owned());
        }
        lines.extend(self.expressions.lines());
        for (at, (key, value)) in self.shown_defaults().into_iter().enumerate() {
            lines.push(format!("{:<8} {key} = {value}", if at == 0 { "defaults" } else { "" }));
        }
        for rule in &self.tables {
            lines.push(format!("table    {}", rule.pattern));
            lines.extend(rule.policy.shown().into_iter().map(|(key, value)| format!("         {key} = {value}")));
        }
        lines.join("\n")
    }

    /// The same for programs.
    pub fn summary_json(&self) -> serde_json::Value {
        let catalog = |(name, catalog): (&String, &Catalog)| serde_json::json!({ "name": name, "uri": without_password(&catalog.uri), "warehouse": catalog.warehouse });
        serde_json::json!({
            "grpc": self.server.listen.to_string(),
            "http": self.server.http.to_string(),
            "journal": self.journal.path.display().to_string(),
            "cache_bytes": self.cache.memory,
            "poll_min_ms": self.poll.min_ms,
            "poll_max_ms": self.poll.max_ms,
            "gb_hours_per_hour": self.budget.gb_hours_per_hour,
            "concurrent_jobs": self.budget.concurrent_jobs,
            "catalogs": self.catalogs.iter().map(catalog).collect::<Vec<_>>(),
            "kafka": self.kafka.iter().map(|(name, k)| {
                let topics: Vec<_> = k.topics.iter().map(|t| serde_json::json!({ "topic": t.topic, "format": t.format.name(), "catalog": t.catalog })).collect();
                serde_json::json!({ "name": name, "brokers": k.brokers, "group": k.group, "topics": topics, "dead_letter": k.dead_letter })
            }).collect::<Vec<_>>(),
            "defaults": self.shown_defaults().into_iter().collect::<BTreeMap<_, _>>(),
            "tables": self.tables.iter().map(|rule| {
                serde_json::json!({ "match": rule.pattern, "sets": rule.policy.shown().into_iter().collect::<BTreeMap<_, _>>() })
            }).collect::<Vec<_>>(),
        })
    }

    /// What holds for a table that no pattern names and that has no properties.
    fn shown_defaults(&self) -> Vec<(&'static str, String)> {
        PolicySettings::of(&self.defaults.over(Policy::default())).shown()
    }

    fn from_section(mut top: Section<'_>, environment: &BTreeMap<String, String>) -> Self {
        let instance = top.read("instance", units::word);
        let claims = top.read("claims", units::flag).unwrap_or(false);
        let server = Server::from_section(top.section("server"));
        let (catalogs, named) = catalog::all(top.section("catalog"));
        let expressions = Expressions::read(&mut top);
        let mut capacity = Capacity::default();
        let mut settings = Self {
            instance,
            claims,
            server,
            kafka: kafka::all(top.section("kafka"), &catalogs),
            catalogs,
            journal: Journal::from_section(top.section("journal"), environment),
            cache: Cache::from_section(top.section("cache")),
            poll: Poll::from_section(top.section("poll")),
            budget: BudgetLimits::default(),
            budgets: budget::from_section(top.section("budget"), &mut capacity),
            capacity,
            ranking: ranking::from_section(top.section("ranking")),
            prices: ranking::prices(top.section("prices")),
            record: Record::from_section(top.section("record")),
            defaults: PolicySettings::from_section(top.section("defaults"), &expressions),
            tables: table::all(&mut top, &named, &expressions),
            expressions,
        };
        settings.budget = settings.budgets.overall;
        settings.budgets.tenants = budget::tenants(&mut top, &named);
        settings.check_addresses(&mut top);
        top.finish();
        settings
    }
}

impl Settings {
    /// Two doors cannot have one address.
    fn check_addresses(&self, top: &mut Section<'_>) {
        let mut taken = vec![(self.server.listen, "server.listen".to_owned())];
        let proxies = self.catalogs.iter().filter_map(|(name, c)| Some((c.proxy.as_ref()?.listen, format!("catalog.{name}.proxy.listen"))));
        for (address, key) in std::iter::once((self.server.http, "server.http".to_owned())).chain(proxies) {
            // among themselves the proxies were checked before
            let other = taken.iter().find(|(at, other)| *at == address && address.port() != 0 && !other.ends_with(".proxy.listen"));
            if let Some((_, other)) = other {
                top.mistake(&key, format!("{address} is the address of {other} already"));
            }
            taken.push((address, key));
        }
    }
}

#[cfg(test)]
mod tests;

/// A URI as it may be shown.
fn without_password(uri: &str) -> String {
    match uri.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (user, host))) => format!("{scheme}://{}:***@{host}", user.split(':').next().unwrap_or_default()),
        None => uri.to_owned(),
    }
}
