//! Memory into which datagrams are read.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Upper bound of one read, in bytes: UDP's maximum, and so that of GRO.
const READ: usize = 64 << 10;
/// Bytes of a slab: small enough that all slabs stay in a processor's cache.
const SLAB: usize = 4 * READ;
/// Number of slabs kept.
const KEPT: usize = 3;
/// Limit of further slabs that buffers may keep alive: 4 MiB. A buffer of one byte keeps a whole
/// slab, so beyond the limit each datagram gets memory of its own length.
const LENT: usize = 16;

/// Slabs that are read into in rotation. A buffer taken out of one keeps it alive. A slab is reused
/// once all its buffers are dropped, which saves both copies and fresh pages: they took a third of
/// a receiver's processor time.
///
/// Most buffers are dropped before the next slab is full. A slab still in use at its turn is lent
/// to its buffers, and a new one replaces it.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    /// Slabs; the first is in use.
    slabs: VecDeque<BytesMut>,
    /// Slabs that only their buffers use.
    lent: VecDeque<BytesMut>,
}

impl Slabs {
    /// Returns whether one read fits the current slab. Otherwise all bytes read have to be taken
    /// before the next slab is used.
    pub(super) fn has_room(&self) -> bool {
        self.slabs.front().is_some_and(|slab| slab.capacity() - slab.len() >= READ)
    }

    /// Returns a buffer with room for one read. Bytes read before and not taken precede it.
    pub(super) fn room(&mut self) -> &mut BytesMut {
        if !self.has_room() {
            self.turn();
        }
        if self.slabs.is_empty() {
            self.slabs.push_back(BytesMut::with_capacity(SLAB));
        }
        &mut self.slabs[0]
    }

    /// Takes the first `len` bytes that were read.
    pub(super) fn take(&mut self, len: usize) -> BytesMut {
        self.slabs.front_mut().map(|slab| slab.split_to(len.min(slab.len()))).unwrap_or_default()
    }

    /// Returns whether so many slabs are lent that datagrams have to be copied.
    pub(super) fn is_lent_out(&self) -> bool {
        self.lent.len() >= LENT
    }

    /// Switches to the next slab.
    fn turn(&mut self) {
        // The oldest first: its buffers have had the most time to be dropped.
        for _ in 0..self.lent.len().min(2) {
            let Some(mut slab) = self.lent.pop_front() else { break };
            if !slab.try_reclaim(SLAB) {
                self.lent.push_back(slab);
            }
        }
        if self.slabs.len() < KEPT {
            self.slabs.push_front(BytesMut::with_capacity(SLAB));
            return;
        }
        self.slabs.rotate_left(1);
        if let Some(slab) = self.slabs.front_mut()
            && !slab.try_reclaim(SLAB)
        {
            self.lent.push_back(std::mem::replace(slab, BytesMut::with_capacity(SLAB)));
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
    fn memory_that_nobody_holds_is_reused() {
        let mut slabs = Slabs::default();
        let mut places: Vec<_> = (0..1000).map(|_| read(&mut slabs, 10_000, 1).as_ptr() as usize).collect();
        places.sort_unstable();
        places.dedup();
        // Each slab has as many positions as leave room for the next read.
        assert!(
            places.len() <= KEPT * (SLAB - READ).div_ceil(10_000).saturating_add(KEPT),
            "{}",
            places.len()
        );
    }

    #[test]
    fn one_byte_of_each_slab_does_not_keep_them_all() {
        let mut slabs = Slabs::default();
        let mut kept = Vec::new();
        for _ in 0..10_000 {
            let mut read = read(&mut slabs, 60_000, 7);
            let byte = match slabs.is_lent_out() {
                true => BytesMut::from(&read[..1]),
                false => read.split_to(1),
            };
            kept.push(byte);
        }
        // The slabs in rotation when the limit is reached may be lent as well.
        assert!(slabs.slabs.len() == KEPT && slabs.lent.len() <= KEPT + LENT);
        assert!(slabs.is_lent_out() && kept.iter().all(|byte| byte[..] == [7]));
        // Once they are dropped, slabs are lent again.
        kept.clear();
        for _ in 0..100 {
            read(&mut slabs, 60_000, 7);
        }
        assert!(!slabs.is_lent_out() && slabs.lent.is_empty());
    }

    #[test]
    fn memory_that_somebody_holds_stays_as_it_was() {
        let mut slabs = Slabs::default();
        let kept: Vec<_> = (0..100u8).map(|with| (with, read(&mut slabs, 20_000, with))).collect();
        for (with, bytes) in kept {
            assert!(bytes.len() == 20_000 && bytes.iter().all(|byte| *byte == with));
        }
        assert_eq!(slabs.slabs.len(), KEPT);
    }
}
