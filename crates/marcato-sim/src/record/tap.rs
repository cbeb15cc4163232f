//! Captures of a link's packets in the pcap format.

use std::io;

use marcato_link::Capture;
use marcato_link::pcapng::PcapNg;
use marcato_units::{Bytes, Time};

use super::Headers;
use crate::packet::{Body, Packet};
use crate::payload::Payloads;

/// Position of a tap on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TapPoint {
    /// Before the queue: each packet offered to the link at its arrival there, including packets
    /// that the queue then drops. On the first link of a flow, this is the sender's view.
    Entry,
    /// At the far end: each packet that leaves the link at its arrival there, with the queue's
    /// marks.
    #[default]
    Exit,
}

/// Configuration of a tap on a link. [`Network::tap`](crate::Network::tap) sets it, and
/// [`Network::drain_tap`](crate::Network::drain_tap) takes what it has captured.
///
/// The file is pcap with nanoseconds, LINKTYPE_RAW: IP packets without a link header. Its clock is
/// virtual time, from 0. Headers are real, with correct lengths and checksums, and so is the
/// payload of datagrams between hosts. The payload of TCP and plain UDP is zeros.
///
/// Header fields that the simulator lacks are invented. TCP and UDP flows have the addresses that a
/// datagram flow between the same nodes would have. Each has a client port from 32768 and a server
/// port from 29000. IP identifications are 0; the TTL begins at 64. A spawned flow may have the
/// ports of an earlier one. Packets of the low layer have the DSCP LE.
///
/// ```
/// use marcato_sim::{Bulk, LinkConfig, Network, Tap, Tcp, TcpFlow};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// let (there, _) = net.link(client, server, link(), link());
/// net.tap(there, Tap::default());
/// net.tcp(TcpFlow::new(client, server, Tcp::default(), Bulk::new(Bytes::kb(100))))?;
/// let mut file = Vec::new();
/// for s in 1..=3 {
///     net.run_until(Time::from_secs(s));
///     net.drain_tap(there, &mut file)?;
/// }
/// assert_eq!(file[..4], 0xa1b2_3c4d_u32.to_le_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Position on the link.
    pub point: TapPoint,
    /// Captured bytes of each packet, headers included; its true length is recorded too. At most
    /// [`WHOLE`](Self::WHOLE), beyond which programs refuse to read.
    pub snaplen: u32,
    /// Capacity for captures that wait to be taken. Packets beyond it are missed and counted.
    pub most_waiting: Bytes,
}

impl Default for Tap {
    /// At the far end, 128 bytes of each packet, with at most 256 MB waiting.
    fn default() -> Self {
        Self { point: TapPoint::default(), snaplen: 128, most_waiting: Bytes::kb(256_000) }
    }
}

impl Tap {
    /// Value of [`snaplen`](Self::snaplen) that captures every packet whole.
    pub const WHOLE: u32 = 1 << 18;

    /// Sets the position on the link.
    #[must_use]
    pub fn point(self, point: TapPoint) -> Self {
        Self { point, ..self }
    }

    /// Sets the captured bytes of each packet.
    #[must_use]
    pub fn snaplen(self, snaplen: u32) -> Self {
        Self { snaplen, ..self }
    }
}

/// Counters of a tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapStats {
    /// Packets captured.
    pub captured: u64,
    /// Packets missed for lack of room: [drain](crate::Network::drain_tap) the tap more often, or
    /// raise `most_waiting`.
    pub missed: u64,
}

/// Error returned if a tap's captures cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The tap writes into the common file of several taps.
    #[error("the link's tap writes to a shared file: take it with Network::take_taps")]
    Common,
    /// The link has no tap.
    #[error("the link has no tap: add one with Network::tap")]
    NoTap,
    /// The output returned an error.
    #[error("the captured packets could not be written: {0}")]
    Write(#[from] io::Error),
}

/// State of a tap.
struct Tapped {
    link: u32,
    point: TapPoint,
    capture: Capture,
}

/// Packet that has passed a tap, before its headers are encoded.
struct Captured {
    tap: usize,
    at: Time,
    packet: Packet,
    /// End of its payload in [`Taps::payload`]; it begins at the end of the previous packet's.
    payload_end: usize,
}

/// All taps of a network.
#[derive(Default)]
pub(crate) struct Taps {
    taps: Vec<Tapped>,
    captured: Vec<Captured>,
    payload: Vec<u8>,
    /// Common file of the taps that share one.
    common: PcapNg,
}

impl Taps {
    pub(crate) fn add(&mut self, link: u32, config: Tap) {
        let capture = Capture::alone(config.snaplen, config.most_waiting);
        self.put(Tapped { link, point: config.point, capture });
    }

    /// Adds a tap that writes into the common file, as an interface of this name.
    pub(crate) fn add_common(&mut self, link: u32, name: &str, config: Tap) {
        let capture = Capture::in_common(&mut self.common, name, config.snaplen, config.most_waiting);
        self.put(Tapped { link, point: config.point, capture });
    }

    fn put(&mut self, tap: Tapped) {
        let link = tap.link;
        match self.taps.iter_mut().find(|tap| tap.link == link) {
            Some(before) => *before = tap,
            None => self.taps.push(tap),
        }
    }

    pub(crate) fn stats(&self, link: u32) -> Option<TapStats> {
        let capture = &self.taps.iter().find(|tap| tap.link == link)?.capture;
        Some(TapStats { captured: capture.captured(), missed: capture.missed() })
    }

    pub(crate) fn drain(&mut self, link: u32, out: &mut impl io::Write) -> Result<Bytes, TapError> {
        let tap = self.taps.iter_mut().find(|tap| tap.link == link).ok_or(TapError::NoTap)?;
        let file = tap.capture.file().ok_or(TapError::Common)?;
        out.write_all(file)?;
        let written = Bytes::new(file.len() as u64);
        file.clear();
        Ok(written)
    }

    /// Takes the waiting part of the common file, after these secrets.
    pub(crate) fn take_common(&mut self, secrets: &str) -> Vec<u8> {
        self.common.take(secrets)
    }

    /// Captures a packet, if a tap is at this point of the link.
    #[cold]
    pub(crate) fn note(
        &mut self,
        at: Time,
        link: u32,
        point: TapPoint,
        packet: &Packet,
        payloads: &Payloads,
    ) {
        let here = |tap: &Tapped| tap.link == link && tap.point == point;
        let Some(tap) = self.taps.iter().position(here) else { return };
        if let Body::Datagram(datagram) = &packet.body {
            self.payload.extend_from_slice(payloads.peek(&datagram.payload));
        }
        self.captured.push(Captured { tap, at, packet: packet.clone(), payload_end: self.payload.len() });
    }

    /// Encodes the captured packets into the files, with the headers that `headers` returns.
    pub(crate) fn write(&mut self, headers: impl for<'a> Fn(&'a Packet) -> Option<Headers<'a>>) {
        let mut begin = 0;
        for captured in &self.captured {
            let payload = &self.payload[begin..captured.payload_end];
            begin = captured.payload_end;
            if let Some(headers) = headers(&captured.packet) {
                let written = headers.write(payload);
                let parts = [written.as_slice(), payload];
                self.taps[captured.tap].capture.packet(&mut self.common, captured.at, headers.len, parts);
            }
        }
        self.captured.clear();
        self.payload.clear();
    }
}
