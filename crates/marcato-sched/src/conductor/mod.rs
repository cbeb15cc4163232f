//! The Conductor: five queues of messages, and the choice of the queue that sends next (CATS §II-C
//! to §II-E).
//!
//! Contents:
//! - [`Conductor`] here: offer, grant, refuse, and the calls that remove or move a message;
//! - [`debt`]: the rules that keep urgent levels from starving the others, and their presets;
//! - [`shed`]: load shedding under persistent congestion;
//! - [`event`] and [`counter`]: observation; [`store`]: storage of messages.
//!
//! # Admission
//! Two bounds hold for all levels together: [`Config::max_messages`] and [`Config::max_queued`].
//! Fixed quotas per level would leave most of the memory unused when one level is busy. Instead, a
//! more urgent message evicts less urgent ones if it does not fit. The least urgent level goes
//! first, and within it the oldest message, as in shedding (CATS §II-D3). Expired messages go
//! before any other. A partly sent message stays, unless it allows partial delivery. It may
//! therefore keep out others of any level.
//!
//! P0 therefore has a reserve that no other level can take: an eighth more of either bound, and at
//! least one message. A P0 message is accepted whenever it fits into the reserve together with the
//! P0 messages already queued. (A message moved down from P0 counts as less urgent and can exceed
//! this.) In a [`Fixed`] store the reserve is part of its slots; a store for one message has none.
//!
//! # Cost
//! Offers, grants, refusals, changes of priority and cancellations take constant time in queued
//! messages and bytes. Their time is logarithmic in the number of queued messages with a lifetime.
//! Only an offer allocates, and only where the [`store::Slab`] grows. The next call after the end
//! of a lifetime removes the message. A grant may therefore remove many at once, and an offer may
//! evict many; each is removed once. Shedding and discarding visit every message of the levels that
//! they may affect.

pub mod candidates;
pub mod counter;
mod deadline;
pub mod debt;
mod drain;
pub mod error;
pub mod event;
mod message;
pub mod shed;
pub mod store;

use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};

pub use candidates::Candidates;
pub use counter::{Counters, LevelCounters, Tally};
pub use debt::{Debt, DebtError, Multiplier, Redistribution, Watermarks};
pub use error::{CancelError, OfferError, RefuseError, ReprioritiseError};
#[cfg(feature = "alloc")]
pub use event::Removals;
pub use event::{Event, Observer, Removal, Removed, Unobserved};
pub use message::{CancelOutcome, Grant, Message, MessageId, Pending, Redundancy};
pub use shed::{ShedPolicy, Shedding};
#[cfg(feature = "alloc")]
pub use store::Slab;
pub use store::{Fixed, Store};

use crate::ledger::{Ledger, Levels};
use deadline::Deadlines;
use drain::Drain;
use store::{NO_SLOT, Slot, State};

/// Configuration of a Conductor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rules by which levels run up and pay back debt.
    pub debt: Debt,
    /// Largest budget that the feeder will request. Grants are not limited to it: the watermarks
    /// are checked against it, and it is the unit of the bounds that [`Debt`] states.
    pub chunk: Bytes,
    /// Most messages queued at once, as far as the store holds as many. P0 may exceed it by an
    /// eighth: see [admission](self#admission).
    pub max_messages: usize,
    /// Most bytes queued at once. P0 may exceed it by an eighth: see [admission](self#admission).
    pub max_queued: Bytes,
    /// Conditions of automatic load shedding; `None` for never.
    pub shedding: Option<Shedding>,
}

impl Config {
    /// Returns the [default](Self::default) with these rules of debt.
    pub const fn with_debt(debt: Debt) -> Self {
        Self {
            debt,
            chunk: Bytes::new(1460),
            max_messages: 65_536,
            max_queued: Bytes::new(64 << 20),
            shedding: None,
        }
    }
}

impl Default for Config {
    /// [`Debt::marcato`] with chunks of 1460 bytes, a TCP segment without options on Ethernet. At
    /// most 65 536 messages and 64 MiB are queued, which is more than any path holds in flight. No
    /// automatic shedding.
    fn default() -> Self {
        Self::with_debt(Debt::marcato())
    }
}

#[cfg(feature = "alloc")]
type DefaultStore = Slab;
#[cfg(not(feature = "alloc"))]
type DefaultStore = Fixed<16>;

/// Divisor of the reserve: P0 may exceed either bound by one part in this number.
const RESERVE: usize = 8;

/// Returns the number of messages by which P0 may exceed a bound of `messages`: an eighth, rounded
/// up. For callers that keep a bound of their own.
pub const fn reserve(messages: usize) -> usize {
    messages.div_ceil(RESERVE)
}

/// Bounds on queued data, on all levels together.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    messages: usize,
    bytes: Bytes,
}

impl Bounds {
    /// Returns the bounds for offers of P1 to P4, and those for offers of P0.
    fn of(config: &Config, limit: usize) -> (Self, Self) {
        let messages = config.max_messages.min(limit);
        let reserve = reserve(messages);
        let most = messages.saturating_add(reserve).min(limit);
        // A store without further slots takes the reserve from its own slots; a single slot serves
        // all levels.
        let others = messages.min((most - reserve).max(messages.min(1)));
        let bytes = config.max_queued;
        let reserve = Bytes::new(bytes.get().div_ceil(RESERVE as u64));
        (Self { messages: others, bytes }, Self { messages: most, bytes: bytes + reserve })
    }

    /// Checks that a message of length `len` may be queued in addition to `queued`.
    fn admit(self, queued: Tally, len: Bytes) -> Result<(), OfferError> {
        if queued.messages >= self.messages as u64 {
            return Err(OfferError::TooManyMessages { limit: self.messages });
        }
        if queued.bytes + len > self.bytes {
            return Err(OfferError::TooManyBytes { limit: self.bytes });
        }
        Ok(())
    }
}

