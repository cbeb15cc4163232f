//! The low layer's controller (PLT §3.1): the LCM.
//!
//! Packets of the low layer take only what best effort leaves over, so their window may grow and shrink fast without
//! harm. Time is divided into epochs. At the end of each, the LCM knows which share of what it heard of was lost,
//! averages it, and lets its window grow by a part of what was acknowledged while the average is below a [`Target`], or
//! shrinks it otherwise. A timeout shrinks it more.
//!
//! It is a state machine without clock: it is told what was sent, acknowledged and lost, and when. Epochs end whenever
//! it is told anything after their time, so that no timer is needed but one: when [`Lcm::room`] is nothing with
//! nothing in flight, at [`Lcm::next_epoch`] there is room again.
//!
//! What the paper leaves open, and how it is here:
//!
//! - The loss rate of an epoch is lost / (lost + acknowledged). The paper divides by the packets "for which the
//!   receiver had responded to", which by its words could leave out the lost ones; below 1 % the two are one.
//! - An epoch in which nothing was heard changes nothing: there is no loss rate in it.
//! - The packets that a timeout takes for lost count in p, if so configured ([`TimeoutLoss`]). With the paper's weight and mu
//!   the cut by gamma is then followed by seven by beta: the window falls to 0.52 of what it was.
//! - n counts bytes acknowledged, in packets: the same for full packets, and small ones do not inflate the window.
//! - The window grows only by epochs in which it limited sending, if so configured ([`Growth`]).
//! - "Until the LCM window size goes below one" (§4.2): then one packet may leave in each epoch, whatever is in
//!   flight. Each one acknowledged counts as ever, so ten of them bring the window back to one packet.
//! - The window is not bounded below, unless so configured ([`LcmConfig::least_window`]).
//!
//! ```
//! use marcato_sched::lowprio::{Lcm, LcmConfig};
//! use marcato_units::{Bytes, Time};
//!
//! let mut lcm = Lcm::new(LcmConfig { initial_window: Bytes::kb(100), ..LcmConfig::paper() })?;
//! // All of it is sent, and acknowledged 80 ms later.
//! lcm.on_sent(Time::ZERO, Bytes::kb(100), Bytes::kb(100));
//! assert_eq!(lcm.room(Bytes::kb(100)), Bytes::ZERO);
//! lcm.on_acked(Time::from_millis(80), Bytes::kb(100));
//! // The epoch lasts 100 ms from the first packet; then the window grows by a tenth of what was acknowledged.
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

/// How long an epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epoch {
    /// Always so long: 100 ms in PLT §4.1, at a round trip of 80 ms.
    Fixed(Duration),
    /// One smoothed round trip as last told by [`Lcm::on_rtt`] (PLT §3.1), at least 10 ms, and 100 ms until told.
    RoundTrip,
}

/// Which epochs let the window grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Growth {
    /// Those in which it limited sending. A window that is not used shows nothing about the path.
    WhenLimited,
    /// All: the formula of PLT §3.1 to the letter.
    Always,
}

/// Whether the packets that a timeout takes for lost enter the loss rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutLoss {
    /// They do: the paper's p counts "lost packets", and these are. A layer that the high one starves has lost everything,
    /// and stays cautious for a while when it is served again.
    Counted,
    /// They do not: the paper divides by packets that the receiver had responded to, and has gamma "apart from" the window
    /// control of the epochs (PLT §3.1).
    Apart,
}

/// How an [`Lcm`] shall behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LcmConfig {
    /// The part of the acknowledged bytes by which the window grows per epoch.
    pub alpha: Fraction,
    /// The window times this, after an epoch that lost too much.
    pub beta: Fraction,
    /// The window times this, after a timeout.
    pub gamma: Fraction,
    /// The rate of loss aimed at: the paper's mu, or found at run time.
    pub target: Target,
    /// The weight of the latest epoch in the mean loss rate P.
    pub weight: Fraction,
    /// How long an epoch is.
    pub epoch: Epoch,
    /// Which epochs let the window grow.
    pub growth: Growth,
    /// Whether timeouts enter P.
    pub timeout_loss: TimeoutLoss,
    /// The window at the beginning.
    pub initial_window: Bytes,
    /// The window never exceeds this: the receiver window of the control module.
    pub max_window: Bytes,
    /// The window never falls below this. Below one packet the LCM probes: see the [module](self).
    pub least_window: Bytes,
    /// The size of a full packet, as it counts against the window.
    pub packet: Bytes,
}

impl LcmConfig {
    /// As in PLT §4.1: alpha 0.1, beta 0.95, gamma 0.75, mu 0.5 %, epochs of 100 ms, packets of 1000 bytes, receiver
    /// window 3 · 250 Mbit/s · 80 ms. The paper does not give the weight (here 1/2), the initial window ("high enough
    /// to fill the pipe": here 2500 packets, which is its bandwidth times delay), [`Growth`] (when limited) or
    /// [`TimeoutLoss`] (counted).
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

