//! Sending direction: messages in the Conductor's order, and control frames about them.
//!
//! The sender is the feeder of a byte stream (CATS §II-C): it asks the Conductor for grants until a chunk is
//! full, and writes them as frames. It calls the Conductor itself, and not through `marcato_sched::Feeder`.
//! The room of a grant depends on the length of its frame's header, which is known only after a look at the
//! next message.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes as Payload;
use marcato_sched::Conductor;
use marcato_sched::conductor::{
    self, Counters, DebtError, LevelCounters, MessageId, Removal, Removals, Removed, Slab,
};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};
use marcato_wire::{
    EndReason, Exchange, Fate, Frame, MAX_FRAME_HEADER, MAX_SINGLE_HEADER, MessageFrame, MessageNumber,
};

use crate::{
    Admission, Admitted, Answer, ChangeError, Closed, Limits, LongId, Message, MissedReason, NextPart,
    NotDelivered, Receipt, SendError, Ticket,
};

/// Room in bytes at the end of a chunk below which no frame is begun.
pub(crate) const SLIVER: usize = 32;

/// Message that has not been written completely.
#[derive(Debug)]
struct Outgoing<T> {
    body: Payload,
    admitted: Admitted<T>,
    /// Number and priority on the wire, once its first byte has been written. For a part, the whole
    /// message has them.
    announced: Option<(MessageNumber, Priority)>,
    part: Option<Part>,
    /// Set if its frames ask for a report. `receipt` learns it; for a message handed over part by
    /// part, that of the last part.
    report: bool,
    receipt: Option<Receipt<T>>,
    exchange: Exchange,
}

/// Position of a part in its message.
#[derive(Clone, Copy, Debug)]
struct Part {
    long: LongId,
    /// Offset in the whole message at which it begins.
    base: Bytes,
    /// Set if the whole message ends with it.
    last: bool,
}

/// Message that is handed over part by part.
#[derive(Debug, Default)]
struct Long {
    announced: Option<(MessageNumber, Priority)>,
    len: Bytes,
    /// Parts that are not wholly written.
    parts: VecDeque<MessageId>,
    /// Set when no other part follows.
    over: bool,
}

/// Consecutive grants of one message, which become one frame.
#[derive(Clone, Copy, Debug)]
struct Run {
    id: MessageId,
    number: MessageNumber,
    priority: Priority,
    /// Offset in the part or message handed over; `base` is the offset of that in the message on
    /// the wire.
    offset: Bytes,
    base: Bytes,
    len: Bytes,
    /// Set if it reaches the end of the part or message handed over; `last` if that ends the
    /// message.
    fin: bool,
    last: bool,
    report: bool,
    exchange: Exchange,
}

/// Small frame that the peer has asked for.
#[derive(Clone, Copy, Debug)]
enum Small {
    /// DONE frames, as many as asked for.
    Done(MessageNumber, u32),
    Answer(Answer),
    /// WATCH or CLOCK.
    Clock(Frame),
}

/// Progress of the end of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Finish {
    #[default]
    Open,
    /// FINISH follows the messages that are queued.
    Wanted,
    Sent,
}

/// All data that one connection has to send.
///
/// Its owner offers messages, and calls [`fill`](Self::fill) whenever the transport has little
/// left. Each message carries a [`Ticket`], which learns its outcome.
#[derive(Debug)]
pub struct Sender<T> {
    conductor: Conductor<Slab, Removals>,
    admission: Admission,
    /// Limit of one grant, in bytes.
    unit: Bytes,
    messages: HashMap<MessageId, Outgoing<T>>,
    /// Messages handed over part by part. As many as the application begins.
    longs: HashMap<LongId, Long>,
    next_long: u64,
    /// Messages written completely, by number, until the receiver acknowledges them.
    awaiting: HashMap<u64, Admitted<T>>,
    /// Parts granted whole that did not end their message, by level.
    parts: [u64; Priority::COUNT],
    next_number: u64,
    /// Time of the latest urgent message: P0 or P1.
    urgent_at: Option<Time>,
    /// Tickets of messages written completely, by number, until the receiver reports about them.
    reporting: HashMap<u64, Receipt<T>>,
    answers: VecDeque<Small>,
    /// RESET frames; `None` for messages that were never begun.
    resets: VecDeque<(Option<MessageNumber>, u64)>,
    /// Levels that the peer does not hold.
    free: PrioritySet,
    finish: Finish,
}

