//! Properties of disciplines that distinguish flows, under random operations.

use std::collections::{BTreeMap, VecDeque};

use marcato_queue::trap::{Floor, TrapConfig, TrapKind};
use marcato_queue::{
    Admission, Aqm, Backlog, Buffer, ClassConfig, CodelConfig, Crq, CrqConfig, Discipline, FlowKey,
    FlowTableConfig, FqCodel, FqCodelConfig, FqCodelError, Limit, Packet, Queues, QuicRule, Sharing, Tally,
    Verdict, YoungConfig,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};
use marcato_wire::{Ecn, QuicHeader, QuicLongType, TcpFlags, TcpSegment, Transport};
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq)]
struct Sent {
    id: u64,
    flow: u64,
    len: u64,
    ecn: Ecn,
    transport: Transport,
}

packet!(Sent, |sent| FlowKey::new(sent.flow), |sent| FlowKey::new(sent.flow));

#[derive(Clone, Debug)]
enum Operation {
    Enqueue { flow: u64, len: u64, ecn: Ecn, number: u32 },
    Observe { flow: u64, number: u32 },
    Dequeue,
    Wait(u64),
}

impl Operation {
    /// Operation on one of so many flows.
    fn modulo(&self, flows: u64) -> Self {
        match *self {
            Self::Enqueue { flow, len, ecn, number } => {
                Self::Enqueue { flow: flow % flows, len, ecn, number }
            }
            Self::Observe { flow, number } => Self::Observe { flow: flow % flows, number },
            Self::Dequeue => Self::Dequeue,
            Self::Wait(nanos) => Self::Wait(nanos),
        }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let ecn = (0u8..4).prop_map(Ecn::from_bits);
    prop_oneof![
        6 => (0u64..8, prop_oneof![40u64..3000, Just(1514)], ecn, 0u32..20)
            .prop_map(|(flow, len, ecn, number)| Operation::Enqueue { flow, len, ecn, number }),
        1 => (0u64..8, 0u32..20).prop_map(|(flow, number)| Operation::Observe { flow, number }),
        4 => Just(Operation::Dequeue),
        1 => (0u64..20_000_000).prop_map(Operation::Wait),
    ]
}

/// Even flows are TCP, odd ones spin; those above 5 are opaque.
fn transport(flow: u64, number: u32) -> Transport {
    match (flow, flow % 2) {
        (6.., _) => Transport::Opaque,
        (_, 0) => Transport::Tcp(TcpSegment {
            seq: number * 1000,
            ack: number * 1000,
            flags: TcpFlags::ACK,
            payload: 1000,
            timestamps: None,
        }),
        _ => {
            Transport::Udp { payload: 1000, quic: Some(QuicHeader::Short { fixed: true, spin: number > 10 }) }
        }
    }
}

fn aqm() -> impl Strategy<Value = Aqm> {
    prop_oneof![
        Just(Aqm::DropTail),
        (1u64..20, 1u64..100, any::<bool>()).prop_map(|(target, interval, ecn)| Aqm::Codel {
            target: Duration::from_millis(target),
            interval: Duration::from_millis(interval),
            ecn,
        }),
        (1u64..20, 1u64..100, any::<bool>(), 1u32..16).prop_map(|(target, interval, ecn, flows)| {
            Aqm::FqCodel {
                target: Duration::from_millis(target),
                interval: Duration::from_millis(interval),
                ecn,
                flows,
            }
        }),
    ]
}

fn class() -> impl Strategy<Value = ClassConfig> {
    let buffer = prop_oneof![
        (1u64..40).prop_map(Buffer::Packets),
        (1514u64..60_000).prop_map(|bytes| Buffer::Bytes(Bytes::new(bytes))),
        Just(Buffer::Bdp(Duration::from_millis(20))),
        Just(Buffer::FillRate {
            span: Duration::from_millis(5),
            least: Bytes::new(3000),
            most: Bytes::new(40_000),
        }),
    ];
    (aqm(), buffer, 1u16..10).prop_map(|(aqm, buffer, share)| ClassConfig { aqm, buffer, share })
}

fn crq() -> impl Strategy<Value = CrqConfig> {
    let admission = prop_oneof![Just(Admission::Loss), Just(Admission::Ecn), Just(Admission::Any)];
    let queues = prop_oneof![
        (class(), admission).prop_map(|(responsive, admission)| Queues::Two { responsive, admission }),
        (class(), class()).prop_map(|(loss, ecn)| Queues::Three { loss, ecn }),
    ];
    let sharing = prop_oneof![
        Just(Sharing::Weighted),
        prop_oneof![Just(0u16), 0u16..1000].prop_map(|least| Sharing::Strict { least }),
        (1514u64..10_000).prop_map(|burst| Sharing::Split { burst: Bytes::new(burst) }),
    ];
    let trap = prop_oneof![
        Just(TrapConfig::paper()),
        Just(TrapConfig::authors()),
        Just(TrapConfig { reassess: 0, ..TrapConfig::marcato() }),
    ];
    let flows = prop_oneof![Just(8u32), Just(64)];
    let young =
        prop::option::of((class(), 100u16..1000, 1514u64..20_000, 1u64..100, 1u32..20)).prop_map(|place| {
            place.map(|(class, most, allowance, mbps, accounts)| YoungConfig {
                aqm: class.aqm,
                buffer: class.buffer,
                most,
                allowance: Bytes::new(allowance),
                regain: Rate::from_mbps(mbps),
                accounts,
            })
        });
    (class(), queues, sharing, young, trap, flows).prop_map(
        |(standard, queues, sharing, young, trap, flows)| CrqConfig {
            standard,
            queues,
            sharing,
            young: young.filter(|_| !matches!(sharing, Sharing::Split { .. })),
            // Small windows count too, so that verdicts change often.
            trap: TrapConfig { floor: Floor::AtSignal(Bytes::ZERO), ..trap },
            quic: QuicRule::FirstBit,
            flows: FlowTableConfig { flows, ..FlowTableConfig::default() },
            ..CrqConfig::new(Rate::from_mbps(20), Duration::from_millis(20), true)
        },
    )
}

fn count(tally: &mut Tally, packet: &Sent) {
    tally.packets += 1;
    tally.bytes += packet.len();
}

/// Applies `operations` to `queue` and checks its invariants.
///
/// Returns the number of packets that left after a later one of their flow, and an upper bound of
/// it.
fn drive<D: Discipline<Sent>>(
    queue: &mut D,
    operations: &[Operation],
    split: bool,
    changes: impl Fn(&D, u64) -> u32,
) -> Result<(u64, u64), TestCaseError> {
    let mut now = Time::ZERO;
    let mut waiting: BTreeMap<u64, VecDeque<Sent>> = BTreeMap::new();
    let (mut enqueued, mut dequeued, mut dropped) = (Tally::default(), Tally::default(), Tally::default());
    let mut latest: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut overtaken, mut bound) = (0, 0);
    fn take(waiting: &mut BTreeMap<u64, VecDeque<Sent>>, packet: &Sent) -> Option<Sent> {
        let flow = waiting.get_mut(&packet.flow)?;
        let at = flow.iter().position(|other| other.id == packet.id)?;
        flow.remove(at)
    }
    for (id, operation) in (1u64..).zip(operations) {
        match *operation {
            Operation::Wait(nanos) => now += Duration::from_nanos(nanos),
            Operation::Observe { flow, number } => {
                queue.observe(
                    now,
                    &Sent { id: 0, flow, len: 60, ecn: Ecn::NotEct, transport: transport(flow, number) },
                );
            }
            Operation::Enqueue { flow, len, ecn, number } => {
                let packet = Sent { id, flow, len, ecn, transport: transport(flow, number) };
                count(&mut enqueued, &packet);
                let before = changes(queue, flow);
                let mut displaced = Vec::new();
                let verdict = queue.enqueue_with(now, packet.clone(), &mut |lost| displaced.push(lost));
                if changes(queue, flow) > before {
                    bound += waiting.get(&flow).map_or(0, |waiting| waiting.len() as u64);
                }
                match verdict {
                    Verdict::Queued => waiting.entry(flow).or_default().push_back(packet),
                    Verdict::Dropped(lost) => {
                        prop_assert_eq!(&lost, &packet);
                        count(&mut dropped, &lost);
                    }
                }
                for lost in displaced {
                    prop_assert_eq!(
                        take(&mut waiting, &lost),
                        Some(lost.clone()),
                        "only a packet that waited before"
                    );
                    count(&mut dropped, &lost);
                }
            }
            Operation::Dequeue => {
                let any = waiting.values().any(|flow| !flow.is_empty());
                let ready = queue.next_ready(now);
                prop_assert_eq!(ready.is_some(), any);
                let mut gone = Vec::new();
                let packet = queue.dequeue_with(now, &mut |packet| gone.push(packet));
                prop_assert_eq!(packet.is_some(), ready == Some(now), "it says when it is ready");
                prop_assert!(split || packet.is_some() == any, "work conservation");
                for lost in gone {
                    prop_assert!(take(&mut waiting, &lost).is_some());
                    count(&mut dropped, &lost);
                }
                if let Some(packet) = packet {
                    prop_assert!(take(&mut waiting, &packet).is_some());
                    count(&mut dequeued, &packet);
                    let latest = latest.entry(packet.flow).or_default();
                    // The discipline does not number opaque packets, but their flows never change
                    // the queue either.
                    overtaken += u64::from(packet.id < *latest);
                    *latest = packet.id.max(*latest);
                }
            }
        }
        let mut waits = Tally::default();
        waiting.values().flatten().for_each(|packet| count(&mut waits, packet));
        let Backlog { packets, bytes } = queue.backlog();
        prop_assert_eq!(Tally { packets, bytes }, waits);
        let counters = queue.counters();
        prop_assert_eq!(counters.enqueued, enqueued);
        prop_assert_eq!(counters.dequeued, dequeued);
        prop_assert_eq!(counters.dropped, dropped);
        prop_assert_eq!(enqueued, dequeued + dropped + waits);
    }
    Ok((overtaken, bound))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn crq_conserves_never_idles_and_reorders_only_moved_flows(
        config in crq(),
        operations in prop::collection::vec(operation(), 1..600),
    ) {
        let mut queue = Crq::new(config).unwrap();
        let split = matches!(config.sharing, Sharing::Split { .. });
        let changes = |queue: &Crq<Sent>, flow| queue.flow(FlowKey::new(flow)).map_or(0, |flow| flow.changes);
        // Opaque packets have no place in the table that would tell whether they moved.
        let of = if config.young.is_some() { 6 } else { 8 };
        let operations: Vec<_> = operations.iter().map(|operation| operation.modulo(of)).collect();
        let (overtaken, bound) = drive(&mut queue, &operations, split, changes)?;
        prop_assert_eq!(queue.stats().overtaken, overtaken);
        prop_assert!(overtaken <= bound, "{overtaken} packets, where {bound} were waiting");
        let by_flow: u64 = queue.flows().map(|flow| u64::from(flow.overtaken)).sum();
        prop_assert_eq!(by_flow, overtaken);
        let table = queue.table();
        prop_assert!(table.flows <= u64::from(config.flows.flows));
        let classes = marcato_queue::Class::ALL.iter().filter_map(|&class| queue.class(class));
        let sum = classes.fold(marcato_queue::Counters::default(), |sum, class| sum + class.counters);
        prop_assert_eq!(sum, *queue.counters());
        let stats = queue.stats();
        for tallies in [stats.by_loss, stats.by_ecn] {
            prop_assert_eq!(tallies[0] + tallies[1] + tallies[2], queue.counters().enqueued);
        }
    }

