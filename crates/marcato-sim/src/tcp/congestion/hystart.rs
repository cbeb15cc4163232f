//! HyStart: leaves slow start before it overflows the bottleneck's queue. Ha and Rhee, 2011, with
//! the thresholds of Linux.

use marcato_units::{Bytes, Duration, Rate, Time};

/// Window in segments below which HyStart never ends slow start. Linux, `hystart_low_window`.
const LOW_WINDOW: f64 = 16.0;
/// Greatest gap between acknowledgements of one train. Linux, `hystart_ack_delta_us`.
const ACK_DELTA: Duration = Duration::from_millis(2);
/// Samples per round that determine its delay. Linux, HYSTART_MIN_SAMPLES.
const MIN_SAMPLES: u32 = 8;
/// Bounds of the extra delay that counts as a queue. Linux, HYSTART_DELAY_MIN and
/// HYSTART_DELAY_MAX.
const DELAY_MIN: Duration = Duration::from_millis(4);
const DELAY_MAX: Duration = Duration::from_millis(16);
/// Number of bursts that may delay an acknowledgement; `BURST_MAX` bounds their time. Linux,
/// `hystart_ack_delay`.
const BURSTS: u64 = 4;
const BURST_MAX: Duration = Duration::from_millis(1);

/// Spreading of a sender's segments, which lengthens the trains of acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spreading {
    /// True if segments are paced.
    pub(crate) paced: bool,
    /// Longest burst, if segments leave in bursts.
    pub(crate) burst: Option<Bytes>,
}

/// HyStart's state in a round of slow start.
#[derive(Clone, Debug)]
pub(crate) struct HyStart {
    spreading: Spreading,
    /// Least round trip of the connection.
    delay_min: Duration,
    round_start: Time,
    last_ack: Time,
    /// Sequence number whose acknowledgement ends the round.
    end_seq: u64,
    /// Least round trip of this round's first samples.
    curr_rtt: Duration,
    sample_cnt: u32,
    found: bool,
}

impl HyStart {
    pub(crate) const fn new(spreading: Spreading) -> Self {
        Self {
            spreading,
            delay_min: Duration::MAX,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            end_seq: 0,
            curr_rtt: Duration::MAX,
            sample_cnt: 0,
            found: false,
        }
    }

    /// Resets all state, as Linux does after a timeout.
    pub(crate) const fn reset(&mut self) {
        *self = Self::new(self.spreading);
    }

    /// Returns the length of the train of acknowledgements that shows a full path.
    ///
    /// Without pacing, a window leaves as fast as the bottleneck returns its acknowledgements. A
    /// train half as long as the least round trip then means that the window fills the path in both
    /// directions. Pacing at twice the window per round trip spreads a window over more than half a
    /// round trip, whatever the path can carry. The threshold is then a whole round trip. Linux
    /// adds the time of bursts, and halves it with the rest.
    fn train(&self, pacing: Option<Rate>) -> Duration {
        let burst = match (self.spreading.burst, pacing) {
            (Some(burst), Some(rate)) => rate.transmission_time(burst * BURSTS).min(BURST_MAX),
            _ => Duration::ZERO,
        };
        let whole = self.delay_min.saturating_add(burst);
        if self.spreading.paced { whole } else { whole / 2 }
    }

    /// Handles the round trip of an acknowledgement. `una` and `nxt` are SND.UNA and SND.NXT,
    /// `slow_start` is the window in segments during slow start, and `pacing` is the rate by which
    /// bursts are cut. Returns true if slow start must end now.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        rtt: Duration,
        [una, nxt]: [u64; 2],
        slow_start: Option<f64>,
        pacing: Option<Rate>,
    ) -> bool {
        self.delay_min = self.delay_min.min(rtt);
        let Some(cwnd) = slow_start.filter(|_| !self.found) else { return false };
        if una > self.end_seq {
            self.round_start = now;
            self.last_ack = now;
            self.end_seq = nxt;
            self.curr_rtt = Duration::MAX;
            self.sample_cnt = 0;
        }
        if cwnd < LOW_WINDOW {
            return false;
        }
        // Acknowledgement train: closely spaced acknowledgements for longer than the path is.
        if now - self.last_ack <= ACK_DELTA {
            self.last_ack = now;
            self.found |= now - self.round_start > self.train(pacing);
        }
        self.curr_rtt = self.curr_rtt.min(rtt);
        if self.sample_cnt < MIN_SAMPLES {
            self.sample_cnt += 1;
        } else {
            // Delay increase: all round trips of this round show a queue.
            let threshold = (self.delay_min / 8).clamp(DELAY_MIN, DELAY_MAX);
            self.found |= self.curr_rtt > self.delay_min + threshold;
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Rounds of 200 ms on a path of 100 ms. Acknowledgements with this gap arrive in the first
    /// `spread` microseconds of each.
    fn train(spreading: Spreading, gap: u64, spread: u64) -> bool {
        let mut hystart = HyStart::new(spreading);
        let mut found = false;
        for round in 1..=3u64 {
            for at in (0..=spread).step_by(usize::try_from(gap).unwrap()) {
                let now = Time::from_nanos((200_000 * round + at) * 1000);
                let una = 200_000 * round + at;
                let rate = Some(Rate::from_mbps(1000));
                found |= hystart.on_ack(now, ms(100), [una, una + 200_000], Some(50.0), rate);
            }
        }
        found
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start() {
        let plain = Spreading::default();
        assert!(!train(plain, 1000, 50_000));
        assert!(train(plain, 1000, 51_000));
        // Gaps of three milliseconds make no train.
        assert!(!train(plain, 3000, 90_000));
    }

    #[test]
    fn a_paced_train_has_to_be_as_long_as_a_round_trip() {
        let paced = Spreading { paced: true, burst: None };
        assert!(!train(paced, 1000, 100_000));
        assert!(train(paced, 1000, 101_000));
    }

    #[test]
    fn bursts_extend_a_train_by_four_burst_times_and_at_most_1_ms() {
        // Four bursts of 10 kB take 320 us at 1 Gbit/s; those of 64 KiB would take 2.1 ms.
        for (kb, paced, longest) in
            [(10, false, 50_160), (10, true, 100_320), (65, false, 50_500), (65, true, 101_000)]
        {
            let spreading = Spreading { paced, burst: Some(Bytes::kb(kb)) };
            assert!(!train(spreading, 20, longest), "{kb} kB");
            assert!(train(spreading, 20, longest + 20), "{kb} kB");
        }
    }

    #[test]
    fn a_queue_is_seen_from_the_ninth_sample_on() {
        for (added, seen) in [(12, None), (13, Some(9))] {
            let mut hystart = HyStart::new(Spreading::default());
            assert!(!hystart.on_ack(Time::from_millis(100), ms(100), [1, 1000], Some(50.0), None));
            let at = |i: u64| Time::from_millis(200 + 5 * i);
            let first = (1..=20)
                .find(|&i| hystart.on_ack(at(i), ms(100 + added), [1000 + i, 9000], Some(50.0), None));
            assert_eq!(first, seen, "{added}");
        }
    }

    #[test]
    fn small_windows_are_left_alone() {
        let mut hystart = HyStart::new(Spreading::default());
        hystart.on_ack(Time::ZERO, ms(100), [1, 1000], Some(10.0), None);
        for i in 1..=100 {
            assert!(!hystart.on_ack(Time::from_millis(i), ms(300), [1000 + i, 9000], Some(15.9), None));
        }
    }
}
