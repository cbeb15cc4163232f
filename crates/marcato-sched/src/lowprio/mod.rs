//! Congestion controller of the low layer (PLT §3.1): the LCM.
//!
//! Packets of the low layer use only the capacity left by best effort. Their window may therefore
//! grow and shrink fast without harm. Time is divided into epochs. At the end of each, the LCM
//! computes the share of its packets that was lost, and averages it. While the average is below a
//! [`Target`], the window grows by a part of the acknowledged bytes; otherwise it shrinks. A
//! timeout shrinks it more.
//!
//! The LCM is a state machine without a clock: the caller reports sent, acknowledged and lost bytes
//! with the time. Any report after the end of an epoch ends it. Only one timer is needed: if
//! [`Lcm::room`] is zero with nothing in flight, there is room again at [`Lcm::next_epoch`].
//!
//! Choices where the paper is silent:
//!
//! - The loss rate of an epoch is lost / (lost + acknowledged). The paper divides by the packets
//!   "for which the receiver had responded to", which could be read to exclude the lost ones. Below
//!   1 % both readings agree.
//! - An epoch without feedback changes nothing: it has no loss rate.
//! - The packets that a timeout declares lost count in p, if so configured ([`TimeoutLoss`]). With
//!   the paper's weight and mu the cut by gamma is then followed by seven by beta: the window falls
//!   to 0.52 of its size.
//! - n counts acknowledged bytes, in packets: equal for full packets, and small ones do not inflate
//!   the window.
//! - The window grows only by epochs in which it limited sending, if so configured ([`Growth`]).
//! - The LCM backs off "till either the LCM window size goes below one" or bandwidth is free
//!   (§4.2). With a window below one packet, one may be sent in each epoch, regardless of the
//!   packets in flight. Acknowledged probes count as usual, so ten of them bring the window back to
//!   one packet.
//! - The window has no lower bound, unless configured ([`LcmConfig::least_window`]).
//!
//! ```
//! use marcato_sched::lowprio::{Lcm, LcmConfig};
//! use marcato_units::{Bytes, Time};
//!
//! let mut lcm = Lcm::new(LcmConfig { initial_window: Bytes::kb(100), ..LcmConfig::paper() })?;
//! // The whole window is sent, and acknowledged 80 ms later.
//! lcm.on_sent(Time::ZERO, Bytes::kb(100), Bytes::kb(100));
//! assert_eq!(lcm.room(Bytes::kb(100)), Bytes::ZERO);
//! lcm.on_acked(Time::from_millis(80), Bytes::kb(100));
//! // The first epoch ends after 100 ms. The window grows by a tenth of the acknowledged bytes.
//! assert_eq!(lcm.window(), Bytes::kb(100));
//! lcm.on_epoch(Time::from_millis(100));
//! assert_eq!(lcm.window(), Bytes::kb(110));
//! # Ok::<(), marcato_sched::lowprio::LcmConfigError>(())
//! ```

mod fraction;
mod target;

use core::time::Duration;

use marcato_units::{Bytes, Time};
use thiserror::Error;

pub use fraction::Fraction;
use target::Aim;
pub use target::{Adaptive, Target};

/// Length of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epoch {
    /// Fixed length: 100 ms in PLT §4.1, at a round trip of 80 ms.
    Fixed(Duration),
    /// The smoothed round trip last passed to [`Lcm::on_rtt`] (PLT §3.1), at least 10 ms, and 100
    /// ms until the first.
    RoundTrip,
}

/// Epochs in which the window may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Growth {
    /// Those in which it limited sending. An unused window gives no information about the path.
    WhenLimited,
    /// All: the formula of PLT §3.1 to the letter.
    Always,
}

/// Treatment, in the loss rate, of packets that a timeout declares lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutLoss {
    /// They enter the loss rate: the paper's p counts "lost packets". A layer starved by the high
    /// one has lost everything, and stays cautious for a while when it is served again.
    Counted,
    /// They do not enter the loss rate. The paper divides by packets that the receiver had
    /// responded to, and has gamma "apart from" the window control of the epochs (PLT §3.1).
    Apart,
}

