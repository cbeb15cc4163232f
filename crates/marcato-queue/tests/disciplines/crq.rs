//! CRQ through its public interface.

use marcato_queue::trap::{Signal, TrapConfig, TrapKind, Verdict as Judgement};
use marcato_queue::{
    Admission, Aqm, Buffer, Class, ClassConfig, Crq, CrqConfig, CrqError, Discipline, FlowKey,
    FlowTableConfig, LimitError, Packet, Queues, QuicRule, Sharing, Verdict, YoungConfig,
};
use marcato_units::{Bytes, Duration, Rate, Time};
use marcato_wire::{Ecn, FlowTuple, QuicHeader, QuicLongType, TcpFlags, TcpSegment, Transport};
use proptest::prelude::*;

use crate::path::{Control, Path, Proto, Sender};

const RATE: Rate = Rate::from_mbps(50);

const fn codel(target: u64, interval: u64, ecn: bool) -> Aqm {
    Aqm::Codel { target: Duration::from_micros(target), interval: Duration::from_micros(interval), ecn }
}

/// Drop-tail, and CoDel that drops and that marks, at its defaults and as in CRQ's Fig. 4.
const AQMS: [Aqm; 5] = [
    Aqm::DropTail,
    codel(5000, 100_000, false),
    codel(100, 10, false),
    codel(5000, 100_000, true),
    codel(100, 10, true),
];

const PROTOS: [Proto; 3] = [Proto::Tcp { timestamps: true }, Proto::Tcp { timestamps: false }, Proto::Quic];
/// Bidirectional flows.
const MIRRORED: [(Proto, bool); 2] = [(PROTOS[0], true), (PROTOS[1], true)];

fn config(aqm: Aqm, rtt: Duration, trap: TrapConfig) -> CrqConfig {
    let ecn = marks(aqm);
    let class = ClassConfig { aqm, buffer: Buffer::Bdp(2 * rtt), share: 1 };
    let admission = if ecn { Admission::Ecn } else { Admission::Loss };
    CrqConfig {
        trap,
        standard: class,
        queues: Queues::Two { responsive: class, admission },
        ..CrqConfig::new(RATE, rtt, ecn)
    }
}

fn marks(aqm: Aqm) -> bool {
    matches!(aqm, Aqm::Codel { ecn: true, .. })
}

/// Assessed and raw score of a lone sender, in thousandths, and its number of cycles.
fn score(aqm: Aqm, rtt: u64, sender: Sender, span: Time) -> (Option<u32>, u32, u32) {
    let rtt = Duration::from_millis(rtt);
    let sender = Sender { ecn: marks(aqm), ..sender };
    let mut path = Path::new(config(aqm, rtt, TrapConfig::marcato()), rtt, &[sender]);
    path.run(span, |_, _| ());
    let report = path.report(0).unwrap();
    let signal = if marks(aqm) { Signal::Ecn } else { Signal::Loss };
    (report.scores.assessed(signal), report.scores.raw(signal).unwrap_or(0), report.scores.cycles)
}

#[test]
fn senders_that_answer_are_judged_responsive_at_every_queue() {
    for aqm in AQMS {
        for rtt in [5, 100] {
            let span = if rtt == 5 { Time::from_secs(8) } else { Time::from_secs(32) };
            for control in [Control::Reno, Control::Cubic, Control::Dctcp] {
                if control == Control::Dctcp && !marks(aqm) {
                    // DCTCP answers marks only.
                    continue;
                }
                for (proto, mirrored) in PROTOS.map(|proto| (proto, false)).into_iter().chain(MIRRORED) {
                    let sender = Sender { mirrored, ..Sender::new(control, proto) };
                    let (assessed, _, cycles) = score(aqm, rtt, sender, span);
                    assert!(cycles > 100);
                    // `None`: fewer than three signals are no basis for a verdict.
                    assert!(
                        assessed.is_none_or(|assessed| assessed >= 900),
                        "{assessed:?} of 1000 for {sender:?} at {aqm:?} and {rtt} ms"
                    );
                }
            }
        }
    }
}

#[test]
fn most_of_these_senders_are_indeed_judged() {
    let span = Time::from_secs(8);
    for aqm in [AQMS[0], AQMS[1], AQMS[2], AQMS[4]] {
        for proto in PROTOS {
            let (assessed, raw, _) = score(aqm, 5, Sender::new(Control::Cubic, proto), span);
            assert!(assessed.is_some() && raw >= 900, "{raw} of 1000 over {proto:?} at {aqm:?}");
        }
    }
}

#[test]
fn floods_are_judged_unresponsive() {
    for aqm in AQMS {
        for (rtt, seconds) in [(5, 8), (100, 24)] {
            for proto in PROTOS {
                let sender = Sender::new(Control::Constant(60), proto);
                let (_, raw, cycles) = score(aqm, rtt, sender, Time::from_secs(seconds));
                assert!(cycles > 100);
                assert!(raw <= 50, "{raw} of 1000 over {proto:?} at {aqm:?} and {rtt} ms");
            }
        }
    }
}

/// DCTCP over 100 ms at CoDel with its defaults, which marks one packet in some 800.
///
/// Its answers are judged as long as they are large. Answers that are too small to be seen are no
/// votes against it.
#[test]
fn dctcp_is_judged_by_the_answers_that_can_be_seen() {
    for proto in PROTOS {
        let (assessed, raw, _) = score(AQMS[3], 100, Sender::new(Control::Dctcp, proto), Time::from_secs(32));
        assert!(assessed >= Some(900) && raw >= 800, "{assessed:?}, {raw} of 1000 over {proto:?}");
    }
}

