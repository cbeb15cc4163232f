//! Output of a session: one packet, or one batch, at a time.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes as Payload, BytesMut};
use marcato_sched::Grant;
use marcato_sched::conductor::{Candidates, Removal};
use marcato_sched::lane::{LaneId, LaneSet, LaneView, MAX_LANES};
use marcato_sched::schedule::{Choice, Fresh, LaneScheduler as _, Purpose, Wait};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};
use marcato_wire::{Frame, MAX_FRAME_HEADER, MessageFrame, Twin, UNRELIABLE_HEADER, Unreliable};
use noq_proto::{Dir, StreamId, WriteError};

use super::repairs::Repair;
use super::{Duplicate, Session, Transmit, engine_priority};
use crate::config::{Growth, OVERHEAD, Pacing, SessionConfig, StreamUse};
use crate::event::Event;
use crate::lane::{Lane, LaneState, Load, Owed};
use crate::outbox::{Carrier, Key, Outgoing, Role, Run};

/// Result of handing a chunk to the engine.
enum Written {
    /// Bytes of the message that the engine accepted.
    Some(u64),
    /// There is no flow-control credit.
    Blocked,
    /// The receiver wants no more of the message, or the stream is closed.
    Refused,
}

/// Chunk chosen as the next to be sent.
#[derive(Clone, Copy)]
struct Next {
    key: Key,
    fresh: Fresh,
    /// Stream bytes that its packet carries.
    payload: Bytes,
    /// Bytes that the packet counts against a window.
    wire: Bytes,
    /// Candidates that it was chosen from.
    among: Candidates,
}

/// Room that a lane offers a packet.
#[derive(Clone, Copy)]
enum Room {
    /// Unlimited: the room was checked before, or the packet is small.
    Any,
    /// Free part of the window, minus this reserve.
    Beside(Bytes),
}

/// Overdraft that makes a gate pass any packet that the session has already chosen.
const PASS: Bytes = Bytes::new(1 << 60);
/// Distance in bytes from a full packet within which part of a chunk may have stayed behind.
const SPILL: Bytes = Bytes::new(16);
/// Length in bytes that a packet of control frames alone does not reach.
const BULKY: usize = 600;
/// Delay before a scheduler is asked again that named a time in the past.
const STALE: Duration = Duration::from_millis(1);

impl Session {
    /// Builds the next datagram, or up to `max` of equal size; `None` if nothing may leave now.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if !self.phase.is_open() {
            // The engine runs the handshake and the closing alone.
            let transmit = self.poll_engine(now, NonZeroUsize::MIN, buf);
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

    fn poll_engine(&mut self, now: Time, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.stats.polls += 1;
        let transmit = self.conn.poll_transmit(self.clock.instant(now), max, buf)?;
        let lane = self.lanes.to(transmit.destination).map(|lane| lane.id);
        let socket = self.socket_to(transmit.destination).unwrap_or_default();
        let ecn =
            transmit.ecn.map_or(marcato_wire::Ecn::NotEct, |ecn| marcato_wire::Ecn::from_bits(ecn as u8));
        Some(Transmit {
            socket,
            to: transmit.destination,
            ecn,
            len: transmit.size,
            segment: transmit.segment_size,
            lane,
        })
    }

