//! Task of a connection.

use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use ::h2::Reason;
use ::h2::server::Connection;
use marcato_sched::exchange::Exchange;
use marcato_sched::order::StreamId;
use tokio::time::{Instant, Sleep};

use super::budget::Budget;
use super::granted::{Books, Granted};
use super::refill::Pause;
use super::streams::Streams;
use super::wire::{Violation, Wire};
use crate::clocks::{Clocks, Due, Seen};
use crate::early_end::EarlyEnd;
use crate::handler::{Memory, WebService};
use crate::inbox::Inbox;
use crate::resets::Resets;
use crate::server::{Context, Shutdown};

/// Rounds after which other tasks of the thread have their turn.
const ROUNDS: usize = 64;
/// Time for the client to end its direction after ours.
const LINGER: std::time::Duration = std::time::Duration::from_secs(1);

/// Task of a connection: each of its fields has a file with its rules.
pub(super) struct Driver<S: WebService> {
    pub(super) connection: Connection<Wire, Granted>,
    pub(super) wire: Wire,
    pub(super) books: Books,
    pub(super) inbox: Arc<Inbox>,
    pub(super) streams: Streams,
    pub(super) budget: Budget,
    /// Streams whose end has been granted, and of which bytes may be outstanding.
    pub(super) ending: Vec<StreamId>,
    pub(super) service: S,
    /// Memory of the latest handler that did not wait.
    pub(super) memory: Memory<S>,
    pub(super) context: Arc<Context>,
    pub(super) resets: Resets,
    clocks: Clocks,
    timer: Pin<Box<Sleep>>,
    /// Future that ends when the server shuts down; `None` after that.
    shutdown: Option<Shutdown>,
}

