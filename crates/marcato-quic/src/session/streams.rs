//! Plain streams of a session: their waiting bytes, their order, and their acknowledgements.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes as Payload;
use marcato_sched::conductor::Candidates;
use marcato_sched::exchange::{Deadline, Exchange, Grant, GroupId, Parameters, Weight, WeightError};
use marcato_sched::order;
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Rate, Time};
use noq_proto::{Dir, ReadError as EngineReadError, StreamId, VarInt};
use rustc_hash::FxHashMap;

use super::resent::Resent;
use super::{Datagram, Session};
use crate::event::Event;
use crate::inbox::RangeSet;
use crate::lane::Load;
use crate::outbox::Run;
use crate::streams::{
    DatagramError, Direction, End, ReadError, StreamEvent, StreamUnknown, StreamsConfig, StreamsConfigError,
    WriteError,
};

/// First number of datagrams among the streams of the exchange: no stream has it (RFC 9000 §2.1 allows
/// 2^62 ids, of which a connection opens few).
const DATAGRAMS: u64 = 1 << 61;
/// Bytes of each stream for which there is always room, so that background that waits for credit does not exclude urgent
/// streams.
const ALWAYS: u64 = 4096;
/// Interval at which the order learns the rate.
const RATED: Duration = Duration::from_millis(20);

/// Stream that sends.
#[derive(Debug)]
struct Sender {
    /// Bytes that wait to be handed to the engine.
    waiting: VecDeque<Payload>,
    len: u64,
    /// Bytes handed to the engine.
    written: u64,
    acked: RangeSet,
    finished: bool,
    /// Limit for which the owner was refused, and waits for room.
    refused: Option<Refusal>,
    /// Set if the owner wants to know of acknowledgements.
    watched: bool,
    /// Set once the owner was told of one that it has not looked at.
    told: bool,
    /// Code with which the peer has stopped the stream.
    stopped: Option<u64>,
    /// Code with which the stream is reset if it cannot arrive in time.
    late: Option<u64>,
}

/// Limit for which a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Limit of the stream's waiting bytes.
    Stream,
    /// Limit of the waiting bytes of all streams together. The stream is among the crowded ones.
    All,
}

/// Datagram that waits to be sent.
#[derive(Debug)]
struct Waiting {
    body: Payload,
    expires: Option<Time>,
}

/// Plain streams of a session.
#[derive(Debug)]
pub(super) struct Streams {
    exchange: Exchange,
    config: StreamsConfig,
    // The engine numbers streams in sequence, so a peer cannot insert colliding ones.
    /// Streams of which something was written and not all is acknowledged.
    senders: FxHashMap<StreamId, Sender>,
    /// Parameters of open streams that have sent nothing, if they are not the default.
    parameters: FxHashMap<StreamId, Parameters>,
    datagrams: FxHashMap<u64, Waiting>,
    /// Datagrams by the time of their expiry.
    expiries: BTreeSet<(Time, u64)>,
    next_datagram: u64,
    /// Streams whose owner was refused because all streams together have no room.
    crowded: VecDeque<StreamId>,
    /// Streams whose owner was refused because too many send.
    unplaced: BTreeSet<StreamId>,
    resent: Resent,
    /// Bidirectional streams of the peer that were accepted.
    accepted: u64,
    rated: Option<Time>,
    /// Rate at the latest look, and the round trip of the quickest lane.
    rate: Rate,
    srtt: Duration,
    /// Time at which the next stream may be too late.
    late_at: Option<Time>,
    end: Option<End>,
}

impl Streams {
    pub(super) fn new(config: &StreamsConfig) -> Result<Self, StreamsConfigError> {
        Ok(Self {
            exchange: Exchange::new(config.exchange())?,
            config: config.clone(),
            senders: FxHashMap::default(),
            parameters: FxHashMap::default(),
            datagrams: FxHashMap::default(),
            expiries: BTreeSet::new(),
            next_datagram: 0,
            crowded: VecDeque::new(),
            unplaced: BTreeSet::new(),
            resent: Resent::default(),
            accepted: 0,
            rated: None,
            rate: Rate::ZERO,
            srtt: Duration::ZERO,
            late_at: None,
            end: None,
        })
    }

