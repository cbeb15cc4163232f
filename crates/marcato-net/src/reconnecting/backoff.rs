//! Times of the attempts to connect, without a clock.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use marcato_units::{Seed, Stream, Time};

use super::config::ReconnectConfig;

/// Schedule of the attempts: exponential back-off with jitter.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    give_up_after: Option<Duration>,
    random: Stream,
    /// Failures since the last success.
    failures: u32,
    /// Beginning of the time without a success.
    since: Time,
    /// Beginning of the current connection.
    up_at: Option<Time>,
}

impl Backoff {
    /// Creates the schedule of a client that begins now.
    pub(super) fn new(config: &ReconnectConfig, now: Time) -> Self {
        // The keys of the standard library's hash maps come from the system's source of randomness.
        let seed = config.seed.unwrap_or_else(|| Seed::new(RandomState::new().build_hasher().finish()));
        Self {
            first: config.first,
            longest: config.longest,
            give_up_after: config.give_up_after,
            random: seed.stream("reconnect"),
            failures: 0,
            since: now,
            up_at: None,
        }
    }

    /// Records a new connection.
    pub(super) fn up(&mut self, now: Time) {
        self.up_at = Some(now);
    }

    /// Records a failed attempt or a lost connection. Returns the time of the next attempt; `None`
    /// if there is none.
    pub(super) fn down(&mut self, now: Time) -> Option<Time> {
        if self.up_at.take().is_some_and(|at| now.since(at) >= self.longest) {
            self.failures = 0;
            self.since = now;
        }
        // The cap keeps the shift within the factor's width.
        let bound = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let half = bound / 2;
        let span = u64::try_from((bound - half).as_nanos()).unwrap_or(u64::MAX);
        let next = now + half + Duration::from_nanos(self.random.below(span.saturating_add(1)));
        self.gives_up_at().is_none_or(|end| next < end).then_some(next)
    }

    /// Returns the time at which attempts end.
    pub(super) fn gives_up_at(&self) -> Option<Time> {
        self.give_up_after.map(|limit| self.since + limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn config() -> ReconnectConfig {
        ReconnectConfig {
            first: SECOND,
            longest: 8 * SECOND,
            give_up_after: None,
            seed: Some(Seed::new(7)),
            ..ReconnectConfig::default()
        }
    }

    fn delay(backoff: &mut Backoff, now: Time) -> Duration {
        backoff.down(now).unwrap().since(now)
    }

    #[test]
    fn delays_double_up_to_the_longest_and_vary() {
        let mut backoff = Backoff::new(&config(), Time::ZERO);
        let mut shares = Vec::new();
        for bound in [1, 2, 4, 8, 8, 8, 8, 8] {
            let share = delay(&mut backoff, Time::ZERO).as_secs_f64() / f64::from(bound);
            assert!((0.5..=1.0).contains(&share), "{share} of {bound} s");
            shares.push(share);
        }
        shares.sort_by(f64::total_cmp);
        shares.dedup();
        assert_eq!(shares.len(), 8, "{shares:?}");
    }

    #[test]
    fn equal_seeds_give_equal_delays() {
        let delays = |seed| {
            let config = ReconnectConfig { seed, ..config() };
            let mut backoff = Backoff::new(&config, Time::ZERO);
            [(); 4].map(|()| delay(&mut backoff, Time::ZERO))
        };
        assert_eq!(delays(Some(Seed::new(1))), delays(Some(Seed::new(1))));
        assert_ne!(delays(Some(Seed::new(1))), delays(Some(Seed::new(2))));
        assert_ne!(delays(None), delays(None));
    }

    #[test]
    fn only_a_connection_of_some_duration_is_a_success() {
        let mut backoff = Backoff::new(&config(), Time::ZERO);
        for _ in 0..4 {
            backoff.down(Time::ZERO).unwrap();
        }
        backoff.up(Time::ZERO);
        let short = Time::ZERO + 7 * SECOND;
        assert!(delay(&mut backoff, short) >= 4 * SECOND);
        backoff.up(short);
        assert!(delay(&mut backoff, short + 8 * SECOND) <= SECOND);
    }

    #[test]
    fn attempts_end_with_the_time_without_success() {
        let limit = 20 * SECOND;
        let config = ReconnectConfig { give_up_after: Some(limit), ..config() };
        let mut backoff = Backoff::new(&config, Time::ZERO);
        let mut now = Time::ZERO;
        while let Some(next) = backoff.down(now) {
            assert!(next < Time::ZERO + limit);
            now = next;
        }
        assert!(now > Time::ZERO + 4 * SECOND);
        // A success begins the time anew.
        backoff.up(now);
        let later = now + 8 * SECOND;
        assert!(backoff.down(later).is_some());
        assert_eq!(backoff.gives_up_at(), Some(later + limit));
    }
}
