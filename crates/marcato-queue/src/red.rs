//! RED: marks or drops at random, with a probability that grows with the average queue.
//!
//! References: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance"
//! (1993), whose names are used here (Fig. 2, §4, §7 and §11); Floyd, "Recommendation on using the
//! gentle variant of RED" (2000); RFC 2309 §3; RFC 3168 §7 (marks); RFC 7141 §2.2 (no preference
//! for small packets).
//!
//! # Deviations from the paper
//!
//! - Above `max_th` the paper signals to every packet. With `gentle` the probability rises from
//!   `max_p` to 1 between `max_th` and twice that. Above it every packet is dropped.
//! - A packet is marked only while `avg` is below `max_th`; above, ECN-capable packets are dropped
//!   as well (RFC 3168 §7).
//! - `count` begins at 0 after a signal, as in §7: then gaps are uniform from 1 to 1/p_b. In Fig. 2
//!   it begins at 1.
//! - The probability does not depend on the packet's size (RFC 7141 §2.2). The paper leaves that
//!   open (§4).
//! - `avg` is kept in units of 2^-16 packets or bytes, probabilities in units of 2^-32.

use marcato_units::{Bytes, Duration, Stream, Time};

use crate::fifo::{Fifo, fifo_methods};
use crate::{Backlog, Configuration, Counters, Discipline, Limit, LimitError, Packet, Ppm, Verdict};

/// `avg` and the thresholds are in units of 2^-16.
const AVG_SHIFT: u32 = 16;
/// Probabilities and weights are in units of 2^-32.
const PROBABILITY_BITS: u32 = 32;
const ONE: u64 = 1 << PROBABILITY_BITS;

/// Thresholds on the average queue, and the unit in which the queue is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedThresholds {
    /// The queue is measured in packets.
    Packets {
        /// Average up to which nothing is signalled.
        min_th: u64,
        /// Average at which the probability reaches `max_p`.
        max_th: u64,
    },
    /// The queue is measured in bytes.
    Bytes {
        /// Average up to which nothing is signalled.
        min_th: Bytes,
        /// Average at which the probability reaches `max_p`.
        max_th: Bytes,
    },
}

/// Configuration of a [`Red`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RedConfig {
    /// Room of the buffer. A packet that finds it full is dropped.
    pub limit: Limit,
    /// `min_th` and `max_th`.
    pub thresholds: RedThresholds,
    /// Probability of a signal as `avg` approaches `max_th`.
    pub max_p: Ppm,
    /// Weight of the present queue in `avg`.
    pub w_q: Ppm,
    /// Transmission time of a small packet, `s` in the paper: an idle link counts as sending one
    /// per such time.
    pub s: Duration,
    /// The probability rises from `max_p` to 1 between `max_th` and twice that, instead of jumping
    /// there.
    pub gentle: bool,
    /// Mark packets that are capable of ECN instead of dropping them.
    pub ecn: bool,
}

impl Default for RedConfig {
    /// `min_th` 5 and `max_th` 15 packets, `w_q` 0.002 (the paper's §7 and §8), gentle, 1000
    /// packets.
    ///
    /// `max_p` is 0.1, which Floyd recommends since 1997 instead of the paper's 0.02. `s` is that
    /// of 500 bytes at 100 Mbit/s.
    fn default() -> Self {
        Self {
            limit: Limit::Packets(1000),
            thresholds: RedThresholds::Packets { min_th: 5, max_th: 15 },
            max_p: Ppm::new(100_000),
            w_q: Ppm::new(2000),
            s: Duration::from_micros(40),
            gentle: true,
            ecn: false,
        }
    }
}

/// Error returned for a [`RedConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedError {
    /// The limit admits nothing.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The thresholds leave no room between them, or are too large for the arithmetic.
    #[error(
        "min_th {min_th} is not below max_th {max_th}: set max_th to at least twice min_th, at most 2^40"
    )]
    Thresholds {
        /// Configured `min_th`.
        min_th: u64,
        /// Configured `max_th`.
        max_th: u64,
    },
    /// `max_p` is zero.
    #[error("a max_p of 0 signals nothing below max_th: set it to 0.02 to 0.1")]
    ZeroProbability,
    /// `w_q` is zero.
    #[error("a weight w_q of 0 never changes the average: set it to 0.002")]
    ZeroWeight,
    /// `s` is zero.
    #[error("a transmission time s of 0 would forget the average at once: set it to that of a small packet")]
    ZeroTime,
}

/// Random early detection.
#[derive(Clone, Debug)]
pub struct Red<P> {
    limit: Limit,
    in_bytes: bool,
    /// In the unit of `avg`.
    min_th: u64,
    max_th: u64,
    max_p: u64,
    w_q: u64,
    s: u64,
    gentle: bool,
    ecn: bool,
    stream: Stream,
    fifo: Fifo<P>,
    /// Average queue.
    avg: u64,
    /// Packets before the last one without a signal, since the last signal; `None` if the last
    /// packet got one, or if `avg` was below `min_th`.
    count: Option<u64>,
    /// Time since which the queue is empty; `None` while it is not.
    q_time: Option<Time>,
}

