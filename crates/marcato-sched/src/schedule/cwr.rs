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

/// How CWR, with or without redundancy, is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CwrConfig {
    /// Data of this level and above is urgent: it may use what is reserved. The paper knows one bit.
    pub threshold: Priority,
    /// The part of each window, in thousandths, that reservations leave to background data. Whatever it is, one
    /// background packet fits when nothing else is in flight; otherwise a reservation larger than the window would
    /// keep it from ever growing.
    pub background_share: u32,
    /// What a message counts against a window, so that room is held for its headers as well.
    pub framing: Framing,
    /// Whether periods are learned from sources that are named but not declared.
    pub learn: bool,
    /// How much may be sent twice.
    pub budget: Budget,
}

/// Why a configuration is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CwrConfigError {
    /// More than everything.
    #[error("{thousandths} thousandths of a window cannot be left to background data: give 1000 or less")]
    ShareTooLarge {
        /// What was asked for.
        thousandths: u32,
    },
}

impl CwrConfig {
    /// As the paper has it: nothing is left to background data but what is not reserved, sources are declared, and
    /// copies cost nothing.
    pub const fn paper() -> Self {
        Self {
            threshold: Priority::P0,
            background_share: 0,
            framing: Framing::NONE,
            learn: false,
            budget: Budget::UNLIMITED,
        }
    }

    /// For use: at most half of a window is reserved, sources are learned, and copies have a budget.
    pub fn marcato() -> Self {
        Self { background_share: 500, learn: true, budget: Budget::default(), ..Self::paper() }
    }
}

impl Default for CwrConfig {
    fn default() -> Self {
        Self::marcato()
    }
}

/// Capacity that background data was denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// How often a background packet would have fitted, had nothing been reserved.
    pub refusals: u64,
    /// The room that was kept from waiting background data, times how long it was, in byte nanoseconds. It is as
    /// exact as `choose` is asked often: the room counts as it was at the latest question.
    pub byte_nanos: u128,
}

/// How a message travels. Decided when its first byte leaves, and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// It fitted no lane: packet by packet, wherever there is room.
    Spread,
    /// It fitted this lane.
    Stay(LaneId),
    /// It fitted all of these.
    Each(LaneSet),
}

/// Where room is held for a message, and how much on each lane.
type Own = (LaneSet, Bytes);

/// Nothing is held.
const NOBODY: Own = (LaneSet::EMPTY, Bytes::ZERO);

/// The message of one level that is on its way. Within a level, messages leave one after the other.
#[derive(Clone, Copy, Debug)]
struct Plan {
    message: u64,
    route: Route,
    /// Where its latest packet began, if one has left.
    latest: Option<Bytes>,
}

/// Keeps room in a congestion window for periodic urgent messages.
///
/// Background data takes the fastest lane that has room beside what is reserved there. An urgent message takes the
/// fastest lane that has room for all of it (CWR §III-D1) and touches no other source's reservation, if it can; if no
/// lane can take it whole, it is split over whatever room there is, as [`LowRtt`](super::LowRtt) would (§III-D2). Urgent
/// data is never refused because of a reservation: then it takes what is held for others.
///
/// Sources have to be urgent themselves; a source whose messages are not has its room held in vain.
#[derive(Clone, Debug)]
pub struct Cwr {
    config: CwrConfig,
    redundant: bool,
    reserve: Reserve,
    learner: Option<Learner>,
    /// The messages on their way, by level.
    plans: [Option<Plan>; Priority::COUNT],
    /// What the latest question came to; it becomes a plan when the packet leaves.
    pending: Option<Plan>,
    /// The length of the latest packet asked about.
    packet: Bytes,
    /// Sent for the first time, and sent again as copies.
    first: Bytes,
    copies: Bytes,
    unused: Unused,
    /// Since when background data is kept from how much room.
    blocked: Option<(Time, Bytes)>,
}

impl Cwr {
    /// A scheduler that reserves on one lane for each release.
    ///
    /// # Errors
    ///
    /// If the configuration is impossible.
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

