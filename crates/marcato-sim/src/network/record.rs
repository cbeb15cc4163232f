//! Recorders of a network: watches of flows and queues, and packet taps.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use marcato_link::DelaySummary;
use marcato_units::{Bytes, Duration, Rate, Time};
use marcato_wire::Ecn;

use super::Network;
use crate::flow::{Flow, Kind};
use crate::packet::{Body, FlowId, IPV4_HEADER, Packet, Side, UDP_HEADER};
use crate::record::{FlowSummary, Headers, Tap, TapError, TapStats, Transport, Watch};
use crate::route::RouteId;
use crate::sojourn::QueueDelays;
use crate::topology::LinkId;

impl Network {
    /// Starts to record the round trips, one-way delays and marks of a flow's packets, for its
    /// [`summary`](Self::summary). The record takes 40 kB and a few operations per packet. Has no
    /// effect on a flow that is already watched.
    pub fn watch(&mut self, flow: FlowId) {
        let record = &mut self.flows[flow.0 as usize];
        if record.watch.is_none() {
            record.watch = Some(Box::default());
            if let Kind::Tcp(ends) = &mut record.kind {
                for end in ends.iter_mut() {
                    // Measurements from before the watch do not count.
                    end.tcp.take_rtt();
                }
            }
        }
    }

    #[inline]
    pub(super) fn watch_arrival(&mut self, now: Time, packet: &Packet) {
        if let Some(watch) = &mut self.flows[packet.flow.0 as usize].watch {
            watch.note_arrival(now, packet.from, now - packet.sent_at, packet.ecn == Ecn::Ce);
        }
    }

    /// Returns a summary of what an end of a flow has sent, and of its delays if the flow is
    /// [watched](Self::watch).
    pub fn summary(&self, flow: FlowId, from: Side) -> FlowSummary {
        let record = &self.flows[flow.0 as usize];
        let way = record.watch.as_deref().map(|watch: &Watch| &watch.ways[from.index()]);
        let mut summary = FlowSummary {
            start: record.start,
            packets: self.tally(flow, from),
            first_at: way.and_then(|way| way.first_at),
            last_at: way.and_then(|way| way.last_at),
            marked: way.map_or(0, |way| way.marked),
            rtt: way.and_then(|way| DelaySummary::of(&way.rtt)),
            delay: way.and_then(|way| DelaySummary::of(&way.delay)),
            ..FlowSummary::default()
        };
        match &record.kind {
            Kind::Tcp(ends) => {
                let stats = ends[from.index()].tcp.stats();
                let reception = ends[from.peer().index()].reception;
                summary.bytes = reception.bytes;
                summary.first_at = reception.first_at;
                summary.last_at = reception.last_at;
                summary.completion =
                    reception.finished_at.and(reception.last_at).map(|last| last - record.start);
                summary.segments = stats.segments_sent;
                summary.retransmissions = stats.retransmissions;
                summary.timeouts = stats.timeouts;
                summary.tail_probes = stats.tail_probes;
            }
            Kind::Udp(udp) if from == Side::Client => summary.bytes = udp.stats.bytes,
            Kind::Datagrams(datagrams) => {
                summary.bytes = datagrams.routes.iter().map(|ends| ends[from.index()].stats.bytes).sum();
            }
            Kind::Udp(_) | Kind::Gone => {}
        }
        summary.goodput = summary.last_at.and_then(|last| {
            let span = last - record.start;
            (!span.is_zero()).then(|| Rate::from_bytes_over(summary.bytes, span))
        });
        summary
    }

    /// Starts to record how long packets wait in the queue of a link, or in both queues of one that
    /// pre-empts. It takes a few operations per packet of this link. Has no effect on a link that
    /// is already watched.
    pub fn watch_queue(&mut self, link: LinkId) {
        self.links[link.0 as usize].sojourns.get_or_insert_default();
    }

    /// Returns the sojourn times in the queue of a link; `None` unless it is
    /// [watched](Self::watch_queue).
    pub fn queue_delays(&self, link: LinkId) -> Option<&QueueDelays> {
        self.links[link.0 as usize].sojourns.as_ref().map(|sojourns| &sojourns.left)
    }

    /// Restarts the distribution of a link's queue delays, as at the end of a warm-up.
    pub fn restart_queue_delays(&mut self, link: LinkId) {
        if let Some(sojourns) = &mut self.links[link.0 as usize].sojourns {
            sojourns.restart();
        }
    }

    /// Returns the current rate of a link; `None` if packets leave at once.
    pub fn link_rate(&self, link: LinkId) -> Option<Rate> {
        self.links[link.0 as usize].rate()
    }

