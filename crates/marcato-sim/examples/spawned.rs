//! Short flows at 1250 per second on a link of 250 Mbit/s and 40 ms one way, as in PLT's figure 9.
//! Sizes are Pareto with a mean of 25 packets of 1000 bytes, cut at 10^5 packets.
//!
//! `cargo run --release -p marcato-sim --example spawned [seconds] [flows per second] [shape]`
//! prints the results; run it under `/usr/bin/time -v` for CPU seconds and memory.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{
    DelayedAck, Distribution, FlowArrivals, FlowProcess, FlowRecord, LinkConfig, Network, TcpConfig,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().map_or(Ok(330), |s| s.parse())?;
    let per_second: f64 = args.next().map_or(Ok(1250.0), |s| s.parse())?;
    let shape: f64 = args.next().map_or(Ok(1.5), |s| s.parse())?;

    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(2500) })?;
    let link = || LinkConfig::new(Rate::from_mbps(250), Duration::from_millis(40));
    let (bottleneck, _) = net.link(client, server, link().queue(queue), link());
    // 1000-byte packets: 40 bytes of headers without timestamps.
    let config =
        TcpConfig { mss: 960, timestamps: false, delayed_ack: DelayedAck::NONE, ..TcpConfig::default() };
    let sizes = Distribution::truncated_pareto(shape, Bytes::kb(24), Bytes::kb(96_000))?;
    let flows = FlowProcess::new(client, server, config, sizes, FlowArrivals::PerSecond(per_second));
    let process = net.spawn(FlowProcess { most_at_once: 100_000, ..flows })?;
    for second in (0..=seconds).step_by(30).chain([seconds]) {
        net.run_until(Time::from_secs(second));
        let stats = net.process_stats(process);
        println!(
            "{second:>4} s: {} spawned, {} completed, {} open, {} slots, {} events",
            stats.spawned,
            stats.completed,
            stats.open,
            net.flow_slots(),
            net.events()
        );
    }

    let stats = net.process_stats(process);
    let link = net.link_counters(bottleneck);
    let mut times: Vec<_> = net.flow_records(process).iter().filter_map(FlowRecord::completion).collect();
    times.sort_unstable();
    println!("packets carried    {}", link.delivered);
    println!("packets dropped    {}", link.dropped);
    println!("most open          {}", stats.most_open);
    println!("completion, median {:?}", times.get(times.len() / 2));
    println!("completion, 99 %   {:?}", times.get(times.len() * 99 / 100));
    Ok(())
}
