//! Quantities in text: a number, a space, a unit. Neither direction uses floats.
//!
//! A written quantity is exact. One that is read may have more digits than its smallest unit, as programs
//! print them (`5.5600000000000005 Mbit/s`): it is rounded.

use marcato_units::{Bytes, Duration, Rate};

/// Unit of a quantity: its symbol, and its size in the smallest unit of its kind.
type Unit = (&'static str, u64);

const SPANS: &[Unit] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const SIZES: &[Unit] = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const RATES: &[Unit] = &[
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("B/s", 8),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
];

const PACKETS: &[Unit] = &[("packets", 1), ("packet", 1)];

/// Common spellings of other conventions, with the units that they stand for.
const MEANT: &[(&str, &str)] = &[
    ("bps", "bit/s"),
    ("kbps", "kbit/s"),
    ("mbps", "Mbit/s"),
    ("gbps", "Gbit/s"),
    ("kbit", "kbit/s"),
    ("mbit", "Mbit/s"),
    ("gbit", "Gbit/s"),
    ("mb/s", "MB/s"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("msec", "ms"),
    ("usec", "us"),
    ("µs", "us"),
    ("m", "min"),
    ("minute", "min"),
    ("minutes", "min"),
    ("hour", "h"),
    ("hours", "h"),
    ("byte", "B"),
    ("bytes", "B"),
    ("k", "kB"),
    ("kib", "KiB"),
    ("pkt", "packets"),
    ("pkts", "packets"),
    ("p", "packets"),
];

/// Kind of quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Span of time, in nanoseconds.
    Span,
    /// Size, in bytes.
    Size,
    /// Rate, in bits per second.
    Rate,
    /// Number of packets.
    Packets,
}

impl Of {
    const fn units(self) -> &'static [Unit] {
        match self {
            Self::Span => SPANS,
            Self::Size => SIZES,
            Self::Rate => RATES,
            Self::Packets => PACKETS,
        }
    }

    /// Returns the kind's name with its article, for error messages.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Span => "a span of time",
            Self::Size => "a size",
            Self::Rate => "a rate",
            Self::Packets => "a number of packets",
        }
    }

    /// Returns the most likely unit of a number without one, for the advice in a message.
    pub const fn usual(self) -> &'static str {
        match self {
            Self::Span => "ms",
            Self::Size => "B",
            Self::Rate => "Mbit/s",
            Self::Packets => "packets",
        }
    }
}

/// Error message of a text that is not a quantity; stands after a colon.
pub type Wrong = String;

/// Splits a text into its number and its unit. The number may be empty.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(if at == 0 { 0 } else { at + exponent_len(&text[at..]) });
    (number, unit.trim_start())
}

/// Returns the length of the exponent that a text begins with, such as `e-05`; 0 if there is none.
fn exponent_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return 0 };
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 { 0 } else { text.len() - digits.len() + end }
}

/// Returns whether the text's unit is one of this kind; the number is not checked.
pub fn is_of(text: &str, of: Of) -> bool {
    let (_, unit) = split(text);
    of.units().iter().any(|(name, _)| *name == unit)
}

/// Reads a quantity, in the smallest unit of its kind.
///
/// # Errors
/// The message for a text that is none.
pub fn read(text: &str, of: Of) -> Result<u64, Wrong> {
    let (number, unit) = split(text);
    let what = of.what();
    if number.is_empty() {
        return Err(format!(
            "`{text}` is not {what}: give a number and a unit, for example \"{}\"",
            example(of)
        ));
    }
    let Some(&(_, factor)) = of.units().iter().find(|(name, _)| *name == unit) else {
        if unit.is_empty() {
            return Err(format!("`{text}` has no unit: write \"{number} {}\"", of.usual()));
        }
        let meant =
            of.units().iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(name, _)| *name);
        // Wrong capitals are the first guess, and spellings of other conventions the second.
        let meant = meant.or_else(|| {
            let lower = unit.to_lowercase();
            MEANT
                .iter()
                .find(|(wrong, right)| *wrong == lower && of.units().iter().any(|u| u.0 == *right))
                .map(|m| m.1)
        });
        let hint = match meant {
            Some(right) => format!("did you mean \"{number} {right}\"?"),
            None => {
                let names: Vec<&str> = of.units().iter().map(|(name, _)| *name).collect();
                format!("its unit is one of {}", names.join(", "))
            }
        };
        return Err(format!("`{text}` is not {what}: {hint}"));
    };
    rounded(number, factor).map_err(|fault| match fault {
        Unread::NoNumber => format!("`{number}` is not a number"),
        Unread::TooMuch => format!("`{text}` is more than can be counted"),
        Unread::Fraction => {
            format!("`{text}` is not a whole number of {}: give it with fewer digits", of.units()[0].0)
        }
    })
}

