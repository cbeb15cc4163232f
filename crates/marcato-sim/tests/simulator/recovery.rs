//! Tests of scripted losses on a link between two ends.

use marcato_queue::{
    Codel, CodelConfig, DropTail, DropTailConfig, Limit, StepMark, StepMarkConfig, StepThreshold,
};
use marcato_sim::{
    App, Bulk, Congestion, FlowId, LinkConfig, LinkId, Loss, LossDetection, Network, NodeId, Side, Sink,
    Socket, Tcp, TcpEnd, TcpFlow, TcpStats,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

/// Transfer of `segments` segments of 1000 bytes over 10 Mbit/s and 100 ms, with these packets lost
/// in each direction. The client's packets are SYN (0), acknowledgement (1), then data.
fn transfer(segments: u64, there: &[u64], back: &[u64], config: Tcp) -> (Network, FlowId) {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = |lost: &[u64]| {
        LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(50)).loss(Loss::Script(lost.to_vec()))
    };
    net.link(client, server, link(there), link(back));
    let app = Bulk::new(Bytes::new(1000 * segments));
    // The sequence numbers wrap on the way.
    let config = TcpEnd { initial_sequence: Some(u32::MAX - 10_000), ..config.into() };
    let flow = net.tcp(TcpFlow::new(client, server, config, app)).unwrap();
    net.run_until(Time::from_secs(300));
    assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::new(1000 * segments));
    for side in [Side::Client, Side::Server] {
        assert!(net.is_finished(flow, side), "{side:?}");
        assert!(net.reception(flow, side).finished_at.is_some());
    }
    (net, flow)
}

fn config() -> Tcp {
    Tcp { mss: 1000, ..Tcp::with(Congestion::Reno) }
}

fn stats(net: &Network, flow: FlowId) -> TcpStats {
    net.tcp_stats(flow, Side::Client).unwrap()
}

fn seconds(net: &Network, flow: FlowId) -> f64 {
    net.reception(flow, Side::Server).finished_at.unwrap().as_secs_f64()
}

#[test]
fn lost_handshakes_delay_by_a_second() {
    let (net, flow) = transfer(5, &[], &[], config());
    let clean = seconds(&net, flow);
    for (there, back) in [(vec![0], vec![]), (vec![], vec![0])] {
        let (net, flow) = transfer(5, &there, &back, config());
        let took = seconds(&net, flow);
        assert!((took - clean - 1.0).abs() < 0.001, "{there:?} {back:?}: {took} instead of {clean}");
    }
    // The last acknowledgement of the handshake is not needed if data follows.
    let (net, flow) = transfer(5, &[1], &[], config());
    assert!((seconds(&net, flow) - clean).abs() < 0.001);
    assert_eq!(stats(&net, flow).retransmissions, 0);
}

/// Application that records an abandoned handshake.
#[derive(Default)]
struct Hopeful {
    failed: bool,
}

impl App for Hopeful {
    fn failed(&mut self, _socket: &mut Socket<'_>) {
        self.failed = true;
    }
}

#[test]
fn an_unanswered_handshake_is_abandoned_after_seven_tries() {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(50));
    net.link(client, server, link().loss(Loss::Every(1)), link());
    let flow = net.tcp(TcpFlow::new(client, server, config(), Hopeful::default())).unwrap();
    net.run_until(Time::from_secs(1000));
    // 1 + 2 + 4 + 8 + 16 + 32 + 64 seconds.
    assert_eq!(net.reception(flow, Side::Client).failed_at, Some(Time::from_secs(127)));
    assert!(net.app::<Hopeful>(flow, Side::Client).unwrap().failed);
    assert_eq!(net.tally(flow, Side::Client).sent, 7);
}

/// At any position in the middle of a transfer, each lost segment is retransmitted once, within one
/// round trip, and no timer expires.
#[test]
fn losses_amid_a_transfer_are_repaired_by_sack_alone() {
    let (net, flow) = transfer(200, &[], &[], config());
    let clean = seconds(&net, flow);
    for lost in [vec![20], vec![20, 22, 24], vec![20, 21, 22, 23, 24], vec![14, 30, 31], (15..25).collect()] {
        let (net, flow) = transfer(200, &lost, &[], config());
        let stats = stats(&net, flow);
        assert_eq!((stats.retransmissions, stats.timeouts), (lost.len() as u64, 0), "{lost:?}");
        let took = seconds(&net, flow);
        assert!(took < clean + 1.0, "{lost:?}: {took} instead of {clean}");
    }
}

fn by_threshold() -> Tcp {
    Tcp { loss_detection: LossDetection::DupThresh, ..config() }
}

/// Under RFC 6675 a lost tail waits for the timer; a tail loss probe avoids this. RFC 8985 §7.
#[test]
fn a_lost_tail_costs_a_timeout_or_a_probe() {
    // Packet 201 is the last data segment with its FIN.
    for lost in [vec![201], vec![200, 201], vec![199, 200, 201]] {
        let (net, flow) = transfer(200, &lost, &[], by_threshold());
        let slow = stats(&net, flow);
        assert_eq!((slow.retransmissions, slow.timeouts), (lost.len() as u64, 1), "{lost:?}");
        let (net, flow) = transfer(200, &lost, &[], config());
        let quick = stats(&net, flow);
        assert_eq!((quick.retransmissions, quick.timeouts), (lost.len() as u64, 0), "{lost:?}");
        assert_eq!(quick.tail_probes, 1);
    }
}

