//! Tests of BBR over simulated paths.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_sim::{
    App, Bulk, Congestion, FlowId, LinkConfig, LinkId, Loss, Network, NodeId, Side, Socket, Tag, Tcp, TcpFlow,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

use crate::outcome::outcome;

const MSS: u64 = 1448;
/// 20 Mbit/s and 40 ms: 100 kB, 69 segments.
const BDP: u64 = 100_000;

fn config() -> Tcp {
    Tcp::with(Congestion::Bbr)
}

fn path(buffer: u64, loss: Loss) -> (Network, NodeId, NodeId, LinkId) {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(20), Duration::from_millis(20));
    let queue = DropTail::new(DropTailConfig { limit: Limit::Bytes(Bytes::new(buffer)) }).unwrap();
    let (there, _) = net.link(client, server, link().queue(queue).loss(loss), link());
    (net, client, server, there)
}

fn bulk(net: &mut Network, client: NodeId, server: NodeId, start: u64) -> FlowId {
    net.tcp(TcpFlow::new(client, server, config(), Bulk::endless()).start(Time::from_secs(start))).unwrap()
}

/// Returns the share of the link in use between two times.
fn busy(net: &mut Network, link: LinkId, from: u64, to: u64) -> f64 {
    net.run_until(Time::from_secs(from));
    let before = net.link_counters(link).carried_bytes;
    net.run_until(Time::from_secs(to));
    (net.link_counters(link).carried_bytes - before).get() as f64 * 8.0 / (20e6 * (to - from) as f64)
}

#[test]
fn one_flow_fills_the_link_with_about_a_product_in_flight() {
    let (mut net, client, server, link) = path(4 * BDP, Loss::None);
    let flow = bulk(&mut net, client, server, 0);
    net.run_until(Time::from_secs(2));
    let (mut most, mut sum) = (0, 0);
    let mut probes = Vec::new();
    let mut probing = false;
    let busy = {
        let before = net.link_counters(link).carried_bytes;
        for ms in (2_000..62_000u64).step_by(10) {
            net.run_until(Time::from_millis(ms));
            let stats = net.tcp_stats(flow, Side::Client).unwrap();
            most = most.max(stats.in_flight.get());
            sum += stats.in_flight.get();
            let low = stats.cwnd.get() == 4 * MSS;
            if low && !probing {
                probes.push(ms);
            }
            probing = low;
        }
        (net.link_counters(link).carried_bytes - before).get() as f64 * 8.0 / (20e6 * 60.0)
    };
    let stats = net.tcp_stats(flow, Side::Client).unwrap();
    println!("one BBR flow: busy {busy:.4}, mean in flight {}, most {most}, probes {probes:?}", sum / 6000);
    assert!(busy > 0.95, "{busy}");
    assert_eq!((stats.retransmissions, stats.timeouts), (0, 0));
    // Twice the product, and the allowance for batches and aggregated acknowledgements.
    assert!(most <= 2 * BDP + 12 * MSS, "{most}");
    assert!(sum / 6000 < BDP * 5 / 4, "{}", sum / 6000);
    // The minimum was last seen when the link was first idle: every ten seconds, and a little for
    // each probe.
    assert!(probes.len() == 5 || probes.len() == 6, "{probes:?}");
    assert!(probes.windows(2).all(|w| (10_000..=10_500).contains(&(w[1] - w[0]))), "{probes:?}");
}

#[test]
fn two_flows_share_the_link() {
    let (mut net, client, server, link) = path(2 * BDP, Loss::None);
    let flows = [bulk(&mut net, client, server, 0), bulk(&mut net, client, server, 3)];
    net.run_until(Time::from_secs(30));
    let before = flows.map(|f| net.reception(f, Side::Server).bytes.get());
    let busy = busy(&mut net, link, 30, 90);
    let got = flows.map(|f| net.reception(f, Side::Server).bytes.get());
    let share = (got[0] - before[0]) as f64 / (got[0] - before[0] + got[1] - before[1]) as f64;
    println!("two BBR flows: busy {busy:.4}, share of the first {share:.4}");
    assert!(busy > 0.95, "{busy}");
    // Equal round trips and equal rules: half each, but for the phases of their probes.
    assert!((0.47..=0.53).contains(&share), "{share}");
}

/// BBR does not take loss for congestion: at 1 % it still fills the link, where Reno would reach an
/// eighth.
#[test]
fn random_loss_of_one_percent_hardly_slows_it() {
    let (mut net, client, server, link) = path(2 * BDP, Loss::Random(0.01));
    bulk(&mut net, client, server, 0);
    let busy = busy(&mut net, link, 5, 65);
    println!("BBR under 1 % loss: busy {busy:.4}");
    assert!(busy > 0.9, "{busy}");
}

/// Application that sends as fast as the path allows for five seconds, then 1 kB every 100 ms.
struct FastThenSlow;

impl App for FastThenSlow {
    fn start(&mut self, socket: &mut Socket<'_>) {
        socket.set_timer(Time::from_secs(5), 0);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        if socket.now() < Time::from_secs(5) {
            socket.write(Bytes::kb(20), Priority::P2, Tag(0));
        }
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        socket.write(Bytes::kb(1), Priority::P2, Tag(0));
        socket.set_timer(socket.now() + Duration::from_millis(100), 0);
    }
}

