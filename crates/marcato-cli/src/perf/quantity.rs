//! Spans, sizes and priorities on the command line.

use std::time::Duration;

use marcato_units::{Bytes, Priority, Rate};

/// Splits `12.5ms` into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(at);
    Some((number.parse().ok()?, unit))
}

/// Parses a span: `100ms`, `1.5s`, `500us`, `2m`, `12h`, `1d`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no span: write 500us, 100ms, 1.5s, 2m or 2h");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return Err(wrong()),
    };
    if seconds > 86_400.0 {
        return Err(format!("`{text}` is longer than a day"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Parses a span, or a number of seconds as iperf3 takes it: `10`.
pub(crate) fn span_or_seconds(text: &str) -> Result<Duration, String> {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if bare { span(&format!("{text}s")) } else { span(text) }
}

/// Parses a size: `500B`, `10kB` (1000 bytes), `64KiB` (1024), `1MB`, `1MiB`.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    let wrong = || format!("`{text}` is no size: write 500B, 10kB, 64KiB or 1MB");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let one: u32 = match unit {
        "B" => 1,
        "kB" | "KB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        _ => return Err(wrong()),
    };
    let bytes = number * f64::from(one);
    if !(0.0..=1e12).contains(&bytes) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 10^12")]
    Ok(Bytes::new(bytes.round() as u64))
}

/// Parses an amount of data: a size, or a number as iperf3 takes it, with K, M or G for powers of
/// 1024.
pub(crate) fn amount(text: &str) -> Result<Bytes, String> {
    let wrong = || format!("`{text}` is no amount: write 500kB, 10MB, or 1G for 1024^3 bytes");
    let one: u64 = match text.bytes().last() {
        Some(b'0'..=b'9') => 1,
        Some(b'k' | b'K') => 1 << 10,
        Some(b'm' | b'M') => 1 << 20,
        Some(b'g' | b'G') => 1 << 30,
        _ => return size(text).ok().filter(|bytes| *bytes > Bytes::ZERO).ok_or_else(wrong),
    };
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u64>();
    let bytes = number.ok().and_then(|number| number.checked_mul(one)).map(Bytes::new);
    bytes.filter(|bytes| *bytes > Bytes::ZERO && *bytes <= Bytes::kb(1 << 40)).ok_or_else(wrong)
}

/// Parses a rate: `10Mbit/s`, or as iperf3 and `tc` take it, in bits per second with K, M or G for
/// powers of 1000.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("`{text}` is no rate of 1 kbit/s to 1 Tbit/s: write 500kbit/s, 10M or 1G");
    let bare = text.strip_suffix("/s").unwrap_or(text);
    let bare = bare.strip_suffix("bit").unwrap_or(bare);
    let one: u64 = match bare.bytes().last() {
        Some(b'0'..=b'9') => 1,
        Some(b'k' | b'K') => 1000,
        Some(b'm' | b'M') => 1_000_000,
        Some(b'g' | b'G') => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let number = bare.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u64>();
    let bits = number.ok().and_then(|number| number.checked_mul(one));
    bits.filter(|bits| (1000..=1_000_000_000_000).contains(bits)).map(Rate::from_bps).ok_or_else(wrong)
}

/// Parses a bound of a rate; 0 means no bound, as iperf3 takes it.
pub(crate) fn rate_or_none(text: &str) -> Result<Rate, String> {
    if text == "0" { Ok(Rate::from_bps(0)) } else { rate(text) }
}

/// Parses a priority: `p0` to `p4`.
pub(crate) fn priority(text: &str) -> Result<Priority, String> {
    let digit = text.strip_prefix(['p', 'P']).and_then(|digit| digit.parse().ok());
    let priority = digit.and_then(Priority::from_index);
    priority.ok_or_else(|| format!("`{text}` is no priority: write p0 (critical) to p4 (background)"))
}

/// Formats a rate for readers, and as [`rate`] parses it.
pub(crate) fn shown_rate(rate: Rate) -> String {
    match rate.as_bps() {
        n if n % 1_000_000_000 == 0 => format!("{}Gbit/s", n / 1_000_000_000),
        n if n % 1_000_000 == 0 => format!("{}Mbit/s", n / 1_000_000),
        n if n % 1000 == 0 => format!("{}kbit/s", n / 1000),
        n => format!("{n}bit/s"),
    }
}

/// Formats a size for readers.
pub(crate) fn shown_size(bytes: Bytes) -> String {
    match bytes.get() {
        n if n >= 1_000_000 && n % 100_000 == 0 => format!("{}MB", n as f64 / 1e6),
        n if n >= 1000 && n % 100 == 0 => format!("{}kB", n as f64 / 1e3),
        n => format!("{n}B"),
    }
}

/// Formats a span for readers.
pub(crate) fn shown_span(span: Duration) -> String {
    match span.as_micros() {
        0 => "0s".to_owned(),
        n if n >= 1_000_000 && n % 100_000 == 0 => format!("{}s", span.as_secs_f64()),
        n if n >= 1000 && n % 100 == 0 => format!("{}ms", n as f64 / 1e3),
        n => format!("{n}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!(span("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(span("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!((span("2h"), span_or_seconds("2h")), (span("120m"), span("7200s")));
        assert_eq!((span("12h"), span("1d")), (span("720m"), span("24h")));
        assert!(span("25h").unwrap_err().contains("longer than a day"));
        assert_eq!(
            (span("500us"), span("2m")),
            (Ok(Duration::from_micros(500)), Ok(Duration::from_secs(120)))
        );
        assert_eq!(span_or_seconds("10"), Ok(Duration::from_secs(10)));
        assert_eq!(span_or_seconds("0.5"), span_or_seconds("500ms"));
        assert!(span_or_seconds("").is_err() && span_or_seconds("1x").is_err());
        assert_eq!((size("10kB"), size("64KiB")), (Ok(Bytes::kb(10)), Ok(Bytes::new(65_536))));
        assert_eq!((size("0.5MB"), size("32B")), (Ok(Bytes::kb(500)), Ok(Bytes::new(32))));
        assert_eq!((priority("p0"), priority("P4")), (Ok(Priority::P0), Ok(Priority::P4)));
    }

    #[test]
    fn amounts_and_rates_are_read_as_iperf3_reads_them() {
        assert_eq!((amount("1G"), amount("500")), (Ok(Bytes::new(1 << 30)), Ok(Bytes::new(500))));
        assert_eq!((amount("2K"), amount("2kB")), (Ok(Bytes::new(2048)), Ok(Bytes::kb(2))));
        assert_eq!((rate("10M"), rate("10Mbit/s")), (Ok(Rate::from_mbps(10)), Ok(Rate::from_mbps(10))));
        assert_eq!((rate_or_none("0"), rate_or_none("10M")), (Ok(Rate::from_bps(0)), rate("10M")));
        assert!(rate_or_none("0M").is_err());
        assert_eq!((rate("1G"), rate("64000")), (Ok(Rate::from_mbps(1000)), Ok(Rate::from_kbps(64))));
        for wrong in ["", "0", "G", "1X", "1.5G", "99999999999G", "-1K"] {
            assert!(amount(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "999", "M", "10MB", "1bit/s", "10Mb", "2000G"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_quantity_is_refused_with_an_example() {
        for wrong in ["", "100", "ms", "-1s", "1.2.3s", "1w", "1e9s", "9999999s", "1 s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "10", "kB", "-1kB", "10kb", "10GB", "9999999999MB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "p5", "5", "p", "p-1", "urgent"] {
            assert!(priority(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_shown_quantity_is_read_back() {
        for text in ["0s", "100ms", "1.5s", "500us", "10s", "20.5ms"] {
            assert_eq!(shown_span(span(text).unwrap()), text);
        }
        for text in ["10kB", "1.5MB", "33B", "1MB", "65536B"] {
            assert_eq!(shown_size(size(text).unwrap()), text);
        }
    }
}
