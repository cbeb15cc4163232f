//! Congestion window reservation for periodic sources (CWR §III-D1).
//!
//! A [`Source`] sends a message of a known size every period. Room for that message is reserved on
//! a lane (or on all) as soon as a background packet sent now could still be in flight at the next
//! release. Background data may not use this room. Each such hold belongs to one release of one
//! source. The reservation of a lane is the sum of its holds.

use core::time::Duration;

use marcato_units::{Bytes, Time};
use thiserror::Error;

use crate::lane::{LaneId, LaneSet, LaneView, MAX_LANES};

/// Most sources of one connection.
pub const MAX_SOURCES: usize = 16;
/// Most releases of one source for which room is held at once. It matters to sources whose period
/// is shorter than a round-trip time; later releases get their room later.
pub const MAX_AHEAD: usize = 8;
/// Limit of one hold, above any congestion window. The sum of all holds at this limit does not
/// overflow.
const LARGEST: Bytes = Bytes::new(1 << 48);
/// Divisor of the period: the time after a release (beyond its jitter) until which its message is
/// expected.
const PATIENCE: u64 = 8;
/// Releases missed in a row after which a source counts as silent, until it sends again.
const MISSES: u64 = 3;

/// Application's identifier of a periodic source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(pub u64);

/// Traffic profile of a periodic source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Time from one release to the next.
    pub period: Duration,
    /// Length of each message; of the longest, if they differ.
    pub size: Bytes,
    /// Time at which the next message is offered.
    pub next_release: Time,
    /// Largest deviation of a release from its time, either way.
    pub jitter: Duration,
}

impl Source {
    /// Creates a source without jitter.
    pub const fn new(period: Duration, size: Bytes, next_release: Time) -> Self {
        Self { period, size, next_release, jitter: Duration::ZERO }
    }

    /// Sets the jitter: the most by which a release may be early or late.
    #[must_use]
    pub const fn with_jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// Returns the time until which a message due at `release` is expected.
    fn lapse(&self, release: Time) -> Time {
        release + self.jitter + Duration::from_nanos(nanos(self.period) / PATIENCE)
    }
}

/// Error returned when a source is not accepted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeclareError {
    /// The period is zero, so every message would be released at once.
    #[error("a source needs a period longer than zero: offer its message without a source instead")]
    ZeroPeriod,
    /// The messages have no bytes, so there would be nothing to reserve.
    #[error("a source needs messages of at least one byte")]
    ZeroSize,
    /// The jitter is so large that releases could not be distinguished.
    #[error("a jitter of {jitter:?} is not below half the period of {period:?}: do not declare the source")]
    JitterTooLarge {
        /// Jitter declared.
        jitter: Duration,
        /// Period declared.
        period: Duration,
    },
    /// The table is full.
    #[error("{limit} sources are declared already: withdraw one first")]
    TooManySources {
        /// Most sources of one connection.
        limit: usize,
    },
}

/// Conversion of a message's length to the bytes that it counts against a congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Framing {
    payload: Bytes,
    overhead: Bytes,
}

/// Error returned for an invalid framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FramingError {
    /// Packets would carry no byte of a message.
    #[error("a packet has to carry at least one byte of a message")]
    ZeroPayload,
}

impl Framing {
    /// Framing without overhead: sizes are given as they count.
    pub const NONE: Self = Self { payload: Bytes::MAX, overhead: Bytes::ZERO };

    /// Creates a framing of packets with up to `payload` bytes of a message and `overhead` other
    /// bytes.
    ///
    /// # Errors
    ///
    /// If `payload` is zero.
    pub const fn new(payload: Bytes, overhead: Bytes) -> Result<Self, FramingError> {
        if payload.is_zero() {
            return Err(FramingError::ZeroPayload);
        }
        Ok(Self { payload, overhead })
    }

    /// Returns the bytes that `len` bytes of one message count against a window.
    pub const fn wire(&self, len: Bytes) -> Bytes {
        let packets = len.get().div_ceil(self.payload.get());
        Bytes::new(len.get().saturating_add(packets.saturating_mul(self.overhead.get())))
    }
}

/// Lanes on which room is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The lane with the lowest smoothed round-trip time when its horizon opens; among equals, the
    /// one least recently chosen in this way.
    Fastest,
    /// Every lane, on each from the opening of its own horizon.
    EveryLane,
}

/// Counters of releases and their reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveCounters {
    /// Releases for which room was held on at least one lane.
    pub held: u64,
    /// Holds on one lane that a loss there ended.
    pub dropped: u64,
    /// Releases whose message did not arrive in time.
    pub missed: u64,
    /// Messages offered more than half a period before the next release of their source.
    pub unexpected: u64,
    /// Learned sources replaced by declared ones.
    pub displaced: u64,
}

/// Room held for one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    release: Time,
    /// Message of this release and the time of its offer; `None` until then.
    message: Option<(u64, Time)>,
    /// Window bytes of the message yet to be sent.
    left: Bytes,
    /// Lanes on which the room is held.
    on: LaneSet,
    /// Lanes on which a loss ended it.
    dropped: LaneSet,
}

