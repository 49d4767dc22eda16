//! How candidates are compared and chosen, and what resources cost.

use super::section::Section;
use super::units::{self, flag, number, word};
use crate::model::economy::{Norm, Prices, Ranking, Select};

pub(super) fn from_section(mut section: Section<'_>) -> Ranking {
    let norm = section.read("normalize", |v| match units::text(v)?.trim() {
        "min-max" => Ok(Norm::MinMax),
        "rank" => Ok(Norm::Rank),
        other => Err(format!("expected min-max or rank, found `{other}`")),
    });
    let most = section.read("top_k", |v| number(v, 1, 1_000_000));
    let select = section.read("select", |v| match units::text(v)?.trim() {
        "greedy" => Ok(Select::Greedy),
        "exact" => Ok(Select::Exact),
        "top-k" => most.map(Select::TopK).ok_or_else(|| "top-k needs the key top_k beside it: how many".to_owned()),
        other => Err(format!("expected greedy, exact or top-k, found `{other}`")),
    });
    if most.is_some() && !matches!(select, None | Some(Select::TopK(_))) {
        section.mistake("top_k", "is used only with select = \"top-k\"");
    }
    let ranking = Ranking {
        norm: norm.unwrap_or_default(),
        select: select.unwrap_or_default(),
        write_amplification_weight: section.read("write_amplification_weight", |v| number(v, 0.0, 100.0)).unwrap_or_default(),
        quota_weights: section.read("quota_weights", flag).unwrap_or_default(),
        corrected: section.read("corrected", flag).unwrap_or_default(),
        read_weights: section.read("read_weights", flag).unwrap_or_default(),
    };
    section.finish();
    ranking
}

pub(super) fn prices(mut section: Section<'_>) -> Prices {
    let prices = Prices {
        gb_hour: section.read("gb_hour", |v| number(v, 0.0, 1e6)).unwrap_or_default(),
        thousand_requests: section.read("thousand_requests", |v| number(v, 0.0, 1e6)).unwrap_or_default(),
        gb_month: section.read("gb_month", |v| number(v, 0.0, 1e6)).unwrap_or_default(),
        scans_per_hour: section.read("scans_per_hour", |v| number(v, 0.0, 1e9)).unwrap_or_default(),
        currency: section.read("currency", word).unwrap_or_else(|| "USD".to_owned()),
    };
    section.finish();
    prices
}