    #[test]
    fn fq_codel_conserves_never_idles_and_never_reorders_a_flow(
        limit in prop_oneof![
            (1u64..60).prop_map(Limit::Packets),
            (1514u64..60_000).prop_map(|bytes| Limit::Bytes(Bytes::new(bytes))),
        ],
        flows in 1u32..16, quantum in 1u64..4000, ecn in any::<bool>(),
        operations in prop::collection::vec(operation(), 1..600),
    ) {
        let config = FqCodelConfig {
            codel: CodelConfig { limit, ecn, interval: Duration::from_millis(20), ..CodelConfig::default() },
            flows,
            quantum: Bytes::new(quantum),
            perturbation: 1,
        };
        let mut queue = FqCodel::new(config).unwrap();
        let (overtaken, _) = drive(&mut queue, &operations, false, |_, _| 0)?;
        prop_assert_eq!(overtaken, 0);
        let backlog = queue.backlog();
        match limit {
            Limit::Packets(limit) => prop_assert!(backlog.packets <= limit),
            Limit::Bytes(limit) => prop_assert!(backlog.bytes <= limit),
        }
    }
}

fn plain(id: u64, flow: u64, len: u64) -> Sent {
    Sent { id, flow, len, ecn: Ecn::NotEct, transport: Transport::Opaque }
}

