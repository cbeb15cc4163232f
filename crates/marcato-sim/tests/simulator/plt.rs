//! Tests of priority-layered transport: the paper's results at a tenth of its rate, and invariants.

use marcato_queue::{
    Discipline, DropTail, DropTailConfig, Fate, Filtered, Limit, Packet as _, Strict, StrictConfig,
};
use marcato_sched::lowprio::{Adaptive, LcmConfig, Target};
use marcato_sim::{
    Bulk, Congestion, DelayedAck, Distribution, FlowArrivals, FlowId, FlowProcess, Jitter, LinkConfig,
    LinkId, Loss, LossDetection, Network, NodeId, Packet, PltConfig, PltStats, Side, Tap, Tcp, TcpEnd,
    TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};

/// 25 Mbit/s and 80 ms: 250 packets of 1000 bytes.
const RATE: Rate = Rate::from_mbps(25);
const BDP: u64 = 250;

fn lcm() -> LcmConfig {
    LcmConfig { initial_window: Bytes::kb(BDP), max_window: Bytes::kb(3 * BDP), ..LcmConfig::paper() }
}

/// Configuration of packets of 1000 bytes, each acknowledged, as in PLT §4.1; the high module is
/// Reno.
fn config() -> Tcp {
    Tcp {
        mss: 960,
        timestamps: false,
        receive_buffer: Bytes::new(3 * BDP * 960),
        // Losses of the low module wait in the send buffer.
        send_buffer: Bytes::new(1 << 30),
        delayed_ack: DelayedAck::NONE,
        loss_detection: LossDetection::DupThresh,
        ..Tcp::with(Congestion::Reno)
    }
}

/// TCP with this low layer, if any.
fn layered(plt: Option<PltConfig>, tcp: Tcp) -> TcpEnd {
    TcpEnd { plt, ..tcp.into() }
}

/// The usual configuration with this low layer, if any.
fn usual(plt: Option<PltConfig>) -> TcpEnd {
    layered(plt, config())
}

fn plt() -> Option<PltConfig> {
    Some(PltConfig::new(lcm()))
}

fn droptail(packets: u64) -> DropTailConfig {
    DropTailConfig { limit: Limit::Packets(packets) }
}

fn strict(packets: u64) -> Strict<DropTail<Packet>, DropTail<Packet>> {
    Strict::new(StrictConfig { high: droptail(packets), low: droptail(packets) }).unwrap()
}

fn link(buffer: u64) -> LinkConfig {
    LinkConfig::new(RATE, Duration::from_millis(40)).queue(strict(buffer))
}

struct World {
    net: Network,
    client: NodeId,
    server: NodeId,
    there: LinkId,
}

fn world(seed: u64, there: LinkConfig, back: LinkConfig) -> World {
    let mut net = Network::new(Seed::new(seed));
    let (client, server) = (net.node("client"), net.node("server"));
    let (there, _) = net.link(client, server, there, back);
    World { net, client, server, there }
}

impl World {
    fn tcp(&mut self, config: impl Into<TcpEnd>, app: Bulk) -> FlowId {
        self.net.tcp(TcpFlow::new(self.client, self.server, config, app)).unwrap()
    }

    fn arrived(&self, flow: FlowId) -> Bytes {
        match self.net.plt_stats(flow, Side::Server) {
            Some(stats) => stats.received,
            None => self.net.reception(flow, Side::Server).bytes,
        }
    }

    fn sender(&self, flow: FlowId) -> PltStats {
        self.net.plt_stats(flow, Side::Client).unwrap()
    }
}

/// Returns the share of the link that an endless flow's distinct packets fill, from 60 to 300 s.
fn share(buffer: u64, loss: Loss, config: TcpEnd) -> f64 {
    let mut world = world(1, link(buffer).loss(loss), link(buffer));
    let flow = world.tcp(config, Bulk::endless());
    world.net.run_until(Time::from_secs(60));
    let before = world.arrived(flow);
    world.net.run_until(Time::from_secs(300));
    let packets = (world.arrived(flow) - before).get() / 960;
    (packets * 8_000) as f64 / 240.0 / RATE.as_bps() as f64
}

