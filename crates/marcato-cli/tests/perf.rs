//! Tests of `marcato perf`: real runs over loopback, and errors. They do not test speed, as
//! machines may be busy.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use serde_json::Value;

fn marcato(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_marcato")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Server process that ends with the test.
struct Server {
    child: Child,
    said: BufReader<ChildStdout>,
    addrs: Vec<String>,
    fingerprint: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_marcato"))
            .args(["perf", "server"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut addrs = Vec::new();
        let fingerprint = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "the server has ended");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["listening", "on", addr, ..] => addrs.push(addr.to_owned()),
                ["certificate", fingerprint] => break fingerprint.to_owned(),
                _ => {}
            }
        };
        Self { child, said, addrs, fingerprint }
    }

    fn client(&self, arguments: &[&str]) -> Output {
        let ours = ["perf", "client", &self.addrs[0], "--fingerprint", &self.fingerprint];
        marcato(&[&ours[..], arguments].concat())
    }

    /// Waits for the server to end, and returns its remaining output.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn run_over(engine: &str) {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--once"]);
    let short = ["--engine", engine, "--duration", "700ms", "--format", "json", "--seed", "5"];
    let traffic =
        ["--source", "20ms:1kB:p0", "--source", "50ms:20kB:p2", "--bulk", "p4", "--backlog", "200kB"];
    let run = json(&server.client(&[&short[..], &traffic[..]].concat()));
    assert_eq!((&run["perf"], &run["seed"]), (&1.into(), &5.into()));
    assert_eq!(run["config"]["engine"], engine);
    // Client and server are on one host here.
    assert_eq!((&run["clock"]["shared"], &run["clock"]["error_ms"]), (&true.into(), &0.0.into()));
    let sources = run["sources"].as_array().unwrap();
    for (source, expected) in sources.iter().zip([35, 14]) {
        let sent = source["sent"].as_u64().unwrap();
        // The first message is due at a random phase.
        assert!((expected - 1..=expected).contains(&sent), "{source}");
        assert_eq!(source["arrived"], sent, "everything arrives");
        let mct = |name: &str| source["mct_ms"][name].as_f64().unwrap();
        assert!(mct("p50") > 0.0 && mct("p50") <= mct("p99") && mct("p99_9") <= mct("max"), "{source}");
        assert_eq!(source["ccdf"].as_array().unwrap().last().unwrap()[0], mct("max"));
    }
    let levels = run["throughput"]["by_priority"].as_array().unwrap();
    let names: Vec<&str> = levels.iter().map(|level| level["priority"].as_str().unwrap()).collect();
    assert_eq!(names, ["P0", "P2", "P4"]);
    let shares: f64 = levels.iter().map(|level| level["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{levels:?}");
    let lane = &run["lanes"][0];
    assert!(lane["packets"].as_u64().unwrap() > 0 && lane["cwnd_bytes"].as_u64().unwrap() > 0, "{lane}");
    let said = server.end();
    assert!(said.contains(&format!("{engine} client 1: ")) && said.contains("messages"), "{said}");
}

#[test]
fn a_run_over_quic_delivers_everything_and_says_how() {
    run_over("quic");
}

#[test]
fn coupled_mode_is_automatic_unless_it_is_chosen() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--coupled", "off"]);
    let chosen = |options: &[&str]| {
        let usual = ["--duration", "200ms", "--format", "json"];
        json(&server.client(&[&usual, options].concat()))["config"]["coupled"].clone()
    };
    for engine in ["tcp", "quic"] {
        assert_eq!(chosen(&["--engine", engine]), "auto");
        assert_eq!(chosen(&["--engine", engine, "--coupled", "on"]), "on");
        // The end that sends decides.
        assert!(chosen(&["--engine", engine, "--reverse"]).is_null());
    }
}

#[test]
fn a_layered_run_has_a_lane_of_each_layer() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--once", "--layered"]);
    let run = json(&server.client(&["--layered", "--duration", "700ms", "--format", "json"]));
    assert_eq!(run["config"]["layered"], true);
    let layers: Vec<&str> =
        run["lanes"].as_array().unwrap().iter().map(|lane| lane["layer"].as_str().unwrap()).collect();
    assert_eq!(layers, ["high", "low"]);
    let source = &run["sources"][0];
    assert_eq!(source["arrived"], source["sent"]);
    assert!(server.end().contains("quic client 1: "));
}

#[test]
fn layers_that_cannot_be_are_refused_with_the_remedy() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--once"]);
    let alone = server.client(&["--layered", "--duration", "200ms"]);
    let said = String::from_utf8_lossy(&alone.stderr);
    assert_eq!(alone.status.code(), Some(2), "{said}");
    assert!(said.contains("start its `marcato perf server` with --layered"), "{said}");
    let tcp = server.client(&["--layered", "--engine", "tcp"]);
    assert_eq!(tcp.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&tcp.stderr).contains("leave --layered out"));
    let listening = marcato(&["perf", "server", "--engine", "tcp", "--layered"]);
    assert_eq!(listening.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&listening.stderr).contains("--engine quic"));
}

#[test]
fn a_run_over_tcp_delivers_everything_and_says_how() {
    run_over("tcp");
}

