//! Lanes of a session: each is one path of the engine in one layer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use marcato_sched::lane::{LaneId, LaneView, PathId};
use marcato_units::{Bytes, Duration, Layer, Priority, PrioritySet, Time};
use noq_proto::{PathStatus, StreamId};

use crate::controller::Congestion;
use crate::coupled::Governed;
use crate::endpoint::SocketId;
use crate::gate::Gate;
use crate::outbox::{Key, Run};
use crate::pacer::Pacer;

/// Request of a client for a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneRequest {
    /// Socket that its packets leave by.
    pub socket: SocketId,
    /// Remote address. No other lane of the session may have the same one: only this address tells
    /// lanes apart when a packet leaves. Two lanes between the same hosts need two ports at both
    /// ends.
    pub remote: SocketAddr,
    /// Class in which the network should serve it.
    pub layer: Layer,
    /// Congestion controller; the session's if `None`.
    pub congestion: Option<Congestion>,
    /// Restricts the lane to times when no other is available.
    pub backup: bool,
}

impl LaneRequest {
    /// Creates a request for an ordinary lane of the high layer.
    pub const fn new(socket: SocketId, remote: SocketAddr) -> Self {
        Self { socket, remote, layer: Layer::High, congestion: None, backup: false }
    }
}

/// State of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneState {
    /// The lane carries data.
    Up,
    /// No acknowledgement arrives for packets sent on the lane. It is used only if there is no
    /// other.
    Stalled,
    /// The path is being validated.
    Opening,
    /// Either end has given up the lane.
    Closing,
}

/// Counters of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Ack-eliciting packets sent.
    pub packets: u64,
    /// Bytes of those packets, including retransmissions.
    pub bytes: Bytes,
    /// Bytes of acknowledged packets.
    pub acked: Bytes,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets with data that the engine retransmitted.
    pub repairs: u64,
    /// Reductions of the congestion window.
    pub reductions: u64,
    /// Times that the lane was declared stalled.
    pub stalls: u64,
}

/// Content of a packet, as far as the session knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Run of bytes of a message on this stream, carried by a packet or a batch of packets.
    Run { key: Key, stream: StreamId, run: Run, priority: Priority, pinned: bool },
    /// Data that the engine retransmitted by itself.
    Repair { priority: Priority, pinned: bool },
    /// Frames that the engine sends by itself: control frames, and probes of silent lanes.
    Control,
    /// Packets of the handshake, probes of the MTU, and unreliable messages.
    Other,
}

/// Control frames in flight.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    /// Last packet that carried one.
    last: u64,
    /// Time when the first of them left, or of a later acknowledgement on the lane.
    since: Time,
}

/// Packet in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) pn: u64,
    pub(crate) bytes: u16,
    pub(crate) load: Load,
    settled: bool,
    /// Set when another lane sends its content.
    given_up: bool,
}

impl Sent {
    /// Returns whether its acknowledgement is awaited.
    const fn counts(&self) -> bool {
        !self.settled && !self.given_up
    }
}

/// Packet's worth of lost data that the engine has to retransmit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    /// Set for a copy that has another copy on another lane. It stays on its lane if possible.
    pub(crate) pinned: bool,
    /// Lane on which it was lost.
    pub(crate) lost_on: LaneId,
}

/// Period after a recovery in which another stall counts as a flap.
const SOON: Duration = Duration::from_secs(10);
/// Half of the first hold after a flap. The hold doubles with each flap.
const HOLD: Duration = Duration::from_millis(125);

/// Limit of the doublings of a lane's trial period: each trial lasts twice as long as the one
/// before.
const MAX_TRIALS: u32 = 4;

