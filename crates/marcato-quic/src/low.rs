//! Lanes of the low layer: their configuration, and the reopening of those that closed.
//!
//! PLT's controller reopens nothing. Here a lane that was given up is reopened at growing intervals: a low
//! one always, a high one with `SessionConfig::reopen`. A low lane is marked DSCP LE (RFC 8622), and has its
//! own socket, because the mark belongs to a socket.

use marcato_sched::lowprio::LcmConfig;
use marcato_units::{Duration, Time};

use crate::lane::LaneRequest;
use crate::layer_test::PriorityTest;

/// Management of lanes of the low layer.
///
/// A low lane takes all capacity it can get, which is safe only where the network serves the high
/// layer first. Its controller is PLT's, unless the lane asks for another.
///
/// - A low lane falls silent if it is starved, or if the network drops packets marked as lower
///   effort. As with any lane, other lanes then resend its packets in flight.
/// - The session uses it again as soon as it answers, or reopens it if it was closed meanwhile.
/// - If the network does not serve the high layer first, low lanes are stopped.
/// - If all high lanes are down, low ones carry all data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowLanes {
    /// Controller of low lanes whose request names none.
    pub controller: LcmConfig,
    /// Schedule by which a client reopens a low lane that was given up; `None` for never.
    pub retry: Option<Retry>,
    /// Test of whether the network serves the high layer first; `None` if that is known.
    pub test: Option<PriorityTest>,
}

impl Default for LowLanes {
    fn default() -> Self {
        Self {
            controller: LcmConfig::marcato(),
            retry: Some(Retry::default()),
            test: Some(PriorityTest::default()),
        }
    }
}

/// Schedule for reopening a lane that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// First delay, which doubles with each failure, ...
    pub first: Duration,
    /// ... up to this. A lane that was up for this long counts as recovered.
    pub longest: Duration,
}

impl Default for Retry {
    /// 1 s up to a minute.
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

impl Retry {
    fn after(&self, failures: u32) -> Duration {
        // The cap keeps the shift within the factor's width.
        self.first.saturating_mul(1 << failures.min(20)).min(self.longest)
    }
}

/// Lane that was requested: it outlives its paths.
#[derive(Clone, Copy, Debug)]
struct Kept {
    request: LaneRequest,
    failures: u32,
    up_at: Option<Time>,
    /// Time at which it is reopened, if it was given up.
    reopens_at: Option<Time>,
}

/// Lanes that a client maintains; no more than its limit of lanes.
#[derive(Debug, Default)]
pub(crate) struct Keeper(Vec<Kept>);

impl Keeper {
    fn find(&mut self, to: std::net::SocketAddr) -> Option<&mut Kept> {
        self.0.iter_mut().find(|kept| kept.request.remote == to)
    }

    /// Adds a lane.
    pub(crate) fn keep(&mut self, request: LaneRequest) {
        self.0.retain(|kept| kept.request.remote != request.remote);
        self.0.push(Kept { request, failures: 0, up_at: None, reopens_at: None });
    }

    /// Removes a lane that its owner no longer wants.
    pub(crate) fn drop(&mut self, to: std::net::SocketAddr) {
        self.0.retain(|kept| kept.request.remote != to);
    }

    /// Records that a lane is up.
    pub(crate) fn up(&mut self, now: Time, to: std::net::SocketAddr) {
        if let Some(kept) = self.find(to) {
            kept.up_at = Some(now);
            kept.reopens_at = None;
        }
    }

    /// Records that a lane was given up, and schedules its reopening. Returns the time of that;
    /// `None` if it is not to be reopened.
    pub(crate) fn down(&mut self, now: Time, to: std::net::SocketAddr, retry: Retry) -> Option<Time> {
        let kept = self.find(to)?;
        if kept.reopens_at.is_some() {
            return kept.reopens_at;
        }
        if kept.up_at.take().is_some_and(|at| now.since(at) >= retry.longest) {
            kept.failures = 0;
        }
        kept.reopens_at = Some(now + retry.after(kept.failures));
        kept.failures = kept.failures.saturating_add(1);
        kept.reopens_at
    }

    /// Records that a lane was given up to free what was stuck on it, and schedules its reopening: at
    /// once if it was up for at least the first delay. Returns the time of that.
    pub(crate) fn replace(&mut self, now: Time, to: std::net::SocketAddr, retry: Retry) -> Option<Time> {
        let kept = self.find(to)?;
        if kept.up_at.is_none_or(|at| now.since(at) < retry.first) {
            return self.down(now, to, retry);
        }
        self.reopen(now, to);
        Some(now)
    }

