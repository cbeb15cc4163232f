//! Cached times at which a hold may open or lapse.

use marcato_units::Time;

use super::Placement;
use super::slot::Slot;
use crate::lane::{LaneId, LaneSet, MAX_LANES};

/// Next times at which a hold may open or lapse, cached until a source or a hold changes.
///
/// Most calls come before all of these times and need to look at no source.
#[derive(Clone, Debug)]
pub(super) struct Deadlines {
    /// Lanes on which room may be held.
    lanes: LaneSet,
    /// `None` if the cache is stale.
    cached: Option<Times>,
}

/// Next times at which a hold may open or lapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// Per lane, the earliest release without a hold, less its jitter. No horizon opens on a lane
    /// on which a packet sent now is acknowledged before this.
    opens: [Time; MAX_LANES],
    /// No release lapses before this.
    lapses: Time,
}

impl Deadlines {
    pub(super) const fn new() -> Self {
        Self { lanes: LaneSet::EMPTY, cached: None }
    }

    /// Records that a source changed, or that a hold was made, given to a message, or removed.
    pub(super) const fn void(&mut self) {
        self.cached = None;
    }

    /// Sets the lanes on which room may be held. Returns whether they changed.
    pub(super) fn set_lanes(&mut self, lanes: LaneSet) -> bool {
        let moved = self.lanes != lanes;
        if moved {
            self.lanes = lanes;
            self.void();
        }
        moved
    }

    /// Returns the times for these sources.
    #[inline]
    pub(super) fn times(&mut self, slots: &[Option<Slot>], placement: Placement) -> &Times {
        self.cached.get_or_insert_with(|| Times::of(slots, placement, self.lanes))
    }
}

impl Times {
    /// Computes the times anew.
    // Inlined, it slows the calls that find a cache that is not stale.
    #[cold]
    #[inline(never)]
    fn of(slots: &[Option<Slot>], placement: Placement, lanes: LaneSet) -> Self {
        let mut times = Self { opens: [Time::MAX; MAX_LANES], lapses: Time::MAX };
        let mut unheld = Time::MAX;
        for slot in slots.iter().flatten() {
            let jitter = slot.source.jitter;
            if let Some(release) = slot.next_unheld() {
                unheld = unheld.min(release - jitter);
                // Releases that pass without any call must lapse as well.
                times.lapses = times.lapses.min(slot.source.lapse(release));
            }
            for hold in slot.holds() {
                times.lapses = times.lapses.min(hold.lapse(&slot.source));
                if placement == Placement::EveryLane && hold.awaits_message() {
                    for lane in lanes.without(hold.on.or(hold.dropped)).iter() {
                        let opens = &mut times.opens[lane.index()];
                        *opens = (*opens).min(hold.release - jitter);
                    }
                }
            }
        }
        for opens in &mut times.opens {
            *opens = (*opens).min(unheld);
        }
        times
    }

    /// Returns whether a hold may open on a lane with this horizon.
    pub(super) fn opened(&self, lane: LaneId, horizon: Time) -> bool {
        horizon >= self.opens[lane.index()]
    }

    /// Returns whether a release or a hold may have lapsed before `now`.
    pub(super) fn lapsed(&self, now: Time) -> bool {
        now > self.lapses
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use marcato_units::Bytes;
    use proptest::prelude::*;

    use super::super::{Framing, Reserve, Source, SourceKey, operation};
    use super::*;
    use crate::lane::LaneView;

    const KEY: SourceKey = SourceKey(7);

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn lane(index: u8, millis: u64) -> LaneView {
        LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(100), Duration::from_millis(millis))
    }

    /// Returns a source of 10 kB each 80 ms.
    fn source(next: u64) -> Source {
        Source::new(Duration::from_millis(80), Bytes::kb(10), ms(next))
    }

    fn advance(reserve: &mut Reserve, at: u64, lanes: &[LaneView]) {
        reserve.advance(ms(at), lanes, lanes.iter().map(|lane| lane.id).collect());
    }

    /// Creates a table with a source whose next release, at 100 ms, is held on the first of two
    /// lanes.
    fn held(placement: Placement) -> Reserve {
        let mut reserve = Reserve::new(placement, Framing::NONE);
        reserve.declare(KEY, source(100)).unwrap();
        advance(&mut reserve, 50, &[lane(0, 50), lane(1, 20)]);
        if placement == Placement::Fastest {
            advance(&mut reserve, 80, &[lane(0, 20), lane(1, 50)]);
        }
        reserve
    }

    /// Returns the times, the horizons of the first two lanes among them, in ms.
    fn times(reserve: &mut Reserve) -> (u64, [u64; 2]) {
        let times = reserve.deadlines.times(&reserve.slots, reserve.books.placement);
        let millis = |time: Time| time.as_nanos() / 1_000_000;
        (millis(times.lapses), [0, 1].map(|index| millis(times.opens[index])))
    }

    #[test]
    fn without_a_hold_the_next_release_opens_and_lapses() {
        let mut reserve = Reserve::new(Placement::Fastest, Framing::NONE);
        let never = Time::MAX.as_nanos() / 1_000_000;
        assert_eq!(times(&mut reserve), (never, [never; 2]));
        reserve.declare(KEY, source(100).with_jitter(Duration::from_millis(5))).unwrap();
        reserve.declare(SourceKey(8), source(300)).unwrap();
        assert_eq!(times(&mut reserve), (115, [95; 2]));
    }

