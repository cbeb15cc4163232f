//! Output of a session: one packet, or one batch, at a time.
//!
//! `Session::poll_transmit` tries these steps in order:
//!
//! 1. With every gate shut, send what needs no window: acknowledgements, probes, path validation. A gate that
//!    refuses a packet in this step shows that the engine holds data.
//! 2. Send what the engine holds. Lost data uses the lane that the scheduler names for a retransmission,
//!    copies use their own lane, control frames the best lane.
//! 3. Send the copies of the chunk that left last.
//! 4. Send data that is stuck on a silent lane on another lane, on a stream of its own (`Repair`). The engine
//!    itself would leave it there until the path is closed.
//! 5. Send a new chunk. The Conductor chooses the level, the lane scheduler chooses the lane. If that level
//!    has to wait for reserved room or for credit, the Conductor names the next one (`peek_among`).

use std::num::NonZeroUsize;
use std::sync::Arc;

use marcato_sched::conductor::Candidates;
use marcato_sched::lane::{LaneId, LaneSet};
use marcato_sched::schedule::{Choice, LaneScheduler as _, Purpose, Wait};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};

use super::carriers::Written;
use super::duplicate::Duplicate;
use super::repairs::Repair;
use super::send_state::Owed;
use super::views::Views;
use super::{Session, Transmit};
use crate::coalesced::long_packets;
use crate::config::{OVERHEAD, Pacing, SessionConfig};
use crate::lane::{Lane, LaneState, Load};
use crate::outbox::{Outgoing, Role, Run};

/// Room that a lane offers a packet.
#[derive(Clone, Copy)]
pub(super) enum Room {
    /// Unlimited: the room was checked before, or the packet is small.
    Any,
    /// Free part of the window, minus this reserve.
    Reserving(Bytes),
}

/// Overdraft that makes a gate pass any packet that the session has already chosen.
const PASS: Bytes = Bytes::new(1 << 60);
/// Distance in bytes from a full packet within which part of a chunk may have stayed behind.
const SPILL: Bytes = Bytes::new(16);
/// Length in bytes that a packet of control frames alone does not reach.
const BULKY: usize = 600;
/// Datagrams in which a session ends during its handshake: one for each packet number space.
///
/// The engine closes in all of them (RFC 9000 §10.2.3), and repeats the close until it has built
/// the last. With less room it would begin again with every poll, without end.
const CLOSING: NonZeroUsize = NonZeroUsize::new(3).unwrap();
/// Delay before a scheduler is asked again that named a time in the past.
const STALE: Duration = Duration::from_millis(1);

