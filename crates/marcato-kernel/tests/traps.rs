//! Differential tests: the kernel's programs and `marcato-queue` get the same packets and signals,
//! and have the same state after every packet.
//!
//! They need root, and are skipped without.
//!
//! The packets are the recorded flows of `trap.txt`, and random ones over IPv4 and IPv6, behind VLAN
//! tags and PPPoE, across wraps and out of order. Another test compares what both read of 60 000 packets with
//! changed bytes.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::cast_possible_truncation, reason = "random numbers may be cut to any length")]

#[path = "traps/build.rs"]
mod build;
#[path = "traps/pair.rs"]
mod pair;

use std::collections::BTreeMap;
use std::fs;

use aya::programs::Program;
use aya::{Btf, EbpfLoader};
use marcato_kernel::{Configuration, Counter, FlowId, OBJECT, Pass, Programs, YoungPlace};
use marcato_queue::trap::{Booking, Counting, Evidence, Response, Signal, TrapConfig, TrapKind};
use marcato_queue::{
    Admission, Aqm, Buffer, Class, Crq, CrqConfig, Discipline, FlowKey, Packet, QuicRule, YoungConfig,
};
use marcato_testing::{Need, absent, skip};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Stream, Time};
use marcato_wire::{Ecn, FlowTuple, IpPacket, QuicHeader, TcpFlags, TcpSegment, TcpTimestamps, Transport};

use build::{Frame, Wrapping, frame, tuple};
use pair::Pair;

const PRESETS: [TrapConfig; 3] = [TrapConfig::paper(), TrapConfig::authors(), TrapConfig::marcato()];
const MARCATO: Configuration = Configuration::watching(TrapConfig::marcato());

/// Loads the programs; `None`, with the test counted as skipped, if this machine lacks something for that.
fn load(flows: u32) -> Option<Programs> {
    if absent!(Need::Root, Need::Programs(OBJECT), Need::KernelTypes) {
        return None;
    }
    let mut programs = Programs::load(&MARCATO, flows).unwrap();
    programs.load_tests().unwrap();
    Some(programs)
}

/// Most instructions of a program that the verifier may look at. The kernel refuses programs from a million on, and its
/// versions count differently: the largest program has 40 000 to 70 000 in Linux 6.1 to 6.18. A rule that doubles its
/// paths shows here long before a kernel refuses it.
const MOST_VERIFIED: u32 = 150_000;

#[test]
fn no_program_comes_near_the_limit_of_the_verifier() {
    if absent!(Need::Root, Need::Programs(OBJECT), Need::KernelTypes) {
        return;
    }
    let btf = Btf::from_sys_fs().unwrap();
    let mut ebpf = EbpfLoader::new().map_max_entries("flows", 64).load(OBJECT).unwrap();
    let (mut verified, mut largest) = (0, 0);
    for (name, program) in ebpf.programs_mut() {
        let mut load = || match &mut *program {
            Program::SchedClassifier(program) => program.load(),
            Program::BtfTracePoint(program) if name == "crq_dropped" => program.load("kfree_skb", &btf),
            Program::BtfTracePoint(program) => program.load("qdisc_dequeue", &btf),
            _ => panic!("{name} is of a kind that this test does not know"),
        };
        // A signal may interrupt the verification, which then asks for another attempt.
        if (1..10).all(|_| load().is_err()) {
            load().unwrap_or_else(|error| panic!("the kernel refuses {name}: {error}"));
        }
        let Some(count) = program.info().unwrap().verified_instruction_count() else {
            skip(env!("CARGO_PKG_NAME"), "this kernel does not count what it verifies, as before Linux 5.16");
            return;
        };
        eprintln!("{name}: {count} instructions verified");
        assert!(count <= MOST_VERIFIED, "the verifier looks at {count} instructions of {name}");
        (verified, largest) = (verified + 1, count.max(largest));
    }
    // The count is of paths, of which the classifier has many.
    assert!(verified >= 8 && largest > 10_000, "{verified} programs, {largest} instructions at most");
}