    /// Returns whether the stream has sent something, and is not over.
    pub(super) fn sends(&self, stream: StreamId) -> bool {
        self.senders.contains_key(&stream)
    }

    /// Levels of which data waits that has credit.
    pub(super) fn waiting(&self) -> PrioritySet {
        self.exchange.waiting()
    }

    /// Grants the next chunk among these levels.
    pub(super) fn grant_among(&mut self, budget: Bytes, among: Candidates) -> Option<Grant> {
        self.exchange.grant_among(budget, among)
    }

    /// Returns the order.
    pub(super) const fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Time at which the next datagram expires, or a stream may be too late.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(at, _)| *at).into_iter().chain(self.late_at).min()
    }

    /// Returns the content of a packet that leaves, with its generation if the engine has filled it by itself.
    pub(super) fn load_of(&mut self, load: Load) -> Load {
        match load {
            Load::Control => Load::Resent { priority: Priority::P4, generation: self.resent.sent() },
            Load::Repair { priority, .. } => Load::Resent { priority, generation: self.resent.sent() },
            load => load,
        }
    }

    /// Records that a packet was acknowledged.
    pub(super) fn acked(&mut self, load: Load, events: &mut VecDeque<Event>) {
        match load {
            Load::Stream { stream, run, .. } => {
                if let Some(sender) = self.senders.get_mut(&stream) {
                    sender.arrived(stream, run, events);
                }
            }
            Load::Resent { generation, .. } => {
                self.resent.acked(generation);
                self.resent_arrived(events);
            }
            _ => {}
        }
    }

    /// Records that a packet was lost. Returns the level at which its content is owed.
    pub(super) fn lost(&mut self, load: Load) -> Option<Priority> {
        match load {
            // A stream that was reset needs nothing again.
            Load::Stream { stream, run, priority } => self.senders.contains_key(&stream).then(|| {
                self.resent.run_lost(stream, run);
                priority
            }),
            Load::Resent { priority, generation } => {
                self.resent.lost(generation);
                Some(priority)
            }
            _ => None,
        }
    }

    /// Records the lost runs that have arrived by now.
    fn resent_arrived(&mut self, events: &mut VecDeque<Event>) {
        if self.resent.is_waiting() {
            let Self { senders, resent, .. } = self;
            resent.take_arrived(|stream, run| {
                if let Some(sender) = senders.get_mut(&stream) {
                    sender.arrived(stream, run, events);
                }
            });
        }
    }

    /// Returns the bytes that a stream can take now, up to `len`.
    fn room(&self, waiting: u64, len: usize) -> usize {
        let of_stream = self.config.stream_buffer.get().saturating_sub(waiting);
        let of_all = self.config.buffer.get().saturating_sub(self.exchange.staged().get());
        let of_all = of_all.max(ALWAYS.saturating_sub(waiting));
        usize::try_from(of_stream.min(of_all)).unwrap_or(usize::MAX).min(len)
    }

    /// Removes a stream from the order, with what waits of it.
    fn close(&mut self, stream: StreamId) -> Option<Sender> {
        self.parameters.remove(&stream);
        self.unplaced.remove(&stream);
        self.exchange.close(key(stream));
        self.resent.forget(stream);
        self.senders.remove(&stream)
    }
}

impl Sender {
    /// Takes the next `len` bytes that wait, in the pieces in which they were written.
    fn take(&mut self, mut len: usize, pieces: &mut Vec<Payload>) {
        self.len -= len as u64;
        while len > 0 {
            let Some(first) = self.waiting.front_mut() else { break };
            let part = first.split_to(len.min(first.len()));
            len -= part.len();
            if first.is_empty() {
                self.waiting.pop_front();
            }
            pieces.push(part);
        }
    }

    /// Puts back what the engine has left of the pieces.
    fn put_back(&mut self, pieces: &mut Vec<Payload>) {
        for piece in pieces.drain(..).rev().filter(|piece| !piece.is_empty()) {
            self.len += piece.len() as u64;
            self.waiting.push_front(piece);
        }
    }

    fn arrived(&mut self, stream: StreamId, run: Run, events: &mut VecDeque<Event>) {
        let before = self.acked.floor();
        self.acked.insert(run.start, run.end);
        if self.watched && !self.told && self.acked.floor() > before {
            self.told = true;
            events.push_back(Event::Stream(StreamEvent::Acknowledged(stream)));
        }
    }
}