impl Session {
    /// Builds the next datagram, or up to `max` of equal size; `None` if nothing may leave now. The
    /// end of a session may take up to [`CLOSING`] datagrams.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.phase.is_early() {
            return self.poll_early(now, buf);
        }
        if !self.phase.is_open() {
            // The engine runs the handshake and the closing alone.
            let max = if self.conn.is_closed() { CLOSING.max(max) } else { NonZeroUsize::MIN };
            let transmit = self.poll_engine(now, max, buf);
            self.drain(now, None, Load::Other);
            return transmit;
        }
        loop {
            if self.send.look_is_due() {
                // With every gate shut, packets that need no window leave. A lane that refuses one
                // shows that the engine holds data.
                self.lanes.shut();
                let before = self.lanes.blocked();
                let transmit = self.poll_engine(now, NonZeroUsize::MIN, buf);
                // A probe passes a shut gate, and carries data that the engine has to retransmit.
                self.drain(now, None, self.send.due());
                if transmit.is_some() {
                    return transmit;
                }
                if self.send.looked(self.lanes.blocked() != before) {
                    // The engine is empty, so any due acknowledgements have left.
                    self.ack_debt.answered();
                    self.streams_look_empty();
                }
            }
            self.send.set_crowded(None);
            if self.send.is_held() {
                if let Some(transmit) = self.send_held(now, buf) {
                    return Some(transmit);
                }
                if self.send.look_is_due() {
                    continue;
                }
            }
            let transmit = self.send_duplicate(now, buf).or_else(|| self.send_next(now, max, buf));
            // A chunk that stayed in the engine has to leave before anything else.
            if transmit.is_none() && self.send.look_is_due() {
                continue;
            }
            return transmit;
        }
    }

    pub(super) fn poll_engine(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.stats.polls += 1;
        let start = buf.len();
        self.long_packets.clear();
        let transmit = self.conn.poll_transmit(self.clock.instant(now), max, buf)?;
        if !self.phase.is_confirmed() {
            let built = buf.get(start..).unwrap_or_default();
            for datagram in built.chunks(transmit.segment_size.unwrap_or(transmit.size).max(1)) {
                long_packets(datagram, &mut self.long_packets);
            }
        }
        let lane = self.lanes.to(transmit.destination);
        let (lane, level) = (lane.map(|lane| lane.id), lane.and_then(|lane| lane.level));
        let socket = self.socket_to(transmit.destination).unwrap_or_default();
        let ecn =
            transmit.ecn.map_or(marcato_wire::Ecn::NotEct, |ecn| marcato_wire::Ecn::from_bits(ecn as u8));
        Some(Transmit {
            socket,
            to: transmit.destination,
            from: transmit.src_ip,
            ecn,
            len: transmit.size,
            segment: transmit.segment_size,
            lane,
            level,
        })
    }

    /// Marks the packets of a lane for this level, unless some of another are in flight.
    fn mark(&mut self, on: LaneId, level: Priority) {
        if let Some(lane) = self.lanes.get_mut(on)
            && (lane.level.is_none() || lane.gate.in_flight().is_zero())
        {
            lane.level = Some(level);
        }
    }

    /// Lets the engine send on one lane only. Returns the datagram, and whether `load` left on that
    /// lane.
    pub(super) fn poll_on(
        &mut self,
        now: Time,
        on: LaneId,
        room: Room,
        load: Load,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<(Transmit, bool)> {
        self.lanes.shut();
        if let Some(level) = load.priority() {
            self.mark(on, level);
        }
        let gate = Arc::clone(&self.lanes.get(on)?.gate);
        match room {
            Room::Any => gate.set_overdraft(PASS),
            Room::Reserving(reserve) => gate.set_reserve(reserve),
        }
        gate.set_shut(false);
        let transmit = self.poll_engine(now, max, buf);
        gate.set_shut(true);
        gate.set_overdraft(Bytes::ZERO);
        gate.set_reserve(Bytes::ZERO);
        let (here, elsewhere) = self.drain(now, Some(on), load);
        let transmit = transmit?;
        if here > 0 {
            self.ack_debt.answered();
            // A chunk is smaller than a packet. If the last packet is full nevertheless,
            // acknowledgements took room and part of the chunk may have stayed behind.
            let full = self.lanes.get(on).map_or(Bytes::MAX, |lane| lane.gate.mtu());
            let last = transmit.segment.map_or(transmit.len, |segment| (transmit.len - 1) % segment + 1);
            if Bytes::new(last as u64) + SPILL >= full {
                self.send.request_look();
            }
        } else {
            // A probe of another path, which no gate holds, went first and may have carried the
            // data.
            self.stats.misrouted += u64::from(elsewhere > 0);
            self.send.keep(load);
        }
        Some((transmit, here > 0))
    }

    /// Lets a chunk that was written leave on its lane. If it cannot, it is kept.
    pub(super) fn poll_chunk(
        &mut self,
        now: Time,
        on: LaneId,
        load: Load,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let polled = self.poll_on(now, on, Room::Any, load, max, buf);
        if polled.is_none() {
            self.keep(now, on, load);
        }
        polled.map(|(transmit, _)| transmit)
    }

    /// Lets a DATAGRAM frame that was written leave on its lane. If it cannot, it leaves with the next packet.
    pub(super) fn poll_datagram(
        &mut self,
        now: Time,
        on: LaneId,
        level: Priority,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.mark(on, level);
        let polled = self.poll_on(now, on, Room::Any, Load::Other, NonZeroUsize::MIN, buf);
        if polled.is_none() {
            self.pause(now, on);
            self.send.request_look();
        }
        polled.map(|(transmit, _)| transmit)
    }

    /// Fills `views` with the lanes as a scheduler may use them for data of this priority. Returns
    /// the earliest time at which a lane that waits for its pacer is ready. With `granted`, urgent
    /// data may use a window that a controller has taken back only to measure.
    pub(super) fn view(
        &mut self,
        now: Time,
        level: Priority,
        packet: Bytes,
        granted: bool,
        views: &mut Views,
    ) -> Option<Time> {
        let any = self.lanes.iter().any(Lane::is_usable);
        let paced = match self.config.pacing {
            Pacing::Off => false,
            Pacing::Session => level != Priority::P0,
            Pacing::Strict => true,
        };
        let waiting = self.urgent_waiting().with(level);
        views.clear();
        let mut ready: Option<Time> = None;
        for lane in self.lanes.iter_mut() {
            // A stalled lane is better than none.
            let silent = lane.state() == LaneState::Stalled && !lane.health.paused;
            let mut view = lane.view(lane.is_usable() || (!any && silent));
            if let Some(governor) = lane.governor.as_ref().filter(|_| granted) {
                view.cwnd = view.cwnd.max(governor.granted(level));
            }
            if self.sockets.is_full(lane.route.socket) {
                // As with a pacer, schedulers pass over the lane. The socket's owner reports room.
                view.in_flight = view.in_flight.max(view.cwnd);
                lane.held = true;
                self.holds = true;
            } else if let Some(governor) = &mut lane.governor
                && governor.caps(waiting, lane.gate.in_flight(), packet, view.cwnd)
            {
                // The cap of coupled mode needs no alarm: the next acknowledgement makes room.
                view.in_flight = view.in_flight.max(view.cwnd);
            }
            if paced {
                let at = lane.pacer.ready(now, packet);
                if at > now {
                    // With a full window, schedulers pass over the lane until its pacer is ready.
                    view.in_flight = view.in_flight.max(view.cwnd);
                    ready = Some(ready.map_or(at, |earliest| earliest.min(at)));
                }
            }
            views.push(view);
        }
        ready
    }

    pub(super) fn look_again(&mut self, at: Option<Time>) {
        if let Some(at) = at {
            self.alarms.wake_at(at);
        }
    }

    /// Schedules another attempt for the time at which reserved room may be free.
    pub(super) fn await_scheduler(&mut self, now: Time) {
        // Room reserved until a time is free from the next nanosecond on. A scheduler may name a
        // past time that hides a later one; asked at once, it would repeat it forever.
        let at = self.scheduler.wakeup().map(|at| at + Duration::from_nanos(1));
        self.look_again(at.map(|at| if at > now { at } else { now + STALE }));
    }

    /// Sends data that the engine holds: lost data and control frames.
    fn send_held(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        let Some((priority, Owed { pinned, lost_on })) = self.send.next_owed() else {
            return self.send_control(now, buf);
        };
        let mtu = self.lanes.iter().map(|lane| lane.gate.mtu()).max()?;
        let mut views = Views::new();
        let ready = self.view(now, priority, mtu, false, &mut views);
        let stay = views.of(lost_on).is_some_and(|view| pinned && view.usable && view.free() >= mtu);
        let purpose = Purpose::Retransmission { priority, lost_on };
        self.scheduler.owes(self.waits_again(mtu));
        // The engine chooses what it retransmits. The packet keeps to the window that this priority
        // may use.
        let beside = |session: &Self, lane| match views.of(lane) {
            Some(view) if priority != Priority::P0 => Room::Reserving(session.scheduler.reserved(now, view)),
            _ => Room::Reserving(Bytes::ZERO),
        };
        let choice = match self.scheduler.choose(now, &views, purpose, mtu) {
            _ if stay => Some((lost_on, Room::Reserving(Bytes::ZERO))),
            Choice::One(lane) => Some((lane, beside(self, lane))),
            Choice::Each(lanes) => lanes.first().map(|lane| (lane, Room::Any)),
            Choice::Wait(wait) => {
                let overdraft = self.overdraw().map(|lane| (lane, Room::Any));
                let crowded = overdraft.is_none() && wait == Wait::NoRoom;
                self.send.set_crowded(crowded.then_some(priority));
                overdraft
            }
        };
        let Some((lane, room)) = choice else {
            self.look_again(ready);
            self.await_scheduler(now);
            return None;
        };
        let load = self.send.kept().unwrap_or(Load::Repair { priority, pinned });
        let polled = self.poll_on(now, lane, room, load, NonZeroUsize::MIN, buf);
        self.send.request_look();
        let Some((transmit, left)) = polled else {
            self.pause(now, lane);
            return None;
        };
        if left {
            self.send.release();
            self.send.pay(priority);
            if let Some(view) = views.of(lane) {
                self.scheduler.sent(now, view, purpose, Bytes::new(transmit.len as u64));
            }
        }
        Some(transmit)
    }

    /// Returns the bytes to be sent again, in packets of this length. Stuck runs may be longer than
    /// a packet.
    fn waits_again(&self, packet: Bytes) -> Bytes {
        packet * (self.send.owed() + self.repairs.len()) as u64
    }

    /// Chooses a lane for a packet although no lane has room, if acknowledgements are due.
    ///
    /// While the engine holds data, acknowledgements leave only with data, and the peer must not
    /// wait for them. One packet leaves for two that have arrived, as with acknowledgements
    /// themselves (RFC 9000 §13.2.2). So no more leaves than arrives.
    fn overdraw(&mut self) -> Option<LaneId> {
        if !self.ack_debt.is_due() {
            return None;
        }
        let lane = self.quickest()?;
        self.stats.overdrawn += 1;
        Some(lane)
    }

    /// Returns the usable lane of least round-trip time, with high lanes and non-backups first. If
    /// no lane is usable, returns the best of the rest.
    fn quickest(&self) -> Option<LaneId> {
        let usable = self.lanes.iter().filter(|lane| lane.is_usable());
        let full = |lane: &Lane| self.sockets.is_full(lane.route.socket);
        let best = usable.min_by_key(|lane| {
            (full(lane), lane.is_managed(), lane.backup.is_announced(), lane.rtt.smoothed)
        });
        let silent = || {
            self.lanes
                .iter()
                .filter(|lane| !lane.health.paused)
                .min_by_key(|lane| (lane.state(), lane.rtt.smoothed))
        };
        best.or_else(silent).map(|lane| lane.id)
    }

    /// Sends held data of which the session has no record. Small control frames, and the
    /// acknowledgements with them, wait for no window. Larger packets carry data of a path that was
    /// given up, and do wait.
    fn send_control(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let roomy = self.lanes.iter().filter(|lane| {
                lane.is_usable()
                    && !self.sockets.is_full(lane.route.socket)
                    && lane.gate.room() >= lane.gate.mtu()
            });
            let best = roomy
                .min_by_key(|lane| (lane.is_managed(), lane.backup.is_announced(), lane.rtt.smoothed))
                .map(|lane| lane.id);
            let any = if self.send.is_bulky() { self.overdraw() } else { self.quickest() };
            let Some(lane) = best.or(any) else {
                // Nothing can leave now. Every event that changes this requests a look.
                self.send.disregard_control();
                return None;
            };
            let priority = Priority::P4;
            let unknown =
                if self.send.is_bulky() { Load::Repair { priority, pinned: false } } else { Load::Control };
            let load = self.send.kept().unwrap_or(unknown);
            if let Some((transmit, left)) = self.poll_on(now, lane, Room::Any, load, NonZeroUsize::MIN, buf) {
                if left && !self.send.release() && transmit.len > BULKY {
                    self.send.set_bulky();
                }
                self.send.request_look();
                return Some(transmit);
            }
            self.pause(now, lane);
        }
    }

    /// Sends the copies of the latest chunk.
    fn send_duplicate(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        while let Some(duplicate) = self.duplicates.pop_front() {
            let Duplicate { key, lane, run, carried, wire } = duplicate;
            let Some(message) = self.outbox.get(key) else { continue };
            let priority = message.priority;
            let carrier = message.carrier_of(Role::Copy(lane), run.start);
            let Some(carrier) = carrier.filter(|carrier| !carrier.ended && carrier.written == run.start)
            else {
                continue;
            };
            let stream = carrier.stream;
            match self.write(key, stream, run) {
                Written::Some(written) if written == run.len() => {}
                // A copy that falls behind gets no more data; the bytes that it carried may still
                // be useful.
                Written::Some(_) => self.end_copies(key, LaneSet::one(lane)),
                Written::Blocked | Written::Refused => {
                    self.end_copies(key, LaneSet::one(lane));
                    continue;
                }
            }
            let mut views = Views::new();
            self.view(now, Priority::P0, wire, false, &mut views);
            if let Some(view) = views.of(lane) {
                // Not as new data. If this chunk ended the message, the scheduler has seen it
                // complete, and would take the copy for the start of another message.
                self.scheduler.sent(now, view, Purpose::Duplicate { priority, carried }, wire);
            }
            self.stats.copies += 1;
            self.stats.copied += wire;
            let load = Load::Run { key, stream, run, priority, pinned: true };
            let transmit = self.poll_chunk(now, lane, load, NonZeroUsize::MIN, buf);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Records a chunk that stayed in the engine because its lane is being validated again.
    pub(super) fn keep(&mut self, now: Time, lane: LaneId, load: Load) {
        self.send.request_look();
        // If its stream has been reset meanwhile, the engine has discarded the chunk.
        let lasts = match load {
            Load::Run { key, .. } => self.outbox.get(key).is_some(),
            Load::Stream { stream, .. } => self.streams.as_ref().is_some_and(|streams| streams.sends(stream)),
            _ => false,
        };
        if lasts {
            self.stats.kept += 1;
            self.send.keep(load);
            self.pause(now, lane);
        }
    }

    /// Sends the more urgent of new data and runs to be sent again; at equal priority, the latter.
    fn send_next(&mut self, now: Time, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Transmit> {
        let offered = self.offered();
        if self.streams.is_some() {
            let among = Candidates::of(offered);
            let among = self.send.crowded().map_or(among, |level| among.protecting(level));
            return self.feed_streams(now, max, buf, among);
        }
        let mut above = PrioritySet::EMPTY;
        for level in Priority::ALL {
            if offered.contains(level) && self.repairs.waits(level) {
                let transmit = self
                    .feed(now, max, buf, Candidates::of(above).protecting(level))
                    .or_else(|| self.send_repair(now, buf, level));
                // A chunk that stayed in the engine has to leave before anything else.
                if transmit.is_some() || self.send.look_is_due() {
                    return transmit;
                }
            }
            if offered.contains(level) {
                above = above.with(level);
            }
        }
        let offered = Candidates::of(offered);
        let offered = self.send.crowded().map_or(offered, |level| offered.protecting(level));
        self.feed(now, max, buf, offered)
    }

    /// Sends a run that is stuck on one lane by another lane.
    fn send_repair(&mut self, now: Time, buf: &mut Vec<u8>, level: Priority) -> Option<Transmit> {
        while let Some(Repair { key, run, priority, lost_on, stream }) = self.repairs.front(level) {
            let wanted = |message: &&Outgoing| run.len() > 0 && run.end > message.reached;
            let Some(message) = self.outbox.get(key).filter(wanted) else {
                self.repairs.skip(level);
                continue;
            };
            let last = message.ends_with(run);
            let payload = self.payload(run.len());
            let wire = payload + OVERHEAD;
            let mut views = Views::new();
            let ready = self.view(now, priority, wire, false, &mut views);
            let purpose = Purpose::Retransmission { priority, lost_on };
            self.scheduler.owes(self.waits_again(wire));
            let lane = match self.scheduler.choose(now, &views, purpose, wire) {
                Choice::One(lane) => lane,
                Choice::Each(lanes) => lanes.first()?,
                Choice::Wait(_) => {
                    self.look_again(ready);
                    self.await_scheduler(now);
                    return None;
                }
            };
            let stream = match stream {
                Some(stream) => stream,
                None => self.open_carrier(key, Role::Repair, run, last, None)?,
            };
            let header = self.header_left(key, stream);
            let chunk =
                Run { start: run.start, end: run.start + payload.get().saturating_sub(header).max(1) };
            let chunk = Run { end: chunk.end.min(run.end), ..chunk };
            match self.write(key, stream, chunk) {
                Written::Some(written) => self.repairs.advance(level, stream, written),
                Written::Blocked => return None,
                Written::Refused => {
                    self.repairs.skip(level);
                    continue;
                }
            }
            self.stats.reinjected += 1;
            if let Some(view) = views.of(lane) {
                self.scheduler.sent(now, view, purpose, wire);
            }
            let load = Load::Run { key, stream, run: chunk, priority, pinned: false };
            return self.poll_chunk(now, lane, load, NonZeroUsize::MIN, buf);
        }
        None
    }

    /// Returns the stream bytes, up to `rest`, that fit a packet on every lane.
    pub(super) fn payload(&self, rest: u64) -> Bytes {
        self.packet_payload().min(Bytes::new(rest.max(1)))
    }

    /// Returns the stream bytes that fit a packet on every lane.
    fn packet_payload(&self) -> Bytes {
        let mtu = self.mtu();
        if self.send.is_held() { SessionConfig::tight_payload(mtu) } else { SessionConfig::payload(mtu) }
    }

    /// Returns the packet size in bytes that every lane accepts.
    pub(super) fn mtu(&self) -> Bytes {
        // A low lane may take long to open, or never open.
        let opening = |lane: &Lane| lane.is_managed() && lane.state() == LaneState::Opening;
        let usable = self.lanes.iter().filter(|lane| lane.state() != LaneState::Closing && !opening(lane));
        usable.map(|lane| lane.gate.mtu()).min().unwrap_or(Bytes::new(1200))
    }
}
