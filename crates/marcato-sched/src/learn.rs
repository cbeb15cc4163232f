//! Estimation of a source's period and size from the messages that it sends.
//!
//! A least-squares line is fitted to the arrival times of the latest messages over their numbers.
//! Its slope is the period, and its value at the next number is the next release. For a source that
//! releases on a grid, with independent jitter, this is far more precise than the mean of its gaps.
//! Integer arithmetic gives the same result on every machine.

use core::time::Duration;

use marcato_units::{Bytes, Time};

use crate::reserve::{Source, SourceKey};

/// Most sources watched at once. Beyond, the source that has been silent longest is forgotten.
pub const MAX_WATCHED: usize = 16;
/// Messages kept of each source.
const WINDOW: usize = 32;
/// Messages needed before a period is accepted.
const ENOUGH: usize = 12;
/// Divisor of the period, which gives the largest root mean square of the deviations from the grid
/// at which a source is periodic. Uniform jitter of 20 % is 11.5 %.
const STEADY: i128 = 8;
/// Most messages in a row that count as missing; after a longer silence learning begins anew.
const GAP: i128 = 8;

/// Number, time and length of one message.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    number: u64,
    at: Time,
    len: Bytes,
}

/// Fitted line, in nanoseconds scaled by `scale`.
#[derive(Clone, Copy, Debug)]
struct Fit {
    /// Scaled period.
    slope: i128,
    scale: i128,
    /// Sum of the times, relative to the first sample. `numbers` is that of the message numbers,
    /// and `count` the number of samples.
    times: i128,
    numbers: i128,
    count: i128,
    origin: Sample,
}

impl Fit {
    /// Fits a line to these samples; `None` if it has no positive slope or cannot be determined.
    fn through(samples: &[Sample]) -> Option<Self> {
        let origin = *samples.first()?;
        let count = samples.len() as i128;
        let (mut numbers, mut times, mut squares, mut products) = (0i128, 0i128, 0i128, 0i128);
        for sample in samples {
            let (x, y) = Self::from_origin(origin, sample);
            numbers += x;
            times += y;
            squares += x * x;
            products += x * y;
        }
        // Least squares: the slope is (n Σxy - Σx Σy) / (n Σx² - (Σx)²).
        let scale = count * squares - numbers * numbers;
        let slope = count * products - numbers * times;
        (scale > 0 && slope > 0).then_some(Self { slope, scale, times, numbers, count, origin })
    }

    fn from_origin(origin: Sample, sample: &Sample) -> (i128, i128) {
        let x = i128::from(sample.number) - i128::from(origin.number);
        (x, i128::from(sample.at.as_nanos()) - i128::from(origin.at.as_nanos()))
    }

    fn period(&self) -> i128 {
        (self.slope + self.scale / 2) / self.scale
    }

    /// Returns the due time of a message number, in nanoseconds from the origin's time.
    fn due(&self, number: u64) -> i128 {
        let x = i128::from(number) - i128::from(self.origin.number);
        // mean time + slope * (x - mean number), over one denominator.
        (self.times * self.scale + self.slope * (x * self.count - self.numbers)) / (self.count * self.scale)
    }

    /// Returns the lateness of a message in nanoseconds; negative if early.
    fn late(&self, sample: &Sample) -> i128 {
        Self::from_origin(self.origin, sample).1 - self.due(sample.number)
    }

    /// True if these samples lie close enough to the line.
    fn is_steady(&self, samples: &[Sample]) -> bool {
        // Beyond 36 years the exact lateness does not matter; squares of these can be summed.
        const MAX_LATENESS: i128 = 1 << 60;
        let squares: i128 =
            samples.iter().map(|sample| self.late(sample).clamp(-MAX_LATENESS, MAX_LATENESS).pow(2)).sum();
        let limit = self.period() / STEADY;
        squares <= limit.saturating_mul(limit).saturating_mul(self.count)
    }
}

/// State of one source.
#[derive(Clone, Copy, Debug)]
struct Watched {
    key: SourceKey,
    samples: [Sample; WINDOW],
    count: usize,
    /// Messages in a row that fitted no grid.
    strays: u8,
    /// Period last accepted, in nanoseconds.
    period: Option<i128>,
}

impl Watched {
    const fn new(key: SourceKey) -> Self {
        let none = Sample { number: 0, at: Time::ZERO, len: Bytes::ZERO };
        Self { key, samples: [none; WINDOW], count: 0, strays: 0, period: None }
    }

    fn samples(&self) -> &[Sample] {
        &self.samples[..self.count]
    }

