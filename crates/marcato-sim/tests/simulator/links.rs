//! Tests of links with bursts of losses, jitter, traces and MTUs.
//!
//! Debug builds check conservation at the end of every [`Network::run_until`].

use std::collections::VecDeque;

use marcato_queue::{Codel, CodelConfig, DropTail, DropTailConfig, Limit};
use marcato_sim::{
    Bulk, Congestion, DatagramFlow, FlowId, GilbertElliott, Host, HostContext, Incoming, Jitter, LinkChange,
    LinkConfig, LinkId, LinkQueue, Loss, Network, NodeId, Outgoing, Route, RouteError, RouteId, Side, Tcp,
    TcpFlow, Trace, UdpFlow,
};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};
use proptest::prelude::*;

/// Host that sends numbered datagrams at given times, and records arrivals.
#[derive(Default)]
struct Numbered {
    /// Times, ascending, and lengths of the IP packets.
    plan: VecDeque<(Time, usize)>,
    sent: u32,
    got: Vec<(Time, u32)>,
}

impl Numbered {
    fn sending(plan: impl IntoIterator<Item = (Time, usize)>) -> Self {
        Self { plan: plan.into_iter().collect(), ..Self::default() }
    }
}

/// Length of IPv4 and UDP headers.
const HEADERS: usize = 28;

impl Host for Numbered {
    fn datagram(&mut self, now: Time, incoming: Incoming, _context: &HostContext<'_>) {
        let number = incoming.payload[..4].try_into().map(u32::from_be_bytes).unwrap();
        self.got.push((now, number));
    }

    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        let &(_, len) = self.plan.front().filter(|&&(at, _)| at <= now)?;
        self.plan.pop_front();
        payload.extend_from_slice(&self.sent.to_be_bytes());
        payload.resize(len - HEADERS, 0);
        self.sent += 1;
        Some(Outgoing::over(RouteId::new(0)))
    }

    fn next_timer(&self) -> Option<Time> {
        self.plan.front().map(|&(at, _)| at)
    }
}

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two nodes and a link, over which the client sends packets of these lengths at these times.
fn over(
    seed: u64,
    link: LinkConfig,
    plan: impl IntoIterator<Item = (Time, usize)>,
) -> (Network, FlowId, LinkId) {
    let mut net = Network::new(Seed::new(seed));
    let (a, b) = (net.node("a"), net.node("b"));
    let (there, _) = net.link(a, b, link, LinkConfig::delay_only(Duration::ZERO));
    let hosts = (Numbered::sending(plan), Numbered::default());
    let flow = net.datagrams(DatagramFlow::new(hosts.0, hosts.1, vec![Route::new(a, b)])).unwrap();
    (net, flow, there)
}

fn got(net: &Network, flow: FlowId) -> &[(Time, u32)] {
    &net.host::<Numbered>(flow, Side::Server).unwrap().got
}

/// One packet per millisecond.
fn steady(packets: u64, len: usize) -> impl Iterator<Item = (Time, usize)> {
    (0..packets).map(move |n| (ms(n), len))
}

#[test]
fn packets_leave_at_opportunities_and_large_ones_span_several() {
    let trace: Trace = "3\n4\n4\n10\n".parse().unwrap();
    // Of the four at 0 ms, the first two share the opportunity at 3 ms, and the third begins in it.
    let plan = [(0, 600), (0, 600), (0, 600), (0, 1500), (11, 1500), (21, 4500)];
    let plan = plan.map(|(at, len)| (ms(at), len));
    let (mut net, flow, link) = over(1, LinkConfig::delay_only(millis(100)).trace(trace), plan);
    net.run_until(ms(1000));
    let arrivals: Vec<_> = got(&net, flow).iter().map(|&(at, _)| at.as_millis_f64() - 100.0).collect();
    // The rest of the second opportunity at 4 ms is too little for the fourth packet, which ends in
    // the third. After 11 ms the next opportunity is at 13 ms; after 21 ms they are at 23, 24 and
    // 24.
    assert_eq!(arrivals, [3.0, 3.0, 4.0, 4.0, 13.0, 24.0]);
    assert_eq!(net.link_counters(link).carried_bytes, Bytes::new(9300));
}

#[test]
fn with_four_bytes_of_framing_1500_bytes_fill_an_opportunity() {
    let trace = Trace::from_millis([1, 2, 3]).unwrap();
    let (mut net, flow, _) =
        over(1, LinkConfig::from_trace(trace, Duration::ZERO), [(ms(0), 1500), (ms(0), 40), (ms(0), 40)]);
    net.run_until(ms(100));
    assert_eq!(got(&net, flow), [(ms(1), 0), (ms(2), 1), (ms(2), 2)]);
}

