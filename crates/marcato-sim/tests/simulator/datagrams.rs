//! Tests of hosts that exchange datagrams: arrival times, routes, addresses and drops.
//!
//! Debug builds check conservation at the end of every [`Network::run_until`].

use std::collections::VecDeque;
use std::net::SocketAddr;

use marcato_queue::{Codel, CodelConfig, DropTail, DropTailConfig, Limit, Strict};
use marcato_sim::{
    AddRouteError, Bulk, Congestion, DatagramFlow, Destination, Family, FlowError, FlowId, Host, HostContext,
    HostStats, Incoming, LinkConfig, LinkId, Loss, LossDetection, MAX_ROUTES, Network, NodeId, Outgoing,
    Packet, RebindError, Rebinding, Route, RouteError, RouteId, Side, Tcp, TcpFlow,
};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};
use marcato_wire::Ecn;
use proptest::prelude::*;

/// Datagram that a host received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    at: Time,
    route: usize,
    remote: SocketAddr,
    local: SocketAddr,
    ecn: Ecn,
    payload: Vec<u8>,
}

/// Host that sends datagrams at planned times, records arrivals, and returns them if it is an echo.
#[derive(Default)]
struct Peer {
    /// Datagrams to send, ascending in time.
    plan: VecDeque<(Time, Outgoing, Vec<u8>)>,
    ready: VecDeque<(Outgoing, Vec<u8>)>,
    echo: bool,
    got: Vec<Got>,
    started_at: Option<Time>,
    routes: Vec<RouteId>,
    /// First draw of the host's own stream.
    drawn: u64,
}

impl Peer {
    fn echo() -> Self {
        Self { echo: true, ..Self::default() }
    }

    fn sending(plan: impl IntoIterator<Item = (Time, Outgoing, usize)>) -> Self {
        let filled =
            (0u8..=255).cycle().zip(plan).map(|(i, (at, outgoing, len))| (at, outgoing, vec![i; len]));
        Self { plan: filled.collect(), ..Self::default() }
    }

    fn arrivals(&self) -> Vec<(usize, Time)> {
        self.got.iter().map(|got| (got.route, got.at)).collect()
    }
}

impl Host for Peer {
    fn start(&mut self, now: Time, context: &HostContext<'_>) {
        self.started_at = Some(now);
        self.routes = context.routes().collect();
        self.drawn = context.stream("test").next_u64();
    }

    fn datagram(&mut self, now: Time, incoming: Incoming, context: &HostContext<'_>) {
        let Incoming { route, remote, local, ecn, payload } = incoming;
        assert_eq!(Some(local), context.local(route));
        if self.echo {
            let to = Destination::Address { remote, local: Some(local.ip()) };
            self.ready.push_back((Outgoing { to, ecn: Ecn::NotEct }, payload.to_vec()));
        }
        self.got.push(Got { at: now, route: route.index(), remote, local, ecn, payload: payload.to_vec() });
    }

    fn route_added(&mut self, _now: Time, route: RouteId, _context: &HostContext<'_>) {
        self.routes.push(route);
    }

    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        assert!(payload.is_empty());
        while self.plan.front().is_some_and(|&(at, ..)| at <= now) {
            self.ready.extend(self.plan.pop_front().map(|(_, to, bytes)| (to, bytes)));
        }
        let (outgoing, bytes) = self.ready.pop_front()?;
        payload.extend_from_slice(&bytes);
        Some(outgoing)
    }

    fn next_timer(&self) -> Option<Time> {
        self.plan.front().map(|&(at, ..)| at)
    }
}

fn link(mbps: u64, ms: u64) -> LinkConfig {
    LinkConfig::new(Rate::from_mbps(mbps), Duration::from_millis(ms))
}

/// Payload of an IPv4 packet of 1000 bytes: 1 ms at 8 Mbit/s.
const KILO: usize = 972;

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// Client with two interfaces and server with two: 8 Mbit/s and 10 ms, 1 Mbit/s and 50 ms. The
/// links are those from the client.
fn two_paths(seed: u64) -> (Network, [Route; 2], [LinkId; 2]) {
    let mut net = Network::new(Seed::new(seed));
    let paths = [("wifi", 8, 10), ("cellular", 1, 50)].map(|(name, mbps, delay)| {
        let (client, server) = (net.node(name), net.node(&format!("server/{name}")));
        let (there, _) = net.link(client, server, link(mbps, delay), link(mbps, delay));
        (Route::new(client, server), there)
    });
    let [(wifi, wifi_link), (cellular, cellular_link)] = paths;
    (net, [wifi, cellular], [wifi_link, cellular_link])
}

