//! What other systems tell: read from the protocol and from JSON, checked once for both.

use std::sync::Arc;

use serde::Deserialize;
use tonic::{Request, Response, Status};

use super::backend::{Backend, Error, Taken, Tells};
use super::hook::check_catalog;
use crate::model::ident::TableName;
use crate::model::outside::Stat;
use crate::observe::grpc::table_name;
use crate::proto::services::statistics_server::Statistics;
use crate::proto::v1;

/// When numbers expire that do not say when.
const HOUR_S: u64 = 3600;
/// The longest that numbers are kept.
const LONGEST_S: u64 = 30 * 24 * HOUR_S;
/// The same of what a cluster has free.
const CAPACITY_S: u64 = 600;
const LONGEST_CAPACITY_S: u64 = 24 * HOUR_S;
/// Scopes in one telling.
const MOST: usize = 100_000;

/// The service.
pub(super) struct Told {
    pub(super) backend: Arc<dyn Backend>,
}

/// What is told of a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    table: String,
    scopes: Vec<Scope>,
    #[serde(default)]
    ttl_seconds: u64,
}

/// What is told of a scope.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Scope {
    partition: String,
    quota_used: Option<f64>,
    storage_cost: Option<f64>,
    read_rate: Option<f64>,
    files_scanned: Option<f64>,
    open_calls: Option<f64>,
}

/// What is free.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Free {
    free_gb: f64,
    #[serde(default)]
    ttl_seconds: u64,
}

impl Scope {
    fn of(told: v1::ScopeStatistics) -> Self {
        Self {
            partition: told.partition,
            quota_used: told.quota_used,
            storage_cost: told.storage_cost,
            read_rate: told.read_rate,
            files_scanned: told.files_scanned,
            open_calls: told.open_calls,
        }
    }

    /// Its numbers, if each is one.
    fn checked(self) -> Result<Tells, Error> {
        let of = |stat| match stat {
            Stat::QuotaUsed => self.quota_used,
            Stat::StorageCost => self.storage_cost,
            Stat::ReadRate => self.read_rate,
            Stat::FilesScanned => self.files_scanned,
            Stat::OpenCalls => self.open_calls,
        };
        let stats: Vec<(Stat, f64)> = Stat::ALL.into_iter().filter_map(|stat| Some((stat, of(stat)?))).collect();
        for (stat, value) in &stats {
            amount(stat.name(), *value)?;
        }
        if stats.is_empty() {
            let known = Stat::ALL.map(Stat::name).join(", ");
            return Err(Error::Invalid(format!("scopes: of `{}` no number is told; there are {known}", self.partition)));
        }
        Ok(Tells { partition: self.partition, stats })
    }
}

/// Not less than nothing.
fn amount(name: &str, value: f64) -> Result<f64, Error> {
    match value.is_finite() && value >= 0.0 {
        true => Ok(value),
        false => Err(Error::Invalid(format!("{name}: {value} is no amount: send a number from 0 up"))),
    }
}

/// When what is told now expires, in milliseconds since the epoch.
fn until_ms(now_ms: i64, asked_s: u64, default_s: u64, longest_s: u64) -> Result<i64, Error> {
    let seconds = if asked_s == 0 { default_s } else { asked_s };
    if seconds > longest_s {
        return Err(Error::Invalid(format!("ttl_seconds: {seconds} is longer than numbers are kept, {longest_s}")));
    }
    Ok(now_ms.saturating_add(i64::try_from(seconds).unwrap_or(0).saturating_mul(1000)))
}

async fn tell(backend: &dyn Backend, name: &TableName, scopes: Vec<Scope>, ttl_seconds: u64) -> Result<Taken, Error> {
    if scopes.len() > MOST {
        return Err(Error::Invalid(format!("scopes: at most {MOST} are taken at one time, and these are {}", scopes.len())));
    }
    let until_ms = until_ms(backend.now_ms(), ttl_seconds, HOUR_S, LONGEST_S)?;
    let told = scopes.into_iter().map(Scope::checked).collect::<Result<Vec<_>, _>>()?;
    backend.tell(name, &told, until_ms).await
}

/// Takes what was posted of a table.
///
/// # Errors
/// As the service.
pub(super) async fn take(backend: &dyn Backend, told: Statement) -> Result<Taken, Error> {
    let name = table_name(&told.table, None).map_err(|e| Error::Invalid(e.to_string()))?;
    check_catalog(&backend.catalogs(), &name.catalog).map_err(Error::NotFound)?;
    tell(backend, &name, told.scopes, told.ttl_seconds).await
}

/// Takes what was posted of a cluster; gives back GB-hours an hour.
///
/// # Errors
/// As the service.
pub(super) fn take_free(backend: &dyn Backend, told: &Free) -> Result<f64, Error> {
    let free_gb = amount("free_gb", told.free_gb)?;
    backend.tell_capacity(free_gb, until_ms(backend.now_ms(), told.ttl_seconds, CAPACITY_S, LONGEST_CAPACITY_S)?)
}

#[tonic::async_trait]
impl Statistics for Told {
    async fn tell_statistics(&self, request: Request<v1::TellStatisticsRequest>) -> Result<Response<v1::TellStatisticsResponse>, Status> {
        let told = request.into_inner();
        let name = table_name(&told.table, told.path.as_ref()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        check_catalog(&self.backend.catalogs(), &name.catalog).map_err(Status::not_found)?;
        let scopes = told.scopes.into_iter().map(Scope::of).collect();
        let taken = tell(self.backend.as_ref(), &name, scopes, told.ttl_seconds).await?;
        Ok(Response::new(v1::TellStatisticsResponse { taken: taken.taken, unknown: taken.unknown }))
    }

    async fn tell_capacity(&self, request: Request<v1::TellCapacityRequest>) -> Result<Response<v1::TellCapacityResponse>, Status> {
        let told = request.into_inner();
        let told = Free { free_gb: told.free_gb, ttl_seconds: told.ttl_seconds };
        let gb_hours_per_hour = take_free(self.backend.as_ref(), &told)?;
        Ok(Response::new(v1::TellCapacityResponse { gb_hours_per_hour }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expires_when_is_bounded() {
        assert_eq!(until_ms(5, 0, HOUR_S, LONGEST_S).unwrap(), 3_600_005);
        assert_eq!(until_ms(5, 2, HOUR_S, LONGEST_S).unwrap(), 2005);
        assert!(until_ms(5, LONGEST_S + 1, HOUR_S, LONGEST_S).is_err());
    }

    #[test]
    fn a_number_is_an_amount_and_one_is_needed() {
        let scope = |value| Scope { read_rate: Some(value), ..Scope::default() };
        assert_eq!(scope(1.5).checked().unwrap().stats, [(Stat::ReadRate, 1.5)]);
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(scope(value).checked().unwrap_err().to_string().starts_with("read_rate: "));
        }
        assert!(Scope::default().checked().unwrap_err().to_string().contains("no number is told"));
    }
}
