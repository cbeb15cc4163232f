//! All lanes of a session.

use std::net::SocketAddr;

use marcato_sched::lane::LaneId;
use marcato_units::Time;

use super::{Lane, LaneState};

/// Lanes of one session, indexed by their identifiers; at most
/// [`MAX_LANES`](marcato_sched::lane::MAX_LANES).
#[derive(Debug, Default)]
pub(crate) struct Lanes(Vec<Option<Lane>>);

impl Lanes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.0.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.0.iter_mut().flatten()
    }

    pub(crate) fn get(&self, id: LaneId) -> Option<&Lane> {
        self.0.get(id.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.0.get_mut(id.index())?.as_mut()
    }

    /// Returns an identifier that no lane has.
    pub(crate) fn vacant(&self) -> Option<LaneId> {
        (0..).map_while(LaneId::new).find(|id| self.get(*id).is_none())
    }

    pub(crate) fn insert(&mut self, lane: Lane) {
        let at = lane.id.index();
        self.0.resize_with(self.0.len().max(at + 1), || None);
        self.0[at] = Some(lane);
    }

    pub(crate) fn remove(&mut self, id: LaneId) -> Option<Lane> {
        self.0.get_mut(id.index())?.take()
    }

    pub(crate) fn of_path(&self, path: noq_proto::PathId) -> Option<LaneId> {
        self.iter().find(|lane| lane.path == path).map(|lane| lane.id)
    }

    /// Returns the lane with this remote address. A lane that is closing may coexist with its
    /// replacement, which is preferred.
    pub(crate) fn to(&self, remote: SocketAddr) -> Option<&Lane> {
        self.iter()
            .filter(|lane| lane.route.remote == remote)
            .min_by_key(|lane| lane.state() == LaneState::Closing)
    }

    /// Returns the lane with this remote address, as [`to`](Self::to) does.
    pub(crate) fn to_mut(&mut self, remote: SocketAddr) -> Option<&mut Lane> {
        let lanes = self.iter_mut().filter(|lane| lane.route.remote == remote);
        lanes.min_by_key(|lane| lane.state() == LaneState::Closing)
    }

    /// Lanes that carry data.
    pub(crate) fn up(&self) -> impl Iterator<Item = &Lane> {
        self.iter().filter(|lane| lane.is_up())
    }

    /// Lane by which the peer sends all acknowledgements: the first that is no backup.
    pub(crate) fn answering(&self) -> Option<&Lane> {
        self.up().filter(|lane| !lane.backup.is_announced()).min_by_key(|lane| lane.number)
    }

    /// Restarts the measurement of silence on every lane.
    pub(crate) fn spare(&mut self, now: Time) {
        self.iter_mut().for_each(|lane| lane.flight.spare(now));
    }

    /// Shuts every gate.
    pub(crate) fn shut(&self) {
        for lane in self.iter() {
            lane.gate.set_shut(true);
        }
    }

    /// Opens every gate.
    pub(crate) fn open(&self) {
        for lane in self.iter() {
            lane.gate.set_shut(false);
        }
    }

    /// Total number of times that the gates refused the engine.
    pub(crate) fn blocked(&self) -> u64 {
        self.iter().map(|lane| lane.gate.blocked()).sum()
    }
}