fn example(of: Of) -> String {
    let number = match of {
        Of::Span => 20,
        Of::Size => 1500,
        Of::Rate => 10,
        Of::Packets => 1000,
    };
    format!("{number} {}", of.usual())
}

/// Reason why a number is no multiple of the smallest unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    NoNumber,
    TooMuch,
    /// Rounding would change the value by more than a thousandth.
    Fraction,
}

/// Most significant digits that are read. A double has at most 17, and those after them only add less
/// than 10^-24 of the value.
const DIGITS: usize = 25;

/// Returns a decimal number times a factor, rounded to a whole number.
fn rounded(number: &str, factor: u64) -> Result<u64, Unread> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if !is_digits(whole) || (mantissa.contains('.') && !is_digits(fraction)) {
        return Err(Unread::NoNumber);
    }
    let negative = exponent.starts_with('-');
    let size = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !is_digits(size) {
        return Err(Unread::NoNumber);
    }
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    let size: i64 = match size.trim_start_matches('0') {
        "" => 0,
        // However long the exponent is: such a power leaves nothing of the number, or too much.
        digits => digits.parse().unwrap_or(i64::MAX),
    };
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let zeros = length(&digits) - length(digits.trim_end_matches('0'));
    let kept = &significant[..significant.len().min(DIGITS)];
    let cut = length(significant) - length(kept);
    // The number is `kept` times ten to this power.
    let power = (if negative { -size } else { size }).saturating_add(zeros + cut - length(fraction));
    // 25 digits and a factor of at most 3.6e12 take 126 bits.
    let product = kept.parse::<u128>().map_err(|_| Unread::NoNumber)? * u128::from(factor);
    let scale = u32::try_from(power.unsigned_abs()).ok().and_then(|power| 10u128.checked_pow(power));
    if power >= 0 {
        let all = scale.and_then(|scale| product.checked_mul(scale)).ok_or(Unread::TooMuch)?;
        return u64::try_from(all).map_err(|_| Unread::TooMuch);
    }
    // More than 38 digits behind the point of at most 38: less than one half.
    let scale = scale.ok_or(Unread::Fraction)?;
    let below = product / scale;
    let rest = product % scale;
    let (value, change) = if rest >= scale - rest { (below + 1, scale - rest) } else { (below, rest) };
    // What programs print differs by a few of the last digits. A fraction that somebody meant is refused.
    if change > product / 1000 {
        return Err(Unread::Fraction);
    }
    u64::try_from(value).map_err(|_| Unread::TooMuch)
}

/// Reads a frequency, such as `5 /s` or `2 /min`, as the interval between events. A span is taken
/// as that interval itself.
///
/// # Errors
/// The message for a text that is none.
pub fn read_frequency(text: &str) -> Result<Duration, Wrong> {
    if let Some((number, unit)) = text.split_once('/') {
        let per: u64 = match unit.trim() {
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(format!("`{text}` is not a frequency: write \"5 /s\", \"2 /min\" or \"1 /h\"")),
        };
        // Thousandths allow frequencies such as "0.5 /s".
        return match rounded(number.trim(), 1000) {
            Ok(0) => Err(format!("`{text}` never occurs: set it above 0")),
            Ok(thousandths) => {
                let nanos = u128::from(per) * 1000 / u128::from(thousandths);
                Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
            }
            Err(_) => Err(format!(
                "`{text}` is not a frequency: write \"5 /s\", with at most three digits behind the point"
            )),
        };
    }
    read(text, Of::Span).map(Duration::from_nanos).map_err(|_| {
        format!("`{text}` is not a frequency: write \"5 /s\", or the time between two, \"200 ms\"")
    })
}

