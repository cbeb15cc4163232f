//! Table of flows with a fixed size.
//!
//! References: CAKE's set-associative hash (eight places per set), RFC 7011 §2 (idle time-out of
//! flows). The number of steps per packet is constant, and nothing is allocated after the table is
//! created. A host that opens many flows takes places from silent flows, not from flows that send.

use alloc::vec::Vec;

use marcato_units::{Duration, Time};

use crate::FlowKey;

/// Number of flows that share a set.
const WAYS: usize = 8;
/// Number of packets after which a flow keeps its place until it was idle for long.
const PROVEN: u8 = 16;
/// Unit of ages: steps of 2^20 ns, about a millisecond, which wrap after 52 days.
const AGE_SHIFT: u32 = 20;

/// Configuration of a table of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowTableConfig {
    /// Number of flows for which there is room, rounded up to a power of two.
    ///
    /// A flow has one of 8 places. With half of the room in use, about one flow in 700 finds its
    /// places taken, and is served without being assessed.
    pub flows: u32,
    /// Time without a packet after which a flow's place may be given to another.
    pub idle: Duration,
    /// Idle time for flows of which no more than a few packets were seen, such as those of a port
    /// scan.
    pub embryonic: Duration,
    /// Secret that is mixed into flow keys, so that nobody who does not know it can crowd one set.
    pub secret: u64,
}

impl Default for FlowTableConfig {
    /// 65 536 flows, 30 s, 1 s, and 0 instead of a secret.
    fn default() -> Self {
        Self { flows: 65_536, idle: Duration::from_secs(30), embryonic: Duration::from_secs(1), secret: 0 }
    }
}

/// Error returned for a [`FlowTableConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowTableError {
    /// The table has room for no flow.
    #[error("a table for 0 flows judges no flow: give it room for at least 8")]
    NoFlows,
    /// The table has room for more flows than can be numbered.
    #[error("a table for {0} flows would take hundreds of gigabytes: give it room for 16777216 at most")]
    TooMany(u32),
}

/// Counters of a table of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowTableCounters {
    /// Flows in the table now.
    pub flows: u64,
    /// Flows that were given a place.
    pub created: u64,
    /// Flows that were given the place of an idle flow. They are also counted as created.
    pub evicted: u64,
    /// Packets of flows for which there was no place. Such packets are served without being
    /// assessed.
    pub refused: u64,
}

/// Name of a flow's place, valid for as long as the flow has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    index: u32,
    generation: u32,
}

/// Set of eight flows. All that is needed to find one of them stands in one cache line.
///
/// With many flows, a packet costs as much as the lines, and the pages, that it touches.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Set {
    /// Tags: 16 bits of the mixed keys; 0 is no flow. The keys themselves are in the slots.
    tags: [u16; WAYS],
    /// Indices of the flows' slots.
    slots: [u32; WAYS],
    /// Number of packets of each flow, counted up to [`PROVEN`].
    packets: [u8; WAYS],
}

/// Slot of a flow. It begins with a cache line, which holds the first of the value's fields as
/// well.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Slot<T> {
    generation: u32,
    /// Time of the flow's last packet, in steps.
    seen: u32,
    key: FlowKey,
    value: T,
}

#[derive(Clone, Debug)]
pub(crate) struct FlowTable<T> {
    sets: Vec<Set>,
    /// Slots in the order in which they were first taken: in a large table, too, few flows take few
    /// pages.
    slots: Vec<Slot<T>>,
    secret: u64,
    idle: u32,
    embryonic: u32,
    counters: FlowTableCounters,
}

impl<T: Default> FlowTable<T> {
    pub(crate) fn new(config: FlowTableConfig) -> Result<Self, FlowTableError> {
        if config.flows == 0 {
            return Err(FlowTableError::NoFlows);
        }
        if config.flows > 1 << 24 {
            return Err(FlowTableError::TooMany(config.flows));
        }
        let sets = (config.flows.next_power_of_two() as usize / WAYS).max(1);
        let set = Set { tags: [0; WAYS], slots: [0; WAYS], packets: [0; WAYS] };
        let steps =
            |span: Duration| u32::try_from(span.as_nanos() >> AGE_SHIFT).unwrap_or(u32::MAX >> 1).max(1);
        Ok(Self {
            sets: alloc::vec![set; sets],
            slots: Vec::with_capacity(sets * WAYS),
            secret: config.secret,
            idle: steps(config.idle),
            embryonic: steps(config.embryonic),
            counters: FlowTableCounters::default(),
        })
    }

