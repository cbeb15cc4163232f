//! Packets in flight on a lane, and the silence since the last acknowledgement.

use std::collections::VecDeque;

use marcato_units::{Duration, Priority, Time};
use noq_proto::StreamId;

use super::Load;
use crate::outbox::{Key, Run};

/// Later packets that make an earlier one lost: kPacketThreshold of RFC 9002 §6.1.1.
const PACKET_THRESHOLD: u64 = 3;

/// Packet in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    pn: u64,
    bytes: u16,
    load: Load,
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

/// Control frames in flight.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    /// Last packet that carried one.
    last: u64,
    /// Time when the first of them left, or of a later acknowledgement on the lane.
    since: Time,
}

/// Change of a lane's address, while packets from before it are in flight. The engine reports only
/// losses of these.
#[derive(Clone, Copy, Debug)]
struct Moved {
    /// Last packet before the change.
    last: u64,
    /// Set once the engine has reported a packet that left after the change.
    reported: bool,
}

/// Packets of a lane that are neither acknowledged nor lost.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Data packets, by packet number. The window bounds them.
    sent: VecDeque<Sent>,
    /// Number of these packets that are neither settled nor given up.
    loaded: usize,
    /// Control frames. Only the engine can send them again, and it does so on the same lane while
    /// its path exists.
    control: Option<Unanswered>,
    moved: Option<Moved>,
    /// Time of the last acknowledgement, or of the first packet after an idle period.
    silent_since: Time,
}

impl Flight {
    pub(crate) const fn new(now: Time) -> Self {
        Self { sent: VecDeque::new(), loaded: 0, control: None, moved: None, silent_since: now }
    }

