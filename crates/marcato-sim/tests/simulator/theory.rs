//! Tests of simulated flows against theoretical results.
//!
//! `cargo test -p marcato-sim --test theory -- --nocapture` prints every value.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test numbers are small")]

use marcato_queue::{DropTail, DropTailConfig, Limit, Strict, StrictConfig};
use marcato_sim::{
    Arrivals, Bulk, Congestion, Cubic, DelayedAck, FlowId, LinkConfig, LinkId, Loss, Network, Side, Tcp,
    TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};

const ONE_WAY: Duration = Duration::from_millis(40);
const RTT: f64 = 0.08;
/// 1000-byte packets: 40 bytes of headers.
const MSS: u32 = 960;

fn packets(limit: u64) -> DropTail<marcato_sim::Packet> {
    DropTail::new(DropTailConfig { limit: Limit::Packets(limit) }).unwrap()
}

/// TCP as the formulas assume: an acknowledgement per segment, limited only by the congestion
/// window.
fn plain() -> Tcp {
    Tcp {
        mss: MSS,
        timestamps: false,
        delayed_ack: DelayedAck::NONE,
        send_buffer: Bytes::new(1 << 30),
        receive_buffer: Bytes::new(1 << 30),
        undo: false,
        ..Tcp::with(Congestion::Reno)
    }
}

/// One bulk flow over one link.
fn one_flow(seed: u64, forward: LinkConfig, back: LinkConfig, config: Tcp) -> (Network, FlowId, LinkId) {
    let mut net = Network::new(Seed::new(seed));
    let (client, server) = (net.node("client"), net.node("server"));
    let (link, _) = net.link(client, server, forward, back);
    let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless())).unwrap();
    (net, flow, link)
}

/// Returns the payload per second that arrived between two times.
fn goodput(net: &mut Network, flow: FlowId, from: Time, to: Time) -> f64 {
    net.run_until(from);
    let before = net.reception(flow, Side::Server).bytes;
    net.run_until(to);
    let arrived = net.reception(flow, Side::Server).bytes - before;
    arrived.get() as f64 / (to - from).as_secs_f64()
}

/// Returns the payload per second of a Reno flow on a wide link with this loss.
fn reno_under(loss: Loss, seed: u64, seconds: u64) -> f64 {
    let link = || LinkConfig::new(Rate::from_mbps(1000), ONE_WAY).queue(packets(100_000));
    let (mut net, flow, _) = one_flow(seed, link().loss(loss), link(), plain());
    let warm = Time::from_secs(20);
    goodput(&mut net, flow, warm, warm + Duration::from_secs(seconds))
}

/// Mathis et al. (1997): a deterministic sawtooth, an acknowledgement per segment:
/// 1.2247·MSS/(RTT·√p).
#[test]
fn reno_under_periodic_loss_follows_mathis_within_five_percent() {
    for every in [1_000u32, 10_000] {
        let theory = 1.5f64.sqrt() * f64::from(MSS) / RTT * f64::from(every).sqrt();
        let measured = reno_under(Loss::Every(u64::from(every)), 1, 600);
        println!(
            "periodic 1/{every}: {measured:.0} B/s, formula {theory:.0}, ratio {:.4}",
            measured / theory
        );
        assert!((0.95..=1.05).contains(&(measured / theory)), "1/{every}: {measured} against {theory}");
    }
}

/// With a delayed acknowledgement for every second segment and byte counting, growth does not
/// halve: it stays a segment per window.
#[test]
fn reno_counts_bytes_so_delayed_acknowledgements_do_not_slow_it() {
    let link = || LinkConfig::new(Rate::from_mbps(1000), ONE_WAY).queue(packets(100_000));
    let config = Tcp { delayed_ack: DelayedAck::default(), ..plain() };
    let (mut net, flow, _) = one_flow(1, link().loss(Loss::Every(1000)), link(), config);
    let measured = goodput(&mut net, flow, Time::from_secs(20), Time::from_secs(320));
    let theory = 1.5f64.sqrt() * f64::from(MSS) / RTT * 1000f64.sqrt();
    println!(
        "periodic 1/1000, delayed: {measured:.0} B/s, formula {theory:.0}, ratio {:.4}",
        measured / theory
    );
    assert!((0.92..=1.05).contains(&(measured / theory)), "{measured} against {theory}");
}

