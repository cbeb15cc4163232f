//! What a packet costs where many flows share a link: CUBIC at 1 Gbit/s and a round trip of 50 ms.
//!
//! To hold: 100 flows for 10 s in at most 2 CPU seconds, and a cost per packet that grows with the flows at most as
//! their logarithm, as long as their state fits into the cache (`docs/benches.md`). Elements are data packets that came out of the bottleneck; the reciprocal is the time per packet.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::time::{Duration as Wall, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use marcato_sim::{LinkId, Network};
use marcato_units::{Duration, Time};

mod worlds;

/// From the first SYN to 10 s: the slow start of each flow is in it.
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

/// Moves `net` on until `n` more packets have come out of `link`, and says how long that took.
fn advance(net: &mut Network, link: LinkId, n: u64) -> Wall {
    let delivered = |net: &Network| net.link_counters(link).delivered;
    let target = delivered(net) + n;
    let begun = Instant::now();
    while delivered(net) < target {
        net.run_until(net.now() + Duration::from_millis(5));
    }
    // The last step overshoots: charge what was asked for.
    let spent = begun.elapsed();
    let done = delivered(net) + n - target;
    black_box(spent.mul_f64(n as f64 / done as f64))
}

/// After 5 s, when all flows have found their windows.
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
