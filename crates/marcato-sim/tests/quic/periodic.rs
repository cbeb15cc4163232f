//! Tests of `marcato-quic` sessions with periodic sources.

use std::time::Instant;

use marcato_quic::{Identity, SessionConfig, Trust};
use marcato_sim::quic::{Background, MessageCollector, Periodic, QuicHost, QuicRole, Traffic};
use marcato_sim::{DatagramFlow, FlowId, LinkConfig, Network, Route, Side};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

/// Two lanes of 20 Mbit/s, round trips of 20 and 60 ms, between a client that receives and a server
/// that sends.
fn two_lanes(seed: u64, config: &SessionConfig, traffic: Traffic) -> (Network, FlowId) {
    let mut net = Network::new(Seed::new(seed));
    let [near, far, server] = ["near", "far", "server"].map(|name| net.node(name));
    for (client, millis) in [(near, 10), (far, 30)] {
        let link = || LinkConfig::new(Rate::from_mbps(20), Duration::from_millis(millis));
        net.link(client, server, link(), link());
    }
    let identity = Identity::self_signed("server").expect("a name");
    let trust = Trust::Certificate(identity.certificate().expect("one").clone());
    let epoch = Instant::now();
    let role = QuicRole::Client { trust, name: "server".to_owned() };
    let client = QuicHost::new(role, config.clone(), epoch, MessageCollector::default());
    let host = QuicHost::new(QuicRole::Server { identity }, config.clone(), epoch, traffic);
    let routes = vec![Route::new(near, server), Route::new(far, server)];
    let flow = net.datagrams(DatagramFlow::new(client, host, routes)).expect("routes exist");
    (net, flow)
}

fn collector(net: &Network, flow: FlowId) -> &MessageCollector {
    net.host::<QuicHost>(flow, Side::Client).and_then(QuicHost::app).expect("a collector")
}

#[test]
fn background_fills_both_lanes_and_periodic_data_arrives_once() {
    let source =
        Periodic { first: Time::from_secs(1), ..Periodic::new(Duration::from_millis(50), Bytes::kb(10)) };
    let traffic = Traffic::new(vec![source]).background(Background::default()).until(Time::from_secs(9));
    let (mut net, flow) = two_lanes(1, &SessionConfig::default(), traffic);
    net.run_until(Time::from_secs(10));
    let mut sequences: Vec<u32> =
        collector(&net, flow).completions.iter().map(|done| done.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (0..160).collect::<Vec<u32>>());
    let received: Bytes = collector(&net, flow).bytes.iter().copied().sum();
    // 40 Mbit/s for 10 s are 50 MB, minus slow start, headers and queue losses.
    assert!(received > Bytes::kb(40_000), "{received}");
}
