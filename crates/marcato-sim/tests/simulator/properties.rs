//! Properties of every network, configuration and loss.
//!
//! Debug builds check conservation at the end of every [`Network::run_until`].

use marcato_queue::{Codel, CodelConfig, DropTail, DropTailConfig, Limit};
use marcato_sched::lowprio::{Adaptive, LcmConfig, Target};
use marcato_sim::{
    App, Arrivals, Congestion, DelayedAck, FlowId, LinkConfig, Loss, LossDetection, Network, PltConfig, Side,
    Socket, Tag, Tcp, TcpEnd, TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Time};
use proptest::prelude::*;

/// Application that writes `left` bytes in pieces labelled by number, and closes. It checks that it
/// receives every byte of the other end once, in order.
struct Talker {
    piece: u64,
    left: u64,
    written: u64,
    received: u64,
    peer_piece: u64,
    peer_finished: bool,
    /// Number of bytes after which it stops reading, to resume after a second.
    pause_at: Option<u64>,
}

impl Talker {
    fn new(len: u64, piece: u64, peer_piece: u64, pause_at: Option<u64>) -> Self {
        Self { piece, left: len, written: 0, received: 0, peer_piece, peer_finished: false, pause_at }
    }
}

impl App for Talker {
    fn writable(&mut self, socket: &mut Socket<'_>) {
        // The rest of the current piece, so that a label always stands for the same bytes.
        let rest = (self.piece - self.written % self.piece).min(self.left);
        let tag = Tag(self.written / self.piece);
        let taken = socket.write(Bytes::new(rest), Priority::P2, tag).get();
        self.written += taken;
        self.left -= taken;
        if self.left == 0 {
            socket.close();
        }
    }

    fn received(&mut self, tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        assert_eq!(tag, Tag(self.received / self.peer_piece), "out of order at {}", self.received);
        self.received += bytes.get();
        assert!(self.received <= (tag.0 + 1) * self.peer_piece, "more than was written");
        if self.pause_at.is_some_and(|at| self.received >= at) {
            self.pause_at = None;
            socket.set_reading(false);
            socket.set_timer(socket.now() + Duration::from_secs(1), 0);
        }
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        socket.set_reading(true);
    }

    fn finished(&mut self, _socket: &mut Socket<'_>) {
        self.peer_finished = true;
    }
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    kbps: [u64; 2],
    delay: [u64; 2],
    loss: [f64; 2],
    duplication: [f64; 2],
    buffer: u64,
    codel: bool,
    hops: usize,
    sizes: [u64; 2],
    piece: [u64; 2],
    pause_at: Option<u64>,
    config: TcpEnd,
}

fn congestion() -> impl Strategy<Value = Congestion> {
    prop::sample::select(vec![Congestion::Reno, Congestion::CUBIC, Congestion::Dctcp, Congestion::Bbr])
}

prop_compose! {
    /// Any configuration of a low layer.
    fn plt_config()(
        initial in 1u64..100, packet in 240u64..1600, adaptive in any::<bool>(), least in any::<bool>(),
        low_retransmissions in 0u8..3, relief in prop::option::of(1u32..5), high_acks in any::<bool>(),
        ack_every in 1u32..=4, reordering in 1u32..6, back_off in any::<bool>(),
        reassembly in prop::option::of(2_000u64..200_000), initial_min_rto in 0u64..2_000,
    ) -> PltConfig {
        let packet = Bytes::new(packet);
        let lcm = LcmConfig {
            target: if adaptive { Target::Adaptive(Adaptive::new()) } else { LcmConfig::paper().target },
            initial_window: packet * initial,
            least_window: if least { packet } else { Bytes::ZERO },
            packet,
            ..LcmConfig::paper()
        };
        PltConfig {
            low_retransmissions,
            relief,
            ack_layer: if high_acks { Layer::High } else { Layer::Low },
            ack_every,
            reordering,
            back_off,
            initial_min_rto: Duration::from_millis(initial_min_rto),
            reassembly: reassembly.map(Bytes::new),
            ..PltConfig::new(lcm)
        }
    }
}