/// Lane as its session knows it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) path: noq_proto::PathId,
    /// Number of the path, for schedulers and for display.
    pub(crate) number: u32,
    pub(crate) gate: Arc<Gate>,
    pub(crate) layer: Layer,
    pub(crate) socket: SocketId,
    pub(crate) remote: SocketAddr,
    pub(crate) state: LaneState,
    /// Set if the owner wants the lane used only while no other is available.
    pub(crate) backup: bool,
    /// Set if the peer wants the lane used only while no other is available.
    pub(crate) peer_backup: bool,
    /// Status that the peer has given the path.
    pub(crate) peer_status: Option<PathStatus>,
    /// Backup status last sent to the peer.
    pub(crate) announced_backup: bool,
    /// Time at which this end last withdrew its backup status.
    withdrawn_at: Option<Time>,
    /// Time from which a backup status of the peer counts as its wish, if it has not withdrawn it.
    pub(crate) heeds_at: Option<Time>,
    /// The lane's own controller, if its request named one.
    pub(crate) congestion: Option<Congestion>,
    pub(crate) srtt: Duration,
    /// Least smoothed round-trip time since the address last changed.
    pub(crate) least_rtt: Option<Duration>,
    /// The lane is of the low layer, and the session manages it.
    pub(crate) managed: bool,
    /// The lane sends nothing, because it does harm or is being tested for harm.
    pub(crate) parked: bool,
    /// The owner was informed that this lane carries all data.
    pub(crate) alone: bool,
    /// A chunk was fed and nothing left, because the path is being validated again. The lane rests
    /// until the next event.
    pub(crate) paused: bool,
    /// The session closes the lane because it was silent for too long.
    pub(crate) silent: bool,
    /// Data waited for the lane's full socket since the window was last full.
    pub(crate) held: bool,
    /// Governor of coupled mode, if the session couples and the lane is of the high layer.
    pub(crate) governed: Option<Governed>,
    pub(crate) pacer: Pacer,
    pub(crate) stats: LaneStats,
    /// Time of the last stall.
    pub(crate) stalled_at: Time,
    /// Data packets in flight, by packet number. The window bounds them.
    sent: VecDeque<Sent>,
    /// Number of these packets that are neither settled nor given up.
    loaded: usize,
    /// Last packet number before the path's address changed. The engine reports only losses of
    /// packets up to it.
    before_move: Option<u64>,
    /// The engine has reported a packet that left after the change.
    reported_since_move: bool,
    /// Time of the last acknowledgement, or of the first packet after an idle period.
    silent_since: Time,
    /// Control frames whose packets are neither acknowledged nor lost. Only the engine can send them
    /// again, and it does so on the same lane while its path exists.
    control: Option<Unanswered>,
    /// Time of the last datagram that arrived on the lane.
    pub(crate) heard_at: Time,
    /// Number of consecutive trials without an answer, at most [`MAX_TRIALS`].
    trials: u32,
    /// Set when an acknowledgement has arrived while the lane was in doubt.
    answers: bool,
    /// Time of the last recovery.
    recovered_at: Option<Time>,
    /// Number of stalls that each followed soon after a recovery.
    flaps: u32,
}

impl Lane {
    pub(crate) fn new(
        id: LaneId,
        path: noq_proto::PathId,
        number: u32,
        gate: Arc<Gate>,
        request: LaneRequest,
        state: LaneState,
        now: Time,
    ) -> Self {
        Self {
            id,
            path,
            number,
            gate,
            layer: request.layer,
            socket: request.socket,
            remote: request.remote,
            state,
            backup: request.backup,
            peer_backup: false,
            peer_status: None,
            announced_backup: false,
            withdrawn_at: None,
            heeds_at: None,
            congestion: request.congestion,
            srtt: Duration::ZERO,
            least_rtt: None,
            managed: false,
            parked: false,
            alone: false,
            paused: false,
            silent: false,
            held: false,
            governed: None,
            pacer: Pacer::new(now),
            stats: LaneStats::default(),
            stalled_at: Time::ZERO,
            sent: VecDeque::new(),
            loaded: 0,
            before_move: None,
            reported_since_move: false,
            silent_since: now,
            control: None,
            heard_at: now,
            trials: 0,
            answers: false,
            recovered_at: None,
            flaps: 0,
        }
    }

