//! Dynamic right-sizing: a receive buffer that stays ahead of its sender's window. Fisk and Feng,
//! 2001, as in Linux: twice what arrived within the last round trip, and more while that grows.

use marcato_units::{Duration, Time};

/// Receiver's estimate of its sender's window.
#[derive(Clone, Debug)]
pub(crate) struct RightSizing {
    limit: u64,
    mss: u64,
    /// Round-trip time as measured by the receiver.
    rtt: Option<Duration>,
    /// Right edge that ends the current round trip, and its beginning; without timestamps only.
    window: Option<(u64, Time)>,
    /// Beginning of the current measurement. `copied` counts bytes that the application has read in
    /// it, `space` those of the one before.
    began: Time,
    copied: u64,
    space: u64,
}

impl RightSizing {
    /// Estimator for a buffer of at most `limit` bytes.
    pub(crate) fn new(limit: u64, mss: u64) -> Self {
        // Linux begins with the size of an initial window.
        Self { limit, mss, rtt: None, window: None, began: Time::ZERO, copied: 0, space: 10 * mss }
    }

    /// Counts bytes that the application has read.
    pub(crate) fn on_read(&mut self, bytes: u64) {
        self.copied += bytes;
    }

    /// Handles data: everything below `next` has arrived, and the sender may fill up to `edge`.
    /// Returns the least size that the buffer should have.
    pub(crate) fn on_data(
        &mut self,
        now: Time,
        next: u64,
        edge: u64,
        echo_rtt: Option<Duration>,
    ) -> Option<u64> {
        self.measure_rtt(now, next, edge, echo_rtt);
        if now - self.began < self.rtt? {
            return None;
        }
        let (copied, space) = (self.copied, self.space);
        self.began = now;
        self.copied = 0;
        if copied <= space {
            return None;
        }
        self.space = copied;
        // Room for a window that doubles, and for 16 segments that losses may hold up. It grows
        // once more in proportion, as in slow start the measured window is a round trip old.
        let room = 2 * copied + 16 * self.mss;
        let growth = u128::from(room) * u128::from(copied - space) / u128::from(space);
        let size = u128::from(room) + 2 * growth;
        Some(u64::try_from(size).unwrap_or(u64::MAX).min(self.limit))
    }

    fn measure_rtt(&mut self, now: Time, next: u64, edge: u64, echo_rtt: Option<Duration>) {
        if let Some(sample) = echo_rtt.filter(|sample| !sample.is_zero()) {
            self.rtt = Some(self.rtt.map_or(sample, |rtt| rtt * 7 / 8 + sample / 8));
            return;
        }
        // Filling a window takes at least a round trip, so the estimate is the least time that it
        // took.
        match self.window {
            Some((end, _)) if next < end => {}
            Some((_, began)) => {
                let sample = now - began;
                self.rtt = Some(self.rtt.map_or(sample, |rtt| rtt.min(sample)));
                self.window = Some((edge, now));
            }
            None => self.window = Some((edge, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Sizes returned if the application reads these bytes in round trips of 100 ms.
    fn sizes(rounds: &[u64]) -> Vec<Option<u64>> {
        let mut sizing = RightSizing::new(1_000_000, 1000);
        let mut at = Time::ZERO;
        rounds
            .iter()
            .map(|&bytes| {
                at += ms(100);
                sizing.on_read(bytes);
                sizing.on_data(at, 0, 0, Some(ms(100)))
            })
            .collect()
    }

    #[test]
    fn a_doubling_window_gets_more_buffer_and_a_steady_one_none() {
        // 2·20 000 + 16 000 = 56 000, and twice as much again for the doubling.
        assert_eq!(sizes(&[10_000, 20_000, 20_000, 15_000]), [None, Some(168_000), None, None]);
        assert_eq!(sizes(&[20_000, 40_000]), [Some(168_000), Some(288_000)]);
    }

    #[test]
    fn the_limit_holds() {
        assert_eq!(sizes(&[300_000, u64::MAX / 8]), [Some(1_000_000), Some(1_000_000)]);
    }

    #[test]
    fn without_timestamps_a_window_takes_a_round_trip() {
        let mut sizing = RightSizing::new(1_000_000, 1000);
        for (at, next, rtt) in [
            (0, 1, None),
            (50, 5_000, None),
            (120, 10_000, Some(ms(120))),
            (210, 20_000, Some(ms(90))),
            (330, 30_000, Some(ms(90))),
        ] {
            sizing.on_data(Time::from_millis(at), next, next + 9_999, None);
            assert_eq!(sizing.rtt, rtt, "{at}");
        }
    }
}
