//! Receive window that follows the peer's data per round trip. Fisk and Feng, 2001; TCP stacks do
//! the same.

use marcato_units::{Bytes, Duration, Time};

/// Estimator of the receive window.
///
/// A window at its maximum from the start would let the peer fill the queue at the bottleneck.
/// Urgent data would wait there behind the rest. The round trip is the least one measured, so such
/// a queue does not enlarge the window.
#[derive(Clone, Debug)]
pub(crate) struct RightSizing {
    window: Bytes,
    most: Bytes,
    /// Least round trip of the slowest lane.
    rtt: Option<Duration>,
    began: Time,
    read: Bytes,
}

impl RightSizing {
    /// Window divided by the bytes read in a round trip. Two would suffice for a sender whose
    /// window doubles each round trip, if our rounds began with its rounds.
    const ROOM: u64 = 3;

    pub(crate) const fn new(window: Bytes, most: Bytes, now: Time) -> Self {
        Self { window, most, rtt: None, began: now, read: Bytes::ZERO }
    }

    /// Records the lanes' least round trips.
    pub(crate) fn lanes(&mut self, rtts: impl Iterator<Item = Duration>) {
        self.rtt = rtts.max();
    }

    /// Records that `bytes` were read.
    pub(crate) fn read(&mut self, bytes: Bytes) {
        self.read += bytes;
    }

    /// Returns the new window if it has to grow.
    pub(crate) fn grow(&mut self, now: Time) -> Option<Bytes> {
        if now.since(self.began) < self.rtt? {
            return None;
        }
        let span = now.since(self.began).as_nanos().max(1);
        // With sparse data, the round trip is long over when the next byte arrives, so the bytes
        // are scaled to one round trip.
        let within = u128::from(self.read.get()) * self.rtt?.as_nanos() / span;
        (self.began, self.read) = (now, Bytes::ZERO);
        let wanted = Bytes::new(u64::try_from(within).unwrap_or(u64::MAX).saturating_mul(Self::ROOM));
        let wanted = wanted.min(self.most);
        (wanted > self.window).then(|| {
            self.window = wanted;
            wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Reads at a rate limited by the window of each round trip, and returns the successive
    /// windows.
    fn grown(rtt: Duration, per_rtt: u64, rounds: u64) -> Vec<u64> {
        let mut window = 2 * MB;
        let mut sizing = RightSizing::new(Bytes::new(window), Bytes::new(16 * MB), Time::ZERO);
        sizing.lanes([rtt / 2, rtt].into_iter());
        let mut windows = Vec::new();
        for round in 1..=rounds {
            for part in 1..=10u64 {
                sizing.read(Bytes::new(per_rtt.min(window) / 10));
                let now = Time::ZERO
                    + rtt * u32::try_from(round - 1).unwrap()
                    + rtt / 10 * u32::try_from(part).unwrap();
                if let Some(larger) = sizing.grow(now) {
                    window = larger.get();
                    windows.push(window);
                }
            }
        }
        windows
    }

    #[test]
    fn a_window_that_stops_the_peer_grows_until_it_does_not() {
        assert_eq!(grown(Duration::from_millis(100), 4 * MB, 10), [6 * MB, 12 * MB]);
        assert_eq!(grown(Duration::from_millis(100), 50 * MB, 10), [6 * MB, 16 * MB]);
    }

    #[test]
    fn a_window_that_is_large_enough_stays_as_it_is() {
        assert!(grown(Duration::from_millis(1), MB / 2, 100).is_empty());
    }

    #[test]
    fn a_queue_is_no_reason_for_a_larger_window() {
        // At 1 Gbit/s, a round trip of 1 ms needs 125 kB. The 40 ms in a queue do not count.
        let mut sizing = RightSizing::new(Bytes::new(2 * MB), Bytes::new(16 * MB), Time::ZERO);
        sizing.lanes([Duration::from_millis(1)].into_iter());
        for at in 1..1000 {
            sizing.read(Bytes::new(5 * MB));
            assert_eq!(sizing.grow(Time::from_millis(40 * at)), None);
        }
    }

    /// The data of a whole round trip of the slowest lane counts, however it is spread over it.
    #[test]
    fn a_burst_counts_as_the_data_of_its_round_trip() {
        let rtt = Duration::from_millis(100);
        for (per_round, expected) in [(MB / 2, vec![]), (2 * MB, vec![6 * MB])] {
            let mut sizing = RightSizing::new(Bytes::new(2 * MB), Bytes::new(16 * MB), Time::ZERO);
            sizing.lanes([rtt, rtt / 4].into_iter());
            let mut windows = Vec::new();
            for round in 1..=5u64 {
                // Ten packets within a millisecond, at the end of each round trip.
                for packet in 0..10 {
                    sizing.read(Bytes::new(per_round / 10));
                    let now = Time::from_millis(100 * round) + Duration::from_micros(100 * packet);
                    windows.extend(sizing.grow(now).map(Bytes::get));
                }
            }
            // The first round trip has one packet of ten only: the others belong to the next.
            assert_eq!(windows, expected, "{per_round}");
        }
    }

    #[test]
    fn before_the_first_round_trip_nothing_grows() {
        let mut sizing = RightSizing::new(Bytes::new(MB), Bytes::new(16 * MB), Time::ZERO);
        sizing.read(Bytes::new(10 * MB));
        assert_eq!(sizing.grow(Time::from_secs(1)), None);
    }
}
