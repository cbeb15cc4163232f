//! Test of `marcato demo` with a short run over real sockets.
//!
//! It does not test the speed of the machine, but only bounds that the link enforces on any
//! machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use marcato_net::{Fingerprint, Trust, rustls};
use marcato_testing::{Need, absent};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.arg("demo").args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn both_schemes_deliver_page_and_source_no_faster_than_the_link() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let arguments = ["--loads", "1", "--seed", "7", "--format", "json", "--out", out.to_str().unwrap()];
    let output = demo(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    // A claim may fail on a busy machine. A report is written in any case.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["world"], &document["seeds"]), (&"lab".into(), &serde_json::json!([7])));
    assert_eq!(document["config"]["rate"], "2 Mbit/s");
    let rows = document["rows"].as_array().unwrap();
    let value = |id: &str| {
        let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("there is no {id}"));
        row["measured"].as_f64().unwrap_or_else(|| panic!("{id} was not measured"))
    };
    for scheme in ["fifo", "marcato"] {
        for (group, bytes) in [8_000.0, 25_000.0, 40_000.0, 60_000.0, 150_000.0].into_iter().enumerate() {
            // 50 ms of delay, and 4 µs for each byte.
            let limit = 50.0 + bytes * 0.004;
            let complete = value(&format!("demo.page.{scheme}.p{group}"));
            assert!(complete >= limit, "{scheme}: P{group} after {complete} ms");
        }
        assert!(value(&format!("demo.load.{scheme}")) >= 50.0 + 283_000.0 * 0.004);
        assert!(value(&format!("demo.beside.load.{scheme}")) >= 50.0 + 283_000.0 * 0.004);
        assert!(value(&format!("demo.source.{scheme}.p50")) >= 51.0);
        assert!(value(&format!("demo.source.{scheme}.messages")) > 10.0);
        // 283 kB in packets of at most 1452 bytes.
        assert!(value(&format!("demo.link.{scheme}.delivered")) >= 195.0);
        assert_eq!(value(&format!("demo.link.{scheme}.lost")), 0.0);
    }
    // The order costs the page nothing, which is claimed for the page alone.
    let claim = |id: &str| rows.iter().find(|row| row["id"] == id).map(|row| row["hi"].clone());
    assert_eq!(claim("demo.load.ratio"), Some(1.01.into()));
    assert_eq!(claim("demo.beside.load.ratio"), Some(Value::Null));
    assert_eq!(
        rows.iter().find(|row| row["id"] == "demo.page.fifo.p0").unwrap()["what"],
        "P0 HTML/CSS complete, FIFO"
    );
    // Over the kernel's TCP, where there can be a lab.
    match rows.iter().any(|row| row["id"] == "demo.tcp.marcato.p0") {
        // Two round trips of 100 ms: the handshake, and the first data. Then P0 to P4 at the link's rate.
        true => {
            assert!(value("demo.tcp.marcato.p0") >= 100.0 + 8_000.0 * 0.004);
            assert!(value("demo.tcp.fifo.p0") >= 150.0 + 283_000.0 * 0.004);
        }
        false => assert!(absent!(Need::LabProcess), "{said}"),
    }
    // Over HTTP/2, by the client that there is. A page in a browser has 330 kB.
    let browser = rows.iter().any(|row| row["id"] == "demo.web.load.marcato");
    let programs = &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
    assert_eq!(browser, !absent!(Need::OneOf(programs)), "{said}");
    for scheme in ["fifo", "marcato"] {
        if browser {
            assert!(value(&format!("demo.web.load.{scheme}")) >= 300.0 + 328_000.0 * 0.004);
        } else {
            assert!(value(&format!("demo.web.late.{scheme}")) >= 100.0 + 25_000.0 * 0.004);
        }
    }
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    let charts = if browser { 4 } else { 3 };
    assert!(
        html.matches("<svg").count() == charts && !html.contains("src="),
        "it needs nothing from outside"
    );
    assert_eq!(out.join("film.svg").exists(), browser);
    for word in [" paper", ">paper", ">band", "unclaimed"] {
        assert!(!html.split("<script>").next().unwrap().contains(word), "a demo reproduces no paper: {word}");
    }
    assert!(html.contains(">FIFO</th>") && html.contains(">Marcato over FIFO</th>"));
    assert!(out.join("page.svg").exists() && out.join("source-tail.svg").exists());
}

#[test]
fn a_bad_environment_exits_2_at_once_with_a_clear_message() {
    for (arguments, said) in [
        (&["--out", "/proc/none"][..], "cannot write `/proc/none`"),
        (&["--loss", "2"], "'--loss <P>': give a probability from 0 to below 1, for example 0.02 for 2 %"),
        (&["--loss", "nan"], "give a probability from 0 to below 1"),
        (&["--loss", "1"], "give a probability from 0 to below 1"),
        (&["--loads", "0"], "1..=100"),
        (&["--queue", "best"], "droptail, codel"),
        (&["--open", "--loads", "2"], "cannot be used with"),
    ] {
        let output = demo(arguments);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(output.stdout.is_empty() && err.contains(said), "{arguments:?}: {err}");
        assert!(!err.contains("loopback") && !err.contains("firewall"), "{err}");
    }
}