/// Queue of one level.
#[derive(Clone, Copy, Debug)]
struct Level {
    head: u32,
    tail: u32,
    /// Next candidate for eviction. No message before it may be dropped, except possibly the head.
    evict: u32,
    /// Total of messages that may not be dropped, because some of their bytes have been granted.
    kept: Tally,
}

impl Level {
    const EMPTY: Self = Self { head: NO_SLOT, tail: NO_SLOT, evict: NO_SLOT, kept: Tally::NONE };
}

/// State needed to replay the latest grant with fewer bytes.
#[derive(Clone, Copy, Debug)]
struct Latest {
    grant: Grant,
    slot: u32,
    /// Debts before the choice.
    ledger: Ledger,
    /// Non-empty levels at that time.
    waiting: Levels,
    /// Levels among which the choice was made.
    among: Levels,
    redistributed: bool,
}

/// Holds messages in five queues and grants one chunk at a time to the level whose turn it is.
///
/// It stores lengths, never bytes. The caller passes the time to each call; if it runs backwards,
/// ages are zero.
///
/// `S` stores the messages: a growing [`Slab`] or, without an allocator, a [`Fixed`] store. `O`
/// observes every [`Event`].
#[derive(Clone, Debug)]
pub struct Conductor<S = DefaultStore, O = Unobserved> {
    rules: Debt,
    /// Longest message accepted.
    max_len: Bytes,
    bounds: Bounds,
    /// Bounds for offers of P0.
    urgent_bounds: Bounds,
    shedding: Option<Shedding>,
    /// Least urgent level that is accepted.
    threshold: Priority,
    ledger: Ledger,
    /// Non-empty levels.
    waiting: Levels,
    levels: [Level; Priority::COUNT],
    /// Messages that have a lifetime and may be dropped.
    deadlines: Deadlines,
    free: u32,
    queued: Tally,
    latest: Option<Latest>,
    /// Rate at which the backlog drains; only measured for [`Shedding`].
    drain: Drain,
    counters: Counters,
    store: S,
    observer: O,
}

#[cfg(feature = "alloc")]
impl Conductor {
    /// Creates an empty, unobserved Conductor with a growing store.
    ///
    /// # Errors
    /// If the rules of debt would starve a level; see [`Debt::validate`].
    pub fn new(config: Config) -> Result<Self, DebtError> {
        let slots = config.max_messages.saturating_add(reserve(config.max_messages));
        Self::with_store(config, Slab::new(slots))
    }
}

impl<S: Store> Conductor<S> {
    /// Creates an empty Conductor that keeps its messages in `store`, which must be new.
    ///
    /// ```
    /// use marcato_sched::conductor::{Conductor, Config, Fixed};
    /// let conductor = Conductor::with_store(Config::default(), Fixed::<16>::new())?;
    /// # Ok::<(), marcato_sched::conductor::DebtError>(())
    /// ```
    ///
    /// # Errors
    /// If the rules of debt would starve a level; see [`Debt::validate`].
    pub fn with_store(config: Config, store: S) -> Result<Self, DebtError> {
        config.debt.validate(config.chunk)?;
        let (bounds, urgent_bounds) = Bounds::of(&config, store.limit());
        Ok(Self {
            rules: config.debt,
            max_len: config.max_queued,
            bounds,
            urgent_bounds,
            shedding: config.shedding,
            threshold: Priority::P4,
            ledger: Ledger::CLEAR,
            waiting: 0,
            levels: [Level::EMPTY; Priority::COUNT],
            deadlines: Deadlines::EMPTY,
            free: NO_SLOT,
            queued: Tally::NONE,
            latest: None,
            drain: Drain::NEW,
            counters: Counters::NONE,
            store,
            observer: Unobserved,
        })
    }

    /// Returns this Conductor with `observer` attached.
    ///
    /// ```
    /// use marcato_sched::conductor::{Conductor, Config, Event};
    /// let mut granted = 0;
    /// let conductor = Conductor::new(Config::default())?
    ///     .observed_by(|event| granted += u64::from(matches!(event, Event::Granted(_))));
    /// # Ok::<(), marcato_sched::conductor::DebtError>(())
    /// ```
    pub fn observed_by<O: Observer>(self, observer: O) -> Conductor<S, O> {
        Conductor {
            rules: self.rules,
            max_len: self.max_len,
            bounds: self.bounds,
            urgent_bounds: self.urgent_bounds,
            shedding: self.shedding,
            threshold: self.threshold,
            ledger: self.ledger,
            waiting: self.waiting,
            levels: self.levels,
            deadlines: self.deadlines,
            free: self.free,
            queued: self.queued,
            latest: self.latest,
            drain: self.drain,
            counters: self.counters,
            store: self.store,
            observer,
        }
    }
}

/// Calls of the application.
impl<S: Store, O: Observer> Conductor<S, O> {
    /// Appends `message` to its level. Beyond a bound, it first evicts less urgent messages that
    /// may be dropped: see [admission](self#admission). They are [removed](Event::Removed) as
    /// [`Removal::Evicted`].
    ///
    /// # Errors
    /// If the message has no bytes, a bound would be exceeded, or its level is being discarded.
    /// Nothing is evicted then. Refused offers are counted.
    pub fn offer(&mut self, now: Time, message: Message) -> Result<MessageId, OfferError> {
        self.tidy(now);
        match self.admit(&message) {
            Ok(slot) => {
                let level = message.priority.index();
                let free = &mut self.store[slot];
                *free = Slot {
                    generation: free.generation,
                    len: message.len,
                    sent: Bytes::ZERO,
                    offered_at: now,
                    deadline: message.lifetime.map_or(Time::MAX, |lifetime| now + lifetime),
                    next: NO_SLOT,
                    prev: NO_SLOT,
                    due: NO_SLOT,
                    due_here: free.due_here,
                    priority: message.priority,
                    state: State::Queued,
                    redundancy: message.redundancy,
                    partial_ok: message.partial_ok,
                };
                let id = MessageId::new(slot, free.generation);
                self.push_back(slot);
                self.counters.levels[level].offered += Tally::one(message.len);
                self.observer.observe(Event::Offered { id, message });
                Ok(id)
            }
            Err(reason) => {
                self.counters.levels[message.priority.index()].refused += Tally::one(message.len);
                self.observer.observe(Event::OfferRefused { message, reason });
                Err(reason)
            }
        }
    }