/// Error returned when the peer acknowledges a message that it cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer acknowledged message {0} before all of it was sent")]
pub struct NotAwaited(u64);

impl<T: Ticket> Sender<T> {
    /// Creates a sender with this Conductor, whose bounds come from `limits`.
    ///
    /// # Errors
    ///
    /// If the Conductor's rules are invalid.
    pub fn new(conductor: conductor::Config, limits: Limits) -> Result<Self, DebtError> {
        let conductor = limits.bound(conductor);
        Ok(Self {
            conductor: Conductor::new(conductor)?.observed_by(Removals::default()),
            admission: Admission::new(limits),
            unit: conductor.chunk,
            messages: HashMap::new(),
            longs: HashMap::new(),
            next_long: 0,
            awaiting: HashMap::new(),
            parts: [0; Priority::COUNT],
            next_number: 0,
            urgent_at: None,
            reporting: HashMap::new(),
            answers: VecDeque::new(),
            resets: VecDeque::new(),
            free: PrioritySet::ALL,
            finish: Finish::Open,
        })
    }

    /// Counters of the Conductor.
    pub fn counters(&self) -> &Counters {
        self.conductor.counters()
    }

    /// Number of the parts of long messages among the messages that the Conductor has granted, except
    /// last parts, by level.
    pub const fn parts(&self) -> [u64; Priority::COUNT] {
        self.parts
    }

    /// Number of undelivered messages of each level.
    pub const fn unfinished(&self) -> [usize; Priority::COUNT] {
        self.admission.undelivered()
    }

    /// Queues a message; its ticket learns the outcome.
    ///
    /// # Errors
    ///
    /// If the message is empty, too long, has no room at its level, or its level is being
    /// discarded.
    pub fn offer(&mut self, now: Time, message: &Message, ticket: T) -> Result<MessageId, SendError> {
        self.take(now, message, ticket, None)
    }

    /// Returns whether there is room for a message, or it can never be queued.
    pub fn admits(&self, message: &Message) -> bool {
        let queued = self.conductor.counters().level(message.priority).queued.bytes;
        let admitted = self.admission.admit(message, queued, None);
        self.finish != Finish::Open || !matches!(admitted, Err(SendError::Busy { .. }))
    }

    /// Begins a message that is handed over part by part.
    pub fn begin_long(&mut self) -> LongId {
        let id = LongId(self.next_long);
        self.next_long += 1;
        self.longs.insert(id, Long::default());
        id
    }

    /// Queues the next part of a message; `last` completes it.
    ///
    /// # Errors
    ///
    /// As [`offer`](Self::offer), and [`SendError::Ended`] after the last part or a cancellation.
    pub fn offer_part(
        &mut self,
        now: Time,
        long: LongId,
        message: &Message,
        last: bool,
        ticket: T,
    ) -> Result<MessageId, SendError> {
        let id = self.take(now, message, ticket, Some((long, last)))?;
        if let Some(known) = self.longs.get_mut(&long) {
            known.len += Bytes::new(message.body.len() as u64);
            known.parts.push_back(id);
            known.over = last;
        }
        Ok(id)
    }

    /// Cancels a message that is handed over part by part.
    pub fn cancel_long(&mut self, long: LongId) {
        self.end_long(long, Removal::Cancelled);
        self.sweep();
    }

    /// Abandons all parts of a message, and informs the receiver.
    fn end_long(&mut self, long: LongId, reason: Removal) {
        let Some(long) = self.longs.remove(&long) else { return };
        for id in long.parts {
            // `sweep` removes the part with the rest.
            let _ = self.conductor.cancel(id);
        }
        if let Some((number, _)) = long.announced {
            self.resets.push_back((Some(number), MissedReason::code(reason)));
        }
    }

