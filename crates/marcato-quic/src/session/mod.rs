//! Session: one connection, its lanes, and the messages that it sends and receives.
//!
//! This file has the owner's interface. `input` handles received data and timeouts, `lanes` and
//! `low` keep the lanes. `output` builds packets, `feed` chooses new data for them, and `carriers`
//! writes it to streams. State with rules of its own is in a type and a file of its own, such as
//! `send_state` or `credit`.
//!
//! The rules of a whole session are tested between two of them in virtual time: `pair`, `rules`,
//! `early_rules`, `owner_rules`, `endpoint_rules`.

mod ack_debt;
mod alarms;
mod arrivals;
mod carriers;
mod clocks;
mod credit;
mod datagrams;
mod duplicate;
mod early;
#[cfg(test)]
mod early_rules;
#[cfg(test)]
mod endpoint_rules;
mod error;
mod feed;
mod input;
mod lanes;
mod low;
mod note_streams;
mod notes;
mod output;
#[cfg(test)]
mod owner_rules;
#[cfg(test)]
mod pair;
mod phase;
mod repairs;
mod reports;
mod resent;
#[cfg(test)]
mod rules;
mod send_state;
mod stats;
mod stream_feed;
#[cfg(test)]
mod stream_rules;
mod streams;
mod tls;
mod transmit;
mod views;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes as Payload;
use marcato_sched::Conductor;
use marcato_sched::conductor::{self, CancelError, MessageId, Removal, Removals, Removed, Tally};
use marcato_sched::coupled::Coupling;
use marcato_sched::lane::{LaneId, LaneView};
use marcato_sched::reserve::{DeclareError, Source, SourceKey};
use marcato_sched::schedule::{LaneScheduler, Offer, Unused};
use marcato_stream::Cause;
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};
use marcato_wire::{EndReason, ErrorCode, Exchange, Fate, Frame, MessageNumber, UNRELIABLE_HEADER};
use noq_proto::{Connection, PathStatus, StreamId, VarInt};

use crate::clock::Clock;
use crate::config::{SessionConfig, SessionConfigError};
use crate::coupled::LaneCoupling;
use crate::endpoint::SocketId;
use crate::event::Event;
use crate::gate::GateEvent;
use crate::inbox::{Inbox, Piece, Side};
use crate::lane::{Lane, LaneRequest, LaneState, LaneStats, Lanes};
use crate::layer_test::LayerTest;
use crate::long::{LongId, Part};
use crate::low::Keeper;
use crate::outbox::{Key, Outbox, Outgoing};
use crate::right_sizing::RightSizing;
use crate::scheduler::Scheduler;
use crate::sockets::Sockets;

use ack_debt::AckDebt;
use alarms::Alarms;
use arrivals::Arrivals;
use clocks::Clocks;
use credit::Credit;
use datagrams::Datagrams;
use duplicate::Duplicate;
use note_streams::NoteStreams;
use notes::Notes;
use phase::{Finish, Phase};
use repairs::Repairs;
use reports::Reports;
use send_state::SendState;
use streams::Streams;

pub use datagrams::Datagram;
pub use error::LaneError;
pub use marcato_stream::{Closed, Message, SendError};
pub use notes::MAX_NOTES;
pub use stats::{SessionLoad, SessionStats};
pub use transmit::Transmit;

