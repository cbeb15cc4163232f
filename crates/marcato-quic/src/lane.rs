//! The lanes of a session: one path of the engine in one layer each.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use marcato_sched::lane::{LaneId, LaneView, MAX_LANES, PathId};
use marcato_units::{Bytes, Duration, Layer, Priority, Time};

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
    /// A run of bytes of a message, of a batch of packets that carried it.
    Run { key: Key, run: Run, priority: Priority, pinned: bool },
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
}

/// Something that the engine has to send again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    pub(crate) priority: Priority,
    /// Whether it is a copy, and its twin is on another lane: it stays where it was.
    pub(crate) pinned: bool,
}

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
    pub(crate) backup: bool,
    pub(crate) srtt: Duration,
    /// A chunk was fed and nothing left: the path is being validated again. Until something happens, it is left alone.
    pub(crate) paused: bool,
    pub(crate) pacer: Pacer,
    pub(crate) owed: VecDeque<Owed>,
    pub(crate) stats: LaneStats,
    /// Packets under way, by packet number. As many as the window holds.
    sent: VecDeque<Sent>,
    /// Of those, how many carry messages and have not been acknowledged.
    loaded: usize,
    /// Bytes under way, probes included.
    flying: u64,
    /// When an acknowledgement came last, or the first packet after a silence left.
    heard: Time,
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
            srtt: Duration::ZERO,
            paused: false,
            pacer: Pacer::new(now),
            owed: VecDeque::new(),
            stats: LaneStats::default(),
            sent: VecDeque::new(),
            loaded: 0,
            flying: 0,
            heard: now,
        }
    }

    /// Whether data may be sent on it now.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == LaneState::Up && !self.paused
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
            backup: self.backup,
        }
    }

    /// Notes a packet that has left.
    pub(crate) fn sent(&mut self, now: Time, pn: u64, bytes: u16, load: Load) {
        if self.flying == 0 {
            self.heard = now;
        }
        self.flying += u64::from(bytes);
        self.loaded += usize::from(matches!(load, Load::Run { .. }));
        self.stats.packets += 1;
        self.stats.bytes += Bytes::from(u32::from(bytes));
        self.stats.repairs += u64::from(matches!(load, Load::Repair { .. }));
        // Of a lost probe nobody is told, and nothing is owed for it: it need not be remembered. The handshake's
        // packets have numbers of their own; they are not mixed up with what is fed.
        if load != Load::Other && self.sent.back().is_none_or(|last| last.pn < pn) {
            self.sent.push_back(Sent { pn, bytes, load, settled: false });
        }
    }

    /// Takes a packet out that was acknowledged or lost.
    pub(crate) fn settle(&mut self, pn: u64, bytes: u64) -> Option<Load> {
        self.flying = self.flying.saturating_sub(bytes);
        let at = self.sent.binary_search_by_key(&pn, |sent| sent.pn).ok()?;
        let sent = &mut self.sent[at];
        // A packet of the handshake may have the same number, but not the same length as well.
        if sent.settled || u64::from(sent.bytes) != bytes {
            return None;
        }
        sent.settled = true;
        let load = sent.load;
        self.loaded -= usize::from(matches!(load, Load::Run { .. }));
        while self.sent.front().is_some_and(|sent| sent.settled) {
            self.sent.pop_front();
        }
        Some(load)
    }

    /// An acknowledgement has come.
    pub(crate) fn heard(&mut self, now: Time) {
        self.heard = now;
        if self.gate.in_flight().is_zero() {
            self.flying = 0;
        }
    }

    /// Forgets what is under way: nobody will say what becomes of it.
    pub(crate) fn forget_sent(&mut self) {
        self.sent.clear();
        self.loaded = 0;
        self.flying = 0;
    }

    /// Since when nothing has been heard of what is under way.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        let waiting =
            matches!(self.state, LaneState::Up | LaneState::Stalled) && !self.gate.in_flight().is_zero();
        waiting.then_some(self.heard)
    }

    /// What carries messages and has not been heard of.
    pub(crate) fn unheard(&self) -> impl Iterator<Item = (Key, Run, Priority)> + '_ {
        self.sent.iter().filter(|sent| !sent.settled).filter_map(|sent| match sent.load {
            Load::Run { key, run, priority, .. } => Some((key, run, priority)),
            Load::Repair { .. } | Load::Other => None,
        })
    }

    /// When its silence will have been too long.
    pub(crate) fn stalls_at(&self, stall: crate::config::Stall) -> Option<Time> {
        if self.state != LaneState::Up || self.loaded == 0 {
            return None;
        }
        let rtts = u64::try_from(self.srtt.as_nanos() * u128::from(stall.rtts) / 1000).unwrap_or(u64::MAX);
        let patience = Duration::from_nanos(rtts).max(self.srtt.saturating_add(stall.floor));
        Some(self.heard + patience)
    }

    /// Sets the pacer to what the controller says now.
    pub(crate) fn pace(&mut self, now: Time) {
        let gate = &self.gate;
        self.pacer.adjust(now, gate.pacing_rate(), gate.window(), self.srtt, gate.mtu());
    }
}

/// The lanes of one session, each in the place of its name.
#[derive(Debug, Default)]
pub(crate) struct Lanes([Option<Lane>; MAX_LANES]);

impl Lanes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.0.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.0.iter_mut().flatten()
    }

    pub(crate) fn get(&self, id: LaneId) -> Option<&Lane> {
        self.0[id.index()].as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.0[id.index()].as_mut()
    }

    /// A name that no lane has.
    pub(crate) fn vacant(&self) -> Option<LaneId> {
        (0..).map_while(LaneId::new).find(|id| self.0[id.index()].is_none())
    }

    pub(crate) fn insert(&mut self, lane: Lane) {
        let at = lane.id.index();
        self.0[at] = Some(lane);
    }

    pub(crate) fn remove(&mut self, id: LaneId) -> Option<Lane> {
        self.0[id.index()].take()
    }

    pub(crate) fn of_path(&self, path: noq_proto::PathId) -> Option<LaneId> {
        self.iter().find(|lane| lane.path == path).map(|lane| lane.id)
    }

    pub(crate) fn to(&self, remote: SocketAddr) -> Option<&Lane> {
        self.iter().find(|lane| lane.remote == remote)
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
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
