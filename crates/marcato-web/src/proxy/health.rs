//! Health of an upstream.

use tokio::time::Instant;

use super::config::{HealthConfig, PassiveConfig};

/// Health of an upstream: the outcome of checks and of requests.
///
/// It reads no clock. An upstream is healthy until it fails.
#[derive(Clone, Debug)]
pub(super) struct Health {
    passive: PassiveConfig,
    healthy_after: u32,
    unhealthy_after: u32,
    /// Verdict of the checks.
    checked: bool,
    /// Successive checks that contradict the verdict.
    contrary: u32,
    /// Successive failed requests.
    failures: u32,
    /// End of the rest that failed requests gave.
    rests_until: Option<Instant>,
    last_failure: Option<Instant>,
}

impl Health {
    pub(super) fn new(passive: PassiveConfig, health: Option<&HealthConfig>) -> Self {
        Self {
            passive,
            healthy_after: health.map_or(1, |health| health.healthy_after),
            unhealthy_after: health.map_or(1, |health| health.unhealthy_after),
            checked: true,
            contrary: 0,
            failures: 0,
            rests_until: None,
            last_failure: None,
        }
    }

    /// Books a request that got a response.
    pub(super) fn success(&mut self) {
        self.failures = 0;
        self.rests_until = None;
    }

    /// Books a failed request.
    pub(super) fn failure(&mut self, now: Instant) {
        self.last_failure = Some(now);
        self.failures = self.failures.saturating_add(1);
        // The count outlasts the rest, so that one more failure rests the upstream again.
        if self.failures >= self.passive.failures {
            self.rests_until = Some(now + self.passive.rest);
        }
    }

    /// Books a check. Returns the new verdict if it changed.
    pub(super) fn check(&mut self, passed: bool, now: Instant) -> Option<bool> {
        if !passed {
            self.last_failure = Some(now);
        }
        if passed == self.checked {
            self.contrary = 0;
            return None;
        }
        self.contrary += 1;
        let threshold = if passed { self.healthy_after } else { self.unhealthy_after };
        if self.contrary < threshold {
            return None;
        }
        self.contrary = 0;
        self.checked = passed;
        if passed {
            // Checks that pass are newer than the failures that rested the upstream.
            self.success();
        }
        Some(passed)
    }

    pub(super) fn is_healthy(&self, now: Instant) -> bool {
        self.checked && self.rests_until.is_none_or(|end| end <= now)
    }

    pub(super) fn last_failure(&self) -> Option<Instant> {
        self.last_failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Duration;

    fn health() -> Health {
        let passive = PassiveConfig { failures: 2, rest: Duration::from_secs(10) };
        let config = HealthConfig { healthy_after: 2, unhealthy_after: 3, ..HealthConfig::default() };
        Health::new(passive, Some(&config))
    }

    #[test]
    fn successive_failures_rest_an_upstream() {
        let (mut health, now) = (health(), Instant::now());
        health.failure(now);
        health.success();
        health.failure(now);
        assert!(health.is_healthy(now));
        health.failure(now);
        assert!(!health.is_healthy(now));
        assert!(!health.is_healthy(now + Duration::from_millis(9999)));
        assert!(health.is_healthy(now + Duration::from_secs(10)));
    }

    #[test]
    fn checks_that_pass_end_the_rest_of_an_upstream() {
        let (mut health, now) = (health(), Instant::now());
        health.failure(now);
        health.failure(now);
        for verdict in [None, None, Some(false)] {
            assert_eq!(health.check(false, now), verdict);
        }
        assert_eq!(health.check(true, now), None);
        assert!(!health.is_healthy(now));
        assert_eq!(health.check(true, now), Some(true));
        assert!(health.is_healthy(now), "the rest is over");
    }

    #[test]
    fn one_failure_after_a_rest_rests_it_again() {
        let (mut health, now) = (health(), Instant::now());
        health.failure(now);
        health.failure(now);
        let later = now + Duration::from_secs(10);
        health.failure(later);
        assert!(!health.is_healthy(later));
        assert_eq!(health.last_failure(), Some(later));
        let later = later + Duration::from_secs(10);
        health.success();
        health.failure(later);
        assert!(health.is_healthy(later));
    }

    #[test]
    fn only_successive_checks_change_the_verdict() {
        let (mut health, now) = (health(), Instant::now());
        for passed in [false, false, true, false, false] {
            assert_eq!(health.check(passed, now), None);
        }
        assert!(health.is_healthy(now));
        assert_eq!(health.check(false, now), Some(false));
        assert!(!health.is_healthy(now));
        for passed in [true, false, true] {
            assert_eq!(health.check(passed, now), None);
        }
        assert_eq!(health.check(true, now), Some(true));
        assert!(health.is_healthy(now));
    }

    #[test]
    fn a_response_does_not_overrule_the_checks() {
        let (mut health, now) = (health(), Instant::now());
        for _ in 0..3 {
            health.check(false, now);
        }
        health.success();
        assert!(!health.is_healthy(now));
    }
}
