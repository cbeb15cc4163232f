//! Tests of the packets that queues observe in both directions, and of links whose transmitter
//! waits for its queue.

use std::cell::RefCell;
use std::rc::Rc;

use marcato_queue::trap::TrapConfig;
use marcato_queue::{
    Class, Codel, CodelConfig, Crq, CrqConfig, Discipline, DropTail, Fate, Filter, Filtered, FlowKey,
    Packet as _, QuicRule, Sharing,
};
use marcato_sim::{
    Bulk, Congestion, DatagramFlow, Host, HostContext, Incoming, LinkConfig, LinkId, Mirror, Network, NodeId,
    Outgoing, Packet, Route, RouteId, Side, Tcp, TcpEnd, TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};
use marcato_wire::{QuicHeader, QuicLongType, TcpFlags, TcpSegment, Transport};

/// Direction of a packet, its time, its key and that of the other direction, and its transport
/// header.
type Note = (bool, Time, FlowKey, FlowKey, Transport);

type Notes = Rc<RefCell<Vec<Note>>>;

/// Record of what a queue observes.
struct Noting(Notes);

impl Noting {
    fn note(&self, own: bool, now: Time, packet: &Packet) {
        self.0.borrow_mut().push((own, now, packet.flow(), packet.reverse(), packet.transport()));
    }
}

impl<Q: Discipline<Packet>> Filter<Packet, Q> for Noting {
    fn arrives(&mut self, now: Time, packet: &mut Packet) -> Fate {
        self.note(true, now, packet);
        Fate::Pass
    }

    fn observes(&mut self, now: Time, packet: &Packet) {
        self.note(false, now, packet);
    }
}

const RATE: Rate = Rate::from_mbps(100);
const DELAY: Duration = Duration::from_millis(10);

/// Server, router and client. The link from the router to the client is the bottleneck, and all
/// delay is on the links to the router.
fn path(bottleneck: LinkConfig) -> (Network, [NodeId; 2], LinkId) {
    let mut net = Network::new(Seed::new(1));
    let [client, router, server] = ["client", "router", "server"].map(|name| net.node(name));
    net.link(server, router, LinkConfig::delay_only(DELAY), LinkConfig::delay_only(Duration::ZERO));
    let (link, _) = net.link(router, client, bottleneck, LinkConfig::delay_only(DELAY));
    (net, [client, server], link)
}

fn noting() -> (Filtered<DropTail<Packet>, Noting>, Notes) {
    let notes = Notes::default();
    (Filtered::of(DropTail::default(), Noting(Rc::clone(&notes))), notes)
}

fn segments(notes: &[Note], own: bool) -> Vec<(Time, TcpSegment)> {
    let of = notes.iter().filter(|note| note.0 == own);
    of.map(|&(_, at, _, _, transport)| match transport {
        Transport::Tcp(segment) => (at, segment),
        other => panic!("{other:?}"),
    })
    .collect()
}

#[test]
fn a_queue_sees_tcp_headers_of_both_directions_as_on_the_wire() {
    let (queue, notes) = noting();
    let (mut net, [client, server], _) = path(LinkConfig::new(RATE, Duration::ZERO).queue(queue).observing());
    let config = TcpEnd { initial_sequence: Some(u32::MAX - 100), ..Tcp::with(Congestion::Reno).into() };
    let flow = TcpFlow::new(client, server, config, Mirror::half()).server_app(Bulk::new(Bytes::kb(50)));
    let flow = net.tcp(flow).unwrap();
    net.run_until(Time::from_secs(5));
    assert_eq!(net.reception(flow, Side::Client).bytes, Bytes::kb(50));
    let notes = notes.borrow();
    for &(own, _, key, reverse, _) in &*notes {
        let [from, to] = if own { [Side::Server, Side::Client] } else { [Side::Client, Side::Server] };
        assert_eq!((key, reverse), (flow.key(from), flow.key(to)));
    }
    let (there, back) = (segments(&notes, true), segments(&notes, false));
    // The client's SYN is seen on its arrival at the router, and the SYN-ACK after the way to the
    // server and back.
    assert_eq!(back[0].0, Time::ZERO + DELAY);
    assert_eq!(there[0].0, Time::ZERO + 2 * DELAY);
    let (syn, answer) = (back[0].1, there[0].1);
    assert_eq!(syn.flags, TcpFlags::SYN);
    assert_eq!(answer.flags, TcpFlags::SYN.with(TcpFlags::ACK));
    assert_eq!((syn.seq, answer.ack), (u32::MAX - 100, u32::MAX - 99));
    assert_eq!(answer.timestamps.unwrap().echo, syn.timestamps.unwrap().value);
    // Across the wrap of the sequence numbers, the stream is complete and fully acknowledged.
    let bytes = |all: &[(Time, TcpSegment)]| all.iter().map(|(_, it)| u64::from(it.payload)).sum::<u64>();
    assert_eq!(bytes(&there), 50_000);
    assert!(bytes(&back) > 24_000);
    let fin = there.iter().find(|(_, it)| it.flags.has(TcpFlags::FIN)).unwrap().1;
    assert!(back.iter().any(|(_, it)| it.ack == fin.end()));
}

