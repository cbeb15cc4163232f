//! Lanes of a session: opening, moving, stalling, and closing.
//!
//! The session moves message data from a dead lane to others by itself. Frames that only the engine knows
//! stay on the lane while its path exists: acknowledgements, credit, reports. So a high lane that is silent
//! for twice the time of a stall is closed and reopened at once, where `SessionConfig::reopen` allows it. The
//! receiver of data notices such a lane by its own control frames.

use std::net::SocketAddr;
use std::sync::Arc;

use marcato_sched::coupled::Coupling;
use marcato_sched::lane::{LaneId, MAX_LANES};
use marcato_units::{Duration, Layer, Priority, Time};
use marcato_wire::ErrorCode;
use noq_proto::{FourTuple, PathAbandonReason, PathError, PathEvent, PathStatus, StreamId, VarInt};

use super::Session;
use super::repairs::Repair;
use crate::coupled::LaneGovernor;
use crate::event::{Event, LaneLoss};
use crate::gate::Gated;
use crate::lane::{Backup, Flight, Health, Lane, LaneRequest, LaneState, LaneStats, LowLayer, RoundTrip};
use crate::outbox::{Carrier, Key, Role, Run};
use crate::pacer::Pacer;

/// Error code of a path that is given up because nothing returns on it (draft-ietf-quic-multipath).
const PATH_UNSTABLE_OR_POOR: u32 = 0x3e76;
/// Least time for which the peer may echo a withdrawn status.
const ECHO: Duration = Duration::from_millis(100);

/// Opening, moving, stalling and closing of lanes.
impl Session {
    /// Makes a lane of a path of the engine, which is `validated` or has still to be; `None` without a gate or a
    /// free identifier.
    pub(super) fn adopt(
        &mut self,
        now: Time,
        path: noq_proto::PathId,
        number: u32,
        request: LaneRequest,
        validated: bool,
    ) -> Option<LaneId> {
        let gate = self.conn.congestion_state(path).and_then(Gated::gate_of)?;
        let id = self.lanes.vacant()?;
        let request = self.as_layered(request);
        if let Some(congestion) = request.congestion {
            gate.replace(self.clock.instant(now), congestion, self.config.initial_window);
        }
        let backup = self.conn.path_status(path) == Ok(PathStatus::Backup);
        // The peer may have sent the status before the path was validated.
        let peer_backup = self.conn.remote_path_status(path) == Some(PathStatus::Backup);
        let couples = self.config.coupled != Coupling::Off && request.layer == Layer::High;
        let smoothed = self.conn.rtt(path).unwrap_or(self.config.initial_rtt);
        let pacer = Pacer::new(now, gate.pacing_rate(), gate.window(), smoothed, gate.mtu());
        self.lanes.insert(Lane {
            id,
            path,
            number,
            route: request,
            health: Health::new(now, validated),
            backup: Backup::new(backup, peer_backup),
            low: self.manages(request.layer).then(LowLayer::default),
            rtt: RoundTrip { smoothed, least: None },
            flight: Flight::new(now),
            governor: couples
                .then(|| LaneGovernor::new(gate.mtu(), self.config.queued_packets, self.config.urgent)),
            gate,
            pacer,
            held: false,
            level: None,
            stats: LaneStats::default(),
        });
        Some(id)
    }

