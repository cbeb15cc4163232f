//! SpinTrap: cycles from QUIC's spin bit. CRQ §III-A1, RFC 9000 §17.4.
//!
//! Each end of a connection makes the bit flip once per loop, if it takes part; RFC 9000 wants one in sixteen to leave the
//! bit alone, and recommends that it then be random, per packet or per connection. So a bit that flips says little: with
//! [`Cycles::Loop`] a flip counts when it held for 4 packets, which no packet that is late or early by up to 3 places makes
//! it do, and a flow whose bit flips on more than a quarter of its packets has no loops at all.

use super::{Beat, Cycles, Length};

/// A flip holds if the next packets up to the so-manieth agree.
const HOLD: u8 = 4;
/// Flips are counted over so many packets: a power of two.
const BLOCK: u8 = 64;
/// With more flips than this in a block, the bit is noise.
const NOISE: u8 = BLOCK / 4;
/// So many blocks without noise must pass before the bit is believed again.
const PROBATION: u8 = 4;

#[derive(Clone, Debug)]
pub(super) struct SpinTrap {
    /// The bit of the cycle.
    bit: bool,
    /// The bit of the last packet.
    last: bool,
    /// Whether any packet was seen.
    seen: bool,
    /// How many packets in a row had the other bit than the cycle's.
    run: u8,
    /// When the first of those came.
    run_since: u32,
    /// When the cycle's bit began; means something only when `edges` is not 0.
    edge: u32,
    /// How many flips held, up to 2.
    edges: u8,
    /// Packets and flips of the block.
    packets: u8,
    flips: u8,
    /// Blocks to go until the bit is believed.
    probation: u8,
    length: Length,
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
            length: Length::new(),
        }
    }

    /// The length of the loop; 0 if it is not known.
    pub(super) const fn length(&self) -> u32 {
        self.length.0
    }

    pub(super) fn forward(&mut self, cycles: Cycles, now: u32, bit: bool) -> Beat {
        // The authors' program starts from 0, so that a constant 1 ends a cycle.
        if !self.seen && cycles != Cycles::Half {
            (self.bit, self.last) = (bit, bit);
        }
        self.seen = true;
        if cycles == Cycles::Loop {
            self.validate(now, bit);
            return Beat::Within;
        }
        let flipped = self.bit != bit;
        self.bit = bit;
        if flipped { Beat::Ends } else { Beat::Within }
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
        if self.probation > 0 {
            (self.run, self.edges, self.length, self.bit) = (0, 0, Length::new(), bit);
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
                self.length.take(self.run_since.wrapping_sub(self.edge));
            }
            self.edges = (self.edges + 1).min(2);
            (self.bit, self.run, self.edge) = (bit, 0, self.run_since);
        }
    }
}
