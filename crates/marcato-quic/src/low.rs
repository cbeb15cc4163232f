//! Lanes of the low layer: how they are used, and what has become of those that died.

use marcato_sched::lowprio::LcmConfig;
use marcato_units::{Duration, Time};

use crate::lane::LaneRequest;
use crate::watch::PriorityTest;

/// How lanes of the low layer are used.
///
/// A low lane takes what it can get, which is safe only where the network serves the high layer first. Its controller
/// is PLT's, unless the lane asks for another. When it falls silent, because it is starved or because the network drops
/// what is marked as of lower effort, what was under way on it is sent again on other lanes, as of any lane; it is used
/// again as soon as it answers, or opened again if it was given up meanwhile. Where the network does not serve the high
/// layer first, it is stopped. If all high lanes are down, low ones carry everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowLanes {
    /// The controller of low lanes that ask for none of their own.
    pub controller: LcmConfig,
    /// When a client opens one again that was given up; `None` for never.
    pub retry: Option<Retry>,
    /// How it is tested whether the network serves the high layer first; `None` if that is known.
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

/// When a lane is opened again that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// After this, which doubles each time that it comes to nothing, ...
    pub first: Duration,
    /// ... up to this. A lane that has been up for as long is taken to be well again.
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
        self.first.saturating_mul(1 << failures.min(20)).min(self.longest)
    }
}

/// A low lane that was asked for, by its request: it outlives its paths.
#[derive(Clone, Copy, Debug)]
struct Kept {
    request: LaneRequest,
    failures: u32,
    up_at: Option<Time>,
    /// When it is opened again, if it was given up.
    again_at: Option<Time>,
}

/// The low lanes that a client keeps up; no more than it may have lanes.
#[derive(Debug, Default)]
pub(crate) struct Keeper(Vec<Kept>);

impl Keeper {
    fn find(&mut self, to: std::net::SocketAddr) -> Option<&mut Kept> {
        self.0.iter_mut().find(|kept| kept.request.remote == to)
    }

    /// A lane was asked for.
    pub(crate) fn keep(&mut self, request: LaneRequest) {
        self.0.retain(|kept| kept.request.remote != request.remote);
        self.0.push(Kept { request, failures: 0, up_at: None, again_at: None });
    }

    /// Its owner wants it no more.
    pub(crate) fn drop(&mut self, to: std::net::SocketAddr) {
        self.0.retain(|kept| kept.request.remote != to);
    }

    /// It is up.
    pub(crate) fn up(&mut self, now: Time, to: std::net::SocketAddr) {
        if let Some(kept) = self.find(to) {
            kept.up_at = Some(now);
            kept.again_at = None;
        }
    }

    /// It was given up.
    pub(crate) fn down(&mut self, now: Time, to: std::net::SocketAddr, retry: Retry) {
        let Some(kept) = self.find(to).filter(|kept| kept.again_at.is_none()) else { return };
        if kept.up_at.take().is_some_and(|at| now.since(at) >= retry.longest) {
            kept.failures = 0;
        }
        kept.again_at = Some(now + retry.after(kept.failures));
        kept.failures = kept.failures.saturating_add(1);
    }

    /// It is to be opened again at once: that was no failure.
    pub(crate) fn reopen(&mut self, now: Time, to: std::net::SocketAddr) {
        if let Some(kept) = self.find(to) {
            kept.up_at = None;
            kept.again_at = Some(now);
        }
    }

    /// Whether a lane to this address waits to be opened again.
    pub(crate) fn waits(&self, to: std::net::SocketAddr) -> bool {
        self.0.iter().any(|kept| kept.again_at.is_some() && kept.request.remote == to)
    }

    /// How many wait to be opened again.
    pub(crate) fn waiting(&self) -> usize {
        self.0.iter().filter(|kept| kept.again_at.is_some()).count()
    }

    /// When the next is opened again.
    pub(crate) fn next(&self) -> Option<Time> {
        self.0.iter().filter_map(|kept| kept.again_at).min()
    }

    /// One whose time has come.
    pub(crate) fn due(&mut self, now: Time) -> Option<LaneRequest> {
        let kept = self.0.iter_mut().find(|kept| kept.again_at.is_some_and(|at| at <= now))?;
        kept.again_at = None;
        Some(kept.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::SocketId;
    use std::net::SocketAddr;

    #[test]
    fn a_lane_is_tried_again_later_and_later_until_it_was_well_for_long() {
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
