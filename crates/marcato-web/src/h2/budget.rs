//! Budget of a connection's next grant.

use marcato_units::{Bytes, Priority, PrioritySet, Rate, Time};
use tokio::time::Instant;

use super::granted::Books;
use super::wire;
use crate::early_end::EarlyEnd;
use crate::server::Context;

/// Length of a frame's header (RFC 9113 §4.1).
const FRAME_HEADER: usize = 9;
/// Least bytes for which a frame is worth its header, unless the response ends with them.
const LEAST_CONTENT: usize = 64;

/// Budget of a connection's next grant, by what its socket measures.
#[derive(Debug)]
pub(super) struct Budget {
    epoch: Instant,
    /// Rate and chunk that the exchange knows.
    rate: Rate,
    chunk: Bytes,
    /// Levels at which a response was ever opened, or will be.
    used: PrioritySet,
    /// Time at which urgent data last waited.
    urgent_at: Time,
    /// True if the kernel has to send something before the next chunk.
    blocked: bool,
}

/// Content that waits for a grant, and that which has had one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) waiting: PrioritySet,
    /// Bytes that the library holds.
    pub(super) outstanding: Bytes,
    /// Frames that were granted in this round.
    pub(super) frames: usize,
}

impl Budget {
    pub(super) const fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            rate: Rate::ZERO,
            chunk: Bytes::ZERO,
            used: PrioritySet::EMPTY,
            urgent_at: Time::ZERO,
            blocked: false,
        }
    }

    /// Largest chunk at the present rate.
    pub(super) const fn chunk(&self) -> Bytes {
        self.chunk
    }

    /// Notes that there is a response of this level, or will be.
    pub(super) const fn uses(&mut self, level: Priority) {
        self.used = self.used.with(level);
    }

    /// Begins a round of grants.
    pub(super) const fn begin_round(&mut self) {
        self.blocked = false;
    }

    /// True if the kernel has to send something before the next chunk.
    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns the bytes of content that may be granted now.
    pub(super) fn next(
        &mut self,
        wire: &mut wire::Inner,
        books: &Books,
        context: &Context,
        load: Load,
    ) -> Result<usize, EarlyEnd> {
        let now = Time::ZERO + self.epoch.elapsed();
        if !load.waiting.and(PrioritySet::URGENT).is_empty() {
            self.urgent_at = now;
        }
        let quiet = now.since(self.urgent_at) >= context.config.chunk.quiet_after;
        // What TLS holds would stand before the chunk.
        if wire.socket.is_pending() {
            return Ok(0);
        }
        let chunk = wire.socket.measure(now, quiet)?;
        if (wire.socket.rate(), chunk.wire) != (self.rate, self.chunk) {
            (self.rate, self.chunk) = (wire.socket.rate(), chunk.wire);
            books.accounts().exchange.set_rate(self.rate, chunk.wire);
        }
        wire.socket.couple(now, self.used);
        if let Some(trace) = &context.trace
            && let Some(state) = wire.socket.coupled()
        {
            trace.coupled(state.mode, state.cap);
        }
        // A fast connection finds out by a write that blocks. Within a round nothing is written, so the
        // kernel is asked once.
        if chunk.slow && load.frames == 0 && !wire.socket.is_writable()? {
            self.blocked = true;
            return Ok(0);
        }
        let room = wire.socket.room(now, load.waiting, chunk.wire);
        if room.is_zero() {
            return Ok(0);
        }
        let before = wire.collected()
            + usize::try_from(load.outstanding.get()).unwrap_or(usize::MAX)
            + load.frames * FRAME_HEADER;
        let budget = wire.socket.payload(room).saturating_sub(before + FRAME_HEADER);
        if budget < LEAST_CONTENT {
            return Ok(0);
        }
        // The library hands the connection's window out in the order in which streams ask. So nothing
        // is asked for beyond it: the window goes to the response whose turn it is when it opens.
        let window = wire.allowed().saturating_sub(books.accounts().charged);
        Ok(budget.min(usize::try_from(window).unwrap_or(usize::MAX)))
    }
}
