//! What waits before a transmitter.

use marcato_units::{Bytes, Duration};

use crate::traffic::Preset;

/// A queue discipline and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queue {
    /// First in, first out; what finds the buffer full is dropped.
    DropTail {
        /// How much may wait.
        limit: Limit,
    },
    /// CoDel (RFC 8289).
    Codel(Codel),
    /// A queue with a CoDel of its own for each of many groups of flows, served in turn (RFC 8290).
    FqCodel {
        /// What each queue does. Its limit is that of all of them together.
        codel: Codel,
        /// Into how many queues flows are sorted, rounded up to a power of two.
        flows: u32,
        /// How many bytes a queue may send in its turn.
        quantum: Bytes,
    },
    /// A queue for flows that answer congestion signals, and one for all others (CRQ).
    Crq(Crq),
    /// First in, first out; packets above a threshold are marked (DCTCP).
    StepMark {
        /// Room of the buffer.
        limit: Limit,
        /// Threshold above which packets are marked.
        threshold: Threshold,
    },
    /// RED (Floyd and Jacobson 1993).
    Red(Red),
    /// PIE (RFC 8033).
    Pie(Pie),
    /// Two classes with a queue of their own each; a packet of the low layer leaves only when none of the high one can.
    Strict {
        /// The queue of the high layer: one of a single class, and not CRQ.
        high: Box<Self>,
        /// The queue of the low layer: one of a single class, and not CRQ.
        low: Box<Self>,
        /// A packet of the low layer that is being sent when one of the high layer comes stops, and goes on after it.
        /// The high layer is then the same to the nanosecond as if there were no low one. Otherwise it is finished.
        preempt: bool,
    },
    /// Two classes in one buffer: a packet of the high layer that finds it full displaces the last ones of the low layer.
    PushOut {
        /// Room for both classes together.
        limit: Limit,
    },
}

/// How CoDel is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// The sojourn time that is acceptable as a standing queue.
    pub target: Duration,
    /// How long the sojourn time must stay at or above the target before the first drop.
    pub interval: Duration,
    /// How much may wait.
    pub limit: Limit,
    /// The link's MTU with its header: a queue with no more than this left is never dropped from.
    pub maxpacket: Bytes,
    /// Mark packets that are capable of ECN instead of dropping them.
    pub ecn: bool,
}

/// Threshold of step marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Packets or bytes that wait.
    Waiting(Limit),
    /// Sojourn time.
    Sojourn(Duration),
}

/// Configuration of RED. The names in the paper are in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// Room of the buffer.
    pub limit: Limit,
    /// Average queue up to which nothing is signalled (`min_th`), in the unit of `max_threshold`.
    pub min_threshold: Limit,
    /// Average queue at which the probability reaches its maximum (`max_th`).
    pub max_threshold: Limit,
    /// Probability of a signal at `max_threshold` (`max_p`), in millionths.
    pub max_probability: u32,
    /// Weight of the present queue in the average (`w_q`), in millionths.
    pub weight: u32,
    /// Transmission time of a small packet, by which the average falls while the link is idle (`s`).
    pub idle: Duration,
    /// The probability rises to 1 between `max_threshold` and twice that, instead of jumping there.
    pub gentle: bool,
    /// Mark packets that are capable of ECN instead of dropping them.
    pub ecn: bool,
}

/// Configuration of PIE. The names in RFC 8033 are in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// Room of the buffer.
    pub limit: Limit,
    /// Latency to steer for (`QDELAY_REF`).
    pub target: Duration,
    /// Period of the controller (`T_UPDATE`).
    pub update: Duration,
    /// Duration of a burst that passes after an idle time (`MAX_BURST`).
    pub burst: Duration,
    /// Weight of the latency's distance from the target (`alpha`), in thousandths per second.
    pub alpha: u32,
    /// Weight of the latency's change (`beta`), in thousandths per second.
    pub beta: u32,
    /// Mark packets that are capable of ECN instead of dropping them, below a drop probability of 10 %.
    pub ecn: bool,
}

/// How congestion-responsive queuing is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crq {
    /// What each of the two queues does, with a limit of its own. Where they mark, it is the answer to marks that counts.
    pub codel: Codel,
    /// What the queue of flows without an answer does.
    pub standard: Standard,
    /// By which rules flows are judged.
    pub preset: Preset,
    /// How the two queues share the link.
    pub sharing: Sharing,
    /// With strict sharing, the least share of the link for the queue of flows without an answer, in thousandths.
    pub standard_least: u16,
    /// How many flows are judged at most, rounded up to a power of two.
    pub flows: u32,
}

/// What CRQ's queue of flows without an answer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// The same as the other one.
    Codel,
    /// It drops what finds it full, and nothing else.
    DropTail,
}

/// How CRQ's two queues share the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each has half while both have packets; otherwise one has all.
    Weighted,
    /// Each has half and never more.
    Split,
    /// Flows that answer come first.
    Strict,
}

impl Sharing {
    /// Its name, as a file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Split => "split",
            Self::Strict => "strict",
        }
    }
}

/// How much may wait. A file may also give a span: it stands for what the link carries in it, and so becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many packets of any size.
    Packets(u64),
    /// So many bytes in any number of packets.
    Bytes(Bytes),
}

impl Default for Limit {
    /// 1000 packets.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

impl Default for Queue {
    /// Drop-tail of 1000 packets.
    fn default() -> Self {
        Self::DropTail { limit: Limit::default() }
    }
}

impl Queue {
    /// The discipline's name, as a file has it.
    pub const fn kind(&self) -> &'static str {
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
        }
    }

    /// Whether it marks packets that are capable of ECN; of a strict queue, in either class.
    pub fn marks(&self) -> bool {
        match self {
            Self::DropTail { .. } | Self::PushOut { .. } => false,
            Self::Codel(codel) | Self::FqCodel { codel, .. } => codel.ecn,
            Self::Crq(crq) => crq.codel.ecn,
            Self::StepMark { .. } => true,
            Self::Red(red) => red.ecn,
            Self::Pie(pie) => pie.ecn,
            Self::Strict { high, low, .. } => high.marks() || low.marks(),
        }
    }

    /// How much may wait, of both classes or queues where there are two: each limit on its own.
    pub fn limits(&self) -> Vec<Limit> {
        match self {
            Self::DropTail { limit } | Self::StepMark { limit, .. } | Self::PushOut { limit } => vec![*limit],
            Self::Red(red) => vec![red.limit],
            Self::Pie(pie) => vec![pie.limit],
            Self::Codel(codel) | Self::FqCodel { codel, .. } => vec![codel.limit],
            Self::Crq(crq) => vec![crq.codel.limit; 2],
            Self::Strict { high, low, .. } => [high.limits(), low.limits()].concat(),
        }
    }
}