/// First route of a flow; `SECOND` is its second.
const FIRST: RouteId = RouteId::new(0);
const SECOND: RouteId = RouteId::new(1);

fn peer(net: &Network, flow: FlowId, side: Side) -> &Peer {
    net.host(flow, side).unwrap()
}

#[test]
fn an_echo_takes_serialisation_and_propagation_on_each_route() {
    let [wifi, cellular] = [FIRST, SECOND].map(Outgoing::over);
    let (mut net, routes, _) = two_paths(1);
    let client = Peer::sending([(Time::ZERO, wifi, KILO), (Time::ZERO, cellular, KILO)]);
    let flow = net.datagrams(DatagramFlow::new(client, Peer::echo(), routes.to_vec())).unwrap();
    net.run_until(Time::from_secs(1));
    // 1 + 10 ms, 8 + 50 ms, and once more.
    assert_eq!(peer(&net, flow, Side::Server).arrivals(), [(0, ms(11)), (1, ms(58))]);
    assert_eq!(peer(&net, flow, Side::Client).arrivals(), [(0, ms(22)), (1, ms(116))]);
    // The start and four arrivals; no unnecessary timer was set.
    assert_eq!(net.events(), 5);
    let [first, second] = [0, 1].map(|i| peer(&net, flow, Side::Client).got[i].payload.clone());
    assert_eq!((first, second), (vec![0; KILO], vec![1; KILO]));
}

#[test]
fn a_queue_on_one_route_delays_nothing_on_the_other() {
    let [wifi, cellular] = [FIRST, SECOND].map(Outgoing::over);
    let (mut net, routes, _) = two_paths(1);
    let plan = [wifi, cellular, cellular, cellular, wifi, wifi].map(|to| (Time::ZERO, to, KILO));
    let flow =
        net.datagrams(DatagramFlow::new(Peer::sending(plan), Peer::default(), routes.to_vec())).unwrap();
    net.run_until(Time::from_secs(1));
    let arrivals = peer(&net, flow, Side::Server).arrivals();
    assert_eq!(arrivals, [(0, ms(11)), (0, ms(12)), (0, ms(13)), (1, ms(58)), (1, ms(66)), (1, ms(74))]);
    let stats = net.route_stats(flow, Side::Client, SECOND).unwrap();
    assert_eq!((stats.sent, stats.arrived, stats.bytes), (3, 3, Bytes::new(3 * KILO as u64)));
    assert_eq!((stats.delay_sum, stats.delay_max), (Duration::from_millis(198), Duration::from_millis(74)));
}

/// Client, router and server with a bottleneck of 8 Mbit/s between the router and the server.
fn bottleneck(queue: impl marcato_queue::Discipline<Packet> + 'static) -> (Network, [NodeId; 2], LinkId) {
    let mut net = Network::new(Seed::new(1));
    let [client, router, server] = ["client", "router", "server"].map(|name| net.node(name));
    net.link(client, router, link(1000, 0), link(1000, 0));
    let (there, _) = net.link(router, server, link(8, 10).queue(queue), link(8, 10));
    (net, [client, server], there)
}

fn every_ten_ms(to: Outgoing, from: u64, until: u64) -> impl Iterator<Item = (Time, Outgoing, usize)> {
    (from..until).step_by(10).map(move |at| (ms(at), to, KILO))
}

