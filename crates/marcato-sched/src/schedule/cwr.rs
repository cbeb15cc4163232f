//! Congestion window reservation (CWR §III-D1).

use marcato_units::{Bytes, Priority, Time};
use thiserror::Error;

use super::{
    Budget, Choice, Fresh, LaneScheduler, Offer, Purpose, Wait, beside, eligible, fastest, one_or_wait, quick,
};
use crate::conductor::Redundancy;
use crate::lane::{LaneId, LaneSet, LaneView};
use crate::learn::Learner;
use crate::reserve::{DeclareError, Framing, Placement, Reserve, Source, SourceKey};

/// Configuration of CWR, with or without redundancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CwrConfig {
    /// Least urgent level that counts as urgent: it may use the reservations. The paper has one
    /// priority bit.
    pub threshold: Priority,
    /// Part of each window, in thousandths, that reservations leave to background data. One
    /// background packet always fits when nothing else is in flight. Otherwise a reservation larger
    /// than the window would keep the window from ever growing.
    pub background_share: u32,
    /// Conversion of a message to window bytes, so that room is held for its headers as well.
    pub framing: Framing,
    /// If true, periods are learned from sources that are named but not declared.
    pub learn: bool,
    /// Bound on duplicated bytes.
    pub budget: Budget,
}

/// Error returned for an invalid configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CwrConfigError {
    /// The background share is more than the whole window.
    #[error("{thousandths} thousandths of a window cannot be left to background data: give 1000 or less")]
    ShareTooLarge {
        /// Requested share, in thousandths.
        thousandths: u32,
    },
}

impl CwrConfig {
    /// Returns the paper's configuration: background data gets only unreserved window, sources are
    /// declared, and copies are unlimited.
    pub const fn paper() -> Self {
        Self {
            threshold: Priority::P0,
            background_share: 0,
            framing: Framing::NONE,
            learn: false,
            budget: Budget::UNLIMITED,
        }
    }

    /// Returns the configuration for products: at most half of a window is reserved, sources are
    /// learned, and copies have a budget.
    pub fn marcato() -> Self {
        Self { background_share: 500, learn: true, budget: Budget::default(), ..Self::paper() }
    }
}

impl Default for CwrConfig {
    fn default() -> Self {
        Self::marcato()
    }
}

/// Capacity withheld from background data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// Number of times that a background packet would have fitted without reservations.
    pub refusals: u64,
    /// Room withheld from waiting background data, integrated over time, in byte nanoseconds. Its
    /// precision depends on how often `choose` is called: room counts as it was at the last call.
    pub byte_nanos: u128,
}

/// Route of a message, decided when its first byte is sent, and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// No lane had room for all of it: each packet takes the fastest lane with room.
    Spread,
    /// This lane had room for all of it.
    Stay(LaneId),
    /// All of these lanes had room for all of it.
    Each(LaneSet),
}

/// Lanes on which room is held for a message, and bytes held on each.
type Own = (LaneSet, Bytes);

/// No hold.
const NOBODY: Own = (LaneSet::EMPTY, Bytes::ZERO);

/// Partly sent message of one level. Within a level, messages are sent one after the other.
#[derive(Clone, Copy, Debug)]
struct Plan {
    message: u64,
    route: Route,
    /// Offset of its latest packet; `None` before the first.
    latest: Option<Bytes>,
}

/// Reserves congestion window for periodic urgent messages.
///
/// Background data takes the fastest lane with room outside the reservations. An urgent message
/// takes the fastest lane with room for all of it (CWR §III-D1), without touching other sources'
/// reservations if possible. If no lane can take it whole, it is split over all free room, as
/// [`LowRtt`](super::LowRtt) would (§III-D2). Urgent data never waits for a reservation: it takes
/// room held for others if there is no other.
///
/// Sources must be urgent themselves; room held for the messages of any other source stays unused.
#[derive(Clone, Debug)]
pub struct Cwr {
    config: CwrConfig,
    redundant: bool,
    reserve: Reserve,
    learner: Option<Learner>,
    /// Partly sent messages, by level.
    plans: [Option<Plan>; Priority::COUNT],
    /// Result of the latest `choose`; it becomes a plan when the packet is sent.
    pending: Option<Plan>,
    /// Length of the packet in the latest `choose`.
    packet: Bytes,
    /// Bytes sent for the first time; `copies` counts the duplicates.
    first: Bytes,
    copies: Bytes,
    unused: Unused,
    /// Time since which background data has been kept from this much room.
    blocked: Option<(Time, Bytes)>,
}

