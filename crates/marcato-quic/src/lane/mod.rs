//! Lanes of a session: each is one path of the engine in one layer.

mod backup;
mod flight;
mod health;
mod load;
mod low_layer;
mod request;
mod round_trip;
mod stats;
mod table;

use std::sync::Arc;

use marcato_sched::lane::{LaneId, LaneView, PathId};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};

use crate::config::Stall;
use crate::coupled::LaneGovernor;
use crate::gate::Gate;
use crate::pacer::Pacer;

pub(crate) use backup::Backup;
pub(crate) use flight::Flight;
pub(crate) use health::Health;
pub use health::LaneState;
pub(crate) use load::Load;
pub(crate) use low_layer::LowLayer;
pub use request::LaneRequest;
pub(crate) use round_trip::RoundTrip;
pub use stats::LaneStats;
pub(crate) use table::Lanes;

/// Lane as its session knows it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) path: noq_proto::PathId,
    /// Number of the path, for schedulers and for display.
    pub(crate) number: u32,
    /// Request for the lane. Its socket and address follow those of the path.
    pub(crate) route: LaneRequest,
    pub(crate) health: Health,
    pub(crate) backup: Backup,
    /// Set if the lane is of the low layer, and the session manages it.
    pub(crate) low: Option<LowLayer>,
    pub(crate) rtt: RoundTrip,
    pub(crate) flight: Flight,
    pub(crate) gate: Arc<Gate>,
    pub(crate) pacer: Pacer,
    /// Governor of coupled mode, if the session couples and the lane is of the high layer.
    pub(crate) governor: Option<LaneGovernor>,
    /// Data waited for the lane's full socket since the window was last full.
    pub(crate) held: bool,
    /// Level for which its packets are marked; `None` before it has carried data.
    pub(crate) level: Option<Priority>,
    pub(crate) stats: LaneStats,
}

impl Lane {
    /// State of the lane.
    pub(crate) const fn state(&self) -> LaneState {
        self.health.state()
    }

    /// Returns whether the lane carries data, on trial or without doubt.
    pub(crate) fn is_up(&self) -> bool {
        self.state() == LaneState::Up
    }

    /// Returns whether the lane is of the low layer, and the session manages it.
    pub(crate) const fn is_managed(&self) -> bool {
        self.low.is_some()
    }