#[test]
fn intervals_are_lines_of_text_and_an_array_of_json() {
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    let often = ["--source", "10ms:1kB", "--duration", "700ms", "-i", "200ms", "--warm-up", "100ms"];
    let directory = tempfile::tempdir().unwrap();
    let out = ["--out", directory.path().to_str().unwrap()];
    let text = server.client(&[&often[..], &out].concat());
    assert_eq!(text.status.code(), Some(0), "{text:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    let lines = text.lines().take_while(|line| line.contains(" Mbit/s ")).count();
    // The lanes are sampled every 100 ms, so that a busy machine may have fewer intervals.
    assert!((2..=4).contains(&lines), "{text}");
    assert_eq!(std::fs::read_to_string(directory.path().join("result.txt")).unwrap(), text);
    let run = json(&server.client(&[&often[..], &["--format", "json"]].concat()));
    let intervals = run["intervals"].as_array().unwrap();
    assert!((2..=4).contains(&intervals.len()), "{intervals:?}");
    assert_eq!((&intervals[0]["from_s"], &intervals.last().unwrap()["to_s"]), (&0.0.into(), &0.7.into()));
    for (one, next) in intervals.iter().zip(&intervals[1..]) {
        assert_eq!(one["to_s"], next["from_s"]);
        // A busy machine may send nothing in one of them.
        let has_arrivals = one["arrived"].as_u64().unwrap() > 0;
        assert_eq!(
            (one["mct_ms"]["p50"].is_f64(), one["mbit_per_s"].as_f64().unwrap() > 0.0),
            (has_arrivals, has_arrivals),
            "{one}"
        );
        assert!(one["lanes"][0]["cwnd_bytes"].as_u64().unwrap() > 0, "{one}");
    }
    assert!(intervals.iter().any(|one| one["arrived"].as_u64().unwrap() > 0), "{intervals:?}");
}

#[test]
fn a_server_listens_on_both_families_and_names_find_it() {
    let server = Server::start(&["-p", "0"]);
    let has_v6 = UdpSocket::bind("[::1]:0").is_ok();
    assert_eq!(server.addrs.len(), 1 + usize::from(has_v6), "{:?}", server.addrs);
    let port = server.addrs.last().unwrap().strip_prefix("0.0.0.0:").unwrap();
    let mut hosts = vec![format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    if has_v6 {
        hosts.push(server.addrs[0].replace("[::]", "[::1]"));
    }
    for host in hosts {
        // The name may have an address of IPv6 too, on which nothing listens at this port.
        for engine in ["tcp", "quic"] {
            let client = ["perf", "client", &host, "--fingerprint", &server.fingerprint];
            let run = marcato(&[&client[..], &["--engine", engine, "-t", "0.2", "-J"]].concat());
            assert_eq!(json(&run)["complete"], true, "{host} {engine}");
        }
    }
}

#[test]
fn json_has_cpu_times_and_every_message_if_asked_for() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "-1"]);
    let run = json(&server.client(&["--source", "20ms:1kB", "-t", "0.4", "-J", "--raw"]));
    let source = &run["sources"][0];
    let raw = source["raw"].as_array().unwrap();
    assert_eq!(raw.len(), usize::try_from(source["sent"].as_u64().unwrap()).unwrap());
    let times = |at: usize| raw.iter().map(move |row| row[at].as_f64().unwrap());
    assert!(times(0).is_sorted() && times(0).all(|released| (0.0..=0.5).contains(&released)), "{raw:?}");
    assert_eq!(times(1).fold(0.0, f64::max), source["mct_ms"]["max"]);
    for end in ["client", "server"] {
        let cpu = &run["cpu_s"][end];
        assert!(cpu["user"].is_f64() && cpu["system"].is_f64(), "{end}: {cpu}");
    }
    let said = server.end();
    assert!(said.contains("connected from 127.0.0.1:") && said.contains(" s, "), "{said}");
}

/// Returns the only line of a server's log that says this.
fn line(said: &str, what: &str) -> String {
    let mut lines = said.lines().filter(|line| line.contains(what));
    let first = lines.next().unwrap_or_else(|| panic!("{what}: {said}"));
    assert_eq!(lines.next(), None, "{said}");
    first.to_owned()
}

#[test]
fn in_reverse_the_server_sends_and_the_client_measures() {
    for engine in ["quic", "tcp"] {
        let server = Server::start(&["--listen", "127.0.0.1:0", "-1"]);
        let what = ["--source", "20ms:1kB", "--source", "50ms:20kB:p2", "--bulk", "p4"];
        let run = json(
            &server.client(
                &[&what[..], &["-R", "--engine", engine, "-t", "0.7", "--warm-up", "100ms", "-J", "--raw"]]
                    .concat(),
            ),
        );
        let config = &run["config"];
        assert_eq!((&config["direction"], &config["connections"]), (&"reverse".into(), &1.into()));
        let path = if engine == "quic" { "cwr".into() } else { Value::Null };
        assert_eq!((&config["path_scheduler"], &config["server_path_scheduler"]), (&Value::Null, &path));
        assert_eq!((&run["clock"]["shared"], &run["reverse"]), (&true.into(), &Value::Null));
        for (source, expected) in run["sources"].as_array().unwrap().iter().zip([30, 12]) {
            let sent = source["sent"].as_u64().unwrap();
            assert!((expected - 2..=expected + 1).contains(&sent), "{source}");
            assert_eq!(source["arrived"], sent, "everything arrives");
            let mct = |name: &str| source["mct_ms"][name].as_f64().unwrap();
            assert!(mct("p50") > 0.0 && mct("p50") <= mct("max"), "{source}");
            let raw = source["raw"].as_array().unwrap();
            assert!(raw.iter().all(|row| row[0].as_f64().unwrap() >= 0.1), "warm-up: {raw:?}");
        }
        assert!(run["throughput"]["mbit_per_s"].as_f64().unwrap() > 1.0, "{}", run["throughput"]);
        let lane = &run["lanes"][0];
        assert!(lane["packets"].as_u64().unwrap() > 10 && lane["cwnd_bytes"].as_u64().unwrap() > 0, "{lane}");
        let said = server.end();
        assert!(line(&said, " bytes").ends_with(" bytes sent"), "{said}");
    }
}

