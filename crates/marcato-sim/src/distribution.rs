//! Probability distributions of sizes and durations.

use std::marker::PhantomData;

use marcato_units::{Bytes, Duration, Stream};

/// Quantity that a [`Distribution`] can draw: a duration, or a number of bytes.
pub trait Quantity: Copy + private::Sealed {
    /// Converts to a real number: seconds, or bytes.
    fn to_real(self) -> f64;
    /// Converts from `real`, which is neither negative nor NaN, to the nearest value; saturates.
    fn from_real(real: f64) -> Self;
}

mod private {
    pub trait Sealed {}
    impl Sealed for marcato_units::Bytes {}
    impl Sealed for marcato_units::Duration {}
}

impl Quantity for Bytes {
    fn to_real(self) -> f64 {
        self.get() as f64
    }

    #[expect(clippy::cast_possible_truncation, reason = "a float beyond u64 saturates")]
    fn from_real(real: f64) -> Self {
        Self::new(libm::round(real) as u64)
    }
}

impl Quantity for Duration {
    fn to_real(self) -> f64 {
        self.as_secs_f64()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a float beyond u64 saturates")]
    fn from_real(real: f64) -> Self {
        Self::from_nanos(libm::round(real * 1e9) as u64)
    }
}

/// Error returned for an invalid [`Distribution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    /// The lower bound of a uniform distribution is above the upper one.
    #[error("low is above high: swap them")]
    Bounds,
    /// The mean is zero.
    #[error("the mean is 0: use a constant for a value that is always 0")]
    ZeroMean,
    /// The shape of a Pareto distribution is not above 1, so that it has no mean; or, truncated,
    /// not above 0.
    #[error("the shape of a pareto distribution must be above 1, or above 0 if it is truncated")]
    Shape,
    /// The mean of a truncated distribution is at or beyond its upper bound.
    #[error(
        "the mean of a truncated distribution must be below its upper bound: raise most or lower the mean"
    )]
    Truncation,
    /// The spread of a log-normal distribution is negative, infinite or NaN.
    #[error("sigma must be 0 or above, and finite")]
    Sigma,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Constant(f64),
    Uniform {
        low: f64,
        span: f64,
    },
    Exponential {
        mean: f64,
    },
    /// Pareto distribution. `kept` is the probability that a draw without truncation is at most
    /// `most`; if it is 1, `most` only caps draws.
    Pareto {
        shape: f64,
        scale: f64,
        kept: f64,
        most: f64,
    },
    LogNormal {
        mu: f64,
        sigma: f64,
    },
}

/// Probability distribution of sizes or durations. Each form takes a fixed number of draws from a
/// [`Stream`]. No function of the machine's library is used, so one seed gives the same values
/// everywhere.
///
/// ```
/// use marcato_sim::Distribution;
/// use marcato_units::{Bytes, Seed};
///
/// // Flows of 25 packets of 1000 bytes on average, none longer than 10^5 packets.
/// let sizes = Distribution::truncated_pareto(1.2, Bytes::kb(25), Bytes::kb(100_000))?;
/// assert!((sizes.mean() - 25_000.0).abs() < 1e-3);
/// let mut stream = Seed::new(1).stream("sizes");
/// assert!(sizes.draw(&mut stream) <= Bytes::kb(100_000));
/// # Ok::<(), marcato_sim::DistributionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution<Q> {
    form: Form,
    quantity: PhantomData<Q>,
}

impl<Q: Quantity> Distribution<Q> {
    const fn of(form: Form) -> Self {
        Self { form, quantity: PhantomData }
    }

    /// Constant `value`.
    pub fn constant(value: Q) -> Self {
        Self::of(Form::Constant(value.to_real()))
    }

    /// Uniform distribution from `low` to `high`.
    ///
    /// # Errors
    ///
    /// [`DistributionError::Bounds`] if `low` is above `high`.
    pub fn uniform(low: Q, high: Q) -> Result<Self, DistributionError> {
        let (low, high) = (low.to_real(), high.to_real());
        if low > high {
            return Err(DistributionError::Bounds);
        }
        Ok(Self::of(Form::Uniform { low, span: high - low }))
    }

