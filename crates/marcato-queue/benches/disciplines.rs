//! Time per packet: one enqueue and one dequeue, with 100 packets waiting.
//!
//! Limits: DropTail at most 30 ns, CoDel at most 60 ns, CRQ with its traps at most 150 ns with up
//! to 10 000 flows. With 100 000 it waits for memory: reading one line of the index and one of a
//! flow at random from tables of that size takes about as long, without any work.
#![allow(missing_docs, reason = "criterion's macros expand to undocumented functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use marcato_queue::{
    Codel, CodelConfig, Crq, CrqConfig, Discipline, DropTail, DropTailConfig, FlowKey, FlowTableConfig,
    FqCodel, FqCodelConfig, Packet, Pie, PieConfig, PushOut, PushOutConfig, Red, RedConfig, RedThresholds,
    StepMark, StepMarkConfig, Strict, StrictConfig,
};
use marcato_units::{Bytes, Layer, Rate, Seed, Time};
use marcato_wire::{Ecn, IpPacket, TcpFlags, TcpSegment, TcpTimestamps, Transport};

/// Packet of the size that a simulator or an emulator queues: a few numbers and a pointer to the rest.
#[derive(Clone, Copy)]
struct Datagram {
    flow: u64,
    len: u32,
    ecn: Ecn,
    layer: Layer,
    _rest: [u64; 4],
}

impl Packet for Datagram {
    fn len(&self) -> Bytes {
        Bytes::from(self.len)
    }

    fn flow(&self) -> FlowKey {
        FlowKey::new(self.flow)
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn layer(&self) -> Layer {
        self.layer
    }
}

/// One packet arrives and one leaves every `spacing`, with 100 packets waiting.
fn turnover<D: Discipline<Datagram>>(criterion: &mut Criterion, name: &str, mut queue: D, spacing: Duration) {
    let packet = |number: u64| Datagram {
        flow: number,
        len: 1514,
        ecn: Ecn::Ect0,
        layer: if number.is_multiple_of(2) { Layer::High } else { Layer::Low },
        _rest: [number; 4],
    };
    let mut now = Time::ZERO;
    let mut number = 0;
    for _ in 0..100 {
        queue.enqueue(now, packet(number)).lost();
        number += 1;
    }
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            now += spacing;
            number += 1;
            black_box(queue.enqueue(now, black_box(packet(number))).lost());
            black_box(queue.dequeue(now))
        });
    });
}

fn disciplines(criterion: &mut Criterion) {
    // At 12 us per packet, 1 Gbit/s, 100 packets wait 1.2 ms; at 121 us they wait 12 ms, above
    // CoDel's target.
    let (fast, slow) = (Duration::from_micros(12), Duration::from_micros(121));
    let droptail = DropTail::new(DropTailConfig::default()).expect("the default works");
    turnover(criterion, "droptail", droptail, fast);
    let codel = |ecn| Codel::new(CodelConfig { ecn, ..CodelConfig::default() }).expect("the default works");
    turnover(criterion, "codel below target", codel(false), fast);
    turnover(criterion, "codel marking", codel(true), slow);
    let strict = Strict::new(StrictConfig::default()).expect("the default works");
    turnover(criterion, "strict", strict, fast);
    let low = DropTail::new(DropTailConfig::default()).expect("the default works");
    turnover(criterion, "strict codel over droptail", Strict::of(codel(true), low), fast);
    let pushout = PushOut::new(PushOutConfig::default()).expect("the default works");
    turnover(criterion, "pushout", pushout, fast);
    let boxed: Box<dyn Discipline<Datagram>> = Box::new(codel(false));
    turnover(criterion, "codel behind dyn", boxed, fast);
    let fq_codel = FqCodel::new(FqCodelConfig::default()).expect("the default works");
    turnover(criterion, "fq_codel, each packet another flow", fq_codel, fast);
    let step_mark = StepMark::new(StepMarkConfig::default()).expect("the default works");
    turnover(criterion, "step mark", step_mark, fast);
    // Between the thresholds, RED draws random numbers.
    let thresholds = RedThresholds::Packets { min_th: 50, max_th: 5000 };
    let config = RedConfig { thresholds, ecn: true, ..RedConfig::default() };
    let red = Red::new(config, Seed::new(1).stream("red")).expect("the thresholds are in order");
    turnover(criterion, "red marking", red, fast);
    let config = PieConfig { mark_ecnth: Some(PieConfig::MARK_ECNTH), ..PieConfig::default() };
    let pie = Pie::new(config, Seed::new(1).stream("pie")).expect("the default works");
    turnover(criterion, "pie below its reference", pie, fast);
}

/// Packet of one of many flows, all of which the queue assesses.
#[derive(Clone, Copy)]
struct Assessed {
    flow: FlowKey,
    ecn: Ecn,
    transport: Transport,
}

impl Packet for Assessed {
    fn len(&self) -> Bytes {
        Bytes::new(1514)
    }