    /// Returns whether data may be sent on the lane now.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == LaneState::Up && !self.paused && !self.parked
    }

    /// Snapshot of the lane for a lane scheduler.
    pub(crate) fn view(&self, usable: bool) -> LaneView {
        LaneView {
            id: self.id,
            path: PathId(self.number),
            layer: self.layer,
            cwnd: self.gate.window(),
            in_flight: self.gate.in_flight(),
            srtt: self.srtt,
            usable,
            backup: self.announced_backup,
        }
    }

    /// Limit that coupled mode sets to the bytes in flight for the next packet, while data of these levels waits.
    pub(crate) fn limit(&self, waiting: PrioritySet) -> Bytes {
        self.governed.as_ref().map_or(Bytes::MAX, |governed| governed.limit(waiting))
    }

    /// Records a backup status that was sent to the peer. An echo of an earlier one may arrive for as
    /// long as `echo`.
    pub(crate) fn announced(&mut self, now: Time, backup: bool, echo: Duration) {
        if self.announced_backup && !backup {
            self.withdrawn_at = Some(now);
            // While this end had a lane for backup itself, it did not ask for the peer's reason.
            let spared = self.peer_status == Some(PathStatus::Backup) && !self.peer_backup;
            self.heeds_at = spared.then(|| now + echo);
        }
        self.announced_backup = backup;
    }

    /// Takes a status of the peer. Returns whether its wish has changed.
    ///
    /// The peer follows the status of this end, and announces that as well. So a backup counts as the
    /// peer's wish only if this end announces none, and has withdrawn none for as long as `echo`.
    /// Otherwise both ends would follow each other's echoes without end.
    pub(crate) fn peer_announced(&mut self, now: Time, status: PathStatus, echo: Duration) -> bool {
        let backup = status == PathStatus::Backup && !self.announced_backup;
        let echoes_until = self.withdrawn_at.map(|at| at + echo).filter(|at| backup && *at > now);
        self.heeds_at = echoes_until;
        echoes_until.is_none() && std::mem::replace(&mut self.peer_backup, backup) != backup
    }

    /// Takes a backup of the peer as its wish if it can no longer be an echo. Returns whether the wish
    /// has changed.
    pub(crate) fn heed(&mut self, now: Time) -> bool {
        let due = self.heeds_at.take_if(|at| *at <= now).is_some();
        let backup = self.peer_status == Some(PathStatus::Backup) && !self.announced_backup;
        due && backup && !std::mem::replace(&mut self.peer_backup, true)
    }

    /// Records a packet that has left.
    pub(crate) fn sent(&mut self, now: Time, pn: u64, bytes: u16, load: Load) {
        self.stats.packets += 1;
        self.stats.bytes += Bytes::from(u32::from(bytes));
        self.stats.repairs += u64::from(matches!(load, Load::Repair { .. }));
        if load == Load::Control {
            let since = self.control.map_or(now, |control| control.since);
            self.control = Some(Unanswered { last: pn, since });
            return;
        }
        // Other packets need no record. Some would never be settled: the engine reports neither
        // lost probes nor packets of the handshake.
        if load == Load::Other || self.sent.back().is_some_and(|last| last.pn >= pn) {
            return;
        }
        if self.loaded == 0 {
            self.silent_since = now;
        }
        self.loaded += 1;
        self.sent.push_back(Sent { pn, bytes, load, settled: false, given_up: false });
    }

    /// Settles a packet that was acknowledged or lost, and returns its content; `None` if unknown.
    pub(crate) fn settle(&mut self, pn: u64, bytes: u64) -> Option<Load> {
        // With a report about a later packet, the engine also finds the losses among earlier ones.
        self.control.take_if(|control| pn >= control.last);
        if let Some(last) = self.before_move.filter(|last| pn > *last) {
            self.reported_since_move = true;
            // Three later packets make an earlier one lost (RFC 9002 §6.1.1), so all others from
            // before the change have arrived.
            if pn > last.saturating_add(3) {
                self.forget_before_move();
            }
        }
        // Packet numbers are usually consecutive, so the difference is the index, unless unrecorded
        // packets came between.
        let guess = usize::try_from(pn.checked_sub(self.sent.front()?.pn)?).ok()?;
        let at = match self.sent.get(guess) {
            Some(sent) if sent.pn == pn => guess,
            _ => self.sent.binary_search_by_key(&pn, |sent| sent.pn).ok()?,
        };
        let sent = &mut self.sent[at];
        // A packet of the handshake may have the same number, but not also the same length.
        if sent.settled || u64::from(sent.bytes) != bytes {
            return None;
        }
        self.loaded -= usize::from(sent.counts());
        sent.settled = true;
        let load = sent.load;
        while self.sent.front().is_some_and(|sent| sent.settled) {
            self.sent.pop_front();
        }
        Some(load)
    }

    /// Records a change of address. The engine no longer reports acknowledgements of earlier
    /// packets.
    pub(crate) fn moved(&mut self) {
        self.least_rtt = None;
        if let Some(governed) = &mut self.governed {
            governed.restart();
        }
        self.control = None;
        self.before_move = self.sent.back().map(|sent| sent.pn).or(self.before_move);
        self.reported_since_move = false;
    }

    /// Forgets packets that left before the address changed.
    fn forget_before_move(&mut self) {
        let Some(last) = self.before_move.take() else { return };
        while let Some(sent) = self.sent.front().filter(|sent| sent.pn <= last || sent.settled) {
            self.loaded -= usize::from(sent.counts());
            self.sent.pop_front();
        }
    }

    /// Returns whether the lane's silence means nothing, because it owes acknowledgements only of
    /// packets that left before its address changed.
    ///
    /// Once the engine has reported a later packet, the earlier ones are settled. A loss would have
    /// been reported within 9/8 of a round trip (RFC 9002 §6.1.2), so the rest has arrived.
    pub(crate) fn owes_no_ack(&mut self) -> bool {
        if self.reported_since_move {
            self.forget_before_move();
        }
        self.loaded == 0 && self.trials == 0
    }

    /// Forgets packets in flight: the path is closed, and other lanes carry their content.
    pub(crate) fn forget(&mut self) {
        self.sent.clear();
        self.control = None;
        self.loaded = 0;
    }

    /// Number of recorded data packets in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Records an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Time) {
        self.spare(now);
        self.answers = self.is_in_doubt();
    }

    /// Returns whether the lane is in service, and something has arrived on it after `since`.
    ///
    /// Acknowledgements of its own packets are no proof: they may return by another lane.
    pub(crate) fn works_since(&self, since: Time) -> bool {
        self.state == LaneState::Up && !self.is_in_doubt() && self.heard_at > since
    }

    /// Returns whether the lane is stalled, or used only because the others are.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.state == LaneState::Stalled || self.trials > 0
    }

    /// Restarts the measurement of silence.
    pub(crate) fn spare(&mut self, now: Time) {
        self.silent_since = now;
        if let Some(control) = &mut self.control {
            control.since = now;
        }
    }

    /// Records a stall.
    pub(crate) fn on_stall(&mut self, now: Time) {
        self.stats.stalls += 1;
        self.stalled_at = now;
        self.answers = false;
        match self.recovered_at.take() {
            // A low lane is starved again and again without being dead. Its evidence of life is an
            // acknowledgement of packets that it carried itself.
            Some(at) if now.since(at) < SOON => {
                self.flaps = (self.flaps + 1).min(if self.managed { 2 } else { 6 });
            }
            Some(_) => self.flaps = 0,
            None => {}
        }
    }

    /// Time from which the lane is used again, if it answers.
    ///
    /// Normally that is at once. It is later if the lane stalled again soon after a recovery: an
    /// acknowledgement that travels by another lane may repeatedly revive a lane whose return
    /// direction is dead.
    pub(crate) fn recovers_at(&self) -> Option<Time> {
        let hold = if self.flaps == 0 { Duration::ZERO } else { HOLD.saturating_mul(1 << self.flaps) };
        let living = matches!(self.state, LaneState::Up | LaneState::Stalled);
        (self.answers && living).then(|| self.stalled_at + hold)
    }

    /// Returns the lane to service because it answers.
    pub(crate) fn recover(&mut self, now: Time) {
        self.state = LaneState::Up;
        self.answers = false;
        self.trials = 0;
        self.recovered_at = Some(now);
    }

    /// Returns the lane to service on trial, although nothing has arrived.
    pub(crate) fn try_again(&mut self, now: Time) {
        self.state = LaneState::Up;
        self.silent_since = now;
        self.trials = (self.trials + 1).min(MAX_TRIALS);
    }

    /// Passes each unacknowledged run to `take`, and marks its packet as given up. Returns whether
    /// there were also engine retransmissions.
    pub(crate) fn take_unacknowledged(&mut self, mut take: impl FnMut(Key, StreamId, Run, Priority)) -> bool {
        let mut repaired = false;
        for sent in self.sent.iter_mut().filter(|sent| sent.counts()) {
            sent.given_up = true;
            match sent.load {
                Load::Run { key, stream, run, priority, .. } => take(key, stream, run, priority),
                Load::Repair { .. } => repaired = true,
                Load::Control | Load::Other => {}
            }
        }
        self.loaded = 0;
        repaired
    }

    /// Time at which the lane's silence becomes a stall; `None` if no acknowledgement is due.
    pub(crate) fn stalls_at(&self, stall: crate::config::Stall) -> Option<Time> {
        // A lane on trial has to answer something, even if only a probe.
        if self.state != LaneState::Up || (self.loaded == 0 && self.trials == 0) {
            return None;
        }
        Some(self.silent_since + self.patience(stall).saturating_mul(1 << self.trials))
    }

    /// Longest silence that means nothing.
    pub(crate) fn patience(&self, stall: crate::config::Stall) -> Duration {
        let rtts = u64::try_from(self.srtt.as_nanos() * u128::from(stall.rtts) / 1000).unwrap_or(u64::MAX);
        Duration::from_nanos(rtts).max(self.srtt.saturating_add(stall.floor))
    }

    /// Time from which control frames on the lane have been unanswered, and the time at which they
    /// count as stuck; `None` if none is in flight. Stalled lanes and low ones have rules of their
    /// own.
    ///
    /// The wait is twice that of a stall, because a lost packet is no reason: the engine's probe,
    /// after four round trips at most, is answered earlier.
    pub(crate) fn stuck(&self, stall: crate::config::Stall) -> Option<(Time, Time)> {
        let since = self.control.filter(|_| self.state == LaneState::Up && !self.managed)?.since;
        Some((since, since + self.patience(stall).saturating_mul(2)))
    }

    /// Returns whether an acknowledgement is due and none has arrived for a round trip.
    pub(crate) fn is_quiet(&self, now: Time) -> bool {
        self.loaded > 0 && now.since(self.silent_since) >= self.srtt
    }

    /// Updates the pacer from the controller's rate and window.
    pub(crate) fn pace(&mut self, now: Time) {
        let gate = &self.gate;
        self.pacer.adjust(now, gate.pacing_rate(), gate.window(), self.srtt, gate.mtu());
    }
}

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
        self.iter().filter(|lane| lane.remote == remote).min_by_key(|lane| lane.state == LaneState::Closing)
    }

    /// Returns the lane with this remote address, as [`to`](Self::to) does.
    pub(crate) fn to_mut(&mut self, remote: SocketAddr) -> Option<&mut Lane> {
        let lanes = self.iter_mut().filter(|lane| lane.remote == remote);
        lanes.min_by_key(|lane| lane.state == LaneState::Closing)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Stall;
    use crate::gate::GateFactory;
    use noq_proto::congestion::ControllerFactory;

    fn lane() -> Lane {
        let factory = GateFactory {
            congestion: Congestion::RENO,
            initial_window: None,
            engine_paces: false,
            trace_windows: false,
        };
        let controller = Arc::new(factory).build(std::time::Instant::now(), 1200);
        let gate = crate::gate::Gated::gate_of(&*controller).unwrap();
        let request = LaneRequest::new(SocketId(0), SocketAddr::from(([10, 0, 0, 1], 1)));
        let path = noq_proto::PathId::ZERO;
        let mut lane = Lane::new(LaneId::FIRST, path, 0, gate, request, LaneState::Up, Time::ZERO);
        lane.srtt = Duration::from_millis(20);
        lane
    }

    const REPAIR: Load = Load::Repair { priority: Priority::P0, pinned: false };

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn packets_that_the_engine_never_reports_are_not_kept() {
        let mut lane = lane();
        for pn in 0..10_000 {
            // A lost MTU probe is not reported; later packets are acknowledged.
            let load = if pn % 100 == 0 { Load::Other } else { REPAIR };
            lane.sent(ms(pn), pn, 1200, load);
            if pn % 100 != 0 {
                assert_eq!(lane.settle(pn, 1200), Some(REPAIR));
            }
        }
        assert_eq!(lane.in_flight(), 0);
        assert_eq!(lane.stalls_at(Stall::default()), None);
    }

    #[test]
    fn silence_starts_at_the_last_ack_or_first_packet_after_idle() {
        let mut lane = lane();
        lane.sent(ms(1000), 0, 1200, REPAIR);
        lane.sent(ms(1010), 1, 1200, REPAIR);
        // 2.5 round trips are 50 ms, but one and 50 ms are longer.
        assert_eq!(lane.stalls_at(Stall::default()), Some(ms(1070)));
        lane.settle(0, 1200);
        lane.on_ack(ms(1020));
        assert_eq!(lane.stalls_at(Stall::default()), Some(ms(1090)));
        lane.settle(1, 1200);
        assert_eq!(lane.stalls_at(Stall::default()), None);
    }

    #[test]
    fn pre_move_packets_are_forgotten_once_later_ones_are_acked() {
        let mut lane = lane();
        for pn in 0..10 {
            lane.sent(ms(1), pn, 1200, REPAIR);
        }
        lane.moved();
        for pn in 10..20 {
            lane.sent(ms(2), pn, 1200, REPAIR);
        }
        // Losses of earlier packets are still reported.
        assert_eq!(lane.settle(3, 1200), Some(REPAIR));
        assert_eq!(lane.settle(10, 1200), Some(REPAIR));
        assert_eq!(lane.in_flight(), 20);
        for pn in 11..20 {
            assert_eq!(lane.settle(pn, 1200), Some(REPAIR));
        }
        assert_eq!(lane.in_flight(), 0);
        assert_eq!(lane.stalls_at(Stall::default()), None);
        assert_eq!(lane.settle(5, 1200), None);
    }

    #[test]
    fn owes_no_ack_drops_pre_move_packets_after_one_later_report() {
        let mut lane = lane();
        for pn in 0..3 {
            lane.sent(ms(1), pn, 1200, REPAIR);
        }
        lane.moved();
        // The new address may be dead, so silence counts as before.
        assert!(!lane.owes_no_ack());
        lane.sent(ms(2), 3, 1200, REPAIR);
        assert_eq!(lane.settle(3, 1200), Some(REPAIR));
        assert_eq!((lane.in_flight(), lane.stalls_at(Stall::default()).is_some()), (4, true));
        assert!(lane.owes_no_ack());
        assert_eq!((lane.in_flight(), lane.stalls_at(Stall::default())), (0, None));
    }

    #[test]
    fn data_on_a_stalled_lane_is_given_up_once() {
        let mut lane = lane();
        for pn in 0..5 {
            lane.sent(ms(1), pn, 1200, REPAIR);
        }
        assert!(lane.take_unacknowledged(|_, _, _, _| {}));
        assert!(!lane.take_unacknowledged(|_, _, _, _| {}));
        assert_eq!(lane.stalls_at(Stall::default()), None);
        // The packet is still reported as lost or acknowledged later.
        assert_eq!(lane.settle(4, 1200), Some(REPAIR));
    }

    #[test]
    fn a_repeatedly_stalled_lane_recovers_after_growing_delays() {
        let mut lane = lane();
        let mut now = ms(1000);
        let mut holds = Vec::new();
        for _ in 0..9 {
            lane.state = LaneState::Stalled;
            lane.on_stall(now);
            assert_eq!(lane.recovers_at(), None);
            lane.on_ack(now);
            let at = lane.recovers_at().unwrap();
            holds.push((at - now).as_millis());
            now = at;
            lane.recover(now);
            assert!(!lane.is_in_doubt());
            now += Duration::from_millis(100);
        }
        assert_eq!(holds, [0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        // After a longer time in service, the lane recovers at once again.
        now += SOON;
        lane.state = LaneState::Stalled;
        lane.on_stall(now);
        lane.on_ack(now);
        assert_eq!(lane.recovers_at(), Some(now));
    }
}