#[test]
fn recorded_flows_have_the_recorded_state_in_the_kernel_too() {
    let Some(mut programs) = load(1024) else { return };
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let read = |name: &str| fs::read_to_string(format!("{directory}{name}")).unwrap();
    let vectors = read("../marcato-queue/tests/vectors/trap.txt") + &read("tests/captures/linux.txt");
    let mut compared = 0;
    for (preset, trap) in PRESETS.into_iter().enumerate() {
        let config = Configuration { quic: QuicRule::FirstBit, ..Configuration::watching(trap) };
        programs.configure(&config).unwrap();
        let mut port = 1000 * u16::try_from(preset + 1).unwrap();
        for flow in vectors.split("\nflow ").skip(1) {
            port += 1;
            if flow.contains("gives-way-by-a-fiftieth") {
                // Its cycles are single packets of more than 64 kB, which IP does not have.
                continue;
            }
            compared += replay(&programs, config, flow, port);
        }
    }
    eprintln!("{compared} packets of recorded flows compared");
    assert!(compared > 20_000, "{compared}");
}

/// Passes a recorded flow through both, and returns the number of packets.
fn replay(programs: &Programs, config: Configuration, flow: &str, port: u16) -> u32 {
    let kind = if flow.starts_with("tcp") { TrapKind::Tcp } else { TrapKind::Spin };
    let protocol = if kind == TrapKind::Tcp { FlowTuple::TCP } else { FlowTuple::UDP };
    let mut pair = Pair::new(programs, config, tuple(protocol, port, 4), Wrapping::default());
    let (mut now, mut packets) = (Time::ZERO, 0);
    for line in flow.lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers =
            |words: &[&str]| -> Vec<u32> { words.iter().map(|word| word.parse().unwrap()).collect() };
        match words[0] {
            "f" | "b" => {
                let numbers = numbers(&words[1..]);
                now += Duration::from_micros(numbers[0].into());
                let [seq, ack, flags, payload] = [numbers[1], numbers[2], numbers[3], numbers[4]];
                let timestamps = numbers.get(5).map(|&value| TcpTimestamps { value, echo: numbers[6] });
                let flags = TcpFlags::from_bits(u8::try_from(flags).unwrap());
                let segment = TcpSegment { seq, ack, flags, payload, timestamps };
                let pass = if words[0] == "f" { Pass::Egress } else { Pass::Ingress };
                pair.pass(pass, now, &Transport::Tcp(segment));
            }
            "u" => {
                let numbers = numbers(&words[1..]);
                now += Duration::from_micros(numbers[0].into());
                let quic = Some(QuicHeader::Short { fixed: true, spin: numbers[2] == 1 });
                pair.pass(Pass::Egress, now, &Transport::Udp { payload: numbers[1], quic });
            }
            "s" => {
                let signal = if words[1] == "loss" { Signal::Loss } else { Signal::Ecn };
                pair.signal(signal, words[2].parse().unwrap());
                continue;
            }
            // Both change queues by their verdicts, so a recorded change adds nothing.
            _ => continue,
        }
        packets += 1;
    }
    packets
}

// Linux's TCP and our QUIC through a lab: tests/captures/README.md.
#[test]
fn captured_flows_have_the_same_state_after_every_packet() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
    let read = |pass, name: &str| {
        captured(&fs::read(format!("{directory}/{name}.pcap")).unwrap())
            .into_iter()
            .map(move |(at, packet)| (at, pass, packet))
            .collect::<Vec<_>>()
    };
    let mut packets = read(Pass::Egress, "bottleneck.there");
    packets.extend(read(Pass::Ingress, "bottleneck.back"));
    packets.sort_by_key(|(at, pass, _)| (*at, *pass == Pass::Ingress));
    for (number, trap) in PRESETS.into_iter().enumerate() {
        let Some(mut programs) = load(1024) else { return };
        let config = Configuration { trap, ..MARCATO };
        programs.configure(&config).unwrap();
        let mut random = Seed::new(number as u64).stream("signals");
        let mut pairs: BTreeMap<FlowTuple, Pair<'_>> = BTreeMap::new();
        for (at, pass, bytes) in &packets {
            let packet = IpPacket::parse(bytes).unwrap();
            let flow = if *pass == Pass::Egress { packet.flow } else { packet.flow.reversed() };
            let new = || Pair::new(&programs, config, flow, Wrapping::default());
            let pair = pairs.entry(flow).or_insert_with(new);
            let mut frame = vec![0; 12];
            frame.extend([0x08, 0x00]);
            frame.extend(bytes);
            pair.pass_frame(*pass, *at, &packet.transport, frame);
            if *pass == Pass::Egress {
                random_signals(pair, &mut random, 0.02);
            }
        }
        let scores =
            pairs.values().filter_map(|pair| pair.trap.as_ref()).map(marcato_queue::trap::Trap::scores);
        let cycles: Vec<u32> = scores.map(|scores| scores.cycles).collect();
        eprintln!("{} captured packets, cycles of flows {cycles:?}", packets.len());
        assert!(
            packets.len() > 1000 && cycles.iter().filter(|&&count| count > 10).count() >= 3,
            "{cycles:?}"
        );
    }
}