impl Cwr {
    /// Creates a scheduler that reserves on one lane for each release.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(config: CwrConfig) -> Result<Self, CwrConfigError> {
        Self::placed(config, Placement::Fastest, false)
    }

    pub(super) fn placed(
        config: CwrConfig,
        placement: Placement,
        redundant: bool,
    ) -> Result<Self, CwrConfigError> {
        if config.background_share > 1000 {
            return Err(CwrConfigError::ShareTooLarge { thousandths: config.background_share });
        }
        Ok(Self {
            config,
            redundant,
            reserve: Reserve::new(placement, config.framing),
            learner: config.learn.then(Learner::new),
            plans: [None; Priority::COUNT],
            pending: None,
            packet: Bytes::ZERO,
            first: Bytes::ZERO,
            copies: Bytes::ZERO,
            unused: Unused::default(),
            blocked: None,
        })
    }

    /// Declares a periodic source; a declared source is never learned.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the table is full of declared sources.
    pub fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.reserve.declare(key, source)?;
        if let Some(learner) = &mut self.learner {
            learner.forget(key);
        }
        Ok(())
    }

    /// Withdraws a source; returns false if there is none of this key.
    pub fn withdraw(&mut self, key: SourceKey) -> bool {
        self.reserve.withdraw(key)
    }

    /// Sources and their holds.
    pub const fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// Capacity withheld from background data, up to the last call.
    pub const fn unused(&self) -> Unused {
        self.unused
    }

    /// Bytes sent as copies.
    pub const fn copies(&self) -> Bytes {
        self.copies
    }

    /// Bytes sent for the first time.
    pub const fn first(&self) -> Bytes {
        self.first
    }

    const fn is_urgent(&self, priority: Priority) -> bool {
        !self.config.threshold.is_more_urgent_than(priority)
    }

    /// Returns the part of a window that is closed to background packets of this length. It is the
    /// reservation, less any part that the background share or one packet needs.
    fn closed(&self, lane: &LaneView, packet: Bytes) -> Bytes {
        let share = u128::from(lane.cwnd.get()) * u128::from(self.config.background_share);
        let share = Bytes::new(u64::try_from(share.div_ceil(1000)).unwrap_or(u64::MAX));
        self.reserve.reserved(lane.id).min(lane.cwnd - share.max(packet))
    }

    /// Returns the bytes on a lane that a message with the hold `(on, left)` must leave to others
    /// if it needs `needed`.
    fn held_for_others(&self, lane: &LaneView, (on, left): Own, needed: Bytes) -> Bytes {
        let own = if on.contains(lane.id) { left } else { Bytes::ZERO };
        // A message within its own hold may send regardless of others. Room for a later release is
        // often not free yet: background data still occupies it, which will be acknowledged by that
        // release.
        if own >= needed { Bytes::ZERO } else { self.reserve.reserved(lane.id) - own }
    }

    /// Adds the room withheld since the last call.
    fn account(&mut self, now: Time) {
        if let Some((since, room)) = &mut self.blocked {
            let span = now.since(*since).as_nanos();
            self.unused.byte_nanos = self.unused.byte_nanos.saturating_add(span * u128::from(room.get()));
            *since = now;
        }
    }

    fn background(&mut self, now: Time, lanes: &[LaneView], among: LaneSet, len: Bytes) -> Choice {
        self.account(now);
        // CWR §III-D1: background data takes the fastest lane whose reservation it does not touch.
        let choice = beside(lanes, among, len, |lane| self.closed(lane, len));
        self.blocked = None;
        if choice == Choice::Wait(Wait::Reserved) {
            self.unused.refusals += 1;
            let kept = lanes.iter().filter(|lane| among.contains(lane.id) && lane.free() >= len);
            self.blocked = Some((now, kept.map(|lane| lane.free().min(self.closed(lane, len))).sum()));
        }
        choice
    }

    /// Returns the fastest lane for one urgent packet, outside others' holds if possible.
    fn spread(&self, lanes: &[LaneView], among: LaneSet, own: Own, len: Bytes) -> Option<LaneId> {
        fastest(lanes, among, len, |lane| self.held_for_others(lane, own, len))
            .or_else(|| fastest(lanes, among, len, |_| Bytes::ZERO))
    }

    /// Chooses the route of a message that has not begun.
    fn route(&self, lanes: &[LaneView], among: LaneSet, fresh: Fresh, held: Own) -> Route {
        if !fresh.offset.is_zero() {
            // Begun under a plan that a message of the same level has replaced.
            return Route::Spread;
        }
        let needed = self.config.framing.wire(fresh.rest);
        let others = |lane: &LaneView| self.held_for_others(lane, held, needed);
        // CWR §III-D2: redundant only if every lane has room for all of it. Without a hold of its
        // own, a message's copies take no room held for others; the paper does not say.
        let mut candidates = lanes.iter().filter(|lane| among.contains(lane.id));
        if self.redundant
            && fresh.redundancy == Redundancy::EveryLane
            && among.len() > 1
            && self.may_copy(needed, among)
            && candidates.all(|lane| lane.free() - others(lane) >= needed)
        {
            return Route::Each(among);
        }
        // Among equally fast lanes, its own reservation decides: `fastest` alone takes the first.
        let own = fastest(lanes, among.and(held.0), needed, others);
        let any = fastest(lanes, among, needed, others);
        let srtt = |id: LaneId| lanes.iter().find(|lane| lane.id == id).map(|lane| lane.srtt);
        match (own, any) {
            (Some(own), Some(any)) if srtt(own) <= srtt(any) => Route::Stay(own),
            (_, Some(any)) => Route::Stay(any),
            (_, None) => fastest(lanes, among, needed, |_| Bytes::ZERO).map_or(Route::Spread, Route::Stay),
        }
    }

    /// True if the budget allows a packet of `len` on each of `lanes`.
    fn may_copy(&self, len: Bytes, lanes: LaneSet) -> bool {
        let extra = len * (lanes.len() as u64).saturating_sub(1);
        // The first of them is no copy, and counts as first before its copies do.
        self.copies.checked_add(extra).is_some_and(|sum| sum <= self.config.budget.limit(self.first))
    }

    fn urgent(&mut self, lanes: &[LaneView], among: LaneSet, fresh: Fresh, len: Bytes) -> Choice {
        let held = self.reserve.held_for(fresh.message);
        let begun = self.plans[fresh.priority.index()]
            .filter(|plan| plan.message == fresh.message && plan.latest.is_some() && !fresh.offset.is_zero());
        let plan = begun.unwrap_or_else(|| Plan {
            message: fresh.message,
            route: self.route(lanes, among, fresh, held),
            latest: None,
        });
        self.pending = Some(plan);
        let open: LaneSet = lanes.iter().filter(|lane| lane.free() >= len).map(|lane| lane.id).collect();
        let open = open.and(among);
        let chosen = match plan.route {
            Route::Each(planned) => {
                let open = open.and(planned);
                if open.len() > 1 && self.may_copy(len, open) {
                    return Choice::Each(open);
                }
                // Not duplicated now, and therefore never (CWR §III-D2).
                self.spread(lanes, open, held, len)
            }
            Route::Stay(lane) if open.contains(lane) => Some(lane),
            Route::Stay(_) | Route::Spread => None,
        };
        // If a loss has shrunk the window and the plan no longer fits, the packet goes as LowRTT
        // would send it.
        one_or_wait(chosen.or_else(|| self.spread(lanes, among, held, len)), among)
    }
}

