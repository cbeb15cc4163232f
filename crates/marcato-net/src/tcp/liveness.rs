//! Detection of a dead peer.
//!
//! `TCP_USER_TIMEOUT` (RFC 5482) cannot do it: Linux counts the time of a zero window as well, and
//! closes the connection to a live peer whose application reads slowly (RFC 9293 §3.8.6.1 forbids
//! that). Frames that ask for an answer cannot do it either, because that application does not read
//! them. The peer's kernel, however, answers keep-alive probes, zero-window probes and data even
//! then. The kernel's measurements (`TCP_INFO`) therefore decide: a peer is dead if its host has
//! been silent for the configured time although this host has asked.
//!
//! The driver reads the measurements a few times within the limit. This works also while a full inbox stops
//! reading; then only errors of the socket are awaited. `TCP_RTO_MAX_MS` (Linux 6.15) bounds the time between
//! the kernel's probes.

use std::time::Duration;

use marcato_units::Time;
use socket2::{SockRef, TcpKeepalive};

use crate::sys::{self, TcpInfo};

/// Least time of silence: systems count the time between probes in seconds.
const LEAST: Duration = Duration::from_secs(4);
/// Probes that have to be lost before a peer counts as dead.
const PROBES: u8 = 3;
/// Limits of Linux's `TCP_KEEPIDLE` and `TCP_KEEPINTVL` in seconds, and of `TCP_KEEPCNT`.
const MOST_SECONDS: u64 = 32_767;
const MOST_COUNT: u64 = 127;

/// Kernel's knowledge of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signs {
    /// Time since the last segment of the peer.
    silence: Duration,
    /// Set if data waits for its acknowledgement.
    in_flight: bool,
    /// Probes sent since the last segment.
    probes: u8,
}

impl From<&TcpInfo> for Signs {
    fn from(info: &TcpInfo) -> Self {
        Self { silence: info.silence, in_flight: info.in_flight_segments > 0, probes: info.unanswered_probes }
    }
}

/// Detector of a dead peer, for one connection.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Silence after which a peer is dead.
    limit: Duration,
    /// Time since which each check has found an unanswered question.
    suspected: Option<Time>,
    /// Time of the next check.
    due: Time,
}

impl Liveness {
    pub(super) fn new(limit: Duration, now: Time) -> Self {
        let limit = limit.max(LEAST);
        Self { limit, suspected: None, due: now + limit / 2 }
    }

    /// Silence after which a peer is dead.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Time of the next check.
    pub(super) const fn due(&self) -> Time {
        self.due
    }

    /// Makes the kernel probe a silent peer three times within the limit.
    pub(super) fn prepare(&self, socket: &SockRef<'_>) -> std::io::Result<()> {
        // Silence on a quiet connection. The kernel itself gives up later than `check` does; it is
        // alone where there are no measurements.
        let seconds = (self.limit.as_secs() / 4).clamp(1, MOST_SECONDS);
        let count = self.limit.as_secs().div_ceil(seconds).min(MOST_COUNT);
        let probe = Duration::from_secs(seconds);
        let keepalive = TcpKeepalive::new()
            .with_time(probe)
            .with_interval(probe)
            .with_retries(u32::try_from(count).unwrap_or(1));
        socket.set_tcp_keepalive(&keepalive)?;
        // Silence while data waits: the interval between retransmissions and between zero-window
        // probes doubles each time, up to 120 s. Without the option, a dead peer is detected late.
        let _ = sys::bound_backoff(socket, probe);
        Ok(())
    }

    /// Judges the peer by these signs; there are none if the system measures nothing. Returns true if it is dead, and
    /// else sets the time of the next check.
    pub(super) fn check(&mut self, now: Time, signs: Option<Signs>) -> bool {
        // Without measurements, the kernel's keep-alive alone finds a dead peer.
        let next = signs.map_or(Some(self.limit), |signs| self.judge(now, signs));
        self.due = next.map_or(now, |next| now + next);
        next.is_none()
    }

