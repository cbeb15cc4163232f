//! DualPI2: two queues with coupled marking, so that senders with a scalable response (L4S) see almost no delay beside
//! classic ones.
//!
//! References: RFC 9332, whose names are used here (§2.4 coupling, §2.5.1.1 classification, Appendix A pseudocode, A.2
//! overload). RFC 9331 §5.1 says which packets are of L4S: those with ECT(1) or CE.
//!
//! # Deviations from RFC 9332
//!
//! - There is no timer. The controller makes one step for each `t_update` that has passed whenever a packet arrives or
//!   leaves. Nothing else changes in between, so the result is that of a timer. One call makes at most 65 536 steps.
//! - Step and controller have the constants of the implementation in Linux: a step at 1 ms in place of the ramp from 0.8 to
//!   1.2 ms of Appendix A, `t_update` 16 ms, alpha 41/256 and beta 819/256 Hz.
//! - The scheduler is weighted round robin by bytes (§4.1.1.2): the classic queue gets its share while both wait.
//! - Packets of the L queue are marked by a recurrence, as in Appendix A; those of the C queue at random, so that flows do
//!   not fall into step.
//! - The last packet is never dropped: a link with something to send sends.
//! - Probabilities are in units of 2^-48.

use alloc::collections::VecDeque;

use marcato_units::{Duration, Stream, Time};
use marcato_wire::Ecn;

use crate::nanos::{Steps, nanos, signed};
use crate::{Backlog, Configuration, Counters, Discipline, Limit, LimitError, Packet, Verdict};

const PROBABILITY_BITS: u32 = 48;
const ONE: i64 = 1 << PROBABILITY_BITS;
/// Upper bound of latency and period, in nanoseconds: 100 s.
const LONGEST_NANOS: i64 = 100_000_000_000;
/// Largest weight of the controller, in 1/256 Hz.
const HEAVIEST: u32 = 1 << 20;
/// Parts of the link that the scheduler shares out.
const PARTS: u32 = 256;

/// Configuration of a [`DualPi2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DualPi2Config {
    /// Room of both queues together. A packet that finds it full is dropped.
    pub limit: Limit,
    /// `target`: queuing latency of the classic queue that the controller aims at.
    pub target: Duration,
    /// `Tupdate`: period of the controller.
    pub t_update: Duration,
    /// `alpha`: integral gain, in 1/256 Hz.
    pub alpha: u32,
    /// `beta`: proportional gain, in 1/256 Hz.
    pub beta: u32,
    /// `k`: coupling factor from the base probability to marks of the L queue.
    pub k: u32,
    /// Sojourn time from which on a packet of the L queue is marked.
    pub step: Duration,
    /// Share of the link that the classic queue gets at least while both wait, in 1/256.
    pub classic: u32,
}

impl Default for DualPi2Config {
    /// RFC 9332, Appendix A: 15 ms, `k` 2; Linux's 16 ms, 41/256, 819/256 Hz, 1 ms, 10 %, 10 000 packets.
    fn default() -> Self {
        Self {
            limit: Limit::Packets(10_000),
            target: Duration::from_millis(15),
            t_update: Duration::from_millis(16),
            alpha: 41,
            beta: 819,
            k: 2,
            step: Duration::from_millis(1),
            classic: 26,
        }
    }
}

/// Error returned for a [`DualPi2Config`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DualPi2Error {
    /// The limit admits nothing.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The target, the period or the step is zero.
    #[error("a target, t_update or step of 0 cannot be reached: set them to 15, 16 and 1 ms")]
    Zero,
    /// A span is longer than a run can be.
    #[error("target, t_update and step must be shorter than 100 s: set them to 15, 16 and 1 ms")]
    TooLong,
    /// A gain is so large that one step would overflow.
    #[error("alpha and beta must be at most 1048576 in 1/256 Hz: set them to 41 and 819")]
    TooHeavy,
    /// The coupling factor is out of range.
    #[error("a coupling factor of {0} does not balance L4S against classic flows: set it to 2 (1 to 16)")]
    Coupling(u32),
    /// The share leaves one of the queues nothing.
    #[error("a share of {0}/256 leaves one of the queues nothing: set it to 26 (1 to 255)")]
    Share(u32),
}

/// Queue of one kind of packets, with their times of arrival.
#[derive(Clone, Debug)]
struct Waiting<P> {
    packets: VecDeque<(Time, P)>,
    backlog: Backlog,
}

impl<P> Default for Waiting<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), backlog: Backlog::default() }
    }
}

impl<P: Packet> Waiting<P> {
    fn push(&mut self, now: Time, packet: P) {
        self.backlog.push(packet.len());
        self.packets.push_back((now, packet));
    }

