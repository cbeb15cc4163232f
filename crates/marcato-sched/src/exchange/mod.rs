//! The exchange: responses of unknown length, and the choice of the response that sends next.
//!
//! The [`Conductor`](crate::Conductor) orders messages whose length is known when they are offered.
//! A response of HTTP often has no known length: its bytes arrive from a file or an origin while it
//! waits. An [`Exchange`] knows only how many bytes of it have arrived. HTTP/2, HTTP/3 and other
//! protocols over streams use the same type. To those, a response is any stream that sends.
//!
//! # Order
//! 1. The level: each [`Urgency`] belongs to one ([`LevelTable`]), unless the
//!    [parameters](Parameters::level) name another. Levels take precedence and owe each other by the same
//!    debts as in the Conductor (CATS §II-E).
//! 2. Within the level, the exact urgency, which strictly precedes (RFC 9218 §4.1).
//! 3. Within an urgency, the [groups](Parameters::group) share by bytes and [weight](Exchange::set_weight).
//! 4. Within a group, the [order](Parameters::order), the greater first.
//! 5. Within an order, responses follow the ids of their streams, which is the order of the
//!    requests. Incremental ones take turns instead. If both kinds wait, they alternate. First turns
//!    of incremental responses come before later ones (RFC 9218 §10).
//!
//! Responses of HTTP have one group and one order. Groups may stand
//! [above the urgency](Grouping::AboveUrgency) instead: the groups of a level share, and urgency orders
//! within each.
//!
//! Debts bound the wait of each level. Within a level only groups do: an endless response delays the
//! less urgent ones of its level, as the client has asked. Mark it as incremental, or give it another
//! level or group.
//!
//! # Shares
//! Groups that can send are served by virtual time (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM
//! 1996). While groups share, a grant has one [turn](Config::turn) at most. Of groups that always have bytes,
//! none exceeds the share of another by more than one grant at any time: its bytes divided by its weight
//! exceed the other's by one grant divided by its weight. A group that pauses saves nothing. It begins
//! again at the virtual time that the latest grant has reached, or at its own if that is later. Another
//! may then be ahead of it by one grant more.
//!
//! A group is known while it has open responses. A few without any are kept, as many as have some and at least
//! 32. Its weight stays until it is set to the default again; [`Config::max_weights`] bounds these.
//!
//! A response waits only while it can send. It cannot while nothing of it is staged, or while it is
//! [held](ResponseMut::hold), for example because its stream has no credit. It then delays no other
//! response, and its level does not count as waiting.
//!
//! # Deadlines
//! A response may have a [deadline](ResponseMut::set_deadline). Given rate, delay and time,
//! [`expire`](Exchange::expire) reports each response that cannot arrive in time, before its bytes are granted.
//! It closes those whose deadline [says so](Deadline::drops). The owner resets the streams of those that have
//! begun.
//!
//! # Outstanding bytes
//! Granted bytes pass the queue of a transport, which is first in, first out. The exchange counts those
//! that have not [left](ResponseMut::sent) it. Closing a response returns what a reset stream never
//! sends, so the count is zero once every response is closed.
//!
//! # Cost
//! Every call takes time logarithmic in the open responses, if streams open in about the order of their ids
//! ([`StreamMap`](crate::streams::StreamMap)). A grant never allocates. Other calls do
//! where a table grows. Tables do not shrink: they take at most about 1400 bytes for each response of the
//! [limit](Config::max_responses), if each has a group of its own, and 800 in one group.
//!
//! ```
//! use marcato_sched::exchange::{Config, Exchange, Parameters, Urgency};
//! use marcato_sched::order::StreamId;
//! use marcato_units::Bytes;
//!
//! let mut exchange = Exchange::new(Config::default())?;
//! let (photo, style) = (StreamId(1), StreamId(3));
//!
//! exchange.open(photo, Parameters::incremental(Urgency::DEFAULT))?.supply(Bytes::kb(60))?;
//! exchange.open(style, Parameters::sequential(Urgency::MOST))?;
//!
//! // Nothing of the stylesheet has arrived, so the photo goes on.
//! let grant = exchange.grant(Bytes::new(1400)).expect("the photo waits");
//! assert_eq!((grant.stream, grant.len), (photo, Bytes::new(1400)));
//!
//! // The stylesheet overtakes it. Its length is known only now.
//! let mut response = exchange.response_mut(style).expect("it is open");
//! response.supply(Bytes::new(900))?;
//! response.finish();
//! let grant = exchange.grant(Bytes::new(1400)).expect("both wait");
//! assert_eq!((grant.stream, grant.len, grant.fin), (style, Bytes::new(900), true));
//!
//! // Its stream has credit for 500 bytes only. It steps aside until there is more.
//! exchange.refuse(grant, Bytes::new(500))?;
//! exchange.response_mut(style).expect("it is open").hold();
//! assert_eq!(exchange.grant(Bytes::new(1400)).map(|grant| grant.stream), Some(photo));
//! exchange.response_mut(style).expect("it is open").release();
//! let grant = exchange.grant(Bytes::new(1400)).expect("both wait");
//! assert_eq!((grant.stream, grant.offset, grant.len), (style, Bytes::new(500), Bytes::new(400)));
//!
//! // The client cancels the photo.
//! let closed = exchange.close(photo).expect("it is open");
//! assert_eq!(closed.dropped, Bytes::new(57_200));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod counter;
mod deadline;
pub mod error;
mod grant;
mod group;
mod heap;
mod parameters;
mod ready;
mod response;
mod share;
mod table;
mod urgency;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use marcato_units::{Bytes, Priority, PrioritySet, Rate};