    /// Moves the ungranted rest of a message to the tail of the level `priority`. If that is its
    /// present level, the message keeps its place. Its age still counts from its offer.
    ///
    /// # Errors
    /// If no byte of the message is queued, or the new level is being discarded.
    pub fn reprioritise(&mut self, id: MessageId, priority: Priority) -> Result<(), ReprioritiseError> {
        let slot = self.find(id).ok_or(ReprioritiseError::Unknown)?;
        let threshold = self.threshold;
        if threshold.is_more_urgent_than(priority) {
            return Err(ReprioritiseError::Discarding { threshold });
        }
        let from = self.store[slot].priority;
        if from != priority {
            let rest = Tally::one(self.store[slot].rest());
            self.forget_grant_of(slot);
            self.unlink(slot);
            self.store[slot].priority = priority;
            self.push_back(slot);
            self.counters.levels[from.index()].moved_out += rest;
            self.counters.levels[priority.index()].moved_in += rest;
            self.observer.observe(Event::Reprioritised { id, from, to: priority });
        }
        Ok(())
    }

    /// Removes the ungranted rest of a message.
    ///
    /// # Errors
    /// If no byte of the message is queued.
    pub fn cancel(&mut self, id: MessageId) -> Result<CancelOutcome, CancelError> {
        let slot = self.find(id).ok_or(CancelError::Unknown)?;
        let sent = self.store[slot].sent;
        self.remove(slot, Removal::Cancelled);
        Ok(if sent.is_zero() { CancelOutcome::Unsent } else { CancelOutcome::PartSent { sent } })
    }

    /// Discards all messages less urgent than `threshold` and refuses later offers of them
    /// (Save-Data, CATS §II-D3). [`Priority::P4`] discards nothing and accepts every level again.
    ///
    /// A partly sent message stays and is finished, unless it allows partial delivery;
    /// [`cancel`](Self::cancel) it to stop it too. Returns the total discarded.
    pub fn discard_less_urgent_than(&mut self, threshold: Priority) -> Tally {
        self.threshold = threshold;
        let mut discarded = Tally::NONE;
        for level in threshold.index() + 1..Priority::COUNT {
            discarded += self.drop_from(level, Removal::Discarded, |_, _| true);
        }
        discarded
    }

    /// Time from which [`expire`](Self::expire) has something to remove; `None` if no queued message
    /// has a lifetime.
    ///
    /// Offers and grants also remove what has expired. A caller that can do neither for long, because
    /// the network takes nothing, needs a timer for it.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Time> {
        let first = self.deadlines.first(&self.store)?;
        // The deadline itself is still in time.
        Some(self.store[first].deadline + Duration::from_nanos(1))
    }

    /// Removes messages that have outlived their lifetime. Returns the total removed.
    #[inline]
    pub fn expire(&mut self, now: Time) -> Tally {
        let mut expired = Tally::NONE;
        // The deadline itself is still in time: a lifetime of zero allows a grant at the instant of
        // the offer.
        while let Some(first) = self.deadlines.first(&self.store)
            && now > self.store[first].deadline
        {
            expired += self.remove(first, Removal::Expired);
        }
        expired
    }

    /// Evicts one message less urgent than `priority`, for a caller whose own bound is reached.
    /// Expired messages go first; otherwise the oldest message of the least urgent level that may
    /// be dropped. Returns true if any was removed.
    pub fn make_room(&mut self, now: Time, priority: Priority) -> bool {
        let before = self.queued.messages;
        self.tidy(now);
        let mut levels = (priority.index() + 1..Priority::COUNT).rev();
        if self.queued.messages == before
            && let Some(victim) = levels.find_map(|level| self.oldest_to_evict(level))
        {
            self.remove(victim, Removal::Evicted);
        }
        self.queued.messages < before
    }

    /// Sheds the messages that `policy` allows, the least urgent level first and within it the
    /// oldest first (CATS §II-D3). Returns the total shed.
    pub fn shed(&mut self, now: Time, policy: &ShedPolicy) -> Tally {
        let mut shed = Tally::NONE;
        for level in (policy.spare.index() + 1..Priority::COUNT).rev() {
            shed += self.drop_from(level, Removal::Shed, |queued, slot| {
                queued.bytes > policy.down_to && now.since(slot.offered_at) >= policy.older_than
            });
        }
        shed
    }
}

/// Calls of the engine's feeder.
impl<S: Store, O: Observer> Conductor<S, O> {
    /// Grants the next chunk: at most `budget` bytes of one message. Returns `None` if nothing is
    /// queued or the budget is zero.
    ///
    /// If anything is queued and the budget is not zero, something is granted.
    pub fn grant(&mut self, now: Time, budget: Bytes) -> Option<Grant> {
        self.grant_among(now, budget, Candidates::ALL)
    }