#[test]
fn tcp_and_the_routes_of_a_datagram_flow_compete_for_one_link() {
    let [high, low] = [FIRST, SECOND].map(Outgoing::over);
    let limit = Limit::Packets(50);
    let class = || DropTail::new(DropTailConfig { limit }).unwrap();
    let (mut net, [client, server], link) = bottleneck(Strict::of(class(), class()));
    // Under RFC 6675 the loss of a retransmission goes unnoticed and the timer expires, which is
    // when the low class gets through. A TCP that detects losses by time keeps the link busy, and
    // the low class starves.
    let config = Tcp { loss_detection: LossDetection::DupThresh, ..Tcp::with(Congestion::Reno) };
    net.tcp(TcpFlow::new(client, server, config, Bulk::endless()).start(ms(1000))).unwrap();
    let mut plan: Vec<_> = every_ten_ms(high, 0, 4000).chain(every_ten_ms(low, 0, 4000)).collect();
    plan.sort_by_key(|&(at, ..)| at);
    let path = Route::new(client, server);
    let routes = vec![path, path.layer(Layer::Low)];
    let flow = net.datagrams(DatagramFlow::new(Peer::sending(plan), Peer::default(), routes)).unwrap();
    let stats = |net: &Network| [FIRST, SECOND].map(|r| net.route_stats(flow, Side::Client, r).unwrap());

    net.run_until(ms(1000));
    // Alone, the low datagram waits for the high one before it: 8 us at the first link, 1 ms each
    // at the second.
    let [quiet_high, quiet_low] = stats(&net);
    assert_eq!(quiet_high.delay_max, Duration::from_micros(11_008));
    assert_eq!(quiet_low.delay_max, Duration::from_micros(12_008));

    net.run_until(Time::from_secs(6));
    let [high, low] = stats(&net);
    // With TCP, the best-effort class waits behind its queue; lower effort hardly gets through.
    assert!(high.delay_max > Duration::from_millis(40), "{:?}", high.delay_max);
    assert!(low.delay_max > 4 * high.delay_max, "{:?} against {:?}", low.delay_max, high.delay_max);
    assert!(low.arrived < low.sent, "{} of {}", low.arrived, low.sent);
    let (counters, _) = net.queue_counters(link);
    assert_eq!(net.link_counters(link).offered, counters.enqueued.packets);
}

#[test]
fn a_mark_reaches_the_host_and_what_cannot_be_marked_is_dropped() {
    let codel = Codel::new(CodelConfig { ecn: true, ..CodelConfig::default() }).unwrap();
    let (mut net, [client, server], link) = bottleneck(codel);
    // 16 Mbit/s into 8: half of it ECT(0) on one route, half not ECT on the other.
    let plan = (0..2000).flat_map(|i| {
        let at = ms(i);
        [(at, Outgoing::over(FIRST).ecn(Ecn::Ect0), KILO), (at, Outgoing::over(SECOND), KILO)]
    });
    let routes = vec![Route::new(client, server); 2];
    let flow = net.datagrams(DatagramFlow::new(Peer::sending(plan), Peer::default(), routes)).unwrap();
    net.run_until(Time::from_secs(10));
    let [capable, other] = [FIRST, SECOND].map(|r| net.route_stats(flow, Side::Client, r).unwrap());
    let got = &peer(&net, flow, Side::Server).got;
    let with = |route, ecn| got.iter().filter(|got| (got.route, got.ecn) == (route, ecn)).count() as u64;
    assert!(capable.marked > 0);
    assert_eq!(with(0, Ecn::Ce), capable.marked);
    assert_eq!(with(0, Ecn::Ect0), capable.arrived - capable.marked);
    assert_eq!(with(1, Ecn::NotEct), other.arrived);
    assert_eq!((other.marked, capable.arrived), (0, capable.sent));
    assert_eq!(other.sent - other.arrived, net.link_counters(link).dropped);
    assert!(other.arrived < other.sent);
}