/// Writes a number exactly, in the largest of `units` in which it is whole, or is at least ten with
/// one decimal digit.
fn write(value: u64, units: &[Unit]) -> String {
    let whole = |unit: &&Unit| value != 0 && value.is_multiple_of(unit.1);
    let tenths =
        |unit: &&Unit| value / 10 >= unit.1 && unit.1.is_multiple_of(10) && value.is_multiple_of(unit.1 / 10);
    let (name, factor) = units
        .iter()
        .filter(|unit| whole(unit) || tenths(unit))
        .max_by_key(|unit| unit.1)
        .unwrap_or(&units[0]);
    match value % factor {
        0 => format!("{} {name}", value / factor),
        rest => format!("{}.{} {name}", value / factor, rest / (factor / 10)),
    }
}

/// Formats a span exactly.
pub fn span(span: Duration) -> String {
    match u64::try_from(span.as_nanos()) {
        Ok(0) => "0 s".to_owned(),
        // Without minutes and hours: 3600 s would become 1 h, which is exact but not the customary
        // form.
        Ok(nanos) => write(nanos, &SPANS[..4]),
        Err(_) => format!("{} s", span.as_secs()),
    }
}

/// Formats a size exactly.
pub fn size(bytes: Bytes) -> String {
    let decimal = write(bytes.get(), &SIZES[..4]);
    if decimal.ends_with(" B") && bytes.get() >= 1024 && bytes.get().is_multiple_of(1024) {
        return write(bytes.get(), &[SIZES[4], SIZES[5], SIZES[6]]);
    }
    decimal
}