    /// Grants as [`grant`](Self::grant) does, from the candidates only. In the debt rules the other
    /// levels still count as waiting.
    ///
    /// If all candidates with data are in debt, their debts are redistributed. If one of them would
    /// then overtake a [protected](Candidates::protecting) level, nothing is granted and nothing
    /// changes.
    pub fn grant_among(
        &mut self,
        now: Time,
        budget: Bytes,
        candidates: impl Into<Candidates>,
    ) -> Option<Grant> {
        self.tidy(now);
        if budget.is_zero() {
            return None;
        }
        let before = self.ledger;
        let waiting = self.waiting;
        let candidates = candidates.into();
        let among = waiting & candidates.bits();
        if self.would_overtake(candidates, among) {
            return None;
        }
        let (priority, redistributed) = self.ledger.choose(&self.rules, among)?;
        if redistributed {
            self.counters.redistributions += 1;
            self.observer.observe(Event::Redistributed);
        }

        self.release_held();
        // FIFO within a level: the head is always served first.
        let slot = self.levels[priority.index()].head;
        let head = &mut self.store[slot];
        let offset = head.sent;
        let kept = head.kept();
        let len = head.rest().min(budget);
        head.sent += len;
        let fin = head.sent == head.len;
        let grant = Grant { message: MessageId::new(slot, head.generation), offset, len, priority, fin };

        self.count_grant(&grant);
        self.levels[priority.index()].kept -= kept;
        if fin {
            self.unlink_granted(slot);
        } else {
            self.rate(slot);
        }
        self.ledger.charge(&self.rules, priority, len, waiting);
        self.latest = Some(Latest { grant, slot, ledger: before, waiting, among, redistributed });
        self.drain.granted(len);
        self.observer.observe(Event::Granted(grant));
        self.announce(before.in_debt);
        Some(grant)
    }

    /// Takes the latest grant back except for its first `taken` bytes. The state is then as if
    /// exactly these had been granted. If `taken` is zero, it is as if there had been no grant; if
    /// `taken` is the whole grant, nothing changes.
    ///
    /// Offers and changes of other messages may come between the grant and its refusal. If the
    /// grant had finished the message, its return may exceed the bounds by that one message.
    ///
    /// # Errors
    /// If it is not the latest grant, was refused before, or its message has since been moved or
    /// removed. Also if `taken` exceeds it.
    pub fn refuse(&mut self, grant: Grant, taken: Bytes) -> Result<(), RefuseError> {
        let latest = self.latest.filter(|latest| latest.grant == grant).ok_or(RefuseError::NotTheLatest)?;
        if taken > grant.len {
            return Err(RefuseError::TakenExceedsGrant { taken, granted: grant.len });
        }
        if taken == grant.len {
            self.release_held();
            return Ok(());
        }
        self.latest = None;
        let level = grant.priority.index();
        let in_debt = self.ledger.in_debt;

        self.ledger = latest.ledger;
        if !taken.is_zero() {
            // The same choice from the same debts, redistribution included.
            let _ = self.ledger.choose(&self.rules, latest.among);
            self.ledger.charge(&self.rules, grant.priority, taken, latest.waiting);
        } else if latest.redistributed {
            self.counters.redistributions -= 1;
        }

        let counters = &mut self.counters.levels[level];
        let returned = Tally { messages: u64::from(grant.fin), bytes: grant.len - taken };
        counters.granted -= returned;
        counters.queued += returned;
        self.queued += returned;
        self.drain.returned(returned.bytes);
        if !grant.fin {
            self.levels[level].kept -= self.store[latest.slot].kept();
        }
        self.store[latest.slot].sent = grant.offset + taken;
        if grant.fin {
            let head = self.levels[level].head;
            self.link(latest.slot, NO_SLOT, head);
        }
        self.rate(latest.slot);
        self.counters.refusals += 1;
        self.observer.observe(Event::Refused { grant, taken });
        self.announce(in_debt);
        Ok(())
    }

    /// Levels on which bytes are queued.
    pub const fn queued_levels(&self) -> PrioritySet {
        PrioritySet::from_bits(self.waiting)
    }

    /// True if bytes are queued on one of these levels.
    pub const fn has_queued(&self, levels: PrioritySet) -> bool {
        self.waiting & levels.bits() != 0
    }

    /// Returns the message that the next grant at `now` would serve.
    pub fn peek(&mut self, now: Time) -> Option<Pending> {
        self.peek_among(now, Candidates::ALL)
    }

    /// Returns the message that [`grant_among`](Self::grant_among) would serve.
    pub fn peek_among(&mut self, now: Time, candidates: impl Into<Candidates>) -> Option<Pending> {
        self.tidy(now);
        let candidates = candidates.into();
        let among = self.waiting & candidates.bits();
        if self.would_overtake(candidates, among) {
            return None;
        }
        let (priority, _) = { self.ledger }.choose(&self.rules, among)?;
        Some(self.pending(self.levels[priority.index()].head))
    }

    /// Returns whether the next grant would redistribute debts and serve a level that overtakes a
    /// protected one.
    #[inline]
    fn would_overtake(&self, candidates: Candidates, among: Levels) -> bool {
        // Only redistribution frees a level in debt, and it is rare.
        candidates.protects_any() && self.ledger.must_redistribute(among) && {
            let chosen = { self.ledger }.choose(&self.rules, among);
            chosen.is_some_and(|(priority, _)| candidates.forbid(priority))
        }
    }
}

/// State queries.
impl<S: Store, O> Conductor<S, O> {
    /// Total queued on all levels.
    pub fn queued(&self) -> Tally {
        self.queued
    }

    /// True if no byte is queued.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns a message of which bytes are queued; `None` if none are.
    pub fn message(&self, id: MessageId) -> Option<Pending> {
        self.find(id).map(|slot| self.pending(slot))
    }

    /// Counters since the Conductor was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns D, the debt of `level`.
    pub fn debt(&self, level: Priority) -> Bytes {
        self.ledger.debts[level.index()]
    }

    /// True if `level` is in debt; otherwise it is eligible.
    pub fn is_in_debt(&self, level: Priority) -> bool {
        self.ledger.in_debt >> level.index() & 1 == 1
    }

    /// Rules of debt.
    pub fn rules(&self) -> &Debt {
        &self.rules
    }

    /// Least urgent level that is accepted: P4 unless less urgent levels are being discarded.
    pub fn threshold(&self) -> Priority {
        self.threshold
    }