#[test]
fn after_a_rebinding_the_peer_sees_and_reaches_the_new_address() {
    for (rebinding, assumed) in [(Rebinding::Port, "10.0.0.1:1025"), (Rebinding::Ip, "100.64.0.1:1024")] {
        let (mut net, routes, _) = two_paths(1);
        // At 0, 5, 30 and 60 ms; the last goes by the other route.
        let to = Outgoing::over;
        let plan = [(0, to(FIRST)), (5, to(FIRST)), (30, to(FIRST)), (60, to(SECOND))];
        let client = Peer::sending(plan.map(|(at, to)| (ms(at), to, KILO)));
        let flow = net.datagrams(DatagramFlow::new(client, Peer::echo(), routes.to_vec())).unwrap();
        let old: SocketAddr = "10.0.0.1:1024".parse().unwrap();
        assert_eq!(net.address(flow, Side::Client, FIRST), Some(old));
        // The first echo is back at 22 ms; the second is in flight.
        net.run_until(ms(25));
        let new = net.rebind(flow, Side::Client, FIRST, rebinding).unwrap();
        assert_eq!(new, assumed.parse().unwrap());
        assert_eq!(net.address(flow, Side::Client, FIRST), Some(new));
        net.run_until(Time::from_secs(1));
        let server: Vec<_> =
            peer(&net, flow, Side::Server).got.iter().map(|got| (got.remote, got.at)).collect();
        let other = net.address(flow, Side::Client, SECOND).unwrap();
        assert_eq!(server, [(old, ms(11)), (old, ms(16)), (new, ms(41)), (other, ms(118))]);
        // The echo of the second was sent to the old address and dropped.
        let client = peer(&net, flow, Side::Client);
        assert_eq!(client.arrivals(), [(0, ms(22)), (0, ms(52)), (1, ms(176))]);
        let remotes: Vec<_> = client.got.iter().map(|got| got.remote).collect();
        let [server, other] = [FIRST, SECOND].map(|r| net.address(flow, Side::Server, r).unwrap());
        assert_eq!(remotes, [server, server, other]);
        // The host is not notified.
        assert_eq!(client.got[1].local, old);
        assert_eq!(net.route_stats(flow, Side::Server, FIRST).unwrap().misdirected, 1);
        assert_eq!(net.tally(flow, Side::Server).dropped, 1);
    }
}

#[test]
fn datagrams_to_an_old_address_cross_the_link_and_are_dropped() {
    let (mut net, routes, _) = two_paths(1);
    let flow = net.datagrams(DatagramFlow::new(Peer::default(), Peer::default(), routes.to_vec())).unwrap();
    net.run_until(ms(1));
    let old = net.address(flow, Side::Client, FIRST).unwrap();
    let new = net.rebind(flow, Side::Client, FIRST, Rebinding::Port).unwrap();
    let newer = net.rebind(flow, Side::Client, FIRST, Rebinding::Ip).unwrap();
    for to in [old, new, newer] {
        net.with_host(flow, Side::Server, |host: &mut Peer, _, context| {
            assert_eq!(context.remote(FIRST), Some(newer));
            host.ready.push_back((Outgoing::to(to), vec![7; KILO]));
        });
    }
    net.run_until(Time::from_secs(1));
    // The third waits for the two before it.
    assert_eq!(peer(&net, flow, Side::Client).arrivals(), [(0, ms(14))]);
    assert_eq!(net.route_stats(flow, Side::Server, FIRST).unwrap().misdirected, 2);
}

#[test]
fn a_route_may_be_added_while_the_flow_is_running() {
    let (mut net, [wifi, cellular], _) = two_paths(1);
    let plan = [0, 100].map(|at| (ms(at), Outgoing::over(SECOND), KILO));
    let flow = net.datagrams(DatagramFlow::new(Peer::sending(plan), Peer::echo(), vec![wifi])).unwrap();
    net.run_until(ms(50));
    // The route did not exist yet.
    assert_eq!(net.host_stats(flow, Side::Client), Some(HostStats { unroutable: 1, oversized: 0 }));
    assert_eq!(net.add_route(flow, cellular.layer(Layer::Low)), Ok(SECOND));
    for side in [Side::Client, Side::Server] {
        assert_eq!(peer(&net, flow, side).routes, [FIRST, SECOND]);
        net.with_host(flow, side, |_: &mut Peer, _, context| {
            let layers: Vec<_> = context.routes().map(|route| context.layer(route).unwrap()).collect();
            assert_eq!(layers, [Layer::High, Layer::Low]);
        });
    }
    net.run_until(Time::from_secs(1));
    assert_eq!(peer(&net, flow, Side::Client).arrivals(), [(1, ms(216))]);
}

