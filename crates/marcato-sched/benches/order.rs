//! Time of a stream order's operations, with few and with many queued streams.
//!
//! `cargo bench -p marcato-sched --bench order`; limit: no time grows faster than the logarithm of
//! the queued streams.
#![allow(missing_docs, reason = "criterion's macros generate undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use marcato_sched::order::{PriorityFifo, RoundRobin, StreamId, StreamOrder};
use marcato_units::{Bytes, Priority};

const PACKET: Bytes = Bytes::new(1200);

fn bench(c: &mut Criterion, name: &str, new: impl Fn(usize) -> Box<dyn StreamOrder>) {
    for waiting in [10, 1_000, 100_000] {
        let mut order = new(waiting + 1);
        for stream in 0..waiting {
            order.write(StreamId(stream as u64), Priority::P2, PACKET * 1_000_000).unwrap();
        }
        let mut group = c.benchmark_group(format!("order/{name}"));
        group.bench_function(BenchmarkId::new("next", waiting), |b| b.iter(|| order.next(black_box(PACKET))));
        let mut stream = waiting as u64;
        group.bench_function(BenchmarkId::new("write, lose, reset", waiting), |b| {
            b.iter(|| {
                stream += 1;
                order.write(black_box(StreamId(stream)), Priority::P4, PACKET).unwrap();
                order.lost(StreamId(stream), PACKET);
                order.reset(StreamId(stream));
            });
        });
        group.finish();
    }
}

fn orders(c: &mut Criterion) {
    bench(c, "PriorityFifo", |limit| Box::new(PriorityFifo::new(limit)));
    bench(c, "RoundRobin", |limit| Box::new(RoundRobin::new(limit)));
}

criterion_group!(benches, orders);
criterion_main!(benches);
