//! Tests of summaries, series and packet captures.

use std::net::Ipv4Addr;

use marcato_queue::{Codel, CodelConfig};
use marcato_sim::{
    Arrivals, Bulk, Congestion, DatagramFlow, Distribution, Family, FlowId, Host, HostContext, Incoming,
    LinkConfig, LinkId, Loss, LossDetection, Network, Outgoing, PriorityOption, Route, RouteId, Series,
    SeriesError, Side, Tap, TapError, TapPoint, Tcp, TcpEnd, TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};
use marcato_wire::{SackBlocks, TcpOption, TcpOptions};
use proptest::prelude::*;

use crate::world::World;

/// Two hosts on a link of 10 Mbit/s, 20 ms one way, with room for 40 packets.
fn world(loss: Loss) -> World {
    World::new(1, 10, 20, 40, [loss, Loss::None])
}

fn bulk(world: &mut World, config: impl Into<TcpEnd>, kb: u64) -> FlowId {
    let flow =
        TcpFlow::new(world.client, world.server, config, Bulk::new(Bytes::kb(kb)).priority(Priority::P1));
    world.net.tcp(flow).unwrap()
}

#[test]
fn a_summary_gives_the_outcome_of_a_transfer() {
    let mut world = world(Loss::Every(100));
    let flow = bulk(&mut world, Tcp::with(Congestion::Reno), 2_000);
    world.net.watch(flow);
    world.net.run_until(Time::from_secs(20));
    let sent = world.net.summary(flow, Side::Client);
    assert_eq!(sent.bytes, Bytes::kb(2_000));
    assert_eq!(sent.completion, sent.last_at.map(|at| at - sent.start));
    assert_eq!(sent.packets, world.net.tally(flow, Side::Client));
    let goodput = sent.goodput.unwrap();
    assert!(goodput > Rate::from_mbps(1) && goodput < Rate::from_mbps(10), "{goodput}");
    let stats = world.net.tcp_stats(flow, Side::Client).unwrap();
    assert_eq!((sent.segments, sent.retransmissions), (stats.segments_sent, stats.retransmissions));
    assert!(sent.retransmissions > 10);
    let (rtt, delay) = (sent.rtt.unwrap(), sent.delay.unwrap());
    // Every packet that arrived has a delay: 20 ms, its own transmission, and at most a queue of 40
    // packets.
    assert_eq!(delay.count, sent.packets.arrived);
    assert!(delay.min > Duration::from_millis(20) && delay.max < Duration::from_millis(20 + 50));
    assert_eq!(Some(rtt.min), stats.min_rtt);
    assert!(rtt.min >= Duration::from_millis(40) && rtt.count > 100, "{rtt:?}");
    for summary in [rtt, delay] {
        assert!(summary.min <= summary.p50 && summary.p50 <= summary.p95, "{summary:?}");
        assert!(summary.p95 <= summary.p99 && summary.p99 <= summary.max, "{summary:?}");
        assert!(summary.min <= summary.mean && summary.mean <= summary.max, "{summary:?}");
    }
    // The server sends only acknowledgements.
    let answered = world.net.summary(flow, Side::Server);
    assert_eq!((answered.bytes, answered.first_at, answered.goodput), (Bytes::ZERO, None, None));
    assert_eq!(answered.delay.unwrap().count, answered.packets.arrived);
}

#[test]
fn marks_are_counted_where_they_arrive() {
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
    let codel = Codel::new(CodelConfig { ecn: true, ..CodelConfig::default() }).unwrap();
    let (there, _) = net.link(client, server, link().queue(codel), link());
    let config = Tcp { ecn: true, ..Tcp::with(Congestion::Reno) };
    let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless())).unwrap();
    net.watch(flow);
    net.run_until(Time::from_secs(20));
    let (queue, _) = net.queue_counters(there);
    let marked = net.summary(flow, Side::Client).marked;
    // Packets on the wire have left the queue.
    assert!(marked > 0 && marked <= queue.marked.packets && marked + 2 >= queue.marked.packets);
}

