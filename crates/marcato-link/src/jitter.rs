//! Jitter: delay that differs from packet to packet.

use marcato_units::{Duration, Stream, Time};

/// Random addition to a link's delay, drawn for each packet that it puts on the wire.
///
/// Every link draws from its stream `jitter/<link>`, once per packet, lost ones included. So a
/// different loss does not change the delays of other packets.
///
/// Unless [`reorder`](Self::reorder) allows it, no packet overtakes another. A packet that would
/// arrive before its predecessor arrives with it. Delays are then longer than drawn, the more so
/// the closer the packets follow each other.
///
/// ```
/// use marcato_link::{Impairments, Jitter, Loss};
/// use marcato_units::{Duration, Seed, Time};
///
/// let ms = Duration::from_millis;
/// // 20 ms, and 0 to 5 ms more; packets stay in order.
/// let jitter = Some(Jitter::uniform(ms(5)));
/// let mut radio = Impairments::new(Loss::None, jitter, 0.0, "radio", Seed::new(1));
/// let arrival = radio.arrival(Time::from_millis(20)).ok_or("it loses nothing")?;
/// assert!(arrival.at >= Time::from_millis(20) && arrival.at <= Time::from_millis(25));
/// // One packet in a thousand comes 30 ms late; the others pass it.
/// let detour = Jitter::held(0.001, ms(30))?.reorder(true);
/// assert!(detour.reorders());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    spread: Spread,
    reorder: bool,
}

/// Distribution of the extra delay, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spread {
    Uniform { max: Duration },
    Normal { mean: Duration, sd: Duration },
    Exponential { mean: Duration, max: Duration },
    Pareto { scale: Duration, shape: f64, max: Duration },
    Held { probability: f64, span: Duration },
}

/// Error returned for an invalid [`Jitter`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum JitterError {
    /// The shape of a Pareto distribution is zero, negative or NaN.
    #[error("invalid pareto shape {0}: give one above 0, for example 2.5")]
    Shape(f64),
    /// The probability is not from 0 to 1.
    #[error("invalid probability {0} of holding a packet: give one from 0 to 1")]
    Probability(f64),
}

impl Jitter {
    /// Uniform distribution from 0 to `max`, both included.
    pub const fn uniform(max: Duration) -> Self {
        Self::of(Spread::Uniform { max })
    }

    /// Normal distribution, redrawn while below 0. The resulting mean is above `mean` unless `sd`
    /// is small against it: by 0.4 % of `sd` if `mean` is 3 `sd`, by 29 % if it is one, and by 80 %
    /// if it is 0.
    pub const fn normal(mean: Duration, sd: Duration) -> Self {
        Self::of(Spread::Normal { mean, sd })
    }

    /// Exponential distribution with this mean, capped at `max`.
    pub const fn exponential(mean: Duration, max: Duration) -> Self {
        Self::of(Spread::Exponential { mean, max })
    }

    /// Pareto distribution capped at `max`: at least `scale`, and more than `x` with probability
    /// (`scale` / `x`) ^ `shape`. For a shape of at most 2, `max` determines the variance; of at
    /// most 1, also the mean.
    ///
    /// # Errors
    /// [`JitterError::Shape`] if the shape is not above 0.
    pub fn pareto(scale: Duration, shape: f64, max: Duration) -> Result<Self, JitterError> {
        if shape > 0.0 {
            Ok(Self::of(Spread::Pareto { scale, shape, max }))
        } else {
            Err(JitterError::Shape(shape))
        }
    }

    /// Delay of `span` for each packet with this probability, and of nothing otherwise. With
    /// [`reorder`](Self::reorder) it models a detour of single packets; without, a repair below IP
    /// for which later packets wait.
    ///
    /// # Errors
    /// [`JitterError::Probability`] if it is not from 0 to 1.
    pub fn held(probability: f64, span: Duration) -> Result<Self, JitterError> {
        if (0.0..=1.0).contains(&probability) {
            Ok(Self::of(Spread::Held { probability, span }))
        } else {
            Err(JitterError::Probability(probability))
        }
    }

    /// Sets whether packets may overtake one another; by default they may not.
    #[must_use]
    pub const fn reorder(self, reorder: bool) -> Self {
        Self { reorder, ..self }
    }

    /// Returns true if packets may overtake one another.
    pub const fn reorders(&self) -> bool {
        self.reorder
    }

    const fn of(spread: Spread) -> Self {
        Self { spread, reorder: false }
    }

