//! New data: the choice of the next chunk, and its way into the engine.

use std::num::NonZeroUsize;

use bytes::{BufMut as _, BytesMut};
use marcato_sched::Grant;
use marcato_sched::conductor::{Candidates, Removal};
use marcato_sched::lane::{LaneId, LaneSet};
use marcato_sched::schedule::{Choice, Fresh, LaneScheduler as _, Purpose, Wait};
use marcato_units::{Bytes, Priority, PrioritySet, Time};
use marcato_wire::{UNRELIABLE_HEADER, Unreliable};
use noq_proto::StreamId;

use super::carriers::Written;
use super::duplicate::Duplicate;
use super::views::Views;
use super::{Session, Transmit};
use crate::config::{Growth, OVERHEAD};
use crate::event::Event;
use crate::lane::{Lane, Load};
use crate::outbox::{Key, Run};

/// Largest number of bytes in a batch: UDP's limit, which holds for all segments together.
const LONGEST_BATCH: u64 = 65_507;

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

/// Packets that may leave on one lane at once.
#[derive(Clone, Copy)]
pub(super) struct Batched {
    /// Bytes of the message or stream in all of them.
    pub(super) total: Bytes,
    /// Bytes that they count against the window.
    pub(super) counted: Bytes,
    pub(super) packets: usize,
}

impl Session {
    /// Returns the levels of which new data may be fed: those that flow control does not stop.
    /// While the engine holds lost data, only levels more urgent than that qualify.
    pub(super) fn offered(&self) -> PrioritySet {
        let owed = self.send.next_owed().filter(|_| self.send.is_held()).map(|(owed, _)| owed);
        let behind = |level: &Priority| owed.is_some_and(|owed| !level.is_more_urgent_than(owed));
        Priority::ALL.into_iter().filter(behind).fold(self.credit.levels(), PrioritySet::without)
    }

    /// Sends the most urgent chunk of new data that may leave.
    pub(super) fn feed(
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
            let ready = self.view(now, pending.priority, wire, true, &mut views);
            let fresh = Fresh::from(pending);
            match self.scheduler.choose(now, &views, Purpose::New(fresh), wire) {
                Choice::Wait(wait) => {
                    self.look_again(ready);
                    reserved |= wait == Wait::Reserved;
                    among = self.pass_over(now, among, pending.priority, wait, wire);
                }
                choice => {
                    self.report_full(choice, wire);
                    break Some((Next { key, fresh, payload, wire, among }, choice));
                }
            }
        };
        self.update_gates(now, reserved, found.is_some());
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

    /// Returns the candidates after a level whose next packet has to wait, and informs controllers that are the reason.
    pub(super) fn pass_over(
        &mut self,
        now: Time,
        among: Candidates,
        level: Priority,
        wait: Wait,
        wire: Bytes,
    ) -> Candidates {
        if wait == Wait::Reserved {
            self.await_scheduler(now);
        }
        if wait != Wait::NoRoom {
            // A level in debt may be the only one that can use reserved room.
            return among.blocked(level);
        }
        // Lanes that only wait for their pacer are not limited by their windows.
        let full = |lane: &&Lane| lane.gate.room() < wire;
        for lane in self.lanes.iter().filter(|lane| lane.is_usable()).filter(full) {
            lane.gate.set_cwnd_limited();
        }
        // A packet of a level in debt that is shorter, or that waits for no pacer, would overtake this
        // level again and again.
        among.waiting(level)
    }

    /// Informs the controllers of high lanes with full windows that this packet leaves on a low
    /// lane only for lack of room.
    pub(super) fn report_full(&self, choice: Choice, wire: Bytes) {
        let Choice::One(lane) = choice else { return };
        if self.lanes.get(lane).is_some_and(|lane| lane.is_managed()) {
            let full = |lane: &&Lane| lane.gate.room() < wire;
            for lane in self.lanes.iter().filter(|lane| lane.is_usable() && !lane.is_managed()).filter(full) {
                lane.gate.set_cwnd_limited();
            }
        }
    }