pub use config::{Config, Rules};
pub use counter::Counters;
pub use deadline::Deadline;
pub use error::{ConfigError, OpenError, RefuseError, SentError, SupplyError, WeightError};
pub use grant::{Closed, Grant, Late, Peek, Response};
pub use group::{GroupId, Grouping, Weight};
pub use parameters::Parameters;
pub use response::ResponseMut;
pub use urgency::{LevelTable, Urgency};

use crate::conductor::{Candidates, Debt};
use crate::ledger::{Ledger, Levels};
use crate::order::StreamId;
use deadline::InOrder;
use ready::{Before, CellId, CellKey, Next, Ready, Slot};
use table::{Record, Table};

/// State needed to replay the latest grant with fewer bytes.
#[derive(Clone, Copy, Debug)]
struct Latest {
    grant: Grant,
    slot: Slot,
    /// Debts before the choice.
    ledger: Ledger,
    /// Levels that waited at that time.
    waiting: Levels,
    /// Those of them that the grant could come from.
    among: Levels,
    redistributed: bool,
    /// Turn of the response before the grant.
    turn: u64,
    /// Its cell before the grant.
    cell: Before,
}

/// Holds the responses of a connection and grants one chunk at a time to the response whose turn it is.
///
/// It stores lengths, never bytes. See the [module](self) for the order.
///
/// A stream takes part from [`open`](Self::open) to [`close`](Self::close). Close every response, also
/// one whose end has been granted, when its stream is over.
#[derive(Clone, Debug)]
pub struct Exchange {
    config: Config,
    /// Rules at the present rate.
    rules: Debt,
    ledger: Ledger,
    table: Table,
    ready: Ready,
    /// Weights other than the default.
    weights: BTreeMap<GroupId, Weight>,
    /// Open responses with a deadline that was not reported.
    deadlines: usize,
    /// Memory of [`expire`](Self::expire).
    in_order: Vec<InOrder>,
    /// Number of the latest turn of an incremental response.
    turn: u64,
    staged: Bytes,
    outstanding: Bytes,
    latest: Option<Latest>,
    counters: Counters,
}

impl Exchange {
    /// Most responses of any configuration.
    const MAX_RESPONSES: usize = 1 << 24;
    /// Ids of streams are below this number (RFC 9000 §2.1).
    const IDS: u64 = 1 << 62;

    /// Creates an exchange without responses.
    ///
    /// # Errors
    /// If the rules of debt would starve a level, or a turn has no bytes.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let rules = config.debt()?;
        Ok(Self {
            config: Config { max_responses: config.max_responses.min(Self::MAX_RESPONSES), ..config },
            rules,
            ledger: Ledger::CLEAR,
            table: Table::new(),
            ready: Ready::new(config.grouping),
            weights: BTreeMap::new(),
            deadlines: 0,
            in_order: Vec::new(),
            turn: 0,
            staged: Bytes::ZERO,
            outstanding: Bytes::ZERO,
            latest: None,
            counters: Counters::default(),
        })
    }

    /// Adopts the rate that the connection carries, and the largest budget that will be requested.
    /// Watermarks [follow](Rules::FollowRate) them. A debt stays the same part of its watermark.
    ///
    /// Call it whenever the size of chunks is computed anew. [`Rules::Fixed`] ignores it.
    pub fn set_rate(&mut self, rate: Rate, chunk: Bytes) {
        let rules = self.config.rules.at(rate, chunk);
        if rules != self.rules {
            self.ledger.convert(&self.rules, &rules);
            if let Some(latest) = &mut self.latest {
                latest.ledger.convert(&self.rules, &rules);
            }
            self.rules = rules;
        }
    }
}