#[test]
fn fq_codel_gives_each_flow_the_same_number_of_bytes() {
    let mut queue = FqCodel::new(FqCodelConfig::default()).unwrap();
    for id in 0..4000 {
        // Flow 0 sends four times as many packets as flow 1, and flow 2 small ones.
        let (flow, len) = [(0, 1500), (0, 1500), (0, 1500), (0, 1500), (1, 1500), (2, 100)][id as usize % 6];
        queue.enqueue(Time::ZERO, plain(id, flow, len)).lost();
    }
    let mut bytes = [0; 3];
    for _ in 0..600 {
        let packet = queue.dequeue(Time::ZERO).unwrap();
        bytes[usize::try_from(packet.flow).unwrap()] += packet.len;
    }
    // Flow 2 has sent all of its 666 packets of 100 bytes; or, until then, as many bytes as the
    // others.
    assert!(bytes[0].abs_diff(bytes[1]) <= 3028, "{bytes:?}");
    assert!(bytes[2].abs_diff(bytes[0]) <= 3028, "{bytes:?}");
}

#[test]
fn in_fq_codel_a_sparse_flow_goes_first_and_the_longest_pays() {
    let codel = CodelConfig { limit: Limit::Packets(100), ..CodelConfig::default() };
    let mut queue = FqCodel::new(FqCodelConfig { codel, ..FqCodelConfig::default() }).unwrap();
    for id in 0..95 {
        assert_eq!(queue.enqueue(Time::ZERO, plain(id, 0, 1500)), Verdict::Queued);
    }
    for id in 95..100 {
        assert_eq!(queue.enqueue(Time::ZERO, plain(id, 1, 1500)), Verdict::Queued);
    }
    assert_eq!(queue.active(), 2);
    // The head of flow 0 is dropped for a packet of flow 2.
    let mut displaced = Vec::new();
    let verdict = queue.enqueue_with(Time::ZERO, plain(100, 2, 60), &mut |lost| displaced.push(lost));
    assert_eq!((verdict, displaced), (Verdict::Queued, vec![plain(0, 0, 1500)]));
    // Each flow's first turn, in order of arrival, then flow 0 again: but a new flow goes before
    // it.
    let next = |queue: &mut FqCodel<Sent>| queue.dequeue(Time::ZERO).unwrap().flow;
    assert_eq!([0; 4].map(|_: u8| next(&mut queue)), [0, 0, 1, 1]);
    assert_eq!(next(&mut queue), 2);
    queue.enqueue(Time::ZERO, plain(200, 3, 60)).lost();
    assert_eq!(next(&mut queue), 3);
}