/// A flood with random gaps sometimes falls after a signal by chance.
#[test]
fn floods_with_random_gaps_are_seldom_judged_responsive() {
    for aqm in AQMS {
        for (rtt, seconds) in [(5, 8), (100, 24)] {
            for proto in PROTOS {
                // From a flood that the link nearly carries to one of which it carries half.
                for mbps in [52, 60, 90] {
                    let sender = Sender::new(Control::Poisson(mbps), proto);
                    let (_, raw, cycles) = score(aqm, rtt, sender, Time::from_secs(seconds));
                    assert!(cycles > 100);
                    assert!(raw <= 50, "{raw} of 1000 for {mbps} over {proto:?} at {aqm:?} and {rtt} ms");
                }
            }
        }
    }
}

/// A flood that pauses by the clock sends less after every signal, but not because of it: it
/// returns in the next cycle.
#[test]
fn floods_that_pause_by_the_clock_are_not_judged_responsive() {
    for aqm in AQMS {
        for rtt in [5, 20] {
            for (on, period) in [(5, 10), (10, 20), (20, 40), (100, 200), (1000, 2000)] {
                // The spin bit flips once per round trip, or as the sender chooses.
                for flips in [None, Some(25)] {
                    let sender =
                        Sender { flips, ..Sender::new(Control::Pulse(120, on, period), Proto::Quic) };
                    let (_, raw, cycles) = score(aqm, rtt, sender, Time::from_secs(12));
                    assert!(cycles > 100);
                    assert!(
                        raw <= 50,
                        "{raw} of 1000 on for {on} of {period} ms, flips {flips:?}, at {aqm:?} and {rtt} ms"
                    );
                }
            }
        }
    }
}

#[test]
fn a_responsive_flow_is_freed_from_a_flood() {
    let rtt = Duration::from_millis(20);
    let senders = [
        Sender::new(Control::Cubic, Proto::Tcp { timestamps: true }),
        Sender { start: Time::from_secs(1), ..Sender::new(Control::Constant(40), Proto::Udp) },
    ];
    let mut path = Path::new(config(AQMS[1], rtt, TrapConfig::marcato()), rtt, &senders);
    path.run(Time::from_secs(20), |_, _| ());
    let (tcp, udp) = (path.report(0).unwrap(), path.report(1).unwrap());
    assert_eq!((tcp.class, tcp.loss), (Class::Responsive, Judgement::Responsive));
    assert_eq!((udp.class, udp.loss, udp.kind), (Class::Standard, Judgement::Unclassified, None));
    // Half of 50 Mbit/s, instead of the rest that 40 Mbit/s leave.
    let mbps = path.delivered[0] as f64 * 8.0 / 20e6;
    assert!(mbps > 23.0, "{mbps} Mbit/s");
    let standard = path.queue.class(Class::Standard).unwrap().counters;
    assert!(standard.dropped.packets > 1000);
}

/// Defect 14: any datagram that began with the bits 01 was QUIC, and iperf3's do.
#[test]
fn a_flow_without_a_handshake_is_no_quic() {
    let rtt = Duration::from_millis(5);
    for (quic, kind) in [(QuicRule::Handshake, None), (QuicRule::FirstBit, Some(TrapKind::Spin))] {
        let config = CrqConfig { quic, ..config(Aqm::DropTail, rtt, TrapConfig::marcato()) };
        let mut path = Path::new(config, rtt, &[Sender::new(Control::Constant(10), Proto::Udp)]);
        path.run(Time::from_secs(1), |_, _| ());
        assert_eq!(path.report(0).unwrap().kind, kind);
        let unassessed = path.queue.stats().unassessed.packets;
        assert_eq!(unassessed > 100, kind.is_none(), "{unassessed}");
    }
}

/// RFC 8999 §5.1: nothing but the version tells QUIC, and only known versions have a spin bit where it is read.
#[test]
fn greetings_of_unknown_versions_make_no_flow_quic() {
    let known = QuicHeader::Long { version: 1, kind: Some(QuicLongType::Initial) };
    let unknown = QuicHeader::Long { version: 0xff00_001d, kind: None };
    let datagram = |header| raw(1, Transport::Udp { payload: 1200, quic: Some(header) });
    for (sent, answered, kind) in [
        (known, known, Some(TrapKind::Spin)),
        (known, unknown, None),
        (unknown, known, None),
        (unknown, unknown, None),
    ] {
        let strict = CrqConfig { quic: QuicRule::Handshake, ..quick(Sharing::Weighted) };
        let mut queue = Crq::new(strict).unwrap();
        queue.enqueue(Time::ZERO, datagram(sent)).lost();
        queue.observe(Time::ZERO, &datagram(answered));
        queue.enqueue(Time::ZERO, raw(1, spinning(true))).lost();
        assert_eq!(queue.flow(FlowKey::new(1)).unwrap().kind, kind, "{sent:?}, answered by {answered:?}");
    }
    // An unknown version of the other host alone takes no place in the table.
    let mut queue = Crq::new(quick(Sharing::Weighted)).unwrap();
    queue.observe(Time::ZERO, &datagram(unknown));
    assert_eq!(queue.table().flows, 0);
}

/// Packet with fields that a test sets.
#[derive(Clone, Debug, PartialEq)]
struct Raw {
    flow: FlowKey,
    transport: Transport,
    ecn: Ecn,
    len: u64,
}

packet!(Raw, |raw| raw.flow, |raw| raw.flow);

