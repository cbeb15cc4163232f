//! The lanes of a session: one path of the engine in one layer each.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use marcato_sched::lane::{LaneId, LaneView, PathId};
use marcato_units::{Bytes, Duration, Layer, Priority, Time};
use noq_proto::StreamId;

use crate::controller::Congestion;
use crate::endpoint::SocketId;
use crate::gate::Gate;
use crate::outbox::{Key, Run};
use crate::pacer::Pacer;

/// A lane that a client wishes to have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneRequest {
    /// The socket that its packets leave by.
    pub socket: SocketId,
    /// Where they go. No other lane of the session may have the same remote address: it is all that tells lanes apart
    /// when a packet leaves. Two lanes between the same hosts need two ports at both ends.
    pub remote: SocketAddr,
    /// In which class the network is to serve it.
    pub layer: Layer,
    /// Its controller; the session's if `None`.
    pub congestion: Option<Congestion>,
    /// Whether it is to be used only while no other can be.
    pub backup: bool,
}

impl LaneRequest {
    /// A lane of the high layer like all others.
    pub const fn new(socket: SocketId, remote: SocketAddr) -> Self {
        Self { socket, remote, layer: Layer::High, congestion: None, backup: false }
    }
}

/// How a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneState {
    /// It carries data.
    Up,
    /// Nothing is heard of what was sent on it. It is used only if there is no other.
    Stalled,
    /// The path is being validated.
    Opening,
    /// It has been given up by either end.
    Closing,
}

/// What a lane has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Packets that had to be acknowledged.
    pub packets: u64,
    /// And their bytes.
    pub bytes: Bytes,
    /// Bytes of those acknowledged.
    pub acked: Bytes,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets that repeat what was lost or stuck.
    pub repairs: u64,
    /// Reductions of the window.
    pub reductions: u64,
    /// How often it was believed dead.
    pub stalls: u64,
}

/// What a packet carried, so far as the session knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// A run of bytes of a message, of a batch of packets that carried it, on this stream.
    Run { key: Key, stream: StreamId, run: Run, priority: Priority, pinned: bool },
    /// What the engine sent again by itself.
    Repair { priority: Priority, pinned: bool },
    /// Control frames, probes.
    Other,
}

/// A packet under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) pn: u64,
    pub(crate) bytes: u16,
    pub(crate) load: Load,
    settled: bool,
    /// What it carried goes by another lane.
    given_up: bool,
}

impl Sent {
    /// Whether its acknowledgement is waited for.
    const fn counts(&self) -> bool {
        !self.settled && !self.given_up
    }
}

/// Something that the engine has to send again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    /// Whether it is a copy, and its twin is on another lane: it stays where it was if it can.
    pub(crate) pinned: bool,
    /// Where it was.
    pub(crate) lost_on: LaneId,
}

/// A lane that dies again within this has not really recovered.
const SOON: Duration = Duration::from_secs(10);
/// Half of how long it is then left alone at first. It doubles each time.
const HOLD: Duration = Duration::from_millis(125);

/// Each trial of a lane is twice as long as the one before, but so many times at most.
const MAX_TRIALS: u32 = 4;

