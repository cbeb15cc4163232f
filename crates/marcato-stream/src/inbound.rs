//! Received data: assembles pieces into messages, and holds messages for the application.
//!
//! A receiver holds back levels that the application does not take, by HOLD frames and not by a window for
//! each level. Windows would have to be renewed all the time, also for the usual application that takes
//! everything at once, and would leak where a stream is reset before all of it has arrived. A HOLD is sent
//! only for data that is not taken, and costs up to a round trip of surplus (`Limits::surplus`). The
//! Conductor of the sender skips held levels as if flow control stopped them (`Candidates`), so they gather
//! no claims.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes as Payload;
use marcato_sched::conductor::Removal;
use marcato_units::{Bytes, Priority};
use marcato_wire::{EndReason, Exchange, Fate, MessageNumber};

use crate::budget::Share;
use crate::exchanges::{Arrival, Exchanges};
use crate::pool::{Part, Pool};
use crate::{Answer, Closed, Head, Limits, LongMessages, NoReply, Report};

/// Message that has wholly arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Content.
    pub bytes: Payload,
    /// Priority given by the sender.
    pub priority: Priority,
    /// Sender's number for it: 0 for the first message of which it sent anything. `None` for an
    /// [unreliable](crate::Message::unreliable) message.
    pub number: Option<MessageNumber>,
    /// Set if bytes of it arrived as early data, before the handshake was complete: it may be a
    /// replay, which the application gets a second time (RFC 8446 §8). Its sender has marked it as
    /// [idempotent](crate::Message::idempotent).
    pub early: bool,
}

/// Message that will not arrive, because its sender abandoned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender abandoned message {number} after {received} had arrived: {reason}")]
#[non_exhaustive]
pub struct Missed {
    /// Sender's number for it.
    pub number: MessageNumber,
    /// Reason given by the sender.
    pub reason: MissedReason,
    /// Bytes of it that had arrived.
    pub received: Bytes,
}

/// Reason for which a message will not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum MissedReason {
    /// The sender cancelled it.
    #[error("it cancelled it")]
    Cancelled,
    /// The sender discards its level.
    #[error("it discards messages of this level")]
    Discarded,
    /// It could not be sent within its lifetime: a missed deadline.
    #[error("its lifetime ended")]
    Expired,
    /// The sender shed it under congestion.
    #[error("it shed it under congestion")]
    Shed,
    /// The sender evicted it for a more urgent message.
    #[error("it evicted it for a more urgent one")]
    Evicted,
    /// The sender gave a code that we do not know.
    #[error("unknown reason {0}")]
    Other(u64),
}

impl MissedReason {
    /// Decodes the code of a RESET frame. Both engines send the index of the reason among
    /// [`Removal`]'s variants.
    pub const fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Cancelled,
            1 => Self::Discarded,
            2 => Self::Expired,
            3 => Self::Shed,
            4 => Self::Evicted,
            other => Self::Other(other),
        }
    }

    /// Code of a RESET frame for this removal.
    pub const fn code(removal: Removal) -> u64 {
        match removal {
            Removal::Cancelled => 0,
            Removal::Discarded => 1,
            Removal::Expired => 2,
            Removal::Shed => 3,
            Removal::Evicted => 4,
        }
    }
}

/// Counters of received data since the connection began, and peaks of waiting data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboundCounters {
    /// Bytes of payload.
    pub bytes: Bytes,
    /// Bytes of payload, by level.
    pub level_bytes: [Bytes; Priority::COUNT],
    /// Messages that became complete, by level.
    pub messages: [u64; Priority::COUNT],
    /// Unreliable messages among these.
    pub unreliable: u64,
    /// Unreliable messages dropped because the application did not take them.
    pub unreliable_dropped: u64,
    /// Messages that the peer abandoned.
    pub missed: u64,
    /// Abandoned messages that were forgotten before the application asked for them.
    pub forgotten: u64,
    /// Messages declined because the connection was closing and the application took none.
    pub declined: u64,
    /// Reports of the peer that this end did not wait for.
    pub stray_reports: u64,
    /// Replies, and ends of exchanges, that this end did not wait for, and requests with the number
    /// of an open exchange.
    pub stray_exchanges: u64,
    /// Complete messages with bytes that arrived as early data.
    pub early: u64,
    /// Requests refused because too many were open.
    pub refused_requests: u64,
    /// Times that reading stopped because the application had not taken messages.
    pub stops: u64,
    /// Times that the peer was asked to hold a level, by level.
    pub holds: [u64; Priority::COUNT],
    /// Largest number of bytes that waited for the application.
    pub unread_peak: Bytes,
    /// Largest number of bytes of incomplete messages.
    pub open_peak: Bytes,
}

/// Error returned when the peer exceeded a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer exceeded the limit {limit} of {most}")]
pub struct Overrun {
    limit: &'static str,
    most: u64,
}

/// Incomplete message.
#[derive(Debug)]
struct Open {
    head: Head,
    received: u64,
    /// Received bytes, unless the message is long.
    bytes: Part,
    long: bool,
}

/// Length in bytes up to which the pieces of a long message are joined. Its handle and its
/// allocation make a piece of one byte 64 times as large.
const JOINED_PIECE: usize = 32 << 10;

/// Long message, until the application has taken all of it.
#[derive(Debug)]
struct Long {
    priority: Priority,
    /// Set if the sender waits for a report.
    report: bool,
    pieces: VecDeque<Payload>,
    /// Short pieces behind these, joined.
    tail: Vec<u8>,
    end: Option<Result<(), Missed>>,
    /// Set when the application wants no more of it.
    unwanted: bool,
}

impl Long {
    /// Creates a long message that begins with these bytes.
    fn new(head: Head, before: Payload) -> Self {
        let pieces = if before.is_empty() { VecDeque::new() } else { VecDeque::from([before]) };
        let (tail, end, unwanted) = (Vec::new(), None, false);
        Self { priority: head.priority, report: head.report, pieces, tail, end, unwanted }
    }

    fn push(&mut self, bytes: &[u8]) {
        // A long piece needs no second copy. The one joined before it may stay short.
        if bytes.len() >= JOINED_PIECE / 2 {
            self.end_tail();
            self.pieces.push_back(Payload::copy_from_slice(bytes));
            return;
        }
        self.tail.extend_from_slice(bytes);
        if self.tail.len() >= JOINED_PIECE {
            self.end_tail();
        }
    }

    fn end_tail(&mut self) {
        let tail = self.take_tail();
        self.pieces.extend(tail);
    }

    fn take_tail(&mut self) -> Option<Payload> {
        (!self.tail.is_empty()).then(|| std::mem::take(&mut self.tail).into())
    }