/// Calls of the application and of the stream.
impl Exchange {
    /// Opens a response, of which nothing is staged yet.
    ///
    /// # Errors
    /// If the stream has an open response, the limit of open responses is reached, or the id of the
    /// stream is invalid. Responses that are not opened are counted.
    pub fn open(&mut self, stream: StreamId, parameters: Parameters) -> Result<ResponseMut<'_>, OpenError> {
        let limit = self.config.max_responses;
        let refused = if stream.0 >= Self::IDS {
            Some(OpenError::IdTooLarge)
        } else if self.table.find(stream).is_some() {
            Some(OpenError::AlreadyOpen)
        } else if self.table.len() >= limit {
            Some(OpenError::TooMany { limit })
        } else {
            None
        };
        if let Some(refused) = refused {
            self.counters.not_opened += 1;
            return Err(refused);
        }
        let cell = self.join(self.cell_key(&parameters));
        let (slot, has_grown) = self.table.add(stream, parameters, cell);
        if has_grown {
            self.ready.grow();
        }
        self.counters.opened += 1;
        Ok(ResponseMut::new(self, slot))
    }

    /// Returns the open response of a stream, to change it; `None` if the stream has none.
    pub fn response_mut(&mut self, stream: StreamId) -> Option<ResponseMut<'_>> {
        let slot = self.table.find(stream)?;
        Some(ResponseMut::new(self, slot))
    }

    /// Closes a response at any time: its stream is over or was reset. What is staged is dropped, and
    /// what is outstanding is returned. Returns `None` if the stream has no open response.
    pub fn close(&mut self, stream: StreamId) -> Option<Closed> {
        let slot = self.table.remove_if(stream, |_| true)?;
        Some(self.end(slot))
    }

    /// Closes a response of which everything has been granted and [sent](ResponseMut::sent). Returns `None` if
    /// something is left, or the stream has no open response.
    pub fn close_sent(&mut self, stream: StreamId) -> Option<Closed> {
        let is_sent = |record: &Record| record.ended && record.outstanding.is_zero();
        let slot = self.table.remove_if(stream, is_sent)?;
        Some(self.end(slot))
    }

    /// Ends the response in `slot`, which its stream has left.
    fn end(&mut self, slot: Slot) -> Closed {
        if self.latest.is_some_and(|latest| latest.slot == slot) {
            self.latest = None;
        }
        let record = &mut self.table[slot];
        let closed = Closed {
            granted: record.granted,
            dropped: record.staged,
            returned: record.outstanding,
            ended: record.ended,
        };
        let cell = record.cell;
        self.deadlines -= usize::from(!record.reported);
        record.held = true;
        self.place(slot);
        self.ready.leave(cell);
        self.table.free(slot);
        self.staged -= closed.dropped;
        self.outstanding -= closed.returned;
        self.counters.dropped += closed.dropped;
        self.counters.closed += 1;
        closed
    }

    /// Sets the weight of a group, from now on, also of one without open responses. A group keeps its weight
    /// until it is set to the [default](Weight::DEFAULT).
    ///
    /// Takes time in proportion to the levels and urgencies of the group.
    ///
    /// # Errors
    /// If [too many](Config::max_weights) groups have a weight. That is counted.
    pub fn set_weight(&mut self, group: GroupId, weight: Weight) -> Result<(), WeightError> {
        let limit = self.config.max_weights;
        if weight == Weight::DEFAULT {
            self.weights.remove(&group);
        } else if self.weights.len() < limit || self.weights.contains_key(&group) {
            self.weights.insert(group, weight);
        } else {
            self.counters.weights_not_set += 1;
            return Err(WeightError::TooMany { limit });
        }
        self.ready.set_weight(group, weight);
        Ok(())
    }

    /// Puts the response in `slot` where its state belongs, after any change of it.
    #[inline]
    fn place(&mut self, slot: Slot) {
        let record = &mut self.table[slot];
        let (from, to, rank) = (record.place, record.due_place(), record.rank());
        if let Some(place) = to
            && from == to
        {
            self.ready.rank(place, slot, rank);
            return;
        }
        record.place = to;
        if let Some(place) = from {
            self.ready.remove(place, slot);
        }
        if let Some(place) = to {
            self.ready.insert(place, slot, rank);
        }
    }

    /// Returns the key of the cell that a response with these parameters belongs to.
    #[inline]
    fn cell_key(&self, parameters: &Parameters) -> CellKey {
        (parameters.group, parameters.level_in(&self.config.levels), parameters.urgency)
    }

    /// Returns the cell of a response that comes.
    fn join(&mut self, key: CellKey) -> CellId {
        let latest = self.latest.map(|latest| latest.cell.cell);
        self.ready.join(key, &self.config.levels, &self.weights, latest)
    }
}

