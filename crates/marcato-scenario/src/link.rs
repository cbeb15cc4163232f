//! Link with two directions between two nodes.

use marcato_units::{Bytes, Duration, Rate, Time};

use crate::queue::Queue;

/// Link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name of the link; by default its nodes' names, joined by a hyphen.
    pub name: String,
    /// Names of the nodes at its ends.
    pub between: [String; 2],
    /// Largest IP packet that passes, in either direction.
    pub mtu: Bytes,
    /// Direction from the first node to the second.
    pub there: Direction,
    /// Direction from the second node to the first.
    pub back: Direction,
    /// Changes during the run, in order of time.
    pub changes: Vec<Change>,
}

/// Configuration of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Rate of the transmitter.
    pub rate: Capacity,
    /// Propagation delay.
    pub delay: Duration,
    /// Bytes that the link adds to each IP packet: 2 for PPP, 18 for Ethernet with its check
    /// sequence.
    pub framing: Bytes,
    /// Queue in front of the transmitter.
    pub queue: Queue,
    /// Packet loss on the wire.
    pub loss: Loss,
    /// Variation of the wire's delay; `None` for a constant delay.
    pub jitter: Option<Jitter>,
    /// Probability that a packet is duplicated, 0 to 1.
    pub duplication: f64,
    /// Clears the ECN field of each arriving packet, as some devices do.
    pub bleach_ecn: bool,
}

/// Rate of a transmitter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// No transmission time: the link only delays.
    Unlimited,
    /// Constant rate.
    Rate(Rate),
    /// Transmission times of a trace in mahimahi's format, given by the file's path relative to the
    /// scenario's.
    ///
    /// Each line is a millisecond at which 1500 bytes may leave. After the last line the trace
    /// starts over.
    Trace(String),
}

/// Loss of packets on a wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent random loss of each packet.
    Random {
        /// Probability, 0 to 1.
        probability: f64,
    },
    /// Periodic loss (every Nth packet): for 1000, the 1000th, the 2000th, and so on.
    Every {
        /// Period in packets; at least 1.
        packets: u64,
    },
    /// Loss of the packets with these indexes, counted from 0 and ascending.
    Script {
        /// Indexes of lost packets.
        packets: Vec<u64>,
    },
    /// Loss in bursts: a chain of two states, each with its own probability of loss.
    GilbertElliott(GilbertElliott),
}

/// Parameters of the Gilbert–Elliott model.
///
/// A file gives either these, or the mean loss and the mean length of a burst. The latter form
/// means that everything is lost in the bad state and nothing in the good one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability, per packet, of a transition from the good state to the bad one.
    pub p: f64,
    /// Probability, per packet, of a transition back: the reciprocal of the mean burst length in
    /// packets.
    pub r: f64,
    /// Probability of loss in the good state.
    pub loss_good: f64,
    /// Probability of loss in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Returns the long-run share of packets lost.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.p / (self.p + self.r);
        self.loss_bad * bad + self.loss_good * (1.0 - bad)
    }
}

/// Variation of a wire's delay, in addition to the propagation delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Distribution of the delay added to each packet.
    pub added: Added,
    /// Allows packets to be reordered. If not set, a packet arrives no earlier than the one before
    /// it.
    pub reorder: bool,
}

/// Distribution of an added delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Uniform distribution.
    Uniform {
        /// Lower bound.
        least: Duration,
        /// Upper bound.
        most: Duration,
    },
    /// Normal distribution; negative draws count as 0.
    Normal {
        /// Mean.
        mean: Duration,
        /// Standard deviation.
        deviation: Duration,
    },
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Duration,
    },
}

/// Change of a link at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time of the change.
    pub at: Time,
    /// Direction or directions that change.
    pub way: Way,
    /// New rate; `None` keeps the rate. Zero stops the link without losing packets.
    pub rate: Option<Rate>,
    /// New state, up or down; `None` keeps the state. A link that is down loses every packet.
    pub up: Option<bool>,
    /// New propagation delay; `None` keeps the delay. It applies to packets that begin to leave
    /// from then on, not to those in flight.
    pub delay: Option<Duration>,
    /// Allows packets with a shorter delay to overtake those in flight.
    pub reorder: bool,
    /// New loss; `None` keeps it.
    pub loss: Option<Loss>,
    /// New queue; `None` keeps it. Waiting packets move to the new queue.
    pub queue: Option<Queue>,
}

impl Change {
    /// Creates a change without effect at this time; `reorder` is set.
    pub const fn new(at: Time, way: Way) -> Self {
        Self { at, way, rate: None, up: None, delay: None, reorder: true, loss: None, queue: None }
    }
}

/// Direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Both directions.
    #[default]
    Both,
    /// First node to the second.
    There,
    /// Second node to the first.
    Back,
}