    fn take(
        &mut self,
        now: Time,
        message: &Message,
        ticket: T,
        part: Option<(LongId, bool)>,
    ) -> Result<MessageId, SendError> {
        let level = message.priority;
        if self.finish != Finish::Open {
            return Err(SendError::Finished);
        }
        let (part, next) = match part {
            None => (None, None),
            Some((long, last)) => {
                let known = self.longs.get(&long).filter(|known| !known.over).ok_or(SendError::Ended)?;
                let parts = known.parts.iter().filter_map(|id| self.conductor.message(*id));
                let waiting = parts.fold(Bytes::ZERO, |sum, part| sum + part.rest());
                (Some(Part { long, base: known.len, last }), Some(NextPart { waiting, last }))
            }
        };
        let queued = self.conductor.counters().level(level).queued.bytes;
        self.admission.admit(message, queued, next)?;
        let offered = self.conductor.offer(now, message.description());
        // `offer` also sheds messages, if that is enabled.
        self.sweep();
        let id = offered.map_err(|error| SendError::from_offer(error, level))?;
        tracing::trace!(id = id.get(), priority = %level, len = message.body.len(), "offered");
        let (admitted, receipt) = self.admission.count(message, ticket);
        let outgoing = Outgoing {
            body: message.body.clone(),
            admitted,
            announced: None,
            part,
            report: message.receipt,
            receipt,
            exchange: message.exchange,
        };
        self.messages.insert(id, outgoing);
        if PrioritySet::URGENT.contains(level) {
            self.urgent_at = Some(now);
        }
        Ok(id)
    }

    /// Returns whether no message of P0 or P1 was offered within `span`.
    pub fn is_quiet(&self, now: Time, span: Duration) -> bool {
        self.urgent_at.is_none_or(|at| now.since(at) >= span)
    }

    /// Cancels a message.
    ///
    /// # Errors
    ///
    /// [`ChangeError::TooLate`] if all of it was written, or it was removed.
    pub fn cancel(&mut self, id: MessageId) -> Result<(), ChangeError> {
        self.conductor.cancel(id).map_err(|_| ChangeError::TooLate)?;
        self.sweep();
        Ok(())
    }

    /// Moves a message to another level.
    ///
    /// # Errors
    ///
    /// If all of it was written or it was removed, or the new level is being discarded.
    pub fn reprioritise(&mut self, id: MessageId, priority: Priority) -> Result<(), ChangeError> {
        Ok(self.conductor.reprioritise(id, priority)?)
    }

    /// Removes all messages less urgent than `threshold`, and refuses further ones.
    pub fn discard_less_urgent_than(&mut self, threshold: Priority) {
        self.conductor.discard_less_urgent_than(threshold);
        self.sweep();
    }

    /// Time from which [`expire`](Self::expire) has something to remove; `None` if no queued message
    /// has a lifetime.
    pub fn next_expiry(&self) -> Option<Time> {
        self.conductor.next_expiry()
    }

    /// Removes messages that have outlived their lifetime, even while nothing can be written. Returns
    /// whether there were any.
    pub fn expire(&mut self, now: Time) -> bool {
        let any = self.conductor.expire(now).messages > 0;
        if any {
            self.sweep();
        }
        any
    }

    /// Forgets the messages that the Conductor has removed, and informs the receiver if it may wait
    /// for them.
    fn sweep(&mut self) {
        while let Some(Removed { id, reason, .. }) = self.conductor.observer_mut().pop_last() {
            let Some(outgoing) = self.messages.remove(&id) else { continue };
            let Outgoing { admitted, announced, part, receipt, exchange, .. } = outgoing;
            if let Exchange::Reply(exchange) = exchange {
                self.answer(Answer::End { exchange, reason: EndReason::Unanswered });
            }
            if let Some(receipt) = receipt {
                self.admission.withdraw(receipt, reason.into());
            }
            if let Some(part) = part {
                self.end_long(part.long, reason);
            } else if announced.is_some() || reason == Removal::Expired {
                // A receiver that has seen nothing of the message learns only that it missed its
                // deadline.
                self.resets.push_back((announced.map(|(number, _)| number), MissedReason::code(reason)));
            }
            self.admission.settle(admitted, Err(reason.into()));
        }
    }

