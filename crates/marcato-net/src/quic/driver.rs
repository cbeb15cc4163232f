//! Task that drives the sessions of a hub: receives and sends datagrams, and dispatches events.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use marcato_quic::{Arrival, Event, Piece, Session, SessionId, SocketId};
use marcato_stream::{Answer, Head};
use marcato_units::Time;
use marcato_wire::{Ecn, ErrorCode, Manner};

use super::close;
use super::drivers::{Passed, Seat};
use super::hub::{Entry, Hub, State};
use super::port::Port;
use super::slab::Slabs;
use crate::connection::Connection;
use crate::error::{Cause, Closed, NotDelivered};
use crate::event::ConnectionEvent;
use crate::signal::lock;
use crate::sys::Incoming;

/// Reason sent to a peer when all messages have been delivered.
const FINISHED: &str = "finished";
/// Limit of datagrams that a session hands over at once: small, because granted data leaves before
/// more urgent data can.
const BATCH: NonZeroUsize = NonZeroUsize::new(10).unwrap();
/// Reads from one socket before the others have their turn.
const READS: usize = 16;
/// Batches sent before received datagrams have their turn.
const WRITES: usize = 8;

struct Driver {
    hub: Arc<Hub>,
    /// Copy of the hub's sockets.
    ports: Vec<Port>,
    changes: u64,
    input: Slabs,
    output: Vec<u8>,
    /// Empty buffers for output.
    spare: Vec<Vec<u8>>,
    /// Empty queue for datagrams that other drivers hand over.
    passed: VecDeque<Passed>,
}

pub(super) async fn drive(hub: Arc<Hub>) {
    let mut driver = Driver {
        hub,
        ports: Vec::new(),
        changes: 0,
        input: Slabs::default(),
        output: Vec::new(),
        spare: Vec::new(),
        passed: VecDeque::new(),
    };
    driver.follow(&mut lock(&Arc::clone(&driver.hub).state));
    loop {
        tokio::task::consume_budget().await;
        let read = driver.read() | driver.take_passed();
        let wrote = driver.flush() | driver.write();
        if read {
            // What has arrived is in the processor's cache. Applications on this thread take it now.
            tokio::task::yield_now().await;
        }
        if read || wrote {
            continue;
        }
        let (over, timeout) = driver.look();
        if over && driver.hub.seat.as_ref().is_none_or(Seat::rest) {
            return;
        }
        driver.wait(timeout).await;
    }
}

impl Driver {
    /// Reads the datagrams that have arrived. Returns whether there were any.
    fn read(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.ports.len() {
            // Datagrams that the kernel returns one by one are combined as GRO would have done.
            let mut together: Option<Incoming> = None;
            for _ in 0..READS {
                if !self.input.has_room() {
                    self.hand_over(at, together.take());
                }
                let incoming = match self.ports[at].socket.recv(self.input.room()) {
                    Ok(Some(incoming)) => incoming,
                    Ok(None) => break,
                    // Network errors about datagrams that we have sent are ignored: QUIC detects
                    // the losses itself.
                    Err(error) => {
                        tracing::trace!(%error, "receiving failed");
                        break;
                    }
                };
                any = true;
                match &mut together {
                    Some(before) if before.is_continued_by(&incoming) => before.len += incoming.len,
                    _ => self.hand_over(at, together.replace(incoming)),
                }
            }
            self.hand_over(at, together);
        }
        any
    }

    /// Hands datagrams received on a socket to the sessions, or to the drivers of theirs.
    fn hand_over(&mut self, socket: usize, incoming: Option<Incoming>) {
        let Some(Incoming { from, to, len, segment, tos }) = incoming else { return };
        let Ok(socket) = u8::try_from(socket).map(SocketId) else { return };
        let mut datagrams = self.input.take(len);
        let arrival = Arrival { socket, from, to, ecn: Ecn::from_bits(tos), segment };
        let Some(seat) = &self.hub.seat else { return self.handle(arrival, datagrams) };
        // Datagrams received together may belong to several connections of one client.
        while !datagrams.is_empty() {
            let (len, owner) = seat.run(&datagrams, segment);
            let run = datagrams.split_to(len);
            match owner {
                Some(owner) => seat.pass(owner, arrival, &run),
                None => self.handle(arrival, run),
            }
        }
    }

