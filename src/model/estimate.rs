//! What a job is expected to do, beside what it did.

use serde::{Deserialize, Serialize};

/// The numbers that are estimated, in this order wherever they stand in a row.
pub const QUANTITIES: [&str; 4] = ["files", "bytes", "seconds", "gb-hours"];

/// One value for each of [`QUANTITIES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Data files fewer.
    pub files: f64,
    /// Bytes of the outputs.
    pub bytes: f64,
    /// Wall time in seconds.
    pub seconds: f64,
    /// GB-hours.
    pub gb_hours: f64,
}

impl Figures {
    /// In the order of [`QUANTITIES`].
    pub fn row(&self) -> [f64; 4] {
        [self.files, self.bytes, self.seconds, self.gb_hours]
    }

    /// From a row in that order.
    pub fn of_row([files, bytes, seconds, gb_hours]: [f64; 4]) -> Self {
        Self { files, bytes, seconds, gb_hours }
    }
}

/// What a job was expected to do when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// By the formulas and the settings alone.
    pub plain: Figures,
    /// As corrected by what jobs before have shown.
    pub corrected: Figures,
}
