//! Heaps whose entries know their place.

use alloc::vec::Vec;

/// Position of what is in no heap.
const NOWHERE: u32 = u32::MAX;

/// Entry of a heap. It has the key beside the id, so that comparisons stay within the heap.
#[derive(Clone, Copy, Debug)]
struct Entry<K> {
    key: K,
    id: u32,
}

/// Children of each entry of a heap. With four, what sinks to the bottom moves half as often as with two:
/// an incremental response does after each of its turns.
const CHILDREN: usize = 4;

/// Position of each id in the one heap that it may be in.
#[derive(Clone, Debug)]
pub(super) struct Positions(Vec<u32>);

impl Positions {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes room for the position of one more id.
    pub(super) fn grow(&mut self) {
        self.0.push(NOWHERE);
    }

    /// True if the id is in a heap.
    #[inline]
    pub(super) fn contains(&self, id: u32) -> bool {
        self.0[id as usize] != NOWHERE
    }
}

/// Heap of ids, the one of the smallest key first. It keeps its memory, so what leaves it may return
/// without an allocation.
#[derive(Clone, Debug)]
pub(super) struct Heap<K> {
    entries: Vec<Entry<K>>,
}

impl<K: Copy + Ord> Heap<K> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Number of entries.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of entries that take no further memory.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Returns the id of the smallest key.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.entries.first().map(|entry| entry.id)
    }

    /// Returns the smallest key.
    #[inline]
    pub(super) fn first_key(&self) -> Option<K> {
        self.entries.first().map(|entry| entry.key)
    }

    /// Adds an id that is in no heap.
    #[inline]
    pub(super) fn insert(&mut self, positions: &mut Positions, id: u32, key: K) {
        let at = self.entries.len();
        self.entries.push(Entry { key, id });
        rise(&mut self.entries, positions, at);
    }

    /// Removes an id of this heap.
    #[inline]
    pub(super) fn remove(&mut self, positions: &mut Positions, id: u32) {
        let at = positions.0[id as usize] as usize;
        positions.0[id as usize] = NOWHERE;
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            restore(&mut self.entries, positions, at);
        }
    }

    /// Changes the key of an id of this heap.
    #[inline]
    pub(super) fn set(&mut self, positions: &mut Positions, id: u32, key: K) {
        let at = positions.0[id as usize] as usize;
        if self.entries[at].key != key {
            self.entries[at].key = key;
            restore(&mut self.entries, positions, at);
        }
    }
}

/// Moves the entry at `at` to its place.
fn restore<K: Copy + Ord>(heap: &mut [Entry<K>], positions: &mut Positions, at: usize) {
    if at > 0 && heap[at].key < heap[(at - 1) / CHILDREN].key {
        rise(heap, positions, at);
    } else {
        sink(heap, positions, at);
    }
}

/// Moves the entry at `at` up, past those of larger key.
fn rise<K: Copy + Ord>(heap: &mut [Entry<K>], positions: &mut Positions, mut at: usize) {
    let entry = heap[at];
    while at > 0 {
        let parent = (at - 1) / CHILDREN;
        if heap[parent].key <= entry.key {
            break;
        }
        put(heap, positions, at, heap[parent]);
        at = parent;
    }
    put(heap, positions, at, entry);
}

/// Moves the entry at `at` down, past those of smaller key.
fn sink<K: Copy + Ord>(heap: &mut [Entry<K>], positions: &mut Positions, mut at: usize) {
    let entry = heap[at];
    loop {
        let first = CHILDREN * at + 1;
        let Some(child) = least(heap.get(first..).unwrap_or_default()) else { break };
        let child = first + child;
        let least = heap[child];
        if entry.key <= least.key {
            break;
        }
        put(heap, positions, at, least);
        at = child;
    }
    put(heap, positions, at, entry);
}

/// Returns the place of the smallest key among the first [`CHILDREN`] entries.
#[inline]
fn least<K: Copy + Ord>(entries: &[Entry<K>]) -> Option<usize> {
    let Some([a, b, c, d]) = entries.first_chunk() else {
        return (0..entries.len()).min_by_key(|&child| entries[child].key);
    };
    // Without branches: which of them is the smallest cannot be predicted.
    let (ab, first) = if b.key < a.key { (b.key, 1) } else { (a.key, 0) };
    let (cd, second) = if d.key < c.key { (d.key, 3) } else { (c.key, 2) };
    Some(if cd < ab { second } else { first })
}

/// Writes `entry` to position `at`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a heap has at most as many entries as ids, which are u32"
)]
fn put<K: Copy>(heap: &mut [Entry<K>], positions: &mut Positions, at: usize, entry: Entry<K>) {
    heap[at] = entry;
    positions.0[entry.id as usize] = at as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert(u64),
        Remove,
        Set(u64),
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_first_entry_has_the_smallest_key(
            ops in prop::collection::vec((0u32..40, prop_oneof![
                (0u64..1000).prop_map(Op::Insert), Just(Op::Remove), (0u64..1000).prop_map(Op::Set)
            ]), 1..300),
        ) {
            let (mut heap, mut positions) = (Heap::new(), Positions::new());
            (0..40).for_each(|_| positions.grow());
            // Keys are distinct, as those of responses are.
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (id, op) in ops {
                let key = |key: u64| key * 40 + u64::from(id);
                let at = model.iter().position(|&(_, other)| other == id);
                match (op, at) {
                    (Op::Insert(k), None) => {
                        heap.insert(&mut positions, id, key(k));
                        model.push((key(k), id));
                    }
                    (Op::Remove, Some(at)) => {
                        heap.remove(&mut positions, id);
                        model.swap_remove(at);
                    }
                    (Op::Set(k), Some(at)) => {
                        heap.set(&mut positions, id, key(k));
                        model[at].0 = key(k);
                    }
                    _ => {}
                }
                prop_assert_eq!(heap.first(), model.iter().min().map(|&(_, id)| id));
                prop_assert_eq!(heap.first_key(), model.iter().min().map(|&(key, _)| key));
                prop_assert_eq!(heap.len(), model.len());
                prop_assert_eq!(positions.contains(id), model.iter().any(|&(_, other)| other == id));
            }
        }
    }
}