/// Configuration of an [`Lcm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LcmConfig {
    /// Part of the acknowledged bytes by which the window grows per epoch.
    pub alpha: Fraction,
    /// Factor of the window after an epoch with too much loss.
    pub beta: Fraction,
    /// Factor of the window after a timeout.
    pub gamma: Fraction,
    /// Target loss rate: the paper's mu, or found at run time.
    pub target: Target,
    /// Weight of the latest epoch in the mean loss rate P.
    pub weight: Fraction,
    /// Length of an epoch.
    pub epoch: Epoch,
    /// Epochs in which the window may grow.
    pub growth: Growth,
    /// Treatment of timeouts in P.
    pub timeout_loss: TimeoutLoss,
    /// Window at the start, unless [`least_window`](Self::least_window) is larger.
    pub initial_window: Bytes,
    /// Upper bound of the window: the receiver window of the control module.
    pub max_window: Bytes,
    /// Lower bound of the window. Below one packet the LCM probes: see the [module](self).
    pub least_window: Bytes,
    /// Size of a full packet, as it counts against the window.
    pub packet: Bytes,
}

impl LcmConfig {
    /// Returns the parameters of PLT §4.1: alpha 0.1, beta 0.95, gamma 0.75, mu 0.5 %, epochs of
    /// 100 ms, packets of 1000 bytes, receiver window 3 · 250 Mbit/s · 80 ms.
    ///
    /// The paper does not give these:
    ///
    /// - the weight: here 1/2;
    /// - the initial window, "high enough to fill the pipe": here 2500 packets, the bandwidth-delay
    ///   product;
    /// - [`Growth`], here when limited;
    /// - [`TimeoutLoss`], here counted.
    pub const fn paper() -> Self {
        Self {
            alpha: Fraction::per_mille(100),
            beta: Fraction::per_mille(950),
            gamma: Fraction::per_mille(750),
            target: Target::Fixed(Fraction::per_mille(5)),
            weight: Fraction::per_mille(500),
            epoch: Epoch::Fixed(Duration::from_millis(100)),
            growth: Growth::WhenLimited,
            timeout_loss: TimeoutLoss::Counted,
            initial_window: Bytes::new(2_500_000),
            max_window: Bytes::new(7_500_000),
            least_window: Bytes::ZERO,
            packet: Bytes::new(1000),
        }
    }

    /// Returns parameters for unknown paths: epochs of one round trip, mu found at run time, and no
    /// practical upper bound. The initial window is 100 packets of 1200 bytes. The lower bound is
    /// one packet, so that an engine without epochs always has room for a packet when nothing is in
    /// flight.
    pub const fn marcato() -> Self {
        Self {
            target: Target::Adaptive(Adaptive::new()),
            epoch: Epoch::RoundTrip,
            initial_window: Bytes::new(120_000),
            max_window: Bytes::new(1 << 40),
            least_window: Bytes::new(1200),
            packet: Bytes::new(1200),
            ..Self::paper()
        }
    }

    fn check(&self) -> Result<(), LcmConfigError> {
        let positive = |fraction: Fraction| fraction > Fraction::ZERO;
        let shrinks = |fraction: Fraction| positive(fraction) && fraction < Fraction::ONE;
        if self.packet.is_zero() {
            return Err(LcmConfigError::ZeroPacket);
        }
        if !positive(self.alpha) || self.alpha > Fraction::ONE {
            return Err(LcmConfigError::Increase { alpha: self.alpha });
        }
        if let Some(factor) = [self.beta, self.gamma].into_iter().find(|&factor| !shrinks(factor)) {
            return Err(LcmConfigError::Decrease { factor });
        }
        if !positive(self.weight) || self.weight > Fraction::ONE {
            return Err(LcmConfigError::Weight { weight: self.weight });
        }
        match self.target {
            Target::Fixed(mu) if !shrinks(mu) => return Err(LcmConfigError::Target { mu }),
            Target::Adaptive(rule) if !shrinks(rule.mu) => {
                return Err(LcmConfigError::Target { mu: rule.mu });
            }
            Target::Adaptive(rule) if rule.limit < rule.mu || rule.limit >= Fraction::ONE => {
                return Err(LcmConfigError::Limit { limit: rule.limit, mu: rule.mu });
            }
            Target::Adaptive(rule) if rule.enough == 0 => return Err(LcmConfigError::ZeroEnough),
            Target::Fixed(_) | Target::Adaptive(_) => {}
        }
        if self.epoch == Epoch::Fixed(Duration::ZERO) {
            return Err(LcmConfigError::ZeroEpoch);
        }
        let (least, most) = (self.least_window, self.max_window);
        if most < self.packet || most < self.initial_window || most < least || most > MAX_WINDOW {
            return Err(LcmConfigError::MaxWindow { most });
        }
        if self.initial_window < self.packet {
            return Err(LcmConfigError::InitialWindow { initial: self.initial_window, packet: self.packet });
        }
        Ok(())
    }
}

