//! The metrics of the process: name, kind, help.

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Whether it has labels.
    pub labelled: bool,
    /// What it means.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident = $kind:ident $(($label:ident))? $name:literal: $help:literal),+ $(,)?) => {
        $(pub(super) const $constant: &str = $name;)+

        /// Every metric.
        pub const ALL: &[Metric] = &[
            $(Metric { name: $name, kind: Kind::$kind, labelled: metrics!(@labelled $($label)?), help: $help }),+
        ];
    };
    (@labelled labelled) => { true };
    (@labelled) => { false };
}

metrics! {
    EVENTS = Counter(labelled) "afterwrite_events_total": "Events heard, by door and result",
    SOURCE_EVENTS = Counter(labelled) "afterwrite_source_events_total": "Records received from a source (topic, path, catalog), and what became of them",
    SOURCE_LAG = Gauge(labelled) "afterwrite_source_lag": "Records of a source that are not absorbed yet",
    SOURCE_STALENESS = Gauge(labelled) "afterwrite_source_staleness_seconds": "Age of the oldest record of a source that was read and is not absorbed",
    LISTINGS = Counter(labelled) "afterwrite_catalog_listings_total": "Listings of a catalog by the poller, by result",
    COMMITS_MISSED = Counter(labelled) "afterwrite_commits_missed_total": "Moves of known tables that a poll found and no door had told of, by catalog",
    CATALOG_UP = Gauge(labelled) "afterwrite_catalog_up": "1 when the catalog answered its last listing, else 0",
    INBOX_PENDING = Gauge "afterwrite_inbox_pending": "Tables marked for a look that has not begun",
    INBOX_LOOKING = Gauge "afterwrite_inbox_looking": "Looks under way",
    STALENESS_SECONDS = Gauge "afterwrite_inbox_oldest_age_seconds": "Age of the oldest event whose look has not begun",
    LOOKS = Counter(labelled) "afterwrite_looks_total": "Looks at tables, by what they led to",
    LOOK_SECONDS = Histogram "afterwrite_look_seconds": "Duration of a look, from load to absorbed state",
    MANIFESTS_READ = Counter "afterwrite_manifests_read_total": "Manifests read to follow tables",
    DRIFTS = Counter "afterwrite_drifts_total": "Layouts that did not match their table and were rebuilt",
    CACHE_TABLES = Gauge "afterwrite_cache_tables": "Tables whose layout is cached",
    CACHE_BYTES = Gauge "afterwrite_cache_bytes": "Bytes of cached layouts",
    DECISIONS = Counter(labelled) "afterwrite_decisions_total": "Decisions, by verdict and rule or reason",
    CANDIDATES = Gauge(labelled) "afterwrite_candidates": "Partitions that should be compacted, by whether that is carried out (`act`) or only advised",
    CANDIDATE_FILES = Gauge(labelled) "afterwrite_candidate_files": "Files that compacting the candidates would save, by the same",
    BACKLOG_CANDIDATES = Gauge(labelled) "afterwrite_backlog_candidates": "Candidates that wait, by tenant (empty for none) and by whether they are carried out (`act`)",
    BACKLOG_REVIEW = Gauge(labelled) "afterwrite_backlog_review": "Work that waits for a person because of its cost, by the same",
    BACKLOG_OLDEST = Gauge(labelled) "afterwrite_backlog_oldest_age_seconds": "How long the oldest candidate has waited, by the same",
    BACKLOG_BYTES = Gauge(labelled) "afterwrite_backlog_bytes": "Bytes that the candidates would rewrite, by the same",
    BACKLOG_GB_HOURS = Gauge(labelled) "afterwrite_backlog_gb_hours": "GB-hours that the candidates are estimated at, by the same",
    BACKLOG_DRAIN = Gauge(labelled) "afterwrite_backlog_drain_seconds": "How long the candidates take at the pace of the last hours, by the same; infinite when nothing is being done",
    BACKLOG_COST = Gauge(labelled) "afterwrite_backlog_cost": "What the candidates are estimated to cost, in the currency of the settings, by the same",
    ESTIMATE_ERROR = Gauge(labelled) "afterwrite_estimate_error_ratio": "Mean relative error of what jobs were expected to do, as corrected by those before, by quantity; jobs of late weigh most",
    BUDGET_AVAILABLE = Gauge "afterwrite_budget_available_gb_hours": "Budget that may be reserved now, in GB-hours",
    BUDGET_RESERVED = Gauge "afterwrite_budget_reserved_gb_hours": "Budget reserved by running jobs, in GB-hours",
    BUDGET_SPENT = Counter "afterwrite_budget_spent_gb_hour_millionths_total": "Budget spent, in millionths of a GB-hour",
    COST_SPENT = Counter "afterwrite_cost_spent_millionths_total": "What jobs cost by their GB-hours and requests, in millionths of the currency of the settings",
    COST_KEPT = Gauge "afterwrite_cost_kept_alive_per_month": "What storing the bytes of replaced files that old snapshots keep alive costs a month, in the currency of the settings",
    CAPACITY_FREE = Gauge "afterwrite_capacity_free_gb": "What the cluster has free in GB, as it was read from the endpoint of the settings last",
    JOBS = Counter(labelled) "afterwrite_jobs_total": "Jobs ended, by result",
    JOBS_RUNNING = Gauge "afterwrite_jobs_running": "Jobs running",
    JOB_SECONDS = Histogram "afterwrite_job_seconds": "Duration of a job, from lease to outcome",
    COMMITS = Counter(labelled) "afterwrite_commits_total": "Replace commits tried, by outcome",
    COMMIT_SECONDS = Histogram "afterwrite_commit_seconds": "Duration of a replace commit",
    CONFLICTS = Counter(labelled) "afterwrite_conflicts_total": "Jobs whose table moved under them, by what moved",
    WRITERS_HARMED = Counter "afterwrite_writers_harmed_estimated_total": "Estimate of users' statements that our commits made fail: clients known to write that had loaded the table through the proxy before our replace landed, and committed nothing to it after",
    COMMITS_JOINED = Counter "afterwrite_commits_joined_total": "Rewrites that landed in the snapshot of another partition's, with which their commits fell together",
    DELETES_CARRIED = Counter "afterwrite_deletes_carried_total": "Rows deleted while their files were rewritten whose deletes our commits carried over to the new files",
    WASTED_BYTES = Counter "afterwrite_wasted_bytes_total": "Bytes written or read by jobs that did not land",
    UNKNOWN_OPEN = Gauge "afterwrite_unknown_outcomes_open": "Commits whose outcome is not known yet",
    REWRITTEN_BYTES = Counter(labelled) "afterwrite_rewritten_bytes_total": "Bytes of replaced files, by path taken",
    WRITTEN_BYTES = Counter(labelled) "afterwrite_written_bytes_total": "Bytes of the files written for them, by path taken",
    READ_BYTES = Counter "afterwrite_read_bytes_total": "Bytes read from the store for rewrites and proofs",
    STORE_REQUESTS = Counter(labelled) "afterwrite_store_requests_total": "Requests to object stores, by kind (get, put, head, list, delete) and whether a job or a look made them",
    REPLACED_FILES = Counter "afterwrite_replaced_files_total": "Files replaced",
    WRITTEN_FILES = Counter "afterwrite_written_files_total": "Files written for them",
    KEPT_ALIVE_BYTES = Gauge "afterwrite_replaced_bytes_kept_alive": "Bytes of replaced files that old snapshots keep alive",
    WATCH_MISSED = Counter "afterwrite_watch_missed_total": "Decisions that slow clients of WatchDecisions missed",
    PROXY_ANSWERS = Counter(labelled) "afterwrite_proxy_answers_total": "Requests through the catalog proxy, by route and class of status; `none` is a closed connection",
    PROXY_HEALED = Counter(labelled) "afterwrite_proxy_healed_total": "Commits whose answer left their outcome open, by what the tables showed",
    PROXY_UNTAPPED = Counter(labelled) "afterwrite_proxy_untapped_total": "Requests and answers that passed through the catalog proxy unread, by reason",
    PROXY_SCANS = Counter "afterwrite_proxy_scans_total": "Scans that clients reported or had planned through the catalog proxy",
}