    /// Draws the next packet's extra delay.
    fn draw(&self, stream: &mut Stream) -> Duration {
        match self.spread {
            Spread::Uniform { max } => {
                Duration::from_nanos(stream.below(saturating_nanos(max).saturating_add(1)))
            }
            Spread::Normal { mean, sd } => loop {
                // The mean is not negative, so at least every other draw is accepted on average.
                let nanos = mean.as_nanos() as f64 + sd.as_nanos() as f64 * standard_normal(stream);
                if nanos >= 0.0 {
                    break from_f64(nanos);
                }
            },
            Spread::Exponential { mean, max } => stream.exponential(mean).min(max),
            Spread::Pareto { scale, shape, max } => {
                // 1 - unit() lies in (0, 1], so the power is at least 1; if it is infinite, `max`
                // bounds it.
                let times = libm::pow(1.0 - stream.unit(), -1.0 / shape);
                from_f64(scale.as_nanos() as f64 * times).min(max)
            }
            Spread::Held { probability, span } => {
                if stream.chance(probability) {
                    span
                } else {
                    Duration::ZERO
                }
            }
        }
    }
}

/// State of a [`Jitter`] on a link.
#[derive(Debug)]
pub(crate) struct JitterProcess {
    jitter: Jitter,
    stream: Stream,
    /// Latest arrival time so far.
    last: Time,
}

impl JitterProcess {
    /// Creates the state of a link whose draws come from `stream`.
    pub(crate) fn new(jitter: Jitter, stream: Stream) -> Self {
        Self { jitter, stream, last: Time::ZERO }
    }

    /// Returns the arrival time of the next packet, which without jitter would arrive at `due`.
    pub(crate) fn arrival(&mut self, due: Time) -> Time {
        let at = due + self.jitter.draw(&mut self.stream);
        if self.jitter.reorder {
            return at;
        }
        self.last = at.max(self.last);
        self.last
    }
}

/// Draws from the normal distribution of mean 0 and variance 1 by Marsaglia's polar method. It uses
/// one of the two results, so that packets share no state.
fn standard_normal(stream: &mut Stream) -> f64 {
    loop {
        let (u, v) = (2.0 * stream.unit() - 1.0, 2.0 * stream.unit() - 1.0);
        let s = u * u + v * v;
        if s > 0.0 && s < 1.0 {
            return u * libm::sqrt(-2.0 * libm::log(s) / s);
        }
    }
}