/// A lost retransmission is found only by the timer under DupThresh; RACK finds it as soon as a
/// later segment arrives.
#[test]
fn a_lost_retransmission_costs_a_timeout_without_rack() {
    let (net, flow) = transfer(200, &[20], &[], by_threshold());
    assert_eq!(stats(&net, flow).timeouts, 0);
    // Packet number of the retransmission: the one whose loss causes a timeout.
    let brings_timeout: Vec<u64> = (21..60)
        .filter(|&again| {
            let (net, flow) = transfer(200, &[20, again], &[], by_threshold());
            stats(&net, flow).timeouts > 0
        })
        .collect();
    assert_eq!(brings_timeout.len(), 1, "{brings_timeout:?}");
    let lost = [20, brings_timeout[0]];
    let (net, flow) = transfer(200, &lost, &[], by_threshold());
    assert_eq!(stats(&net, flow).timeouts, 1);
    let slow = seconds(&net, flow);
    let (net, flow) = transfer(200, &lost, &[], config());
    assert_eq!((stats(&net, flow).retransmissions, stats(&net, flow).timeouts), (2, 0));
    assert!(seconds(&net, flow) < slow);
}

#[test]
fn lost_acknowledgements_cost_nothing_but_the_last() {
    let (net, flow) = transfer(200, &[], &[5, 8, 9, 10, 30], config());
    let stats = stats(&net, flow);
    assert_eq!((stats.retransmissions, stats.timeouts), (0, 0));
}

/// Application that does not read for ten seconds, while the acknowledgement that opens its window
/// is lost: window probes detect it.
struct Sleeper;

impl App for Sleeper {
    fn connected(&mut self, socket: &mut Socket<'_>) {
        socket.set_reading(false);
        socket.set_timer(Time::from_secs(10), 0);
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        socket.set_reading(true);
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}

#[test]
fn a_lost_window_update_is_found_out_by_probing() {
    let run = |lost: Vec<u64>| {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(50));
        let (_, back) = net.link(client, server, link(), link().loss(Loss::Script(lost)));
        let config = Tcp { receive_buffer: Bytes::kb(20), ..config() };
        let app = Bulk::new(Bytes::kb(100));
        let flow = net.tcp(TcpFlow::new(client, server, config, app).server_app(Sleeper)).unwrap();
        net.run_until(Time::from_millis(9_999));
        let before = net.link_counters(back).offered;
        assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::ZERO, "nobody has read");
        net.run_until(Time::from_secs(60));
        assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::kb(100));
        assert!(net.is_finished(flow, Side::Client) && net.is_finished(flow, Side::Server));
        (before, net.reception(flow, Side::Server).finished_at.unwrap(), stats(&net, flow))
    };
    let (before, clean, _) = run(vec![]);
    let (_, late, stats) = run(vec![before]);
    assert!(clean < Time::from_millis(10_900), "{clean:?}");
    // The interval between probes has grown to seconds by then, but not beyond ten.
    assert!(late > clean + Duration::from_millis(200) && late < clean + Duration::from_secs(10), "{late:?}");
    assert_eq!((stats.retransmissions, stats.timeouts), (0, 0));
}

fn bottleneck(ecn: bool, congestion: Congestion) -> (Network, FlowId, LinkId) {
    let mut net = Network::new(Seed::new(1));
    let (client, server): (NodeId, NodeId) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(20), Duration::from_millis(20));
    let queue = Codel::new(CodelConfig { ecn: true, ..CodelConfig::default() }).unwrap();
    let (there, _) = net.link(client, server, link().queue(queue), link());
    let config = Tcp { ecn, congestion, ..Tcp::default() };
    let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless()).server_app(Sink)).unwrap();
    net.run_until(Time::from_secs(60));
    (net, flow, there)
}

#[test]
fn with_ecn_codel_slows_a_flow_down_without_losing_anything() {
    let (net, flow, link) = bottleneck(true, Congestion::Reno);
    let stats = stats(&net, flow);
    let (queue, _) = net.queue_counters(link);
    println!(
        "CoDel with ECN: {} marks, {} reductions, {} kB",
        queue.marked.packets,
        stats.reductions,
        stats.delivered.get() / 1000
    );
    assert_eq!((stats.retransmissions, stats.timeouts), (0, 0));
    assert!(stats.reductions > 20);
    // One reduction per window, however many of its packets are marked: never more than one per
    // round trip.
    assert!(stats.reductions <= queue.marked.packets);
    assert!(stats.reductions <= 60_000 / 40);
    // 60 s at 20 Mbit/s are 150 MB.
    assert!(stats.delivered > Bytes::new(120_000_000));

    let (net, flow, _) = bottleneck(false, Congestion::Reno);
    let plain = net.tcp_stats(flow, Side::Client).unwrap();
    assert!(plain.retransmissions > 20 && plain.timeouts == 0, "{plain:?}");
}