#[test]
fn a_flow_that_is_not_watched_has_no_round_trips() {
    let mut world = world(Loss::None);
    let flow = bulk(&mut world, Tcp::with(Congestion::Reno), 100);
    world.net.run_until(Time::from_secs(5));
    let summary = world.net.summary(flow, Side::Client);
    assert_eq!((summary.rtt, summary.delay), (None, None));
    assert_eq!(summary.bytes, Bytes::kb(100));
}

#[test]
fn an_on_off_udp_flow_sends_at_its_rate_only_in_its_on_spans() {
    let mut world = world(Loss::None);
    let second = Distribution::constant(Duration::from_secs(1));
    // Packets of 1000 bytes at 8 Mbit/s: one each millisecond.
    let cbr = UdpFlow::new(world.client, world.server, Rate::from_mbps(8), Bytes::new(972));
    let flow =
        world.net.udp(UdpFlow { arrivals: Arrivals::OnOff { on: second, off: second }, ..cbr }).unwrap();
    world.net.watch(flow);
    let mut sent = Vec::new();
    for s in 1..=6 {
        // A nanosecond before the change.
        world.net.run_until(Time::from_nanos(s * 1_000_000_000 - 1));
        sent.push(world.net.tally(flow, Side::Client).sent);
    }
    assert_eq!(sent, [1000, 1000, 2000, 2000, 3000, 3000]);
    world.net.run_until(Time::from_millis(6_900));
    let summary = world.net.summary(flow, Side::Client);
    assert_eq!(summary.bytes, Bytes::new(972) * world.net.tally(flow, Side::Client).arrived);
    assert_eq!(summary.delay.unwrap().count, world.net.tally(flow, Side::Client).arrived);
    // The first packet of the fourth on span left exactly at 6 s; the latest arrived 20.8 ms after
    // one left.
    assert_eq!(summary.last_at, Some(Time::from_nanos(6_879_000_000 + 20_800_000)));
}

#[test]
fn a_udp_flow_by_a_clock_sends_at_each_tick_what_its_rate_owes() {
    let sent = |slack| {
        let mut world = world(Loss::None);
        // Packets of 1000 bytes at 20 Mbit/s: five in two milliseconds.
        let cbr = UdpFlow::new(world.client, world.server, Rate::from_mbps(20), Bytes::new(972));
        let arrivals = Arrivals::Ticks { every: Duration::from_millis(1), slack };
        let flow = world.net.udp(UdpFlow { arrivals, ..cbr }).unwrap();
        let sent = |us| {
            world.net.run_until(Time::from_micros(us));
            world.net.tally(flow, Side::Client).sent
        };
        // From 10 us after each tick, through the middle, to just before the next.
        [10, 500, 999, 1_010, 1_999, 2_010, 2_999, 3_010, 4_060, 1_000_060].map(sent)
    };
    assert_eq!(sent(Duration::ZERO), [1, 1, 1, 3, 3, 6, 6, 8, 11, 2501]);
    let late = sent(Duration::from_micros(50));
    // A late tick owes no more packets, and the rate is the same.
    assert_eq!([late[2], late[4], late[6], late[8], late[9]], [1, 3, 6, 11, 2501]);
}

#[test]
fn on_and_off_spans_that_are_drawn_have_their_share() {
    let mut world = world(Loss::None);
    let on = Distribution::exponential(Duration::from_millis(100)).unwrap();
    let off = Distribution::pareto(2.5, Duration::from_millis(300)).unwrap();
    let cbr = UdpFlow::new(world.client, world.server, Rate::from_mbps(8), Bytes::new(72));
    let flow = world.net.udp(UdpFlow { arrivals: Arrivals::OnOff { on, off }, ..cbr }).unwrap();
    world.net.run_until(Time::from_secs(2_000));
    // A quarter of 8 Mbit/s in packets of 100 bytes. Five thousand pairs of spans, each with a
    // deviation of the share of some 1.0: 1.5 %; five of them.
    let share = world.net.tally(flow, Side::Client).sent as f64 / (2_000.0 * 2_500.0);
    assert!((0.92..1.08).contains(&share), "{share}");
}

