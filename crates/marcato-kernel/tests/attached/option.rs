//! TCP option with the priority of segments, as packets on the wire show it.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use marcato_kernel::{Boundaries, Heard, OptionCounter, PriorityOption};
use marcato_testing::{Need, absent};
use marcato_units::{Bytes, Priority};
use marcato_wire::{CatsOption, TcpFlags, TcpOption, TcpOptions, TcpSegment};

use super::marks::Marked;
use super::net::{Offloads, run};

/// Addresses of the server, one of each family.
const SERVER: [&str; 2] = ["10.9.8.2", "fd09::2"];
/// Level of bytes without a boundary.
const STANDARD: Priority = Priority::P3;

/// Segment of a connection to a port.
#[derive(Debug, Clone, Copy)]
struct Segment {
    outward: bool,
    tcp: TcpSegment,
    level: Option<Priority>,
}

impl Segment {
    fn has(&self, flags: TcpFlags) -> bool {
        self.tcp.flags.has(flags)
    }
}

/// Reads the segments of a connection until one fits, which is the last.
fn until(marked: &Marked, port: u16, mut last: impl FnMut(&Segment) -> bool) -> Vec<Segment> {
    let mut segments = Vec::new();
    loop {
        let packet = marked.packet();
        let Some(segment) = read(&packet, port) else { continue };
        segments.push(segment);
        if last(&segment) {
            return segments;
        }
    }
}

fn read(packet: &[u8], port: u16) -> Option<Segment> {
    let (protocol, header, len) = match packet.first()? >> 4 {
        4 => (
            packet[9],
            usize::from(packet[0] & 15) * 4,
            usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        ),
        6 => (packet[6], 40, 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))),
        _ => return None,
    };
    let segment = packet.get(header..len).filter(|_| protocol == 6)?;
    let ports = [0, 2].map(|at| u16::from_be_bytes([segment[at], segment[at + 1]]));
    let options = &segment[20..usize::from(segment[12] >> 4) * 4];
    let level = TcpOptions::new(options).find_map(|option| match option.unwrap() {
        TcpOption::Cats { priority, form } => {
            assert_eq!(form, CatsOption::Rfc6994);
            Some(priority)
        }
        _ => None,
    });
    let tcp = TcpSegment::parse(segment, segment.len())?;
    ports.contains(&port).then(|| Segment { outward: ports[1] == port, tcp, level })
}

/// Most urgent level of the bytes of a segment, by these boundaries.
fn expected(boundaries: &[(u64, Priority)], start: u64, len: u64) -> Priority {
    let level =
        |at| boundaries.iter().rev().find(|(offset, _)| *offset <= at).map_or(STANDARD, |(_, level)| *level);
    (start..start + len.max(1)).map(level).min_by_key(|level| level.index()).unwrap()
}

fn published(list: &[(u64, Priority)]) -> Boundaries {
    let mut boundaries = Boundaries::default();
    list.iter().for_each(|(offset, level)| boundaries.push(Bytes::new(*offset), *level));
    boundaries
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), 0)
}

fn counters<const N: usize>(option: &PriorityOption, counters: [OptionCounter; N]) -> [u64; N] {
    counters.map(|counter| option.counter(counter).unwrap())
}

/// Waits until a counter is at least one.
fn wait_for(option: &PriorityOption, counter: OptionCounter) {
    let begun = Instant::now();
    while option.counter(counter).unwrap() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{counter:?} stays zero");
        thread::yield_now();
    }
}

