//! Mean of repeated runs with its confidence interval, and the distribution of many samples.

/// Student's t for a two-sided 95 % confidence interval with `freedom` degrees of freedom; `None`
/// for 0.
///
/// The distribution has a closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3
/// and 26.7.4), which bisection inverts. Above 1000 the expansion 26.7.5 is used; its error is far
/// below the digits that are printed.
///
/// ```
/// let t = marcato_report::student_t(4).unwrap();
/// assert!((t - 2.776).abs() < 0.001);
/// ```
pub fn student_t(freedom: u32) -> Option<f64> {
    /// 97.5 % quantile of the normal distribution.
    const Z: f64 = 1.959_963_984_540_054;
    if freedom == 0 {
        return None;
    }
    let v = f64::from(freedom);
    if freedom > 1000 {
        let g1 = (libm::pow(Z, 3.0) + Z) / 4.0;
        let g2 = (5.0 * libm::pow(Z, 5.0) + 16.0 * libm::pow(Z, 3.0) + 3.0 * Z) / 96.0;
        return Some(Z + g1 / v + g2 / (v * v));
    }
    // Bisects the angle, tan(angle) = t / sqrt(v): the distribution is smooth in it over its whole
    // range.
    let (mut low, mut high) = (0.0, core::f64::consts::FRAC_PI_2);
    // 80 halvings exhaust the precision of a double.
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if two_sided(middle, freedom) < 0.95 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(libm::sqrt(v) * libm::tan(0.5 * (low + high)))
}

/// Probability that |t| stays below sqrt(freedom)·tan(angle): Abramowitz and Stegun, 26.7.3 (odd),
/// 26.7.4 (even).
fn two_sided(angle: f64, freedom: u32) -> f64 {
    let (sin, cos) = (libm::sin(angle), libm::cos(angle));
    let odd = freedom % 2 == 1;
    let (mut term, mut sum) = (if odd { cos } else { 1.0 }, 0.0);
    // The powers of the cosine run up to freedom - 2.
    let mut power = if odd { 1 } else { 0 };
    while power + 2 <= freedom {
        sum += term;
        let p = f64::from(power);
        term *= cos * cos * (p + 1.0) / (p + 2.0);
        power += 2;
    }
    if odd { (angle + sin * sum) * core::f64::consts::FRAC_2_PI } else { sin * sum }
}

/// Mean of samples, their number, and the half-width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// Arithmetic mean; not a number if there are no samples.
    pub value: f64,
    /// Number of samples.
    pub n: u32,
    /// Half-width of the 95 % confidence interval (Student's t); `None` for fewer than two samples.
    pub ci95: Option<f64>,
}

impl Mean {
    /// Computes the mean of `samples`. A sample that is not a number makes the mean not a number.
    pub fn of(samples: &[f64]) -> Self {
        let n = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        let count = f64::from(n);
        // Sums differences from the first sample, so that equal samples have exactly their value as
        // mean and no spread.
        let first = samples.first().copied().unwrap_or(f64::NAN);
        let value = first + samples.iter().map(|x| x - first).sum::<f64>() / count;
        let ci95 = n.checked_sub(1).and_then(student_t).map(|t| {
            let squares: f64 = samples.iter().map(|x| (x - value) * (x - value)).sum();
            t * libm::sqrt(squares / (count - 1.0)) / libm::sqrt(count)
        });
        Self { value, n, ci95 }
    }
}

/// Share of samples, in thousandths, that a percentile is not exceeded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentile(u16);

impl Percentile {
    /// The median: half of the samples are not greater.
    pub const P50: Self = Self(500);
    /// 90 of 100 samples are not greater.
    pub const P90: Self = Self(900);
    /// 95 of 100 samples are not greater.
    pub const P95: Self = Self(950);
    /// 99 of 100 samples are not greater.
    pub const P99: Self = Self(990);
    /// 999 of 1000 samples are not greater.
    pub const P99_9: Self = Self(999);
    /// The greatest sample.
    pub const MAX: Self = Self(1000);

    /// Creates a percentile from thousandths of all samples; `None` above 1000.
    pub const fn from_thousandths(thousandths: u16) -> Option<Self> {
        if thousandths <= 1000 { Some(Self(thousandths)) } else { None }
    }

    /// Returns the place of the percentile among `count` samples, counted from the greatest: 1 if it is
    /// their maximum. Few samples beyond a percentile make it a matter of chance.
    ///
    /// ```
    /// use marcato_report::Percentile;
    /// assert_eq!(Percentile::P99.from_greatest(55), 1);
    /// assert_eq!(Percentile::P99.from_greatest(500), 6);
    /// ```
    pub fn from_greatest(self, count: usize) -> usize {
        (count + 1).saturating_sub(self.rank(count)).max(1)
    }

