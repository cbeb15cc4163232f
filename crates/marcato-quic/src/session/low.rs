//! Low lanes: when they pause, and when they are reopened.

use marcato_sched::lane::LaneId;
use marcato_units::{Duration, Layer, Time};
use noq_proto::VarInt;

use super::Session;
use crate::controller::Congestion;
use crate::event::{Event, LaneLoss, LowLaneChange};
use crate::lane::{Lane, LaneRequest, LaneState};
use crate::layer_test::{Finding, LayerTest};
use crate::low::LowLanes;

impl Session {
    /// Returns whether lanes of this layer are managed as low lanes rather than like all others.
    pub(super) fn manages(&self, layer: Layer) -> bool {
        self.config.low_lanes.is_some() && layer == Layer::Low
    }

    /// Fills in the controller of low lanes, if a low lane's request names no other.
    pub(super) fn as_layered(&self, request: LaneRequest) -> LaneRequest {
        match self.config.low_lanes {
            Some(LowLanes { controller, .. }) if request.layer == Layer::Low => {
                let congestion = request.congestion.or(Some(Congestion::LowPriority(controller)));
                LaneRequest { congestion, ..request }
            }
            _ => request,
        }
    }

    /// Smoothed round-trip time of the slowest high lane.
    pub(super) fn slowest_high(&self) -> Duration {
        let high = self.lanes.up().filter(|lane| !lane.is_managed());
        high.map(|lane| lane.rtt.smoothed).max().unwrap_or(self.config.initial_rtt)
    }

    /// Reopens lanes as the keeper directs.
    pub(super) fn reopen_lanes(&mut self, now: Time) {
        if self.phase.is_closed() {
            return;
        }
        if let Some(request) = self.keeper.due(now) {
            self.requests.push_back(request);
            while let Some(request) = self.keeper.due(now) {
                self.requests.push_back(request);
            }
            self.open_lanes(now);
        }
    }

    /// Parks and releases low lanes as the test of the layers directs.
    pub(super) fn manage_low_lanes(&mut self, now: Time) {
        if self.config.low_lanes.is_none() || self.phase.is_closed() {
            return;
        }
        let rtt = self.slowest_high();
        let finding = self.layer_test.as_mut().and_then(|test| test.look(now, rtt));
        let change = finding.map(|finding| match finding {
            Finding::Harm => LowLaneChange::Unprioritised,
            Finding::TryAgain => LowLaneChange::Retried,
        });
        let high = self.lanes.iter().any(|lane| !lane.is_managed() && lane.health.works());
        // A low lane that does harm is better than no lane.
        let off = high && self.layer_test.as_ref().is_some_and(LayerTest::is_off);
        for lane in self.lanes.iter_mut() {
            let Some(low) = &mut lane.low else { continue };
            if std::mem::replace(&mut low.parked, off) != off {
                self.send.request_look();
            }
            let id = lane.id;
            if let Some(change) = change {
                self.events.push_back(Event::LowLane { lane: id, change });
            }
            let alone = lane.health.works() && !high;
            if std::mem::replace(&mut low.alone, alone) != alone {
                let change = if alone { LowLaneChange::Alone } else { LowLaneChange::Relieved };
                self.events.push_back(Event::LowLane { lane: id, change });
            }
        }
    }

    /// Updates the keeper when a lane comes up.
    pub(super) fn keep_up(&mut self, now: Time, lane: LaneId) {
        let Some(lane) = self.lanes.get(lane) else { return };
        self.keeper.up(now, lane.route.remote);
        // Acknowledgements leave on the first path. If that is a low one because the high one was
        // reopened, the low one has to be reopened as well.
        let high = self.lanes.up().filter(|lane| !lane.is_managed());
        let Some(first) = high.map(|lane| lane.number).min() else { return };
        let before = |lane: &&Lane| lane.is_managed() && lane.number < first;
        let before: Vec<_> =
            self.lanes.up().filter(before).map(|lane| (lane.path, lane.route.remote)).collect();
        for (path, remote) in before {
            if self.conn.side().is_client() {
                self.keeper.reopen(now, remote);
                let _ = self.conn.close_path(self.clock.instant(now), path, VarInt::from_u32(0));
            }
        }
    }

    /// Updates the keeper when a lane has been given up. Returns the time at which it is reopened.
    pub(super) fn keep_down(&mut self, now: Time, lane: LaneId, reason: &LaneLoss) -> Option<Time> {
        let lane = self.lanes.get(lane)?;
        let retry = match lane.is_managed() {
            true => self.config.low_lanes.and_then(|low| low.retry),
            // The peer's application wants no such lane.
            false if *reason == LaneLoss::ClosedByPeer => {
                self.keeper.drop(lane.route.remote);
                None
            }
            false => self.config.reopen,
        };
        let mut others = self.lanes.iter().filter(|other| other.id != lane.id);
        let is_last = others.all(|other| other.state() == LaneState::Closing);
        if *reason == LaneLoss::Silent && retry.is_some() && is_last {
            // The peer closed this one while this end closed another. The engine waits for a path for three probe
            // timeouts, and the server can open none (draft-ietf-quic-multipath-21 §3.4).
            self.keeper.reopen(now, lane.route.remote);
            return self.keeper.waits(lane.route.remote).then_some(now);
        }
        // A lane that its owner closes was dropped from the keeper beforehand.
        match *reason == LaneLoss::Silent && !lane.is_managed() {
            true => self.keeper.replace(now, lane.route.remote, retry?),
            false => self.keeper.down(now, lane.route.remote, retry?),
        }
    }
}
