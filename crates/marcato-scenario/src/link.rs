//! A link: two directions between two nodes.

use marcato_units::{Bytes, Duration, Rate, Time};

use crate::queue::Queue;

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What it is called; unless the file says otherwise, its nodes' names with a hyphen between them.
    pub name: String,
    /// The nodes at its ends, by name.
    pub between: [String; 2],
    /// The largest IP packet that passes, in either direction.
    pub mtu: Bytes,
    /// From the first node to the second.
    pub there: Direction,
    /// From the second node to the first.
    pub back: Direction,
    /// What changes during the run, in order of time.
    pub changes: Vec<Change>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// How fast packets leave.
    pub rate: Capacity,
    /// Propagation delay.
    pub delay: Duration,
    /// Bytes that the link adds to each IP packet: 2 for PPP, 18 for Ethernet with its check sequence.
    pub framing: Bytes,
    /// What waits before the transmitter.
    pub queue: Queue,
    /// What the wire loses.
    pub loss: Loss,
    /// By how much the wire's delay varies; `None`: not at all.
    pub jitter: Option<Jitter>,
    /// Probability that a packet comes out twice, 0 to 1.
    pub duplication: f64,
    /// Whether the ECN field of each packet that comes is cleared, as some devices do.
    pub bleach_ecn: bool,
}

/// How fast packets leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// At once: the link only delays.
    Unlimited,
    /// At this rate.
    Rate(Rate),
    /// At the times that a trace in mahimahi's format gives: each line is a millisecond at which 1500 bytes may leave,
    /// and after the last one the trace begins again. The file's path, relative to the scenario's.
    Trace(String),
}

/// What a wire loses of the packets put on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// Nothing.
    #[default]
    None,
    /// Each packet on its own with this probability.
    Random {
        /// The probability, 0 to 1.
        probability: f64,
    },
    /// Exactly every so-manieth packet: of 1000, the 1000th, the 2000th, and so on.
    Every {
        /// Every so-manieth; at least 1.
        packets: u64,
    },
    /// The packets with these ordinals, counted from 0 and ascending.
    Script {
        /// The ordinals.
        packets: Vec<u64>,
    },
    /// In bursts: a chain of two states, each with its own probability of loss.
    GilbertElliott(GilbertElliott),
}

/// The parameters of Gilbert's and Elliott's model. A file gives them, or the mean loss and the mean length of a burst;
/// then everything is lost in the bad state and nothing in the good one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// The probability, per packet, of going from the good state to the bad one.
    pub p: f64,
    /// The probability, per packet, of going back: 1 by the mean length of a burst, in packets.
    pub r: f64,
    /// The probability of loss in the good state.
    pub loss_good: f64,
    /// The probability of loss in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// The share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.p / (self.p + self.r);
        self.loss_bad * bad + self.loss_good * (1.0 - bad)
    }
}

/// By how much a wire's delay varies, beyond the propagation delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// What is added to the delay of each packet.
    pub added: Added,
    /// Whether a packet may overtake another. If not, it arrives no earlier than the one before it.
    pub reorder: bool,
}

/// What is added to a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Between the two, uniformly.
    Uniform {
        /// The least.
        least: Duration,
        /// The most.
        most: Duration,
    },
    /// Normally distributed; what would be below 0 is 0.
    Normal {
        /// The mean.
        mean: Duration,
        /// The standard deviation.
        deviation: Duration,
    },
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: Duration,
    },
}

/// What changes on a link at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// In which direction.
    pub way: Way,
    /// The rate from then on, if it changes. Zero stops the link and loses nothing.
    pub rate: Option<Rate>,
    /// Whether the link is up from then on, if that changes. While it is down it loses everything.
    pub up: Option<bool>,
    /// The propagation delay of packets that begin to leave from then on, if it changes. Packets under way keep theirs.
    pub delay: Option<Duration>,
    /// Whether packets with a shorter delay may overtake those under way.
    pub reorder: bool,
    /// What the wire loses from then on, if that changes.
    pub loss: Option<Loss>,
    /// The queue from then on, if it changes. Waiting packets move over.
    pub queue: Option<Queue>,
}

impl Change {
    /// A change at this instant that changes nothing yet. A shorter delay lets packets overtake others.
    pub const fn new(at: Time, way: Way) -> Self {
        Self { at, way, rate: None, up: None, delay: None, reorder: true, loss: None, queue: None }
    }
}

/// In which direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// In both.
    #[default]
    Both,
    /// From the first of its nodes to the second.
    There,
    /// From the second to the first.
    Back,
}