prop_compose! {
    fn tcp_config()(
        mss in 200u32..1500, initial_window in 1u32..12, send_buffer in 2_000u64..200_000,
        receive_buffer in 2_000u64..200_000, lowat in prop::option::of(1u64..20_000), every in 1u32..4,
        (timestamps, ecn, pacing, idle) in any::<(bool, bool, bool, bool)>(), congestion in congestion(),
        (by_threshold, grows) in any::<(bool, bool)>(),
        slow_rto in any::<bool>(), isn in prop::option::of(u32::MAX - 100_000..u32::MAX),
        plt in prop::option::of(plt_config()), offload in prop::option::of(1_000u64..70_000),
    ) -> TcpEnd {
        let tcp = Tcp {
            mss,
            initial_window,
            send_buffer: Bytes::new(send_buffer),
            receive_buffer: Bytes::new(receive_buffer),
            receive_buffer_from: grows.then(|| Bytes::new(receive_buffer.min(4_000))),
            notsent_lowat: lowat.map(Bytes::new),
            delayed_ack: DelayedAck { every, ..DelayedAck::default() },
            min_rto: Duration::from_millis(if slow_rto { 1000 } else { 200 }),
            timestamps,
            ecn: ecn || congestion == Congestion::Dctcp,
            congestion,
            loss_detection: if by_threshold { LossDetection::DupThresh } else { LossDetection::Rack },
            pacing,
            segmentation_offload: offload.map(Bytes::new),
            slow_start_after_idle: idle,
            ..Tcp::default()
        };
        TcpEnd { initial_sequence: isn, plt, ..tcp.into() }
    }
}

prop_compose! {
    fn case()(
        seed in any::<u64>(), kbps in [500u64..20_000, 500u64..20_000], delay in [0u64..100, 0u64..100],
        loss in [0.0f64..0.1, 0.0f64..0.1],
        duplication in prop::option::of([0.0f64..0.5, 0.0f64..0.5]), buffer in 3u64..100, codel in any::<bool>(), hops in 1usize..4,
        sizes in [1u64..300_000, 0u64..100_000], piece in [100u64..5_000, 100u64..5_000],
        pause_at in prop::option::of(1u64..100_000), config in tcp_config(),
    ) -> Case {
        let duplication = duplication.unwrap_or_default();
        Case { seed, kbps, delay, loss, duplication, buffer, codel, hops, sizes, piece, pause_at, config }
    }
}

/// Chain of links, with one TCP flow from end to end.
fn build(case: &Case) -> (Network, FlowId) {
    let mut net = Network::new(Seed::new(case.seed));
    let flow = build_in(&mut net, case);
    (net, flow)
}

fn build_in(net: &mut Network, case: &Case) -> FlowId {
    let nodes: Vec<_> = (0..=case.hops).map(|i| net.node(&format!("n{i}"))).collect();
    for hop in 0..case.hops {
        let link = |way: usize| {
            let link = LinkConfig::new(
                Rate::from_kbps(case.kbps[way] * (1 + hop as u64)),
                Duration::from_millis(case.delay[way] / case.hops as u64),
            );
            let limit = Limit::Packets(case.buffer);
            let link = if case.codel {
                link.queue(
                    Codel::new(CodelConfig { limit, ecn: case.config.tcp.ecn, ..CodelConfig::default() })
                        .unwrap(),
                )
            } else {
                link.queue(DropTail::new(DropTailConfig { limit }).unwrap())
            };
            let link = link.duplication(case.duplication[way]);
            link.loss(if hop == 0 { Loss::Random(case.loss[way]) } else { Loss::None })
        };
        net.link(nodes[hop], nodes[hop + 1], link(0), link(1));
    }
    let [there, back] = case.piece;
    let client = Talker::new(case.sizes[0], there, back, None);
    let server = Talker::new(case.sizes[1], back, there, case.pause_at);
    let flow = TcpFlow::new(nodes[0], nodes[case.hops], case.config.clone(), client).server_app(server);
    net.tcp(flow).unwrap()
}

