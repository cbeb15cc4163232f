//! Bounded memory for small files.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use marcato_units::Bytes;

/// Memory of a file besides its content: validators, fields of the response, places in tables.
pub(super) const OVERHEAD: Bytes = Bytes::new(2048);

/// Map from paths to values, whose costs never exceed a bound.
///
/// Entries leave by the CLOCK rule. A hand passes over them and spares each that was used since its last
/// pass. It removes the first unused one. A hit takes a shared lock and sets one flag.
#[derive(Debug)]
pub(super) struct Cache<V> {
    bound: Bytes,
    table: RwLock<Table<V>>,
}

#[derive(Debug)]
struct Table<V> {
    places: HashMap<Arc<str>, usize>,
    slots: Vec<Option<Slot<V>>>,
    /// Places of empty slots.
    free: Vec<usize>,
    hand: usize,
    cost: Bytes,
}

#[derive(Debug)]
struct Slot<V> {
    key: Arc<str>,
    value: V,
    cost: Bytes,
    used: AtomicBool,
}

impl<V: Clone> Cache<V> {
    /// Creates an empty cache with a bound of the sum of costs.
    pub(super) fn new(bound: Bytes) -> Self {
        let table =
            Table { places: HashMap::new(), slots: Vec::new(), free: Vec::new(), hand: 0, cost: Bytes::ZERO };
        Self { bound, table: RwLock::new(table) }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<V> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let slot = table.slots.get(*table.places.get(key)?)?.as_ref()?;
        // Writing only where it changes something keeps the line of memory shared among processors.
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(slot.value.clone())
    }

    /// Stores a value in place of the previous one of its key. Returns the number of other entries that
    /// had to leave.
    ///
    /// A value that costs more than the bound is not stored.
    pub(super) fn insert(&self, key: &str, value: V, cost: Bytes) -> usize {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(key);
        if cost > self.bound {
            return 0;
        }
        let mut evictions = 0;
        while table.cost + cost > self.bound && table.evict() {
            evictions += 1;
        }
        table.insert(Arc::from(key), value, cost);
        evictions
    }

    /// Removes a key.
    pub(super) fn remove(&self, key: &str) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Returns the number of entries and the sum of their costs.
    pub(super) fn size(&self) -> (usize, Bytes) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        (table.places.len(), table.cost)
    }
}

impl<V> Table<V> {
    fn insert(&mut self, key: Arc<str>, value: V, cost: Bytes) {
        self.cost += cost;
        let slot = Some(Slot { key: Arc::clone(&key), value, cost, used: AtomicBool::new(false) });
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.places.insert(key, place);
    }

    fn remove(&mut self, key: &str) {
        if let Some(place) = self.places.remove(key) {
            self.vacate(place);
        }
    }

    fn vacate(&mut self, place: usize) {
        if let Some(slot) = self.slots[place].take() {
            self.cost -= slot.cost;
            self.free.push(place);
        }
    }

    /// Removes the first entry that was not used since the hand's last pass. Returns false if there is
    /// none: the table is empty.
    fn evict(&mut self) -> bool {
        if self.places.is_empty() {
            return false;
        }
        // The first pass clears every flag, so that the second finds an entry.
        for _ in 0..2 * self.slots.len() {
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            let Some(slot) = &self.slots[place] else { continue };
            if slot.used.swap(false, Ordering::Relaxed) {
                continue;
            }
            self.places.remove(&slot.key);
            self.vacate(place);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn bytes(bytes: u64) -> Bytes {
        Bytes::new(bytes)
    }

    #[test]
    fn stored_values_are_found_and_replaced() {
        let cache = Cache::new(bytes(10));
        assert_eq!(cache.get("a"), None);
        assert_eq!(cache.insert("a", 1, bytes(4)), 0);
        assert_eq!(cache.insert("a", 2, bytes(8)), 0);
        assert_eq!((cache.get("a"), cache.size()), (Some(2), (1, bytes(8))));
        cache.remove("a");
        assert_eq!((cache.get("a"), cache.size()), (None, (0, Bytes::ZERO)));
    }

    #[test]
    fn used_entries_outlive_unused_ones() {
        let cache = Cache::new(bytes(3));
        for key in ["a", "b", "c"] {
            cache.insert(key, key, bytes(1));
        }
        cache.get("a");
        cache.get("c");
        assert_eq!(cache.insert("d", "d", bytes(1)), 1);
        let kept = ["a", "b", "c", "d"].map(|key| cache.get(key).is_some());
        assert_eq!(kept, [true, false, true, true]);
    }

    #[test]
    fn entries_used_alike_leave_in_turn() {
        let cache = Cache::new(bytes(2));
        for key in ["a", "b"] {
            cache.insert(key, (), bytes(1));
            cache.get(key);
        }
        assert_eq!(cache.insert("c", (), bytes(1)), 1);
        assert_eq!((cache.get("a"), cache.get("b")), (None, Some(())));
    }

    #[test]
    fn values_above_the_bound_are_not_stored() {
        let cache = Cache::new(bytes(10));
        cache.insert("a", 1, bytes(10));
        assert_eq!(cache.insert("b", 1, bytes(11)), 0);
        assert_eq!((cache.get("a"), cache.get("b")), (Some(1), None));
        cache.insert("a", 2, bytes(11));
        assert_eq!(cache.get("a"), None);
    }

    proptest! {
        #[test]
        fn costs_never_exceed_the_bound(
            bound in 0..40_u64,
            steps in proptest::collection::vec((0..8_u8, 0..3_u8, 0..20_u64), 0..80),
        ) {
            let cache = Cache::new(bytes(bound));
            // Every entry with its cost, as long as the cache has it.
            let mut model = BTreeMap::new();
            for (key, action, cost) in steps {
                let name = key.to_string();
                match action {
                    0 => {
                        let before = model.len() - usize::from(model.contains_key(&name));
                        let evictions = cache.insert(&name, cost, bytes(cost));
                        model.insert(name, cost);
                        model.retain(|key, _| cache.table.read().unwrap().places.contains_key(key.as_str()));
                        let stored = usize::from(cost <= bound);
                        prop_assert_eq!(before + stored - model.len(), evictions);
                    }
                    1 => prop_assert_eq!(cache.get(&name), model.get(&name).copied()),
                    _ => {
                        cache.remove(&name);
                        model.remove(&name);
                    }
                }
                let total = model.values().sum::<u64>();
                prop_assert!(total <= bound);
                prop_assert_eq!(cache.size(), (model.len(), bytes(total)));
            }
        }
    }
}