#[test]
fn application_limited_sending_does_not_lower_the_pacing_rate() {
    let (mut net, client, server, _) = path(2 * BDP, Loss::None);
    let lean = Tcp { notsent_lowat: Some(Bytes::kb(20)), ..config() };
    let flow = net.tcp(TcpFlow::new(client, server, lean, FastThenSlow)).unwrap();
    net.run_until(Time::from_millis(4_900));
    let fast = net.tcp_stats(flow, Side::Client).unwrap().pacing_rate.unwrap();
    // Between two probes of the round trip.
    net.run_until(Time::from_secs(9));
    let slow = net.tcp_stats(flow, Side::Client).unwrap().pacing_rate.unwrap();
    println!("app-limited BBR: pace {fast} before, {slow} after");
    assert!(slow.as_bps() > fast.as_bps() * 7 / 10, "{fast} before, {slow} after");
    assert!((14.0..=26.0).contains(&slow.as_mbps_f64()), "{slow}");
}

/// Between two acknowledgements the pacing rate is constant, and segments leave exactly at its
/// interval: behind an infinitely fast first link, arrivals are spaced like departures.
#[test]
fn the_first_window_leaves_at_the_pace_of_the_handshake() {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let delay = Duration::from_millis(50);
    net.link(client, server, LinkConfig::delay_only(delay), LinkConfig::delay_only(delay));
    let app = Bulk::new(Bytes::new(10 * MSS));
    let flow = net.tcp(TcpFlow::new(client, server, config(), app)).unwrap();
    net.run_until(Time::from_millis(100));
    let rate = net.tcp_stats(flow, Side::Client).unwrap().pacing_rate.unwrap();
    // Ten segments in 100 ms, times 2.887, less 1 %: 2.858 times 144.8 kB/s.
    let expected = 10 * MSS * 10 * 739 * 99 / 25_600;
    assert_eq!(rate.as_bytes_per_sec(), expected);
    net.run_until(Time::from_secs(1));
    let reception = net.reception(flow, Side::Server);
    let spacing = rate.transmission_time(Bytes::new(MSS));
    assert_eq!(reception.last_at.unwrap() - reception.first_at.unwrap(), spacing * 9);
}

/// TCP as Linux has it.
const LINUX: &str = "segmentation-offload = \"64 KiB\", unpaced-segments = 10, idle-decay = true, \
    usage-by-round = true, reduce-window = true, safe-ack = true, rto-margin = \"200 ms\", \
    delayed-ack = { quick = 16 }";

/// A feeder that keeps less than a segment unsent is limited by itself whenever it writes. BBR then never sees that the
/// link is full, and keeps the window of its startup: a median of 309 to 327 ms over Linux 6.18.
#[test]
fn behind_a_lean_feeder_bbr_stays_in_startup() {
    let outcome = outcome(&format!(
        r#"
        name = "keystrokes"
        duration = "20 s"
        warm-up = "2 s"
        nodes = ["sender", "receiver"]
        [[link]]
        name = "bottleneck"
        between = ["sender", "receiver"]
        rate = "2 Mbit/s"
        delay = "60 ms"
        queue = {{ kind = "droptail", limit = "1000 packets" }}
        [[flow]]
        name = "session"
        kind = "messages"
        from = "sender"
        to = "receiver"
        congestion = "bbr"
        chunk = "1000 B"
        bulk = "p4"
        sources = [{{ period = "20 ms", size = "200 B", priority = "p0" }}]
        tcp = {{ mss = "1000 B", notsent-lowat = "1000 B", send-buffer = "131072 B", receive-buffer = "131072 B", {LINUX} }}
        "#
    ));
    let mut delays: Vec<f64> = outcome.flows[0].times[0].samples().collect();
    delays.sort_by(f64::total_cmp);
    let median = delays[delays.len() / 2];
    println!("keystrokes beside a file over BBR: median {median:.1} ms of {}", delays.len());
    assert!((290.0..=360.0).contains(&median), "{median}");
    assert!(delays.len() > 850, "{}", delays.len());
}

/// Mean queue delay in ms and drops of one bulk flow beside a few requests, at 100 Mbit/s and 120 ms.
fn long_and_fast(queue: &str) -> (f64, u64) {
    let outcome = outcome(&format!(
        r#"
        name = "linux-grid"
        duration = "14 s"
        warm-up = "4 s"
        nodes = ["server", "client"]
        [[link]]
        name = "net"
        between = ["server", "client"]
        rate = "100 Mbit/s"
        delay = "60 ms"
        queue = {queue}
        [[flow]]
        name = "bulk"
        kind = "tcp"
        congestion = "bbr"
        from = "server"
        to = "client"
        tcp = {{ {LINUX} }}
        [[flow]]
        name = "page"
        kind = "request-response"
        from = "client"
        to = "server"
        start = "2 s"
        response = "100 kB"
        think = "500 ms"
        tcp = {{ {LINUX} }}
        "#
    ));
    let there = &outcome.links[0];
    (there.queue_delay.unwrap().mean.as_secs_f64() * 1e3, there.drops)
}

/// A flow that fills its send buffer is limited by itself only at times, and sees in the end that the link is full:
/// a mean queue delay of 7 ms over Linux 6.18, where BBR that stayed in startup had 70.
#[test]
fn with_a_full_send_buffer_bbr_leaves_startup() {
    let (delay, drops) = long_and_fast("\"codel\"");
    println!("BBR behind CoDel: {delay:.1} ms, {drops} drops");
    assert!((4.0..=11.0).contains(&delay), "{delay}");
    assert!(drops < 500, "{drops}");
}

/// BBR stays in startup where nothing is lost, since every wake of the writer finds all sent: 145 ms over Linux 6.18,
/// against 12 if the rate is known to be the link's.
#[test]
fn with_a_full_send_buffer_and_no_loss_it_does_not() {
    let (delay, drops) = long_and_fast(r#"{ kind = "droptail", limit = "4000 packets" }"#);
    println!("BBR before a deep queue: {delay:.1} ms, {drops} drops");
    assert!((115.0..=165.0).contains(&delay), "{delay}");
    assert_eq!(drops, 0);
}
