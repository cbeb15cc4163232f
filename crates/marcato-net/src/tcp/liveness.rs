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

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The peer counts as alive until a check after this time.
    Alive(Duration),
    /// The peer is dead.
    Dead,
}

/// Detector of a dead peer, for one connection.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Silence after which a peer is dead.
    limit: Duration,
    /// Time since which each check has found an unanswered question.
    suspected: Option<Time>,
}

impl Liveness {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit: limit.max(LEAST), suspected: None }
    }

    /// Silence after which a peer is dead.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
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

    /// Judges the peer by these signs.
    pub(super) fn check(&mut self, now: Time, signs: Signs) -> Verdict {
        let Self { limit, ref mut suspected } = *self;
        let (doubtful, confirmed) = (limit - limit / 4, limit / 4);
        if signs.silence < doubtful || !(signs.in_flight || signs.probes > 0) {
            *suspected = None;
            return Verdict::Alive(doubtful.saturating_sub(signs.silence).max(limit / 8));
        }
        // Silence alone proves nothing: the measured time also grows while this host sleeps, and
        // between zero-window probes. The unanswered question has to stay unanswered for a while.
        let since = *suspected.get_or_insert(now);
        let doubted = now.since(since);
        let lost = signs.in_flight || signs.probes >= PROBES;
        if doubted >= confirmed && signs.silence >= limit && lost {
            return Verdict::Dead;
        }
        Verdict::Alive(confirmed.saturating_sub(doubted).max(limit / 32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(32);

    /// Runs the detector, which sees `signs` of each time, until it finds the peer dead.
    fn dead_after(mut signs: impl FnMut(Duration) -> Signs) -> Option<Duration> {
        let mut liveness = Liveness::new(LIMIT);
        let mut at = Duration::ZERO;
        while at < Duration::from_secs(3600) {
            match liveness.check(Time::ZERO + at, signs(at)) {
                Verdict::Dead => return Some(at),
                Verdict::Alive(again) => at += again,
            }
        }
        None
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
        let mut liveness = Liveness::new(LIMIT);
        let hour = Duration::from_secs(3600);
        let signs = |silence| Signs { silence, in_flight: true, probes: 0 };
        let Verdict::Alive(again) = liveness.check(Time::ZERO, signs(hour)) else { panic!("too early") };
        // The peer acknowledges the retransmission.
        assert!(matches!(liveness.check(Time::ZERO + again, signs(again / 2)), Verdict::Alive(_)));
        let later = Time::ZERO + again * 2;
        assert!(matches!(liveness.check(later, signs(hour)), Verdict::Alive(_)));
    }

    #[test]
    fn a_limit_below_the_resolution_of_probes_is_raised() {
        assert_eq!(Liveness::new(Duration::ZERO).limit(), LEAST);
    }
}
