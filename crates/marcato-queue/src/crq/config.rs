//! Configuration of [`Crq`](super::Crq): queues, assignment of flows, rules of assessment.

use marcato_units::{Bytes, Duration, Rate};

use super::{Buffer, Sharing, YoungConfig};
use crate::trap::{TrapConfig, Verdict};
use crate::{CodelConfig, FlowTableConfig};

/// Queue of a [`Crq`](super::Crq).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Queue for all traffic that has not shown a response.
    Standard,
    /// Queue for responsive flows; with three queues, for those that answer loss.
    Responsive,
    /// With three queues, queue for flows that answer marks.
    EcnResponsive,
    /// [Place](YoungConfig) for flows that are young or sparse, if there is one.
    Young,
}

impl Class {
    /// All queues, those included that a configuration does not have.
    pub const ALL: [Self; 4] = [Self::Standard, Self::Responsive, Self::EcnResponsive, Self::Young];
}

/// Discipline within a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aqm {
    /// First in, first out.
    DropTail,
    /// CoDel. Its buffer, its largest packet and its limit come from [`ClassConfig`] and
    /// [`CrqConfig`].
    Codel {
        /// Acceptable sojourn time.
        target: Duration,
        /// Time for which the target must be exceeded.
        interval: Duration,
        /// Mark instead of drop.
        ecn: bool,
    },
    /// FQ-CoDel: fairness among the flows of the queue. Its flows are assigned by the secret of
    /// [`CrqConfig::flows`], and its quantum is [`CrqConfig::mtu`].
    FqCodel {
        /// Acceptable sojourn time.
        target: Duration,
        /// Time for which the target must be exceeded.
        interval: Duration,
        /// Mark instead of drop.
        ecn: bool,
        /// Number of queues, rounded up to a power of two.
        flows: u32,
    },
}

/// Configuration of one queue of [`CrqConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassConfig {
    /// Discipline within the queue.
    pub aqm: Aqm,
    /// Room of the buffer.
    pub buffer: Buffer,
    /// Part of the link, in relation to the other queues' shares.
    pub share: u16,
}

/// Verdict that admits a flow to the responsive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// Verdict on loss.
    Loss,
    /// Verdict on marks.
    Ecn,
    /// Either verdict.
    Any,
}

/// Queues besides the standard one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queues {
    /// Two queues in all. CRQ §III-B.
    Two {
        /// Responsive queue.
        responsive: ClassConfig,
        /// Admission rule for the responsive queue.
        admission: Admission,
    },
    /// Three queues in all: a flow that answers marks goes to `ecn`, also if it answers loss. CRQ
    /// §V.
    Three {
        /// Queue for flows that answer loss only.
        loss: ClassConfig,
        /// Queue for flows that answer marks.
        ecn: ClassConfig,
    },
}

impl Queues {
    /// Queue for a flow under these verdicts on loss and marks. CRQ §III-B3.
    pub(super) fn class_for(self, [loss, ecn]: [Verdict; 2]) -> Class {
        let (loss, ecn) = (loss == Verdict::Responsive, ecn == Verdict::Responsive);
        match self {
            Self::Two { admission, .. } => {
                let responsive = match admission {
                    Admission::Loss => loss,
                    Admission::Ecn => ecn,
                    Admission::Any => loss || ecn,
                };
                if responsive { Class::Responsive } else { Class::Standard }
            }
            Self::Three { .. } if ecn => Class::EcnResponsive,
            Self::Three { .. } if loss => Class::Responsive,
            Self::Three { .. } => Class::Standard,
        }
    }
}

/// Rule that recognises a UDP flow as QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuicRule {
    /// Every datagram whose first two bits are 01 is QUIC.
    ///
    /// CRQ's prototype has this rule, which also takes iperf3's UDP for QUIC.
    FirstBit,
    /// A long header of a known version came from the flow's sender: for places where only one
    /// direction passes.
    Version,
    /// Long headers of a known version came in both directions.
    Handshake,
}

/// Configuration of a [`Crq`](super::Crq).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrqConfig {
    /// Rate of the link, used by [`Buffer::Bdp`] and [`Sharing::Split`] only.
    pub rate: Rate,
    /// MTU of the link, link-layer header included. RFC 8289 calls it `maxpacket`.
    pub mtu: Bytes,
    /// Standard queue.
    pub standard: ClassConfig,
    /// Other queues.
    pub queues: Queues,
    /// Place for flows that are young or sparse. `None`: every flow begins in the standard queue, as
    /// in the paper.
    pub young: Option<YoungConfig>,
    /// Division of the link between the queues.
    pub sharing: Sharing,
    /// Rules by which flows are judged.
    pub trap: TrapConfig,
    /// Rule that recognises a UDP flow as QUIC.
    pub quic: QuicRule,
    /// Table of the flows that are assessed.
    pub flows: FlowTableConfig,
}

impl CrqConfig {
    /// Configuration with the paper's defaults, work conservation and Marcato's rules.
    ///
    /// | parameter | value |
    /// |---|---|
    /// | discipline of both queues | CoDel at its default target and interval (CRQ §III-B2) |
    /// | shares of a link of `rate` | equal (CRQ §III-B4) |
    /// | buffers | one BDP at `rtt` (CRQ §IV-A) |
    /// | place for young flows | none (CRQ §III-B3); [`YoungConfig::new`] makes one |
    /// | sharing | work-conserving |
    /// | rules | [`TrapConfig::marcato`] |
    /// | signal that admits | marks with `ecn`, else loss |
    pub fn new(rate: Rate, rtt: Duration, ecn: bool) -> Self {
        let codel = CodelConfig::default();
        let class = ClassConfig {
            aqm: Aqm::Codel { target: codel.target, interval: codel.interval, ecn },
            buffer: Buffer::Bdp(rtt),
            share: 1,
        };
        Self {
            rate,
            mtu: codel.maxpacket,
            standard: class,
            queues: Queues::Two {
                responsive: class,
                admission: if ecn { Admission::Ecn } else { Admission::Loss },
            },
            young: None,
            sharing: Sharing::Weighted,
            trap: TrapConfig::marcato(),
            quic: QuicRule::Handshake,
            flows: FlowTableConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Responsive, Unclassified, Unresponsive};
    use super::*;

    #[test]
    fn the_queue_of_a_flow_follows_from_its_verdicts() {
        let responsive = CrqConfig::new(Rate::from_mbps(1), Duration::from_millis(20), true).standard;
        let two = |admission| Queues::Two { responsive, admission };
        let three = Queues::Three { loss: responsive, ecn: responsive };
        let verdicts = [
            [Responsive, Responsive],
            [Responsive, Unresponsive],
            [Unclassified, Responsive],
            [Unresponsive, Unclassified],
        ];
        let (yes, no) = (Class::Responsive, Class::Standard);
        for (queues, expected) in [
            (two(Admission::Loss), [yes, yes, no, no]),
            (two(Admission::Ecn), [yes, no, yes, no]),
            (two(Admission::Any), [yes, yes, yes, no]),
            (three, [Class::EcnResponsive, yes, Class::EcnResponsive, no]),
        ] {
            assert_eq!(verdicts.map(|verdicts| queues.class_for(verdicts)), expected, "{queues:?}");
        }
    }
}
