//! Recorders: the seam between what is studied and what is noted of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use marcato_units::{Bytes, Duration, Rate, Time};
use marcato_wire::Ecn;

use super::Network;
use crate::flow::{Flow, Kind};
use crate::packet::{Body, FlowId, IPV4_HEADER, Packet, Side, UDP_HEADER};
use crate::record::{DelaySummary, FlowSummary, Headers, Tap, TapError, TapStats, Transport, Watch};
use crate::route::RouteId;
use crate::sojourn::QueueDelays;
use crate::topology::LinkId;

impl Network {
    /// From now on notes the round trips, one-way delays and marks of a flow's packets, for its
    /// [`summary`](Self::summary). That takes 40 kB and a few operations for each packet, and allocates nothing more.
    /// A flow that is watched already goes on as it was.
    pub fn watch(&mut self, flow: FlowId) {
        let record = &mut self.flows[flow.0 as usize];
        if record.watch.is_none() {
            record.watch = Some(Box::default());
            if let Kind::Tcp(ends) = &mut record.kind {
                for end in ends.iter_mut() {
                    // What was measured before does not count.
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

    /// What an end of a flow has sent, and how that fared.
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

    /// From now on notes how long packets wait in the queue of a link, or in both of one that pre-empts. A few operations
    /// per packet, and nothing for packets of other links. A link that is watched already goes on as it was.
    pub fn watch_queue(&mut self, link: LinkId) {
        self.links[link.0 as usize].sojourns.get_or_insert_default();
    }

    /// How long packets waited in the queue of a link; `None` unless it is [watched](Self::watch_queue).
    pub fn queue_delays(&self, link: LinkId) -> Option<&QueueDelays> {
        self.links[link.0 as usize].sojourns.as_ref().map(|sojourns| &sojourns.left)
    }

    /// Begins the distribution of a link's queue delays anew, as at the end of a warm-up.
    pub fn restart_queue_delays(&mut self, link: LinkId) {
        if let Some(sojourns) = &mut self.links[link.0 as usize].sojourns {
            sojourns.restart();
        }
    }

    /// The rate of a link at present; `None` if packets leave it at once.
    pub fn link_rate(&self, link: LinkId) -> Option<Rate> {
        self.links[link.0 as usize].rate()
    }

    /// How long what waits at a link would take to leave at its present rate; `None` if it never would.
    pub fn queue_time(&self, link: LinkId) -> Option<Duration> {
        self.links[link.0 as usize].drain_time()
    }

    /// Taps a link: from now on each packet that passes the place is captured, until [`drain_tap`](Self::drain_tap)
    /// takes it. A link has one tap: another takes the place of the first, whose captures are lost.
    pub fn tap(&mut self, link: LinkId, tap: Tap) {
        self.write_captured();
        self.tallies.taps.get_or_insert_default().add(link.0, tap);
    }

    /// From now on captures what passes a link into one pcapng file for all taps that are set so, as an interface of this
    /// name. A tap that the link has already is forgotten. [`take_taps`](Self::take_taps) has the file.
    pub fn tap_together(&mut self, link: LinkId, name: &str, tap: Tap) {
        self.write_captured();
        self.tallies.taps.get_or_insert_default().add_common(link.0, name, tap);
    }

    /// Takes what the taps [set together](Self::tap_together) have captured since the last time, as part of a pcapng file:
    /// all parts one after the other are the file. Lines of an SSLKEYLOGFILE in `secrets` go into it before the packets, so
    /// that programs which read it decrypt them.
    pub fn take_taps(&mut self, secrets: &str) -> Vec<u8> {
        self.write_captured();
        self.tallies.taps.as_mut().map_or_else(Vec::new, |taps| taps.take_common(secrets))
    }

    /// Hands what a link's tap has captured since the last time to `out`, as part of a pcap file: all parts one after
    /// the other are the file. Returns how many bytes that were.
    ///
    /// # Errors
    ///
    /// If the link has no tap, or `out` does not take it: some of it may then have been written, and nothing is
    /// forgotten.
    pub fn drain_tap(&mut self, link: LinkId, out: &mut impl io::Write) -> Result<Bytes, TapError> {
        self.write_captured();
        let taps = self.tallies.taps.as_mut().ok_or(TapError::NoTap)?;
        taps.drain(link.0, out)
    }

    /// What a link's tap has seen; `None` if there is none.
    pub fn tap_stats(&self, link: LinkId) -> Option<TapStats> {
        self.tallies.taps.as_ref()?.stats(link.0)
    }

    /// Gives what has been captured its headers. Packets know too little of themselves for that.
    #[cold]
    pub(super) fn write_captured(&mut self) {
        let Some(taps) = &mut self.tallies.taps else { return };
        let flows = &self.flows;
        taps.write(|packet| headers(&flows[packet.flow.0 as usize], packet));
    }
}

/// What a packet's headers say.
fn headers<'a>(flow: &Flow, packet: &'a Packet) -> Option<Headers<'a>> {
    let (from, to) = (packet.from.index(), packet.from.peer().index());
    let [source, destination] = match (&flow.kind, &packet.body) {
        (Kind::Datagrams(datagrams), Body::Datagram(datagram)) => {
            let ends = datagrams.routes.get(RouteId(packet.route).index())?;
            [ends[from].address(datagram.source), ends[to].address(datagram.destination)]
        }
        // Nobody in virtual time needs addresses for these: they are made up here.
        _ => [from, to].map(|side| {
            // The same as of a datagram flow's route.
            let ip = Ipv4Addr::from_bits(0x0a00_0000 | (flow.nodes[side].0 + 1) & 0x00ff_ffff);
            let number = packet.flow.0;
            // Below the ports of clients are a thousand of servers', which mean nothing to programs that read such files:
            // so each flow has a pair of its own.
            let port = match side {
                0 => 0x8000 | number & 0x7fff,
                _ => 29_000 + (number >> 15) % 1_000,
            };
            (IpAddr::V4(ip), u16::try_from(port).unwrap_or(u16::MAX)).into()
        }),
    };
    let transport = match &packet.body {
        Body::Tcp(segment) => Transport::Tcp { segment, syn_options: flow.syn_options?[from] },
        // No format of a low packet's header is settled: it is captured as a datagram of its length.
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
