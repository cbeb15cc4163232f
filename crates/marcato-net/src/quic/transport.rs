//! Connection over QUIC, as its handles see it.

use std::sync::Arc;

use marcato_quic::{LocalSocket, LongId, MessageId, Session, SocketId};
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_stream::{CloseReason, Message, NextPart};
use marcato_units::{Bytes, Priority, Time};
use marcato_wire::{ErrorCode, Manner};

use super::hub::{Entry, Quic, State};
use super::socket::Socket;
use super::{any_address, close, request};
use crate::config::LaneConfig;
use crate::error::{
    AddLaneError, Cause, ChangeError, ChangeLaneError, Closed, ExportError, ReserveError, SendError,
};
use crate::plain::Streams;
use crate::shared::{Shared, Ticket, Transport};
use crate::signal::lock;
use crate::stats::ConnectionStats;
use crate::tls::Handshake;

/// Reason sent to a peer when the application aborts a connection.
const ABORTED: &str = "aborted";

/// Reason for the end of a connection with early data whose handshake does not end.
const LATE: &str = "the handshake took too long";

impl Quic {
    /// Adds a lane by one of a client's shared sockets. Returns `false` if none fits.
    fn add_shared_lane(&self, lane: &LaneConfig) -> Result<bool, AddLaneError> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if !state.shared {
            return Ok(false);
        }
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        // The sockets of lanes that wait to be opened again are not known.
        if session.load().requests > 0 {
            return Ok(false);
        }
        let taken: Vec<SocketId> = sockets_of(session).collect();
        let Some(place) = state.place(lane, &taken) else { return Ok(false) };
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        session.add_lane(now, request(place, lane))?;
        drop(state);
        self.hub.wake.notify_one();
        Ok(true)
    }

    /// Records the results of the TLS handshake.
    pub(super) fn established(&self, session: &Session) {
        let (peer, alpn, resumed) = (session.peer_identity(), session.alpn(), session.resumed());
        let server_name = session.server_name();
        let _ = self.shared.handshake.set(Handshake { peer, alpn, resumed, server_name });
    }

    /// Ends the connection because its handshake takes too long.
    pub(super) fn time_out(&self) {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if let Some((_, session)) = state.connection(self) {
            session.close(now, ErrorCode::NoError, LATE);
            state.end(now, self.id, Closed::lost(Cause::TimedOut, LATE));
        }
        drop(state);
        self.hub.wake.notify_one();
    }

    /// Changes the connection and its session, and wakes their driver; `None` if the connection has
    /// ended.
    fn change<T>(&self, change: impl FnOnce(Time, &mut Entry, &mut Session) -> T) -> Option<T> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        let (entry, session) = state.connection(self)?;
        let changed = change(now, entry, session);
        drop(state);
        self.hub.wake.notify_one();
        Some(changed)
    }

    /// Returns the error of sending on a connection that has ended or is closing here.
    fn over(&self) -> SendError {
        SendError::Closed(self.shared.closed().unwrap_or(Closed::Local))
    }

    /// Returns the connection, if it takes messages.
    fn sending<'a>(&self, state: &'a mut State) -> Result<(&'a mut Entry, &'a mut Session), SendError> {
        let (entry, session) = state.connection(self).ok_or_else(|| self.over())?;
        if entry.finishing.is_some() {
            return Err(SendError::Closed(Closed::Local));
        }
        // The session has ended, and the event of its end was not dispatched yet.
        if let Some(closed) = session.closed() {
            return Err(closed.clone().into());
        }
        Ok((entry, session))
    }

    /// Accepts a message, or a part of one; the flag marks the last part.
    fn take(
        &self,
        message: &Message,
        ticket: Ticket,
        part: Option<(LongId, bool)>,
    ) -> Result<MessageId, SendError> {
        let now = self.hub.now();
        let level = message.priority;
        let mut state = lock(&self.hub.state);
        let (entry, session) = self.sending(&mut state)?;
        session.accepts(part.map(|(long, _)| long))?;
        let next = part.map(|(long, last)| NextPart { waiting: session.waiting(long), last });
        entry.admission.admit(message, session.conducted().level(level).queued.bytes, next)?;
        let id = match part {
            Some((long, last)) => session.send_part(now, long, message.clone(), last)?,
            None => session.send(now, message.clone())?,
        };
        let len = message.body.len();
        entry.span.in_scope(|| tracing::trace!(id = id.get(), priority = %level, len, "offered"));
        let (admitted, receipt) = entry.admission.count(message, ticket);
        entry.messages.insert(id, admitted);
        entry.receipts.extend(receipt.map(|receipt| (id, receipt)));
        drop(state);
        self.hub.wake.notify_one();
        Ok(id)
    }
}