    /// Place of `key` at `now`, which takes one if it has none; `None` if there is none to take.
    pub(crate) fn enter(&mut self, now: Time, key: FlowKey) -> Option<Place> {
        let now = step(now);
        let (at, tag) = self.set_of(key);
        if let Some(way) = self.way_of(at, tag, key) {
            let set = &mut self.sets[at];
            if set.packets[way] < PROVEN {
                set.packets[way] += 1;
            }
            let slot = set.slots[way];
            self.slots[slot as usize].seen = now;
            return Some(self.place(slot));
        }
        let Some((way, slot)) = self.vacate(at, now, key) else {
            self.counters.refused += 1;
            return None;
        };
        self.counters.created += 1;
        let set = &mut self.sets[at];
        (set.tags[way], set.slots[way], set.packets[way]) = (tag, slot, 1);
        Some(self.place(slot))
    }

    /// Place of `key`, if it has one. The flow's age stays as it is.
    pub(crate) fn find(&self, key: FlowKey) -> Option<Place> {
        let (at, tag) = self.set_of(key);
        let way = self.way_of(at, tag, key)?;
        Some(self.place(self.sets[at].slots[way]))
    }

    /// Value at `place`, unless the place was given to another flow.
    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let slot = self.slots.get_mut(place.index as usize)?;
        (slot.generation == place.generation).then_some(&mut slot.value)
    }

    pub(crate) fn get(&self, place: Place) -> Option<&T> {
        let slot = self.slots.get(place.index as usize)?;
        (slot.generation == place.generation).then_some(&slot.value)
    }

    /// All flows, in an order that has no meaning but is the same in every run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowKey, &T)> {
        self.slots.iter().map(|slot| (slot.key, &slot.value))
    }

    pub(crate) const fn counters(&self) -> &FlowTableCounters {
        &self.counters
    }

    /// Number of flows for which there is room.
    #[cfg(test)]
    fn room(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Set of `key`, and its tag there.
    #[allow(clippy::cast_possible_truncation, reason = "any bits are as good, if the set's are others")]
    fn set_of(&self, key: FlowKey) -> (usize, u16) {
        let mixed = mix(key, self.secret);
        ((mixed >> 32) as usize & (self.sets.len() - 1), (mixed as u16).max(1))
    }

    /// Position of `key` in its set. Another flow has the same tag once in 65 536 times, so the
    /// keys are compared as well.
    fn way_of(&self, set: usize, tag: u16, key: FlowKey) -> Option<usize> {
        let Set { tags, slots, .. } = &self.sets[set];
        (0..WAYS).find(|&way| tags[way] == tag && self.slots[slots[way] as usize].key == key)
    }

    fn place(&self, slot: u32) -> Place {
        Place { index: slot, generation: self.slots[slot as usize].generation }
    }

    /// Free way in the set and a slot for `key`, or those of the flow that was idle for longest, if
    /// that was long enough.
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^24 places")]
    fn vacate(&mut self, at: usize, now: u32, key: FlowKey) -> Option<(usize, u32)> {
        let set = &self.sets[at];
        if let Some(free) = set.tags.iter().position(|&tag| tag == 0) {
            self.counters.flows += 1;
            // The vector has room for as many slots as there are ways, so this allocates nothing.
            let slot = self.slots.len() as u32;
            self.slots.push(Slot { generation: 1, seen: now, key, value: T::default() });
            return Some((free, slot));
        }
        let idle = |way: usize| now.wrapping_sub(self.slots[set.slots[way] as usize].seen);
        let dispensable = |&way: &usize| {
            let limit = if set.packets[way] < PROVEN { self.embryonic.min(self.idle) } else { self.idle };
            idle(way) >= limit
        };
        let way = (0..WAYS).filter(dispensable).max_by_key(|&way| idle(way))?;
        self.counters.evicted += 1;
        let index = set.slots[way];
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        (slot.seen, slot.key, slot.value) = (now, key, T::default());
        Some((way, index))
    }
}