    /// Exponential distribution with this mean.
    ///
    /// # Errors
    ///
    /// [`DistributionError::ZeroMean`] if the mean is 0.
    pub fn exponential(mean: Q) -> Result<Self, DistributionError> {
        Ok(Self::of(Form::Exponential { mean: positive(mean)? }))
    }

    /// Pareto distribution: above its scale, the probability of exceeding x falls as x^-`shape`.
    /// The scale is `mean` (`shape` - 1) / `shape`.
    ///
    /// # Errors
    ///
    /// [`DistributionError`] if the shape is not above 1, where no mean exists, or the mean is 0.
    pub fn pareto(shape: f64, mean: Q) -> Result<Self, DistributionError> {
        let mean = positive(mean)?;
        if !(shape > 1.0 && shape.is_finite()) {
            return Err(DistributionError::Shape);
        }
        let scale = mean * (shape - 1.0) / shape;
        Ok(Self::of(Form::Pareto { shape, scale, kept: 1.0, most: f64::INFINITY }))
    }

    /// Pareto distribution truncated at `most`, with this `mean` after truncation, from which the
    /// scale follows.
    ///
    /// # Errors
    ///
    /// [`DistributionError`] if the shape is not above 0, or the mean is 0 or not below `most`.
    pub fn truncated_pareto(shape: f64, mean: Q, most: Q) -> Result<Self, DistributionError> {
        let (mean, most) = (positive(mean)?, most.to_real());
        if !(shape > 0.0 && shape.is_finite()) {
            return Err(DistributionError::Shape);
        }
        if mean >= most {
            return Err(DistributionError::Truncation);
        }
        // The mean grows with the scale, from 0 to `most`. Bisection halves the interval down to
        // the precision of a float; every scale lies below the mean.
        let (mut low, mut high) = (0.0, mean);
        for _ in 0..2_000 {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                break;
            }
            if truncated_mean(shape, middle, most) < mean {
                low = middle;
            } else {
                high = middle;
            }
        }
        let scale = high;
        let kept = 1.0 - libm::pow(scale / most, shape);
        Ok(Self::of(Form::Pareto { shape, scale, kept, most }))
    }

    /// Pareto distribution capped at `most`: larger draws count as `most`. `mean` is that of the
    /// distribution before the cap.
    ///
    /// # Errors
    ///
    /// As for [`pareto`](Self::pareto); also if the cap is not above the mean.
    pub fn capped_pareto(shape: f64, mean: Q, most: Q) -> Result<Self, DistributionError> {
        if mean.to_real() >= most.to_real() {
            return Err(DistributionError::Truncation);
        }
        match Self::pareto(shape, mean)?.form {
            Form::Pareto { shape, scale, kept, .. } => {
                Ok(Self::of(Form::Pareto { shape, scale, kept, most: most.to_real() }))
            }
            form => Ok(Self::of(form)),
        }
    }

    /// Log-normal distribution with this mean; `sigma` is the standard deviation of the logarithm.
    ///
    /// # Errors
    ///
    /// [`DistributionError`] if the mean is 0, or `sigma` is negative or not finite.
    pub fn log_normal(mean: Q, sigma: f64) -> Result<Self, DistributionError> {
        if !(sigma >= 0.0 && sigma.is_finite()) {
            return Err(DistributionError::Sigma);
        }
        let mu = libm::log(positive(mean)?) - sigma * sigma / 2.0;
        Ok(Self::of(Form::LogNormal { mu, sigma }))
    }

    /// Returns the mean, in seconds or bytes.
    pub fn mean(&self) -> f64 {
        match self.form {
            Form::Constant(value) => value,
            Form::Uniform { low, span } => low + span / 2.0,
            Form::Exponential { mean } => mean,
            Form::Pareto { shape, scale, kept, most } if kept < 1.0 => truncated_mean(shape, scale, most),
            // The subtracted term is the mean excess above the cap; it is 0 without a cap.
            Form::Pareto { shape, scale, most, .. } => {
                (scale * shape - scale * libm::pow(scale / most, shape - 1.0)) / (shape - 1.0)
            }
            Form::LogNormal { mu, sigma } => libm::exp(mu + sigma * sigma / 2.0),
        }
    }

    /// Draws a value, to the nearest nanosecond or byte.
    pub fn draw(&self, stream: &mut Stream) -> Q {
        Q::from_real(match self.form {
            Form::Constant(value) => value,
            Form::Uniform { low, span } => low + span * stream.unit(),
            // 1 - unit() lies in (0, 1], so the logarithm is finite.
            Form::Exponential { mean } => -libm::log(1.0 - stream.unit()) * mean,
            Form::Pareto { shape, scale, kept, most } => {
                (scale / libm::pow(1.0 - stream.unit() * kept, 1.0 / shape)).min(most)
            }
            Form::LogNormal { mu, sigma } => {
                // Box-Muller method. Its second number is discarded, so that draws keep no state.
                let radius = libm::sqrt(-2.0 * libm::log(1.0 - stream.unit()));
                let angle = std::f64::consts::TAU * stream.unit();
                libm::exp(mu + sigma * radius * libm::cos(angle))
            }
        })
    }
}