/// RFC 8290 §4.1: drops are from the head, also in the queue of the arriving packet.
#[test]
fn a_flow_that_is_alone_in_fq_codel_loses_its_oldest_packets() {
    let codel = CodelConfig { limit: Limit::Packets(4), ..CodelConfig::default() };
    let mut queue = FqCodel::new(FqCodelConfig { codel, ..FqCodelConfig::default() }).unwrap();
    let mut displaced = Vec::new();
    for id in 0..6 {
        let verdict = queue.enqueue_with(Time::ZERO, plain(id, 0, 1500), &mut |lost| displaced.push(lost.id));
        assert_eq!(verdict, Verdict::Queued);
    }
    assert_eq!(displaced, [0, 1]);
    // After its first turn it is old, and others are new: all of them hold packets.
    for _ in 0..3 {
        queue.dequeue(Time::ZERO).unwrap();
    }
    queue.enqueue(Time::ZERO, plain(6, 1, 1500)).lost();
    assert_eq!(queue.active(), 2);
}

#[test]
fn fq_codel_counts_what_it_marks() {
    let mut queue = FqCodel::new(FqCodelConfig::default()).unwrap();
    let (mut id, mut marked) = (0, 0);
    for millisecond in 0..2000 {
        let now = Time::from_millis(millisecond);
        // Twice as many packets arrive as leave.
        for _ in 0..2 {
            queue.enqueue(now, Sent { ecn: Ecn::Ect0, ..plain(id, id % 3, 1500) }).lost();
            id += 1;
        }
        marked += u64::from(queue.dequeue(now).unwrap().ecn == Ecn::Ce);
    }
    assert!(marked > 20 && marked < 1000, "{marked}");
    assert_eq!(queue.counters().marked.packets, marked);
}

