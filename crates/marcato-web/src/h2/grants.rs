//! Grants of a connection: chunks of its responses, by priority.

use marcato_sched::exchange::Grant;
use marcato_units::Bytes;
use tokio::time::Instant;

use super::budget::Load;
use super::driver::Driver;
use super::granted::Granted;
use crate::early_end::EarlyEnd;
use crate::handler::WebService;

/// Content of the largest frame, unless the client allows more (RFC 9113 §6.5.2).
const FRAME: Bytes = Bytes::new(16_384);

impl<S: WebService> Driver<S> {
    /// Grants chunks as long as the queues below have little left. Returns true if any was.
    pub(super) fn grant_all(&mut self) -> Result<bool, EarlyEnd> {
        self.budget.begin_round();
        self.streams.begin_round();
        let mut frames = 0;
        // Response whose bytes the library has in more than one frame. The library lets streams take turns for each of
        // their frames, so that it writes those before another one's.
        let mut split = None;
        loop {
            let (waiting, outstanding) = {
                let exchange = &self.books.accounts().exchange;
                (exchange.waiting(), exchange.outstanding())
            };
            if waiting.is_empty() {
                break;
            }
            let load = Load { waiting, outstanding, frames };
            let next = self.budget.next(&mut self.wire.inner(), &self.books, &self.context, load)?;
            let Some((turn, budget)) = next else { break };
            let grant = {
                let exchange = &mut self.books.accounts().exchange;
                if self.streams.gives_way(exchange, self.context.config.levels()) {
                    break;
                }
                if split.is_some() && split != exchange.peek().map(|next| next.stream) {
                    break;
                }
                exchange.grant(Bytes::new(budget as u64))
            };
            let Some(grant) = grant else { break };
            {
                let mut inner = self.wire.inner();
                inner.socket.spend(turn);
                inner.granted();
            }
            frames += 1;
            let is_again = self.streams.granted(grant.stream);
            if grant.len > FRAME || is_again {
                split = Some(grant.stream);
            }
            if let Err(error) = self.send(grant) {
                tracing::debug!(stream = grant.stream.0, %error, "a response ended early");
                self.close(grant.stream, false);
            }
        }
        Ok(frames > 0)
    }

    /// Gives the library the bytes of a grant, as far as the client has given credit for them.
    fn send(&mut self, grant: Grant) -> Result<(), ::h2::Error> {
        self.streams.enlarge(grant.stream, self.context.config.staged(), self.budget.chunk());
        let Some(stream) = self.streams.get_mut(grant.stream) else { return Ok(()) };
        let now = Instant::now();
        let wanted = usize::try_from(grant.len.get()).unwrap_or(usize::MAX);
        let credit = stream.credit(wanted);
        let stream = if credit < wanted {
            self.step_aside(grant, credit, now);
            match self.streams.get_mut(grant.stream) {
                Some(stream) if credit > 0 => stream,
                _ => return Ok(()),
            }
        } else {
            stream.stalled_since = None;
            stream
        };
        let taken = credit.min(wanted);
        let is_last = grant.fin && taken == wanted;
        let content = stream.stage.take(taken);
        stream.record.granted(now, taken, grant.priority);
        self.context.counters.grant(grant.priority, taken);
        let ends = is_last && stream.trailers.is_none();
        if taken > 0 || ends {
            stream.send(Granted::new(content, grant.stream, self.books.clone()), ends)?;
        }
        if is_last {
            if let Some(trailers) = stream.trailers.take() {
                stream.send_trailers(trailers)?;
            }
            self.ending.push(grant.stream);
            return Ok(());
        }
        let response = self.books.accounts().exchange.response(grant.stream);
        if response.is_some_and(|response| response.staged.is_zero()) {
            self.streams.emptied(grant.stream, now);
        }
        Ok(())
    }

    /// Takes a stream out of the order whose client has given credit for these bytes of a grant alone. It delays no
    /// other.
    fn step_aside(&mut self, grant: Grant, credit: usize, now: Instant) {
        let exchange = &mut self.books.accounts().exchange;
        let refused = exchange.refuse(grant, Bytes::new(credit as u64));
        debug_assert!(refused.is_ok(), "it is the latest grant");
        if let Some(mut response) = exchange.response_mut(grant.stream) {
            response.hold();
        }
        self.streams.waits_for_credit(grant.stream, credit > 0, now, self.context.config.limits.stall);
    }
}