    /// Queues receipts for a message that is settled.
    pub fn acknowledge(&mut self, number: MessageNumber, times: u32) {
        self.answers.push_back(Small::Done(number, times));
    }

    /// Queues an answer to the peer.
    pub fn answer(&mut self, answer: Answer) {
        self.answers.push_back(Small::Answer(answer));
    }

    /// Asks the peer for its clock at this interval in ms, while data arrives there.
    pub fn watch(&mut self, interval: u64) {
        self.answers.push_back(Small::Clock(Frame::Watch { interval }));
    }

    /// Tells the peer this end's clock, in ms modulo 2^32.
    pub fn tell_clock(&mut self, time: u32) {
        self.answers.push_back(Small::Clock(Frame::Clock { time }));
    }

    /// Number of acknowledgements and answers to be written.
    pub fn receipts(&self) -> usize {
        self.answers.len()
    }

    /// Records the peer's report about a message. Returns `false` if none is awaited.
    pub fn reported(&mut self, number: MessageNumber, fate: Fate) -> bool {
        let Some(receipt) = self.reporting.remove(&number.0) else { return false };
        self.admission.report(receipt, fate);
        true
    }

    /// Records that the receiver has a message.
    pub fn done(&mut self, number: MessageNumber) -> Result<(), NotAwaited> {
        let admitted = self.awaiting.remove(&number.0).ok_or(NotAwaited(number.0))?;
        self.admission.settle(admitted, Ok(()));
        Ok(())
    }

    /// Holds the messages of a level, at the peer's request, or releases them.
    pub fn hold(&mut self, level: Priority, held: bool) {
        self.free = self.free.with_if(!held, level);
    }

    /// Accepts no more messages, and informs the peer once those queued have been written.
    pub fn finish(&mut self) {
        if self.finish == Finish::Open {
            self.finish = Finish::Wanted;
        }
    }

    /// Returns whether there is something to write.
    pub fn wants_write(&self) -> bool {
        let small = !self.answers.is_empty() || !self.resets.is_empty();
        small || self.may_grant() || self.may_finish()
    }

    /// Returns whether a message is queued that the peer does not hold.
    fn may_grant(&self) -> bool {
        !self.waiting().is_empty()
    }

    /// Levels at which a message is queued, except those that the peer holds.
    pub fn waiting(&self) -> PrioritySet {
        self.levels(|level| level.queued.messages).and(self.free)
    }

    /// Levels at which a message was ever queued.
    pub fn used(&self) -> PrioritySet {
        self.levels(|level| level.offered.messages + level.moved_in.messages)
    }

    fn levels(&self, count: impl Fn(&LevelCounters) -> u64) -> PrioritySet {
        let counters = self.conductor.counters();
        let with = |set: PrioritySet, level| set.with_if(count(counters.level(level)) > 0, level);
        Priority::ALL.into_iter().fold(PrioritySet::EMPTY, with)
    }

    fn may_finish(&self) -> bool {
        self.finish == Finish::Wanted && self.conductor.is_empty()
    }

    /// Returns whether all messages are delivered or dropped, and no frame is queued.
    pub fn is_idle(&self) -> bool {
        self.messages.is_empty() && self.awaiting.is_empty() && !self.wants_write()
    }