    /// For paths of which nothing is known: epochs of one round trip, mu found at run time, an initial window of 100
    /// packets of 1200 bytes, no practical bound above, and one packet as the least, so that an engine that knows
    /// nothing of epochs always has room for a packet when nothing is in flight.
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
        if most < self.packet || most < self.initial_window || most < least || most > LARGEST {
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

/// No window is as large as this.
const LARGEST: Bytes = Bytes::new(1 << 48);
/// Of [`Epoch::RoundTrip`]: so long until a round trip is known, and never shorter than that.
const UNKNOWN: Duration = Duration::from_millis(100);
const SHORTEST: Duration = Duration::from_millis(10);

/// Why an LCM cannot be configured so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LcmConfigError {
    /// Nothing could be counted in packets.
    #[error("a packet has to have at least one byte")]
    ZeroPacket,
    /// The window would not grow, or faster than it doubles per epoch.
    #[error("an increase of {alpha} is not above 0 and at most 1: use 0.1 as the paper does")]
    Increase {
        /// The factor given.
        alpha: Fraction,
    },
    /// The window would not shrink, or vanish.
    #[error("a decrease to {factor} of the window is not above 0 and below 1")]
    Decrease {
        /// The factor given, beta or gamma.
        factor: Fraction,
    },
    /// The mean would never move, or overshoot.
    #[error("a weight of {weight} for the latest epoch is not above 0 and at most 1")]
    Weight {
        /// The weight given.
        weight: Fraction,
    },
    /// The window would always shrink, or never.
    #[error("a target loss rate of {mu} is not above 0 and below 1")]
    Target {
        /// The rate given.
        mu: Fraction,
    },
    /// The adapted target would lie below where it starts, or never be reached.
    #[error("a target limit of {limit} is not from {mu}, which it starts at, to below 1")]
    Limit {
        /// The limit given.
        limit: Fraction,
        /// The rate given.
        mu: Fraction,
    },
    /// Loss rates of no losses would be compared.
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
        /// The maximum given.
        most: Bytes,
    },
    /// Nothing could be sent in the first epoch.
    #[error("an initial window of {initial} holds no packet of {packet}")]
    InitialWindow {
        /// The window given.
        initial: Bytes,
        /// The size of a packet.
        packet: Bytes,
    },
}

/// What an [`Lcm`] has seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LcmCounters {
    /// Bytes sent.
    pub sent: Bytes,
    /// Bytes acknowledged.
    pub acked: Bytes,
    /// Bytes lost, by timeouts too.
    pub lost: Bytes,
    /// Epochs that have ended, those of silence included.
    pub epochs: u64,
    /// Epochs that made the window larger.
    pub increases: u64,
    /// Epochs that lost too much.
    pub decreases: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Packets sent as probes, the window being smaller than a packet.
    pub probes: u64,
}

/// An epoch that has ended, for charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochReport {
    /// When it ended.
    pub at: Time,
    /// Bytes acknowledged in it.
    pub acked: Bytes,
    /// Bytes lost in it.
    pub lost: Bytes,
    /// Its loss rate p.
    pub p: Fraction,
    /// The mean loss rate P.
    pub mean: Fraction,
    /// The target in force.
    pub target: Fraction,
    /// Whether the window limited sending.
    pub limited: bool,
    /// The window after it.
    pub window: Bytes,
}

/// The low layer's controller: see the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Lcm {
    config: LcmConfig,
    cwnd: Bytes,
    /// P.
    mean: Fraction,
    aim: Aim,
    srtt: Option<Duration>,
    /// When the epoch ends; `None` until the first packet is sent.
    ends: Option<Time>,
    acked: Bytes,
    lost: Bytes,
    limited: bool,
    /// Whether a packet may leave although the window holds none.
    probe: bool,
    report: Option<EpochReport>,
    counters: LcmCounters,
}

