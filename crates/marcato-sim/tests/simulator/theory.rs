//! Simulated flows against theoretical results that no row of `marcato validate` has. Its other results are
//! tested in `marcato-papers`, by a quick run.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test numbers are small")]

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{Bulk, Congestion, Cubic, DelayedAck, FlowId, LinkConfig, Network, Side, Tcp, TcpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

const ONE_WAY: Duration = Duration::from_millis(40);
const RTT: f64 = 0.08;
/// 1000-byte packets: 40 bytes of headers.
const MSS: u32 = 960;

/// One flow of these bytes over a link with a queue of so many packets. TCP is as the formulas assume: an
/// acknowledgement per segment, limited only by the congestion window.
fn one_flow(rate: Rate, queue: u64, config: Tcp, app: Bulk) -> (Network, FlowId) {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(queue) }).unwrap();
    net.link(client, server, LinkConfig::new(rate, ONE_WAY).queue(queue), LinkConfig::delay_only(ONE_WAY));
    let config = Tcp {
        mss: MSS,
        timestamps: false,
        delayed_ack: DelayedAck::NONE,
        send_buffer: Bytes::new(1 << 30),
        receive_buffer: Bytes::new(1 << 30),
        undo: false,
        ..config
    };
    let flow = net.tcp(TcpFlow::new(client, server, config, app)).unwrap();
    (net, flow)
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
        let theory = cubic_utilisation(b, bdp);
        // With fast convergence, every overflow a segment early lowers the next epoch's maximum.
        // The flow is slower than the function, but never as slow as Reno.
        let reno =
            ((3.0 + b) * (1.0 - b) / 8.0 + b * (1.0 + b / 2.0)) / ((1.0 - b) / 2.0 + b * (1.0 + b / 2.0));
        for (fast_convergence, least) in [(false, theory - 0.03), (true, reno)] {
            let cubic = Cubic { fast_convergence, ..Cubic::default() };
            let config = Tcp::with(Congestion::Cubic(cubic));
            let (mut net, flow) = one_flow(Rate::from_mbps(40), buffer, config, Bulk::endless());
            let arrived = [100, 500].map(|until| {
                net.run_until(Time::from_secs(until));
                net.reception(flow, Side::Server).bytes.get() as f64
            });
            let busy = (arrived[1] - arrived[0]) / 400.0 * 8.0 * 1000.0 / 960.0 / 40e6;
            assert!(busy >= least - 1e-3 && busy < theory + 0.03, "buffer {b}: {busy} against {theory}");
        }
    }
}

/// Rounds of slow start for 25 packets without loss: 1, 2, 4, 8, 16; 2, 4, 8, 16; and so on.
#[test]
fn slow_start_rounds_match_theory_for_each_initial_window() {
    for (initial_window, rounds) in [(1, 5), (2, 4), (3, 4), (4, 3), (10, 2)] {
        let config = Tcp { initial_window, ..Tcp::with(Congestion::Reno) };
        let app = Bulk::new(Bytes::new(25 * u64::from(MSS)));
        let (mut net, flow) = one_flow(Rate::from_mbps(1000), 1000, config, app);
        net.run_until(Time::from_secs(5));
        let reception = net.reception(flow, Side::Server);
        let took = reception.last_at.unwrap() - reception.first_at.unwrap();
        // The last packet of round r arrives r - 1 round trips after the first packet of the first.
        let seen = (took.as_secs_f64() / RTT).round() as u64 + 1;
        assert_eq!(seen, rounds, "initial window {initial_window}");
    }
}