    /// Reports the end of the connection to all senders.
    pub fn close(&mut self, closed: &Closed) {
        let mut receipts: Vec<_> = self.reporting.drain().map(|(_, receipt)| receipt).collect();
        let waiting = self.messages.drain().map(|(_, message)| {
            receipts.extend(message.receipt);
            message.admitted
        });
        for admitted in waiting.chain(self.awaiting.drain().map(|(_, admitted)| admitted)) {
            self.admission.settle(admitted, Err(NotDelivered::Closed(closed.clone())));
        }
        for receipt in receipts {
            self.admission.withdraw(receipt, NotDelivered::NotTaken(closed.clone()));
        }
        self.answers.clear();
        self.resets.clear();
    }

    /// Writes reports and answers, about `budget` bytes, and no data.
    pub fn fill_answers(&mut self, budget: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        while let Some(answer) = self.answers.front_mut()
            && !is_full(out, begin, budget)
        {
            let more = match answer {
                Small::Done(number, times) => {
                    put(out, &Frame::Done { id: *number });
                    *times -= 1;
                    *times > 0
                }
                Small::Answer(answer) => {
                    put(out, &answer.frame());
                    false
                }
                Small::Clock(frame) => {
                    put(out, frame);
                    false
                }
            };
            if !more {
                self.answers.pop_front();
            }
        }
    }

    /// Writes the next chunk: about `budget` bytes of frames.
    pub fn fill(&mut self, now: Time, budget: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        let full = |out: &Vec<u8>| is_full(out, begin, budget);
        self.fill_answers(budget, out);
        let mut run: Option<Run> = None;
        loop {
            // Messages that have just expired are reported first, so that numbers ascend.
            if !self.resets.is_empty() {
                if let Some(run) = run.take() {
                    self.write(run, out);
                }
                while !full(out)
                    && let Some((number, code)) = self.resets.pop_front()
                {
                    let id = number.unwrap_or_else(|| self.number());
                    put(out, &Frame::Reset { id, code });
                }
            }
            let used = out.len() - begin
                + run.map_or(0, |run| header(&run) + usize::try_from(run.len.get()).unwrap_or(usize::MAX));
            let next = self.conductor.peek_among(now, self.free);
            self.sweep();
            if !self.resets.is_empty() && !full(out) {
                continue;
            }
            let Some(next) = next else { break };
            let continues = run.is_some_and(|run| run.id == next.message);
            // The number that it has, or would get if any of it fits.
            let announced = self.announced(next.message);
            let (number, priority) = announced.unwrap_or((MessageNumber(self.next_number), next.priority));
            let start = Run {
                id: next.message,
                number,
                priority,
                offset: next.sent,
                base: self.place(next.message).0,
                len: Bytes::new(budget as u64),
                fin: false,
                last: false,
                report: false,
                exchange: self.exchange(next.message),
            };
            let mut room = budget.saturating_sub(used);
            if !continues {
                room = room.saturating_sub(header(&start));
            }
            if used > 0 && room < if continues { 1 } else { SLIVER } {
                break;
            }
            let room = Bytes::new(room.max(1) as u64).min(self.unit);
            let Some(grant) = self.conductor.grant_among(now, room, self.free) else { break };
            self.sweep();
            if grant.fin && !self.place(grant.message).1 {
                self.parts[grant.priority.index()] += 1;
            }
            match &mut run {
                Some(run) if run.id == grant.message => {
                    run.len += grant.len;
                    run.fin = grant.fin;
                }
                _ => {
                    let (number, priority) = self.announce(grant.message, grant.priority);
                    let (base, last) = self.place(grant.message);
                    let report = self.messages.get(&grant.message).is_some_and(|message| message.report);
                    let next = Run {
                        id: grant.message,
                        number,
                        priority,
                        offset: grant.offset,
                        base,
                        len: grant.len,
                        fin: grant.fin,
                        last,
                        report,
                        exchange: self.exchange(grant.message),
                    };
                    if let Some(run) = run.replace(next) {
                        self.write(run, out);
                    }
                }
            }
        }
        if let Some(run) = run {
            self.write(run, out);
        }
        if self.may_finish() && self.resets.is_empty() && !full(out) {
            put(out, &Frame::Finish);
            self.finish = Finish::Sent;
        }
    }