#[test]
fn a_backlogged_trace_link_carries_its_mean_rate() {
    let trace = Trace::from_millis([1, 1, 1, 9, 9, 20, 20, 33, 47, 50]).unwrap();
    let offered = trace.mean_rate().as_bps() * 2;
    let mut net = Network::new(Seed::new(1));
    let (a, b) = (net.node("a"), net.node("b"));
    let link = || LinkConfig::from_trace(trace.clone(), millis(10));
    let (there, _) = net.link(a, b, link(), link());
    net.udp(UdpFlow::new(a, b, Rate::from_bps(offered), Bytes::new(700))).unwrap();
    net.run_until(Time::from_secs(10));
    // A packet of 732 bytes arrives every 1.2 ms, so at 1 ms there is one for three opportunities.
    // All later ones of the 200 rounds are used up. The last packet counts when it begins to leave.
    let least = 200 * 10 * 1504 - (3 * 1504 - 732);
    let carried = net.link_counters(there).carried_bytes.get();
    assert!((least..least + 732).contains(&carried), "{carried} of {least}");
}

/// Link that pre-empts, with high and low packets at these times.
fn preempting(
    seed: u64,
    link: LinkConfig,
    high: Vec<(Time, usize)>,
    low: Vec<(Time, usize)>,
) -> (Network, [FlowId; 2], LinkId) {
    let mut net = Network::new(Seed::new(seed));
    let (a, b) = (net.node("a"), net.node("b"));
    let link = link.preempt(DropTail::default());
    let (there, _) = net.link(a, b, link, LinkConfig::delay_only(Duration::ZERO));
    let flows = [(high, Layer::High), (low, Layer::Low)].map(|(plan, layer)| {
        let hosts = (Numbered::sending(plan), Numbered::default());
        net.datagrams(DatagramFlow::new(hosts.0, hosts.1, vec![Route::new(a, b).layer(layer)])).unwrap()
    });
    (net, flows, there)
}

/// Link on which a byte takes a microsecond.
fn eight() -> LinkConfig {
    LinkConfig::new(Rate::from_mbps(8), Duration::ZERO)
}

fn us(us: u64) -> Time {
    Time::from_micros(us)
}

#[test]
fn a_low_packet_is_preempted_by_high_ones_and_then_resumes() {
    let high = vec![(us(300), 200), (us(600), 100), (us(650), 100), (us(3000), 100)];
    let low = vec![(us(0), 1000), (us(0), 500), (us(3050), 100)];
    let (mut net, [high, low], link) = preempting(1, eight(), high, low);
    net.run_until(ms(10));
    assert_eq!(got(&net, high), [(us(500), 0), (us(700), 1), (us(800), 2), (us(3100), 3)]);
    // 300 us, then 100, then the rest, followed by the next packet; the last one waits for a high
    // packet in transmission.
    assert_eq!(got(&net, low), [(us(1400), 0), (us(1900), 1), (us(3200), 2)]);
    assert_eq!(net.link_counters(link).carried_bytes, Bytes::new(2100));
}

#[test]
fn in_an_outage_no_low_packet_starts_but_a_started_one_is_sent() {
    let low = vec![(us(0), 1000), (us(700), 100)];
    let (mut net, [high, low], link) = preempting(1, eight(), vec![(us(600), 200)], low);
    net.set_rate_at(link, us(500), Rate::ZERO);
    net.set_rate_at(link, us(5000), Rate::from_mbps(8));
    net.run_until(ms(10));
    assert_eq!(got(&net, high), [(us(5200), 0)]);
    assert_eq!(got(&net, low), [(us(1000), 0), (us(5300), 1)]);
}

#[test]
fn a_pause_of_a_day_costs_no_events() {
    let day = 24 * 3600 * 1000;
    let trace = Trace::from_millis([5, day]).unwrap();
    let plan = [(ms(0), 1000), (ms(6), 1000)];
    let (mut net, flow, _) = over(1, LinkConfig::delay_only(millis(1)).trace(trace), plan);
    net.run_until(ms(u64::from(day) * 3));
    assert_eq!(got(&net, flow), [(ms(6), 0), (ms(u64::from(day) + 1), 1)]);
    assert!(net.events() < 12, "{}", net.events());
}

#[test]
fn opportunities_pass_unused_while_the_rate_is_zero() {
    let trace = Trace::from_millis([10]).unwrap();
    let (mut net, flow, link) =
        over(1, LinkConfig::from_trace(trace, Duration::ZERO), (0..4).map(|n| (ms(n), 1500)));
    net.set_rate_at(link, ms(15), Rate::ZERO);
    net.set_rate_at(link, ms(101), Rate::MAX);
    net.run_until(ms(1000));
    assert_eq!(got(&net, flow), [(ms(10), 0), (ms(110), 1), (ms(120), 2), (ms(130), 3)]);
}

