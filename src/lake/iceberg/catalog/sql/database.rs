//! The statements, the same text for both databases.

use std::path::Path;
use std::time::Duration;

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tokio::sync::OnceCell;

use super::uri::Target;
use super::{Swap, Verdict, postgres, sqlite};
use crate::lake::Error;
use crate::model::ident::TableName;

const CREATE_TABLES: &str = "CREATE TABLE IF NOT EXISTS iceberg_tables (\
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, \
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5), \
    PRIMARY KEY (catalog_name, table_namespace, table_name))";
const CREATE_NAMESPACES: &str = "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (\
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, \
    property_value VARCHAR(1000) NOT NULL, PRIMARY KEY (catalog_name, namespace, property_key))";
const PROBE_TABLES: &str = "SELECT metadata_location FROM iceberg_tables WHERE 1 = 0";
const PROBE_NAMESPACES: &str = "SELECT property_key FROM iceberg_namespace_properties WHERE 1 = 0";
const PROBE_TYPE: &str = "SELECT iceberg_type FROM iceberg_tables WHERE 1 = 0";
/// Rows of views are passed over; a row without a type is a table.
const IS_TABLE: &str = " AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)";
/// The row that tells both other implementations that a namespace exists.
const NAMESPACE: &str = "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value) \
    VALUES ($1, $2, 'exists', 'true') ON CONFLICT DO NOTHING";

/// A database that holds a catalog.
pub struct Database {
    pool: Pool,
    /// Whether rows carry `iceberg_type`; found out at the first use.
    typed: OnceCell<bool>,
}

enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Database {
    pub fn open(target: Target, create_if_missing: bool) -> Result<Self, String> {
        let pool = match target {
            Target::Sqlite(path) => Pool::Sqlite(sqlite_pool(&path, create_if_missing)?),
            Target::Postgres(options) => {
                let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(postgres::CONNECT_PATIENCE);
                Pool::Postgres(pool.connect_lazy_with(options.as_ref().clone()))
            }
        };
        Ok(Self { pool, typed: OnceCell::new() })
    }

    /// Makes the catalog's tables where they are missing, once a process.
    /// Processes may race here: who comes second finds them made.
    pub async fn ready(&self) -> sqlx::Result<bool> {
        let prepare = async {
            if let Pool::Sqlite(pool) = &self.pool {
                sqlite::prepare(pool).await?;
            }
            for (probe, create) in [(PROBE_TABLES, CREATE_TABLES), (PROBE_NAMESPACES, CREATE_NAMESPACES)] {
                if !self.works(probe).await?
                    && let Err(e) = self.run(create).await
                    && !self.works(probe).await?
                {
                    return Err(e);
                }
            }
            self.works(PROBE_TYPE).await
        };
        patiently(postgres::PATIENCE, self.typed.get_or_try_init(|| prepare)).await.copied()
    }

    /// Namespace, table and pointer of every table.
    pub async fn list(&self, catalog: &str) -> sqlx::Result<Vec<(String, String, String)>> {
        let sql = self.text("SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = $1 AND metadata_location IS NOT NULL").await?;
        match &self.pool {
            Pool::Sqlite(pool) => sqlx::query_as(&sql).bind(catalog).fetch_all(pool).await,
            Pool::Postgres(pool) => patiently(postgres::PATIENCE, sqlx::query_as(&sql).bind(catalog).fetch_all(pool)).await,
        }
    }

    /// The pointer of one table, and the location before it.
    pub async fn pointer(&self, catalog: &str, name: &TableName) -> sqlx::Result<Option<(String, Option<String>)>> {
        let sql = self.text("SELECT metadata_location, previous_metadata_location FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2 AND table_name = $3 AND metadata_location IS NOT NULL").await?;
        let namespace = name.namespace_path();
        match &self.pool {
            Pool::Sqlite(pool) => sqlx::query_as(&sql).bind(catalog).bind(namespace).bind(&name.table).fetch_optional(pool).await,
            Pool::Postgres(pool) => {
                let row = sqlx::query_as(&sql).bind(catalog).bind(namespace).bind(&name.table);
                patiently(postgres::PATIENCE, row.fetch_optional(pool)).await
            }
        }
    }

    /// A new table, and its namespace where nothing names it yet.
    pub async fn insert(&self, catalog: &str, name: &TableName, location: &str) -> sqlx::Result<()> {
        let (column, value) = if self.ready().await? { (", iceberg_type", ", 'TABLE'") } else { ("", "") };
        let sql = format!(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location{column}) \
             VALUES ($1, $2, $3, $4, NULL{value})"
        );
        let namespace = name.namespace_path();
        match &self.pool {
            Pool::Sqlite(pool) => {
                sqlx::query(NAMESPACE).bind(catalog).bind(&namespace).execute(pool).await?;
                sqlx::query(&sql).bind(catalog).bind(&namespace).bind(&name.table).bind(location).execute(pool).await?;
            }
            Pool::Postgres(pool) => {
                sqlx::query(NAMESPACE).bind(catalog).bind(&namespace).execute(pool).await?;
                sqlx::query(&sql).bind(catalog).bind(&namespace).bind(&name.table).bind(location).execute(pool).await?;
            }
        }
        Ok(())
    }

    /// Moves a table's pointer, in one try.
    pub async fn swap(&self, swap: &Swap<'_>) -> Verdict {
        let sql = "UPDATE iceberg_tables SET metadata_location = $1, previous_metadata_location = $2 \
            WHERE catalog_name = $3 AND table_namespace = $4 AND table_name = $5 AND metadata_location = $2 \
            AND previous_metadata_location IS NOT DISTINCT FROM $6";
        match (self.text(sql).await, &self.pool) {
            (Err(e), _) => Verdict::Later(e.into()),
            (Ok(sql), Pool::Sqlite(pool)) => sqlite::swap(pool, &sql, swap).await,
            (Ok(sql), Pool::Postgres(pool)) => postgres::swap(pool, &sql, swap).await,
        }
    }

    /// Changes a table's previous location while its pointer is this one; `false`
    /// when it is another.
    pub async fn fence(&self, catalog: &str, name: &TableName, location: &str, mark: &str) -> sqlx::Result<bool> {
        let sql = "UPDATE iceberg_tables SET previous_metadata_location = $1 \
            WHERE catalog_name = $2 AND table_namespace = $3 AND table_name = $4 AND metadata_location = $5";
        let (sql, namespace) = (self.text(sql).await?, name.namespace_path());
        let rows = match &self.pool {
            Pool::Sqlite(pool) => {
                let update = sqlx::query(&sql).bind(mark).bind(catalog).bind(namespace).bind(&name.table).bind(location);
                update.execute(pool).await?.rows_affected()
            }
            Pool::Postgres(pool) => {
                let fenced = async {
                    let mut transaction = pool.begin().await?;
                    sqlx::query(postgres::LOCK_TIMEOUT).execute(&mut *transaction).await?;
                    let update = sqlx::query(&sql).bind(mark).bind(catalog).bind(namespace).bind(&name.table).bind(location);
                    let rows = update.execute(&mut *transaction).await?.rows_affected();
                    transaction.commit().await?;
                    Ok::<_, sqlx::Error>(rows)
                };
                patiently(postgres::PATIENCE, fenced).await?
            }
        };
        Ok(rows > 0)
    }

    /// A statement over tables only.
    async fn text(&self, sql: &str) -> sqlx::Result<String> {
        Ok(format!("{sql}{}", if self.ready().await? { IS_TABLE } else { "" }))
    }

    async fn run(&self, sql: &str) -> sqlx::Result<()> {
        match &self.pool {
            Pool::Sqlite(pool) => sqlx::query(sql).execute(pool).await.map(drop),
            Pool::Postgres(pool) => sqlx::query(sql).execute(pool).await.map(drop),
        }
    }

    /// Whether a statement runs; `false` when it names what is not there.
    async fn works(&self, probe: &str) -> sqlx::Result<bool> {
        match self.run(probe).await {
            Ok(()) => Ok(true),
            Err(sqlx::Error::Database(e)) if absent(e.as_ref()) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// A server that has taken a statement need not answer it.
async fn patiently<T>(time: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    tokio::time::timeout(time, work).await.map_err(|_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))?
}

fn absent(error: &dyn sqlx::error::DatabaseError) -> bool {
    matches!(error.code().as_deref(), Some("42P01" | "42703")) || error.message().starts_with("no such ")
}

fn sqlite_pool(path: &Path, create_if_missing: bool) -> Result<SqlitePool, String> {
    if !create_if_missing && !path.is_file() {
        return Err(format!("there is no SQLite database at {}; give the path that the engines use", path.display()));
    }
    if let (true, Some(folder)) = (create_if_missing, path.parent().filter(|folder| !folder.as_os_str().is_empty())) {
        std::fs::create_dir_all(folder).map_err(|e| format!("make folder {}: {e}", folder.display()))?;
    }
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(create_if_missing).busy_timeout(sqlite::PATIENCE);
    Ok(SqlitePoolOptions::new().max_connections(4).acquire_timeout(sqlite::PATIENCE).connect_lazy_with(options))
}

/// An error of a statement that changes nothing, by what the caller must do.
pub fn explain(what: String, error: sqlx::Error) -> Error {
    let setup = match &error {
        sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(e) => e.code().is_some_and(|code| {
            let postgres = code.len() == 5 && ["28", "3D", "42"].iter().any(|class| code.starts_with(class));
            postgres || matches!(code.as_ref(), "14" | "26" | "8")
        }),
        _ => false,
    };
    if setup { Error::Setup(format!("{what}: {error}")) } else { Error::unreachable(what, error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_given_up() {
        let hung = std::future::pending::<sqlx::Result<()>>();
        let error = patiently(Duration::from_millis(1), hung).await.unwrap_err();
        assert!(matches!(explain("list tables".into(), error), Error::Unreachable { .. }));
        assert_eq!(patiently(Duration::from_secs(60), async { Ok(7) }).await.unwrap(), 7);
    }
}