    /// Observer of the events.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Observer of the events.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    fn find(&self, id: MessageId) -> Option<u32> {
        let index = id.slot();
        let slot = (index < self.store.slots()).then(|| &self.store[index])?;
        (slot.generation == id.generation() && slot.state == State::Queued).then_some(index)
    }

    fn pending(&self, index: u32) -> Pending {
        let slot = &self.store[index];
        Pending {
            message: MessageId::new(index, slot.generation),
            priority: slot.priority,
            len: slot.len,
            sent: slot.sent,
            redundancy: slot.redundancy,
        }
    }
}

/// Slots and lists.
impl<S: Store, O: Observer> Conductor<S, O> {
    /// Returns a free slot for `message` if it may be queued, after any evictions that it needs.
    fn admit(&mut self, message: &Message) -> Result<u32, OfferError> {
        if message.len.is_zero() {
            return Err(OfferError::Empty);
        }
        let threshold = self.threshold;
        if threshold.is_more_urgent_than(message.priority) {
            return Err(OfferError::Discarding { threshold });
        }
        let limit = self.max_len;
        if message.len > limit {
            return Err(OfferError::TooLong { limit });
        }
        let level = message.priority.index();
        let bounds = if level == 0 { self.urgent_bounds } else { self.bounds };
        if bounds.admit(self.queued, message.len).is_err() {
            self.evict(level, message.len, bounds)?;
        }
        self.take_free().ok_or(OfferError::TooManyMessages { limit: bounds.messages })
    }

    /// Makes room for a message of `level` by removing less urgent ones. Removes none if that is
    /// not enough.
    #[cold]
    fn evict(&mut self, level: usize, len: Bytes, bounds: Bounds) -> Result<(), OfferError> {
        let mut left = self.queued;
        for less in level + 1..Priority::COUNT {
            left -= self.counters.levels[less].queued;
            left += self.levels[less].kept;
        }
        // All possible evictions together must suffice. Otherwise none is made.
        bounds.admit(left, len)?;
        for less in (level + 1..Priority::COUNT).rev() {
            while bounds.admit(self.queued, len).is_err()
                && let Some(victim) = self.oldest_to_evict(less)
            {
                self.remove(victim, Removal::Evicted);
            }
        }
        Ok(())
    }

    /// Returns the oldest message of a level that may be dropped. A message passed over once is not
    /// visited again, so the cost per message is constant.
    fn oldest_to_evict(&mut self, level: usize) -> Option<u32> {
        let Level { head, evict, .. } = self.levels[level];
        if head != NO_SLOT && self.store[head].may_be_dropped() {
            return Some(head);
        }
        let mut at = evict;
        while at != NO_SLOT && !self.store[at].may_be_dropped() {
            at = self.store[at].next;
        }
        self.levels[level].evict = at;
        (at != NO_SLOT).then_some(at)
    }

    fn take_free(&mut self) -> Option<u32> {
        if self.free == NO_SLOT {
            let slot = self.store.slots();
            return self.store.grow().then_some(slot);
        }
        let slot = self.free;
        self.free = self.store[slot].next;
        Some(slot)
    }

    fn release(&mut self, index: u32) {
        let slot = &mut self.store[index];
        slot.state = State::Free;
        // A slot whose generations are exhausted is never reused, so that no id is given twice.
        if slot.generation < MessageId::LAST_GENERATION {
            slot.generation += 1;
            slot.next = self.free;
            self.free = index;
        }
    }

    /// Makes the latest grant final: frees the slot of a message that it finished.
    fn release_held(&mut self) {
        if let Some(latest) = self.latest.take()
            && latest.grant.fin
        {
            self.release(latest.slot);
        }
    }

    /// Forgets the latest grant if it is of the message in `slot`, which is about to move or go.
    fn forget_grant_of(&mut self, slot: u32) {
        if self.latest.is_some_and(|latest| latest.slot == slot) {
            self.latest = None;
        }
    }

    /// Appends the message in `index` to its level and counts it as queued.
    fn push_back(&mut self, index: u32) {
        let slot = &self.store[index];
        let (i, rest) = (slot.priority.index(), Tally::one(slot.rest()));
        let level = &mut self.levels[i];
        if level.evict == NO_SLOT {
            level.evict = index;
        }
        let tail = level.tail;
        self.link(index, tail, NO_SLOT);
        self.rate(index);
        self.queued += rest;
        self.counters.levels[i].queued += rest;
    }

    /// Records whether the queued message in `index` may be dropped. Called when it has arrived, or
    /// when bytes of it have been granted or returned.
    #[inline]
    fn rate(&mut self, index: u32) {
        let slot = &self.store[index];
        self.levels[slot.priority.index()].kept += slot.kept();
        if slot.deadline == Time::MAX {
            return;
        }
        match (slot.may_be_dropped(), slot.due == NO_SLOT) {
            (true, true) => self.deadlines.insert(&mut self.store, index),
            (false, false) => self.deadlines.remove(&mut self.store, index),
            (true, false) | (false, true) => {}
        }
    }

    fn link(&mut self, index: u32, prev: u32, next: u32) {
        let slot = &mut self.store[index];
        slot.state = State::Queued;
        slot.prev = prev;
        slot.next = next;
        let i = slot.priority.index();
        let level = &mut self.levels[i];
        match prev {
            NO_SLOT => level.head = index,
            prev => self.store[prev].next = index,
        }
        match next {
            NO_SLOT => level.tail = index,
            next => self.store[next].prev = index,
        }
        self.waiting |= 1 << i;
    }

    /// Takes the message in `index` out of its level, which no longer counts it as queued.
    fn unlink(&mut self, index: u32) {
        let slot = &self.store[index];
        let (i, rest, kept) = (slot.priority.index(), Tally::one(slot.rest()), slot.kept());
        self.unlink_granted(index);
        self.levels[i].kept -= kept;
        self.queued -= rest;
        self.counters.levels[i].queued -= rest;
    }