/// Connection with its lanes.
///
/// Its [`Endpoint`](crate::Endpoint) drives it. After each call that may change something, the
/// owner polls the endpoint for datagrams until it returns none.
pub struct Session {
    conn: Connection,
    clock: Clock,
    config: Arc<SessionConfig>,
    sockets: Sockets,
    conductor: Conductor<conductor::Slab, Removals>,
    scheduler: Scheduler,
    lanes: Lanes,
    outbox: Outbox,
    /// Parts granted whole that did not end their message, by level.
    parts: [u64; Priority::COUNT],
    inbox: Inbox,
    repairs: Repairs,
    duplicates: VecDeque<Duplicate>,
    /// Lanes to open once the engine can.
    requests: VecDeque<LaneRequest>,
    arrivals: Arrivals,
    events: VecDeque<Event>,
    send: SendState,
    credit: Credit,
    phase: Phase,
    finish: Finish,
    /// Reason of the session's end.
    closed: Option<Closed>,
    /// TLS alert that ended it.
    alert: Option<u8>,
    /// Control stream, once the peer has allowed it.
    control: Option<StreamId>,
    notes: Notes,
    reports: Reports,
    /// Automatic sizing of the receive window, if configured.
    sizing: Option<RightSizing>,
    /// Streams with data for which the inbox had no room.
    unread: VecDeque<StreamId>,
    datagrams: Datagrams,
    ack_debt: AckDebt,
    clocks: Clocks,
    alarms: Alarms,
    gate_events: Vec<GateEvent>,
    /// Set if data waits for a full socket that was not reported yet.
    holds: bool,
    /// Lengths of the packets with a long header in the latest datagram, until the handshake is
    /// confirmed.
    long_packets: Vec<usize>,
    /// Lanes that a client asked for, and reopens.
    keeper: Keeper,
    /// Test of whether the network serves the high layer first.
    layer_test: Option<LayerTest>,
    /// Levels of the messages offered so far.
    levels: PrioritySet,
    /// Plain streams, if they are the protocol, instead of messages.
    streams: Option<Box<Streams>>,
    /// Pieces of a plain stream on their way into the engine, kept for their memory.
    pieces: Vec<Payload>,
    /// Streams that are too late, while they are reset.
    late: Vec<(StreamId, u64)>,
    /// Counters, except those that [`stats`](Self::stats) takes from other fields.
    stats: SessionStats,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("lanes", &self.lanes)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Construction, and the owner's interface.
impl Session {
    pub(crate) fn new(
        conn: Connection,
        clock: Clock,
        config: Arc<SessionConfig>,
        sockets: Sockets,
        first: LaneRequest,
        now: Time,
    ) -> Result<Self, SessionConfigError> {
        config.validate()?;
        let conductor = Conductor::new(config.conductor)?.observed_by(Removals::default());
        let scheduler = config.scheduler()?;
        let streams = config.protocol.streams().map(Streams::new).transpose()?.map(Box::new);
        // Such a session takes no messages.
        let finish = if streams.is_some() { Finish::Sent } else { Finish::default() };
        let side = if conn.side().is_server() { Side::Server } else { Side::Client };
        let mut session = Self {
            conn,
            clock,
            sockets,
            conductor,
            scheduler,
            lanes: Lanes::default(),
            outbox: Outbox::default(),
            parts: [0; Priority::COUNT],
            inbox: Inbox::new(side, config.inbox),
            repairs: Repairs::default(),
            duplicates: VecDeque::new(),
            requests: VecDeque::new(),
            arrivals: Arrivals::default(),
            events: VecDeque::new(),
            send: SendState::default(),
            credit: Credit::default(),
            phase: Phase::default(),
            closed: None,
            finish,
            alert: None,
            control: None,
            notes: Notes::default(),
            reports: Reports::default(),
            unread: VecDeque::new(),
            datagrams: Datagrams::new(
                config.datagrams.map_or(0, |most| usize::try_from(most.get()).unwrap_or(usize::MAX)),
            ),
            ack_debt: AckDebt::default(),
            clocks: Clocks::default(),
            sizing: config.receive_window_from.map(|from| RightSizing::new(from, config.receive_window, now)),
            alarms: Alarms::default(),
            gate_events: Vec::new(),
            holds: false,
            long_packets: Vec::new(),
            keeper: Keeper::default(),
            layer_test: config.low_lanes.and_then(|low| low.test).map(|test| LayerTest::new(test, now)),
            levels: PrioritySet::EMPTY,
            streams,
            pieces: Vec::new(),
            late: Vec::new(),
            stats: SessionStats::default(),
            config,
        };
        session.adopt(now, noq_proto::PathId::ZERO, 0, first, true);
        if session.streams.is_none() {
            session.begin_early();
        }
        if session.config.reopen.is_some() && side == Side::Client {
            session.keeper.keep(first);
        }
        Ok(session)
    }

