//! Values as people write them: durations, sizes, numbers. A text is accepted for
//! each, because the environment and table properties hold nothing else.

use std::fmt::Display;
use std::str::FromStr;

use figment::value::Value;

/// A result with what is wrong in words.
pub type Read<T> = Result<T, String>;

/// A text; a number or a flag is taken as it would be written.
pub fn text(value: &Value) -> Read<String> {
    match value {
        Value::String(_, text) => Ok(text.clone()),
        Value::Char(_, c) => Ok(c.to_string()),
        Value::Bool(_, flag) => Ok(flag.to_string()),
        Value::Num(_, n) => {
            let whole = n.to_i128().map(|v| v.to_string()).or_else(|| n.to_u128().map(|v| v.to_string()));
            whole.or_else(|| n.to_f64().map(|v| v.to_string())).ok_or_else(|| "expected a text".to_string())
        }
        Value::Empty(..) | Value::Dict(..) | Value::Array(..) => Err("expected a text".into()),
    }
}

/// A text that is not empty.
pub fn word(value: &Value) -> Read<String> {
    match text(value)?.trim() {
        "" => Err("must not be empty".into()),
        word => Ok(word.into()),
    }
}

/// `true` or `false`.
pub fn flag(value: &Value) -> Read<bool> {
    let written = text(value)?;
    match written.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("expected true or false, found `{other}`")),
    }
}

/// A number within a range, ends included.
pub fn number<T: FromStr + PartialOrd + Display>(value: &Value, least: T, most: T) -> Read<T> {
    let written = text(value)?;
    let number = written.trim().parse::<T>().map_err(|_| format!("expected a number, found `{written}`"))?;
    if number >= least && number <= most { Ok(number) } else { Err(format!("expected {least} to {most}, found {number}")) }
}

/// A value, or `off` for none.
pub fn or_off<T>(value: &Value, how: impl FnOnce(&Value) -> Read<T>) -> Read<Option<T>> {
    match text(value)?.trim() {
        "off" | "false" => Ok(None),
        _ => how(value).map(Some).map_err(|why| format!("{why}; or \"off\" for none")),
    }
}

/// A duration in milliseconds: `5s`, `2h`, `1m 30s`, `250ms`.
pub fn duration_ms(value: &Value) -> Read<i64> {
    let written = text(value)?;
    let wrong = |why: String| format!("`{written}` is not a duration: {why}; write for example 30s, 5m or 2h");
    let duration = humantime::parse_duration(written.trim()).map_err(|e| wrong(e.to_string()))?;
    i64::try_from(duration.as_millis()).map_err(|_| wrong("too long".into()))
}

/// A duration in milliseconds, longer than nothing.
pub fn some_duration_ms(value: &Value) -> Read<i64> {
    match duration_ms(value)? {
        0 => Err("must be longer than nothing".into()),
        ms => Ok(ms),
    }
}

/// A moment in milliseconds since the epoch: `2026-01-31T22:00:00Z`, with any offset, or
/// the milliseconds themselves.
pub fn moment_ms(value: &Value) -> Read<i64> {
    let written = text(value)?;
    let written = written.trim();
    if let Ok(ms) = written.parse::<i64>() {
        return Ok(ms);
    }
    let read = chrono::DateTime::parse_from_rfc3339(written);
    read.map(|at| at.timestamp_millis()).map_err(|e| format!("`{written}` is no moment: {e}; write for example 2026-01-31T22:00:00Z"))
}

