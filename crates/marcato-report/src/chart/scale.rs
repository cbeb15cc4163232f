//! Mapping of values to places on the image.

use super::Axis;

/// Maps a range of values to a range of pixels.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    lo: f64,
    hi: f64,
    log: bool,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Scale {
    /// Creates a scale for `values`, from pixel `from` to pixel `to`; `None` if there is no value
    /// to show. An end of the range is fixed if the axis asks for a range that holds the data.
    /// Every other end is widened to a whole tick, and to zero if `zero` is set. Only a window may
    /// leave data outside.
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        zero: bool,
        from: f64,
        to: f64,
    ) -> Option<Self> {
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|&value| axis.shows(value)) {
            (lo, hi) = (lo.min(value), hi.max(value));
        }
        if lo > hi {
            return None;
        }
        if let Some(others) = axis.others {
            (lo, hi) = (lo.min(others.0), hi.max(others.1));
        }
        let (mut fixed_lo, mut fixed_hi) = (false, false);
        if let (Some(a), Some(b)) = (axis.lo, axis.hi)
            && a < b
            && axis.shows(a)
            && axis.shows(b)
        {
            (fixed_lo, fixed_hi) = (axis.cut || lo >= a, axis.cut || hi <= b);
            lo = if fixed_lo { a } else { lo };
            hi = if fixed_hi { b } else { hi };
        }
        if !axis.log {
            if zero && !fixed_lo {
                lo = lo.min(0.0);
            }
            if zero && !fixed_hi {
                hi = hi.max(0.0);
            }
            // The range is too narrow for distinct ticks: it is treated as a single value.
            let size = lo.abs().max(hi.abs());
            if hi - lo <= size * 1e-9 {
                // All values are zero. They are mostly counts, which are never negative.
                (lo, hi) = if size < 1e-100 { (0.0, 1.0) } else { (lo - size * 0.1, hi + size * 0.1) };
            }
        }
        // One tick per 70 pixels, but 2 to 8 in all.
        let wanted = ((to - from).abs() / 70.0).clamp(2.0, 8.0);
        let ticks = if axis.log {
            let (ticks, a, b) = log_ticks((lo, fixed_lo), (hi, fixed_hi));
            (lo, hi) = (a, b);
            ticks
        } else {
            let step = nice_step((hi - lo) / wanted);
            lo = if fixed_lo { lo } else { libm::floor(lo / step) * step };
            hi = if fixed_hi { hi } else { libm::ceil(hi / step) * step };
            linear_ticks(lo, hi, step)
        };
        Some(Self { lo, hi, log: axis.log, from, to, ticks })
    }

    /// Pixel of `value`. It is outside the range of pixels exactly if `value` is outside the range
    /// of values.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            libm::log10(value / self.lo) / libm::log10(self.hi / self.lo)
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        self.from + share * (self.to - self.from)
    }

    /// Least value shown.
    pub(super) const fn lo(&self) -> f64 {
        self.lo
    }

    /// Values of the ticks, with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let step = match self.ticks.as_slice() {
            [a, b, ..] if !self.log => b - a,
            _ => 0.0,
        };
        self.ticks.iter().map(|&tick| (tick, label(tick, step))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `raw`.
fn nice_step(raw: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(raw)));
    // The tolerance keeps a range of exactly a whole number of steps from taking the next larger
    // step.
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|m| m * power)
        .find(|&step| step >= raw * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

fn linear_ticks(lo: f64, hi: f64, step: f64) -> Vec<f64> {
    let first = libm::ceil(lo / step - 1e-9);
    // At most a few ticks fit; the bound only guards against steps lost in rounding.
    (0..64_i32)
        .map(|index| {
            let tick = (first + f64::from(index)) * step;
            if tick.abs() < step * 1e-9 { 0.0 } else { tick }
        })
        .take_while(|&tick| tick <= hi + step * 1e-9)
        .collect()
}

/// Ticks of a logarithmic axis and its range. Each end is widened to a whole decade unless it is
/// fixed.
fn log_ticks((lo, fixed_lo): (f64, bool), (hi, fixed_hi): (f64, bool)) -> (Vec<f64>, f64, f64) {
    let (first, last) = (libm::floor(libm::log10(lo) + 1e-9), libm::ceil(libm::log10(hi) - 1e-9));
    let last = last.max(first + 1.0);
    let decades = last - first;
    // At most about eight decades have a tick; a longer axis skips some.
    let every = libm::ceil(decades / 8.0).max(1.0);
    // A short axis needs ticks inside its decades.
    let within: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let a = if fixed_lo { lo } else { libm::pow(10.0, first) };
    let b = if fixed_hi { hi } else { libm::pow(10.0, last) };
    let mut ticks = vec![];
    let mut exponent = first;
    while exponent <= last {
        let power = libm::pow(10.0, exponent);
        ticks.extend(
            within.iter().map(|m| m * power).filter(|&t| t >= a * (1.0 - 1e-9) && t <= b * (1.0 + 1e-9)),
        );
        exponent += every;
    }
    (ticks, a, b)
}

/// Label of a tick, with as many digits as the `step` between ticks needs; 0 stands for unequal
/// steps.
fn label(value: f64, step: f64) -> String {
    let size = value.abs().max(step);
    if size >= 1e7 || (size != 0.0 && size < 1e-4) {
        return if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}").replace(".0e", "e") };
    }
    if step == 0.0 {
        return format!("{}", (value * 1e6).round() / 1e6);
    }
    let digits = (0..6_u8).find(|&digits| {
        let scaled = step * libm::pow(10.0, f64::from(digits));
        (scaled - libm::round(scaled)).abs() < 1e-6 * scaled.max(1.0)
    });
    format!("{value:.*}", usize::from(digits.unwrap_or(6)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(axis: &Axis, values: &[f64], zero: bool) -> Vec<String> {
        let scale = Scale::new(axis, values.iter().copied(), zero, 0.0, 350.0).unwrap();
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_with_the_digits_they_need() {
        let axis = Axis::new("time", "ms");
        assert_eq!(labels(&axis, &[130.0, 1327.0], true), ["0", "500", "1000", "1500"]);
        assert_eq!(labels(&axis, &[0.0, 1.0], true), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&axis, &[-3.0, 4.0], true), ["-4", "-2", "0", "2", "4"]);
    }

    #[test]
    fn a_logarithmic_axis_marks_decades() {
        let axis = Axis::new("time", "ms").log();
        assert_eq!(labels(&axis, &[0.5, 900.0], false), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(labels(&axis, &[2.0, 7.0], false), ["1", "2", "5", "10"]);
    }

    #[test]
    fn a_range_is_kept_if_it_holds_the_data_and_widened_otherwise() {
        let scale =
            |axis: &Axis, value: f64| Scale::new(axis, [value].into_iter(), false, 0.0, 200.0).unwrap();
        let axis = Axis::new("share", "%").range(70.0, 102.0);
        let kept = scale(&axis, 99.0);
        assert_eq!((kept.place(70.0), kept.place(102.0)), (0.0, 200.0));
        let wider = scale(&axis, 14.5);
        assert!(wider.place(14.5) >= 0.0 && wider.place(14.5) < wider.place(70.0));
        assert_eq!(wider.place(102.0), 200.0);
        let log = scale(&Axis::new("share", "").log().range(1e-3, 1.0), 2e-5);
        assert!(log.place(2e-5) > 0.0 && log.place(2e-5) < log.place(1e-3) && log.place(1.0) == 200.0);
    }

    #[test]
    fn values_outside_a_window_have_no_place_inside() {
        let axis = Axis::new("time", "s").window(0.0, 100.0);
        let scale = Scale::new(&axis, [250.0].into_iter(), false, 0.0, 200.0).unwrap();
        assert_eq!((scale.place(250.0), scale.place(50.0), scale.place(-5.0)), (500.0, 100.0, -10.0));
    }

    #[test]
    fn counts_of_nothing_have_an_axis_from_nought() {
        for zero in [false, true] {
            assert_eq!(labels(&Axis::new("drops", ""), &[0.0, 0.0], zero)[0], "0.0");
        }
    }

    #[test]
    fn one_value_still_has_a_range() {
        let axis = Axis::new("x", "");
        let scale = Scale::new(&axis, [5.0].into_iter(), false, 0.0, 100.0).unwrap();
        assert!(scale.place(5.0) > 0.0 && scale.place(5.0) < 100.0);
    }

    #[test]
    fn no_value_has_no_scale() {
        let values = [f64::NAN, f64::INFINITY, -1.0, 0.0];
        assert!(Scale::new(&Axis::new("x", "").log(), values.into_iter(), false, 0.0, 1.0).is_none());
    }

    proptest! {
        #[test]
        fn every_value_has_a_finite_place_inside(
            values in prop::collection::vec(any::<f64>(), 0..8), log: bool, zero: bool,
        ) {
            let axis = if log { Axis::new("x", "").log() } else { Axis::new("x", "") };
            if let Some(scale) = Scale::new(&axis, values.iter().copied(), zero, 0.0, 100.0) {
                for value in values.into_iter().filter(|&value| axis.shows(value)) {
                    let place = scale.place(value);
                    prop_assert!((-0.001..=100.001).contains(&place), "{} at {}", value, place);
                }
                prop_assert!(scale.ticks().len() <= 64);
            }
        }
    }
}