    #[test]
    fn a_held_release_lapses_and_the_next_one_opens() {
        assert_eq!(times(&mut held(Placement::Fastest)), (110, [180; 2]));
    }

    #[test]
    fn a_release_opens_on_each_lane_that_does_not_hold_it() {
        let mut reserve = held(Placement::EveryLane);
        assert_eq!(times(&mut reserve), (110, [180, 100]));
        // A lane that lost it does not hold it again.
        reserve.lost(LaneId::FIRST);
        reserve.deadlines.void();
        assert_eq!(times(&mut reserve), (110, [180, 100]));
        reserve.released(ms(100), KEY, 1, Bytes::kb(10));
        assert_eq!(times(&mut reserve), (180, [180, 180]));
    }

    #[test]
    fn each_change_of_a_time_makes_the_cache_stale() {
        type Change = fn(&mut Reserve);
        let nothing: Change = |_| {};
        let learn: Change = |reserve| reserve.learn(SourceKey(8), source(90)).unwrap();
        let release: Change = |reserve| reserve.released(ms(100), KEY, 1, Bytes::kb(10));
        let changes: [(&str, Change, Change); 10] = [
            ("declared", nothing, |reserve| reserve.declare(SourceKey(8), source(90)).unwrap()),
            ("declared anew", nothing, |reserve| reserve.declare(KEY, source(300)).unwrap()),
            ("learned", nothing, learn),
            ("withdrawn", nothing, |reserve| assert!(reserve.withdraw(KEY))),
            ("unlearned", learn, |reserve| assert!(reserve.unlearn(SourceKey(8)))),
            ("released", nothing, release),
            ("used", release, |reserve| reserve.used(1, Bytes::ZERO)),
            ("held", nothing, |reserve| advance(reserve, 109, &[lane(0, 80), lane(1, 80)])),
            ("lapsed", nothing, |reserve| advance(reserve, 111, &[lane(0, 20), lane(1, 20)])),
            ("a lane gone", nothing, |reserve| advance(reserve, 51, &[lane(0, 50)])),
        ];
        for (change, prepare, apply) in changes {
            let mut reserve = held(Placement::EveryLane);
            prepare(&mut reserve);
            let before = times(&mut reserve);
            apply(&mut reserve);
            let after = times(&mut reserve);
            reserve.deadlines.void();
            assert_eq!(after, times(&mut reserve), "{change}");
            assert_ne!(after, before, "{change}");
        }
    }

    #[test]
    fn another_set_of_lanes_makes_the_cache_stale() {
        let mut reserve = held(Placement::EveryLane);
        assert_eq!(times(&mut reserve), (110, [180, 100]));
        assert!(reserve.deadlines.set_lanes(LaneSet::one(LaneId::FIRST)));
        assert_eq!(times(&mut reserve), (110, [180, 180]));
        assert!(!reserve.deadlines.set_lanes(LaneSet::one(LaneId::FIRST)));
    }

    #[test]
    fn calls_that_move_no_time_keep_the_cache() {
        let mut reserve = held(Placement::Fastest);
        reserve.released(ms(100), KEY, 1, Bytes::kb(10));
        let cached = times(&mut reserve);
        reserve.used(1, Bytes::kb(5));
        reserve.lost(LaneId::FIRST);
        advance(&mut reserve, 120, &[lane(0, 20), lane(1, 50)]);
        assert!(reserve.deadlines.cached.is_some(), "a call voided the cache");
        assert_eq!(times(&mut reserve), cached);
        reserve.deadlines.void();
        assert_eq!(times(&mut reserve), cached, "a call moved a time");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// The cache only saves work: a table that looks at every source whenever it may gives the
        /// same answers.
        #[test]
        fn a_table_that_always_looks_finds_no_more(
            steps in operation::steps(),
            placement in prop::sample::select(&[Placement::Fastest, Placement::EveryLane][..]),
        ) {
            let state = |reserve: &Reserve| {
                let reserved = [0, 1, 2].map(|lane| reserve.reserved(LaneId::new(lane).unwrap()));
                let sources = core::array::from_fn::<_, 20, _>(|key| reserve.source(SourceKey(key as u64)));
                (reserved, reserve.lapses(), *reserve.counters(), sources)
            };
            let mut reserve = Reserve::new(placement, Framing::NONE);
            let mut naive = reserve.clone();
            for step in steps {
                if let Some(now) = step.looks_at() {
                    naive.deadlines.cached = Some(Times { opens: [Time::ZERO; MAX_LANES], lapses: Time::ZERO });
                    naive.lapse(now);
                }
                naive.deadlines.cached = Some(Times { opens: [Time::ZERO; MAX_LANES], lapses: Time::MAX });
                step.apply(&mut reserve);
                step.apply(&mut naive);
                prop_assert_eq!(state(&reserve), state(&naive), "{:?}", step);
                prop_assert_eq!(reserve.held_for(step.number()), naive.held_for(step.number()));
            }
        }
    }
}
