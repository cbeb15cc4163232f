//! SpinTrap: round trips from QUIC's spin bit. CRQ §III-A1, RFC 9000 §17.4.
//!
//! Each end of a connection makes the bit flip once per round trip, if it takes part. RFC 9000
//! §17.4 wants one path or connection ID in 16 to leave the bit alone, and recommends that it then
//! be random, per packet or per connection ID. A bare flip therefore says little. With
//! [`Cycles::RoundTrip`]:
//!
//! - a flip counts when it held for 4 packets, so that packets that are late or early by up to 3
//!   places make none;
//! - a flow whose bit flips on more than a quarter of its packets has no round trips at all.

use super::rtt::SmoothedRtt;
use super::{Boundary, Cycles};

/// Packets in a row that must agree for a flip to hold, the first one included.
const HOLD: u8 = 4;
/// Packets over which flips are counted: a power of two.
const BLOCK: u8 = 64;
/// Flips in a block above which the bit is noise.
const NOISE: u8 = BLOCK / 4;
/// Blocks without noise that must pass before the bit counts again.
const PROBATION: u8 = 4;

#[derive(Clone, Debug)]
pub(super) struct SpinTrap {
    /// Bit of the cycle.
    bit: bool,
    /// Bit of the last packet.
    last: bool,
    /// Set once a packet was seen.
    seen: bool,
    /// Number of packets in a row with the other bit than the cycle's.
    run: u8,
    /// Arrival of the first of those.
    run_since: u32,
    /// Time at which the cycle's bit began; meaningless while `edges` is 0.
    edge: u32,
    /// Number of flips that held, counted up to 2.
    edges: u8,
    /// Packets of the block.
    packets: u8,
    /// Flips in the block.
    flips: u8,
    /// Blocks to go until the bit counts.
    probation: u8,
    rtt: SmoothedRtt,
}

impl SpinTrap {
    pub(super) const fn new() -> Self {
        Self {
            bit: false,
            last: false,
            seen: false,
            run: 0,
            run_since: 0,
            edge: 0,
            edges: 0,
            packets: 0,
            flips: 0,
            probation: 0,
            rtt: SmoothedRtt::new(),
        }
    }

    pub(super) fn inspect(&self, put: &mut dyn FnMut(&'static str, u32)) {
        put("spin run_since", self.run_since);
        put("spin edge", self.edge);
        put("spin rtt", self.rtt.ticks());
        put("spin bit", self.bit.into());
        put("spin last", self.last.into());
        put("spin seen", self.seen.into());
        put("spin run", self.run.into());
        put("spin edges", self.edges.into());
        put("spin packets", self.packets.into());
        put("spin flips", self.flips.into());
        put("spin probation", self.probation.into());
    }

    pub(super) const fn rtt(&self) -> SmoothedRtt {
        self.rtt
    }

    pub(super) fn forward(&mut self, cycles: Cycles, now: u32, bit: bool) -> Boundary {
        // The authors' program starts from 0, so that a constant 1 ends a cycle.
        if !self.seen && cycles != Cycles::Half {
            (self.bit, self.last) = (bit, bit);
        }
        self.seen = true;
        if cycles == Cycles::RoundTrip {
            self.validate(now, bit);
            return Boundary::Within;
        }
        // CRQ §III-C: every flip ends a cycle.
        let flipped = self.bit != bit;
        self.bit = bit;
        if flipped { Boundary::Ends } else { Boundary::Within }
    }

    /// Looks for a flip that holds.
    fn validate(&mut self, now: u32, bit: bool) {
        self.flips += u8::from(bit != self.last);
        self.last = bit;
        self.packets += 1;
        if self.packets == BLOCK {
            self.probation = if self.flips > NOISE { PROBATION } else { self.probation.saturating_sub(1) };
            (self.packets, self.flips) = (0, 0);
        }
        // RFC 9000 §17.4 recommends random bits where spinning is disabled: they measure nothing.
        if self.probation > 0 {
            (self.run, self.edges, self.rtt, self.bit) = (0, 0, SmoothedRtt::new(), bit);
            return;
        }
        if bit == self.bit {
            self.run = 0;
            return;
        }
        if self.run == 0 {
            self.run_since = now;
        }
        self.run += 1;
        if self.run == HOLD {
            // The first flip may be of a cycle that began before the flow was seen.
            if self.edges == 2 {
                self.rtt.sample(self.run_since.wrapping_sub(self.edge));
            }
            self.edges = (self.edges + 1).min(2);
            (self.bit, self.run, self.edge) = (bit, 0, self.run_since);
        }
    }
}
