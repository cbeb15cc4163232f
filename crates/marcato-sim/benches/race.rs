//! Cost of an event and of a packet: "the race", one Reno flow at 250 Mbit/s and 40 ms one way with
//! 1000-byte packets.
//!
//! Goals: at least 5 million events per second, and a cost per packet that does not depend on the
//! window. Elements are events in `race/events…`, datagrams in `datagrams…` and data packets in all
//! others; the reciprocal is the time per packet.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::time::{Duration as Wall, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use marcato_sim::{
    DatagramFlow, Host, HostContext, Incoming, LinkConfig, LinkId, Loss, Network, Outgoing, Route, RouteId,
    Side,
};
use marcato_units::{Duration, Rate, Seed, Time};

mod worlds;

/// [`worlds::one_flow`] after its slow start.
fn network(buffer: u64, window: u64, loss: Loss) -> (Network, LinkId) {
    let (mut net, bottleneck) = worlds::one_flow(buffer, window, loss);
    net.run_until(Time::from_secs(5));
    (net, bottleneck)
}

/// Runs `net` until `count` has grown by `n`, and returns the wall-clock time for `n`.
fn advance(net: &mut Network, n: u64, count: impl Fn(&Network) -> u64) -> Wall {
    let target = count(net) + n;
    let begun = Instant::now();
    while count(net) < target {
        net.run_until(net.now() + Duration::from_millis(5));
    }
    // The last step overshoots, so the time is scaled to `n`.
    let spent = begun.elapsed();
    let done = count(net) + n - target;
    black_box(spent.mul_f64(n as f64 / done as f64))
}

fn race(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("race");
    group.throughput(Throughput::Elements(1));
    let (mut net, _) = network(2500, u64::MAX, Loss::None);
    group.bench_function("events", |bencher| bencher.iter_custom(|n| advance(&mut net, n, Network::events)));
    for (name, loss) in [("packets", Loss::None), ("packets at loss 1e-4", Loss::Random(1e-4))] {
        let (mut net, link) = network(2500, u64::MAX, loss);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|n| advance(&mut net, n, |net| net.link_counters(link).delivered));
        });
    }
    group.finish();
}

fn windows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packets by window");
    group.throughput(Throughput::Elements(1));
    for window in [100u64, 1000, 10_000] {
        let (mut net, link) = network(20_000, window, Loss::None);
        group.bench_with_input(BenchmarkId::from_parameter(window), &window, |bencher, _| {
            bencher.iter_custom(|n| advance(&mut net, n, |net| net.link_counters(link).delivered));
        });
    }
    group.finish();
}

/// Host that answers each datagram with one of the same length on the same route; the client begins
/// with `open` on each.
struct Volley {
    open: usize,
    ready: Vec<RouteId>,
}

impl Host for Volley {
    fn start(&mut self, _now: Time, context: &HostContext<'_>) {
        let routes = context.routes();
        self.ready.extend(routes.clone().cycle().take(self.open * routes.len()));
    }

    fn datagram(&mut self, _now: Time, incoming: Incoming, _context: &HostContext<'_>) {
        self.ready.push(incoming.route);
    }

    fn transmit(&mut self, _now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        payload.resize(1200, 0);
        self.ready.pop().map(Outgoing::over)
    }
}

/// Measures the network's own cost with hosts that do almost nothing.
fn datagrams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("datagrams by route");
    group.throughput(Throughput::Elements(1));
    for routes in [1u32, 2, 16] {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(1000), Duration::from_millis(10));
        net.link(client, server, link(), link());
        let hosts = [320 / routes as usize, 0].map(|open| Volley { open, ready: Vec::new() });
        let [here, there] = hosts;
        let all = vec![Route::new(client, server); routes as usize];
        let flow = net.datagrams(DatagramFlow::new(here, there, all)).expect("a route");
        net.run_until(Time::from_secs(1));
        group.bench_with_input(BenchmarkId::from_parameter(routes), &routes, |bencher, _| {
            let arrived = |net: &Network| {
                [Side::Client, Side::Server].map(|side| net.tally(flow, side).arrived).into_iter().sum()
            };
            bencher.iter_custom(|n| advance(&mut net, n, arrived));
        });
    }
    group.finish();
}

criterion_group!(benches, race, windows, datagrams);
criterion_main!(benches);
