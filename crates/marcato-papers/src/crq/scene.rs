//! Settings of the paper's testbed.

use marcato_queue::{
    Admission, Aqm, Buffer, ClassConfig, CrqConfig, FlowTableConfig, Queues, QuicRule, Sharing,
};
use marcato_units::{Bytes, Duration, Rate};

use super::published::{LINK, Pair, Stack};
use super::setup::{Bottleneck, MTU, Responder, Setup, Unresponsive};
use super::testbed::{Testbed, WIRE};
use super::watched::Preset;

/// Rules with which Fig. 5 is run, in both columns: those of the program that produced it. Declared
/// before any run.
pub(super) const RULES: Preset = Preset::Authors;

/// Column of Fig. 5: the assumptions about the link and its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// The [`Testbed`]. In addition, the drop-tail baseline's shaper wakes late, and CRQ's queues
    /// borrow nothing from each other.
    Artefacts,
    /// Link of the paper's rate, and CRQ queues that share it, as the paper describes.
    Clean,
}

impl Column {
    pub(super) const ALL: [Self; 2] = [Self::Artefacts, Self::Clean];

    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Artefacts => "artefacts",
            Self::Clean => "clean",
        }
    }
}

/// Delay with which a transmitter of the link's rate wakes if a TCP flow carries `goodput` Mbit/s
/// of payload. The packets carry 1448 bytes and wait for each other.
pub(super) fn lateness(goodput: u64, framing: Bytes) -> Duration {
    let packet = Bytes::new(1448) * 8_000;
    let took = packet.get() / goodput;
    Duration::from_nanos(took).saturating_sub(LINK.transmission_time(Bytes::new(1500) + framing))
}

impl Column {
    /// Machines of the column.
    fn testbed(self) -> Option<Testbed> {
        (self == Self::Artefacts).then_some(Testbed::AUTHORS)
    }
}

/// Goodput of the testbed's drop-tail baseline, in Mbit/s of payload.
///
/// It follows from the paper's scores. With CRQ, no flow gets more than 478 Mbit/s of its queue,
/// and so takes at least 16.7 s. TCP CUBIC has a score of 0.70 at 5 ms, and so took at least 55.8 s
/// without CRQ. That is 143 Mbit/s, while UDP had 500. On a virtual machine such a shaper carried
/// 741 to 811, and one with a larger burst 954: the report has rows of 780 too.
pub(super) const BASELINE_CARRIES: u64 = 640;

/// The authors' CoDel buffer: a bandwidth-delay product, counted in packets of 1500 bytes.
fn packets(rate: Rate, rtt: Duration) -> Buffer {
    Buffer::Packets((rate.bytes_in(rtt).get() / 1500).max(1))
}

/// A drop-tail queue of one bandwidth-delay product.
pub(super) fn drop_tail(rate: Rate, rtt: Duration) -> ClassConfig {
    ClassConfig { aqm: Aqm::DropTail, buffer: Buffer::Bytes(rate.bytes_in(rtt)), share: 1 }
}

/// CoDel of Fig. 4: a target of 0.1 ms and an interval of 0.01 ms, as in the authors' program.
pub(super) fn tight_codel(rate: Rate, rtt: Duration, ecn: bool) -> ClassConfig {
    let aqm = Aqm::Codel { target: Duration::from_micros(100), interval: Duration::from_micros(10), ecn };
    ClassConfig { aqm, buffer: packets(rate, rtt), share: 1 }
}

/// CoDel of Fig. 5: a target of 0.5 ms and an interval of 20 ms.
pub(super) fn codel(rate: Rate, rtt: Duration, ecn: bool) -> ClassConfig {
    let aqm = Aqm::Codel { target: Duration::from_micros(500), interval: Duration::from_millis(20), ecn };
    ClassConfig { aqm, buffer: packets(rate, rtt), share: 1 }
}

/// Rate of the link in IP bytes. CRQ's queues do not count the 14 bytes of framing.
fn ip_rate() -> Rate {
    Rate::from_bps(LINK.as_bps() * 1500 / 1514)
}

/// CRQ on the link of Fig. 5.
pub(super) fn crq(pair: Pair, rtt: Duration, column: Column, rules: Preset) -> CrqConfig {
    let half = Rate::from_bps(LINK.as_bps() / 2);
    let ecn = pair == Pair::Ecn;
    let responsive = codel(half, rtt, ecn);
    let standard = match pair {
        Pair::DropTail | Pair::Codel => drop_tail(half, rtt),
        Pair::Drop | Pair::Ecn => codel(half, rtt, ecn),
    };
    CrqConfig {
        rate: ip_rate(),
        mtu: MTU,
        standard,
        queues: Queues::Two { responsive, admission: if ecn { Admission::Ecn } else { Admission::Loss } },
        young: None,
        sharing: match column {
            Column::Artefacts => Sharing::Split { burst: MTU },
            Column::Clean => Sharing::Weighted,
        },
        trap: rules.rules(),
        quic: if rules == Preset::Marcato { QuicRule::Handshake } else { QuicRule::FirstBit },
        flows: FlowTableConfig { flows: 1024, ..FlowTableConfig::default() },
    }
}

/// The baseline of Fig. 5: all traffic through one queue of the whole link.
pub(super) fn baseline(pair: Pair, rtt: Duration, column: Column) -> Setup {
    let (class, late) = match pair {
        Pair::DropTail if column == Column::Artefacts => {
            (drop_tail(LINK, rtt), lateness(BASELINE_CARRIES, WIRE))
        }
        Pair::DropTail => (drop_tail(LINK, rtt), Duration::ZERO),
        Pair::Codel | Pair::Drop => (codel(LINK, rtt, false), Duration::ZERO),
        Pair::Ecn => (codel(LINK, rtt, true), Duration::ZERO),
    };
    let setup = Setup::new(LINK, rtt, Bottleneck::Plain(class), pair == Pair::Ecn);
    Setup { wakes_late: late, testbed: column.testbed(), ..setup }
}

/// CRQ in place of the baseline.
pub(super) fn against(pair: Pair, rtt: Duration, column: Column, rules: Preset) -> Setup {
    let setup = Setup::new(LINK, rtt, Bottleneck::Crq(crq(pair, rtt, column, rules)), pair == Pair::Ecn);
    Setup { testbed: column.testbed(), ..setup }
}

/// One flow that competes with UDP at half of a queue's rate: half of the link's in the baseline, a
/// quarter with CRQ. CRQ §IV-C1.
pub(super) fn single(setup: Setup, stack: Stack, bytes: Bytes, from: Duration) -> Setup {
    let rate = udp_rate(&setup);
    setup.transfer(Responder::Stack(stack), bytes, 0).flood(Unresponsive::udp(rate, from, 1))
}

/// Flows drawn from the seed, half of them from either server, and two UDP flows of together the
/// same rate. CRQ §IV-C2.
pub(super) fn multi(setup: Setup, flows: usize, bytes: Bytes, from: Duration) -> Setup {
    let rate = Rate::from_bps(udp_rate(&setup).as_bps() / 2);
    let setup = (0..flows)
        .fold(setup, |setup, place| setup.transfer(Responder::Drawn, bytes, usize::from(place >= flows / 2)));
    [0, 1].into_iter().fold(setup, |setup, server| setup.flood(Unresponsive::udp(rate, from, server)))
}

fn udp_rate(setup: &Setup) -> Rate {
    let part = if matches!(setup.bottleneck, Bottleneck::Crq(_)) { 4 } else { 2 };
    Rate::from_bps(LINK.as_bps() / part)
}