#[test]
fn a_packet_above_the_mtu_is_dropped_on_entry_and_counted() {
    let link = LinkConfig::new(Rate::from_mbps(8), millis(1)).mtu(Bytes::new(1280));
    let (mut net, flow, link) = over(1, link, [(ms(0), 1280), (ms(10), 1281), (ms(20), 1280)]);
    net.run_until(ms(100));
    assert_eq!(got(&net, flow).iter().map(|&(_, number)| number).collect::<Vec<_>>(), [0, 2]);
    let counters = net.link_counters(link);
    assert_eq!((counters.offered, counters.too_big, counters.delivered, counters.dropped), (3, 1, 2, 0));
    assert_eq!(net.queue_counters(link).0.enqueued.packets, 2);
    assert_eq!(net.tally(flow, Side::Client).dropped, 1);
}

#[test]
fn the_path_mtu_is_the_least_on_the_way() {
    let mut net = Network::new(Seed::new(1));
    let [a, b, c, d, alone] = ["a", "b", "c", "d", "alone"].map(|name| net.node(name));
    let free = || LinkConfig::delay_only(Duration::ZERO);
    net.link(a, b, free().mtu(Bytes::new(9000)), free());
    net.link(b, c, free(), free().mtu(Bytes::new(1280)));
    net.link(c, d, free().mtu(Bytes::new(1500)), free());
    assert_eq!(net.path_mtu(a, b), Ok(Some(Bytes::new(9000))));
    assert_eq!(net.path_mtu(a, d), Ok(Some(Bytes::new(1500))));
    assert_eq!(net.path_mtu(d, a), Ok(Some(Bytes::new(1280))));
    assert_eq!(net.path_mtu(b, a), Ok(None));
    assert!(matches!(net.path_mtu(a, alone), Err(RouteError::NoRoute { .. })));
}

#[test]
fn a_one_way_link_carries_no_traffic_in_the_other_direction() {
    let mut net = Network::new(Seed::new(1));
    let [a, b, c] = ["a", "b", "c"].map(|name| net.node(name));
    let free = |delay| LinkConfig::delay_only(millis(delay));
    let back = net.one_way(c, a, free(5));
    assert!(matches!(net.path_mtu(a, c), Err(RouteError::NoRoute { .. })));
    net.link(a, b, free(10), free(100));
    net.link(b, c, free(20), free(100));
    let hosts = [(); 2].map(|()| Numbered::sending([(ms(1000), 100)]));
    let [client, server] = hosts;
    let flow = net.datagrams(DatagramFlow::new(client, server, vec![Route::new(a, c)])).unwrap();
    net.run_until(ms(2000));
    assert_eq!(got(&net, flow), [(ms(1030), 0)]);
    assert_eq!(net.host::<Numbered>(flow, Side::Client).unwrap().got, [(ms(1005), 0)]);
    assert_eq!(net.link_counters(back).delivered, 1);
}

#[test]
fn jitter_reorders_only_where_it_may() {
    let link =
        |reorder| LinkConfig::delay_only(millis(10)).jitter(Jitter::uniform(millis(20)).reorder(reorder));
    let run = |reorder| {
        let (mut net, flow, _) = over(1, link(reorder), steady(1000, 100));
        net.run_until(ms(2000));
        got(&net, flow).to_vec()
    };
    let (ordered, reordered) = (run(false), run(true));
    assert!(ordered.is_sorted_by_key(|&(_, number)| number));
    assert!(!reordered.is_sorted_by_key(|&(_, number)| number));
    assert!(reordered.is_sorted_by_key(|&(at, _)| at));
    // Both drew the same delays: in order, each packet arrives with the latest of its predecessors.
    let mut by_number = reordered.clone();
    by_number.sort_by_key(|&(_, number)| number);
    let mut latest = Time::ZERO;
    for (&(at, _), &(free, _)) in ordered.iter().zip(&by_number) {
        latest = latest.max(free);
        assert_eq!(at, latest);
    }
}

#[test]
fn held_packets_are_passed_by_as_many_as_fit_into_the_span() {
    let jitter = Jitter::held(0.01, Duration::from_micros(5500)).unwrap().reorder(true);
    let (mut net, flow, _) = over(3, LinkConfig::delay_only(millis(10)).jitter(jitter), steady(2000, 100));
    net.run_until(ms(4000));
    let numbers: Vec<_> = got(&net, flow).iter().map(|&(_, number)| number).collect();
    let late = (0..2000).filter(|&number| numbers[number as usize] < number).count();
    let held =
        got(&net, flow).iter().filter(|&&(at, n)| at == ms(u64::from(n) + 15) + Duration::from_micros(500));
    let held: Vec<_> = held.map(|&(_, number)| number).collect();
    assert!(late >= 1 && (5..=40).contains(&held.len()), "{late} {held:?}");
    for number in held {
        let place = numbers.iter().position(|&n| n == number).unwrap();
        // Five overtake it, unless some of these are held themselves.
        assert!(place <= number as usize + 5, "{number} at {place}");
    }
}