fn saturating_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "a float beyond u64 saturates")]
fn from_f64(nanos: f64) -> Duration {
    Duration::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Seed;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    /// `n` draws, in milliseconds.
    fn draws(jitter: Jitter, seed: u64, n: usize) -> Vec<f64> {
        let mut stream = Seed::new(seed).stream("jitter/test");
        (0..n).map(|_| jitter.draw(&mut stream).as_secs_f64() * 1e3).collect()
    }

    fn mean(of: &[f64]) -> f64 {
        of.iter().sum::<f64>() / of.len() as f64
    }

    fn sd(of: &[f64]) -> f64 {
        let mean = mean(of);
        (of.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / of.len() as f64).sqrt()
    }

    #[test]
    fn uniform_jitter_fills_its_span() {
        let all = draws(Jitter::uniform(10 * MS), 1, 100_000);
        assert!(all.iter().all(|&x| (0.0..=10.0).contains(&x)));
        // Standard deviation of the mean: 10 / sqrt(12) / sqrt(100 000) = 0.0091; five of them.
        assert!((mean(&all) - 5.0).abs() < 0.046, "{}", mean(&all));
        assert!((sd(&all) - 2.887).abs() < 0.046, "{}", sd(&all));
        // Both ends are included.
        let mut stream = Seed::new(2).stream("jitter/test");
        let short = Jitter::uniform(Duration::from_nanos(1));
        let few: Vec<_> = (0..100).map(|_| short.draw(&mut stream).as_nanos()).collect();
        assert!(few.contains(&0) && few.contains(&1) && few.iter().all(|&ns| ns <= 1));
    }

    #[test]
    fn normal_jitter_has_its_mean_and_deviation() {
        let all = draws(Jitter::normal(10 * MS, 2 * MS), 3, 100_000);
        // The mean is five deviations above zero, so truncation has no effect. 2 / sqrt(100 000) =
        // 0.0063; five of them.
        assert!((mean(&all) - 10.0).abs() < 0.032, "{}", mean(&all));
        assert!((sd(&all) - 2.0).abs() < 0.032, "{}", sd(&all));
        // Of a normal distribution 68.27 % lie within one deviation; five deviations of that share
        // are 0.74 %.
        let within = all.iter().filter(|&&x| (x - 10.0).abs() < 2.0).count();
        assert!((67_530..=69_010).contains(&within), "{within}");
    }

    #[test]
    fn normal_jitter_truncated_at_zero_has_the_theoretical_mean() {
        let all = draws(Jitter::normal(Duration::ZERO, MS), 4, 100_000);
        // Half a normal distribution: mean sqrt(2 / pi) = 0.798, deviation 0.603, of the mean
        // 0.0019; five of them.
        assert!((mean(&all) - 0.798).abs() < 0.0096, "{}", mean(&all));
        let all = draws(Jitter::normal(MS, MS), 5, 100_000);
        assert!((mean(&all) - 1.2876).abs() < 0.0126, "{}", mean(&all));
        assert_eq!(draws(Jitter::normal(MS, Duration::ZERO), 6, 2), [1.0, 1.0]);
    }

    #[test]
    fn exponential_jitter_has_its_mean_and_stops_at_its_cap() {
        let all = draws(Jitter::exponential(4 * MS, 10_000 * MS), 7, 100_000);
        assert!((mean(&all) - 4.0).abs() < 0.064, "{}", mean(&all));
        let capped = draws(Jitter::exponential(4 * MS, 4 * MS), 8, 100_000);
        // A share of 1 / e exceeds the mean and is at the cap; five deviations of that are 0.77 %.
        let at_cap = capped.iter().filter(|&&x| x == 4.0).count();
        assert!((36_020..=37_560).contains(&at_cap), "{at_cap}");
    }

    #[test]
    fn pareto_jitter_has_its_tail_and_stops_at_its_cap() {
        let all = draws(Jitter::pareto(MS, 2.5, 100 * MS).unwrap(), 9, 100_000);
        assert!(all.iter().all(|&x| (1.0..=100.0).contains(&x)));
        // More than twice the scale: 2^-2.5 = 17.68 %, deviation of 100 000 0.121 %; five of them.
        let beyond = all.iter().filter(|&&x| x > 2.0).count();
        assert!((17_070..=18_290).contains(&beyond), "{beyond}");
        for shape in [0.0, -1.0, f64::NAN] {
            assert!(Jitter::pareto(MS, shape, MS).is_err());
        }
    }

    #[test]
    fn packets_are_held_with_the_probability_given() {
        let all = draws(Jitter::held(0.1, 30 * MS).unwrap(), 10, 100_000);
        let held = all.iter().filter(|&&x| x == 30.0).count();
        assert_eq!(held + all.iter().filter(|&&x| x == 0.0).count(), all.len());
        // Deviation 94.9; five of them.
        assert!((9_525..=10_475).contains(&held), "{held}");
        assert_eq!(Jitter::held(2.0, MS).unwrap_err(), JitterError::Probability(2.0));
        assert!(Jitter::held(f64::NAN, MS).is_err());
    }

    #[test]
    fn the_first_draws_of_each_kind_never_change() {
        // Changed arithmetic would silently change results.
        let first = |jitter: Jitter| jitter.draw(&mut Seed::new(1).stream("jitter/test")).as_nanos();
        let long = 1000 * MS;
        let all = [
            Jitter::uniform(MS),
            Jitter::normal(5 * MS, MS),
            Jitter::exponential(MS, long),
            Jitter::pareto(MS, 2.0, long).unwrap(),
        ];
        assert_eq!(all.map(first), [662_128, 6_016_736, 1_085_088, 1_720_378]);
    }

    fn any_jitter() -> impl Strategy<Value = Jitter> {
        let span =
            || prop_oneof![Just(0u64), 0u64..1_000_000_000, Just(u64::MAX)].prop_map(Duration::from_nanos);
        prop_oneof![
            span().prop_map(Jitter::uniform),
            (span(), span()).prop_map(|(mean, sd)| Jitter::normal(mean, sd)),
            (span(), span()).prop_map(|(mean, max)| Jitter::exponential(mean, max)),
            (span(), 1e-300f64..1e300, span())
                .prop_map(|(scale, shape, max)| Jitter::pareto(scale, shape, max).unwrap()),
            (0.0f64..=1.0, span()).prop_map(|(probability, span)| Jitter::held(probability, span).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn no_packet_comes_early_and_none_overtakes_where_it_may_not(
            jitter in any_jitter(), reorder in any::<bool>(), gaps in prop::collection::vec(0u64..10_000_000, 1..50),
        ) {
            let mut process = JitterProcess::new(jitter.reorder(reorder), Seed::new(1).stream("jitter/test"));
            let (mut due, mut before) = (Time::ZERO, Time::ZERO);
            for gap in gaps {
                due += Duration::from_nanos(gap);
                let at = process.arrival(due);
                prop_assert!(at >= due);
                prop_assert!(reorder || at >= before);
                before = at;
            }
        }
    }
}