#[test]
fn both_ends_send_at_once() {
    for engine in ["quic", "tcp"] {
        let server = Server::start(&["--listen", "127.0.0.1:0", "-1"]);
        let what = ["--source", "20ms:1kB", "--bulk", "p4:10kB", "-b", "2M", "-i", "0.3"];
        let run =
            json(&server.client(&[&what[..], &["--bidir", "--engine", engine, "-t", "0.7", "-J"]].concat()));
        assert_eq!(run["config"]["direction"], "bidir");
        for flow in [&run, &run["reverse"]] {
            let source = &flow["sources"][0];
            assert!((33..=36).contains(&source["sent"].as_u64().unwrap()), "{source}");
            assert_eq!(source["sent"], source["arrived"], "{engine}");
            let rate = flow["throughput"]["mbit_per_s"].as_f64().unwrap();
            assert!(rate > 0.5, "{engine}: {rate}");
            assert!(flow["lanes"][0]["packets"].as_u64().unwrap() > 10, "{}", flow["lanes"]);
            let intervals = flow["intervals"].as_array().unwrap();
            assert!((2..=3).contains(&intervals.len()), "{intervals:?}");
            // On a busy machine, what is sent in one may arrive after it, and after the last one.
            let arrived = intervals.iter().map(|one| one["arrived"].as_u64().unwrap());
            assert!(arrived.sum::<u64>() > 0, "{intervals:?}");
        }
        let said = server.end();
        assert!(line(&said, " sent").contains(" bytes received, "), "{said}");
    }
}

#[test]
fn connections_run_in_parallel_and_add_up() {
    for (engine, how) in [("quic", "-R"), ("tcp", "--bidir"), ("quic", "--raw")] {
        let server = Server::start(&["--listen", "127.0.0.1:0", "-1"]);
        let what = ["--source", "20ms:1kB", "--bulk", "p4", "-P", "3", "-t", "0.6", "-J", "-i", "0.2"];
        let run = json(&server.client(&[&what[..], &["--engine", engine, how]].concat()));
        let parts = run["connections"].as_array().unwrap();
        assert_eq!((&run["config"]["connections"], parts.len()), (&3.into(), 3));
        let pointers = if how == "--bidir" { &["", "/reverse"][..] } else { &[""] };
        for pointer in pointers {
            let at = |of: &Value, what: &str| of.pointer(&format!("{pointer}{what}")).unwrap().clone();
            let sum = |what: &str| parts.iter().map(|part| at(part, what).as_f64().unwrap()).sum::<f64>();
            for what in ["/sources/0/sent", "/sources/0/arrived", "/throughput/mbit_per_s"] {
                let all = at(&run, what).as_f64().unwrap();
                assert!(all > 0.0 && (all - sum(what)).abs() <= all * 1e-9, "{how} {what}: {all}");
            }
            assert_eq!(at(&run, "/sources/0/sent"), at(&run, "/sources/0/arrived"), "{how}");
            let slowest = parts.iter().map(|part| at(part, "/sources/0/mct_ms/max").as_f64().unwrap());
            assert_eq!(at(&run, "/sources/0/mct_ms/max"), slowest.fold(0.0, f64::max));
            let numbers: Vec<Value> = at(&run, "/lanes")
                .as_array()
                .unwrap()
                .iter()
                .map(|lane| lane["connection"].clone())
                .collect();
            assert_eq!(numbers, [1, 2, 3], "{engine} {how}: {run}");
            assert!(!at(&run, "/intervals").as_array().unwrap().is_empty());
        }
        let said = server.end();
        for number in 1..=3 {
            line(&said, &format!("connection {number} of 3, "));
        }
    }
}

