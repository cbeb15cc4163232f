//! Copies of a chunk that leave on other lanes.

use marcato_sched::lane::{LaneId, LaneSet};
use marcato_units::Bytes;

use crate::outbox::{Key, Run};

/// Chunk to be sent again at once, on another lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duplicate {
    pub(super) key: Key,
    pub(super) lane: LaneId,
    pub(super) run: Run,
    /// Lanes on which the chunk has already left.
    pub(super) carried: LaneSet,
    pub(super) wire: Bytes,
}
