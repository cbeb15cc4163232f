//! Memory into which datagrams are read.

use std::collections::VecDeque;

use bytes::BytesMut;

/// The most that one read gives: what UDP can carry, and so all that GRO puts together.
const READ: usize = 64 << 10;
/// What a slab holds: small enough to stay in a processor's cache with the others.
const SLAB: usize = 4 * READ;
/// Slabs that are kept.
const KEPT: usize = 3;

/// Slabs that are read into in turn. What is taken out of one keeps it alive; it is used again once nothing does, so that
/// neither copies nor fresh pages are paid for: they took a third of a receiver's processor time.
///
/// Most of what is read is dropped before the next slab is full. A slab of which something is still in use when its turn
/// comes is left to that, and another takes its place.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    /// The first is in use.
    slabs: VecDeque<BytesMut>,
}

impl Slabs {
    /// Whether there is room for whatever one read gives without going on to another slab, for which all that was read
    /// has to be taken first.
    pub(super) fn has_room(&self) -> bool {
        self.slabs.front().is_some_and(|slab| slab.capacity() - slab.len() >= READ)
    }

    /// A buffer with room for whatever one read gives. What was read before and not taken stands in it first.
    pub(super) fn room(&mut self) -> &mut BytesMut {
        if !self.has_room() {
            self.turn();
        }
        if self.slabs.is_empty() {
            self.slabs.push_back(BytesMut::with_capacity(SLAB));
        }
        &mut self.slabs[0]
    }

    /// Takes out the first `len` bytes that were read.
    pub(super) fn take(&mut self, len: usize) -> BytesMut {
        self.slabs.front_mut().map(|slab| slab.split_to(len.min(slab.len()))).unwrap_or_default()
    }

    /// Goes on to the next slab.
    fn turn(&mut self) {
        if self.slabs.len() < KEPT {
            self.slabs.push_front(BytesMut::with_capacity(SLAB));
            return;
        }
        self.slabs.rotate_left(1);
        if let Some(slab) = self.slabs.front_mut()
            && !slab.try_reclaim(SLAB)
        {
            *slab = BytesMut::with_capacity(SLAB);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(slabs: &mut Slabs, len: usize, with: u8) -> BytesMut {
        let room = slabs.room();
        assert!(room.is_empty() && room.capacity() >= READ);
        room.resize(len, with);
        slabs.take(len)
    }

    #[test]
    fn what_is_not_in_use_any_more_is_used_again() {
        let mut slabs = Slabs::default();
        let mut places: Vec<_> = (0..1000).map(|_| read(&mut slabs, 10_000, 1).as_ptr() as usize).collect();
        places.sort_unstable();
        places.dedup();
        // Each slab has as many places as leave room for the next read.
        assert!(
            places.len() <= KEPT * (SLAB - READ).div_ceil(10_000).saturating_add(KEPT),
            "{}",
            places.len()
        );
    }

    #[test]
    fn what_is_in_use_stays_as_it_was() {
        let mut slabs = Slabs::default();
        let kept: Vec<_> = (0..100u8).map(|with| (with, read(&mut slabs, 20_000, with))).collect();
        for (with, bytes) in kept {
            assert!(bytes.len() == 20_000 && bytes.iter().all(|byte| *byte == with));
        }
        assert_eq!(slabs.slabs.len(), KEPT);
    }
}
