//! Strict priority between two classes: best effort leaves first, lower effort takes the rest of
//! the link.
//!
//! References: PLT §3 (its low control module relies on routers that serve low packets last), RFC
//! 8622 (lower effort and its DSCP).

use marcato_units::{Layer, Time};

use crate::{Backlog, Counters, Discipline, DropTail, DropTailConfig, LimitError, Packet, Verdict};

/// Configuration of a [`Strict`] of two drop-tail buffers.
///
/// The default gives each class [`DropTailConfig`]'s default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StrictConfig {
    /// Buffer of [`Layer::High`].
    pub high: DropTailConfig,
    /// Buffer of [`Layer::Low`].
    pub low: DropTailConfig,
}

/// Error returned for a [`StrictConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrictError {
    /// The high class's limit admits nothing.
    #[error("high class: {0}")]
    High(#[source] LimitError),
    /// The low class's limit admits nothing.
    #[error("low class: {0}")]
    Low(#[source] LimitError),
}

/// Strict priority between two classes with a queue each: a low packet leaves only if no high
/// packet can.
///
/// The two share nothing: low packets take no room from high ones, nor vice versa.
/// [`PushOut`](crate::PushOut) has one buffer for both.
///
/// It is not preemptive: a high packet that arrives while a low one is in transmission waits for
/// the rest of it.
#[derive(Clone, Debug)]
pub struct Strict<H, L> {
    high: H,
    low: L,
    counters: Counters,
}

impl<P: Packet> Strict<DropTail<P>, DropTail<P>> {
    /// Creates two empty drop-tail queues.
    ///
    /// # Errors
    /// [`StrictError`] if a limit admits nothing.
    pub fn new(config: StrictConfig) -> Result<Self, StrictError> {
        let high = DropTail::new(config.high).map_err(StrictError::High)?;
        let low = DropTail::new(config.low).map_err(StrictError::Low)?;
        Ok(Self::of(high, low))
    }
}

impl<H, L> Strict<H, L> {
    /// Strict priority between two queues of any discipline, such as CoDel for best effort over
    /// drop-tail for the rest.
    ///
    /// Both must be empty and unused.
    pub fn of(high: H, low: L) -> Self {
        Self { high, low, counters: Counters::default() }
    }

    /// Queue of [`Layer::High`], with its own backlog and counters.
    pub const fn high(&self) -> &H {
        &self.high
    }

    /// Queue of [`Layer::Low`], with its own backlog and counters.
    pub const fn low(&self) -> &L {
        &self.low
    }
}

impl<P: Packet, H: Discipline<P>, L: Discipline<P>> Discipline<P> for Strict<H, L> {
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let verdict = match packet.layer() {
            Layer::High => self.high.enqueue_with(now, packet, on_drop),
            Layer::Low => self.low.enqueue_with(now, packet, on_drop),
        };
        self.counters = *self.high.counters() + *self.low.counters();
        verdict
    }

    fn observe(&mut self, now: Time, packet: &P) {
        self.high.observe(now, packet);
        self.low.observe(now, packet);
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let packet = self.high.dequeue_with(now, on_drop).or_else(|| self.low.dequeue_with(now, on_drop));
        self.counters = *self.high.counters() + *self.low.counters();
        packet
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        match (self.high.next_ready(now), self.low.next_ready(now)) {
            (Some(high), Some(low)) => Some(high.min(low)),
            (ready, None) | (None, ready) => ready,
        }
    }

    fn backlog(&self) -> Backlog {
        self.high.backlog() + self.low.backlog()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