#[test]
fn a_series_shows_a_bottleneck_fill() {
    let mut world = world(Loss::None);
    let flow = bulk(&mut world, Tcp { pacing: true, ..Tcp::with(Congestion::Reno) }, 100_000);
    let mut series = Series::new(Duration::from_millis(50));
    series.tcp("bulk", flow, Side::Client).unwrap();
    series.link("bottleneck", world.there).unwrap();
    // Two steps that are no multiple of the interval.
    series.run_until(&mut world.net, Time::from_millis(4_975)).unwrap();
    series.run_until(&mut world.net, Time::from_secs(10)).unwrap();
    let column = |name: &str| series.column(name).unwrap();
    let time = column("time_seconds");
    assert_eq!(time.len(), 201);
    assert!((0..201u32).zip(time).all(|(i, at)| (at - f64::from(i) * 0.05).abs() < 1e-9));
    // The sum over all intervals is the link's own count.
    let carried: f64 = column("link.bottleneck.carried_bytes").iter().sum();
    assert_eq!(carried, world.net.link_counters(world.there).carried_bytes.get() as f64);
    let used = column("link.bottleneck.utilisation");
    // A packet of 1500 bytes is 2.4 % of an interval.
    assert!(used[0].is_nan() && used[1..].iter().all(|&used| used <= 1.024), "{used:?}");
    let mean = used[100..].iter().sum::<f64>() / 101.0;
    assert!((0.95..=1.0).contains(&mean), "{mean}");
    // The queue in bytes and in time agree.
    let (bytes, time) = (column("link.bottleneck.queue_bytes"), column("link.bottleneck.queue_seconds"));
    assert!(bytes.iter().zip(time).all(|(bytes, time)| (bytes * 8.0 / 10e6 - time).abs() < 1e-6));
    assert!(column("link.bottleneck.queue_packets").iter().all(|&packets| packets <= 40.0));
    let stats = world.net.tcp_stats(flow, Side::Client).unwrap();
    let last = |name: &str| *column(name).last().unwrap();
    assert_eq!(last("flow.bulk.cwnd_bytes"), stats.cwnd.get() as f64);
    assert_eq!(last("flow.bulk.delivered_bytes"), stats.delivered.get() as f64);
    assert_eq!(last("flow.bulk.retransmitted_segments"), stats.retransmissions as f64);
    assert_eq!(last("flow.bulk.pacing_rate_bps"), stats.pacing_rate.unwrap().as_bps() as f64);
    assert_eq!(last("flow.bulk.srtt_seconds"), stats.srtt.unwrap().as_secs_f64());
    // Slow start ends in recovery.
    assert!(column("flow.bulk.loss_state").contains(&2.0));
    assert!(column("flow.bulk.ssthresh_bytes")[1].is_nan());
}

