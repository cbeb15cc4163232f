//! HTTP/2: a connection whose responses leave by priority.
//!
//! One task drives a connection. It takes all requests that have arrived, lets their handlers run, in
//! tasks of their own from where they wait, and grants chunks of the responses one at a time. A chunk passes three queues
//! that are first in, first out: that of the library, that of TLS, and the kernel's. So the next one is
//! granted only once little is left in them (CATS §II-C).
//!
//! A handler puts its response on a [`Stage`], which makes it wait once 16 KiB are staged. A bell then puts
//! the stream into the connection's inbox. The task tells the exchange (`marcato_sched::exchange`) of the
//! bytes, and grants one chunk at a time.
//!
//! - *Three queues below.* On slow connections the next chunk follows when little is outstanding in the first
//!   two and the kernel has sent the last. On fast ones a write that blocks ends the turn.
//! - *Nothing is lost in them.* Granted bytes are a buffer type of ours (`granted`). The library consumes it,
//!   or drops it with a stream that was reset. Both are booked. `tests/plane/server.rs` resets fifty
//!   responses and then reads another.
//! - *Flushes are ours.* The library flushes after every frame. The `wire` under it only collects, and the
//!   task sends when the library has nothing more.
//! - *The connection's window is ours too.* The library hands it out in the order in which streams asked. The
//!   reader of frames counts what the client allows, and nothing is asked for beyond it, so the window goes
//!   to the response whose turn it is when it opens. A stream without credit of its own is held.
//!
//! | file | contents |
//! |---|---|
//! | `stage` | bytes that a handler has produced |
//! | `inbox` | streams that have something for the task |
//! | `refill` | responses that less urgent ones give way to until they have more |
//! | `granted`, `wire` | granted bytes on their way through the library, and the byte stream under it |
//! | `tunnel` | streams that handlers take over |

mod granted;
mod inbox;
mod refill;
mod stage;
mod stream;
mod tunnel;
mod wire;

use std::cmp::Ordering;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use ::h2::server::{Connection, SendResponse};
use ::h2::{Reason, RecvStream};
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use marcato_sched::exchange::{Exchange, Grant, LevelTable, Parameters};
use marcato_sched::order::StreamId;
use marcato_sched::streams::StreamMap;
use marcato_units::{Bytes as Amount, Priority, PrioritySet, Rate, Time};
use tokio::time::{Instant, Sleep};

use crate::body::Body;
use crate::decision::{Decision, Source};
use crate::early_end::EarlyEnd;
use crate::early_hints::EarlyHints;
use crate::guess::{RequestHints, ResponseHints};
use crate::handler::{Handling, Memory, WebService};
use crate::patience::Patience;
use crate::record::Record;
use crate::server::{Context, Shutdown};
use crate::signals::{Protocol, Signals};
use crate::socket::Socket;
use crate::trace::Outcome;
use granted::{Books, Granted};
use inbox::{Bell, Inbox};
use refill::{Pace, Pause, Refills, Supply};
pub(crate) use stage::Stage;
use stage::{End, Head};
use stream::{Sender, Stream};
pub(crate) use tunnel::{Tunnel, WEBSOCKET};
pub(crate) use wire::Violation;
use wire::Wire;

/// Length of a frame's header (RFC 9113 §4.1).
const FRAME_HEADER: usize = 9;
/// Content of the largest frame, unless the client allows more (RFC 9113 §6.5.2).
const FRAME: Amount = Amount::new(16_384);
/// Least bytes for which a frame is worth its header, unless the response ends with them.
const LEAST: usize = 64;
/// Rounds after which other tasks of the thread have their turn.
const ROUNDS: usize = 64;
/// Responses that a client may reset, beyond four for each that it takes. Someone who turns pages quickly
/// stays far below; a client that only makes the server work does not (CVE-2023-44487).
const MAX_RESETS: u64 = 500;
/// Levels for which coupled mode keeps the queue empty. A page's large images are P1: not held back, they would
/// fill the queue before the stylesheet that comes after them.
const KEPT_FREE_FOR: PrioritySet = PrioritySet::one(Priority::P0);
/// Most bytes that a connection stages beyond what each of its responses may.
const MORE_STAGED: usize = 256 << 10;
/// Time for the client to end its direction after ours.
const LINGER: std::time::Duration = std::time::Duration::from_secs(1);