fn raw(flow: u64, transport: Transport) -> Raw {
    Raw { flow: FlowKey::new(flow), transport, ecn: Ecn::NotEct, len: 1500 }
}

fn tcp(seq: u32) -> Transport {
    Transport::Tcp(TcpSegment { seq, ack: 1, flags: TcpFlags::ACK, payload: 1000, timestamps: None })
}

fn spinning(spin: bool) -> Transport {
    Transport::Udp { payload: 1000, quic: Some(QuicHeader::Short { fixed: true, spin }) }
}

/// Configuration under which four spin cycles make a verdict.
fn quick(sharing: Sharing) -> CrqConfig {
    let class = ClassConfig { aqm: Aqm::DropTail, buffer: Buffer::Packets(1000), share: 1 };
    CrqConfig {
        standard: class,
        queues: Queues::Two { responsive: class, admission: Admission::Loss },
        sharing,
        trap: TrapConfig::paper(),
        quic: QuicRule::FirstBit,
        ..CrqConfig::new(RATE, Duration::from_millis(10), false)
    }
}

/// Makes `flow` responsive: losses in a cycle of 10 packets, and 8 two cycles later.
fn make_responsive(queue: &mut Crq<Raw>, flow: u64) {
    for (cycle, packets) in [2200, 10, 8, 8].into_iter().enumerate() {
        for _ in 0..packets {
            queue.enqueue(Time::ZERO, raw(flow, spinning(cycle % 2 == 1))).lost();
        }
        while cycle < 3 && queue.dequeue(Time::ZERO).is_some() {}
    }
    while queue.dequeue(Time::ZERO).is_some() {}
    assert_eq!(queue.flow(FlowKey::new(flow)).unwrap().class, Class::Responsive);
}

/// Defect 10: TCP and UDP on the same addresses and ports shared their state.
#[test]
fn flows_that_differ_in_their_protocol_alone_are_judged_apart() {
    let tuple = FlowTuple {
        protocol: FlowTuple::UDP,
        source: [192, 0, 2, 1].into(),
        destination: [192, 0, 2, 2].into(),
        source_port: 443,
        destination_port: 40_000,
    };
    let udp = FlowKey::of(&tuple, 99);
    let tcp_key = FlowKey::of(&FlowTuple { protocol: FlowTuple::TCP, ..tuple }, 99);
    let mut queue = Crq::new(quick(Sharing::Weighted)).unwrap();
    make_responsive(&mut queue, udp.get());
    queue.enqueue(Time::ZERO, raw(tcp_key.get(), tcp(0))).lost();
    let report = queue.flow(tcp_key).unwrap();
    assert_eq!(
        (report.kind, report.loss, report.class),
        (Some(TrapKind::Tcp), Judgement::Unclassified, Class::Standard)
    );
    assert_eq!(queue.flow(udp).unwrap().kind, Some(TrapKind::Spin));
}

/// Defect 17: a flow that moves to another address loses its verdict. It does so here as well,
/// which harms no other flow.
#[test]
fn a_flow_that_moves_begins_anew_in_the_standard_queue() {
    let mut queue = Crq::new(quick(Sharing::Weighted)).unwrap();
    make_responsive(&mut queue, 1);
    queue.enqueue(Time::ZERO, raw(2, spinning(true))).lost();
    let moved = queue.flow(FlowKey::new(2)).unwrap();
    assert_eq!((moved.loss, moved.class), (Judgement::Unclassified, Class::Standard));
    assert_eq!(queue.flow(FlowKey::new(1)).unwrap().loss, Judgement::Responsive);
    // By the strict rule it is no QUIC any more, as its handshake was not seen, and so is not
    // judged at all.
    let strict = CrqConfig { quic: QuicRule::Handshake, ..quick(Sharing::Weighted) };
    let mut queue = Crq::new(strict).unwrap();
    for at in 0..100 {
        queue.enqueue(Time::ZERO, raw(2, spinning(at / 10 % 2 == 1))).lost();
    }
    assert_eq!(queue.flow(FlowKey::new(2)).unwrap().kind, None);
}

#[test]
fn unassessed_packets_are_served_by_the_standard_queue() {
    let flows = FlowTableConfig { flows: 8, ..FlowTableConfig::default() };
    let mut queue = Crq::new(CrqConfig { flows, ..quick(Sharing::Weighted) }).unwrap();
    for flow in 0..20 {
        assert_eq!(queue.enqueue(Time::ZERO, raw(flow, tcp(0))), Verdict::Queued);
    }
    assert_eq!(queue.table().refused, 12);
    assert_eq!(queue.table().flows, 8);
    assert_eq!(queue.enqueue(Time::ZERO, raw(99, Transport::Opaque)), Verdict::Queued);
    assert_eq!(queue.stats().unassessed.packets, 13);
    assert_eq!(queue.class(Class::Standard).unwrap().backlog.packets, 21);
    assert_eq!(queue.flow(FlowKey::new(99)), None);
}

