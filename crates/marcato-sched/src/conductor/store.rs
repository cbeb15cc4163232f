//! Storage of queued messages: one slot each, linked into the queue of their level.

use core::ops::{Index, IndexMut};

use marcato_units::{Bytes, Priority, Time};

use super::counter::Tally;
use super::message::{MessageId, Redundancy};

/// End of a list.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Unused; `next` links the free slots.
    Free,
    /// A message with queued bytes; `next` and `prev` link its level.
    Queued,
    /// A message whose last byte is in the latest grant, kept in case that grant is refused.
    Held,
}

/// Record of one message.
#[derive(Clone, Debug)]
pub struct Slot {
    pub(super) generation: u64,
    pub(super) len: Bytes,
    pub(super) sent: Bytes,
    pub(super) offered_at: Time,
    /// Last instant at which it may be granted; `Time::MAX` for a message that never expires.
    pub(super) deadline: Time,
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Position in the heap of deadlines; [`NO_SLOT`] if it is not in it.
    pub(super) due: u32,
    /// Heap entry at the position of this slot's index. It belongs to the heap, not to this slot's
    /// message.
    pub(super) due_here: u32,
    pub(super) priority: Priority,
    pub(super) state: State,
    pub(super) redundancy: Redundancy,
    pub(super) partial_ok: bool,
}

impl Slot {
    pub(super) const EMPTY: Self = Self {
        generation: 0,
        len: Bytes::ZERO,
        sent: Bytes::ZERO,
        offered_at: Time::ZERO,
        deadline: Time::MAX,
        next: NO_SLOT,
        prev: NO_SLOT,
        due: NO_SLOT,
        due_here: NO_SLOT,
        priority: Priority::P2,
        state: State::Free,
        redundancy: Redundancy::Once,
        partial_ok: false,
    };

    pub(super) fn rest(&self) -> Bytes {
        self.len - self.sent
    }

    /// True if its rest may be dropped without wasting bytes already sent.
    #[inline]
    pub(super) fn may_be_dropped(&self) -> bool {
        self.sent.is_zero() || self.partial_ok
    }

    /// Returns its rest if that may not be dropped, otherwise zero.
    #[inline]
    pub(super) fn kept(&self) -> Tally {
        if self.may_be_dropped() { Tally::NONE } else { Tally::one(self.rest()) }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Storage of messages: [`Slab`] or [`Fixed`].
///
/// A store has one slot more than the messages it may hold: for the message that the latest grant
/// finished, which may yet be refused.
pub trait Store: Index<u32, Output = Slot> + IndexMut<u32> + sealed::Sealed {
    /// Most messages queued at once.
    fn limit(&self) -> usize;
    /// Number of slots made so far.
    fn slots(&self) -> u32;
    /// Makes one more slot, at index [`slots`](Self::slots); returns false if there is no room for
    /// one.
    fn grow(&mut self) -> bool;
}

/// Store without an allocator, for `N` messages.
#[derive(Clone, Debug)]
pub struct Fixed<const N: usize> {
    slots: [Slot; N],
    spare: Slot,
    used: u32,
}

impl<const N: usize> Fixed<N> {
    #[expect(clippy::cast_possible_truncation, reason = "checked when compiled")]
    const SLOTS: u32 = {
        assert!(N > 0 && N < MessageId::MAX_SLOTS as usize, "a store holds 1 to 2^24 - 1 messages");
        N as u32 + 1
    };

    /// Creates an empty store.
    pub const fn new() -> Self {
        Self { slots: [const { Slot::EMPTY }; N], spare: Slot::EMPTY, used: 0 }
    }
}

impl<const N: usize> Default for Fixed<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Index<u32> for Fixed<N> {
    type Output = Slot;
    #[inline]
    fn index(&self, slot: u32) -> &Slot {
        self.slots.get(slot as usize).unwrap_or(&self.spare)
    }
}

impl<const N: usize> IndexMut<u32> for Fixed<N> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Slot {
        self.slots.get_mut(slot as usize).unwrap_or(&mut self.spare)
    }
}

impl<const N: usize> sealed::Sealed for Fixed<N> {}

impl<const N: usize> Store for Fixed<N> {
    fn limit(&self) -> usize {
        N
    }

    fn slots(&self) -> u32 {
        self.used
    }

    fn grow(&mut self) -> bool {
        let room = self.used < Self::SLOTS;
        self.used += u32::from(room);
        room
    }
}

#[cfg(feature = "alloc")]
pub use slab::Slab;

#[cfg(feature = "alloc")]
mod slab {
    use super::{Index, IndexMut, MessageId, Slot, Store, sealed};
    use alloc::vec::Vec;

    /// Store that grows with the number of queued messages, up to a limit, and never shrinks.
    ///
    /// It allocates when it grows, which only an offer causes.
    #[derive(Clone, Debug)]
    pub struct Slab {
        slots: Vec<Slot>,
        limit: usize,
    }

    impl Slab {
        /// Creates an empty store for `max_messages` messages, but at most 2^24 - 1.
        pub fn new(max_messages: usize) -> Self {
            Self { slots: Vec::new(), limit: max_messages.min(MessageId::MAX_SLOTS as usize - 1) }
        }
    }

    impl Index<u32> for Slab {
        type Output = Slot;
        #[inline]
        fn index(&self, slot: u32) -> &Slot {
            &self.slots[slot as usize]
        }
    }

    impl IndexMut<u32> for Slab {
        #[inline]
        fn index_mut(&mut self, slot: u32) -> &mut Slot {
            &mut self.slots[slot as usize]
        }
    }

    impl sealed::Sealed for Slab {}

    impl Store for Slab {
        fn limit(&self) -> usize {
            self.limit
        }

        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^24 slots")]
        fn slots(&self) -> u32 {
            self.slots.len() as u32
        }

        fn grow(&mut self) -> bool {
            let room = self.slots.len() <= self.limit && self.slots.try_reserve(1).is_ok();
            if room {
                self.slots.push(Slot::EMPTY);
            }
            room
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One slot per queued message, and a spare one.
    #[test]
    fn stores_grow_to_their_limits_and_no_further() {
        fn grown(store: &mut impl Store) -> (usize, u32) {
            ((0..100).take_while(|_| store.grow()).count(), store.slots())
        }
        assert_eq!(grown(&mut Fixed::<4>::new()), (5, 5));
        assert_eq!(grown(&mut Slab::new(4)), (5, 5));
    }
}