#[test]
fn a_series_changes_nothing() {
    let run = |sampled: bool| {
        let mut world = world(Loss::Random(0.01));
        let flow = bulk(&mut world, Tcp::with(Congestion::Reno), 5_000);
        if sampled {
            let mut series = Series::new(Duration::from_millis(1));
            series.tcp("bulk", flow, Side::Client).unwrap();
            series.run_until(&mut world.net, Time::from_secs(10)).unwrap();
        } else {
            world.net.run_until(Time::from_secs(10));
        }
        (world.net.tcp_stats(flow, Side::Client), world.net.events())
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn a_series_that_cannot_go_on_says_what_to_change() {
    let mut world = world(Loss::None);
    let flow = bulk(&mut world, Tcp::with(Congestion::Reno), 10);
    let mut series = Series::new(Duration::from_millis(10)).most_samples(3);
    series.tcp("bulk", flow, Side::Client).unwrap();
    let taken = series.tcp("bulk", flow, Side::Server);
    assert_eq!(taken, Err(SeriesError::NameTaken { name: "flow.bulk".to_owned() }));
    assert_eq!(series.run_until(&mut world.net, Time::from_secs(1)), Err(SeriesError::Full { most: 3 }));
    assert_eq!((series.len(), world.net.now()), (3, Time::from_millis(30)));
    assert_eq!(series.link("there", world.there), Err(SeriesError::Begun));
    let nothing = Series::new(Duration::ZERO).run_until(&mut world.net, Time::from_secs(1));
    assert_eq!(nothing, Err(SeriesError::NoInterval));
    let udp = UdpFlow::new(world.client, world.server, Rate::from_mbps(1), Bytes::new(100));
    let udp = world.net.udp(udp).unwrap();
    let mut series = Series::new(Duration::from_millis(10));
    series.link("there", world.there).unwrap();
    series.tcp("voice", udp, Side::Client).unwrap();
    assert_eq!(series.sample(&world.net), Err(SeriesError::NotTcp { name: "flow.voice".to_owned() }));
    assert!(series.is_empty());
}

/// Packet read from a capture.
#[derive(Debug)]
struct Read {
    at: Time,
    len: usize,
    bytes: Vec<u8>,
}

impl Read {
    fn field(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn long(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    /// Returns the offset of the transport header.
    fn transport(&self) -> usize {
        match self.bytes[0] >> 4 {
            4 => usize::from(self.bytes[0] & 15) * 4,
            6 => 40,
            version => panic!("IP version {version}"),
        }
    }

    fn protocol(&self) -> u8 {
        if self.bytes[0] >> 4 == 4 { self.bytes[9] } else { self.bytes[6] }
    }

    /// Returns the offset of the payload.
    fn payload(&self) -> usize {
        let begin = self.transport();
        begin + if self.protocol() == 6 { usize::from(self.bytes[begin + 12] >> 4) * 4 } else { 8 }
    }

    fn seq(&self) -> u32 {
        self.long(self.transport() + 4)
    }

    fn flags(&self) -> u8 {
        self.bytes[self.transport() + 13]
    }

    fn options(&self) -> Vec<TcpOption<'_>> {
        let options = &self.bytes[self.transport() + 20..self.payload()];
        TcpOptions::new(options).map(Result::unwrap).collect()
    }

    /// Checks lengths and checksums, which requires the whole packet, or zeros where it was cut.
    fn check(&self) {
        let begin = self.transport();
        let mut all = self.bytes.clone();
        all.resize(self.len, 0);
        let mut pseudo = Vec::new();
        if begin == 20 {
            assert_eq!(usize::from(self.field(2)), self.len);
            assert_eq!(sum(&all[..20]), 0xffff, "IPv4 checksum");
            pseudo.extend(&all[12..20]);
        } else {
            assert_eq!(usize::from(self.field(4)), self.len - 40);
            pseudo.extend(&all[8..40]);
        }
        if self.protocol() == 17 {
            assert_eq!(usize::from(self.field(begin + 4)), self.len - begin);
            assert_ne!(self.field(begin + 6), 0);
        }
        pseudo.extend([0, self.protocol()]);
        pseudo.extend(u16::try_from(self.len - begin).unwrap().to_be_bytes());
        pseudo.extend(&all[begin..]);
        assert_eq!(sum(&pseudo), 0xffff, "transport checksum");
    }
}

/// RFC 1071 in its simplest form: the ones' complement sum.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (i, &byte) in bytes.iter().enumerate() {
        sum += if i % 2 == 0 { u32::from(byte) << 8 } else { u32::from(byte) };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

fn read(file: &[u8]) -> Vec<Read> {
    let long = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((long(0), long(4), long(20)), (0xa1b2_3c4d, 4 << 16 | 2, 101));
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let (kept, len) = (long(at + 8) as usize, long(at + 12) as usize);
        assert!(kept <= long(16) as usize && kept <= len);
        let time = Time::from_secs(u64::from(long(at))) + Duration::from_nanos(u64::from(long(at + 4)));
        packets.push(Read { at: time, len, bytes: file[at + 16..at + 16 + kept].to_vec() });
        at += 16 + kept;
    }
    assert_eq!(at, file.len());
    packets
}

fn drain(net: &mut Network, link: LinkId) -> Vec<Read> {
    let mut file = Vec::new();
    net.drain_tap(link, &mut file).unwrap();
    read(&file)
}

#[test]
fn the_first_packets_of_a_connection_are_as_they_always_were() {
    let mut world = world(Loss::None);
    world.net.tap(world.there, Tap::default().point(TapPoint::Entry));
    world.net.tap(world.back, Tap::default());
    let tcp = Tcp { priority_option: Some(PriorityOption::Rfc6994), ..Tcp::with(Congestion::Reno) };
    let config = TcpEnd { initial_sequence: Some(0xffff_ff00), ..tcp.into() };
    bulk(&mut world, config, 100);
    world.net.run_until(Time::from_secs(3));
    let hex = |packet: &Read| {
        let bytes: String =
            packet.bytes[..packet.payload()].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {} {bytes}", packet.at.as_nanos(), packet.len)
    };
    let there: Vec<_> = drain(&mut world.net, world.there).iter().take(3).map(hex).collect();
    let back: Vec<_> = drain(&mut world.net, world.back).iter().take(1).map(hex).collect();
    // SYN; acknowledgement of the SYN-ACK; data with its priority. All captured at the client.
    assert_eq!(there, THERE);
    // SYN-ACK.
    assert_eq!(back, BACK);
}

const THERE: [&str; 3] = [
    "0 60 4500003c00004000400626ba0a0000010a00000280007148ffffff0000000000a002ffff43ab0000020405bc0402080a00000001000000\
     0001030307",
    "40096000 52 4500003400004000400626c20a0000010a00000280007148ffffff01ffffff018010c000b32f00000101080a0000002900000015",
    "40096000 1508 450005e400004000400621120a0000010a00000280007148ffffff01ffffff01a010c000c40300000101080a000000290000\
     0015fe05ca7501000000",
];
const BACK: [&str; 1] = [
    "40096000 60 4500003c00004000400626ba0a0000020a00000171488000ffffff00ffffff01a012ffff44840000020405bc0402080a00000015\
     0000000101030307",
];

#[test]
fn packets_of_a_tap_add_up_to_the_transfer() {
    let mut world = world(Loss::Every(50));
    world.net.tap(world.there, Tap::default().snaplen(u32::MAX));
    world.net.tap(world.back, Tap::default());
    let config = Tcp { priority_option: Some(PriorityOption::Authors), ..Tcp::with(Congestion::Reno) };
    let flow = bulk(&mut world, config, 1_000);
    let mut files = [Vec::new(), Vec::new()];
    for ms in (0..20_000).step_by(700) {
        world.net.run_until(Time::from_millis(ms));
        for (file, link) in files.iter_mut().zip([world.there, world.back]) {
            world.net.drain_tap(link, file).unwrap();
        }
    }
    let [there, back] = files.map(|file| read(&file));
    for packet in there.iter().chain(&back) {
        packet.check();
        assert_eq!(packet.bytes[8], 64);
    }
    assert!(there.iter().all(|packet| packet.len == packet.bytes.len()));
    assert_eq!(there.len() as u64, world.net.link_counters(world.there).delivered);
    assert_eq!(there.iter().map(|packet| packet.len as u64).sum::<u64>(), {
        world.net.link_counters(world.there).delivered_bytes.get()
    });
    // Sequence numbers cover the stream without a gap.
    let isn = there[0].seq();
    let mut pieces: Vec<(u32, u32)> = there
        .iter()
        .map(|packet| (packet.seq().wrapping_sub(isn), u32::try_from(packet.len - packet.payload()).unwrap()))
        .collect();
    pieces.sort_unstable();
    let end = pieces.iter().fold(1, |end, &(seq, len)| if seq <= end { end.max(seq + len) } else { end });
    assert_eq!(end, 1 + 1_000_000);
    // Losses are reported by SACK, between sequence numbers of this connection.
    let sacks: Vec<SackBlocks> = back
        .iter()
        .flat_map(Read::options)
        .filter_map(|option| if let TcpOption::Sack(blocks) = option { Some(blocks) } else { None })
        .collect();
    assert!(sacks.len() > 10);
    for block in sacks.iter().flat_map(|blocks| blocks.as_slice().to_vec()) {
        let (start, end) = (block.start.wrapping_sub(isn), block.end.wrapping_sub(isn));
        assert!(1 < start && start < end && end <= 1_000_002);
    }
    // Windows are scaled as in the SYN-ACK.
    let scale = back[0]
        .options()
        .iter()
        .find_map(|o| if let TcpOption::WindowScale(n) = o { Some(*n) } else { None });
    let window = u32::from(back[5].field(back[5].transport() + 14)) << scale.unwrap();
    assert!((6 << 20) - (1 << scale.unwrap()) < window && window <= 6 << 20, "{window}");
    // FINs.
    assert!(there.iter().any(|packet| packet.flags() & 1 == 1) && back.iter().any(|p| p.flags() & 1 == 1));
    assert_eq!(world.net.summary(flow, Side::Client).packets.arrived, there.len() as u64);
}

#[test]
fn each_duplicate_gets_a_dsack_and_nothing_is_retransmitted() {
    for loss_detection in [LossDetection::Rack, LossDetection::DupThresh] {
        let mut net = Network::new(Seed::new(1));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20)).duplication(1.0);
        let (there, back) = net.link(client, server, link(), link());
        net.tap(there, Tap::default());
        net.tap(back, Tap::default());
        let config = Tcp { loss_detection, ..Tcp::with(Congestion::Reno) };
        let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::new(Bytes::kb(300)))).unwrap();
        net.run_until(Time::from_secs(10));
        assert_eq!(net.reception(flow, Side::Server).bytes, Bytes::kb(300));
        assert!(net.is_finished(flow, Side::Client));
        let stats = net.tcp_stats(flow, Side::Client).unwrap();
        assert_eq!((stats.retransmissions, stats.timeouts), (0, 0));
        let [there, back] = [there, back].map(|link| drain(&mut net, link));
        let data = |packet: &&Read| packet.len > packet.payload();
        let mut copies: Vec<[u32; 2]> = there
            .iter()
            .filter(data)
            .map(|it| {
                // The FIN has a sequence number too.
                let len = u32::try_from(it.len - it.payload()).unwrap() + u32::from(it.flags() & 1);
                [it.seq(), it.seq() + len]
            })
            .collect();
        copies.dedup();
        // RFC 2883 §4: the first block reports the duplicate, below the acknowledgement.
        let mut reported: Vec<[u32; 2]> = back
            .iter()
            .flat_map(Read::options)
            .filter_map(|it| {
                if let TcpOption::Sack(blocks) = it { blocks.as_slice().first().copied() } else { None }
            })
            .map(|block| [block.start, block.end])
            .collect();
        // Each acknowledgement itself is duplicated.
        reported.dedup();
        assert_eq!(reported, copies);
        assert_eq!(copies.len(), 300_000_usize.div_ceil(1448));
    }
}

