//! Budget of a connection's next grant.

use marcato_net::{NoTurn, Probe, Supply};
use marcato_units::{Bytes, Priority, PrioritySet, Rate, Time};
use tokio::time::Instant;

use super::granted::Books;
use super::wire;
use crate::early_end::EarlyEnd;
use crate::server::Context;
use crate::socket::Turn;

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

    /// Returns the turn of the next grant, with the bytes of content that it may have; `None` if there is
    /// none now.
    pub(super) fn next(
        &mut self,
        wire: &mut wire::Inner,
        books: &Books,
        context: &Context,
        load: Load,
    ) -> Result<Option<(Turn, usize)>, EarlyEnd> {
        let now = Time::ZERO + self.epoch.elapsed();
        if !load.waiting.and(PrioritySet::URGENT).is_empty() {
            self.urgent_at = now;
        }
        let quiet = now.since(self.urgent_at) >= context.config.chunk.quiet_after;
        // Within a round nothing is written, so the kernel is asked once.
        let probe = if load.frames == 0 { Probe::IfSlow } else { Probe::Never };
        let supply = Supply { used: self.used, waiting: load.waiting, quiet, probe };
        let turn = wire.socket.turn(now, supply)?;
        // What TLS holds would stand before the chunk.
        if matches!(turn, Err(NoTurn::Pending)) {
            return Ok(None);
        }
        if (wire.socket.rate(), wire.socket.chunk()) != (self.rate, self.chunk) {
            (self.rate, self.chunk) = (wire.socket.rate(), wire.socket.chunk());
            books.accounts().exchange.set_rate(self.rate, self.chunk);
        }
        if let Some(trace) = &context.trace
            && let Some(state) = wire.socket.coupled()
        {
            trace.coupled(state.mode, state.cap);
        }
        let turn = match turn {
            Ok(turn) => turn,
            Err(reason) => {
                self.blocked = reason == NoTurn::Full;
                return Ok(None);
            }
        };
        let before = wire.collected()
            + usize::try_from(load.outstanding.get()).unwrap_or(usize::MAX)
            + load.frames * FRAME_HEADER;
        let budget = turn.payload.saturating_sub(before + FRAME_HEADER);
        if budget < LEAST_CONTENT {
            return Ok(None);
        }
        // The library hands the connection's window out in the order in which streams ask. So nothing
        // is asked for beyond it: the window goes to the response whose turn it is when it opens.
        let window = wire.allowed().saturating_sub(books.accounts().charged);
        let budget = budget.min(usize::try_from(window).unwrap_or(usize::MAX));
        Ok((budget > 0).then_some((turn, budget)))
    }
}
