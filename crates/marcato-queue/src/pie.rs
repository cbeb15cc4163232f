//! PIE: drops or marks at random on arrival; a controller sets the probability by the queuing
//! latency.
//!
//! References: RFC 8033, whose names are used here (§4.1 random dropping, §4.2 drop probability,
//! §4.3 latency, §4.4 bursts, §5.1 ECN, §5.4 de-randomisation, §5.5 cap; Appendix A is the
//! pseudocode).
//!
//! # Deviations from RFC 8033
//!
//! - There is no timer. The drop probability is updated whenever a packet arrives or leaves, by one
//!   step for each `T_UPDATE` that has passed. Nothing else changes in between, so the result is
//!   that of a timer. One call makes at most 65 536 steps, which are 16 minutes of the default
//!   period; beyond that the clock jumps.
//! - The latency is measured by timestamps (§4.3), not by an estimate of the departure rate (§5.2).
//!   It is that of the packet that left last, or the time that the head has waited so far if that
//!   is longer; zero while the queue is empty.
//! - PIE is always active: §5.3 is optional and left out.
//! - Probabilities are in units of 2^-48.

use marcato_units::{Bytes, Duration, Stream, Time};

use crate::fifo::{Fifo, fifo_methods};
use crate::nanos::{Steps, nanos, signed};
use crate::{Backlog, Configuration, Counters, Discipline, Limit, LimitError, Packet, Ppm, Verdict};

/// Probabilities are in units of 2^-48.
const PROBABILITY_BITS: u32 = 48;
const ONE: i64 = 1 << PROBABILITY_BITS;
/// Upper bound of latency and period, in nanoseconds: 100 s.
const LONGEST_NANOS: i64 = 100_000_000_000;
/// Probabilities in millionths below which steps are divided by these powers of two. §4.2.
const SCALES: [(i64, u32); 6] = [(1, 11), (10, 9), (100, 7), (1000, 5), (10_000, 3), (100_000, 1)];

/// Configuration of a [`Pie`]. RFC 8033 names the parameters and their defaults in §4 and Appendix
/// A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PieConfig {
    /// Room of the buffer. A packet that finds it full is dropped.
    pub limit: Limit,
    /// `QDELAY_REF`: reference latency of the controller.
    pub qdelay_ref: Duration,
    /// `T_UPDATE`: period of the controller.
    pub t_update: Duration,
    /// `MAX_BURST`: time for which a queue may build up after an idle time before anything is
    /// dropped.
    pub max_burst: Duration,
    /// `alpha`: weight of the latency's distance from `qdelay_ref`, in thousandths per second and
    /// step.
    pub alpha: u32,
    /// `beta`: weight of the latency's change since the last step, in thousandths per second and
    /// step.
    pub beta: u32,
    /// Drop probability below which packets that are capable of ECN are marked instead of dropped
    /// (`mark_ecnth`). `None` never marks. §5.1.
    pub mark_ecnth: Option<Ppm>,
    /// `MEAN_PKTSIZE`: nothing is dropped while no more than two such packets wait. §4.1.
    pub mean_pktsize: Bytes,
}

impl Default for PieConfig {
    /// RFC 8033: 15 ms, 15 ms, 150 ms, 1/8 and 1 1/4 Hz; 1000 packets of 1500 bytes; drops.
    fn default() -> Self {
        Self {
            limit: Limit::Packets(1000),
            qdelay_ref: Duration::from_millis(15),
            t_update: Duration::from_millis(15),
            max_burst: Duration::from_millis(150),
            alpha: 125,
            beta: 1250,
            mark_ecnth: None,
            mean_pktsize: Bytes::new(1500),
        }
    }
}

impl PieConfig {
    /// `mark_ecnth` of RFC 8033 §5.1: 10 %.
    pub const MARK_ECNTH: Ppm = Ppm::new(100_000);
}