/// Packet of a pcapng file, and its interface.
fn read_together(file: &[u8]) -> (Vec<String>, Vec<(usize, Read)>) {
    let long = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let short = |at: usize| usize::from(u16::from_le_bytes(file[at..at + 2].try_into().unwrap()));
    let (mut names, mut packets, mut at) = (Vec::new(), Vec::new(), 0);
    while at < file.len() {
        let len = long(at + 4) as usize;
        assert!(len.is_multiple_of(4) && long(at + len - 4) as usize == len);
        match long(at) {
            0x0a0d_0d0a => assert_eq!((at, long(8), short(12), short(14)), (0, 0x1a2b_3c4d, 1, 0)),
            1 => {
                assert_eq!(short(at + 8), 101);
                assert_eq!(short(at + 16), 2, "if_name");
                let end = at + 20 + short(at + 18);
                names.push(String::from_utf8(file[at + 20..end].to_vec()).unwrap());
                let next = end.next_multiple_of(4);
                assert_eq!((short(next), short(next + 2), file[next + 4]), (9, 1, 9), "nanoseconds");
            }
            6 => {
                let nanos = u64::from(long(at + 12)) << 32 | u64::from(long(at + 16));
                let bytes = file[at + 28..at + 28 + long(at + 20) as usize].to_vec();
                let len = long(at + 24) as usize;
                packets.push((long(at + 8) as usize, Read { at: Time::from_nanos(nanos), len, bytes }));
            }
            10 => assert_eq!((long(at + 8), &file[at + 16..at + 21]), (0x544c_534b, &b"LABEL"[..])),
            other => panic!("block {other}"),
        }
        at += len;
    }
    (names, packets)
}