    /// Returns words for a percentile that is one of the five greatest of `count` samples, such as
    /// "longest of 55"; `None` if more lie beyond it, and for the [maximum](Self::MAX) itself. `most`
    /// is the superlative: "longest" of times.
    ///
    /// The 99th percentile needs no words from 500 samples on, and the 95th from 100 on.
    pub fn of_few(self, count: usize, most: &str) -> Option<String> {
        if self == Self::MAX || count == 0 {
            return None;
        }
        let place = match self.from_greatest(count) {
            1 => String::new(),
            2 => "2nd ".to_owned(),
            3 => "3rd ".to_owned(),
            place @ 4..=5 => format!("{place}th "),
            _ => return None,
        };
        Some(format!("{place}{most} of {count}"))
    }

    /// Rank, counted from 1, of the percentile among `count` sorted samples: the least rank that
    /// covers the share. Integer arithmetic, so that rounding does not move it.
    fn rank(self, count: usize) -> usize {
        // `count` is at most 2^64, so that times 1000 it fits 128 bits; the rank is at most the
        // count.
        let rank = (count as u128 * u128::from(self.0)).div_ceil(1000).max(1);
        usize::try_from(rank).unwrap_or(usize::MAX)
    }
}

/// Samples in ascending order. Infinite ones are allowed: a message that never completed counts as
/// greater than every finite value. Samples that are not a number are left out.
///
/// ```
/// use marcato_report::{Percentile, Samples};
/// let delays = Samples::new([3.0, 1.0, f64::INFINITY, 2.0]);
/// assert_eq!(delays.percentile(Percentile::P50), Some(2.0));
/// assert_eq!(delays.percentile(Percentile::P99), Some(f64::INFINITY));
/// assert_eq!(delays.share_above(2.0), 0.5);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Sorts `samples`.
    pub fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|sample| !sample.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    /// All samples, ascending.
    pub fn sorted(&self) -> &[f64] {
        &self.0
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Percentile by nearest rank: the least sample that at least the given share of samples does
    /// not exceed. It is always one of the samples, never a value between two: of n samples, the
    /// one of rank ⌈n · share⌉ in ascending order. `None` without samples.
    pub fn percentile(&self, percentile: Percentile) -> Option<f64> {
        self.0.get(percentile.rank(self.0.len()) - 1).copied()
    }

    /// Share of samples that are greater than `value`; 0 without samples.
    pub fn share_above(&self, value: f64) -> f64 {
        share(self.0.len() - self.0.partition_point(|&sample| sample <= value), self.0.len())
    }

    /// CCDF: for each finite value that occurs, in ascending order, the share of samples that are
    /// greater. It is 1 below the first value and constant between two values.
    pub fn ccdf(&self) -> Vec<(f64, f64)> {
        let count = self.0.len();
        let mut done = 0;
        let mut steps = Vec::new();
        for equal in self.0.chunk_by(|a, b| a == b) {
            done += equal.len();
            if let Some(&value) = equal.first().filter(|value| value.is_finite()) {
                steps.push((value, share(count - done, count)));
            }
        }
        steps
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self::new(samples)
    }
}