    fn pop(&mut self) -> Option<(Time, P)> {
        let (since, packet) = self.packets.pop_front()?;
        self.backlog.pop(packet.len());
        Some((since, packet))
    }

    /// Time that the head has waited, in nanoseconds; 0 if nothing waits.
    fn waited(&self, now: Time) -> i64 {
        self.packets.front().map_or(0, |(since, _)| waited(*since, now))
    }
}

/// Coupled dual queue with a proportional integral controller.
#[derive(Clone, Debug)]
pub struct DualPi2<P> {
    config: DualPi2Config,
    /// In nanoseconds, as all spans below.
    target: i64,
    step: i64,
    stream: Stream,
    l4s: Waiting<P>,
    classic: Waiting<P>,
    counters: Counters,

    /// `p'`: base probability.
    base: i64,
    prev_q: i64,
    /// Likelihood that the L queue has gathered since its last mark.
    likelihood: i64,
    /// Bytes, times [`PARTS`], that the classic queue is behind its share.
    credit: i64,
    steps: Steps,
}

impl<P: Packet> DualPi2<P> {
    /// Creates two empty queues, which draw from `stream`.
    ///
    /// # Errors
    /// [`DualPi2Error`] if the configuration cannot work.
    pub fn new(config: DualPi2Config, stream: Stream) -> Result<Self, DualPi2Error> {
        config.limit.checked()?;
        let spans = [config.target, config.t_update, config.step];
        if spans.iter().any(|span| span.is_zero()) {
            return Err(DualPi2Error::Zero);
        }
        if spans.iter().any(|&span| span >= Duration::from_nanos(LONGEST_NANOS.unsigned_abs())) {
            return Err(DualPi2Error::TooLong);
        }
        if config.alpha > HEAVIEST || config.beta > HEAVIEST {
            return Err(DualPi2Error::TooHeavy);
        }
        if !(1..=16).contains(&config.k) {
            return Err(DualPi2Error::Coupling(config.k));
        }
        if !(1..PARTS).contains(&config.classic) {
            return Err(DualPi2Error::Share(config.classic));
        }
        Ok(Self {
            config,
            target: signed(nanos(config.target)),
            step: signed(nanos(config.step)),
            stream,
            l4s: Waiting::default(),
            classic: Waiting::default(),
            counters: Counters::default(),
            base: 0,
            prev_q: 0,
            likelihood: 0,
            credit: 0,
            steps: Steps::every(nanos(config.t_update)),
        })
    }

    /// Packets that wait in the L queue.
    pub const fn l4s_backlog(&self) -> Backlog {
        self.l4s.backlog
    }

    /// Probability, 0 to 1, at which packets of the L queue are marked because of the classic queue (`p_CL`).
    pub fn coupled_probability(&self) -> f64 {
        self.p_cl() as f64 / ONE as f64
    }

    /// Probability, 0 to 1, at which packets of the classic queue are marked or dropped (`p_C`).
    pub fn classic_probability(&self) -> f64 {
        self.p_c() as f64 / ONE as f64
    }

    /// `p_CL = k * p'`. §2.4.
    fn p_cl(&self) -> i64 {
        (self.base * i64::from(self.config.k)).min(ONE)
    }

    /// `p_C = p'^2`. §2.4.
    #[expect(clippy::cast_possible_truncation, reason = "the square of a probability is one")]
    fn p_c(&self) -> i64 {
        ((i128::from(self.base) * i128::from(self.base)) >> PROBABILITY_BITS) as i64
    }

    /// Returns whether marks alone do not slow the senders: both queues drop then. A.2.
    fn is_saturated(&self) -> bool {
        self.p_cl() >= ONE
    }

    /// Makes the steps of the controller that are due at `now`.
    fn catch_up(&mut self, now: Time) {
        for at in self.steps.due(now) {
            self.update(at);
        }
    }

    /// One step of the controller, by the longer of both queues' latencies. Appendix A and A.2, `dualpi2_update`.
    fn update(&mut self, now: Time) {
        let cur_q = self.classic.waited(now).max(self.l4s.waited(now)).min(LONGEST_NANOS);
        let delta = i128::from(self.config.alpha) * i128::from(cur_q - self.target)
            + i128::from(self.config.beta) * i128::from(cur_q - self.prev_q);
        // Gains are in 1/256 Hz, latencies in nanoseconds.
        let delta = delta * i128::from(ONE) / (256 * 1_000_000_000);
        // `p'` beyond 1/k would mark more than everything.
        let most = ONE / i64::from(self.config.k);
        let one = i128::from(ONE);
        #[expect(clippy::cast_possible_truncation, reason = "it is at most one")]
        let delta = delta.clamp(-one, one) as i64;
        self.base = (self.base + delta).clamp(0, most);
        self.prev_q = cur_q;
    }