#[test]
fn common_taps_hold_the_packets_of_separate_taps_in_time_order() {
    let run = |together: bool| {
        let mut world = world(Loss::Every(50));
        let tap = Tap::default().snaplen(Tap::WHOLE);
        let links = [(world.there, "l there"), (world.back, "l back")];
        for (link, name) in links {
            match together {
                true => world.net.tap_together(link, name, tap),
                false => world.net.tap(link, tap),
            }
        }
        bulk(&mut world, Tcp::with(Congestion::Reno), 300);
        let mut files = [Vec::new(), Vec::new()];
        // Beyond 2^32 ns, where the upper half of timestamps is not 0.
        for ms in (0..10_000).step_by(700) {
            world.net.run_until(Time::from_millis(ms));
            if together {
                files[0].extend(world.net.take_taps(if ms == 1_400 { "LABEL 00 01\n" } else { "" }));
            } else {
                for (file, (link, _)) in files.iter_mut().zip(links) {
                    world.net.drain_tap(link, file).unwrap();
                }
            }
        }
        if together {
            assert!(matches!(world.net.drain_tap(world.there, &mut Vec::new()), Err(TapError::Common)));
        }
        files
    };
    let [together, _] = run(true);
    let (names, packets) = read_together(&together);
    assert_eq!(names, ["l there", "l back"]);
    assert!(packets.is_sorted_by_key(|(_, packet)| packet.at));
    for (interface, file) in run(false).iter().enumerate() {
        let alone = read(file);
        let of_it = packets.iter().filter(|(of, _)| *of == interface).map(|(_, packet)| packet);
        assert_eq!(alone.len(), of_it.clone().count());
        for (one, other) in alone.iter().zip(of_it) {
            assert_eq!((one.at, one.len, &one.bytes), (other.at, other.len, &other.bytes));
            one.check();
            assert_eq!(one.len, one.bytes.len());
        }
    }
}