/// Returns the completion time of the demo's page in virtual time in ms, and the number of the
/// source's messages released by then.
fn page_in_virtual_time(fifo: bool, source: bool) -> (f64, f64) {
    let level = |priority: &'static str| if fifo { "p2" } else { priority };
    let group = |(size, priority)| format!("{{ size = \"{size} kB\", priority = \"{}\" }}", level(priority));
    let groups = [(150, "p4"), (60, "p3"), (40, "p2"), (25, "p1"), (8, "p0")].map(group);
    let source = if source {
        format!(
            "sources = [{{ period = \"20 ms\", size = \"250 B\", priority = \"{}\", declared = false, \
             named = false }}]",
            level("p0")
        )
    } else {
        String::new()
    };
    let scenario = format!(
        r#"
name = "page"
duration = "5 s"

[topology]
kind = "dumbbell"
pairs = 1
rate = "2 Mbit/s"
delay = "50 ms"
access-delay = "0 ms"
queue = "codel"

[[flow]]
name = "page"
kind = "quic"
from = "client-1"
to = "server-1"
messages = [{}]
{source}
"#,
        groups.join(", ")
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.toml");
    std::fs::write(&file, scenario).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.args(["sim", file.to_str().unwrap(), "--seed", "1", "--format", "json"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    let times = run["flows"][0]["times"].as_array().unwrap();
    let page = times.iter().find(|one| one["what"] == "messages").unwrap();
    assert_eq!(page["completed"], 5);
    let ms = page["completion_max_ms"].as_f64().unwrap();
    (ms, if source.is_empty() { 0.0 } else { ms / 20.0 })
}

#[test]
fn the_whole_page_takes_longer_by_the_source_alone() {
    let ((fifo, _), (marcato, _)) = (page_in_virtual_time(true, false), page_in_virtual_time(false, false));
    assert!(marcato <= 1.01 * fifo, "without the source: {fifo} and {marcato} ms");
    let ((after, _), (beside, messages)) =
        (page_in_virtual_time(true, true), page_in_virtual_time(false, true));
    assert!(after <= 1.02 * fifo, "the source waits for the page: {fifo} and {after} ms");
    // Each message takes a packet of at most 350 bytes, at 4 µs for each byte.
    assert!(beside <= 1.02 * marcato + messages * 350.0 * 0.004, "{marcato} and {beside} ms");
}

/// Demo that serves, which is killed if a test fails.
struct Open(Child);

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks a server for the page over HTTP/1.1 and TLS. Returns what it answers.
fn asked(addr: SocketAddr, fingerprint: Fingerprint) -> String {
    let mut tls = Trust::Fingerprint(fingerprint).client_tls().unwrap();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = "localhost".try_into().unwrap();
    let connection = rustls::ClientConnection::new(std::sync::Arc::new(tls), name).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, TcpStream::connect(addr).unwrap());
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // Some servers end the connection without a farewell of TLS.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_open_demo_serves_one_page_twice_until_it_is_asked_to_end() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marcato"));
    command.args(["demo", "--open"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut open = Open(command.spawn().unwrap());
    let mut lines = BufReader::new(open.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (mut links, mut fingerprint) = (Vec::new(), None);
    while fingerprint.is_none() {
        let line = lines.next().unwrap();
        if let Some((name, port)) = line.split_once("https://localhost:") {
            let port: u16 = port.trim_end_matches('/').parse().unwrap();
            links.push((name.trim().to_owned(), SocketAddr::from(([127, 0, 0, 1], port))));
        }
        fingerprint = line.parse().ok();
    }
    assert_eq!(
        links.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["first come, first served", "Marcato"]
    );
    let pages: Vec<String> = links.iter().map(|(_, addr)| asked(*addr, fingerprint.unwrap())).collect();
    let bodies: Vec<&str> = pages.iter().map(|page| page.split_once("\r\n\r\n").unwrap().1).collect();
    assert!(pages.iter().all(|page| page.starts_with("HTTP/1.1 200 ")), "{pages:?}");
    assert!(bodies[0] == bodies[1] && bodies[0].contains("base.css"), "{bodies:?}");
    kill_process(Pid::from_child(&open.0), Signal::INT).unwrap();
    assert_eq!(open.0.wait().unwrap().code(), Some(0));
    assert!(links.iter().all(|(_, addr)| TcpStream::connect(addr).is_err()), "it serves no more");
}