#[test]
fn lines_and_tables_name_connection_and_direction() {
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    let run = ["--source", "10ms:1kB", "--bidir", "-P", "2", "-t", "0.7", "-i", "0.3"];
    let text = server.client(&run);
    assert_eq!(text.status.code(), Some(0), "{text:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    for said in [
        "[1 forward] ",
        "[2 reverse] ",
        "[all forward] ",
        "[all reverse] ",
        "quic bidir over 2 connections",
        "From the server to the client",
        "Lanes of the server",
        "\n  2           reverse    ",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let csv = server.client(&[&run[..], &["--format", "csv"]].concat());
    let csv = String::from_utf8(csv.stdout).unwrap();
    let ends: Vec<&str> = csv.lines().skip(1).map(|line| line.split_once(",true,").unwrap().1).collect();
    assert_eq!(
        ends,
        ["forward,all", "reverse,all", "forward,1", "reverse,1", "forward,2", "reverse,2"],
        "{csv}"
    );
}

#[test]
fn a_server_sends_in_every_order_and_on_every_lane() {
    for path in ["lowrtt", "cwr-red"] {
        let two = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
        let server = Server::start(&[&two[..], &["--engine", "quic", "--path-scheduler", path]].concat());
        for stream in ["cats", "fifo", "rr"] {
            let what = ["--source", "30ms:5kB", "--bulk", "p4:10kB", "-t", "0.3", "-J", "-R"];
            let how = ["--stream-scheduler", stream, "--lane", &server.addrs[1]];
            let run = json(&server.client(&[&what[..], &how].concat()));
            assert_eq!(run["config"]["server_path_scheduler"], path);
            let source = &run["sources"][0];
            assert!(source["sent"].as_u64().unwrap() >= 9, "{path} {stream}: {source}");
            assert_eq!(source["sent"], source["arrived"], "{path} {stream}");
            assert_eq!(run["lanes"].as_array().unwrap().len(), 2, "{path} {stream}");
        }
    }
}

#[test]
fn a_server_refuses_what_exceeds_its_bounds() {
    let bounds = ["--max-duration", "2", "--max-bitrate", "5M", "--backlog", "100kB", "--max-clients", "3"];
    let server = Server::start(&[&["--listen", "127.0.0.1:0"][..], &bounds].concat());
    let paced = ["-t", "0.2", "--bulk", "p4", "-b", "1M"];
    for (arguments, said) in [
        (&["-R", "-t", "3"][..], "sends for at most 2s; shorten --duration, or raise its --max-duration"),
        (&["-R", "-t", "0.2"], "at most 5000 kbit/s on a connection; bound the bulk data with --bitrate"),
        (&["--bidir", "-t", "0.2", "--source", "10ms:10kB"], "or raise its --max-bitrate"),
        (&["-R", "-t", "0.2", "--source", "1s:101kB"], "at most 100kB; send shorter messages"),
        (&["-P", "4", "-t", "0.2"], "a run has at most 3 connections; lower --parallel"),
    ] {
        for engine in ["tcp", "quic"] {
            let refused = server.client(&[arguments, &["--engine", engine]].concat());
            let err = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {err}");
            assert!(err.contains(said) && err.contains(&server.addrs[0]), "{arguments:?}: {err}");
        }
    }
    // What a client sends itself is not bounded, and what is within the bounds is sent.
    assert_eq!(json(&server.client(&["-t", "0.2", "-J"]))["complete"], true);
    assert_eq!(json(&server.client(&[&paced[..], &["-R", "-P", "3", "-J"]].concat()))["complete"], true);
}

/// Returns the messages and bytes that a server has received of its only client.
fn received(server: Server) -> (u64, u64) {
    let said = server.end();
    let line = said.lines().find(|line| line.ends_with(" bytes")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |from_end: usize| words[words.len() - from_end].parse().unwrap();
    (number(4), number(2))
}

#[test]
fn a_limited_amount_arrives_and_ends_the_run() {
    for engine in ["tcp", "quic"] {
        let server = Server::start(&["--listen", "127.0.0.1:0", "-1"]);
        let run = json(&server.client(&["--engine", engine, "--bulk", "p2", "-n", "300kB", "-J"]));
        assert_eq!((&run["config"]["bytes"], &run["complete"]), (&300_000.into(), &true.into()));
        let bulk = &run["throughput"]["by_priority"][0];
        assert!(bulk["priority"] == "P2" && bulk["mbit_per_s"].as_f64().unwrap() > 0.0, "{bulk}");
        assert_eq!(received(server), (5, 300_000), "{engine}");
        // The server's last line ends with what it has sent.
        let server = Server::start(&["--listen", "127.0.0.1:0", "-1"]);
        let limited = ["--engine", engine, "--bulk", "p2", "-n", "300kB", "-J", "-R", "-P", "2"];
        let run = json(&server.client(&limited));
        assert!(run["throughput"]["mbit_per_s"].as_f64().unwrap() > 0.0, "{run}");
        assert!(run["throughput"]["seconds"].as_f64().unwrap() < 60.0, "{run}");
        let said = server.end();
        for number in 1..=2 {
            let line = line(&said, &format!("connection {number} of 2"));
            assert!(line.ends_with(", 3 messages, 150000 bytes sent"), "{line}");
        }
    }
}

#[test]
fn bulk_data_keeps_its_rate_and_unreliable_its_packets() {
    // Unreliable messages fit a packet, which has up to 4096 bytes on the loopback interface.
    for (how, largest) in [(&["--engine", "tcp"][..], 5000), (&["-u"], 4096)] {
        let server = Server::start(&["--listen", "127.0.0.1:0", "-1"]);
        let (host, port) = server.addrs[0].split_once(':').unwrap();
        let ours = ["perf", "client", host, "-p", port, "--fingerprint", &server.fingerprint];
        let paced = ["--bulk", "p4:5kB", "-b", "1M", "-t", "0.8", "-J"];
        let run = json(&marcato(&[&ours[..], &paced, how].concat()));
        assert_eq!(run["config"]["bitrate_bit_per_s"], 1_000_000);
        assert_eq!(
            (&run["config"]["duration_s"], &run["config"]["unreliable"]),
            (&0.8.into(), &(how.len() == 1).into())
        );
        let (messages, bytes) = received(server);
        // 0.8 s at 1 Mbit/s, and a message that begins before the end.
        assert!(messages > 0 && bytes <= 100_000 + largest, "{bytes}");
        assert!(bytes / messages <= largest, "{messages} messages of {bytes} bytes");
    }
}

#[test]
fn a_server_in_the_background_greets_and_logs() {
    let directory = tempfile::tempdir().unwrap();
    let (log, pid) = (directory.path().join("log"), directory.path().join("pid"));
    let files = ["--logfile", log.to_str().unwrap(), "-I", pid.to_str().unwrap()];
    let started = marcato(&[&["perf", "server", "--listen", "127.0.0.1:0", "-D", "-1"], &files[..]].concat());
    assert_eq!(started.status.code(), Some(0), "{started:?}");
    let greeting = String::from_utf8(started.stdout).unwrap();
    let word = |line: &str| greeting.lines().find_map(|said| said.strip_prefix(line)).unwrap().to_owned();
    let addr = word("listening on ").split(' ').next().unwrap().to_owned();
    let client = ["perf", "client", &addr, "--fingerprint", &word("certificate "), "-t", "0.3"];
    let server = word("pid ");
    assert_eq!(std::fs::read_to_string(&pid).unwrap().trim(), server);
    let run = marcato(&[&client[..], &["--logfile", log.to_str().unwrap()]].concat());
    // It has ended by itself already, or is about to.
    let _ = Command::new("kill").arg(&server).stderr(Stdio::null()).status();
    assert_eq!((run.status.code(), run.stdout.len()), (Some(0), 0), "{run:?}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("listening on") && log.contains("client 1: connected"), "{log}");
    assert!(log.contains("Throughput at the server"), "{log}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let failed = marcato(&["perf", "server", "-D", "--listen", &taken]);
    assert_eq!(failed.status.code(), Some(2), "{failed:?}");
    assert!(String::from_utf8(failed.stderr).unwrap().contains("choose another address or port"));
}

#[test]
fn every_scheduler_delivers_and_clients_come_one_after_another() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--engine", "quic"]);
    let second = server.addrs[1].as_str();
    for (path, stream) in
        [("lowrtt", "pfifo"), ("rr", "fifo"), ("cwr", "cats"), ("cwr-red", "cats"), ("lowrtt", "rr")]
    {
        let how = ["--path-scheduler", path, "--stream-scheduler", stream, "--lane", second];
        let what = ["--duration", "300ms", "--source", "30ms:5kB", "--bulk", "p4:10kB", "--format", "json"];
        let run = json(&server.client(&[&how[..], &what[..]].concat()));
        let (config, source) = (&run["config"], &run["sources"][0]);
        assert_eq!((&config["path_scheduler"], &config["stream_scheduler"]), (&path.into(), &stream.into()));
        assert!(source["sent"].as_u64().unwrap() >= 9, "{path} {stream}: {source}");
        assert_eq!(source["sent"], source["arrived"], "{path} {stream}");
        assert_eq!(run["lanes"].as_array().unwrap().len(), 2, "{path} {stream}");
    }
}

#[test]
fn clients_run_concurrently_and_one_over_the_limit_is_refused() {
    let mut server = Server::start(&["--listen", "127.0.0.1:0", "--max-clients", "2"]);
    let (addr, fingerprint) = (server.addrs[0].clone(), server.fingerprint.clone());
    let arguments = ["perf", "client", &addr, "--fingerprint", &fingerprint, "--source", "100ms:1kB"];
    let start = |engine| {
        Command::new(env!("CARGO_BIN_EXE_marcato"))
            .args(arguments)
            .args(["--engine", engine, "--duration", "20s", "--format", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut two = [start("tcp"), start("quic")];
    let mut connected = 0;
    while connected < 2 {
        let mut line = String::new();
        assert!(server.said.read_line(&mut line).unwrap() > 0, "the server has ended");
        connected += usize::from(line.contains(": connected"));
    }
    let third = server.client(&["--source", "50ms:1kB", "--duration", "100ms"]);
    let refused = String::from_utf8(third.stderr).unwrap();
    assert_eq!(third.status.code(), Some(2), "{refused}");
    for client in &mut two {
        assert_eq!(client.try_wait().unwrap(), None, "they go on");
        client.kill().unwrap();
        client.wait().unwrap();
    }
    assert!(refused.contains("already serves its maximum number of clients"), "{refused}");
}

#[test]
fn pictures_and_files_are_written_where_they_are_asked_for() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--once"]);
    let directory = tempfile::tempdir().unwrap();
    let (out, svg) = (directory.path().join("out"), directory.path().join("a.svg"));
    let files = ["--out", out.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let output = server.client(&[&["--duration", "200ms", "--source", "20ms:1kB"][..], &files[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("20ms:1kB:p0") && text.contains("one way"), "{text}");
    assert_eq!(std::fs::read_to_string(out.join("result.txt")).unwrap(), text);
    let document = std::fs::read(out.join("result.json")).unwrap();
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["config"]["bulk"], Value::Null);
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(picture.starts_with("<svg") && picture == std::fs::read_to_string(out.join("mct.svg")).unwrap());
}

/// Address of a server that answers every connection with a page.
fn not_tls() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut hello = [0; 1024];
            let _ = stream.read(&mut hello);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    addr
}

#[test]
fn a_wrong_command_is_status_2_and_says_how_to_correct_it() {
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    let addr = server.addrs[0].as_str();
    let zeros = "0".repeat(64);
    let mismatch = format!("presented the certificate {}, but {zeros} was expected", server.fingerprint);
    // Port that was free a moment ago, so that most likely nothing listens on it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let web = not_tls();
    for (arguments, said) in [
        (&["client"][..], "<ADDR>"),
        (&["client", addr, "--source", "10kB:100ms"], "no span"),
        (&["client", addr, "--source", "100ms:10kB:p7"], "p0 (critical) to p4"),
        (&["client", addr, "--bulk", "64kB"], "no priority"),
        (&["client", addr, "--path-scheduler", "best"], "lowrtt, rr, cwr, cwr-red"),
        (&["client", addr, "--stream-scheduler", "best"], "cats, pfifo, rr, fifo"),
        (&["client", addr, "--engine", "sctp"], "tcp, quic"),
        (&["client", addr, "--duration", "1s", "--warm-up", "1"], "make it longer"),
        (&["client", "bücher.example"], "begins with xn--"),
        (&["client", addr, "--name", "bücher.example"], "begins with xn--"),
        (&["-s"], "a server is `marcato perf server`"),
        (&["-c", addr], "a client is `marcato perf client HOST`"),
        (&["client", "-c", addr], "leave -c out"),
        (&["server", "-s"], "leave -s out"),
        (&["client", addr, "--engine", "tcp", "--lane", addr], "--engine quic"),
        (&["client", addr, "--engine", "tcp", "--path-scheduler", "cwr"], "--engine quic"),
        (&["client", addr, "--stream-scheduler", "rr", "--path-scheduler", "cwr"], "lowrtt or rr"),
        (&["client", addr, "--fingerprint", "beef"], "64 hexadecimal digits"),
        (&["client", addr, "--fingerprint", &zeros], &mismatch),
        (&["client", addr, "--engine", "tcp", "--fingerprint", &zeros], &mismatch),
        (&["client", addr], "name the server's certificate with --fingerprint"),
        (&["client", addr, "-u", "--engine", "tcp"], "kernel TCP delivers everything"),
        (&["client", addr, "-n", "1M", "--source", "100ms:1kB"], "give --bulk too"),
        (&["client", addr, "-b", "1M", "--bulk", "p4", "--stream-scheduler", "rr"], "leave --bitrate out"),
        (&["client", addr, "-u", "-n", "1M"], "leave --bytes or --unreliable out"),
        (&["client", addr, "-i", "100ms"], "at least 200ms"),
        (&["client", addr, "-R", "--bidir"], "cannot be used with"),
        (&["client", addr, "-P", "0"], "1..=128"),
        (&["client", addr, "-P", "200"], "1..=128"),
        (&["client", addr, "-P", "4", "-n", "100"], "at least 32 B for each"),
        (&["client", addr, "-R", "--path-scheduler", "rr"], "give it to `marcato perf server`"),
        (&["client", addr, "-R", "--backlog", "1MB"], "give it to `marcato perf server`"),
        (&["client", addr, "--bidir", "--stream-scheduler", "pfifo"], "cats, fifo or rr"),
        (&["server", "--max-bitrate", "1"], "no rate"),
        (&["client", addr, "--idle-timeout", "100ms"], "500ms to 60s"),
        (&["client", addr, "--ca", "/nowhere/ca.pem"], "/nowhere/ca.pem"),
        (&["client", "no-such-host.invalid"], "has no address"),
        (&["client", "127.0.0.1:x"], "no port"),
        (
            &["client", &free, "--engine", "tcp", "--fingerprint", &zeros],
            "check that `marcato perf server` runs there",
        ),
        // Long before the timeout, the system reports that nothing listens.
        (
            &["client", &free, "--fingerprint", &zeros, "--connect-timeout", "1h"],
            "connection refused; check that `marcato perf server` runs there",
        ),
        (
            &["client", &web, "--engine", "tcp", "--fingerprint", &zeros],
            "does not speak tls: check that `marcato perf",
        ),
        (&["client", addr, "--fingerprint", &server.fingerprint, "--out", "/proc/out"], "/proc/out"),
        (&["client", "http://127.0.0.1:4433"], "write 127.0.0.1:4433"),
        (&["server", "--listen", addr], "--listen"),
        (&["server", "--listen", "4433"], "0.0.0.0:4433"),
        (&["server", "--listen", ":4478"], "0.0.0.0:4478"),
        (&["server", "--listen", "127.0.0.1:0@127.0.0.1"], "takes no @127.0.0.1"),
        (&["server", "--max-clients", "0"], "1 to 4096"),
        (&["server", "--cert", "/nowhere/a.pem", "--key", "/nowhere/b.pem"], "/nowhere/a.pem"),
        (&["server", "--cert", "a.pem"], "--key"),
    ] {
        let output = marcato(&[&["perf"], arguments].concat());
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(output.stdout.is_empty() && err.contains(said), "{arguments:?}: {err}");
    }
}

/// Emulated link to a server, which runs until the test ends.
fn link_to(addr: &str) -> (tokio::runtime::Runtime, marcato_lab::UdpLink) {
    use marcato_units::{Duration, Rate, Seed};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let queue = || marcato_queue::Codel::new(marcato_queue::CodelConfig::default()).unwrap();
    let link = || marcato_lab::LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20)).queue(queue());
    let addr = addr.parse().unwrap();
    let opened = runtime.block_on(marcato_lab::UdpLink::open(addr, link(), link(), Seed::new(1)));
    (runtime, opened.unwrap())
}

#[test]
fn a_measurement_over_a_link_gives_what_the_link_allows() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--engine", "quic"]);
    for stream in ["cats", "fifo", "rr"] {
        let (_runtime, link) = link_to(&server.addrs[0]);
        let addr = link.addr().to_string();
        let ours = ["perf", "client", &addr, "--fingerprint", &server.fingerprint, "--format", "json"];
        let how = ["--duration", "800ms", "--source", "50ms:2kB", "--bulk", "p4", "--backlog", "200kB"];
        let run = json(&marcato(&[&ours[..], &how, &["--stream-scheduler", stream]].concat()));
        let mct = &run["sources"][0]["mct_ms"];
        // 20 ms of delay and 2 kB at 10 Mbit/s. Both ends read one clock.
        assert!(mct["p50"].as_f64().unwrap() >= 21.6, "{stream}: {mct}");
        assert!(run["lanes"][0]["srtt_ms"].as_f64().unwrap() >= 40.0, "{stream}: {run}");
        // The run lasts for a time, and so its packets are as many as the machine sends in it.
        assert!(link.forward().delivered > 0);
    }
}

/// Bytes after which the messages of a run are certainly in flight: the handshake and ten clock
/// exchanges are shorter.
const UNDER_WAY: usize = 100_000;

/// Waits until [`UNDER_WAY`] has passed a relay, whose threads tell the lengths.
fn wait_for_load(passed: &mpsc::Receiver<usize>) {
    let mut sum = 0;
    while sum < UNDER_WAY {
        // The timeout makes the test fail instead of hang if the client has already ended.
        sum += passed.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    }
}

/// Relays a connection to a server, and returns once it carries a load. Threads continue the relay.
fn relay_tcp(listener: &TcpListener, server: &str) {
    let (client, _) = listener.accept().unwrap();
    let server = TcpStream::connect(server).unwrap();
    let (tell, passed) = mpsc::channel();
    let both = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
    for (from, to) in both {
        let (mut from, mut to, tell) = (from.unwrap(), to.unwrap(), tell.clone());
        thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                if to.write_all(&buffer[..len]).is_err() {
                    break;
                }
                let _ = tell.send(len);
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    wait_for_load(&passed);
}

/// Relays datagrams in the same way.
fn relay_udp(front: UdpSocket, server: &str) {
    let behind = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    behind.connect(server).unwrap();
    let (front, client) = (Arc::new(front), Arc::new(OnceLock::new()));
    let (tell, passed) = mpsc::channel();
    {
        let (front, behind) = (Arc::clone(&front), Arc::clone(&behind));
        let (client, tell) = (Arc::clone(&client), tell.clone());
        thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok((len, from)) = front.recv_from(&mut buffer) {
                let _ = client.set(from);
                // A server that has ended refuses datagrams.
                let _ = behind.send(&buffer[..len]);
                let _ = tell.send(len);
            }
        });
    }
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(len) = behind.recv(&mut buffer) {
            let _ = front.send_to(&buffer[..len], client.get().unwrap());
            let _ = tell.send(len);
        }
    });
    wait_for_load(&passed);
}

