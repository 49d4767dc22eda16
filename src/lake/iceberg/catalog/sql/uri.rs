//! The spellings of a SQL catalog's address. Pure.

use std::path::PathBuf;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

/// A database, by its driver.
#[derive(Debug)]
pub enum Target {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<PgConnectOptions>),
}

/// Parses a catalog's URI.
///
/// # Errors
/// A text that says what is understood. It never repeats the URI, which may hold a
/// password.
pub fn parse(uri: &str) -> Result<Target, String> {
    let uri = uri.strip_prefix("jdbc:").unwrap_or(uri);
    let (scheme, rest) = uri.split_once(':').ok_or_else(|| unknown(uri.split(['/', '?', '@']).next().unwrap_or_default()))?;
    match scheme.split('+').next().unwrap_or_default() {
        "sqlite" => sqlite(rest).map(Target::Sqlite),
        "postgres" | "postgresql" => {
            let options = PgConnectOptions::from_str(&format!("postgres:{rest}")).map_err(|e| format!("the PostgreSQL URI: {e}"))?;
            Ok(Target::Postgres(Box::new(options.application_name("afterwrite"))))
        }
        other => Err(unknown(other)),
    }
}

fn sqlite(rest: &str) -> Result<PathBuf, String> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() || path == ":memory:" || path == "/:memory:" {
        return Err("the SQLite URI names no file; an in-memory database cannot be shared with an engine".into());
    }
    if path.contains('?') {
        return Err("the SQLite URI carries options; write the path alone".into());
    }
    Ok(PathBuf::from(path))
}

fn unknown(scheme: &str) -> String {
    format!("uri scheme `{scheme}` is not known; write sqlite:///path/to/catalog.db or postgres://user@host/database")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(uri: &str) -> PathBuf {
        match parse(uri) {
            Ok(Target::Sqlite(path)) => path,
            other => panic!("{uri}: {other:?}"),
        }
    }

    #[test]
    fn sqlite_spellings() {
        for absolute in ["sqlite:///d/c.db", "sqlite:////d/c.db", "sqlite:/d/c.db", "jdbc:sqlite:/d/c.db", "sqlite+pysqlite:///d/c.db"] {
            assert_eq!(file(absolute), PathBuf::from("/d/c.db"), "{absolute}");
        }
        assert_eq!(file("sqlite:d/c.db"), PathBuf::from("d/c.db"));
    }

    #[test]
    fn postgres_spellings() {
        for uri in [
            "postgres://u:p@h:5433/db",
            "postgresql://u:p@h:5433/db",
            "postgresql+psycopg2://u:p@h:5433/db",
            "jdbc:postgresql://h:5433/db?user=u",
        ] {
            let Ok(Target::Postgres(options)) = parse(uri) else { panic!("{uri}") };
            assert_eq!(
                (options.get_host(), options.get_port(), options.get_username(), options.get_database()),
                ("h", 5433, "u", Some("db")),
                "{uri}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_is_named_without_the_password() {
        for uri in ["mysql://u:secret@h/db", "sqlite::memory:", "sqlite:///a?mode=ro", "secret", "postgres://u:secret@h:notaport/db"] {
            let error = parse(uri).unwrap_err();
            assert!(!error.contains("secret") || uri == "secret", "{error}");
        }
        assert!(parse("mysql://h/db").unwrap_err().contains("`mysql` is not known"));
    }
}