#[test]
fn a_flow_that_changes_its_queue_overtakes_waiting_packets_only() {
    let mut queue = Crq::new(quick(Sharing::Strict { least: 0 })).unwrap();
    // The last cycle that counts for flow 1 leaves 8 of its packets waiting behind 100 of another
    // flow.
    for packets in [2200, 10] {
        for _ in 0..packets {
            queue.enqueue(Time::ZERO, raw(1, spinning(packets == 10))).lost();
        }
        while packets == 2200 && queue.dequeue(Time::ZERO).is_some() {}
    }
    while queue.dequeue(Time::ZERO).is_some() {}
    for _ in 0..100 {
        queue.enqueue(Time::ZERO, raw(2, tcp(0))).lost();
    }
    for _ in 0..8 {
        queue.enqueue(Time::ZERO, raw(1, spinning(false))).lost();
    }
    assert_eq!(queue.class(Class::Responsive).unwrap().backlog.packets, 0);
    for _ in 0..5 {
        queue.enqueue(Time::ZERO, raw(1, spinning(true))).lost();
    }
    assert_eq!(queue.class(Class::Responsive).unwrap().backlog.packets, 5);
    while queue.dequeue(Time::ZERO).is_some() {}
    let report = queue.flow(FlowKey::new(1)).unwrap();
    assert_eq!((report.changes, report.overtaken), (1, 8));
    assert_eq!((queue.stats().changes, queue.stats().overtaken), (1, 8));
}

/// CRQ with 20 packets per queue whose flow 1 just moved to the responsive queue.
///
/// It halved its window two cycles after the losses of the first. Since then `pending` packets were
/// lost in each of two cycles.
fn moved(reassess: u8, pending: u64) -> (Crq<Raw>, impl FnMut(&mut Crq<Raw>, u64, u64)) {
    let class = ClassConfig { aqm: Aqm::DropTail, buffer: Buffer::Packets(20), share: 1 };
    let config = CrqConfig {
        standard: class,
        queues: Queues::Two { responsive: class, admission: Admission::Loss },
        trap: TrapConfig { reassess, ..TrapConfig::paper() },
        ..quick(Sharing::Weighted)
    };
    let mut queue = Crq::new(config).unwrap();
    let mut spin = false;
    // One cycle of `packets` packets, of which `lost` are lost.
    let mut cycle = move |queue: &mut Crq<Raw>, packets: u64, lost: u64| {
        for packet in 0..packets {
            if packet < packets - 20 - lost.min(packets - 20) || lost == 0 {
                while queue.dequeue(Time::ZERO).is_some() {}
            }
            queue.enqueue(Time::ZERO, raw(1, spinning(spin))).lost();
        }
        while queue.dequeue(Time::ZERO).is_some() {}
        spin = !spin;
    };
    cycle(&mut queue, 60, 20);
    cycle(&mut queue, 30, pending);
    cycle(&mut queue, 30, pending);
    assert_eq!(queue.flow(FlowKey::new(1)).unwrap().changes, 0);
    (queue, cycle)
}

/// CRQ §III-B3: signals of the old queue are not held against a flow in the new one.
#[test]
fn a_change_of_queue_resets_the_signals_of_the_old_one() {
    let (mut queue, mut cycle) = moved(0, 5);
    // Its window stays as it is, which would be no answer to the last losses.
    for _ in 0..20 {
        cycle(&mut queue, 30, 0);
    }
    let report = queue.flow(FlowKey::new(1)).unwrap();
    assert_eq!((report.changes, report.loss, report.class), (1, Judgement::Responsive, Class::Responsive));
}

/// CRQ §III-B3: signals do not count for some cycles after a change of queue.
#[test]
fn a_moved_flow_is_judged_anew_after_the_configured_cycles() {
    let lasts = |reassess: u8| {
        let (mut queue, mut cycle) = moved(reassess, 0);
        // It answers no loss in the new queue.
        (0..40).position(|_| {
            cycle(&mut queue, 30, 5);
            queue.flow(FlowKey::new(1)).unwrap().changes == 2
        })
    };
    let at_once = lasts(0).unwrap();
    for reassess in [1, 2, 4, 8] {
        assert_eq!(lasts(reassess), Some(at_once + usize::from(reassess)), "{reassess} cycles");
    }
}

/// Number of the responsive flow's packets among 400 that leave while both flows have packets
/// waiting.
fn responsive_share(config: CrqConfig) -> usize {
    let mut queue = Crq::new(config).unwrap();
    make_responsive(&mut queue, 1);
    for _ in 0..600 {
        queue.enqueue(Time::ZERO, raw(1, spinning(true))).lost();
        queue.enqueue(Time::ZERO, raw(2, tcp(0))).lost();
    }
    (0..400).filter(|_| queue.dequeue(Time::ZERO).unwrap().flow() == FlowKey::new(1)).count()
}

#[test]
fn backlogged_queues_divide_the_link_by_their_shares() {
    for (responsive, standard, expected) in [(1, 1, 200), (3, 1, 300), (1, 3, 100), (4, 1, 320)] {
        let mut config = quick(Sharing::Weighted);
        config.standard.share = standard;
        config.queues = Queues::Two {
            responsive: ClassConfig { share: responsive, ..config.standard },
            admission: Admission::Loss,
        };
        let share = responsive_share(config);
        assert!(share.abs_diff(expected) <= 1, "{share} instead of {expected}");
    }
    for (least, expected) in [(0, 400), (50, 380), (250, 300), (900, 40)] {
        let share = responsive_share(quick(Sharing::Strict { least }));
        assert!(share.abs_diff(expected) <= 1, "{share} instead of {expected}");
    }
}

#[test]
fn arrivals_are_counted_under_both_verdicts_on_their_flow() {
    let mut queue = Crq::new(quick(Sharing::Weighted)).unwrap();
    make_responsive(&mut queue, 1);
    let counts = |queue: &Crq<Raw>| {
        let stats = queue.stats();
        [stats.by_loss, stats.by_ecn].map(|tallies| tallies.map(|tally| tally.packets))
    };
    let before = counts(&queue);
    for _ in 0..5 {
        queue.enqueue(Time::ZERO, raw(1, spinning(true))).lost();
    }
    let [loss, ecn] = counts(&queue);
    // It answers losses, and has had no marks.
    assert_eq!(loss, [before[0][0], before[0][1] + 5, before[0][2]]);
    assert_eq!(ecn, [before[1][0] + 5, before[1][1], before[1][2]]);
}

