//! Flows of L4S (Prague) beside classic ones at a DualPI2 queue: what RFC 9332 promises.

use std::sync::{Arc, Mutex};

use marcato_queue::{Backlog, Counters, Discipline, DualPi2, DualPi2Config, Packet, Verdict};
use marcato_sim::{Bulk, Congestion, FlowId, LinkConfig, Network, Side, Tcp, TcpFlow};
use marcato_units::{Duration, Rate, Seed, Time};

/// DualPI2 that notes how many bytes wait in its L queue whenever a packet leaves.
struct Watched<P> {
    queue: DualPi2<P>,
    seen: Arc<Mutex<Vec<u64>>>,
}

impl<P: Packet> Discipline<P> for Watched<P> {
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        self.queue.enqueue_with(now, packet, on_drop)
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        if now > Time::from_secs(10) {
            self.seen.lock().unwrap().push(self.queue.l4s_backlog().bytes.get());
        }
        self.queue.dequeue_with(now, on_drop)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.queue.next_ready(now)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn counters(&self) -> &Counters {
        self.queue.counters()
    }
}

/// Result of 60 seconds of two endless flows: the rates from the tenth second on, in Mbit/s, and the delay of the L queue
/// in milliseconds that 99 % of the packets do not exceed.
struct Shared {
    rates: [f64; 2],
    l4s_delay: f64,
}

fn shared(first: Congestion, second: Congestion, rtt: Duration) -> Shared {
    let rate = Rate::from_mbps(40);
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let queue = DualPi2::new(DualPi2Config::default(), Seed::new(2).stream("dualpi2")).unwrap();
    let queue = Watched { queue, seen: Arc::clone(&seen) };
    let one_way = rtt / 2;
    net.link(client, server, LinkConfig::new(rate, one_way).queue(queue), LinkConfig::delay_only(one_way));
    let flows: Vec<FlowId> = [first, second]
        .into_iter()
        .map(|congestion| {
            let ecn = congestion == Congestion::Prague;
            let tcp = Tcp { ecn, ..Tcp::with(congestion) };
            net.tcp(TcpFlow::new(client, server, tcp, Bulk::endless())).unwrap()
        })
        .collect();
    let mut arrived = Vec::new();
    for until in [10, 60] {
        net.run_until(Time::from_secs(until));
        arrived.push([0, 1].map(|flow| net.reception(flows[flow], Side::Server).bytes.get() as f64));
    }
    let rates = [0, 1].map(|flow| (arrived[1][flow] - arrived[0][flow]) * 8.0 / 50.0 / 1e6);
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_unstable();
    let l4s_delay = seen[seen.len() * 99 / 100] as f64 * 8.0 / rate.as_bps() as f64 * 1e3;
    Shared { rates, l4s_delay }
}

#[test]
fn flows_of_both_queues_share_a_link_and_the_l_queue_is_short() {
    for rtt in [10, 20, 50] {
        let shared = shared(Congestion::Prague, Congestion::CUBIC, Duration::from_millis(rtt));
        let [prague, cubic] = shared.rates;
        assert!(prague + cubic > 36.0, "{rtt} ms: {prague} and {cubic} leave the link idle");
        // RFC 9332 §2.4: k = 2 is for equal rates at a typical round trip.
        assert!((0.5..=2.0).contains(&(prague / cubic)), "{rtt} ms: {prague} beside {cubic}");
        assert!(shared.l4s_delay <= 1.5, "{rtt} ms: {} ms", shared.l4s_delay);
    }
}

#[test]
fn a_flow_of_the_l_queue_alone_fills_the_link() {
    let shared = shared(Congestion::Prague, Congestion::Prague, Duration::from_millis(20));
    let [one, other] = shared.rates;
    assert!(one + other > 35.0, "{one} and {other}");
    assert!((0.67..=1.5).contains(&(one / other)), "{one} and {other}");
    assert!(shared.l4s_delay <= 1.5, "{} ms", shared.l4s_delay);
}
