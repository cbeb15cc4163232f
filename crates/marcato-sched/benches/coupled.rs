//! Cost of coupled mode per acknowledgement.
//!
//! `cargo bench -p marcato-sched --bench coupled`
#![allow(missing_docs, reason = "criterion's macros generate undocumented items")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use marcato_sched::coupled::{CoupledConfig, Demand, Governor, Sample};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};

const PACKET: Bytes = Bytes::new(1448);
/// Packets that a path of 100 Mbit/s and 40 ms holds, and time between two of them.
const HOLDS: u64 = 333;
const EVERY: Duration = Duration::from_micros(120);

/// A packet is acknowledged, and the next one is asked for. Each is sent when one is acknowledged, behind
/// the packets that exceed what the path holds.
fn acknowledgement(c: &mut Criterion) {
    let mut governor = Governor::new(CoupledConfig::new(PACKET));
    let demand = |outstanding| Demand { waiting: PrioritySet::one(Priority::P4), outstanding };
    let mut now = Time::from_millis(40);
    let mut sample = Sample {
        delivered: PACKET,
        in_flight: PACKET * HOLDS,
        rtt: Some(Duration::from_millis(40)),
        back: Duration::ZERO,
        lost: false,
        urgent: false,
    };
    c.bench_function("coupled/acknowledgement", |bench| {
        bench.iter(|| {
            now += EVERY;
            sample.delivered += PACKET;
            black_box(governor.sample(now, black_box(&sample)));
            sample.in_flight -= PACKET;
            while governor.room(demand(sample.in_flight), PACKET).is_whole(PACKET)
                && sample.in_flight < PACKET * (2 * HOLDS)
            {
                sample.in_flight += PACKET;
            }
            let excess = (sample.in_flight.get() / PACKET.get()).saturating_sub(HOLDS);
            sample.rtt = Some(Duration::from_millis(40) + EVERY * u32::try_from(excess).unwrap_or(u32::MAX));
        });
    });
}

criterion_group!(benches, acknowledgement);
criterion_main!(benches);
