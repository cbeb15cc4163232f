//! Time of the Conductor's decisions.
//!
//! `cargo bench -p marcato-sched`; limit: a grant at 5 levels and 10 000 queued messages takes at
//! most 50 ns.
#![allow(missing_docs, reason = "criterion's macros generate undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use marcato_sched::conductor::{Conductor, Config, Debt, Message};
use marcato_units::{Bytes, Priority, Time};

const NOW: Time = Time::ZERO;
const CHUNK: Bytes = Bytes::kb(1);

fn filled(messages: usize, levels: usize, len: Bytes) -> Conductor {
    let config = Config { chunk: CHUNK, max_queued: Bytes::MAX, ..Config::with_debt(Debt::authors()) };
    let mut conductor = Conductor::new(config).unwrap();
    for i in 0..messages {
        conductor.offer(NOW, Message::new(len, Priority::ALL[i % levels])).unwrap();
    }
    conductor
}

fn conductor(c: &mut Criterion) {
    for levels in [1, 5] {
        let mut group = c.benchmark_group(format!("grant/{levels} busy levels"));
        for messages in [1, 100, 10_000] {
            // Messages that never end: the decision alone.
            let mut conductor = filled(messages, levels, Bytes::new(1 << 40));
            group.bench_function(BenchmarkId::new("long messages", messages), |b| {
                b.iter(|| conductor.grant(black_box(NOW), black_box(CHUNK)));
            });
        }
        group.finish();
    }

    // Messages of two chunks, each replaced when it ends: lists, slots and offers take part.
    let mut group = c.benchmark_group("two grants and an offer/5 busy levels");
    for messages in [5, 100, 10_000] {
        let mut conductor = filled(messages, 5, Bytes::kb(2));
        group.bench_function(BenchmarkId::new("queued", messages), |b| {
            b.iter(|| {
                for _ in 0..2 {
                    let grant = conductor.grant(black_box(NOW), black_box(CHUNK)).unwrap();
                    if grant.fin {
                        conductor.offer(NOW, Message::new(Bytes::kb(2), grant.priority)).unwrap();
                    }
                }
            });
        });
    }
    group.finish();

    let mut refusing = filled(10_000, 5, Bytes::new(1 << 40));
    c.bench_function("grant and refuse half/10000 queued", |b| {
        b.iter(|| {
            let grant = refusing.grant(black_box(NOW), black_box(CHUNK)).unwrap();
            refusing.refuse(grant, black_box(Bytes::new(500)))
        });
    });

    c.bench_function("offer/10000 into an empty store", |b| {
        b.iter_batched(|| (), |()| filled(10_000, 5, CHUNK), BatchSize::PerIteration);
    });
    let mut steady = filled(10_000, 5, CHUNK);
    c.bench_function("offer and cancel/10000 queued", |b| {
        b.iter(|| {
            let id = steady.offer(NOW, black_box(Message::new(CHUNK, Priority::P2))).unwrap();
            steady.cancel(id)
        });
    });
}

criterion_group!(benches, conductor);
criterion_main!(benches);