/// Random loss: 1.31·MSS/(RTT·√p) (Ott, Kemperman and Mathis), 600 s, the mean of five seeds.
#[test]
fn reno_at_random_loss_is_within_20_percent_of_the_sqrt_law() {
    let theory = 1.31 * f64::from(MSS) / (RTT * 1e-3f64.sqrt());
    let runs: Vec<f64> = (1..=5).map(|seed| reno_under(Loss::Random(1e-3), seed, 600)).collect();
    let mean = runs.iter().sum::<f64>() / 5.0;
    println!("random 1e-3: {runs:.0?}, mean {mean:.0} B/s, formula {theory:.0}, ratio {:.4}", mean / theory);
    assert!((0.8..=1.2).contains(&(mean / theory)), "{mean} against {theory}");
}

/// One flow whose buffer is b bandwidth-delay products: the window climbs from (1 + b)/2 to 1 + b
/// products, and below one product the link idles. U = [(3+b)(1-b)/8 + b(1+b/2)] / [(1-b)/2 +
/// b(1+b/2)].
#[test]
fn the_link_is_as_busy_as_its_buffer_allows() {
    // 40 Mbit/s over 80 ms: 400 packets.
    for b in [0.1f64, 0.25, 0.5, 1.0] {
        let buffer = (400.0 * b).round() as u64;
        let rate = Rate::from_mbps(40);
        let link = || LinkConfig::new(rate, ONE_WAY);
        let (mut net, flow, _) =
            one_flow(1, link().queue(packets(buffer)), LinkConfig::delay_only(ONE_WAY), plain());
        // After the end of slow start, over many saw teeth of 18 to 48 s.
        let measured = goodput(&mut net, flow, Time::from_secs(100), Time::from_secs(900));
        let busy = measured * 8.0 * 1000.0 / 960.0 / 40e6;
        let theory =
            ((3.0 + b) * (1.0 - b) / 8.0 + b * (1.0 + b / 2.0)) / ((1.0 - b) / 2.0 + b * (1.0 + b / 2.0));
        println!("buffer {b}: utilisation {busy:.4}, formula {theory:.4}");
        assert!((busy - theory).abs() < 0.03, "buffer {b}: {busy} against {theory}");
    }
}

/// Returns the mean window, in packets, of a CUBIC flow on a wide link of 100 ms with this loss.
fn cubic_window(cubic: Cubic, loss: Loss, seed: u64, seconds: u64) -> f64 {
    let one_way = Duration::from_millis(50);
    let link = || LinkConfig::new(Rate::from_mbps(10_000), one_way).queue(packets(100_000));
    let config = Tcp { congestion: Congestion::Cubic(cubic), ..plain() };
    let (mut net, flow, _) = one_flow(seed, link().loss(loss), link(), config);
    let warm = Time::from_secs(60);
    goodput(&mut net, flow, warm, warm + Duration::from_secs(seconds)) * 0.1 / f64::from(MSS)
}

/// RFC 9438 §5.1: with a loss after every 1/p packets the mean window is 1.0538·(RTT/p)^0.75.
///
/// The model has no fast convergence, which lowers W_max whenever the window reached is a packet
/// below the previous one; with it the band is wider. Without it a flow forgets its beginning very
/// slowly, as the function is flat near its maximum: a deviation of x packets shrinks by x³ only.
/// At 1e-5 that takes thousands of epochs of ten seconds, so the model is tested at 1e-4.
#[test]
fn cubics_mean_window_follows_its_response_function() {
    for (every, seconds, fast_convergence, band) in
        [(10_000u64, 4000, false, 0.05), (10_000, 1000, true, 0.15), (100_000, 600, true, 0.15)]
    {
        let theory = 1.0538 * (0.1 * every as f64).powf(0.75);
        let cubic = Cubic { fast_convergence, ..Cubic::default() };
        let measured = cubic_window(cubic, Loss::Every(every), 1, seconds);
        let ratio = measured / theory;
        println!(
            "CUBIC, periodic 1/{every}, fast convergence {fast_convergence}: window {measured:.1}, formula {theory:.1}, ratio {ratio:.4}"
        );
        assert!((ratio - 1.0).abs() < band, "1/{every}: {measured} against {theory}");
    }
}