    /// Hands datagrams to the sessions of this driver.
    fn handle(&self, arrival: Arrival, datagrams: BytesMut) {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if self.input.is_lent_out() {
            for datagram in datagrams.chunks(arrival.segment.max(1)) {
                state.endpoint.handle_datagrams(now, arrival, BytesMut::from(datagram));
            }
        } else {
            state.endpoint.handle_datagrams(now, arrival, datagrams);
        }
    }

    /// Handles the datagrams that other drivers have handed over. Returns whether there were any.
    fn take_passed(&mut self) -> bool {
        let Some(seat) = &self.hub.seat else { return false };
        seat.take(&mut self.passed);
        let any = !self.passed.is_empty();
        for Passed { arrival, datagram } in self.passed.drain(..) {
            let now = self.hub.now();
            lock(&self.hub.state).endpoint.handle_datagrams(now, arrival, datagram);
        }
        any
    }

    /// Follows changes of the hub's sockets.
    fn follow(&mut self, state: &mut State) {
        self.changes = state.changes;
        for at in 0..state.sockets.len() {
            let port = Port::new(Arc::clone(&state.sockets[at]), self.hub.buffer, self.hub.marks);
            match self.ports.get_mut(at) {
                Some(known) if Arc::ptr_eq(&known.socket, &port.socket) => {}
                Some(known) => {
                    *known = port;
                    report_full(state, at, false);
                }
                None => self.ports.push(port),
            }
        }
    }

    /// Sends what waits for sockets that were full. Returns whether anything left.
    fn flush(&mut self) -> bool {
        let mut any = false;
        for (at, port) in self.ports.iter_mut().enumerate() {
            if port.is_full() {
                any |= port.flush(&mut self.spare);
                if !port.is_full() {
                    any = true;
                    report_full(&mut lock(&self.hub.state), at, false);
                }
            }
        }
        any
    }

    /// Sends the next datagrams, one batch at a time. Returns whether there were any.
    fn write(&mut self) -> bool {
        let hub = Arc::clone(&self.hub);
        let mut any = false;
        // The limit gives received datagrams their turn.
        for _ in 0..WRITES {
            let now = hub.now();
            let mut state = lock(&hub.state);
            if self.changes != state.changes {
                self.follow(&mut state);
            }
            if state.endpoint.next_timeout().is_some_and(|at| at <= now) {
                state.endpoint.handle_timeout(now);
            }
            self.output.clear();
            let Some(transmit) = state.endpoint.poll_transmit(now, BATCH, &mut self.output) else {
                if !hub.dispatch(&mut state, now) {
                    return any;
                }
                any = true;
                continue;
            };
            drop(state);
            any = true;
            let at = usize::from(transmit.socket.0);
            let Some(port) = self.ports.get_mut(at) else { continue };
            let was_full = port.is_full();
            port.limit_backlog(now);
            if !port.send(transmit, &mut self.output, &mut self.spare) {
                lock(&hub.state).discarded += 1;
            }
            if port.is_full() && !was_full {
                report_full(&mut lock(&hub.state), at, true);
            }
        }
        any
    }

    /// Returns whether nothing is left to drive, and the time of the next timeout.
    fn look(&self) -> (bool, Option<Time>) {
        let state = lock(&self.hub.state);
        let over = state.accepted.is_none()
            && !state.shared
            && state.connections.is_empty()
            && state.endpoint.sessions().next().is_none();
        (over, state.endpoint.next_timeout())
    }

