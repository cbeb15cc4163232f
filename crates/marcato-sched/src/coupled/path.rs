//! Path of a sender, as every mode of the governor needs it.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::config::CoupledConfig;
use super::meter::Meter;
use super::sample::Sample;

/// Time after which the least round trip has to be seen again.
const BASE_AGE: Duration = Duration::from_secs(10);
/// Time without losses after which others in the queue are coupled as well.
const LOSSLESS: Duration = Duration::from_secs(5);

/// Measurements of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Least round trip, and the time at which it was last seen; `None` before the first.
    base: Option<(Duration, Time)>,
    /// Latest round trip.
    pub(super) rtt: Duration,
    pub(super) delivered: Bytes,
    pub(super) meter: Meter,
    /// Set if a packet was lost since the last round trip that was judged.
    pub(super) lost: bool,
    /// Time of the last loss.
    lost_at: Option<Time>,
    /// Time of the latest sample.
    pub(super) sampled_at: Time,
}

impl Path {
    pub(super) const fn new() -> Self {
        Self {
            base: None,
            rtt: Duration::ZERO,
            delivered: Bytes::ZERO,
            meter: Meter::new(),
            lost: false,
            lost_at: None,
            sampled_at: Time::ZERO,
        }
    }

    /// Takes note of a sample. Returns the bytes delivered since the last one.
    pub(super) fn sample(&mut self, now: Time, sample: &Sample, mss: Bytes) -> Bytes {
        let newly = sample.delivered - self.delivered;
        self.delivered = sample.delivered;
        if let Some(rtt) = sample.rtt {
            self.rtt = rtt;
            if self.base.is_none_or(|(base, _)| rtt <= base) {
                self.renew(now, rtt);
            }
            self.meter.delivered(now, sample.delivered, rtt, mss);
        }
        newly
    }

    /// Takes note of the loss of a packet.
    pub(super) const fn packet_lost(&mut self, now: Time) {
        (self.lost, self.lost_at) = (true, Some(now));
    }

    /// Least round trip; `None` before the first.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base.map(|(base, _)| base)
    }

    /// Sets the least round trip.
    pub(super) const fn renew(&mut self, now: Time, base: Duration) {
        self.base = Some((base, now));
    }

    /// Returns whether the least round trip was last seen too long ago.
    pub(super) fn is_stale(&self, now: Time) -> bool {
        self.base.is_some_and(|(_, seen)| now.since(seen) > BASE_AGE)
    }

    /// Rate of delivery over the last round trip.
    pub(super) fn rate(&self, mss: Bytes) -> Rate {
        self.meter.rate(self.rtt, mss)
    }

    /// Queueing delay above which the queue is not our own.
    pub(super) fn threshold(&self, base: Duration, config: &CoupledConfig) -> Duration {
        let longest = self.meter.longest();
        let own = longest.transmission_time((config.alpha(longest) + config.mss * 3 / 2) * 3 / 2);
        own.max(base / 10)
    }

    /// Queueing delay in a test, at this rate, above which the queue is that of others.
    pub(super) fn left_over(
        &self,
        now: Time,
        rate: Rate,
        base: Duration,
        config: &CoupledConfig,
    ) -> Duration {
        let few = if self.lost_at.is_some_and(|at| now.since(at) < LOSSLESS) {
            rate.transmission_time(config.mss * 2).min(base / 5 + Duration::from_millis(2))
        } else {
            // Coupled flows beside ours keep as many packets each, and lose none: flows that fill the queue do.
            rate.transmission_time(config.alpha(rate) + config.mss * 3 / 2).min(base / 3)
        };
        (self.threshold(base, config) / 2).max(few)
    }
}
