//! Priority-Layered Transport: a TCP connection that also sends at low priority what it cannot send otherwise (PLT §3).
//!
//! One stream of bytes, two ways to go. The high control module (HCM) is the connection's TCP, whatever its congestion
//! control; its sequence space numbers what it sends, not the stream. The low control module (LCM) numbers its packets
//! in a space of its own and never sends a number twice. The packet manager binds either to a piece of the
//! stream at the moment it is sent: the HCM takes what the LCM has lost first and then new data, the LCM takes new data. The
//! other end puts the stream together from both (`reassembly`) and acknowledges each in its own space, what came low
//! by low packets.
//!
//! What the LCM has lost waits for the HCM in the send buffer, which counts everything written that the HCM has yet to
//! send or hear of: one that is too small for the repairs keeps new data out and so starves the low layer.
//!
//! What a real implementation would say on the wire is not sent here where it costs nothing in the end: which piece of
//! the stream an HCM segment carries is looked up at its sender (MPTCP says it in an option), low packets have headers as
//! long as TCP's, and both ends are configured for PLT instead of agreeing on it.

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

use crate::tcp::TcpConfig;

/// A number of 64 bits that lies where one of 32 does: packets stay as small as without PLT.
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

/// A low packet with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowData {
    pub(crate) number: Wide,
    /// Where in the stream its payload stands, and how long it is.
    pub(crate) offset: Wide,
    pub(crate) len: u32,
}

/// What the low control modules say to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LowPacket {
    Data(LowData),
    Ack(LowAck),
}

/// What both layers of one end have done, and what has come to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PltStats {
    /// Low packets with data sent.
    pub low_sent: u64,
    /// Of those: acknowledged.
    pub low_acked: u64,
    /// Of those: taken for lost.
    pub low_lost: u64,
    /// Acknowledged after they had been taken for lost, as far as that is noticed.
    pub low_spurious: u64,
    /// Low packets that carried what the LCM had lost before.
    pub low_resent: u64,
    /// Timeouts of the LCM.
    pub low_timeouts: u64,
    /// Low packets not yet acknowledged or taken for lost.
    pub low_outstanding: u64,
    /// The LCM's window.
    pub low_window: Bytes,
    /// What of it is in flight.
    pub low_in_flight: Bytes,
    /// The LCM's smoothed round trip.
    pub low_srtt: Option<Duration>,
    /// The LCM's mean loss rate P.
    pub loss_rate: Fraction,
    /// The loss rate that it aims at.
    pub target: Fraction,
    /// What the LCM counts.
    pub lcm: LcmCounters,
    /// Segments that the HCM sent because the LCM had lost what is in them.
    pub repairs: u64,
    /// The same in bytes of the stream.
    pub repaired: Bytes,
    /// Bytes of the stream that the LCM has lost and nobody has sent again yet.
    pub repairs_waiting: Bytes,
    /// Bytes of the stream that have arrived here, each counted once, in whatever order.
    pub received: Bytes,
    /// Bytes that arrived here more than once, by the two layers together.
    pub duplicates: Bytes,
    /// Of what has arrived: first by a low packet.
    pub received_low: Bytes,
    /// The most that has waited here for something before it, in ranges.
    pub most_ranges: u64,
}

/// The part of an end that PLT adds to its TCP.
#[derive(Debug)]
pub(crate) struct Plt {
    pub(crate) manager: Manager,
    pub(crate) module: LowModule,
    pub(crate) receiver: LowReceiver,
    pub(crate) reassembly: Reassembly,
    /// Where in the stream the HCM segment that is being taken in stands.
    pub(crate) incoming: Option<u64>,
}

impl Plt {
    pub(crate) fn new(config: PltConfig, tcp: &TcpConfig) -> Result<Self, PltConfigError> {
        config.check(tcp)?;
        Ok(Self {
            manager: Manager::new(u64::from(tcp.mss), config.reassembly, config.high_for),
            module: LowModule::new(&config, tcp)?,
            receiver: LowReceiver::new(&config),
            reassembly: Reassembly::default(),
            incoming: None,
        })
    }

    /// When something is due whatever arrives.
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