/// Packets of a file in the pcap format, with their times since its first.
fn captured(file: &[u8]) -> Vec<(Time, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    // Nanoseconds, and IP without a link header.
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 101));
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let time =
            Time::ZERO + Duration::from_secs(word(at).into()) + Duration::from_nanos(word(at + 4).into());
        let len = word(at + 8) as usize;
        packets.push((time, file[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    packets
}

/// Ten thousand flows: data of windows that grow and fall, in order and not, across the wrap of
/// every number, over IPv4 and IPv6 behind tags, with signals at any time.
/// Returns how many random flows are compared: 1000, or the number in `MARCATO_FLOWS`. `.ci/long` asks for 10 000.
fn random_flows() -> u32 {
    std::env::var("MARCATO_FLOWS").map_or(1000, |flows| flows.parse().unwrap())
}

#[test]
fn random_flows_have_the_same_state_after_every_packet() {
    let Some(mut programs) = load(65_536) else { return };
    let (mut packets, mut cycles, mut verdicts) = (0u64, 0u64, [0u32; 3]);
    let flows = random_flows();
    for number in 0..flows {
        let mut random = Seed::new(number.into()).stream("flow");
        let config = random_configuration(&mut random);
        programs.configure(&config).unwrap();
        let version = if random.chance(0.5) { 4 } else { 6 };
        let port = u16::try_from(1024 + number % 60_000).unwrap();
        let wrapping = Wrapping::random(&mut random, version);
        let tcp = random.chance(0.7);
        let protocol = if tcp { FlowTuple::TCP } else { FlowTuple::UDP };
        let mut pair = Pair::new(&programs, config, tuple(protocol, port, version), wrapping);
        if tcp {
            tcp_flow(&mut pair, &mut random);
        } else {
            quic_flow(&mut pair, &mut random, config.quic);
        }
        packets += pair.packets;
        if let Some(trap) = &pair.trap {
            cycles += u64::from(trap.scores().cycles);
            for signal in Signal::ALL {
                verdicts[trap.verdict(signal) as usize] += 1;
            }
        }
    }
    eprintln!("{packets} packets, {cycles} cycles, verdicts {verdicts:?}");
    // The comparison means something only if there was something to judge.
    let least = u64::from(flows);
    assert!(packets > 50 * least && cycles > 5 * least, "{packets} packets, {cycles} cycles");
    assert!(verdicts.iter().all(|&count| count > flows / 100), "{verdicts:?}");
}

fn below(random: &mut Stream, bound: u64) -> u32 {
    u32::try_from(random.below(bound)).unwrap()
}

fn random_configuration(random: &mut Stream) -> Configuration {
    let mut trap = PRESETS[below(random, 3) as usize];
    if random.chance(0.3) {
        let first = 1 + below(random, 3) as u8;
        let last = first + below(random, u64::from(4 - first)) as u8;
        trap.response = Response { first, last };
        trap.threshold = 50 + below(random, 51) as u8;
        trap.reassess = below(random, 4) as u8;
        // The programs do not keep the order of a loss and a mark between two packets. It matters only
        // where losses run over into another slot and marks stand in the same one.
        if trap.counting == Counting::Exact && random.chance(0.5) {
            trap.evidence = Evidence::Combined;
        }
        trap.booking = if random.chance(0.5) { Booking::Given } else { Booking::Arrival };
    }
    let admission = [Admission::Loss, Admission::Ecn, Admission::Any][below(random, 3) as usize];
    let quic = [QuicRule::FirstBit, QuicRule::Version, QuicRule::Handshake][below(random, 3) as usize];
    Configuration { admission, quic, ..Configuration::watching(trap) }
}

/// Signals of a queue that some flows fill in turns.
fn random_signals(pair: &mut Pair<'_>, random: &mut Stream, probability: f64) {
    while random.chance(probability) {
        let signal = if random.chance(0.7) { Signal::Loss } else { Signal::Ecn };
        // Up to 300 at once, to fill what counts them.
        let count = if random.chance(0.01) { 300 } else { 1 };
        let back = random.below(20) as usize;
        for _ in 0..count {
            pair.signal(signal, back);
        }
    }
}

fn tcp_flow(pair: &mut Pair<'_>, random: &mut Stream) {
    let mut now = Time::from_nanos(random.below(1 << 40));
    let has_timestamps = random.chance(0.7);
    let timestamps = |value: u32, echo: u32| has_timestamps.then_some(TcpTimestamps { value, echo });
    // Numbers that wrap around during the flow, often.
    let start = |random: &mut Stream| {
        if random.chance(0.5) { 0u32.wrapping_sub(below(random, 200_000)) } else { random.next_u64() as u32 }
    };
    let (mut seq, mut back_seq, clock, back_clock) =
        (start(random), start(random), start(random), start(random));
    let rtt = 1_000_000 + random.below(100_000_000);
    let (mut window, answers) = (2 + below(random, 60), random.chance(0.6));
    let mut echo = back_clock;
    let segment = |seq, ack, flags: u8, payload, timestamps| {
        Transport::Tcp(TcpSegment { seq, ack, flags: TcpFlags::from_bits(flags), payload, timestamps })
    };
    if random.chance(0.8) {
        pair.pass(Pass::Ingress, now, &segment(back_seq, 0, 0x02, 0, timestamps(back_clock, 0)));
        now += Duration::from_micros(random.below(1000));
        back_seq = back_seq.wrapping_add(1);
        pair.pass(Pass::Egress, now, &segment(seq, back_seq, 0x12, 0, timestamps(clock, echo)));
        seq = seq.wrapping_add(1);
        now += Duration::from_nanos(rtt);
    }
    let rounds = 3 + random.below(20);
    let began = now;
    for _ in 0..rounds {
        let milliseconds = |now: Time| u32::try_from((now - began).as_millis()).unwrap();
        let first = seq;
        let mut signalled = false;
        for _ in 0..window.min(40) {
            let payload = if random.chance(0.9) { 1448 } else { below(random, 20_000) };
            let value = clock.wrapping_add(milliseconds(now));
            // Some leave late, and some again.
            let shown = if random.chance(0.05) { seq.wrapping_sub(below(random, 10_000)) } else { seq };
            let flags = if random.chance(0.01) { below(random, 256) as u8 } else { 0x10 };
            pair.pass(Pass::Egress, now, &segment(shown, back_seq, flags, payload, timestamps(value, echo)));
            seq = seq.wrapping_add(payload);
            now += Duration::from_nanos(random.below(rtt / u64::from(window) + 1));
            if random.chance(0.02) {
                random_signals(pair, random, 0.6);
                signalled = true;
            }
        }
        now += Duration::from_nanos(random.below(rtt));
        echo = back_clock.wrapping_add(milliseconds(now));
        let value = clock.wrapping_add(milliseconds(now));
        let back = if random.chance(0.3) { below(random, 500) } else { 0 };
        for ack in [first.wrapping_add(below(random, u64::from(seq.wrapping_sub(first)) + 1)), seq] {
            let flags = if random.chance(0.98) { 0x10 } else { below(random, 256) as u8 };
            pair.pass(Pass::Ingress, now, &segment(back_seq, ack, flags, back, timestamps(echo, value)));
            back_seq = back_seq.wrapping_add(back);
            now += Duration::from_micros(random.below(300));
        }
        window = if signalled && answers { (window / 2).max(2) } else { (window + 1 + window / 8).min(200) };
        if random.chance(0.02) {
            now += Duration::from_millis(random.below(20_000));
        }
    }
}

fn quic_flow(pair: &mut Pair<'_>, random: &mut Stream, rule: QuicRule) {
    let mut now = Time::from_nanos(random.below(1 << 40));
    let long =
        |version| Transport::Udp { payload: 1200, quic: Some(QuicHeader::Long { version, kind: None }) };
    if rule != QuicRule::FirstBit {
        let version = if random.chance(0.9) { 1 } else { 0x6b33_43cf };
        pair.pass(Pass::Ingress, now, &long(version));
        pair.pass(Pass::Egress, now, &long(version));
    }
    let noise = [0.0, 0.02, 0.5][below(random, 3) as usize];
    let rtt = 2_000_000 + random.below(50_000_000);
    let (mut window, answers) = (4 + below(random, 40), random.chance(0.6));
    let mut spin = random.chance(0.5);
    for _ in 0..5 + random.below(25) {
        spin = !spin;
        let mut signalled = false;
        for _ in 0..window.min(40) {
            let shown = spin ^ random.chance(noise);
            let quic = Some(QuicHeader::Short { fixed: true, spin: shown });
            let payload = if random.chance(0.9) { 1200 } else { 1 + below(random, 1400) };
            pair.pass(Pass::Egress, now, &Transport::Udp { payload, quic });
            now += Duration::from_nanos(rtt / u64::from(window));
            if random.chance(0.03) {
                random_signals(pair, random, 0.6);
                signalled = true;
            }
        }
        window = if signalled && answers { (window / 2).max(3) } else { (window + 1).min(120) };
        if random.chance(0.02) {
            now += Duration::from_millis(random.below(10_000));
        }
    }
}

/// Whatever the bytes: both read the same fields, or neither reads any.
#[test]
fn any_packet_is_read_alike() {
    let Some(programs) = load(64) else { return };
    let (mut readable, mut transports) = (0, [0; 3]);
    for number in 0..60_000u64 {
        let mut random = Seed::new(number).stream("bytes");
        let bytes = build::any(&mut random);
        let ours = IpPacket::parse_ethernet(&bytes);
        let theirs = programs.read(&bytes).unwrap();
        let Ok(ours) = ours else {
            assert_eq!(theirs, None, "{ours:?} {bytes:02x?}");
            continue;
        };
        let theirs = theirs.unwrap_or_else(|| panic!("the kernel reads nothing: {ours:?} {bytes:02x?}"));
        readable += 1;
        transports[match ours.transport {
            Transport::Opaque => 0,
            Transport::Tcp(_) => 1,
            Transport::Udp { .. } => 2,
        }] += 1;
        assert_eq!(theirs.flow, FlowId::new(&ours.flow), "{bytes:02x?}");
        assert_eq!(u64::from(theirs.len), ours.len.get(), "{bytes:02x?}");
        assert_eq!(theirs.ecn, ours.ecn as u8, "{bytes:02x?}");
        assert_eq!(theirs.layer, ours.layer(), "{bytes:02x?}");
        assert_eq!(theirs.transport, build::as_the_kernel_sees(ours.transport), "{bytes:02x?}");
    }
    eprintln!("{readable} of 60000 packets are readable: {transports:?} opaque, TCP, UDP");
    assert!(readable > 20_000 && transports.iter().all(|&count| count > 3000), "{transports:?}");
}

/// Packet of the kernel's frames in user space.
struct Read(IpPacket);

impl Packet for Read {
    fn len(&self) -> Bytes {
        self.0.len
    }
    fn flow(&self) -> FlowKey {
        FlowKey::of(&self.0.flow, 0)
    }
    fn ecn(&self) -> Ecn {
        self.0.ecn
    }
    fn mark_ce(&mut self) {}
    fn layer(&self) -> Layer {
        self.0.layer()
    }
    fn reverse(&self) -> FlowKey {
        FlowKey::of(&self.0.flow.reversed(), 0)
    }
    fn transport(&self) -> Transport {
        self.0.transport
    }
}

/// Flows of every kind, with gaps in which some of them regain their allowance and some do not.
#[test]
fn young_packets_go_where_the_simulator_sends_them() {
    let Some(mut programs) = load(64) else { return };
    let (allowance, regain) = (Bytes::kb(20), Rate::from_kbps(100));
    let place = YoungPlace { priority: 0, allowance, regain, secret: 7 };
    programs.configure(&Configuration { young: Some(place), ..MARCATO }).unwrap();
    let span = Duration::from_millis(100);
    let mut young = YoungConfig::new(span, false);
    (young.allowance, young.regain) = (allowance, regain);
    (young.aqm, young.buffer) = (Aqm::DropTail, Buffer::Packets(10));
    let config = CrqConfig { young: Some(young), ..CrqConfig::new(Rate::from_mbps(100), span, false) };
    let mut queue = Crq::<Read>::new(config).unwrap();
    let mut random = Seed::new(1).stream("young");
    let mut now = Time::from_secs(5);
    for number in 0..20_000u32 {
        let most = if random.chance(0.002) { 3_000_000 } else { 10_000 };
        now += Duration::from_micros(random.below(most));
        let port = 1 + random.below(6) as u16;
        let payload = 100 + below(&mut random, 1300);
        let segment = TcpSegment { seq: number, flags: TcpFlags::ACK, payload, ..TcpSegment::default() };
        let (protocol, version, transport) = match port {
            1 | 2 => (FlowTuple::TCP, [4, 6][usize::from(port == 2)], Transport::Tcp(segment)),
            3 => (FlowTuple::UDP, 4, Transport::Udp { payload, quic: None }),
            4 => (50, 6, Transport::Opaque),
            _ => (FlowTuple::TCP, [4, 6][usize::from(port == 6)], Transport::Tcp(segment)),
        };
        let mut bytes = frame(&Frame::new(&tuple(protocol, port, version), &transport));
        // DSCP LE, of a flow over IPv4 and one over IPv6, at times.
        match port {
            5 if random.chance(0.5) => bytes[15] = 1 << 2,
            6 if random.chance(0.5) => bytes[15] = 1 << 6,
            _ => {}
        }
        programs.pass(Pass::Egress, now, &bytes).unwrap();
        let packet = Read(IpPacket::parse_ethernet(&bytes).unwrap());
        queue.enqueue(now, packet).lost();
        queue.dequeue(now);
        let of = |class| queue.class(class).unwrap().counters.enqueued.packets;
        let ours = [of(Class::Young), of(Class::Standard), queue.stats().outgrown.packets];
        let theirs = [Counter::Young, Counter::Standard, Counter::Outgrown];
        let theirs = theirs.map(|counter| programs.counter(counter).unwrap().packets);
        assert_eq!(ours, theirs, "packet {number}");
    }
    let [young, standard, outgrown] =
        [Counter::Young, Counter::Standard, Counter::Outgrown].map(|it| programs.counter(it).unwrap());
    assert_eq!(outgrown.bytes, queue.stats().outgrown.bytes.get());
    eprintln!(
        "{} young packets, {} of {} others outgrown",
        young.packets, outgrown.packets, standard.packets
    );
    assert!(young.packets > 2000 && outgrown.packets > 2000 && standard.packets > outgrown.packets + 2000);
}

#[test]
fn a_flow_is_counted_whole_from_two_cpus_at_once() {
    let Some(programs) = load(64) else { return };
    let flow = tuple(FlowTuple::TCP, 5000, 4);
    let segment = |seq| TcpSegment { seq, flags: TcpFlags::ACK, payload: 1000, ..TcpSegment::default() };
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let programs = &programs;
            scope.spawn(move || {
                for number in 0..20_000 {
                    let packet = Transport::Tcp(segment(number * 2000 + thread * 1000));
                    let bytes = frame(&Frame::new(&flow, &packet));
                    programs.pass(Pass::Egress, Time::from_micros(number.into()), &bytes).unwrap();
                }
            });
        }
    });
    let state = programs.flow(&FlowId::new(&flow)).unwrap().unwrap();
    let counted = |name| state.trap.iter().find(|(of, _)| *of == name).unwrap().1;
    // Each packet is counted, in the flow and in its trap: there is no round trip, so one cycle. A CPU
    // that waited too long for the other one has said so.
    let contended = programs.counter(Counter::Contended).unwrap().packets;
    assert_eq!(state.packets + contended, 40_000);
    assert_eq!(u64::from(counted("bytes")), 1000 * state.packets);
    eprintln!("{contended} of 40000 packets gave up");
}