impl<S> Driver<S>
where
    S: WebService,
{
    pub(super) fn new(
        connection: Connection<Wire, Granted>,
        wire: Wire,
        exchange: Exchange,
        service: S,
        context: Arc<Context>,
        shutdown: Shutdown,
    ) -> Self {
        let now = Instant::now();
        Self {
            connection,
            wire,
            books: Books::new(exchange),
            inbox: Arc::default(),
            streams: Streams::default(),
            budget: Budget::new(now),
            ending: Vec::new(),
            service,
            memory: Memory::default(),
            resets: Resets::default(),
            clocks: Clocks::new(context.config.limits, now),
            context,
            timer: Box::pin(tokio::time::sleep_until(now)),
            shutdown: Some(shutdown),
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Poller<'_>) -> Poll<Result<(), EarlyEnd>> {
        self.inbox.register(cx.waker());
        self.streams.turn();
        if let Some(shutdown) = &mut self.shutdown
            && shutdown.as_mut().poll(cx).is_ready()
        {
            self.shutdown = None;
            self.drain(Instant::now());
        }
        for _ in 0..ROUNDS {
            self.wire.inner().socket.release();
            // All requests that have arrived are taken before any is answered: their heads then leave
            // together.
            if self.take_requests(cx)? {
                return Poll::Ready(Ok(()));
            }
            if let Some(violation) = self.wire.inner().take_violation() {
                return Poll::Ready(Err(EarlyEnd::Violation(violation)));
            }
            let attended = self.attend_all();
            if self.resets.is_spent() {
                return Poll::Ready(Err(EarlyEnd::Violation(Violation::Flood)));
            }
            self.follow_changes();
            let granted = self.grant_all()?;
            if (attended || granted) && self.take_requests(cx)? {
                return Poll::Ready(Ok(()));
            }
            self.close_ended();
            let (was_full, flushed) = {
                let mut inner = self.wire.inner();
                (inner.socket.is_pending(), inner.flush()?)
            };
            // An answer to a PING is no progress while content waits.
            if granted || was_full && flushed > 0 {
                self.clocks.progress(Instant::now());
            }
            if attended || granted || flushed > 0 {
                continue;
            }
            // Nothing can be done before something happens.
            if self.wait(cx)?.is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits for the socket and for the next time. Returns ready if there is something to be done.
    fn wait(&mut self, cx: &mut Poller<'_>) -> Result<Poll<()>, EarlyEnd> {
        if !self.inbox.is_empty() {
            return Ok(Poll::Ready(()));
        }
        let (pending, look, head_since) = {
            let mut inner = self.wire.inner();
            if (inner.is_pending() || self.budget.is_blocked())
                && inner.socket.poll_write_ready(cx)?.is_ready()
            {
                return Ok(Poll::Ready(()));
            }
            (inner.is_pending(), inner.socket.look(), inner.head_since())
        };
        let now = Instant::now();
        let waits = pending || !self.books.accounts().exchange.is_idle();
        let seen = Seen { has_requests: !self.streams.is_empty(), waits, head_since };
        let due_at = match self.clocks.next(now, seen) {
            Ok(at) => at,
            Err(Due::End(overdue)) => return Err(self.context.overdue(overdue)),
            Err(Due::Drain) => {
                self.drain(now);
                return Ok(Poll::Ready(()));
            }
        };
        if self.streams.stall_at().is_some_and(|at| now >= at) {
            self.reset_stalled(now);
            return Ok(Poll::Ready(()));
        }
        let refill_until = match self.streams.pause() {
            Some(Pause::Until(at)) if now >= at => {
                self.streams.resume();
                return Ok(Poll::Ready(()));
            }
            Some(Pause::Until(at)) => Some(at),
            Some(Pause::Turn) => {
                // The runtime wakes this task when the others and the sockets have had their turn.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                None
            }
            None => None,
        };
        let next = [look, due_at, self.streams.stall_at(), refill_until].into_iter().flatten().min();
        let Some(next) = next else { return Ok(Poll::Pending) };
        if self.timer.deadline() != next {
            self.timer.as_mut().reset(next);
        }
        Ok(self.timer.as_mut().poll(cx))
    }

    /// Tells the client to begin nothing more.
    fn drain(&mut self, now: Instant) {
        self.clocks.drain(now);
        self.connection.graceful_shutdown();
    }

    /// Resets the responses of which the client takes nothing: it has given no credit for them for too long.
    /// Their handlers end.
    fn reset_stalled(&mut self, now: Instant) {
        for id in self.streams.stalled(now, self.context.config.limits.stall) {
            if let Some(stream) = self.streams.get_mut(id) {
                tracing::debug!(stream = id.0, "the client takes nothing of a response");
                self.context.counters.stalled.one();
                stream.reset(Reason::CANCEL);
                self.close(id, false);
            }
        }
    }

    /// Closes the responses that have left the library.
    fn close_ended(&mut self) {
        let mut ending = mem::take(&mut self.ending);
        ending.retain(|id| {
            let is_over = {
                let exchange = &mut self.books.accounts().exchange;
                exchange.close_sent(*id).is_some() || exchange.response(*id).is_none()
            };
            if is_over {
                self.forget(*id, true);
            }
            !is_over
        });
        self.ending = ending;
    }

    /// Closes the response of a stream, and forgets the stream.
    pub(super) fn close(&mut self, id: StreamId, complete: bool) {
        self.books.accounts().exchange.close(id);
        self.forget(id, complete);
    }

    /// Forgets a stream whose response is closed.
    fn forget(&mut self, id: StreamId, complete: bool) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        stream.stage.close();
        let known = self.wire.inner().signals.close(id);
        debug_assert!(known.is_ok(), "a stream is open for as long as its request");
        stream.record.complete = complete;
        if complete {
            self.resets.complete();
        }
        self.context.log(&stream.record);
    }

    /// Forgets all streams.
    fn close_all(&mut self) {
        while let Some(id) = self.streams.first() {
            self.close(id, false);
        }
    }

    /// Ends the connection: what is left of it is sent.
    pub(super) async fn finish(mut self, result: Result<(), EarlyEnd>) -> Result<(), EarlyEnd> {
        let reason = match &result {
            Ok(()) => Some(Reason::NO_ERROR),
            Err(EarlyEnd::Violation(Violation::Frame(code))) => {
                Some(Reason::from(u32::try_from(code.number()).unwrap_or(1)))
            }
            Err(EarlyEnd::Violation(Violation::Flood)) => Some(Reason::ENHANCE_YOUR_CALM),
            Err(EarlyEnd::Http2(_)) => None,
            Err(_) => {
                self.close_all();
                return result;
            }
        };
        if let Err(EarlyEnd::Violation(_)) = result
            && let Some(reason) = reason
        {
            self.context.counters.violations.one();
            self.connection.abrupt_shutdown(reason);
        }
        // What the library has sent before it ended the connection is complete.
        self.close_ended();
        self.close_all();
        debug_assert!(self.books.accounts().exchange.outstanding().is_zero(), "no response is left");
        let Self { connection, wire, .. } = &mut self;
        let send = poll_fn(|cx| {
            loop {
                // The library writes GOAWAY, also after an error.
                let has_written_all = connection.poll_closed(cx).is_ready();
                let mut inner = wire.inner();
                let had_room = !inner.is_pending();
                while inner.is_pending() {
                    if inner.flush()? == 0 && inner.socket.poll_write_ready(cx)?.is_pending() {
                        return Poll::Pending;
                    }
                }
                // It waits for room if a flood has filled the wire with answers.
                if has_written_all || had_room {
                    return Poll::Ready(io::Result::Ok(()));
                }
            }
        });
        let _ = tokio::time::timeout(LINGER, send).await;
        {
            let mut inner = wire.inner();
            inner.socket.queue_end();
            let _ = inner.flush();
            let _ = inner.socket.shut_down();
        }
        // A socket that is closed with unread data resets the connection: what was just sent could be
        // lost.
        let mut scratch = [0; 1024];
        let read = poll_fn(|cx| {
            loop {
                let mut buf = tokio::io::ReadBuf::new(&mut scratch);
                match wire.inner().socket.poll_read(cx, &mut buf) {
                    Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(_) => return Poll::Ready(()),
                }
            }
        });
        let _ = tokio::time::timeout(LINGER, read).await;
        result
    }
}

impl<S: WebService> Drop for Driver<S> {
    fn drop(&mut self) {
        // Requests are over, also if the task of the connection is dropped in their middle.
        self.close_all();
    }
}