/// Returns the stream's number in the exchange.
fn key(stream: StreamId) -> order::StreamId {
    order::StreamId(u64::from(stream))
}

/// Interface of the owner, for sessions of [`Protocol::Streams`](crate::streams::Protocol::Streams). In others,
/// there are no streams.
impl Session {
    /// Returns whether this is a session of plain streams.
    pub const fn has_streams(&self) -> bool {
        self.streams.is_some()
    }

    /// Opens a stream of this end; `None` if the peer allows none now, or the session is not open.
    /// [`StreamEvent::Available`] reports that it allows more.
    pub fn open_stream(&mut self, direction: Direction, parameters: Parameters) -> Option<StreamId> {
        if !self.phase.is_open() {
            return None;
        }
        let streams = self.streams.as_mut()?;
        let stream = self.conn.streams().open(direction.into())?;
        if parameters != Parameters::default() {
            streams.parameters.insert(stream, parameters);
        }
        self.stats.streams += 1;
        Some(stream)
    }

    /// Accepts the next stream of the peer; `None` if there is none.
    pub fn accept_stream(&mut self, direction: Direction) -> Option<StreamId> {
        let streams = self.streams.as_mut()?;
        let stream = self.conn.streams().accept(direction.into())?;
        if direction == Direction::Both {
            streams.accepted += 1;
            // The peer may have stopped it already.
            if let Ok(Some(code)) = self.conn.send_stream(stream).stopped() {
                let _ = self.conn.send_stream(stream).reset(code);
                self.send.request_look();
            }
        }
        Some(stream)
    }

    /// Sets the order of the bytes of a stream that have not left.
    pub fn order_stream(&mut self, stream: StreamId, parameters: Parameters) {
        let Some(streams) = &mut self.streams else { return };
        if !streams.sends(stream) {
            // A stream of the peer may have sent nothing yet. The engine knows which exist.
            if self.conn.send_stream(stream).priority().is_ok() {
                streams.parameters.insert(stream, parameters);
            }
            return;
        }
        if let Some(mut response) = streams.exchange.response_mut(key(stream)) {
            response.reprioritise(parameters);
        }
        let level = streams.level(parameters);
        self.levels = self.levels.with(level);
        let _ = self.conn.send_stream(stream).set_priority(engine_priority(level, parameters));
    }

    /// Expects streams of this order: coupled mode keeps the queue short for them from now on, and does not wait for the first.
    pub fn expect_streams(&mut self, parameters: Parameters) {
        if let Some(streams) = &self.streams {
            self.levels = self.levels.with(streams.level(parameters));
        }
    }

    /// Returns whether bytes of a stream wait, and the peer gives no credit for them.
    pub fn stream_is_held(&self, stream: StreamId) -> bool {
        let response = self.streams.as_ref().and_then(|streams| streams.exchange.response(key(stream)));
        response.is_some_and(|response| response.held)
    }

    /// Sets the share of a group of streams, beside others of its urgency.
    ///
    /// # Errors
    ///
    /// If too many groups have a weight of their own.
    pub fn set_stream_weight(&mut self, group: GroupId, weight: Weight) -> Result<(), WeightError> {
        self.streams.as_mut().map_or(Ok(()), |streams| streams.exchange.set_weight(group, weight))
    }

    /// Takes bytes to send on a stream: all of them, or the first part. Returns their number.
    ///
    /// # Errors
    ///
    /// [`WriteError::Blocked`] if there is no room; [`StreamEvent::Writable`] follows.
    pub fn write_stream(&mut self, stream: StreamId, mut data: Payload) -> Result<usize, WriteError> {
        self.sender(stream)?;
        let Some(streams) = &mut self.streams else { return Err(WriteError::Closed) };
        let Some(waiting) = streams.senders.get(&stream).map(|sender| sender.len) else {
            return Err(WriteError::Closed);
        };
        let taken = streams.room(waiting, data.len());
        let Some(sender) = streams.senders.get_mut(&stream) else { return Err(WriteError::Closed) };
        if taken == 0 && !data.is_empty() {
            let full = waiting >= streams.config.stream_buffer.get();
            if sender.refused.is_none() {
                sender.refused = Some(if full { Refusal::Stream } else { Refusal::All });
                if !full {
                    streams.crowded.push_back(stream);
                }
            }
            return Err(WriteError::Blocked);
        }
        data.truncate(taken);
        if !data.is_empty() {
            if let Some(mut response) = streams.exchange.response_mut(key(stream)) {
                // `room` has asked for the same limits.
                response.supply(Bytes::new(taken as u64)).map_err(|_| WriteError::Blocked)?;
            }
            sender.len += taken as u64;
            sender.waiting.push_back(data);
        }
        Ok(taken)
    }