    /// Opens requested lanes, as far as the peer's connection IDs and path limit allow.
    pub(super) fn open_lanes(&mut self, now: Time) {
        if !self.phase.is_confirmed() {
            return;
        }
        for _ in 0..self.requests.len() {
            let Some(request) = self.requests.pop_front() else { return };
            // Another lane to this address is still closing, or closing lanes hold all identifiers.
            if self.lanes.to(request.remote).is_some() || self.lanes.vacant().is_none() {
                self.requests.push_back(request);
                continue;
            }
            let tuple = FourTuple::new(request.remote, self.sockets.ip(request.socket));
            let status = if request.backup { PathStatus::Backup } else { PathStatus::Available };
            match self.conn.open_path(tuple, status, self.clock.instant(now)) {
                Ok(path) => {
                    let number = self.number_of(path);
                    self.adopt(now, path, number, request, false);
                    self.send.request_look();
                }
                // The peer has not yet issued connection IDs, or will allow more paths when one is
                // closed.
                Err(PathError::RemoteCidsExhausted | PathError::MaxPathIdReached) => {
                    self.requests.push_front(request);
                    return;
                }
                Err(error) => {
                    self.keeper.drop(request.remote);
                    let reason = LaneLoss::Refused(error.to_string());
                    self.events.push_back(Event::LaneDown { lane: None, reason, reopens_at: None });
                }
            }
        }
    }

    fn number_of(&self, path: noq_proto::PathId) -> u32 {
        number_near(self.lanes.iter().map(|lane| lane.number).max().unwrap_or(0), path)
    }

    pub(super) fn path_event(&mut self, now: Time, event: PathEvent) {
        match event {
            PathEvent::Established { id, .. } => {
                let known = self.lanes.of_path(id).or_else(|| self.adopt_peers(now, id));
                if let Some(lane) = known.and_then(|lane| self.lanes.get_mut(lane)) {
                    lane.health.establish();
                    let id = lane.id;
                    if lane.backup.is_announced() {
                        // The engine sends a status only when it changes, not the one that the path
                        // was opened with.
                        for status in [PathStatus::Available, PathStatus::Backup] {
                            let _ = self.conn.set_path_status(lane.path, status);
                        }
                    }
                    self.events.push_back(Event::LaneUp(id));
                    self.keep_up(now, id);
                } else {
                    // Without a gate of this session, the engine would send on the path at will.
                    let _ = self.conn.close_path(self.clock.instant(now), id, VarInt::from_u32(0));
                }
                self.rank_lanes(now);
            }
            PathEvent::Abandoned { id, reason, .. } => {
                let reason = match reason {
                    PathAbandonReason::ApplicationClosed { .. } => LaneLoss::Closed,
                    PathAbandonReason::RemoteAbandoned { error_code }
                        if error_code.into_inner() == u64::from(PATH_UNSTABLE_OR_POOR) =>
                    {
                        LaneLoss::Silent
                    }
                    PathAbandonReason::RemoteAbandoned { .. } => LaneLoss::ClosedByPeer,
                    _ => LaneLoss::Silent,
                };
                let lane = self.lanes.of_path(id);
                // The engine knows only that we closed it.
                let closed = lane.and_then(|lane| self.lanes.get(lane));
                let reason = match closed.is_some_and(|lane| lane.health.is_closed_as_silent()) {
                    true => LaneLoss::Silent,
                    false => reason,
                };
                let mut reopens_at = None;
                if let Some(lane) = lane {
                    reopens_at = self.keep_down(now, lane, &reason);
                    let unknown = self.lanes.get(lane).is_some_and(|lane| lane.state() == LaneState::Opening);
                    if let Some(lane) = self.lanes.get_mut(lane) {
                        lane.health.close(false);
                    }
                    // The engine would also retransmit the packets in flight, but only after three
                    // PTOs.
                    self.give_up_on(lane);
                    if let Some(lane) = self.lanes.get_mut(lane) {
                        lane.flight.forget();
                    }
                    // A peer that never saw the path does not confirm its abandonment. The engine
                    // waits for that confirmation before it discards the path, perhaps forever.
                    if unknown {
                        self.lanes.remove(lane);
                    }
                }
                self.events.push_back(Event::LaneDown { lane, reason, reopens_at });
                self.rank_lanes(now);
            }
            PathEvent::Discarded { id, .. } => {
                if let Some(lane) = self.lanes.of_path(id) {
                    self.lanes.remove(lane);
                }
            }
            PathEvent::RemoteStatus { id, .. } => {
                // The engine also reports frames that are out of date.
                let Some(status) = self.conn.remote_path_status(id) else { return };
                let echo = self.echo();
                let Some(id) = self.lanes.of_path(id) else { return };
                let Some(lane) = self.lanes.get_mut(id) else { return };
                if lane.backup.peer_announced(now, status == PathStatus::Backup, echo) {
                    let backup = lane.backup.is_peers_wish();
                    self.events.push_back(Event::LaneBackup { lane: id, backup });
                    self.rank_lanes(now);
                }
            }
            _ => {}
        }
    }

