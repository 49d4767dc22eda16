//! When work may begin, beside what asks for it.

use serde::{Deserialize, Serialize};

use super::schedule::Schedule;
use super::window::Window;

/// Which work begins when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// What a trigger asks for skips the queue; the rest is ranked.
    #[default]
    Immediate,
    /// All of it is ranked, what triggers ask for too.
    Queued,
    /// As immediate for triggers; the rest begins only in the off-peak hours.
    OffPeak,
    /// Nothing begins but at the times of the schedule; then all size tiers at once.
    Periodic,
    /// Nothing begins but while the tenant uses so much of its quota; then all size
    /// tiers at once.
    QuotaPressure,
}

impl Mode {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Immediate, Self::Queued, Self::OffPeak, Self::Periodic, Self::QuotaPressure];

    /// Its word, in settings and as the rule of what it makes due.
    pub fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Queued => "queued",
            Self::OffPeak => "off-peak",
            Self::Periodic => "periodic",
            Self::QuotaPressure => "quota-pressure",
        }
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether it asks for work by itself, all size tiers at once.
    pub fn asks(self) -> bool {
        matches!(self, Self::Periodic | Self::QuotaPressure)
    }
}

/// A mode with what it goes by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// The mode.
    pub mode: Mode,
    /// When periodic work is due.
    pub schedule: Schedule,
    /// For so long after a time of the schedule work may begin, in milliseconds.
    pub schedule_length_ms: i64,
    /// The off-peak hours, in UTC.
    pub off_peak: Vec<Window>,
    /// The share of the quota in use from which there is pressure.
    pub quota_pressure: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            mode: Mode::Immediate,
            schedule: Schedule::Every(24 * 3_600_000),
            schedule_length_ms: 3_600_000,
            off_peak: "20:00-06:00".parse().into_iter().collect(),
            quota_pressure: 0.9,
        }
    }
}