    fn latest(&self) -> Option<&Sample> {
        self.samples().last()
    }

    /// Returns the number of a message that arrives now, or `None` if it fits no grid.
    fn number(&self, now: Time) -> Option<u64> {
        let Some(latest) = self.latest() else { return Some(0) };
        let Some(period) = self.period else { return Some(latest.number + 1) };
        let fit = Fit::through(self.samples())?;
        // The nearest number on the grid. Numbers in between count as missing.
        let next = latest.number + 1;
        let late = i128::from(now.as_nanos()) - i128::from(fit.origin.at.as_nanos()) - fit.due(next);
        let ahead = (late + period / 2).div_euclid(period);
        (0..=GAP).contains(&ahead).then(|| u64::try_from(i128::from(next) + ahead).ok()).flatten()
    }

    fn observe(&mut self, now: Time, len: Bytes) -> Option<Source> {
        let number = match self.number(now) {
            Some(number) => number,
            None if self.strays < 2 => {
                // Up to two extra messages in a row do not disprove the period.
                self.strays += 1;
                return self.source(now);
            }
            None => {
                *self = Self::new(self.key);
                0
            }
        };
        self.strays = 0;
        if self.count == WINDOW {
            self.samples.copy_within(1.., 0);
            self.count -= 1;
        }
        self.samples[self.count] = Sample { number, at: now, len };
        self.count += 1;
        let fit = Fit::through(self.samples());
        let steady = fit.filter(|fit| self.count >= ENOUGH && fit.is_steady(self.samples()));
        self.period = steady.map(|fit| fit.period());
        self.source(now)
    }

    /// Returns the source if its period is known.
    fn source(&self, now: Time) -> Option<Source> {
        let period = self.period?;
        let fit = Fit::through(self.samples())?;
        let next = i128::from(fit.origin.at.as_nanos()) + fit.due(self.latest()?.number + 1);
        let jitter = self.samples().iter().map(|sample| fit.late(sample).abs()).max()?;
        let period = Duration::from_nanos(u64::try_from(period).ok()?);
        let jitter = Duration::from_nanos(u64::try_from(jitter).ok()?);
        // A deviation of half a period is indistinguishable from the next release; reservations
        // reject it.
        let jitter = jitter.min((period / 2).saturating_sub(Duration::from_nanos(1)));
        Some(Source {
            period,
            // The largest message seen, so that each fits the reservation.
            size: self.samples().iter().map(|sample| sample.len).max()?,
            next_release: Time::from_nanos(u64::try_from(next).ok()?).max(now),
            jitter,
        })
    }
}

/// Estimates the periods of sources.
///
/// With messages on a grid of which each is early or late by up to 10 % of the period, the period
/// is known within 1 % after 20 messages. If each *gap* varies by 10 % instead, no method can know
/// it as well from so few, because the mean of 19 such gaps is itself that uncertain.
///
/// ```
/// use marcato_sched::learn::Learner;
/// use marcato_sched::reserve::SourceKey;
/// use marcato_units::{Bytes, Duration, Time};
///
/// let mut learner = Learner::new();
/// let mut known = None;
/// for release in 0..12 {
///     known = learner.observe(SourceKey(1), Time::from_millis(40 * release), Bytes::kb(3));
/// }
/// let source = known.expect("twelve messages are enough");
/// assert_eq!((source.period, source.size), (Duration::from_millis(40), Bytes::kb(3)));
/// assert_eq!(source.next_release, Time::from_millis(480));
/// ```
#[derive(Clone, Debug)]
pub struct Learner {
    watched: [Option<Watched>; MAX_WATCHED],
    forgotten: u64,
}

impl Learner {
    /// Creates a learner that has seen no message.
    pub const fn new() -> Self {
        Self { watched: [None; MAX_WATCHED], forgotten: 0 }
    }

    /// Records a message of this source. Returns the source if it appears to be periodic.
    pub fn observe(&mut self, key: SourceKey, now: Time, len: Bytes) -> Option<Source> {
        let known = self.watched.iter().position(|watched| watched.is_some_and(|watched| watched.key == key));
        let place = known.or_else(|| self.watched.iter().position(Option::is_none)).or_else(|| {
            self.forgotten += 1;
            let quiet = |place: &usize| {
                self.watched[*place].and_then(|watched| watched.latest().map(|latest| latest.at))
            };
            (0..MAX_WATCHED).min_by_key(quiet)
        })?;
        if known.is_none() {
            self.watched[place] = None;
        }
        self.watched[place].get_or_insert(Watched::new(key)).observe(now, len)
    }