#[test]
fn a_tap_before_the_queue_sees_what_the_queue_drops() {
    let mut world = world(Loss::None);
    world.net.tap(world.there, Tap::default().point(TapPoint::Entry).snaplen(60));
    let udp = UdpFlow::new(world.client, world.server, Rate::from_mbps(20), Bytes::new(1000));
    world.net.udp(UdpFlow { stop: Time::from_secs(1), ..udp }).unwrap();
    world.net.run_until(Time::from_secs(2));
    let counters = world.net.link_counters(world.there);
    assert!(counters.dropped > 1000);
    let packets = drain(&mut world.net, world.there);
    assert_eq!(packets.len() as u64, counters.offered);
    for packet in &packets {
        packet.check();
        assert_eq!((packet.len, packet.bytes.len(), packet.protocol()), (1028, 60, 17));
        assert_eq!(packet.long(12), u32::from(Ipv4Addr::new(10, 0, 0, 1)));
    }
}

#[test]
fn a_full_tap_counts_what_it_misses_and_no_tap_is_an_error() {
    let mut world = world(Loss::None);
    let tap = Tap { most_waiting: Bytes::new(24 + 2 * (16 + 60)), ..Tap::default().snaplen(60) };
    world.net.tap(world.there, tap);
    let udp = UdpFlow::new(world.client, world.server, Rate::from_mbps(1), Bytes::new(1000));
    world.net.udp(udp).unwrap();
    world.net.run_until(Time::from_secs(1));
    let stats = world.net.tap_stats(world.there).unwrap();
    assert_eq!(stats.captured, 2);
    assert_eq!(stats.captured + stats.missed, world.net.link_counters(world.there).delivered);
    assert_eq!(drain(&mut world.net, world.there).len(), 2);
    assert!(matches!(world.net.drain_tap(world.back, &mut Vec::new()), Err(TapError::NoTap)));
    assert_eq!(world.net.tap_stats(world.back), None);
}

