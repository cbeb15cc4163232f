//! Responses that can send, in the order of their turns.

use alloc::vec::Vec;

use super::parameters::Parameters;
use super::urgency::Urgency;

/// Index of a response in the table.
pub(super) type Slot = u32;

/// Position of a response that is in no heap.
const NOWHERE: u32 = u32::MAX;

/// Responses of one urgency that are sequential, or those that are incremental.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(u8);

impl Group {
    const COUNT: usize = 2 * Urgency::COUNT;

    /// Returns the group of responses with these parameters.
    pub(super) const fn of(parameters: Parameters) -> Self {
        Self(2 * parameters.urgency.get() + parameters.incremental as u8)
    }

    /// Sequential responses of the same urgency.
    pub(super) const fn sequential(self) -> Self {
        Self(self.0 & !1)
    }

    /// Incremental responses of the same urgency.
    pub(super) const fn incremental(self) -> Self {
        Self(self.0 | 1)
    }

    const fn urgency(self) -> u8 {
        self.0 / 2
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Place of a response within its group; the smallest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(pub(super) u64);

/// Entry of a heap. It has the rank beside the slot, so that comparisons stay within the heap.
#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: Rank,
    slot: Slot,
}

/// Children of each entry of a heap. With four, what sinks to the bottom moves half as often as with two:
/// an incremental response does after each of its turns.
const CHILDREN: usize = 4;

/// A heap of responses for each group.
///
/// Each response is in one heap at most. A heap keeps its memory, so what leaves it may return without
/// an allocation.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    heaps: [Vec<Entry>; Group::COUNT],
    /// Position of each slot in its heap.
    positions: Vec<u32>,
    /// Urgencies of the heaps that are not empty: bit i for urgency i.
    urgencies: u8,
}

impl Ready {
    /// Creates empty heaps.
    pub(super) const fn new() -> Self {
        Self { heaps: [const { Vec::new() }; Group::COUNT], positions: Vec::new(), urgencies: 0 }
    }

    /// Makes room for the position of one more slot.
    pub(super) fn grow(&mut self) {
        self.positions.push(NOWHERE);
    }

    /// Urgencies with responses that can send: bit i for urgency i.
    #[inline]
    pub(super) const fn urgencies(&self) -> u8 {
        self.urgencies
    }

    /// Number of responses in a group.
    #[inline]
    pub(super) fn len(&self, group: Group) -> usize {
        self.heaps[group.index()].len()
    }

    /// Returns the next response of a group.
    #[inline]
    pub(super) fn first(&self, group: Group) -> Option<Slot> {
        self.heaps[group.index()].first().map(|entry| entry.slot)
    }

    /// Adds the response in `slot`, which must be in no heap.
    pub(super) fn insert(&mut self, group: Group, slot: Slot, rank: Rank) {
        let heap = &mut self.heaps[group.index()];
        let at = heap.len();
        heap.push(Entry { rank, slot });
        self.urgencies |= 1 << group.urgency();
        rise(heap, &mut self.positions, at);
    }

    /// Removes the response in `slot` from its group.
    pub(super) fn remove(&mut self, group: Group, slot: Slot) {
        let heap = &mut self.heaps[group.index()];
        let at = self.positions[slot as usize] as usize;
        self.positions[slot as usize] = NOWHERE;
        heap.swap_remove(at);
        if at < heap.len() {
            restore(heap, &mut self.positions, at);
        }
        if self.len(group.sequential()) + self.len(group.incremental()) == 0 {
            self.urgencies &= !(1 << group.urgency());
        }
    }

    /// Changes the rank of the response in `slot`.
    #[inline]
    pub(super) fn rank(&mut self, group: Group, slot: Slot, rank: Rank) {
        let heap = &mut self.heaps[group.index()];
        let at = self.positions[slot as usize] as usize;
        if heap[at].rank != rank {
            heap[at].rank = rank;
            restore(heap, &mut self.positions, at);
        }
    }
}

/// Moves the entry at `at` to its place.
fn restore(heap: &mut [Entry], positions: &mut [u32], at: usize) {
    if at > 0 && heap[at].rank < heap[(at - 1) / CHILDREN].rank {
        rise(heap, positions, at);
    } else {
        sink(heap, positions, at);
    }
}

/// Moves the entry at `at` up, past those of larger rank.
fn rise(heap: &mut [Entry], positions: &mut [u32], mut at: usize) {
    let entry = heap[at];
    while at > 0 {
        let parent = (at - 1) / CHILDREN;
        if heap[parent].rank <= entry.rank {
            break;
        }
        put(heap, positions, at, heap[parent]);
        at = parent;
    }
    put(heap, positions, at, entry);
}

/// Moves the entry at `at` down, past those of smaller rank.
fn sink(heap: &mut [Entry], positions: &mut [u32], mut at: usize) {
    let entry = heap[at];
    loop {
        let first = CHILDREN * at + 1;
        let end = heap.len().min(first + CHILDREN);
        let Some(child) = (first..end).min_by_key(|&child| heap[child].rank) else { break };
        if entry.rank <= heap[child].rank {
            break;
        }
        put(heap, positions, at, heap[child]);
        at = child;
    }
    put(heap, positions, at, entry);
}

/// Writes `entry` to position `at`.
#[expect(clippy::cast_possible_truncation, reason = "a heap has at most as many entries as slots")]
fn put(heap: &mut [Entry], positions: &mut [u32], at: usize, entry: Entry) {
    heap[at] = entry;
    positions[entry.slot as usize] = at as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert(u64),
        Remove,
        Rank(u64),
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_first_response_has_the_smallest_rank(
            ops in prop::collection::vec((0u32..40, prop_oneof![
                (0u64..1000).prop_map(Op::Insert), Just(Op::Remove), (0u64..1000).prop_map(Op::Rank)
            ]), 1..300),
        ) {
            let group = Group::of(Parameters::incremental(Urgency::DEFAULT));
            let mut ready = Ready::new();
            (0..40).for_each(|_| ready.grow());
            // Ranks are distinct, as those of responses are.
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (slot, op) in ops {
                let rank = |rank: u64| rank * 40 + u64::from(slot);
                let at = model.iter().position(|&(_, s)| s == slot);
                match (op, at) {
                    (Op::Insert(r), None) => {
                        ready.insert(group, slot, Rank(rank(r)));
                        model.push((rank(r), slot));
                    }
                    (Op::Remove, Some(at)) => {
                        ready.remove(group, slot);
                        model.swap_remove(at);
                    }
                    (Op::Rank(r), Some(at)) => {
                        ready.rank(group, slot, Rank(rank(r)));
                        model[at].0 = rank(r);
                    }
                    _ => {}
                }
                prop_assert_eq!(ready.first(group), model.iter().min().map(|&(_, slot)| slot));
                prop_assert_eq!(ready.len(group), model.len());
                prop_assert_eq!(ready.urgencies(), if model.is_empty() { 0 } else { 1 << 3 });
            }
        }
    }
}
