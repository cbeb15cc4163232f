//! Cost of kinds of links: UDP packets of 500 bytes at 5 Mbit/s over one link, per packet.
//!
//! Goal: a link without jitter and trace is not slowed by the support for them.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use marcato_sim::{GilbertElliott, Jitter, LinkConfig, Loss, Network, Trace, UdpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed};

fn links(criterion: &mut Criterion) {
    let ms = Duration::from_millis;
    let plain = || LinkConfig::new(Rate::from_mbps(10), ms(50));
    let bursts = GilbertElliott::bursts(0.01, 5.0).expect("a loss and a burst");
    let trace = Trace::from_millis(1..=60_000).expect("ascending times");
    let kinds = [
        ("plain", plain()),
        ("random loss", plain().loss(Loss::Random(0.01))),
        ("bursts of loss", plain().loss(Loss::GilbertElliott(bursts))),
        ("jitter", plain().jitter(Jitter::uniform(ms(20)))),
        ("normal jitter", plain().jitter(Jitter::normal(ms(20), ms(5)))),
        ("reordering jitter", plain().jitter(Jitter::uniform(ms(20)).reorder(true))),
        ("trace", LinkConfig::from_trace(trace, ms(50))),
    ];
    let mut group = criterion.benchmark_group("packets by link");
    group.throughput(Throughput::Elements(1));
    for (name, link) in kinds {
        let mut net = Network::new(Seed::new(1));
        let (a, b) = (net.node("a"), net.node("b"));
        net.link(a, b, link, plain());
        let udp = UdpFlow::new(a, b, Rate::from_mbps(5), Bytes::new(472));
        net.udp(udp).expect("a rate and a payload");
        net.run_until(net.now() + ms(1000));
        // One packet every 0.8 ms.
        group.bench_function(name, |bencher| {
            bencher.iter(|| net.run_until(net.now() + Duration::from_micros(800)));
        });
    }
    group.finish();
}

criterion_group!(benches, links);
criterion_main!(benches);
