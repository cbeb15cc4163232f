//! New data of plain streams: the choice of the next chunk, and its way into the engine.

use std::num::NonZeroUsize;

use marcato_sched::conductor::{Candidates, Redundancy};
use marcato_sched::exchange::Grant;
use marcato_sched::lane::LaneId;
use marcato_sched::schedule::{Choice, Fresh, LaneScheduler as _, Purpose, Wait};
use marcato_units::{Bytes, Time};

use super::feed::Batched;
use super::streams::Streams;
use super::views::Views;
use super::{Session, Transmit};
use crate::config::OVERHEAD;
use crate::event::Event;
use crate::lane::Load;
use crate::streams::StreamEvent;

/// Chunk of a stream or a datagram chosen as the next to be sent.
#[derive(Clone, Copy)]
struct Next {
    fresh: Fresh,
    payload: Bytes,
    /// Bytes that the packet counts against a window.
    wire: Bytes,
    among: Candidates,
    datagram: bool,
}

impl Session {
    /// Sends the most urgent chunk of plain streams that may leave.
    pub(super) fn feed_streams(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
        among: Candidates,
    ) -> Option<Transmit> {
        self.expire_datagrams(now);
        self.rate_streams(now);
        self.look_for_late(now);
        loop {
            let mut views = Views::new();
            let found = self.next_chunk(now, among, &mut views);
            let (next, lane) = found?;
            if next.datagram {
                return self.send_plain_datagram(now, buf, next, lane, &views);
            }
            // A stream without credit steps aside, and the next one is asked.
            match self.send_stream(now, max, buf, next, lane, &mut views) {
                Fed::Sent(transmit) => return transmit,
                Fed::Refused => {}
            }
        }
    }

    /// Chooses the most urgent chunk that a lane can carry now.
    fn next_chunk(&mut self, now: Time, mut among: Candidates, views: &mut Views) -> Option<(Next, LaneId)> {
        let mut reserved = false;
        let found = loop {
            let Some(next) = self.streams.as_ref()?.exchange().peek_among(among) else { break None };
            let datagram = Streams::is_datagram(next.stream);
            let payload = self.payload(next.len.get());
            let wire = payload + OVERHEAD;
            let ready = self.view(now, next.priority, wire, true, views);
            let fresh = Fresh {
                message: next.stream.0,
                priority: next.priority,
                offset: next.offset,
                rest: next.len,
                redundancy: Redundancy::Once,
            };
            let choice = self.scheduler.choose(now, views, Purpose::New(fresh), wire);
            let lane = match choice {
                Choice::One(lane) => Some(lane),
                // The receiver of a plain stream does not know copies.
                Choice::Each(lanes) => lanes.first(),
                Choice::Wait(wait) => {
                    self.look_again(ready);
                    reserved |= wait == Wait::Reserved;
                    among = self.pass_over(now, among, next.priority, wait, wire);
                    continue;
                }
            };
            self.report_full(choice, wire);
            break lane.map(|lane| (Next { fresh, payload, wire, among, datagram }, lane));
        };
        self.update_gates(now, reserved, found.is_some());
        found
    }

    /// Sends a chunk, or a batch of them, of one stream on one lane.
    fn send_stream(
        &mut self,
        now: Time,
        max: NonZeroUsize,
        buf: &mut Vec<u8>,
        next: Next,
        lane: LaneId,
        views: &mut Views,
    ) -> Fed {
        let Next { fresh, payload, among, .. } = next;
        let longest = self.mtu() * max.get().min(self.config.batch.packets) as u64;
        let grant = self.streams.as_mut().and_then(|streams| streams.grant_among(longest, among));
        let Some(grant) = grant else { return Fed::Sent(None) };
        let planned = self.plan(now, max, lane, fresh, payload, Bytes::ZERO, grant.len, views);
        let Batched { total, counted, packets } = planned;
        let Some((stream, run)) = self.write_grant(grant, total) else { return Fed::Refused };
        self.stats.chunks += packets as u64;
        self.stats.first += counted;
        let load = Load::Stream { stream, run, priority: grant.priority };
        let max = NonZeroUsize::new(packets).unwrap_or(NonZeroUsize::MIN);
        let transmit = self.poll_chunk(now, lane, load, max, buf);
        self.wake_crowded();
        Fed::Sent(transmit)
    }

    /// Sends a datagram, in its own packet.
    fn send_plain_datagram(
        &mut self,
        now: Time,
        buf: &mut Vec<u8>,
        next: Next,
        lane: LaneId,
        views: &Views,
    ) -> Option<Transmit> {
        let Next { fresh, wire, among, .. } = next;
        let whole = fresh.rest;
        let streams = self.streams.as_mut()?;
        let grant: Grant = streams.grant_among(whole, among)?;
        let body = streams.take_granted_datagram(grant)?;
        if self.conn.datagrams().send(body, true).is_err() {
            // The packet size has shrunk since it was accepted.
            self.stats.datagrams_unsent += 1;
            self.events.push_back(Event::Stream(StreamEvent::DatagramDropped));
            self.send.request_look();
            return None;
        }
        self.stats.datagrams_sent += 1;
        if let Some(view) = views.of(lane) {
            self.scheduler.sent(now, view, Purpose::New(fresh), wire);
        }
        self.poll_datagram(now, lane, fresh.priority, buf)
    }
}

/// Result of feeding a chunk of a stream.
enum Fed {
    /// It left, or waits in the engine until its lane may send.
    Sent(Option<Transmit>),
    /// The engine took nothing of it: the stream has no credit, or is over.
    Refused,
}