fn positive(mean: impl Quantity) -> Result<f64, DistributionError> {
    let mean = mean.to_real();
    if mean > 0.0 { Ok(mean) } else { Err(DistributionError::ZeroMean) }
}

/// Returns the mean of a Pareto distribution truncated at `most`: the integral of x times the
/// density from `scale` to `most`, over the probability of that range.
fn truncated_mean(shape: f64, scale: f64, most: f64) -> f64 {
    let kept = 1.0 - libm::pow(scale / most, shape);
    // With r = most / scale: shape × scale × (1 - r^(1 - shape)) / (shape - 1), whose limit at
    // shape 1 is a logarithm.
    let log = libm::log(most / scale);
    let power = (shape - 1.0) * log;
    let integral = if power.abs() < 1e-9 { log } else { -libm::expm1(-power) / (shape - 1.0) };
    shape * scale * integral / kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Seed;
    use proptest::prelude::*;

    fn drawn_mean(distribution: Distribution<Bytes>, draws: u32) -> f64 {
        let mut stream = Seed::new(1).stream("test");
        let total: f64 = (0..draws).map(|_| distribution.draw(&mut stream).get() as f64).sum();
        total / f64::from(draws)
    }

    #[test]
    fn a_capped_pareto_matches_its_mean_and_its_share_at_the_cap() {
        let sizes = Distribution::capped_pareto(1.5, Bytes::kb(30), Bytes::kb(90)).unwrap();
        let mut stream = marcato_units::Seed::new(1).stream("sizes");
        let all: Vec<f64> = (0..200_000).map(|_| sizes.draw(&mut stream).get() as f64).collect();
        // The scale is 10 kB, so the share at the cap is 9^-1.5 = 1/27; values below add 30 kB × (1
        // - 9^-0.5).
        let expected = 20_000.0 + 90_000.0 / 27.0;
        assert!((sizes.mean() - expected).abs() < 1e-6, "{}", sizes.mean());
        let capped = all.iter().filter(|&&size| size == 90_000.0).count() as f64 / 200_000.0;
        assert!((0.034..0.040).contains(&capped), "{capped}");
        let mean = all.iter().sum::<f64>() / 200_000.0;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.01, "{mean}");
        assert_eq!(
            Distribution::capped_pareto(1.5, Bytes::kb(30), Bytes::kb(30)).unwrap_err(),
            DistributionError::Truncation
        );
    }

    #[test]
    fn draws_have_the_mean_that_was_asked_for() {
        let mean = Bytes::new(10_000);
        // The last number is the standard deviation over the mean. The bound is five of them, over
        // the root of the number of draws.
        for (distribution, deviation) in [
            (Distribution::constant(mean), 0.0),
            (Distribution::uniform(Bytes::ZERO, mean * 2).unwrap(), 0.578),
            (Distribution::exponential(mean).unwrap(), 1.0),
            // Shape 3: the variance is mean² / (shape (shape - 2)).
            (Distribution::pareto(3.0, mean).unwrap(), 0.578),
            (Distribution::log_normal(mean, 1.0).unwrap(), 1.311),
        ] {
            let ratio = drawn_mean(distribution, 100_000) / 10_000.0;
            assert!((ratio - 1.0).abs() <= 5.0 * deviation / 316.0 + 1e-9, "{distribution:?}: {ratio}");
            assert!((distribution.mean() / 10_000.0 - 1.0).abs() < 1e-9);
        }
    }

    /// Mean of the truncated distribution by summing its density, on a logarithmic grid.
    fn summed_mean(shape: f64, scale: f64, most: f64) -> f64 {
        let steps = 1_000_000;
        let step = (most / scale).ln() / f64::from(steps);
        let (mut mass, mut moment) = (0.0, 0.0);
        for i in 0..steps {
            let x = scale * ((f64::from(i) + 0.5) * step).exp();
            let weight = x * shape * scale.powf(shape) * x.powf(-shape - 1.0);
            mass += weight;
            moment += weight * x;
        }
        moment / mass
    }

    #[test]
    fn plt_flow_sizes_have_a_truncated_pareto_mean_of_25_packets() {
        // PLT's flow sizes: shapes 1.2 and 1.5, mean 25 packets, cut at 10^5 packets; packets of
        // 1000 bytes.
        for shape in [1.2, 1.5] {
            let sizes = Distribution::truncated_pareto(shape, Bytes::kb(25), Bytes::kb(100_000)).unwrap();
            let Form::Pareto { scale, .. } = sizes.form else { panic!("{sizes:?}") };
            let mean = summed_mean(shape, scale, 1e8);
            assert!((mean / 25_000.0 - 1.0).abs() < 1e-6, "shape {shape}: scale {scale}, mean {mean}");
            // Without truncation the mean would need a smaller scale.
            assert!(scale > 25_000.0 * (shape - 1.0) / shape);
        }
    }

    #[test]
    fn truncated_pareto_quantiles_match_the_formula() {
        let sizes = Distribution::truncated_pareto(1.2, Bytes::kb(25), Bytes::kb(100_000)).unwrap();
        let Form::Pareto { scale, kept, .. } = sizes.form else { panic!("{sizes:?}") };
        let mut stream = Seed::new(2).stream("test");
        let draws: Vec<f64> = (0..40_000).map(|_| sizes.draw(&mut stream).get() as f64).collect();
        for quantile in [0.25, 0.5, 0.75, 0.99] {
            let x = scale * (1.0 - quantile * kept).powf(-1.0 / 1.2);
            let below = draws.iter().filter(|&&draw| draw <= x).count() as f64 / 40_000.0;
            // Half a byte of rounding, and five standard deviations of at most 0.0025.
            assert!((below - quantile).abs() < 0.0127, "{quantile}: {below}");
        }
    }

    #[test]
    fn an_error_says_what_to_change() {
        let (none, one, two) = (Bytes::ZERO, Bytes::new(1), Bytes::new(2));
        assert_eq!(Distribution::uniform(two, one), Err(DistributionError::Bounds));
        assert_eq!(Distribution::exponential(none), Err(DistributionError::ZeroMean));
        assert_eq!(Distribution::pareto(1.0, one), Err(DistributionError::Shape));
        assert_eq!(Distribution::pareto(f64::NAN, one), Err(DistributionError::Shape));
        assert_eq!(Distribution::truncated_pareto(0.0, one, two), Err(DistributionError::Shape));
        assert_eq!(Distribution::truncated_pareto(1.0, two, two), Err(DistributionError::Truncation));
        assert_eq!(Distribution::log_normal(one, -1.0), Err(DistributionError::Sigma));
    }

    proptest! {
        #[test]
        fn every_truncated_pareto_has_its_mean_and_respects_its_maximum(
            shape in 0.1f64..5.0, mean in 10u64..1_000_000, room in 1.01f64..10_000.0, seed in any::<u64>(),
        ) {
            let most = Bytes::from_real(mean as f64 * room);
            prop_assume!(most > Bytes::new(mean));
            let sizes = Distribution::truncated_pareto(shape, Bytes::new(mean), most).unwrap();
            prop_assert!((sizes.mean() / mean as f64 - 1.0).abs() < 1e-6, "{sizes:?}: {}", sizes.mean());
            let mut stream = Seed::new(seed).stream("test");
            prop_assert!((0..100).all(|_| sizes.draw(&mut stream) <= most));
        }
    }
}
