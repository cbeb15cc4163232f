//! The mean of repeated runs and how sure it is.

/// Student's t for a two-sided 95 % confidence interval with `freedom` degrees of freedom; `None` for 0.
///
/// The distribution has a closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4),
/// which is inverted by bisection; above 1000 the expansion 26.7.5 is exact to more digits than anybody prints.
///
/// ```
/// let t = marcato_papers::student_t(4).unwrap();
/// assert!((t - 2.776).abs() < 0.001);
/// ```
pub fn student_t(freedom: u32) -> Option<f64> {
    /// The 97.5 % quantile of the normal distribution.
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
    // Bisect the angle, tan(angle) = t / sqrt(v), in which the distribution is smooth up to its very end.
    let (mut low, mut high) = (0.0, core::f64::consts::FRAC_PI_2);
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

/// The probability that |t| stays below sqrt(freedom)·tan(angle): Abramowitz and Stegun, 26.7.3 (odd), 26.7.4 (even).
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

/// The mean of samples, their number, and the half-width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The arithmetic mean; not a number when there are no samples.
    pub value: f64,
    /// How many samples.
    pub n: u32,
    /// Half the width of the 95 % confidence interval (Student's t); `None` for fewer than two samples.
    pub ci95: Option<f64>,
}

impl Mean {
    /// The mean of `samples`. A sample that is not a number makes the mean not a number.
    pub fn of(samples: &[f64]) -> Self {
        let n = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        let count = f64::from(n);
        // Around the first sample, so that equal samples have exactly their value as mean and no spread.
        let first = samples.first().copied().unwrap_or(f64::NAN);
        let value = first + samples.iter().map(|x| x - first).sum::<f64>() / count;
        let ci95 = n.checked_sub(1).and_then(student_t).map(|t| {
            let squares: f64 = samples.iter().map(|x| (x - value) * (x - value)).sum();
            t * libm::sqrt(squares / (count - 1.0)) / libm::sqrt(count)
        });
        Self { value, n, ci95 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