/// A lane as its session knows it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) path: noq_proto::PathId,
    /// The number of the path, for schedulers and for people.
    pub(crate) number: u32,
    pub(crate) gate: Arc<Gate>,
    pub(crate) layer: Layer,
    pub(crate) socket: SocketId,
    pub(crate) remote: SocketAddr,
    pub(crate) state: LaneState,
    /// Its owner wants it to be used only while no other can be.
    pub(crate) backup: bool,
    /// The peer wants that.
    pub(crate) shunned: bool,
    /// What the peer was told.
    pub(crate) told_backup: bool,
    /// Its own controller, if it asked for one.
    pub(crate) congestion: Option<Congestion>,
    pub(crate) srtt: Duration,
    /// The least that it was.
    pub(crate) least_rtt: Option<Duration>,
    /// It is of the low layer, and the session sees to it.
    pub(crate) managed: bool,
    /// It is to send nothing, because it does harm or because it is tested whether it does.
    pub(crate) parked: bool,
    /// Its owner has been told that it carries everything.
    pub(crate) alone: bool,
    /// A chunk was fed and nothing left: the path is being validated again. Until something happens, it is left alone.
    pub(crate) paused: bool,
    pub(crate) pacer: Pacer,
    pub(crate) stats: LaneStats,
    /// When it was last believed dead.
    pub(crate) stalled_at: Time,
    /// Packets with data under way, by packet number. As many as the window holds.
    sent: VecDeque<Sent>,
    /// Of those, how many have not been acknowledged and were not given up.
    loaded: usize,
    /// Up to this one, packets left before the path's address changed: of these the engine tells losses only.
    before_move: Option<u64>,
    /// It has told of one that left after that.
    told_since_move: bool,
    /// When an acknowledgement came last, or the first packet after a silence left.
    heard: Time,
    /// How often it has been tried anew in vain.
    trials: u32,
    /// It answers, although it is still believed dead.
    answers: bool,
    /// When it recovered last.
    recovered_at: Option<Time>,
    /// How often it died again soon after it had recovered.
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
            shunned: false,
            told_backup: false,
            congestion: request.congestion,
            srtt: Duration::ZERO,
            least_rtt: None,
            managed: false,
            parked: false,
            alone: false,
            paused: false,
            pacer: Pacer::new(now),
            stats: LaneStats::default(),
            stalled_at: Time::ZERO,
            sent: VecDeque::new(),
            loaded: 0,
            before_move: None,
            told_since_move: false,
            heard: now,
            trials: 0,
            answers: false,
            recovered_at: None,
            flaps: 0,
        }
    }

    /// Whether data may be sent on it now.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == LaneState::Up && !self.paused && !self.parked
    }

    /// What a lane scheduler may know.
    pub(crate) fn view(&self, usable: bool) -> LaneView {
        LaneView {
            id: self.id,
            path: PathId(self.number),
            layer: self.layer,
            cwnd: self.gate.window(),
            in_flight: self.gate.in_flight(),
            srtt: self.srtt,
            usable,
            backup: self.told_backup,
        }
    }

    /// Notes a packet that has left.
    pub(crate) fn sent(&mut self, now: Time, pn: u64, bytes: u16, load: Load) {
        self.stats.packets += 1;
        self.stats.bytes += Bytes::from(u32::from(bytes));
        self.stats.repairs += u64::from(matches!(load, Load::Repair { .. }));
        // Of other packets nothing has to be known later. Some of them are never settled: of probes that are lost, and of
        // the handshake's packets, the engine tells nothing.
        if load == Load::Other || self.sent.back().is_some_and(|last| last.pn >= pn) {
            return;
        }
        if self.loaded == 0 {
            self.heard = now;
        }
        self.loaded += 1;
        self.sent.push_back(Sent { pn, bytes, load, settled: false, given_up: false });
    }

    /// Takes a packet out that was acknowledged or lost.
    pub(crate) fn settle(&mut self, pn: u64, bytes: u64) -> Option<Load> {
        if let Some(last) = self.before_move.filter(|last| pn > *last) {
            self.told_since_move = true;
            // Whatever of before is not lost by now has arrived (RFC 9002 §6.1.1).
            if pn > last.saturating_add(3) {
                self.forget_before_move();
            }
        }
        // Unless packets of which nothing is kept came between, it is as far from the first as its number says.
        let guess = usize::try_from(pn.checked_sub(self.sent.front()?.pn)?).ok()?;
        let at = match self.sent.get(guess) {
            Some(sent) if sent.pn == pn => guess,
            _ => self.sent.binary_search_by_key(&pn, |sent| sent.pn).ok()?,
        };
        let sent = &mut self.sent[at];
        // A packet of the handshake may have the same number, but not the same length as well.
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

    /// Its address has changed: of packets sent before, the engine no longer tells that they were acknowledged.
    pub(crate) fn moved(&mut self) {
        self.least_rtt = None;
        self.before_move = self.sent.back().map(|sent| sent.pn).or(self.before_move);
        self.told_since_move = false;
    }

    /// Forgets what left before the address changed.
    fn forget_before_move(&mut self) {
        let Some(last) = self.before_move.take() else { return };
        while let Some(sent) = self.sent.front().filter(|sent| sent.pn <= last || sent.settled) {
            self.loaded -= usize::from(sent.counts());
            self.sent.pop_front();
        }
    }

    /// Whether its silence means nothing, since all that it seems to owe is the acknowledgement of packets that left
    /// before its address changed. If a later one was heard of, those were either lost, which would have been told
    /// within 9/8 of a round trip (RFC 9002 §6.1.2), or have arrived.
    pub(crate) fn owes_nothing(&mut self) -> bool {
        if self.told_since_move {
            self.forget_before_move();
        }
        self.loaded == 0 && self.trials == 0
    }

    /// Forgets what is under way: the path is no more, and whatever it carried goes elsewhere.
    pub(crate) fn forget(&mut self) {
        self.sent.clear();
        self.loaded = 0;
    }

    /// Packets with data under way.
    pub(crate) fn under_way(&self) -> usize {
        self.sent.len()
    }

    /// An acknowledgement has come.
    pub(crate) fn heard(&mut self, now: Time) {
        self.heard = now;
        self.answers = self.is_in_doubt();
    }

    /// Whether it is believed dead, or used only because the others are.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.state == LaneState::Stalled || self.trials > 0
    }

    /// Its silence counts from now on.
    pub(crate) fn spare(&mut self, now: Time) {
        self.heard = now;
    }

    /// It is believed dead from now on.
    pub(crate) fn fall_silent(&mut self, now: Time) {
        self.stats.stalls += 1;
        self.stalled_at = now;
        self.answers = false;
        match self.recovered_at.take() {
            // A low lane is starved again and again, and is well all the same: what answers for it is an acknowledgement of
            // what it has carried.
            Some(at) if now.since(at) < SOON => {
                self.flaps = (self.flaps + 1).min(if self.managed { 2 } else { 6 });
            }
            Some(_) => self.flaps = 0,
            None => {}
        }
    }

    /// When it is used again, if it answers. At once; later if it died again soon after it had recovered: what travels
    /// by other lanes may answer for a lane on which nothing comes back, again and again.
    pub(crate) fn recovers_at(&self) -> Option<Time> {
        let hold = if self.flaps == 0 { Duration::ZERO } else { HOLD.saturating_mul(1 << self.flaps) };
        let living = matches!(self.state, LaneState::Up | LaneState::Stalled);
        (self.answers && living).then(|| self.stalled_at + hold)
    }

    /// It is used again because it answers.
    pub(crate) fn recover(&mut self, now: Time) {
        self.state = LaneState::Up;
        self.answers = false;
        self.trials = 0;
        self.recovered_at = Some(now);
    }

    /// It is used again although nothing has come.
    pub(crate) fn try_again(&mut self, now: Time) {
        self.state = LaneState::Up;
        self.heard = now;
        self.trials = (self.trials + 1).min(MAX_TRIALS);
    }

    /// Takes out what carries runs of messages and has not been heard of; whether there were repairs beside.
    pub(crate) fn take_unheard(&mut self, mut take: impl FnMut(Key, StreamId, Run, Priority)) -> bool {
        let mut repaired = false;
        for sent in self.sent.iter_mut().filter(|sent| sent.counts()) {
            sent.given_up = true;
            match sent.load {
                Load::Run { key, stream, run, priority, .. } => take(key, stream, run, priority),
                Load::Repair { .. } => repaired = true,
                Load::Other => {}
            }
        }
        self.loaded = 0;
        repaired
    }

    /// When its silence will have been too long.
    pub(crate) fn stalls_at(&self, stall: crate::config::Stall) -> Option<Time> {
        // One that is on trial has to answer something, be it only a probe.
        if self.state != LaneState::Up || (self.loaded == 0 && self.trials == 0) {
            return None;
        }
        let rtts = u64::try_from(self.srtt.as_nanos() * u128::from(stall.rtts) / 1000).unwrap_or(u64::MAX);
        let patience = Duration::from_nanos(rtts).max(self.srtt.saturating_add(stall.floor));
        Some(self.heard + patience.saturating_mul(1 << self.trials))
    }

    /// Whether nothing has come for a round trip although something should have.
    pub(crate) fn is_quiet(&self, now: Time) -> bool {
        self.loaded > 0 && now.since(self.heard) >= self.srtt
    }

    /// Sets the pacer to what the controller says now.
    pub(crate) fn pace(&mut self, now: Time) {
        let gate = &self.gate;
        self.pacer.adjust(now, gate.pacing_rate(), gate.window(), self.srtt, gate.mtu());
    }
}