/// Whichever packet came first. The responsive queue has sent one packet more before.
#[test]
fn of_queues_with_equal_claims_the_responsive_one_is_first() {
    for order in [[1, 2], [2, 1]] {
        let mut queue = Crq::new(quick(Sharing::Weighted)).unwrap();
        make_responsive(&mut queue, 1);
        for flow in [order, order].concat() {
            let transport = if flow == 1 { spinning(true) } else { tcp(0) };
            queue.enqueue(Time::ZERO, raw(flow, transport)).lost();
        }
        let left = [(); 4].map(|()| queue.dequeue(Time::ZERO).unwrap().flow().get());
        assert_eq!(left, [2, 1, 2, 1], "{order:?}");
    }
}

#[test]
fn a_queue_that_was_idle_for_terabytes_gets_its_share_at_once() {
    // With packets of 4 GiB, virtual time would wrap after 40 GiB at 1:65535, and after 30 000 GiB
    // at 1:99.
    for (busy_share, idle_share, gibibytes) in [(1, 65_535, 48), (1, 99, 30_000), (99, 1, 3_000_000)] {
        for busy in [Class::Standard, Class::Responsive] {
            let mut config = quick(Sharing::Weighted);
            let shares =
                if busy == Class::Standard { [busy_share, idle_share] } else { [idle_share, busy_share] };
            config.standard.share = shares[0];
            let responsive = ClassConfig { share: shares[1], ..config.standard };
            config.queues = Queues::Two { responsive, admission: Admission::Loss };
            let mut queue = Crq::new(config).unwrap();
            make_responsive(&mut queue, 1);
            let packet =
                |class| if class == Class::Responsive { raw(1, spinning(true)) } else { raw(2, tcp(0)) };
            for _ in 0..gibibytes / 4 {
                queue.enqueue(Time::ZERO, Raw { len: 1 << 32, ..packet(busy) }).lost();
                assert!(queue.dequeue(Time::ZERO).is_some());
            }
            let idle = if busy == Class::Standard { Class::Responsive } else { Class::Standard };
            for class in [busy, busy, busy, idle] {
                queue.enqueue(Time::ZERO, packet(class)).lost();
            }
            let mut order = (0..4).map(|_| queue.dequeue(Time::ZERO).unwrap().flow());
            let at = order.position(|flow| flow == packet(idle).flow).unwrap();
            assert!(at <= 1, "{idle:?} waited for {at} packets after {gibibytes} GiB");
        }
    }
}

#[test]
fn a_new_flow_on_a_full_strict_link_waits_for_one_packet() {
    for (least, expected) in [(Sharing::STANDARD_LEAST, Some(1)), (0, None)] {
        let mut queue = Crq::new(quick(Sharing::Strict { least })).unwrap();
        make_responsive(&mut queue, 1);
        for _ in 0..500 {
            queue.enqueue(Time::ZERO, raw(1, spinning(true))).lost();
        }
        for _ in 0..100 {
            queue.dequeue(Time::ZERO);
        }
        queue.enqueue(Time::ZERO, raw(2, tcp(0))).lost();
        let at = (0..400).position(|_| queue.dequeue(Time::ZERO).unwrap().flow() == FlowKey::new(2));
        assert_eq!(at, expected, "with a least share of {least} thousandths");
    }
}

proptest! {
    /// For packets of any sizes.
    #[test]
    fn under_strict_sharing_the_standard_queue_has_its_least_share(
        least in 1u16..1000,
        lens in prop::collection::vec((40u64..9000, 40u64..9000), 50..300),
    ) {
        let mut queue = Crq::new(quick(Sharing::Strict { least })).unwrap();
        make_responsive(&mut queue, 1);
        for &(responsive, standard) in &lens {
            queue.enqueue(Time::ZERO, Raw { len: responsive, ..raw(1, spinning(true)) }).lost();
            queue.enqueue(Time::ZERO, Raw { len: standard, ..raw(2, tcp(0)) }).lost();
        }
        let (mut standard, mut all) = (0, 0);
        let waits = |queue: &Crq<Raw>, class| queue.class(class).unwrap().backlog.packets > 0;
        while waits(&queue, Class::Standard) && waits(&queue, Class::Responsive) {
            let packet = queue.dequeue(Time::ZERO).unwrap();
            all += packet.len;
            standard += if packet.flow == FlowKey::new(2) { packet.len } else { 0 };
            let least = u64::from(least);
            prop_assert!(1000 * standard + 9000 * least >= least * all, "{standard} of {all}");
            prop_assert!(1000 * standard <= least * all + 9000 * 1000, "{standard} of {all}");
        }
    }
}

#[test]
fn an_idle_queue_earns_no_credit() {
    let mut queue = Crq::new(quick(Sharing::Weighted)).unwrap();
    make_responsive(&mut queue, 1);
    for _ in 0..500 {
        queue.enqueue(Time::ZERO, raw(2, tcp(0))).lost();
        assert!(queue.dequeue(Time::ZERO).is_some());
    }
    for _ in 0..100 {
        queue.enqueue(Time::ZERO, raw(1, spinning(true))).lost();
        queue.enqueue(Time::ZERO, raw(2, tcp(0))).lost();
    }
    let first = (0..100).filter(|_| queue.dequeue(Time::ZERO).unwrap().flow() == FlowKey::new(1)).count();
    assert!(first.abs_diff(50) <= 1, "{first}");
}