/// Steps at `now`, modulo 2^32.
#[allow(clippy::cast_possible_truncation, reason = "modulo 2^32")]
const fn step(now: Time) -> u32 {
    (now.as_nanos() >> AGE_SHIFT) as u32
}

/// Number that stands for `key`, one to one.
const fn mix(key: FlowKey, secret: u64) -> u64 {
    // Finaliser of the splitmix64 generator, as keys may be small numbers that count up.
    let mut mixed = key.get() ^ secret;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn table(flows: u32) -> FlowTable<u64> {
        FlowTable::new(FlowTableConfig { flows, ..FlowTableConfig::default() }).unwrap()
    }

    /// The first numbers of the splitmix64 generator with seed 0, as published with it.
    #[test]
    fn keys_are_mixed_as_splitmix64_does() {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let numbers = [STEP, STEP.wrapping_mul(2), STEP.wrapping_mul(3)];
        let expected = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(numbers.map(|number| mix(FlowKey::new(number), 0)), expected);
        assert_eq!(numbers.map(|number| mix(FlowKey::new(number ^ 5), 5)), expected);
    }

    #[test]
    fn a_scan_of_ports_takes_nothing_from_flows_that_send() {
        let mut table = table(1024);
        // Flows that were seen to send keep sending every 100 ms ...
        for key in 0..100 {
            for _ in 0..PROVEN {
                table.enter(Time::ZERO, FlowKey::new(key)).unwrap();
            }
        }
        let mut refused = 0;
        for millisecond in 0..10_000u64 {
            let now = Time::from_millis(millisecond);
            if millisecond % 100 == 0 {
                for key in 0..100 {
                    let place = table.enter(now, FlowKey::new(key)).unwrap();
                    *table.get_mut(place).unwrap() += 1;
                }
            }
            // ... while ten new tuples come every millisecond, ten times the room per second.
            for scan in 0..10 {
                let key = FlowKey::new(1_000_000 + millisecond * 10 + scan);
                refused += u64::from(table.enter(now, key).is_none());
            }
        }
        for key in 0..100 {
            let place = table.find(FlowKey::new(key)).unwrap();
            assert_eq!(table.get(place), Some(&100));
        }
        assert_eq!(table.counters().refused, refused);
        assert!(refused > 0 && table.counters().evicted > 0);
        // Once the scan is over, its places are free for others within a second.
        let now = Time::from_millis(11_100);
        let after = (0..100).filter(|key| table.enter(now, FlowKey::new(2_000_000 + key)).is_some()).count();
        assert_eq!(after, 100);
    }

    #[test]
    fn a_flow_that_sent_keeps_its_place_for_half_a_minute() {
        let mut table = table(8);
        for key in 0..8 {
            for _ in 0..PROVEN {
                table.enter(Time::ZERO, FlowKey::new(key)).unwrap();
            }
        }
        let late = FlowKey::new(99);
        assert_eq!(table.enter(Time::from_secs(29), late), None);
        let old = table.find(FlowKey::new(3)).unwrap();
        table.enter(Time::from_secs(29), FlowKey::new(3)).unwrap();
        assert!(table.enter(Time::from_millis(30_100), late).is_some());
        assert_eq!(table.counters().evicted, 1);
        assert!(table.get(old).is_some(), "it was seen lately");
        assert_eq!(table.iter().count(), 8);
    }

    #[test]
    fn the_flow_that_was_idle_for_longest_is_evicted_first() {
        let mut table = table(8);
        // Not in the order of their places: flow 5 was seen first, flow 2 last.
        for (second, key) in (0..).zip([5u64, 0, 7, 3, 6, 1, 4, 2]) {
            table.enter(Time::ZERO, FlowKey::new(key)).unwrap();
            table.enter(Time::from_secs(10 + second), FlowKey::new(key)).unwrap();
        }
        // Flow 0 has proven itself, and is not due for half a minute, though it was idle for longer
        // than most.
        for _ in 0..PROVEN {
            table.enter(Time::from_secs(11), FlowKey::new(0)).unwrap();
        }
        let known = |table: &FlowTable<u64>| -> Vec<u64> {
            (0..8).filter(|&key| table.find(FlowKey::new(key)).is_some()).collect()
        };
        let mut gone = Vec::new();
        for newcomer in 100..107 {
            let before = known(&table);
            table.enter(Time::from_secs(30), FlowKey::new(newcomer)).unwrap();
            let after = known(&table);
            gone.extend(before.into_iter().filter(|key| !after.contains(key)));
        }
        assert_eq!(gone, [5, 7, 3, 6, 1, 4, 2]);
        assert_eq!(table.enter(Time::from_secs(30), FlowKey::new(107)), None);
        assert!(table.enter(Time::from_secs(42), FlowKey::new(107)).is_some());
    }

    #[test]
    fn a_place_that_was_given_away_is_lost_to_the_old_flow() {
        let mut table = table(8);
        let places: Vec<Place> =
            (0..8).map(|key| table.enter(Time::ZERO, FlowKey::new(key)).unwrap()).collect();
        let now = Time::from_secs(2);
        for key in 8..16 {
            table.enter(now, FlowKey::new(key)).unwrap();
        }
        assert!(places.iter().all(|&place| table.get_mut(place).is_none()));
    }

    #[test]
    fn a_flow_is_found_in_one_cache_line() {
        assert_eq!(size_of::<Set>(), 64);
        assert_eq!(align_of::<Slot<u64>>(), 64);
    }

    #[test]
    fn flows_of_the_same_tag_in_the_same_set_are_two_flows() {
        let mut table = table(8);
        let (_, wanted) = table.set_of(FlowKey::new(0));
        let other = (1u64..).map(FlowKey::new).find(|&key| table.set_of(key).1 == wanted).unwrap();
        let places = [FlowKey::new(0), other].map(|key| table.enter(Time::ZERO, key).unwrap());
        assert_ne!(places[0], places[1]);
        assert_eq!([FlowKey::new(0), other].map(|key| table.find(key)), places.map(Some));
        *table.get_mut(places[1]).unwrap() = 7;
        assert_eq!(table.iter().collect::<Vec<_>>(), [(FlowKey::new(0), &0), (other, &7)]);
    }

    #[test]
    fn tables_that_cannot_work_are_errors() {
        let made = |flows| {
            FlowTable::<u64>::new(FlowTableConfig { flows, ..FlowTableConfig::default() })
                .map(|table| table.room())
        };
        assert_eq!(made(0), Err(FlowTableError::NoFlows));
        assert_eq!(made(u32::MAX), Err(FlowTableError::TooMany(u32::MAX)));
        assert_eq!((made(1), made(9), made(1000)), (Ok(8), Ok(16), Ok(1024)));
    }

    proptest! {
        #[test]
        fn the_table_never_exceeds_its_room_and_mixes_up_no_flows(
            flows in 1u32..200,
            steps in prop::collection::vec((0u64..400, 0u64..3_000_000_000), 1..600),
        ) {
            let mut table = table(flows);
            let room = table.room();
            let mut now = Time::ZERO;
            let mut counts: HashMap<u64, (Place, u64)> = HashMap::new();
            for (key, wait) in steps {
                // Mostly no time passes.
                if wait < 600_000_000 { now += Duration::from_nanos(wait); }
                let found = table.find(FlowKey::new(key));
                let entered = table.enter(now, FlowKey::new(key));
                prop_assert!(found.is_none() || found == entered);
                if let Some(place) = entered {
                    let value = table.get_mut(place).unwrap();
                    *value += 1;
                    let count = if found.is_some() { counts[&key].1 + 1 } else { 1 };
                    prop_assert_eq!(*value, count);
                    counts.insert(key, (place, count));
                }
                let counters = *table.counters();
                prop_assert!(counters.flows <= room as u64);
                prop_assert_eq!(table.iter().count() as u64, counters.flows);
                prop_assert_eq!(counters.created, counters.flows + counters.evicted);
            }
            for (key, value) in table.iter() {
                prop_assert_eq!(*value, counts[&key.get()].1);
            }
        }
    }
}
