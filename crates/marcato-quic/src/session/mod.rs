//! A session: one connection, its lanes, and what it sends and receives.
//!
//! `input` is what comes in, `output` what goes out; the owner's side is here.

mod input;
mod low;
mod output;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes as Payload, BytesMut};
use marcato_sched::conductor::{
    self, CancelError, Candidates, MessageId, OfferError, Redundancy, Removal, Tally,
};
use marcato_sched::lane::{LaneId, LaneSet, LaneView, MAX_LANES};
use marcato_sched::reserve::{DeclareError, Source, SourceKey};
use marcato_sched::schedule::{Choice, Fresh, LaneScheduler, Offer, Purpose, Unused, Wait};
use marcato_sched::{Conductor, Grant};
use marcato_units::{Bytes, Duration, Layer, Priority, PrioritySet, Time};
use marcato_wire::{ErrorCode, Frame, MAX_FRAME_HEADER, MessageFrame, Twin, UNRELIABLE_HEADER, Unreliable};
use noq_proto::{
    Connection, Dir, Event as EngineEvent, FourTuple, PathAbandonReason, PathError, PathEvent, PathStatus,
    ReadError, StreamEvent, StreamId, VarInt, WriteError,
};

use crate::clock::Clock;
use crate::config::{Growth, OVERHEAD, Pacing, SessionConfig, SessionConfigError, StreamUse};
use crate::controller::Congestion;
use crate::endpoint::{SocketId, Sockets};
use crate::event::{Event, LaneLoss, LowLaneChange};
use crate::gate::{Gated, Happening};
use crate::inbox::{Action, Inbox, Piece, Side};
use crate::lane::{Lane, LaneRequest, LaneState, LaneStats, Lanes, Load, Owed};
use crate::long::{LongId, Part};
use crate::low::Keeper;
use crate::outbox::{Carrier, Key, Outbox, Outgoing, Role, Run};
use crate::right_sizing::RightSizing;
use crate::scheduler::Scheduler;
use crate::watch::{Finding, Watch};

/// A gate that passes whatever the session has chosen has room for anything.
const PASS: Bytes = Bytes::new(1 << 60);

/// A message to be sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its bytes; at least one.
    pub body: Payload,
    /// How much it matters.
    pub priority: Priority,
    /// How long it is worth sending; `None` for ever.
    pub lifetime: Option<Duration>,
    /// On how many lanes it travels.
    pub redundancy: Redundancy,
    /// Whether a part of it is of use to the receiver.
    pub partial_ok: bool,
    /// The periodic source that made it.
    pub source: Option<SourceKey>,
}

impl Message {
    /// A message that never expires, travels once and is of use only as a whole.
    pub const fn new(body: Payload, priority: Priority) -> Self {
        Self { body, priority, lifetime: None, redundancy: Redundancy::Once, partial_ok: false, source: None }
    }
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Nothing is sent any more.
    #[error("the session is closed: open another")]
    Closed,
    /// The Conductor refused it.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// Too many are on their way.
    #[error("{limit} messages have not been acknowledged: send again after some have been delivered")]
    TooManyUnfinished {
        /// The most that may be.
        limit: usize,
    },
    /// It does not fit one packet, and unreliable messages are not cut.
    #[error("an unreliable message has {limit} bytes at most here: send it reliably, or cut it")]
    TooLongForDatagram {
        /// The most that fits now. It changes with the lanes.
        limit: usize,
    },
    /// The peer takes none.
    #[error("the peer takes no unreliable messages: send it reliably")]
    NoDatagrams,
    /// No part may follow.
    #[error("the message is complete or was given up: begin another")]
    Ended,
}

/// An unreliable message that has come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// What it matters to its sender.
    pub priority: Priority,
    /// Its bytes.
    pub body: Payload,
}

/// Why a lane was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// Only clients open paths.
    #[error("a server cannot open a lane: let the client do it")]
    NotAClient,
    /// As many as may are open or wait to be.
    #[error("the session has {limit} lanes, as many as it may: remove one first")]
    TooMany {
        /// The most that may be.
        limit: u8,
    },
    /// Nothing would tell the two lanes apart.
    #[error("another lane goes to {remote} already: give each lane its own port at both ends")]
    SameRemote {
        /// The address.
        remote: SocketAddr,
    },
    /// It does not exist.
    #[error("there is no such lane")]
    Unknown,
    /// No other is up.
    #[error("no other lane is up: wait for one, or close the session")]
    Last,
    /// The engine refused.
    #[error("the engine refuses: {0}")]
    Engine(String),
}