    /// Records a packet that has left.
    pub(super) fn sent(&mut self, now: Time, pn: u64, bytes: u16, load: Load) {
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
        if let Some(moved) = self.moved.as_mut().filter(|moved| pn > moved.last) {
            moved.reported = true;
            // All packets from before the change that are not lost by now have arrived.
            if pn > moved.last.saturating_add(PACKET_THRESHOLD) {
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

    /// Records a change of address.
    pub(super) fn moved(&mut self) {
        self.control = None;
        let last = self.sent.back().map(|sent| sent.pn).or(self.moved.map(|moved| moved.last));
        self.moved = last.map(|last| Moved { last, reported: false });
    }

    /// Forgets packets that left before the address changed.
    fn forget_before_move(&mut self) {
        let Some(Moved { last, .. }) = self.moved.take() else { return };
        while let Some(sent) = self.sent.front().filter(|sent| sent.pn <= last || sent.settled) {
            self.loaded -= usize::from(sent.counts());
            self.sent.pop_front();
        }
    }

    /// Returns whether an acknowledgement is awaited, not counting packets that left before the
    /// address changed.
    ///
    /// Once the engine has reported a later packet, the earlier ones are settled. A loss would have
    /// been reported within 9/8 of a round trip (RFC 9002 §6.1.2), so the rest has arrived.
    pub(super) fn awaits_ack_since_move(&mut self) -> bool {
        if self.moved.is_some_and(|moved| moved.reported) {
            self.forget_before_move();
        }
        self.awaits_ack()
    }

    /// Returns whether an acknowledgement is awaited.
    pub(super) const fn awaits_ack(&self) -> bool {
        self.loaded > 0
    }

    /// Forgets packets in flight: the path is closed, and other lanes carry their content.
    pub(crate) fn forget(&mut self) {
        self.sent.clear();
        self.control = None;
        self.loaded = 0;
    }

    /// Number of recorded data packets in flight.
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Restarts the measurement of silence.
    pub(crate) fn spare(&mut self, now: Time) {
        self.silent_since = now;
        if let Some(control) = &mut self.control {
            control.since = now;
        }
    }

    /// Time of the last acknowledgement, or of the first packet after an idle period.
    pub(super) const fn silent_since(&self) -> Time {
        self.silent_since
    }

    /// Time from which control frames have been unanswered; `None` if none is in flight.
    pub(super) fn control_since(&self) -> Option<Time> {
        self.control.map(|control| control.since)
    }

    /// Returns whether an acknowledgement is due and none has arrived for a round trip.
    pub(super) fn is_quiet(&self, now: Time, rtt: Duration) -> bool {
        self.awaits_ack() && now.since(self.silent_since) >= rtt
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
                // Only the engine can send these again, once the path is closed.
                Load::Stream { .. } | Load::Resent { .. } | Load::Control | Load::Other => {}
            }
        }
        self.loaded = 0;
        repaired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPAIR: Load = Load::Repair { priority: Priority::P0, pinned: false };

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn flight(packets: u64) -> Flight {
        let mut flight = Flight::new(Time::ZERO);
        (0..packets).for_each(|pn| flight.sent(ms(1), pn, 1200, REPAIR));
        flight
    }

    #[test]
    fn packets_that_the_engine_never_reports_are_not_kept() {
        let mut flight = flight(0);
        for pn in 0..10_000 {
            // A lost MTU probe is not reported; later packets are acknowledged.
            let load = if pn % 100 == 0 { Load::Other } else { REPAIR };
            flight.sent(ms(pn), pn, 1200, load);
            if pn % 100 != 0 {
                assert_eq!(flight.settle(pn, 1200), Some(REPAIR));
            }
        }
        assert_eq!((flight.len(), flight.awaits_ack()), (0, false));
    }

    /// The engine reports acknowledgements of nothing that left before: neither data nor control frames are awaited.
    #[test]
    fn a_change_of_address_ends_the_wait_for_control_frames() {
        let mut flight = flight(0);
        flight.sent(ms(5), 1, 60, Load::Control);
        flight.sent(ms(7), 2, 60, Load::Control);
        assert_eq!(flight.control_since(), Some(ms(5)));
        flight.moved();
        assert_eq!(flight.control_since(), None);
        flight.sent(ms(9), 3, 60, Load::Control);
        assert_eq!(flight.control_since(), Some(ms(9)));
        flight.settle(3, 60);
        assert_eq!(flight.control_since(), None);
    }

    /// Packets of the handshake have numbers of their own, and the gates report them alike.
    #[test]
    fn a_packet_of_the_same_number_and_another_length_settles_none() {
        let mut flight = flight(3);
        assert_eq!((flight.settle(1, 60), flight.len()), (None, 3));
        assert_eq!((flight.settle(1, 1200), flight.settle(1, 1200)), (Some(REPAIR), None));
    }

    #[test]
    fn pre_move_packets_are_forgotten_once_later_ones_are_acked() {
        let mut flight = flight(10);
        flight.moved();
        for pn in 10..20 {
            flight.sent(ms(2), pn, 1200, REPAIR);
        }
        // Losses of earlier packets are still reported.
        assert_eq!(flight.settle(3, 1200), Some(REPAIR));
        assert_eq!(flight.settle(10, 1200), Some(REPAIR));
        assert_eq!(flight.len(), 20);
        for pn in 11..20 {
            assert_eq!(flight.settle(pn, 1200), Some(REPAIR));
        }
        assert_eq!((flight.len(), flight.awaits_ack()), (0, false));
        assert_eq!(flight.settle(5, 1200), None);
    }

    #[test]
    fn pre_move_packets_are_dropped_after_one_later_report() {
        let mut flight = flight(3);
        flight.moved();
        // The new address may be dead, so silence counts as before.
        assert!(flight.awaits_ack_since_move());
        flight.sent(ms(2), 3, 1200, REPAIR);
        assert_eq!(flight.settle(3, 1200), Some(REPAIR));
        assert_eq!((flight.len(), flight.awaits_ack()), (4, true));
        assert!(!flight.awaits_ack_since_move());
        assert_eq!((flight.len(), flight.awaits_ack()), (0, false));
    }

    #[test]
    fn data_on_a_stalled_lane_is_given_up_once() {
        let mut flight = flight(5);
        assert!(flight.take_unacknowledged(|_, _, _, _| {}));
        assert!(!flight.take_unacknowledged(|_, _, _, _| {}));
        assert!(!flight.awaits_ack());
        // The packet is still reported as lost or acknowledged later.
        assert_eq!(flight.settle(4, 1200), Some(REPAIR));
    }
}