    /// Forgets a source.
    pub fn forget(&mut self, key: SourceKey) {
        for watched in &mut self.watched {
            *watched = watched.filter(|watched| watched.key != key);
        }
    }

    /// Number of sources forgotten because too many are watched.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

impl Default for Learner {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Seed;

    const KEY: SourceKey = SourceKey(1);

    /// Returns a release every `period`, each early or late by up to `jitter` thousandths of it.
    /// The deviations accumulate or not.
    fn releases(seed: u64, period: u64, jitter: u64, count: u64) -> impl Iterator<Item = Time> {
        let mut stream = Seed::new(seed).stream("releases");
        let most = period / 1000 * jitter;
        (1..=count).map(move |k| Time::from_nanos(k * period + stream.below(2 * most + 1) - most))
    }

    fn poisson(seed: u64, mean: Duration, count: u64) -> impl Iterator<Item = Time> {
        let mut stream = Seed::new(seed).stream("poisson");
        let mut now = Time::ZERO;
        (0..count).map(move |_| {
            now += stream.exponential(mean);
            now
        })
    }

    fn learn(times: impl Iterator<Item = Time>) -> Option<Source> {
        let mut learner = Learner::new();
        times.fold(None, |_, now| learner.observe(KEY, now, Bytes::kb(10)))
    }

    /// Returns the error of a learned period, in parts per million.
    fn off(source: &Source, period: u64) -> u64 {
        u64::try_from(source.period.as_nanos()).unwrap().abs_diff(period) * 1_000_000 / period
    }

    #[test]
    fn messages_of_one_instant_have_no_period() {
        assert_eq!(learn((0..40).map(|_| Time::from_secs(1))), None);
    }

    #[test]
    fn twenty_jittery_messages_give_the_period_within_one_percent() {
        for period in [5_000_000, 70_000_000, 100_000_000, 3_600_000_000_000] {
            for seed in 0..1000 {
                let source = learn(releases(seed, period, 100, 20));
                let source = source.unwrap_or_else(|| panic!("not learned with seed {seed}"));
                assert!(
                    off(&source, period) <= 10_000,
                    "off by {} ppm with seed {seed}",
                    off(&source, period)
                );
                // The next release matches the prediction.
                let next = Time::from_nanos(21 * period);
                let error = source.next_release.since(next).max(next.since(source.next_release));
                assert!(error <= source.period / 10, "off by {error:?} with seed {seed}");
            }
        }
    }

    #[test]
    fn an_exact_source_is_known_exactly() {
        let source = learn(releases(1, 70_000_000, 0, 20)).unwrap();
        assert_eq!(source, Source::new(Duration::from_millis(70), Bytes::kb(10), Time::from_millis(21 * 70)));
    }

    #[test]
    fn a_period_is_rounded_to_the_nearest_nanosecond() {
        let sample = |number, at| Sample { number, at: Time::from_nanos(at), len: Bytes::ZERO };
        // Slopes of 1.4, 1.7 and 1.6.
        for (last, period) in [([0, 1, 3, 4], 1), ([0, 1, 3, 5], 2), ([0, 2, 3, 5], 2)] {
            let samples: std::vec::Vec<_> = (0..).zip(last).map(|(number, at)| sample(number, at)).collect();
            assert_eq!(Fit::through(&samples).map(|fit| fit.period()), Some(period), "{last:?}");
        }
    }

    #[test]
    fn eight_missing_messages_are_counted_and_nine_are_a_silence() {
        let period = Duration::from_millis(100);
        for (missing, next) in [(0, 22), (8, 30), (9, 30)] {
            let then = core::iter::once(21 + missing);
            let source = learn((1..=20).chain(then).map(|k| Time::ZERO + period * k)).unwrap();
            assert_eq!(source.next_release, Time::ZERO + period * next, "{missing} missing");
        }
    }

    #[test]
    fn the_third_message_in_a_row_off_the_grid_restarts_learning() {
        let period = Duration::from_millis(100);
        let grid = (1..=20).map(|k| Time::ZERO + period * k);
        let additional = |count| (1..=count).map(|k| Time::from_millis(2000 + k));
        assert!(learn(grid.clone().chain(additional(2))).is_some());
        assert!(learn(grid.clone().chain(additional(3))).is_none());
        // Each regular message clears the count of extra ones before it.
        let again = additional(2).chain([Time::from_millis(2100)]).chain([Time::from_millis(2101)]);
        assert!(learn(grid.chain(again)).is_some());
    }