/// Split queue in which flow 1 is responsive, and that is empty again.
fn split_with_a_responsive_flow() -> Crq<Raw> {
    // As in `make_responsive`, but a split queue takes time to drain.
    let mut queue = Crq::new(quick(Sharing::Split { burst: Bytes::new(3000) })).unwrap();
    let mut now = Time::ZERO;
    for (cycle, packets) in [2200, 10, 8, 8].into_iter().enumerate() {
        for _ in 0..packets {
            queue.enqueue(now, raw(1, spinning(cycle % 2 == 1))).lost();
        }
        while let Some(ready) = queue.next_ready(now) {
            now = ready;
            assert!(queue.dequeue(now).is_some(), "it said that it would be ready");
        }
    }
    queue
}

/// Packets of 1500 bytes that leave a split link of 50 Mbit/s in a second, of the responsive and of
/// another flow.
fn split_second(both: bool) -> [u64; 2] {
    let mut queue = split_with_a_responsive_flow();
    let mut now = Time::from_secs(3600);
    let end = now + Duration::from_secs(1);
    let mut left = [0, 0];
    while now < end {
        for (flow, class) in [(1, Class::Responsive), (2, Class::Standard)] {
            while (both || flow == 2) && queue.class(class).unwrap().backlog.packets < 10 {
                let transport = if flow == 1 { spinning(true) } else { tcp(0) };
                queue.enqueue(now, raw(flow, transport)).lost();
            }
        }
        match queue.dequeue(now) {
            Some(packet) => {
                left[usize::from(packet.flow() == FlowKey::new(2))] += 1;
                now += RATE.transmission_time(Bytes::new(1500));
            }
            None => now = queue.next_ready(now).unwrap(),
        }
    }
    left
}

/// Idle time earns a burst, and no precedence over a queue that was idle for less long.
#[test]
fn of_two_idle_split_queues_the_responsive_one_goes_first() {
    let mut queue = split_with_a_responsive_flow();
    // The standard queue has never sent.
    for (flow, transport) in [(2, tcp(0)), (1, spinning(true))] {
        queue.enqueue(Time::from_secs(3600), raw(flow, transport)).lost();
    }
    let first = queue.dequeue(Time::from_secs(3600)).unwrap();
    assert_eq!(first.flow(), FlowKey::new(1));
}

#[test]
fn a_split_link_leaves_an_idle_queues_part_unused() {
    // 25 Mbit/s are 2083 packets per second, and a burst of two.
    let [responsive, standard] = split_second(false);
    assert!(responsive == 0 && standard.abs_diff(2083) <= 3, "{responsive}, {standard}");
    let [responsive, standard] = split_second(true);
    assert!(responsive.abs_diff(2083) <= 3 && standard.abs_diff(2083) <= 3, "{responsive}, {standard}");
}

#[test]
fn three_queues_separate_answers_to_loss_from_those_to_marks() {
    let rtt = Duration::from_millis(10);
    let class = ClassConfig { aqm: codel(1000, 20_000, true), buffer: Buffer::Bdp(2 * rtt), share: 1 };
    let config = CrqConfig {
        standard: class,
        queues: Queues::Three { loss: class, ecn: class },
        ..config(class.aqm, rtt, TrapConfig::marcato())
    };
    let proto = Proto::Tcp { timestamps: true };
    let senders = [
        Sender { ecn: true, ..Sender::new(Control::Cubic, proto) },
        Sender { ecn: false, ..Sender::new(Control::Cubic, proto) },
        Sender { ecn: true, ..Sender::new(Control::Constant(20), proto) },
    ];
    let mut path = Path::new(config, rtt, &senders);
    path.run(Time::from_secs(20), |_, _| ());
    let classes = [0, 1, 2].map(|flow| path.report(flow).unwrap().class);
    assert_eq!(classes, [Class::EcnResponsive, Class::Responsive, Class::Standard]);
}

#[test]
fn buffers_are_sized_by_bytes_bdp_and_fill_rate() {
    let holds = |buffer: Buffer, spacing: Duration| {
        let class = ClassConfig { aqm: Aqm::DropTail, buffer, share: 1 };
        let queues = Queues::Two { responsive: class, admission: Admission::Loss };
        let mut queue = Crq::new(CrqConfig { standard: class, queues, ..quick(Sharing::Weighted) }).unwrap();
        let mut now = Time::ZERO;
        for _ in 0..2000 {
            // One in ten leaves.
            for _ in 0..10 {
                queue.enqueue(now, raw(1, tcp(0))).lost();
                now += spacing;
            }
            queue.dequeue(now);
        }
        queue.backlog().packets
    };
    let spacing = Duration::from_millis(1);
    assert_eq!(holds(Buffer::Bytes(Bytes::new(30_000)), spacing), 19);
    // Half of 50 Mbit/s for 24 ms are 75 kB.
    assert_eq!(holds(Buffer::Bdp(Duration::from_millis(24)), spacing), 49);
    // A packet per millisecond makes 100 in 100 ms, one per 10 ms makes 10.
    let fill_rate = |most| Buffer::FillRate {
        span: Duration::from_millis(100),
        least: Bytes::new(3000),
        most: Bytes::new(most),
    };
    assert!(holds(fill_rate(1_000_000), spacing).abs_diff(100) <= 2);
    assert!(holds(fill_rate(1_000_000), Duration::from_millis(10)).abs_diff(10) <= 2);
    assert_eq!(holds(fill_rate(30_000), spacing), 19);
}