impl LaneScheduler for Cwr {
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        let all = eligible(lanes);
        let swift = quick(lanes, all);
        self.reserve.advance(now, lanes, swift);
        self.packet = len;
        let barred = purpose.barred();
        if !self.is_urgent(purpose.priority()) {
            return self.background(now, lanes, all.without(barred), len);
        }
        // A copy that must avoid every quick lane may take a slow one.
        let swift = swift.without(barred);
        let among = if swift.is_empty() { all.without(barred) } else { swift };
        match purpose {
            Purpose::New(fresh) => self.urgent(lanes, among, fresh, len),
            Purpose::Retransmission { .. } => one_or_wait(self.spread(lanes, among, NOBODY, len), among),
            Purpose::Duplicate { .. } => {
                let choice = one_or_wait(self.spread(lanes, among, NOBODY, len), among);
                let within = self
                    .copies
                    .checked_add(len)
                    .is_some_and(|sum| sum <= self.config.budget.limit(self.first));
                if within || !matches!(choice, Choice::One(_)) { choice } else { Choice::Wait(Wait::Budget) }
            }
        }
    }

    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        self.account(now);
        if let Some((_, room)) = &mut self.blocked {
            *room -= len;
        }
        let fresh = match purpose {
            Purpose::New(fresh) => fresh,
            Purpose::Duplicate { .. } => {
                self.copies += len;
                return;
            }
            Purpose::Retransmission { .. } => return,
        };
        if !self.is_urgent(fresh.priority) {
            self.first += len;
            return;
        }
        let known = self.plans[fresh.priority.index()].filter(|plan| plan.message == fresh.message);
        // The same bytes on a second lane are a copy.
        if known.is_some_and(|plan| plan.latest == Some(fresh.offset)) {
            self.copies += len;
            return;
        }
        self.first += len;
        let unplanned = Plan { message: fresh.message, route: Route::Stay(lane.id), latest: None };
        let pending = self.pending.filter(|plan| plan.message == fresh.message);
        let plan = pending.or(known).unwrap_or(unplanned);
        self.plans[fresh.priority.index()] = Some(Plan { latest: Some(fresh.offset), ..plan });
        // Bytes already sent need no hold, on whichever lane they went.
        let left = self.config.framing.wire(fresh.rest) - len;
        self.reserve.used(fresh.message, left);
    }

    fn lost(&mut self, now: Time, lane: LaneId) {
        self.account(now);
        self.reserve.lost(lane);
    }

    fn message_offered(&mut self, now: Time, offer: &Offer) {
        let Some(key) = offer.source.filter(|_| self.is_urgent(offer.priority)) else { return };
        self.reserve.released(now, key, offer.message, offer.len);
        let Some(learner) = &mut self.learner else { return };
        if self.reserve.is_declared(key) {
            return;
        }
        match learner.observe(key, now, offer.len) {
            // An error means a full table or a source without valid reservation: its messages are
            // sent unreserved.
            Some(source) => drop(self.reserve.learn(key, source)),
            None => {
                self.reserve.unlearn(key);
            }
        }
    }

    fn message_complete(&mut self, _: Time, message: u64) {
        self.reserve.used(message, Bytes::ZERO);
        for plan in &mut self.plans {
            *plan = plan.filter(|plan| plan.message != message);
        }
    }

    fn reserved(&self, _: Time, lane: &LaneView) -> Bytes {
        self.closed(lane, self.packet)
    }

    fn wakeup(&self) -> Option<Time> {
        self.reserve.lapses()
    }

    fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.declare(key, source)
    }

    fn withdraw(&mut self, key: SourceKey) -> bool {
        self.withdraw(key)
    }

    fn source(&self, key: SourceKey) -> Option<Source> {
        self.reserve.source(key)
    }

    fn unused(&self) -> Unused {
        self.unused
    }
}