#[test]
fn with_a_small_buffer_and_no_loss_it_uses_what_reno_leaves() {
    let (reno, both) = (share(BDP / 10, Loss::None, usual(None)), share(BDP / 10, Loss::None, usual(plt())));
    assert!((0.75..0.84).contains(&reno), "{reno}");
    assert!(both > 0.9 && both > reno + 0.1, "{both} instead of {reno}");
}

#[test]
fn plt_fills_nine_tenths_of_a_link_that_loses_one_in_a_thousand() {
    for buffer in [BDP, BDP / 10] {
        let reno = share(buffer, Loss::Random(0.001), usual(None));
        assert!(reno < 0.2, "{reno}");
        for congestion in [Congestion::Reno, Congestion::CUBIC, Congestion::Bbr] {
            let both = share(
                buffer,
                Loss::Random(0.001),
                layered(plt(), Tcp { congestion: congestion.clone(), ..config() }),
            );
            assert!(both > 0.9, "{both} with {congestion:?} and {buffer} packets");
        }
    }
}

#[test]
fn above_its_target_loss_rate_the_low_module_collapses() {
    let both = share(BDP, Loss::Random(0.02), usual(plt()));
    assert!(both < 0.5, "{both}");
}

/// Flow as in PLT §4.1, 250 Mbit/s and 2500 packets, with one packet in a thousand lost.
fn at_the_paper_s_rate(plt: PltConfig) -> (World, FlowId) {
    let link = || LinkConfig::new(Rate::from_mbps(250), Duration::from_millis(40)).queue(strict(2500));
    let mut world = world(1, link().loss(Loss::Random(0.001)), link());
    let receive_buffer = Bytes::new(7500 * 960);
    let flow = world.tcp(layered(Some(plt), Tcp { receive_buffer, ..config() }), Bulk::endless());
    (world, flow)
}

#[test]
fn a_three_window_reassembly_buffer_halves_paper_rate_goodput() {
    // At this loss, the high module's window of some 40 packets is too small to repair the losses
    // of a full low window in time.
    let carried = |reassembly| {
        let plt = PltConfig { reassembly, ..PltConfig::new(LcmConfig::paper()) };
        let (mut world, flow) = at_the_paper_s_rate(plt);
        world.net.run_until(Time::from_secs(10));
        let before = world.arrived(flow);
        world.net.run_until(Time::from_secs(40));
        (world.arrived(flow) - before).get()
    };
    let (paper, literal) = (carried(None), carried(Some(Bytes::new(7500 * 960))));
    assert!(literal < paper / 2, "{literal} instead of {paper}");
}

#[test]
fn a_peer_without_a_low_layer_gives_plain_tcp_event_for_event() {
    for loss in [Loss::None, Loss::Random(0.003)] {
        for congestion in [Congestion::Reno, Congestion::CUBIC, Congestion::Bbr] {
            let run = |plt| {
                let mut world = world(7, link(60).loss(loss.clone()), link(60).loss(loss.clone()));
                let server = Tcp { congestion: congestion.clone(), ..config() };
                let client = layered(plt, server.clone());
                let app = Bulk::new(Bytes::kb(20_000));
                let flow = TcpFlow::new(world.client, world.server, client, app).server_config(server);
                let flow = world.net.tcp(flow).unwrap();
                world.net.tap(world.there, Tap::default().snaplen(64));
                world.net.run_until(Time::from_secs(60));
                let mut file = Vec::new();
                world.net.drain_tap(world.there, &mut file).unwrap();
                (file, world.net.events(), world.net.tcp_stats(flow, Side::Client))
            };
            assert!(run(None) == run(plt()), "{congestion:?} at {loss:?}");
        }
    }
}