#[test]
fn configurations_that_cannot_work_are_errors() {
    let made = |config| Crq::<Raw>::new(config).map(|_| ());
    let good = quick(Sharing::Weighted);
    assert_eq!(made(good), Ok(()));
    let standard = |standard| made(CrqConfig { standard, ..good });
    let class = good.standard;
    assert_eq!(standard(ClassConfig { share: 0, ..class }), Err(CrqError::ZeroShare(Class::Standard)));
    let nothing = ClassConfig { buffer: Buffer::Packets(0), ..class };
    let error = CrqError::Buffer { class: Class::Standard, error: LimitError::NoPackets };
    assert_eq!(standard(nothing), Err(error));
    assert_eq!(
        error.to_string(),
        "the Standard queue: a limit of 0 packets would drop everything: allow at least 1 packet"
    );
    let fill_rate = Buffer::FillRate { span: Duration::ZERO, least: Bytes::ZERO, most: Bytes::kb(10) };
    let error = standard(ClassConfig { buffer: fill_rate, ..class });
    assert_eq!(error, Err(CrqError::FillRate(Class::Standard)));
    for least in [0, 1513] {
        let least = Bytes::new(least);
        let fill_rate = Buffer::FillRate { span: Duration::from_millis(1), least, most: Bytes::kb(10) };
        let error = CrqError::FillRateLeast { class: Class::Standard, least, mtu: Bytes::new(1514) };
        assert_eq!(standard(ClassConfig { buffer: fill_rate, ..class }), Err(error));
    }
    let greedy = Sharing::Strict { least: 1000 };
    assert_eq!(made(CrqConfig { sharing: greedy, ..good }), Err(CrqError::Least(1000)));
    let bdp = ClassConfig { buffer: Buffer::Bdp(Duration::from_millis(1)), ..class };
    let unlimited = CrqConfig { rate: Rate::ZERO, standard: bdp, ..good };
    assert_eq!(made(unlimited), Err(CrqError::ZeroRate(Class::Standard)));
    let burst = Sharing::Split { burst: Bytes::new(100) };
    assert!(matches!(made(CrqConfig { sharing: burst, ..good }), Err(CrqError::Burst { .. })));
    let flows = FlowTableConfig { flows: 0, ..good.flows };
    assert!(matches!(made(CrqConfig { flows, ..good }), Err(CrqError::Flows(_))));
    let trap = TrapConfig { threshold: 0, ..good.trap };
    assert!(matches!(made(CrqConfig { trap, ..good }), Err(CrqError::Trap(_))));
    let small = ClassConfig { aqm: AQMS[1], buffer: Buffer::Bytes(Bytes::new(100)), share: 1 };
    assert!(matches!(standard(small), Err(CrqError::Codel { class: Class::Standard, .. })));
    let fair =
        Aqm::FqCodel { target: Duration::ZERO, interval: Duration::from_millis(100), ecn: false, flows: 8 };
    let fair = standard(ClassConfig { aqm: fair, ..class });
    assert!(matches!(fair, Err(CrqError::FqCodel { class: Class::Standard, .. })));
    let split = CrqConfig { sharing: Sharing::Split { burst: good.mtu }, ..good };
    assert_eq!(made(split), Ok(()));
    let young = Some(place(500, 10_000));
    assert_eq!(made(CrqConfig { young, ..split }), Err(CrqError::YoungSplit));
    assert_eq!(made(CrqConfig { young: Some(place(1000, 1)), ..good }), Err(CrqError::YoungMost(1000)));
    let nothing = YoungConfig { buffer: Buffer::Packets(0), ..place(500, 10_000) };
    let error = CrqError::Buffer { class: Class::Young, error: LimitError::NoPackets };
    assert_eq!(made(CrqConfig { young: Some(nothing), ..good }), Err(error));
}

/// A place for young flows: so many thousandths of the link, and this allowance.
fn place(most: u16, allowance: u64) -> YoungConfig {
    YoungConfig {
        aqm: Aqm::DropTail,
        buffer: Buffer::Packets(1000),
        most,
        allowance: Bytes::new(allowance),
        ..YoungConfig::new(Duration::from_millis(20), false)
    }
}

fn with_place(most: u16, allowance: u64) -> Crq<Raw> {
    Crq::new(CrqConfig { young: Some(place(most, allowance)), ..quick(Sharing::Weighted) }).unwrap()
}

fn plain_udp() -> Transport {
    Transport::Udp { payload: 1472, quic: None }
}

fn enqueue(queue: &mut Crq<Raw>, flow: u64, transport: Transport, packets: usize) {
    for _ in 0..packets {
        queue.enqueue(Time::ZERO, raw(flow, transport)).lost();
    }
}

fn served(queue: &mut Crq<Raw>, packets: usize) -> Vec<u64> {
    (0..packets).filter_map(|_| queue.dequeue(Time::ZERO)).map(|packet| packet.flow.get()).collect()
}