fn judged(trap: TrapConfig) -> Crq<Sent> {
    let config = CrqConfig::new(Rate::from_mbps(10), Duration::from_millis(20), true);
    Crq::new(CrqConfig { trap, ..config }).unwrap()
}

fn segment(flags: TcpFlags) -> Transport {
    Transport::Tcp(TcpSegment { seq: 1, ack: 1, flags, payload: 0, timestamps: None })
}

fn datagram(header: QuicHeader) -> Transport {
    Transport::Udp { payload: 1200, quic: Some(header) }
}

const HELLO: QuicHeader = QuicHeader::Long { version: 1, kind: Some(QuicLongType::Initial) };
const DRAFT: QuicHeader = QuicHeader::Long { version: 0xff00_001d, kind: None };
const SHORT: QuicHeader = QuicHeader::Short { fixed: true, spin: false };

#[test]
fn crq_enters_a_flow_only_when_the_other_host_opens_it() {
    let mut queue = judged(TrapConfig::marcato());
    let seen = [
        (segment(TcpFlags::SYN), true),
        (segment(TcpFlags::SYN.with(TcpFlags::ACK)), false),
        (segment(TcpFlags::ACK), false),
        (datagram(HELLO), true),
        (datagram(DRAFT), false),
        (datagram(SHORT), false),
        (Transport::Udp { payload: 100, quic: None }, false),
        (Transport::Opaque, false),
    ];
    for (flow, (transport, known)) in (1..).zip(seen) {
        queue.observe(Time::ZERO, &Sent { transport, ..plain(0, flow, 100) });
        let kind = queue.flow(FlowKey::new(flow)).map(|report| report.kind);
        let tcp = matches!(transport, Transport::Tcp(_)).then_some(TrapKind::Tcp);
        assert_eq!(kind, known.then_some(tcp), "{transport:?}");
    }
}

#[test]
fn crq_recognises_a_flow_as_quic_once_both_hosts_greeted() {
    let kind = |observed: &[QuicHeader]| {
        let mut queue = judged(TrapConfig::marcato());
        for &header in observed {
            queue.observe(Time::ZERO, &Sent { transport: datagram(header), ..plain(0, 1, 1200) });
        }
        for (id, header) in (0..).zip([HELLO, SHORT]) {
            queue.enqueue(Time::ZERO, Sent { transport: datagram(header), ..plain(id, 1, 1200) }).lost();
        }
        queue.flow(FlowKey::new(1)).unwrap().kind
    };
    assert_eq!(kind(&[]), None);
    assert_eq!(kind(&[HELLO]), Some(TrapKind::Spin));
    assert_eq!(kind(&[HELLO, DRAFT, SHORT]), Some(TrapKind::Spin));
    assert_eq!(kind(&[DRAFT, SHORT]), None);
}

#[test]
fn packets_of_the_other_host_make_no_tcp_of_a_known_flow() {
    let mut queue = judged(TrapConfig::marcato());
    let transport = Transport::Udp { payload: 1200, quic: None };
    queue.enqueue(Time::ZERO, Sent { transport, ..plain(0, 1, 1200) }).lost();
    queue.observe(Time::ZERO, &Sent { transport: segment(TcpFlags::ACK), ..plain(0, 1, 40) });
    assert_eq!(queue.flow(FlowKey::new(1)).unwrap().kind, None);
}

