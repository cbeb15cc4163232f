//! Messages that a reconnecting client keeps until the peer has acknowledged them, without I/O.

use std::collections::{BTreeMap, BTreeSet};

use marcato_sched::conductor::MessageId;
use marcato_stream::{Held, Limits, Message};
use marcato_units::{Bytes, Priority, PrioritySet, Time};
use tokio::sync::oneshot;

use super::delivery::{Fate, Undelivered};
use super::end::Ended;
use crate::error::{ChangeError, Closed, NotDelivered, SendError};
use crate::shared::{Awaited, Settled};

/// Number of times that the peer may get a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guarantee {
    /// Offered on one connection after the other until the peer has it.
    AtLeastOnce,
    /// Offered on one connection.
    AtMostOnce,
}

/// Position of a message between this end and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No connection has it.
    Waiting,
    /// The current connection has it, by this name.
    Offered(MessageId),
    /// The peer's transport has acknowledged it, and its application is to take it.
    Acknowledged,
}

/// Message that is kept.
#[derive(Debug)]
struct Kept {
    message: Message,
    /// End of its lifetime.
    deadline: Option<Time>,
    guarantee: Guarantee,
    progress: Progress,
    /// Set once a connection that had it was lost: the peer may have it.
    exposed: bool,
    outcome: Option<oneshot::Sender<Fate>>,
    report: Option<oneshot::Sender<Fate>>,
}

impl Kept {
    fn level(&self) -> Priority {
        self.message.priority
    }

    fn len(&self) -> Bytes {
        Bytes::new(self.message.body.len() as u64)
    }

    /// Returns the error for a message that was given up for this reason.
    fn given_up(&self, reason: NotDelivered) -> Undelivered {
        if self.exposed { Undelivered::Uncertain(reason) } else { reason.into() }
    }

    // A sender that dropped the handle does not wait for a fate.

    fn acknowledge(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            let _ = outcome.send(Ok(()));
        }
    }

    fn settle(mut self, fate: &Fate) {
        for waiting in [self.outcome.take(), self.report.take()].into_iter().flatten() {
            let _ = waiting.send(fate.clone());
        }
    }
}

/// Counters of a reconnecting client's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Times that a message was offered again after a loss.
    pub(super) offered_again: u64,
    /// Messages that were given up although the peer may have them.
    pub(super) uncertain: u64,
}

/// Messages that the peer has not acknowledged, in the order in which they were accepted. Each
/// level has its own bounds.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    limits: Limits,
    messages: BTreeMap<u64, Kept>,
    /// Messages of each level that no connection has.
    waiting: [BTreeSet<u64>; Priority::COUNT],
    /// Ends of the lifetimes of these.
    deadlines: BTreeSet<(Time, u64)>,
    held: [(usize, Bytes); Priority::COUNT],
    receipts: usize,
    next: u64,
    counters: Counters,
}

/// Message that was accepted: its name, and its fates.
pub(super) struct Accepted {
    pub(super) id: u64,
    pub(super) outcome: Awaited<Undelivered>,
    pub(super) report: Awaited<Undelivered>,
}