#[test]
fn a_link_that_is_down_drops_offered_queued_and_in_flight_data() {
    let (mut net, routes, [link, _]) = two_paths(1);
    // A datagram every millisecond, each 1 ms on the transmitter and 10 ms on the wire; and three
    // more at 30 ms.
    let mut plan: Vec<_> = (0..60).map(|at| (ms(at), Outgoing::over(FIRST), KILO)).collect();
    plan.splice(30..30, [(ms(30), Outgoing::over(FIRST), KILO); 3]);
    let flow =
        net.datagrams(DatagramFlow::new(Peer::sending(plan), Peer::default(), routes.to_vec())).unwrap();
    net.set_link_up_at(link, Time::from_micros(30_500), false);
    net.set_link_up_at(link, Time::from_micros(50_500), true);
    net.run_until(Time::from_secs(1));
    let arrivals: Vec<_> = peer(&net, flow, Side::Server).got.iter().map(|got| got.at).collect();
    // Sent until 19 ms, delivered until 30 ms; and those from 51 ms on.
    let expected: Vec<_> = (0..20).chain(51..60).map(|at| ms(at + 11)).collect();
    assert_eq!(arrivals, expected);
    let counters = net.link_counters(link);
    assert_eq!((counters.offered, counters.delivered, counters.lost, counters.dropped), (63, 29, 34, 0));
    let tally = net.tally(flow, Side::Client);
    assert_eq!((tally.sent, tally.arrived, tally.dropped), (63, 29, 34));
    assert_eq!(net.queue_counters(link).1.packets, 0);
}

#[test]
fn ipv6_has_longer_headers_and_addresses() {
    let (mut net, routes, [link, _]) = two_paths(1);
    let client = Peer::sending([(Time::ZERO, Outgoing::over(FIRST), KILO - 20)]);
    let flow = DatagramFlow::new(client, Peer::echo(), routes.to_vec()).family(Family::V6);
    let flow = net.datagrams(flow).unwrap();
    net.run_until(Time::from_secs(1));
    assert_eq!(peer(&net, flow, Side::Client).arrivals(), [(0, ms(22))]);
    assert_eq!(net.link_counters(link).delivered_bytes, Bytes::new(1000));
    assert_eq!(peer(&net, flow, Side::Server).got[0].remote.to_string(), "[fd00::1]:1024");
}

#[test]
fn datagrams_that_cannot_be_sent_are_counted() {
    let (mut net, routes, _) = two_paths(1);
    let nowhere = Outgoing::to("192.0.2.1:443".parse().unwrap());
    let plan = [(nowhere, KILO), (Outgoing::over(FIRST), 65_508), (Outgoing::over(FIRST), 65_507)];
    let client = Peer::sending(plan.map(|(to, len)| (Time::ZERO, to, len)));
    let flow = net.datagrams(DatagramFlow::new(client, Peer::default(), routes.to_vec())).unwrap();
    net.run_until(Time::from_secs(1));
    assert_eq!(net.host_stats(flow, Side::Client), Some(HostStats { unroutable: 1, oversized: 1 }));
    assert_eq!(peer(&net, flow, Side::Server).got[0].payload.len(), 65_507);
    // An address of one route is not reachable from an interface of the other.
    let remote = net.address(flow, Side::Server, FIRST).unwrap();
    for from in [FIRST, SECOND] {
        net.with_host(flow, Side::Client, |host: &mut Peer, _, context| {
            let local = Some(context.local(from).unwrap().ip());
            let to = Destination::Address { remote, local };
            host.ready.push_back((Outgoing { to, ecn: Ecn::NotEct }, Vec::new()));
        });
    }
    assert_eq!(net.host_stats(flow, Side::Client), Some(HostStats { unroutable: 2, oversized: 1 }));
    assert_eq!(net.tally(flow, Side::Client).sent, 2);
}

#[test]
fn a_flow_that_cannot_be_is_refused() {
    let (mut net, [wifi, cellular], _) = two_paths(1);
    let mut add = |routes| net.datagrams(DatagramFlow::new(Peer::default(), Peer::default(), routes));
    assert_eq!(add(Vec::new()), Err(FlowError::NoRoute));
    assert_eq!(add(vec![wifi; MAX_ROUTES + 1]), Err(AddRouteError::TooMany.into()));
    let apart = Route::new(wifi.client, cellular.server);
    let names = ("wifi".to_owned(), "server/cellular".to_owned());
    let no_route = AddRouteError::Route(RouteError::NoRoute { from: names.0, to: names.1 });
    assert_eq!(add(vec![wifi, apart]), Err(no_route.into()));
    let full = add(vec![wifi; MAX_ROUTES]).unwrap();
    assert_eq!(net.add_route(full, wifi), Err(AddRouteError::TooMany));
    let tcp = net
        .tcp(TcpFlow::new(wifi.client, wifi.server, Tcp::with(Congestion::Reno), Bulk::endless()))
        .unwrap();
    assert_eq!(net.add_route(tcp, wifi), Err(AddRouteError::NotDatagrams));
    assert_eq!(net.rebind(tcp, Side::Client, FIRST, Rebinding::Port), Err(RebindError::NoSuchRoute));
    assert_eq!(net.route_stats(tcp, Side::Client, FIRST), None);
    assert!(net.host::<Peer>(tcp, Side::Client).is_none());
    assert_eq!(net.with_host(tcp, Side::Client, |_: &mut Peer, _, _| ()), None);
    assert_eq!(net.with_host(full, Side::Client, |_: &mut Clock, _, _| ()), None);
}