/// CRQ's prototype counts the marks of other routers as its own.
#[test]
fn crq_counts_drops_and_marks_of_each_flow() {
    for (trap, marks) in [(TrapConfig::marcato(), 0), (TrapConfig::authors(), 2)] {
        let mut queue = judged(trap);
        let of = |id, flow| Sent { transport: segment(TcpFlags::ACK), ..plain(id, flow, 1200) };
        for id in 0..2 {
            queue.enqueue(Time::ZERO, Sent { ecn: Ecn::Ce, ..of(id, 1) }).lost();
            queue.dequeue(Time::ZERO).unwrap();
        }
        assert_eq!(queue.flow(FlowKey::new(1)).unwrap().marked, marks);
        // A BDP of 10 Mbit/s and 20 ms, shared by two queues, holds ten of these packets.
        let refused = (0..13).filter(|&id| queue.enqueue(Time::ZERO, of(id, 2)).lost().is_some());
        assert_eq!(refused.count(), 3);
        assert_eq!(queue.flow(FlowKey::new(2)).unwrap().dropped, 3);
    }
}

/// A thousand flows in 1024 queues: 1024 (1 - 1/e^(1000/1024)) = 638 have one or more, if each may
/// be in any.
#[test]
fn fq_codel_scatters_flows_with_similar_keys() {
    for perturbation in [0, 1, u64::MAX] {
        for shift in [0, 1, 32] {
            let mut queue = FqCodel::new(FqCodelConfig { perturbation, ..FqCodelConfig::default() }).unwrap();
            for flow in 0..1000 {
                queue.enqueue(Time::ZERO, plain(flow, flow << shift, 100)).lost();
            }
            assert!((580..=740).contains(&queue.active()), "{} at {perturbation} << {shift}", queue.active());
        }
    }
}

/// RFC 8290 §4.2: a new queue that has become empty goes to the end of the old ones. Otherwise a
/// flow that sends as soon as its queue is empty would always be new.
#[test]
fn a_flow_whose_queue_empties_repeatedly_is_not_always_new() {
    let mut queue = FqCodel::new(FqCodelConfig::default()).unwrap();
    for id in 0..10_000 {
        queue.enqueue(Time::ZERO, plain(id, id % 10, 1500)).lost();
    }
    let mut own = 0;
    for turn in 0..1100 {
        let packet = queue.dequeue(Time::ZERO).unwrap();
        if packet.flow == 99 {
            own += 1;
        } else if turn > 100 && queue.backlog().packets == 10_000 - turn - 1 + own {
            // Another flow was served, so the queue of flow 99 was found empty.
            queue.enqueue(Time::ZERO, plain(20_000 + turn, 99, 1500)).lost();
        }
    }
    // One packet in a round of eleven, and one more as a new flow every other time, but not every
    // other packet.
    assert!((50..=200).contains(&own), "{own} of 1000 packets");
}

#[test]
fn with_packets_of_a_quantum_queues_send_one_in_turn() {
    let config = FqCodelConfig { quantum: Bytes::new(1500), ..FqCodelConfig::default() };
    let mut queue = FqCodel::new(config).unwrap();
    for id in 0..30 {
        queue.enqueue(Time::ZERO, plain(id, id / 10, 1500)).lost();
    }
    let order: Vec<u64> = (0..30).map(|_| queue.dequeue(Time::ZERO).unwrap().flow).collect();
    assert_eq!(order, [0, 1, 2].repeat(10));
}

/// RFC 8290 §4.2: a queue that becomes active gets one quantum, whatever it has left from before. Otherwise a
/// flow that sends little could save for a burst.
#[test]
fn a_queue_that_was_empty_has_the_credit_of_one_quantum() {
    for small in [100, 500, 1499] {
        let config = FqCodelConfig { quantum: Bytes::new(1500), ..FqCodelConfig::default() };
        let mut queue = FqCodel::new(config).unwrap();
        for id in 0..20 {
            queue.enqueue(Time::ZERO, plain(id, 1, small)).lost();
            assert_eq!(queue.dequeue(Time::ZERO).unwrap().flow, 1);
            assert_eq!((queue.dequeue(Time::ZERO), queue.active()), (None, 0));
        }
        for id in 0..60 {
            queue.enqueue(Time::ZERO, plain(100 + id, 1 + id / 30, 500)).lost();
        }
        let order: Vec<u64> = (0..9).map(|_| queue.dequeue(Time::ZERO).unwrap().flow).collect();
        assert_eq!(order, [1, 1, 1, 2, 2, 2, 1, 1, 1], "after packets of {small} bytes");
    }
}

