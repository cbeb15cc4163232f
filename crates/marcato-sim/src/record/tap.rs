//! Packets as files: what passes a link, in the pcap format.

use std::io;

use marcato_units::{Bytes, Time};

use super::Headers;
use crate::packet::{Body, Packet};
use crate::payload::Payloads;

/// Where on a link a tap is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TapPoint {
    /// Before the queue: each packet that is handed to the link, those included that the queue then drops, at the time
    /// at which it comes. On the first link of a flow, this is what its sender sees.
    Entry,
    /// At the far end: each packet that comes out, at the time at which it does, with the mark that the queue gave it.
    #[default]
    Exit,
}

/// A tap on a link, as it shall be. [`Network::tap`](crate::Network::tap) sets it, and
/// [`Network::drain_tap`](crate::Network::drain_tap) takes what it has captured.
///
/// The file is pcap with nanoseconds, LINKTYPE_RAW: IP packets without a link's header. Its clock is virtual time, and
/// begins at 0. Headers are real, with right lengths and checksums, and so is the payload of datagrams between hosts;
/// of TCP and plain UDP the payload is zeros. What virtual time does without is made up: TCP and UDP flows have the
/// addresses that a datagram flow between the same nodes would have, a client's port from 32768 and a server's from
/// 29000, which belong to the flow; IP identifications are 0; the TTL begins at 64. A spawned flow that comes after
/// another may have its ports. Packets of the low layer have the DSCP LE.
///
/// ```
/// use marcato_sim::{Bulk, LinkConfig, Network, Tap, TcpConfig, TcpFlow};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// let (there, _) = net.link(client, server, link(), link());
/// net.tap(there, Tap::default());
/// net.tcp(TcpFlow::new(client, server, TcpConfig::default(), Bulk::new(Bytes::kb(100))))?;
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
    /// Where it is.
    pub point: TapPoint,
    /// How much of each packet is kept, headers included. Its true length is told beside.
    pub snaplen: u32,
    /// How much may wait to be taken. Packets beyond are missed, and counted.
    pub most_waiting: Bytes,
}

impl Default for Tap {
    /// At the far end, 128 bytes of each packet, at most 256 MB waiting.
    fn default() -> Self {
        Self { point: TapPoint::default(), snaplen: 128, most_waiting: Bytes::kb(256_000) }
    }
}

impl Tap {
    /// At this place.
    #[must_use]
    pub fn point(self, point: TapPoint) -> Self {
        Self { point, ..self }
    }

    /// With so much of each packet.
    #[must_use]
    pub fn snaplen(self, snaplen: u32) -> Self {
        Self { snaplen, ..self }
    }
}

/// What a tap has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapStats {
    /// Packets captured.
    pub captured: u64,
    /// Packets that found no room: [drain](crate::Network::drain_tap) the tap more often, or let more wait.
    pub missed: u64,
}

/// Why a tap's captures cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The link has no tap.
    #[error("the link has no tap: set one by Network::tap")]
    NoTap,
    /// They could not be written.
    #[error("the captured packets could not be written: {0}")]
    Write(#[from] io::Error),
}

/// A tap under way.
struct Tapped {
    link: u32,
    config: Tap,
    /// The part of the file that waits to be taken.
    file: Vec<u8>,
    stats: TapStats,
}

/// A packet that has passed a tap and has no headers yet.
struct Captured {
    tap: usize,
    at: Time,
    packet: Packet,
    /// Where its payload ends in [`Taps::payload`]; it begins where that of the packet before ends.
    payload_end: usize,
}

/// All taps of a network.
#[derive(Default)]
pub(crate) struct Taps {
    taps: Vec<Tapped>,
    captured: Vec<Captured>,
    payload: Vec<u8>,
}

/// The header of the file: nanoseconds, version 2.4, no time zone, LINKTYPE_RAW.
fn file_header(snaplen: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(24);
    header.extend(0xa1b2_3c4d_u32.to_le_bytes());
    header.extend(2u16.to_le_bytes());
    header.extend(4u16.to_le_bytes());
    header.extend([0; 8]);
    header.extend(snaplen.to_le_bytes());
    header.extend(101u32.to_le_bytes());
    header
}

impl Taps {
    pub(crate) fn add(&mut self, link: u32, config: Tap) {
        let tap = Tapped { link, config, file: file_header(config.snaplen), stats: TapStats::default() };
        match self.taps.iter_mut().find(|tap| tap.link == link) {
            Some(before) => *before = tap,
            None => self.taps.push(tap),
        }
    }

    pub(crate) fn stats(&self, link: u32) -> Option<TapStats> {
        self.taps.iter().find(|tap| tap.link == link).map(|tap| tap.stats)
    }

    pub(crate) fn drain(&mut self, link: u32, out: &mut impl io::Write) -> Result<Bytes, TapError> {
        let tap = self.taps.iter_mut().find(|tap| tap.link == link).ok_or(TapError::NoTap)?;
        out.write_all(&tap.file)?;
        let written = Bytes::new(tap.file.len() as u64);
        tap.file.clear();
        Ok(written)
    }

    /// A packet passes a place where one of the taps may be.
    #[cold]
    pub(crate) fn note(
        &mut self,
        at: Time,
        link: u32,
        point: TapPoint,
        packet: &Packet,
        payloads: &Payloads,
    ) {
        let here = |tap: &Tapped| tap.link == link && tap.config.point == point;
        let Some(tap) = self.taps.iter().position(here) else { return };
        if let Body::Datagram(datagram) = &packet.body {
            self.payload.extend_from_slice(payloads.peek(&datagram.payload));
        }
        self.captured.push(Captured { tap, at, packet: packet.clone(), payload_end: self.payload.len() });
    }

    /// Writes what has been captured into the files, with the headers that `headers` gives.
    pub(crate) fn write(&mut self, headers: impl for<'a> Fn(&'a Packet) -> Option<Headers<'a>>) {
        let mut begin = 0;
        for captured in &self.captured {
            let payload = &self.payload[begin..captured.payload_end];
            begin = captured.payload_end;
            if let Some(headers) = headers(&captured.packet) {
                self.taps[captured.tap].write(captured.at, &headers, payload);
            }
        }
        self.captured.clear();
        self.payload.clear();
    }
}

impl Tapped {
    fn write(&mut self, at: Time, headers: &Headers<'_>, payload: &[u8]) {
        let kept = headers.len.min(self.config.snaplen) as usize;
        if (self.file.len() + 16 + kept) as u64 > self.config.most_waiting.get() {
            self.stats.missed += 1;
            return;
        }
        self.stats.captured += 1;
        // The format's seconds are of 32 bits: 136 years of virtual time.
        let seconds = u32::try_from(at.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX);
        let nanos = u32::try_from(at.as_nanos() % 1_000_000_000).unwrap_or(0);
        for field in [seconds, nanos, headers.len.min(self.config.snaplen), headers.len] {
            self.file.extend(field.to_le_bytes());
        }
        let end = self.file.len() + kept;
        let written = headers.write(payload);
        for part in [written.as_slice(), payload] {
            let room = end - self.file.len();
            self.file.extend_from_slice(&part[..part.len().min(room)]);
        }
        self.file.resize(end, 0);
    }
}