/// Error returned for a [`PieConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieError {
    /// The limit admits nothing.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The reference latency is zero.
    #[error("a qdelay_ref of 0 cannot be reached: set it to 15 ms")]
    ZeroReference,
    /// The period is zero.
    #[error("a t_update of 0 never ends: set it to 15 ms")]
    ZeroPeriod,
    /// A span is longer than a run can be.
    #[error("qdelay_ref, t_update and max_burst must be shorter than 100 s: set them to 15, 15 and 150 ms")]
    TooLong,
    /// A weight is so large that one step would overflow.
    #[error("alpha and beta must be at most 1000000 thousandths: set them to 125 and 1250")]
    TooHeavy,
}

/// Proportional integral controller enhanced.
#[derive(Clone, Debug)]
pub struct Pie<P> {
    limit: Limit,
    /// In nanoseconds, as all spans below.
    qdelay_ref: i64,
    t_update: u64,
    max_burst: u64,
    alpha: i64,
    beta: i64,
    mark_ecnth: Option<i64>,
    mean_pktsize: Bytes,
    stream: Stream,
    fifo: Fifo<P>,

    drop_prob: i64,
    /// Sum of the drop probabilities since the last drop.
    accu_prob: i64,
    qdelay_old: i64,
    burst_allowance: u64,
    /// Sojourn time of the packet that left last.
    sojourn: u64,
    steps: Steps,
}

impl<P: Packet> Pie<P> {
    /// Creates an empty queue, which draws from `stream`.
    ///
    /// # Errors
    /// [`PieError`] if the configuration cannot work.
    pub fn new(config: PieConfig, stream: Stream) -> Result<Self, PieError> {
        const MAX_SPAN: Duration = Duration::from_nanos(LONGEST_NANOS.unsigned_abs());
        const HEAVIEST: u32 = 1_000_000;
        let limit = config.limit.checked()?;
        if config.qdelay_ref.is_zero() {
            return Err(PieError::ZeroReference);
        }
        if config.t_update.is_zero() {
            return Err(PieError::ZeroPeriod);
        }
        if [config.qdelay_ref, config.t_update, config.max_burst].iter().any(|&span| span >= MAX_SPAN) {
            return Err(PieError::TooLong);
        }
        if config.alpha > HEAVIEST || config.beta > HEAVIEST {
            return Err(PieError::TooHeavy);
        }
        Ok(Self {
            limit,
            qdelay_ref: signed(nanos(config.qdelay_ref)),
            t_update: nanos(config.t_update),
            max_burst: nanos(config.max_burst),
            alpha: i64::from(config.alpha),
            beta: i64::from(config.beta),
            mark_ecnth: config.mark_ecnth.map(probability),
            mean_pktsize: config.mean_pktsize,
            stream,
            fifo: Fifo::default(),
            drop_prob: 0,
            accu_prob: 0,
            qdelay_old: 0,
            burst_allowance: nanos(config.max_burst),
            sojourn: 0,
            steps: Steps::every(nanos(config.t_update)),
        })
    }

    /// Present drop probability, rounded down to a millionth.
    pub fn drop_prob(&self) -> Ppm {
        let millionths = (i128::from(self.drop_prob) * 1_000_000) >> PROBABILITY_BITS;
        Ppm::new(u32::try_from(millionths).unwrap_or(0))
    }

    /// Makes the steps of the controller that are due at `now`.
    fn catch_up(&mut self, now: Time) {
        for at in self.steps.due(now) {
            self.calculate_drop_prob(at);
        }
    }

    /// Latency at `now`. §4.3.
    fn current_qdelay(&self, now: Time) -> i64 {
        let waited = |since: Time| now.as_nanos().saturating_sub(since.as_nanos());
        let qdelay = self.fifo.head_since().map_or(0, |since| waited(since).max(self.sojourn));
        // Longer ones count as this, so that no product overflows.
        signed(qdelay).min(LONGEST_NANOS)
    }