    /// Takes the message in `index`, whose last byte has been granted and counted, out of its
    /// level.
    fn unlink_granted(&mut self, index: u32) {
        let slot = &mut self.store[index];
        slot.state = State::Held;
        let (prev, next, i) = (slot.prev, slot.next, slot.priority.index());
        if slot.due != NO_SLOT {
            self.deadlines.remove(&mut self.store, index);
        }
        let level = &mut self.levels[i];
        if level.evict == index {
            level.evict = next;
        }
        match prev {
            NO_SLOT => level.head = next,
            prev => self.store[prev].next = next,
        }
        match next {
            NO_SLOT => level.tail = prev,
            next => self.store[next].prev = prev,
        }
        if level.head == NO_SLOT {
            self.waiting &= !(1 << i);
        }
    }

    fn count_grant(&mut self, grant: &Grant) {
        let granted = Tally { messages: u64::from(grant.fin), bytes: grant.len };
        let counters = &mut self.counters.levels[grant.priority.index()];
        counters.granted += granted;
        counters.queued -= granted;
        self.queued -= granted;
    }

    /// Removes the queued message in `index`; returns its rest.
    fn remove(&mut self, index: u32, reason: Removal) -> Tally {
        self.forget_grant_of(index);
        self.unlink(index);
        let Pending { message: id, priority, sent, len, .. } = self.pending(index);
        let rest = Tally::one(len - sent);
        self.release(index);
        let counters = &mut self.counters.levels[priority.index()];
        match reason {
            Removal::Cancelled => counters.cancelled += rest,
            Removal::Discarded => counters.discarded += rest,
            Removal::Expired => counters.expired += rest,
            Removal::Shed => counters.shed += rest,
            Removal::Evicted => counters.evicted += rest,
        }
        self.observer.observe(Event::Removed { id, priority, sent, rest: rest.bytes, reason });
        rest
    }

    /// Removes the messages of a level that may be dropped and that `wanted` selects.
    fn drop_from(&mut self, level: usize, reason: Removal, wanted: impl Fn(&Tally, &Slot) -> bool) -> Tally {
        let mut dropped = Tally::NONE;
        let mut next = self.levels[level].head;
        while next != NO_SLOT {
            let (index, slot) = (next, &self.store[next]);
            next = slot.next;
            if slot.may_be_dropped() && wanted(&self.queued, slot) {
                dropped += self.remove(index, reason);
            }
        }
        dropped
    }

    /// Removes expired messages and updates the congestion check.
    #[inline]
    fn tidy(&mut self, now: Time) {
        self.expire(now);
        self.watch_backlog(now);
    }

    /// Sheds load under severe, persistent congestion.
    #[inline]
    fn watch_backlog(&mut self, now: Time) {
        let Some(shedding) = self.shedding else { return };
        if self.drain.look(now, self.queued.bytes, &shedding) && self.shed(now, &shedding.policy).messages > 0
        {
            self.counters.sheddings += 1;
        }
    }