    /// Informs the controllers whether the windows are fully used. `fed` means that a chunk was
    /// found that may leave.
    pub(super) fn update_gates(&mut self, now: Time, reserved: bool, fed: bool) {
        // Underutilization because of flow control does not grow the window (RFC 9002 §7.8).
        let free = self.credit.levels();
        let idle = !fed
            && self.repairs.is_empty()
            && !self.send.is_held()
            && match &self.streams {
                Some(streams) => streams.exchange().is_idle(),
                None => self.conductor.peek_among(now, free).is_none(),
            };
        for lane in self.lanes.iter_mut() {
            // Where the socket is the limit, the window is not.
            let has_room = lane.gate.room() >= lane.gate.mtu();
            lane.held &= has_room;
            // Nor is it where the cap of coupled mode is. The window stays as it is: one that grew
            // on would never have been tried (RFC 9002 §7.8).
            let capped = lane.governor.as_ref().is_some_and(|governor| governor.capped);
            lane.gate.set_app_limited(idle || lane.held || capped);
            if self.config.growth == Growth::Credited {
                let view = lane.view(true);
                let kept = self.scheduler.reserved(now, &view).min(view.free());
                let share =
                    if reserved && !view.cwnd.is_zero() { kept.get() * 1000 / view.cwnd.get() } else { 0 };
                lane.gate.set_idle_share(share);
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
        self.finish_if_empty();
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
        self.poll_datagram(now, lane, fresh.priority, buf)
    }

    /// Asks the lane scheduler how many packets of one message or stream may leave on a lane at once: `first`
    /// bytes in the first, behind a header, and `most` in all.
    #[expect(clippy::too_many_arguments, reason = "each is a different quantity of one batch")]
    pub(super) fn plan(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        lane: LaneId,
        fresh: Fresh,
        first: Bytes,
        header: Bytes,
        most: Bytes,
        views: &mut Views,
    ) -> Batched {
        let limit = self.batch(fresh.priority, lane).min(max);
        // Each packet needs the scheduler's consent; then one grant and one write serve them all.
        // Room for an acknowledgement is kept only in the first packet, which carries it.
        let full = self.mtu() - OVERHEAD;
        let (mut chunk, mut wire) = (first, first + header + OVERHEAD);
        let (mut total, mut counted, mut packets) = (Bytes::ZERO, Bytes::ZERO, 0);
        let waiting = self.urgent_waiting().with(fresh.priority);
        let limit_in_flight = self.lanes.get(lane).and_then(|lane| lane.limit(waiting));
        loop {
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
            chunk = full.min(most - total);
            wire = chunk + OVERHEAD;
            if limit_in_flight.zip(views.of(lane)).is_some_and(|(most, view)| view.in_flight + wire > most) {
                break;
            }
            let after = Purpose::New(fresh.after(total));
            if self.scheduler.choose(now, views, after, wire) != Choice::One(lane) {
                break;
            }
        }
        Batched { total, counted, packets }
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
        let Next { key, fresh, payload, among, .. } = next;
        let (main, whole) = self.main_carrier(key, fresh.offset)?;
        self.end_copies(key, LaneSet::ALL);
        let most = Bytes::new(whole.end) - fresh.offset;
        let header = Bytes::new(self.header_left(key, main));
        let Batched { total, counted, packets } =
            self.plan(now, max, lane, fresh, payload - header, header, most, views);
        let grant = self.conductor.grant_among(now, total, among)?;
        let (run, cut) = self.feed_grant(now, key, main, grant)?;
        if run.len() == 0 {
            return None;
        }
        self.stats.chunks += packets as u64;
        self.stats.first += counted;
        self.finish_grant(now, key, &grant, cut);
        let load = Load::Run { key, stream: main, run, priority: fresh.priority, pinned: false };
        self.poll_chunk(now, lane, load, NonZeroUsize::new(packets)?, buf)
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
        self.poll_chunk(now, home, load, NonZeroUsize::MIN, buf)
    }

    /// Returns the number of packets of this priority that the engine may get at once.
    fn batch(&self, level: Priority, lane: LaneId) -> NonZeroUsize {
        let most = self.config.batch.packets;
        // A batch is one grant, and no grant may exceed the level's high watermark.
        let rules =
            self.streams.as_ref().map_or(self.conductor.rules(), |streams| streams.exchange().rules());
        let watermarks = rules.watermarks[level.index()];
        let mtu = self.lanes.get(lane).map_or(Bytes::new(1), |lane| lane.gate.mtu()).get().max(1);
        let most = usize::try_from(LONGEST_BATCH / mtu).map_or(most, |packets| packets.min(most));
        let most = watermarks.map_or(most, |marks| {
            usize::try_from(marks.high.get() / mtu).map_or(most, |packets| packets.min(most))
        });
        let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        if level == Priority::P0 {
            return most;
        }
        let Some(lane) = self.lanes.get(lane) else { return NonZeroUsize::MIN };
        // The lane sends window · span / srtt bytes in the span. A window that the socket leaves
        // unused says nothing about the rate.
        let used = if lane.held { lane.gate.in_flight() } else { lane.gate.window() };
        let used = lane.limit(PrioritySet::EMPTY).map_or(used, |limit| used.min(limit));
        let bytes =
            u128::from(used.get()) * self.config.batch.span.as_nanos() / lane.rtt.smoothed.as_nanos().max(1);
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
                if message.part.is_some_and(|part| !part.last) {
                    self.parts[grant.priority.index()] += 1;
                }
            }
            self.scheduler.message_complete(now, grant.message.get());
        }
    }
}
