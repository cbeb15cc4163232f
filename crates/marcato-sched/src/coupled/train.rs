//! Estimate of the bottleneck's rate from trains of packets, in slow start.

use marcato_units::{Bytes, Duration, Rate, Time};

/// Packets of a train: fewer while the first window is acknowledged, which is all there is then.
const FIRST: u64 = 4;
const LATER: u64 = 8;
/// Packets acknowledged, after what was sent before the first sample, until trains have to be longer.
const FIRST_WINDOW: u64 = 12;
/// Share of its own duration by which the round trip of a train has to grow, in percent. Less, and the
/// sender's own pace stretched it.
const STRETCHED: u32 = 15;

/// Part of its longest round trip by which one may be shorter within a train, if round trips are known only
/// roughly: the kernel tells a smoothed one, from which single ones follow.
const NOISE: u32 = 50;

/// Detector of trains: packets that are acknowledged one after the other while their round trip grows,
/// so that the bottleneck was busy all the time. Their rate is its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trains {
    /// Beginning of the train: time, bytes delivered, round trip.
    begin: Option<(Time, Bytes, Duration)>,
    /// Bytes delivered before the first window.
    before: Option<Bytes>,
    /// Longest round trip of the train.
    longest: Duration,
    /// Rate up to the latest acknowledgement, if the train is long enough.
    latest: Rate,
    peak: Rate,
}

impl Trains {
    /// Takes note of an acknowledgement, whose round trip is known exactly or roughly.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        delivered: Bytes,
        rtt: Duration,
        mss: Bytes,
        exact: bool,
    ) {
        // The first acknowledgement is of two packets of the window at most.
        let before_all = *self.before.get_or_insert(delivered - mss * 2);
        let noise = if exact { Duration::ZERO } else { self.longest / NOISE };
        let begin = self.begin.filter(|_| rtt >= self.longest - noise);
        let Some((at, before, least)) = begin else {
            (self.begin, self.longest, self.latest) = (Some((now, delivered, rtt)), rtt, Rate::ZERO);
            return;
        };
        // The last packet of a window is often acknowledged late, as the receiver waits for a second one (RFC 9000
        // §13.2.1). That is no queue, and the next round trip is shorter.
        self.peak = self.peak.max(self.latest);
        self.longest = self.longest.max(rtt);
        let packets = if delivered - before_all <= mss * FIRST_WINDOW { FIRST } else { LATER };
        let (bytes, span) = (delivered - before, now.since(at));
        if bytes >= mss * packets
            && rtt.saturating_sub(least).saturating_mul(100) >= span.saturating_mul(STRETCHED)
        {
            self.latest = Rate::from_bytes_over(bytes, span);
        }
    }

    /// Ends the train: the time of an acknowledgement does not tell the bottleneck's pace.
    pub(super) const fn interrupted(&mut self) {
        (self.begin, self.latest) = (None, Rate::ZERO);
    }

    /// Highest rate of a train; zero before the first.
    pub(super) const fn peak(&self) -> Rate {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes::new(1000);

    /// Trains of a connection whose first window has been acknowledged long ago, with a longer round trip.
    fn later() -> Trains {
        let mut trains = Trains::default();
        trains.acknowledged(Time::ZERO, MSS * 2, Duration::from_millis(90), MSS, true);
        trains
    }

    /// Trains of so many packets, acknowledged at an interval, whose round trip grows at each.
    fn peak(packets: u64, interval: u64, growth: u64) -> Rate {
        let exact = true;
        let mut trains = later();
        for number in 0..packets {
            let now = Time::ZERO + Duration::from_micros(number * interval);
            let rtt = Duration::from_micros(20_000 + number * growth);
            trains.acknowledged(now, MSS * (number + 20), rtt, MSS, exact);
        }
        trains.peak()
    }

    /// Peak after acknowledgements that were seen: time in µs, bytes, round trip in µs.
    fn peak_of(told: &[(u64, u64, u64)], mss: u64, exact: bool) -> Rate {
        let mut trains = Trains::default();
        for &(at, delivered, rtt) in told {
            let (now, rtt) = (Time::from_micros(at), Duration::from_micros(rtt));
            trains.acknowledged(now, Bytes::new(delivered), rtt, Bytes::new(mss), exact);
        }
        trains.peak()
    }

    #[test]
    fn a_train_behind_a_busy_bottleneck_has_its_rate() {
        // A packet each millisecond, sent twice as fast.
        assert_eq!(peak(20, 1000, 500), Rate::from_mbps(8));
    }

    #[test]
    fn a_few_packets_or_the_senders_own_pace_say_nothing() {
        assert_eq!(peak(9, 1000, 500), Rate::ZERO);
        assert_eq!(peak(20, 1000, 100), Rate::ZERO);
        assert_eq!(peak(20, 1000, 0), Rate::ZERO);
    }

    /// Acknowledgements as the kernel told them, at 2 Mbit/s and 100 ms.
    #[test]
    fn round_trips_that_are_known_roughly_do_not_end_a_train() {
        let told = [
            (11_600, 11_530, 116_050),
            (21_000, 13_341, 128_096),
            (25_900, 14_817, 132_508),
            (38_800, 17_713, 132_422),
            (49_700, 20_609, 139_832),
            (61_700, 23_505, 148_277),
            (75_600, 26_401, 158_058),
        ];
        let rate = peak_of(&told, 1448, false).as_bps();
        assert!((1_800_000..2_100_000).contains(&rate), "{rate}");
    }

    /// Acknowledgements over QUIC at 10 Mbit/s and 100 ms: the last one waited 25 ms for a packet that did not come.
    #[test]
    fn a_last_acknowledgement_that_waits_is_no_queue() {
        let told = [
            (207_068, 7_192, 105_103),
            (209_033, 9_592, 107_068),
            (210_902, 11_872, 108_936),
            (236_837, 13_011, 134_871),
            (307_381, 15_676, 102_234),
        ];
        assert_eq!(peak_of(&told, 1326, true), Rate::ZERO);
    }

    #[test]
    fn four_packets_of_the_first_window_are_a_train() {
        let mut trains = Trains::default();
        for (number, at) in [(0, 0), (2, 2), (4, 4), (6, 6)] {
            let (now, rtt) = (Time::from_millis(at), Duration::from_millis(20 + at));
            trains.acknowledged(now, MSS * (30 + number), rtt, MSS, false);
        }
        assert_eq!(trains.peak(), Rate::from_mbps(8));
    }

    #[test]
    fn a_shorter_round_trip_begins_another_train() {
        for (exact, shorter) in [(true, 9), (false, 900)] {
            let mut trains = later();
            for number in 0..40u64 {
                let now = Time::ZERO + Duration::from_millis(number);
                let rtt = Duration::from_micros(20_000 + number * 300 - number / 5 * (1500 + shorter));
                trains.acknowledged(now, MSS * (number + 20), rtt, MSS, exact);
            }
            assert_eq!(trains.peak(), Rate::ZERO);
        }
    }
}