    /// Returns the time for which the peer counts as alive; `None` if it is dead.
    fn judge(&mut self, now: Time, signs: Signs) -> Option<Duration> {
        let Self { limit, ref mut suspected, .. } = *self;
        let (doubtful, confirmed) = (limit - limit / 4, limit / 4);
        if signs.silence < doubtful || !(signs.in_flight || signs.probes > 0) {
            *suspected = None;
            return Some(doubtful.saturating_sub(signs.silence).max(limit / 8));
        }
        // Silence alone proves nothing: the measured time also grows while this host sleeps, and
        // between zero-window probes. The unanswered question has to stay unanswered for a while.
        let since = *suspected.get_or_insert(now);
        let doubted = now.since(since);
        let lost = signs.in_flight || signs.probes >= PROBES;
        if doubted >= confirmed && signs.silence >= limit && lost {
            return None;
        }
        Some(confirmed.saturating_sub(doubted).max(limit / 32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(32);

    /// Runs the detector, which sees `signs` of each time, until it finds the peer dead.
    fn dead_after(mut signs: impl FnMut(Duration) -> Signs) -> Option<Duration> {
        let mut liveness = Liveness::new(LIMIT, Time::ZERO);
        loop {
            let at = liveness.due().since(Time::ZERO);
            if at > Duration::from_secs(3600) {
                return None;
            }
            if liveness.check(Time::ZERO + at, Some(signs(at))) {
                return Some(at);
            }
        }
    }

    #[test]
    fn without_measurements_nobody_is_dead_and_checks_are_rare() {
        let mut liveness = Liveness::new(LIMIT, Time::ZERO);
        let checks: Vec<_> = (0..3)
            .map(|_| {
                let at = liveness.due();
                assert!(!liveness.check(at, None));
                at.since(Time::ZERO).as_secs()
            })
            .collect();
        assert_eq!(checks, [16, 48, 80]);
    }

    fn probes(silence: Duration, interval: u64) -> u8 {
        u8::try_from(silence.as_secs() / interval).unwrap()
    }

    #[test]
    fn a_dead_peer_is_found_at_the_limit_whatever_waits() {
        let data = |at| Signs { silence: at, in_flight: true, probes: 0 };
        assert_eq!(dead_after(data), Some(LIMIT));
        let quiet = |at| Signs { silence: at, in_flight: false, probes: probes(at, 8) };
        assert_eq!(dead_after(quiet), Some(LIMIT));
    }

    #[test]
    fn a_peer_that_answers_probes_lives_for_ever() {
        // Answers come two seconds after each probe.
        let slow = |interval: u64| {
            move |at: Duration| {
                let silence = Duration::from_secs(at.as_secs().saturating_sub(2) % interval);
                let asked = at.as_secs() % interval < 2;
                Signs { silence, in_flight: false, probes: u8::from(asked) }
            }
        };
        assert_eq!(dead_after(slow(8)), None);
        // Old kernels probe a closed window every 120 s, far beyond the limit.
        assert_eq!(dead_after(slow(120)), None);
    }

    #[test]
    fn one_lost_probe_at_a_closed_window_is_no_death() {
        let signs = |at: Duration| Signs { silence: at, in_flight: false, probes: 1 };
        assert_eq!(dead_after(signs), None);
    }

    #[test]
    fn silence_while_this_host_slept_is_no_death() {
        let mut liveness = Liveness::new(LIMIT, Time::ZERO);
        let hour = Duration::from_secs(3600);
        // The peer acknowledges the retransmission after the first check.
        for silence in [hour, Duration::from_secs(1), hour] {
            let signs = Signs { silence, in_flight: true, probes: 0 };
            assert!(!liveness.check(liveness.due(), Some(signs)), "{silence:?}");
        }
    }

    #[test]
    fn a_limit_below_the_resolution_of_probes_is_raised() {
        assert_eq!(Liveness::new(Duration::ZERO, Time::ZERO).limit(), LEAST);
    }
}
