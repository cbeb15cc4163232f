//! Rate of delivery over the last round trip.

use marcato_units::{Bytes, Duration, Rate, Time};

/// Marks that are kept: a round trip has at most half of them, and so have sixteen packets.
const MARKS: usize = 32;
/// Marks that a round trip has at most.
const PER_ROUND: u32 = 16;
/// Packets that a rate is measured over at least.
const PACKETS: u64 = 16;
/// Age at which a bucket of the long maximum is closed.
const BUCKET: Duration = Duration::from_secs(20);

/// Meter of the rate of delivery: over the last round trip and at least sixteen packets, and its largest
/// value of the last 20 to 40 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meter {
    /// Times and bytes delivered, in a ring.
    marks: [(Time, Bytes); MARKS],
    /// Marks that were ever made.
    made: usize,
    last: (Time, Bytes),
    /// Maxima of the bucket before and of this one, and its beginning.
    longest: [Rate; 2],
    /// Rate of the round before.
    before: Rate,
    bucket: Time,
}

impl Meter {
    pub(super) const fn new() -> Self {
        let begin = (Time::ZERO, Bytes::ZERO);
        Self {
            marks: [begin; MARKS],
            made: 0,
            last: begin,
            longest: [Rate::ZERO; 2],
            before: Rate::ZERO,
            bucket: Time::ZERO,
        }
    }

    /// Takes note of bytes delivered until now.
    pub(super) fn delivered(&mut self, now: Time, delivered: Bytes, rtt: Duration, mss: Bytes) {
        self.last = (now, delivered);
        let due = self.made == 0 || {
            let (at, before) = self.marks[(self.made - 1) % MARKS];
            delivered - before >= mss && now.since(at).saturating_mul(PER_ROUND) >= rtt
        };
        if due {
            self.marks[self.made % MARKS] = self.last;
            self.made += 1;
        }
    }

    /// Takes note of the rate of a round, for the largest that two rounds had, one after the other.
    pub(super) fn round(&mut self, now: Time, rate: Rate) {
        // A packet that was delayed comes with those behind it: they are no faster path.
        let sustained = rate.min(self.before);
        self.before = rate;
        if now.since(self.bucket) >= BUCKET {
            self.longest = [self.longest[1], sustained];
            self.bucket = now;
        }
        self.longest[1] = self.longest[1].max(sustained);
    }

    /// Rate over the last round trip, and over sixteen packets at least; zero before there are any.
    pub(super) fn rate(&self, rtt: Duration, mss: Bytes) -> Rate {
        let (now, delivered) = self.last;
        let kept = self.made.min(MARKS);
        let marks = (1..=kept).map(|back| self.marks[(self.made - back) % MARKS]);
        let mut from = self.last;
        for (at, before) in marks {
            from = (at, before);
            if now.since(at) >= rtt && delivered - before >= mss * PACKETS {
                break;
            }
        }
        // In the first round trip, packets come in a burst, and then none.
        Rate::from_bytes_over(delivered - from.1, now.since(from.0).max(rtt))
    }

    /// Largest rate of the last 20 to 40 s.
    pub(super) fn longest(&self) -> Rate {
        self.longest[0].max(self.longest[1])
    }

    /// Lets the long maximum be this rate: the old one is no longer to be had.
    pub(super) fn forget(&mut self, rate: Rate) {
        self.longest = [Rate::ZERO, rate];
        self.before = rate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes::new(1000);
    const RTT: Duration = Duration::from_millis(20);

    /// Delivers packets at an interval in µs.
    fn deliver(meter: &mut Meter, from: &mut (u64, u64), packets: u64, interval: u64) {
        for _ in 0..packets {
            from.0 += interval;
            from.1 += 1000;
            meter.delivered(Time::ZERO + Duration::from_micros(from.0), Bytes::new(from.1), RTT, MSS);
            meter.round(Time::ZERO + Duration::from_micros(from.0), meter.rate(RTT, MSS));
        }
    }

    #[test]
    fn a_steady_rate_is_measured_at_any_speed() {
        for interval in [10, 100, 1000, 10_000, 100_000] {
            let (mut meter, mut at) = (Meter::new(), (0, 0));
            deliver(&mut meter, &mut at, 5000, interval);
            assert_eq!(meter.rate(RTT, MSS), Rate::from_bps(8_000_000_000 / interval), "{interval}");
        }
    }

    #[test]
    fn a_slower_rate_is_known_after_one_round_trip() {
        let (mut meter, mut at) = (Meter::new(), (0, 0));
        deliver(&mut meter, &mut at, 1000, 1000);
        deliver(&mut meter, &mut at, 20, 4000);
        assert_eq!(meter.rate(RTT, MSS), Rate::from_mbps(2));
        assert_eq!(meter.longest(), Rate::from_mbps(8));
        deliver(&mut meter, &mut at, 15_000, 4000);
        assert_eq!(meter.longest(), Rate::from_mbps(2));
    }

    #[test]
    fn the_faster_rate_is_known_for_twenty_seconds_at_least() {
        // Wherever the faster time ends within a bucket.
        for seconds in [5, 19, 21, 39] {
            let (mut meter, mut at) = (Meter::new(), (0, 0));
            deliver(&mut meter, &mut at, seconds * 1000, 1000);
            deliver(&mut meter, &mut at, 4900, 4000);
            assert_eq!(meter.longest(), Rate::from_mbps(8), "{seconds} s");
            deliver(&mut meter, &mut at, 5200, 4000);
            assert_eq!(meter.longest(), Rate::from_mbps(2), "{seconds} s");
        }
    }

    #[test]
    fn packets_that_come_in_groups_are_no_faster_than_their_mean() {
        // On a path shorter than a group is, of four packets in 16 ms.
        let (mut meter, mut at) = (Meter::new(), (0, 0));
        let rtt = Duration::from_millis(1);
        for packet in 1..=400 {
            at.0 += if packet % 4 == 0 { 13_000 } else { 1000 };
            at.1 += 1000;
            meter.delivered(Time::ZERO + Duration::from_micros(at.0), Bytes::new(at.1), rtt, MSS);
            if packet > 100 {
                let rate = meter.rate(rtt, MSS).as_bps();
                assert!((1_900_000..2_400_000).contains(&rate), "{packet}: {rate}");
            }
        }
    }

    /// A first window is acknowledged at once, and nothing else is in its round trip.
    #[test]
    fn the_burst_of_a_first_window_counts_as_a_round_trip() {
        let (mut meter, mut at) = (Meter::new(), (0, 0));
        deliver(&mut meter, &mut at, 11, 100);
        // Ten packets after the first mark, in 1 ms, in a round trip of 20 ms.
        assert_eq!(meter.rate(RTT, MSS), Rate::from_mbps(4));
        // Two rounds had the rate of nine.
        assert_eq!(meter.longest(), Rate::from_bps(3_600_000));
    }

    #[test]
    fn before_anything_is_delivered_the_rate_is_zero() {
        assert_eq!((Meter::new().rate(RTT, MSS), Meter::new().longest()), (Rate::ZERO, Rate::ZERO));
    }
}
