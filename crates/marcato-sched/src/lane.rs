//! Snapshot of a lane, taken by the session before it calls a lane scheduler.
//!
//! A lane is one (path, layer). It has its own congestion controller and its own sequence space;
//! the engine owns both.

use core::fmt;
use core::time::Duration;

use marcato_units::{Bytes, Layer, Time};

/// Most lanes of one connection. Peers open paths, so the number needs a bound.
pub const MAX_LANES: usize = 16;

/// Identifier of a lane within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u8);

impl LaneId {
    /// First lane of a connection.
    pub const FIRST: Self = Self(0);

    /// Returns the lane with this number, or `None` from [`MAX_LANES`] on.
    pub const fn new(index: u8) -> Option<Self> {
        if (index as usize) < MAX_LANES { Some(Self(index)) } else { None }
    }

    /// Returns the lane's index in an array of [`MAX_LANES`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.0)
    }
}

/// Identifier of a path within its connection: QUIC's path ID (draft-ietf-quic-multipath).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// Present state of a lane. Schedulers get a slice of these and keep none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Id of the lane; unique within the slice.
    pub id: LaneId,
    /// Path that it runs on. Two lanes of one path differ in their layer.
    pub path: PathId,
    /// Class in which the network serves it.
    pub layer: Layer,
    /// Congestion window of the controller, reservations not subtracted.
    pub cwnd: Bytes,
    /// Bytes sent on it and neither acknowledged nor declared lost.
    pub in_flight: Bytes,
    /// Smoothed round-trip time (RFC 9002 §5.3).
    pub srtt: Duration,
    /// True if data may be sent on it: its path is validated and neither abandoned nor presumed
    /// dead.
    pub usable: bool,
    /// True if the peer asked to use it only while no other path works (`PATH_STATUS_BACKUP`).
    pub backup: bool,
}

impl LaneView {
    /// Creates a usable lane of the high layer with nothing in flight, on the path of the same
    /// number.
    pub const fn new(id: LaneId, cwnd: Bytes, srtt: Duration) -> Self {
        Self {
            id,
            path: PathId(id.0 as u32),
            layer: Layer::High,
            cwnd,
            in_flight: Bytes::ZERO,
            srtt,
            usable: true,
            backup: false,
        }
    }

    /// Returns the free bytes of the congestion window.
    pub fn free(&self) -> Bytes {
        self.cwnd - self.in_flight
    }

    /// Returns the expected time at which a packet sent now will be acknowledged.
    pub fn acknowledged_by(&self, now: Time) -> Time {
        now + self.srtt
    }
}

/// Set of lanes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LaneSet(u16);

// One bit for each lane.
const _: () = assert!(MAX_LANES <= u16::BITS as usize);

impl LaneSet {
    /// Set without lanes.
    pub const EMPTY: Self = Self(0);
    /// Set of all possible lanes.
    pub const ALL: Self = Self(u16::MAX);

    /// Creates a set of one lane.
    pub const fn one(lane: LaneId) -> Self {
        Self(1 << lane.0)
    }

    /// Adds a lane.
    pub const fn insert(&mut self, lane: LaneId) {
        self.0 |= 1 << lane.0;
    }

    /// Removes a lane.
    pub const fn remove(&mut self, lane: LaneId) {
        self.0 &= !(1 << lane.0);
    }

    /// True if the set contains the lane.
    pub const fn contains(self, lane: LaneId) -> bool {
        self.0 & (1 << lane.0) != 0
    }

    /// Returns the lanes that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the lanes that are in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the lanes that are in this set and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the number of lanes.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the set has no lanes.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the lane with the lowest number.
    pub fn first(self) -> Option<LaneId> {
        self.iter().next()
    }

    /// Iterates over the lanes, by number.
    pub fn iter(self) -> impl Iterator<Item = LaneId> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let lane = LaneId::new(u8::try_from(left.trailing_zeros()).ok()?)?;
            left &= left - 1;
            Some(lane)
        })
    }
}

impl FromIterator<LaneId> for LaneSet {
    fn from_iter<I: IntoIterator<Item = LaneId>>(lanes: I) -> Self {
        let mut set = Self::EMPTY;
        for lane in lanes {
            set.insert(lane);
        }
        set
    }
}

impl fmt::Debug for LaneSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|lane| lane.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn lane(index: u8) -> LaneId {
        LaneId::new(index).unwrap()
    }

    #[test]
    fn lanes_are_bounded() {
        assert_eq!(LaneId::new(15).map(LaneId::index), Some(15));
        assert_eq!(LaneId::new(16), None);
        assert_eq!(LaneId::new(255), None);
    }

    #[test]
    fn a_set_holds_each_lane_once_and_in_order() {
        let mut set: LaneSet = [15, 0, 7, 7].map(lane).into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, 15].map(lane));
        assert_eq!((set.len(), set.first()), (3, Some(lane(0))));
        set.remove(lane(0));
        assert!(!set.contains(lane(0)) && set.contains(lane(15)));
        assert_eq!(set.and(LaneSet::one(lane(7))), LaneSet::one(lane(7)));
        assert_eq!(set.without(LaneSet::one(lane(7))), LaneSet::one(lane(15)));
        assert_eq!(
            set.or([3, 15].map(lane).into_iter().collect()).iter().collect::<Vec<_>>(),
            [3, 7, 15].map(lane)
        );
        assert_eq!(LaneSet::EMPTY.first(), None);
    }

    #[test]
    fn more_in_flight_than_the_window_leaves_no_room() {
        let view = LaneView::new(lane(0), Bytes::kb(10), Duration::from_millis(50));
        assert_eq!(view.free(), Bytes::kb(10));
        assert_eq!(LaneView { in_flight: Bytes::kb(11), ..view }.free(), Bytes::ZERO);
    }
}