/// Calls of the transport.
impl Exchange {
    /// Grants the next chunk: at most `budget` bytes of one response. Returns `None` if no response
    /// can send or the budget is zero.
    ///
    /// If a response can send and the budget is not zero, something is granted.
    #[inline]
    pub fn grant(&mut self, budget: Bytes) -> Option<Grant> {
        self.grant_among(budget, Candidates::ALL)
    }

    /// Grants the next chunk of one of these levels. The others wait, for example for room in a window.
    ///
    /// Returns `None` if none of these levels can send, the budget is zero, or the grant would overtake
    /// a [protected](Candidates::protecting) level.
    #[inline]
    pub fn grant_among(&mut self, budget: Bytes, candidates: impl Into<Candidates>) -> Option<Grant> {
        if budget.is_zero() {
            return None;
        }
        let (ledger, waiting) = (self.ledger, self.ready.waiting());
        let among = self.among(candidates.into())?;
        let (priority, redistributed) = self.ledger.choose(&self.rules, among)?;
        let Next { slot, cell, takes_turns } = self.ready.next(priority)?;
        self.counters.redistributions += u64::from(redistributed);

        let most = if takes_turns { budget.min(self.config.turn) } else { budget };
        let record = &mut self.table[slot];
        let offset = record.granted;
        let len = record.staged.min(most);
        record.staged -= len;
        record.granted += len;
        record.outstanding += len;
        let fin = record.finished && record.staged.is_zero();
        record.ended = fin;
        let grant = Grant { stream: record.stream, offset, len, fin, priority };
        let turn = record.turn;
        if record.parameters.incremental {
            self.turn += 1;
            record.turn = self.turn;
        }
        let cell = self.ready.charge(cell, len, record.parameters.incremental);
        self.latest = Some(Latest { grant, slot, ledger, waiting, among, redistributed, turn, cell });
        self.place(slot);
        self.staged -= len;
        self.outstanding += len;
        self.counters.granted[priority.index()] += len;
        self.ledger.charge(&self.rules, priority, len, waiting);
        Some(grant)
    }

    /// Takes the latest grant back except for its first `taken` bytes. The state is then as if exactly
    /// these had been granted. If `taken` is zero, it is as if there had been no grant; a grant
    /// without bytes is taken back as well. If `taken` is the whole grant, nothing changes.
    ///
    /// Other calls may come between the grant and its refusal, except the closing of its response. A
    /// new rate counts as if it had come before the grant.
    ///
    /// # Errors
    /// If it is not the latest grant, was refused before, or its response has been closed. Also if
    /// `taken` exceeds it, or bytes of it have been reported as [sent](ResponseMut::sent).
    pub fn refuse(&mut self, grant: Grant, taken: Bytes) -> Result<(), RefuseError> {
        let latest = self.latest.filter(|latest| latest.grant == grant).ok_or(RefuseError::NotTheLatest)?;
        if taken > grant.len {
            return Err(RefuseError::TakenExceedsGrant { taken, granted: grant.len });
        }
        if taken == grant.len && !taken.is_zero() {
            self.latest = None;
            return Ok(());
        }
        let returned = grant.len - taken;
        let record = &mut self.table[latest.slot];
        if returned > record.outstanding {
            return Err(RefuseError::Sent);
        }
        self.latest = None;
        record.staged += returned;
        record.granted -= returned;
        record.outstanding -= returned;
        record.ended = false;
        self.ledger = latest.ledger;
        self.ready.restore(latest.cell, taken);
        if taken.is_zero() {
            record.turn = latest.turn;
            self.counters.redistributions -= u64::from(latest.redistributed);
        } else {
            // The same choice from the same debts, redistribution included.
            let _ = self.ledger.choose(&self.rules, latest.among);
            self.ledger.charge(&self.rules, grant.priority, taken, latest.waiting);
        }
        self.place(latest.slot);
        self.staged += returned;
        self.outstanding -= returned;
        self.counters.granted[grant.priority.index()] -= returned;
        self.counters.refusals += 1;
        Ok(())
    }

