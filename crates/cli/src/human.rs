//! Numbers for people: bytes, counts, durations, money and shares, and the
//! reading of sizes and shares from arguments.

use std::time::Duration;

pub(crate) use crate::engine::human_bytes as bytes;

/// `914145` as `914,145`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A latency with three significant digits: `850 ns`, `12.3 µs`, `1.20 ms`, `3.41 s`.
pub(crate) fn nanos(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

/// A time span: `0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 07 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 {
        return format!("{seconds:.2} s");
    }
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole / 60 % 60)
    }
}

/// A moment in microseconds since the Unix epoch, in UTC: `2026-11-21 10:38:27.123`.
pub(crate) fn moment(micros: u64) -> String {
    let (days, within) = (micros / 86_400_000_000, micros % 86_400_000_000);
    let (year, month, day) = civil(days);
    let (seconds, millis) = (within / 1_000_000, within / 1_000 % 1_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}")
}

/// Year, month and day of a day counted from 1970-01-01: years are counted from
/// March on, so that leap days come last, in eras of 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let in_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + later, month, in_month)
}

/// US dollars, with as many decimals as small sums need.
pub(crate) fn dollars(usd: f64) -> String {
    if usd == 0.0 || usd >= 1.0 {
        format!("${usd:.2}")
    } else if usd >= 0.01 {
        format!("${usd:.4}")
    } else {
        format!("${usd:.6}")
    }
}

/// `part` of `whole` in percent; `-` of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

/// Operations a second; 0 for no time at all.
pub(crate) fn rate(operations: u64, duration: Duration) -> f64 {
    if duration.is_zero() {
        return 0.0;
    }
    operations as f64 / duration.as_secs_f64()
}

/// Reads `4096`, `64k`, `10 GiB`, `1.5GB`. Letters alone and those with `i`
/// are powers of 1024, those with `B` alone powers of 1000.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let number: String = text[..split].chars().filter(|c| *c != '_').collect();
    let unit = text[split..].trim().to_ascii_lowercase();
    let (letters, base) = match unit.as_str() {
        "" | "b" => ("", 1024f64),
        u if u.ends_with("ib") => (&unit[..unit.len() - 2], 1024.0),
        u if u.ends_with('b') => (&unit[..unit.len() - 1], 1000.0),
        u => (u, 1024.0),
    };
    let power = match letters {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(format!("{text:?}: unknown unit {unit:?}")),
    };
    if power == 0
        && let Ok(exact) = number.parse::<u64>()
    {
        return Ok(exact);
    }
    let value: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a size; write 4096, 64KiB or 10GiB"))?;
    let value = value * base.powi(power);
    if value >= u64::MAX as f64 {
        return Err(format!("{text:?} is more than can be counted"));
    }
    Ok(value as u64)
}

/// Reads `16%` or `0.16` as 0.16.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a share; write 16% or 0.16");
    let share = match text.trim().strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map_err(|_| wrong())? / 100.0,
        None => text.trim().parse::<f64>().map_err(|_| wrong())?,
    };
    if !(share > 0.0 && share <= 1.0) {
        return Err(format!(
            "{text:?}: a share lies above 0 and at most at 100%"
        ));
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 65536),
            ("64KiB", 65536),
            ("64kB", 64000),
            ("10 GiB", 10 << 30),
            ("1.5m", 1_572_864),
            ("1_000", 1000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "1.2.3",
            "10QiB",
            "99999999PiB",
            "k",
            "١",
            "1é",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_above_zero_and_at_most_one() {
        assert_eq!(parse_share("16%"), Ok(0.16));
        assert_eq!(parse_share("0.5"), Ok(0.5));
        assert_eq!(parse_share("100%"), Ok(1.0));
        for text in ["0", "-1", "101%", "nan", "", "%", "inf"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_short_and_exact_at_the_edges() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(914_145), "914,145");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(nanos(999), "999 ns");
        assert_eq!(nanos(12_345), "12.3 µs");
        assert_eq!(nanos(1_200_000), "1.20 ms");
        assert_eq!(dollars(0.0), "$0.00");
        assert_eq!(dollars(0.0042), "$0.004200");
        assert_eq!(percent(1, 0), "-");
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(duration(Duration::from_secs(185)), "3 min 05 s");
        assert_eq!(moment(0), "1970-01-01 00:00:00.000");
        assert_eq!(moment(951_827_696_789_000), "2000-02-29 12:34:56.789");
        assert_eq!(moment(4_107_542_399_999_999), "2100-02-28 23:59:59.999");
        // The largest there is does not end it.
        assert!(moment(u64::MAX).starts_with("586524-"));
        assert_eq!(duration(Duration::from_secs(7620)), "2 h 07 min");
    }
}