    async fn wait(&self, timeout: Option<Time>) {
        let ready = poll_fn(|context| {
            let mut ready = false;
            for port in &self.ports {
                ready |= port.poll_ready(context).is_ready();
            }
            if ready { Poll::Ready(()) } else { Poll::Pending }
        });
        let at = timeout.map(|at| self.hub.epoch + at.since(Time::ZERO));
        let sleep = tokio::time::sleep_until(at.unwrap_or(self.hub.epoch).into());
        let passed = async {
            match &self.hub.seat {
                Some(seat) => seat.woken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ready => {}
            () = self.hub.wake.notified() => {}
            () = passed => {}
            () = sleep, if at.is_some() => {}
        }
    }
}

/// Returns the event of a lane as the application sees it; `None` for all others.
fn of_lane(event: Event) -> Option<ConnectionEvent> {
    Some(match event {
        Event::LaneUp(lane) => ConnectionEvent::LaneUp(lane),
        Event::LaneStalled(lane) => ConnectionEvent::LaneStalled(lane),
        Event::LaneRecovered(lane) => ConnectionEvent::LaneRecovered(lane),
        Event::LaneMoved(lane) => ConnectionEvent::LaneMoved(lane),
        Event::LaneBackup { lane, backup } => ConnectionEvent::LaneBackup { lane, backup },
        Event::LowLane { lane, change } => ConnectionEvent::LowLane { lane, change },
        Event::LaneDown { lane, reason, reopens_at } => {
            ConnectionEvent::LaneDown { lane, reason, reopens_at }
        }
        _ => return None,
    })
}

/// Informs the sessions whether a socket is full.
fn report_full(state: &mut State, socket: usize, full: bool) {
    if let Ok(socket) = u8::try_from(socket) {
        state.endpoint.set_socket_full(SocketId(socket), full);
    }
}

impl Hub {
    /// Reports the events of sessions to their connections. Returns whether there were any.
    fn dispatch(self: &Arc<Self>, state: &mut State, now: Time) -> bool {
        let mut any = false;
        while let Some((id, event)) = state.endpoint.poll_event() {
            any = true;
            self.event(state, now, id, event);
            // The last message that it sent may have been delivered.
            if state.connections.get(&id).is_some_and(Entry::ends) {
                state.attention.push(id);
            }
        }
        while let Some(id) = state.attention.pop() {
            let Some(entry) = state.connections.get_mut(&id) else { continue };
            entry.noticed = false;
            let paused = entry.paused;
            any |= Self::answer(state, id);
            if paused {
                any |= Self::pull(state, now, id);
            }
            let entry = state.connections.get(&id).filter(|entry| entry.ends());
            let reason = entry.and_then(|entry| entry.finishing.clone());
            if let Some(reason) = reason
                && let Some(session) = state.endpoint.session(id)
            {
                // The session may now have the end of its reports to send.
                any = true;
                if session.finish_reports() {
                    if reason.is_none() {
                        session.close(now, ErrorCode::NoError, FINISHED);
                    } else {
                        close(session, now, Manner::Closed, &reason);
                    }
                    state.end(now, id, Closed::Local);
                }
            }
        }
        any
    }

    fn event(self: &Arc<Self>, state: &mut State, now: Time, id: SessionId, event: Event) {
        // Early data is for an application that has the connection.
        if matches!(event, Event::Connected | Event::Early) && !state.connections.contains_key(&id) {
            return self.connected(state, now, id);
        }
        let Some(entry) = state.connections.get_mut(&id) else { return };
        match event {
            Event::Connected => {
                if let Some(session) = state.endpoint.peek(id) {
                    entry.quic.established(session);
                }
                if let Some(connecting) = entry.connecting.take() {
                    let _ = connecting.send(Ok(()));
                }
                // All messages may leave now, not only early ones.
                entry.quic.shared.room.notify_waiters();
                entry.quic.shared.readable.notify_waiters();
            }
            // Reading may have been paused for reports, which have left.
            Event::Readable => {
                Self::pull(state, now, id);
            }
            Event::Finished => {
                entry.peer_finished = true;
                Self::pull(state, now, id);
            }
            Event::Reported { message, fate } => entry.reported(message, fate),
            Event::ExchangeEnded { exchange, reason } => {
                lock(&entry.quic.shared.inbound).end_exchange(exchange, reason);
                entry.quic.shared.readable.notify_waiters();
            }
            // The end waits for them, and follows.
            Event::ReportsArrived => {}
            Event::Delivered(message) | Event::Sent(message) => entry.settle(message, Ok(())),
            Event::Stream(event) => entry.quic.plain.event(event, self.client),
            Event::Datagram => {
                let quic = Arc::clone(&entry.quic);
                let Some(session) = state.endpoint.session(id) else { return };
                if session.has_streams() {
                    // The application reads them from the session.
                    return quic.plain.news.notify_waiters();
                }
                let mut inbound = lock(&quic.shared.inbound);
                while let Some(datagram) = session.read_datagram() {
                    inbound.unreliable(datagram.priority, datagram.body);
                }
                drop(inbound);
                quic.shared.readable.notify_waiters();
            }
            Event::Declined(message) => entry.settle(message, Err(NotDelivered::Declined)),
            Event::Dropped { message, reason, .. } => entry.settle(message, Err(reason.into())),
            Event::GivenUp { message, code } => {
                lock(&entry.quic.shared.inbound).give_up(message, code);
                entry.quic.shared.readable.notify_waiters();
            }
            Event::Closed { reason, .. } => {
                let closed = state.endpoint.peek(id).and_then(Session::closed).cloned();
                state.end(now, id, closed.unwrap_or_else(|| Closed::lost(Cause::Stopped, reason)));
            }
            event => {
                entry.span.in_scope(|| tracing::debug!(?event, "lane"));
                if let Some(event) = of_lane(event) {
                    entry.quic.shared.report(&event);
                }
            }
        }
    }