    #[test]
    fn the_jitter_of_a_source_stays_below_half_its_period() {
        let late = |k| if k == 5 { 60 } else { 0 };
        let source = learn((1..=32).map(|k| Time::from_millis(100 * k + late(k)))).unwrap();
        assert!(off(&source, 100_000_000) < 10_000);
        assert_eq!(source.jitter, source.period / 2 - Duration::from_nanos(1));
    }

    #[test]
    fn a_source_that_is_to_be_forgotten_is_and_no_other() {
        let mut learner = Learner::new();
        let both = |learner: &mut Learner, k: u64| {
            [1, 2].map(|key| {
                learner.observe(SourceKey(key), Time::from_millis(100 * k), Bytes::kb(1)).is_some()
            })
        };
        for k in 1..=20 {
            both(&mut learner, k);
        }
        learner.forget(SourceKey(1));
        assert_eq!(both(&mut learner, 21), [false, true]);
    }

    #[test]
    fn messages_at_one_instant_are_no_source() {
        assert!(learn(core::iter::repeat_n(Time::from_millis(5), 40)).is_none());
    }

    #[test]
    fn random_arrivals_are_not_taken_for_periodic() {
        let mut taken = 0;
        for seed in 0..1000 {
            let mut learner = Learner::new();
            for now in poisson(seed, Duration::from_millis(100), 60) {
                taken += u32::from(learner.observe(KEY, now, Bytes::kb(1)).is_some());
            }
        }
        // Of 60 000 messages.
        assert!(taken <= 60, "{taken}");
    }

    #[test]
    fn missing_and_additional_messages_do_not_disturb_what_is_known() {
        let mut learner = Learner::new();
        for (k, now) in releases(3, 50_000_000, 50, 60).enumerate() {
            if k > 20 && k % 5 == 0 {
                continue;
            }
            if k % 13 == 12 {
                learner.observe(KEY, now - Duration::from_millis(30), Bytes::kb(1));
            }
            let source = learner.observe(KEY, now, Bytes::kb(1));
            if k >= 20 {
                assert!(off(&source.unwrap(), 50_000_000) < 10_000, "after {k}");
            }
        }
    }

    #[test]
    fn a_new_period_is_learned_in_place_of_the_old() {
        let mut learner = Learner::new();
        let mut now = Time::ZERO;
        let mut source = None;
        for k in 0..120 {
            now += Duration::from_millis(if k < 40 { 100 } else { 33 });
            source = learner.observe(KEY, now, Bytes::new(if k < 40 { 5000 } else { 100 }));
        }
        let source = source.unwrap();
        assert_eq!((source.period, source.size), (Duration::from_millis(33), Bytes::new(100)));
    }

    #[test]
    fn the_size_is_that_of_the_largest() {
        let mut learner = Learner::new();
        let sizes = [900, 1000, 1200, 800].into_iter().cycle();
        let source = releases(1, 10_000_000, 20, 24)
            .zip(sizes)
            .fold(None, |_, (at, size)| learner.observe(KEY, at, Bytes::new(size)));
        assert_eq!(source.unwrap().size, Bytes::new(1200));
    }

    #[test]
    fn the_quietest_source_is_forgotten_first() {
        let mut learner = Learner::new();
        for round in 0..20 {
            for key in 0..MAX_WATCHED as u64 {
                learner.observe(SourceKey(key), Time::from_millis(100 * round + key), Bytes::kb(1));
            }
        }
        let now = Time::from_secs(2);
        assert_eq!(learner.forgotten(), 0);
        learner.observe(SourceKey(99), now, Bytes::kb(1));
        assert_eq!(learner.forgotten(), 1);
        assert!(learner.observe(SourceKey(1), now, Bytes::kb(1)).is_some());
        // Key 0 must begin anew.
        assert!(learner.observe(SourceKey(0), now, Bytes::kb(1)).is_none());
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let mut learner = Learner::new();
        for (k, at) in
            [0, u64::MAX, 0, u64::MAX / 2, 1, u64::MAX - 1].into_iter().cycle().take(200).enumerate()
        {
            learner.observe(KEY, Time::from_nanos(at), if k % 2 == 0 { Bytes::MAX } else { Bytes::ZERO });
        }
        let huge = (0..60).map(|k| Time::from_nanos(k * (u64::MAX / 64)));
        assert!(huge.fold(None, |_, now| learner.observe(SourceKey(2), now, Bytes::MAX)).is_some());
    }
}