impl Transport for Quic {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn now(&self) -> Time {
        self.hub.now()
    }

    fn offer(&self, message: &Message, ticket: Ticket) -> Result<MessageId, SendError> {
        self.take(message, ticket, None)
    }

    fn admits(&self, message: &Message) -> bool {
        let mut state = lock(&self.hub.state);
        let Ok((entry, session)) = self.sending(&mut state) else { return true };
        let queued = session.conducted().level(message.priority).queued.bytes;
        !matches!(entry.admission.admit(message, queued, None), Err(SendError::Busy { .. }))
    }

    fn begin_long(&self) -> Result<LongId, SendError> {
        let mut state = lock(&self.hub.state);
        let (_, session) = self.sending(&mut state)?;
        Ok(session.begin_long())
    }

    fn offer_part(
        &self,
        long: LongId,
        part: &Message,
        last: bool,
        ticket: Ticket,
    ) -> Result<MessageId, SendError> {
        self.take(part, ticket, Some((long, last)))
    }

    fn cancel_long(&self, long: LongId) {
        self.change(|now, _, session| session.cancel_long(now, long));
    }

    fn max_unreliable(&self) -> Option<Bytes> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self)?;
        session.max_datagram().map(|most| Bytes::new(most as u64))
    }

    fn cancel(&self, id: MessageId) -> Result<(), ChangeError> {
        let cancelled = self.change(|now, _, session| session.cancel(now, id));
        cancelled.and_then(Result::ok).ok_or(ChangeError::TooLate)
    }

    fn reprioritise(&self, id: MessageId, priority: Priority) -> Result<(), ChangeError> {
        let moved = self.change(|_, _, session| session.reprioritise(id, priority));
        Ok(moved.ok_or(ChangeError::TooLate)??)
    }

    fn discard_less_urgent_than(&self, threshold: Priority) {
        self.change(|now, _, session| session.discard_less_urgent_than(now, threshold));
    }

    fn reserve(&self, key: SourceKey, source: Source) -> Result<(), ReserveError> {
        let declared = self.change(|_, _, session| session.reserve(key, source));
        Ok(declared.ok_or(ReserveError::Closed)??)
    }

    fn release(&self, key: SourceKey) -> bool {
        self.change(|_, _, session| session.release(key)).unwrap_or(false)
    }

    fn add_lane(&self, lane: LaneConfig) -> Result<(), AddLaneError> {
        if !self.hub.client {
            return Err(marcato_quic::LaneError::NotAClient.into());
        }
        if self.add_shared_lane(&lane)? {
            return Ok(());
        }
        let addr = lane.local.unwrap_or_else(|| any_address(lane.remote));
        let socket = Socket::bind(addr, lane.layer, self.hub.buffer);
        let socket = Arc::new(socket.map_err(|source| AddLaneError::Bind { addr, source })?);
        let now = self.hub.now();
        let mut guard = lock(&self.hub.state);
        let state = &mut *guard;
        let shared = state.shared;
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        // A socket that no lane uses any more is replaced.
        let used: Vec<SocketId> = sockets_of(session).collect();
        let settled = session.load().requests == 0;
        let mut places = (0..=u8::MAX).map(SocketId).take(state.sockets.len());
        let vacant = places.find(|place| settled && !shared && !used.contains(place));
        let local = LocalSocket { layer: lane.layer, ..LocalSocket::new(socket.addr) };
        let place = match vacant {
            Some(place) => {
                state.endpoint.replace_socket(place, local);
                state.sockets[usize::from(place.0)] = socket;
                place
            }
            None => {
                let place = state.endpoint.add_socket(local).ok_or(AddLaneError::TooManySockets)?;
                state.sockets.push(socket);
                place
            }
        };
        state.changes += 1;
        let (_, session) = state.connection(self).ok_or(AddLaneError::Closed)?;
        session.add_lane(now, request(place, &lane))?;
        drop(guard);
        self.hub.wake.notify_one();
        Ok(())
    }

    fn remove_lane(&self, lane: LaneId) -> Result<(), ChangeLaneError> {
        let removed = self.change(|now, _, session| session.remove_lane(now, lane));
        Ok(removed.ok_or(ChangeLaneError::Closed)??)
    }

    fn set_backup(&self, lane: LaneId, backup: bool) -> Result<(), ChangeLaneError> {
        let set = self.change(|now, _, session| session.set_backup(now, lane, backup));
        Ok(set.ok_or(ChangeLaneError::Closed)??)
    }

    fn export(&self, out: &mut [u8], label: &[u8], context: &[u8]) -> Result<(), ExportError> {
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or(ExportError::Closed)?;
        let len = out.len();
        session.export_keying_material(out, label, context).then_some(()).ok_or(ExportError::Length { len })
    }

    fn accepted(&self) {
        if lock(&self.pending).take().is_some() && lock(&self.hub.state).endpoint.free_place() {
            self.hub.wake.notify_one();
        }
    }

    fn resume(&self) {
        let answers = lock(&self.shared.inbound).answers() > 0;
        let mut state = lock(&self.hub.state);
        let entry = state.connections.get_mut(&self.id).filter(|entry| entry.key == self.key);
        let Some(entry) = entry.filter(|entry| entry.paused || answers) else { return };
        if !std::mem::replace(&mut entry.noticed, true) {
            state.attention.push(self.id);
            drop(state);
            self.hub.wake.notify_one();
        }
    }

    fn finish(&self) {
        self.change(|_, _, session| session.finish());
        self.shared.room.notify_waiters();
    }

    fn is_early(&self) -> bool {
        let mut state = lock(&self.hub.state);
        state.connection(self).is_some_and(|(_, session)| session.is_early())
    }

    fn is_delivered(&self) -> bool {
        let mut state = lock(&self.hub.state);
        state.connection(self).is_none_or(|(entry, _)| entry.messages.is_empty())
    }

    fn close(&self, reason: CloseReason) {
        let mut state = lock(&self.hub.state);
        if let Some((entry, session)) = state.connection(self) {
            if session.has_streams() {
                drop(state);
                return Streams::close(self, reason.code.into(), reason.text.as_bytes());
            }
            entry.finishing.get_or_insert(reason);
            state.attention.push(self.id);
        }
        drop(state);
        self.shared.room.notify_waiters();
        self.hub.wake.notify_one();
    }

    fn abort(&self, reason: Option<CloseReason>) {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if let Some((_, session)) = state.connection(self) {
            if session.has_streams() {
                drop(state);
                let reason = reason.unwrap_or_default();
                return Streams::close(self, reason.code.into(), reason.text.as_bytes());
            }
            match reason {
                None => session.close(now, ErrorCode::Aborted, ABORTED),
                Some(reason) => close(session, now, Manner::Aborted, &reason),
            }
            state.end(now, self.id, Closed::Local);
        }
        drop(state);
        self.hub.wake.notify_one();
    }

    fn stats(&self) -> ConnectionStats {
        let received = *lock(&self.shared.inbound).counters();
        let state = lock(&self.hub.state);
        let entry = state.connections.get(&self.id).filter(|entry| entry.key == self.key);
        let stats = match entry {
            Some(entry) => state.stats(self.id, entry),
            None => lock(&self.last).clone().unwrap_or_default(),
        };
        ConnectionStats { received, ..stats }
    }
}

/// Returns the sockets of a session's lanes.
fn sockets_of(session: &Session) -> impl Iterator<Item = SocketId> + '_ {
    session.lanes().filter_map(|(view, ..)| session.route(view.id)).map(|(socket, _)| socket)
}
