//! How a partition value reads: `1995-03`, not the number of months since 1970.

use chrono::{DateTime, Days, NaiveDate, NaiveTime, SecondsFormat};
use serde::{Deserialize, Serialize};

use super::partition::Value;

/// What the number in a partition field counts, by its transform and type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The value itself.
    #[default]
    Plain,
    /// Years since 1970.
    Year,
    /// Months since January 1970.
    Month,
    /// Days since 1970-01-01: a date, or the day of a time.
    Day,
    /// Hours since 1970-01-01.
    Hour,
    /// Microseconds since midnight.
    Time,
    /// Microseconds since 1970-01-01; `zoned` ones are in UTC.
    Micros {
        /// Whether the type has a time zone.
        zoned: bool,
    },
    /// Nanoseconds since 1970-01-01; `zoned` ones are in UTC.
    Nanos {
        /// Whether the type has a time zone.
        zoned: bool,
    },
    /// An unscaled decimal.
    Decimal {
        /// Digits after the point.
        scale: u32,
    },
}

impl Form {
    /// A value as paths of the table spell it; strings are in quotes, and a number
    /// that means no time is shown as it is.
    pub fn tell(self, value: &Value) -> String {
        self.read(value).unwrap_or_else(|| value.to_string())
    }

    fn read(self, value: &Value) -> Option<String> {
        let number = match value {
            Value::Int(v) => i64::from(*v),
            Value::Long(v) => *v,
            Value::Decimal(v) => return if let Self::Decimal { scale } = self { decimal(*v, scale) } else { None },
            _ => return None,
        };
        match self {
            Self::Plain | Self::Decimal { .. } => None,
            Self::Year => Some(number.checked_add(1970)?.to_string()),
            Self::Month => Some(format!("{:04}-{:02}", number.div_euclid(12).checked_add(1970)?, number.rem_euclid(12).checked_add(1)?)),
            Self::Day => date(number),
            Self::Hour => Some(format!("{}-{:02}", date(number.div_euclid(24))?, number.rem_euclid(24))),
            Self::Time => {
                let (seconds, rest) = (number.div_euclid(1_000_000), number.rem_euclid(1_000_000));
                let time = NaiveTime::from_num_seconds_from_midnight_opt(
                    u32::try_from(seconds).ok()?,
                    u32::try_from(rest.checked_mul(1000)?).ok()?,
                )?;
                Some(time.format("%H:%M:%S%.f").to_string())
            }
            Self::Micros { zoned } => DateTime::from_timestamp_micros(number).map(|t| moment(&t, zoned)),
            Self::Nanos { zoned } => Some(moment(&DateTime::from_timestamp_nanos(number), zoned)),
        }
    }
}

fn date(days: i64) -> Option<String> {
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
    let away = Days::new(days.unsigned_abs());
    let date = if days < 0 { epoch.checked_sub_days(away)? } else { epoch.checked_add_days(away)? };
    Some(date.to_string())
}

fn moment(at: &DateTime<chrono::Utc>, zoned: bool) -> String {
    match zoned {
        true => at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        false => at.naive_utc().format("%Y-%m-%dT%H:%M:%S%.f").to_string(),
    }
}

fn decimal(unscaled: i128, scale: u32) -> Option<String> {
    let scale = usize::try_from(scale).ok().filter(|scale| *scale <= 38)?;
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at_checked(digits.len().checked_sub(scale)?)?;
    let sign = if unscaled < 0 { "-" } else { "" };
    Some(if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(form: Form, numbers: [i32; 3]) -> [String; 3] {
        numbers.map(|n| form.tell(&Value::Int(n)))
    }

    #[test]
    fn numbers_of_times_read_as_the_times() {
        assert_eq!(ints(Form::Year, [0, 25, -1]), ["1970", "1995", "1969"]);
        assert_eq!(ints(Form::Month, [0, 302, -1]), ["1970-01", "1995-03", "1969-12"]);
        assert_eq!(ints(Form::Day, [0, 9190, -1]), ["1970-01-01", "1995-03-01", "1969-12-31"]);
        assert_eq!(ints(Form::Hour, [0, 220_567, -1]), ["1970-01-01-00", "1995-03-01-07", "1969-12-31-23"]);
    }

    #[test]
    fn times_and_moments_keep_every_digit_that_says_something() {
        let long = |form: Form, n: i64| form.tell(&Value::Long(n));
        assert_eq!(long(Form::Time, 3_661_000_001), "01:01:01.000001");
        assert_eq!(long(Form::Micros { zoned: false }, 794_041_200_000_000), "1995-03-01T07:00:00");
        assert_eq!(long(Form::Micros { zoned: true }, 794_041_200_000_001), "1995-03-01T07:00:00.000001Z");
        assert_eq!(long(Form::Nanos { zoned: false }, -1), "1969-12-31T23:59:59.999999999");
    }

    #[test]
    fn decimals_have_their_point() {
        let decimal = |n: i128| Form::Decimal { scale: 2 }.tell(&Value::Decimal(n));
        assert_eq!([0, 5, -5, 12_345].map(decimal), ["0.00", "0.05", "-0.05", "123.45"]);
        assert_eq!(Form::Decimal { scale: 0 }.tell(&Value::Decimal(7)), "7");
        assert_eq!(Form::Decimal { scale: 4_000_000_000 }.tell(&Value::Decimal(7)), "7");
    }

    #[test]
    fn what_means_no_time_is_shown_as_it_is() {
        for form in [Form::Day, Form::Hour, Form::Time, Form::Micros { zoned: true }] {
            assert_eq!(form.tell(&Value::Long(i64::MIN)), i64::MIN.to_string(), "{form:?}");
        }
        assert_eq!(Form::Year.tell(&Value::Long(i64::MAX)), i64::MAX.to_string());
        assert_eq!(Form::Month.tell(&Value::String("x".into())), "\"x\"");
        assert_eq!(Form::Plain.tell(&Value::Double(1.5_f64.to_bits())), "1.5");
    }
}