/// Host that sends these payloads at once, and records nothing.
struct Says(Vec<Vec<u8>>, Option<RouteId>);

impl Host for Says {
    fn start(&mut self, _: Time, context: &HostContext<'_>) {
        self.1 = context.routes().next();
    }

    fn datagram(&mut self, _: Time, _: Incoming, _: &HostContext<'_>) {}

    fn transmit(&mut self, _: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        payload.extend_from_slice(&self.0.pop()?);
        self.1.map(Outgoing::over)
    }
}

#[test]
fn a_queue_reads_the_start_of_a_real_datagram_payload_as_quic() {
    let (queue, notes) = noting();
    let (mut net, [client, server], _) = path(LinkConfig::new(RATE, Duration::ZERO).queue(queue).observing());
    let says = |payloads: &[&[u8]]| Says(payloads.iter().map(|payload| payload.to_vec()).collect(), None);
    let hosts = [says(&[&[0xc3, 0, 0, 0, 1, 8]]), says(&[&[0x41; 1200], &[0x61, 0, 7], &[]])];
    let [asks, answers] = hosts;
    net.datagrams(DatagramFlow::new(asks, answers, vec![Route::new(client, server)])).unwrap();
    let udp = UdpFlow { stop: Time::from_millis(1), ..UdpFlow::new(server, client, RATE, Bytes::new(1000)) };
    net.udp(udp).unwrap();
    net.run_until(Time::from_secs(1));
    let notes = notes.borrow();
    let said = |own: bool| notes.iter().filter(|it| it.0 == own).map(|it| it.4).collect::<Vec<_>>();
    let initial = QuicHeader::Long { version: 1, kind: Some(QuicLongType::Initial) };
    assert_eq!(said(false), [Transport::Udp { payload: 6, quic: Some(initial) }]);
    let short = |spin| Some(QuicHeader::Short { fixed: true, spin });
    let expected = [(0, None), (3, short(true)), (1200, short(false)), (1000, None)];
    let expected = expected.map(|(payload, quic)| Transport::Udp { payload, quic });
    assert!(expected.iter().all(|it| said(true).contains(it)), "{:?}", said(true));
}

fn crq(sharing: Sharing) -> CrqConfig {
    CrqConfig { sharing, quic: QuicRule::Handshake, ..CrqConfig::new(RATE, 2 * DELAY, false) }
}

/// Returns the throughput of 120 Mbit/s offered without other flows.
fn alone(bottleneck: LinkConfig) -> f64 {
    let (mut net, [client, server], link) = path(bottleneck);
    net.udp(UdpFlow::new(server, client, Rate::from_mbps(120), Bytes::new(1472))).unwrap();
    net.run_until(Time::from_secs(2));
    net.link_counters(link).delivered_bytes.get() as f64 * 8e-6 / 2.0
}

#[test]
fn a_queue_with_a_split_share_is_limited_even_on_a_free_link() {
    let split = Sharing::Split { burst: Bytes::new(1514) };
    let queue = |sharing| LinkConfig::new(RATE, Duration::ZERO).queue(Crq::new(crq(sharing)).unwrap());
    let (split, weighted) = (alone(queue(split)), alone(queue(Sharing::Weighted)));
    assert!((49.0..=50.1).contains(&split), "{split} Mbit/s");
    assert!((99.0..=100.1).contains(&weighted), "{weighted} Mbit/s");
}

#[test]
fn a_late_shaper_loses_its_lateness_per_waiting_packet_only() {
    let shaper = |late| LinkConfig::new(RATE, Duration::ZERO).wakes_late(late);
    // 1500 bytes take 120 us; with 30 us more, 80 Mbit/s remain.
    let late = alone(shaper(Duration::from_micros(30)));
    assert!((79.0..=80.01).contains(&late), "{late} Mbit/s");
    assert!((99.0..=100.1).contains(&alone(shaper(Duration::ZERO))));
    let (mut net, [client, server], link) = path(shaper(Duration::from_micros(30)));
    net.udp(UdpFlow::new(server, client, Rate::from_mbps(95), Bytes::new(1472))).unwrap();
    net.run_until(Time::from_secs(1));
    assert_eq!(net.queue_counters(link).0.dropped.packets, 0);
    assert_eq!(net.queue_counters(link).1.packets, 0, "nothing ever waits");
}

#[test]
fn crq_classes_cubic_as_responsive_and_keeps_a_flood_standard() {
    let config = CrqConfig { trap: TrapConfig::marcato(), ..crq(Sharing::Weighted) };
    let queue = Crq::<Packet>::new(config).unwrap();
    let (mut net, [client, server], link) =
        path(LinkConfig::new(RATE, Duration::ZERO).queue(queue).observing());
    let tcp = Tcp::with(Congestion::CUBIC);
    let flow = TcpFlow::new(client, server, tcp, Mirror::one_of(u64::MAX)).server_app(Bulk::endless());
    let flow = net.tcp(flow).unwrap();
    let flood = net.udp(UdpFlow::new(server, client, RATE, Bytes::new(1472))).unwrap();
    net.run_until(Time::from_secs(20));
    let queue = net.queue::<Crq<Packet>>(link).unwrap();
    assert!(net.queue::<DropTail<Packet>>(link).is_none());
    assert_eq!(queue.flow(flow.key(Side::Server)).unwrap().class, Class::Responsive);
    assert_eq!(queue.flow(flood.key(Side::Client)).unwrap().class, Class::Standard);
    let goodput = net.reception(flow, Side::Client).bytes.get() as f64 * 8e-6 / 20.0;
    assert!(goodput > 35.0, "{goodput} Mbit/s");
}

/// Returns the marks and drops of a marking CoDel queue, and TCP's reductions, if a link before or
/// behind it clears the ECN field.
fn marked(bleaching: [bool; 2]) -> (u64, u64, u64) {
    let mut net = Network::new(Seed::new(1));
    let [client, access, router, server] =
        ["client", "access", "router", "server"].map(|name| net.node(name));
    let none = Duration::ZERO;
    let [before, behind] = bleaching.map(|bleaches| LinkConfig { bleaches, ..LinkConfig::delay_only(DELAY) });
    let queue = Codel::new(CodelConfig { ecn: true, ..CodelConfig::default() }).unwrap();
    net.link(server, router, before, LinkConfig::delay_only(none));
    let bottleneck = LinkConfig::new(RATE, none).queue(queue);
    let (link, _) = net.link(router, access, bottleneck, LinkConfig::delay_only(none));
    net.link(access, client, behind, LinkConfig::delay_only(DELAY));
    let tcp = Tcp { congestion: Congestion::CUBIC, ecn: true, ..Tcp::default() };
    let flow = TcpFlow::new(client, server, tcp, Mirror::one_of(u64::MAX)).server_app(Bulk::endless());
    let flow = net.tcp(flow).unwrap();
    net.run_until(Time::from_secs(10));
    let counters = net.queue_counters(link).0;
    (counters.marked.packets, counters.dropped.packets, net.tcp_stats(flow, Side::Server).unwrap().reductions)
}

#[test]
fn clearing_ecn_makes_a_queue_drop_or_its_marks_have_no_effect() {
    let (marked_all, dropped, answered) = marked([false; 2]);
    assert!(marked_all > 0 && dropped == 0 && answered > 0, "{marked_all} {dropped} {answered}");
    let (marked_before, dropped, answered) = marked([true, false]);
    assert!(marked_before == 0 && dropped > 0 && answered > 0, "{marked_before} {dropped} {answered}");
    let (marked_behind, dropped, _) = marked([false, true]);
    assert!(marked_behind > 10 * marked_all, "{marked_behind} of {marked_all}, and {dropped} dropped");
}