    /// Takes the next bytes.
    fn pop(&mut self) -> Option<Payload> {
        self.pieces.pop_front().or_else(|| self.take_tail())
    }

    /// Returns whether the application has all bytes of a complete message.
    fn is_taken(&self) -> bool {
        self.end == Some(Ok(())) && self.pieces.is_empty() && self.tail.is_empty() && !self.unwanted
    }

    /// Discards all bytes, and returns their number.
    fn clear(&mut self) -> u64 {
        std::iter::from_fn(|| self.pop()).map(|piece| length(&piece)).sum()
    }
}

/// Next result for an application that reads a long message.
#[derive(Debug)]
pub enum LongNext {
    /// Next bytes of it.
    Piece(Payload),
    /// More will arrive.
    Wait,
    /// End of it: complete, or abandoned by its sender.
    End(Result<(), Missed>),
}

/// Complete message that waits for the application.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) received: Received,
    /// Set if the sender waits for a report.
    report: bool,
}

/// Data of one level that the application has not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unread {
    bytes: u64,
    /// Complete messages, and long ones and streams that the application has not accepted.
    messages: usize,
    /// Bytes and messages at the time of the peer being asked to hold the level, while it is.
    held_at: Option<(u64, usize)>,
}

impl Unread {
    /// Returns the charge of what has followed since the peer was asked to hold the level.
    fn surplus(&self) -> u64 {
        let Some((bytes, messages)) = self.held_at else { return 0 };
        let messages = self.messages.saturating_sub(messages) as u64;
        self.bytes.saturating_sub(bytes) + MESSAGE_COST * messages
    }
}

/// Received data of a connection that the application has not taken.
#[derive(Debug)]
pub struct Inbound {
    limits: Limits,
    pool: Pool,
    open: HashMap<u64, Open>,
    open_bytes: u64,
    ready: [VecDeque<Ready>; Priority::COUNT],
    levels: [Unread; Priority::COUNT],
    /// Unreliable messages, and in `unreliable_bytes` their charge against the limit.
    unreliable: [VecDeque<Received>; Priority::COUNT],
    unreliable_bytes: u64,
    longs: HashMap<u64, Long>,
    /// Long messages that the application has not accepted yet; the flag marks those with early
    /// data.
    begun: VecDeque<(MessageNumber, Priority, bool)>,
    missed: VecDeque<Missed>,
    /// Reports and ends of exchanges to be sent. Reading stops at a limit of them.
    answers: VecDeque<Answer>,
    exchanges: Exchanges,
    /// Set when the peer sends no more messages.
    finished: bool,
    closed: Option<Closed>,
    was_full: bool,
    /// Part of the endpoint's budget.
    share: Share,
    /// Set when the application wants nothing more.
    declining: bool,
    counters: InboundCounters,
}

/// Bytes that a message counts besides its content, where there may be many short ones.
const MESSAGE_COST: u64 = 64;