#[test]
fn low_repairs_shorten_the_repair_queue_of_a_small_high_window() {
    // PLT's second footnote.
    let waiting = |relief| {
        let (mut world, flow) =
            at_the_paper_s_rate(PltConfig { relief, ..PltConfig::new(LcmConfig::paper()) });
        world.net.run_until(Time::from_secs(40));
        (world.sender(flow).repairs_waiting.get() / 960, world.sender(flow).low_resent)
    };
    let ((without, never), (with, resent)) = (waiting(None), waiting(Some(4)));
    assert_eq!(never, 0);
    assert!(
        resent > 100 && with < without / 2,
        "{with} packets wait instead of {without}, {resent} sent again"
    );
}

#[test]
fn a_target_found_at_run_time_has_no_cliff() {
    // The fixed target is 0.5 %.
    let target = Target::Adaptive(Adaptive::new());
    let adaptive = PltConfig::new(LcmConfig { target, ..lcm() });
    for loss in [0.01, 0.02] {
        let fixed = share(BDP, Loss::Random(loss), usual(plt()));
        let found = share(BDP, Loss::Random(loss), usual(Some(adaptive)));
        assert!(fixed < 0.5 && found > 0.75, "{found} instead of {fixed}");
    }
}

/// Queue that drops every low packet.
fn black_hole() -> impl Discipline<Packet> {
    let high = DropTail::new(droptail(BDP)).unwrap();
    Filtered::of(high, |_, packet: &mut Packet| match packet.layer() {
        Layer::High => Fate::Pass,
        Layer::Low => Fate::Drop,
    })
}

#[test]
fn a_transfer_completes_even_if_the_low_layer_is_a_black_hole() {
    let run = |plt| {
        let there = LinkConfig::new(RATE, Duration::from_millis(40)).queue(black_hole());
        let mut world = world(1, there, link(BDP));
        let flow = world.tcp(usual(plt), Bulk::new(Bytes::kb(10_000)));
        world.net.run_until(Time::from_secs(100));
        assert_eq!(world.net.reception(flow, Side::Server).bytes, Bytes::kb(10_000));
        assert!(world.net.is_finished(flow, Side::Client));
        let (queue, backlog) = world.net.queue_counters(world.there);
        assert_eq!(queue.enqueued.packets, queue.dequeued.packets + queue.dropped.packets + backlog.packets);
        let low_drops = queue.dropped.packets - queue.overflowed.packets;
        let ended = world.net.reception(flow, Side::Server).last_at.unwrap();
        (ended, world.net.plt_stats(flow, Side::Client), low_drops)
    };
    let ((reno, _, no_drops), (layered, stats, low_drops)) = (run(None), run(plt()));
    let stats = stats.unwrap();
    assert_eq!((no_drops, low_drops), (0, stats.low_sent));
    assert_eq!((stats.low_acked, stats.low_outstanding, stats.repairs_waiting), (0, 0, Bytes::ZERO));
    assert_eq!(stats.low_lost, stats.low_sent);
    // Data sent low was repaired after at most a timeout.
    assert!(layered < reno + Duration::from_secs(1), "{layered} instead of {reno}");
}

#[test]
fn a_low_layer_that_others_fill_keeps_no_transfer_from_ending() {
    let run = |plt| {
        let mut world = world(1, link(BDP), link(BDP));
        let flow = world.tcp(usual(plt), Bulk::new(Bytes::kb(10_000)));
        let all = UdpFlow::new(world.client, world.server, Rate::from_mbps(250), Bytes::new(972));
        world.net.udp(UdpFlow { layer: Layer::Low, ..all }).unwrap();
        world.net.run_until(Time::from_secs(30));
        assert!(world.net.is_finished(flow, Side::Client));
        world.net.reception(flow, Side::Server).last_at.unwrap()
    };
    let (reno, layered) = (run(None), run(plt()));
    assert!(layered < reno + Duration::from_secs(1), "{layered} instead of {reno}");
}