    /// Sets the time by which the bytes of a stream that was written to have to arrive, or removes it. [`StreamEvent::Late`] reports
    /// once that they cannot, before they are sent in vain. With a code, the stream is then reset with it.
    ///
    /// A stream is too late if the bytes that wait, and those that certainly leave before them, need longer at the rate of the
    /// windows, and half a round trip for the way. Bytes in flight are not looked at.
    pub fn set_stream_deadline(&mut self, now: Time, stream: StreamId, at: Option<Time>, reset: Option<u64>) {
        // A stream that is finished, but not over, has a deadline as well.
        let sends = self.streams.as_ref().is_some_and(|streams| streams.sends(stream));
        if !sends && self.sender(stream).is_err() {
            return;
        }
        let Some(streams) = &mut self.streams else { return };
        let Some(sender) = streams.senders.get_mut(&stream) else { return };
        sender.late = reset;
        if let Some(mut response) = streams.exchange.response_mut(key(stream)) {
            response.set_deadline(at.map(|at| Deadline { at, drops: reset.is_some() }));
        }
        streams.late_at = at.map(|_| now).or(streams.late_at);
    }

    /// Ends a stream behind what was written. [`StreamEvent::Finished`] follows once the peer has all of it.
    ///
    /// # Errors
    ///
    /// If the stream was finished, reset or stopped, or is unknown.
    pub fn finish_stream(&mut self, stream: StreamId) -> Result<(), WriteError> {
        match self.sender(stream) {
            Ok(()) => {}
            Err(WriteError::Blocked) => {
                // It has no data, so it needs no place among those that do.
                self.send.request_look();
                return self.conn.send_stream(stream).finish().map_err(|_| WriteError::Closed);
            }
            Err(error) => return Err(error),
        }
        let Some(streams) = &mut self.streams else { return Err(WriteError::Closed) };
        if let Some(sender) = streams.senders.get_mut(&stream) {
            sender.finished = true;
        }
        if let Some(mut response) = streams.exchange.response_mut(key(stream)) {
            response.finish();
        }
        Ok(())
    }

    /// Abandons a stream with a code of the application. What was not sent is dropped, what is in flight is not
    /// retransmitted.
    ///
    /// # Errors
    ///
    /// If the stream is over.
    pub fn reset_stream(&mut self, stream: StreamId, code: u64) -> Result<(), StreamUnknown> {
        let Some(streams) = &mut self.streams else { return Err(StreamUnknown) };
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        streams.close(stream);
        self.conn.send_stream(stream).reset(code).map_err(|_| StreamUnknown)?;
        self.wake_crowded();
        self.send.request_look();
        Ok(())
    }

    /// Returns the bytes of a stream, counted from its start, that the peer is known to have without a gap; `None` before its first byte was
    /// written, and once all of it [is acknowledged](StreamEvent::Finished) or it was reset.
    ///
    /// Retransmitted bytes may count later than they are acknowledged.
    pub fn acknowledged_of(&mut self, stream: StreamId) -> Option<Bytes> {
        let sender = self.streams.as_mut()?.senders.get_mut(&stream)?;
        sender.told = false;
        Some(Bytes::new(sender.acked.floor()))
    }

    /// Reports acknowledgements of a stream that was written to, by [`StreamEvent::Acknowledged`]. One event follows each
    /// [question](Self::acknowledged_of) at most.
    pub fn watch_stream(&mut self, stream: StreamId) {
        if let Some(sender) = self.streams.as_mut().and_then(|streams| streams.senders.get_mut(&stream)) {
            sender.watched = true;
        }
    }