impl Hold {
    const NONE: Self = Self {
        release: Time::MAX,
        message: None,
        left: Bytes::ZERO,
        on: LaneSet::EMPTY,
        dropped: LaneSet::EMPTY,
    };
}

/// A source and its holds. Holds whose message has been offered come first, and then by release.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: SourceKey,
    source: Source,
    learned: bool,
    /// Releases missed in a row.
    missed: u64,
    holds: [Hold; MAX_AHEAD],
    ahead: usize,
}

impl Slot {
    const fn new(key: SourceKey, source: Source, learned: bool) -> Self {
        Self { key, source, learned, missed: 0, holds: [Hold::NONE; MAX_AHEAD], ahead: 0 }
    }

    fn holds(&self) -> &[Hold] {
        &self.holds[..self.ahead]
    }

    /// Returns the number of holds without a message.
    fn unreleased(&self) -> usize {
        self.holds().iter().filter(|hold| hold.message.is_none()).count()
    }

    /// Returns the first release for which no room is held.
    fn next_unheld(&self) -> Time {
        let releases = u32::try_from(self.unreleased()).unwrap_or(u32::MAX);
        self.source.next_release + self.source.period.saturating_mul(releases)
    }

    const fn is_silent(&self) -> bool {
        self.missed >= MISSES
    }

    /// Returns the last instant at which a hold is of use.
    fn lapse(&self, hold: &Hold) -> Time {
        match hold.message {
            // Bounds the hold of a caller that never reports a message as complete.
            Some((_, released)) => released + self.source.period,
            None => self.source.lapse(hold.release),
        }
    }

    fn remove(&mut self, at: usize) -> Hold {
        let hold = self.holds[at];
        self.holds.copy_within(at + 1..self.ahead, at);
        self.ahead -= 1;
        self.holds[self.ahead] = Hold::NONE;
        hold
    }
}

/// State shared by all sources.
#[derive(Clone, Debug)]
struct Books {
    placement: Placement,
    framing: Framing,
    /// Sum of the holds on each lane.
    reserved: [Bytes; MAX_LANES],
    /// Turn in which [`Placement::Fastest`] last chose each lane.
    given: [u64; MAX_LANES],
    turns: u64,
    counters: ReserveCounters,
}

impl Books {
    /// Makes the holds of one source whose horizon has opened.
    fn reach(&mut self, slot: &mut Slot, now: Time, horizon: Time, lanes: &[LaneView], among: LaneSet) {
        let jitter = slot.source.jitter;
        while slot.ahead < MAX_AHEAD && !slot.is_silent() {
            let release = slot.next_unheld();
            // A packet sent now will be acknowledged before the release, so its room need not be
            // kept yet.
            if release == Time::MAX || release - jitter > horizon {
                break;
            }
            let left = self.framing.wire(slot.source.size).min(LARGEST);
            slot.holds[slot.ahead] = Hold { release, left, ..Hold::NONE };
            slot.ahead += 1;
            self.counters.held += 1;
        }
        // A message already offered keeps the lanes that it has.
        for hold in slot.holds[..slot.ahead].iter_mut().filter(|hold| hold.message.is_none()) {
            match self.placement {
                // After a loss on its lane a release gets no other hold (CWR §III-D1). A lane that
                // is gone is replaced.
                Placement::Fastest if hold.on.and(among).is_empty() && hold.dropped.is_empty() => {
                    let candidates = lanes.iter().filter(|lane| among.contains(lane.id));
                    let best = candidates.min_by_key(|lane| (lane.srtt, self.given[lane.id.index()]));
                    let Some(lane) = best else { continue };
                    self.give_back(core::slice::from_ref(hold));
                    self.turns += 1;
                    self.given[lane.id.index()] = self.turns;
                    self.hold_on(hold, lane.id);
                    hold.on = LaneSet::one(lane.id);
                }
                Placement::Fastest => {}
                Placement::EveryLane => {
                    for lane in lanes.iter().filter(|lane| among.contains(lane.id)) {
                        let open = lane.acknowledged_by(now) >= hold.release - jitter;
                        if open && !hold.on.or(hold.dropped).contains(lane.id) {
                            self.hold_on(hold, lane.id);
                        }
                    }
                }
            }
        }
    }

    fn hold_on(&mut self, hold: &mut Hold, lane: LaneId) {
        hold.on.insert(lane);
        self.reserved[lane.index()] += hold.left;
    }

    /// Shrinks a hold to at most `left` bytes.
    fn shrink(&mut self, hold: &mut Hold, left: Bytes) {
        let spare = hold.left - left;
        hold.left -= spare;
        for lane in hold.on.iter() {
            self.reserved[lane.index()] -= spare;
        }
    }

    fn give_back(&mut self, holds: &[Hold]) {
        for hold in holds {
            for lane in hold.on.iter() {
                self.reserved[lane.index()] -= hold.left;
            }
        }
    }