    /// Makes a lane of a path that the peer has opened, with the layer of its socket.
    fn adopt_peers(&mut self, now: Time, path: noq_proto::PathId) -> Option<LaneId> {
        let remote = self.remote_of(path)?;
        let socket = self.socket_to(remote).unwrap_or_default();
        let request = self.sockets.request(socket, remote);
        let number = self.number_of(path);
        self.adopt(now, path, number, request, true)
    }

    fn remote_of(&self, path: noq_proto::PathId) -> Option<SocketAddr> {
        self.conn.network_path(path).ok().map(|tuple| tuple.remote())
    }

    /// Updates lanes whose path has a new address, and so perhaps another controller.
    pub(super) fn follow_moves(&mut self, now: Time) {
        for id in (0..).map_while(LaneId::new) {
            let Some(path) = self.lanes.get(id).map(|lane| lane.path) else { continue };
            let Some(remote) = self.remote_of(path) else { continue };
            if self.lanes.get(id).is_none_or(|lane| lane.route.remote == remote) {
                continue;
            }
            let socket = self.socket_to(remote);
            let gate = self.conn.congestion_state(path).and_then(Gated::gate_of);
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            if let Some(gate) = gate.filter(|gate| !Arc::ptr_eq(gate, &lane.gate)) {
                if let Some(congestion) = lane.route.congestion {
                    gate.replace(self.clock.instant(now), congestion, self.config.initial_window);
                }
                lane.gate = gate;
            }
            // The engine may still send to the old address, by the old socket.
            let (old, by) = (std::mem::replace(&mut lane.route.remote, remote), lane.route.socket);
            lane.route.socket = socket.unwrap_or(lane.route.socket);
            lane.moved();
            self.events.push_back(Event::LaneMoved(id));
            self.arrivals.remember(old, by);
        }
    }