impl Unacknowledged {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            messages: BTreeMap::new(),
            waiting: Default::default(),
            deadlines: BTreeSet::new(),
            held: [(0, Bytes::ZERO); Priority::COUNT],
            receipts: 0,
            next: 0,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the messages and bytes that each level holds.
    pub(super) fn held(&self) -> [(usize, Bytes); Priority::COUNT] {
        self.held
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether messages wait to be offered.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|level| !level.is_empty())
    }

    /// Returns the next end of the lifetime of a message that waits.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Accepts a message, if there is room for it at its level.
    /// Returns whether there is room for a message, or it can never be accepted.
    pub(super) fn admits(&self, message: &Message) -> bool {
        let (messages, bytes) = self.held[message.priority.index()];
        let held = Held { messages, bytes, receipts: self.receipts };
        !matches!(self.limits.admit(message, held), Err(SendError::Busy { .. }))
    }

    pub(super) fn accept(
        &mut self,
        now: Time,
        message: &Message,
        guarantee: Guarantee,
    ) -> Result<Accepted, SendError> {
        let level = message.priority;
        let len = Bytes::new(message.body.len() as u64);
        let (messages, bytes) = self.held[level.index()];
        self.limits.admit(message, Held { messages, bytes, receipts: self.receipts })?;
        let id = self.next;
        self.next += 1;
        let (outcome, awaited) = oneshot::channel();
        let (report, reported) = oneshot::channel();
        // Permission to lose a message is permission not to offer it again.
        let guarantee = if message.reliable { guarantee } else { Guarantee::AtMostOnce };
        let kept = Kept {
            message: message.clone(),
            deadline: message.lifetime.map(|lifetime| now + lifetime),
            guarantee,
            progress: Progress::Waiting,
            exposed: false,
            outcome: Some(outcome),
            report: message.receipt.then_some(report),
        };
        self.held[level.index()] = (messages + 1, bytes + len);
        self.receipts += usize::from(message.receipt);
        self.messages.insert(id, kept);
        self.wait(id);
        let report = match message.receipt {
            true => Awaited::Pending(reported),
            false => Awaited::Known(Err(NotDelivered::NoReceipt.into())),
        };
        Ok(Accepted { id, outcome: Awaited::Pending(awaited), report })
    }

    fn wait(&mut self, id: u64) {
        let Some(kept) = self.messages.get(&id) else { return };
        self.waiting[kept.level().index()].insert(id);
        self.deadlines.extend(kept.deadline.map(|at| (at, id)));
    }

    fn wait_no_more(&mut self, id: u64) {
        let Some(kept) = self.messages.get(&id) else { return };
        self.waiting[kept.level().index()].remove(&id);
        if let Some(at) = kept.deadline {
            self.deadlines.remove(&(at, id));
        }
    }

    fn remove(&mut self, id: u64) -> Option<Kept> {
        self.wait_no_more(id);
        let kept = self.messages.remove(&id)?;
        let (messages, bytes) = &mut self.held[kept.level().index()];
        *messages -= 1;
        *bytes -= kept.len();
        self.receipts -= usize::from(kept.message.receipt);
        Some(kept)
    }

    fn give_up(&mut self, id: u64, reason: NotDelivered) {
        let Some(kept) = self.remove(id) else { return };
        let error = kept.given_up(reason);
        self.counters.uncertain += u64::from(matches!(error, Undelivered::Uncertain(_)));
        kept.settle(&Err(error));
    }

    /// Gives up the messages that waited for longer than their lifetime. Returns whether there were
    /// any.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.give_up(id, NotDelivered::Expired);
            any = true;
        }
        any
    }

    /// Returns the next message to offer at one of these levels, with the rest of its lifetime:
    /// the oldest of the most urgent level.
    pub(super) fn next(&mut self, now: Time, levels: PrioritySet) -> Option<(u64, Message)> {
        self.expire(now);
        let mut levels = Priority::ALL.into_iter().filter(|level| levels.contains(*level));
        let id = levels.find_map(|level| self.waiting[level.index()].first().copied())?;
        let kept = self.messages.get(&id)?;
        let lifetime = kept.deadline.map(|at| at.since(now));
        Some((id, Message { lifetime, ..kept.message.clone() }))
    }

    /// Records that the current connection has accepted a message.
    pub(super) fn offered(&mut self, id: u64, by: MessageId) {
        self.wait_no_more(id);
        if let Some(kept) = self.messages.get_mut(&id) {
            kept.progress = Progress::Offered(by);
            self.counters.offered_again += u64::from(kept.exposed);
        }
    }

    /// Gives up a message that no connection accepts.
    pub(super) fn refused(&mut self, id: u64, error: SendError) {
        if let Some(kept) = self.remove(id) {
            kept.settle(&Err(Undelivered::Refused(error)));
        }
    }

    /// Records an outcome on the current connection.
    pub(super) fn settle(&mut self, settled: Settled) {
        let Settled { message: id, receipt, outcome, .. } = settled;
        let Some(kept) = self.messages.get_mut(&id) else { return };
        match outcome {
            Ok(()) if !receipt && kept.report.is_some() => {
                kept.acknowledge();
                kept.progress = Progress::Acknowledged;
            }
            Ok(()) => {
                if let Some(kept) = self.remove(id) {
                    kept.settle(&Ok(()));
                }
            }
            // The loss of the connection follows.
            Err(NotDelivered::Closed(_) | NotDelivered::NotTaken(_)) => {}
            Err(reason @ NotDelivered::Unwanted) => {
                // The transport had all of it.
                kept.acknowledge();
                self.give_up(id, reason);
            }
            Err(reason) => self.give_up(id, reason),
        }
    }

    /// Records the loss of the current connection. Its messages wait for the next one, except those
    /// that are offered only once.
    pub(super) fn lost(&mut self, closed: &Closed) {
        let has_left = |(id, kept): (&u64, &mut Kept)| {
            let acknowledged = match kept.progress {
                Progress::Waiting => return None,
                Progress::Offered(_) => false,
                Progress::Acknowledged => true,
            };
            kept.exposed = true;
            kept.progress = Progress::Waiting;
            Some((*id, acknowledged, kept.guarantee))
        };
        let left: Vec<_> = self.messages.iter_mut().filter_map(has_left).collect();
        for (id, acknowledged, guarantee) in left {
            match (guarantee, acknowledged) {
                (Guarantee::AtLeastOnce, _) => self.wait(id),
                (Guarantee::AtMostOnce, true) => self.give_up(id, NotDelivered::NotTaken(closed.clone())),
                (Guarantee::AtMostOnce, false) => self.give_up(id, closed.clone().into()),
            }
        }
    }

    /// Cancels a message that waits. Returns its name on the current connection if that has it.
    pub(super) fn cancel(&mut self, id: u64) -> Result<Option<MessageId>, ChangeError> {
        match self.messages.get(&id).map(|kept| kept.progress) {
            None | Some(Progress::Acknowledged) => Err(ChangeError::TooLate),
            Some(Progress::Offered(by)) => Ok(Some(by)),
            Some(Progress::Waiting) => {
                self.give_up(id, NotDelivered::Cancelled);
                Ok(None)
            }
        }
    }

    /// Gives up a message that the current connection has cancelled.
    pub(super) fn cancelled(&mut self, id: u64) {
        self.give_up(id, NotDelivered::Cancelled);
    }

    /// Returns the name of a message on the current connection, if that has it.
    pub(super) fn offered_as(&self, id: u64) -> Result<Option<MessageId>, ChangeError> {
        match self.messages.get(&id).map(|kept| kept.progress) {
            None | Some(Progress::Acknowledged) => Err(ChangeError::TooLate),
            Some(Progress::Offered(by)) => Ok(Some(by)),
            Some(Progress::Waiting) => Ok(None),
        }
    }

    /// Moves a message to another level, beyond whose bounds it may go.
    pub(super) fn reprioritise(&mut self, id: u64, level: Priority) {
        let Some(kept) = self.messages.get_mut(&id) else { return };
        let (from, len) = (kept.level().index(), kept.len());
        kept.message.priority = level;
        let (messages, bytes) = &mut self.held[from];
        *messages -= 1;
        *bytes -= len;
        let (messages, bytes) = &mut self.held[level.index()];
        *messages += 1;
        *bytes += len;
        if self.waiting[from].remove(&id) {
            self.waiting[level.index()].insert(id);
        }
    }

    /// Gives up all messages, because the client has ended.
    pub(super) fn end(&mut self, ended: &Ended) {
        self.lost(&ended.clone().into());
        self.deadlines.clear();
        self.waiting = Default::default();
        self.held = [(0, Bytes::ZERO); Priority::COUNT];
        self.receipts = 0;
        for kept in std::mem::take(&mut self.messages).into_values() {
            let error = match kept.exposed {
                true => Undelivered::Uncertain(Closed::from(ended.clone()).into()),
                false => Undelivered::NotSent(ended.clone()),
            };
            self.counters.uncertain += u64::from(kept.exposed);
            kept.settle(&Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_sched::conductor::{self, Conductor};
    use marcato_units::{Duration, Seed};

    const NOW: Time = Time::ZERO;
    const SECOND: Duration = Duration::from_secs(1);

    /// Messages that a test keeps, and the Conductor of their connections, which names them.
    struct Kit {
        messages: Unacknowledged,
        conductor: Conductor,
        names: Vec<MessageId>,
    }

    /// Fate of a message so far.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Seen {
        Pending,
        Delivered,
        Uncertain(NotDelivered),
        NotDelivered(NotDelivered),
        NotSent,
        Refused(SendError),
    }

    fn seen(awaited: &mut Awaited<Undelivered>) -> Seen {
        let fate = match awaited {
            Awaited::Known(fate) => fate.clone(),
            Awaited::Pending(pending) => match pending.try_recv() {
                Ok(fate) => fate,
                Err(_) => return Seen::Pending,
            },
        };
        *awaited = Awaited::Known(fate.clone());
        match fate {
            Ok(()) => Seen::Delivered,
            Err(Undelivered::Uncertain(reason)) => Seen::Uncertain(reason),
            Err(Undelivered::NotDelivered(reason)) => Seen::NotDelivered(reason),
            Err(Undelivered::NotSent(_)) => Seen::NotSent,
            Err(Undelivered::Refused(error)) => Seen::Refused(error),
        }
    }

    fn lost() -> Closed {
        Closed::lost(crate::Cause::Cut, "cut")
    }

    fn settled(message: u64, receipt: bool, outcome: Result<(), NotDelivered>) -> Settled {
        Settled { connection: 1, message, receipt, outcome }
    }

    impl Kit {
        fn new() -> Self {
            let conductor = Conductor::new(conductor::Config::default()).unwrap();
            Self { messages: Unacknowledged::new(Limits::default()), conductor, names: Vec::new() }
        }

        fn accept(&mut self, message: &Message) -> Accepted {
            self.messages.accept(NOW, message, Guarantee::AtLeastOnce).unwrap()
        }

        fn once(&mut self, message: &Message) -> Accepted {
            self.messages.accept(NOW, message, Guarantee::AtMostOnce).unwrap()
        }

        /// Offers all that waits; returns the order.
        fn offer(&mut self, now: Time) -> Vec<u64> {
            let mut order = Vec::new();
            while let Some((id, message)) = self.messages.next(now, PrioritySet::ALL) {
                let name = self.conductor.offer(now, message.description()).unwrap();
                self.names.push(name);
                self.messages.offered(id, name);
                order.push(id);
            }
            order
        }

        fn settle(&mut self, id: u64, outcome: Result<(), NotDelivered>) {
            self.messages.settle(settled(id, false, outcome));
        }
    }

    #[test]
    fn after_a_loss_messages_are_offered_in_their_order() {
        let mut kit = Kit::new();
        let levels = [Priority::P4, Priority::P2, Priority::P4, Priority::P2, Priority::P0];
        let mut all = levels.map(|level| kit.accept(&Message::new("x").with_priority(level)));
        assert_eq!(kit.offer(NOW), [4, 1, 3, 0, 2]);
        assert!(kit.offer(NOW).is_empty());
        kit.settle(1, Ok(()));
        kit.messages.lost(&lost());
        // A later message does not overtake those of its level.
        let mut later = kit.accept(&Message::new("x"));
        assert_eq!(kit.offer(NOW), [4, 3, 5, 0, 2]);
        assert_eq!(kit.messages.counters(), Counters { offered_again: 4, uncertain: 0 });
        for id in [0, 2, 3, 4, 5] {
            kit.settle(id, Ok(()));
        }
        for accepted in all.iter_mut().chain([&mut later]) {
            assert_eq!(seen(&mut accepted.outcome), Seen::Delivered);
        }
        assert!(kit.messages.is_empty());
        assert_eq!(kit.messages.held(), [(0, Bytes::ZERO); 5]);
    }

    #[test]
    fn a_full_level_is_passed_over() {
        let mut kit = Kit::new();
        for level in [Priority::P0, Priority::P3] {
            kit.accept(&Message::new("x").with_priority(level));
        }
        let next = kit.messages.next(NOW, PrioritySet::ALL.without(Priority::P0));
        assert_eq!(next.map(|(id, _)| id), Some(1));
    }

    #[test]
    fn at_most_once_means_one_connection() {
        let mut kit = Kit::new();
        let mut left = kit.once(&Message::new("left"));
        let mut unreliable = kit.accept(&Message::new("unreliable").unreliable());
        let mut taken = kit.once(&Message::new("taken").with_receipt());
        kit.offer(NOW);
        let mut waits = kit.once(&Message::new("waits"));
        kit.settle(2, Ok(()));
        kit.messages.lost(&lost());
        let closed = || Seen::Uncertain(NotDelivered::Closed(lost()));
        assert_eq!((seen(&mut left.outcome), seen(&mut unreliable.outcome)), (closed(), closed()));
        // Its transport had it, and nobody knows about its application.
        assert_eq!(seen(&mut taken.outcome), Seen::Delivered);
        assert_eq!(seen(&mut taken.report), Seen::Uncertain(NotDelivered::NotTaken(lost())));
        assert_eq!(seen(&mut waits.outcome), Seen::Pending);
        assert_eq!(kit.offer(NOW), [3]);
        assert_eq!(kit.messages.counters(), Counters { offered_again: 0, uncertain: 3 });
    }

    #[test]
    fn lifetimes_go_on_while_messages_wait() {
        let mut kit = Kit::new();
        let mut short = kit.accept(&Message::new("short").with_lifetime(2 * SECOND));
        let mut never_left = kit.accept(&Message::new("never").with_lifetime(3 * SECOND));
        kit.accept(&Message::new("long").with_lifetime(9 * SECOND));
        let (id, message) = kit.messages.next(NOW, PrioritySet::ALL).unwrap();
        kit.messages.offered(id, kit.conductor.offer(NOW, message.description()).unwrap());
        // The connection watches over the lifetime of what it has.
        assert_eq!(kit.messages.next_deadline(), Some(NOW + 3 * SECOND));
        kit.messages.lost(&lost());
        assert_eq!(kit.messages.next_deadline(), Some(NOW + 2 * SECOND));
        let (id, offered) = kit.messages.next(NOW + SECOND, PrioritySet::ALL).unwrap();
        assert_eq!((id, offered.lifetime), (0, Some(SECOND)));
        assert!(kit.messages.expire(NOW + 3 * SECOND) && !kit.messages.expire(NOW + 3 * SECOND));
        assert_eq!(seen(&mut short.outcome), Seen::Uncertain(NotDelivered::Expired));
        assert_eq!(seen(&mut never_left.outcome), Seen::NotDelivered(NotDelivered::Expired));
        assert_eq!(kit.offer(NOW + 8 * SECOND), [2]);
        assert_eq!(kit.messages.next_deadline(), None);
    }

    #[test]
    fn with_a_receipt_a_message_is_kept_until_it_is_taken() {
        let mut kit = Kit::new();
        let mut order = kit.accept(&Message::new("order").with_receipt());
        kit.offer(NOW);
        kit.settle(0, Ok(()));
        assert_eq!((seen(&mut order.outcome), seen(&mut order.report)), (Seen::Delivered, Seen::Pending));
        kit.messages.settle(settled(0, true, Err(NotDelivered::NotTaken(lost()))));
        kit.messages.lost(&lost());
        assert_eq!(kit.offer(NOW), [0]);
        // The report may arrive before the acknowledgement.
        kit.messages.settle(settled(0, true, Ok(())));
        kit.settle(0, Ok(()));
        assert_eq!(seen(&mut order.report), Seen::Delivered);
        assert!(kit.messages.is_empty());

        let mut unwanted = kit.accept(&Message::new("unwanted").with_receipt());
        kit.offer(NOW);
        kit.messages.settle(settled(1, true, Err(NotDelivered::Unwanted)));
        let fates = (seen(&mut unwanted.outcome), seen(&mut unwanted.report));
        assert_eq!(fates, (Seen::Delivered, Seen::NotDelivered(NotDelivered::Unwanted)));
    }

    #[test]
    fn a_message_given_up_after_a_loss_is_uncertain() {
        let mut kit = Kit::new();
        let mut declined = kit.accept(&Message::new("declined"));
        let mut again = kit.accept(&Message::new("declined again"));
        let mut refused = kit.accept(&Message::new("refused"));
        kit.offer(NOW);
        kit.settle(0, Err(NotDelivered::Declined));
        kit.settle(1, Err(NotDelivered::Closed(lost())));
        kit.messages.lost(&lost());
        kit.offer(NOW);
        kit.settle(1, Err(NotDelivered::Declined));
        kit.messages.refused(2, SendError::NeedsReliable);
        assert_eq!(seen(&mut declined.outcome), Seen::NotDelivered(NotDelivered::Declined));
        assert_eq!(seen(&mut again.outcome), Seen::Uncertain(NotDelivered::Declined));
        assert_eq!(seen(&mut refused.outcome), Seen::Refused(SendError::NeedsReliable));
    }

    #[test]
    fn messages_are_cancelled_and_moved_wherever_they_are() {
        let mut kit = Kit::new();
        let mut cancelled = kit.accept(&Message::new("cancelled"));
        let low = Message::new("moved").with_priority(Priority::P4);
        kit.accept(&low);
        kit.accept(&Message::new("other").with_priority(Priority::P3));
        assert_eq!(kit.messages.cancel(0), Ok(None));
        assert_eq!(kit.messages.cancel(0), Err(ChangeError::TooLate));
        assert_eq!(seen(&mut cancelled.outcome), Seen::NotDelivered(NotDelivered::Cancelled));
        assert_eq!(kit.messages.offered_as(1), Ok(None));
        kit.messages.reprioritise(1, Priority::P1);
        assert_eq!(kit.offer(NOW), [1, 2]);
        assert_eq!(kit.messages.offered_as(1), Ok(Some(kit.names[0])));
        assert_eq!(kit.messages.cancel(2), Ok(Some(kit.names[1])));
        let one = |len| (1, Bytes::new(len));
        assert_eq!(kit.messages.held()[1..], [one(5), (0, Bytes::ZERO), one(5), (0, Bytes::ZERO)]);
        assert_eq!(kit.messages.offered_as(0), Err(ChangeError::TooLate));
    }

    #[test]
    fn the_end_tells_what_was_sent_from_what_was_not() {
        let mut kit = Kit::new();
        let mut first = kit.accept(&Message::new("first"));
        let mut once = kit.once(&Message::new("once"));
        kit.offer(NOW);
        let mut second = kit.accept(&Message::new("second"));
        kit.messages.end(&Ended::Local);
        let local = || Seen::Uncertain(NotDelivered::Closed(Closed::Local));
        assert_eq!((seen(&mut first.outcome), seen(&mut once.outcome)), (local(), local()));
        assert_eq!(seen(&mut second.outcome), Seen::NotSent);
        assert!(kit.messages.is_empty() && !kit.messages.is_waiting());
        assert_eq!(kit.messages.held(), [(0, Bytes::ZERO); 5]);
        assert_eq!(kit.messages.counters().uncertain, 2);
    }

    #[test]
    fn each_level_has_its_own_bounds() {
        let limits = Limits { queued: Bytes::new(10), unfinished: 2, receipts: 1, ..Limits::default() };
        let mut messages = Unacknowledged::new(limits);
        let mut accept = |message: &Message| messages.accept(NOW, message, Guarantee::AtLeastOnce).map(drop);
        let busy = |priority| Err(SendError::Busy { priority });
        assert_eq!(accept(&Message::new("12345678901")), Err(SendError::TooLong { limit: Bytes::new(10) }));
        assert_eq!(accept(&Message::new("123456")), Ok(()));
        assert_eq!(accept(&Message::new("12345")), busy(Priority::P2));
        assert_eq!(accept(&Message::new("1234")), Ok(()));
        let urgent = Message::new("1").with_priority(Priority::P0);
        assert_eq!([(); 3].map(|()| accept(&urgent)), [Ok(()), Ok(()), busy(Priority::P0)]);
        let receipt = Message::new("1").with_priority(Priority::P1).with_receipt();
        assert_eq!([(); 2].map(|()| accept(&receipt)), [Ok(()), busy(Priority::P1)]);
        assert_eq!(accept(&receipt.unreliable()), Err(SendError::NeedsReliable));
    }
    /// Message as its sender may see it, by the words of the documentation.
    struct Model {
        level: usize,
        len: u64,
        deadline: Option<Time>,
        once: bool,
        receipt: bool,
        exposed: bool,
        /// Place of the message, until its fate is known.
        place: Option<Place>,
        outcome: Seen,
        report: Seen,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Place {
        Waiting,
        Offered,
        Acknowledged,
    }

    impl Model {
        fn end(&mut self, seen: &Seen) {
            self.place = None;
            for fate in [&mut self.outcome, &mut self.report] {
                if *fate == Seen::Pending {
                    fate.clone_from(seen);
                }
            }
        }

        fn give_up(&mut self, reason: NotDelivered) {
            let seen = if self.exposed { Seen::Uncertain(reason) } else { Seen::NotDelivered(reason) };
            self.end(&seen);
        }

        fn lose(&mut self) {
            let acknowledged = self.place == Some(Place::Acknowledged);
            if acknowledged || self.place == Some(Place::Offered) {
                (self.exposed, self.place) = (true, Some(Place::Waiting));
                if self.once {
                    self.give_up(match acknowledged {
                        true => NotDelivered::NotTaken(lost()),
                        false => NotDelivered::Closed(lost()),
                    });
                }
            }
        }
    }

    /// Expires what waits for too long.
    fn expire(models: &mut [Model], now: Time) {
        for model in models.iter_mut().filter(|model| model.deadline.is_some_and(|at| at <= now)) {
            if model.place == Some(Place::Waiting) {
                model.give_up(NotDelivered::Expired);
            }
        }
    }

    /// Any sequence of calls has the result that a list of messages, looked at from one end to the other, has.
    #[test]
    fn any_sequence_of_calls_does_what_a_plain_list_does() {
        let limits = Limits { queued: Bytes::new(60), unfinished: 4, receipts: 5, ..Limits::default() };
        for seed in 0..60 {
            let mut draws = Seed::new(seed).stream("unacknowledged");
            let mut kit = Kit { messages: Unacknowledged::new(limits), ..Kit::new() };
            let (mut models, mut handles) = (Vec::<Model>::new(), Vec::<Accepted>::new());
            let (mut now, mut again) = (NOW, 0);
            for _ in 0..300 {
                let some = draws.below(models.len().max(1) as u64);
                let at = usize::try_from(some).unwrap();
                let level = usize::try_from(draws.below(5)).unwrap();
                match draws.below(12) {
                    0..=3 => {
                        let (len, receipt) = (draws.below(40), draws.chance(0.4));
                        let lifetime = draws.chance(0.3).then(|| Duration::from_millis(draws.below(50)));
                        let reliable = receipt || draws.chance(0.9);
                        let mut message = Message::new(vec![0; usize::try_from(len).unwrap()])
                            .with_priority(Priority::ALL[level]);
                        (message.lifetime, message.receipt, message.reliable) = (lifetime, receipt, reliable);
                        let once = draws.chance(0.3);
                        let guarantee = if once { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce };
                        let kept = || models.iter().filter(|model| model.place.is_some());
                        let same = || kept().filter(|model| model.level == level);
                        let bytes: u64 = same().map(|model| model.len).sum();
                        let receipts = kept().filter(|model| model.receipt).count();
                        let full = same().count() >= 4 || bytes + len > 60 || receipt && receipts >= 5;
                        let accepted = kit.messages.accept(now, &message, guarantee);
                        assert_eq!(accepted.is_err(), full, "seed {seed}");
                        if let Ok(accepted) = accepted {
                            assert_eq!(accepted.id, models.len() as u64);
                            handles.push(accepted);
                            models.push(Model {
                                level,
                                len,
                                deadline: lifetime.map(|lifetime| now + lifetime),
                                once: once || !reliable,
                                receipt,
                                exposed: false,
                                place: Some(Place::Waiting),
                                outcome: Seen::Pending,
                                report: match receipt {
                                    true => Seen::Pending,
                                    false => Seen::NotDelivered(NotDelivered::NoReceipt),
                                },
                            });
                        }
                    }
                    4 | 5 => {
                        // One level may be full on the connection.
                        let levels = PrioritySet::ALL.without(Priority::ALL[level]);
                        expire(&mut models, now);
                        let waits =
                            |model: &Model| model.place == Some(Place::Waiting) && model.level != level;
                        let waiting = models.iter().enumerate().filter(|(_, model)| waits(model));
                        let first = waiting.min_by_key(|(id, model)| (model.level, *id)).map(|(id, _)| id);
                        let next = kit.messages.next(now, levels);
                        let lifetime = |id: usize| models[id].deadline.map(|at| at.since(now));
                        assert_eq!(
                            next.as_ref().map(|(id, message)| (*id, message.lifetime)),
                            first.map(|id| (id as u64, lifetime(id))),
                            "seed {seed}"
                        );
                        if let Some((id, message)) = next {
                            let name = kit.conductor.offer(now, message.description()).unwrap();
                            kit.messages.offered(id, name);
                            let model = &mut models[usize::try_from(id).unwrap()];
                            model.place = Some(Place::Offered);
                            again += u64::from(model.exposed);
                        }
                    }
                    6 | 7 if !models.is_empty() => {
                        let outcome = match draws.below(7) {
                            0 => Err(NotDelivered::Declined),
                            // Only a report tells of it.
                            1 if models[at].receipt => Err(NotDelivered::Unwanted),
                            2 => Err(NotDelivered::Closed(lost())),
                            _ => Ok(()),
                        };
                        let model = &mut models[at];
                        // Only messages that a connection has get an outcome.
                        let receipt = match model.place {
                            Some(Place::Offered) => false,
                            Some(Place::Acknowledged) => true,
                            _ => continue,
                        };
                        kit.messages.settle(settled(some, receipt, outcome.clone()));
                        match outcome {
                            Ok(()) if model.receipt && !receipt => {
                                (model.place, model.outcome) = (Some(Place::Acknowledged), Seen::Delivered);
                            }
                            Ok(()) => model.end(&Seen::Delivered),
                            Err(NotDelivered::Closed(_)) => {}
                            Err(reason) => {
                                if reason == NotDelivered::Unwanted {
                                    model.outcome = Seen::Delivered;
                                }
                                model.give_up(reason);
                            }
                        }
                    }
                    8 => {
                        kit.messages.lost(&lost());
                        models.iter_mut().for_each(Model::lose);
                    }
                    9 if !models.is_empty() => {
                        let place = models[at].place;
                        let cancelled = kit.messages.cancel(some);
                        match place {
                            Some(Place::Waiting) => assert_eq!(cancelled, Ok(None)),
                            Some(Place::Offered) => {
                                assert!(matches!(cancelled, Ok(Some(_))), "{cancelled:?}");
                                kit.messages.cancelled(some);
                            }
                            _ => assert_eq!(cancelled, Err(ChangeError::TooLate)),
                        }
                        if cancelled.is_ok() {
                            models[at].give_up(NotDelivered::Cancelled);
                        }
                    }
                    10 if !models.is_empty() => {
                        let known = kit.messages.offered_as(some);
                        let place = models[at].place;
                        let moves = matches!(place, Some(Place::Waiting | Place::Offered));
                        assert_eq!(
                            (known.is_ok(), known == Ok(None)),
                            (moves, place == Some(Place::Waiting))
                        );
                        if moves {
                            kit.messages.reprioritise(some, Priority::ALL[level]);
                            models[at].level = level;
                        }
                    }
                    _ => {
                        now += Duration::from_millis(draws.below(20));
                        let due = |model: &Model| {
                            model.place == Some(Place::Waiting) && model.deadline.is_some_and(|at| at <= now)
                        };
                        assert_eq!(kit.messages.expire(now), models.iter().any(due), "seed {seed}");
                        expire(&mut models, now);
                    }
                }
                let kept = || models.iter().filter(|model| model.place.is_some());
                for (level, held) in kit.messages.held().iter().enumerate() {
                    let same = || kept().filter(|model| model.level == level);
                    let bytes = same().map(|model| model.len).sum();
                    assert_eq!(*held, (same().count(), Bytes::new(bytes)), "seed {seed}, level {level}");
                }
                let waiting = || kept().filter(|model| model.place == Some(Place::Waiting));
                assert_eq!(kit.messages.is_waiting(), waiting().next().is_some(), "seed {seed}");
                assert_eq!(kit.messages.next_deadline(), waiting().filter_map(|model| model.deadline).min());
                assert_eq!(kit.messages.is_empty(), kept().next().is_none(), "seed {seed}");
                let uncertain = |model: &&Model| {
                    [&model.outcome, &model.report].iter().any(|seen| matches!(seen, Seen::Uncertain(_)))
                };
                let uncertain = models.iter().filter(uncertain).count() as u64;
                assert_eq!(
                    kit.messages.counters(),
                    Counters { offered_again: again, uncertain },
                    "seed {seed}"
                );
                for (id, (model, handle)) in models.iter().zip(&mut handles).enumerate() {
                    let fates = [&mut handle.outcome, &mut handle.report].map(seen);
                    assert_eq!(
                        fates,
                        [model.outcome.clone(), model.report.clone()],
                        "seed {seed}, message {id}"
                    );
                }
            }
            let ended = Ended::Peer(lost());
            kit.messages.end(&ended);
            for (id, (mut model, mut handle)) in models.into_iter().zip(handles).enumerate() {
                model.lose();
                if model.place.is_some() {
                    let uncertain = Seen::Uncertain(NotDelivered::Closed(lost()));
                    model.end(if model.exposed { &uncertain } else { &Seen::NotSent });
                }
                let fates = [&mut handle.outcome, &mut handle.report].map(seen);
                assert_eq!(fates, [model.outcome, model.report], "seed {seed}, message {id}");
            }
            assert!(kit.messages.is_empty() && !kit.messages.is_waiting());
            assert_eq!((kit.messages.held(), kit.messages.next_deadline()), ([(0, Bytes::ZERO); 5], None));
        }
    }
}