fn length(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

impl Inbound {
    /// Creates an empty receiving side within these limits. Blocks of `pool` hold long messages
    /// under assembly.
    pub fn new(limits: Limits, pool: Pool) -> Self {
        Self {
            limits,
            share: pool.share(),
            pool,
            open: HashMap::new(),
            open_bytes: 0,
            ready: Default::default(),
            levels: Default::default(),
            unreliable: Default::default(),
            unreliable_bytes: 0,
            longs: HashMap::new(),
            begun: VecDeque::new(),
            missed: VecDeque::new(),
            answers: VecDeque::new(),
            exchanges: Exchanges::default(),
            finished: false,
            closed: None,
            was_full: false,
            declining: false,
            counters: InboundCounters::default(),
        }
    }

    /// Counters since the connection began.
    pub const fn counters(&self) -> &InboundCounters {
        &self.counters
    }

    /// Returns the head of an incomplete message, and the number of its bytes that have arrived.
    pub fn progress(&self, number: MessageNumber) -> Option<(Head, u64)> {
        self.open.get(&number.0).map(|open| (open.head, open.received))
    }

    /// Number of answers to be sent.
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// Takes the oldest answer to be sent.
    pub fn take_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Counts a report of the peer that this end did not wait for.
    pub fn count_stray_report(&mut self) {
        self.counters.stray_reports += 1;
    }

    /// Number of incomplete messages.
    pub fn open_messages(&self) -> usize {
        self.open.len()
    }

    /// Returns whether reading has to stop until the application takes something.
    pub fn is_full(&mut self) -> bool {
        self.account();
        // Beyond the endpoint's budget, reading goes on once the application has taken something.
        let crowded = self.unread() > 0 && self.share.exceeded().is_some();
        let full =
            crowded || self.levels.iter().map(Unread::surplus).sum::<u64>() >= self.limits.surplus.get();
        if full && !self.was_full {
            self.counters.stops += 1;
        }
        self.was_full = full;
        full
    }

    /// Records the bytes held in the endpoint's budget.
    fn account(&mut self) {
        self.share.set(self.open_bytes + self.unread() + self.unreliable_bytes);
    }

    /// Bytes that the application can take.
    fn unread(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// Changes the unread data of a level, and asks the peer to hold the level or to release it.
    fn change(&mut self, priority: Priority, change: impl FnOnce(&mut Unread)) {
        let (bytes, messages) = (self.limits.unread.get(), self.limits.unread_messages);
        let level = &mut self.levels[priority.index()];
        change(level);
        let held = if level.held_at.is_none() && (level.bytes >= bytes || level.messages >= messages) {
            level.held_at = Some((level.bytes, level.messages));
            self.counters.holds[priority.index()] += 1;
            true
        } else if level.held_at.is_some() && level.bytes <= bytes / 2 && level.messages <= messages / 2 {
            level.held_at = None;
            false
        } else {
            return;
        };
        self.answer(Answer::Hold { priority, held });
    }

    /// Declines all messages from now on: their bytes are discarded, incomplete messages included.
    /// The application can still take those that are complete.
    pub fn decline(&mut self) {
        self.declining = true;
        self.open_bytes = 0;
        let mut longs = Vec::new();
        for (number, open) in &mut self.open {
            open.bytes = Part::default();
            if open.long {
                longs.push((MessageNumber(*number), open.received));
            }
        }
        for (number, received) in longs {
            let received = Bytes::new(received);
            self.end_long(number, Missed { number, reason: MissedReason::Cancelled, received });
        }
        self.account();
    }

    /// Returns whether messages are [declined](Self::decline). They are not acknowledged.
    pub const fn is_declining(&self) -> bool {
        self.declining
    }

    /// Adds the next bytes of a message; `last` completes it.
    pub fn piece(&mut self, head: Head, bytes: &[u8], last: bool) -> Result<(), Overrun> {
        let Head { number, priority, report, exchange, early } = head;
        let len = length(bytes);
        let Limits { max_message, long_messages, open_messages, open: open_limit, .. } = self.limits;
        let count = self.open.len();
        if count >= open_messages && !self.open.contains_key(&number.0) {
            return Err(Overrun { limit: "open_messages", most: open_messages as u64 });
        }
        let open = self.open.entry(number.0).or_insert_with(|| Open {
            head,
            received: 0,
            bytes: Part::default(),
            long: false,
        });
        open.received += len;
        open.head.early |= early;
        let early = open.head.early;
        self.counters.bytes += Bytes::new(len);
        self.counters.level_bytes[priority.index()] += Bytes::new(len);
        if self.declining {
            if last {
                self.open.remove(&number.0);
                self.counters.declined += 1;
            }
            return Ok(());
        }
        let mut begun = 0;
        let is_stream = exchange == Exchange::Stream;
        if !open.long && (is_stream || open.received > max_message.get()) {
            // Requests and replies are taken as a whole.
            if !is_stream && (long_messages == LongMessages::Refuse || exchange != Exchange::None) {
                return Err(Overrun { limit: "max_message", most: max_message.get() });
            }
            open.long = true;
            let before = std::mem::take(&mut open.bytes).freeze(&self.pool);
            begun = length(&before);
            self.open_bytes -= begun;
            self.longs.insert(number.0, Long::new(head, before));
            self.begun.push_back((number, priority, early));
            // Until the application takes it, the peer has to answer for it. A stream may be empty.
            self.change(priority, |level| level.messages += 1);
        }
        let Some(open) = self.open.get_mut(&number.0) else { return Ok(()) };
        if open.long {
            if let Some(long) = self.longs.get_mut(&number.0) {
                let wanted = !long.unwanted && !bytes.is_empty();
                if wanted {
                    long.push(bytes);
                }
                if last {
                    long.end = Some(Ok(()));
                    if long.unwanted {
                        self.longs.remove(&number.0);
                        if report {
                            self.report(number, Fate::Discarded);
                        }
                    }
                }
                self.change(priority, |level| level.bytes += begun);
                if wanted {
                    self.change(priority, |level| level.bytes += len);
                }
            }
        } else {
            open.bytes.extend(bytes, &self.pool);
            self.open_bytes += len;
        }
        if last && let Some(open) = self.open.remove(&number.0) {
            self.counters.messages[priority.index()] += 1;
            self.counters.early += u64::from(early);
            if !open.long {
                let bytes = open.bytes.freeze(&self.pool);
                self.open_bytes -= length(&bytes);
                let received = Received { bytes, priority, number: Some(number), early };
                self.add(exchange, Ready { received, report });
            }
        }
        self.counters.open_peak = self.counters.open_peak.max(Bytes::new(self.open_bytes));
        self.counters.unread_peak = self.counters.unread_peak.max(Bytes::new(self.unread()));
        // The limit is checked last, so a message that is now complete no longer counts.
        if self.open_bytes > open_limit.get() {
            return Err(Overrun { limit: "open", most: open_limit.get() });
        }
        self.account();
        // Incomplete messages are all that the application cannot take.
        match self.share.exceeded() {
            Some(fair) if self.open_bytes > fair => Err(Overrun { limit: "memory", most: fair }),
            _ => Ok(()),
        }
    }

    /// Adds an unreliable message. Without room, the least urgent is dropped, and of these the
    /// oldest.
    pub fn unreliable(&mut self, priority: Priority, bytes: Payload) {
        let len = length(&bytes);
        self.counters.bytes += Bytes::new(len);
        self.counters.level_bytes[priority.index()] += Bytes::new(len);
        self.counters.messages[priority.index()] += 1;
        self.counters.unreliable += 1;
        self.unreliable_bytes += len + MESSAGE_COST;
        self.unreliable[priority.index()].push_back(Received { bytes, priority, number: None, early: false });
        while self.unreliable_bytes > self.limits.unreliable.get() {
            let Some(dropped) = self.unreliable.iter_mut().rev().find_map(VecDeque::pop_front) else {
                return;
            };
            self.unreliable_bytes -= length(&dropped.bytes) + MESSAGE_COST;
            self.counters.unreliable_dropped += 1;
        }
    }

    /// Records that the peer abandoned a message.
    pub fn give_up(&mut self, number: MessageNumber, code: u64) {
        let open = self.open.remove(&number.0);
        let received = open.as_ref().map_or(0, |open| open.received);
        let missed = Missed { number, reason: MissedReason::from_code(code), received: Bytes::new(received) };
        self.counters.missed += 1;
        match open {
            Some(open) if open.long => self.end_long(number, missed),
            Some(open) => self.open_bytes -= open.bytes.len(),
            None => {}
        }
        self.account();
        if self.missed.len() >= self.limits.missed {
            self.counters.forgotten += 1;
            self.missed.pop_front();
        }
        if self.limits.missed > 0 {
            self.missed.push_back(missed);
        }
    }

    fn end_long(&mut self, number: MessageNumber, missed: Missed) {
        let Some(long) = self.longs.get_mut(&number.0) else { return };
        long.end = Some(Err(missed));
        // The unread bytes of the message are void.
        let (priority, void) = (long.priority, long.clear());
        let unwanted = long.unwanted;
        // Of a message that the application has not accepted, nothing remains: a peer could give up
        // any number of them.
        let begun = self.begun.iter().position(|(begun, ..)| *begun == number);
        if let Some(at) = begun {
            self.begun.remove(at);
            self.change(priority, |level| level.messages -= 1);
        }
        if unwanted || begun.is_some() {
            self.longs.remove(&number.0);
        }
        self.change(priority, |level| level.bytes -= void);
    }

    /// Records that the peer sends no more messages.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns the reason for which no more messages arrive, if there is one.
    pub fn ended(&self) -> Option<Closed> {
        self.closed.clone().or_else(|| self.finished.then_some(Closed::Finished))
    }

    /// Ends reception. Complete messages can still be taken.
    pub fn close(&mut self, closed: Closed) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(closed);
        self.answers.clear();
        self.open_bytes = 0;
        for (number, open) in std::mem::take(&mut self.open) {
            if open.long {
                let missed = Missed {
                    number: MessageNumber(number),
                    reason: MissedReason::Cancelled,
                    received: Bytes::new(open.received),
                };
                self.end_long(missed.number, missed);
            }
        }
        self.account();
    }

    /// Reason for which the connection ended, if it has.
    pub const fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Takes the most urgent complete message, the oldest first within a level. Unreliable messages
    /// go first in their level, because their value falls with time.
    pub fn take(&mut self) -> Option<Received> {
        let level = |(unreliable, ready): (&VecDeque<Received>, &VecDeque<Ready>)| {
            !unreliable.is_empty() || !ready.is_empty()
        };
        let level = self.unreliable.iter().zip(&self.ready).position(level)?;
        if let Some(received) = self.unreliable[level].pop_front() {
            self.unreliable_bytes -= length(&received.bytes) + MESSAGE_COST;
            return Some(received);
        }
        let ready = self.ready[level].pop_front()?;
        Some(self.hand_out(ready))
    }

    /// Adds a complete message that is not long.
    fn add(&mut self, exchange: Exchange, ready: Ready) {
        let most = self.limits.requests;
        let len = length(&ready.received.bytes);
        self.change(ready.received.priority, |level| {
            level.bytes += len;
            level.messages += 1;
        });
        let arrival = match exchange {
            Exchange::None | Exchange::Stream => {
                self.ready[ready.received.priority.index()].push_back(ready);
                return;
            }
            Exchange::Request(number) => self.exchanges.request(number, ready, most),
            Exchange::Reply(number) => self.exchanges.reply(number, ready),
        };
        match arrival {
            Arrival::Kept => {}
            Arrival::Refused(request) => {
                self.counters.refused_requests += 1;
                self.discard(request);
                if let Some(exchange) = exchange.number() {
                    self.answer(Answer::End { exchange, reason: EndReason::Refused });
                }
            }
            Arrival::Stray(ready) => {
                self.counters.stray_exchanges += 1;
                self.discard(ready);
            }
        }
    }

    /// Hands a complete message to the application.
    fn hand_out(&mut self, Ready { received, report }: Ready) -> Received {
        self.taken(&received);
        if let Some(number) = received.number.filter(|_| report) {
            self.report(number, Fate::Taken);
        }
        received
    }

    /// Records that a complete message waits no longer.
    fn taken(&mut self, received: &Received) {
        let len = length(&received.bytes);
        self.change(received.priority, |level| {
            level.bytes -= len;
            level.messages -= 1;
        });
        self.account();
    }

    /// Discards a complete message.
    fn discard(&mut self, Ready { received, report }: Ready) {
        self.taken(&received);
        if let Some(number) = received.number.filter(|_| report) {
            self.report(number, Fate::Discarded);
        }
    }

    /// Begins a request, and returns the number of its exchange. `None` if too many are open.
    pub fn begin_request(&mut self) -> Option<u64> {
        self.exchanges.begin(self.limits.requests)
    }

    /// Takes the reply to a request, or the reason for none, once it is known.
    pub fn take_reply(&mut self, exchange: u64) -> Option<Result<Received, NoReply>> {
        match self.exchanges.take_reply(exchange) {
            Some(Ok(reply)) => Some(Ok(self.hand_out(reply))),
            Some(Err(reason)) => Some(Err(reason)),
            None => self.ended().map(|ended| Err(NoReply::Closed(ended))),
        }
    }

    /// Forgets a request whose reply is no longer wanted. Returns whether the peer does not know
    /// that yet: [`withdraw`](Self::withdraw) tells it.
    pub fn forget_request(&mut self, exchange: u64) -> bool {
        match self.exchanges.forget(exchange) {
            Some(Some(Ok(reply))) => {
                self.discard(reply);
                false
            }
            Some(None) => true,
            Some(Some(Err(_))) | None => false,
        }
    }

    /// Informs the peer that a complete request needs no reply.
    pub fn withdraw(&mut self, exchange: u64) {
        self.answer(Answer::End { exchange, reason: EndReason::Withdrawn });
    }

    /// Takes the most urgent request of the peer, and the number of its exchange.
    pub fn take_request(&mut self) -> Option<(u64, Received)> {
        let (exchange, request) = self.exchanges.take_request()?;
        Some((exchange, self.hand_out(request)))
    }

    /// Returns whether the peer waits for a reply to this request.
    pub fn awaits_reply(&self, exchange: u64) -> bool {
        self.closed.is_none() && self.exchanges.is_open(exchange)
    }

    /// Ends a request of the peer: its reply is queued, or there is none and the peer learns so.
    pub fn close_request(&mut self, exchange: u64, replied: bool) {
        let (open, _) = self.exchanges.close(exchange);
        if open && !replied {
            self.answer(Answer::End { exchange, reason: EndReason::Unanswered });
        }
    }

    /// Records that the peer ended an exchange without a reply.
    pub fn end_exchange(&mut self, exchange: u64, reason: EndReason) {
        let known = match reason {
            EndReason::Withdrawn => {
                let (open, unaccepted) = self.exchanges.close(exchange);
                if let Some(request) = unaccepted {
                    self.discard(request);
                }
                open
            }
            EndReason::Unanswered => self.exchanges.fail(exchange, NoReply::Unanswered),
            EndReason::Refused => self.exchanges.fail(exchange, NoReply::Refused),
        };
        self.counters.stray_exchanges += u64::from(!known);
    }

    fn report(&mut self, number: MessageNumber, fate: Fate) {
        self.answer(Answer::Report(Report { number, fate }));
    }

    /// Queues an answer, as long as it can be sent.
    fn answer(&mut self, answer: Answer) {
        if self.closed.is_none() {
            self.answers.push_back(answer);
        }
    }

    /// Takes the oldest report of a message that the peer abandoned.
    pub fn take_missed(&mut self) -> Option<Missed> {
        self.missed.pop_front()
    }

    /// Takes a long message that has begun to arrive. One that the peer has abandoned before is
    /// only [missed](Self::take_missed).
    pub fn take_long(&mut self) -> Option<(MessageNumber, Priority, bool)> {
        let begun = self.begun.pop_front()?;
        self.change(begun.1, |level| level.messages -= 1);
        Some(begun)
    }

    /// Takes the next piece of a long message.
    pub fn next_of(&mut self, number: MessageNumber) -> LongNext {
        let Some(long) = self.longs.get_mut(&number.0) else { return LongNext::End(Ok(())) };
        let (piece, priority) = (long.pop(), long.priority);
        if long.is_taken() && std::mem::take(&mut long.report) {
            self.report(number, Fate::Taken);
        }
        if let Some(piece) = piece {
            self.change(priority, |level| level.bytes -= length(&piece));
            self.account();
            return LongNext::Piece(piece);
        }
        let Some(long) = self.longs.get(&number.0) else { return LongNext::End(Ok(())) };
        match long.end {
            Some(end) => {
                self.longs.remove(&number.0);
                LongNext::End(end)
            }
            None => LongNext::Wait,
        }
    }

    /// Discards the rest of a long message that the application does not want.
    pub fn forget_long(&mut self, number: MessageNumber) {
        let Some(long) = self.longs.get_mut(&number.0) else { return };
        let fate = if long.is_taken() { Fate::Taken } else { Fate::Discarded };
        let complete = long.end == Some(Ok(()));
        long.unwanted = true;
        let (priority, void, over) = (long.priority, long.clear(), long.end.is_some());
        self.change(priority, |level| level.bytes -= void);
        if over {
            let long = self.longs.remove(&number.0);
            if complete && long.is_some_and(|long| long.report) {
                self.report(number, fate);
            }
        }
        self.account();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloseReason;

    const P2: Priority = Priority::P2;

    fn inbound(change: impl FnOnce(&mut Limits)) -> Inbound {
        let mut limits = Limits::default();
        change(&mut limits);
        Inbound::new(limits, Pool::default())
    }

    /// Number of complete messages that wait.
    fn waiting(inbound: &Inbound) -> usize {
        inbound.levels.iter().map(|level| level.messages).sum()
    }

    #[test]
    fn pieces_become_a_message_and_the_most_urgent_is_taken_first() {
        let mut inbound = inbound(|_| {});
        inbound.piece(Head::new(MessageNumber(0), Priority::P4), b"back", false).unwrap();
        inbound.piece(Head::new(MessageNumber(1), P2), b"first", true).unwrap();
        inbound.piece(Head::new(MessageNumber(0), Priority::P4), b"ground", true).unwrap();
        inbound.piece(Head::new(MessageNumber(2), Priority::P0), b"urgent", true).unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| inbound.take()).map(|received| received.bytes).collect();
        assert_eq!(taken, [&b"urgent"[..], b"first", b"background"]);
        assert_eq!((inbound.unread(), inbound.open_bytes, waiting(&inbound)), (0, 0, 0));
        assert_eq!(inbound.counters().open_peak, Bytes::new(4));
    }

    #[test]
    fn a_peer_that_begins_too_much_is_refused() {
        let mut few = inbound(|limits| limits.open_messages = 2);
        few.piece(Head::new(MessageNumber(0), P2), b"a", false).unwrap();
        few.piece(Head::new(MessageNumber(1), P2), b"a", false).unwrap();
        few.piece(Head::new(MessageNumber(1), P2), b"a", false).unwrap();
        assert!(few.piece(Head::new(MessageNumber(2), P2), b"a", false).is_err());

        let mut small = inbound(|limits| limits.open = Bytes::new(4));
        small.piece(Head::new(MessageNumber(0), P2), b"abcd", false).unwrap();
        // A message that is complete at once never counts as open.
        small.piece(Head::new(MessageNumber(1), P2), b"abcde", true).unwrap();
        assert!(small.piece(Head::new(MessageNumber(0), P2), b"e", false).is_err());

        let mut short = inbound(|limits| limits.max_message = Bytes::new(4));
        short.piece(Head::new(MessageNumber(0), P2), b"abcd", true).unwrap();
        assert!(short.piece(Head::new(MessageNumber(1), P2), b"abcde", true).is_err());
    }

    #[test]
    fn beyond_the_budget_those_above_their_share_have_to_stop() {
        let pool = Pool::new(Bytes::new(100));
        let mut inbounds = [(); 2].map(|()| Inbound::new(Limits::default(), pool.clone()));
        let [greedy, modest] = &mut inbounds;
        greedy.piece(Head::new(MessageNumber(0), P2), &[0; 60], false).unwrap();
        greedy.piece(Head::new(MessageNumber(1), P2), &[0; 30], true).unwrap();
        assert!(!greedy.is_full());
        modest.piece(Head::new(MessageNumber(0), P2), &[0; 20], true).unwrap();
        // 110 bytes are held. The application can take what is complete.
        assert!(greedy.is_full() && !modest.is_full());
        assert_eq!(greedy.take().map(|received| received.bytes.len()), Some(30));
        assert!(!greedy.is_full());
        // It cannot take what is not.
        modest.piece(Head::new(MessageNumber(1), P2), &[0; 25], false).unwrap();
        let overrun = greedy.piece(Head::new(MessageNumber(0), P2), &[0; 5], false).unwrap_err();
        assert_eq!(overrun.limit, "memory");
        // The connection ends, and the other one has room.
        drop(inbounds);
        assert_eq!(pool.held(), Bytes::ZERO);
    }

    /// Otherwise the rest of its messages would never come.
    #[test]
    fn a_peer_whose_messages_are_all_incomplete_is_read_on() {
        let pool = Pool::new(Bytes::new(100));
        let mut inbounds = [(); 2].map(|()| Inbound::new(Limits::default(), pool.clone()));
        let [greedy, modest] = &mut inbounds;
        greedy.piece(Head::new(MessageNumber(0), P2), &[0; 80], false).unwrap();
        modest.piece(Head::new(MessageNumber(0), P2), &[0; 40], true).unwrap();
        assert!(!greedy.is_full());
        assert_eq!(greedy.counters().stops, 0);
    }

    /// Answers about levels that the peer shall hold or release.
    fn holds(inbound: &mut Inbound) -> Vec<(Priority, bool)> {
        std::iter::from_fn(|| inbound.take_answer())
            .filter_map(|answer| match answer {
                Answer::Hold { priority, held } => Some((priority, held)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_level_that_is_not_taken_is_held_and_stops_no_other() {
        let mut inbound = inbound(|limits| {
            limits.unread = Bytes::new(10);
            limits.unread_messages = 4;
            limits.surplus = Bytes::new(3 * 65);
        });
        let mut number = 0;
        let mut arrive = |inbound: &mut Inbound, priority, bytes: &[u8]| {
            inbound.piece(Head::new(MessageNumber(number), priority), bytes, true).unwrap();
            number += 1;
        };
        for _ in 0..3 {
            arrive(&mut inbound, P2, b"a");
        }
        assert_eq!(holds(&mut inbound), []);
        arrive(&mut inbound, P2, b"a");
        assert_eq!(holds(&mut inbound), [(P2, true)]);
        // What the peer has sent before it knows is read, and so are the other levels.
        for _ in 0..2 {
            arrive(&mut inbound, P2, b"a");
            arrive(&mut inbound, Priority::P0, b"a");
            assert!(!inbound.is_full());
            inbound.take().unwrap();
        }
        arrive(&mut inbound, P2, b"a");
        assert!(inbound.is_full());
        for _ in 0..4 {
            inbound.take().unwrap();
            assert!(!inbound.is_full());
        }
        assert_eq!(holds(&mut inbound), []);
        inbound.take().unwrap();
        assert_eq!(holds(&mut inbound), [(P2, false)]);
        // Bytes count as well, but not those of a message that was complete before.
        arrive(&mut inbound, P2, &[0; 1000]);
        arrive(&mut inbound, P2, &[0; 130]);
        assert_eq!((holds(&mut inbound), inbound.is_full()), (vec![(P2, true)], false));
        // All held levels count together.
        arrive(&mut inbound, Priority::P4, &[0; 10]);
        assert_eq!((holds(&mut inbound), inbound.is_full()), (vec![(Priority::P4, true)], false));
        arrive(&mut inbound, Priority::P4, b"");
        assert!(inbound.is_full());
        assert_eq!((inbound.counters().stops, inbound.counters().holds), (2, [0, 0, 2, 0, 1]));
    }

    #[test]
    fn every_way_to_take_or_discard_releases_a_level() {
        let mut inbound = inbound(|limits| {
            limits.unread = Bytes::new(10);
            limits.max_message = Bytes::new(20);
            limits.long_messages = LongMessages::Stream;
        });
        let (long, request) = (MessageNumber(0), Head::new(MessageNumber(1), P2));
        let steps: [fn(&mut Inbound); 5] = [
            |inbound| while let LongNext::Piece(_) = inbound.next_of(MessageNumber(0)) {},
            |inbound| inbound.forget_long(MessageNumber(0)),
            |inbound| inbound.give_up(MessageNumber(0), 0),
            |inbound| drop(inbound.take_request()),
            |inbound| inbound.end_exchange(7, EndReason::Withdrawn),
        ];
        for (step, take) in steps.into_iter().enumerate() {
            if step < 3 {
                inbound.piece(Head::new(long, P2), &[0; 30], false).unwrap();
            } else {
                inbound.piece(request.with_exchange(Exchange::Request(7)), &[0; 20], true).unwrap();
            }
            assert_eq!(holds(&mut inbound), [(P2, true)], "{step}");
            take(&mut inbound);
            assert_eq!((holds(&mut inbound), inbound.unread()), (vec![(P2, false)], 0), "{step}");
            inbound.give_up(long, 0);
            inbound.end_exchange(7, EndReason::Withdrawn);
            (inbound.begun, inbound.longs) = Default::default();
        }
    }

    #[test]
    fn the_last_message_is_taken_before_the_end_of_receiving() {
        let mut inbound = inbound(|_| {});
        inbound.piece(Head::new(MessageNumber(0), P2), b"last", true).unwrap();
        assert_eq!(inbound.ended(), None);
        inbound.finish();
        assert_eq!((inbound.ended(), inbound.closed()), (Some(Closed::Finished), None));
        assert_eq!(inbound.take().unwrap().bytes, b"last"[..]);
        let asked = inbound.begin_request().unwrap();
        assert_eq!(inbound.take_reply(asked), Some(Err(NoReply::Closed(Closed::Finished))));
        inbound.close(Closed::Local);
        assert_eq!(inbound.ended(), Some(Closed::Local));
    }

    #[test]
    fn bytes_of_an_abandoned_message_are_free_again() {
        let mut inbound = inbound(|limits| limits.open = Bytes::new(10));
        for number in 0..3 {
            inbound.piece(Head::new(MessageNumber(number), P2), b"sixsix", false).unwrap();
            inbound.give_up(MessageNumber(number), 0);
        }
        inbound.piece(Head::new(MessageNumber(3), P2), b"sixsix", false).unwrap();
        let more = inbound.piece(Head::new(MessageNumber(4), P2), b"fiver", false);
        assert_eq!(more, Err(Overrun { limit: "open", most: 10 }));
    }

    #[test]
    fn a_long_message_is_handed_out_in_pieces() {
        let mut inbound = inbound(|limits| {
            limits.max_message = Bytes::new(4);
            limits.long_messages = LongMessages::Stream;
            limits.unread = Bytes::new(6);
        });
        let number = MessageNumber(0);
        inbound.piece(Head::new(number, P2), b"abc", false).unwrap();
        assert_eq!(inbound.take_long(), None);
        inbound.piece(Head::new(number, P2), b"def", false).unwrap();
        assert_eq!(inbound.take_long(), Some((number, P2, false)));
        assert_eq!(holds(&mut inbound), [(P2, true)]);
        assert!(matches!(inbound.next_of(number), LongNext::Piece(piece) if piece == b"abc"[..]));
        assert!(matches!(inbound.next_of(number), LongNext::Piece(piece) if piece == b"def"[..]));
        assert!(matches!(inbound.next_of(number), LongNext::Wait));
        inbound.piece(Head::new(number, P2), b"g", false).unwrap();
        inbound.give_up(number, 2);
        let LongNext::End(Err(missed)) = inbound.next_of(number) else { panic!("it was given up") };
        assert_eq!((missed.reason, missed.received), (MissedReason::Expired, Bytes::new(7)));
        assert_eq!((inbound.unread(), inbound.open_bytes), (0, 0));
        assert!(inbound.longs.is_empty() && inbound.open.is_empty());
    }

    fn asked(number: u64) -> Head {
        Head::new(MessageNumber(number), P2).with_report(true)
    }

    fn reports(inbound: &mut Inbound) -> Vec<(u64, Fate)> {
        let report = |answer| match answer {
            Answer::Report(report) => (report.number.0, report.fate),
            Answer::End { .. } | Answer::Hold { .. } => panic!("{answer:?}"),
        };
        std::iter::from_fn(|| inbound.take_answer()).map(report).collect()
    }

    #[test]
    fn a_message_is_reported_when_the_application_takes_it() {
        let mut inbound = inbound(|_| {});
        inbound.piece(asked(0), b"asked", true).unwrap();
        inbound.piece(Head::new(MessageNumber(1), P2), b"not asked", true).unwrap();
        assert_eq!(reports(&mut inbound), []);
        inbound.take().unwrap();
        assert_eq!(reports(&mut inbound), [(0, Fate::Taken)]);
        inbound.take().unwrap();
        assert_eq!(reports(&mut inbound), []);
        inbound.piece(asked(2), b"late", true).unwrap();
        inbound.close(Closed::Local);
        inbound.take().unwrap();
        assert_eq!(reports(&mut inbound), []);
    }

    #[test]
    fn a_long_message_is_reported_with_its_last_piece() {
        // The end arrives with the last piece, or after it.
        for end in [&b"c"[..], b""] {
            let mut inbound = streaming();
            inbound.piece(asked(0), b"ab", false).unwrap();
            assert!(matches!(inbound.next_of(MessageNumber(0)), LongNext::Piece(_)));
            inbound.piece(asked(0), end, true).unwrap();
            assert_eq!(reports(&mut inbound), []);
            let ended = matches!(inbound.next_of(MessageNumber(0)), LongNext::End(Ok(())));
            assert_eq!(ended, end.is_empty());
            assert_eq!(reports(&mut inbound), [(0, Fate::Taken)]);
            inbound.next_of(MessageNumber(0));
            inbound.forget_long(MessageNumber(0));
            assert_eq!(reports(&mut inbound), []);
        }
    }

    #[test]
    fn a_forgotten_long_message_is_reported_once_complete() {
        let mut inbound = streaming();
        inbound.piece(asked(0), b"begun", false).unwrap();
        inbound.forget_long(MessageNumber(0));
        assert_eq!(reports(&mut inbound), []);
        inbound.piece(asked(0), b"end", true).unwrap();
        assert_eq!(reports(&mut inbound), [(0, Fate::Discarded)]);
        inbound.piece(asked(1), b"whole", true).unwrap();
        inbound.forget_long(MessageNumber(1));
        assert_eq!(reports(&mut inbound), [(1, Fate::Discarded)]);
        inbound.piece(asked(2), b"given up", false).unwrap();
        inbound.give_up(MessageNumber(2), 0);
        inbound.forget_long(MessageNumber(2));
        assert_eq!((reports(&mut inbound), inbound.longs.len()), (Vec::new(), 0));
    }

    fn ends(inbound: &mut Inbound) -> Vec<(u64, EndReason)> {
        let end = |answer| match answer {
            Answer::End { exchange, reason } => (exchange, reason),
            Answer::Report(_) | Answer::Hold { .. } => panic!("{answer:?}"),
        };
        std::iter::from_fn(|| inbound.take_answer()).map(end).collect()
    }

    fn request(number: u64, exchange: u64) -> Head {
        Head::new(MessageNumber(number), P2).with_exchange(Exchange::Request(exchange))
    }

    fn reply(number: u64, exchange: u64) -> Head {
        Head::new(MessageNumber(number), P2).with_exchange(Exchange::Reply(exchange))
    }

    #[test]
    fn replies_are_taken_in_any_order_and_only_once() {
        let mut inbound = inbound(|limits| limits.requests = 2);
        assert_eq!((inbound.begin_request(), inbound.begin_request()), (Some(0), Some(1)));
        assert_eq!(inbound.begin_request(), None);
        inbound.piece(reply(0, 1), b"one", true).unwrap();
        inbound.piece(reply(1, 1), b"again", true).unwrap();
        inbound.piece(reply(2, 7), b"never asked", true).unwrap();
        assert!(inbound.take().is_none() && inbound.take_reply(0).is_none());
        assert_eq!(inbound.take_reply(1).unwrap().unwrap().bytes, b"one"[..]);
        assert_eq!(inbound.begin_request(), Some(2));
        inbound.end_exchange(0, EndReason::Unanswered);
        inbound.end_exchange(0, EndReason::Refused);
        assert_eq!(inbound.take_reply(0), Some(Err(NoReply::Unanswered)));
        inbound.piece(reply(3, 2), b"unwanted", true).unwrap();
        assert!(!inbound.forget_request(2));
        assert_eq!((inbound.unread(), waiting(&inbound)), (0, 0));
        assert_eq!(inbound.counters().stray_exchanges, 3);
        assert_eq!(inbound.begin_request(), Some(3));
        inbound.close(Closed::Local);
        assert_eq!(inbound.take_reply(3), Some(Err(NoReply::Closed(Closed::Local))));
    }

    #[test]
    fn requests_beyond_the_limit_are_refused() {
        let mut inbound = inbound(|limits| limits.requests = 2);
        for exchange in [5, 6, 7, 5] {
            inbound.piece(request(exchange, exchange), b"?", true).unwrap();
        }
        assert_eq!(ends(&mut inbound), [(7, EndReason::Refused)]);
        assert_eq!((inbound.counters().refused_requests, inbound.counters().stray_exchanges), (1, 1));
        assert_eq!((inbound.unread(), waiting(&inbound), inbound.take()), (2, 2, None));
        assert_eq!(inbound.take_request().unwrap().0, 5);
        inbound.close_request(5, true);
        assert_eq!(ends(&mut inbound), []);
        inbound.piece(request(8, 8), b"?", true).unwrap();
        inbound.close_request(8, false);
        inbound.close_request(8, false);
        assert_eq!(ends(&mut inbound), [(8, EndReason::Unanswered)]);
    }

    #[test]
    fn a_withdrawn_request_is_forgotten() {
        let mut inbound = inbound(|_| {});
        inbound.piece(request(0, 0).with_report(true), b"?", true).unwrap();
        inbound.piece(request(1, 1), b"?", true).unwrap();
        inbound.end_exchange(0, EndReason::Withdrawn);
        assert_eq!(reports(&mut inbound), [(0, Fate::Discarded)]);
        assert_eq!(inbound.take_request().unwrap().0, 1);
        assert!(inbound.awaits_reply(1));
        inbound.end_exchange(1, EndReason::Withdrawn);
        assert!(!inbound.awaits_reply(1) && inbound.take_request().is_none());
        inbound.close_request(1, false);
        inbound.end_exchange(1, EndReason::Withdrawn);
        assert_eq!((ends(&mut inbound), inbound.counters().stray_exchanges), (Vec::new(), 1));
        assert_eq!((inbound.unread(), waiting(&inbound)), (0, 0));
    }

    #[test]
    fn a_request_is_no_longer_than_a_message() {
        let mut inbound = streaming();
        assert!(inbound.piece(request(0, 0), b"ab", true).is_err());
        assert!(inbound.piece(reply(1, 0), b"ab", false).is_err());
    }

    #[test]
    fn declined_messages_use_no_memory_and_complete_ones_stay() {
        let mut inbound = inbound(|limits| {
            limits.max_message = Bytes::new(4);
            limits.long_messages = LongMessages::Stream;
        });
        let [whole, part, long, new] = [0, 1, 2, 3].map(MessageNumber);
        inbound.piece(Head::new(whole, P2), b"all", true).unwrap();
        inbound.piece(Head::new(part, P2), b"be", false).unwrap();
        inbound.piece(Head::new(long, P2), b"begin", false).unwrap();
        inbound.decline();
        inbound.piece(Head::new(part, P2), b"rest", true).unwrap();
        inbound.piece(Head::new(long, P2), b"rest", true).unwrap();
        inbound.piece(Head::new(new, P2), b"far too long", true).unwrap();
        assert_eq!((inbound.unread(), inbound.open_bytes, inbound.open_messages()), (3, 0, 0));
        assert_eq!((inbound.counters().declined, inbound.counters().messages[2]), (3, 1));
        assert_eq!(inbound.take().unwrap().bytes, b"all"[..]);
        assert_eq!((inbound.take(), inbound.take_long()), (None, None));
        assert!(inbound.longs.is_empty());
    }

    fn streaming() -> Inbound {
        inbound(|limits| {
            limits.max_message = Bytes::new(1);
            limits.long_messages = LongMessages::Stream;
        })
    }

    #[test]
    fn pieces_of_one_byte_use_no_more_than_twice_their_length() {
        const LEN: usize = 1 << 20;
        let mut inbound = streaming();
        let number = MessageNumber(0);
        let sent: Vec<u8> = (0..=250).cycle().take(LEN).collect();
        for (at, byte) in sent.iter().enumerate() {
            inbound.piece(Head::new(number, P2), &[*byte], at + 1 == LEN).unwrap();
        }
        assert_eq!(inbound.counters().unread_peak, Bytes::new(LEN as u64));
        let long = &inbound.longs[&0];
        let handles = long.pieces.capacity() * size_of::<Payload>();
        assert!(
            long.pieces.len() <= LEN / JOINED_PIECE + 1 && handles < LEN / 100,
            "{handles} bytes of handles"
        );
        assert!(long.tail.capacity() <= 2 * JOINED_PIECE);
        let mut received = Vec::new();
        while let LongNext::Piece(piece) = inbound.next_of(number) {
            received.extend_from_slice(&piece);
        }
        assert!(received == sent && inbound.unread() == 0 && inbound.longs.is_empty());
    }

    #[test]
    fn empty_streams_that_nobody_accepts_are_bounded() {
        let mut inbound = inbound(|limits| {
            limits.unread_messages = 4;
            limits.surplus = Bytes::new(MESSAGE_COST * 3);
        });
        let holds = |inbound: &mut Inbound| -> Vec<bool> {
            let answers = std::iter::from_fn(|| inbound.take_answer());
            answers.map(|answer| matches!(answer, Answer::Hold { held: true, .. })).collect()
        };
        let stream = |number| Head::new(MessageNumber(number), P2).with_exchange(Exchange::Stream);
        for number in 0..4 {
            inbound.piece(stream(number), b"", number % 2 == 0).unwrap();
        }
        assert_eq!((holds(&mut inbound), inbound.is_full()), (vec![true], false));
        (4..7).for_each(|number| inbound.piece(stream(number), b"", true).unwrap());
        assert!(inbound.is_full(), "a peer that goes on is not read");
        inbound.give_up(MessageNumber(1), 0);
        let taken: Vec<_> = std::iter::from_fn(|| inbound.take_long()).map(|(number, ..)| number.0).collect();
        assert_eq!(taken, [0, 2, 3, 4, 5, 6]);
        assert_eq!((holds(&mut inbound), inbound.is_full(), waiting(&inbound)), (vec![false], false, 0));
    }

    #[test]
    fn short_and_long_pieces_keep_their_order() {
        let mut inbound = streaming();
        let number = MessageNumber(0);
        let lengths = [
            1,
            5,
            JOINED_PIECE / 2,
            3,
            JOINED_PIECE / 2 - 1,
            JOINED_PIECE / 2 - 1,
            7,
            JOINED_PIECE,
            2 * JOINED_PIECE,
            1,
        ];
        let sent: Vec<u8> = (0..=250).cycle().take(lengths.iter().sum()).collect();
        let mut at = 0;
        for len in lengths {
            inbound.piece(Head::new(number, P2), &sent[at..at + len], false).unwrap();
            at += len;
        }
        assert_eq!(inbound.unread(), sent.len() as u64);
        let mut received = Vec::new();
        while let LongNext::Piece(piece) = inbound.next_of(number) {
            received.extend_from_slice(&piece);
        }
        assert!(received == sent && inbound.unread() == 0);
    }

    #[test]
    fn long_messages_given_up_before_acceptance_are_freed() {
        let mut inbound = streaming();
        for number in (0..10_000).map(MessageNumber) {
            inbound.piece(Head::new(number, P2), b"begun", false).unwrap();
            inbound.give_up(number, 0);
        }
        assert!(inbound.longs.is_empty() && inbound.begun.is_empty() && inbound.open.is_empty());
        assert_eq!((inbound.unread(), inbound.counters().missed), (0, 10_000));
        assert_eq!(inbound.take_long(), None);
    }

    #[test]
    fn of_messages_that_were_missed_the_oldest_are_forgotten() {
        let mut inbound = inbound(|limits| limits.missed = 2);
        for number in 0..3 {
            inbound.give_up(MessageNumber(number), 0);
        }
        assert_eq!(inbound.take_missed().unwrap().number, MessageNumber(1));
        assert_eq!((inbound.counters().missed, inbound.counters().forgotten), (3, 1));
    }

    #[test]
    fn the_least_urgent_oldest_unreliable_message_is_dropped_first() {
        let mut inbound = inbound(|limits| limits.unreliable = Bytes::new(3 * 65));
        for (priority, byte) in
            [(P2, b"a"), (Priority::P0, b"b"), (P2, b"c"), (P2, b"d"), (Priority::P4, b"e")]
        {
            inbound.unreliable(priority, Payload::from_static(byte));
        }
        inbound.piece(Head::new(MessageNumber(0), P2), b"reliable", true).unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| inbound.take()).map(|received| received.bytes).collect();
        assert_eq!(taken, [&b"b"[..], b"c", b"d", b"reliable"]);
        assert_eq!((inbound.counters().unreliable, inbound.counters().unreliable_dropped), (5, 2));
        assert_eq!((inbound.unreliable_bytes, inbound.unread()), (0, 0));
    }

    #[test]
    fn a_complete_message_can_be_taken_after_the_end() {
        let mut inbound = inbound(|_| {});
        inbound.piece(Head::new(MessageNumber(0), P2), b"whole", true).unwrap();
        inbound.piece(Head::new(MessageNumber(1), P2), b"part", false).unwrap();
        inbound.close(Closed::ByPeer(CloseReason::default()));
        assert_eq!(inbound.take().unwrap().bytes, b"whole"[..]);
        assert_eq!((inbound.take(), inbound.open_messages()), (None, 0));
    }
}