/// Formats a rate exactly.
pub fn rate(rate: Rate) -> String {
    write(rate.as_bps(), &RATES[..4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_exactly_as_people_write_them() {
        for (text, of, value) in [
            ("20 ms", Of::Span, 20_000_000),
            ("1.5s", Of::Span, 1_500_000_000),
            ("0.1 us", Of::Span, 100),
            ("2 min", Of::Span, 120_000_000_000),
            ("1 h", Of::Span, 3_600_000_000_000),
            ("1500 B", Of::Size, 1500),
            ("1.5 kB", Of::Size, 1500),
            ("64 KiB", Of::Size, 65_536),
            ("10 Mbit/s", Of::Rate, 10_000_000),
            ("1 MB/s", Of::Rate, 8_000_000),
            ("0.056 Mbit/s", Of::Rate, 56_000),
            ("1000 packets", Of::Packets, 1000),
            ("1e3 packets", Of::Packets, 1000),
            ("0e99999999999999999999 s", Of::Span, 0),
            ("000010.0000 B", Of::Size, 10),
        ] {
            assert_eq!(read(text, of), Ok(value), "{text}");
        }
        assert_eq!(read_frequency("5 /s"), Ok(Duration::from_millis(200)));
        assert_eq!(read_frequency("0.5/min"), Ok(Duration::from_secs(120)));
        assert_eq!(read_frequency("200 ms"), Ok(Duration::from_millis(200)));
    }

    #[test]
    fn a_text_that_is_no_quantity_is_refused_with_a_better_one() {
        for (text, of, message) in [
            ("20", Of::Span, "`20` has no unit: write \"20 ms\""),
            ("10 Mbps", Of::Rate, "`10 Mbps` is not a rate: did you mean \"10 Mbit/s\"?"),
            ("10 mbit/s", Of::Rate, "`10 mbit/s` is not a rate: did you mean \"10 Mbit/s\"?"),
            ("5 msec", Of::Span, "`5 msec` is not a span of time: did you mean \"5 ms\"?"),
            ("fast", Of::Rate, "`fast` is not a rate: give a number and a unit, for example \"10 Mbit/s\""),
            (
                "5 apples",
                Of::Span,
                "`5 apples` is not a span of time: its unit is one of ns, us, ms, s, min, h",
            ),
            (
                "1.5 packets",
                Of::Packets,
                "`1.5 packets` is not a whole number of packets: give it with fewer digits",
            ),
            (
                "1e-99999999999999999999 s",
                Of::Span,
                "`1e-99999999999999999999 s` is not a whole number of ns: give it with fewer digits",
            ),
            ("1e-40 s", Of::Span, "`1e-40 s` is not a whole number of ns: give it with fewer digits"),
            ("1e99999999999999999999 s", Of::Span, "`1e99999999999999999999 s` is more than can be counted"),
            (
                "1e2e3 s",
                Of::Span,
                "`1e2e3 s` is not a span of time: its unit is one of ns, us, ms, s, min, h",
            ),
            ("1. s", Of::Span, "`1.` is not a number"),
            ("0.5 ns", Of::Span, "`0.5 ns` is not a whole number of ns: give it with fewer digits"),
            ("1.2.3 s", Of::Span, "`1.2.3` is not a number"),
            ("99999999999999 GB", Of::Size, "`99999999999999 GB` is more than can be counted"),
        ] {
            assert_eq!(read(text, of), Err(message.to_owned()));
        }
        assert!(read_frequency("0 /s").is_err() && read_frequency("5 /day").is_err());
    }

    #[test]
    fn numbers_as_programs_print_them_are_rounded() {
        for (text, of, value) in [
            ("1e-05 s", Of::Span, 10_000),
            ("1.5E+3 ms", Of::Span, 1_500_000_000),
            ("5.5600000000000005 Mbit/s", Of::Rate, 5_560_000),
            ("0.013000000000000001 s", Of::Span, 13_000_000),
            ("0.0699999999999999999999999999999999999999 s", Of::Span, 70_000_000),
            ("0.013333333333333334 s", Of::Span, 13_333_333),
            ("1234.5678 ns", Of::Span, 1235),
            ("1000000.5 ns", Of::Span, 1_000_001),
        ] {
            assert_eq!(read(text, of), Ok(value), "{text}");
        }
        assert_eq!(read_frequency("0.30000000000000004 /s"), read_frequency("0.3 /s"));
        assert!(read_frequency("0.0333 /s").is_err());
    }

    proptest! {
        #[test]
        fn a_double_of_seconds_is_read_to_the_nanosecond(seconds in 1e-5f64..1e6) {
            let read = |text: String| read(&text, Of::Span).unwrap() as f64;
            let nanos = seconds * 1e9;
            for text in [format!("{seconds} s"), format!("{seconds:e} s"), format!("{seconds:?}s")] {
                // Half a unit, and what the product of doubles loses.
                prop_assert!((read(text) - nanos).abs() <= 0.5 + nanos * 1e-15);
            }
        }

        #[test]
        fn no_text_of_a_number_stops_the_reader(text in "[0-9.eE+-]{0,60} ?(ns|h|GB/s|packets|e)?") {
            for of in [Of::Span, Of::Size, Of::Rate, Of::Packets] {
                let _ = read(&text, of);
            }
            let _ = read_frequency(&(text + "/s"));
        }

        #[test]
        fn a_written_quantity_is_read_back(value in any::<u64>(), zeros in 0u32..12) {
            let value = value / 10u64.pow(zeros) * 10u64.pow(zeros);
            prop_assert_eq!(read(&span(Duration::from_nanos(value)), Of::Span), Ok(value));
            prop_assert_eq!(read(&size(Bytes::new(value)), Of::Size), Ok(value));
            prop_assert_eq!(read(&rate(Rate::from_bps(value)), Of::Rate), Ok(value));
        }
    }
}