/// Serves a connection of HTTP/2 until it ends.
///
/// # Errors
/// If the connection breaks, or the client violates the protocol.
pub(crate) async fn serve<S>(
    socket: Socket,
    service: S,
    context: Arc<Context>,
    shutdown: Shutdown,
) -> Result<(), EarlyEnd>
where
    S: WebService,
{
    let limits = context.config.limits;
    let streams = limits.streams;
    let wire = Wire::new(socket.with_urgent(KEPT_FREE_FOR), Signals::new(Protocol::Http2, streams as usize));
    let mut builder = ::h2::server::Builder::new();
    builder
        .max_concurrent_streams(streams)
        .max_header_list_size(u32::try_from(limits.header_list.get()).unwrap_or(u32::MAX))
        .initial_window_size(limits.upload_window)
        .initial_connection_window_size(limits.upload_window.saturating_mul(4));
    if context.config.extended_connect {
        builder.enable_connect_protocol();
    }
    let mut handshake = Box::pin(builder.handshake::<_, Granted>(wire.clone()));
    let greeting = poll_fn(|cx| {
        let polled = handshake.as_mut().poll(cx);
        wire.inner().flush()?;
        polled.map_err(EarlyEnd::from)
    });
    let greeted = tokio::time::timeout(limits.handshake, greeting).await;
    let connection = greeted.map_err(|_| EarlyEnd::Silent)??;
    drop(handshake);
    let exchange =
        Exchange::new(context.config.exchange_for(streams)).map_err(|_| EarlyEnd::Configuration)?;
    let now = Instant::now();
    let mut driver = Driver {
        connection,
        wire,
        books: Books::new(exchange),
        inbox: Arc::default(),
        streams: StreamMap::new(),
        refills: Refills::default(),
        begins: Pace::default(),
        enlarged: Vec::new(),
        ending: Vec::new(),
        service,
        memory: Memory::default(),
        context,
        epoch: now,
        rate: Rate::ZERO,
        chunk: Amount::ZERO,
        resets: 0,
        completed: 0,
        round: 0,
        used: PrioritySet::EMPTY,
        urgent_at: Time::ZERO,
        blocked: false,
        progress_at: now,
        stall_at: None,
        idle_since: now,
        timer: Box::pin(tokio::time::sleep_until(now)),
        shutdown: Some(shutdown),
        grace_until: None,
    };
    let result = poll_fn(|cx| driver.poll(cx)).await;
    driver.finish(result).await
}

struct Driver<S: WebService> {
    connection: Connection<Wire, Granted>,
    wire: Wire,
    books: Books,
    inbox: Arc<Inbox>,
    streams: StreamMap<Box<Stream>>,
    /// Responses whose stage may be filled in a moment.
    refills: Refills,
    /// Pace at which the latest response began.
    begins: Pace,
    /// Responses whose stages have more than usual, or may. The last one has the turn.
    enlarged: Vec<StreamId>,
    /// Streams whose end has been granted, and of which bytes may be outstanding.
    ending: Vec<StreamId>,
    service: S,
    /// Memory of the latest handler that did not wait.
    memory: Memory<S>,
    context: Arc<Context>,
    epoch: Instant,
    /// Rate and chunk that the exchange knows.
    rate: Rate,
    chunk: Amount,
    /// Responses that the client has reset, and those that have been sent as a whole.
    resets: u64,
    completed: u64,
    /// Number of the round of grants.
    round: u64,
    /// Levels at which a response was ever opened, or will be.
    used: PrioritySet,
    /// Time at which urgent data last waited.
    urgent_at: Time,
    /// True if the kernel has to send something before the next chunk.
    blocked: bool,
    /// Time since which no content that waits has left.
    progress_at: Instant,
    /// Earliest time at which a response may have stalled; `None` if none waits for credit.
    stall_at: Option<Instant>,
    /// Time since which there is no stream.
    idle_since: Instant,
    timer: Pin<Box<Sleep>>,
    /// Future that ends when the server shuts down; `None` after that.
    shutdown: Option<Shutdown>,
    grace_until: Option<Instant>,
}