impl<P: Packet> Red<P> {
    /// Creates an empty queue, which draws from `stream`.
    ///
    /// # Errors
    /// [`RedError`] if the configuration cannot work.
    pub fn new(config: RedConfig, stream: Stream) -> Result<Self, RedError> {
        let limit = config.limit.checked()?;
        let (in_bytes, min_th, max_th) = match config.thresholds {
            RedThresholds::Packets { min_th, max_th } => (false, min_th, max_th),
            RedThresholds::Bytes { min_th, max_th } => (true, min_th.get(), max_th.get()),
        };
        if min_th >= max_th || max_th > 1 << 40 {
            return Err(RedError::Thresholds { min_th, max_th });
        }
        if config.max_p == Ppm::default() {
            return Err(RedError::ZeroProbability);
        }
        if config.w_q == Ppm::default() {
            return Err(RedError::ZeroWeight);
        }
        if config.s.is_zero() {
            return Err(RedError::ZeroTime);
        }
        Ok(Self {
            limit,
            in_bytes,
            min_th: min_th << AVG_SHIFT,
            max_th: max_th << AVG_SHIFT,
            max_p: config.max_p.scaled(PROBABILITY_BITS),
            w_q: config.w_q.scaled(PROBABILITY_BITS),
            s: u64::try_from(config.s.as_nanos()).unwrap_or(u64::MAX),
            gentle: config.gentle,
            ecn: config.ecn,
            stream,
            fifo: Fifo::default(),
            avg: 0,
            count: None,
            q_time: Some(Time::ZERO),
        })
    }

    /// Average queue as of the last arrival, in whole packets or bytes.
    pub const fn average(&self) -> u64 {
        self.avg >> AVG_SHIFT
    }

    /// Updates the average by the present queue. §4 and Fig. 2.
    fn update_avg(&mut self, now: Time) {
        match self.q_time.take() {
            // §4 and Fig. 2: while the queue was empty, m small packets could have been sent, each
            // of which found it so.
            Some(q_time) => {
                let m = now.as_nanos().saturating_sub(q_time.as_nanos()) / self.s;
                self.avg = scale(self.avg, power(ONE - self.w_q, m));
            }
            None => {
                let waits = self.fifo.backlog;
                let q = if self.in_bytes { waits.bytes.get() } else { waits.packets };
                let q = q.min(1 << 47) << AVG_SHIFT;
                self.avg = if q >= self.avg {
                    self.avg + scale(q - self.avg, self.w_q)
                } else {
                    self.avg - scale(self.avg - q, self.w_q)
                };
            }
        }
    }

    /// p_b, the probability that follows from an average of at least `min_th`: [`ONE`] where every
    /// packet is dropped. §4.
    fn p_b(&self) -> u64 {
        if self.avg < self.max_th {
            ratio(self.max_p, self.avg - self.min_th, self.max_th - self.min_th)
        } else if self.gentle && self.avg < 2 * self.max_th {
            self.max_p + ratio(ONE - self.max_p, self.avg - self.max_th, self.max_th)
        } else {
            ONE
        }
    }

    /// Decides whether a packet that arrives now gets a signal. The paper's second method (§7)
    /// makes the gaps uniform.
    fn signals(&mut self) -> bool {
        if self.avg < self.min_th {
            self.count = None;
            return false;
        }
        let p_b = self.p_b();
        let count = self.count.map_or(0, |count| count.saturating_add(1));
        // p_a = p_b / (1 - count * p_b).
        let left = u128::from(ONE).saturating_sub(u128::from(count) * u128::from(p_b));
        let r = u128::from(self.stream.next_u64() >> PROBABILITY_BITS);
        let signal = r * left < u128::from(p_b) << PROBABILITY_BITS;
        self.count = if signal { None } else { Some(count) };
        signal
    }
}

/// Product of `value` and a factor in units of 2^-32.
#[allow(clippy::cast_possible_truncation, reason = "the factor is at most one")]
fn scale(value: u64, factor: u64) -> u64 {
    ((u128::from(value) * u128::from(factor)) >> PROBABILITY_BITS) as u64
}

/// `value * part / whole`, where `part` is at most `whole`.
#[allow(clippy::cast_possible_truncation, reason = "at most the value")]
fn ratio(value: u64, part: u64, whole: u64) -> u64 {
    (u128::from(value) * u128::from(part) / u128::from(whole)) as u64
}

/// `base` to the power of `exponent`, in units of 2^-32: 64 steps at most.
fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut product = ONE;
    while exponent > 0 && product > 0 {
        if exponent % 2 == 1 {
            product = scale(product, base);
        }
        base = scale(base, base);
        exponent /= 2;
    }
    product
}

impl Configuration for RedConfig {
    type Error = RedError;
    type Queue<P: Packet + Send + 'static> = Red<P>;

    fn build<P: Packet + Send + 'static>(&self, stream: Stream) -> Result<Red<P>, RedError> {
        Red::new(*self, stream)
    }

    fn is_random(&self) -> bool {
        true
    }

    fn marks(&self) -> bool {
        self.ecn
    }

    fn limit(&self) -> Limit {
        self.limit
    }
}

impl<P: Packet> Discipline<P> for Red<P> {
    fn enqueue_with(&mut self, now: Time, mut packet: P, _on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        self.fifo.counters.enqueued.count(packet.len());
        let was_empty = self.fifo.backlog.is_empty();
        self.update_avg(now);
        let verdict = if !self.limit.admits(self.fifo.backlog, packet.len()) {
            // An overflow is a signal to the sender, too.
            self.count = None;
            self.fifo.overflow(packet)
        } else if !self.signals() || self.ecn && self.avg < self.max_th && self.fifo.mark(&mut packet) {
            self.fifo.push(now, packet)
        } else {
            self.fifo.drop_early(packet)
        };
        if was_empty && self.fifo.backlog.is_empty() {
            self.q_time = Some(now);
        }
        verdict
    }

    fn dequeue_with(&mut self, now: Time, _on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let (_, packet) = self.fifo.pop()?;
        if self.fifo.backlog.is_empty() {
            self.q_time = Some(now);
        }
        Some(packet)
    }

    fifo_methods!();
}