    /// Lets the engine send on one lane only. Returns the datagram, and whether `load` left on that
    /// lane.
    fn poll_on(
        &mut self,
        now: Time,
        on: LaneId,
        room: Room,
        load: Load,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
    ) -> Option<(Transmit, bool)> {
        self.lanes.shut();
        let gate = Arc::clone(&self.lanes.get(on)?.gate);
        match room {
            Room::Any => gate.set_overdraft(PASS),
            Room::Beside(reserve) => gate.set_reserve(reserve),
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

    /// Fills `views` with the lanes as a scheduler may use them for data of this priority. Returns
    /// the earliest time at which a lane that waits for its pacer is ready.
    fn view(&mut self, now: Time, level: Priority, packet: Bytes, views: &mut Views) -> Option<Time> {
        let any = self.lanes.iter().any(Lane::is_usable);
        let paced = match self.config.pacing {
            Pacing::Off => false,
            Pacing::Session => level != Priority::P0,
            Pacing::Strict => true,
        };
        views.len = 0;
        let mut ready: Option<Time> = None;
        for lane in self.lanes.iter_mut() {
            // A stalled lane is better than none.
            let silent = lane.state == LaneState::Stalled && !lane.paused;
            let mut view = lane.view(lane.is_usable() || (!any && silent));
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

    fn look_again(&mut self, at: Option<Time>) {
        if let Some(at) = at {
            self.alarms.wake_at(at);
        }
    }

    /// Schedules another attempt for the time at which reserved room may be free.
    fn await_scheduler(&mut self, now: Time) {
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
        let ready = self.view(now, priority, mtu, &mut views);
        let stay = views.of(lost_on).is_some_and(|view| pinned && view.usable && view.free() >= mtu);
        let purpose = Purpose::Retransmission { priority, lost_on };
        self.scheduler.owes(self.waits_again(mtu));
        // The engine chooses what it retransmits. The packet keeps to the window that this priority
        // may use.
        let beside = |session: &Self, lane| match views.of(lane) {
            Some(view) if priority != Priority::P0 => Room::Beside(session.scheduler.reserved(now, view)),
            _ => Room::Beside(Bytes::ZERO),
        };
        let choice = match self.scheduler.choose(now, &views, purpose, mtu) {
            _ if stay => Some((lost_on, Room::Beside(Bytes::ZERO))),
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
        let best = usable.min_by_key(|lane| (lane.managed, lane.told_backup, lane.srtt));
        let silent =
            || self.lanes.iter().filter(|lane| !lane.paused).min_by_key(|lane| (lane.state, lane.srtt));
        best.or_else(silent).map(|lane| lane.id)
    }

    /// Sends held data of which the session has no record. Small control frames, and the
    /// acknowledgements with them, wait for no window. Larger packets carry data of a path that was
    /// given up, and do wait.
    fn send_control(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let roomy = self.lanes.iter().filter(|lane| {
                lane.is_usable() && lane.gate.window() - lane.gate.in_flight() >= lane.gate.mtu()
            });
            let best =
                roomy.min_by_key(|lane| (lane.managed, lane.told_backup, lane.srtt)).map(|lane| lane.id);
            let any = if self.send.is_bulky() { self.overdraw() } else { self.quickest() };
            let Some(lane) = best.or(any) else {
                // Nothing can leave now. Every event that changes this requests a look.
                self.send.disregard_control();
                return None;
            };
            let priority = Priority::P4;
            let unknown =
                if self.send.is_bulky() { Load::Repair { priority, pinned: false } } else { Load::Other };
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
            self.view(now, Priority::P0, wire, &mut views);
            if let Some(view) = views.of(lane) {
                // Not as new data. If this chunk ended the message, the scheduler has seen it
                // complete, and would take the copy for the start of another message.
                self.scheduler.sent(now, view, Purpose::Duplicate { priority, carried }, wire);
            }
            self.stats.copies += 1;
            self.stats.copied += wire;
            let load = Load::Run { key, stream, run, priority, pinned: true };
            if let Some((transmit, _)) = self.poll_on(now, lane, Room::Any, load, NonZeroUsize::MIN, buf) {
                return Some(transmit);
            }
            self.keep(now, lane, load);
        }
        None
    }

    /// Records a chunk that stayed in the engine because its lane is being validated again.
    fn keep(&mut self, now: Time, lane: LaneId, load: Load) {
        self.send.request_look();
        // If its stream has been reset meanwhile, the engine has discarded the chunk.
        if let Load::Run { key, .. } = load
            && self.outbox.get(key).is_some()
        {
            self.stats.kept += 1;
            self.send.keep(load);
            self.pause(now, lane);
        }
    }

    /// Sends the more urgent of new data and runs to be sent again; at equal priority, the latter.
    fn send_next(&mut self, now: Time, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Transmit> {
        let offered = self.offered();
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
            let ready = self.view(now, priority, wire, &mut views);
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
            let transmit = self.poll_on(now, lane, Room::Any, load, NonZeroUsize::MIN, buf);
            if transmit.is_none() {
                self.keep(now, lane, load);
            }
            return transmit.map(|polled| polled.0);
        }
        None
    }

    /// Returns the stream bytes, up to `rest`, that fit a packet on every lane.
    fn payload(&self, rest: u64) -> Bytes {
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
        let opening = |lane: &Lane| lane.managed && lane.state == LaneState::Opening;
        let usable = self.lanes.iter().filter(|lane| lane.state != LaneState::Closing && !opening(lane));
        usable.map(|lane| lane.gate.mtu()).min().unwrap_or(Bytes::new(1200))
    }

    /// Sends the most urgent chunk of new data that may leave.
    fn feed(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
        mut among: Candidates,
    ) -> Option<Transmit> {
        let mut reserved = false;
        let mut views = Views::new();
        let found = loop {
            let Some(pending) = self.conductor.peek_among(now, among) else { break None };
            let rest = pending.rest().get();
            let key = self.outbox.find(pending.message)?;
            let header = self.header_len(key, pending.sent.get());
            if !self.credit.allows_streams() && header > 0 {
                among = among.blocked(pending.priority);
                continue;
            }
            let payload = self.payload(rest + header);
            let wire = payload + OVERHEAD;
            let ready = self.view(now, pending.priority, wire, &mut views);
            let fresh = Fresh::from(pending);
            match self.scheduler.choose(now, &views, Purpose::New(fresh), wire) {
                Choice::Wait(wait) => {
                    self.look_again(ready);
                    among = if wait == Wait::NoRoom {
                        // Lanes that only wait for their pacer are not limited by their windows.
                        let full = |lane: &&Lane| lane.gate.window() - lane.gate.in_flight() < wire;
                        for lane in self.lanes.iter().filter(|lane| lane.is_usable()).filter(full) {
                            lane.gate.set_cwnd_limited();
                        }
                        // A packet of a level in debt that is shorter, or that waits for no pacer, would
                        // overtake this level again and again.
                        among.waiting(pending.priority)
                    } else {
                        // A level in debt may be the only one that can use reserved room.
                        among.blocked(pending.priority)
                    };
                    if wait == Wait::Reserved {
                        reserved = true;
                        self.await_scheduler(now);
                    }
                }
                choice => {
                    self.tell_full(choice, wire);
                    break Some((Next { key, fresh, payload, wire, among }, choice));
                }
            }
        };
        self.tell_gates(now, reserved, found.is_some());
        self.sweep(now);
        let (next, choice) = found?;
        if self.outbox.get(next.key).is_some_and(|message| message.unreliable) {
            return self.send_unreliable(now, buf, next, choice, &views);
        }
        match choice {
            Choice::Wait(_) => None,
            Choice::One(lane) => self.send_once(now, max, buf, next, lane, &mut views),
            Choice::Each(lanes) => self.send_each(now, buf, next, lanes, &views),
        }
    }

    /// Informs the controllers of high lanes with full windows that this packet leaves on a low
    /// lane only for lack of room.
    fn tell_full(&self, choice: Choice, wire: Bytes) {
        let Choice::One(lane) = choice else { return };
        if self.lanes.get(lane).is_some_and(|lane| lane.managed) {
            let full = |lane: &&Lane| lane.gate.window() - lane.gate.in_flight() < wire;
            for lane in self.lanes.iter().filter(|lane| lane.is_usable() && !lane.managed).filter(full) {
                lane.gate.set_cwnd_limited();
            }
        }
    }

    /// Sends an unreliable message, in its own packet.
    fn send_unreliable(
        &mut self,
        now: Time,
        buf: &mut Vec<u8>,
        next: Next,
        choice: Choice,
        views: &Views,
    ) -> Option<Transmit> {
        let Next { key, fresh, wire, among, .. } = next;
        let lane = match choice {
            Choice::One(lane) => lane,
            // Unreliable messages have no number by which the receiver could recognize copies.
            Choice::Each(lanes) => lanes.first()?,
            Choice::Wait(_) => return None,
        };
        let len = self.outbox.get(key)?.len();
        let grant = self.conductor.grant_among(now, Bytes::new(len), among)?;
        let message = self.outbox.remove(key)?;
        self.scheduler.message_complete(now, message.id.get());
        let mut frame = BytesMut::with_capacity(UNRELIABLE_HEADER + message.body.len());
        frame.put_u8(Unreliable { priority: message.priority, body: &message.body }.header());
        frame.put_slice(&message.body);
        if self.conn.datagrams().send(frame.freeze(), true).is_err() {
            // The packet size has shrunk since the message was accepted.
            self.stats.datagrams_unsent += 1;
            let dropped = Event::Dropped { message: message.id, sent: Bytes::ZERO, reason: Removal::Shed };
            self.events.push_back(dropped);
            self.send.request_look();
            return None;
        }
        self.stats.datagrams_sent += 1;
        self.events.push_back(Event::Sent(message.id));
        if let Some(view) = views.of(lane) {
            self.scheduler.sent(now, view, Purpose::New(fresh.after(grant.len)), wire);
        }
        let transmit = self.poll_on(now, lane, Room::Any, Load::Other, NonZeroUsize::MIN, buf);
        if transmit.is_none() {
            // The message leaves with the next packet.
            self.pause(now, lane);
            self.send.request_look();
        }
        transmit.map(|polled| polled.0)
    }

    /// Returns the levels of which new data may be fed: those that flow control does not stop.
    /// While the engine holds lost data, only levels more urgent than that qualify.
    fn offered(&self) -> PrioritySet {
        let owed = self.send.next_owed().filter(|_| self.send.is_held()).map(|(owed, _)| owed);
        let behind = |level: &Priority| owed.is_some_and(|owed| !level.is_more_urgent_than(owed));
        Priority::ALL.into_iter().filter(behind).fold(self.credit.levels(), PrioritySet::without)
    }

    /// Informs the controllers whether the windows are fully used. `fed` means that a chunk was
    /// found that may leave.
    fn tell_gates(&mut self, now: Time, reserved: bool, fed: bool) {
        // Underutilization because of flow control does not grow the window (RFC 9002 §7.8).
        let free = self.credit.levels();
        let idle = !fed
            && self.repairs.is_empty()
            && !self.send.is_held()
            && self.conductor.peek_among(now, free).is_none();
        for lane in self.lanes.iter() {
            lane.gate.set_app_limited(idle);
            if self.config.growth == Growth::Credited {
                let view = lane.view(true);
                let kept = self.scheduler.reserved(now, &view).min(view.free());
                let share =
                    if reserved && !view.cwnd.is_zero() { kept.get() * 1000 / view.cwnd.get() } else { 0 };
                lane.gate.set_idle_share(share);
            }
        }
    }

    /// Sends a chunk, or a batch of them, of one message on one lane.
    fn send_once(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
        next: Next,
        lane: LaneId,
        views: &mut Views,
    ) -> Option<Transmit> {
        let Next { key, fresh, mut payload, mut wire, among } = next;
        let (main, whole) = self.main_carrier(key, fresh.offset)?;
        let limit = self.batch(fresh.priority, lane).min(max);
        self.end_copies(key, LaneSet::ALL);
        // Each packet needs the scheduler's consent; then one grant and one write serve them all.
        let most = Bytes::new(whole.end) - fresh.offset;
        // Room for an acknowledgement is kept only in the first packet, which carries it.
        let full = self.mtu() - OVERHEAD;
        let header = Bytes::new(self.header_left(key, main));
        let (mut total, mut counted, mut packets) = (Bytes::ZERO, Bytes::ZERO, 0);
        loop {
            let chunk = if packets == 0 { payload - header } else { payload };
            let before = fresh.after(total);
            total = (total + chunk.max(Bytes::new(1))).min(most);
            packets += 1;
            counted += wire;
            if let Some(view) = views.of_mut(lane) {
                self.scheduler.sent(now, view, Purpose::New(before), wire);
                view.in_flight += wire;
            }
            if packets == limit.get() || total == most {
                break;
            }
            payload = full.min(most - total);
            wire = payload + OVERHEAD;
            let after = Purpose::New(fresh.after(total));
            if self.scheduler.choose(now, views, after, wire) != Choice::One(lane) {
                break;
            }
        }
        let grant = self.conductor.grant_among(now, total, among)?;
        let (run, cut) = self.feed_grant(now, key, main, grant)?;
        if run.len() == 0 {
            return None;
        }
        self.stats.chunks += packets as u64;
        self.stats.first += counted;
        self.finish_grant(now, key, &grant, cut);
        let load = Load::Run { key, stream: main, run, priority: fresh.priority, pinned: false };
        let transmit = self.poll_on(now, lane, Room::Any, load, NonZeroUsize::new(packets)?, buf);
        if transmit.is_none() {
            self.keep(now, lane, load);
        }
        transmit.map(|polled| polled.0)
    }

    /// Sends a chunk on several lanes: at once on one, and by the next polls on the others.
    fn send_each(
        &mut self,
        now: Time,
        buf: &mut Vec<u8>,
        next: Next,
        lanes: LaneSet,
        views: &Views,
    ) -> Option<Transmit> {
        let Next { key, fresh, payload, wire, among } = next;
        let (main, whole, home) = self.copied_carriers(key, fresh.offset, lanes)?;
        // The main stream uses the lane that has no copy.
        let home = if lanes.contains(home) { home } else { lanes.first()? };
        let all: LaneSet = self.lanes.iter().map(|lane| lane.id).collect();
        self.end_copies(key, all.without(lanes).or(LaneSet::one(home)));
        let header = self.header_left(key, main);
        let left = Bytes::new(whole.end) - fresh.offset;
        let budget = (payload - Bytes::new(header)).min(left);
        let grant = self.conductor.grant_among(now, budget.max(Bytes::new(1)), among)?;
        let (run, cut) = self.feed_grant(now, key, main, grant)?;
        if run.len() == 0 {
            return None;
        }
        self.stats.chunks += 1;
        self.stats.first += wire;
        if let Some(view) = views.of(home) {
            self.scheduler.sent(now, view, Purpose::New(fresh), wire);
        }
        for lane in lanes.without(LaneSet::one(home)).iter() {
            self.duplicates.push_back(Duplicate { key, lane, run, carried: LaneSet::one(home), wire });
        }
        self.finish_grant(now, key, &grant, cut);
        let load = Load::Run { key, stream: main, run, priority: grant.priority, pinned: true };
        let transmit = self.poll_on(now, home, Room::Any, load, NonZeroUsize::MIN, buf);
        if transmit.is_none() {
            self.keep(now, home, load);
        }
        transmit.map(|polled| polled.0)
    }

    /// Returns the number of packets of this priority that the engine may get at once.
    fn batch(&self, level: Priority, lane: LaneId) -> NonZeroUsize {
        let most = self.config.batch.packets;
        // A batch is one grant, and no grant may exceed the level's high watermark.
        let watermarks = self.conductor.rules().watermarks[level.index()];
        let mtu = self.lanes.get(lane).map_or(Bytes::new(1), |lane| lane.gate.mtu()).get().max(1);
        let most = watermarks.map_or(most, |marks| {
            usize::try_from(marks.high.get() / mtu).map_or(most, |packets| packets.min(most))
        });
        let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        if level == Priority::P0 {
            return most;
        }
        let Some(lane) = self.lanes.get(lane) else { return NonZeroUsize::MIN };
        // The lane sends window · span / srtt bytes in the span.
        let bytes = u128::from(lane.gate.window().get()) * self.config.batch.span.as_nanos()
            / lane.srtt.as_nanos().max(1);
        let packets = usize::try_from(bytes / u128::from(mtu)).unwrap_or(usize::MAX);
        NonZeroUsize::new(packets).unwrap_or(NonZeroUsize::MIN).min(most)
    }

    /// Hands a granted chunk to the engine, and returns to the Conductor what the engine did not
    /// accept. Returns the run written, and whether it was cut short.
    fn feed_grant(&mut self, now: Time, key: Key, stream: StreamId, grant: Grant) -> Option<(Run, bool)> {
        let start = grant.offset.get();
        let chunk = Run { start, end: start + grant.len.get() };
        match self.write(key, stream, chunk) {
            Written::Some(written) if written == chunk.len() => Some((chunk, false)),
            Written::Some(written) => {
                let _ = self.conductor.refuse(grant, Bytes::new(written));
                // The engine reports new credit only after it has refused an attempt, which
                // follows. Meanwhile any part of the header that was written has to leave.
                self.send.request_look();
                Some((Run { end: start + written, ..chunk }, true))
            }
            Written::Blocked => {
                let _ = self.conductor.refuse(grant, Bytes::ZERO);
                self.credit.stop(grant.priority);
                // Another level may have credit.
                self.send.request_look();
                None
            }
            Written::Refused => {
                let _ = self.conductor.refuse(grant, Bytes::ZERO);
                self.settled(now, key, false);
                None
            }
        }
    }

    fn finish_grant(&mut self, now: Time, key: Key, grant: &Grant, cut: bool) {
        if grant.fin && !cut {
            if let Some(message) = self.outbox.get_mut(key) {
                message.fed = true;
            }
            self.scheduler.message_complete(now, grant.message.get());
        }
    }

    /// Returns the most bytes that the header before the chunk at `offset` may take.
    fn header_len(&self, key: Key, offset: u64) -> u64 {
        let Some(message) = self.outbox.get(key) else { return MAX_FRAME_HEADER as u64 };
        if message.unreliable || message.carrier_of(Role::Main, offset).is_some() {
            return 0;
        }
        MAX_FRAME_HEADER as u64
    }

    fn header_left(&self, key: Key, stream: StreamId) -> u64 {
        let message = self.outbox.get(key);
        let carrier = message.and_then(|message| message.carriers.iter().find(|it| it.stream == stream));
        carrier.map_or(0, |carrier| carrier.header.len() as u64)
    }

    /// Returns the run that a new stream carries. A stream for reuse is free only when all of its
    /// message has arrived: a message on several could exceed the streams that the peer allows.
    fn run_from(&self, start: u64, message: &Outgoing) -> Run {
        match self.config.streams {
            StreamUse::Reuse if message.part.is_none() => Run { start, end: message.len() },
            _ => Run::from(start, message.len()),
        }
    }

    /// Returns the stream that carries the data from `offset` on, and its run; opens the stream if
    /// necessary.
    fn main_carrier(&mut self, key: Key, offset: Bytes) -> Option<(StreamId, Run)> {
        let message = self.outbox.get(key)?;
        if let Some(main) = message.carrier_of(Role::Main, offset.get()) {
            return Some((main.stream, main.run));
        }
        let run = self.run_from(offset.get(), message);
        let last = message.ends_with(run);
        Some((self.open_carrier(key, Role::Main, run, last, None)?, run))
    }

    /// Returns the stream that carries the data from `offset` on, its run, and the lane that the
    /// stream has to itself. Opens streams for the copies on the other lanes if there are none yet.
    fn copied_carriers(
        &mut self,
        key: Key,
        offset: Bytes,
        lanes: LaneSet,
    ) -> Option<(StreamId, Run, LaneId)> {
        let message = self.outbox.get(key)?;
        let at = offset.get();
        if !message.carriers.iter().any(|carrier| carrier.role != Role::Repair && carrier.run.contains(at)) {
            let run = self.run_from(at, message);
            let last = message.ends_with(run);
            let copies = u8::try_from(lanes.len()).ok()?;
            let twins = self.config.streams == StreamUse::PerMessage || message.part.is_some();
            let twin = |index| twins.then_some(Twin { index, copies });
            let home = lanes.first()?;
            let main = self.open_carrier(key, Role::Main, run, last, twin(0))?;
            for (index, lane) in (1..).zip(lanes.without(LaneSet::one(home)).iter()) {
                // Without credit for another stream, the run has no copy there.
                self.open_carrier(key, Role::Copy(lane), run, last, twin(index));
            }
            return Some((main, run, home));
        }
        let copied: LaneSet = message
            .carriers
            .iter()
            .filter(|carrier| carrier.run.contains(at))
            .filter_map(|carrier| if let Role::Copy(lane) = carrier.role { Some(lane) } else { None })
            .collect();
        let (main, run) = self.main_carrier(key, offset)?;
        Some((main, run, lanes.without(copied).first().or(lanes.first())?))
    }

    /// Opens a stream for a run of a message; `None` if the peer allows none now.
    fn open_carrier(
        &mut self,
        key: Key,
        role: Role,
        run: Run,
        last: bool,
        twin: Option<Twin>,
    ) -> Option<StreamId> {
        let part = self.outbox.get(key)?.part;
        // A stream for reuse is free only when all of its message has arrived, so parts would wait
        // for parts.
        let reuse = self.config.streams == StreamUse::Reuse && role != Role::Repair && part.is_none();
        let idle = if reuse { self.outbox.idle_stream() } else { None };
        let dir = if reuse { Dir::Bi } else { Dir::Uni };
        if !self.credit.allows_streams() && idle.is_none() {
            return None;
        }
        let fresh = || self.conn.streams().open(dir).inspect(|_| self.stats.streams += 1);
        let Some(stream) = idle.or_else(fresh) else {
            // None opens before the peer allows more. Messages already begun continue; the peer may
            // allow none until they end.
            self.credit.stop_streams();
            self.send.request_look();
            return None;
        };
        let id = self.outbox.number(key)?;
        let (priority, base) = self.outbox.get(key).map(|message| (message.priority, message.base()))?;
        let frame = Frame::Message(MessageFrame {
            id,
            priority: self.outbox.told_priority(key)?,
            offset: Bytes::new(base + run.start),
            len: Bytes::new(run.len()),
            last,
            receipt: reuse,
            twin,
        });
        let mut header = [0; MAX_FRAME_HEADER];
        let len = frame.encode(&mut header).ok()?;
        let header = Payload::copy_from_slice(&header[..len]);
        let _ = self.conn.send_stream(stream).set_priority(engine_priority(priority));
        let carrier =
            Carrier { stream, role, run, written: run.start, header, acknowledged: false, ended: false };
        self.outbox.add_carrier(key, carrier);
        Some(stream)
    }

    /// Stops the copies on these lanes, because some chunk was not sent twice.
    fn end_copies(&mut self, key: Key, lanes: LaneSet) {
        let Some(message) = self.outbox.get_mut(key).filter(|message| message.is_copied()) else { return };
        for carrier in &mut message.carriers {
            if let Role::Copy(lane) = carrier.role {
                carrier.ended |= lanes.contains(lane);
            }
        }
    }

    /// Writes a chunk, preceded by its frame header if still unsent, and finishes the stream if it
    /// is the last.
    fn write(&mut self, key: Key, stream: StreamId, chunk: Run) -> Written {
        let Some(message) = self.outbox.get_mut(key) else { return Written::Refused };
        let (Ok(start), Ok(end)) = (usize::try_from(chunk.start), usize::try_from(chunk.end)) else {
            return Written::Refused;
        };
        let body = message.body.slice(start..end);
        let single = self.config.streams == StreamUse::PerMessage || message.part.is_some();
        let Some(carrier) = message.carrier_mut(stream) else { return Written::Refused };
        let header = carrier.header.clone();
        let mut chunks = [header.clone(), body];
        let taken = match self.conn.send_stream(stream).write_chunks(&mut &mut chunks[..]) {
            Ok(taken) => taken,
            Err(WriteError::Blocked) => return Written::Blocked,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Written::Refused,
        };
        let of_header = taken.min(header.len());
        carrier.header = header.slice(of_header..);
        let written = (taken - of_header) as u64;
        carrier.written += written;
        let finished = carrier.written == carrier.run.end;
        if finished && (single || carrier.role == Role::Repair) {
            let _ = self.conn.send_stream(stream).finish();
        }
        Written::Some(written)
    }
}

/// Snapshots of the lanes, without allocation.
#[derive(Clone, Copy)]
struct Views {
    views: [LaneView; MAX_LANES],
    len: usize,
}

impl Views {
    const fn new() -> Self {
        let none = LaneView::new(LaneId::FIRST, Bytes::ZERO, Duration::ZERO);
        Self { views: [none; MAX_LANES], len: 0 }
    }

    fn push(&mut self, view: LaneView) {
        self.views[self.len] = view;
        self.len += 1;
    }

    fn of(&self, lane: LaneId) -> Option<&LaneView> {
        self.iter().find(|view| view.id == lane)
    }

    fn of_mut(&mut self, lane: LaneId) -> Option<&mut LaneView> {
        self.views[..self.len].iter_mut().find(|view| view.id == lane)
    }
}

impl std::ops::Deref for Views {
    type Target = [LaneView];

    fn deref(&self) -> &[LaneView] {
        &self.views[..self.len]
    }
}