#[test]
fn loss_leaves_the_delays_of_other_packets_alone() {
    let run = |loss| {
        let jitter = Jitter::normal(millis(20), millis(5)).reorder(true);
        let (mut net, flow, _) =
            over(1, LinkConfig::delay_only(millis(10)).jitter(jitter).loss(loss), steady(500, 100));
        net.run_until(ms(2000));
        got(&net, flow).to_vec()
    };
    let all = run(Loss::None);
    let bursts = GilbertElliott::bursts(0.1, 4.0).unwrap();
    let some = run(Loss::GilbertElliott(bursts));
    assert!(some.len() < all.len());
    assert!(some.iter().all(|arrival| all.contains(arrival)));
}

#[test]
fn tcp_comes_through_bursts_and_reordering() {
    let mut net = Network::new(Seed::new(5));
    let (a, b) = (net.node("a"), net.node("b"));
    let bursts = GilbertElliott::bursts(0.01, 5.0).unwrap();
    let link = || {
        LinkConfig::new(Rate::from_mbps(10), millis(20))
            .loss(Loss::GilbertElliott(bursts))
            .jitter(Jitter::exponential(millis(2), millis(30)).reorder(true))
            .mtu(Bytes::new(1500))
    };
    net.link(a, b, link(), link());
    let flow = net.tcp(TcpFlow::new(a, b, Tcp::with(Congestion::Reno), Bulk::new(Bytes::kb(2_000)))).unwrap();
    net.run_until(Time::from_secs(300));
    assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::kb(2_000));
    assert!(net.is_finished(flow, Side::Client));
}

/// Returns the arrivals of one packet per millisecond over a link of 50 ms, whose delay changes
/// after ten and a half.
fn delay_changes(to: u64, reorder: bool, jitter: Option<Jitter>) -> Vec<(u64, u32)> {
    let link = LinkConfig { jitter, ..LinkConfig::delay_only(millis(50)) };
    let (mut net, flow, there) = over(1, link, steady(60, 100));
    let change = LinkChange::Delay { delay: millis(to), reorder };
    net.change_link_at(there, Time::from_micros(10_500), change);
    net.run_until(ms(1000));
    got(&net, flow).iter().map(|&(at, number)| (at.as_nanos() / 1_000_000, number)).collect()
}

#[test]
fn packets_keep_the_delay_with_which_they_were_sent() {
    let arrival = |n| (if n <= 10 { 50 } else { 70 } + u64::from(n), n);
    assert_eq!(delay_changes(70, true, None), (0..60).map(arrival).collect::<Vec<_>>());
    // With a shorter delay, later packets overtake those in flight.
    let mut expected: Vec<_> = (0..60).map(|n| (if n <= 10 { 50 } else { 20 } + u64::from(n), n)).collect();
    // Of two that arrive in one instant, the one that left first comes first.
    expected.sort_by_key(|&(at, n)| (at, n));
    assert_eq!(delay_changes(20, true, None), expected);
}

#[test]
fn a_shorter_delay_keeps_the_order_where_it_is_to() {
    let kept: Vec<_> =
        (0..60).map(|n| (if n <= 10 { 50 + u64::from(n) } else { (20 + u64::from(n)).max(60) }, n)).collect();
    assert_eq!(delay_changes(20, false, None), kept);
    // Jitter that keeps the order overrides the change.
    assert_eq!(delay_changes(20, true, Some(Jitter::uniform(Duration::ZERO))), kept);
}

#[test]
fn another_loss_counts_from_its_beginning() {
    let link = LinkConfig::delay_only(millis(5)).loss(Loss::Every(3));
    let (mut net, flow, there) = over(1, link, steady(20, 100));
    net.change_link_at(there, Time::from_micros(7_500), LinkChange::Loss(Loss::Script(vec![0, 2])));
    net.change_link_at(there, Time::from_micros(14_500), LinkChange::Loss(Loss::None));
    net.run_until(ms(1000));
    let arrived: Vec<_> = got(&net, flow).iter().map(|&(_, number)| number).collect();
    assert_eq!(arrived, (0..20).filter(|n| ![2, 5, 8, 10].contains(n)).collect::<Vec<_>>());
    assert_eq!(net.link_counters(there).lost, 4);
}