/// Under frequent losses CUBIC behaves like Reno: RFC 9438 §4.3 sets its increase so that the
/// square root law of Reno holds, 1.2247/√p.
#[test]
fn cubic_under_frequent_loss_is_as_fast_as_reno() {
    let theory = 1.5f64.sqrt() * 1000f64.sqrt();
    let measured = cubic_window(Cubic::default(), Loss::Every(1000), 1, 300);
    println!(
        "CUBIC, periodic 1/1000: window {measured:.2}, Reno's formula {theory:.2}, ratio {:.4}",
        measured / theory
    );
    assert!((0.9..=1.1).contains(&(measured / theory)), "{measured} against {theory}");
}

/// Returns the share of the link that one CUBIC flow uses with a buffer of `b` bandwidth-delay
/// products of `bdp` packets. Each epoch begins at 0.7·W and overflows the buffer when the window
/// exceeds W = (1 + b)·bdp again. Below one product a window takes a round trip of `RTT` seconds;
/// above it the queue fills.
fn cubic_utilisation(b: f64, bdp: f64) -> f64 {
    let w_max = (1.0 + b) * bdp;
    let k = (w_max * 0.3 / 0.4).cbrt();
    let (mut t, mut carried, step) = (0.0, 0.0, 1e-3);
    // One packet beyond the maximum does not fit.
    while 0.4 * f64::powi(t - k, 3) < 1.0 {
        let window = 0.4 * f64::powi(t - k, 3) + w_max;
        carried += (window / bdp).min(1.0) * step;
        t += step;
    }
    carried / t
}

#[test]
fn a_cubic_flow_uses_as_much_of_the_link_as_its_function_says() {
    for b in [0.1f64, 0.25, 0.5, 1.0] {
        let bdp = 400.0;
        let buffer = (bdp * b).round() as u64;
        let link = || LinkConfig::new(Rate::from_mbps(40), ONE_WAY);
        let theory = cubic_utilisation(b, bdp);
        // With fast convergence, every overflow a segment early lowers the next epoch's maximum.
        // The flow is slower than the function, but never as slow as Reno.
        let reno =
            ((3.0 + b) * (1.0 - b) / 8.0 + b * (1.0 + b / 2.0)) / ((1.0 - b) / 2.0 + b * (1.0 + b / 2.0));
        for (fast_convergence, least) in [(false, theory - 0.03), (true, reno)] {
            let cubic = Cubic { fast_convergence, ..Cubic::default() };
            let config = Tcp { congestion: Congestion::Cubic(cubic), ..plain() };
            let (mut net, flow, _) =
                one_flow(1, link().queue(packets(buffer)), LinkConfig::delay_only(ONE_WAY), config);
            let measured = goodput(&mut net, flow, Time::from_secs(100), Time::from_secs(500));
            let busy = measured * 8.0 * 1000.0 / 960.0 / 40e6;
            println!(
                "CUBIC, buffer {b}, fast convergence {fast_convergence}: utilisation {busy:.4}, function {theory:.4}, Reno {reno:.4}"
            );
            assert!(busy >= least - 1e-3 && busy < theory + 0.03, "buffer {b}: {busy} against {theory}");
        }
    }
}

/// Rounds of slow start for 25 packets without loss: 1, 2, 4, 8, 16; 2, 4, 8, 16; and so on.
#[test]
fn slow_start_rounds_match_theory_for_each_initial_window() {
    for (initial_window, rounds) in [(1, 5), (2, 4), (3, 4), (4, 3), (10, 2)] {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(1000), ONE_WAY);
        net.link(client, server, link(), link());
        let config = Tcp { initial_window, ..plain() };
        let app = Bulk::new(Bytes::new(25 * u64::from(MSS)));
        let flow = net.tcp(TcpFlow::new(client, server, config, app)).unwrap();
        net.run_until(Time::from_secs(5));
        let reception = net.reception(flow, Side::Server);
        let took = reception.last_at.unwrap() - reception.first_at.unwrap();
        // The last packet of round r arrives r - 1 round trips after the first packet of the first.
        let seen = (took.as_secs_f64() / RTT).round() as u64 + 1;
        println!("initial window {initial_window}: {seen} rounds, theory {rounds}");
        assert_eq!(seen, rounds, "initial window {initial_window}");
    }
}

