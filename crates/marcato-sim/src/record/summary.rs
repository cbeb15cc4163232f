//! Summary of a flow.

use marcato_link::{DelaySummary, Histogram};
use marcato_units::{Bytes, Duration, Rate, Time};

use crate::packet::Side;
use crate::tally::FlowTally;

/// Summary of what one end of a flow has sent. Values that require a [watch](crate::Network::watch)
/// count from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSummary {
    /// Time at which the flow began.
    pub start: Time,
    /// Payload that reached the other end's application; TCP data counts once, in order.
    pub bytes: Bytes,
    /// Arrival time of its first byte; of UDP and datagram flows only if watched.
    pub first_at: Option<Time>,
    /// Arrival time of its latest byte; of UDP and datagram flows only if watched.
    pub last_at: Option<Time>,
    /// Flow completion time: from the start of the flow to the arrival of its last byte. `None`
    /// until a TCP receiver knows the end of the stream.
    pub completion: Option<Duration>,
    /// Goodput: payload over the time from the start of the flow to the arrival of its latest byte.
    pub goodput: Option<Rate>,
    /// Packets, acknowledgements included.
    pub packets: FlowTally,
    /// Segments with data or FIN sent, retransmissions included. This and the fields up to
    /// `tail_probes` are 0 unless the flow is a TCP flow.
    pub segments: u64,
    /// Retransmitted segments among these.
    pub retransmissions: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Packets that arrived with a CE mark, if the flow is watched.
    pub marked: u64,
    /// Round trips measured by this end's TCP, if the flow is watched. By Karn's rule,
    /// retransmitted segments give none.
    pub rtt: Option<DelaySummary>,
    /// One-way delays of the packets that arrived, acknowledgements included, if the flow is
    /// watched.
    pub delay: Option<DelaySummary>,
}

/// Recorder of a flow's packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Records by the end that sent.
    pub(crate) ways: [WatchedWay; 2],
}

/// Recorder of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedWay {
    pub(crate) rtt: Histogram,
    pub(crate) delay: Histogram,
    pub(crate) marked: u64,
    pub(crate) first_at: Option<Time>,
    pub(crate) last_at: Option<Time>,
}

impl Watch {
    pub(crate) fn note_rtt(&mut self, side: Side, rtt: Option<Duration>) {
        if let Some(rtt) = rtt {
            self.ways[side.index()].rtt.record(rtt);
        }
    }

    pub(crate) fn note_arrival(&mut self, now: Time, from: Side, delay: Duration, marked: bool) {
        let way = &mut self.ways[from.index()];
        way.delay.record(delay);
        way.marked += u64::from(marked);
        way.first_at.get_or_insert(now);
        way.last_at = Some(now);
    }
}