/// Host that sends these datagrams at once, each of a different length.
struct Speaker(Vec<Vec<u8>>);

impl Host for Speaker {
    fn datagram(&mut self, _now: Time, _incoming: Incoming, _context: &HostContext<'_>) {}

    fn transmit(&mut self, _now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        payload.extend(self.0.pop()?);
        Some(Outgoing::over(RouteId::new(0)))
    }
}

#[test]
fn datagrams_are_captured_with_their_own_payload_and_addresses() {
    for family in [Family::V4, Family::V6] {
        let mut world = world(Loss::None);
        world.net.tap(world.there, Tap::default().snaplen(2_000));
        let payloads: Vec<Vec<u8>> =
            (0..5u8).map(|i| (0..=i * 50).map(|byte| byte ^ 0x5a).collect()).collect();
        let hosts = (Speaker(payloads.iter().rev().cloned().collect()), Speaker(Vec::new()));
        let flow = DatagramFlow::new(hosts.0, hosts.1, vec![Route::new(world.client, world.server)]);
        let flow = world.net.datagrams(flow.family(family)).unwrap();
        world.net.run_until(Time::from_secs(1));
        let packets = drain(&mut world.net, world.there);
        assert_eq!(packets.len(), 5);
        for (packet, payload) in packets.iter().zip(&payloads) {
            packet.check();
            assert_eq!(&packet.bytes[packet.payload()..], payload);
            let from = world.net.address(flow, Side::Client, RouteId::new(0)).unwrap();
            assert_eq!(packet.field(packet.transport()), from.port());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Under any behaviour of TCP, captured packets are correct, a tap changes nothing, and
    /// summaries agree with tallies.
    #[test]
    fn captured_segments_are_right_and_change_nothing(
        loss in 0.0f64..0.1, mss in 100u32..1500, (timestamps, ecn, back) in any::<(bool, bool, bool)>(),
        form in prop::option::of(prop::sample::select(vec![
            PriorityOption::Rfc6994, PriorityOption::Short, PriorityOption::Authors,
        ])),
        receive_kb in 5u64..8_000, isn in any::<u32>(),
    ) {
        let run = |tapped: bool| {
            let mut world = world(Loss::Random(loss));
            let link = if back { world.back } else { world.there };
            if tapped {
                world.net.tap(link, Tap::default());
            }
            let tcp = Tcp {
                mss, timestamps, ecn, priority_option: form,
                receive_buffer: Bytes::kb(receive_kb),
                ..Tcp::with(Congestion::Reno)
            };
            let config = TcpEnd { initial_sequence: Some(isn), ..tcp.into() };
            let flow = bulk(&mut world, config, 300);
            if tapped {
                world.net.watch(flow);
            }
            world.net.run_until(Time::from_secs(5));
            let packets = if tapped { drain(&mut world.net, link) } else { Vec::new() };
            for packet in &packets {
                packet.check();
                packet.options();
            }
            if tapped {
                let side = if back { Side::Server } else { Side::Client };
                assert_eq!(packets.len() as u64, world.net.tally(flow, side).arrived);
                for side in [Side::Client, Side::Server] {
                    let summary = world.net.summary(flow, side);
                    assert_eq!(summary.packets, world.net.tally(flow, side));
                    assert_eq!(summary.delay.map_or(0, |delay| delay.count), summary.packets.arrived);
                    assert_eq!(summary.bytes, world.net.reception(flow, side.peer()).bytes);
                }
            }
            let sides = [Side::Client, Side::Server].map(|side| world.net.tcp_stats(flow, side));
            (sides, world.net.events())
        };
        prop_assert_eq!(run(false), run(true));
    }
}