#[test]
fn a_first_timeout_of_a_second_avoids_repairs_of_late_packets() {
    let run = |initial_min_rto| {
        let mut world = world(1, link(BDP), link(BDP));
        // High packets delay the low ones of a transfer that begins 50 ms later by 550 ms.
        let all = UdpFlow::new(world.client, world.server, Rate::from_mbps(25), Bytes::new(972));
        world.net.udp(UdpFlow { stop: Time::from_millis(600), ..all }).unwrap();
        let plt = plt().map(|plt| PltConfig { initial_min_rto, ..plt });
        let flow = TcpFlow::new(world.client, world.server, usual(plt), Bulk::new(Bytes::kb(96)));
        let flow = world.net.tcp(flow.start(Time::from_millis(50))).unwrap();
        world.net.run_until(Time::from_secs(10));
        assert_eq!(world.net.reception(flow, Side::Server).bytes, Bytes::kb(96));
        let sender = world.sender(flow);
        let receiver = world.net.plt_stats(flow, Side::Server).unwrap();
        (sender.low_timeouts, sender.repairs, receiver.duplicates)
    };
    let (timeouts, repairs, duplicates) = run(Duration::ZERO);
    assert!(timeouts > 0 && repairs > 10 && !duplicates.is_zero(), "{timeouts} {repairs} {duplicates}");
    assert_eq!(run(Duration::from_secs(1)), (0, 0, Bytes::ZERO));
}

#[test]
fn a_black_hole_is_probed_with_no_more_than_a_packet_per_epoch() {
    let there = LinkConfig::new(RATE, Duration::from_millis(40)).queue(black_hole());
    let mut world = world(1, there, link(BDP));
    let flow = world.tcp(usual(plt()), Bulk::endless());
    world.net.run_until(Time::from_secs(60));
    let before = world.sender(flow).low_sent;
    world.net.run_until(Time::from_secs(120));
    assert!(world.sender(flow).low_window < Bytes::kb(1));
    let probes = world.sender(flow).low_sent - before;
    assert!((60..=601).contains(&probes), "{probes} in 600 epochs");
}

#[test]
fn once_high_traffic_goes_the_low_module_comes_back() {
    let mut world = world(1, link(BDP), link(BDP));
    // At this loss, the high module alone would take minutes to fill the link.
    let flow = world.tcp(usual(plt()), Bulk::endless());
    let all = UdpFlow::new(world.client, world.server, Rate::from_mbps(26), Bytes::new(972));
    let (start, stop) = (Time::from_secs(20), Time::from_secs(60));
    world.net.udp(UdpFlow { start, stop, ..all }).unwrap();
    world.net.run_until(Time::from_secs(59));
    assert!(world.sender(flow).low_window < Bytes::kb(1), "{:?}", world.sender(flow));
    world.net.run_until(Time::from_secs(70));
    let before = world.arrived(flow);
    world.net.run_until(Time::from_secs(80));
    let mbps = (world.arrived(flow) - before).get() as f64 * 8.0 / 10.0 / 1e6;
    assert!(mbps > 22.0, "{mbps}");
}

#[test]
fn reordering_costs_repairs_but_no_byte() {
    let jitter = Jitter::uniform(Duration::from_millis(8)).reorder(true);
    for low_retransmissions in [0, 1, 2] {
        let plt = PltConfig { low_retransmissions, ..PltConfig::new(lcm()) };
        let mut world =
            world(3, link(BDP).jitter(jitter).loss(Loss::Random(0.002)), link(BDP).jitter(jitter));
        let flow = world.tcp(usual(Some(plt)), Bulk::new(Bytes::kb(20_000)));
        world.net.run_until(Time::from_secs(100));
        let (sender, receiver) = (world.sender(flow), world.net.plt_stats(flow, Side::Server).unwrap());
        assert_eq!(receiver.received, Bytes::kb(20_000));
        assert_eq!(world.net.reception(flow, Side::Server).bytes, Bytes::kb(20_000));
        assert!(world.net.is_finished(flow, Side::Client));
        assert!(sender.low_spurious > 0 && receiver.duplicates > Bytes::ZERO, "{sender:?}");
    }
}