impl Default for LcmConfig {
    fn default() -> Self {
        Self::marcato()
    }
}

/// Largest valid window, above that of any path.
const MAX_WINDOW: Bytes = Bytes::new(1 << 48);
/// Length of an epoch of [`Epoch::RoundTrip`] before the first round-trip sample. `MIN_EPOCH` bounds
/// it later.
const UNKNOWN: Duration = Duration::from_millis(100);
const MIN_EPOCH: Duration = Duration::from_millis(10);

/// Error returned for an invalid configuration of an LCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LcmConfigError {
    /// The packet size is zero, so nothing could be counted in packets.
    #[error("a packet has to have at least one byte")]
    ZeroPacket,
    /// The window would not grow, or would more than double per epoch.
    #[error("an increase of {alpha} is not above 0 and at most 1: use 0.1 as the paper does")]
    Increase {
        /// Factor given.
        alpha: Fraction,
    },
    /// The window would not shrink, or vanish.
    #[error("a decrease to {factor} of the window is not above 0 and below 1")]
    Decrease {
        /// Factor given, beta or gamma.
        factor: Fraction,
    },
    /// The mean would never move, or overshoot.
    #[error("a weight of {weight} for the latest epoch is not above 0 and at most 1")]
    Weight {
        /// Weight given.
        weight: Fraction,
    },
    /// The window would always shrink, or never.
    #[error("a target loss rate of {mu} is not above 0 and below 1")]
    Target {
        /// Rate given.
        mu: Fraction,
    },
    /// The limit of the adapted target is below its start, or not below one.
    #[error("a target limit of {limit} is not from {mu}, which it starts at, to below 1")]
    Limit {
        /// Limit given.
        limit: Fraction,
        /// Rate given.
        mu: Fraction,
    },
    /// Loss rates would be compared without any losses.
    #[error("at least one lost packet is needed to compare loss rates")]
    ZeroEnough,
    /// Epochs would never end.
    #[error("an epoch has to be longer than zero")]
    ZeroEpoch,
    /// The bounds contradict each other.
    #[error(
        "a maximum window of {most} has to hold a packet, the initial and the least window, and be at most 2^48 B"
    )]
    MaxWindow {
        /// Maximum given.
        most: Bytes,
    },
    /// Nothing could be sent in the first epoch.
    #[error("an initial window of {initial} holds no packet of {packet}")]
    InitialWindow {
        /// Window given.
        initial: Bytes,
        /// Size of a packet.
        packet: Bytes,
    },
}

/// Counters of an [`Lcm`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LcmCounters {
    /// Bytes sent.
    pub sent: Bytes,
    /// Bytes acknowledged.
    pub acked: Bytes,
    /// Bytes lost, including those by timeouts.
    pub lost: Bytes,
    /// Epochs that have ended, including those without feedback.
    pub epochs: u64,
    /// Epochs after which the window grew.
    pub increases: u64,
    /// Epochs whose loss reached the target.
    pub decreases: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Packets sent as probes, while the window was smaller than a packet.
    pub probes: u64,
}

/// Report of an epoch that has ended, for charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochReport {
    /// End of the epoch.
    pub at: Time,
    /// Bytes acknowledged in it.
    pub acked: Bytes,
    /// Bytes lost in it.
    pub lost: Bytes,
    /// Its loss rate p.
    pub p: Fraction,
    /// Mean loss rate P after it.
    pub mean: Fraction,
    /// Target in force.
    pub target: Fraction,
    /// True if the window limited sending.
    pub limited: bool,
    /// Window after it.
    pub window: Bytes,
}

/// Controller of the low layer: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Lcm {
    config: LcmConfig,
    cwnd: Bytes,
    /// Mean loss rate P.
    mean: Fraction,
    aim: Aim,
    srtt: Option<Duration>,
    /// End of the current epoch; `None` until the first packet is sent.
    ends: Option<Time>,
    acked: Bytes,
    lost: Bytes,
    limited: bool,
    /// True if a packet may be sent although the window is smaller than one.
    probe: bool,
    report: Option<EpochReport>,
    counters: LcmCounters,
}

