//! Policer: a token bucket that drops what exceeds it, before a queue of any discipline.
//!
//! References: RFC 2475 §2.3.3.3 (dropping by a policer), RFC 2697 §3 (its meter in color-blind mode;
//! without an excess burst a packet is green or red, and red ones are dropped).

use marcato_units::{Bytes, Rate, Time};

use crate::{Backlog, Counters, Discipline, FlowKey, FlowReport, Packet, Verdict};

/// Configuration of a [`Policer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicerConfig {
    /// Rate at which tokens come, in bytes of IP packets: CIR of RFC 2697.
    pub rate: Rate,
    /// Size of the bucket, which is full at the beginning: CBS of RFC 2697.
    pub burst: Bytes,
}

/// Error returned for a [`PolicerConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicerError {
    /// No tokens come.
    #[error("a policer at a rate of 0 drops everything: set its rate")]
    Rate,
    /// The bucket holds nothing.
    #[error("a policer with a burst of 0 drops everything: set its burst to a full packet at least")]
    Burst,
}

/// Parts of a token: one bit lasts a second at 1 bit/s, in nanoseconds.
const PARTS: u128 = 1_000_000_000;

/// Token bucket that drops packets which exceed it. Others go to the queue behind it.
///
/// ```
/// # use marcato_queue::{FlowKey, Packet};
/// # use marcato_units::{Bytes, Layer};
/// # use marcato_wire::Ecn;
/// # #[derive(Debug, PartialEq)] struct Datagram(u64);
/// # impl Packet for Datagram {
/// #     fn len(&self) -> Bytes { Bytes::new(self.0) }
/// #     fn flow(&self) -> FlowKey { FlowKey::new(0) }
/// #     fn ecn(&self) -> Ecn { Ecn::NotEct }
/// #     fn mark_ce(&mut self) {}
/// #     fn layer(&self) -> Layer { Layer::High }
/// # }
/// use marcato_queue::{Discipline, DropTail, Policer, PolicerConfig, Verdict};
/// use marcato_units::{Rate, Time};
///
/// let config = PolicerConfig { rate: Rate::from_mbps(8), burst: Bytes::new(1500) };
/// let mut queue = Policer::new(config, DropTail::default())?;
/// assert_eq!(queue.enqueue(Time::ZERO, Datagram(1500)), Verdict::Queued);
/// assert_eq!(queue.enqueue(Time::ZERO, Datagram(1000)), Verdict::Dropped(Datagram(1000)));
/// // A millisecond brings a thousand bytes.
/// assert_eq!(queue.enqueue(Time::from_millis(1), Datagram(1000)), Verdict::Queued);
/// # Ok::<(), marcato_queue::PolicerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policer<Q> {
    /// Bits that come each second, and parts of bits that the bucket holds.
    rate: u128,
    burst: u128,
    /// Tokens at `filled_at`, in parts of bits.
    tokens: u128,
    filled_at: Time,
    queue: Q,
    /// Counters of the packets that were dropped here.
    policed: Counters,
    counters: Counters,
}

impl<Q> Policer<Q> {
    /// Creates a policer with a full bucket before `queue`, which must be empty and unused.
    ///
    /// # Errors
    /// [`PolicerError`] if the configuration lets nothing pass.
    pub fn new(config: PolicerConfig, queue: Q) -> Result<Self, PolicerError> {
        if config.rate == Rate::ZERO {
            return Err(PolicerError::Rate);
        }
        if config.burst.is_zero() {
            return Err(PolicerError::Burst);
        }
        let burst = parts(config.burst);
        Ok(Self {
            rate: u128::from(config.rate.as_bps()),
            burst,
            tokens: burst,
            filled_at: Time::ZERO,
            queue,
            policed: Counters::default(),
            counters: Counters::default(),
        })
    }

    /// Queue behind the policer, with its own backlog and counters.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }

    /// Fills the bucket up to `now`, and takes the tokens of a packet if there are enough.
    fn takes(&mut self, now: Time, len: Bytes) -> bool {
        let elapsed = now.as_nanos().saturating_sub(self.filled_at.as_nanos());
        self.filled_at = self.filled_at.max(now);
        self.tokens = self.burst.min(self.tokens.saturating_add(u128::from(elapsed) * self.rate));
        match self.tokens.checked_sub(parts(len)) {
            None => false,
            Some(left) => {
                self.tokens = left;
                true
            }
        }
    }
}

/// Tokens of a length, in parts of bits.
fn parts(len: Bytes) -> u128 {
    u128::from(len.get()) * 8 * PARTS
}

impl<P: Packet, Q: Discipline<P>> Discipline<P> for Policer<Q> {
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let len = packet.len();
        let verdict = if self.takes(now, len) {
            self.queue.enqueue_with(now, packet, on_drop)
        } else {
            self.policed.enqueued.count(len);
            self.policed.dropped.count(len);
            Verdict::Dropped(packet)
        };
        self.counters = *self.queue.counters() + self.policed;
        verdict
    }

    fn observe(&mut self, now: Time, packet: &P) {
        self.queue.observe(now, packet);
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let packet = self.queue.dequeue_with(now, on_drop);
        self.counters = *self.queue.counters() + self.policed;
        packet
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.queue.next_ready(now)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn judged(&self) -> Option<[Bytes; 2]> {
        self.queue.judged()
    }

    fn report(&self, flow: FlowKey) -> Option<FlowReport> {
        self.queue.report(flow)
    }
}