    /// Returns the chunk that the next grant would have. Reserve credit for it before that.
    pub fn peek(&self) -> Option<Peek> {
        self.peek_among(Candidates::ALL)
    }

    /// Returns the chunk that [`grant_among`](Self::grant_among) would grant.
    pub fn peek_among(&self, candidates: impl Into<Candidates>) -> Option<Peek> {
        let among = self.among(candidates.into())?;
        let (priority, _) = { self.ledger }.choose(&self.rules, among)?;
        let Next { slot, takes_turns, .. } = self.ready.next(priority)?;
        let record = &self.table[slot];
        let len = if takes_turns { record.staged.min(self.config.turn) } else { record.staged };
        let fin = record.finished && len == record.staged;
        let (stream, offset, parameters) = (record.stream, record.granted, record.parameters);
        Some(Peek { stream, priority, offset, len, fin, parameters })
    }

    /// Returns the waiting levels among the candidates; `None` if the next grant would redistribute debts
    /// and serve a level that overtakes a protected one.
    #[inline]
    fn among(&self, candidates: Candidates) -> Option<Levels> {
        let among = self.ready.waiting() & candidates.bits();
        let overtakes = candidates.protects_any() && self.ledger.must_redistribute(among) && {
            let chosen = { self.ledger }.choose(&self.rules, among);
            chosen.is_some_and(|(priority, _)| candidates.forbid(priority))
        };
        (!overtakes).then_some(among)
    }
}

/// State queries.
impl Exchange {
    /// True if no response can send.
    pub const fn is_idle(&self) -> bool {
        self.ready.waiting() == 0
    }

    /// Levels with a response that can send.
    pub fn waiting(&self) -> PrioritySet {
        PrioritySet::from_bits(self.ready.waiting())
    }

    /// Returns an open response; `None` if the stream has none.
    pub fn response(&self, stream: StreamId) -> Option<Response> {
        self.table.find(stream).map(|slot| self.table[slot].view())
    }

    /// Weight of a group.
    pub fn weight(&self, group: GroupId) -> Weight {
        self.weights.get(&group).copied().unwrap_or_default()
    }

    /// Number of open responses.
    pub fn responses(&self) -> usize {
        self.table.len()
    }

    /// Bytes supplied and not yet granted, of all open responses.
    pub const fn staged(&self) -> Bytes {
        self.staged
    }

    /// Bytes granted that the transport has not yet [sent](ResponseMut::sent), of all open responses.
    pub const fn outstanding(&self) -> Bytes {
        self.outstanding
    }

    /// Counters since the exchange was made.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Rules of debt at the present rate.
    pub const fn rules(&self) -> &Debt {
        &self.rules
    }

    /// Returns D, the debt of `level`.
    pub const fn debt(&self, level: Priority) -> Bytes {
        self.ledger.debts[level.index()]
    }

    /// True if `level` is in debt; otherwise it is eligible.
    pub const fn is_in_debt(&self, level: Priority) -> bool {
        self.ledger.in_debt >> level.index() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams of all kinds, which run dry and get bytes again.
    #[test]
    fn grants_and_refusals_allocate_nothing() {
        for grouping in [Grouping::WithinUrgency, Grouping::AboveUrgency] {
            let mut exchange = Exchange::new(Config { grouping, ..Config::default() }).unwrap();
            for stream in 0..200 {
                let urgency = Urgency::exact(u8::try_from(stream % 11).unwrap());
                let parameters =
                    Parameters { incremental: stream % 3 == 0, ..Parameters::sequential(urgency) };
                let parameters = parameters.in_group(GroupId(stream % 7)).ordered(stream.cast_signed() % 5);
                exchange.open(StreamId(stream), parameters).unwrap();
            }
            for round in 0..2000 {
                let mut response = exchange.response_mut(StreamId(round * 17 % 200)).unwrap();
                response.supply(Bytes::new(round % 2900 + 1)).unwrap();
                for taken in [700, 0, 1400] {
                    let before = (exchange.ready.capacities(), exchange.table.len());
                    if let Some(grant) = exchange.grant(Bytes::new(1400)) {
                        exchange.refuse(grant, Bytes::new(taken).min(grant.len)).unwrap();
                    }
                    assert_eq!((exchange.ready.capacities(), exchange.table.len()), before);
                }
            }
            assert!(exchange.counters().total_granted() > Bytes::kb(500));
        }
    }
}