/// A moment as [`moment_ms`] reads it.
pub fn moment(ms: i64) -> String {
    let at = chrono::DateTime::from_timestamp_millis(ms);
    at.map_or_else(|| ms.to_string(), |at| at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

const UNITS: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

/// A size in bytes: `512MiB`, `1GB`, `1.5 GiB`, or bytes without a unit.
pub fn size(value: &Value) -> Read<u64> {
    let written = text(value)?;
    let wrong = || format!("`{written}` is not a size; write for example 512MiB, 1GB or a number of bytes");
    let lower = written.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (amount, unit) = lower.split_at(digits);
    let unit = match unit.trim() {
        "" => 1,
        name => UNITS.iter().find(|(known, _)| *known == name).ok_or_else(wrong)?.1,
    };
    if let Ok(whole) = amount.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(wrong);
    }
    let bytes = amount.parse::<f64>().map_err(|_| wrong())? * unit as f64;
    if bytes.fract() == 0.0 && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// A size above zero.
pub fn some_size(value: &Value) -> Read<u64> {
    match size(value)? {
        0 => Err("must be more than nothing".into()),
        bytes => Ok(bytes),
    }
}

/// A list of words, or one text with commas.
pub fn words(value: &Value) -> Read<Vec<String>> {
    match value {
        Value::Array(_, values) => values.iter().map(word).collect(),
        _ => text(value)?.split(',').map(|part| word(&Value::from(part))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(texts: &[&str]) -> Vec<Option<u64>> {
        texts.iter().map(|t| size(&Value::from(*t)).ok()).collect()
    }

    #[test]
    fn sizes_are_read_by_their_units() {
        let read = sizes(&["512MiB", "1GB", "1.5 GiB", "7", "7 B", "16kib", "2tb"]);
        assert_eq!(read, [512 << 20, 1_000_000_000, 3 << 29, 7, 7, 16 << 10, 2_000_000_000_000].map(Some));
        assert_eq!(size(&Value::from(536_870_912u64)), Ok(536_870_912));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        assert_eq!(sizes(&["", "MiB", "-1", "1 M", "1.2.3GB", "0.3B", "99999999999TiB", "1e9"]), [None; 8]);
        assert_eq!(size(&Value::from("1 M")).unwrap_err(), "`1 M` is not a size; write for example 512MiB, 1GB or a number of bytes");
        assert_eq!(some_size(&Value::from("0MiB")).unwrap_err(), "must be more than nothing");
    }

    #[test]
    fn durations_are_read_by_their_units() {
        let read = ["5s", "2h", "1m 30s", "250ms", "0s"].map(|t| duration_ms(&Value::from(t)));
        assert_eq!(read, [5000, 7_200_000, 90_000, 250, 0].map(Ok));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "-5s", "soon", "999999999999years"] {
            assert!(duration_ms(&Value::from(text)).unwrap_err().ends_with("write for example 30s, 5m or 2h"), "{text}");
        }
        assert_eq!(some_duration_ms(&Value::from("0s")).unwrap_err(), "must be longer than nothing");
    }

    #[test]
    fn texts_may_be_written_as_numbers_and_numbers_as_texts() {
        assert_eq!(text(&Value::from(42)), Ok("42".into()));
        assert_eq!(text(&Value::from(-1.5)), Ok("-1.5".into()));
        assert_eq!(number(&Value::from("42"), 0u64, 100), Ok(42));
        assert_eq!(number(&Value::from(0.5), 0.0, 1.0), Ok(0.5));
        assert_eq!(flag(&Value::from("true")), Ok(true));
        assert_eq!(flag(&Value::from("yes")), Err("expected true or false, found `yes`".into()));
    }

    #[test]
    fn numbers_keep_to_their_range() {
        assert_eq!(number(&Value::from(101), 0u64, 100), Err("expected 0 to 100, found 101".into()));
        assert_eq!(number(&Value::from("-1"), 0u64, 100), Err("expected a number, found `-1`".into()));
        assert!(number(&Value::from("NaN"), 0.0, 1.0).is_err());
    }

    #[test]
    fn lists_are_arrays_or_commas() {
        assert_eq!(words(&Value::from(vec!["a", "b"])), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(words(&Value::from("a, b")), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(words(&Value::from("a,,b")), Err("must not be empty".into()));
    }
}