#[test]
fn fewer_acknowledgements_and_high_ones_do_as_well() {
    for (ack_every, ack_layer) in [(1, Layer::High), (4, Layer::Low), (2, Layer::High)] {
        let plt = PltConfig { ack_every, ack_layer, ..PltConfig::new(lcm()) };
        let both = share(BDP, Loss::Random(0.001), usual(Some(plt)));
        assert!(both > 0.9, "{both} with {ack_every} {ack_layer:?}");
    }
}

#[test]
fn one_seed_gives_the_same_bytes() {
    let run = || {
        let mut world = world(5, link(25).loss(Loss::Random(0.001)), link(25));
        let flow =
            world.tcp(usual(Some(PltConfig { log_epochs: true, ..PltConfig::new(lcm()) })), Bulk::endless());
        world.net.tap(world.there, Tap::default().snaplen(64));
        world.net.run_until(Time::from_secs(20));
        let mut file = Vec::new();
        world.net.drain_tap(world.there, &mut file).unwrap();
        assert!(world.net.lcm_epochs(flow, Side::Client).len() > 100);
        (file, world.net.lcm_epochs(flow, Side::Client).to_vec(), world.sender(flow), world.net.events())
    };
    assert!(run() == run());
}

/// Returns the captures of high packets: arrival time at the link's end, and bytes.
fn high_packets(file: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    let mut rest = &file[24..];
    while let Some(header) = rest.get(..16) {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        // The DSCP of lower effort is 1. RFC 8622 §4.2.
        if rest[16 + 1] >> 2 != 1 {
            packets.push(&rest[..16 + len]);
        }
        rest = &rest[16 + len..];
    }
    packets
}

/// A bystander, short high flows and an endless PLT flow with or without its low layer share a
/// link.
fn beside(preemptive: bool, plt: Option<PltConfig>, loss: f64) -> (World, [FlowId; 2]) {
    let config = |plt| layered(plt, Tcp { timestamps: true, ..config() });
    let link = || {
        let link = LinkConfig::new(RATE, Duration::from_millis(40)).loss(Loss::Random(loss));
        if preemptive {
            let class = || DropTail::new(droptail(25)).unwrap();
            link.queue(class()).preempt(class())
        } else {
            link.queue(strict(25))
        }
    };
    let mut world = world(11, link(), link());
    let layered = world.tcp(config(plt), Bulk::endless());
    let bystander = world.tcp(config(None), Bulk::endless());
    let sizes = Distribution::truncated_pareto(1.2, Bytes::kb(25), Bytes::kb(1_000)).unwrap();
    let arrivals = FlowArrivals::PerSecond(20.0);
    let process = FlowProcess::new(world.client, world.server, config(None), sizes, arrivals);
    world.net.spawn(process).unwrap();
    world.net.tap(world.there, Tap { most_waiting: Bytes::kb(1_000_000), ..Tap::default().snaplen(80) });
    world.net.run_until(Time::from_secs(60));
    (world, [layered, bystander])
}