    /// Accepts a message to send.
    ///
    /// An unreliable one leaves in one DATAGRAM frame (RFC 9221), in its order among the others,
    /// and is not retransmitted if lost. [`Event::Sent`] reports that it has left. It travels once,
    /// whatever its redundancy.
    ///
    /// # Errors
    ///
    /// If the session is closed or finished, or the message is too long. [`SendError::Busy`] if a limit
    /// of queued or unacknowledged messages, or of awaited reports, is reached. Less urgent messages of
    /// which nothing has left make room for it, and are [dropped](Event::Dropped). An unreliable message
    /// also has to fit a packet, and the peer has to accept DATAGRAM frames. While the session is
    /// [early](Self::is_early) at a client, it is busy for all except reliable messages marked
    /// [idempotent](Message::idempotent).
    pub fn send(&mut self, now: Time, message: Message) -> Result<MessageId, SendError> {
        if !message.reliable && !self.excludes(&message, false) {
            let limit = self.max_datagram().ok_or(SendError::NoDatagrams)?;
            if message.body.len() > limit {
                let limit = Bytes::new(limit as u64);
                return Err(SendError::TooLongForDatagram { limit });
            }
        }
        self.take(now, message, None)
    }

    /// Returns the largest length in bytes of an unreliable message now; `None` if the peer accepts
    /// none.
    pub fn max_datagram(&mut self) -> Option<usize> {
        let engine = self.conn.datagrams().max_size()?;
        let payload = usize::try_from(SessionConfig::payload(self.mtu()).get()).unwrap_or(usize::MAX);
        Some(engine.min(payload).saturating_sub(UNRELIABLE_HEADER))
    }

    /// Takes the oldest unread unreliable message.
    pub fn read_datagram(&mut self) -> Option<Datagram> {
        self.datagrams.pop()
    }

    /// Begins a message that is handed over [part by part](Self::send_part).
    pub fn begin_long(&mut self) -> LongId {
        self.outbox.begin_long()
    }

    /// Accepts the next part of a message; `last` completes it. Parts of one message keep their
    /// order as long as they have one priority. Each is [delivered](Event::Delivered) by itself; if
    /// one is dropped, all are.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](Self::send); also if the message was completed or abandoned, or the
    /// part is empty and not the last.
    pub fn send_part(
        &mut self,
        now: Time,
        long: LongId,
        part: Message,
        last: bool,
    ) -> Result<MessageId, SendError> {
        self.accepts(Some(long))?;
        let base = self.outbox.next_part(long).ok_or(SendError::Ended)?.get();
        self.take(now, Message { reliable: true, ..part }, Some(Part { long, base, last }))
    }

    /// Returns the bytes of a message begun with [`begin_long`](Self::begin_long) that wait to be
    /// handed to the engine.
    pub fn waiting(&self, long: LongId) -> Bytes {
        let parts = self.outbox.parts(long).iter().rev();
        parts.map_while(|id| self.conductor.message(*id)).fold(Bytes::ZERO, |sum, part| sum + part.rest())
    }

    /// Cancels a message that is handed over part by part. The sender tells the receiver that the
    /// parts already sent are void.
    pub fn cancel_long(&mut self, now: Time, long: LongId) {
        self.end_long(now, long, Removal::Cancelled);
        self.sweep(now);
    }

    /// Checks whether the session takes messages, or further parts of a message.
    ///
    /// # Errors
    ///
    /// If it is closed or finished, or the message was completed or abandoned.
    pub fn accepts(&self, long: Option<LongId>) -> Result<(), SendError> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        if self.finish != Finish::Open {
            return Err(SendError::Finished);
        }
        let known = long.is_none_or(|long| self.outbox.next_part(long).is_some());
        if known { Ok(()) } else { Err(SendError::Ended) }
    }

    fn take(&mut self, now: Time, message: Message, part: Option<Part>) -> Result<MessageId, SendError> {
        self.accepts(None)?;
        let busy = SendError::Busy { priority: message.priority };
        if message.body.is_empty() && part.is_some_and(|part| !part.last) {
            return Err(SendError::EmptyPart);
        }
        if self.excludes(&message, part.is_some())
            || message.receipt && self.reports.awaited() >= self.config.max_unfinished
        {
            return Err(busy);
        }
        if !self.make_room(now, message.priority) {
            return Err(busy);
        }
        let offered = message.description();
        let Message { body, priority, redundancy, source, reliable, receipt, exchange, .. } = message;
        let len = Bytes::new(body.len() as u64);
        let id = match self.conductor.offer(now, offered) {
            Ok(id) => id,
            Err(error) => {
                // `offer` also removes expired messages, even if it fails.
                self.sweep(now);
                return Err(SendError::from_offer(error, priority));
            }
        };
        let offer = Offer { message: id.get(), source, priority, len: offered.len, redundancy };
        self.levels = self.levels.with(priority);
        self.scheduler.message_offered(now, &offer);
        self.outbox.insert(Outgoing {
            id,
            number: None,
            body,
            priority,
            carriers: Vec::new(),
            fed: false,
            reached: 0,
            lost: Vec::new(),
            part,
            unreliable: !reliable,
            report: receipt && reliable,
            exchange,
        });
        if let Some(part) = part {
            self.outbox.add_part(part, id, len);
        }
        self.sweep(now);
        Ok(id)
    }