#[test]
fn a_full_map_forwards_packets_and_keeps_its_size() {
    let Some(programs) = load(64) else { return };
    for port in 0..5000u16 {
        let flow = tuple(FlowTuple::TCP, port, 4);
        let packet = Transport::Tcp(TcpSegment { flags: TcpFlags::SYN, ..TcpSegment::default() });
        programs.pass(Pass::Egress, Time::ZERO, &frame(&Frame::new(&flow, &packet))).unwrap();
    }
    let count = programs.flow_count();
    assert!((1..=64).contains(&count), "{count}");
}

#[test]
fn udp_that_is_not_quic_takes_no_place() {
    let Some(programs) = load(64) else { return };
    let packet = |quic| Transport::Udp { payload: 1200, quic };
    let short = packet(Some(QuicHeader::Short { fixed: true, spin: false }));
    let long = packet(Some(QuicHeader::Long { version: 1, kind: None }));
    let pass = |port, direction, packet: &Transport| {
        let flow = tuple(FlowTuple::UDP, port, 4);
        let flow = if direction == Pass::Ingress { flow.reversed() } else { flow };
        programs.pass(direction, Time::ZERO, &frame(&Frame::new(&flow, packet))).unwrap();
    };
    for port in 1..100 {
        pass(port, Pass::Egress, &short);
        pass(port, Pass::Egress, &packet(None));
        // A long header of one end alone is no handshake.
        pass(port, Pass::Egress, &long);
        pass(port, Pass::Egress, &short);
    }
    assert_eq!(programs.flow_count(), 0);
    pass(1, Pass::Ingress, &long);
    pass(1, Pass::Egress, &short);
    assert_eq!(programs.flow_count(), 1);
}