/// Returns the whole final state, for an exact comparison.
fn remains(net: &Network, flow: FlowId) -> String {
    let sides = [Side::Client, Side::Server];
    format!(
        "{:?} {:?} {:?}",
        sides.map(|s| net.tcp_stats(flow, s)),
        sides.map(|s| net.reception(flow, s)),
        sides.map(|s| net.tally(flow, s))
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Every byte arrives once and in order, both ends finish, and the window is at least a segment.
    #[test]
    fn every_byte_arrives_once_and_in_order_and_both_ends_finish(case in case()) {
        let (mut net, flow) = build(&case);
        // At 10 % loss each way every fifth retransmission fails; with windows of a few segments
        // this means consecutive timeouts of seconds.
        let mut finished = false;
        for s in (10..=4_000).step_by(10) {
            net.run_until(Time::from_secs(s));
            for side in [Side::Client, Side::Server] {
                let stats = net.tcp_stats(flow, side).unwrap();
                // In recovery the window in force is that of proportional reduction, which is 0 at
                // times.
                prop_assert!(stats.ssthresh.get() >= 2 * u64::from(case.config.tcp.mss));
            }
            finished = net.is_finished(flow, Side::Client) && net.is_finished(flow, Side::Server);
            if finished {
                break;
            }
        }
        // The acknowledgement may arrive before the application reads.
        net.run_until(net.now() + Duration::from_secs(2));
        let (client, server) =
            (net.app::<Talker>(flow, Side::Client).unwrap(), net.app::<Talker>(flow, Side::Server).unwrap());
        prop_assert!(finished, "{}\nclient got {}, server {}", remains(&net, flow), client.received, server.received);
        prop_assert_eq!((server.received, client.received), (case.sizes[0], case.sizes[1]));
        prop_assert!(client.peer_finished && server.peer_finished);
        for side in [Side::Client, Side::Server] {
            let stats = net.tcp_stats(flow, side).unwrap();
            prop_assert_eq!((stats.in_flight, stats.unsent), (Bytes::ZERO, Bytes::ZERO));
            if let Some(plt) = net.plt_stats(flow, side) {
                prop_assert_eq!((plt.low_outstanding, plt.low_in_flight, plt.repairs_waiting), Default::default());
                prop_assert_eq!(plt.low_sent, plt.low_acked + plt.low_lost);
                let sent = case.sizes[1 - side as usize];
                prop_assert_eq!(plt.received, Bytes::new(sent));
                prop_assert!(plt.received_low <= plt.received);
                // Even with repeated losses, data arrives twice at most as often as it was
                // retransmitted.
                let again = Bytes::new(plt.duplicates.get() / u64::from(case.config.tcp.mss));
                let peer = net.plt_stats(flow, side.peer()).unwrap();
                let resent = peer.repairs + peer.low_resent + net.tcp_stats(flow, side.peer()).unwrap().retransmissions;
                let doubled = case.duplication != [0.0; 2];
                prop_assert!(doubled || again.get() <= resent, "{:?} {:?}", plt, peer);
            }
        }
        // All activity ends once the last timers have expired.
        net.run_until(net.now() + Duration::from_secs(130));
        let before = net.events();
        net.run_until(net.now() + Duration::from_secs(1_000));
        prop_assert_eq!(net.events(), before);
    }

    /// A network with a given seed ends in an identical state after equally many events.
    #[test]
    fn one_seed_gives_one_result(case in case()) {
        let run = || {
            let (mut net, flow) = build(&case);
            net.run_until(Time::from_secs(20));
            (remains(&net, flow), net.events())
        };
        prop_assert_eq!(run(), run());
    }

    /// Flows and links elsewhere, added before or after, change nothing.
    #[test]
    fn traffic_elsewhere_changes_nothing(case in case(), before in any::<bool>()) {
        let alone = {
            let (mut net, flow) = build(&case);
            net.run_until(Time::from_secs(20));
            remains(&net, flow)
        };
        let beside = {
            let mut other = Network::new(Seed::new(case.seed));
            let elsewhere = |net: &mut Network| {
                let (a, b) = (net.node("a"), net.node("b"));
                let link = || LinkConfig::new(Rate::from_mbps(3), Duration::from_millis(7)).loss(Loss::Random(0.02));
                net.link(a, b, link(), link());
                let poisson = UdpFlow::new(a, b, Rate::from_mbps(1), Bytes::new(500));
                net.udp(UdpFlow { arrivals: Arrivals::Poisson, ..poisson }).unwrap();
                let talk = || Talker::new(100_000, 1000, 1000, None);
                net.tcp(TcpFlow::new(a, b, case.config.clone(), talk()).server_app(talk())).unwrap();
            };
            if before {
                elsewhere(&mut other);
            }
            let flow = build_in(&mut other, &case);
            if !before {
                elsewhere(&mut other);
            }
            other.run_until(Time::from_secs(20));
            remains(&other, flow)
        };
        prop_assert_eq!(alone, beside);
    }
}
