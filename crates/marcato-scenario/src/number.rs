//! Numeric values of settings.

use marcato_document::quantity::{self, Of};
use marcato_units::{Bytes, Duration, Rate};

use crate::Setting;

/// Numeric value of a setting, by unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Number without a unit.
    Plain(f64),
    /// Rate.
    Rate(Rate),
    /// Size.
    Size(Bytes),
    /// Number of packets.
    Packets(u64),
    /// Span of time.
    Span(Duration),
    /// Frequency, per second.
    PerSecond(f64),
}

impl Setting {
    /// Returns the value as a number; `None` for a word, a list or a table.
    ///
    /// ```
    /// use marcato_scenario::{Number, Setting};
    /// use marcato_units::Rate;
    /// let setting = |value: &str| Setting { key: "link.bottleneck.rate".into(), value: value.into() };
    /// assert_eq!(setting("5 Mbit/s").number(), Some(Number::Rate(Rate::from_mbps(5))));
    /// assert_eq!(setting("codel").number(), None);
    /// ```
    pub fn number(&self) -> Option<Number> {
        let text = self.value.trim();
        let read = |of: Of| quantity::is_of(text, of).then(|| quantity::read(text, of).ok()).flatten();
        if let Some(bits) = read(Of::Rate) {
            return Some(Number::Rate(Rate::from_bps(bits)));
        }
        if let Some(bytes) = read(Of::Size) {
            return Some(Number::Size(Bytes::new(bytes)));
        }
        if let Some(packets) = read(Of::Packets) {
            return Some(Number::Packets(packets));
        }
        if let Some(nanos) = read(Of::Span) {
            return Some(Number::Span(Duration::from_nanos(nanos)));
        }
        if let Some((number, unit)) = text.split_once('/') {
            let seconds = match unit.trim() {
                "s" => 1.0,
                "min" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
            return finite(number.trim()).map(|number| Number::PerSecond(number / seconds));
        }
        finite(text).map(Number::Plain)
    }
}

/// Parses a decimal number. Words that Rust reads as numbers, such as `inf`, are refused.
fn finite(text: &str) -> Option<f64> {
    let begins = text.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|number: &f64| begins && number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers_and_words_are_not() {
        let number = |value: &str| Setting { key: "key".into(), value: value.into() }.number();
        for (value, is) in [
            ("0.5 Mbit/s", Number::Rate(Rate::from_kbps(500))),
            ("1 kB/s", Number::Rate(Rate::from_bps(8000))),
            ("64 KiB", Number::Size(Bytes::new(65_536))),
            ("30 packets", Number::Packets(30)),
            ("1 packet", Number::Packets(1)),
            ("2 min", Number::Span(Duration::from_secs(120))),
            ("0.5 /s", Number::PerSecond(0.5)),
            ("30/min", Number::PerSecond(0.5)),
            ("-0.01", Number::Plain(-0.01)),
            ("3", Number::Plain(3.0)),
        ] {
            assert_eq!(number(value), Some(is), "{value}");
        }
        for word in
            ["codel", "true", "inf", "nan", "", "ms", "5 apples", "a/s", "[1, 2]", "{ kind = \"codel\" }"]
        {
            assert_eq!(number(word), None, "{word}");
        }
    }
}
