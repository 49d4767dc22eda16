//! Numbers and texts for people.

use chrono::{DateTime, SecondsFormat};

use crate::model::ident::MAIN;

/// A table, with its branch where that is another than `main`.
pub fn on(table: &str, branch: &str) -> String {
    match branch {
        "" | MAIN => table.to_owned(),
        branch => format!("{table}@{branch}"),
    }
}

/// A size: `0 B`, `1023 B`, `1.0 KiB`, `512 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = "KiB";
    for next in UNITS.iter().skip(1) {
        // what would be shown as 1024 is shown in the next unit
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 99.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// A count with its thousands apart: `1 234 567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// So many of a thing: `1 file`, `2 files`.
pub fn some(how_many: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(how_many), if how_many == 1 { "" } else { "s" })
}

/// A duration in seconds: `0.25 s`, `12.3 s`, `4 min 05 s`, `2 h 03 min`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.max(0.0).round();
    if seconds < 9.995 {
        format!("{:.2} s", seconds.max(0.0))
    } else if seconds < 59.95 {
        format!("{seconds:.1} s")
    } else if whole < 3600.0 {
        format!("{} min {:02} s", (whole / 60.0).floor(), whole % 60.0)
    } else {
        format!("{} h {:02} min", (whole / 3600.0).floor(), (whole % 3600.0 / 60.0).floor())
    }
}

/// GB-hours, with enough digits to tell small costs apart.
pub fn gb_hours(value: f64) -> String {
    if value == 0.0 || value.abs() >= 0.01 { format!("{value:.2} GB-h") } else { format!("{value:.1e} GB-h") }
}

/// A number as short as it can be said exactly enough: `8`, `0.125`, `1.2e9`.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        format!("{value:.0}")
    } else if value.abs() >= 1e6 || value.abs() < 1e-3 {
        format!("{value:.3e}")
    } else {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// A moment: `2026-01-31T23:59:59Z`.
pub fn moment(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms).map_or_else(|| format!("{ms} ms"), |t| t.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// A text from outside, safe on a terminal: control characters are escaped.
pub fn safe(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}
