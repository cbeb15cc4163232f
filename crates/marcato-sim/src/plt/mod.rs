//! Priority-Layered Transport: a TCP connection that also sends at low priority what it cannot send
//! otherwise (PLT §3).
//!
//! One stream of bytes has two ways to the receiver. The high control module (HCM) is the
//! connection's TCP, under any congestion control; its sequence space numbers what it sends, not
//! the stream. The low control module (LCM) numbers its packets in a space of its own and never
//! reuses a number.
//!
//! The packet manager binds either number to a piece of the stream when it is sent. The HCM takes
//! the LCM's losses first and then new data; the LCM takes new data. The receiver reassembles the
//! stream from both (`reassembly`), and acknowledges each in its own space; low packets are
//! acknowledged by low packets.
//!
//! The LCM's losses wait for the HCM in the send buffer, which counts all written data that the HCM
//! has yet to send or see acknowledged. A buffer too small for the repairs blocks new data, and so
//! starves the low layer.
//!
//! Some signalling of a real implementation is omitted here where it costs nothing. The piece of
//! the stream in an HCM segment is looked up at its sender (MPTCP carries it in an option). Low
//! packets have headers as long as TCP's. Both ends are configured for PLT instead of negotiating
//! it.

mod ack;
mod config;
mod manager;
mod module;
mod reassembly;

use marcato_sched::lowprio::{EpochReport, Fraction, LcmCounters};
use marcato_units::{Bytes, Duration, Time};

pub(crate) use ack::{LowAck, LowReceiver};
pub use config::{PltConfig, PltConfigError};
pub(crate) use manager::Manager;
pub(crate) use module::{LowModule, Shift};
pub(crate) use reassembly::Reassembly;

use crate::tcp::Tcp;

/// Number of 64 bits with the alignment of 32 bits, which keeps packets as small as without PLT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wide([u32; 2]);

impl Wide {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are kept")]
    pub(crate) const fn new(number: u64) -> Self {
        Self([(number >> 32) as u32, number as u32])
    }

    pub(crate) const fn get(self) -> u64 {
        (self.0[0] as u64) << 32 | self.0[1] as u64
    }
}

/// Low packet with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowData {
    pub(crate) number: Wide,
    /// Stream offset of its payload; `len` is the payload's length.
    pub(crate) offset: Wide,
    pub(crate) len: u32,
}

/// Packet between low control modules.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LowPacket {
    Data(LowData),
    Ack(LowAck),
}

/// Counters of both layers of one end, and of the data received there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PltStats {
    /// Low packets with data sent.
    pub low_sent: u64,
    /// Low packets acknowledged.
    pub low_acked: u64,
    /// Low packets marked lost.
    pub low_lost: u64,
    /// Low packets acknowledged after they had been marked lost, as far as that is noticed.
    pub low_spurious: u64,
    /// Low packets that carried data lost by the LCM before.
    pub low_resent: u64,
    /// Timeouts of the LCM.
    pub low_timeouts: u64,
    /// Low packets neither acknowledged nor marked lost.
    pub low_outstanding: u64,
    /// Window of the LCM.
    pub low_window: Bytes,
    /// Bytes of that window in flight.
    pub low_in_flight: Bytes,
    /// Smoothed round-trip time of the LCM.
    pub low_srtt: Option<Duration>,
    /// Mean loss rate P of the LCM.
    pub loss_rate: Fraction,
    /// Target loss rate of the LCM.
    pub target: Fraction,
    /// Counters of the LCM.
    pub lcm: LcmCounters,
    /// Segments with the LCM's losses that the HCM sent.
    pub repairs: u64,
    /// Bytes of the stream in these segments.
    pub repaired: Bytes,
    /// Bytes of the stream that the LCM has lost and that have not been retransmitted.
    pub repairs_waiting: Bytes,
    /// Bytes of the stream that have arrived here, each counted once, in any order.
    pub received: Bytes,
    /// Bytes that arrived here more than once, by the two layers together.
    pub duplicates: Bytes,
    /// Bytes of the stream that arrived first by a low packet.
    pub received_low: Bytes,
    /// Greatest number of ranges that have waited here for earlier data.
    pub most_ranges: u64,
}

/// State of PLT at an end of TCP.
#[derive(Debug)]
pub(crate) struct Plt {
    pub(crate) manager: Manager,
    pub(crate) module: LowModule,
    pub(crate) receiver: LowReceiver,
    pub(crate) reassembly: Reassembly,
    /// Stream offset of the HCM segment being received.
    pub(crate) incoming: Option<u64>,
}

impl Plt {
    pub(crate) fn new(config: PltConfig, tcp: &Tcp) -> Result<Self, PltConfigError> {
        config.check(tcp)?;
        Ok(Self {
            manager: Manager::new(u64::from(tcp.mss), config.reassembly, config.high_for),
            module: LowModule::new(&config, tcp)?,
            receiver: LowReceiver::new(&config),
            reassembly: Reassembly::default(),
            incoming: None,
        })
    }

    /// Returns the time of the next timer.
    pub(crate) fn timer_at(&self) -> Option<Time> {
        [self.module.timer_at(), self.receiver.ack_at].into_iter().flatten().min()
    }

    pub(crate) fn epochs(&self) -> &[EpochReport] {
        self.module.epochs()
    }

    pub(crate) fn stats(&self) -> PltStats {
        let mut stats = self.module.stats();
        stats.repairs = self.manager.repairs;
        stats.repaired = Bytes::new(self.manager.repaired);
        stats.repairs_waiting = Bytes::new(self.manager.waiting());
        stats.received = Bytes::new(self.reassembly.received);
        stats.duplicates = Bytes::new(self.reassembly.duplicates);
        stats.received_low = Bytes::new(self.reassembly.received_low);
        stats.most_ranges = self.reassembly.most_ranges;
        stats
    }
}