    fn flow(&self) -> FlowKey {
        self.flow
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn layer(&self) -> Layer {
        Layer::High
    }

    fn reverse(&self) -> FlowKey {
        self.flow
    }

    fn transport(&self) -> Transport {
        self.transport
    }
}

/// Segment number `turn` of a flow, with timestamps, at `now`; or its acknowledgement.
#[allow(clippy::cast_possible_truncation, reason = "sequence numbers and clocks wrap")]
fn segment(now: Time, turn: u64, back: bool) -> Transport {
    let clock = (now.as_nanos() / 1_000_000) as u32;
    let seq = (turn as u32).wrapping_mul(1448);
    Transport::Tcp(TcpSegment {
        seq: if back { 1 } else { seq },
        ack: if back { seq.wrapping_add(1448) } else { 1 },
        flags: TcpFlags::ACK,
        payload: if back { 0 } else { 1448 },
        timestamps: Some(TcpTimestamps { value: clock, echo: clock }),
    })
}

fn crq(flows: u64) -> Crq<Assessed> {
    let config = CrqConfig::new(Rate::from_mbps(1000), Duration::from_millis(20), true);
    let table = FlowTableConfig { flows: 1 << 18, ..FlowTableConfig::default() };
    let mut queue = Crq::new(CrqConfig { flows: table, ..config }).expect("the default works");
    for flow in 0..flows {
        let packet =
            Assessed { flow: FlowKey::new(flow), ecn: Ecn::Ect0, transport: segment(Time::ZERO, 0, false) };
        queue.enqueue(Time::ZERO, packet).lost();
        queue.dequeue(Time::ZERO);
    }
    queue
}

/// As [`turnover`], through CRQ with traps, by number of flows, which take turns; a packet in two
/// is acknowledged, and "read" reads each of them from a frame and names its flow as well.
fn assessed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crq");
    for flows in [1u64, 100, 10_000, 100_000] {
        for observed in [false, true] {
            let mut queue = crq(flows);
            let mut now = Time::from_secs(1);
            let mut number = 0u64;
            let mut turn = |queue: &mut Crq<Assessed>| {
                now += Duration::from_micros(12);
                number += 1;
                // The processor cannot predict the order of flows.
                let flow = FlowKey::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % flows);
                let transport = segment(now, number / flows, false);
                let packet = Assessed { flow, ecn: Ecn::Ect0, transport };
                black_box(queue.enqueue(now, black_box(packet)).lost());
                if observed && number.is_multiple_of(2) {
                    let transport = segment(now, number / flows, true);
                    queue.observe(now, black_box(&Assessed { transport, ..packet }));
                }
            };
            for _ in 0..100 {
                turn(&mut queue);
            }
            let mut now = Time::from_secs(1);
            let name = if observed { "both directions" } else { "one direction" };
            group.bench_function(format!("{flows} flows, {name}"), |bencher| {
                bencher.iter(|| {
                    now += Duration::from_micros(12);
                    turn(&mut queue);
                    black_box(queue.dequeue(now))
                });
            });
        }
        let mut queue = crq(0);
        let frames = frames(flows);
        let mut now = Time::from_secs(1);
        let mut number = 0usize;
        group.bench_function(format!("{flows} flows, read"), |bencher| {
            bencher.iter(|| {
                now += Duration::from_micros(12);
                number = (number + 7919) % frames.len();
                let packet = IpPacket::parse_ethernet(black_box(&frames[number])).expect("a good frame");
                let packet = Assessed {
                    flow: FlowKey::of(&packet.flow, 7),
                    ecn: packet.ecn,
                    transport: packet.transport,
                };
                black_box(queue.enqueue(now, packet).lost());
                black_box(queue.dequeue(now))
            });
        });
    }
    group.finish();
    let frames = frames(64);
    let mut number = 0usize;
    criterion.bench_function("read an ethernet frame", |bencher| {
        bencher.iter(|| {
            number = (number + 1) % 64;
            black_box(IpPacket::parse_ethernet(black_box(&frames[number])))
        });
    });
    let packet = IpPacket::parse_ethernet(&frames[0]).expect("a good frame");
    criterion.bench_function("name a flow", |bencher| {
        bencher.iter(|| black_box(FlowKey::of(black_box(&packet.flow), 7)));
    });
}

/// Headers of one TCP segment per flow: Ethernet, IPv4, TCP with timestamps.
fn frames(flows: u64) -> Vec<Vec<u8>> {
    (0..flows)
        .map(|flow| {
            let [.., b, c, d] = flow.to_be_bytes();
            let mut frame = vec![2; 12];
            frame.extend([
                0x08, 0x00, 0x45, 0x02, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, b, c, d, 10, 0, 0, 1,
            ]);
            frame
                .extend([0x01, 0xbb, 0xc3, 0x50, 0, 0, 0, 7, 0, 0, 0, 9, 0x80, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
            frame.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
            frame
        })
        .collect()
}

criterion_group!(benches, disciplines, assessed);
criterion_main!(benches);