    /// Times at which stalled lanes are given up, if another lane has worked since they stalled.
    ///
    /// A lane that merely carried nothing is no proof: its peer may have sent the acknowledgements of the
    /// stalled one by it. The end that closed the stalled one would have closed the only lane that works,
    /// while the peer closes the other.
    ///
    /// Where lanes are reopened, that is soon. Frames of the engine are stuck on the lane, at either
    /// end: acknowledgements, credit, notes. They leave by another lane only when the path is closed.
    pub(super) fn given_up_at(&self) -> impl Iterator<Item = (Time, LaneId)> + '_ {
        let works = |since| self.lanes.iter().any(|lane| lane.health.works_since(since));
        self.lanes.iter().filter_map(move |lane| {
            let since = lane.health.stalled_at().filter(|since| works(*since))?;
            // A lane whose recovery is on hold does answer.
            let replaced =
                self.replaces_silent() && !lane.is_managed() && lane.health.recovers_at().is_none();
            let replaced = replaced.then(|| lane.patience(self.config.stall));
            let span = replaced.into_iter().chain(self.config.lane_idle_timeout).min()?;
            Some((since + span, lane.id))
        })
    }

    /// Returns whether a silent lane is closed soon, if another works. The bytes of plain streams leave by another
    /// lane only then.
    fn replaces_silent(&self) -> bool {
        self.config.reopen.is_some() || self.streams.is_some()
    }

    /// Times at which control frames count as stuck on lanes that are up, if lanes are reopened and
    /// there is another: the start of the wait, its end, and the lane.
    pub(super) fn stuck_at(&self) -> impl Iterator<Item = (Time, Time, LaneId)> + '_ {
        let several = self.config.reopen.is_some() && self.lanes.up().count() > 1;
        let lanes = self.lanes.iter().filter(move |_| several);
        lanes.filter_map(|lane| lane.stuck(self.config.stall).map(|(since, at)| (since, at, lane.id)))
    }

    /// Closes lanes on which control frames are stuck.
    ///
    /// The peer sends all acknowledgements by its first lane. If nothing has arrived on that one
    /// either, it may be the dead one, and is asked first.
    pub(super) fn replace_stuck(&mut self, now: Time) {
        loop {
            let stuck = self.stuck_at().filter(|(_, at, _)| *at <= now);
            let Some((since, _, id)) = stuck.min_by_key(|(.., id)| self.lanes.get(*id).map(|it| it.number))
            else {
                return;
            };
            let first = self.lanes.answering().filter(|first| first.id != id);
            if let Some(first) = first.filter(|first| first.health.heard_at <= since) {
                let _ = self.conn.ping_path(first.path);
                self.lanes.spare(now);
                self.send.request_look();
                return;
            }
            self.close_silent(now, id);
            // The lane may have carried the acknowledgements of the others.
            self.lanes.spare(now);
        }
    }

    /// Closes lanes that have been silent for long. The engine's idle timeout would also close a
    /// healthy lane that carries data in one direction only, because its acknowledgements return on
    /// another.
    pub(super) fn give_up_silent(&mut self, now: Time) {
        loop {
            let silent = self.given_up_at().find(|(at, _)| *at <= now);
            let Some((_, id)) = silent else { return };
            if !self.close_silent(now, id) {
                return;
            }
        }
    }

    /// Closes a lane that has been silent. Returns whether the engine has another path.
    pub(super) fn close_silent(&mut self, now: Time, id: LaneId) -> bool {
        let Some(lane) = self.lanes.get_mut(id) else { return false };
        let unstable = VarInt::from_u32(PATH_UNSTABLE_OR_POOR);
        if self.conn.close_path(self.clock.instant(now), lane.path, unstable).is_err() {
            lane.health.stall_anew(now);
            return false;
        }
        lane.health.close(true);
        self.after_engine(now);
        true
    }

    /// Declares lanes stalled that have been silent for too long, and moves their data.
    pub(super) fn look_for_stalls(&mut self, now: Time) {
        if self.phase.is_closed() {
            return;
        }
        for id in (0..).map_while(LaneId::new) {
            let Some(lane) = self.lanes.get(id) else { continue };
            if lane.stalls_at(self.config.stall).is_none_or(|at| at > now) {
                continue;
            }
            let managed = lane.is_managed();
            if self.lanes.get_mut(id).is_some_and(Lane::owes_no_ack) {
                continue;
            }
            // If the lane of all acknowledgements is silent too, it is the one to doubt. Starvation of
            // a low lane is normal, and high lanes may merely be slow.
            let first = self.lanes.answering().filter(|first| !managed && first.is_quiet(now));
            let id = first.map_or(id, |first| first.id);
            let other = self.lanes.up().any(|lane| lane.id != id);
            // If no lane answers, they are tried in turn. All acknowledgements leave by one lane,
            // and that may be the dead one.
            let silent = self.lanes.iter().filter_map(|lane| Some((lane.health.stalled_at()?, lane.id)));
            let next = silent.min_by_key(|(at, _)| *at).map(|(_, id)| id).filter(|_| !other);
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            if !other && next.is_none() {
                // There is no other lane. The engine's own probes continue.
                lane.flight.spare(now);
                if lane.health.fall_silent() {
                    self.events.push_back(Event::LaneStalled(id));
                }
                continue;
            }
            // A trial that fails is the stall before.
            let is_new = !lane.health.is_in_doubt() && !lane.health.is_silent();
            lane.on_stall(now);
            self.give_up_on(id);
            if is_new {
                self.events.push_back(Event::LaneStalled(id));
            }
            if let Some(lane) = next.and_then(|next| self.lanes.get_mut(next)) {
                lane.health.try_again();
            }
            // The dead lane may have carried the acknowledgements of the others.
            self.lanes.spare(now);
            self.rank_lanes(now);
            self.send.request_look();
        }
        self.look_for_recoveries(now);
    }

    /// Returns lanes to service that answer again.
    pub(super) fn look_for_recoveries(&mut self, now: Time) {
        let mut any = false;
        for lane in self.lanes.iter_mut() {
            if lane.health.recovers_at().is_some_and(|at| at <= now) {
                lane.health.recover(now);
                self.events.push_back(Event::LaneRecovered(lane.id));
                any = true;
            } else if lane.health.take_end_of_silence() {
                self.events.push_back(Event::LaneRecovered(lane.id));
            }
        }
        if any {
            // Lanes on trial, tried only for lack of a better one, are no longer needed.
            self.lanes.iter_mut().for_each(|lane| lane.health.end_trial());
            self.rank_lanes(now);
        }
    }

    /// Abandons lanes that do not answer. The engine closes on one path only, the first that is not
    /// abandoned.
    ///
    /// The peer sends all acknowledgements by the first lane that is not a backup. If no lane
    /// answers, that one is to be doubted.
    pub(super) fn leave_quiet_lanes(&mut self, now: Time) {
        let answers = |lane: &Lane| lane.is_up() && !lane.is_quiet(now);
        let doubted = self.lanes.answering().filter(|_| !self.lanes.iter().any(answers));
        let doubted = doubted.map(|lane| lane.id);
        let leaves = |lane: &&Lane| doubted.map_or(!answers(lane), |doubted| lane.id == doubted);
        let unstable = VarInt::from_u32(PATH_UNSTABLE_OR_POOR);
        for lane in self.lanes.iter().filter(leaves) {
            // The engine keeps its last path.
            let _ = self.conn.close_path(self.clock.instant(now), lane.path, unstable);
        }
    }

    /// Time for which the peer may echo a status that this end has withdrawn.
    pub(super) fn echo(&self) -> Duration {
        let slowest = self.lanes.iter().map(|lane| lane.rtt.smoothed).max().unwrap_or_default();
        (slowest * 3).max(ECHO)
    }

    /// Follows the peer in lanes that it still has for backup although it has had time to withdraw an
    /// echo.
    pub(super) fn heed_backups(&mut self, now: Time) {
        let mut any = false;
        for lane in self.lanes.iter_mut() {
            if lane.backup.heed(now) {
                self.events.push_back(Event::LaneBackup { lane: lane.id, backup: true });
                any = true;
            }
        }
        if any {
            self.rank_lanes(now);
        }
    }

    /// Marks lanes as backups in the engine, which informs the peer.
    ///
    /// Stalled lanes are backups. So are those that either end wants to spare, while there is a
    /// better one. The engine sends data and acknowledgements only on the others.
    pub(super) fn rank_lanes(&mut self, now: Time) {
        let echo = self.echo();
        // A lane that the peer spares may be dead in the other direction, which is worse than
        // merely being unwanted.
        let rank = |lane: &Lane| match (
            lane.backup.is_peers_wish() && self.config.follow_peer_backup,
            lane.route.backup,
        ) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        let Some(best) = self.lanes.up().map(rank).min() else { return };
        let mut changes = [None; MAX_LANES];
        for lane in self.lanes.iter() {
            let backup = match lane.state() {
                LaneState::Up => rank(lane) > best,
                LaneState::Stalled => true,
                LaneState::Opening | LaneState::Closing => continue,
            };
            changes[lane.id.index()] = Some(backup).filter(|backup| *backup != lane.backup.is_announced());
        }
        for (lane, backup) in self
            .lanes
            .iter_mut()
            .filter_map(|lane| Some((changes[lane.id.index()]?, lane)))
            .map(|(b, l)| (l, b))
        {
            let status = if backup { PathStatus::Backup } else { PathStatus::Available };
            // Without multipath there is only one path, and no status to send.
            if self.conn.set_path_status(lane.path, status).is_ok() {
                lane.backup.announced(now, backup, echo);
                self.send.request_look();
            }
        }
    }

    /// Moves the data that is stuck on a lane to others. The engine would leave it there while the
    /// path exists.
    fn give_up_on(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        let mut stuck = Vec::new();
        // Runs within the engine's own retransmissions are unknown, so every lost run is resent.
        let repaired = lane
            .flight
            .take_unacknowledged(|key, stream, run, priority| stuck.push((key, stream, run, priority)));
        if repaired {
            for (key, message) in self.outbox.iter_mut() {
                for carrier in &message.carriers {
                    let within = |run: &&Run| carrier.run.start <= run.start && run.end <= carrier.run.end;
                    let lost = message.lost.iter().filter(within);
                    stuck.extend(lost.map(|run| (key, carrier.stream, *run, message.priority)));
                }
            }
        }
        for (key, stream, run, priority) in stuck {
            let Some(message) = self.outbox.get(key) else { continue };
            // A run whose stream was replaced is already resent elsewhere.
            let Some(carrier) = message.carriers.iter().find(|carrier| carrier.stream == stream) else {
                continue;
            };
            let travels = |copy: &Carrier| match copy.role {
                Role::Copy(on) => self.lanes.get(on).is_some_and(|lane| lane.is_up()),
                Role::Main => matches!(carrier.role, Role::Copy(_)),
                Role::Repair => false,
            };
            let mut others = message.carriers.iter().filter(|other| other.stream != stream);
            if others.any(|copy| copy.written >= run.end && travels(copy)) {
                continue;
            }
            if run.start == carrier.run.start {
                self.replace_carrier(key, stream, priority, id);
            } else {
                self.repairs.enter(Repair::new(key, run, priority, id));
            }
        }
    }

    /// Replaces a stream whose frame header is stuck on a lane, because the receiver cannot use
    /// data without it. The stream is reset; other streams carry what was written to it, and later
    /// the rest.
    fn replace_carrier(&mut self, key: Key, stream: StreamId, priority: Priority, lost_on: LaneId) {
        // A new stream opens where none carries the next byte, so the rest needs no entry here.
        let Some(carrier) = self.outbox.remove_carrier(stream) else { return };
        self.reset(stream, ErrorCode::Abandoned);
        self.repairs.forget_stream(stream);
        let run = Run { start: carrier.run.start, end: carrier.written };
        if run.len() > 0 {
            self.repairs.enter(Repair::new(key, run, priority, lost_on));
        }
    }

    /// Skips a lane until the next event, or until paused lanes are tried again.
    pub(super) fn pause(&mut self, now: Time, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.health.paused = true;
            self.alarms.retry_after(now);
        }
    }
}

/// Returns the number of a path, or `largest` if it is not near.
///
/// The engine hides the number, but builds identifiers from consecutive numbers. A path may appear
/// before others that were opened earlier. Such numbers differ from the largest so far by no more
/// than the number of paths that may be open.
fn number_near(largest: u32, path: noq_proto::PathId) -> u32 {
    let above = largest..largest.saturating_add(256);
    let below = largest.saturating_sub(256)..largest;
    let mut near = above.chain(below.rev());
    near.find(|number| noq_proto::PathId::from(*number) == path).unwrap_or(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_seen_late_has_its_own_number() {
        for (largest, number) in [(0, 0), (0, 1), (2, 1), (7, 0), (300, 299), (300, 310)] {
            assert_eq!(number_near(largest, noq_proto::PathId::from(number)), number);
        }
    }
}