    /// Takes the next bytes of a stream, at most `most`, in order; `None` at its end.
    ///
    /// Reading gives the peer credit for as many more.
    ///
    /// # Errors
    ///
    /// [`ReadError::Blocked`] if nothing has arrived; [`StreamEvent::Readable`] follows.
    pub fn read_stream_data(&mut self, stream: StreamId, most: usize) -> Result<Option<Payload>, ReadError> {
        self.streams.as_ref().ok_or(ReadError::Closed)?;
        // The engine has no other check against a stream of this end alone.
        if stream.dir() == Dir::Uni && stream.initiator() == self.conn.side() {
            return Err(ReadError::Closed);
        }
        let mut source = self.conn.recv_stream(stream);
        let mut chunks = source.read(true).map_err(|_| ReadError::Closed)?;
        let result = chunks.next(most.max(1));
        if chunks.finalize().should_transmit() {
            self.send.request_look();
        }
        match result {
            Ok(Some(chunk)) => {
                if let Some(sizing) = &mut self.sizing {
                    sizing.read(Bytes::new(chunk.bytes.len() as u64));
                }
                Ok(Some(chunk.bytes))
            }
            Ok(None) => Ok(None),
            Err(EngineReadError::Blocked) => Err(ReadError::Blocked),
            Err(EngineReadError::Reset(code)) => Err(ReadError::Reset(code.into_inner())),
        }
    }

    /// Returns the code with which the peer has reset a stream that was not read to its end; `None` if it has not. A stream that was
    /// reset has nothing to read.
    pub fn stream_reset(&mut self, stream: StreamId) -> Option<u64> {
        self.streams.as_ref()?;
        let is_own = stream.dir() == Dir::Uni && stream.initiator() == self.conn.side();
        let code = (!is_own).then(|| self.conn.recv_stream(stream).received_reset())?.ok()??;
        self.send.request_look();
        Some(code.into_inner())
    }

    /// Tells the peer that this end reads no more of a stream.
    ///
    /// # Errors
    ///
    /// If the stream is over.
    pub fn stop_stream(&mut self, stream: StreamId, code: u64) -> Result<(), StreamUnknown> {
        self.streams.as_ref().ok_or(StreamUnknown)?;
        if stream.dir() == Dir::Uni && stream.initiator() == self.conn.side() {
            return Err(StreamUnknown);
        }
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        self.conn.recv_stream(stream).stop(code).map_err(|_| StreamUnknown)?;
        self.send.request_look();
        Ok(())
    }

    /// Takes a datagram to send, in the order of `parameters` among streams and other datagrams. It is not retransmitted. After `lifetime`, it
    /// is dropped if it has not left.
    ///
    /// # Errors
    ///
    /// If the session is not open, the peer takes none, it is too long, or enough datagrams wait.
    pub fn send_datagram(
        &mut self,
        now: Time,
        body: Payload,
        parameters: Parameters,
        lifetime: Option<Duration>,
    ) -> Result<(), DatagramError> {
        if !self.phase.is_open() || self.streams.is_none() {
            return Err(DatagramError::Closed);
        }
        let limit = self.max_stream_datagram().ok_or(DatagramError::Disabled)?;
        if body.len() > limit {
            return Err(DatagramError::TooLong { limit: Bytes::new(limit as u64) });
        }
        let Some(streams) = &mut self.streams else { return Err(DatagramError::Closed) };
        streams.expire(now, &mut self.events);
        if streams.datagrams.len() >= streams.config.max_datagrams {
            return Err(DatagramError::Blocked);
        }
        let number = DATAGRAMS + streams.next_datagram;
        let opened = streams.exchange.open(order::StreamId(number), parameters);
        let Ok(mut response) = opened else { return Err(DatagramError::Blocked) };
        if response.supply(Bytes::new(body.len() as u64)).is_err() {
            streams.exchange.close(order::StreamId(number));
            return Err(DatagramError::Blocked);
        }
        response.finish();
        streams.next_datagram += 1;
        let expires = lifetime.map(|lifetime| now + lifetime);
        streams.expiries.extend(expires.map(|at| (at, number)));
        streams.datagrams.insert(number, Waiting { body, expires });
        self.levels = self.levels.with(streams.level(parameters));
        Ok(())
    }

    /// Returns the largest length in bytes of a datagram of plain QUIC now; `None` if the peer accepts none.
    pub fn max_stream_datagram(&mut self) -> Option<usize> {
        let engine = self.conn.datagrams().max_size()?;
        let payload = crate::config::SessionConfig::payload(self.mtu()).get();
        Some(engine.min(usize::try_from(payload).unwrap_or(usize::MAX)))
    }

