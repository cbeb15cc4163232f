//! Queued messages with a lifetime, ordered by deadline.

use super::store::{NO_SLOT, Store};

/// Binary heap of the messages that expire: the earliest deadline first.
///
/// It lives in the slots of the store: position `p` is kept in slot `p`, regardless of the message
/// in that slot. The heap never has more positions than the store has slots, so it needs no memory
/// and never allocates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    len: u32,
}

impl Deadlines {
    pub(super) const EMPTY: Self = Self { len: 0 };

    /// Returns the message with the earliest deadline.
    #[inline]
    pub(super) fn first<S: Store>(self, store: &S) -> Option<u32> {
        (self.len > 0).then(|| store[0].due_here)
    }

    /// Adds the message in `slot`, which must not be in the heap.
    pub(super) fn insert<S: Store>(&mut self, store: &mut S, slot: u32) {
        let at = self.len;
        self.len += 1;
        Self::put(store, at, slot);
        Self::rise(store, at);
    }

    /// Removes the message in `slot`, if it is in the heap.
    pub(super) fn remove<S: Store>(&mut self, store: &mut S, slot: u32) {
        let at = store[slot].due;
        if at == NO_SLOT {
            return;
        }
        store[slot].due = NO_SLOT;
        self.len -= 1;
        let last = store[self.len].due_here;
        if last != slot {
            Self::put(store, at, last);
            // The last entry may come from another branch, and so precede its new parent or follow
            // its new children.
            Self::rise(store, at);
            self.sink(store, store[last].due);
        }
    }

    fn put<S: Store>(store: &mut S, at: u32, slot: u32) {
        store[at].due_here = slot;
        store[slot].due = at;
    }

    /// True if the deadline at position `a` is before the one at `b`.
    fn before<S: Store>(store: &S, a: u32, b: u32) -> bool {
        store[store[a].due_here].deadline < store[store[b].due_here].deadline
    }

    fn swap<S: Store>(store: &mut S, a: u32, b: u32) {
        let (on_a, on_b) = (store[a].due_here, store[b].due_here);
        Self::put(store, a, on_b);
        Self::put(store, b, on_a);
    }

    fn rise<S: Store>(store: &mut S, mut at: u32) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !Self::before(store, at, parent) {
                return;
            }
            Self::swap(store, at, parent);
            at = parent;
        }
    }

    fn sink<S: Store>(self, store: &mut S, mut at: u32) {
        loop {
            let left = 2 * at + 1;
            if left >= self.len {
                return;
            }
            let right = left + 1;
            let child = if right < self.len && Self::before(store, right, left) { right } else { left };
            if !Self::before(store, child, at) {
                return;
            }
            Self::swap(store, at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::{Fixed, Slot};
    use super::*;
    use marcato_units::Time;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn the_earliest_deadline_is_always_first(ops in prop::collection::vec((0u32..20, 0u64..50), 1..200)) {
            let mut store = Fixed::<20>::new();
            while store.grow() {}
            let (mut deadlines, mut inside) = (Deadlines::EMPTY, Vec::new());
            for (slot, at) in ops {
                if inside.contains(&slot) {
                    inside.retain(|other| *other != slot);
                    deadlines.remove(&mut store, slot);
                } else {
                    let due_here = store[slot].due_here;
                    store[slot] = Slot { deadline: Time::from_millis(at), due_here, ..Slot::EMPTY };
                    inside.push(slot);
                    deadlines.insert(&mut store, slot);
                }
                let earliest = inside.iter().map(|&slot| store[slot].deadline).min();
                prop_assert_eq!(deadlines.first(&store).map(|slot| store[slot].deadline), earliest);
                for slot in 0..20 {
                    prop_assert_eq!(store[slot].due != NO_SLOT, inside.contains(&slot));
                }
            }
        }
    }
}