    /// Returns whether data may be sent on the lane now.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_up() && !self.health.paused && !self.low.is_some_and(|low| low.parked)
    }

    /// Snapshot of the lane for a lane scheduler.
    pub(crate) fn view(&self, usable: bool) -> LaneView {
        LaneView {
            id: self.id,
            path: PathId(self.number),
            layer: self.route.layer,
            cwnd: self.gate.window(),
            in_flight: self.gate.in_flight(),
            srtt: self.rtt.smoothed,
            usable,
            backup: self.backup.is_announced(),
        }
    }

    /// Limit that coupled mode sets to the bytes in flight for the next packet, while data of these levels waits.
    pub(crate) fn limit(&self, waiting: PrioritySet) -> Option<Bytes> {
        self.governor.as_ref()?.limit(waiting)
    }

    /// Records a packet that has left.
    pub(crate) fn sent(&mut self, now: Time, pn: u64, bytes: u16, load: Load) {
        self.stats.packets += 1;
        self.stats.bytes += Bytes::from(u32::from(bytes));
        self.stats.repairs += u64::from(matches!(load, Load::Repair { .. } | Load::Resent { .. }));
        self.flight.sent(now, pn, bytes, load);
    }

    /// Records an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Time) {
        self.flight.spare(now);
        self.health.answered();
    }

    /// Records a change of address. The engine no longer reports acknowledgements of earlier
    /// packets.
    pub(crate) fn moved(&mut self) {
        self.rtt.least = None;
        if let Some(governor) = &mut self.governor {
            governor.restart();
        }
        self.flight.moved();
    }

    /// Returns whether the lane's silence means nothing, because it owes acknowledgements only of
    /// packets that left before its address changed.
    pub(crate) fn owes_no_ack(&mut self) -> bool {
        !self.flight.awaits_ack_since_move() && self.health.trials() == 0
    }

    /// Records a stall.
    pub(crate) fn on_stall(&mut self, now: Time) {
        self.stats.stalls += 1;
        self.health.stall(now, self.is_managed());
        if self.is_managed() {
            self.gate.set_timed_out();
        }
    }

    /// Time at which the lane's silence becomes a stall; `None` if no acknowledgement is due.
    pub(crate) fn stalls_at(&self, stall: Stall) -> Option<Time> {
        // A lane on trial has to answer something, even if only a probe.
        let trials = self.health.trials();
        let due = self.is_up() && (self.flight.awaits_ack() || trials > 0);
        due.then(|| self.flight.silent_since() + self.patience(stall).saturating_mul(1 << trials))
    }

    /// Longest silence that means nothing.
    pub(crate) fn patience(&self, stall: Stall) -> Duration {
        let srtt = self.rtt.smoothed;
        let rtts = u64::try_from(srtt.as_nanos() * u128::from(stall.rtts) / 1000).unwrap_or(u64::MAX);
        Duration::from_nanos(rtts).max(srtt.saturating_add(stall.floor))
    }

    /// Time from which control frames on the lane have been unanswered, and the time at which they
    /// count as stuck; `None` if none is in flight. Stalled lanes and low ones have rules of their
    /// own.
    ///
    /// The wait is twice that of a stall, because a lost packet is no reason: the engine's probe,
    /// after four round trips at most, is answered earlier.
    pub(crate) fn stuck(&self, stall: Stall) -> Option<(Time, Time)> {
        let since = self.flight.control_since().filter(|_| self.is_up() && !self.is_managed())?;
        Some((since, since + self.patience(stall).saturating_mul(2)))
    }

    /// Returns whether an acknowledgement is due and none has arrived for a round trip.
    pub(crate) fn is_quiet(&self, now: Time) -> bool {
        self.flight.is_quiet(now, self.rtt.smoothed)
    }

    /// Updates the pacer from the controller's rate and window.
    pub(crate) fn pace(&mut self, now: Time) {
        let gate = &self.gate;
        self.pacer.adjust(now, gate.pacing_rate(), gate.window(), self.rtt.smoothed, gate.mtu());
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use noq_proto::congestion::ControllerFactory as _;

    use super::*;
    use crate::controller::Congestion;
    use crate::endpoint::SocketId;
    use crate::gate::{GateFactory, Gated};

    #[test]
    fn silence_starts_at_the_last_ack_or_first_packet_after_idle() {
        let factory = GateFactory {
            congestion: Congestion::RENO,
            initial_window: None,
            engine_paces: false,
            trace_windows: false,
        };
        let controller = Arc::new(factory).build(std::time::Instant::now(), 1200);
        let gate = Gated::gate_of(&*controller).unwrap();
        let mut lane = Lane {
            id: LaneId::FIRST,
            path: noq_proto::PathId::ZERO,
            number: 0,
            route: LaneRequest::new(SocketId(0), SocketAddr::from(([10, 0, 0, 1], 1))),
            health: Health::new(Time::ZERO, true),
            backup: Backup::new(false, false),
            low: None,
            rtt: RoundTrip { smoothed: Duration::from_millis(20), least: None },
            flight: Flight::new(Time::ZERO),
            pacer: Pacer::new(Time::ZERO, None, gate.window(), Duration::from_millis(20), gate.mtu()),
            gate,
            governor: None,
            held: false,
            level: None,
            stats: LaneStats::default(),
        };
        let ms = Time::from_millis;
        let repair = Load::Repair { priority: Priority::P0, pinned: false };
        lane.sent(ms(1000), 0, 1200, repair);
        lane.sent(ms(1010), 1, 1200, repair);
        // 2.5 round trips are 50 ms, but one and 50 ms are longer.
        assert_eq!(lane.stalls_at(Stall::default()), Some(ms(1070)));
        lane.flight.settle(0, 1200);
        lane.on_ack(ms(1020));
        assert_eq!(lane.stalls_at(Stall::default()), Some(ms(1090)));
        lane.flight.settle(1, 1200);
        assert_eq!(lane.stalls_at(Stall::default()), None);
    }
}