    /// Ends the session with a code of the application. Unsent data is discarded.
    pub fn close_streams(&mut self, now: Time, code: u64, reason: &[u8]) {
        if self.phase.is_closed() {
            return;
        }
        self.leave_quiet_lanes(now);
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        self.conn.close(self.clock.instant(now), code, Payload::copy_from_slice(reason));
        self.streams_over(End::Local);
        self.over("closed at this end".to_owned(), None, super::Closed::Local);
        self.send.request_look();
    }

    /// Returns the end of a session of plain streams; `None` before it.
    pub fn end(&self) -> Option<&End> {
        self.streams.as_ref()?.end.as_ref()
    }
}

/// Work of the session for its streams.
impl Session {
    /// Returns the sender of a stream, and makes one at the first write.
    fn sender(&mut self, stream: StreamId) -> Result<(), WriteError> {
        let Some(streams) = &mut self.streams else { return Err(WriteError::Closed) };
        if let Some(sender) = streams.senders.get(&stream) {
            return match sender.stopped {
                Some(code) => Err(WriteError::Stopped(code)),
                None if sender.finished => Err(WriteError::Closed),
                None => Ok(()),
            };
        }
        if stream.dir() == Dir::Uni && stream.initiator() != self.conn.side() {
            return Err(WriteError::Closed);
        }
        // The engine forgets a stream that is over.
        match self.conn.send_stream(stream).stopped() {
            Ok(None) => {}
            Ok(Some(code)) => return Err(WriteError::Stopped(code.into_inner())),
            Err(_) => return Err(WriteError::Closed),
        }
        if streams.senders.len() >= streams.config.max_sending {
            streams.unplaced.insert(stream);
            return Err(WriteError::Blocked);
        }
        let parameters = streams.parameters.remove(&stream).unwrap_or_default();
        if streams.exchange.open(key(stream), parameters).is_err() {
            return Err(WriteError::Blocked);
        }
        let level = streams.level(parameters);
        self.levels = self.levels.with(level);
        let _ = self.conn.send_stream(stream).set_priority(engine_priority(level, parameters));
        let sender = Sender {
            waiting: VecDeque::new(),
            len: 0,
            written: 0,
            acked: RangeSet::default(),
            finished: false,
            refused: None,
            watched: false,
            told: false,
            stopped: None,
            late: None,
        };
        streams.senders.insert(stream, sender);
        Ok(())
    }

    /// Handles an event of a plain stream.
    pub(super) fn plain_stream_event(&mut self, event: noq_proto::StreamEvent) {
        use noq_proto::StreamEvent as Engine;
        let Some(streams) = &mut self.streams else { return };
        let event = match event {
            Engine::Opened { dir } => StreamEvent::Incoming(dir.into()),
            Engine::Available { dir } => StreamEvent::Available(dir.into()),
            Engine::Readable { id } => StreamEvent::Readable(id),
            Engine::Writable { id } => {
                if let Some(mut response) = streams.exchange.response_mut(key(id)) {
                    response.release();
                }
                return;
            }
            Engine::Finished { id } => {
                streams.close(id);
                self.events.push_back(Event::Stream(StreamEvent::Finished(id)));
                return self.wake_crowded();
            }
            Engine::Stopped { id, error_code } => {
                let code = error_code.into_inner();
                streams.close(id);
                self.events.push_back(Event::Stream(StreamEvent::Stopped { stream: id, code }));
                // RFC 9000 §3.5: the sender answers with a reset of the same code. The engine counts a stream of the peer from
                // its acceptance on, and would count one less if it ended before.
                let is_unknown = id.initiator() != self.conn.side() && id.index() >= streams.accepted;
                if !is_unknown {
                    let _ = self.conn.send_stream(id).reset(error_code);
                    self.send.request_look();
                }
                return self.wake_crowded();
            }
        };
        self.events.push_back(Event::Stream(event));
    }