/// Ten packets at once, of a millisecond each.
fn ten(link: LinkConfig) -> (Network, FlowId, LinkId) {
    over(1, link, (0..10).map(|_| (Time::ZERO, 1000)))
}

#[test]
fn packets_move_to_a_new_queue_in_order_and_overflow_is_dropped() {
    let (mut net, flow, there) = ten(eight());
    net.change_link_at(
        there,
        Time::from_micros(2_500),
        LinkChange::Queue { queue: queue(4, false), low: None },
    );
    net.run_until(Time::from_micros(2_500));
    let (counters, backlog) = net.queue_counters(there);
    assert_eq!((counters.enqueued.packets, counters.dequeued.packets, counters.dropped.packets), (10, 3, 3));
    assert_eq!(backlog.packets, 4);
    net.run_until(ms(1000));
    let arrived: Vec<_> = got(&net, flow).iter().map(|&(at, number)| (at, number)).collect();
    // The packet on the transmitter continues, and the wire is busy without a gap.
    assert_eq!(arrived, (0..7).map(|n| (ms(u64::from(n) + 1), n)).collect::<Vec<_>>());
    assert_eq!(net.link_counters(there).dropped, 3);
}

#[test]
fn queueing_delay_lasts_until_departure_across_a_queue_change() {
    let delays = |change_at: Option<u64>| {
        let (mut net, _, there) = ten(eight());
        net.watch_queue(there);
        if let Some(at) = change_at {
            net.change_link_at(there, us(at), LinkChange::Queue { queue: queue(100, false), low: None });
        }
        net.run_until(ms(1000));
        let delays = net.queue_delays(there).unwrap();
        let spans = delays.spans().unwrap();
        (delays.packets, delays.sum, spans.min(), spans.max())
    };
    // Packet n waits n ms for those before it.
    assert_eq!(delays(None), (10, millis(45), Some(Duration::ZERO), Some(millis(9))));
    assert_eq!(delays(Some(2_500)), delays(None));
    // A dropped packet has not left, and its place is free again.
    let (mut net, _, there) = ten(LinkConfig { queue: queue(4, false), ..eight() });
    net.watch_queue(there);
    net.run_until(ms(1000));
    let delays = net.queue_delays(there).unwrap();
    assert_eq!((delays.packets, delays.sum), (5, millis(1 + 2 + 3 + 4)));
}

#[test]
fn both_classes_of_a_link_that_pre_empts_wait() {
    let (mut net, _, there) = preempting(1, eight(), vec![(us(500), 1000)], vec![(Time::ZERO, 1000); 2]);
    net.watch_queue(there);
    net.run_until(ms(1000));
    let delays = net.queue_delays(there).unwrap();
    // The first low packet leaves its queue at once and pauses; the second waits until both others
    // have left.
    assert_eq!((delays.packets, delays.sum), (3, millis(2)));
}

#[test]
fn watching_a_queue_alters_nothing_and_records_zero_waits() {
    let run = |watched: bool| {
        let (mut net, flow, there) = over(1, LinkConfig::delay_only(millis(5)), steady(10, 100));
        if watched {
            net.watch_queue(there);
        }
        net.run_until(ms(1000));
        let waited = net.queue_delays(there).map(|delays| (delays.packets, delays.sum));
        (got(&net, flow).to_vec(), net.events(), waited)
    };
    let (unwatched, watched) = (run(false), run(true));
    assert_eq!((unwatched.0, unwatched.1), (watched.0, watched.1));
    assert_eq!((unwatched.2, watched.2), (None, Some((10, Duration::ZERO))));
}

#[test]
fn a_queue_may_change_in_an_outage() {
    let (mut net, flow, there) = ten(eight());
    net.set_rate_at(there, Time::from_micros(1_500), Rate::ZERO);
    net.change_link_at(there, ms(3), LinkChange::Queue { queue: queue(50, true), low: None });
    net.set_rate_at(there, ms(20), Rate::from_mbps(8));
    net.run_until(ms(1000));
    let arrived: Vec<_> = got(&net, flow).iter().map(|&(at, number)| (at, number)).collect();
    let expected = (0..10).map(|n| (ms(if n < 2 { u64::from(n) + 1 } else { u64::from(n) + 19 }), n));
    assert_eq!(arrived, expected.collect::<Vec<_>>());
}

#[test]
fn both_queues_of_a_link_that_pre_empts_may_change() {
    let at_once = || vec![(Time::ZERO, 1000); 10];
    let (mut net, flows, there) = preempting(1, eight(), at_once(), at_once());
    let low = Box::new(DropTail::new(DropTailConfig { limit: Limit::Packets(2) }).unwrap());
    let change = LinkChange::Queue { queue: queue(4, false), low: Some(low) };
    net.change_link_at(there, Time::from_micros(2_500), change);
    net.run_until(ms(1000));
    let arrived = flows.map(|flow| net.tally(flow, Side::Client).arrived);
    // Three of the high packets have left before. A low packet may have left the queue and wait
    // half sent.
    assert_eq!(arrived[0], 7);
    assert!((2..=3).contains(&arrived[1]), "{arrived:?}");
}

