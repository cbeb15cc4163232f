//! Cost of a packet with many flows on a link: CUBIC at 1 Gbit/s and a round trip of 50 ms.
//!
//! Goals: 100 flows for 10 s in at most 2 CPU seconds, and a cost per packet that grows at most
//! with the logarithm of the flows, while their state fits the cache (`docs/benches.md`). Elements
//! are data packets that leave the bottleneck; the reciprocal is the time per packet.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::time::{Duration as Wall, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use marcato_sim::{LinkId, Network};
use marcato_units::{Duration, Time};

mod worlds;

/// Measures from the first SYN to 10 s, slow start included.
fn from_the_beginning(criterion: &mut Criterion) {
    let run = || {
        let (mut net, link) = worlds::cubic(100);
        net.run_until(Time::from_secs(10));
        net.link_counters(link).delivered
    };
    let mut group = criterion.benchmark_group("100 cubic flows");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).measurement_time(Wall::from_secs(8));
    group.throughput(Throughput::Elements(run()));
    group.bench_function("10 s", |bencher| bencher.iter(run));
    group.finish();
}

/// Runs `net` until `n` more packets have left `link`, and returns the wall-clock time for `n`.
fn advance(net: &mut Network, link: LinkId, n: u64) -> Wall {
    let delivered = |net: &Network| net.link_counters(link).delivered;
    let target = delivered(net) + n;
    let begun = Instant::now();
    while delivered(net) < target {
        net.run_until(net.now() + Duration::from_millis(5));
    }
    // The last step overshoots, so the time is scaled to `n`.
    let spent = begun.elapsed();
    let done = delivered(net) + n - target;
    black_box(spent.mul_f64(n as f64 / done as f64))
}

/// Measures after 5 s, when all flows have found their windows.
fn flows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packets by flows");
    group.throughput(Throughput::Elements(1));
    for flows in [1u32, 10, 100, 1000] {
        let (mut net, link) = worlds::cubic(flows);
        net.run_until(Time::from_secs(5));
        group.bench_with_input(BenchmarkId::from_parameter(flows), &flows, |bencher, _| {
            bencher.iter_custom(|n| advance(&mut net, link, n));
        });
    }
    group.finish();
}

criterion_group!(benches, from_the_beginning, flows);
criterion_main!(benches);
