//! Open response of an exchange.

use marcato_units::Bytes;

use super::Exchange;
use super::deadline::Deadline;
use super::error::{SentError, SupplyError};
use super::grant::Response;
use super::parameters::Parameters;
use super::ready::Slot;

/// Open response of an [`Exchange`], looked up once.
#[derive(Debug)]
pub struct ResponseMut<'a> {
    exchange: &'a mut Exchange,
    slot: Slot,
}

impl<'a> ResponseMut<'a> {
    pub(super) const fn new(exchange: &'a mut Exchange, slot: Slot) -> Self {
        Self { exchange, slot }
    }

    /// Returns its present state.
    pub fn view(&self) -> Response {
        self.exchange.table[self.slot].view()
    }

    /// Adds `bytes` to what is staged.
    ///
    /// # Errors
    /// If the response is finished, or too much would be staged.
    pub fn supply(&mut self, bytes: Bytes) -> Result<(), SupplyError> {
        let Self { exchange, slot } = self;
        let record = &mut exchange.table[*slot];
        if record.finished {
            return Err(SupplyError::Finished);
        }
        let limit = exchange.config.max_staged;
        let staged = record.staged.checked_add(bytes).filter(|staged| *staged <= limit);
        let Some(staged) = staged else {
            exchange.counters.not_supplied += bytes;
            return Err(SupplyError::TooMuch { limit });
        };
        record.staged = staged;
        exchange.staged += bytes;
        exchange.counters.supplied += bytes;
        exchange.place(*slot);
        Ok(())
    }

    /// Declares that the response ends with the bytes supplied so far. Finishing it again changes
    /// nothing.
    ///
    /// If its last byte has been granted already, a grant without bytes announces the end. Finish a
    /// response before that wherever the end is known.
    pub fn finish(&mut self) {
        let record = &mut self.exchange.table[self.slot];
        record.finished = true;
        // While something is staged, its place is the same.
        if record.staged.is_zero() {
            self.exchange.place(self.slot);
        }
    }

    /// Takes the response out of the order until it is [released](Self::release), for example while
    /// its stream has no credit. No other response is affected.
    pub fn hold(&mut self) {
        self.exchange.table[self.slot].held = true;
        self.exchange.place(self.slot);
    }

    /// Returns a held response to its place in the order.
    pub fn release(&mut self) {
        self.exchange.table[self.slot].held = false;
        self.exchange.place(self.slot);
    }

    /// Changes the priority parameters of the bytes that have not been granted.
    pub fn reprioritise(&mut self, parameters: Parameters) {
        let Self { exchange, slot } = self;
        let key = exchange.cell_key(&parameters);
        let cell = exchange.table[*slot].cell;
        exchange.table[*slot].parameters = parameters;
        if !exchange.ready.is(cell, key) {
            exchange.table[*slot].cell = exchange.join(key);
        }
        exchange.place(*slot);
        if exchange.table[*slot].cell != cell {
            exchange.ready.leave(cell);
        }
    }

    /// Sets the deadline of the response, or removes it. It is looked at by
    /// [`Exchange::expire`](super::Exchange::expire).
    pub fn set_deadline(&mut self, deadline: Option<Deadline>) {
        let record = &mut self.exchange.table[self.slot];
        self.exchange.deadlines -= usize::from(!record.reported);
        record.deadline = deadline;
        record.reported = deadline.is_none();
        self.exchange.deadlines += usize::from(!record.reported);
    }

    /// Books `bytes` as sent: they have left the queue of the transport, and are no longer outstanding.
    ///
    /// # Errors
    /// If fewer bytes are outstanding.
    pub fn sent(&mut self, bytes: Bytes) -> Result<(), SentError> {
        let record = &mut self.exchange.table[self.slot];
        let outstanding = record.outstanding;
        if bytes > outstanding {
            return Err(SentError { outstanding });
        }
        record.outstanding -= bytes;
        self.exchange.outstanding -= bytes;
        Ok(())
    }
}