#[test]
fn a_host_changed_externally_sends_at_once_if_its_flow_started() {
    let (mut net, routes, _) = two_paths(1);
    let flow = DatagramFlow::new(Peer::default(), Peer::default(), routes.to_vec()).start(ms(100));
    let flow = net.datagrams(flow).unwrap();
    for at in [50, 200] {
        net.run_until(ms(at));
        net.with_host(flow, Side::Client, |host: &mut Peer, now, _| {
            assert_eq!(now, ms(at));
            host.ready.push_back((Outgoing::over(FIRST), vec![0; KILO]));
            host.plan.push_back((ms(at + 20), Outgoing::over(FIRST), vec![0; KILO]));
        });
    }
    net.run_until(Time::from_secs(1));
    // Datagrams due before the start leave at the start.
    assert_eq!(peer(&net, flow, Side::Client).started_at, Some(ms(100)));
    assert_eq!(
        peer(&net, flow, Side::Server).arrivals(),
        [(0, ms(111)), (0, ms(112)), (0, ms(211)), (0, ms(231))]
    );
}

/// Host with only a timer: records each call and then advances the timer by the next of `steps`, or
/// leaves it unchanged.
#[derive(Default)]
struct Clock {
    next: Option<Time>,
    steps: VecDeque<Duration>,
    called: Vec<Time>,
    stuck: bool,
}

