//! HyStart: leave slow start before it overflows the bottleneck's queue. Ha and Rhee, 2011, with the thresholds of
//! Linux.

use marcato_units::{Duration, Time};

/// Linux, `hystart_low_window`: segments below which slow start goes on whatever is seen.
const LOW_WINDOW: f64 = 16.0;
/// Linux, `hystart_ack_delta_us`: acknowledgements closer than this belong to one train.
const ACK_DELTA: Duration = Duration::from_millis(2);
/// Linux, HYSTART_MIN_SAMPLES: so many samples of a round make its delay.
const MIN_SAMPLES: u32 = 8;
/// Linux, HYSTART_DELAY_MIN and HYSTART_DELAY_MAX: bounds of the delay that is taken for a queue.
const DELAY_MIN: Duration = Duration::from_millis(4);
const DELAY_MAX: Duration = Duration::from_millis(16);

/// What a round of slow start has shown.
#[derive(Clone, Debug)]
pub(crate) struct HyStart {
    /// The least round trip of the connection.
    delay_min: Duration,
    round_start: Time,
    last_ack: Time,
    /// The round ends when this is acknowledged.
    end_seq: u64,
    /// The least round trip of this round's first samples.
    curr_rtt: Duration,
    sample_cnt: u32,
    found: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            delay_min: Duration::MAX,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            end_seq: 0,
            curr_rtt: Duration::MAX,
            sample_cnt: 0,
            found: false,
        }
    }
}

impl HyStart {
    /// An acknowledgement brought a round trip; `una` and `nxt` are SND.UNA and SND.NXT, `slow_start` the window in
    /// segments if it is in slow start. Returns whether that has to end now.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        rtt: Duration,
        una: u64,
        nxt: u64,
        slow_start: Option<f64>,
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
        // A train of acknowledgements half as long as the least round trip: the window fills the path there and
        // back. (Linux takes the whole where pacing spreads the window.)
        if now - self.last_ack <= ACK_DELTA {
            self.last_ack = now;
            self.found |= now - self.round_start > self.delay_min / 2;
        }
        self.curr_rtt = self.curr_rtt.min(rtt);
        if self.sample_cnt < MIN_SAMPLES {
            self.sample_cnt += 1;
        } else {
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

    /// Rounds of 100 ms; the first `spread` milliseconds of each bring acknowledgements at this distance.
    fn train(gap: u64, spread: u64) -> bool {
        let mut hystart = HyStart::default();
        let mut found = false;
        for round in 1..=3u64 {
            for at in (0..=spread).step_by(usize::try_from(gap).unwrap()) {
                let now = Time::from_millis(100 * round + at);
                let una = 100 * round + at;
                found |= hystart.on_ack(now, ms(100), una, una + 100, Some(50.0));
            }
        }
        found
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start() {
        assert!(!train(1, 50));
        assert!(train(1, 52));
        // Three milliseconds apart they are no train.
        assert!(!train(3, 90));
    }

    #[test]
    fn a_queue_is_seen_from_the_ninth_sample_on() {
        for (added, seen) in [(12, None), (13, Some(9))] {
            let mut hystart = HyStart::default();
            assert!(!hystart.on_ack(Time::from_millis(100), ms(100), 1, 1000, Some(50.0)));
            let at = |i: u64| Time::from_millis(200 + 5 * i);
            let first =
                (1..=20).find(|&i| hystart.on_ack(at(i), ms(100 + added), 1000 + i, 9000, Some(50.0)));
            assert_eq!(first, seen, "{added}");
        }
    }

    #[test]
    fn small_windows_are_left_alone() {
        let mut hystart = HyStart::default();
        hystart.on_ack(Time::ZERO, ms(100), 1, 1000, Some(10.0));
        for i in 1..=100 {
            assert!(!hystart.on_ack(Time::from_millis(i), ms(300), 1000 + i, 9000, Some(15.9)));
        }
    }
}