/// What a session has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Chunks handed to the engine for the first time.
    pub chunks: u64,
    /// Chunks handed to it once more, for another lane.
    pub copies: u64,
    /// What `chunks` counted against the windows of their lanes: their bytes, and those of their packets around them.
    /// What was lost and is sent again is not in it.
    pub first: Bytes,
    /// What `copies` counted in the same way: a budget for copies holds this against `first`.
    pub copied: Bytes,
    /// Chunks sent again on another lane because theirs was stuck.
    pub reinjected: u64,
    /// Packets that left on another lane than they were meant for.
    pub misrouted: u64,
    /// Chunks that the engine kept, because their lane could not send at that moment.
    pub kept: u64,
    /// Streams opened for messages.
    pub streams: u64,
    /// Times that flow control stopped a message.
    pub flow_blocked: u64,
    /// Packets with data that left although their lane had no room, because acknowledgements could leave in no other way.
    pub overdrawn: u64,
    /// Polls of the engine.
    pub polls: u64,
    /// Unreliable messages that have left.
    pub datagrams_sent: u64,
    /// Unreliable messages that were dropped before they left, because no packet was large enough any more.
    pub datagrams_unsent: u64,
    /// Unreliable messages that have come.
    pub datagrams_received: u64,
    /// Of those, such as were dropped because nobody took them.
    pub datagrams_dropped: u64,
    /// Messages whose lifetime ended before anything of them left, and of which the receiver was not told because too
    /// much was to be told already.
    pub untold: u64,
}

/// What a session holds now, beside what the Conductor and the inbox count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionLoad {
    /// Packets with data of messages that have neither been acknowledged nor been declared lost. The lanes' windows
    /// bound them.
    pub under_way: usize,
    /// Packets that the engine has to send again. They were under way, and are bounded as these.
    pub owed: usize,
    /// Runs that wait to be sent again on another lane. Each was a packet under way, and is entered once.
    pub repairs: usize,
    /// Copies of the latest chunk that have to leave: fewer than there are lanes.
    pub duplicates: usize,
    /// Small frames that the engine has no credit for, at most [`MAX_NOTES`].
    pub notes: usize,
    /// Streams that wait to be read: no more than the peer may open.
    pub unread: usize,
    /// Events that nobody has taken.
    pub events: usize,
    /// Lanes that wait to be opened, or to be opened again, at most [`SessionConfig::max_lanes`].
    pub requests: usize,
    /// Messages of which something is not acknowledged, at most [`SessionConfig::max_unfinished`].
    pub unfinished: usize,
}

/// Frames that tell of messages given up or received and wait for the peer's credit. A peer that grants none and goes on
/// asking is cut off beyond.
pub const MAX_NOTES: usize = 4096;

/// With more waiting than this, the receiver is not told of messages of which it knows nothing.
const MANY_NOTES: usize = MAX_NOTES / 4;
/// What an unreliable message counts besides its bytes, against those that may wait to be taken.
const DATAGRAM_COST: usize = 64;

/// A datagram to be sent; its bytes are at the end of the buffer given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The socket it leaves by.
    pub socket: SocketId,
    /// Where it goes.
    pub to: SocketAddr,
    /// How it is marked.
    pub ecn: marcato_wire::Ecn,
    /// How many bytes it has.
    pub len: usize,
    /// If these are several datagrams, how long each is but the last.
    pub segment: Option<usize>,
    /// The lane; `None` for what belongs to none.
    pub lane: Option<LaneId>,
}

/// Remembers what the Conductor removed by itself.
#[derive(Debug, Default)]
struct Removals(Vec<(MessageId, Bytes, Removal)>);

impl conductor::Observer for Removals {
    fn observe(&mut self, event: conductor::Event) {
        if let conductor::Event::Removed { id, sent, reason, .. } = event {
            self.0.push((id, sent, reason));
        }
    }
}

/// A run that is to be sent again on another lane.
#[derive(Clone, Copy, Debug)]
struct Repair {
    key: Key,
    run: Run,
    priority: Priority,
    lost_on: LaneId,
    stream: Option<StreamId>,
}

