//! Lane scheduling over two layers: the network serves the high one first, and the low one with the
//! rest (PLT §3).
//!
//! [`Layered`] wraps any other scheduler, which still chooses among the high lanes. Data that exceeds their
//! room takes a low lane in the same flight. Losses of a low lane are repaired on a high one.

use marcato_units::{Bytes, Layer, Priority, Time};

use super::{Choice, LaneScheduler, Offer, Purpose, Unused, Wait, fastest, one_or_wait};
use crate::lane::{LaneId, LaneSet, LaneView, MAX_LANES};
use crate::reserve::{DeclareError, Source, SourceKey};

/// Lanes that new data of a level takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference {
    /// A high lane while one has room; the excess goes on a low one in the same flight.
    #[default]
    HighFirst,
    /// High lanes only.
    HighOnly,
    /// Low lanes only, while the whole window of at least one takes the packet.
    LowOnly,
}

/// Lanes that retransmit the losses of a low lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LowRepairs {
    /// The high lanes only (PLT §3.2.1).
    #[default]
    HighOnly,
    /// High lanes while one has room. Low lanes too if the high ones are full and the bytes to
    /// retransmit exceed this share of their windows. PLT's footnote 2: "very small when compared
    /// to the size of the retransmit buffer".
    LowBeyond {
        /// Share of the sum of the high lanes' windows, in thousandths.
        thousandths: u32,
    },
}

/// Configuration of the split between the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayeredConfig {
    /// Lanes that new data takes, for each level.
    pub preferences: [Preference; Priority::COUNT],
    /// Lanes that retransmit the losses of a low lane.
    pub low_repairs: LowRepairs,
}

impl LayeredConfig {
    /// Returns the paper's configuration: all data prefers the high lane, which also repairs the
    /// losses of low lanes (PLT §3.2.1).
    pub const fn paper() -> Self {
        Self { preferences: [Preference::HighFirst; Priority::COUNT], low_repairs: LowRepairs::HighOnly }
    }

    /// Returns the configuration for products: as the paper's, but low lanes retransmit at once if
    /// no high lane has room. PLT waits until the windows of the high ones are "very small"
    /// (footnote 2). An engine that sends no new data while retransmissions wait then stops the low
    /// lanes. At 50 Mbit/s, a loss of 0.1 % and buffers of a tenth of the bandwidth-delay product,
    /// that cost a quarter of the throughput.
    pub const fn marcato() -> Self {
        Self { low_repairs: LowRepairs::LowBeyond { thousandths: 0 }, ..Self::paper() }
    }

    /// Returns the configuration for CATS over PLT: P0 and P1 take the high lane up to its window
    /// and the low lane for the excess, in the same flight. All other levels take the low lane.
    pub const fn cats() -> Self {
        let (first, low) = (Preference::HighFirst, Preference::LowOnly);
        Self { preferences: [first, first, low, low, low], ..Self::marcato() }
    }

    /// Sets the preference for data of this level.
    #[must_use]
    pub const fn prefer(mut self, priority: Priority, preference: Preference) -> Self {
        self.preferences[priority.index()] = preference;
        self
    }
}

impl Default for LayeredConfig {
    fn default() -> Self {
        Self::marcato()
    }
}

/// Uses lanes of the low layer for data that the high ones have no room for.
///
/// Among high lanes, `S` chooses, and sees no other as usable. Among low ones the fastest with room
/// is taken. Losses of a low lane are retransmitted on a high one. If either layer has no usable
/// lane, `S` chooses among all lanes, so that nothing stalls: a low lane then carries everything. A
/// backup lane is used only if no regular lane is usable.
#[derive(Clone, Debug)]
pub struct Layered<S> {
    base: S,
    config: LayeredConfig,
    /// Bytes waiting for retransmission.
    owed: Bytes,
}

/// Usable lanes of each layer, without backups.
struct Layers {
    high: LaneSet,
    low: LaneSet,
}

