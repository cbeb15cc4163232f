//! What a flow came to.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::Histogram;
use crate::packet::Side;
use crate::tally::FlowTally;

/// How long something took, over all the times that it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelaySummary {
    /// How often.
    pub count: u64,
    /// The least.
    pub min: Duration,
    /// The mean.
    pub mean: Duration,
    /// The median. Quantiles are within 1/32 of the true ones.
    pub p50: Duration,
    /// What 95 % do not exceed.
    pub p95: Duration,
    /// What 99 % do not exceed.
    pub p99: Duration,
    /// The greatest.
    pub max: Duration,
}

impl DelaySummary {
    /// What `histogram` has counted; `None` if that is nothing.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        Some(Self {
            count: histogram.count(),
            min: histogram.min()?,
            mean: histogram.mean()?,
            p50: histogram.quantile(0.5)?,
            p95: histogram.quantile(0.95)?,
            p99: histogram.quantile(0.99)?,
            max: histogram.max()?,
        })
    }
}

/// What one end of a flow has sent, and how that fared. What only a [watched](crate::Network::watch) flow knows counts
/// from when the watch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSummary {
    /// When the flow began.
    pub start: Time,
    /// Payload that reached the other end's application: of TCP each byte once, in order.
    pub bytes: Bytes,
    /// When the first of it arrived. Of a UDP or datagram flow, only a watched one knows.
    pub first_at: Option<Time>,
    /// When the last of it arrived, likewise.
    pub last_at: Option<Time>,
    /// From the start of the flow to the arrival of its last byte, once a TCP receiver knows that there will be no more.
    pub completion: Option<Duration>,
    /// The payload over the time from the start of the flow to the arrival of its last byte so far.
    pub goodput: Option<Rate>,
    /// Packets, acknowledgements included.
    pub packets: FlowTally,
    /// Segments with data or FIN sent, retransmissions included; 0 if the flow is not of TCP, as all that follow up to
    /// `tail_probes`.
    pub segments: u64,
    /// Of those: sent again.
    pub retransmissions: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Packets that arrived with a mark, if the flow is watched.
    pub marked: u64,
    /// Round trips that this end's TCP has measured, if the flow is watched. By Karn's rule a segment that was sent twice
    /// shows none.
    pub rtt: Option<DelaySummary>,
    /// One-way delays of the packets that arrived, acknowledgements included, if the flow is watched.
    pub delay: Option<DelaySummary>,
}

/// What is noted of each packet of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// By the end that sent.
    pub(crate) ways: [WatchedWay; 2],
}

/// The same of one direction.
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