#[test]
fn a_duplicate_directly_follows_its_packet_with_its_payload() {
    let link = LinkConfig::new(Rate::from_mbps(8), millis(5)).duplication(1.0).loss(Loss::Every(3));
    let (mut net, flow, there) = over(1, link, (0..6).map(|n| (ms(2 * n), 1000)));
    net.run_until(ms(1000));
    // The third and the sixth are lost, together with their copies.
    let expected = [(6, 0), (6, 0), (8, 1), (8, 1), (12, 3), (12, 3), (14, 4), (14, 4)];
    assert_eq!(got(&net, flow), expected.map(|(at, n)| (ms(at), n)));
    let counters = net.link_counters(there);
    assert_eq!((counters.offered, counters.duplicated, counters.lost, counters.delivered), (6, 4, 2, 8));
    let tally = net.tally(flow, Side::Client);
    assert_eq!((tally.sent, tally.duplicated, tally.arrived, tally.dropped), (6, 4, 8, 2));
}

#[test]
fn copies_are_drawn_apart_from_losses() {
    let numbers = |loss: Loss| {
        let link = LinkConfig::delay_only(Duration::ZERO).duplication(0.3).loss(loss);
        let (mut net, flow, _) = over(5, link, steady(2_000, 100));
        net.run_until(ms(10_000));
        got(&net, flow).iter().map(|&(_, number)| number).collect::<Vec<_>>()
    };
    let all = numbers(Loss::None);
    // Of 2000 at 30 %, the standard deviation is 20.5; five of them.
    assert!((2_498..=2_702).contains(&all.len()), "{}", all.len());
    let rest: Vec<_> = all.into_iter().filter(|n| (n + 1) % 4 != 0).collect();
    assert_eq!(numbers(Loss::Every(4)), rest);
}

/// Link of any kind, and the changes made to it.
#[derive(Clone, Debug)]
struct Spec {
    kbps: Option<u64>,
    trace: Option<Vec<u32>>,
    delay: u64,
    jitter: Option<(Jitter, bool)>,
    loss: Loss,
    duplication: f64,
    mtu: Option<u64>,
    buffer: u64,
    codel: bool,
    changes: Vec<(u64, Change)>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Rate(u64),
    Up(bool),
    Delay(u64, bool),
    Loss(f64),
    Queue(u64, bool),
}

impl Spec {
    fn config(&self) -> LinkConfig {
        let mut link = LinkConfig::delay_only(millis(self.delay)).loss(self.loss.clone());
        link.duplication = self.duplication;
        link.rate = self.kbps.map(Rate::from_kbps);
        link.trace = self.trace.clone().map(|at| Trace::from_millis(at).unwrap());
        link.jitter = self.jitter.map(|(jitter, reorder)| jitter.reorder(reorder));
        link.mtu = self.mtu.map(Bytes::new);
        LinkConfig { queue: queue(self.buffer, self.codel), ..link }
    }

    /// Returns true if packets may overtake: without jitter that keeps the order, a shorter delay
    /// allows it.
    fn reorders(&self) -> bool {
        let shortens = |&(_, change): &(u64, Change)| matches!(change, Change::Delay(_, true));
        self.jitter.map_or_else(|| self.changes.iter().any(shortens), |(_, reorder)| reorder)
    }

    /// Returns the least delay of any packet.
    fn least_delay(&self) -> u64 {
        let changed = self.changes.iter().filter_map(|&(_, change)| match change {
            Change::Delay(to, _) => Some(to),
            _ => None,
        });
        changed.fold(self.delay, u64::min)
    }
}

fn queue(packets: u64, codel: bool) -> Box<dyn LinkQueue> {
    let limit = Limit::Packets(packets);
    if codel {
        Box::new(Codel::new(CodelConfig { limit, ..CodelConfig::default() }).unwrap())
    } else {
        Box::new(DropTail::new(DropTailConfig { limit }).unwrap())
    }
}