    /// Creates the connection of a peer that has connected.
    fn connected(self: &Arc<Self>, state: &mut State, now: Time, id: SessionId) {
        // One with early data may have been accepted, and have ended, before its handshake is
        // complete.
        let Some(pending) = state.endpoint.take_pending(id) else { return };
        let permit = state.accepted.clone().and_then(|accepted| accepted.try_reserve_owned().ok());
        match permit {
            Some(permit) => {
                let quic = self.adopt(state, id, None);
                *lock(&quic.pending) = Some(pending);
                if let Some(session) = state.endpoint.peek(id) {
                    quic.established(session);
                }
                permit.send(Connection::new(quic));
            }
            None => {
                if let Some(session) = state.endpoint.session(id) {
                    session.close(now, ErrorCode::Crowded, "no application accepts this connection");
                }
            }
        }
    }

    /// Reads a session's data, as far as there is room. Returns whether there was.
    fn pull(state: &mut State, now: Time, id: SessionId) -> bool {
        let (Some(entry), Some(session)) = (state.connections.get_mut(&id), state.endpoint.session(id))
        else {
            return false;
        };
        let quic = Arc::clone(&entry.quic);
        let mut inbound = lock(&quic.shared.inbound);
        let mut any = false;
        let overrun = loop {
            let owed = session.reports() + inbound.answers();
            entry.paused = inbound.is_full() || owed >= entry.quic.hub.limits.receipts;
            if entry.paused {
                break None;
            }
            // Reading also gives the engine room, so it may have packets to send even if no piece
            // was returned.
            any = true;
            let Some(piece) = session.read(now) else {
                if entry.peer_finished {
                    inbound.finish();
                }
                break None;
            };
            if let Err(overrun) = inbound.piece(head(&piece), &piece.bytes, piece.last) {
                break Some(overrun);
            }
        };
        drop(inbound);
        if let Some(overrun) = overrun {
            let reason = overrun.to_string();
            session.close(now, ErrorCode::LimitExceeded, &reason);
            state.end(now, id, Closed::lost(Cause::Protocol, reason));
        }
        quic.shared.readable.notify_waiters();
        any | Self::answer(state, id)
    }

    /// Hands a session the reports about messages that the application has taken, and the ends of
    /// exchanges. Returns whether there were any.
    fn answer(state: &mut State, id: SessionId) -> bool {
        let (Some(entry), Some(session)) = (state.connections.get(&id), state.endpoint.session(id)) else {
            return false;
        };
        let mut inbound = lock(&entry.quic.shared.inbound);
        let mut any = false;
        while let Some(answer) = inbound.take_answer() {
            match answer {
                Answer::Report(report) => session.report(report.number, report.fate),
                Answer::End { exchange, reason } => session.end_exchange(exchange, reason),
                Answer::Hold { priority, held } => session.hold(priority, held),
            }
            any = true;
        }
        any
    }
}

/// Head of the message that a piece belongs to.
pub(super) const fn head(piece: &Piece) -> Head {
    Head::new(piece.message, piece.priority)
        .with_report(piece.report)
        .with_exchange(piece.exchange)
        .with_early(piece.early)
}