    /// Makes room in the outbox for a message of `priority`. Returns whether there is some.
    ///
    /// A less urgent message of which nothing has left gives way. P0 may exceed the limit by the
    /// Conductor's reserve, because messages that are sent and unacknowledged cannot give way.
    fn make_room(&mut self, now: Time, priority: Priority) -> bool {
        let most = self.config.max_unfinished;
        if self.outbox.len() >= most && self.conductor.make_room(now, priority) {
            self.sweep(now);
        }
        let reserve = if priority == Priority::P0 { conductor::reserve(most) } else { 0 };
        self.outbox.len() < most.saturating_add(reserve)
    }

    /// Cancels a message. The sender tells the receiver that the bytes already sent are void.
    ///
    /// # Errors
    ///
    /// If all of the message has been handed to the engine, or there is no such message.
    pub fn cancel(&mut self, now: Time, message: MessageId) -> Result<(), CancelError> {
        self.conductor.cancel(message)?;
        self.sweep(now);
        Ok(())
    }

    /// Moves the rest of a message to another priority. The receiver learns of it only if nothing
    /// of the message has left.
    ///
    /// # Errors
    ///
    /// If nothing of the message is queued.
    pub fn reprioritise(
        &mut self,
        message: MessageId,
        priority: Priority,
    ) -> Result<(), conductor::ReprioritiseError> {
        self.conductor.reprioritise(message, priority)?;
        self.levels = self.levels.with(priority);
        let key = self.outbox.find(message);
        let Some(outgoing) = key.and_then(|key| self.outbox.get_mut(key)) else { return Ok(()) };
        // All frames of a message name the priority of the first. docs/wire.md, "Frames".
        if outgoing.number.is_none() {
            outgoing.priority = priority;
        }
        for carrier in &outgoing.carriers {
            let _ = self.conn.send_stream(carrier.stream).set_priority(engine_priority(priority));
        }
        Ok(())
    }

    /// Refuses messages less urgent than `threshold` from now on, drops those queued, and returns
    /// the total dropped.
    pub fn discard_less_urgent_than(&mut self, now: Time, threshold: Priority) -> Tally {
        let tally = self.conductor.discard_less_urgent_than(threshold);
        self.sweep(now);
        tally
    }

    /// Declares a periodic source. A lane scheduler that reserves then keeps room for it.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the limit of declared sources is reached.
    pub fn reserve(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.scheduler.declare(key, source)
    }

    /// Withdraws a source; returns `false` if there is no such source.
    pub fn release(&mut self, key: SourceKey) -> bool {
        self.scheduler.withdraw(key)
    }

    /// Returns a source's parameters, declared or learned.
    pub fn source(&self, key: SourceKey) -> Option<Source> {
        self.scheduler.source(key)
    }

    /// Takes the next piece of received data: each message in order, all messages as they arrive.
    pub fn read(&mut self, now: Time) -> Option<Piece> {
        let piece = self.inbox.read();
        if !self.unread.is_empty() && self.inbox.wants_data() {
            while self.inbox.wants_data()
                && let Some(stream) = self.unread.pop_front()
            {
                self.read_stream(now, stream);
            }
            self.act(now);
        }
        piece
    }

    /// Reports the fate of a complete message to the peer, which asked for it ([`Piece::report`]).
    /// The owner bounds the number of [reports that wait](Self::reports): it stops reading.
    pub fn report(&mut self, message: MessageNumber, fate: Fate) {
        self.reports.push(Frame::Report { id: message, fate });
        self.write_notes();
    }

