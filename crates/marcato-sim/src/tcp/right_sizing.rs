//! Dynamic right-sizing: a receive buffer that keeps ahead of its sender's window. Fisk and Feng, 2001, in the outline
//! of Linux: twice what arrived within the last round trip, and more while that grows.

use marcato_units::{Duration, Time};

/// What the receiver knows of its sender's window.
#[derive(Clone, Debug)]
pub(crate) struct RightSizing {
    limit: u64,
    mss: u64,
    /// The round trip as the receiver sees it.
    rtt: Option<Duration>,
    /// Without timestamps: the round trip lasts until this arrives.
    window: Option<(u64, Time)>,
    /// When the present measurement began, and what the application has read in it and in the one before.
    began: Time,
    copied: u64,
    space: u64,
}

impl RightSizing {
    /// A buffer that may grow up to `limit` bytes.
    pub(crate) fn new(limit: u64, mss: u64) -> Self {
        // Linux begins with an initial window's worth.
        Self { limit, mss, rtt: None, window: None, began: Time::ZERO, copied: 0, space: 10 * mss }
    }

    /// The application has read so much.
    pub(crate) fn on_read(&mut self, bytes: u64) {
        self.copied += bytes;
    }

    /// Data arrived: everything below `next` is there, and the sender may fill up to `edge`. Returns the size that the
    /// buffer should have at least.
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
        // Room for a window that doubles, and for as many segments as losses may hold up; and once more in proportion
        // to the growth, for in slow start what has been measured is the window of a round trip ago.
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
        // A window cannot be filled in less than a round trip: the least that it took.
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

    /// Sizes asked for when so many bytes are read in each round trip of 100 ms.
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
    fn a_window_that_doubles_finds_room_and_one_that_stays_needs_none() {
        // 2·20 000 + 16 000 = 56 000, and twice as much again for having doubled.
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
        for (at, next, rtt) in
            [(0, 1, None), (50, 5_000, None), (120, 10_000, Some(ms(120))), (210, 20_000, Some(ms(90)))]
        {
            sizing.on_data(Time::from_millis(at), next, next + 9_999, None);
            assert_eq!(sizing.rtt, rtt, "{at}");
        }
    }
}