/// Quotient of two counts; 0 of 0. Counts of samples are far below 2^53, so they convert exactly.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let thousand = Samples::new((1..=1000).rev().map(f64::from));
        let of = |samples: &Samples, percentile| samples.percentile(percentile).unwrap();
        for (percentile, value) in [
            (Percentile::P50, 500.0),
            (Percentile::P90, 900.0),
            (Percentile::P99, 990.0),
            (Percentile::P99_9, 999.0),
            (Percentile::MAX, 1000.0),
            (Percentile::from_thousandths(0).unwrap(), 1.0),
            (Percentile::from_thousandths(1).unwrap(), 1.0),
        ] {
            assert_eq!(of(&thousand, percentile), value, "{percentile:?}");
        }
        // If the share is no whole number of samples, the rank is rounded up: 50 % of 5 is the
        // third, 99 % of 6 the last.
        assert_eq!(of(&Samples::new([5.0, 4.0, 3.0, 2.0, 1.0]), Percentile::P50), 3.0);
        assert_eq!(of(&Samples::new((1..=6).map(f64::from)), Percentile::P99), 6.0);
        // Of fewer than 1000 samples, the 99.9th percentile is the greatest.
        assert_eq!(of(&Samples::new((1..=999).map(f64::from)), Percentile::P99_9), 999.0);
        assert_eq!(Samples::default().percentile(Percentile::P50), None);
        assert_eq!(Percentile::from_thousandths(1001), None);
    }

    #[test]
    fn percentiles_of_few_samples_say_which_sample_they_are() {
        let words = |percentile: Percentile, count| percentile.of_few(count, "longest");
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(words(Percentile::P99, 55), said("longest of 55"));
        assert_eq!(words(Percentile::P99, 99), said("longest of 99"));
        assert_eq!(words(Percentile::P99, 100), said("2nd longest of 100"));
        assert_eq!(words(Percentile::P99, 200), said("3rd longest of 200"));
        assert_eq!(words(Percentile::P99, 499), said("5th longest of 499"));
        assert_eq!(words(Percentile::P99, 500), None);
        assert_eq!((words(Percentile::P95, 19), words(Percentile::P95, 100)), (said("longest of 19"), None));
        assert_eq!((words(Percentile::P50, 1), words(Percentile::P50, 55)), (said("longest of 1"), None));
        assert_eq!((words(Percentile::MAX, 3), words(Percentile::P99, 0)), (None, None));
    }

    #[test]
    fn infinite_samples_count_and_nan_does_not() {
        let samples = Samples::new([f64::NAN, 2.0, f64::INFINITY, -f64::NAN, 1.0, 2.0]);
        assert_eq!((samples.len(), samples.percentile(Percentile::MAX)), (4, Some(f64::INFINITY)));
        assert_eq!(samples.ccdf(), [(1.0, 0.75), (2.0, 0.25)]);
        assert_eq!((samples.share_above(0.0), samples.share_above(1e300)), (1.0, 0.25));
        assert!(Samples::new([f64::NAN]).is_empty() && Samples::default().ccdf().is_empty());
        assert_eq!(Samples::default().share_above(0.0), 0.0);
    }

    proptest! {
        #[test]
        fn percentiles_are_samples_and_they_and_the_ccdf_match_counts(
            samples in prop::collection::vec((0..50u8).prop_map(f64::from), 1..200), thousandths in 0..=1000u16,
        ) {
            let sorted = Samples::new(samples.iter().copied());
            let value = sorted.percentile(Percentile::from_thousandths(thousandths).unwrap()).unwrap();
            let count = |test: &dyn Fn(f64) -> bool| samples.iter().filter(|&&sample| test(sample)).count();
            prop_assert!(samples.contains(&value));
            let wanted = samples.len() * usize::from(thousandths);
            prop_assert!(count(&|sample| sample <= value) * 1000 >= wanted);
            prop_assert!(count(&|sample| sample < value) * 1000 < wanted.max(1));
            for (at, share) in sorted.ccdf() {
                prop_assert_eq!(share, count(&|sample| sample > at) as f64 / samples.len() as f64);
                prop_assert_eq!(share, sorted.share_above(at));
            }
        }
    }

    #[test]
    fn equal_samples_have_no_spread_at_all() {
        let mean = Mean::of(&[815.310_400_000_000_1; 10]);
        assert_eq!((mean.value, mean.ci95), (815.310_400_000_000_1, Some(0.0)));
    }

    #[test]
    fn student_t_agrees_with_the_printed_tables() {
        // The usual table, 0.975 column.
        for (freedom, printed) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (6, 2.447),
            (7, 2.365),
            (8, 2.306),
            (9, 2.262),
            (10, 2.228),
            (15, 2.131),
            (20, 2.086),
            (29, 2.045),
            (30, 2.042),
            (40, 2.021),
            (60, 2.000),
            (120, 1.980),
            (1000, 1.962),
        ] {
            let t = student_t(freedom).unwrap();
            assert!((t - printed).abs() < 0.000_6, "{freedom} degrees: {t}, the table says {printed}");
        }
    }

    #[test]
    fn student_t_has_no_step_where_the_expansion_takes_over() {
        let (below, above) = (student_t(1000).unwrap(), student_t(1001).unwrap());
        assert!(below > above && below - above < 5e-6, "{below} {above}");
    }

    #[test]
    fn the_interval_of_known_samples_is_as_computed_by_hand() {
        // Mean 3, variance 2.5, t(4) = 2.776445: 2.776445 * sqrt(2.5 / 5) = 1.963243.
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((mean.value, mean.n), (3.0, 5));
        assert!((mean.ci95.unwrap() - 1.963_243).abs() < 1e-6);
    }

    #[test]
    fn one_sample_has_no_interval_and_none_has_no_mean() {
        assert_eq!(Mean::of(&[4.0]), Mean { value: 4.0, n: 1, ci95: None });
        let none = Mean::of(&[]);
        assert!(none.value.is_nan() && none.n == 0 && none.ci95.is_none());
    }
}
