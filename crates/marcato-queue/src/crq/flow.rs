//! State of a flow in [`Crq`](super::Crq)'s table.

use marcato_units::Duration;
use marcato_wire::{QuicHeader, Transport};

use super::{Class, QuicRule};
use crate::trap::{Scores, Signal, Trap, TrapKind, Verdict};
use crate::{FlowKey, Tally};

/// State of a flow.
///
/// The fields that every packet needs come first, those that few packets need come last.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Flow {
    /// Number of its packets that arrived, modulo 2^32.
    pub(super) order: u32,
    /// Order of the latest packet that left.
    left: u32,
    pub(super) enqueued: Tally,
    /// Set once a long header of a known version came from its sender, and from the other host.
    greeted: [bool; 2],
    pub(super) class: Option<Class>,
    pub(super) trap: Option<Trap>,
    pub(super) dropped: u64,
    pub(super) marked: u64,
    pub(super) changes: u32,
    overtaken: u32,
}

/// Report on one flow of [`Crq`](super::Crq).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// Key of the flow.
    pub flow: FlowKey,
    /// Kind that the flow is assessed as; `None` if it is not assessed.
    pub kind: Option<TrapKind>,
    /// Verdict on its response to loss.
    pub loss: Verdict,
    /// Verdict on its response to marks.
    pub ecn: Verdict,
    /// Numbers of cycles under each verdict.
    pub scores: Scores,
    /// Queue of its last packet.
    pub class: Class,
    /// Packets that arrived, those included that were then dropped.
    pub enqueued: Tally,
    /// Number of its packets that were dropped here.
    pub dropped: u64,
    /// Number of its packets that were marked here.
    pub marked: u64,
    /// Number of its changes of queue.
    pub changes: u32,
    /// Number of its packets that left after a later one.
    pub overtaken: u32,
    /// Smoothed round trip; zero if it is not known.
    pub round_trip: Duration,
}

impl FlowReport {
    /// Share of its cycles in which it was called responsive, to marks if it responds to these more
    /// often than to losses. `None` before the first cycle.
    pub fn responsive(&self) -> Option<f64> {
        let raw = [Signal::Loss, Signal::Ecn].into_iter().filter_map(|signal| self.scores.raw(signal));
        raw.max().map(|thousandths| f64::from(thousandths) / 1000.0)
    }
}

impl Flow {
    /// Gives the flow a trap as soon as its protocol is known.
    pub(super) fn recognise(&mut self, rule: QuicRule, transport: &Transport) {
        if self.trap.is_some() {
            return;
        }
        match *transport {
            Transport::Tcp(_) => self.trap = Some(Trap::new(TrapKind::Tcp)),
            Transport::Udp { quic: Some(header), .. } => {
                self.greeted[0] |= header.known_version().is_some();
                // RFC 8999 §5.1: a long header names its version. RFC 9000 §17.4: only short
                // headers have a spin bit.
                let short = matches!(header, QuicHeader::Short { .. });
                let quic = match rule {
                    QuicRule::FirstBit => matches!(header, QuicHeader::Short { fixed: true, .. }),
                    QuicRule::Version => short && self.greeted[0],
                    QuicRule::Handshake => short && self.greeted == [true; 2],
                };
                if quic {
                    self.trap = Some(Trap::new(TrapKind::Spin));
                }
            }
            Transport::Udp { quic: None, .. } | Transport::Opaque => {}
        }
    }

    /// Takes note of a QUIC header of the other host.
    pub(super) fn greet_back(&mut self, header: QuicHeader) {
        self.greeted[1] |= header.known_version().is_some();
    }

    /// Takes note of the packet of this `order` that leaves, and returns whether a later one has
    /// left before.
    pub(super) fn leave(&mut self, order: u32) -> bool {
        // Orders are modulo 2^32: a packet up to half of them before the latest was overtaken.
        let overtaken = self.left.wrapping_sub(order) < u32::MAX / 2 && self.left != 0;
        if overtaken {
            self.overtaken = self.overtaken.saturating_add(1);
        } else {
            self.left = order;
        }
        overtaken
    }

    pub(super) fn report(&self, flow: FlowKey) -> FlowReport {
        let verdict = |signal| self.trap.as_ref().map_or(Verdict::Unclassified, |trap| trap.verdict(signal));
        FlowReport {
            flow,
            kind: self.trap.as_ref().map(Trap::kind),
            loss: verdict(Signal::Loss),
            ecn: verdict(Signal::Ecn),
            scores: self.trap.as_ref().map_or_else(Scores::default, |trap| *trap.scores()),
            class: self.class.unwrap_or(Class::Standard),
            enqueued: self.enqueued,
            dropped: self.dropped,
            marked: self.marked,
            changes: self.changes,
            overtaken: self.overtaken,
            round_trip: self.trap.as_ref().map_or(Duration::ZERO, Trap::round_trip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_wire::QuicLongType;

    #[test]
    fn a_udp_flow_is_quic_by_its_rule() {
        let datagram = |header| Transport::Udp { payload: 1200, quic: Some(header) };
        let kind = Some(QuicLongType::Initial);
        let hello = datagram(QuicHeader::Long { version: 1, kind });
        let unknown = datagram(QuicHeader::Long { version: 0xff00_001d, kind: None });
        let short = |fixed| datagram(QuicHeader::Short { fixed, spin: false });
        // Rules that recognise a flow that sent this as QUIC, if its peer has greeted or not.
        let recognised = |sent: &[Transport], greeted: bool| {
            [QuicRule::FirstBit, QuicRule::Version, QuicRule::Handshake].map(|rule| {
                let mut flow = Flow { greeted: [false, greeted], ..Flow::default() };
                for transport in sent {
                    flow.recognise(rule, transport);
                }
                flow.trap.is_some_and(|trap| trap.kind() == TrapKind::Spin)
            })
        };
        assert_eq!(recognised(&[short(true)], true), [true, false, false]);
        assert_eq!(recognised(&[short(false)], true), [false, false, false]);
        assert_eq!(recognised(&[hello], true), [false, false, false]);
        assert_eq!(recognised(&[unknown, short(true)], true), [true, false, false]);
        assert_eq!(recognised(&[hello, short(true)], true), [true, true, true]);
        assert_eq!(recognised(&[hello, short(true)], false), [true, true, false]);
        // Packets after a greeting do not undo it.
        assert_eq!(recognised(&[hello, unknown, short(false)], true), [false, true, true]);
        assert_eq!(
            recognised(&[Transport::Udp { payload: 1200, quic: None }, Transport::Opaque], true),
            [false; 3]
        );
    }
}