    /// Ends an exchange without a reply. The owner bounds these as it does
    /// [reports](Self::report).
    pub fn end_exchange(&mut self, exchange: u64, reason: EndReason) {
        self.reports.push(Frame::End { exchange, reason });
        self.write_notes();
    }

    /// Returns the number of reports that wait for the peer's flow control. [`Event::Readable`]
    /// follows when the last of them has left.
    pub fn reports(&self) -> usize {
        self.reports.owed()
    }

    /// Asks the peer to hold the messages of a level, or to release them. The owner bounds these as
    /// it does [reports](Self::report).
    pub fn hold(&mut self, priority: Priority, held: bool) {
        self.reports.push(Frame::Hold { priority, held });
        self.write_notes();
    }

    /// Accepts no more messages. The peer hears of it ([`Event::Finished`]) once all are
    /// acknowledged; the other direction goes on.
    pub fn finish(&mut self) {
        if self.finish == Finish::Open {
            self.finish = Finish::Wanted;
        }
        self.finish_if_empty();
    }

    fn finish_if_empty(&mut self) {
        if self.finish == Finish::Wanted && self.outbox.len() == 0 {
            self.finish = Finish::Sent;
            self.reports.push(Frame::Finish);
            self.write_notes();
        }
    }

    /// Ends the control stream, because the owner is about to close the session and has nothing
    /// more to report. Returns whether all reports have arrived; otherwise
    /// [`Event::ReportsArrived`] follows.
    pub fn finish_reports(&mut self) -> bool {
        let finished = self.reports.finish();
        self.write_notes();
        finished || self.reports.finish()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Requests another lane. It opens as soon as the peer allows, and [`Event::LaneUp`] reports
    /// it.
    ///
    /// # Errors
    ///
    /// At a server, at the limit of lanes, or if another lane has the same remote address.
    pub fn add_lane(&mut self, now: Time, request: LaneRequest) -> Result<(), LaneError> {
        if self.conn.side().is_server() {
            return Err(LaneError::NotAClient);
        }
        let lasting = |lane: &&Lane| lane.state() != LaneState::Closing;
        if self.lanes.iter().filter(lasting).count() + self.requests.len() + self.keeper.waiting()
            >= usize::from(self.config.max_lanes)
        {
            return Err(LaneError::TooMany { limit: self.config.max_lanes });
        }
        // A lane that is closing does not count as taken: the request waits until it has closed.
        let taken = self.lanes.iter().filter(lasting).any(|lane| lane.route.remote == request.remote);
        let asked = self.requests.iter().any(|other| other.remote == request.remote);
        if taken || asked || self.keeper.waits(request.remote) {
            return Err(LaneError::SameRemote { remote: request.remote });
        }
        if self.manages(request.layer) || self.config.reopen.is_some() {
            self.keeper.keep(request);
        }
        self.requests.push_back(request);
        self.open_lanes(now);
        Ok(())
    }

    /// Closes a lane. Its packets in flight are sent again on other lanes.
    ///
    /// # Errors
    ///
    /// If there is no such lane, or no other lane is up. A lane that is still opening does not
    /// count, because its path has perhaps never carried anything.
    pub fn remove_lane(&mut self, now: Time, lane: LaneId) -> Result<(), LaneError> {
        let known = self.lanes.get(lane).ok_or(LaneError::Unknown)?;
        let (path, remote) = (known.path, known.route.remote);
        let carries = |other: &Lane| matches!(other.state(), LaneState::Up | LaneState::Stalled);
        if !self.lanes.iter().any(|other| other.id != lane && carries(other)) {
            return Err(LaneError::Last);
        }
        self.conn
            .close_path(self.clock.instant(now), path, VarInt::from_u32(0))
            .map_err(|error| LaneError::Engine(error.to_string()))?;
        self.keeper.drop(remote);
        self.after_engine(now);
        Ok(())
    }

    /// Sets whether a lane is used only while no other is available. The peer is informed. At this
    /// end, acknowledgements leave by the first lane that is not a backup.
    ///
    /// # Errors
    ///
    /// If there is no such lane, or it is closing.
    pub fn set_backup(&mut self, now: Time, lane: LaneId, backup: bool) -> Result<(), LaneError> {
        let echo = self.echo();
        let known = self.lanes.get_mut(lane).ok_or(LaneError::Unknown)?;
        let status = if backup { PathStatus::Backup } else { PathStatus::Available };
        self.conn
            .set_path_status(known.path, status)
            .map_err(|error| LaneError::Engine(error.to_string()))?;
        known.route.backup = backup;
        known.backup.announced(now, backup, echo);
        self.rank_lanes(now);
        self.after_engine(now);
        Ok(())
    }

    /// Ends the session; unsent data is discarded. [`Event::Closed`] reports it like any other end.
    pub fn close(&mut self, now: Time, code: ErrorCode, reason: &str) {
        if self.phase.is_closed() {
            return;
        }
        self.leave_quiet_lanes(now);
        let code = VarInt::from_u64(code.get()).unwrap_or_default();
        self.conn.close(self.clock.instant(now), code, Payload::copy_from_slice(reason.as_bytes()));
        self.over("closed at this end".to_owned(), None, Closed::Local);
        self.send.request_look();
    }

    /// Returns the reason of the session's end; `None` before it.
    pub const fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Returns whether the handshake is complete and the session has not ended.
    pub fn is_open(&self) -> bool {
        self.phase.is_open()
    }

    /// Returns whether the engine has drained the connection and needs no further calls.
    pub fn is_drained(&self) -> bool {
        self.conn.is_drained()
    }

    /// Returns each lane as schedulers see it, with its state and counters.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneView, LaneState, LaneStats)> + '_ {
        // The only lane stays in service while it is silent. The owner hears that it does not answer.
        let state = |lane: &Lane| if lane.health.is_silent() { LaneState::Stalled } else { lane.state() };
        self.lanes.iter().map(move |lane| (lane.view(lane.is_usable()), state(lane), lane.stats))
    }