impl Layers {
    fn of(lanes: &[LaneView]) -> Self {
        let (mut high, mut low) = (LaneSet::EMPTY, LaneSet::EMPTY);
        for lane in lanes.iter().filter(|lane| lane.usable && !lane.backup) {
            match lane.layer {
                Layer::High => high.insert(lane.id),
                Layer::Low => low.insert(lane.id),
            }
        }
        Self { high, low }
    }
}

impl<S: LaneScheduler> Layered<S> {
    /// Creates a scheduler that lets `base` choose among high lanes.
    pub const fn new(base: S, config: LayeredConfig) -> Self {
        Self { base, config, owed: Bytes::ZERO }
    }

    /// Scheduler of the high lanes.
    pub const fn base(&self) -> &S {
        &self.base
    }

    /// Scheduler of the high lanes, for changes to it.
    pub const fn base_mut(&mut self) -> &mut S {
        &mut self.base
    }

    /// Configuration of the split.
    pub const fn config(&self) -> &LayeredConfig {
        &self.config
    }

    /// Asks the base with only the high lanes usable.
    fn high(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        let mut seen = [LaneView::new(LaneId::FIRST, Bytes::ZERO, core::time::Duration::ZERO); MAX_LANES];
        let count = lanes.len().min(MAX_LANES);
        for (seen, lane) in seen.iter_mut().zip(lanes) {
            *seen = LaneView { usable: lane.usable && lane.layer == Layer::High, ..*lane };
        }
        self.base.choose(now, &seen[..count], purpose, len)
    }

    /// True if enough bytes wait for retransmission for low lanes to help.
    fn low_may_repair(&self, lanes: &[LaneView], high: LaneSet) -> bool {
        let LowRepairs::LowBeyond { thousandths } = self.config.low_repairs else { return false };
        let windows: Bytes = lanes.iter().filter(|lane| high.contains(lane.id)).map(|lane| lane.cwnd).sum();
        u128::from(self.owed.get()) * 1000 > u128::from(windows.get()) * u128::from(thousandths)
    }
}