    /// Returns whether the L queue sends next. Weighted round robin: the classic queue gets its share while both wait.
    fn picks_l4s(&mut self) -> bool {
        match (self.l4s.packets.front(), self.classic.packets.front()) {
            (Some((_, l4s)), Some((_, classic))) => {
                let picks = self.credit <= 0;
                let (share, len) =
                    (i64::from(self.config.classic), if picks { l4s.len() } else { classic.len() });
                let len = signed(len.get());
                self.credit += if picks { len * share } else { -len * (i64::from(PARTS) - share) };
                picks
            }
            (l4s, _) => {
                // A queue that had nothing to send gathers no credit.
                self.credit = 0;
                l4s.is_some()
            }
        }
    }

    /// Adds a likelihood, and returns true each time that a whole has come together. Appendix A, `recur`.
    fn recur(&mut self, likelihood: i64) -> bool {
        self.likelihood += likelihood;
        let is_due = self.likelihood >= ONE;
        if is_due {
            self.likelihood -= ONE;
        }
        is_due
    }

    fn draws(&mut self, probability: i64) -> bool {
        signed(self.stream.next_u64() >> (u64::BITS - PROBABILITY_BITS)) < probability
    }

    /// Returns whether packets wait behind the one that was taken.
    fn has_more(&self) -> bool {
        !(self.l4s.backlog + self.classic.backlog).is_empty()
    }

    fn mark(&mut self, packet: &mut P) {
        packet.mark_ce();
        self.counters.marked.count(packet.len());
    }

    /// Decides on a packet of the L queue, and returns whether it leaves. Appendix A and A.2.
    fn passes_l4s(&mut self, now: Time, since: Time, packet: &mut P) -> bool {
        if self.is_saturated() && self.has_more() {
            let p_c = self.p_c();
            if self.draws(p_c) {
                return false;
            }
        }
        // A queue with nothing behind this packet is not built by its senders: the link is slow.
        let is_over = waited(since, now) >= self.step && !self.l4s.backlog.is_empty();
        let p_l = if is_over { ONE } else { self.p_cl() };
        if self.recur(p_l) {
            self.mark(packet);
        }
        true
    }

    /// Decides on a packet of the classic queue, and returns whether it leaves.
    fn passes_classic(&mut self, packet: &mut P) -> bool {
        let p_c = self.p_c();
        if !self.draws(p_c) {
            return true;
        }
        let marks = packet.ecn().is_capable() && !self.is_saturated();
        if marks {
            self.mark(packet);
        }
        marks || !self.has_more()
    }
}

/// Nanoseconds from `since` to `now`.
fn waited(since: Time, now: Time) -> i64 {
    signed(now.as_nanos().saturating_sub(since.as_nanos()))
}

impl Configuration for DualPi2Config {
    type Error = DualPi2Error;
    type Queue<P: Packet + Send + 'static> = DualPi2<P>;

    fn build<P: Packet + Send + 'static>(&self, stream: Stream) -> Result<DualPi2<P>, DualPi2Error> {
        DualPi2::new(*self, stream)
    }

    fn is_random(&self) -> bool {
        true
    }

    fn marks(&self) -> bool {
        true
    }

    fn limit(&self) -> Limit {
        self.limit
    }
}

impl<P: Packet> Discipline<P> for DualPi2<P> {
    fn enqueue_with(&mut self, now: Time, packet: P, _on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        self.catch_up(now);
        self.counters.enqueued.count(packet.len());
        if !self.config.limit.admits(Discipline::<P>::backlog(self), packet.len()) {
            self.counters.overflow(&packet);
            return Verdict::Dropped(packet);
        }
        match packet.ecn() {
            // RFC 9331 §5.1.
            Ecn::Ect1 | Ecn::Ce => self.l4s.push(now, packet),
            Ecn::NotEct | Ecn::Ect0 => self.classic.push(now, packet),
        }
        Verdict::Queued
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        self.catch_up(now);
        loop {
            let picks_l4s = self.picks_l4s();
            let (since, mut packet) = if picks_l4s { self.l4s.pop() } else { self.classic.pop() }?;
            let passes = if picks_l4s {
                self.passes_l4s(now, since, &mut packet)
            } else {
                self.passes_classic(&mut packet)
            };
            if passes {
                self.counters.dequeued.count(packet.len());
                return Some(packet);
            }
            self.counters.dropped.count(packet.len());
            on_drop(packet);
        }
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (!Discipline::<P>::backlog(self).is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.l4s.backlog + self.classic.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