#[test]
fn a_transfer_survives_an_outage() {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(50));
    let (there, _) = net.link(client, server, link(), link());
    let flow = net.tcp(TcpFlow::new(client, server, config(), Bulk::new(Bytes::kb(5_000)))).unwrap();
    net.set_rate_at(there, Time::from_secs(2), Rate::ZERO);
    net.set_rate_at(there, Time::from_secs(7), Rate::from_mbps(10));
    net.run_until(Time::from_secs(3));
    let during = net.link_counters(there).delivered;
    net.run_until(Time::from_secs(6));
    assert_eq!(net.link_counters(there).delivered, during);
    net.run_until(Time::from_secs(60));
    assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::kb(5_000));
    assert!(stats(&net, flow).timeouts > 1);
}

/// Application that aborts after a second, which resets the other end.
struct Quitter;

impl App for Quitter {
    fn start(&mut self, socket: &mut Socket<'_>) {
        socket.set_timer(Time::from_secs(1), 0);
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        socket.abort();
    }
}

#[test]
fn a_connection_that_one_end_gives_up_is_over_at_both() {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(50));
    let (there, _) = net.link(client, server, link(), link());
    let flow = net.tcp(TcpFlow::new(client, server, config(), Bulk::endless()).server_app(Quitter)).unwrap();
    net.run_until(Time::from_secs(2));
    assert_eq!(net.reception(flow, Side::Server).reset_at, None, "it did that itself");
    // The server's last acknowledgement may be on the wire before its reset; nothing follows it.
    let reset_at = net.reception(flow, Side::Client).reset_at.unwrap();
    assert!(reset_at >= Time::from_millis(1_050) && reset_at < Time::from_millis(1_060), "{reset_at:?}");
    // Packets in flight are answered by resets, which the client accepts.
    let offered = net.link_counters(there).offered;
    net.run_until(Time::from_secs(100));
    assert_eq!(net.link_counters(there).offered, offered);
    assert_eq!(stats(&net, flow).timeouts, 0);
}

/// 100 Mbit/s over 100 ms are 1.25 MB: a receiver that begins with 64 kB must grow to it, with or
/// without timestamps.
#[test]
fn a_receive_buffer_that_grows_does_not_hold_a_fast_sender_back() {
    let rate = |timestamps: bool, from: Option<Bytes>, limit: Bytes| {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(1000) }).unwrap();
        let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(50));
        net.link(client, server, link().queue(queue), link());
        let config = Tcp {
            mss: 1000,
            timestamps,
            receive_buffer: limit,
            receive_buffer_from: from,
            ..Tcp::with(Congestion::Reno)
        };
        let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless())).unwrap();
        net.run_until(Time::from_secs(10));
        net.reception(flow, Side::Server).bytes.get() as f64 * 8.0 / 10.0 / 1e6
    };
    let (small, large) = (Bytes::kb(64), Bytes::new(6 << 20));
    for timestamps in [true, false] {
        let [fixed, grown, full] = [(None, small), (Some(small), large), (None, large)]
            .map(|(from, limit)| rate(timestamps, from, limit));
        println!("timestamps {timestamps}: 64 kB {fixed:.1}, growing {grown:.1}, 6 MiB {full:.1} Mbit/s");
        // One window per round trip: 64 kB in 100 ms.
        assert!(fixed < 5.2, "{fixed}");
        assert!(grown > 0.95 * full, "{grown} of {full}");
    }
}

/// RFC 8257 §3.1 and §4.1: with a threshold above a seventh of the bandwidth-delay product DCTCP
/// fills the link; Reno, which halves for any mark, does not.
#[test]
fn dctcp_fills_a_link_that_marks_from_a_fifth_of_its_product_on() {
    let busy = |congestion: Congestion| {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        // 100 Mbit/s over 10 ms: 125 000 bytes, 125 packets of 1000.
        let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(5));
        let threshold = StepThreshold::Packets(25);
        let queue = StepMark::new(StepMarkConfig { threshold, ..StepMarkConfig::default() }).unwrap();
        net.link(client, server, link().queue(queue), link());
        let config = Tcp { mss: 948, ecn: true, congestion, ..Tcp::default() };
        let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless())).unwrap();
        net.run_until(Time::from_secs(5));
        let before = net.reception(flow, Side::Server).bytes;
        net.run_until(Time::from_secs(25));
        let arrived = (net.reception(flow, Side::Server).bytes - before).get() as f64;
        let stats = stats(&net, flow);
        assert_eq!((stats.retransmissions, stats.timeouts), (0, 0));
        arrived * 1000.0 / 948.0 * 8.0 / 20.0 / 100e6
    };
    let (dctcp, reno) = (busy(Congestion::Dctcp), busy(Congestion::Reno));
    println!("marks from 25 of 125 packets on: DCTCP {dctcp:.4}, Reno {reno:.4}");
    assert!(dctcp > 0.98, "{dctcp}");
    // Formula for one flow and a buffer of a fifth: 0.872.
    assert!((reno - 0.872).abs() < 0.04, "{reno}");
}