#[test]
fn preemption_keeps_high_packets_identical_in_bytes_and_times() {
    for loss in [0.0, 0.001] {
        let run = |plt| {
            let (mut world, flows) = beside(true, plt, loss);
            let mut file = Vec::new();
            world.net.drain_tap(world.there, &mut file).unwrap();
            (file, world, flows)
        };
        let ((alone, mut without, flows), (shared, with, _)) = (run(None), run(plt()));
        let (alone, shared) = (high_packets(&alone), high_packets(&shared));
        assert!(alone.len() > 20_000, "{}", alone.len());
        assert!(alone == shared, "{} and {} packets", alone.len(), shared.len());
        // The low layer was active, and was pre-empted often.
        let [layered, _] = flows;
        let extra = with.arrived(layered).get() as f64 / without.arrived(layered).get() as f64;
        assert!(extra > 1.1, "{extra}");
        assert!(with.net.link_counters(with.there).preempted > 1_000);
        let of = |world: &World| flows.map(|flow| world.net.tcp_stats(flow, Side::Client));
        assert_eq!(of(&without)[1], of(&with)[1]);
        without.net.run_until(Time::from_secs(61));
    }
}

#[test]
fn without_preemption_a_bystander_loses_next_to_nothing() {
    let goodput = |plt| {
        let (world, [_, bystander]) = beside(false, plt, 0.001);
        world.arrived(bystander).get() as f64
    };
    let ratio = goodput(plt()) / goodput(None);
    assert!(ratio > 0.9, "{ratio}");
}

#[test]
fn short_flows_take_one_round_trip_where_tcp_takes_more() {
    let within = |plt| {
        let mut world = world(1, link(BDP), link(BDP));
        let sizes =
            Distribution::truncated_pareto(1.2, Bytes::new(25 * 960), Bytes::new(1_000 * 960)).unwrap();
        let config = layered(plt, Tcp { initial_window: 2, ..config() });
        let arrivals = FlowArrivals::PerSecond(60.0);
        let process = FlowProcess::new(world.client, world.server, config, sizes, arrivals);
        let process = world.net.spawn(process.stop(Time::from_secs(60))).unwrap();
        world.net.run_until(Time::from_secs(120));
        let stats = world.net.process_stats(process);
        assert_eq!((stats.completed, stats.open), (stats.spawned, 0));
        assert!(world.net.flow_slots() < 200, "{}", world.net.flow_slots());
        let records = world.net.flow_records(process);
        let quick = records.iter().filter(|flow| {
            assert_eq!(flow.received(), flow.size());
            flow.last_received_at().unwrap() - flow.first_sent_at().unwrap() <= Duration::from_millis(80)
        });
        quick.count() as f64 / records.len() as f64
    };
    let (reno, both) = (within(None), within(plt()));
    assert!(both > 0.8 && reno < 0.5, "{both} instead of {reno}");
}

#[test]
fn a_low_packet_that_is_stopped_goes_on_where_it_was() {
    let class = || DropTail::new(droptail(100)).unwrap();
    // 1000 bytes take 8 ms.
    let there =
        LinkConfig::new(Rate::from_mbps(1), Duration::from_millis(10)).queue(class()).preempt(class());
    let mut world = world(1, there, link(BDP));
    let udp = |layer, start, payload| UdpFlow {
        layer,
        start: Time::from_millis(start),
        stop: Time::from_millis(start + 1),
        ..UdpFlow::new(world.client, world.server, Rate::from_kbps(100), Bytes::new(payload))
    };
    // Sent at 0, paused from 3 to 5 ms and from 5 to 7 ms: delivered at 12 ms, not at 8.
    let flows = [
        udp(Layer::Low, 0, 972),
        udp(Layer::High, 3, 222),
        udp(Layer::High, 5, 222),
        udp(Layer::Low, 5, 972),
    ];
    let flows = flows.map(|flow| world.net.udp(flow).unwrap());
    world.net.run_until(Time::from_secs(1));
    let delays = flows.map(|flow| world.net.udp_stats(flow).unwrap().delay_max);
    assert_eq!(delays, [22, 12, 12, 25].map(Duration::from_millis));
    // At 5 ms the first high packet has left and the second arrives, so the low packet sends
    // nothing in between.
    assert_eq!(world.net.link_counters(world.there).preempted, 1);
}