    /// Reads datagrams from the engine at once, because it would drop some silently.
    pub(super) fn take_stream_datagrams(&mut self) {
        while let Some(payload) = self.conn.datagrams().recv() {
            // A part of the received packet would keep all memory alive that was read with it.
            let body = Payload::copy_from_slice(&payload);
            self.datagrams.push(Datagram { priority: Priority::default(), body });
        }
        if !self.datagrams.is_empty() && self.events.back() != Some(&Event::Datagram) {
            self.events.push_back(Event::Datagram);
        }
    }

    /// Records the end of the session.
    pub(super) fn streams_over(&mut self, end: End) {
        if let Some(streams) = &mut self.streams {
            streams.end.get_or_insert(end);
        }
    }

    /// Drops datagrams that have expired.
    pub(super) fn expire_datagrams(&mut self, now: Time) {
        if let Some(streams) = &mut self.streams {
            streams.expire(now, &mut self.events);
        }
    }

    /// Tells the owners of streams that were refused because all together have no room, as many as there is room for.
    pub(super) fn wake_crowded(&mut self) {
        let Some(streams) = &mut self.streams else { return };
        let all = streams.config.buffer.get();
        // A quarter of the room, so that owners do not come for each packet.
        let mut room = all.saturating_sub(streams.exchange.staged().get());
        if room < all / 4 {
            return;
        }
        let mut told = |stream| self.events.push_back(Event::Stream(StreamEvent::Writable(stream)));
        while room > 0
            && let Some(stream) = streams.crowded.pop_front()
        {
            // One that is over meanwhile needs no room, and one that has some by itself was told.
            let sender = streams.senders.get_mut(&stream);
            if let Some(sender) = sender.filter(|sender| sender.refused == Some(Refusal::All)) {
                sender.refused = None;
                room = room.saturating_sub(streams.config.stream_buffer.get());
                told(stream);
            }
        }
        let mut places = streams.config.max_sending.saturating_sub(streams.senders.len());
        while places > 0
            && let Some(stream) = streams.unplaced.pop_first()
        {
            places -= 1;
            told(stream);
        }
    }

    /// Records that the engine holds nothing, for the progress of acknowledgements.
    pub(super) fn streams_look_empty(&mut self) {
        let Some(streams) = &mut self.streams else { return };
        if !streams.resent.is_waiting() {
            return;
        }
        if self.lanes.iter().all(|lane| lane.flight.len() == 0) {
            let Streams { senders, resent, .. } = &mut **streams;
            resent.all_arrived(|stream, run| {
                if let Some(sender) = senders.get_mut(&stream) {
                    sender.arrived(stream, run, &mut self.events);
                }
            });
        } else {
            streams.resent.engine_is_empty();
            streams.resent_arrived(&mut self.events);
        }
    }

    /// Reports the streams that cannot arrive in time, and resets those whose owner wants that.
    pub(super) fn look_for_late(&mut self, now: Time) {
        let Some(streams) = &mut self.streams else { return };
        if streams.late_at.is_none_or(|at| at > now) {
            return;
        }
        let Streams { exchange, senders, rate, srtt, .. } = &mut **streams;
        let mut over = std::mem::take(&mut self.late);
        let events = &mut self.events;
        streams.late_at = exchange.expire(now, *rate, *srtt / 2, |late| {
            let Ok(id) = VarInt::from_u64(late.stream.0).map(StreamId::from) else { return };
            let reset = senders.get(&id).and_then(|sender| sender.late).filter(|_| late.closed.is_some());
            events.push_back(Event::Stream(StreamEvent::Late { stream: id, reset }));
            over.extend(reset.map(|code| (id, code)));
        });
        for (stream, code) in over.drain(..) {
            // A stream that is over needs no reset.
            let _ = self.reset_stream(stream, code);
        }
        self.late = over;
    }

    /// Informs the order of the rate that the session carries.
    pub(super) fn rate_streams(&mut self, now: Time) {
        let Some(streams) = &mut self.streams else { return };
        if streams.rated.is_some_and(|at| now.since(at) < RATED) {
            return;
        }
        streams.rated = Some(now);
        let chunk = self.lanes.iter().map(|lane| lane.gate.mtu()).max().unwrap_or(Bytes::new(1200));
        let rates = self.lanes.iter().filter(|lane| lane.is_usable()).map(|lane| {
            let window = lane.gate.window();
            let window = lane.limit(PrioritySet::EMPTY).map_or(window, |limit| limit.min(window));
            Rate::from_bytes_over(window, lane.rtt.smoothed).as_bps()
        });
        let rate = Rate::from_bps(rates.fold(0, u64::saturating_add));
        (streams.rate, streams.srtt) =
            (rate, self.lanes.iter().map(|lane| lane.rtt.smoothed).min().unwrap_or_default());
        if streams.exchange.deadlines() > 0 {
            streams.late_at = Some(now);
        }
        streams.exchange.set_rate(rate, chunk * self.config.batch.packets.max(1) as u64);
    }

