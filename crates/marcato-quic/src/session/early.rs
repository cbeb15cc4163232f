//! Early data: messages that a client sends before the handshake is complete (0-RTT).
//!
//! RFC 8446 §2.3, RFC 9001 §4.6. With a ticket of an earlier session, the engine knows the server's
//! limits and has keys at once. Only idempotent messages enter the Conductor then. So all that the
//! session has granted by the end of the handshake is early data. The session uses one path and no
//! control stream before. If the server rejects early data, the engine discards all streams without
//! an event. The session then sends the same messages again, with the same numbers.

use std::num::NonZeroUsize;

use marcato_sched::conductor::Candidates;
use marcato_sched::lane::LaneId;
use marcato_units::Time;

use super::phase::Phase;
use super::repairs::Repair;
use super::send_state::SendState;
use super::{Message, Session, Transmit};
use crate::event::Event;
use crate::outbox::Run;

impl Session {
    /// Returns whether early data may leave, or has arrived, and the handshake is not complete.
    pub fn is_early(&self) -> bool {
        self.phase.is_early()
    }

    /// Returns whether frames other than idempotent messages have to wait. What a server sends
    /// before its handshake is complete is no early data, and nothing rejects it (RFC 9001 §5.7).
    pub(super) fn is_restricted(&self) -> bool {
        self.phase.is_early() && self.conn.side().is_client()
    }

    /// Returns whether a message must not leave now.
    pub(super) fn excludes(&self, message: &Message, part: bool) -> bool {
        // A replay of any other message could do harm: RFC 9001 §9.2. A part alone says nothing
        // about the whole message.
        self.is_restricted() && (!message.idempotent || !message.reliable || part)
    }

    /// Begins with early data, if the engine can send any.
    pub(super) fn begin_early(&mut self) {
        if self.conn.side().is_client() && self.conn.has_0rtt() {
            self.phase.advance(Phase::Early);
        }
    }

    /// Handles data that has arrived at a server before its handshake was complete.
    pub(super) fn receive_early(&mut self) {
        if self.conn.side().is_server() && self.phase.advance(Phase::Early) {
            self.inbox.set_early(true);
            self.events.push_back(Event::Early);
        }
    }

    /// Builds the next datagram before the handshake is complete.
    pub(super) fn poll_early(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        // The handshake goes first. It needs open gates, as it has without early data.
        self.lanes.open();
        let transmit = self.poll_engine(now, NonZeroUsize::MIN, buf);
        self.drain(now, None, self.send.due());
        if transmit.is_some() {
            self.send.release();
            return transmit;
        }
        let transmit = self.feed(now, NonZeroUsize::MIN, buf, Candidates::of(self.offered()));
        self.lanes.open();
        transmit
    }

    /// Handles the end of the handshake, if there was early data.
    pub(super) fn end_early(&mut self) {
        if !self.phase.is_early() {
            return;
        }
        self.inbox.set_early(false);
        if self.conn.side().is_server() {
            return;
        }
        // Limits that the engine remembered have been replaced.
        self.credit.resume();
        self.credit.resume_streams();
        if self.conn.accepted_0rtt() {
            self.stats.early_accepted += self.outbox.begun() as u64;
            return;
        }
        // RFC 9001 §4.6.2: a client resets the state of all streams.
        self.send = SendState::default();
        self.duplicates.clear();
        for lane in self.lanes.iter_mut() {
            lane.flight.forget();
            lane.gate.set_empty();
        }
        for (key, priority, written) in self.outbox.rewind() {
            self.stats.early_rejected += 1;
            if written > 0 {
                self.repairs.enter(Repair::new(key, Run { start: 0, end: written }, priority, LaneId::FIRST));
            }
        }
    }
}
