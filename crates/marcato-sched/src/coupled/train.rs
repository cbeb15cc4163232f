//! Estimate of the bottleneck's rate from trains of packets, in slow start.

use marcato_units::{Bytes, Duration, Rate, Time};

/// Packets of a train: fewer while the first window is acknowledged, which is all there is then.
const FIRST: u64 = 4;
const LATER: u64 = 8;
/// Packets acknowledged until trains have to be longer.
const FIRST_WINDOW: u64 = 12;
/// Share of its own duration by which the round trip of a train has to grow, in percent. Less, and the
/// sender's own pace stretched it.
const STRETCHED: u32 = 15;

/// Detector of trains: packets that are acknowledged one after the other while their round trip grows,
/// so that the bottleneck was busy all the time. Their rate is its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trains {
    /// Beginning of the train: time, bytes delivered, round trip.
    begin: Option<(Time, Bytes, Duration)>,
    last: Duration,
    peak: Rate,
}

impl Trains {
    /// Takes note of an acknowledgement.
    pub(super) fn acknowledged(&mut self, now: Time, delivered: Bytes, rtt: Duration, mss: Bytes) {
        let begin = self.begin.filter(|_| rtt >= self.last);
        self.last = rtt;
        let Some((at, before, least)) = begin else {
            self.begin = Some((now, delivered, rtt));
            return;
        };
        let packets = if delivered <= mss * FIRST_WINDOW { FIRST } else { LATER };
        let (bytes, span) = (delivered - before, now.since(at));
        if bytes >= mss * packets
            && rtt.saturating_sub(least).saturating_mul(100) >= span.saturating_mul(STRETCHED)
        {
            self.peak = self.peak.max(Rate::from_bytes_over(bytes, span));
        }
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

    /// Trains of so many packets, acknowledged at an interval, whose round trip grows at each.
    fn peak(packets: u64, interval: u64, growth: u64) -> Rate {
        let mut trains = Trains::default();
        for number in 0..packets {
            let now = Time::ZERO + Duration::from_micros(number * interval);
            let rtt = Duration::from_micros(20_000 + number * growth);
            trains.acknowledged(now, MSS * (number + 20), rtt, MSS);
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
        assert_eq!(peak(8, 1000, 500), Rate::ZERO);
        assert_eq!(peak(20, 1000, 100), Rate::ZERO);
        assert_eq!(peak(20, 1000, 0), Rate::ZERO);
    }

    #[test]
    fn a_shorter_round_trip_begins_another_train() {
        let mut trains = Trains::default();
        for number in 0..40u64 {
            let now = Time::ZERO + Duration::from_millis(number);
            let rtt = Duration::from_micros(20_000 + number % 5 * 900);
            trains.acknowledged(now, MSS * (number + 20), rtt, MSS);
        }
        assert_eq!(trains.peak(), Rate::ZERO);
    }
}
