//! What a request is, by its method and raw path alone.
//!
//! Paths are matched from the right: what stands before `namespaces` (version,
//! a prefix of any number of segments, or nothing) is the catalog's own affair.
//! Nothing is decoded here, so that what is forwarded and what is asked again
//! stays byte for byte what the client wrote.

/// A table as a path spells it, still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePath<'p> {
    /// The whole path of the table, without what follows it.
    pub path: &'p str,
    /// The namespace segment.
    pub namespace: &'p str,
    /// The table segment.
    pub table: &'p str,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'p> {
    /// `GET …/v1/config`.
    Config,
    /// `POST …/oauth/tokens`: never kept, never logged.
    Token,
    /// `POST …/tables/{t}`: a commit to one table.
    Commit(TablePath<'p>),
    /// `POST …/transactions/commit`: a commit to several. `base` is what stands
    /// before `/transactions`.
    Transaction {
        /// The path before `/transactions`.
        base: &'p str,
    },
    /// `GET …/tables/{t}`.
    Load(TablePath<'p>),
    /// `DELETE …/tables/{t}`.
    Drop(TablePath<'p>),
    /// `POST …/tables`: creates a table, or stages one.
    Create {
        /// The namespace segment.
        namespace: &'p str,
    },
    /// `POST …/register`.
    Register {
        /// The namespace segment.
        namespace: &'p str,
    },
    /// `POST …/tables/rename`.
    Rename,
    /// `POST …/tables/{t}/metrics`: a scan or commit report.
    Report(TablePath<'p>),
    /// `POST …/tables/{t}/plan`: the catalog plans a scan.
    Plan(TablePath<'p>),
    /// Anything else.
    Other,
}

impl Route<'_> {
    /// A short name, for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Token => "token",
            Self::Commit(_) => "commit",
            Self::Transaction { .. } => "transaction",
            Self::Load(_) => "load",
            Self::Drop(_) => "drop",
            Self::Create { .. } => "create",
            Self::Register { .. } => "register",
            Self::Rename => "rename",
            Self::Report(_) => "report",
            Self::Plan(_) => "plan",
            Self::Other => "other",
        }
    }
}

/// What a request is. `path` is raw, without the query.
pub fn classify<'p>(method: &str, path: &'p str) -> Route<'p> {
    let segments: Vec<&str> = path.rsplitn(6, '/').collect();
    match (method, segments.as_slice()) {
        ("GET", ["config", "v1", ..]) => Route::Config,
        ("POST", ["tokens", "oauth", ..]) => Route::Token,
        ("POST", ["metrics", table, "tables", namespace, "namespaces", ..]) => {
            table_path(path, "/metrics", namespace, table).map_or(Route::Other, Route::Report)
        }
        ("POST", ["plan", table, "tables", namespace, "namespaces", ..]) => {
            table_path(path, "/plan", namespace, table).map_or(Route::Other, Route::Plan)
        }
        (_, [table, "tables", namespace, "namespaces", ..]) => match table_path(path, "", namespace, table) {
            Some(at) => of_table(method, at),
            None => Route::Other,
        },
        ("POST", ["tables", namespace, "namespaces", ..]) => Route::Create { namespace },
        ("POST", ["register", namespace, "namespaces", ..]) => Route::Register { namespace },
        ("POST", ["rename", "tables", ..]) => Route::Rename,
        ("POST", ["commit", "transactions", ..]) => match path.strip_suffix("/transactions/commit") {
            Some(base) => Route::Transaction { base },
            None => Route::Other,
        },
        _ => Route::Other,
    }
}

fn of_table<'p>(method: &str, at: TablePath<'p>) -> Route<'p> {
    match method {
        "POST" => Route::Commit(at),
        "GET" => Route::Load(at),
        "DELETE" => Route::Drop(at),
        _ => Route::Other,
    }
}