    /// Drops the holds without a message.
    fn void(&mut self, slot: &mut Slot) {
        while let Some(at) = slot.holds().iter().position(|hold| hold.message.is_none()) {
            let hold = slot.remove(at);
            self.give_back(&[hold]);
        }
    }

    /// Drops the holds of one source that have lapsed before `now`, and counts its missed releases.
    fn lapse(&mut self, slot: &mut Slot, now: Time) {
        let mut at = 0;
        while at < slot.ahead {
            if now <= slot.lapse(&slot.holds[at]) {
                at += 1;
                continue;
            }
            let hold = slot.remove(at);
            self.give_back(&[hold]);
            if hold.message.is_none() {
                self.miss(slot, 1);
            }
        }
        // Counts the releases that passed without a hold while no call was made.
        let last = slot.source.lapse(slot.source.next_release);
        if slot.unreleased() == 0 && !slot.is_silent() && now > last {
            self.miss(slot, (nanos(now.since(last)) / nanos(slot.source.period).max(1)).saturating_add(1));
        }
        if slot.is_silent() {
            self.void(slot);
        }
    }

    fn miss(&mut self, slot: &mut Slot, releases: u64) {
        self.counters.missed = self.counters.missed.saturating_add(releases);
        slot.missed = slot.missed.saturating_add(releases);
        let span = nanos(slot.source.period).saturating_mul(releases);
        slot.source.next_release += Duration::from_nanos(span);
    }
}

/// Reservations for the sources of one connection.
#[derive(Clone, Debug)]
pub struct Reserve {
    slots: [Option<Slot>; MAX_SOURCES],
    books: Books,
    /// Lanes that were usable at the last call.
    lanes: LaneSet,
    /// Per lane, the earliest release without a hold, less its jitter. No horizon opens on a lane
    /// on which a packet sent now is acknowledged before this.
    opens: [Time; MAX_LANES],
    /// No release lapses before this.
    lapses: Time,
}

impl Reserve {
    /// Creates a reservation table without sources.
    pub const fn new(placement: Placement, framing: Framing) -> Self {
        let counters = ReserveCounters { held: 0, dropped: 0, missed: 0, unexpected: 0, displaced: 0 };
        let (reserved, given) = ([Bytes::ZERO; MAX_LANES], [0; MAX_LANES]);
        Self {
            slots: [None; MAX_SOURCES],
            books: Books { placement, framing, reserved, given, turns: 0, counters },
            lanes: LaneSet::EMPTY,
            opens: [Time::MAX; MAX_LANES],
            lapses: Time::MAX,
        }
    }

    /// Conversion of messages to bytes of a window.
    pub const fn framing(&self) -> Framing {
        self.books.framing
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &ReserveCounters {
        &self.books.counters
    }

    /// Returns a source, its next release updated by the messages that it has sent.
    pub fn source(&self, key: SourceKey) -> Option<Source> {
        self.slots.iter().flatten().find(|slot| slot.key == key).map(|slot| slot.source)
    }

    /// True if the application itself has declared this source.
    pub fn is_declared(&self, key: SourceKey) -> bool {
        self.slots.iter().flatten().any(|slot| slot.key == key && !slot.learned)
    }

    /// Declares a source, or declares it anew. It replaces a learned source of the same key. If the
    /// table is full, it replaces another learned source.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the table is full of declared sources.
    pub fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.insert(key, source, false)
    }

    /// Declares a learned source. A declared source of this key stays unchanged.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the table is full.
    pub fn learn(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.insert(key, source, true)
    }

