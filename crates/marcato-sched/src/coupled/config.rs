//! Configuration of coupled mode.

use marcato_units::{Bytes, Duration, PrioritySet, Rate};

/// Packets that may always be in flight.
pub(super) const FLOOR: u64 = 4;

/// Configuration of a [`Governor`](super::Governor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoupledConfig {
    /// Bytes of a full packet.
    pub mss: Bytes,
    /// Levels that are urgent.
    pub urgent: PrioritySet,
    /// Interval at which the engine is asked for samples; zero if there is one for each acknowledgement.
    pub poll: Duration,
    /// Packets that our own data may keep in the queue, at least one. More of them cost delay, and save goodput
    /// where the rate of the path varies.
    pub queued_packets: u64,
}

impl CoupledConfig {
    /// Default of [`queued_packets`](Self::queued_packets).
    pub const QUEUED_PACKETS: u64 = 2;

    /// P0 and P1 are urgent, there is a sample for each acknowledgement, and two packets may stand in the queue.
    pub const fn new(mss: Bytes) -> Self {
        Self { mss, urgent: PrioritySet::URGENT, poll: Duration::ZERO, queued_packets: Self::QUEUED_PACKETS }
    }

    /// Bytes that our own data may keep in the queue.
    pub(super) fn alpha(&self, rate: Rate) -> Bytes {
        self.least(rate) + self.mss * self.queued_packets.max(1) - self.mss * Self::QUEUED_PACKETS
    }

    /// Bytes in the queue at the default of packets: less would cost goodput at a constant rate.
    pub(super) fn least(&self, rate: Rate) -> Bytes {
        if self.poll.is_zero() {
            return self.mss * Self::QUEUED_PACKETS;
        }
        // The queue shrinks until the next sample by what leaves it meanwhile, and the round trips seen
        // are those of packets in the middle of that. At rates at which it is several packets,
        // acknowledgements of two packets are seen together as well. Never less than with a sample for
        // each acknowledgement: at 1 Mbit/s, a packet less costs 7 % of goodput.
        let between = rate.bytes_in(self.poll);
        let polled = self.mss + (between * 5 / 2).min(self.mss * 2) + between / 2;
        polled.max(self.mss * 2)
    }

    /// Bytes that may always be in flight.
    pub(super) fn floor(&self) -> Bytes {
        self.mss * FLOOR
    }
}