    fn number(&mut self) -> MessageNumber {
        let number = MessageNumber(self.next_number);
        self.next_number += 1;
        number
    }

    /// Number and priority of a message on the wire, if any of it has been written.
    fn announced(&self, id: MessageId) -> Option<(MessageNumber, Priority)> {
        let message = self.messages.get(&id)?;
        match message.part {
            Some(part) => self.longs.get(&part.long)?.announced,
            None => message.announced,
        }
    }

    /// Part of a message in an exchange.
    fn exchange(&self, id: MessageId) -> Exchange {
        self.messages.get(&id).map_or(Exchange::None, |message| message.exchange)
    }

    /// Offset of a part or message in the message on the wire, and whether it ends that message.
    fn place(&self, id: MessageId) -> (Bytes, bool) {
        let part = self.messages.get(&id).and_then(|message| message.part);
        part.map_or((Bytes::ZERO, true), |part| (part.base, part.last))
    }

    /// Assigns the number and the priority of a message on the wire, before its first byte is
    /// written.
    fn announce(&mut self, id: MessageId, priority: Priority) -> (MessageNumber, Priority) {
        if let Some(announced) = self.announced(id) {
            return announced;
        }
        let announced = (self.number(), priority);
        if let Some(message) = self.messages.get_mut(&id) {
            match message.part.and_then(|part| self.longs.get_mut(&part.long)) {
                Some(long) => long.announced = Some(announced),
                None => message.announced = Some(announced),
            }
        }
        announced
    }

    fn write(&mut self, run: Run, out: &mut Vec<u8>) {
        let Some(message) = self.messages.get(&run.id) else { return };
        let at = usize::try_from(run.offset.get()).unwrap_or(usize::MAX);
        let end = at.saturating_add(usize::try_from(run.len.get()).unwrap_or(usize::MAX));
        // The byte that the Conductor counts for an empty message is none of its own.
        let payload = message.body.get(at..end).unwrap_or_default();
        let len = Bytes::new(payload.len() as u64);
        put(out, &frame(&Run { len, ..run }));
        out.extend_from_slice(payload);
        if run.fin
            && let Some(message) = self.messages.remove(&run.id)
        {
            if let Some(part) = message.part
                && let Some(long) = self.longs.get_mut(&part.long)
            {
                long.parts.retain(|id| *id != run.id);
                if long.over && long.parts.is_empty() {
                    self.longs.remove(&part.long);
                }
            }
            if let Some(receipt) = message.receipt {
                self.reporting.insert(run.number.0, receipt);
            }
            if run.last {
                self.awaiting.insert(run.number.0, message.admitted);
            } else {
                // The receiver acknowledges the whole message, and with it each part.
                self.admission.settle(message.admitted, Ok(()));
            }
        }
    }
}

/// Returns whether a chunk has no room for another small frame. It takes one in any case.
const fn is_full(out: &[u8], begin: usize, budget: usize) -> bool {
    out.len() - begin + MAX_SINGLE_HEADER > budget && out.len() > begin
}

const fn frame(run: &Run) -> Frame {
    Frame::Message(MessageFrame {
        id: run.number,
        priority: run.priority,
        offset: Bytes::new(run.base.get() + run.offset.get()),
        len: run.len,
        last: run.fin && run.last,
        receipt: run.fin && run.last,
        report: run.report,
        exchange: run.exchange,
        duplicate: None,
    })
}

/// Length of the run's header, or an upper bound of it.
fn header(run: &Run) -> usize {
    frame(run).encoded_len().unwrap_or(MAX_FRAME_HEADER)
}

/// Appends a frame. Only numbers beyond 2^62 cannot be encoded, and none gets that far.
pub(crate) fn put(out: &mut Vec<u8>, frame: &Frame) {
    let mut header = [0; MAX_FRAME_HEADER];
    if let Ok(len) = frame.encode(&mut header) {
        out.extend_from_slice(&header[..len]);
    }
}