fn any_loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (0.0f64..0.3).prop_map(Loss::Random),
        (2u64..50).prop_map(Loss::Every),
        (0.0f64..0.3, 1.0f64..20.0)
            .prop_map(|(loss, burst)| Loss::GilbertElliott(GilbertElliott::bursts(loss, burst).unwrap())),
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    let span = || (0u64..50_000).prop_map(Duration::from_micros);
    prop_oneof![
        span().prop_map(Jitter::uniform),
        (span(), span()).prop_map(|(mean, sd)| Jitter::normal(mean, sd)),
        (span(), span()).prop_map(|(mean, max)| Jitter::exponential(mean, max)),
        (span(), 0.5f64..5.0, span())
            .prop_map(|(scale, shape, max)| Jitter::pareto(scale, shape, max).unwrap()),
        (0.0f64..0.3, span()).prop_map(|(probability, span)| Jitter::held(probability, span).unwrap()),
    ]
}

fn any_trace() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0u32..60, 1..20).prop_map(|mut at| {
        at.sort_unstable();
        at.push(at.last().unwrap() + 1);
        at
    })
}

prop_compose! {
    fn any_spec()(
        kbps in prop::option::of(100u64..50_000), trace in prop::option::of(any_trace()), delay in 0u64..80,
        jitter in prop::option::of((any_jitter(), any::<bool>())), loss in any_loss(),
        duplication in prop_oneof![Just(0.0), 0.0f64..0.3, Just(1.0)], mtu in prop::option::of(500u64..2_000), buffer in 1u64..50, codel in any::<bool>(),
        changes in prop::collection::vec((0u64..1_000, prop_oneof![
            Just(Change::Rate(0)), (100u64..50_000).prop_map(Change::Rate), any::<bool>().prop_map(Change::Up),
            (0u64..80, any::<bool>()).prop_map(|(to, reorder)| Change::Delay(to, reorder)),
            (0.0f64..0.3).prop_map(Change::Loss),
            (1u64..50, any::<bool>()).prop_map(|(packets, codel)| Change::Queue(packets, codel)),
        ]), 0..6),
    ) -> Spec {
        Spec { kbps, trace, delay, jitter, loss, duplication, mtu, buffer, codel, changes }
    }
}

struct World {
    net: Network,
    datagrams: FlowId,
    links: Vec<[LinkId; 2]>,
    ends: [NodeId; 2],
}

