//! Clock of the receiver of messages, by which their sender tells the queue on the way back from its own.

use marcato_units::{Duration, Time};

use super::way_back::WayBack;

/// Unit of the clock on the wire.
const TICK: Duration = Duration::from_millis(1);
/// Least interval between two clocks, whatever the peer asks for.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// Sender's view of the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerClock {
    way: WayBack,
    /// Wait of the latest clock on the way back, and its arrival.
    latest: Option<(Duration, Time)>,
}

impl Default for PeerClock {
    fn default() -> Self {
        Self::new()
    }
}

impl PeerClock {
    /// Interval in ms at which the sender asks for the clock.
    pub const INTERVAL_MS: u64 = 20;
    /// Age of a clock that says nothing any more: the peer stops while its own data would delay it.
    const FRESH: Duration = Duration::from_millis(200);

    /// View of a clock that has not been heard of.
    pub const fn new() -> Self {
        Self { way: WayBack::new(TICK), latest: None }
    }

    /// Takes note of a clock that arrives now.
    pub fn heard(&mut self, now: Time, clock: u32) {
        self.latest = Some((self.way.acknowledged(now, clock), now));
    }

    /// Returns the part of a round trip that was measured now which stood in a queue on the way back; zero if that is
    /// not known.
    ///
    /// A clock that was sent again, read late, or followed by a shorter queue tells too much. So the part is at most what
    /// exceeds the least round trip: our own queue may be taken for shorter than it is, but never the path.
    pub fn back(&self, now: Time, rtt: Option<Duration>, base: Option<Duration>) -> Duration {
        let fresh = self.latest.filter(|(_, at)| now.since(*at) <= Self::FRESH);
        let (Some((wait, _)), Some(rtt), Some(base)) = (fresh, rtt, base) else { return Duration::ZERO };
        wait.min(rtt.saturating_sub(base))
    }
}

/// Receiver's part: when to send its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnClock {
    interval: Option<Duration>,
    sent_at: Option<Time>,
}

impl OwnClock {
    /// Clock that nobody has asked for.
    pub const fn new() -> Self {
        Self { interval: None, sent_at: None }
    }

    /// Takes note of the interval in ms that the peer asks for; 0 for none.
    pub fn watch(&mut self, interval: u64) {
        let asked = Duration::from_millis(interval).max(LEAST_INTERVAL);
        self.interval = (interval > 0).then_some(asked);
    }

    /// Returns whether the clock is due, now that data has arrived.
    pub fn is_due(&self, now: Time) -> bool {
        self.interval.is_some_and(|interval| self.sent_at.is_none_or(|at| now.since(at) >= interval))
    }

    /// Returns the clock to be sent now.
    #[expect(clippy::cast_possible_truncation, reason = "the clock on the wire wraps by design")]
    pub fn tell(&mut self, now: Time) -> u32 {
        self.sent_at = Some(now);
        now.since(Time::ZERO).as_millis() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Option<Duration> = Some(Duration::from_millis(40));

    /// Part of a round trip of 100 ms, in ms, after clocks that left and arrived at these times in ms.
    fn back(sent: &[(u64, u64)]) -> u128 {
        let (mut own, mut peer) = (OwnClock::new(), PeerClock::new());
        for &(leaves, arrives) in sent {
            peer.heard(Time::from_millis(arrives), own.tell(Time::from_millis(leaves)));
        }
        let (_, arrives) = sent[sent.len() - 1];
        peer.back(Time::from_millis(arrives), Some(Duration::from_millis(100)), BASE).as_millis()
    }

    #[test]
    fn the_latest_clock_tells_the_queue_on_the_way_back() {
        assert_eq!(back(&[(0, 20), (20, 40)]), 0);
        assert_eq!(back(&[(0, 20), (20, 40), (40, 95)]), 34);
        assert_eq!(back(&[(0, 20), (40, 95), (100, 120)]), 0);
    }

    #[test]
    fn no_clock_makes_the_path_shorter_than_it_was() {
        assert_eq!(back(&[(0, 20), (20, 240)]), 60);
        let mut peer = PeerClock::new();
        peer.heard(Time::from_millis(20), 0);
        peer.heard(Time::from_millis(240), 20);
        let now = Time::from_millis(240);
        let at = |rtt| peer.back(now, Some(Duration::from_millis(rtt)), BASE);
        assert_eq!([30, 40, 41].map(|rtt| at(rtt).as_millis()), [0, 0, 1]);
        assert_eq!(peer.back(now, Some(Duration::from_millis(100)), None), Duration::ZERO);
    }

    #[test]
    fn an_old_clock_tells_nothing() {
        let mut peer = PeerClock::new();
        peer.heard(Time::from_millis(20), 0);
        peer.heard(Time::from_millis(90), 20);
        let at = |now| peer.back(Time::from_millis(now), Some(Duration::from_millis(100)), BASE);
        assert_eq!((at(290).as_millis(), at(291).as_millis()), (49, 0));
    }

    #[test]
    fn a_clock_is_due_once_an_interval_and_only_if_asked_for() {
        let mut own = OwnClock::new();
        assert!(!own.is_due(Time::from_secs(1)));
        own.watch(20);
        assert!(own.is_due(Time::from_secs(1)));
        assert_eq!(own.tell(Time::from_secs(1)), 1000);
        assert!(!own.is_due(Time::from_millis(1019)) && own.is_due(Time::from_millis(1020)));
        // A peer cannot have more than a hundred in a second.
        own.watch(1);
        assert!(!own.is_due(Time::from_millis(1009)) && own.is_due(Time::from_millis(1010)));
        own.watch(u64::MAX);
        assert!(!own.is_due(Time::from_secs(100)));
        own.watch(0);
        assert!(!own.is_due(Time::from_secs(1 << 30)));
    }
}