/// A chunk that is to leave once more, at once, on another lane.
#[derive(Clone, Copy, Debug)]
struct Duplicate {
    key: Key,
    lane: LaneId,
    run: Run,
    /// Where the chunk has left already.
    carried: LaneSet,
    wire: Bytes,
}

/// A connection with its lanes.
///
/// It is driven by its [`Endpoint`](crate::Endpoint): after each call that may change something, the endpoint is polled
/// for datagrams until there are none.
pub struct Session {
    conn: Connection,
    clock: Clock,
    config: Arc<SessionConfig>,
    sockets: Sockets,
    conductor: Conductor<conductor::Slab, Removals>,
    scheduler: Scheduler,
    lanes: Lanes,
    outbox: Outbox,
    inbox: Inbox,
    /// By level.
    repairs: [VecDeque<Repair>; Priority::COUNT],
    duplicates: VecDeque<Duplicate>,
    /// Lanes to open once the engine can.
    requests: VecDeque<LaneRequest>,
    /// Where packets of unknown addresses came in, the latest last.
    arrivals: VecDeque<(SocketAddr, SocketId)>,
    events: VecDeque<Event>,
    /// The engine may have something to say of its own accord.
    flush: bool,
    /// It holds data that the gates keep back.
    held: bool,
    /// The level of what it holds, if that waits for nothing but room.
    crowded: Option<Priority>,
    /// What the next packet carries that was meant for one that did not leave.
    kept: Option<Load>,
    /// Levels of which the engine takes nothing, for lack of credit.
    blocked: PrioritySet,
    established: bool,
    confirmed: bool,
    closed: bool,
    /// A path's address has changed, so that its controller may be another.
    moving_until: Time,
    control: Option<StreamId>,
    /// What is to be written to streams as soon as they take it.
    notes: VecDeque<(Option<StreamId>, Payload)>,
    /// The receive window, if it grows.
    sizing: Option<RightSizing>,
    /// Streams with data that the inbox had no room for.
    unread: VecDeque<StreamId>,
    /// Unreliable messages that have come and were not taken, and what they count.
    datagrams: VecDeque<Datagram>,
    datagram_bytes: usize,
    /// What the engine has to send again, by level, the earliest lost first.
    owed: [VecDeque<Owed>; Priority::COUNT],
    /// What the engine held of its own accord was more than control frames.
    bulky: bool,
    /// The peer allows no more streams. What has one goes on.
    no_streams: bool,
    /// Datagrams that may want an acknowledgement and have come since one could leave.
    unanswered: u32,
    /// And the engine has waited for others as long as it may.
    answer_due: bool,
    /// The peer's bidirectional streams of which its half is over, and ours is not.
    ended: BTreeSet<StreamId>,
    /// When to look again although nothing happens.
    wake: Option<Time>,
    /// When lanes that sent nothing when they should have are tried again.
    retry: Option<Time>,
    /// The owner has been told that it is over.
    told: bool,
    happenings: Vec<Happening>,
    /// Low lanes that a client asked for.
    keeper: Keeper,
    /// Whether the network serves the high layer first.
    watch: Option<Watch>,
    stats: SessionStats,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("lanes", &self.lanes)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Setting up, and the owner's side.
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
        let scheduler = config.path_scheduler.build(config.framing())?;
        let side = if conn.side().is_server() { Side::Server } else { Side::Client };
        let mut session = Self {
            conn,
            clock,
            sockets,
            conductor,
            scheduler,
            lanes: Lanes::default(),
            outbox: Outbox::default(),
            inbox: Inbox::new(side, config.inbox),
            repairs: Default::default(),
            duplicates: VecDeque::new(),
            requests: VecDeque::new(),
            arrivals: VecDeque::new(),
            events: VecDeque::new(),
            flush: true,
            held: false,
            crowded: None,
            kept: None,
            blocked: PrioritySet::EMPTY,
            established: false,
            confirmed: false,
            closed: false,
            moving_until: Time::ZERO,
            control: None,
            notes: VecDeque::new(),
            unread: VecDeque::new(),
            datagrams: VecDeque::new(),
            datagram_bytes: 0,
            owed: Default::default(),
            ended: BTreeSet::new(),
            bulky: false,
            no_streams: false,
            unanswered: 0,
            answer_due: false,
            sizing: config.receive_window_from.map(|from| RightSizing::new(from, config.receive_window, now)),
            wake: None,
            retry: None,
            told: false,
            happenings: Vec::new(),
            keeper: Keeper::default(),
            watch: config.low_lanes.and_then(|low| low.test).map(|test| Watch::new(test, now)),
            stats: SessionStats::default(),
            config,
        };
        session.adopt(now, noq_proto::PathId::ZERO, 0, first, LaneState::Up);
        Ok(session)
    }

    /// Takes a message to send.
    ///
    /// # Errors
    ///
    /// If the session is closed, the message is empty or too long, or as much as may waits or is on its way. Less urgent
    /// messages of which nothing has left make room for it, and are [dropped](Event::Dropped).
    pub fn send(&mut self, now: Time, message: Message) -> Result<MessageId, SendError> {
        self.take(now, message, None, false)
    }

    /// Takes a message that leaves in one DATAGRAM frame (RFC 9221), in its order among the others, and is not sent
    /// again if it is lost. [`Event::Sent`] tells when it has left. It travels once, whatever its redundancy.
    ///
    /// # Errors
    ///
    /// What [`send`](Self::send) says, and if it fits no packet or the peer takes none.
    pub fn send_datagram(&mut self, now: Time, message: Message) -> Result<MessageId, SendError> {
        let limit = self.max_datagram().ok_or(SendError::NoDatagrams)?;
        if message.body.len() > limit {
            return Err(SendError::TooLongForDatagram { limit });
        }
        self.take(now, message, None, true)
    }

    /// How long an unreliable message may be now; `None` if the peer takes none.
    pub fn max_datagram(&mut self) -> Option<usize> {
        let engine = self.conn.datagrams().max_size()?;
        let payload = usize::try_from(SessionConfig::payload(self.mtu()).get()).unwrap_or(usize::MAX);
        Some(engine.min(payload).saturating_sub(UNRELIABLE_HEADER))
    }

    /// The oldest unreliable message that has come.
    pub fn read_datagram(&mut self) -> Option<Datagram> {
        let datagram = self.datagrams.pop_front()?;
        self.datagram_bytes -= datagram.body.len() + DATAGRAM_COST;
        Some(datagram)
    }

    /// Begins a message that is handed over [part by part](Self::send_part).
    pub fn begin_long(&mut self) -> LongId {
        self.outbox.begin_long()
    }

    /// Takes the next part of a message; with `last`, it is complete. Parts of one message keep their order as long as
    /// they are of one level. Each is [delivered](Event::Delivered) by itself; if one is dropped, all are.
    ///
    /// # Errors
    ///
    /// What [`send`](Self::send) says, and if the message is complete or was given up.
    pub fn send_part(
        &mut self,
        now: Time,
        long: LongId,
        part: Message,
        last: bool,
    ) -> Result<MessageId, SendError> {
        let base = self.outbox.next_part(long).ok_or(SendError::Ended)?.get();
        self.take(now, part, Some(Part { long, base, last }), false)
    }

    /// How much of a message that is handed over part by part waits to be handed to the engine.
    pub fn waiting(&self, long: LongId) -> Bytes {
        let parts = self.outbox.parts(long).iter().rev();
        parts.map_while(|id| self.conductor.message(*id)).fold(Bytes::ZERO, |sum, part| sum + part.rest())
    }

    /// Takes back a message that is handed over part by part. What has left of it is void; the receiver is told.
    pub fn cancel_long(&mut self, now: Time, long: LongId) {
        self.end_long(now, long, Removal::Cancelled);
        self.sweep(now);
    }

    fn take(
        &mut self,
        now: Time,
        message: Message,
        part: Option<Part>,
        unreliable: bool,
    ) -> Result<MessageId, SendError> {
        if self.closed {
            return Err(SendError::Closed);
        }
        self.make_room(now, message.priority)?;
        let Message { body, priority, lifetime, redundancy, partial_ok, source } = message;
        let len = Bytes::new(body.len() as u64);
        let offered = conductor::Message { len, priority, lifetime, redundancy, partial_ok };
        let id = match self.conductor.offer(now, offered) {
            Ok(id) => id,
            Err(error) => {
                // To offer is also to drop what has expired.
                self.sweep(now);
                return Err(error.into());
            }
        };
        let offer = Offer { message: id.get(), source, priority, len, redundancy };
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
            unreliable,
        });
        if let Some(part) = part {
            self.outbox.add_part(part, id, len);
        }
        self.sweep(now);
        Ok(id)
    }

    /// Makes room in the outbox for a message of `priority`: a less urgent one of which nothing has left gives way, and P0
    /// may exceed the bound by as much as in the Conductor, for what has left and is not acknowledged cannot give way.
    fn make_room(&mut self, now: Time, priority: Priority) -> Result<(), SendError> {
        let most = self.config.max_unfinished;
        if self.outbox.len() >= most && self.conductor.make_room(now, priority) {
            self.sweep(now);
        }
        let reserve = if priority == Priority::P0 { conductor::reserve(most) } else { 0 };
        let limit = most.saturating_add(reserve);
        if self.outbox.len() >= limit { Err(SendError::TooManyUnfinished { limit }) } else { Ok(()) }
    }

    /// Takes a message back. What has left of it is void; the receiver is told.
    ///
    /// # Errors
    ///
    /// If all of it has been handed to the engine, or there is no such message.
    pub fn cancel(&mut self, now: Time, message: MessageId) -> Result<(), CancelError> {
        self.conductor.cancel(message)?;
        self.sweep(now);
        Ok(())
    }

    /// Moves the rest of a message to another level. The receiver learns of it only if nothing of the message has left.
    ///
    /// # Errors
    ///
    /// If nothing of it waits.
    pub fn reprioritise(
        &mut self,
        message: MessageId,
        priority: Priority,
    ) -> Result<(), conductor::ReprioritiseError> {
        self.conductor.reprioritise(message, priority)?;
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

    /// Refuses data less urgent than `threshold` from now on and drops what waits of it; what was dropped.
    pub fn discard_less_urgent_than(&mut self, now: Time, threshold: Priority) -> Tally {
        let tally = self.conductor.discard_less_urgent_than(threshold);
        self.sweep(now);
        tally
    }

    /// Announces a periodic source, for which room is then kept if the lane scheduler reserves.
    ///
    /// # Errors
    ///
    /// If the source cannot be, or as many are declared as may.
    pub fn reserve(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.scheduler.declare(key, source)
    }

    /// Takes an announcement back; `false` if there is no such source.
    pub fn release(&mut self, key: SourceKey) -> bool {
        self.scheduler.withdraw(key)
    }

    /// What is known of a source, declared or learned.
    pub fn source(&self, key: SourceKey) -> Option<Source> {
        self.scheduler.source(key)
    }

    /// The next piece of what has been received: of each message in order, of all messages as they come.
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

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Asks for another lane. It is opened as soon as the peer allows, and [`Event::LaneUp`] tells of it.
    ///
    /// # Errors
    ///
    /// At a server, beyond the limit, or where another lane has the same remote address.
    pub fn add_lane(&mut self, now: Time, request: LaneRequest) -> Result<(), LaneError> {
        if self.conn.side().is_server() {
            return Err(LaneError::NotAClient);
        }
        let lasting = |lane: &&Lane| lane.state != LaneState::Closing;
        if self.lanes.iter().filter(lasting).count() + self.requests.len() + self.keeper.waiting()
            >= usize::from(self.config.max_lanes)
        {
            return Err(LaneError::TooMany { limit: self.config.max_lanes });
        }
        // One that is being closed is waited for.
        let taken = self.lanes.iter().filter(lasting).any(|lane| lane.remote == request.remote);
        let asked = self.requests.iter().any(|other| other.remote == request.remote);
        if taken || asked || self.keeper.waits(request.remote) {
            return Err(LaneError::SameRemote { remote: request.remote });
        }
        if self.manages(request.layer) {
            self.keeper.keep(request);
        }
        self.requests.push_back(request);
        self.open_lanes(now);
        Ok(())
    }

    /// Gives up a lane. What is under way there is sent again on others.
    ///
    /// # Errors
    ///
    /// If there is no such lane, or no other is up. One that is being opened does not count: the path that would be
    /// left has perhaps never carried anything.
    pub fn remove_lane(&mut self, now: Time, lane: LaneId) -> Result<(), LaneError> {
        let known = self.lanes.get(lane).ok_or(LaneError::Unknown)?;
        let (path, remote) = (known.path, known.remote);
        let carries = |other: &Lane| matches!(other.state, LaneState::Up | LaneState::Stalled);
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

    /// Says whether a lane is to be used only while no other can be. The peer is told; at this end, acknowledgements
    /// leave by the first lane that is not a backup.
    ///
    /// # Errors
    ///
    /// If there is no such lane, or it is being closed.
    pub fn set_backup(&mut self, now: Time, lane: LaneId, backup: bool) -> Result<(), LaneError> {
        let known = self.lanes.get_mut(lane).ok_or(LaneError::Unknown)?;
        let status = if backup { PathStatus::Backup } else { PathStatus::Available };
        self.conn
            .set_path_status(known.path, status)
            .map_err(|error| LaneError::Engine(error.to_string()))?;
        known.backup = backup;
        known.told_backup = backup;
        self.rank_lanes();
        self.after_engine(now);
        Ok(())
    }

    /// Ends the session. What has not been sent never will be. [`Event::Closed`] tells of it as of any other end.
    pub fn close(&mut self, now: Time, code: ErrorCode, reason: &str) {
        if self.closed {
            return;
        }
        let code = VarInt::from_u64(code.get()).unwrap_or_default();
        self.conn.close(self.clock.instant(now), code, Payload::copy_from_slice(reason.as_bytes()));
        self.over("closed at this end".to_owned());
        self.flush = true;
    }

    /// Whether the handshake is done and the session not over.
    pub fn is_open(&self) -> bool {
        self.established && !self.closed
    }

    /// Whether nothing remains to be done, not even for the engine.
    pub fn is_drained(&self) -> bool {
        self.conn.is_drained()
    }

    /// The lanes as schedulers see them.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneView, LaneState, LaneStats)> + '_ {
        self.lanes.iter().map(|lane| (lane.view(lane.is_usable()), lane.state, lane.stats))
    }

    /// The socket that a lane leaves by and the address that it goes to; `None` if there is no such lane.
    pub fn route(&self, lane: LaneId) -> Option<(SocketId, SocketAddr)> {
        self.lanes.get(lane).map(|lane| (lane.socket, lane.remote))
    }

    /// What waits to be handed to the engine.
    pub fn queued(&self) -> Tally {
        self.conductor.queued()
    }

    /// How many messages are on their way: queued, or not wholly acknowledged.
    pub fn unfinished(&self) -> usize {
        self.outbox.len()
    }

    /// What it holds now.
    pub fn load(&self) -> SessionLoad {
        SessionLoad {
            under_way: self.lanes.iter().map(Lane::under_way).sum(),
            owed: self.owed.iter().map(VecDeque::len).sum(),
            repairs: self.repairs.iter().map(VecDeque::len).sum(),
            duplicates: self.duplicates.len(),
            notes: self.notes.len(),
            unread: self.unread.len(),
            events: self.events.len(),
            requests: self.requests.len() + self.keeper.waiting(),
            unfinished: self.outbox.len(),
        }
    }

    /// What the inbox holds now.
    pub fn inbox_load(&self) -> crate::inbox::InboxLoad {
        self.inbox.load()
    }

    /// The Conductor's counters.
    pub fn conducted(&self) -> &conductor::Counters {
        self.conductor.counters()
    }

    /// What was received, and what it cost to keep.
    pub fn received(&self) -> crate::inbox::InboxCounters {
        *self.inbox.counters()
    }

    /// What the session has done.
    pub const fn stats(&self) -> SessionStats {
        self.stats
    }

    /// Capacity that background data was denied for the sake of reservations.
    pub fn unused(&self) -> Unused {
        self.scheduler.unused()
    }

    /// The engine's own statistics.
    pub fn engine_stats(&mut self) -> noq_proto::ConnectionStats {
        self.conn.stats()
    }

    /// The endpoint has other sockets than before.
    pub(crate) fn know_sockets(&mut self, sockets: Sockets) {
        self.sockets = sockets;
    }

    /// Drops what the Conductor has removed by itself or been told to.
    fn sweep(&mut self, now: Time) {
        while !self.conductor.observer_mut().0.is_empty() {
            for (id, sent, reason) in std::mem::take(&mut self.conductor.observer_mut().0) {
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
    }

    /// Gives up all parts of a message, and tells the receiver.
    fn end_long(&mut self, now: Time, long: LongId, reason: Removal) {
        let (number, parts) = self.outbox.end_long(long);
        for id in parts {
            // What waits of it is swept out with the rest.
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
            self.tell(Frame::Reset { id, code: reason as u64 });
        }
    }

    /// The session has ended. Nothing happens in it any more.
    fn over(&mut self, reason: String) {
        self.closed = true;
        if !std::mem::replace(&mut self.told, true) {
            self.events.push_back(Event::Closed { reason });
        }
    }

    /// Ends the session because of something that the peer did.
    fn fail(&mut self, now: Time, code: ErrorCode, reason: String) {
        let code = VarInt::from_u64(code.get()).unwrap_or_default();
        self.conn.close(self.clock.instant(now), code, Payload::copy_from_slice(reason.as_bytes()));
        self.over(reason);
    }

    /// Forgets a message of which not everything will be sent, and tells the receiver.
    fn abandon(&mut self, key: Key, reason: Removal) {
        let Some(message) = self.outbox.get(key) else { return };
        // Of a part, the whole is told.
        let whole = message.part.is_none();
        let mut number = message.number;
        if number.is_none() && whole && !message.unreliable && reason == Removal::Expired {
            // Of a message that was never begun the receiver learns only that it missed a deadline.
            if self.notes.len() < MANY_NOTES {
                number = self.outbox.number(key);
            } else {
                self.stats.untold += 1;
            }
        }
        let Some(message) = self.outbox.remove(key) else { return };
        for carrier in &message.carriers {
            self.reset(carrier.stream, ErrorCode::Abandoned);
        }
        if let Some(id) = number.filter(|_| whole) {
            self.tell(Frame::Reset { id, code: reason as u64 });
        }
    }

    /// Writes a frame to the control stream.
    fn tell(&mut self, frame: Frame) {
        self.note(None, frame);
    }

    /// Writes a frame to a stream; `None` is the control stream.
    fn note(&mut self, stream: Option<StreamId>, frame: Frame) {
        let mut header = [0; MAX_FRAME_HEADER];
        if let Ok(len) = frame.encode(&mut header) {
            self.notes.push_back((stream, Payload::copy_from_slice(&header[..len])));
            self.write_notes();
        }
    }

    /// The control stream, opened if the peer allows it.
    fn control_stream(&mut self) -> Option<StreamId> {
        if self.control.is_none() {
            self.control = self.conn.streams().open(Dir::Uni);
            if let Some(stream) = self.control {
                let _ = self.conn.send_stream(stream).set_priority(engine_priority(Priority::P0));
            }
        }
        self.control
    }

    /// Hands small frames to the engine, as far as it has credit. One stream without does not stop the others.
    fn write_notes(&mut self) {
        let mut stuck: Option<StreamId> = None;
        for _ in 0..self.notes.len() {
            let Some((stream, note)) = self.notes.pop_front() else { return };
            let target = match stream {
                Some(stream) => Some(stream),
                None => self.control_stream(),
            };
            let Some(target) = target.filter(|target| stuck != Some(*target)) else {
                self.notes.push_back((stream, note));
                continue;
            };
            let mut chunks = [note];
            match self.conn.send_stream(target).write_chunks(&mut &mut chunks[..]) {
                Ok(_) if chunks[0].is_empty() => {
                    self.flush = true;
                    self.finish_answered(target);
                }
                Ok(_) | Err(WriteError::Blocked) => {
                    // The order on each stream is kept: all of them go round.
                    stuck = Some(target);
                    let [note] = chunks;
                    self.notes.push_back((stream, note));
                }
                // Nobody listens any more.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {}
            }
        }
    }

    /// Ends our half of a stream of the peer's once the other half is over and everything asked for has been said.
    /// Otherwise the stream would count against those that the peer may open, for ever.
    fn finish_answered(&mut self, stream: StreamId) {
        if stream.dir() == Dir::Bi
            && self.ended.contains(&stream)
            && self.notes.iter().all(|(on, _)| *on != Some(stream))
        {
            self.ended.remove(&stream);
            let _ = self.conn.send_stream(stream).finish();
            self.flush = true;
        }
    }

    fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        let code = VarInt::from_u64(code.get()).unwrap_or_default();
        // A stream that is closed already needs no reset.
        let _ = self.conn.send_stream(stream).reset(code);
        // Had it waited for credit, the engine would tell of credit on this stream, and of one that is reset it tells
        // nothing: then nobody would learn that there is some.
        self.blocked = PrioritySet::EMPTY;
        self.flush = true;
    }
}

/// How an engine stream is ranked among those that have something to send again.
const fn engine_priority(priority: Priority) -> i32 {
    // The engine has it the other way round: the higher number goes first.
    -(priority as i32)
}