impl<S: LaneScheduler> LaneScheduler for Layered<S> {
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        let Layers { high, low } = Layers::of(lanes);
        if high.is_empty() || low.is_empty() {
            return self.base.choose(now, lanes, purpose, len);
        }
        let below = |among: LaneSet| one_or_wait(fastest(lanes, among, len, |_| Bytes::ZERO), among);
        match purpose {
            Purpose::New(fresh) => match self.config.preferences[fresh.priority.index()] {
                Preference::HighOnly => self.high(now, lanes, purpose, len),
                Preference::HighFirst => match self.high(now, lanes, purpose, len) {
                    // Includes waits for room reserved for others: the packet takes a low lane
                    // instead.
                    wait @ Choice::Wait(_) => match below(low) {
                        Choice::Wait(_) => wait,
                        choice => choice,
                    },
                    choice => choice,
                },
                Preference::LowOnly => {
                    // A window that has collapsed to less than a packet would never send it.
                    let open = lanes.iter().filter(|lane| lane.cwnd >= len).map(|lane| lane.id);
                    let open = low.and(open.collect());
                    if open.is_empty() { self.high(now, lanes, purpose, len) } else { below(open) }
                }
            },
            // PLT §3.2.1: high lanes retransmit the losses of low ones; footnote 2 allows an
            // exception.
            Purpose::Retransmission { .. } => match self.high(now, lanes, purpose, len) {
                wait @ Choice::Wait(_) if self.low_may_repair(lanes, high) => match below(low) {
                    Choice::Wait(_) => wait,
                    choice => choice,
                },
                choice => choice,
            },
            Purpose::Duplicate { carried, .. } => match self.high(now, lanes, purpose, len) {
                // A copy that waits for a reservation or for the budget must not take a low lane
                // instead.
                wait @ Choice::Wait(Wait::NoLane | Wait::NoRoom) => match below(low.without(carried)) {
                    Choice::Wait(_) => wait,
                    choice => choice,
                },
                choice => choice,
            },
        }
    }

    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        self.base.sent(now, lane, purpose, len);
    }

    fn acked(&mut self, now: Time, lane: LaneId, len: Bytes) {
        self.base.acked(now, lane, len);
    }

    fn lost(&mut self, now: Time, lane: LaneId) {
        self.base.lost(now, lane);
    }

    fn owes(&mut self, waiting: Bytes) {
        self.owed = waiting;
        self.base.owes(waiting);
    }

    fn message_offered(&mut self, now: Time, offer: &Offer) {
        self.base.message_offered(now, offer);
    }

    fn message_complete(&mut self, now: Time, message: u64) {
        self.base.message_complete(now, message);
    }

    fn reserved(&self, now: Time, lane: &LaneView) -> Bytes {
        match lane.layer {
            Layer::High => self.base.reserved(now, lane),
            Layer::Low => Bytes::ZERO,
        }
    }

    fn wakeup(&self) -> Option<Time> {
        self.base.wakeup()
    }

    fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.base.declare(key, source)
    }

    fn withdraw(&mut self, key: SourceKey) -> bool {
        self.base.withdraw(key)
    }

    fn source(&self, key: SourceKey) -> Option<Source> {
        self.base.source(key)
    }

    fn unused(&self) -> Unused {
        self.base.unused()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cwr, CwrConfig, CwrRed, Fresh, LowRtt};
    use super::*;
    use crate::conductor::Redundancy;
    use core::time::Duration;

    const NOW: Time = Time::ZERO;
    const PACKET: Bytes = Bytes::kb(1);

    fn high(index: u8, window: u64, millis: u64) -> LaneView {
        LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(window), Duration::from_millis(millis))
    }

    fn low(index: u8, window: u64, millis: u64) -> LaneView {
        LaneView { layer: Layer::Low, ..high(index, window, millis) }
    }

    fn full(lane: LaneView) -> LaneView {
        LaneView { in_flight: lane.cwnd, ..lane }
    }

    fn fresh(priority: Priority) -> Purpose {
        Purpose::New(Fresh::new(1, priority, Bytes::kb(100)))
    }

    const AGAIN: Purpose = Purpose::Retransmission { priority: Priority::P2, lost_on: LaneId::FIRST };

    fn paper(lanes: &[LaneView], purpose: Purpose) -> Choice {
        Layered::new(LowRtt::new(), LayeredConfig::paper()).choose(NOW, lanes, purpose, PACKET)
    }

    #[test]
    fn new_data_takes_the_high_lane_until_it_is_full_then_the_low() {
        let (slow, quick) = (high(0, 4, 80), low(1, 4, 10));
        for priority in Priority::ALL {
            assert_eq!(paper(&[slow, quick], fresh(priority)), Choice::One(slow.id));
            assert_eq!(paper(&[full(slow), quick], fresh(priority)), Choice::One(quick.id));
            assert_eq!(paper(&[full(slow), full(quick)], fresh(priority)), Choice::Wait(Wait::NoRoom));
        }
    }

    #[test]
    fn losses_are_repaired_on_the_high_lane_and_wait_for_it() {
        let (slow, quick) = (high(0, 4, 80), low(1, 400, 10));
        assert_eq!(paper(&[slow, quick], AGAIN), Choice::One(slow.id));
        assert_eq!(paper(&[full(slow), quick], AGAIN), Choice::Wait(Wait::NoRoom));
        assert_eq!(
            paper(&[LaneView { usable: false, ..slow }, quick], AGAIN),
            Choice::One(quick.id),
            "or on what there is"
        );
    }

    #[test]
    fn low_lanes_carry_repairs_when_the_backlog_exceeds_the_windows() {
        let lanes = [full(high(0, 4, 80)), low(1, 400, 10)];
        let low_repairs = LowRepairs::LowBeyond { thousandths: 1000 };
        let config = LayeredConfig { low_repairs, ..LayeredConfig::paper() };
        let mut scheduler = Layered::new(LowRtt::new(), config);
        for (owed, choice) in
            [(4, Choice::Wait(Wait::NoRoom)), (5, Choice::One(lanes[1].id)), (0, Choice::Wait(Wait::NoRoom))]
        {
            scheduler.owes(Bytes::kb(owed));
            assert_eq!(scheduler.choose(NOW, &lanes, AGAIN, PACKET), choice, "{owed} kB wait");
        }
        // With a threshold of zero, one byte is enough.
        let mut scheduler = Layered::new(LowRtt::new(), LayeredConfig::marcato());
        scheduler.owes(PACKET);
        assert_eq!(scheduler.choose(NOW, &lanes, AGAIN, PACKET), Choice::One(lanes[1].id));
        // The paper's configuration does not, and neither does the other while a high lane has
        // room.
        let mut scheduler = Layered::new(LowRtt::new(), LayeredConfig::paper());
        scheduler.owes(Bytes::kb(500));
        assert_eq!(scheduler.choose(NOW, &lanes, AGAIN, PACKET), Choice::Wait(Wait::NoRoom));
        let mut scheduler = Layered::new(LowRtt::new(), LayeredConfig::marcato());
        scheduler.owes(Bytes::kb(500));
        assert_eq!(
            scheduler.choose(NOW, &[high(0, 4, 80), lanes[1]], AGAIN, PACKET),
            Choice::One(lanes[0].id)
        );
    }

    #[test]
    fn with_cats_p0_and_p1_use_either_lane_and_the_rest_a_low_one() {
        let (slow, quick) = (high(0, 4, 80), low(1, 4, 10));
        let choose = |lanes: &[LaneView], priority| {
            let mut scheduler = Layered::new(LowRtt::new(), LayeredConfig::cats());
            scheduler.choose(NOW, lanes, fresh(priority), PACKET)
        };
        for priority in [Priority::P0, Priority::P1] {
            assert_eq!(choose(&[slow, quick], priority), Choice::One(slow.id));
            assert_eq!(choose(&[full(slow), quick], priority), Choice::One(quick.id));
        }
        for priority in [Priority::P2, Priority::P3, Priority::P4] {
            assert_eq!(choose(&[slow, quick], priority), Choice::One(quick.id));
            assert_eq!(choose(&[slow, full(quick)], priority), Choice::Wait(Wait::NoRoom));
            // No low lane is usable.
            assert_eq!(choose(&[slow, LaneView { usable: false, ..quick }], priority), Choice::One(slow.id));
            assert_eq!(choose(&[slow, low(1, 0, 10)], priority), Choice::One(slow.id));
        }
        let only = LayeredConfig::paper().prefer(Priority::P0, Preference::HighOnly);
        let mut scheduler = Layered::new(LowRtt::new(), only);
        assert_eq!(
            scheduler.choose(NOW, &[full(slow), quick], fresh(Priority::P0), PACKET),
            Choice::Wait(Wait::NoRoom)
        );
    }

    #[test]
    fn when_all_high_lanes_are_down_the_low_ones_carry_everything() {
        let lanes = [LaneView { usable: false, ..high(0, 4, 10) }, low(1, 4, 80)];
        for priority in Priority::ALL {
            for config in [LayeredConfig::paper(), LayeredConfig::cats()] {
                let mut scheduler = Layered::new(LowRtt::new(), config);
                for purpose in [fresh(priority), Purpose::Retransmission { priority, lost_on: lanes[0].id }] {
                    assert_eq!(scheduler.choose(NOW, &lanes, purpose, PACKET), Choice::One(lanes[1].id));
                }
            }
        }
        assert_eq!(paper(&lanes[..1], fresh(Priority::P2)), Choice::Wait(Wait::NoLane));
    }

    #[test]
    fn a_backup_high_lane_is_spared_while_a_low_one_works() {
        let spare = LaneView { backup: true, ..high(0, 4, 10) };
        assert_eq!(paper(&[spare, low(1, 4, 80)], fresh(Priority::P0)), Choice::One(LaneId::new(1).unwrap()));
        assert_eq!(paper(&[spare, full(low(1, 4, 80))], AGAIN), Choice::Wait(Wait::NoRoom));
    }

    #[test]
    fn the_base_chooses_among_high_lanes_alone() {
        let lanes = [high(0, 4, 80), high(1, 4, 50), low(2, 4, 10), low(3, 4, 5)];
        assert_eq!(paper(&lanes, fresh(Priority::P0)), Choice::One(lanes[1].id));
        // Copies of an urgent message go on each high lane.
        let mut red = Layered::new(CwrRed::new(CwrConfig::paper()).unwrap(), LayeredConfig::paper());
        let redundancy = Redundancy::EveryLane;
        let urgent = Purpose::New(Fresh { redundancy, ..Fresh::new(1, Priority::P0, PACKET) });
        let both = [lanes[0].id, lanes[1].id].into_iter().collect();
        assert_eq!(red.choose(NOW, &lanes, urgent, PACKET), Choice::Each(both));
    }

    #[test]
    fn a_copy_goes_to_a_high_or_low_lane_without_the_same_data() {
        let lanes = [full(high(0, 4, 80)), low(1, 4, 5), low(2, 4, 10)];
        let copy = |lanes: &[LaneView], carried: &[usize]| {
            let carried = carried.iter().map(|&at| lanes[at].id).collect();
            paper(lanes, Purpose::Duplicate { priority: Priority::P0, carried })
        };
        let [high_lane, quick, slow] = [0, 1, 2].map(|at: usize| lanes[at].id);
        assert_eq!(copy(&lanes, &[0]), Choice::One(quick));
        assert_eq!(
            copy(&lanes, &[0, 1]),
            Choice::One(slow),
            "not beside the original, although that lane is faster"
        );
        assert_eq!(copy(&lanes[..2], &[0, 1]), Choice::Wait(Wait::NoLane));
        // A high lane that has room and does not carry it comes first.
        let open = [high(0, 4, 80), lanes[1], lanes[2]];
        assert_eq!(copy(&open, &[1]), Choice::One(high_lane));
    }

    #[test]
    fn background_data_blocked_by_a_reservation_takes_the_low_lane() {
        let mut cwr = Cwr::new(CwrConfig::paper()).unwrap();
        let source = Source::new(Duration::from_secs(1), Bytes::kb(3), Time::from_millis(20));
        cwr.declare(SourceKey(1), source).unwrap();
        let mut scheduler = Layered::new(cwr, LayeredConfig::paper());
        let (mut high, low) = (high(0, 4, 80), low(1, 4, 80));
        let background = fresh(Priority::P4);
        assert_eq!(scheduler.choose(NOW, &[high, low], background, PACKET), Choice::One(high.id));
        scheduler.sent(NOW, &high, background, PACKET);
        high.in_flight += PACKET;
        assert_eq!(scheduler.reserved(NOW, &high), Bytes::kb(3));
        assert_eq!(scheduler.reserved(NOW, &low), Bytes::ZERO);
        assert_eq!(scheduler.choose(NOW, &[high, low], background, PACKET), Choice::One(low.id));
        assert_eq!(
            scheduler.choose(NOW, &[high, full(low)], background, PACKET),
            Choice::Wait(Wait::Reserved)
        );
        assert_eq!(scheduler.choose(NOW, &[high, low], fresh(Priority::P0), PACKET), Choice::One(high.id));
    }
}
