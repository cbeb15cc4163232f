//! Shares of groups: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996).
//!
//! Each group has a virtual time, which advances by bytes divided by weight. The group of the smallest
//! one sends. So it was the smallest before each of its grants: a group exceeds the share of another
//! busy one by one grant at most.
//!
//! A group that was idle has not saved its share: it continues at the end of the latest grant. Of that
//! instead of its beginning, as in the paper, because then newcomers cannot pass the others for ever: the
//! number of those that come before a waiting group is finite.

use marcato_units::Bytes;

use super::group::Weight;

/// Units of virtual time for each byte at weight 1. Rounding stays below a byte at any weight.
const UNITS: u64 = 1 << 16;

/// Virtual time. At 128 bits it never overflows.
pub(super) type Virtual = u128;

/// Share of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Virtual time. A new group is behind every [`Clock`].
    pub(super) at: Virtual,
    /// Rest of the latest division, so that no rounding accumulates.
    rest: u64,
    pub(super) weight: Weight,
}

impl Share {
    pub(super) const fn new(weight: Weight) -> Self {
        Self { at: 0, rest: 0, weight }
    }

    /// Charges `bytes`.
    #[inline]
    pub(super) fn charge(&mut self, bytes: Bytes) {
        if bytes.is_zero() {
            // The rest may be of a larger weight, and is not to be charged by a grant that is taken back.
            return;
        }
        const DEFAULT: u64 = Weight::DEFAULT.get() as u64;
        let weight = u64::from(self.weight.get());
        if weight == DEFAULT && self.rest == 0 {
            self.at += Virtual::from(bytes.get()) * Virtual::from(UNITS / DEFAULT);
            return;
        }
        let rest = bytes.get() % weight * UNITS + self.rest;
        self.at += Virtual::from(bytes.get() / weight) * Virtual::from(UNITS) + Virtual::from(rest / weight);
        self.rest = rest % weight;
    }

    /// Returns the share with the virtual time of `other`.
    pub(super) const fn at(self, other: Self) -> Self {
        Self { at: other.at, rest: other.rest, ..self }
    }
}

/// Virtual times of the latest grant among groups that share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Virtual time of its group before it. No group that can send is behind.
    pub(super) start: Virtual,
    /// Virtual time of its group after it.
    pub(super) finish: Virtual,
}

impl Clock {
    pub(super) const NEW: Self = Self { start: 1, finish: 1 };

    /// Brings a group that begins to send up to date. Returns true if that has changed its share.
    ///
    /// A group that paused only while others were owed continues at its own time. That also holds if
    /// the latest grant is taken back, so that a pause in between makes no difference.
    #[inline]
    pub(super) const fn admit(self, share: &mut Share) -> bool {
        let is_behind = share.at < self.start;
        if is_behind {
            share.at = self.finish;
            share.rest = 0;
        }
        is_behind
    }

    /// True if a share is no different from that of a new group.
    pub(super) const fn has_passed(self, share: &Share) -> bool {
        share.at < self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rounding_accumulates() {
        let mut parts = Share::new(Weight::new(7).unwrap());
        let mut whole = parts;
        (0..700_000).for_each(|_| parts.charge(Bytes::new(3)));
        whole.charge(Bytes::new(2_100_000));
        assert_eq!((parts.at, parts.rest), (whole.at, whole.rest));
        assert_eq!(whole.at, 300_000 << 16);
    }

    #[test]
    fn no_bytes_cost_nothing_after_a_change_of_weight() {
        let mut share = Share::new(Weight::new(29_812).unwrap());
        share.charge(Bytes::new(111));
        share.weight = Weight::new(256).unwrap();
        let before = share;
        share.charge(Bytes::ZERO);
        assert_eq!(share, before);
        assert!(before.rest > 256);
    }

    #[test]
    fn both_ways_of_dividing_agree() {
        let mut quick = Share::new(Weight::DEFAULT);
        quick.charge(Bytes::new(1401));
        let mut slow = Share::new(Weight::new(32).unwrap());
        slow.charge(Bytes::new(2 * 1401));
        assert_eq!(quick.at, slow.at);
        let mut huge = Share::new(Weight::new(1).unwrap());
        (0..3).for_each(|_| huge.charge(Bytes::MAX));
        assert_eq!(huge.at, 3 * (Virtual::from(u64::MAX) << 16));
    }
}