#[test]
fn a_new_flow_passes_a_flood_until_its_allowance_is_spent() {
    let mut queue = with_place(999, 15_000);
    // The flood has the place for its first ten packets only.
    enqueue(&mut queue, 9, plain_udp(), 100);
    assert_eq!(queue.class(Class::Young).unwrap().backlog.packets, 10);
    // One of the others follows for the thousandth that they are owed.
    assert_eq!(served(&mut queue, 11), [9; 11]);
    for (flow, transport) in [(1, tcp(0)), (2, plain_udp()), (3, Transport::Opaque), (4, spinning(true))] {
        enqueue(&mut queue, flow, transport, 1);
        assert_eq!(served(&mut queue, 2), [flow, 9], "{transport:?}");
    }
    enqueue(&mut queue, 1, tcp(1000), 12);
    // Nine more packets of flow 1 are young; three wait behind the flood.
    assert_eq!(served(&mut queue, 10), [1, 9, 1, 1, 1, 1, 1, 1, 1, 1]);
    let report = queue.flow(FlowKey::new(1)).unwrap();
    assert_eq!((report.class, report.changes), (Class::Standard, 1));
    assert_eq!(queue.stats().outgrown.packets, 90 + 3);
    let rest = served(&mut queue, 1000);
    assert_eq!(rest[rest.len() - 4..], [9, 1, 1, 1]);
}

#[test]
fn without_the_place_new_flows_begin_behind_the_flood() {
    let mut queue = Crq::new(quick(Sharing::Weighted)).unwrap();
    enqueue(&mut queue, 9, plain_udp(), 100);
    enqueue(&mut queue, 1, tcp(0), 1);
    assert_eq!(served(&mut queue, 100), [9; 100]);
    assert_eq!((queue.class(Class::Young), queue.stats().outgrown.packets), (None, 0));
}

#[test]
fn many_small_flows_get_their_part_of_the_link_and_no_more() {
    for most in [250, 500, 750] {
        for sharing in [Sharing::Weighted, Sharing::Strict { least: 50 }] {
            let config = CrqConfig { young: Some(place(most, 1500)), ..quick(sharing) };
            let mut queue = Crq::new(config).unwrap();
            make_responsive(&mut queue, 1);
            enqueue(&mut queue, 9, plain_udp(), 900);
            enqueue(&mut queue, 1, spinning(true), 900);
            for flow in 100..1100 {
                enqueue(&mut queue, flow, plain_udp(), 1);
            }
            let young = served(&mut queue, 1000).into_iter().filter(|&flow| flow >= 100).count();
            assert!(young.abs_diff(usize::from(most)) <= 3, "{young} of 1000, {sharing:?}");
        }
    }
}

#[test]
fn an_idle_place_earns_no_credit() {
    let mut queue = with_place(500, 1500);
    enqueue(&mut queue, 9, plain_udp(), 300);
    assert_eq!(served(&mut queue, 200), [9; 200]);
    for flow in 100..200 {
        enqueue(&mut queue, flow, plain_udp(), 1);
    }
    let young = served(&mut queue, 20).into_iter().filter(|&flow| flow >= 100).count();
    assert!((10..=11).contains(&young), "{young}");
}

#[test]
fn young_flows_have_the_whole_link_while_nobody_else_waits() {
    let mut queue = with_place(500, 1500);
    for flow in 100..200 {
        enqueue(&mut queue, flow, plain_udp(), 1);
    }
    assert_eq!(served(&mut queue, 50), (100..150).collect::<Vec<_>>());
    // That was at nobody's expense, so it is not held against those that follow.
    enqueue(&mut queue, 9, plain_udp(), 1);
    assert_eq!(served(&mut queue, 1), [150]);
}

/// Verdicts are for flows that send much. A short flow that happens to lose a packet would otherwise
/// be sent to the floods before it can answer.
#[test]
fn verdicts_count_once_the_allowance_is_spent() {
    let verdict_after = |allowance: u64, windows: [usize; 4]| {
        let mut queue = with_place(999, allowance);
        for (cycle, packets) in windows.into_iter().enumerate() {
            enqueue(&mut queue, 1, spinning(cycle % 2 == 1), packets);
            served(&mut queue, 5000);
        }
        enqueue(&mut queue, 1, spinning(false), 1);
        let report = queue.flow(FlowKey::new(1)).unwrap();
        (report.loss, report.class)
    };
    // Losses in the first cycle: 1200 of 2200 packets exceed the buffer.
    for (windows, verdict, class) in [
        ([2200, 10, 8, 8], Judgement::Responsive, Class::Responsive),
        ([2200, 2200, 2200, 2200], Judgement::Unresponsive, Class::Standard),
        ([10, 10, 10, 10], Judgement::Unclassified, Class::Standard),
    ] {
        assert_eq!(verdict_after(1500, windows), (verdict, class), "{windows:?}");
        assert_eq!(verdict_after(1 << 30, windows), (verdict, Class::Young), "{windows:?}");
    }
}

#[test]
fn flows_within_a_fair_queue_have_equal_parts_of_it() {
    let aqm = Aqm::FqCodel {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        ecn: false,
        flows: 1024,
    };
    let class = ClassConfig { aqm, buffer: Buffer::Packets(100), share: 1 };
    let queues = Queues::Two { responsive: class, admission: Admission::Loss };
    let mut queue = Crq::new(CrqConfig { standard: class, queues, ..quick(Sharing::Weighted) }).unwrap();
    enqueue(&mut queue, 9, plain_udp(), 100);
    let mut displaced = Vec::new();
    for _ in 0..20 {
        let verdict =
            queue.enqueue_with(Time::ZERO, raw(1, tcp(0)), &mut |lost| displaced.push(lost.flow.get()));
        assert_eq!(verdict.lost(), None);
    }
    // The flow with most packets makes room, and learns of it.
    assert_eq!(displaced, [9; 20]);
    assert_eq!(queue.flow(FlowKey::new(9)).unwrap().dropped, 20);
    assert_eq!(queue.class(Class::Standard).unwrap().counters.overflowed.packets, 20);
    let served = served(&mut queue, 40);
    assert_eq!(served.iter().filter(|&&flow| flow == 1).count(), 20, "{served:?}");
}