    /// Announces a periodic source; a declared source is never learned.
    ///
    /// # Errors
    ///
    /// If the source is impossible, or as many are declared as may.
    pub fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.reserve.declare(key, source)?;
        if let Some(learner) = &mut self.learner {
            learner.forget(key);
        }
        Ok(())
    }

    /// Takes an announcement back; `false` if there is no such source.
    pub fn withdraw(&mut self, key: SourceKey) -> bool {
        self.reserve.withdraw(key)
    }

    /// The sources and what is held for them.
    pub const fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// What background data could not use, up to the latest question.
    pub const fn unused(&self) -> Unused {
        self.unused
    }

    /// How many bytes have been sent as copies.
    pub const fn copies(&self) -> Bytes {
        self.copies
    }

    /// How many bytes have been sent for the first time.
    pub const fn first(&self) -> Bytes {
        self.first
    }

    const fn is_urgent(&self, priority: Priority) -> bool {
        !self.config.threshold.is_more_urgent_than(priority)
    }

    /// How much of a window is closed to background packets of this length.
    fn closed(&self, lane: &LaneView, packet: Bytes) -> Bytes {
        let share = u128::from(lane.cwnd.get()) * u128::from(self.config.background_share);
        let share = Bytes::new(u64::try_from(share.div_ceil(1000)).unwrap_or(u64::MAX));
        self.reserve.reserved(lane.id).min(lane.cwnd - share.max(packet))
    }

    /// What is held on a lane for others than whose own hold this is, and has to be left to them by `needed` bytes.
    fn held_for_others(&self, lane: &LaneView, (on, left): Own, needed: Bytes) -> Bytes {
        let own = if on.contains(lane.id) { left } else { Bytes::ZERO };
        // Room of its own it has beside all others: what is held for a later release is often not free yet, because
        // background data is under way there that is acknowledged by then.
        if own >= needed { Bytes::ZERO } else { self.reserve.reserved(lane.id) - own }
    }

    /// Adds up what was denied since the latest question.
    fn account(&mut self, now: Time) {
        if let Some((since, room)) = &mut self.blocked {
            let span = now.since(*since).as_nanos();
            self.unused.byte_nanos = self.unused.byte_nanos.saturating_add(span * u128::from(room.get()));
            *since = now;
        }
    }

    fn background(&mut self, now: Time, lanes: &[LaneView], among: LaneSet, len: Bytes) -> Choice {
        self.account(now);
        let choice = beside(lanes, among, len, |lane| self.closed(lane, len));
        self.blocked = None;
        if choice == Choice::Wait(Wait::Reserved) {
            self.unused.refusals += 1;
            let kept = lanes.iter().filter(|lane| among.contains(lane.id) && lane.free() >= len);
            self.blocked = Some((now, kept.map(|lane| lane.free().min(self.closed(lane, len))).sum()));
        }
        choice
    }

    /// The fastest lane for one urgent packet, if possible beside what is held for others.
    fn spread(&self, lanes: &[LaneView], among: LaneSet, own: Own, len: Bytes) -> Option<LaneId> {
        fastest(lanes, among, len, |lane| self.held_for_others(lane, own, len))
            .or_else(|| fastest(lanes, among, len, |_| Bytes::ZERO))
    }

    /// How a message that has not begun would travel.
    fn route(&self, lanes: &[LaneView], among: LaneSet, fresh: Fresh, held: Own) -> Route {
        if !fresh.offset.is_zero() {
            // Begun under a plan that a message of the same level has replaced.
            return Route::Spread;
        }
        let needed = self.config.framing.wire(fresh.rest);
        let others = |lane: &LaneView| self.held_for_others(lane, held, needed);
        // CWR §III-D2: redundantly only if each lane takes all of it. Where no room is held for this message, copies
        // take none of what is held for others; the paper does not say.
        let mut candidates = lanes.iter().filter(|lane| among.contains(lane.id));
        if self.redundant
            && fresh.redundancy == Redundancy::EveryLane
            && among.len() > 1
            && self.may_copy(needed, among)
            && candidates.all(|lane| lane.free() - others(lane) >= needed)
        {
            return Route::Each(among);
        }
        // Of equally fast lanes, the one that was kept free for it: `fastest` takes the first.
        let own = fastest(lanes, among.and(held.0), needed, others);
        let any = fastest(lanes, among, needed, others);
        let srtt = |id: LaneId| lanes.iter().find(|lane| lane.id == id).map(|lane| lane.srtt);
        match (own, any) {
            (Some(own), Some(any)) if srtt(own) <= srtt(any) => Route::Stay(own),
            (_, Some(any)) => Route::Stay(any),
            (_, None) => fastest(lanes, among, needed, |_| Bytes::ZERO).map_or(Route::Spread, Route::Stay),
        }
    }

    /// Whether one copy of `len` may go on each of `lanes`.
    fn may_copy(&self, len: Bytes, lanes: LaneSet) -> bool {
        let extra = len * (lanes.len() as u64).saturating_sub(1);
        // The first of them is sent for the first time, and counts before its copies do.
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
                self.spread(lanes, open, held, len)
            }
            Route::Stay(lane) if open.contains(lane) => Some(lane),
            Route::Stay(_) | Route::Spread => None,
        };
        // What cannot go as planned, because a loss took the window, goes as LowRtt would send it.
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
        // A copy that has to avoid every quick lane may take a slow one.
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
        // A second lane that carries the same bytes carries a copy.
        if known.is_some_and(|plan| plan.latest == Some(fresh.offset)) {
            self.copies += len;
            return;
        }
        self.first += len;
        let unplanned = Plan { message: fresh.message, route: Route::Stay(lane.id), latest: None };
        let pending = self.pending.filter(|plan| plan.message == fresh.message);
        let plan = pending.or(known).unwrap_or(unplanned);
        self.plans[fresh.priority.index()] = Some(Plan { latest: Some(fresh.offset), ..plan });
        // Room for what has left is held no longer, wherever it went.
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
            // No place for it, or nothing that can be reserved for: its messages go as others do.
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
}