/// M/D/1: Poisson arrivals, equal packets; mean wait rho/(2·mu·(1 - rho)).
#[test]
fn poisson_packets_wait_as_long_as_pollaczek_and_khinchine_say() {
    for rho in [0.5, 0.8] {
        let mut net = Network::new(Seed::new(1));
        let (from, to) = (net.node("a"), net.node("b"));
        let rate = Rate::from_mbps(8);
        net.link(
            from,
            to,
            LinkConfig::new(rate, Duration::ZERO).queue(packets(1_000_000)),
            LinkConfig::new(rate, ONE_WAY),
        );
        let offered = Rate::from_bps((8e6 * rho) as u64);
        let flow = net
            .udp(UdpFlow { arrivals: Arrivals::Poisson, ..UdpFlow::new(from, to, offered, Bytes::new(972)) })
            .unwrap();
        net.run_until(Time::from_secs(1000));
        let stats = net.udp_stats(flow).unwrap();
        // A packet of 1000 bytes takes 1 ms.
        let wait = stats.delay_sum.as_secs_f64() / stats.packets as f64 * 1e3 - 1.0;
        let theory = rho / (2.0 * (1.0 - rho));
        println!("M/D/1 at {rho}: wait {wait:.4} ms, formula {theory:.4}, n {}", stats.packets);
        assert!((wait / theory - 1.0).abs() < 0.05, "rho {rho}: {wait} against {theory}");
    }
}

/// Basis of PLT: a high packet leaves when it would have left without low traffic, or at most one
/// low packet's transmission later.
#[test]
fn low_packets_delay_high_ones_by_at_most_one_low_packet() {
    let step = Duration::from_micros(100);
    // At 8 Mbit/s a low packet of 1000 bytes takes 1 ms: ten steps.
    let residual = 10;
    let arrivals = |with_low: bool| {
        let mut net = Network::new(Seed::new(3));
        let (from, to) = (net.node("a"), net.node("b"));
        let link = || LinkConfig::new(Rate::from_mbps(8), Duration::from_millis(5));
        net.link(from, to, link().queue(Strict::new(StrictConfig::default()).unwrap()), link());
        let poisson = UdpFlow {
            arrivals: Arrivals::Poisson,
            ..UdpFlow::new(from, to, Rate::from_mbps(6), Bytes::new(372))
        };
        let high = net.udp(poisson).unwrap();
        if with_low {
            let flood = UdpFlow::new(from, to, Rate::from_mbps(10), Bytes::new(972));
            net.udp(UdpFlow { layer: Layer::Low, ..flood }).unwrap();
        }
        let count = |net: &Network| net.udp_stats(high).unwrap().packets;
        (1..=200_000u32)
            .map(|i| {
                net.run_until(Time::ZERO + step * i);
                count(&net)
            })
            .collect::<Vec<_>>()
    };
    let (alone, with_low) = (arrivals(false), arrivals(true));
    println!("strict priority: {} high packets alone, {} with low", alone[199_999], with_low[199_999]);
    assert!(alone[199_999] > 30_000);
    assert_ne!(alone, with_low, "the low class must have been there");
    for t in 0..200_000 - residual {
        assert!(with_low[t] <= alone[t], "a high packet left early, at step {t}");
        assert!(
            with_low[t + residual] >= alone[t],
            "a high packet waited for more than one low packet, at step {t}"
        );
    }
}

/// Returns the seconds until 20 MB have arrived over 100 Mbit/s and 100 ms: 830 packets, and room
/// for 800 more.
fn short_transfer(hystart: bool, pacing: bool) -> f64 {
    let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(50)).queue(packets(800));
    let config = Tcp {
        congestion: Congestion::Cubic(Cubic { hystart, ..Cubic::default() }),
        pacing,
        send_buffer: Bytes::new(1 << 30),
        receive_buffer: Bytes::new(1 << 30),
        ..Tcp::default()
    };
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    net.link(client, server, link(), link());
    let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::new(Bytes::new(20_000_000)))).unwrap();
    net.run_until(Time::from_secs(60));
    net.reception(flow, Side::Server).finished_at.unwrap().as_secs_f64()
}

#[test]
fn paced_cubic_leaves_slow_start_only_when_the_path_is_full() {
    let [unpaced, paced, plain] = [(true, false), (true, true), (false, false)]
        .map(|(hystart, pacing)| short_transfer(hystart, pacing));
    println!("CUBIC, 20 MB: unpaced {unpaced:.3} s, paced {paced:.3} s, without HyStart {plain:.3} s");
    // Pacing spreads a window over at most a round trip.
    assert!((unpaced * 0.97..unpaced * 1.03 + 0.1).contains(&paced), "{paced} against {unpaced}");
    assert!((plain * 0.97..plain * 1.03).contains(&unpaced), "{unpaced} against {plain}");
}
