//! What a benchmark says.

use serde_json::{Value, json};

/// One benchmark: it may give several figures.
pub struct Bench {
    /// Its name.
    pub name: &'static str,
    /// Further figures that it gives, by which it can be asked for too.
    pub also: &'static [&'static str],
    /// What it shows.
    pub about: &'static str,
    /// Measures; on small data when told to be quick.
    pub run: fn(quick: bool) -> anyhow::Result<Vec<Figure>>,
}

/// One figure.
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

impl Figure {
    /// A figure.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit }
    }

    /// As a JSON object.
    pub fn json(&self) -> Value {
        json!({"name": self.name, "value": self.value, "unit": self.unit})
    }
}

/// A number for people: whole where it is large.
pub fn human(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// The value in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of all lies; 0 of none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}