    fn insert(&mut self, key: SourceKey, source: Source, learned: bool) -> Result<(), DeclareError> {
        if source.period.is_zero() {
            return Err(DeclareError::ZeroPeriod);
        }
        if source.size.is_zero() {
            return Err(DeclareError::ZeroSize);
        }
        if source.jitter >= source.period / 2 && !source.jitter.is_zero() {
            return Err(DeclareError::JitterTooLarge { jitter: source.jitter, period: source.period });
        }
        if let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.key == key) {
            if learned && !slot.learned {
                return Ok(());
            }
            if !learned {
                // The application states the next release, so earlier expectations are void.
                self.books.void(slot);
            }
            // Remaining holds stay, at their new times. A changed size counts from the next hold
            // on.
            *slot = Slot { source, learned, missed: 0, ..*slot };
            retime(slot);
            self.remind();
            return Ok(());
        }
        let free = self.slots.iter().position(Option::is_none);
        let place = free.or_else(|| {
            let displaced = |slot: &Option<Slot>| slot.is_some_and(|slot| slot.learned);
            if learned { None } else { self.slots.iter().position(displaced) }
        });
        let Some(place) = place else { return Err(DeclareError::TooManySources { limit: MAX_SOURCES }) };
        if let Some(slot) = self.slots[place] {
            self.books.counters.displaced += 1;
            self.books.give_back(slot.holds());
        }
        self.slots[place] = Some(Slot::new(key, source, learned));
        self.remind();
        Ok(())
    }

    /// Removes a source and its holds; returns false if there is none of this key.
    pub fn withdraw(&mut self, key: SourceKey) -> bool {
        self.forget(|slot| slot.key == key)
    }

    /// Removes a learned source and its holds; returns false if there is none of this key.
    pub fn unlearn(&mut self, key: SourceKey) -> bool {
        self.forget(|slot| slot.key == key && slot.learned)
    }

    fn forget(&mut self, which: impl Fn(&Slot) -> bool) -> bool {
        let Some(place) = self.slots.iter().position(|slot| slot.as_ref().is_some_and(&which)) else {
            return false;
        };
        if let Some(slot) = self.slots[place].take() {
            self.books.give_back(slot.holds());
        }
        self.remind();
        true
    }

    /// Returns the bytes held on this lane for all sources together.
    pub fn reserved(&self, lane: LaneId) -> Bytes {
        self.books.reserved[lane.index()]
    }

    /// Returns the lanes on which room is held for a released message, and the bytes on each.
    pub fn held_for(&self, message: u64) -> (LaneSet, Bytes) {
        let mut holds = self.slots.iter().flatten().flat_map(Slot::holds);
        let hold = holds.find(|hold| hold.message.is_some_and(|(of, _)| of == message));
        hold.map_or((LaneSet::EMPTY, Bytes::ZERO), |hold| (hold.on, hold.left))
    }

    /// Returns the time just after which the first hold lapses, unless it is used before.
    pub fn lapses(&self) -> Option<Time> {
        let held = |slot: &Slot| {
            let held = slot.holds().iter().filter(|hold| !hold.on.is_empty());
            held.map(|hold| slot.lapse(hold)).min()
        };
        self.slots.iter().flatten().filter_map(held).min()
    }

    /// Brings the reservations up to `now`: makes holds within a horizon, and drops lapsed ones.
    /// `among` are the lanes on which room may be held.
    pub fn advance(&mut self, now: Time, lanes: &[LaneView], among: LaneSet) {
        if now > self.lapses {
            self.lapse(now);
        }
        let moved = among != self.lanes;
        self.lanes = among;
        // Horizon of the fastest lane (or the farthest of all), and true if it (or any) has opened.
        let usable = lanes.iter().filter(|lane| among.contains(lane.id));
        let (horizon, open) = match self.books.placement {
            Placement::Fastest => {
                let Some(lane) = usable.min_by_key(|lane| lane.srtt) else { return };
                let horizon = lane.acknowledged_by(now);
                (horizon, horizon >= self.opens[lane.id.index()])
            }
            Placement::EveryLane => usable.fold((now, false), |(farthest, open), lane| {
                let horizon = lane.acknowledged_by(now);
                (farthest.max(horizon), open || horizon >= self.opens[lane.id.index()])
            }),
        };
        if !moved && !open || among.is_empty() {
            return;
        }
        for slot in self.slots.iter_mut().flatten() {
            self.books.reach(slot, now, horizon, lanes, among);
        }
        self.remind();
    }

    /// Drops the holds that have lapsed before `now`.
    fn lapse(&mut self, now: Time) {
        for slot in self.slots.iter_mut().flatten() {
            self.books.lapse(slot, now);
        }
        self.remind();
    }

    /// Records that a message of this source has been offered. A hold for its release becomes its
    /// own.
    pub fn released(&mut self, now: Time, key: SourceKey, message: u64, len: Bytes) {
        if now > self.lapses {
            self.lapse(now);
        }
        let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.key == key) else { return };
        let source = slot.source;
        if slot.is_silent() {
            // A silent source has resumed; its next release counts from now.
            slot.missed = 0;
            slot.source.next_release = now + source.period;
        } else if now < source.next_release - source.period / 2 {
            // Nearer to the previous release, which has had its message.
            self.books.counters.unexpected += 1;
        } else {
            slot.missed = 0;
            if let Some(hold) = slot.holds[..slot.ahead].iter_mut().find(|hold| hold.message.is_none()) {
                self.books.shrink(hold, self.books.framing.wire(len));
                hold.message = Some((message, now));
            }
            let off = now.since(source.next_release).max(source.next_release.since(now));
            // Within its jitter the source keeps its grid; beyond it, the grid moves.
            let grid = if off <= source.jitter { source.next_release } else { now };
            slot.source.next_release = grid + source.period;
            retime(slot);
        }
        self.remind();
    }

    /// Records that `left` window bytes of this message have yet to be sent.
    pub fn used(&mut self, message: u64, left: Bytes) {
        for slot in self.slots.iter_mut().flatten() {
            let of = |hold: &Hold| hold.message.is_some_and(|(of, _)| of == message);
            let Some(at) = slot.holds().iter().position(of) else { continue };
            self.books.shrink(&mut slot.holds[at], left);
            if slot.holds[at].left.is_zero() {
                slot.remove(at);
                self.remind();
            }
            return;
        }
    }

    /// Drops the holds on this lane after a loss there, because its window shrinks (CWR §III-D1).
    /// Later releases get room again when their own horizons open.
    pub fn lost(&mut self, lane: LaneId) {
        for hold in self.slots.iter_mut().flatten().flat_map(|slot| &mut slot.holds[..slot.ahead]) {
            if hold.on.contains(lane) {
                hold.on.remove(lane);
                hold.dropped.insert(lane);
                self.books.counters.dropped += 1;
            }
        }
        self.books.reserved[lane.index()] = Bytes::ZERO;
    }

    /// Computes the next times at which a hold may open or lapse.
    fn remind(&mut self) {
        (self.opens, self.lapses) = ([Time::MAX; MAX_LANES], Time::MAX);
        let mut unheld = Time::MAX;
        for slot in self.slots.iter().flatten() {
            if slot.ahead < MAX_AHEAD && !slot.is_silent() {
                unheld = unheld.min(slot.next_unheld() - slot.source.jitter);
                // Releases that pass without any call must lapse as well.
                self.lapses = self.lapses.min(slot.source.lapse(slot.next_unheld()));
            }
            for hold in slot.holds() {
                self.lapses = self.lapses.min(slot.lapse(hold));
                if self.books.placement == Placement::EveryLane && hold.message.is_none() {
                    for lane in self.lanes.without(hold.on.or(hold.dropped)).iter() {
                        let opens = &mut self.opens[lane.index()];
                        *opens = (*opens).min(hold.release - slot.source.jitter);
                    }
                }
            }
        }
        for opens in &mut self.opens {
            *opens = (*opens).min(unheld);
        }
    }

    /// Recomputes the sums of the holds.
    #[cfg(test)]
    fn sums(&self) -> [Bytes; MAX_LANES] {
        let mut sums = [Bytes::ZERO; MAX_LANES];
        for hold in self.slots.iter().flatten().flat_map(Slot::holds) {
            for lane in hold.on.iter() {
                sums[lane.index()] += hold.left;
            }
        }
        sums
    }
}

