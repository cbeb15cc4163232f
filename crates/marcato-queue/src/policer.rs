//! Policer: a token bucket that drops what exceeds it, before a queue of any discipline.
//!
//! References: RFC 2475 §2.3.3.3 (dropping by a policer), RFC 2697 §3 (its meter in color-blind mode;
//! without an excess burst a packet is green or red, and red ones are dropped).

use marcato_units::{Bytes, Rate, Time};

use crate::{Discipline, Fate, Filter, Filtered, Packet};

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
pub type Policer<Q> = Filtered<Q, TokenBucket>;

/// Rule of a [`Policer`]: a packet that finds enough tokens takes them, and others are dropped.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Bits that come each second, and parts of bits that the bucket holds.
    rate: u128,
    burst: u128,
    /// Tokens at `filled_at`, in parts of bits.
    tokens: u128,
    filled_at: Time,
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
        let rate = u128::from(config.rate.as_bps());
        Ok(Self::of(queue, TokenBucket { rate, burst, tokens: burst, filled_at: Time::ZERO }))
    }
}

impl TokenBucket {
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

impl<P: Packet, Q: Discipline<P>> Filter<P, Q> for TokenBucket {
    fn arrives(&mut self, now: Time, packet: &mut P) -> Fate {
        if self.takes(now, packet.len()) { Fate::Pass } else { Fate::Drop }
    }
}