    /// One step of the controller. §4.2, §4.4, §5.5 and Appendix A.
    fn calculate_drop_prob(&mut self, now: Time) {
        let current_qdelay = self.current_qdelay(now);
        // alpha and beta are in thousandths per second, latencies in nanoseconds.
        let p = i128::from(self.alpha) * i128::from(current_qdelay - self.qdelay_ref)
            + i128::from(self.beta) * i128::from(current_qdelay - self.qdelay_old);
        let p = p * i128::from(ONE) / 1_000_000_000_000;
        let below = |millionths: i64| self.drop_prob < ONE / 1_000_000 * millionths;
        let scale = SCALES.iter().find(|(millionths, _)| below(*millionths)).map_or(0, |(_, scale)| *scale);
        // A step beyond one changes no more than one does.
        let one = i128::from(ONE);
        #[allow(clippy::cast_possible_truncation, reason = "it is at most one")]
        let mut p = (p / (1 << scale)).clamp(-one, one) as i64;
        if !below(100_000) {
            // §5.5: above a drop probability of 10 %, a step raises it by no more than 2 %.
            p = p.min(ONE / 50);
        }
        self.drop_prob = self.drop_prob.saturating_add(p);
        // §4.2: the probability decays exponentially while the queue is idle.
        if current_qdelay == 0 && self.qdelay_old == 0 {
            self.drop_prob -= self.drop_prob / 50;
        }
        self.drop_prob = self.drop_prob.clamp(0, ONE);
        // §4.4: a queue without drops and with low latency regains its burst allowance.
        let calm = |qdelay: i64| qdelay < self.qdelay_ref / 2;
        self.burst_allowance = if self.drop_prob == 0 && calm(current_qdelay) && calm(self.qdelay_old) {
            self.max_burst
        } else {
            self.burst_allowance.saturating_sub(self.t_update)
        };
        self.qdelay_old = current_qdelay;
    }

    /// Decides whether a packet that arrives now is dropped or marked. §4.1, §4.4 and §5.4.
    fn drop_early(&mut self) -> bool {
        if self.burst_allowance > 0 {
            return false;
        }
        // §4.1: no drops while latency and probability are low, or while hardly anything waits.
        let low = self.qdelay_old < self.qdelay_ref / 2 && self.drop_prob < ONE / 5;
        if low || self.fifo.backlog.bytes <= self.mean_pktsize * 2 {
            return false;
        }
        if self.drop_prob == 0 {
            self.accu_prob = 0;
        }
        self.accu_prob = self.accu_prob.saturating_add(self.drop_prob);
        // §5.4: no drops in quick succession, and a certain one once the probabilities sum up to
        // 8.5.
        if self.accu_prob < ONE / 100 * 85 {
            return false;
        }
        let u = signed(self.stream.next_u64() >> (u64::BITS - PROBABILITY_BITS));
        let drop = self.accu_prob >= ONE / 10 * 85 || u < self.drop_prob;
        if drop {
            self.accu_prob = 0;
        }
        drop
    }
}

/// Probability `of` in units of 2^-48.
fn probability(of: Ppm) -> i64 {
    signed(of.scaled(44) << (PROBABILITY_BITS - 44))
}

impl Configuration for PieConfig {
    type Error = PieError;
    type Queue<P: Packet + Send + 'static> = Pie<P>;

    fn build<P: Packet + Send + 'static>(&self, stream: Stream) -> Result<Pie<P>, PieError> {
        Pie::new(*self, stream)
    }

    fn is_random(&self) -> bool {
        true
    }

    fn marks(&self) -> bool {
        self.mark_ecnth.is_some()
    }

    fn limit(&self) -> Limit {
        self.limit
    }
}

impl<P: Packet> Discipline<P> for Pie<P> {
    fn enqueue_with(&mut self, now: Time, mut packet: P, _on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        self.catch_up(now);
        self.fifo.counters.enqueued.count(packet.len());
        if !self.limit.admits(self.fifo.backlog, packet.len()) {
            self.accu_prob = 0;
            return self.fifo.overflow(packet);
        }
        if self.drop_early() {
            let marks = self.mark_ecnth.is_some_and(|mark_ecnth| self.drop_prob < mark_ecnth);
            if !marks || !self.fifo.mark(&mut packet) {
                return self.fifo.drop_early(packet);
            }
        }
        self.fifo.push(now, packet)
    }

    fn dequeue_with(&mut self, now: Time, _on_drop: &mut dyn FnMut(P)) -> Option<P> {
        self.catch_up(now);
        let (since, packet) = self.fifo.pop()?;
        self.sojourn = now.as_nanos().saturating_sub(since.as_nanos());
        Some(packet)
    }

    fifo_methods!();
}