/// Returns the output of a client whose run is `cut` while its messages are in flight.
fn cut_short(
    engine: &str,
    how: &[&str],
    status: i32,
    cut: impl FnOnce(&mut Server, &Child),
) -> (String, String) {
    let mut server = Server::start(&["--listen", "127.0.0.1:0", "--engine", engine]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = if engine == "tcp" { listener.local_addr() } else { front.local_addr() };
    let client = Command::new(env!("CARGO_BIN_EXE_marcato"))
        .args(["perf", "client", &addr.unwrap().to_string(), "--fingerprint", &server.fingerprint])
        .args(["--engine", engine, "--source", "10ms:2kB:p0"])
        .args(if how.contains(&"-t") { &[][..] } else { &["--duration", "10m"] })
        .args(how)
        .args(["--idle-timeout", "2s"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    match engine {
        "tcp" => relay_tcp(&listener, &server.addrs[0]),
        _ => relay_udp(front, &server.addrs[0]),
    }
    cut(&mut server, &client);
    let output = client.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(status), "{err}");
    (out, err)
}

fn kill(server: &mut Server, _: &Child) {
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

fn send(signal: &str, to: &Child) {
    let sent = Command::new("kill").args([signal, &to.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn interrupt(_: &mut Server, client: &Child) {
    send("-INT", client);
}

/// Ends the client as `timeout` does.
fn terminate(_: &mut Server, client: &Child) {
    send("-TERM", client);
}

/// Ends the server, and reads until it has told of its client.
fn stop(server: &mut Server, _: &Child) {
    send("-TERM", &server.child);
    let mut said = String::new();
    server.said.read_to_string(&mut said).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0), "{said}");
    let summary = line(&said, " messages, ");
    assert!(summary.contains(" client 1: 127.0.0.1:") && summary.contains(" bytes, "), "{said}");
}

#[test]
fn a_server_that_ends_tells_its_clients_at_once() {
    for engine in ["quic", "tcp"] {
        let (out, err) = cut_short(engine, &["-J"], 2, stop);
        let run: Value = serde_json::from_str(&out).unwrap();
        let because = run["incomplete_because"].as_str().unwrap();
        assert!(because.contains("the server was stopped"), "{engine}: {because}: {err}");
        assert!(run["sources"][0]["arrived"].as_u64().unwrap() > 0, "{out}");
    }
}

#[test]
fn a_server_that_ends_removes_the_file_of_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    for signal in ["-TERM", "-INT"] {
        let server = Server::start(&["--listen", "127.0.0.1:0", "-I", file.to_str().unwrap()]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{}\n", server.child.id()));
        send(signal, &server.child);
        server.end();
        assert!(!file.exists(), "{signal}");
    }
}

#[test]
fn an_interrupt_before_a_measurement_leaves_no_directory() {
    // It accepts, and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let client = Command::new(env!("CARGO_BIN_EXE_marcato"))
        .args(["perf", "client", &addr, "--engine", "tcp", "--fingerprint", &"0".repeat(64)])
        .args(["--connect-timeout", "1h", "--out", out.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let connection = silent.accept().unwrap();
    assert!(out.exists(), "it is opened before anything is sent");
    send("-TERM", &client);
    let output = client.wait_with_output().unwrap();
    drop(connection);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0), "{err}");
    assert!(err.contains("interrupted before anything was measured: nothing was written"), "{err}");
    assert!(!out.exists());
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_a_log_does_not_take_goes_to_stdout() {
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("a.svg");
    let usual = ["-t", "0.3", "--source", "20ms:1kB"];
    // A log that is full from the beginning, and a picture that grows too large.
    let full = server.client(&[&usual[..], &["--logfile", "/dev/full"]].concat());
    let shell = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_marcato")])
        .args(["perf", "client", &server.addrs[0], "--fingerprint", &server.fingerprint])
        .args(usual)
        .args(["--svg", svg.to_str().unwrap()])
        .output()
        .unwrap();
    for (output, path) in [(full, "/dev/full"), (shell, svg.to_str().unwrap())] {
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(&format!("cannot write `{path}`: ")), "{err}");
        assert!(out.contains("20ms:1kB:p0") && out.contains("Throughput at the server"), "{out}");
    }
    assert!(!svg.exists());
}

#[test]
fn zero_is_no_bound_as_in_iperf3() {
    let (out, _) = cut_short("tcp", &["-J", "--bulk", "p4", "-b", "0"], 130, interrupt);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["config"]["bitrate_bit_per_s"], Value::Null);
    let (out, _) = cut_short("tcp", &["-J", "-t", "0"], 130, interrupt);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["config"]["duration_s"], 86_400.0);
    let server = Server::start(&["--listen", "127.0.0.1:0", "--max-bitrate", "0"]);
    assert_eq!(json(&server.client(&["-R", "-t", "0.2", "-J"]))["complete"], true);
}

#[test]
#[cfg(target_os = "linux")]
fn an_address_may_have_a_zone() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return;
    }
    // The loopback interface is the first of every Linux host. Others may have addresses that need their zone.
    let mut zones = vec!["::1%1".to_owned()];
    let listed = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let local = listed.lines().filter(|line| line.starts_with("fe80"));
    zones.extend(local.map(|line| {
        let parts: Vec<&str> = (0..32).step_by(4).map(|at| &line[at..at + 4]).collect();
        format!("{}%{}", parts.join(":"), line.split_whitespace().last().unwrap())
    }));
    for zone in zones {
        let server = Server::start(&["--listen", &format!("[{zone}]:0")]);
        let port = server.addrs[0].rsplit_once(':').unwrap().1;
        for engine in ["tcp", "quic"] {
            let addr = format!("[{zone}]:{port}");
            let client = ["perf", "client", &addr, "--fingerprint", &server.fingerprint, "--engine", engine];
            let run = json(&marcato(&[&client[..], &["-t", "0.2", "-J"]].concat()));
            assert_eq!(run["complete"], true, "{zone} {engine}");
        }
    }
}

