//! The formats in which commits are told of.

use std::fmt;
use std::str::FromStr;

/// How the bytes of an event are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wire {
    /// `afterwrite.v1.CommitEvent` in protobuf.
    Protobuf,
    /// `afterwrite.v1.CommitEvent` in JSON.
    Json,
    /// CloudEvents of a Lakekeeper catalog, binary or structured.
    CloudEvents,
    /// The control topic of the Iceberg Kafka Connect sink.
    IcebergConnect,
    /// Iceberg's metrics reports in JSON.
    IcebergReport,
    /// Notifications of S3, MinIO and EventBridge about objects.
    S3,
    /// Hudi's commit callback.
    Hudi,
    /// Polaris' event listener.
    Polaris,
    /// OpenLineage run events.
    OpenLineage,
    /// Trino's `QueryCompletedEvent`.
    Trino,
}

impl Wire {
    /// Every format.
    pub const ALL: [Wire; 10] = [
        Wire::Protobuf,
        Wire::Json,
        Wire::CloudEvents,
        Wire::IcebergConnect,
        Wire::IcebergReport,
        Wire::S3,
        Wire::Hudi,
        Wire::Polaris,
        Wire::OpenLineage,
        Wire::Trino,
    ];

    /// The name that settings use.
    pub fn name(self) -> &'static str {
        match self {
            Wire::Protobuf => "protobuf",
            Wire::Json => "json",
            Wire::CloudEvents => "cloudevents",
            Wire::IcebergConnect => "iceberg-connect",
            Wire::IcebergReport => "iceberg-report",
            Wire::S3 => "s3",
            Wire::Hudi => "hudi",
            Wire::Polaris => "polaris",
            Wire::OpenLineage => "openlineage",
            Wire::Trino => "trino",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a text names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown format `{0}`: write one of protobuf, json, cloudevents, iceberg-connect, iceberg-report, s3, hudi, polaris, openlineage, trino"
)]
pub struct NotAWire(pub String);

impl FromStr for Wire {
    type Err = NotAWire;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|wire| wire.name() == text).ok_or_else(|| NotAWire(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name_and_named_in_the_error() {
        let error = NotAWire("x".into()).to_string();
        for wire in Wire::ALL {
            assert_eq!(wire.name().parse(), Ok(wire));
            assert!(error.contains(wire.name()), "{wire}");
        }
    }
}