fn table_path<'p>(path: &'p str, suffix: &str, namespace: &'p str, table: &'p str) -> Option<TablePath<'p>> {
    if namespace.is_empty() || table.is_empty() {
        return None;
    }
    Some(TablePath { path: path.strip_suffix(suffix)?, namespace, table })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(method: &str, path: &str) -> (&'static str, String) {
        let route = classify(method, path);
        let detail = match route {
            Route::Commit(t) | Route::Load(t) | Route::Drop(t) | Route::Report(t) | Route::Plan(t) => {
                format!("{} {} {}", t.path, t.namespace, t.table)
            }
            Route::Create { namespace } | Route::Register { namespace } => namespace.to_owned(),
            Route::Transaction { base } => base.to_owned(),
            _ => String::new(),
        };
        (route.name(), detail)
    }

    #[test]
    fn every_route_of_the_protocol_is_told_apart() {
        let cases = [
            ("GET", "/v1/config", "config", ""),
            ("GET", "/api/catalog/v1/config", "config", ""),
            ("POST", "/v1/oauth/tokens", "token", ""),
            ("POST", "/v1/namespaces/a/tables/t", "commit", "/v1/namespaces/a/tables/t a t"),
            ("GET", "/v1/namespaces/a/tables/t", "load", "/v1/namespaces/a/tables/t a t"),
            ("HEAD", "/v1/namespaces/a/tables/t", "other", ""),
            ("DELETE", "/v1/namespaces/a/tables/t", "drop", "/v1/namespaces/a/tables/t a t"),
            ("POST", "/v1/namespaces/a/tables", "create", "a"),
            ("GET", "/v1/namespaces/a/tables", "other", ""),
            ("POST", "/v1/namespaces/a/register", "register", "a"),
            ("POST", "/v1/tables/rename", "rename", ""),
            ("POST", "/v1/namespaces/a/tables/t/metrics", "report", "/v1/namespaces/a/tables/t a t"),
            ("POST", "/v1/namespaces/a/tables/t/plan", "plan", "/v1/namespaces/a/tables/t a t"),
            ("GET", "/v1/namespaces/a/tables/t/plan/id", "other", ""),
            ("POST", "/v1/namespaces/a/tables/t/tasks", "other", ""),
            ("POST", "/v1/transactions/commit", "transaction", "/v1"),
            ("POST", "/v1/namespaces/a/views/t", "other", ""),
            ("POST", "/v1/namespaces/a/properties", "other", ""),
            ("GET", "/v1/namespaces", "other", ""),
            ("POST", "/", "other", ""),
            ("POST", "", "other", ""),
            ("POST", "*", "other", ""),
            ("POST", "/v1/namespaces//tables/", "other", ""),
        ];
        for (method, path, name, detail) in cases {
            assert_eq!(named(method, path), (name, detail.to_owned()), "{method} {path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_path_makes_it_panic(method in "GET|POST|DELETE|HEAD|X", path in "[/a-z%+ü]{0,60}", parts in proptest::collection::vec("namespaces|tables|metrics|plan|register|rename|commit|transactions|v1|config||x", 0..9)) {
            classify(&method, &path).name();
            classify(&method, &format!("/{}", parts.join("/"))).name();
        }
    }

    #[test]
    fn a_prefix_of_any_shape_changes_nothing() {
        for prefix in ["", "/lake", "/main%7Cwarehouse", "/catalogs/unity", "/arn%3Aaws%3As3tables%3Ax%2Fy"] {
            let path = format!("/x/v1{prefix}/namespaces/a%1Fb/tables/t%20x");
            assert_eq!(named("POST", &path), ("commit", format!("{path} a%1Fb t%20x")));
            let transaction = format!("/x/v1{prefix}/transactions/commit");
            assert_eq!(named("POST", &transaction), ("transaction", format!("/x/v1{prefix}")));
        }
    }

    #[test]
    fn tables_with_the_names_of_routes_are_tables() {
        for table in ["rename", "commit", "metrics", "plan", "tables", "namespaces", "config"] {
            let path = format!("/v1/namespaces/transactions/tables/{table}");
            assert_eq!(named("POST", &path), ("commit", format!("{path} transactions {table}")));
        }
    }
}