    /// Returns the latest and the least round trip of a lane; `None` before the first measurement.
    ///
    /// The latest is that of a packet, with the delay of its acknowledgement. Both begin anew when the lane moves
    /// to another host.
    pub fn round_trips(&self, lane: LaneId) -> Option<(Duration, Duration)> {
        self.lanes.get(lane)?.gate.round_trips()
    }

    /// Returns the size of the largest packet that a lane carries, in bytes of UDP payload.
    pub fn packet_size(&self, lane: LaneId) -> Option<Bytes> {
        Some(self.lanes.get(lane)?.gate.mtu())
    }

    /// Returns the state of coupled mode on each lane that has it.
    pub fn coupling(&self) -> impl Iterator<Item = (LaneId, LaneCoupling)> + '_ {
        self.lanes.iter().filter_map(|lane| Some((lane.id, lane.governor.as_ref()?.state())))
    }

    /// Urgent levels of which data waits that flow control does not stop, here or in the engine;
    /// none if the session does not couple.
    ///
    /// Background data is judged by this too: a level in debt may have to be paid by a packet of
    /// background before urgent data may go on.
    fn urgent_waiting(&self) -> PrioritySet {
        if self.config.coupled == Coupling::Off {
            return PrioritySet::EMPTY;
        }
        let credit = if self.credit.allows_streams() { self.credit.levels() } else { PrioritySet::EMPTY };
        let streams = self.streams.as_ref().map(|streams| streams.waiting());
        let queued = |level| match streams {
            Some(waiting) => waiting.contains(level),
            None => self.conductor.counters().level(level).queued.messages > 0,
        };
        let lost = self.send.next_owed().filter(|_| self.send.is_held());
        let waits = |level| {
            lost.as_ref().is_some_and(|(of, _)| *of == level)
                || self.repairs.waits(level)
                || (credit.contains(level) && queued(level))
        };
        Priority::ALL
            .into_iter()
            .filter(|level| self.config.urgent.contains(*level))
            .fold(PrioritySet::EMPTY, |set, level| set.with_if(waits(level), level))
    }

    /// Returns the socket and the remote address of a lane; `None` if there is no such lane.
    pub fn route(&self, lane: LaneId) -> Option<(SocketId, SocketAddr)> {
        self.lanes.get(lane).map(|lane| (lane.route.socket, lane.route.remote))
    }

    /// Returns the messages and bytes that wait to be handed to the engine.
    pub fn queued(&self) -> Tally {
        self.conductor.queued()
    }

    /// Returns the number of messages that are queued or not wholly acknowledged.
    pub fn unfinished(&self) -> usize {
        self.outbox.len()
    }

    /// Returns the current load.
    pub fn load(&self) -> SessionLoad {
        SessionLoad {
            in_flight: self.lanes.iter().map(|lane| lane.flight.len()).sum(),
            retransmissions: self.send.owed(),
            repairs: self.repairs.len(),
            duplicates: self.duplicates.len(),
            notes: self.notes.len(),
            reports: self.reports.owed(),
            unread: self.unread.len(),
            events: self.events.len(),
            requests: self.requests.len() + self.keeper.waiting(),
            unfinished: self.outbox.len(),
        }
    }

    /// Returns the current load of the inbox.
    pub fn inbox_load(&self) -> crate::inbox::InboxLoad {
        self.inbox.load()
    }

    /// Returns the Conductor's counters.
    pub fn conducted(&self) -> &conductor::Counters {
        self.conductor.counters()
    }

    /// Returns the number of the parts of long messages among the messages that the Conductor has
    /// granted, except last parts, by level.
    pub const fn parts(&self) -> [u64; Priority::COUNT] {
        self.parts
    }

    /// Returns the inbox's counters.
    pub fn received(&self) -> crate::inbox::InboxCounters {
        *self.inbox.counters()
    }

    /// Returns the session's counters.
    pub const fn stats(&self) -> SessionStats {
        SessionStats {
            flow_blocked: self.credit.stops(),
            datagrams_received: self.datagrams.received(),
            datagrams_dropped: self.datagrams.dropped(),
            ..self.stats
        }
    }

    /// Returns the capacity that background data was denied because of reservations.
    pub fn unused(&self) -> Unused {
        self.scheduler.unused()
    }

    /// Returns the engine's own statistics.
    pub fn engine_stats(&mut self) -> noq_proto::ConnectionStats {
        self.conn.stats()
    }

    /// Takes the sockets that data waits for because they are full.
    pub(crate) fn take_held(&mut self) -> impl Iterator<Item = SocketId> + '_ {
        let holds = std::mem::take(&mut self.holds);
        let sockets = &self.sockets;
        let full = move |lane: &&Lane| holds && lane.held && sockets.is_full(lane.route.socket);
        self.lanes.iter().filter(full).map(|lane| lane.route.socket)
    }

    /// Replaces the list of the endpoint's sockets.
    pub(crate) fn know_sockets(&mut self, sockets: Sockets) {
        self.sockets = sockets;
    }

    /// Abandons the messages that the Conductor has removed, by itself or on request.
    fn sweep(&mut self, now: Time) {
        while let Some(Removed { id, sent, reason }) = self.conductor.observer_mut().pop_first() {
            let Some(key) = self.outbox.find(id) else { continue };
            let part = self.outbox.get(key).and_then(|message| message.part);
            self.abandon(key, reason);
            self.scheduler.message_complete(now, id.get());
            self.events.push_back(Event::Dropped { message: id, sent, reason });
            if let Some(part) = part {
                self.end_long(now, part.long, reason);
            }
        }
    }

    /// Abandons all parts of a message, and informs the receiver.
    fn end_long(&mut self, now: Time, long: LongId, reason: Removal) {
        let (number, parts) = self.outbox.end_long(long);
        for id in parts {
            // `sweep` removes the part's queued bytes with the rest.
            if self.conductor.cancel(id).is_err()
                && let Some(key) = self.outbox.find(id)
            {
                let sent = self.outbox.get(key).map_or(Bytes::ZERO, |part| Bytes::new(part.len()));
                self.abandon(key, reason);
                self.scheduler.message_complete(now, id.get());
                self.events.push_back(Event::Dropped { message: id, sent, reason });
            }
        }
        if let Some(id) = number {
            self.write_control(Frame::Reset { id, code: reason as u64 });
        }
    }

    /// Marks the session as ended, and queues [`Event::Closed`] once.
    fn over(&mut self, reason: String, code: Option<u64>, closed: Closed) {
        if self.phase.advance(Phase::Closed) {
            self.closed = Some(closed);
            self.events.push_back(Event::Closed { reason, code });
        }
    }

    /// Closes the session because the peer violated the protocol or a limit.
    fn fail(&mut self, now: Time, code: ErrorCode, reason: String) {
        let code = VarInt::from_u64(code.get()).unwrap_or_default();
        self.conn.close(self.clock.instant(now), code, Payload::copy_from_slice(reason.as_bytes()));
        self.over(reason.clone(), None, Closed::lost(Cause::Protocol, reason));
    }

    /// Forgets a message that will not be sent in full, and informs the receiver.
    fn abandon(&mut self, key: Key, reason: Removal) {
        let Some(message) = self.outbox.get(key) else { return };
        // For a part, `end_long` informs the receiver of the whole message.
        let whole = message.part.is_none();
        let mut number = message.number;
        if number.is_none() && whole && !message.unreliable && reason == Removal::Expired {
            // A receiver that has seen nothing of the message learns only that it missed its
            // deadline.
            if self.notes.has_room() {
                number = self.outbox.number(key);
            } else {
                self.stats.unreported += 1;
            }
        }
        let Some(message) = self.outbox.remove(key) else { return };
        self.forget_report(message.number, &message);
        if let Exchange::Reply(exchange) = message.exchange {
            self.end_exchange(exchange, EndReason::Unanswered);
        }
        for carrier in &message.carriers {
            self.reset(carrier.stream, ErrorCode::Abandoned);
        }
        if let Some(id) = number.filter(|_| whole) {
            self.write_control(Frame::Reset { id, code: reason as u64 });
        }
        self.finish_if_empty();
    }

    /// Writes a frame to the control stream.
    fn write_control(&mut self, frame: Frame) {
        self.note(None, frame);
    }

    /// Writes a frame to a stream; `None` is the control stream.
    fn note(&mut self, stream: Option<StreamId>, frame: Frame) {
        self.notes.push(stream, &frame);
        self.write_notes();
    }

    /// Hands small frames to the engine, as far as it has credit.
    fn write_notes(&mut self) {
        // If the server rejected early data, they would be lost.
        if self.is_restricted() {
            return;
        }
        let mut news = false;
        loop {
            while self.notes.takes_reports()
                && let Some(report) = self.reports.next()
            {
                self.notes.push(None, &report);
            }
            let mut streams = NoteStreams { conn: &mut self.conn, control: &mut self.control };
            news |= self.notes.write(&mut streams);
            if self.reports.owed() == 0 || !self.notes.takes_reports() {
                break;
            }
        }
        if self.reports.wrote() {
            self.events.push_back(Event::Readable);
        }
        if self.reports.ends_now(self.notes.len() == 0) {
            let finished = self.control.map(|control| self.conn.send_stream(control).finish());
            if matches!(finished, Some(Ok(()))) {
                news = true;
            } else {
                self.reports.ended();
            }
        }
        if news {
            self.send.request_look();
        }
    }

    /// Stops awaiting the report about a message that will not be complete at the peer.
    fn forget_report(&mut self, number: Option<MessageNumber>, message: &Outgoing) {
        if let Some(number) = number.filter(|_| message.awaits_report()) {
            self.reports.take(number);
        }
    }

    /// Records that the control stream has ended at the peer.
    fn end_control(&mut self, stream: StreamId) {
        if self.control == Some(stream) && self.reports.ended() {
            self.events.push_back(Event::ReportsArrived);
        }
    }

    /// Records that the peer has finished its half of a bidirectional stream.
    fn end_stream(&mut self, stream: StreamId) {
        let mut streams = NoteStreams { conn: &mut self.conn, control: &mut self.control };
        if self.notes.end(stream, &mut streams) {
            self.send.request_look();
        }
    }

    fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        let code = VarInt::from_u64(code.get()).unwrap_or_default();
        // A stream that is already closed needs no reset.
        let _ = self.conn.send_stream(stream).reset(code);
        // Frames that wait for this stream will never be written.
        self.notes.wake(stream);
        // If the stream was waiting for credit, the engine would report new credit on it. It
        // reports none on a stream that is reset, so the block would never end.
        self.credit.resume();
        self.send.request_look();
    }
}

/// Maps a priority to the engine's, which orders streams with data to retransmit.
const fn engine_priority(priority: Priority) -> i32 {
    // The engine sends higher numbers first.
    -(priority as i32)
}