/// Sends bytes to the server, and returns all segments of the connection and the levels that the server has heard.
fn transfer(
    marked: &Marked,
    option: &mut PriorityOption,
    [from, server]: [&str; 2],
    boundaries: &[(u64, Priority)],
    bytes: usize,
) -> (Vec<Segment>, Option<Heard>) {
    let end = if from == "client" { 2 } else { 0 };
    let listener = marked.inside_on(1, || TcpListener::bind(at(server)).unwrap());
    let to = listener.local_addr().unwrap();
    let mut stream = marked.inside_on(end, || TcpStream::connect(to).unwrap());
    let (mut accepted, _) = listener.accept().unwrap();
    option.publish(&stream, &published(boundaries)).unwrap();
    let received = thread::spawn(move || {
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).unwrap();
        (accepted, all.len())
    });
    stream.write_all(&vec![7; bytes]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (accepted, len) = received.join().unwrap();
    assert_eq!(len, bytes);
    let heard = option.heard(&accepted).unwrap();
    let all = until(marked, to.port(), |segment| segment.outward && segment.has(TcpFlags::FIN));
    (all, heard)
}

#[test]
fn segments_have_the_most_urgent_level_of_their_bytes() {
    use Priority::{P0, P1, P2, P4};
    let Some(marked) = Marked::new("opt") else { return };
    let mut option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
    // One byte of P0 makes its segment urgent. Bytes before the first boundary have the standard level.
    let boundaries = [(3000, P2), (10_000, P0), (10_001, P4), (40_000, P1)];
    for (round, server) in (1..).zip(SERVER) {
        let (all, heard) = transfer(&marked, &mut option, ["router", server], &boundaries, 60_000);
        assert!(all[0].has(TcpFlags::SYN) && all[0].level == Some(STANDARD), "{:?}", all[0]);
        assert!(
            all[1].has(TcpFlags::SYN) && !all[1].outward && all[1].level == Some(STANDARD),
            "{:?}",
            all[1]
        );
        assert!(all.iter().all(|segment| segment.level.is_some()), "{server}");
        let first = all[0].tcp.seq.wrapping_add(1);
        let data: Vec<_> = all.iter().filter(|segment| segment.outward && segment.tcp.payload > 0).collect();
        for segment in &data {
            let (start, len) = (segment.tcp.seq.wrapping_sub(first), segment.tcp.payload);
            let level = expected(&boundaries, start.into(), len.into());
            assert_eq!(segment.level, Some(level), "{server}: {len} bytes at {start}");
        }
        let levels: std::collections::BTreeSet<_> =
            data.iter().map(|segment| segment.level.unwrap().index()).collect();
        assert_eq!(levels.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{server}");
        // 1500 bytes less the headers of IP and TCP, timestamps, and the option in whole words.
        let largest = data.iter().map(|segment| segment.tcp.payload).max().unwrap();
        assert_eq!(largest, if server.contains(':') { 1420 } else { 1440 }, "{server}");
        let heard = heard.unwrap();
        let of = |start, len| heard.priority_of(Bytes::new(start), Bytes::new(len));
        let known = [of(9999, 3), of(20_000, 1), of(59_999, 1), of(60_000, 1)];
        assert_eq!(known, [Some(P0), Some(P4), Some(P1), None], "{server}: {heard:?}");
        let counted =
            counters(&option, [OptionCounter::Offered, OptionCounter::Agreed, OptionCounter::Failed]);
        assert_eq!(counted, [2 * round, 2 * round, 0]);
    }
}

#[test]
fn retransmissions_have_the_level_of_their_bytes() {
    let Some(marked) = Marked::new("again") else { return };
    let mut option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
    let router = &marked.net.names[0];
    let tc = |words: &str| run("tc", &format!("-n {router} {words}")).unwrap();
    // Shorter than the first window, so that some of it is lost.
    tc("qdisc add dev wan root handle 1: htb default 10");
    tc("class add dev wan parent 1: classid 1:10 htb rate 10mbit");
    tc("qdisc add dev wan parent 1:10 pfifo limit 4");
    let boundaries: Vec<_> =
        (0..60_u64).map(|at| (at * 5000, Priority::ALL[usize::try_from(at * 7 % 5).unwrap()])).collect();
    let (all, _) = transfer(&marked, &mut option, ["client", SERVER[0]], &boundaries, 300_000);
    let first = all[0].tcp.seq.wrapping_add(1);
    let (mut highest, mut again) = (0, 0);
    for segment in all.iter().filter(|segment| segment.outward && segment.tcp.payload > 0) {
        let (start, len) = (segment.tcp.seq.wrapping_sub(first), segment.tcp.payload);
        let level = expected(&boundaries, start.into(), len.into());
        assert_eq!(segment.level, Some(level), "{len} bytes at {start}, {highest} before");
        again += u32::from(start < highest);
        highest = highest.max(start + len);
    }
    eprintln!("{again} retransmissions");
    assert!(again > 3, "{again}");
}

#[test]
fn peers_without_the_option_get_none_and_are_remembered() {
    let Some(marked) = Marked::new("plain") else { return };
    let mut option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
    let exchange = |inside: bool, server: &str| {
        let bind = || TcpListener::bind(at(server)).unwrap();
        // Either the client or the server is in the group.
        let listener = if inside { marked.net.on(1, bind) } else { marked.inside_on(1, bind) };
        let to = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(to).unwrap();
        let mut stream = if inside { marked.inside_on(0, connect) } else { marked.net.on(0, connect) };
        let (mut accepted, _) = listener.accept().unwrap();
        stream.write_all(&[7; 5000]).unwrap();
        accepted.read_exact(&mut [0; 5000]).unwrap();
        accepted.write_all(&[7; 5000]).unwrap();
        stream.read_exact(&mut [0; 5000]).unwrap();
        drop(stream);
        let all = until(&marked, to.port(), |segment| segment.outward && segment.has(TcpFlags::FIN));
        all.iter().map(|segment| segment.level.is_some()).collect::<Vec<_>>()
    };
    let seen =
        [OptionCounter::Offered, OptionCounter::Agreed, OptionCounter::Refused, OptionCounter::Remembered];
    for (round, server) in (0..).zip(SERVER) {
        // The server answers no offer that was not made.
        assert!(exchange(false, server).iter().all(|has| !has), "{server}");
        assert_eq!(counters(&option, seen), [round, 0, round, round]);
        let offered = exchange(true, server);
        assert!(offered[0] && offered[1..].iter().all(|has| !has), "{server}: {offered:?}");
        assert!(exchange(true, server).iter().all(|has| !has), "{server}: it is remembered");
        assert_eq!(counters(&option, seen), [round + 1, 0, round + 1, round + 1]);
    }
    let mut refusing = option.refusing().unwrap();
    refusing.sort();
    let addresses: Vec<IpAddr> = refusing.iter().map(|(address, _)| *address).collect();
    assert_eq!(addresses, SERVER.map(|server| server.parse::<IpAddr>().unwrap()));
    assert!(
        refusing.iter().all(|(_, lasts)| *lasts > PriorityOption::REMEMBERED - Duration::from_secs(3600))
    );
    // The next process knows them too.
    drop(option);
    option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
    refusing.iter().for_each(|(address, lasts)| option.remember(*address, *lasts).unwrap());
    let listener = marked.inside_on(1, || TcpListener::bind(at(SERVER[0])).unwrap());
    let _stream = marked.inside_on(0, || TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    assert_eq!(counters(&option, seen), [0, 0, 0, 1]);
    option.remember(SERVER[0].parse().unwrap(), Duration::ZERO).unwrap();
    let _stream = marked.inside_on(0, || TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    assert_eq!(counters(&option, seen), [2, 2, 0, 1], "its time is over");
}

#[test]
fn a_path_that_drops_the_option_goes_on_without_it() {
    let Some(marked) = Marked::new("hole") else { return };
    let option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
    let listener = marked.inside_on(1, || TcpListener::bind(at(SERVER[0])).unwrap());
    let to = listener.local_addr().unwrap();
    let mut stream = marked.inside_on(2, || TcpStream::connect(to).unwrap());
    let (mut accepted, _) = listener.accept().unwrap();
    let router = &marked.net.names[0];
    run("tc", &format!("-n {router} qdisc add dev wan root pfifo limit 0")).unwrap();
    stream.write_all(&[7; 3000]).unwrap();
    wait_for(&option, OptionCounter::BlackHoles);
    run("tc", &format!("-n {router} qdisc del dev wan root")).unwrap();
    accepted.read_exact(&mut [0; 3000]).unwrap();
    let all = until(&marked, to.port(), |segment| segment.outward && segment.tcp.payload > 0);
    assert_eq!(all.last().unwrap().level, None, "{all:?}");
    assert_eq!(option.refusing().unwrap().len(), 1);
}

#[test]
#[ignore = "takes the 7 s in which Linux sends the first four SYNs"]
fn a_syn_without_an_answer_is_sent_again_without_the_option() {
    let Some(marked) = Marked::new("syn") else { return };
    let option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
    let listener = marked.inside_on(1, || TcpListener::bind(at(SERVER[0])).unwrap());
    let to = listener.local_addr().unwrap();
    // The router has to know the server's address on the link, of which it cannot ask later.
    let known = marked.net.on(1, || TcpListener::bind(at(SERVER[0])).unwrap());
    drop(marked.net.on(2, || TcpStream::connect(known.local_addr().unwrap()).unwrap()));
    let router = &marked.net.names[0];
    run("tc", &format!("-n {router} qdisc add dev wan root pfifo limit 0")).unwrap();
    let _stream = thread::scope(|scope| {
        let connecting = scope.spawn(|| marked.inside_on(2, || TcpStream::connect(to).unwrap()));
        wait_for(&option, OptionCounter::Withheld);
        run("tc", &format!("-n {router} qdisc del dev wan root")).unwrap();
        connecting.join().unwrap()
    });
    let all = until(&marked, to.port(), |segment| !segment.outward);
    assert!(all.iter().all(|segment| segment.level.is_none()), "{all:?}");
    let seen = [OptionCounter::Offered, OptionCounter::Agreed, OptionCounter::Refused];
    assert_eq!(counters(&option, seen), [2, 0, 1]);
}

/// Packets as a file for tshark: in the format of libpcap, each from its IP header on.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    const RAW: u32 = 101;
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, RAW] {
        file.extend_from_slice(&u32::to_ne_bytes(word));
    }
    for packet in packets {
        let len = u32::try_from(packet.len()).unwrap();
        for word in [0, 0, len, len] {
            file.extend_from_slice(&word.to_ne_bytes());
        }
        file.extend_from_slice(packet);
    }
    file
}

#[test]
fn the_dissector_shows_the_option_in_all_its_forms() {
    if absent!(Need::Program("tshark")) {
        return;
    }
    let Some(marked) = Marked::new("lua") else { return };
    let mut option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
    let listener = marked.inside_on(1, || TcpListener::bind(at(SERVER[0])).unwrap());
    let to = listener.local_addr().unwrap();
    let mut stream = marked.inside_on(0, || TcpStream::connect(to).unwrap());
    option.publish(&stream, &published(&[(0, Priority::P1)])).unwrap();
    stream.write_all(&[7; 100]).unwrap();
    let mut packets = Vec::new();
    let data = loop {
        let packet = marked.packet();
        let Some(segment) = read(&packet, to.port()) else { continue };
        packets.push(packet.clone());
        if segment.tcp.payload > 0 {
            break packet;
        }
    };
    // The other forms, a value that is no level, another experiment, and a length beyond the header.
    let own = [254, 5, 0xca, 0x75, 1];
    let place = data.windows(own.len()).position(|part| part == own).unwrap();
    for form in [
        [254, 3, 2, 1, 1],
        [253, 4, 4, 0, 1],
        [254, 5, 0xca, 0x75, 9],
        [254, 5, 0xca, 0x76, 1],
        [254, 99, 0xca, 0x75, 1],
    ] {
        let mut changed = data.clone();
        changed[place..place + own.len()].copy_from_slice(&form);
        packets.push(changed);
    }
    // tshark runs no scripts as root.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let [file, script] = ["option.pcap", "marcato.lua"].map(|name| directory.path().join(name));
    std::fs::write(&file, capture(&packets)).unwrap();
    std::fs::write(&script, include_str!("../../../../contrib/marcato.lua")).unwrap();
    let said = Command::new("tshark")
        .args(["-X", &format!("lua_script:{}", script.display()), "-r", file.to_str().unwrap()])
        .args(["-T", "fields", "-E", "separator=,"])
        .args(["-e", "marcato.priority", "-e", "marcato.form", "-e", "marcato.malformed"])
        .current_dir("/")
        .env("HOME", directory.path())
        .gid(65_534)
        .uid(65_534)
        .output()
        .unwrap();
    let [shown, err] = [said.stdout, said.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(said.status.success(), "{err}");
    let expected = [
        "3,rfc6994,",
        "3,rfc6994,",
        "3,rfc6994,",
        "1,rfc6994,",
        "2,short,",
        "4,authors,",
        ",rfc6994,9",
        ",,",
        ",,",
    ];
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
}

/// Rate in Mbit/s at which bytes get from the client to the server, from a transfer of this time.
fn goodput(marked: &Marked, span: Duration) -> f64 {
    let listener = marked.inside_on(1, || TcpListener::bind(at(SERVER[0])).unwrap());
    let to = listener.local_addr().unwrap();
    let mut stream = marked.inside_on(2, || TcpStream::connect(to).unwrap());
    let (mut accepted, _) = listener.accept().unwrap();
    let begun = Instant::now();
    let received = thread::spawn(move || std::io::copy(&mut accepted, &mut std::io::sink()).unwrap());
    let chunk = vec![7; 65_536];
    while begun.elapsed() < span {
        stream.write_all(&chunk).unwrap();
    }
    drop(stream);
    let kilobytes = f64::from(u32::try_from(received.join().unwrap() / 1000).unwrap());
    8e-3 * kilobytes / begun.elapsed().as_secs_f64()
}

/// Number of calls of the program, and the nanoseconds in them.
fn program() -> (u64, u64) {
    let mut programs = aya::programs::loaded_programs().map(Result::unwrap);
    let program = programs.find(|program| program.name_as_str() == Some("option_segments")).unwrap();
    (program.run_count(), u64::try_from(program.run_time().as_nanos()).unwrap())
}

#[test]
#[ignore = "measures rates in real time"]
fn goodput_and_time_of_the_option_are_measured() {
    const SPAN: Duration = Duration::from_millis(400);
    if absent!(Need::Root) {
        return;
    }
    let _counting = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
    for (name, offloads, rate) in [
        ("single packets", Offloads::Off, None),
        ("super-packets", Offloads::On, None),
        ("super-packets at 1 Gbit/s", Offloads::On, Some("1gbit")),
    ] {
        let Some(marked) = Marked::with("cost", offloads) else { return };
        if let Some(rate) = rate {
            let router = &marked.net.names[0];
            run("tc", &format!("-n {router} qdisc add dev wan root handle 1: htb default 10")).unwrap();
            run("tc", &format!("-n {router} class add dev wan parent 1: classid 1:10 htb rate {rate}"))
                .unwrap();
        }
        let (mut ratios, mut plain, mut calls, mut nanos, mut packets) = (Vec::new(), Vec::new(), 0, 0, 0);
        for _ in 0..9 {
            let without = goodput(&marked, SPAN);
            let option = PriorityOption::attach(&marked.group(), STANDARD).unwrap();
            let with = goodput(&marked, SPAN);
            assert_eq!(counters(&option, [OptionCounter::Agreed]), [2]);
            let (run_count, run_time) = program();
            calls += run_count;
            nanos += run_time;
            packets += option.counter(OptionCounter::Marked).unwrap();
            ratios.push(with / without);
            plain.push(without);
        }
        let median = |list: &mut Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let plain = median(&mut plain);
        let spread =
            (ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max));
        println!(
            "{name}: {plain:.0} Mbit/s without, with {:.3} of it ({:.3} to {:.3}); {packets} packets, {:.1} calls and {} ns for each at both ends",
            median(&mut ratios),
            spread.0,
            spread.1,
            f64::from(u32::try_from(calls).unwrap()) / f64::from(u32::try_from(packets).unwrap()),
            nanos / packets,
        );
    }
}