    /// Schedules an immediate reopening, which does not count as a failure.
    pub(crate) fn reopen(&mut self, now: Time, to: std::net::SocketAddr) {
        if let Some(kept) = self.find(to) {
            kept.up_at = None;
            kept.reopens_at = Some(now);
        }
    }

    /// Returns whether a lane to this address waits to be reopened.
    pub(crate) fn waits(&self, to: std::net::SocketAddr) -> bool {
        self.0.iter().any(|kept| kept.reopens_at.is_some() && kept.request.remote == to)
    }

    /// Number of lanes that wait to be reopened.
    pub(crate) fn waiting(&self) -> usize {
        self.0.iter().filter(|kept| kept.reopens_at.is_some()).count()
    }

    /// Time at which the next lane is reopened.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.iter().filter_map(|kept| kept.reopens_at).min()
    }

    /// Takes a lane that is due to be reopened.
    pub(crate) fn due(&mut self, now: Time) -> Option<LaneRequest> {
        let kept = self.0.iter_mut().find(|kept| kept.reopens_at.is_some_and(|at| at <= now))?;
        kept.reopens_at = None;
        Some(kept.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::SocketId;
    use std::net::SocketAddr;

    #[test]
    fn a_lane_that_waits_already_is_not_put_off_again() {
        let to = SocketAddr::from(([192, 0, 2, 1], 4434));
        let retry = Retry { first: Duration::from_secs(1), longest: Duration::from_secs(10) };
        let mut keeper = Keeper::default();
        keeper.keep(LaneRequest::new(SocketId(1), to));
        let again = Some(Time::from_secs(101));
        assert_eq!(keeper.down(Time::from_secs(100), to, retry), again);
        assert_eq!(keeper.down(Time::from_millis(100_900), to, retry), again);
        assert_eq!(keeper.due(Time::from_secs(101)).unwrap().remote, to);
        // It counted as one failure.
        assert_eq!(keeper.down(Time::from_secs(200), to, retry), Some(Time::from_secs(202)));
    }

    #[test]
    fn a_lane_that_is_up_waits_no_more() {
        let to = SocketAddr::from(([192, 0, 2, 1], 4434));
        let mut keeper = Keeper::default();
        keeper.keep(LaneRequest::new(SocketId(1), to));
        keeper.down(Time::from_secs(100), to, Retry::default());
        assert!(keeper.waits(to) && keeper.waiting() == 1);
        keeper.up(Time::from_secs(100), to);
        assert!(!keeper.waits(to) && keeper.next().is_none() && keeper.due(Time::from_secs(200)).is_none());
    }

    #[test]
    fn a_replaced_lane_comes_at_once_unless_it_was_new() {
        let to = SocketAddr::from(([192, 0, 2, 1], 4434));
        let retry = Retry { first: Duration::from_secs(1), longest: Duration::from_secs(10) };
        let mut keeper = Keeper::default();
        keeper.keep(LaneRequest::new(SocketId(1), to));
        let mut delays = Vec::new();
        for (began, lasted) in [(100, 1000), (200, 999), (300, 999), (400, 1000)] {
            keeper.up(Time::from_secs(began), to);
            let now = Time::from_secs(began) + Duration::from_millis(lasted);
            let at = keeper.replace(now, to, retry).unwrap();
            delays.push(at.since(now).as_secs());
            assert_eq!(keeper.due(at).unwrap().remote, to);
        }
        assert_eq!(delays, [0, 1, 2, 0]);
    }

    #[test]
    fn lane_retry_intervals_grow_until_the_lane_stays_up_for_long() {
        let to = SocketAddr::from(([192, 0, 2, 1], 4434));
        let retry = Retry { first: Duration::from_secs(1), longest: Duration::from_secs(10) };
        let mut keeper = Keeper::default();
        keeper.keep(LaneRequest::new(SocketId(1), to));
        assert_eq!((keeper.next(), keeper.waiting()), (None, 0));
        let mut now = Time::from_secs(100);
        let mut gaps = Vec::new();
        for _ in 0..6 {
            keeper.down(now, to, retry);
            let at = keeper.next().unwrap();
            assert!(keeper.due(Time::ZERO).is_none() && keeper.waits(to));
            gaps.push(at.since(now).as_secs());
            now = at;
            assert_eq!(keeper.due(now).unwrap().remote, to);
            assert!(!keeper.waits(to));
            keeper.up(now, to);
            now += Duration::from_secs(2);
        }
        assert_eq!(gaps, [1, 2, 4, 8, 10, 10]);
        now += Duration::from_secs(10);
        keeper.down(now, to, retry);
        assert_eq!(keeper.next().unwrap().since(now), Duration::from_secs(1));
        keeper.drop(to);
        assert_eq!((keeper.next(), keeper.waiting()), (None, 0));
    }
}