proptest! {
    /// Deficit round robin: a queue is never ahead of another by more than a quantum and a packet
    /// of each.
    #[test]
    fn fq_codel_shares_by_bytes_for_any_packet_sizes(
        quantum in 300u64..4000, lens in prop::collection::vec(40u64..3000, 2..6),
    ) {
        let config = FqCodelConfig { quantum: Bytes::new(quantum), ..FqCodelConfig::default() };
        let mut queue = FqCodel::new(config).unwrap();
        let flows = lens.len() as u64;
        for (flow, len) in (0..).zip(&lens) {
            for id in 0..120_000 / len {
                queue.enqueue(Time::ZERO, plain(id * flows + flow, flow, *len)).lost();
            }
        }
        let mut bytes = vec![0; lens.len()];
        // While all queues hold packets.
        while bytes.iter().all(|&sent| sent < 110_000) {
            let packet = queue.dequeue(Time::ZERO).unwrap();
            bytes[packet.flow as usize] += packet.len;
            let (most, least) = (bytes.iter().max().unwrap(), bytes.iter().min().unwrap());
            let longest = lens.iter().max().unwrap();
            prop_assert!(most - least <= quantum + 2 * longest, "{bytes:?}");
        }
    }
}

/// FQ-CoDel with a limit in bytes, in which flow 0 has packets of `len` bytes up to the limit.
fn flooded(limit: u64, len: u64) -> FqCodel<Sent> {
    let codel = CodelConfig { limit: Limit::Bytes(Bytes::new(limit)), ..CodelConfig::default() };
    let mut queue = FqCodel::new(FqCodelConfig { codel, ..FqCodelConfig::default() }).unwrap();
    for id in 0..limit / len {
        assert_eq!(queue.enqueue(Time::ZERO, plain(id, 0, len)), Verdict::Queued);
    }
    queue
}

#[test]
fn a_flood_of_small_packets_does_not_starve_large_sparse_ones() {
    let mut queue = flooded(60_000, 60);
    let mut now = Time::ZERO;
    let (mut displaced, mut left) = (Vec::new(), 0);
    for turn in 0..149 {
        // The flood fills all room; now and then the other flow sends.
        for id in 0..100 {
            queue.enqueue_with(now, plain(10_000 + id, 0, 60), &mut |lost| displaced.push(lost)).lost();
        }
        let sparse = plain(20_000 + turn, 1, 1500);
        assert_eq!(queue.enqueue_with(now, sparse, &mut |lost| displaced.push(lost)), Verdict::Queued);
        assert!(queue.backlog().bytes <= Bytes::new(60_000));
        for _ in 0..60 {
            left += u64::from(queue.dequeue(now).is_some_and(|packet| packet.flow == 1));
            now += Duration::from_micros(10);
        }
    }
    assert_eq!(left, 149, "each of the sparse flow's packets leaves in its turn");
    assert!(displaced.iter().all(|lost| lost.flow == 0), "only the flood pays");
}

#[test]
fn a_queue_that_has_paid_is_no_longer_the_longest() {
    let codel = CodelConfig { limit: Limit::Bytes(Bytes::new(11_500)), ..CodelConfig::default() };
    // The keys of flows decide which of them are compared with each other.
    for key in 0..20 {
        let mut queue = FqCodel::new(FqCodelConfig { codel, ..FqCodelConfig::default() }).unwrap();
        let [long, shorter, new] = [key, key + 100, key + 200];
        let packets = [(long, 6, 1000), (shorter, 5, 1100), (new, 2, 1000)];
        let mut paid = Vec::new();
        for (flow, count, len) in packets {
            for _ in 0..count {
                let verdict =
                    queue.enqueue_with(Time::ZERO, plain(0, flow, len), &mut |sent| paid.push(sent.flow));
                assert_eq!(verdict, Verdict::Queued);
            }
        }
        assert_eq!(paid, [long, shorter], "key {key}");
    }
}