    /// Reports the levels whose state changed since it was `before`.
    #[inline]
    fn announce(&mut self, before: Levels) {
        let after = self.ledger.in_debt;
        if before == after {
            return;
        }
        for level in Priority::ALL {
            let bit = 1 << level.index();
            if after & !before & bit != 0 {
                self.observer.observe(Event::InDebt(level));
            } else if before & !after & bit != 0 {
                self.observer.observe(Event::Eligible(level));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::PrioritySet;
    use std::vec::Vec;

    const NOW: Time = Time::ZERO;

    fn conductor() -> Conductor {
        Conductor::new(Config::with_debt(Debt::authors())).unwrap()
    }

    fn message(len: u64, priority: Priority) -> Message {
        Message::new(Bytes::new(len), priority)
    }

    #[test]
    fn the_threshold_is_p4_whenever_no_level_is_discarded() {
        let mut conductor = conductor();
        assert_eq!(conductor.threshold(), Priority::P4);
        for threshold in [Priority::P1, Priority::P4] {
            conductor.discard_less_urgent_than(threshold);
            assert_eq!(conductor.threshold(), threshold);
        }
    }

    #[test]
    fn removals_are_remembered_until_they_are_taken() {
        let mut conductor = conductor().observed_by(Removals::default());
        let id = conductor.offer(NOW, message(700, Priority::P3)).unwrap();
        let other = conductor.offer(NOW, message(700, Priority::P4)).unwrap();
        assert_ne!(id.get(), other.get());
        conductor.grant(NOW, Bytes::new(500)).unwrap();
        conductor.cancel(id).unwrap();
        conductor.discard_less_urgent_than(Priority::P3);
        let cancelled = Removed { id, sent: Bytes::new(500), reason: Removal::Cancelled };
        let discarded = Removed { id: other, sent: Bytes::ZERO, reason: Removal::Discarded };
        let mut removals = conductor.observer_mut().clone();
        assert_eq!(removals.pop_first(), Some(cancelled));
        assert_eq!(removals.pop_first(), Some(discarded));
        assert_eq!(removals.pop_first(), None);
        assert_eq!(conductor.observer_mut().clone().pop_last(), Some(discarded));
        assert_eq!(conductor.observer_mut().take().collect::<Vec<_>>(), [cancelled, discarded]);
        assert_eq!(conductor.observer_mut().pop_last(), None);
    }

    #[test]
    fn a_message_of_another_conductor_is_not_found() {
        let mut other = conductor();
        let ids = [(); 2].map(|()| other.offer(NOW, message(700, Priority::P0)).unwrap());
        let mut conductor = conductor();
        conductor.offer(NOW, message(700, Priority::P0)).unwrap();
        // It has one slot; the other's second message is in a second one.
        assert!(conductor.cancel(ids[1]).is_err());
    }

    #[test]
    fn a_level_the_engine_cannot_take_is_skipped_without_debt() {
        let mut conductor = conductor();
        let urgent = conductor.offer(NOW, message(700, Priority::P0)).unwrap();
        let patient = conductor.offer(NOW, message(700, Priority::P4)).unwrap();
        let others = PrioritySet::ALL.without(Priority::P0);
        assert_eq!(conductor.peek_among(NOW, others).map(|pending| pending.message), Some(patient));
        let grant = conductor.grant_among(NOW, Bytes::new(500), others).unwrap();
        assert_eq!((grant.message, grant.offset), (patient, Bytes::ZERO));
        assert_eq!(conductor.debt(Priority::P0), Bytes::ZERO);
        // After the refusal nothing has changed, and the urgent message is next again.
        conductor.refuse(grant, Bytes::ZERO).unwrap();
        assert_eq!(conductor.peek(NOW).map(|pending| pending.message), Some(urgent));
        assert_eq!(conductor.peek_among(NOW, PrioritySet::EMPTY), None);
        assert_eq!(conductor.grant_among(NOW, Bytes::new(500), PrioritySet::one(Priority::P3)), None);
    }

    #[test]
    fn no_debtor_overtakes_a_level_that_waits_for_room() {
        let mut conductor = conductor();
        conductor.offer(NOW, message(1_000_000, Priority::P0)).unwrap();
        conductor.offer(NOW, message(1_000_000, Priority::P1)).unwrap();
        while !conductor.is_in_debt(Priority::P0) {
            conductor.grant(NOW, Bytes::new(1000)).unwrap();
        }
        let before = (conductor.debt(Priority::P0), *conductor.counters());
        let waiting = Candidates::ALL.waiting(Priority::P1);
        assert_eq!(conductor.peek_among(NOW, waiting), None);
        assert_eq!(conductor.grant_among(NOW, Bytes::new(1000), waiting), None);
        assert_eq!((conductor.debt(Priority::P0), *conductor.counters()), before, "nothing changes");
        // Blocked, P1 does not wait for its turn, and P0 is forgiven.
        let blocked = Candidates::ALL.blocked(Priority::P1);
        assert_eq!(conductor.peek_among(NOW, blocked).map(|it| it.priority), Some(Priority::P0));
        assert!(conductor.grant_among(NOW, Bytes::new(1000), blocked).is_some());
    }

    #[test]
    fn a_grant_never_spans_messages() {
        let mut conductor = conductor();
        let first = conductor.offer(NOW, message(700, Priority::P2)).unwrap();
        let second = conductor.offer(NOW, message(700, Priority::P2)).unwrap();
        let grants: Vec<_> = core::iter::from_fn(|| conductor.grant(NOW, Bytes::new(500)))
            .map(|grant| (grant.message, grant.offset.get(), grant.len.get(), grant.fin))
            .collect();
        assert_eq!(
            grants,
            [
                (first, 0, 500, false),
                (first, 500, 200, true),
                (second, 0, 500, false),
                (second, 500, 200, true)
            ]
        );
        assert!(conductor.is_empty());
    }

    #[test]
    fn only_the_latest_grant_can_be_refused_and_only_once() {
        let mut conductor = conductor();
        conductor.offer(NOW, message(3000, Priority::P2)).unwrap();
        let first = conductor.grant(NOW, Bytes::new(1000)).unwrap();
        let second = conductor.grant(NOW, Bytes::new(1000)).unwrap();
        assert_eq!(conductor.refuse(first, Bytes::ZERO), Err(RefuseError::NotTheLatest));
        assert_eq!(
            conductor.refuse(second, Bytes::new(1001)),
            Err(RefuseError::TakenExceedsGrant { taken: Bytes::new(1001), granted: Bytes::new(1000) })
        );
        assert_eq!(conductor.refuse(second, Bytes::new(10)), Ok(()));
        assert_eq!(conductor.refuse(second, Bytes::ZERO), Err(RefuseError::NotTheLatest));
        assert_eq!(conductor.queued().bytes, Bytes::new(1990));
    }

    #[test]
    fn refusing_a_last_grant_after_a_new_offer_requeues_the_message() {
        let mut conductor = Conductor::with_store(Config::default(), Fixed::<1>::new()).unwrap();
        let first = conductor.offer(NOW, message(100, Priority::P2)).unwrap();
        let grant = conductor.grant(NOW, Bytes::new(1000)).unwrap();
        // The store holds one queued message in addition to the one just granted.
        let second = conductor.offer(NOW, message(50, Priority::P2)).unwrap();
        conductor.refuse(grant, Bytes::new(99)).unwrap();
        assert_eq!(conductor.queued(), Tally { messages: 2, bytes: Bytes::new(51) });
        let last = conductor.grant(NOW, Bytes::new(1000)).unwrap();
        assert_eq!(
            (last.message, last.offset, last.len, last.fin),
            (first, Bytes::new(99), Bytes::new(1), true)
        );
        assert_eq!(conductor.grant(NOW, Bytes::new(1000)).unwrap().message, second);
    }

    #[test]
    fn a_refusal_is_illegal_once_the_message_has_moved_or_gone() {
        let mut conductor = conductor();
        let id = conductor.offer(NOW, message(3000, Priority::P2)).unwrap();
        let grant = conductor.grant(NOW, Bytes::new(1000)).unwrap();
        conductor.reprioritise(id, Priority::P1).unwrap();
        assert_eq!(conductor.refuse(grant, Bytes::ZERO), Err(RefuseError::NotTheLatest));
        let grant = conductor.grant(NOW, Bytes::new(1000)).unwrap();
        assert_eq!(conductor.cancel(id), Ok(CancelOutcome::PartSent { sent: Bytes::new(2000) }));
        assert_eq!(conductor.refuse(grant, Bytes::ZERO), Err(RefuseError::NotTheLatest));
        assert_eq!(conductor.cancel(id), Err(CancelError::Unknown));
        assert_eq!(conductor.reprioritise(id, Priority::P0), Err(ReprioritiseError::Unknown));
    }

    #[test]
    fn a_reprioritised_rest_goes_to_the_tail_of_its_new_level() {
        let mut conductor = conductor();
        let moved = conductor.offer(NOW, message(1500, Priority::P2)).unwrap();
        assert_eq!(conductor.grant(NOW, Bytes::new(1000)).unwrap().message, moved);
        let other = conductor.offer(NOW, message(100, Priority::P1)).unwrap();
        conductor.reprioritise(moved, Priority::P1).unwrap();
        assert_eq!(conductor.grant(NOW, Bytes::new(1000)).unwrap().message, other);
        let rest = conductor.grant(NOW, Bytes::new(1000)).unwrap();
        assert_eq!((rest.message, rest.offset, rest.priority), (moved, Bytes::new(1000), Priority::P1));
    }

    #[test]
    fn every_offer_beyond_a_bound_is_refused_and_counted() {
        let config = Config { max_messages: 2, max_queued: Bytes::new(1000), ..Config::default() };
        let mut conductor = Conductor::new(config).unwrap();
        let limit = Bytes::new(1000);
        assert_eq!(conductor.offer(NOW, message(0, Priority::P1)), Err(OfferError::Empty));
        assert_eq!(conductor.offer(NOW, message(1001, Priority::P1)), Err(OfferError::TooLong { limit }));
        conductor.offer(NOW, message(600, Priority::P1)).unwrap();
        assert_eq!(conductor.offer(NOW, message(401, Priority::P1)), Err(OfferError::TooManyBytes { limit }));
        conductor.offer(NOW, message(400, Priority::P1)).unwrap();
        assert_eq!(
            conductor.offer(NOW, message(1, Priority::P1)),
            Err(OfferError::TooManyMessages { limit: 2 })
        );
        assert_eq!(conductor.counters().total().refused, Tally { messages: 4, bytes: Bytes::new(1403) });
    }

    #[test]
    fn expired_messages_keep_no_other_message_out() {
        let config = Config { max_messages: 1, ..Config::default() };
        let mut conductor = Conductor::new(config).unwrap();
        conductor.offer(NOW, message(1, Priority::P1).with_lifetime(Duration::from_millis(5))).unwrap();
        let full = Err(OfferError::TooManyMessages { limit: 1 });
        assert_eq!(conductor.offer(Time::from_millis(5), message(1, Priority::P1)), full);
        assert!(conductor.offer(Time::from_millis(6), message(1, Priority::P1)).is_ok());
    }

    #[test]
    fn expiry_needs_neither_offer_nor_grant() {
        let mut conductor = conductor();
        conductor.offer(NOW, message(10, Priority::P1)).unwrap();
        assert_eq!(conductor.next_expiry(), None);
        for span in [9, 5] {
            let brief = message(3, Priority::P2).with_lifetime(Duration::from_millis(span));
            conductor.offer(NOW, brief).unwrap();
        }
        let at = conductor.next_expiry().unwrap();
        assert_eq!(conductor.expire(NOW + Duration::from_millis(5)), Tally::NONE);
        assert_eq!(conductor.expire(at), Tally { messages: 1, bytes: Bytes::new(3) });
        assert_eq!(at, NOW + Duration::from_millis(5) + Duration::from_nanos(1));
        let last = conductor.next_expiry().unwrap();
        assert_eq!(conductor.expire(last), Tally { messages: 1, bytes: Bytes::new(3) });
        assert_eq!((conductor.next_expiry(), conductor.counters().total().expired.messages), (None, 2));
    }

    #[test]
    fn a_message_id_is_never_given_twice() {
        let mut conductor = conductor();
        let first = conductor.offer(NOW, message(1, Priority::P0)).unwrap();
        conductor.cancel(first).unwrap();
        let second = conductor.offer(NOW, message(1, Priority::P0)).unwrap();
        assert_ne!(first, second);
        assert_eq!(conductor.message(first), None);
        assert_eq!(conductor.message(second).unwrap().rest(), Bytes::new(1));
    }

    #[test]
    fn a_slot_that_has_used_up_its_names_is_retired() {
        let mut conductor = conductor();
        let first = conductor.offer(NOW, message(1, Priority::P0)).unwrap();
        conductor.store[0].generation = MessageId::LAST_GENERATION;
        let last = conductor.peek(NOW).unwrap().message;
        assert_ne!(last, first);
        conductor.cancel(last).unwrap();
        assert_eq!(conductor.offer(NOW, message(1, Priority::P0)).unwrap().slot(), 1);
    }

    #[test]
    fn a_peek_tells_what_the_next_grant_serves() {
        let mut conductor = conductor();
        assert_eq!(conductor.peek(NOW), None);
        conductor.offer(NOW, message(5000, Priority::P3)).unwrap();
        let urgent =
            conductor.offer(NOW, message(10, Priority::P1).with_redundancy(Redundancy::EveryLane)).unwrap();
        let next = conductor.peek(NOW).unwrap();
        assert_eq!((next.message, next.redundancy), (urgent, Redundancy::EveryLane));
        assert_eq!(conductor.grant(NOW, Bytes::new(1000)).unwrap().message, urgent);
    }

    #[test]
    fn an_observer_sees_what_happens_in_its_order() {
        let mut events = Vec::new();
        {
            let mut conductor = conductor().observed_by(|event| events.push(event));
            let id = conductor.offer(NOW, message(7000, Priority::P3)).unwrap();
            let grant = conductor.grant(NOW, Bytes::new(6000)).unwrap();
            conductor.refuse(grant, Bytes::new(5999)).unwrap();
            conductor.cancel(id).unwrap();
        }
        assert!(matches!(
            events[..],
            [
                Event::Offered { .. },
                Event::Granted(_),
                Event::InDebt(Priority::P3),
                Event::Refused { .. },
                Event::Eligible(Priority::P3),
                Event::Removed { reason: Removal::Cancelled, .. },
            ]
        ));
    }
}