#[test]
fn a_client_of_a_killed_server_prints_partial_results_and_fails() {
    for (engine, said) in [("quic", "nothing was received from"), ("tcp", "the connection")] {
        for how in [&["-J"][..], &["-J", "--bidir"]] {
            a_killed_server(engine, how, said);
        }
    }
}

fn a_killed_server(engine: &str, how: &[&str], said: &str) {
    let (out, err) = cut_short(engine, how, 2, kill);
    let run: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(run["complete"], false, "{out}");
    let because = run["incomplete_because"].as_str().unwrap();
    assert!(because.contains(said) && err.contains(because), "{because}: {err}");
    let source = &run["sources"][0];
    assert!(source["sent"].as_u64().unwrap() > 10 && run["lanes"][0]["packets"].is_u64(), "{out}");
    assert!(source["mct_ms"]["max"].is_f64() || source["arrived"] == 0, "{out}");
    assert_eq!(run["reverse"].is_object(), how.contains(&"--bidir"), "{out}");
}

#[test]
fn a_run_that_is_interrupted_prints_what_it_measured_and_fails() {
    for (engine, how, marked) in [
        ("quic", &["--format", "text"][..], "INCOMPLETE: interrupted."),
        ("tcp", &["--format", "csv"], ",false,forward,all\n"),
        ("tcp", &["--format", "csv", "-R"], ",false,reverse,all\n"),
        ("quic", &["--bidir"], "From the server to the client"),
    ] {
        let end = if how.contains(&"text") { terminate } else { interrupt };
        let (out, err) = cut_short(engine, how, 130, end);
        assert!(out.contains(marked) && out.contains("10ms:2kB:p0"), "{out}");
        assert!(err.contains("the run is incomplete: interrupted"), "{err}");
    }
}
