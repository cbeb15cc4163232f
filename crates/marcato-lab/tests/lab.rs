//! Hosts as network namespaces, with the kernel's TCP and UDP between them.
//!
//! These tests need root, or user namespaces with access to `/dev/net/tun`, and are skipped without.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use marcato_lab::{Lab, LabOptions, Leftover, Traces};
use marcato_scenario::Scenario;
use marcato_testing::{Need, absent};
use marcato_units::Bytes;

/// Opens the lab of a scenario; `None` where there can be none.
fn lab(text: &str, options: LabOptions) -> Option<Lab> {
    if absent!(Need::Lab) {
        return None;
    }
    let scenario = Scenario::parse("test.toml", text).unwrap();
    let run = scenario.run(0).unwrap();
    match Lab::open(&run.experiment, &Traces::new(), options) {
        Ok(lab) => Some(lab),
        Err(error) => panic!("{error}"),
    }
}

/// Two hosts with a router between them.
fn chain(access: &str, core: &str) -> String {
    format!(
        r#"
        name = "chain"
        duration = "1 s"
        nodes = ["client", "router", "server"]
        [[link]]
        name = "access"
        between = ["client", "router"]
        {access}
        [[link]]
        name = "core"
        between = ["router", "server"]
        {core}
        [[flow]]
        name = "bulk"
        kind = "tcp"
        from = "client"
        to = "server"
        "#
    )
}

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Sends `len` bytes by TCP from the client to the server, and returns the time that took.
fn transfer(lab: &Lab, server: IpAddr, len: usize) -> Duration {
    let listener = lab.run("server", move || TcpListener::bind(SocketAddr::new(server, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        stream.write_all(b"!").unwrap();
        received
    });
    let begun = Instant::now();
    let mut stream = lab.run("client", move || TcpStream::connect(at)).unwrap().unwrap();
    stream.write_all(&body(len)).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let took = begun.elapsed();
    assert!(receiver.join().unwrap() == body(len));
    took
}

#[test]
fn tcp_arrives_whole_and_no_faster_than_the_slowest_link() {
    let text = chain("delay = \"5 ms\"", "rate = \"40 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"codel\"");
    let Some(lab) = lab(&text, LabOptions::default()) else { return };
    const LEN: usize = 6_000_000;
    for server in [SERVER, "fd00::3".parse().unwrap()] {
        let took = transfer(&lab, server, LEN);
        // 1.2 s without headers.
        assert!(took > Duration::from_millis(1200), "{took:?}");
    }
    let stats = lab.stats();
    let (name, [there, back]) = stats[1];
    assert_eq!(name, "core");
    assert!(there.link.delivered_bytes > Bytes::new(2 * LEN as u64));
    assert!(back.link.delivered > 0 && there.refused + back.refused == 0, "{stats:?}");
}

#[test]
fn an_overloaded_link_keeps_its_rate() {
    const MBPS: u64 = 20;
    let core =
        format!("rate = \"{MBPS} Mbit/s\"\nqueue = {{ kind = \"droptail\", limit = \"500 packets\" }}");
    let Some(lab) = lab(&chain("delay = \"1 ms\"", &core), LabOptions::default()) else { return };
    let _sink = lab.run("server", || UdpSocket::bind((SERVER, 7))).unwrap().unwrap();
    let client = lab.run("client", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let carried = |lab: &Lab| lab.stats()[1].1[0].link;
    // The queue is full from its first drop on, and stays so: it holds 300 ms.
    let mut begin = None;
    let (at, before) = loop {
        client.send_to(&[0; 1472], (SERVER, 7)).unwrap();
        let link = carried(&lab);
        match begin {
            None if link.dropped > 0 => begin = Some((lab.now(), link.delivered_bytes)),
            Some((at, _)) if lab.now().since(at) >= marcato_units::Duration::from_secs(1) => {
                break begin.unwrap();
            }
            _ => {}
        }
    };
    let span = lab.now().since(at);
    let rate = (carried(&lab).delivered_bytes - before).get() * 8 / u64::try_from(span.as_micros()).unwrap();
    assert!((MBPS * 3 / 4..=MBPS * 5 / 4).contains(&rate), "{rate} Mbit/s");
}

#[test]
fn a_datagram_takes_the_delay_of_its_links() {
    let Some(lab) = lab(&chain("delay = \"20 ms\"", "delay = \"30 ms\""), LabOptions::default()) else {
        return;
    };
    let echo = lab.run("server", || UdpSocket::bind((SERVER, 7))).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 100];
        while let Ok((len, from)) = echo.recv_from(&mut datagram) {
            let _ = echo.send_to(&datagram[..len], from);
        }
    });
    let client = lab.run("client", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        client.send_to(b"?", (SERVER, 7)).unwrap();
        client.recv(&mut [0; 100]).unwrap();
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest >= Duration::from_millis(100), "{quickest:?}");
}

