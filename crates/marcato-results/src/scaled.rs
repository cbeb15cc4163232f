//! Settings as numbers.

use marcato_scenario::{Number, Setting};
use marcato_units::Duration;

/// Returns the values of one key as numbers of one unit; `None` unless all are quantities of one
/// kind.
pub fn scaled(settings: &[&Setting]) -> Option<(&'static str, Vec<f64>)> {
    let numbers: Vec<Number> = settings.iter().map(|one| one.number()).collect::<Option<_>>()?;
    let kind = std::mem::discriminant(numbers.first()?);
    if numbers.iter().any(|number| std::mem::discriminant(number) != kind) {
        return None;
    }
    let is_long = |number: &Number| matches!(number, Number::Span(span) if span.is_zero() || *span >= Duration::from_secs(1));
    let in_seconds = numbers.iter().all(is_long);
    let scaled = |number: &Number| match number {
        Number::Plain(number) => ("", *number),
        Number::Rate(rate) => ("mbit_per_s", rate.as_mbps_f64()),
        Number::Size(size) => ("bytes", size.get() as f64),
        Number::Packets(packets) => ("packets", *packets as f64),
        Number::Span(span) if in_seconds => ("s", span.as_secs_f64()),
        Number::Span(span) => ("ms", span.as_nanos() as f64 / 1e6),
        Number::PerSecond(number) => ("per_s", *number),
    };
    Some((scaled(numbers.first()?).0, numbers.iter().map(|number| scaled(number).1).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_unit_never_changes_a_value(spans in prop::collection::vec(0..100_000_000_000_u64, 1..6)) {
            let settings: Vec<Setting> =
                spans.iter().map(|span| Setting { key: "k".into(), value: format!("{span} ns") }).collect();
            let (unit, values) = scaled(&settings.iter().collect::<Vec<_>>()).unwrap();
            for (span, value) in spans.iter().zip(values) {
                let nanos = if unit == "s" { value * 1e9 } else { value * 1e6 };
                prop_assert!((nanos - *span as f64).abs() < 0.5, "{} {}: {}", value, unit, span);
            }
        }
    }
}