/// Moves the holds without a message to the source's next releases.
fn retime(slot: &mut Slot) {
    let mut release = slot.source.next_release;
    for hold in slot.holds[..slot.ahead].iter_mut().filter(|hold| hold.message.is_none()) {
        hold.release = release;
        release += slot.source.period;
    }
}

/// Converts a span to nanoseconds, at most 584 years.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: SourceKey = SourceKey(7);

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn lane(index: u8, millis: u64) -> LaneView {
        LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(100), Duration::from_millis(millis))
    }

    fn all(lanes: &[LaneView]) -> LaneSet {
        lanes.iter().map(|lane| lane.id).collect()
    }

    /// Returns the kB reserved on the first two lanes at `now`.
    fn reserved(reserve: &mut Reserve, now: Time, lanes: &[LaneView]) -> (u64, u64) {
        reserve.advance(now, lanes, all(lanes));
        assert_eq!(reserve.sums(), reserve.books.reserved);
        let on = |index| reserve.reserved(LaneId::new(index).unwrap()).get() / 1000;
        (on(0), on(1))
    }

    fn every(millis: u64, kb: u64, next: u64) -> Source {
        Source::new(Duration::from_millis(millis), Bytes::kb(kb), ms(next))
    }

    #[test]
    fn room_is_held_from_a_round_trip_before_the_release() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(250) - Duration::from_nanos(1), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(250), &lanes), (10, 0));
        // Once open, a hold stays open, although a sample shortens the round trip.
        assert_eq!(reserved(&mut reserve, ms(251), &[lane(0, 40)]), (10, 0));
    }

    #[test]
    fn on_equal_round_trips_the_lanes_take_turns() {
        let lanes = [lane(0, 50), lane(1, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 100)).unwrap();
        let mut order = std::vec::Vec::new();
        for (message, release) in (100..700).step_by(100).enumerate() {
            order.push(reserved(&mut reserve, ms(release - 10), &lanes));
            reserve.released(ms(release), KEY, message as u64, Bytes::kb(10));
            reserve.used(message as u64, Bytes::ZERO);
            assert_eq!(reserve.sums(), [Bytes::ZERO; MAX_LANES]);
        }
        assert_eq!(order, [(10, 0), (0, 10), (10, 0), (0, 10), (10, 0), (0, 10)]);
    }

    #[test]
    fn every_lane_opens_at_its_own_horizon() {
        let lanes = [lane(0, 20), lane(1, 100)];
        let mut reserve = Reserve::new(Placement::EveryLane, Framing::NONE);
        reserve.declare(KEY, every(500, 10, 500)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(399), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(400), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, ms(479), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, ms(480), &lanes), (10, 10));
        assert_eq!(reserve.counters().held, 1);
    }

    #[test]
    fn several_sources_add_up_as_do_several_releases_of_one() {
        // CWR, table II, and a source with a period shorter than a round trip.
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(SourceKey(1), every(100, 10, 1000)).unwrap();
        reserve.declare(SourceKey(2), every(70, 7, 1010)).unwrap();
        reserve.declare(SourceKey(3), every(135, 5, 1060)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(955), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(960), &lanes), (17, 0));
        assert_eq!(reserved(&mut reserve, ms(1000), &lanes), (17, 0));
        assert_eq!(reserved(&mut reserve, ms(1010), &lanes), (22, 0));
        reserve.declare(SourceKey(4), every(10, 1, 1020)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(1010), &lanes), (27, 0));
    }

    #[test]
    fn a_loss_drops_what_is_held_until_the_next_message() {
        let lanes = [lane(0, 50), lane(1, 60)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        reserve.lost(lanes[0].id);
        assert_eq!(reserved(&mut reserve, ms(290), &lanes), (0, 0));
        reserve.released(ms(300), KEY, 1, Bytes::kb(10));
        assert!(reserve.held_for(1).0.is_empty());
        assert_eq!(reserved(&mut reserve, ms(460), &lanes), (10, 0));
        assert_eq!(reserve.counters().dropped, 1);
    }

    #[test]
    fn redeclaring_a_source_replaces_all_of_its_old_declaration() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        reserve.declare(KEY, every(100, 5, 1000)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(285), &lanes), (0, 0));
        assert_eq!(reserve.source(KEY), Some(every(100, 5, 1000)));
        // After a silence it is expected again.
        reserve.advance(ms(5000), &lanes, all(&lanes));
        assert_eq!(reserved(&mut reserve, ms(5050), &lanes), (0, 0));
        reserve.declare(KEY, every(100, 5, 5100)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(5060), &lanes), (5, 0));
    }

    #[test]
    fn what_was_learned_anew_keeps_its_room_at_its_new_time() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.learn(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        reserve.learn(KEY, every(210, 10, 310)).unwrap();
        assert_eq!(reserve.source(KEY), Some(every(210, 10, 310)));
        assert_eq!(reserved(&mut reserve, ms(281), &lanes), (10, 0));
        assert_eq!(reserve.counters().held, 1);
        // An eighth of the period after the new time.
        assert_eq!(reserve.lapses(), Some(Time::from_micros(336_250)));
    }

    #[test]
    fn unlearn_removes_only_learned_sources_which_are_not_declared() {
        let (learned, declared, unknown) = (SourceKey(1), SourceKey(2), SourceKey(3));
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.learn(learned, every(200, 10, 300)).unwrap();
        reserve.declare(declared, every(200, 10, 300)).unwrap();
        assert_eq!([learned, declared, unknown].map(|key| reserve.is_declared(key)), [false, true, false]);
        assert_eq!([unknown, declared, learned].map(|key| reserve.unlearn(key)), [false, false, true]);
        assert!(reserve.source(learned).is_none() && reserve.source(declared).is_some());
    }

    #[test]
    fn releases_that_nobody_asked_about_are_missed_one_by_one() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 1000)).unwrap();
        reserve.advance(ms(1150), &lanes, all(&lanes));
        assert_eq!((reserve.counters().missed, reserve.source(KEY).unwrap().next_release), (2, ms(1200)));
    }

    #[test]
    fn a_message_after_its_release_has_lapsed_has_no_reserved_room() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 1000)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(990), &lanes), (10, 0));
        reserve.released(ms(1150), KEY, 1, Bytes::kb(10));
        assert_eq!((reserve.held_for(1).0, reserve.counters().missed), (LaneSet::EMPTY, 2));
    }

    #[test]
    fn a_source_back_from_silence_is_expected_one_period_later() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 1000)).unwrap();
        reserve.advance(ms(5000), &lanes, all(&lanes));
        reserve.released(ms(5030), KEY, 1, Bytes::kb(10));
        assert_eq!(reserve.source(KEY).unwrap().next_release, ms(5130));
    }

    #[test]
    fn without_a_lane_nothing_is_held() {
        for placement in [Placement::Fastest, Placement::EveryLane] {
            let lanes = [lane(0, 50)];
            let mut reserve = Reserve::new(placement, Framing::NONE);
            reserve.declare(KEY, every(200, 10, 300)).unwrap();
            reserve.advance(ms(200), &lanes, all(&lanes));
            reserve.advance(ms(300), &lanes, LaneSet::EMPTY);
            assert_eq!(reserve.counters().held, 0, "{placement:?}");
        }
    }

    /// CWR §III-D1: a hold dropped by a loss stays dropped until the next message, even if another
    /// source causes a new check of the holds.
    #[test]
    fn a_hold_dropped_by_a_loss_stays_dropped_if_another_one_opens() {
        for placement in [Placement::Fastest, Placement::EveryLane] {
            let lanes = [lane(0, 50)];
            let mut reserve = Reserve::new(placement, Framing::NONE);
            reserve.declare(SourceKey(1), every(200, 10, 300)).unwrap();
            reserve.declare(SourceKey(2), every(200, 7, 340)).unwrap();
            assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
            reserve.lost(lanes[0].id);
            assert_eq!(reserved(&mut reserve, ms(290), &lanes), (7, 0), "{placement:?}");
            reserve.released(ms(300), SourceKey(1), 1, Bytes::kb(10));
            assert_eq!(reserve.held_for(1).0, LaneSet::EMPTY);
            reserve.released(ms(340), SourceKey(2), 2, Bytes::kb(7));
            assert_eq!(reserve.held_for(2), (LaneSet::one(lanes[0].id), Bytes::kb(7)));
            reserve.used(2, Bytes::ZERO);
            assert_eq!(
                reserved(&mut reserve, ms(460), &lanes),
                (10, 0),
                "for the next message there is room again"
            );
            assert_eq!(reserve.counters().dropped, 1);
        }
    }

    #[test]
    fn room_is_held_for_the_earliest_release_that_jitter_allows() {
        let jitter = Duration::from_millis(30);
        let just_before = |at| ms(at) - Duration::from_nanos(1);
        let lanes = [lane(0, 20), lane(1, 100)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(500, 10, 500).with_jitter(jitter)).unwrap();
        assert_eq!(reserved(&mut reserve, just_before(450), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(450), &lanes), (10, 0));
        let mut reserve = Reserve::new(Placement::EveryLane, Framing::NONE);
        reserve.declare(KEY, every(500, 10, 500).with_jitter(jitter)).unwrap();
        assert_eq!(reserved(&mut reserve, just_before(370), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(370), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, just_before(450), &lanes), (0, 10));
        assert_eq!(reserved(&mut reserve, ms(450), &lanes), (10, 10));
        // Until the latest release, and an eighth of the period beyond.
        assert_eq!(reserved(&mut reserve, Time::from_micros(592_500), &lanes), (10, 10));
        assert_eq!(reserved(&mut reserve, ms(593), &lanes), (0, 0));
    }

    #[test]
    fn a_message_up_to_half_a_period_early_gets_its_reserved_room() {
        let lanes = [lane(0, 90)];
        let held = |at: Time| {
            let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
            reserve.declare(KEY, every(100, 10, 300)).unwrap();
            assert_eq!(reserved(&mut reserve, ms(240), &lanes), (10, 0));
            reserve.released(at, KEY, 1, Bytes::kb(10));
            (
                reserve.held_for(1).1.get(),
                reserve.source(KEY).unwrap().next_release,
                reserve.counters().unexpected,
            )
        };
        assert_eq!(held(ms(250)), (10_000, ms(350), 0));
        // Nearer to the previous release: it is unexpected, and the room stays for the next one.
        assert_eq!(held(ms(250) - Duration::from_nanos(1)), (0, ms(300), 1));
    }

    #[test]
    fn only_a_release_beyond_its_jitter_shifts_the_release_grid() {
        let next = |at| {
            let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
            reserve.declare(KEY, every(100, 10, 200).with_jitter(Duration::from_millis(5))).unwrap();
            reserve.released(ms(at), KEY, 1, Bytes::kb(10));
            reserve.source(KEY).unwrap().next_release
        };
        for (at, expected) in [(194, 294), (195, 300), (200, 300), (205, 300), (206, 306)] {
            assert_eq!(next(at), ms(expected), "released at {at} ms");
        }
    }

    #[test]
    fn a_lane_that_goes_away_is_replaced() {
        let lanes = [lane(0, 50), lane(1, 60)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(200, 10, 300)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(280), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(281), &lanes[1..]), (0, 10));
        reserve.advance(ms(282), &[], LaneSet::EMPTY);
        assert_eq!(reserved(&mut reserve, ms(283), &lanes), (0, 10));
    }

    #[test]
    fn a_source_that_stops_is_waited_for_three_times() {
        let lanes = [lane(0, 50)];
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(80, 10, 100)).unwrap();
        assert_eq!(reserved(&mut reserve, ms(110), &lanes), (10, 0));
        assert_eq!(reserve.lapses(), Some(ms(110)));
        // Late by more than an eighth of its period: no longer expected.
        assert_eq!(reserved(&mut reserve, ms(111), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(130), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(270), &lanes), (10, 0));
        assert_eq!(reserved(&mut reserve, ms(271), &lanes), (0, 0));
        assert_eq!(reserved(&mut reserve, ms(10_000), &lanes), (0, 0));
        assert_eq!(reserve.counters().missed, 3);
        // The source has resumed.
        reserve.released(ms(20_000), KEY, 1, Bytes::kb(10));
        assert_eq!(reserved(&mut reserve, ms(20_030), &lanes), (10, 0));
        assert_eq!(reserve.source(KEY).unwrap().next_release, ms(20_080));
    }

    #[test]
    fn a_source_whose_grid_has_moved_is_followed() {
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        reserve.declare(KEY, every(100, 10, 100).with_jitter(Duration::from_millis(5))).unwrap();
        let next = |reserve: &Reserve| reserve.source(KEY).unwrap().next_release;
        reserve.released(ms(104), KEY, 1, Bytes::kb(10));
        assert_eq!(next(&reserve), ms(200));
        reserve.released(ms(190), KEY, 2, Bytes::kb(10));
        assert_eq!(next(&reserve), ms(290));
        reserve.released(ms(195), KEY, 3, Bytes::kb(10));
        assert_eq!((next(&reserve), reserve.counters().unexpected), (ms(290), 1));
    }

    #[test]
    fn impossible_sources_are_refused_and_learned_ones_give_way() {
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        let good = every(100, 1, 0);
        assert_eq!(
            reserve.declare(KEY, Source { period: Duration::ZERO, ..good }),
            Err(DeclareError::ZeroPeriod)
        );
        assert_eq!(reserve.declare(KEY, Source { size: Bytes::ZERO, ..good }), Err(DeclareError::ZeroSize));
        let jittery = good.with_jitter(Duration::from_millis(50));
        assert!(matches!(reserve.declare(KEY, jittery), Err(DeclareError::JitterTooLarge { .. })));
        for key in 0..MAX_SOURCES as u64 {
            reserve.learn(SourceKey(key), good).unwrap();
        }
        let full = Err(DeclareError::TooManySources { limit: MAX_SOURCES });
        assert_eq!(reserve.learn(SourceKey(99), good), full);
        reserve.declare(SourceKey(99), good).unwrap();
        assert_eq!((reserve.counters().displaced, reserve.source(SourceKey(0))), (1, None));
        for key in 1..MAX_SOURCES as u64 {
            reserve.declare(SourceKey(key), good).unwrap();
        }
        assert_eq!(reserve.declare(SourceKey(100), good), full);
        // A learned source never replaces a declared one of the same key.
        reserve.learn(SourceKey(99), every(1, 1, 0)).unwrap();
        assert_eq!(reserve.source(SourceKey(99)), Some(good));
        assert!(
            !reserve.unlearn(SourceKey(99))
                && reserve.withdraw(SourceKey(99))
                && !reserve.withdraw(SourceKey(99))
        );
    }

    #[test]
    fn headers_count_too() {
        let framing = Framing::new(Bytes::new(1300), Bytes::new(50)).unwrap();
        assert_eq!(framing.wire(Bytes::kb(10)), Bytes::new(10_400));
        assert_eq!(framing.wire(Bytes::ZERO), Bytes::ZERO);
        assert_eq!(framing.wire(Bytes::MAX), Bytes::MAX);
        assert_eq!(Framing::NONE.wire(Bytes::kb(10)), Bytes::kb(10));
        assert_eq!(Framing::new(Bytes::ZERO, Bytes::ZERO), Err(FramingError::ZeroPayload));
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Declare(u64, u64, u64, u64),
        Learn(u64, u64),
        Release(u64, u64),
        Use(u64, u64),
        Lose(u8),
        Withdraw(u64),
        Advance(u8, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..20u64, prop_oneof![1..300u64, Just(u64::MAX)], 0..50u64, any::<u64>())
                .prop_map(|(key, period, size, next)| Op::Declare(key, period, size, next)),
            (0..20u64, 1..300u64).prop_map(|(key, period)| Op::Learn(key, period)),
            (0..20u64, 0..50u64).prop_map(|(key, len)| Op::Release(key, len)),
            (0..40u64, 0..50u64).prop_map(|(message, left)| Op::Use(message, left)),
            (0..3u8).prop_map(Op::Lose),
            (0..20u64).prop_map(Op::Withdraw),
            (0..8u8, prop_oneof![1..200u64, Just(u64::MAX / 1_000_000)])
                .prop_map(|(set, rtt)| Op::Advance(set, rtt)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_sums_are_those_of_the_holds(
            ops in prop::collection::vec((op(), prop_oneof![20 => 0..60u64, 1 => Just(100_000_000u64)]), 1..200),
            placement in prop::sample::select(&[Placement::Fastest, Placement::EveryLane][..]),
        ) {
            let mut reserve = Reserve::new(placement, Framing::NONE);
            let (mut now, mut messages) = (Time::ZERO, 0);
            for (op, step) in ops {
                now += Duration::from_millis(step);
                match op {
                    Op::Declare(key, period, size, next) => {
                        // A near time or an extreme one.
                        let next = if next % 4 == 0 { Time::from_nanos(next) } else { now + Duration::from_millis(next % 300) };
                        let period = Duration::from_millis(period);
                        let _ = reserve.declare(SourceKey(key), Source::new(period, Bytes::kb(size), next));
                    }
                    Op::Learn(key, period) => {
                        let period = Duration::from_millis(period);
                        let _ = reserve.learn(SourceKey(key), Source::new(period, Bytes::kb(1), now + period));
                    }
                    Op::Release(key, len) => {
                        messages += 1;
                        reserve.released(now, SourceKey(key), messages, Bytes::kb(len));
                    }
                    Op::Use(message, left) => reserve.used(messages.saturating_sub(message), Bytes::kb(left)),
                    Op::Lose(index) => reserve.lost(LaneId::new(index).unwrap()),
                    Op::Withdraw(key) => { reserve.withdraw(SourceKey(key)); }
                    Op::Advance(set, rtt) => {
                        let lanes = [0u8, 1, 2].map(|i| lane(i, rtt / (u64::from(i) + 1)));
                        let among = lanes.iter().filter(|lane| set & (1 << lane.id.index()) != 0).map(|lane| lane.id);
                        reserve.advance(now, &lanes, among.collect());
                    }
                }
                prop_assert_eq!(reserve.sums(), reserve.books.reserved);
            }
        }
    }
}