/// The lanes of one session, each in the place of its name; at most [`MAX_LANES`](marcato_sched::lane::MAX_LANES).
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

    /// A name that no lane has.
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

    /// The lane that goes there. One that has been given up may still be known beside the one that replaces it.
    pub(crate) fn to(&self, remote: SocketAddr) -> Option<&Lane> {
        self.iter().filter(|lane| lane.remote == remote).min_by_key(|lane| lane.state == LaneState::Closing)
    }

    /// Shuts every gate.
    pub(crate) fn shut(&self) {
        for lane in self.iter() {
            lane.gate.set_shut(true);
        }
    }

    /// How often the engine has been refused so far.
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
    fn packets_of_which_the_engine_tells_nothing_are_not_kept() {
        let mut lane = lane();
        for pn in 0..10_000 {
            // A probe for a larger packet is lost in silence; what comes after it is acknowledged.
            let load = if pn % 100 == 0 { Load::Other } else { REPAIR };
            lane.sent(ms(pn), pn, 1200, load);
            if pn % 100 != 0 {
                assert_eq!(lane.settle(pn, 1200), Some(REPAIR));
            }
        }
        assert_eq!(lane.under_way(), 0);
        assert_eq!(lane.stalls_at(Stall::default()), None);
    }

    #[test]
    fn silence_counts_from_the_first_packet_after_a_rest_or_the_latest_acknowledgement() {
        let mut lane = lane();
        lane.sent(ms(1000), 0, 1200, REPAIR);
        lane.sent(ms(1010), 1, 1200, REPAIR);
        // 2.5 round trips are 50 ms, but one and 50 ms are longer.
        assert_eq!(lane.stalls_at(Stall::default()), Some(ms(1070)));
        lane.settle(0, 1200);
        lane.heard(ms(1020));
        assert_eq!(lane.stalls_at(Stall::default()), Some(ms(1090)));
        lane.settle(1, 1200);
        assert_eq!(lane.stalls_at(Stall::default()), None);
    }

    #[test]
    fn what_left_before_a_move_is_forgotten_once_later_packets_are_acknowledged() {
        let mut lane = lane();
        for pn in 0..10 {
            lane.sent(ms(1), pn, 1200, REPAIR);
        }
        lane.moved();
        for pn in 10..20 {
            lane.sent(ms(2), pn, 1200, REPAIR);
        }
        // Of those before, losses are told still.
        assert_eq!(lane.settle(3, 1200), Some(REPAIR));
        assert_eq!(lane.settle(10, 1200), Some(REPAIR));
        assert_eq!(lane.under_way(), 20);
        for pn in 11..20 {
            assert_eq!(lane.settle(pn, 1200), Some(REPAIR));
        }
        assert_eq!(lane.under_way(), 0);
        assert_eq!(lane.stalls_at(Stall::default()), None);
        assert_eq!(lane.settle(5, 1200), None);
    }

    #[test]
    fn what_left_before_a_move_owes_nothing_once_any_later_packet_was_told_of() {
        let mut lane = lane();
        for pn in 0..3 {
            lane.sent(ms(1), pn, 1200, REPAIR);
        }
        lane.moved();
        // The new address may be dead. Silence counts as ever.
        assert!(!lane.owes_nothing());
        lane.sent(ms(2), 3, 1200, REPAIR);
        assert_eq!(lane.settle(3, 1200), Some(REPAIR));
        assert_eq!((lane.under_way(), lane.stalls_at(Stall::default()).is_some()), (4, true));
        assert!(lane.owes_nothing());
        assert_eq!((lane.under_way(), lane.stalls_at(Stall::default())), (0, None));
    }

    #[test]
    fn what_was_given_up_is_given_up_once() {
        let mut lane = lane();
        for pn in 0..5 {
            lane.sent(ms(1), pn, 1200, REPAIR);
        }
        assert!(lane.take_unheard(|_, _, _, _| {}));
        assert!(!lane.take_unheard(|_, _, _, _| {}));
        assert_eq!(lane.stalls_at(Stall::default()), None);
        // It is lost or acknowledged all the same, one day.
        assert_eq!(lane.settle(4, 1200), Some(REPAIR));
    }

    #[test]
    fn a_lane_that_dies_again_and_again_is_used_again_later_and_later() {
        let mut lane = lane();
        let mut now = ms(1000);
        let mut holds = Vec::new();
        for _ in 0..9 {
            lane.state = LaneState::Stalled;
            lane.fall_silent(now);
            assert_eq!(lane.recovers_at(), None);
            lane.heard(now);
            let at = lane.recovers_at().unwrap();
            holds.push((at - now).as_millis());
            now = at;
            lane.recover(now);
            assert!(!lane.is_in_doubt());
            now += Duration::from_millis(100);
        }
        assert_eq!(holds, [0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        // After a good while, it is believed at once again.
        now += SOON;
        lane.state = LaneState::Stalled;
        lane.fall_silent(now);
        lane.heard(now);
        assert_eq!(lane.recovers_at(), Some(now));
    }
}
