//! What the catalog proxy records.

use metrics::counter;

use super::names::{PROXY_ANSWERS, PROXY_HEALED, PROXY_SCANS, PROXY_UNTAPPED};

/// What the tables showed of a commit whose answer left its outcome open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Healed {
    /// It is in every table: the client heard success.
    Landed,
    /// It is in none, and can come no more.
    NotLanded,
    /// It is in a part of its tables.
    Torn,
    /// Not to be told within the deadline.
    Unknown,
}

/// A request was answered, or its connection closed without an answer.
pub fn proxy_answered(route: &'static str, status: Option<u16>) {
    let class = match status {
        None => "none",
        Some(100..=199) => "1xx",
        Some(200..=299) => "2xx",
        Some(300..=399) => "3xx",
        Some(400..=499) => "4xx",
        Some(_) => "5xx",
    };
    counter!(PROXY_ANSWERS, "route" => route, "status" => class).increment(1);
}

/// A commit was looked after.
pub fn proxy_healed(healed: Healed) {
    let result = match healed {
        Healed::Landed => "landed",
        Healed::NotLanded => "not-landed",
        Healed::Torn => "torn",
        Healed::Unknown => "unknown",
    };
    counter!(PROXY_HEALED, "result" => result).increment(1);
}

/// Something passed through unread.
pub fn proxy_untapped(reason: &'static str) {
    counter!(PROXY_UNTAPPED, "reason" => reason).increment(1);
}

/// A client scanned a table.
pub fn proxy_scanned() {
    counter!(PROXY_SCANS).increment(1);
}