#[test]
fn the_longest_queue_pays_even_if_the_packet_is_its_own() {
    // 20 flows have 100 bytes each; with 2000 bytes the new flow would have most.
    let codel = CodelConfig { limit: Limit::Bytes(Bytes::new(3000)), ..CodelConfig::default() };
    let mut queue = FqCodel::new(FqCodelConfig { codel, ..FqCodelConfig::default() }).unwrap();
    for flow in 0..20 {
        assert_eq!(queue.enqueue(Time::ZERO, plain(flow, flow, 100)), Verdict::Queued);
    }
    let large = plain(99, 99, 2000);
    let mut displaced = 0;
    let verdict = queue.enqueue_with(Time::ZERO, large.clone(), &mut |_| displaced += 1);
    assert_eq!((verdict, displaced), (Verdict::Dropped(large), 0));
    assert_eq!(queue.active(), 20);
    assert_eq!(queue.backlog().packets, 20);
    // A packet beyond the limit displaces nothing.
    let huge = plain(100, 0, 3001);
    let verdict = queue.enqueue_with(Time::ZERO, huge.clone(), &mut |_| displaced += 1);
    assert_eq!((verdict, displaced), (Verdict::Dropped(huge), 0));
}

/// RFC 8290 §4.1, after any arrivals and departures.
#[test]
fn the_queue_with_most_bytes_pays_for_each_overflow() {
    // CoDel drops nothing in a moment, and each flow has a queue of its own.
    let codel = CodelConfig { limit: Limit::Packets(40), ..CodelConfig::default() };
    let config = FqCodelConfig { codel, flows: 65_536, ..FqCodelConfig::default() };
    let mut queue = FqCodel::new(config).unwrap();
    let mut random = Seed::new(1).stream("operations");
    let (mut bytes, mut displaced) = ([0u64; 8], 0);
    for id in 0..20_000 {
        let (flow, len) = (random.below(8), random.below(1400) + 100);
        bytes[flow as usize] += len;
        let mut dropped: Vec<Sent> = Vec::new();
        let refused =
            queue.enqueue_with(Time::ZERO, plain(id, flow, len), &mut |packet| dropped.push(packet));
        dropped.extend(refused.lost());
        for packet in dropped {
            assert_eq!(bytes[packet.flow as usize], *bytes.iter().max().unwrap());
            bytes[packet.flow as usize] -= packet.len;
            displaced += 1;
        }
        while queue.backlog().packets > 20 && random.chance(0.3) {
            let packet = queue.dequeue(Time::ZERO).unwrap();
            bytes[packet.flow as usize] -= packet.len;
        }
    }
    assert!(displaced > 5000, "{displaced}");
}

#[test]
fn one_arrival_costs_fq_codel_a_bounded_number_of_packets() {
    // An IP packet of 64 KiB displaces packets of 40 bytes.
    let mut queue = flooded(200_000, 40);
    let mut displaced = 0;
    let verdict = queue.enqueue_with(Time::ZERO, plain(99_999, 1, 65_535), &mut |_| displaced += 1);
    assert_eq!((verdict, displaced), (Verdict::Queued, 1639));
    // One call drops 2048 packets at most.
    let mut queue = flooded(10_000, 1);
    let (large, mut displaced) = (plain(99_999, 1, 5000), 0);
    let verdict = queue.enqueue_with(Time::ZERO, large.clone(), &mut |_| displaced += 1);
    assert_eq!((verdict, displaced), (Verdict::Dropped(large), 2048));
    assert_eq!(queue.backlog().packets, 10_000 - 2048);
}

#[test]
fn fq_codel_configurations_that_cannot_work_are_errors() {
    let made = |config| FqCodel::<Sent>::new(config).map(|_| ());
    let good = FqCodelConfig::default();
    assert_eq!(made(good), Ok(()));
    assert_eq!(made(FqCodelConfig { flows: 0, ..good }), Err(FqCodelError::Flows(0)));
    assert_eq!(made(FqCodelConfig { flows: 100_000, ..good }), Err(FqCodelError::Flows(100_000)));
    assert_eq!(made(FqCodelConfig { quantum: Bytes::ZERO, ..good }), Err(FqCodelError::ZeroQuantum));
    let codel = CodelConfig { limit: Limit::Packets(0), ..good.codel };
    assert!(matches!(made(FqCodelConfig { codel, ..good }), Err(FqCodelError::Codel(_))));
}
