//! What a packet costs: one enqueue and one dequeue, with 100 packets waiting.
//!
//! To hold: DropTail at most 30 ns, CoDel at most 60 ns.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use marcato_queue::{
    Codel, CodelConfig, Discipline, DropTail, DropTailConfig, FlowKey, Packet, PushOut, PushOutConfig,
    Strict, StrictConfig,
};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::Ecn;

/// As large as what a simulator or an emulator queues: a few numbers and a pointer to the rest.
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

/// A packet comes and a packet leaves, `spacing` apart, with 100 packets waiting.
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
    // At 12 us per packet, 1 Gbit/s, 100 packets wait 1.2 ms; at 121 us they wait 12 ms, above CoDel's target.
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
}

criterion_group!(benches, disciplines);
criterion_main!(benches);
