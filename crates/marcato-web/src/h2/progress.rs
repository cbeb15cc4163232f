//! Progress of handlers and clients, which a connection follows.

use ::h2::Reason;
use marcato_sched::order::StreamId;
use marcato_units::Bytes;
use tokio::time::Instant;

use super::driver::Driver;
use super::refill::Pace;
use crate::decision::Decision;
use crate::handler::WebService;
use crate::hints::{content_length, decide_response};
use crate::stage::{End, Head};
use crate::trace::Outcome;

impl<S: WebService> Driver<S> {
    /// Attends to all streams that need it now. Returns true if there was one.
    pub(super) fn attend_all(&mut self) -> bool {
        let mut any = false;
        // A handler on another thread may ring all the time: the rest comes in the next round.
        for _ in 0..=self.streams.len() {
            let Some(id) = self.inbox.take() else { break };
            any = true;
            if let Err(error) = self.attend(id) {
                tracing::debug!(stream = id.0, %error, "a response ended early");
                self.close(id, false);
            }
        }
        any
    }

    /// Takes the progress of a stream's handler, and what the client has told of the stream.
    fn attend(&mut self, id: StreamId) -> Result<(), ::h2::Error> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let progress = stream.stage.progress();
        for interim in progress.interim {
            stream.interim(interim)?;
        }
        let stream = match progress.head {
            None => stream,
            Some(head) => {
                self.begin(id, head, progress.bytes > 0)?;
                // Its head may have been all.
                let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
                stream
            }
        };
        if progress.bytes > 0 {
            let now = Instant::now();
            if let Some(since) = stream.empty_since.take() {
                stream.pace = Pace::of(now - since);
            }
            stream.record.supplied(now);
            if let Some(mut response) = self.books.accounts().exchange.response_mut(id) {
                let supplied = response.supply(Bytes::new(progress.bytes as u64));
                debug_assert!(
                    supplied.is_ok(),
                    "a stage tells of its end last, and holds less than the exchange may"
                );
            }
        }
        match progress.end {
            None => {}
            Some(End::Complete(trailers)) => {
                stream.trailers = trailers;
                if let Some(mut response) = self.books.accounts().exchange.response_mut(id) {
                    response.finish();
                }
            }
            Some(End::Failed) => {
                self.context.counters.failed.one();
                stream.fail();
                stream.record.trace_failure(Outcome::Failed);
                self.close(id, false);
                return Ok(());
            }
        }
        if stream.poll_reset()? {
            self.context.counters.cancelled.one();
            self.resets.reset();
            stream.record.trace_failure(Outcome::Reset);
            self.close(id, false);
            return Ok(());
        }
        if stream.held && stream.poll_credit()? {
            stream.held = false;
            if let Some(mut response) = self.books.accounts().exchange.response_mut(id) {
                response.release();
            }
        }
        Ok(())
    }

    /// Sends the head of a response, decides about its urgency, and opens it in the exchange; `has_content` if some of its
    /// content is staged. Closes the stream if the head is all, or the response cannot be opened.
    fn begin(&mut self, id: StreamId, head: Head, has_content: bool) -> Result<(), ::h2::Error> {
        let Head { mut response, is_end } = head;
        self.context.advertise(response.headers_mut());
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let decision = {
            let mut inner = self.wire.inner();
            decide_response(&mut inner.signals, &self.context.config.guess, id, response.headers())
        };
        if let Some(decision) = decision {
            stream.record.decide(decision);
        }
        stream.record.head(response.status(), content_length(response.headers()));
        stream.head(response, is_end)?;
        if is_end {
            self.close(id, true);
            return Ok(());
        }
        let Decision { parameters, .. } = stream.record.decision;
        let is_open = self.books.accounts().exchange.open(id, parameters).is_ok();
        if !is_open {
            // As many may be open as there are streams, so this is never reached.
            stream.reset(Reason::INTERNAL_ERROR);
            self.close(id, false);
            return Ok(());
        }
        self.budget.uses(self.context.config.levels().level(parameters.urgency));
        self.streams.begun(id, has_content);
        Ok(())
    }

    /// Follows signals that have changed the order.
    pub(super) fn follow_changes(&mut self) {
        let mut inner = self.wire.inner();
        while let Some((id, decision)) = inner.signals.next_change() {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.record.decide(decision);
                // A response that has not begun is opened with it.
                if let Some(mut response) = self.books.accounts().exchange.response_mut(id) {
                    response.reprioritise(decision.parameters);
                    self.budget.uses(self.context.config.levels().level(decision.parameters.urgency));
                }
            }
        }
    }
}
