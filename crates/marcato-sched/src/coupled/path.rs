//! Path of a sender, as every mode of the governor needs it.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::config::CoupledConfig;
use super::meter::Meter;
use super::noise::Noise;
use super::round::Round;
use super::sample::Sample;

/// Period in which the sender looks for the least round trip.
const LOOK_EVERY: Duration = Duration::from_secs(8);
/// Periods from one deep look to the next: it leaves a gap that the next round trip fills by a burst.
const DEEP_PERIODS: u128 = 4;
/// Time after which the least round trip is doubted.
const BASE_OLD: Duration = Duration::from_secs(60);
/// Time after which others no longer explain a second longer path.
const RAISED_LATELY: Duration = Duration::from_secs(20);
/// Rounds below the least round trip that lower it, if rounds differ by noise.
const LOWER_ROUNDS: u32 = 3;
/// Acknowledgements over which their bytes are averaged.
const ACKS: u64 = 16;
/// Time without losses after which others in the queue are coupled as well.
const LOSSLESS: Duration = Duration::from_secs(5);

/// Look for the least round trip: the cap is cut for a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// By our own queue, and what its estimate may be wrong by.
    Shallow,
    /// By an eighth of the cap as well.
    Deep,
}

/// Measurements of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Least round trip, and the time at which it was last seen; `None` before the first.
    base: Option<(Duration, Time)>,
    /// Rounds below the least round trip, one after the other, and the greatest of them.
    lower: (u32, Duration),
    /// Time at which the least round trip was last raised.
    raised: Option<Time>,
    pub(super) noise: Noise,
    /// Set while rounds differ by no noise, so that each sample may lower the least round trip.
    is_quiet: bool,
    /// Queueing delay on the way back.
    pub(super) back: Duration,
    /// Bytes of an acknowledgement, on average, times [`ACKS`].
    acks: Bytes,
    /// Latest round trip.
    pub(super) rtt: Duration,
    pub(super) delivered: Bytes,
    pub(super) meter: Meter,
    /// Set if a packet was lost since the last round trip that was judged.
    pub(super) lost: bool,
    /// Number of the period in which the sender looked last.
    looked: Option<u128>,
    /// Set before the first look.
    is_new: bool,
    /// Time of the last loss.
    lost_at: Option<Time>,
    /// Time of the latest sample.
    pub(super) sampled_at: Time,
}

impl Path {
    pub(super) const fn new() -> Self {
        Self {
            base: None,
            lower: (0, Duration::ZERO),
            raised: None,
            noise: Noise::new(),
            is_quiet: true,
            back: Duration::ZERO,
            acks: Bytes::ZERO,
            rtt: Duration::ZERO,
            delivered: Bytes::ZERO,
            meter: Meter::new(),
            lost: false,
            lost_at: None,
            looked: None,
            is_new: true,
            sampled_at: Time::ZERO,
        }
    }

    /// Takes note of a sample. Returns the bytes delivered since the last one.
    pub(super) fn sample(&mut self, now: Time, sample: &Sample, mss: Bytes) -> Bytes {
        let newly = sample.delivered - self.delivered;
        self.delivered = sample.delivered;
        if let Some(rtt) = sample.rtt {
            self.rtt = rtt;
            self.back = sample.back;
            let least = rtt.saturating_sub(sample.back);
            if self.base.is_none_or(|(base, _)| self.is_quiet && least <= base) {
                self.renew(now, least);
            }
            self.acks = self.acks - self.acks / ACKS + newly;
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

    /// Takes note of a round, whose least round trip may lower the least of all.
    pub(super) fn round(&mut self, now: Time, round: &Round, config: &CoupledConfig) {
        let least = round.least;
        self.meter.round(now, round.rate);
        let level = self.noise.level(round.base, round.rate, config);
        self.is_quiet = level.is_zero();
        if round.urgent {
            self.noise.cap_changed();
        } else {
            self.noise.round(least);
        }
        if least > round.base + level {
            self.lower = (0, Duration::ZERO);
            return;
        }
        if least >= round.base {
            self.lower = (0, Duration::ZERO);
            self.renew(now, round.base);
            return;
        }
        self.lower = (self.lower.0 + 1, self.lower.1.max(least));
        if self.is_quiet || self.lower.0 >= LOWER_ROUNDS {
            self.renew(now, self.lower.1);
            self.lower = (0, Duration::ZERO);
        }
    }

    /// Raises the least round trip. Returns whether others explain that better than a longer path: it was raised
    /// before, only lately, and most of the rate is gone.
    pub(super) fn raise(&mut self, now: Time, base: Duration, rate: Rate) -> bool {
        let lately = self.raised.is_some_and(|raised| now.since(raised) < RAISED_LATELY);
        self.renew(now, base);
        self.raised = Some(now);
        lately && self.is_squeezed(rate)
    }

    /// Returns whether this rate is below half of the largest. Until then, others are no matter.
    pub(super) fn is_squeezed(&self, rate: Rate) -> bool {
        rate < Rate::from_bps(self.meter.longest().as_bps() / 2)
    }

    /// Bytes that the path holds without a queue for background data, at this rate.
    pub(super) fn product(&self, rate: Rate, base: Duration) -> Bytes {
        rate.bytes_in(base + self.back)
    }

    /// Bytes that our own data may keep in the queue.
    ///
    /// Acknowledgements of more than two packets come with as many that the receiver holds.
    pub(super) fn alpha(&self, rate: Rate, base: Duration, config: &CoupledConfig) -> Bytes {
        let held = if config.poll.is_zero() { self.acks / ACKS - config.mss * 2 } else { Bytes::ZERO };
        config.alpha(rate) + rate.bytes_in(self.noise.level(base, rate, config)) + held.min(config.mss * 16)
    }

    /// Returns the look for the least round trip that is due now: one in each period.
    ///
    /// All senders of one clock look at the same time: while they keep a queue together, none of them sees the path
    /// without it alone. A deep look also takes away what a sender keeps there that came when others already did.
    pub(super) fn look(&mut self, now: Time) -> Option<Look> {
        let period = now.since(Time::ZERO).as_nanos() / LOOK_EVERY.as_nanos();
        let before = self.looked.replace(period).unwrap_or(period);
        if period <= before {
            return None;
        }
        let is_first = core::mem::take(&mut self.is_new);
        Some(if is_first || period.is_multiple_of(DEEP_PERIODS) { Look::Deep } else { Look::Shallow })
    }

    /// Returns whether the least round trip was last seen so long ago that the path may have become longer.
    pub(super) fn is_old(&self, now: Time) -> bool {
        self.base.is_some_and(|(_, seen)| now.since(seen) > BASE_OLD)
    }

    /// Rate of delivery over the last round trip.
    pub(super) fn rate(&self, mss: Bytes) -> Rate {
        self.meter.rate(self.rtt, mss)
    }

    /// Queueing delay above which the queue is not our own.
    pub(super) fn threshold(&self, base: Duration, config: &CoupledConfig) -> Duration {
        let longest = self.meter.longest();
        let own = longest.transmission_time((self.alpha(longest, base, config) + config.mss * 3 / 2) * 3 / 2);
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
        let noise = self.noise.level(base, rate, config);
        let few = if self.lost_at.is_some_and(|at| now.since(at) < LOSSLESS) {
            rate.transmission_time(config.mss * 2).min(base / 5 + Duration::from_millis(2))
        } else {
            // Coupled flows beside ours keep as many packets each, and lose none: flows that fill the queue do.
            rate.transmission_time(config.alpha(rate) + config.mss * 3 / 2).min(base / 3)
        };
        (self.threshold(base, config) / 2).max(few) + noise
    }
}
