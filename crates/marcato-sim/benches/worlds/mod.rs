//! Networks to measure, before their first event.
#![allow(dead_code, reason = "each measurement takes its part")]

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{Bulk, Congestion, DelayedAck, LinkConfig, LinkId, Loss, Network, Tcp, TcpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

/// Configuration with buffers and windows that limit a flow only to `window` packets of `mss`
/// bytes.
fn wide(mss: u32, window: u64) -> Tcp {
    Tcp {
        mss,
        send_buffer: Bytes::new(1 << 30),
        receive_buffer: Bytes::new(window.saturating_mul(mss.into()).min(1 << 30)),
        ..Tcp::with(Congestion::Reno)
    }
}

fn link(rate: Rate, delay: Duration, buffer: u64) -> LinkConfig {
    let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(buffer) }).expect("room for a packet");
    LinkConfig::new(rate, delay).queue(queue)
}

/// One Reno flow at 250 Mbit/s and 40 ms one way: 1000-byte packets without timestamps, at most
/// `window` of them in flight, each acknowledged.
pub(crate) fn one_flow(buffer: u64, window: u64, loss: Loss) -> (Network, LinkId) {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || link(Rate::from_mbps(250), Duration::from_millis(40), buffer);
    let (bottleneck, _) = net.link(client, server, link().loss(loss), link());
    let config = Tcp { timestamps: false, delayed_ack: DelayedAck::NONE, ..wide(960, window) };
    net.tcp(TcpFlow::new(client, server, config, Bulk::endless())).expect("a route");
    (net, bottleneck)
}

/// "The race": [`one_flow`] behind a buffer of 2500 packets, the product of rate and round trip.
pub(crate) fn race(loss: Loss) -> (Network, LinkId) {
    one_flow(2500, u64::MAX, loss)
}

/// CUBIC flows that begin one after the other in the first second, at 1 Gbit/s and 25 ms one way.
/// They have 1500-byte packets, delayed acknowledgements, and a buffer of 4000 packets, about the
/// product of rate and round trip.
pub(crate) fn cubic(flows: u32) -> (Network, LinkId) {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || link(Rate::from_mbps(1000), Duration::from_millis(25), 4000);
    let (bottleneck, _) = net.link(client, server, link(), link());
    let config = Tcp { congestion: Congestion::CUBIC, ..wide(1448, u64::MAX) };
    for n in 0..flows {
        let flow = TcpFlow::new(client, server, config.clone(), Bulk::endless());
        let start = Time::from_nanos(1_000_000_000 / u64::from(flows) * u64::from(n));
        net.tcp(flow.start(start)).expect("a route");
    }
    (net, bottleneck)
}

/// Flows that have not begun.
pub(crate) fn waiting(flows: u32) -> Network {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || link(Rate::from_mbps(1000), Duration::from_millis(25), 4000);
    net.link(client, server, link(), link());
    for _ in 0..flows {
        let flow = TcpFlow::new(client, server, Tcp::with(Congestion::Reno), Bulk::endless());
        net.tcp(flow.start(Time::from_secs(1_000_000))).expect("a route");
    }
    net
}