#[test]
fn packets_leave_by_the_interface_of_their_address() {
    let Some(lab) = lab(
        r#"
        name = "two-paths"
        duration = "1 s"
        [topology]
        kind = "multipath"
        rate = "10 Mbit/s"
        paths = [{ delay = "1 ms" }, { delay = "2 ms" }]
        [[flow]]
        name = "both"
        kind = "quic"
        paths = [["client-1", "server-1"], ["client-2", "server-2"]]
        bulk = "p4"
        "#,
        LabOptions::default(),
    ) else {
        return;
    };
    assert_eq!(lab.hosts().collect::<Vec<_>>(), ["client-1", "server-1"]);
    let bind = |name: String| {
        move || {
            let mut addresses = (name.as_str(), 0).to_socket_addrs().unwrap();
            UdpSocket::bind(addresses.find(SocketAddr::is_ipv4).unwrap()).unwrap()
        }
    };
    for path in 0..2 {
        let socket = lab.run("client-2", bind(format!("client-{}", path + 1))).unwrap();
        let server = lab.run("server-1", bind(format!("server-{}", path + 1))).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.send_to(&[7; 500], server.local_addr().unwrap()).unwrap();
        server.recv(&mut [0; 1000]).unwrap();
        let carried: Vec<_> =
            lab.stats().iter().map(|(_, [there, _])| there.link.delivered_bytes.get()).collect();
        assert_eq!(carried, [[528, 0], [528, 528]][path]);
    }
}

#[test]
fn segments_of_64_kb_pass_whole_on_request() {
    let Some(lab) = lab(&chain("delay = \"1 ms\"", "delay = \"1 ms\""), LabOptions { offload: true }) else {
        return;
    };
    const LEN: usize = 30_000_000;
    transfer(&lab, SERVER, LEN);
    let (_, [there, _]) = lab.stats()[0];
    let mean = there.link.delivered_bytes.get() / there.link.delivered;
    assert!(mean > 10_000, "{mean} bytes");
}

#[test]
fn commands_see_only_their_host_and_end_with_the_lab() {
    let Some(lab) = lab(&chain("delay = \"1 ms\"", "delay = \"1 ms\""), LabOptions::default()) else {
        return;
    };
    let mut script = Command::new("sh");
    script.args(["-c", "cat /proc/net/dev /etc/hosts; echo; exec sleep 1000"]).stdout(Stdio::piped());
    let mut child = lab.spawn("router", script).unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut seen = String::new();
    while !seen.ends_with("\n\n") {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        seen.push(byte[0].into());
    }
    assert!(seen.contains("link0b:") && seen.contains("link1a:") && !seen.contains("eth0"), "{seen}");
    assert!(seen.contains("10.0.0.3 server"), "{seen}");
    let of_child = |found: &Leftover| found.process == child.id();
    assert!(!Leftover::find().unwrap().iter().any(of_child), "its lab still runs");
    drop(lab);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn links_change_at_their_times() {
    let core = "delay = \"1 ms\"\nchanges = [{ at = \"0 s\", up = false }, { at = \"300 ms\", up = true }]";
    let Some(lab) = lab(&chain("delay = \"1 ms\"", core), LabOptions::default()) else { return };
    let server = lab.run("server", || UdpSocket::bind((SERVER, 7))).unwrap().unwrap();
    let client = lab.run("client", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    server.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    // On a busy machine, the link may already be up.
    let begun = lab.now();
    let mut lost = 0;
    while {
        client.send_to(b"?", (SERVER, 7)).unwrap();
        server.recv(&mut [0; 10]).is_err()
    } {
        lost += 1;
    }
    let up = marcato_units::Time::from_millis(300);
    assert!((lost > 0 || begun >= up) && lab.now() >= up, "{lost} lost from {begun:?} to {:?}", lab.now());
}

#[test]
fn two_labs_have_nothing_to_do_with_each_other() {
    let text = chain("delay = \"1 ms\"", "delay = \"1 ms\"");
    let (Some(one), Some(other)) = (lab(&text, LabOptions::default()), lab(&text, LabOptions::default()))
    else {
        return;
    };
    let bind = |lab: &Lab| lab.run("server", || UdpSocket::bind((SERVER, 7))).unwrap().unwrap();
    let (there, elsewhere) = (bind(&one), bind(&other));
    let client = one.run("client", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    client.send_to(b"?", (SERVER, 7)).unwrap();
    there.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(there.recv(&mut [0; 10]).unwrap(), 1);
    elsewhere.set_nonblocking(true).unwrap();
    elsewhere.recv(&mut [0; 10]).unwrap_err();
}

/// Bytes that a host has sent by a device.
fn sent(lab: &Lab, host: &str, device: &str) -> u64 {
    let text = lab.run(host, || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:")[..]));
    let fields = line.unwrap_or_else(|| panic!("{device}: {text}")).split_ascii_whitespace();
    fields.map(|field| field.parse::<u64>().unwrap()).nth(8).unwrap()
}

#[test]
fn data_leave_by_the_devices_of_their_direction() {
    let Some(lab) = lab(&chain("delay = \"1 ms\"", "delay = \"1 ms\""), LabOptions::default()) else {
        return;
    };
    const LEN: usize = 100_000;
    transfer(&lab, SERVER, LEN);
    for (link, [from, to]) in [(0, ["client", "router"]), (1, ["router", "server"])] {
        let [(there, forward), (back, backward)] = [false, true].map(|back| lab.device(link, back).unwrap());
        assert_eq!((there, back), (from, to));
        assert!(sent(&lab, there, forward) > LEN as u64 && sent(&lab, back, backward) < LEN as u64 / 10);
    }
    assert!(lab.device(2, false).is_none());
}

#[test]
fn a_command_or_host_that_is_not_there_is_named() {
    let Some(lab) = lab(&chain("delay = \"1 ms\"", "delay = \"1 ms\""), LabOptions::default()) else {
        return;
    };
    let error = lab.spawn("sever", Command::new("true")).unwrap_err().to_string();
    assert_eq!(error, "there is no host `sever` in this lab: name one of client, router, server");
    let error = lab.spawn("server", Command::new("no-such-program")).unwrap_err().to_string();
    assert!(error.starts_with("cannot run `no-such-program` on server: "), "{error}");
}