impl Lcm {
    /// An LCM that has sent nothing.
    ///
    /// # Errors
    ///
    /// If it cannot be configured so.
    pub fn new(config: LcmConfig) -> Result<Self, LcmConfigError> {
        config.check()?;
        Ok(Self {
            config,
            cwnd: config.initial_window,
            mean: Fraction::ZERO,
            aim: Aim::new(config.target, config.initial_window),
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

    /// How it was configured.
    pub const fn config(&self) -> &LcmConfig {
        &self.config
    }

    /// The congestion window: what may be in flight. May be less than a packet: see [`room`](Self::room).
    pub const fn window(&self) -> Bytes {
        self.cwnd
    }

    /// How much may be sent now, so much being in flight. Less than a packet is no room. A window below one packet
    /// leaves room for one packet per epoch, whatever is in flight.
    pub fn room(&self, in_flight: Bytes) -> Bytes {
        if self.cwnd >= self.config.packet {
            Bytes::new(self.cwnd.get().saturating_sub(in_flight.get()))
        } else if self.probe {
            self.config.packet
        } else {
            Bytes::ZERO
        }
    }

    /// The mean loss rate P.
    pub const fn loss_rate(&self) -> Fraction {
        self.mean
    }

    /// The loss rate aimed at now.
    pub fn target(&self) -> Fraction {
        self.aim.now()
    }

    /// What the path is taken to lose whatever the window is; nothing unless the target is [`Target::Adaptive`].
    pub fn path_loss(&self) -> Fraction {
        self.aim.base()
    }

    /// When the epoch under way ends; `None` until something was sent.
    pub const fn next_epoch(&self) -> Option<Time> {
        self.ends
    }

    /// What it has seen and done.
    pub const fn counters(&self) -> LcmCounters {
        self.counters
    }

    /// The latest epoch in which anything was heard, once.
    pub fn take_report(&mut self) -> Option<EpochReport> {
        self.report.take()
    }

    /// `bytes` were sent, which makes `in_flight` of the low layer.
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

    /// The window keeps something from being sent now. [`on_sent`](Self::on_sent) finds out by itself if it is told
    /// what is in flight; engines that only know whether the window or the application limited them say it here.
    pub fn on_limited(&mut self, now: Time) {
        self.on_epoch(now);
        self.limited = true;
    }

    /// `bytes` sent were acknowledged.
    pub fn on_acked(&mut self, now: Time, bytes: Bytes) {
        self.on_epoch(now);
        self.acked += bytes;
        self.counters.acked += bytes;
    }

    /// `bytes` sent are lost, by what was acknowledged after them.
    pub fn on_lost(&mut self, now: Time, bytes: Bytes) {
        self.on_epoch(now);
        self.lost += bytes;
        self.counters.lost += bytes;
    }

    /// Nothing was heard for so long that `bytes`, everything in flight, are taken for lost.
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

    /// The smoothed round trip is this: the length of epochs, if they follow it.
    pub fn on_rtt(&mut self, srtt: Duration) {
        self.srtt = Some(srtt);
    }

    /// Ends the epochs whose time is over. Everything that is told ends them too.
    pub fn on_epoch(&mut self, now: Time) {
        let Some(ends) = self.ends else { return };
        if now < ends {
            return;
        }
        self.close(ends);
        // Nothing was heard in all the epochs that have passed since.
        let epoch = self.epoch();
        let passed = Self::count(now.since(ends), epoch);
        self.counters.epochs += passed;
        self.ends = Some(ends + Duration::from_nanos(Self::nanos(epoch).saturating_mul(passed + 1)));
    }

    fn epoch(&self) -> Duration {
        match self.config.epoch {
            Epoch::Fixed(epoch) => epoch,
            Epoch::RoundTrip => self.srtt.map_or(UNKNOWN, |srtt| srtt.max(SHORTEST)),
        }
    }

    fn nanos(span: Duration) -> u64 {
        u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many whole epochs fit into a span.
    fn count(span: Duration, epoch: Duration) -> u64 {
        Self::nanos(span) / Self::nanos(epoch).max(1)
    }

    fn close(&mut self, at: Time) {
        self.counters.epochs += 1;
        self.probe = true;
        let (acked, lost) = (core::mem::take(&mut self.acked), core::mem::take(&mut self.lost));
        let limited = core::mem::take(&mut self.limited);
        if (acked + lost).is_zero() {
            return;
        }
        let p = Fraction::ratio(lost, acked + lost);
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

    /// One epoch, the `n`th, in which the whole window is used and so many packets are heard of.
    fn hear(lcm: &mut Lcm, n: u64, acked: u64, lost: u64) -> Bytes {
        let now = epoch(n - 1);
        lcm.on_sent(now, PACKET, lcm.window());
        lcm.on_acked(now, PACKET * acked);
        lcm.on_lost(now, PACKET * lost);
        lcm.on_epoch(epoch(n));
        lcm.window()
    }

    #[test]
    fn below_the_target_the_window_grows_by_a_tenth_of_what_was_acknowledged() {
        let mut lcm = lcm(100);
        assert_eq!(hear(&mut lcm, 1, 100, 0), Bytes::kb(110));
        assert_eq!(hear(&mut lcm, 2, 50, 0), Bytes::kb(115));
    }

    #[test]
    fn what_was_lost_below_the_target_adds_nothing_to_the_window() {
        let mut lcm = lcm(1000);
        // P is 0.25 %: n is the 995 acknowledged (PLT §3.1), not the 1000 heard of.
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

    /// The window over its first after a timeout that took all of it for lost, once epochs without loss let it grow again,
    /// and how many cuts there were.
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
    fn a_timeout_whose_losses_count_is_followed_by_seven_further_cuts_and_one_apart_by_none() {
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
        // The timeouts leave a P of one half, which takes seven epochs to fall below the target; then each probe
        // acknowledged adds a tenth of a packet.
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
            // Little is in flight, so that nothing else tells.
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

    /// The last value that is taken and the first that is not.
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
        // No window below a packet, even where nothing else is wrong.
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
