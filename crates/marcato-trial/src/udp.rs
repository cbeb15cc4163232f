//! UDP flow: packets of a source of the simulator over sockets of the kernel.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use marcato_lab::LabClock;
use marcato_link::{DelaySummary, Histogram};
use marcato_sim::{FlowSummary, FlowTally, UdpSource, UdpStats};
use marcato_units::{Bytes, Time};

/// Headers of IPv4 and UDP (RFC 791 §3.1, RFC 768).
const HEADERS: u32 = 20 + 8;
/// Bytes at the beginning of a payload that hold the time of its departure.
const STAMP: usize = 8;

/// UDP flow.
pub(crate) struct UdpRun {
    source: UdpSource,
    pub(crate) sender: UdpSocket,
    pub(crate) receiver: UdpSocket,
    to: SocketAddr,
    pub(crate) stats: UdpStats,
    sent: u64,
    /// Packets that the sender's own kernel refused.
    refused: u64,
    delays: Option<Histogram>,
}

impl UdpRun {
    pub(crate) fn new(source: UdpSource, sender: UdpSocket, receiver: UdpSocket, to: SocketAddr) -> Self {
        let stats = UdpStats::default();
        Self { source, sender, receiver, to, stats, sent: 0, refused: 0, delays: None }
    }

    /// Sends the packet that is due at `at`. Returns when the next one is; `None` after the last.
    pub(crate) fn send(&mut self, at: Time, clock: LabClock, buffer: &mut [u8]) -> Option<Time> {
        if at >= self.source.config().stop {
            return None;
        }
        let payload = usize::try_from(self.source.next_len() - HEADERS).unwrap_or(0);
        let payload = &mut buffer[..payload];
        if let Some(stamp) = payload.get_mut(..STAMP) {
            stamp.copy_from_slice(&clock.now().as_nanos().to_be_bytes());
        }
        self.sent += 1;
        // A full socket loses the packet, as a full interface would.
        self.refused += u64::from(self.sender.send_to(payload, self.to).is_err());
        Some(self.source.next_at(at))
    }

    /// Reads the packets that have arrived.
    pub(crate) fn receive(&mut self, clock: LabClock, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let len = match self.receiver.recv(buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let now = clock.now();
            let stamp = buffer[..len].first_chunk().map(|stamp| Time::from_nanos(u64::from_be_bytes(*stamp)));
            // Payloads too short for a time count as delivered at once.
            let delay = stamp.map_or(marcato_units::Duration::ZERO, |sent| now.since(sent));
            self.stats.arrived(now, Bytes::new(len as u64), delay);
            if let Some(delays) = &mut self.delays
                && stamp.is_some()
            {
                delays.record(delay);
            }
        }
    }

    /// Begins to record one-way delays.
    pub(crate) fn watch(&mut self) {
        self.delays.get_or_insert_default();
    }

    /// Counts of the sender's packets; `dropped` are those that links lost.
    pub(crate) fn tally(&self, dropped: u64) -> FlowTally {
        let dropped = dropped + self.refused;
        FlowTally { sent: self.sent, arrived: self.stats.packets, dropped, ..FlowTally::default() }
    }

    pub(crate) fn summary(&self, start: Time, packets: FlowTally) -> FlowSummary {
        FlowSummary {
            start,
            bytes: self.stats.bytes,
            last_at: self.stats.last_at,
            packets,
            delay: self.delays.as_ref().and_then(DelaySummary::of),
            ..FlowSummary::default()
        }
    }
}
