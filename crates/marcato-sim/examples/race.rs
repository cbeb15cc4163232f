//! "The race": one Reno flow at 250 Mbit/s, 40 ms one way, a buffer of 2500 packets, 1000-byte
//! packets, no loss.
//!
//! `cargo run --release -p marcato-sim --example race [seconds] [loss]` prints the results; run it
//! under `/usr/bin/time -v` for CPU seconds and memory.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{Bulk, DelayedAck, LinkConfig, Loss, Network, Side, TcpConfig, TcpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().map_or(Ok(100), |s| s.parse())?;
    let loss: f64 = args.next().map_or(Ok(0.0), |s| s.parse())?;

    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(2500) })?;
    let link = || LinkConfig::new(Rate::from_mbps(250), Duration::from_millis(40));
    let (bottleneck, _) = net.link(client, server, link().queue(queue).loss(Loss::Random(loss)), link());
    // 1000-byte packets: 40 bytes of headers without timestamps.
    let config = TcpConfig {
        mss: 960,
        timestamps: false,
        delayed_ack: DelayedAck::NONE,
        send_buffer: Bytes::new(1 << 30),
        receive_buffer: Bytes::new(1 << 30),
        ..TcpConfig::default()
    };
    let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless()))?;
    net.run_until(Time::from_secs(seconds));

    let received = net.reception(flow, Side::Server).bytes;
    let link = net.link_counters(bottleneck);
    println!("events             {}", net.events());
    println!("packets carried    {}", link.delivered);
    println!("packets dropped    {}", link.dropped + link.lost);
    println!("goodput            {}", Rate::from_bytes_over(received, Duration::from_secs(seconds)));
    println!("sender             {:?}", net.tcp_stats(flow, Side::Client));
    Ok(())
}