/// Chain of links, each in both directions, with datagrams both ways and TCP and UDP traffic.
fn world(seed: u64, chain: &[[Spec; 2]], plan: &[(u64, usize)]) -> World {
    let mut net = Network::new(Seed::new(seed));
    let nodes: Vec<_> = (0..=chain.len()).map(|i| net.node(&format!("n{i}"))).collect();
    let mut links = Vec::new();
    for (pair, [there, back]) in nodes.windows(2).zip(chain) {
        let (forward, backward) = net.link(pair[0], pair[1], there.config(), back.config());
        links.push([forward, backward]);
        for (link, spec) in [(forward, there), (backward, back)] {
            for &(at, change) in &spec.changes {
                match change {
                    Change::Rate(kbps) => net.set_rate_at(link, ms(at), Rate::from_kbps(kbps)),
                    Change::Up(up) => net.set_link_up_at(link, ms(at), up),
                    Change::Delay(to, reorder) => {
                        net.change_link_at(link, ms(at), LinkChange::Delay { delay: millis(to), reorder });
                    }
                    Change::Loss(p) => net.change_link_at(link, ms(at), LinkChange::Loss(Loss::Random(p))),
                    Change::Queue(packets, codel) => {
                        let change = LinkChange::Queue { queue: queue(packets, codel), low: None };
                        net.change_link_at(link, ms(at), change);
                    }
                }
            }
            // At the end, all links carry traffic.
            net.set_rate_at(link, ms(1_500), Rate::from_kbps(1_000));
            net.set_link_up_at(link, ms(1_500), true);
        }
    }
    let ends = [nodes[0], nodes[chain.len()]];
    let host = || {
        let mut at = Time::ZERO;
        Numbered::sending(plan.iter().map(|&(gap, len)| {
            at += Duration::from_micros(gap);
            (at, len)
        }))
    };
    let datagrams =
        net.datagrams(DatagramFlow::new(host(), host(), vec![Route::new(ends[0], ends[1])])).unwrap();
    net.tcp(TcpFlow::new(ends[0], ends[1], Tcp::with(Congestion::Reno), Bulk::new(Bytes::kb(50)))).unwrap();
    let udp = UdpFlow::new(ends[1], ends[0], Rate::from_kbps(200), Bytes::new(400));
    net.udp(UdpFlow { stop: ms(1_000), ..udp }).unwrap();
    World { net, datagrams, links, ends }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// On any links every packet is accounted for at any time, no packet arrives early or overtakes
    /// where it may not, and at the end all have arrived or been dropped.
    #[test]
    fn links_of_any_kind_keep_account_and_order(
        seed in any::<u64>(), chain in prop::collection::vec([any_spec(), any_spec()], 1..4),
        plan in prop::collection::vec((0u64..20_000, 40usize..3_000), 1..100),
    ) {
        let World { mut net, datagrams, links, ends } = world(seed, &chain, &plan);
        let mut now = 0;
        while now < 2_000 {
            now += 37;
            net.run_until(ms(now));
            prop_assert_eq!(net.check_conservation(), Ok(()));
        }
        net.run_until(Time::from_secs(300));
        for (way, side) in [Side::Client, Side::Server].into_iter().enumerate() {
            let specs = || chain.iter().map(|hop| &hop[way]);
            let delay: u64 = specs().map(Spec::least_delay).sum();
            let receiver: &Numbered = net.host(datagrams, side.peer()).unwrap();
            let mut sent_at = Vec::new();
            let mut at = Time::ZERO;
            for &(gap, _) in &plan {
                at += Duration::from_micros(gap);
                sent_at.push(at);
            }
            for &(at, number) in &receiver.got {
                prop_assert!(at >= sent_at[number as usize] + millis(delay));
            }
            if specs().all(|spec| !spec.reorders()) {
                let copies = specs().any(|spec| spec.duplication > 0.0);
                prop_assert!(receiver.got.windows(2).all(|pair| pair[0].1 < pair[1].1 + u32::from(copies)));
            }
            let tally = net.tally(datagrams, side);
            prop_assert_eq!(tally.sent, plan.len() as u64);
            prop_assert_eq!(tally.arrived + tally.dropped, tally.sent + tally.duplicated);
            // Only packets that fit the path's MTU arrive; a larger one is dropped at the latest by
            // the first link that it exceeds.
            let mtu = net.path_mtu(ends[way], ends[1 - way]).unwrap();
            prop_assert_eq!(mtu, specs().filter_map(|spec| spec.mtu).min().map(Bytes::new));
            for &(_, number) in &receiver.got {
                prop_assert!(mtu.is_none_or(|mtu| Bytes::new(plan[number as usize].1 as u64) <= mtu));
            }
            for (hop, spec) in links.iter().zip(specs()) {
                prop_assert!(spec.mtu.is_some() || net.link_counters(hop[way]).too_big == 0);
            }
        }
    }

    /// On links that pre-empt, losses, jitter, drops and arrivals of high packets are as without
    /// low ones; at the end no low packet is held up.
    #[test]
    fn high_packets_do_not_know_that_there_are_low_ones(
        seed in any::<u64>(), high in prop::collection::vec((0u64..3_000, 40usize..1_500), 1..80),
        low in prop::collection::vec((0u64..1_000, 40usize..1_500), 1..80),
        spec in any_spec(), changes in prop::collection::vec((0u64..100, 0u64..4), 0..4),
    ) {
        let times = |gaps: &[(u64, usize)]| {
            let mut at = Time::ZERO;
            let mut sum = |&(gap, len): &(u64, usize)| {
                at += Duration::from_micros(gap);
                (at, len)
            };
            gaps.iter().map(&mut sum).collect::<Vec<_>>()
        };
        let run = |low: Vec<(Time, usize)>| {
            let link = LinkConfig { rate: Some(Rate::from_mbps(2)), trace: None, ..spec.config() };
            let (mut net, flows, link) = preempting(seed, link, times(&high), low);
            for &(at, mbps) in &changes {
                net.set_rate_at(link, ms(at), Rate::from_mbps(mbps));
            }
            net.set_rate_at(link, ms(100), Rate::from_mbps(3));
            net.run_until(Time::from_secs(100));
            let tally = net.tally(flows[0], Side::Client);
            (got(&net, flows[0]).to_vec(), tally, net.tally(flows[1], Side::Client))
        };
        let (alone, beside) = (run(Vec::new()), run(times(&low)));
        prop_assert_eq!((alone.0, alone.1), (beside.0, beside.1));
        prop_assert_eq!(beside.2.arrived + beside.2.dropped, low.len() as u64 + beside.2.duplicated);
    }

    /// Links with a given seed do identical things at identical times.
    #[test]
    fn one_seed_gives_one_result_on_links_of_any_kind(
        seed in any::<u64>(), chain in prop::collection::vec([any_spec(), any_spec()], 1..3),
        plan in prop::collection::vec((0u64..20_000, 40usize..3_000), 1..50),
    ) {
        let run = || {
            let World { mut net, datagrams, links, .. } = world(seed, &chain, &plan);
            net.run_until(Time::from_secs(20));
            let sides = [Side::Client, Side::Server];
            let got = sides.map(|side| net.host::<Numbered>(datagrams, side).unwrap().got.clone());
            let counters: Vec<_> = links.iter().flatten().map(|&link| net.link_counters(link)).collect();
            (got, counters, net.events())
        };
        prop_assert_eq!(run(), run());
    }
}
