//! Delivery rate samples: rate at which the path delivered the data of an acknowledgement.
//!
//! The method is that of Linux and of draft-cheng-iccrg-delivery-rate-estimation. Each segment
//! records how much had been delivered when it left. The rate is the amount delivered since,
//! divided by the longer of the times that its sending and its acknowledgement took.

use marcato_units::{Duration, Time};

/// Delivery state recorded in a segment when it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryStamp {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    sent_at: Time,
    app_limited: bool,
}

/// Delivery rate sample of one acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateSample {
    /// Bytes delivered in total when the most recently sent of the acknowledged segments left.
    pub prior_delivered: u64,
    /// Bytes delivered since then; 0 if the acknowledgement delivered nothing.
    pub delivered: u64,
    /// Duration of the sample. `None`: too short to be valid.
    pub interval: Option<Duration>,
    /// True if the application, not the path, limited the rate.
    pub is_app_limited: bool,
}

/// Estimator that counts deliveries and makes rate samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateEstimator {
    /// Bytes delivered in total.
    pub(crate) delivered: u64,
    /// Time of the latest delivery.
    pub(crate) delivered_at: Time,
    first_sent_at: Time,
    /// Total of delivered bytes up to which samples are limited by the application; 0 if they are
    /// not.
    app_limited: u64,
    candidate: Option<DeliveryStamp>,
}

impl RateEstimator {
    /// Returns the stamp for a segment that leaves; `idle` means that nothing else is in flight.
    pub(crate) fn on_sent(&mut self, now: Time, idle: bool) -> DeliveryStamp {
        if idle {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        DeliveryStamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            sent_at: now,
            app_limited: self.app_limited != 0,
        }
    }

    /// Counts a segment of `bytes` that was acknowledged or SACKed for the first time.
    pub(crate) fn on_delivered(&mut self, now: Time, bytes: u64, stamp: &DeliveryStamp) {
        self.delivered += bytes;
        self.delivered_at = now;
        // The sample uses the segment that was sent last.
        let newer =
            self.candidate.is_none_or(|c| (stamp.delivered, stamp.sent_at) >= (c.delivered, c.sent_at));
        if newer {
            self.candidate = Some(*stamp);
            self.first_sent_at = stamp.sent_at;
        }
    }

    /// Returns the sample of an acknowledgement after all its segments.
    pub(crate) fn sample(&mut self, now: Time, min_rtt: Option<Duration>) -> RateSample {
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let Some(stamp) = self.candidate.take() else { return RateSample::default() };
        let send = stamp.sent_at - stamp.first_sent_at;
        let ack = now - stamp.delivered_at;
        let interval = send.max(ack);
        // An interval below the minimum round trip comes from ACK compression.
        let believable = !interval.is_zero() && min_rtt.is_none_or(|min| interval >= min);
        RateSample {
            prior_delivered: stamp.delivered,
            delivered: self.delivered - stamp.delivered,
            interval: believable.then_some(interval),
            is_app_limited: stamp.app_limited,
        }
    }

    /// Marks samples as limited by the application until what is now in flight is delivered.
    pub(crate) fn mark_app_limited(&mut self, in_flight: u64) {
        self.app_limited = (self.delivered + in_flight).max(1);
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_steady_flow_shows_its_rate() {
        // A segment of 1000 bytes every 10 ms, acknowledged 50 ms later: 1000 B per 10 ms.
        let mut rate = RateEstimator::default();
        let mut stamps = std::collections::VecDeque::new();
        let mut last = RateSample::default();
        for step in 0..40 {
            let now = ms(10 * step);
            if step >= 5 {
                let stamp = stamps.pop_front().unwrap();
                rate.on_delivered(now, 1000, &stamp);
                last = rate.sample(now, Some(Duration::from_millis(50)));
            }
            stamps.push_back(rate.on_sent(now, stamps.is_empty()));
        }
        assert_eq!(last.interval, Some(Duration::from_millis(50)));
        assert_eq!(last.delivered, 5000);
    }

    #[test]
    fn a_sample_shorter_than_the_least_round_trip_is_ignored() {
        let mut rate = RateEstimator::default();
        let stamp = rate.on_sent(ms(0), true);
        rate.on_delivered(ms(20), 1000, &stamp);
        assert_eq!(rate.sample(ms(20), Some(Duration::from_millis(30))).interval, None);
    }

    #[test]
    fn the_application_limit_ends_when_the_flight_is_delivered() {
        let mut rate = RateEstimator::default();
        let first = rate.on_sent(ms(0), true);
        rate.mark_app_limited(1000);
        let second = rate.on_sent(ms(1), false);
        rate.on_delivered(ms(50), 1000, &first);
        assert!(!rate.sample(ms(50), None).is_app_limited);
        rate.on_delivered(ms(51), 1000, &second);
        assert!(rate.sample(ms(51), None).is_app_limited);
        assert!(!rate.is_app_limited());
    }
    /// draft-cheng-iccrg-delivery-rate-estimation-00 §3.3: the longer of the two spans, so that neither a burst nor compressed
    /// acknowledgements show more than the path carries.
    #[test]
    fn a_sample_lasts_as_long_as_sending_or_acknowledging_did() {
        for (sent_apart, acked_apart, interval) in [(10, 2, 40), (2, 10, 40), (10, 10, 40)] {
            let mut rate = RateEstimator::default();
            let stamps: Vec<_> = (0..5).map(|at| rate.on_sent(ms(at * sent_apart), at == 0)).collect();
            for (at, stamp) in (0..).zip(&stamps[..4]) {
                rate.on_delivered(ms(100 + at * acked_apart), 1000, stamp);
                rate.sample(ms(100 + at * acked_apart), None);
            }
            let now = ms(100 + 4 * acked_apart);
            rate.on_delivered(now, 1000, &stamps[4]);
            let sample = rate.sample(now, None);
            // Sent before anything was delivered: from the first segment, or from the time of the start.
            let expected = Duration::from_millis(interval).max(now - ms(0));
            assert_eq!(
                (sample.interval, sample.delivered),
                (Some(expected), 5000),
                "{sent_apart}, {acked_apart}"
            );
        }
        // In a steady flow both spans are those since the segment left.
        for (sent_apart, acked_apart) in [(10, 2), (2, 10)] {
            let mut rate = RateEstimator::default();
            let first = rate.on_sent(ms(0), true);
            rate.on_delivered(ms(50), 1000, &first);
            rate.sample(ms(50), None);
            let stamps: Vec<_> = (1..=4).map(|at| rate.on_sent(ms(50 + at * sent_apart), at == 1)).collect();
            let mut last = RateSample::default();
            for (at, stamp) in (1..=4).zip(&stamps) {
                let now = ms(200 + at * acked_apart);
                rate.on_delivered(now, 1000, stamp);
                last = rate.sample(now, None);
            }
            let since_idle = (200 + 4 * acked_apart) - (50 + sent_apart);
            assert_eq!(last.interval, Some(Duration::from_millis(since_idle.max(3 * sent_apart))));
        }
    }

    #[test]
    fn idle_time_belongs_to_no_sample() {
        let mut rate = RateEstimator::default();
        for start in [0, 10_000, 70_000] {
            let stamp = rate.on_sent(ms(start), true);
            rate.on_delivered(ms(start + 50), 1000, &stamp);
            let sample = rate.sample(ms(start + 50), None);
            assert_eq!((sample.interval, sample.delivered), (Some(Duration::from_millis(50)), 1000));
        }
    }
}