impl Lcm {
    /// Creates an LCM that has sent nothing.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(config: LcmConfig) -> Result<Self, LcmConfigError> {
        config.check()?;
        let cwnd = config.initial_window.max(config.least_window);
        Ok(Self {
            config,
            cwnd,
            mean: Fraction::ZERO,
            aim: Aim::new(config.target, cwnd),
            srtt: None,
            ends: None,
            acked: Bytes::ZERO,
            lost: Bytes::ZERO,
            limited: false,
            probe: true,
            report: None,
            counters: LcmCounters::default(),
        })
    }

    /// Configuration of this LCM.
    pub const fn config(&self) -> &LcmConfig {
        &self.config
    }

    /// Congestion window: bytes that may be in flight. It may be less than a packet: see
    /// [`room`](Self::room).
    pub const fn window(&self) -> Bytes {
        self.cwnd
    }

    /// Returns the bytes that may be sent now, given those in flight. Less than a packet is no
    /// room. A window below one packet leaves room for one packet per epoch, regardless of the
    /// bytes in flight.
    pub fn room(&self, in_flight: Bytes) -> Bytes {
        if self.cwnd >= self.config.packet {
            Bytes::new(self.cwnd.get().saturating_sub(in_flight.get()))
        } else if self.probe {
            self.config.packet
        } else {
            Bytes::ZERO
        }
    }

    /// Mean loss rate P.
    pub const fn loss_rate(&self) -> Fraction {
        self.mean
    }

    /// Target loss rate in force.
    pub fn target(&self) -> Fraction {
        self.aim.now()
    }

    /// Estimate of the path's own loss rate, independent of the window; zero unless the target is
    /// [`Target::Adaptive`].
    pub fn path_loss(&self) -> Fraction {
        self.aim.base()
    }

    /// End of the current epoch; `None` until the first packet is sent.
    pub const fn next_epoch(&self) -> Option<Time> {
        self.ends
    }

    /// Counters since the start.
    pub const fn counters(&self) -> LcmCounters {
        self.counters
    }

    /// Takes the report of the latest epoch with feedback. Each report is returned once.
    pub fn take_report(&mut self) -> Option<EpochReport> {
        self.report.take()
    }

    /// Records `bytes` sent, after which `in_flight` bytes of the low layer are in flight.
    pub fn on_sent(&mut self, now: Time, bytes: Bytes, in_flight: Bytes) {
        if self.ends.is_none() {
            // One timer, from the first packet of the low layer.
            self.ends = Some(now + self.epoch());
        }
        self.on_epoch(now);
        self.counters.sent += bytes;
        if self.cwnd < self.config.packet {
            self.counters.probes += u64::from(self.probe);
            self.probe = false;
        }
        self.limited |= self.room(in_flight) < self.config.packet;
    }

    /// Records that the window limits sending now. [`on_sent`](Self::on_sent) detects this itself
    /// if it gets the bytes in flight. Engines that only know whether the window or the application
    /// limits them call this.
    pub fn on_limited(&mut self, now: Time) {
        self.on_epoch(now);
        self.limited = true;
    }

    /// Records `bytes` acknowledged.
    pub fn on_acked(&mut self, now: Time, bytes: Bytes) {
        self.on_epoch(now);
        self.acked += bytes;
        self.counters.acked += bytes;
    }

    /// Records `bytes` lost, as detected by later acknowledgements.
    pub fn on_lost(&mut self, now: Time, bytes: Bytes) {
        self.on_epoch(now);
        self.lost += bytes;
        self.counters.lost += bytes;
    }

    /// Records a timeout, which declares `bytes`, everything in flight, lost.
    pub fn on_timeout(&mut self, now: Time, bytes: Bytes) {
        match self.config.timeout_loss {
            TimeoutLoss::Counted => self.on_lost(now, bytes),
            TimeoutLoss::Apart => {
                self.on_epoch(now);
                self.counters.lost += bytes;
            }
        }
        self.counters.timeouts += 1;
        // PLT §3.1: gamma, apart from the window control of the epochs.
        self.cwnd = self.config.gamma.of(self.cwnd).max(self.config.least_window);
    }

    /// Sets the smoothed round trip, which is the length of epochs if they follow it.
    pub fn on_rtt(&mut self, srtt: Duration) {
        self.srtt = Some(srtt);
    }

    /// Ends the epochs that are over at `now`. Every other report with a time does so, too.
    pub fn on_epoch(&mut self, now: Time) {
        let Some(ends) = self.ends else { return };
        if now < ends {
            return;
        }
        self.close(ends);
        // All epochs that have passed since were without feedback.
        let epoch = self.epoch();
        let passed = Self::count(now.since(ends), epoch);
        self.counters.epochs += passed;
        self.ends = Some(ends + Duration::from_nanos(Self::nanos(epoch).saturating_mul(passed + 1)));
    }

    fn epoch(&self) -> Duration {
        match self.config.epoch {
            Epoch::Fixed(epoch) => epoch,
            Epoch::RoundTrip => self.srtt.map_or(UNKNOWN, |srtt| srtt.max(MIN_EPOCH)),
        }
    }

    fn nanos(span: Duration) -> u64 {
        u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the number of whole epochs in a span.
    fn count(span: Duration, epoch: Duration) -> u64 {
        Self::nanos(span) / Self::nanos(epoch).max(1)
    }

    fn close(&mut self, at: Time) {
        self.counters.epochs += 1;
        self.probe = true;
        let (acked, lost) = (core::mem::take(&mut self.acked), core::mem::take(&mut self.lost));
        let limited = core::mem::take(&mut self.limited);
        // Without feedback the epoch has no loss rate, so P and the window stay.
        if (acked + lost).is_zero() {
            return;
        }
        let p = Fraction::ratio(lost, acked + lost);
        // PLT §3.1: P is an exponential moving average of p.
        self.mean = self.mean.moved_to(p, self.config.weight);
        // PLT §3.1: cwnd = alpha n + cwnd if P < mu, beta cwnd otherwise.
        let target = self.aim.now();
        if self.mean < target {
            if limited || self.config.growth == Growth::Always {
                let grown = (self.cwnd + self.config.alpha.of(acked)).min(self.config.max_window);
                self.counters.increases += u64::from(grown > self.cwnd);
                self.cwnd = grown;
            }
        } else {
            self.counters.decreases += 1;
            self.cwnd = self.config.beta.of(self.cwnd).max(self.config.least_window);
        }
        self.aim.on_epoch(self.cwnd, acked, lost, self.config.packet);
        self.report =
            Some(EpochReport { at, acked, lost, p, mean: self.mean, target, limited, window: self.cwnd });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes::kb(1);

    fn lcm(packets: u64) -> Lcm {
        Lcm::new(LcmConfig { initial_window: PACKET * packets, ..LcmConfig::paper() }).unwrap()
    }

    fn epoch(n: u64) -> Time {
        Time::from_millis(100 * n)
    }

    /// Runs the `n`th epoch, in which the whole window is used and feedback for these packets
    /// arrives.
    fn hear(lcm: &mut Lcm, n: u64, acked: u64, lost: u64) -> Bytes {
        let now = epoch(n - 1);
        lcm.on_sent(now, PACKET, lcm.window());
        lcm.on_acked(now, PACKET * acked);
        lcm.on_lost(now, PACKET * lost);
        lcm.on_epoch(epoch(n));
        lcm.window()
    }

    #[test]
    fn below_the_target_the_window_grows_by_a_tenth_of_acked_bytes() {
        let mut lcm = lcm(100);
        assert_eq!(hear(&mut lcm, 1, 100, 0), Bytes::kb(110));
        assert_eq!(hear(&mut lcm, 2, 50, 0), Bytes::kb(115));
    }

    #[test]
    fn bytes_lost_below_the_target_add_nothing_to_the_window() {
        let mut lcm = lcm(1000);
        // P is 0.25 %: n is the 995 acknowledged (PLT §3.1), not all 1000 with feedback.
        assert_eq!(hear(&mut lcm, 1, 995, 5), Bytes::new(1_099_500));
    }

    #[test]
    fn the_mean_loss_rate_decides_not_the_latest() {
        let mut lcm = lcm(1000);
        // 2 % in one epoch: P is 1 %, then 0.5 %, which is not below the target, then 0.25 %.
        assert_eq!(hear(&mut lcm, 1, 980, 20), Bytes::kb(950));
        assert_eq!(lcm.loss_rate(), Fraction::ratio(Bytes::new(1), Bytes::new(100)));
        assert_eq!(hear(&mut lcm, 2, 1000, 0), Bytes::new(902_500));
        assert_eq!(hear(&mut lcm, 3, 1000, 0), Bytes::new(1_002_500));
        assert_eq!((lcm.counters().decreases, lcm.counters().increases), (2, 1));
    }

    #[test]
    fn a_timeout_takes_a_quarter_at_once() {
        let mut lcm = lcm(100);
        lcm.on_sent(Time::ZERO, Bytes::kb(100), Bytes::kb(100));
        lcm.on_timeout(Time::from_millis(50), Bytes::kb(100));
        assert_eq!(lcm.window(), Bytes::kb(75));
        lcm.on_epoch(epoch(1));
        assert_eq!(lcm.window(), Bytes::new(71_250));
        assert_eq!(lcm.loss_rate(), Fraction::per_mille(500));
    }

    /// Runs epochs without loss after a timeout that declared the whole window lost, until the
    /// window grows again. Returns the window relative to its start, and the number of cuts.
    fn after_a_timeout(timeout_loss: TimeoutLoss) -> (f64, u64) {
        let config = LcmConfig { timeout_loss, ..LcmConfig::paper() };
        let mut lcm = Lcm::new(config).unwrap();
        let first = lcm.window();
        lcm.on_sent(Time::ZERO, first, first);
        lcm.on_timeout(Time::from_millis(50), first);
        let mut least = lcm.window();
        for n in 1..20 {
            lcm.on_epoch(epoch(n));
            least = least.min(lcm.window());
            lcm.on_sent(epoch(n), PACKET, lcm.window());
            lcm.on_acked(epoch(n), PACKET * 100);
        }
        (least.get() as f64 / first.get() as f64, lcm.counters().decreases)
    }

    #[test]
    fn seven_cuts_follow_a_timeout_only_if_its_losses_are_counted() {
        let (counted, cuts) = after_a_timeout(TimeoutLoss::Counted);
        // 0.75 * 0.95^7
        assert!((counted - 0.5238).abs() < 1e-3, "{counted}");
        assert_eq!(cuts, 7);
        assert_eq!(after_a_timeout(TimeoutLoss::Apart), (0.75, 0));
    }

    #[test]
    fn an_epoch_that_the_window_did_not_limit_does_not_let_it_grow() {
        let mut lcm = lcm(100);
        lcm.on_sent(Time::ZERO, Bytes::kb(99), Bytes::kb(99));
        lcm.on_acked(Time::ZERO, Bytes::kb(99));
        lcm.on_epoch(epoch(1));
        assert_eq!(lcm.window(), Bytes::kb(100));
        let always =
            LcmConfig { growth: Growth::Always, initial_window: Bytes::kb(100), ..LcmConfig::paper() };
        let mut lcm = Lcm::new(always).unwrap();
        lcm.on_sent(Time::ZERO, Bytes::kb(99), Bytes::kb(99));
        lcm.on_acked(Time::ZERO, Bytes::kb(99));
        lcm.on_epoch(epoch(1));
        assert_eq!(lcm.window(), Bytes::new(109_900));
    }

    #[test]
    fn silence_changes_nothing_and_keeps_the_clock() {
        let mut lcm = lcm(100);
        lcm.on_sent(Time::from_millis(30), PACKET, PACKET);
        assert_eq!(lcm.next_epoch(), Some(Time::from_millis(130)));
        lcm.on_epoch(Time::from_millis(12_345));
        assert_eq!((lcm.window(), lcm.counters().epochs), (Bytes::kb(100), 123));
        assert_eq!(lcm.next_epoch(), Some(Time::from_millis(12_430)));
        assert_eq!(lcm.take_report(), None);
    }

    #[test]
    fn below_one_packet_it_probes_once_per_epoch_and_comes_back() {
        let mut lcm = lcm(1);
        lcm.on_sent(Time::ZERO, PACKET, PACKET);
        lcm.on_timeout(Time::ZERO, PACKET);
        assert_eq!(lcm.window(), Bytes::new(750));
        assert_eq!(lcm.room(PACKET * 5), PACKET, "the window has not been used as a probe yet");
        lcm.on_sent(Time::ZERO, PACKET, PACKET);
        assert_eq!(lcm.room(Bytes::ZERO), Bytes::ZERO);
        let mut n = 0;
        // The timeouts leave a P of one half, which takes seven epochs to fall below the target.
        // Then each acknowledged probe adds a tenth of a packet.
        while lcm.window() < PACKET {
            n += 1;
            lcm.on_epoch(epoch(n));
            if lcm.window() < PACKET {
                assert_eq!(lcm.room(PACKET * 3), PACKET, "one packet per epoch, whatever is in flight");
            }
            lcm.on_sent(epoch(n), PACKET, PACKET);
            lcm.on_acked(epoch(n), PACKET);
        }
        assert!((10..25).contains(&n), "{n}");
        assert!(lcm.room(Bytes::ZERO) >= PACKET);
    }

    #[test]
    fn one_packet_becomes_a_pipe_of_2500_in_82_epochs() {
        let mut lcm = lcm(1);
        let mut epochs = 0;
        while lcm.window() < PACKET * 2500 {
            epochs += 1;
            let now = epoch(epochs - 1);
            lcm.on_sent(now, lcm.window(), lcm.window());
            lcm.on_acked(now, lcm.window());
            lcm.on_epoch(epoch(epochs));
        }
        // ln 2500 / ln 1.1 = 82.1
        assert_eq!(epochs, 83);
    }

    #[test]
    fn an_epoch_of_one_round_trip_follows_it() {
        let mut lcm = Lcm::new(LcmConfig { epoch: Epoch::RoundTrip, ..LcmConfig::paper() }).unwrap();
        lcm.on_rtt(Duration::from_millis(40));
        lcm.on_sent(Time::ZERO, PACKET, PACKET);
        assert_eq!(lcm.next_epoch(), Some(Time::from_millis(40)));
        lcm.on_rtt(Duration::from_micros(3));
        lcm.on_epoch(Time::from_millis(40));
        assert_eq!(lcm.next_epoch(), Some(Time::from_millis(50)), "never shorter than 10 ms");
    }

    #[test]
    fn an_epoch_is_reported_once_and_everything_sent_is_counted() {
        let mut lcm = lcm(100);
        let before = lcm.window();
        lcm.on_sent(Time::ZERO, PACKET * 3, PACKET * 3);
        lcm.on_sent(Time::ZERO, PACKET, PACKET * 4);
        lcm.on_acked(Time::from_millis(1), PACKET * 3);
        lcm.on_lost(Time::from_millis(1), PACKET);
        assert_eq!(lcm.take_report(), None);
        lcm.on_epoch(epoch(1));
        let report = lcm.take_report().unwrap();
        assert_eq!((report.at, report.acked, report.lost), (epoch(1), PACKET * 3, PACKET));
        assert_eq!((report.p, report.limited), (Fraction::per_mille(250), false));
        assert_eq!(report.window, Fraction::per_mille(950).of(before));
        assert_eq!(lcm.take_report(), None);
        assert_eq!(lcm.counters().sent, PACKET * 4);
    }

    #[test]
    fn an_engine_that_says_that_the_window_limited_it_makes_it_grow() {
        for limited in [false, true] {
            let mut lcm = lcm(100);
            // Little is in flight, so this call is the only sign of the limit.
            lcm.on_sent(Time::ZERO, PACKET, PACKET);
            if limited {
                lcm.on_limited(Time::ZERO);
            }
            lcm.on_acked(Time::from_millis(1), PACKET * 10);
            lcm.on_epoch(epoch(1));
            assert_eq!(lcm.window(), PACKET * if limited { 101 } else { 100 });
            assert_eq!(lcm.counters().increases, u64::from(limited));
        }
    }

    #[test]
    fn probes_are_counted_and_there_is_one_in_each_epoch() {
        let mut lcm = lcm(1);
        lcm.on_timeout(Time::ZERO, PACKET);
        assert!(lcm.window() < PACKET);
        for n in 1..=3 {
            assert_eq!(lcm.room(PACKET), PACKET);
            lcm.on_sent(epoch(n - 1), PACKET, PACKET);
            assert_eq!((lcm.room(Bytes::ZERO), lcm.counters().probes), (Bytes::ZERO, n));
            lcm.on_epoch(epoch(n));
        }
    }

    #[test]
    fn an_epoch_at_the_largest_window_is_no_increase() {
        let config = LcmConfig { initial_window: PACKET * 10, max_window: PACKET * 10, ..LcmConfig::paper() };
        let mut lcm = Lcm::new(config).unwrap();
        lcm.on_sent(Time::ZERO, PACKET * 10, PACKET * 10);
        lcm.on_acked(Time::from_millis(1), PACKET * 10);
        lcm.on_epoch(epoch(1));
        assert_eq!((lcm.window(), lcm.counters().increases), (PACKET * 10, 0));
    }

    #[test]
    fn timeouts_count_what_they_take_for_lost() {
        for timeout_loss in [TimeoutLoss::Counted, TimeoutLoss::Apart] {
            let mut lcm = Lcm::new(LcmConfig { timeout_loss, ..LcmConfig::paper() }).unwrap();
            for k in 1..=2 {
                lcm.on_timeout(Time::from_millis(k), PACKET * 5);
                assert_eq!((lcm.counters().lost, lcm.counters().timeouts), (PACKET * 5 * k, k));
            }
        }
    }

    /// The last valid value and the first invalid one.
    #[test]
    fn bounds_of_configurations_are_where_their_messages_say() {
        let paper = LcmConfig::paper();
        let above_one = Fraction::per_mille(1001);
        let adaptive = |change: fn(Adaptive) -> Adaptive| LcmConfig {
            target: Target::Adaptive(change(Adaptive::new())),
            ..paper
        };
        let windows = |initial, least, most| LcmConfig {
            initial_window: Bytes::new(initial),
            least_window: Bytes::new(least),
            max_window: Bytes::new(most),
            ..paper
        };
        let pairs = [
            (LcmConfig { alpha: Fraction::ONE, ..paper }, LcmConfig { alpha: above_one, ..paper }),
            (LcmConfig { weight: Fraction::ONE, ..paper }, LcmConfig { weight: above_one, ..paper }),
            (
                LcmConfig { beta: Fraction::per_mille(999), ..paper },
                LcmConfig { beta: Fraction::ONE, ..paper },
            ),
            (adaptive(|rule| rule), adaptive(|rule| Adaptive { mu: Fraction::ZERO, ..rule })),
            (
                adaptive(|rule| Adaptive { limit: rule.mu, ..rule }),
                adaptive(|rule| Adaptive { limit: Fraction::per_mille(4), ..rule }),
            ),
            (
                adaptive(|rule| Adaptive { limit: Fraction::per_mille(999), ..rule }),
                adaptive(|rule| Adaptive { limit: Fraction::ONE, ..rule }),
            ),
            (
                adaptive(|rule| Adaptive { enough: 1, ..rule }),
                adaptive(|rule| Adaptive { enough: 0, ..rule }),
            ),
            (windows(1000, 0, 1000), windows(1000, 0, 999)),
            (windows(5000, 0, 5000), windows(5001, 0, 5000)),
            (windows(1000, 5000, 5000), windows(1000, 5001, 5000)),
            (windows(1000, 0, 1 << 48), windows(1000, 0, (1 << 48) + 1)),
        ];
        for (taken, refused) in pairs {
            assert!(Lcm::new(taken).is_ok(), "{taken:?}");
            assert!(Lcm::new(refused).is_err(), "{refused:?}");
        }
        // No window below a packet, even if everything else is valid.
        assert_eq!(
            Lcm::new(windows(999, 0, 5000)).err(),
            Some(LcmConfigError::InitialWindow { initial: Bytes::new(999), packet: Bytes::kb(1) })
        );
    }

    #[test]
    fn the_preset_for_unknown_paths_is_as_documented() {
        let preset = LcmConfig::marcato();
        assert_eq!((preset.target, preset.epoch), (Target::Adaptive(Adaptive::new()), Epoch::RoundTrip));
        assert_eq!((preset.packet, preset.least_window), (Bytes::new(1200), Bytes::new(1200)));
        assert_eq!((preset.initial_window, preset.max_window), (Bytes::new(120_000), Bytes::new(1 << 40)));
    }

    #[test]
    fn contradictory_configurations_are_refused() {
        let paper = LcmConfig::paper();
        let bad = [
            LcmConfig { alpha: Fraction::ZERO, ..paper },
            LcmConfig { beta: Fraction::ONE, ..paper },
            LcmConfig { gamma: Fraction::ZERO, ..paper },
            LcmConfig { weight: Fraction::ZERO, ..paper },
            LcmConfig { target: Target::Fixed(Fraction::ONE), ..paper },
            LcmConfig {
                target: Target::Adaptive(Adaptive { limit: Fraction::ZERO, ..Adaptive::new() }),
                ..paper
            },
            LcmConfig { epoch: Epoch::Fixed(Duration::ZERO), ..paper },
            LcmConfig { packet: Bytes::ZERO, ..paper },
            LcmConfig { max_window: Bytes::kb(2000), ..paper },
            LcmConfig { initial_window: Bytes::new(999), ..paper },
        ];
        for config in bad {
            assert!(Lcm::new(config).is_err(), "{config:?}");
        }
        assert!(Lcm::new(LcmConfig::marcato()).is_ok());
    }
}
