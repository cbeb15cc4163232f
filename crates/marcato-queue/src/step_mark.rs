//! Step marking for DCTCP: marks every packet that finds the queue above a threshold.
//!
//! References: Alizadeh et al., "Data Center TCP (DCTCP)" (2010), §3.1; RFC 8257 §3.1 (marking at
//! the switch, by the instantaneous queue); RFC 3168 §5 (marks).
//!
//! # Additions to the references
//!
//! - The threshold may also be a sojourn time, which is compared when the packet leaves.
//! - Packets that are not capable of ECN pass. Only a full buffer drops them, so they share a queue
//!   with DCTCP at its expense, as RFC 8257 §5.2 says.

use marcato_units::{Bytes, Duration, Stream, Time};

use crate::fifo::{Fifo, fifo_methods};
use crate::{Backlog, Configuration, Counters, Discipline, Limit, LimitError, Packet, Verdict};

/// Threshold of [`StepMark`], K in DCTCP's paper. The packet being transmitted does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepThreshold {
    /// Number of waiting packets, the arriving one included, above which that one is marked.
    Packets(u64),
    /// Number of waiting bytes, the arriving packet included, above which that one is marked.
    Bytes(Bytes),
    /// Sojourn time above which a packet is marked as it leaves.
    Sojourn(Duration),
}

/// Configuration of a [`StepMark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepMarkConfig {
    /// Room of the buffer. A packet that finds it full is dropped.
    pub limit: Limit,
    /// Threshold above which packets are marked.
    pub threshold: StepThreshold,
}

impl Default for StepMarkConfig {
    /// 1000 packets, marked above 65: K at 10 Gbit/s in DCTCP's paper, §3.4 and §4.
    fn default() -> Self {
        Self { limit: Limit::Packets(1000), threshold: StepThreshold::Packets(65) }
    }
}

/// Error returned for a [`StepMarkConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepMarkError {
    /// The limit admits nothing.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The limit is reached before the threshold.
    #[error("a threshold of {threshold} is never exceeded in a buffer of {limit}: set it below the limit")]
    Threshold {
        /// Threshold, in the limit's unit.
        threshold: u64,
        /// Limit of the buffer.
        limit: u64,
    },
}

/// First in, first out; marks packets above a threshold.
///
/// ```
/// # use marcato_queue::{FlowKey, Packet};
/// # use marcato_units::{Bytes, Layer};
/// # use marcato_wire::Ecn;
/// # #[derive(Debug, PartialEq)] struct Datagram(Ecn);
/// # impl Packet for Datagram {
/// #     fn len(&self) -> Bytes { Bytes::new(1500) }
/// #     fn flow(&self) -> FlowKey { FlowKey::new(0) }
/// #     fn ecn(&self) -> Ecn { self.0 }
/// #     fn mark_ce(&mut self) { self.0 = Ecn::Ce; }
/// #     fn layer(&self) -> Layer { Layer::High }
/// # }
/// use marcato_queue::{Discipline, StepMark, StepMarkConfig, StepThreshold};
/// use marcato_units::Time;
///
/// let threshold = StepThreshold::Packets(1);
/// let mut queue = StepMark::new(StepMarkConfig { threshold, ..StepMarkConfig::default() })?;
/// for _ in 0..2 {
///     assert!(queue.enqueue(Time::ZERO, Datagram(Ecn::Ect0)).lost().is_none());
/// }
/// assert_eq!(queue.dequeue(Time::ZERO), Some(Datagram(Ecn::Ect0)));
/// assert_eq!(queue.dequeue(Time::ZERO), Some(Datagram(Ecn::Ce)));
/// # Ok::<(), marcato_queue::StepMarkError>(())
/// ```
#[derive(Clone, Debug)]
pub struct StepMark<P> {
    limit: Limit,
    threshold: StepThreshold,
    fifo: Fifo<P>,
}

impl<P: Packet> StepMark<P> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// [`StepMarkError`] if the configuration cannot work.
    pub fn new(config: StepMarkConfig) -> Result<Self, StepMarkError> {
        let limit = config.limit.checked()?;
        // Comparable only in the same unit: a threshold above the limit would never mark.
        let never = match (config.threshold, limit) {
            (StepThreshold::Packets(threshold), Limit::Packets(limit)) => Some((threshold, limit)),
            (StepThreshold::Bytes(threshold), Limit::Bytes(limit)) => Some((threshold.get(), limit.get())),
            _ => None,
        };
        if let Some((threshold, limit)) = never
            && threshold >= limit
        {
            return Err(StepMarkError::Threshold { threshold, limit });
        }
        Ok(Self { limit, threshold: config.threshold, fifo: Fifo::default() })
    }
}

impl Configuration for StepMarkConfig {
    type Error = StepMarkError;
    type Queue<P: Packet + Send + 'static> = StepMark<P>;

    fn build<P: Packet + Send + 'static>(&self, _: Stream) -> Result<StepMark<P>, StepMarkError> {
        StepMark::new(*self)
    }

    fn is_random(&self) -> bool {
        false
    }

    fn marks(&self) -> bool {
        true
    }

    fn limit(&self) -> Limit {
        self.limit
    }
}

impl<P: Packet> Discipline<P> for StepMark<P> {
    fn enqueue_with(&mut self, now: Time, mut packet: P, _on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let len = packet.len();
        self.fifo.counters.enqueued.count(len);
        let waits = self.fifo.backlog;
        if !self.limit.admits(waits, len) {
            return self.fifo.overflow(packet);
        }
        let above = match self.threshold {
            StepThreshold::Packets(threshold) => waits.packets >= threshold,
            StepThreshold::Bytes(threshold) => waits.bytes + len > threshold,
            StepThreshold::Sojourn(_) => false,
        };
        if above {
            self.fifo.mark(&mut packet);
        }
        self.fifo.push(now, packet)
    }

    fn dequeue_with(&mut self, now: Time, _on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let (since, mut packet) = self.fifo.pop()?;
        if let StepThreshold::Sojourn(threshold) = self.threshold
            && u128::from(now.as_nanos().saturating_sub(since.as_nanos())) > threshold.as_nanos()
        {
            self.fifo.mark(&mut packet);
        }
        Some(packet)
    }

    fifo_methods!();
}