impl Host for Clock {
    fn datagram(&mut self, _now: Time, _incoming: Incoming, _context: &HostContext<'_>) {}

    fn timer(&mut self, now: Time, _context: &HostContext<'_>) {
        self.called.push(now);
        if !self.stuck {
            self.next = self.steps.pop_front().map(|step| now + step);
        }
    }

    fn transmit(&mut self, _now: Time, _payload: &mut Vec<u8>) -> Option<Outgoing> {
        None
    }

    fn next_timer(&self) -> Option<Time> {
        self.next
    }
}

#[test]
fn a_timer_fires_at_its_last_set_time_or_at_once_if_overdue() {
    let (mut net, routes, _) = two_paths(1);
    let steps = [5, 3].map(Duration::from_millis).into();
    let clock = Clock { next: Some(ms(10)), steps, ..Clock::default() };
    let flow = net.datagrams(DatagramFlow::new(clock, Clock::default(), routes.to_vec())).unwrap();
    let set = |net: &mut Network, next| {
        net.with_host(flow, Side::Client, |host: &mut Clock, _, _| host.next = next);
    };
    net.run_until(ms(50));
    assert_eq!(net.host::<Clock>(flow, Side::Client).unwrap().called, [ms(10), ms(15), ms(18)]);
    assert_eq!(net.events(), 4);
    // Postponed twice, then brought forward; cancelled; in the past; never.
    set(&mut net, Some(ms(60)));
    set(&mut net, Some(ms(90)));
    set(&mut net, Some(ms(80)));
    net.run_until(ms(100));
    set(&mut net, Some(ms(120)));
    set(&mut net, None);
    net.run_until(ms(200));
    set(&mut net, Some(ms(1)));
    net.run_until(ms(300));
    set(&mut net, Some(Time::MAX));
    net.run_until(Time::MAX);
    let called = &net.host::<Clock>(flow, Side::Client).unwrap().called;
    assert_eq!(called[3..], [ms(80), ms(200)]);
    // Postponed at 60; called at 80; cancelled at 120; called at 200.
    assert_eq!(net.events(), 8);
}

#[test]
fn a_timer_that_never_moves_does_not_stop_time() {
    let (mut net, routes, _) = two_paths(1);
    let clock = Clock { next: Some(Time::ZERO), stuck: true, ..Clock::default() };
    let flow = net.datagrams(DatagramFlow::new(clock, Clock::default(), routes.to_vec())).unwrap();
    net.run_until(Time::from_nanos(3));
    let called = &net.host::<Clock>(flow, Side::Client).unwrap().called;
    assert_eq!(called[..], [0, 1, 2, 3].map(Time::from_nanos));
}

#[test]
fn datagram_and_other_flows_draw_independent_random_numbers() {
    let run = |datagrams: bool, tcp: bool, more: bool| {
        let (mut net, routes, _) = two_paths(3);
        let [a, b] = ["a", "b"].map(|name| net.node(name));
        net.link(a, b, link(5, 5).loss(Loss::Random(0.01)), link(5, 5));
        if more {
            // Between the same nodes as the TCP flow, but without datagrams.
            let silent = DatagramFlow::new(Peer::default(), Peer::default(), vec![Route::new(a, b)]);
            net.datagrams(silent).unwrap();
        }
        let tcp =
            tcp.then(|| net.tcp(TcpFlow::new(a, b, Tcp::with(Congestion::Reno), Bulk::endless())).unwrap());
        let datagrams = datagrams.then(|| {
            let client = Peer::sending([(Time::ZERO, Outgoing::over(FIRST), KILO)]);
            net.datagrams(DatagramFlow::new(client, Peer::echo(), routes.to_vec())).unwrap()
        });
        net.run_until(Time::from_secs(5));
        (
            tcp.map(|tcp| {
                format!("{:?} {:?}", net.tcp_stats(tcp, Side::Client), net.tally(tcp, Side::Client))
            }),
            datagrams.map(|flow| {
                [Side::Client, Side::Server]
                    .map(|side| (peer(&net, flow, side).drawn, peer(&net, flow, side).got.clone()))
            }),
        )
    };
    let (tcp, datagrams) = (run(false, true, false).0, run(true, false, false).1);
    assert_eq!(run(true, true, true), (tcp, datagrams.clone()));
    let [(client, _), (server, _)] = datagrams.unwrap();
    assert_ne!(client, server);
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    paths: Vec<(u64, u64, f64, u64)>,
    /// Path of each route, and true for the low layer.
    routes: Vec<(usize, bool)>,
    /// Time in microseconds, side, route and length of each datagram.
    traffic: Vec<(u64, bool, usize, usize)>,
    tcp: bool,
    echo: bool,
    rebind: Option<(u64, usize, bool)>,
    down: Option<(u64, u64, usize)>,
    added_at: Option<u64>,
}

prop_compose! {
    fn case()(
        seed in any::<u64>(),
        paths in prop::collection::vec((200u64..20_000, 0u64..60, 0.0f64..0.3, 2u64..40), 1..4),
        routes in prop::collection::vec((0usize..3, any::<bool>()), 1..6),
        traffic in prop::collection::vec((0u64..400_000, any::<bool>(), 0usize..7, 0usize..1_473), 0..300),
        (tcp, echo) in any::<(bool, bool)>(),
        rebind in prop::option::of((0u64..400, 0usize..6, any::<bool>())),
        down in prop::option::of((0u64..400, 1u64..200, 0usize..6)),
        added_at in prop::option::of(0u64..400),
    ) -> Case {
        Case { seed, paths, routes, traffic, tcp, echo, rebind, down, added_at }
    }
}

/// Runs a case and returns its whole final state.
fn play(case: &Case) -> (Network, FlowId, String) {
    let name = |route: usize| RouteId::new(u8::try_from(route).unwrap());
    let mut net = Network::new(Seed::new(case.seed));
    let mut links = Vec::new();
    let ends: Vec<_> = case
        .paths
        .iter()
        .enumerate()
        .map(|(i, &(kbps, delay, loss, buffer))| {
            let [client, router, server] =
                ["client", "router", "server"].map(|name| net.node(&format!("{name}{i}")));
            let queue = |net: &mut Network, a, b| {
                let link = || {
                    let class = || DropTail::new(DropTailConfig { limit: Limit::Packets(buffer) }).unwrap();
                    LinkConfig::new(Rate::from_kbps(kbps), Duration::from_millis(delay))
                        .queue(Strict::of(class(), class()))
                        .loss(Loss::Random(loss))
                };
                net.link(a, b, link(), link())
            };
            for (there, back) in [queue(&mut net, client, router), queue(&mut net, router, server)] {
                links.extend([there, back]);
            }
            (client, server)
        })
        .collect();
    let route = |&(path, low): &(usize, bool)| {
        let (client, server) = ends[path % ends.len()];
        Route::new(client, server).layer(if low { Layer::Low } else { Layer::High })
    };
    let mut plans = [Vec::new(), Vec::new()];
    for &(at, server, route, len) in &case.traffic {
        plans[usize::from(server)].push((Time::from_micros(at), Outgoing::over(name(route)), len));
    }
    let [client, mut server] = plans.map(|mut plan| {
        plan.sort_by_key(|&(at, ..)| at);
        Peer::sending(plan)
    });
    // Only one of them, or they would never end.
    server.echo = case.echo;
    let routes: Vec<_> = case.routes.iter().map(route).collect();
    let flow = net.datagrams(DatagramFlow::new(client, server, routes)).unwrap();
    if case.tcp {
        let (client, server) = ends[0];
        net.tcp(TcpFlow::new(client, server, Tcp::with(Congestion::Reno), Bulk::new(Bytes::kb(100))))
            .unwrap();
    }
    if let Some((at, len, link)) = case.down {
        let link = links[link % links.len()];
        net.set_link_up_at(link, ms(at), false);
        net.set_link_up_at(link, ms(at + len), true);
    }
    let mut acts: Vec<(u64, bool)> = case.added_at.map(|at| (at, true)).into_iter().collect();
    acts.extend(case.rebind.map(|(at, ..)| (at, false)));
    acts.sort_unstable();
    for (at, adds) in acts {
        net.run_until(ms(at));
        if adds {
            net.add_route(flow, route(&case.routes[0])).unwrap();
        } else if let Some((_, which, ip)) = case.rebind {
            let rebinding = if ip { Rebinding::Ip } else { Rebinding::Port };
            net.rebind(flow, Side::Client, name(which % case.routes.len()), rebinding).unwrap();
        }
    }
    net.run_until(Time::from_secs(30));
    let sides = [Side::Client, Side::Server];
    let remains = format!(
        "{} {:?} {:?} {:?}",
        net.events(),
        sides.map(|side| net.tally(flow, side)),
        sides.map(|side| peer(&net, flow, side).got.clone()),
        links.iter().map(|&link| net.link_counters(link)).collect::<Vec<_>>(),
    );
    (net, flow, remains)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Under losses, MTUs and rebindings, sent = arrived + dropped, by flow and by route. Hosts
    /// receive exactly what arrived, each datagram at most once and complete.
    #[test]
    fn every_datagram_arrives_once_or_is_dropped(case in case()) {
        let (net, flow, _) = play(&case);
        net.check_conservation().unwrap();
        let names = peer(&net, flow, Side::Client).routes.clone();
        prop_assert_eq!(names.len(), case.routes.len() + usize::from(case.added_at.is_some()));
        for side in [Side::Client, Side::Server] {
            let tally = net.tally(flow, side);
            let got = &peer(&net, flow, side.peer()).got;
            prop_assert_eq!(tally.sent, tally.arrived + tally.dropped);
            prop_assert_eq!(tally.arrived, got.len() as u64);
            let stats: Vec<_> =
                names.iter().map(|&route| net.route_stats(flow, side, route).unwrap()).collect();
            prop_assert_eq!(stats.iter().map(|s| s.sent).sum::<u64>(), tally.sent);
            for (route, stats) in stats.iter().enumerate() {
                let mine = || got.iter().filter(|got| got.route == route);
                prop_assert_eq!(mine().count() as u64, stats.arrived);
                prop_assert_eq!(mine().map(|got| got.payload.len() as u64).sum::<u64>(), stats.bytes.get());
            }
            prop_assert!(got.iter().all(|got| got.payload.windows(2).all(|pair| pair[0] == pair[1])));
            let wanted = case.traffic.iter().filter(|&&(_, server, ..)| server == (side == Side::Server)).count();
            let echoed = if case.echo && side == Side::Server { peer(&net, flow, side).got.len() } else { 0 };
            let refused = net.host_stats(flow, side).unwrap();
            prop_assert_eq!(tally.sent + refused.unroutable, (wanted + echoed) as u64);
        }
    }

    /// A network with a given seed delivers identical bytes at identical times in equally many
    /// events.
    #[test]
    fn one_seed_gives_one_result(case in case()) {
        prop_assert_eq!(play(&case).2, play(&case).2);
    }
}
