//! Random numbers, determined by a seed and a name.

use core::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Seed of a run, which gives each user of random numbers a [`Stream`] by name.
///
/// A stream depends on the seed and its name alone, so that a new user of randomness never changes
/// the draws of another.
///
/// ```
/// use marcato_units::Seed;
/// let seed = Seed::new(7);
/// assert_eq!(seed.stream("loss/bottleneck").next_u64(), seed.stream("loss/bottleneck").next_u64());
/// assert_ne!(seed.stream("loss/bottleneck").next_u64(), seed.stream("loss/access").next_u64());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u64);

impl Seed {
    /// Largest seed of files and command lines: the largest integer of TOML.
    pub const MAX: u64 = i64::MAX.unsigned_abs();

    /// Seed with the number `value`.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Number of the seed.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Stream of `name`, from its beginning.
    pub fn stream(self, name: &str) -> Stream {
        // FNV-1a spreads the name over 64 bits. xoshiro's SplitMix64 seeding then separates similar
        // hashes.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Stream(Xoshiro256PlusPlus::seed_from_u64(hash))
    }
}

/// Named stream of random numbers: xoshiro256++, the same on every machine.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// Draws 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a 128-bit product")]
    /// Draws a number from 0 (included) to `bound` (excluded) without bias; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Lemire's method: multiplication, and rejection of the values that would favour small
        // numbers.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if wide as u64 >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Draws a number from 0 (included) to 1 (excluded), in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws true with probability `probability`: never at or below 0, always at or above 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    #[expect(clippy::cast_possible_truncation, reason = "a float beyond u64 saturates")]
    /// Draws an exponentially distributed span with this mean: the gap between arrivals of a
    /// Poisson process.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // 1 - unit() lies in (0, 1], so the logarithm is finite.
        let nanos = -libm::log(1.0 - self.unit()) * mean.as_nanos() as f64;
        Duration::from_nanos(nanos as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_draws_of_a_stream_never_change() {
        // Another generator would silently change every published result.
        let mut stream = Seed::new(1).stream("test");
        let draws = [stream.next_u64(), stream.next_u64()];
        assert_eq!(draws, [12_097_872_677_081_516_740, 13_871_773_525_635_009_268]);
    }

    #[test]
    fn below_is_uniform_and_bounded() {
        let mut stream = Seed::new(2).stream("test");
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[usize::try_from(stream.below(7)).unwrap()] += 1;
        }
        // The standard deviation is 93; the bounds are five of them.
        assert!(counts.iter().all(|&n| (9_535..=10_465).contains(&n)), "{counts:?}");
        assert_eq!(stream.below(0), 0);
    }

    #[test]
    fn exponential_spans_have_their_mean() {
        let mut stream = Seed::new(3).stream("test");
        let mean = Duration::from_millis(10);
        let total: Duration = (0..40_000).map(|_| stream.exponential(mean)).sum();
        // The mean of 40 000 has a standard deviation of 0.5 %.
        let ratio = total.as_secs_f64() / 40_000.0 / mean.as_secs_f64();
        assert!((0.975..1.025).contains(&ratio), "{ratio}");
    }

    #[test]
    fn chance_is_never_at_zero_and_always_at_one() {
        let mut stream = Seed::new(4).stream("test");
        assert!((0..1000).all(|_| !stream.chance(0.0)));
        assert!((0..1000).all(|_| stream.chance(1.0)));
    }
}
