//! Queue in front of a transmitter.

use marcato_units::{Bytes, Duration};

use crate::plugin::Plugin;
use crate::traffic::Preset;

/// Queue discipline with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Queue {
    /// FIFO queue that drops arriving packets when it is full.
    DropTail {
        /// Capacity.
        limit: Limit,
    },
    /// CoDel (RFC 8289).
    Codel(Codel),
    /// FQ-CoDel (RFC 8290): one CoDel queue for each of many groups of flows, served in turn.
    FqCodel {
        /// CoDel parameters of each queue. The limit applies to all queues together.
        codel: Codel,
        /// Number of queues into which flows are hashed, rounded up to a power of two.
        flows: u32,
        /// Bytes that a queue may send per turn.
        quantum: Bytes,
    },
    /// CRQ: one queue for flows that respond to congestion signals, and one for all others.
    Crq(Crq),
    /// FIFO queue that marks packets above a threshold (DCTCP).
    StepMark {
        /// Capacity of the buffer.
        limit: Limit,
        /// Threshold above which packets are marked.
        threshold: Threshold,
    },
    /// RED (Floyd and Jacobson 1993).
    Red(Red),
    /// PIE (RFC 8033).
    Pie(Pie),
    /// Strict priority of two layers, each with its own queue. A low packet leaves only if no high
    /// one can.
    Strict {
        /// Queue of the high layer. It must have a single class, and not be CRQ.
        high: Box<Self>,
        /// Queue of the low layer. It must have a single class, and not be CRQ.
        low: Box<Self>,
        /// Lets an arriving high packet interrupt the transmission of a low one, which resumes
        /// afterwards.
        ///
        /// The high layer's timing is then the same to the nanosecond as without low traffic. If
        /// not set, the low packet is finished first.
        preempt: bool,
    },
    /// Two layers in one buffer. A high packet that finds it full displaces the last packets of the
    /// low layer.
    PushOut {
        /// Capacity for both layers together.
        limit: Limit,
    },
    /// Discipline of another crate.
    Plugin(Plugin),
}

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Acceptable sojourn time of a standing queue.
    pub target: Duration,
    /// Time for which the sojourn time must stay at or above the target before the first drop.
    pub interval: Duration,
    /// Capacity.
    pub limit: Limit,
    /// MTU of the link, with its header. A queue with no more bytes than this is exempt from drops.
    pub maxpacket: Bytes,
    /// Marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

/// Threshold of step marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Waiting packets or bytes.
    Waiting(Limit),
    /// Sojourn time.
    Sojourn(Duration),
}

/// Configuration of RED. Names in brackets are those of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// Capacity of the buffer.
    pub limit: Limit,
    /// Average queue up to which nothing is signalled (`min_th`), in the unit of `max_threshold`.
    pub min_threshold: Limit,
    /// Average queue at which the probability reaches its maximum (`max_th`).
    pub max_threshold: Limit,
    /// Probability of a signal at `max_threshold` (`max_p`), in millionths.
    pub max_probability: u32,
    /// Weight of the current queue in the average (`w_q`), in millionths.
    pub weight: u32,
    /// Transmission time of a small packet (`s`), which sets the decay of the average while the
    /// link is idle.
    pub idle: Duration,
    /// Raises the probability gradually to 1 between `max_threshold` and twice that value, instead
    /// of at once.
    pub gentle: bool,
    /// Marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

/// Configuration of PIE. Names in brackets are those of RFC 8033.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// Capacity of the buffer.
    pub limit: Limit,
    /// Target latency (`QDELAY_REF`).
    pub target: Duration,
    /// Update period of the controller (`T_UPDATE`).
    pub update: Duration,
    /// Length of a burst that passes unsignalled after idle time (`MAX_BURST`).
    pub burst: Duration,
    /// Weight of the latency's distance from the target (`alpha`), in thousandths per second.
    pub alpha: u32,
    /// Weight of the latency's change (`beta`), in thousandths per second.
    pub beta: u32,
    /// Marks ECN-capable packets instead of dropping them, below a drop probability of 10 %.
    pub ecn: bool,
}

/// Parameters of congestion-responsive queuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crq {
    /// CoDel parameters of each of the two queues, each with its own limit. Where they mark, flows
    /// are judged by their response to marks.
    pub codel: Codel,
    /// Discipline of the queue for unresponsive flows.
    pub standard: Standard,
    /// Rules by which flows are judged.
    pub preset: Preset,
    /// Division of the link between the two queues.
    pub sharing: Sharing,
    /// Smallest share of the link for unresponsive flows under strict sharing, in thousandths.
    pub standard_least: u16,
    /// Largest number of flows judged at a time, rounded up to a power of two.
    pub flows: u32,
}

/// Discipline of CRQ's queue for unresponsive flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// CoDel, with the parameters of the responsive queue.
    Codel,
    /// Drop-tail: drops arriving packets when the queue is full.
    DropTail,
}

/// Division of the link between CRQ's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Half of the link each while both have packets; otherwise all of it.
    Weighted,
    /// Half of the link each, and never more.
    Split,
    /// Priority for responsive flows.
    Strict,
}

impl Sharing {
    /// Returns the name used in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Split => "split",
            Self::Strict => "strict",
        }
    }
}

/// Capacity of a queue. A file may also give a span, which becomes the bytes that the link carries
/// in that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Number of packets of any size.
    Packets(u64),
    /// Number of bytes in any number of packets.
    Bytes(Bytes),
}

impl Default for Limit {
    /// Returns 1000 packets.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

impl Default for Queue {
    /// Returns drop-tail with 1000 packets.
    fn default() -> Self {
        Self::DropTail { limit: Limit::default() }
    }
}

impl Queue {
    /// Returns the discipline's name in a file.
    pub fn kind(&self) -> &str {
        match self {
            Self::DropTail { .. } => "droptail",
            Self::Codel(_) => "codel",
            Self::FqCodel { .. } => "fq-codel",
            Self::Crq(_) => "crq",
            Self::StepMark { .. } => "step-mark",
            Self::Red(_) => "red",
            Self::Pie(_) => "pie",
            Self::Strict { .. } => "strict",
            Self::PushOut { .. } => "push-out",
            Self::Plugin(plugin) => &plugin.name,
        }
    }

    /// Returns whether the queue marks ECN-capable packets; for strict priority, in either class. A
    /// plug-in may.
    pub fn marks(&self) -> bool {
        match self {
            Self::DropTail { .. } | Self::PushOut { .. } => false,
            Self::Codel(codel) | Self::FqCodel { codel, .. } => codel.ecn,
            Self::Crq(crq) => crq.codel.ecn,
            Self::StepMark { .. } | Self::Plugin(_) => true,
            Self::Red(red) => red.ecn,
            Self::Pie(pie) => pie.ecn,
            Self::Strict { high, low, .. } => high.marks() || low.marks(),
        }
    }

    /// Returns the capacity of each buffer; several for CRQ and strict priority, none for a
    /// plug-in, whose capacity is unknown.
    pub fn limits(&self) -> Vec<Limit> {
        match self {
            Self::DropTail { limit } | Self::StepMark { limit, .. } | Self::PushOut { limit } => vec![*limit],
            Self::Red(red) => vec![red.limit],
            Self::Pie(pie) => vec![pie.limit],
            Self::Codel(codel) | Self::FqCodel { codel, .. } => vec![codel.limit],
            Self::Crq(crq) => vec![crq.codel.limit; 2],
            Self::Plugin(_) => Vec::new(),
            Self::Strict { high, low, .. } => [high.limits(), low.limits()].concat(),
        }
    }
}