    /// Writes a granted chunk of a stream, as far as the engine takes it, and at most `most` bytes. Returns the run written; `None` if nothing was.
    pub(super) fn write_grant(&mut self, grant: Grant, most: Bytes) -> Option<(StreamId, Run)> {
        let streams = self.streams.as_mut()?;
        let stream = StreamId::from(VarInt::from_u64(grant.stream.0).ok()?);
        let Some(sender) = streams.senders.get_mut(&stream) else {
            streams.exchange.close(grant.stream);
            return None;
        };
        let len = usize::try_from(grant.len.min(most).get()).unwrap_or(usize::MAX);
        let mut pieces = std::mem::take(&mut self.pieces);
        sender.take(len, &mut pieces);
        let mut engine = self.conn.send_stream(stream);
        let written = if len == 0 { Ok(0) } else { engine.write_chunks(&mut &mut pieces[..]) };
        let taken = *written.as_ref().unwrap_or(&0);
        let ends = grant.fin && taken as u64 == grant.len.get();
        if ends {
            let _ = engine.finish();
        }
        sender.put_back(&mut pieces);
        self.pieces = pieces;
        // A quarter of its room, so that the owner does not come for each packet.
        let lean = streams.config.stream_buffer.get() / 4 * 3;
        let has_room = match sender.refused {
            Some(Refusal::Stream) => sender.len <= lean,
            Some(Refusal::All) => sender.len == 0,
            None => false,
        };
        if has_room {
            sender.refused = None;
            self.events.push_back(Event::Stream(StreamEvent::Writable(stream)));
        }
        let start = sender.written;
        sender.written += taken as u64;
        let taken = Bytes::new(taken as u64);
        if taken < grant.len || grant.len.is_zero() && !ends {
            let _ = streams.exchange.refuse(grant, taken);
        }
        if let Some(mut response) = streams.exchange.response_mut(grant.stream) {
            let _ = response.sent(taken);
            if written.is_err() {
                // It waits for credit, and the others go on. The engine reports new credit only after it has
                // refused an attempt, so a short write is tried again.
                response.hold();
            }
        }
        if taken < grant.len.min(most) {
            self.credit.refused();
            self.send.request_look();
        }
        (!taken.is_zero() || ends).then_some((stream, Run { start, end: start + taken.get() }))
    }
}

impl Streams {
    /// Level of data with these parameters.
    fn level(&self, parameters: Parameters) -> Priority {
        parameters.level_in(&self.config.order.levels)
    }

    fn expire(&mut self, now: Time, events: &mut VecDeque<Event>) {
        while let Some(&(at, number)) = self.expiries.first() {
            if at > now {
                break;
            }
            self.expiries.pop_first();
            self.datagrams.remove(&number);
            self.exchange.close(order::StreamId(number));
            events.push_back(Event::Stream(StreamEvent::DatagramDropped));
        }
    }

    /// Takes a granted datagram; `None` if the grant is none of a datagram.
    pub(super) fn take_granted_datagram(&mut self, grant: Grant) -> Option<Payload> {
        let Waiting { body, expires } = self.datagrams.remove(&grant.stream.0)?;
        if let Some(at) = expires {
            self.expiries.remove(&(at, grant.stream.0));
        }
        self.exchange.close(grant.stream);
        Some(body)
    }

    /// Returns whether a number of the exchange is that of a datagram.
    pub(super) const fn is_datagram(number: order::StreamId) -> bool {
        number.0 >= DATAGRAMS
    }
}

/// Maps the order of a stream to the engine's, which orders streams with data to retransmit.
fn engine_priority(level: Priority, parameters: Parameters) -> i32 {
    // The engine sends higher numbers first.
    -((level as i32) << 8 | i32::from(parameters.urgency.get()))
}
