//! Snapshots of the lanes for a lane scheduler.

use marcato_sched::lane::{LaneId, LaneView, MAX_LANES};
use marcato_units::{Bytes, Duration};

/// Snapshots of the lanes, without allocation.
#[derive(Clone, Copy)]
pub(super) struct Views {
    views: [LaneView; MAX_LANES],
    len: usize,
}

impl Views {
    pub(super) const fn new() -> Self {
        let none = LaneView::new(LaneId::FIRST, Bytes::ZERO, Duration::ZERO);
        Self { views: [none; MAX_LANES], len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, view: LaneView) {
        self.views[self.len] = view;
        self.len += 1;
    }

    pub(super) fn of(&self, lane: LaneId) -> Option<&LaneView> {
        self.iter().find(|view| view.id == lane)
    }

    pub(super) fn of_mut(&mut self, lane: LaneId) -> Option<&mut LaneView> {
        self.views[..self.len].iter_mut().find(|view| view.id == lane)
    }
}

impl std::ops::Deref for Views {
    type Target = [LaneView];

    fn deref(&self) -> &[LaneView] {
        &self.views[..self.len]
    }
}
