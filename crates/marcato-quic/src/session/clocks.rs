//! Clocks of both ends, which tell each sender the queue on the way back (docs/wire.md, "Frames").

use marcato_sched::coupled::{OwnClock, PeerClock};
use marcato_units::Time;
use marcato_wire::Frame;

use super::Session;

/// Clocks of a session with one lane: what travels on several lanes tells nothing about one.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    peer: PeerClock,
    own: OwnClock,
    /// Set once the peer was asked for its clock.
    asked: bool,
    /// Set if data has arrived since the clock was last looked at.
    data: bool,
}

impl Clocks {
    /// Takes note of data that has arrived.
    pub(super) const fn data_arrived(&mut self) {
        self.data = true;
    }

    /// Takes note of the interval in ms at which the peer wants the clock.
    pub(super) fn watch(&mut self, interval: u64) {
        self.own.watch(interval);
    }

    /// Takes note of the peer's clock.
    pub(super) fn heard(&mut self, now: Time, time: u32) {
        if self.asked {
            self.peer.heard(now, time);
        }
    }

    /// Clock of the peer.
    pub(super) const fn peer(&self) -> &PeerClock {
        &self.peer
    }
}

impl Session {
    /// Asks for the peer's clock once coupled mode acts, and sends this end's if it is due.
    pub(super) fn exchange_clocks(&mut self, now: Time) {
        if !self.phase.is_open() || self.lanes.iter().count() != 1 {
            return;
        }
        if !self.clocks.asked && self.config.coupled.acts(self.levels, self.config.urgent) {
            self.clocks.asked = true;
            self.write_control(Frame::Watch { interval: PeerClock::INTERVAL_MS });
        }
        let due = std::mem::take(&mut self.clocks.data) && self.clocks.own.is_due(now);
        // In a queue of our own, the clock would grow old.
        if due && self.notes.len() == 0 && self.lanes.iter().all(|lane| lane.gate.room() >= lane.gate.mtu()) {
            let time = self.clocks.own.tell(now);
            self.write_control(Frame::Clock { time });
        }
    }
}