impl<S> Driver<S>
where
    S: WebService,
{
    fn poll(&mut self, cx: &mut Poller<'_>) -> Poll<Result<(), EarlyEnd>> {
        self.inbox.register(cx.waker());
        self.refills.turn();
        if let Some(shutdown) = &mut self.shutdown
            && shutdown.as_mut().poll(cx).is_ready()
        {
            self.shutdown = None;
            self.grace_until = Some(Instant::now() + self.context.config.limits.grace);
            self.connection.graceful_shutdown();
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
            if self.resets > MAX_RESETS + 4 * self.completed {
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
                self.progress_at = Instant::now();
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
            if (inner.is_pending() || self.blocked) && inner.socket.poll_write_ready(cx)?.is_ready() {
                return Ok(Poll::Ready(()));
            }
            (inner.is_pending(), inner.socket.look(), inner.head_since())
        };
        let now = Instant::now();
        let limits = &self.context.config.limits;
        let waits = pending || !self.books.accounts().exchange.is_idle();
        if !waits {
            self.progress_at = now;
        }
        // Coupled mode holds data back for round trips, and so never for that long if the client takes any.
        let stuck_at = waits.then(|| self.progress_at + limits.stall);
        if stuck_at.is_some_and(|at| now >= at) {
            self.context.counters.stuck();
            return Err(EarlyEnd::Stuck);
        }
        if self.stall_at.is_some_and(|at| now >= at) {
            self.reset_stalled(now);
            return Ok(Poll::Ready(()));
        }
        let head_until = head_since.map(|since| since + limits.handshake);
        if head_until.is_some_and(|at| now >= at) {
            self.context.counters.slow_head();
            return Err(EarlyEnd::SlowHead);
        }
        if self.grace_until.is_some_and(|at| now >= at) {
            return Err(EarlyEnd::Late);
        }
        let idle_until = if self.streams.is_empty() {
            Some(self.idle_since + limits.idle).filter(|_| self.grace_until.is_none())
        } else {
            self.idle_since = now;
            None
        };
        if idle_until.is_some_and(|at| now >= at) {
            self.grace_until = Some(now + limits.grace);
            self.connection.graceful_shutdown();
            return Ok(Poll::Ready(()));
        }
        let refill_until = match self.refills.reason() {
            Some(Pause::Until(at)) if now >= at => {
                self.refills.resume();
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
        let far = now + limits.idle.max(limits.stall);
        let next = [look, stuck_at, self.stall_at, head_until, self.grace_until, idle_until, refill_until]
            .into_iter()
            .flatten()
            .fold(far, Instant::min);
        if self.timer.deadline() != next {
            self.timer.as_mut().reset(next);
        }
        Ok(self.timer.as_mut().poll(cx))
    }

    /// Lets the library read and write, and takes the requests that have arrived. Returns true if the
    /// connection is over.
    fn take_requests(&mut self, cx: &mut Poller<'_>) -> Result<bool, EarlyEnd> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.request(request, respond),
                Poll::Ready(Some(Err(error))) => return Err(error.into()),
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => return Ok(false),
            }
        }
    }

    /// Takes a request: decides about its urgency, and lets its handler begin.
    fn request(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Granted>) {
        let id = StreamId(respond.stream_id().as_u32().into());
        let config = &self.context.config;
        let (head, body) = request.into_parts();
        let hints = request_hints(&head.headers, head.uri.path());
        let decision = {
            let mut inner = self.wire.inner();
            inner.granted();
            let priority = head.headers.get_all(&PRIORITY).iter().map(http::HeaderValue::as_bytes);
            let counts = !inner.signals.ignores_guesses();
            inner.signals.request(id, priority, counts.then(|| config.guess.request(&hints)).flatten())
        };
        let Ok(decision) = decision else {
            // The library allows no more streams than the signals do, so this is never reached.
            self.context.counters.refused();
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        };
        self.context.counters.requested();
        if is_of_ordering_client(decision.source) {
            // Urgent data will come: what is in flight before it decides how long that takes. Coupled mode
            // does not wait for the first of it.
            self.used = self.used.with(Priority::P0);
        }
        let bell = Bell::new(id, Arc::clone(&self.inbox));
        let stage = Arc::new(Stage::new(bell, config.staged()));
        let record = Record::begin(&head, decision, &self.context);
        let mut stream = Stream::new(Sender::Head(respond), Arc::clone(&stage), record);
        if let Some(response) = self.context.refusal(&head) {
            stage.head(response, true);
            stage.announce();
        } else if config.guess.declines(&hints) {
            self.context.counters.declined();
            stage.head(declined(&self.context), true);
            stage.announce();
        } else {
            let announced = content_length(&head.headers);
            let (body, tunnel) = match head.extensions.get::<::h2::ext::Protocol>() {
                Some(_) => {
                    let (body, upload) = Body::shared(body);
                    (body, Tunnel::new(upload))
                }
                None => (Body::http2(body, announced), None),
            };
            let mut request = Request::from_parts(head, body);
            let patience = Patience::with(&mut request, &self.context);
            self.context.introduce(request.extensions_mut());
            request.extensions_mut().insert(decision);
            if request.method() == Method::CONNECT {
                request.extensions_mut().insert(self.context.ending.clone());
            }
            request.extensions_mut().insert(EarlyHints::new(Arc::clone(&stage)));
            let dates = Arc::clone(&self.context.dates);
            let memory = mem::take(&mut self.memory);
            let tunnel = tunnel.map(|(tunnel, offer)| {
                request.extensions_mut().insert(offer);
                // The name by which handlers for hyper know it.
                #[cfg(any(feature = "axum", feature = "proxy"))]
                request.extensions_mut().insert(hyper::ext::Protocol::from_static(WEBSOCKET));
                tunnel
            });
            let handling = Handling::new(self.service.clone(), request, stage, dates, memory);
            let mut handling = handling.watched(patience).offer(tunnel);
            let ended = if config.spawn { None } else { handling.begin() };
            match ended {
                Some(memory) => self.memory = memory,
                None => {
                    stream.spawn(handling);
                    // It may begin in a moment, and less urgent ones then follow it.
                    let now = Instant::now();
                    stream.empty_since = Some(now);
                    self.refills.note(id, now, self.begins);
                }
            }
        }
        // The first look registers the stream for a reset by the client.
        stream.ring();
        self.streams.insert(id, Box::new(stream));
    }

    /// Attends to all streams that need it now. Returns true if there was one.
    fn attend_all(&mut self) -> bool {
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
        if let Some(Head { response, is_end }) = progress.head {
            let decision = {
                let headers = response.headers();
                let mut inner = self.wire.inner();
                let guess = if inner.signals.ignores_guesses() {
                    None
                } else {
                    let table = &self.context.config.guess;
                    table.response(inner.signals.guess(id), &response_hints(headers))
                };
                let priority = headers.get_all(&PRIORITY).iter().map(http::HeaderValue::as_bytes);
                inner.signals.response(id, priority, guess).ok()
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
            let opened = self.books.accounts().exchange.open(id, parameters);
            if opened.is_err() {
                // As many may be open as there are streams, so this is never reached.
                stream.reset(Reason::INTERNAL_ERROR);
                self.close(id, false);
                return Ok(());
            }
            self.used = self.used.with(self.context.config.levels().level(parameters.urgency));
            let now = Instant::now();
            if let Some(since) = stream.empty_since.take() {
                self.begins = Pace::of(now - since);
            }
            if progress.bytes == 0 {
                // What follows a head of an origin is often there already.
                stream.empty_since = Some(now);
                self.refills.note(id, now, stream.pace);
            }
        }
        if progress.bytes > 0 {
            let now = Instant::now();
            if let Some(since) = stream.empty_since.take() {
                stream.pace = Pace::of(now - since);
            }
            stream.record.supplied(now);
            let _ = self.books.accounts().exchange.supply(id, Amount::new(progress.bytes as u64));
        }
        match progress.end {
            None => {}
            Some(End::Complete(trailers)) => {
                stream.trailers = trailers;
                let _ = self.books.accounts().exchange.finish(id);
            }
            Some(End::Failed) => {
                self.context.counters.failed();
                stream.fail();
                stream.record.trace_failure(Outcome::Failed);
                self.close(id, false);
                return Ok(());
            }
        }
        if stream.poll_reset()? {
            self.context.counters.cancelled();
            self.resets += 1;
            stream.record.trace_failure(Outcome::Reset);
            self.close(id, false);
            return Ok(());
        }
        if stream.held && stream.poll_credit()? {
            stream.held = false;
            let _ = self.books.accounts().exchange.release(id);
        }
        Ok(())
    }

    /// Follows signals that have changed the order.
    fn follow_changes(&mut self) {
        let mut inner = self.wire.inner();
        while let Some((id, decision)) = inner.signals.next_change() {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.record.decide(decision);
                // A response that has not begun is opened with it.
                if self.books.accounts().exchange.reprioritise(id, decision.parameters).is_ok() {
                    let level = self.context.config.levels().level(decision.parameters.urgency);
                    self.used = self.used.with(level);
                }
            }
        }
    }

    /// Grants chunks as long as the queues below have little left. Returns true if any was.
    fn grant_all(&mut self) -> Result<bool, EarlyEnd> {
        self.blocked = false;
        let mut frames = 0;
        // Response whose bytes the library has in more than one frame. The library lets streams take turns for each of
        // their frames, so that it writes those before another one's.
        let mut split = None;
        self.round += 1;
        loop {
            let (waiting, outstanding) = {
                let exchange = &self.books.accounts().exchange;
                (exchange.waiting(), exchange.outstanding())
            };
            if waiting.is_empty() {
                break;
            }
            let budget = self.budget(waiting, outstanding, frames)?;
            if budget == 0 {
                break;
            }
            if !self.refills.is_empty() && self.gives_way() {
                break;
            }
            if split.is_some() && split != self.books.accounts().exchange.peek().map(|next| next.stream) {
                break;
            }
            let Some(grant) = self.books.accounts().exchange.grant(Amount::new(budget as u64)) else { break };
            {
                let mut inner = self.wire.inner();
                inner.socket.grant(waiting);
                inner.granted();
            }
            frames += 1;
            let round = self.round;
            let before =
                self.streams.get_mut(grant.stream).map(|stream| mem::replace(&mut stream.round, round));
            if grant.len > FRAME || before == Some(round) {
                split = Some(grant.stream);
            }
            if let Err(error) = self.send(grant) {
                tracing::debug!(stream = grant.stream.0, %error, "a response ended early");
                self.close(grant.stream, false);
            }
        }
        Ok(frames > 0)
    }

    /// True if the response whose turn it is gives way to one that goes before it and is about to have
    /// bytes.
    fn gives_way(&mut self) -> bool {
        let Self { refills, streams, books, context, .. } = self;
        let accounts = books.accounts();
        let exchange = &accounts.exchange;
        let Some(next) = exchange.peek() else { return false };
        let levels = context.config.levels();
        let supply = |id| match (streams.get(id), exchange.response(id)) {
            (Some(stream), Some(response)) if response.staged.is_zero() && !response.finished => {
                if stream.stage.is_filling() { Supply::Filling } else { Supply::Resting }
            }
            // It has not begun.
            (Some(_), None) => Supply::Resting,
            _ => Supply::Settled,
        };
        let precedes = |id| {
            let parameters = streams.get(id).map(|stream| stream.record.decision.parameters);
            parameters.is_some_and(|own| precedes((id, own), (next.stream, next.parameters), levels))
        };
        refills.pause(Instant::now(), supply, precedes)
    }

    /// Returns the bytes of content that may be granted now; `frames` have been in this round.
    fn budget(
        &mut self,
        waiting: PrioritySet,
        outstanding: Amount,
        frames: usize,
    ) -> Result<usize, EarlyEnd> {
        let now = Time::ZERO + self.epoch.elapsed();
        let rule = self.context.config.chunk;
        if !waiting.and(PrioritySet::URGENT).is_empty() {
            self.urgent_at = now;
        }
        let quiet = now.since(self.urgent_at) >= rule.quiet_after;
        let mut inner = self.wire.inner();
        // What TLS holds would stand before the chunk.
        if inner.socket.is_pending() {
            return Ok(0);
        }
        let chunk = inner.socket.measure(now, quiet)?;
        if (inner.socket.rate(), chunk.wire) != (self.rate, self.chunk) {
            (self.rate, self.chunk) = (inner.socket.rate(), chunk.wire);
            self.books.accounts().exchange.set_rate(self.rate, chunk.wire);
        }
        inner.socket.couple(now, self.used);
        if let Some(trace) = &self.context.trace
            && let Some(state) = inner.socket.coupled()
        {
            trace.coupled(state.mode, state.cap);
        }
        // A fast connection finds out by a write that blocks. Within a round nothing is written, so the
        // kernel is asked once.
        if chunk.slow && frames == 0 && !inner.socket.is_writable()? {
            self.blocked = true;
            return Ok(0);
        }
        let room = inner.socket.room(now, waiting, chunk.wire);
        if room.is_zero() {
            return Ok(0);
        }
        let before = inner.collected()
            + usize::try_from(outstanding.get()).unwrap_or(usize::MAX)
            + frames * FRAME_HEADER;
        let budget = inner.socket.payload(room).saturating_sub(before + FRAME_HEADER);
        if budget < LEAST {
            return Ok(0);
        }
        // The library hands the connection's window out in the order in which streams ask. So nothing
        // is asked for beyond it: the window goes to the response whose turn it is when it opens.
        let window = inner.allowed().saturating_sub(self.books.accounts().charged);
        Ok(budget.min(usize::try_from(window).unwrap_or(usize::MAX)))
    }

    /// Gives the library the bytes of a grant, as far as the client has given credit for them.
    fn send(&mut self, grant: Grant) -> Result<(), ::h2::Error> {
        if self.enlarged.last() != Some(&grant.stream) {
            self.enlarge(grant.stream);
        }
        let Some(stream) = self.streams.get_mut(grant.stream) else { return Ok(()) };
        let now = Instant::now();
        let wanted = usize::try_from(grant.len.get()).unwrap_or(usize::MAX);
        let credit = stream.credit(wanted);
        if credit < wanted {
            {
                let exchange = &mut self.books.accounts().exchange;
                let _ = exchange.refuse(grant, Amount::new(credit as u64));
                // The stream steps aside, and delays no other.
                let _ = exchange.hold(grant.stream);
            }
            stream.held = true;
            if credit > 0 || stream.stalled_since.is_none() {
                stream.stalled_since = Some(now);
                self.stall_at = earliest(self.stall_at, now + self.context.config.limits.stall);
            }
            stream.ring();
            if credit == 0 {
                return Ok(());
            }
        } else {
            stream.stalled_since = None;
        }
        let taken = credit.min(wanted);
        let is_last = grant.fin && taken == wanted;
        let content = stream.stage.take(taken);
        stream.record.granted(now, taken, grant.priority);
        self.context.counters.granted(grant.priority, taken);
        let ends = is_last && stream.trailers.is_none();
        if taken > 0 || ends {
            stream.send(Granted::new(content, grant.stream, self.books.clone()), ends)?;
        }
        let exchange = &self.books.accounts().exchange;
        if !is_last && exchange.response(grant.stream).is_some_and(|response| response.staged.is_zero()) {
            stream.empty_since = Some(now);
            self.refills.note(grant.stream, now, stream.pace);
        }
        if is_last {
            if let Some(trailers) = stream.trailers.take() {
                stream.send_trailers(trailers)?;
            }
            self.ending.push(grant.stream);
        }
        Ok(())
    }

    /// Lets the response whose turn it is stage two chunks more, so that its source has the time of one for its next
    /// piece. Those before it keep what they have staged, and get no more than usual. An incremental one does not:
    /// its turns would become longer while another one's source is asked.
    fn enlarge(&mut self, id: StreamId) {
        let usual = self.context.config.staged();
        let more = usize::try_from(self.chunk.get()).unwrap_or(usize::MAX).saturating_mul(2).min(MORE_STAGED);
        let streams = &self.streams;
        let mut beyond = 0;
        self.enlarged.retain(|enlarged| {
            let Some(stream) = streams.get(*enlarged) else { return false };
            stream.stage.set_limit(usual);
            let staged = stream.stage.staged().saturating_sub(usual);
            let keeps = *enlarged != id && staged > 0;
            beyond += if keeps { staged } else { 0 };
            keeps
        });
        if more > usual
            && beyond + more <= MORE_STAGED
            && let Some(stream) = streams.get(id)
            && !stream.record.decision.parameters.incremental
        {
            stream.stage.set_limit(usual.saturating_add(more));
            self.enlarged.push(id);
        }
    }

    /// Resets the responses of which the client takes nothing: it has given no credit for them for too long.
    /// Their handlers end.
    fn reset_stalled(&mut self, now: Instant) {
        let stall = self.context.config.limits.stall;
        let mut stalled = Vec::new();
        self.stall_at = None;
        for (id, stream) in self.streams.iter() {
            let Some(stalls) = stream.stalled_since.map(|since| since + stall) else { continue };
            if stalls <= now {
                stalled.push(id);
            } else {
                self.stall_at = earliest(self.stall_at, stalls);
            }
        }
        for id in stalled {
            if let Some(stream) = self.streams.get_mut(id) {
                tracing::debug!(stream = id.0, "the client takes nothing of a response");
                self.context.counters.stalled();
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
    fn close(&mut self, id: StreamId, complete: bool) {
        let _ = self.books.accounts().exchange.close(id);
        self.forget(id, complete);
    }

    /// Forgets a stream whose response is closed.
    fn forget(&mut self, id: StreamId, complete: bool) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        stream.stage.close();
        self.refills.forget(id);
        let _ = self.wire.inner().signals.close(id);
        stream.record.complete = complete;
        self.completed += u64::from(complete);
        self.context.log(&stream.record);
    }

    /// Forgets all streams.
    fn close_all(&mut self) {
        while let Some(id) = self.streams.first().map(|(id, _)| id) {
            self.close(id, false);
        }
    }

    /// Ends the connection: what is left of it is sent.
    async fn finish(mut self, result: Result<(), EarlyEnd>) -> Result<(), EarlyEnd> {
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
            self.context.counters.violated();
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

/// True if a source shows a client that asks for some responses before others, as browsers do.
const fn is_of_ordering_client(source: Source) -> bool {
    match source {
        Source::Update | Source::Header | Source::Weights | Source::Purpose | Source::Destination => true,
        Source::Origin
        | Source::Attachment
        | Source::ContentType
        | Source::Extension
        | Source::Length
        | Source::Default => false,
    }
}

/// True if a response goes before the one whose turn it is, once it has bytes.
fn precedes(
    (stream, own): (StreamId, Parameters),
    (next, of_next): (StreamId, Parameters),
    levels: &LevelTable,
) -> bool {
    let rank = |parameters: Parameters| (levels.level(parameters.urgency), parameters.urgency);
    let takes_turns = own.incremental || of_next.incremental;
    match rank(own).cmp(&rank(of_next)) {
        Ordering::Less => true,
        Ordering::Equal => !takes_turns && stream < next,
        Ordering::Greater => false,
    }
}

/// The earlier of two times, of which one may be none.
fn earliest(one: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(one.map_or(other, |one| one.min(other)))
}

static PRIORITY: HeaderName = HeaderName::from_static("priority");
static SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
static SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
static SAVE_DATA: HeaderName = HeaderName::from_static("save-data");

fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    headers.get(name).map(http::HeaderValue::as_bytes)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn request_hints<'a>(headers: &'a HeaderMap, path: &'a str) -> RequestHints<'a> {
    RequestHints {
        path,
        destination: field(headers, &SEC_FETCH_DEST),
        purpose: field(headers, &SEC_PURPOSE),
        save_data: field(headers, &SAVE_DATA),
    }
}

fn response_hints(headers: &HeaderMap) -> ResponseHints<'_> {
    ResponseHints {
        content_type: field(headers, &CONTENT_TYPE),
        disposition: field(headers, &CONTENT_DISPOSITION),
        length: content_length(headers).map(Amount::new),
    }
}

/// Response to a prefetch of a client that saves data.
fn declined(context: &Context) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    context.dates.stamp(headers);
    response
}