    /// Returns the time in which a link's backlog would leave at its current rate; `None` at rate
    /// 0.
    pub fn queue_time(&self, link: LinkId) -> Option<Duration> {
        self.links[link.0 as usize].drain_time()
    }

    /// Taps a link: captures each packet that passes the tap's point until
    /// [`drain_tap`](Self::drain_tap) takes it. A link has one tap; a second one replaces the
    /// first, whose captures are lost.
    pub fn tap(&mut self, link: LinkId, tap: Tap) {
        self.write_captured();
        self.tallies.taps.get_or_insert_default().add(link.0, tap);
    }

    /// Captures packets of a link into one pcapng file, which all taps set by this method share, as
    /// the interface `name`. An existing tap of the link is discarded.
    /// [`take_taps`](Self::take_taps) returns the file.
    pub fn tap_together(&mut self, link: LinkId, name: &str, tap: Tap) {
        self.write_captured();
        self.tallies.taps.get_or_insert_default().add_common(link.0, name, tap);
    }

    /// Takes what the taps [set together](Self::tap_together) have captured since the last call, as
    /// part of a pcapng file. The concatenated parts are the file. The SSLKEYLOGFILE lines in
    /// `secrets` precede the packets, so that readers can decrypt them.
    pub fn take_taps(&mut self, secrets: &str) -> Vec<u8> {
        self.write_captured();
        self.tallies.taps.as_mut().map_or_else(Vec::new, |taps| taps.take_common(secrets))
    }

    /// Writes what a link's tap has captured since the last call to `out`, as part of a pcap file.
    /// The concatenated parts are the file. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// [`TapError`] if the link has no tap, or `out` fails. After a failure some bytes may have
    /// been written; the captures are kept.
    pub fn drain_tap(&mut self, link: LinkId, out: &mut impl io::Write) -> Result<Bytes, TapError> {
        self.write_captured();
        let taps = self.tallies.taps.as_mut().ok_or(TapError::NoTap)?;
        taps.drain(link.0, out)
    }

    /// Returns the counters of a link's tap; `None` if the link has no tap.
    pub fn tap_stats(&self, link: LinkId) -> Option<TapStats> {
        self.tallies.taps.as_ref()?.stats(link.0)
    }

    /// Writes the headers of captured packets. A packet alone does not hold its addresses and
    /// ports.
    #[cold]
    pub(super) fn write_captured(&mut self) {
        let Some(taps) = &mut self.tallies.taps else { return };
        let flows = &self.flows;
        taps.write(|packet| headers(&flows[packet.flow.0 as usize], packet));
    }
}

/// Returns the header fields of a packet.
fn headers<'a>(flow: &Flow, packet: &'a Packet) -> Option<Headers<'a>> {
    let (from, to) = (packet.from.index(), packet.from.peer().index());
    let [source, destination] = match (&flow.kind, &packet.body) {
        (Kind::Datagrams(datagrams), Body::Datagram(datagram)) => {
            let ends = datagrams.routes.get(RouteId(packet.route).index())?;
            [ends[from].address(datagram.source), ends[to].address(datagram.destination)]
        }
        // TCP and UDP flows have no addresses in the simulator; the capture invents them.
        _ => [from, to].map(|side| {
            // Node n has 10.0.0.0 + n + 1, as on a datagram flow's route.
            let ip = Ipv4Addr::from_bits(0x0a00_0000 | (flow.nodes[side].0 + 1) & 0x00ff_ffff);
            let number = packet.flow.0;
            // Each flow has a port pair of its own. Ports 29000 to 29999 belong to no service that
            // programs which read such files would decode.
            let port = match side {
                0 => 0x8000 | number & 0x7fff,
                _ => 29_000 + (number >> 15) % 1_000,
            };
            (IpAddr::V4(ip), u16::try_from(port).unwrap_or(u16::MAX)).into()
        }),
    };
    let transport = match &packet.body {
        Body::Tcp(segment) => Transport::Tcp { segment, syn_options: flow.syn_options?[from] },
        // No header format is settled for packets of the low layer: captured as a datagram of that
        // length.
        Body::Low(_) => Transport::Udp { payload: packet.len.saturating_sub(IPV4_HEADER + UDP_HEADER) },
        Body::Udp => Transport::Udp { payload: packet.len - IPV4_HEADER - UDP_HEADER },
        Body::Datagram(_) => Transport::Datagram,
    };
    Some(Headers {
        source,
        destination,
        ecn: packet.ecn,
        layer: packet.layer,
        hop: packet.hop,
        len: packet.len,
        transport,
    })
}
