//! `marcato lab selftest`: precision and speed of the lab on this machine.

use std::io::{self, Read as _, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use marcato_lab::{Lab, LabOptions, LinkCounters, Traces};
use marcato_papers::Progress as _;
use marcato_report::VERSION;
use marcato_scenario::Scenario;
use serde::Serialize;

use super::LabError;
use crate::Status;
use crate::arguments::{Format, LabSelftest};
use crate::output;
use crate::progress::Bar;
use crate::table::Table;

/// Payload of a datagram that fills a packet of 1500 bytes.
const FULL: usize = 1472;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Measured value, with what it should be.
#[derive(Clone, Debug, Serialize)]
struct Line {
    what: String,
    value: f64,
    unit: &'static str,
    /// Target of this project, if it has one.
    target: Option<String>,
    /// Figure of a comparable program, with its name.
    beside: Option<&'static str>,
    /// Set if the target was met, or there is none.
    ok: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    version: &'a str,
    cores: usize,
    span_s: f64,
    lines: &'a [Line],
}

pub(super) fn run(asked: &LabSelftest, stdout: &mut dyn Write) -> Result<Status, LabError> {
    let span = Duration::from_secs(asked.span.into());
    let mut bar = Bar::new();
    let mut lines = Vec::new();
    let rates = [1u64, 10, 100, 1000];
    bar.begin("self-test of the lab", Some(rates.len() as u64 + 4));
    for rate in rates {
        let error = rate_error(rate, span)?;
        lines.push(Line {
            what: format!("error of the rate at {rate} Mbit/s"),
            value: error * 100.0,
            unit: "%",
            target: (rate == 1000).then(|| "at most 1".to_owned()),
            beside: (rate == 1000).then_some("rattan publishes 865 Mbit/s as its most"),
            ok: rate != 1000 || error <= 0.01,
        });
        bar.advance(1);
    }
    let late = delays(span)?;
    for (name, share) in [("50th", 0.5), ("99th", 0.99)] {
        lines.push(Line {
            what: format!("{name} percentile of the delay beyond 20 ms"),
            value: late(share) * 1e3,
            unit: "ms",
            target: None,
            beside: Some("mahimahi's clock has 1 ms"),
            ok: true,
        });
    }
    bar.advance(1);
    for offload in [false, true] {
        let gbps = unshaped(offload, span)?;
        lines.push(Line {
            what: format!("TCP without a rate, {} offload", if offload { "with" } else { "without" }),
            value: gbps,
            unit: "Gbit/s",
            target: offload.then(|| "at least 8".to_owned()),
            beside: None,
            ok: !offload || gbps >= 8.0,
        });
        bar.advance(1);
    }
    lines.push(Line {
        what: "small packets that one core moves".to_owned(),
        value: packets(span)? / 1e3,
        unit: "1000/s",
        target: None,
        beside: None,
        ok: true,
    });
    drop(bar);
    output::print(stdout, &format_lines(asked, &lines)).map_err(LabError::Print)?;
    Ok(if lines.iter().all(|line| line.ok) { Status::Ok } else { Status::Outside })
}

fn format_lines(asked: &LabSelftest, lines: &[Line]) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match asked.format {
        Format::Json => {
            let document = Document { version: VERSION, cores, span_s: asked.span.into(), lines };
            serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
        }
        Format::Csv => {
            let row = |line: &Line| {
                format!("{},{},{},{}\n", line.what.replace(',', ";"), line.value, line.unit, line.ok)
            };
            lines.iter().map(row).fold("what,value,unit,ok\n".to_owned(), |text, row| text + &row)
        }
        Format::Text => {
            let mut table = Table::new(["measured", "value", "unit", "target", "beside"]);
            for line in lines {
                let target = line.target.clone().map_or(String::new(), |target| {
                    format!("{target}{}", if line.ok { "" } else { ": missed" })
                });
                let value = format!("{:.3}", line.value);
                table.row([
                    line.what.clone(),
                    value,
                    line.unit.into(),
                    target,
                    line.beside.unwrap_or("").into(),
                ]);
            }
            table.to_string()
        }
    }
}

/// Opens two hosts with a link of these keys between them.
fn open(link: &str, offload: bool) -> Result<Lab, LabError> {
    let text = format!(
        r#"
        name = "selftest"
        duration = "1 s"
        nodes = ["client", "server"]
        [[link]]
        between = ["client", "server"]
        {link}
        [[flow]]
        name = "unused"
        kind = "tcp"
        from = "client"
        to = "server"
        "#
    );
    let scenario = Scenario::parse("selftest.toml", &text)?;
    let run = scenario.run(0).ok_or(LabError::NoRun)?;
    Ok(Lab::open(&run.experiment, &Traces::new(), LabOptions { offload })?)
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> LabError {
    move |source| LabError::Selftest { what, source }
}

/// Floods a link with datagrams for a while. Returns the growth of a counter per second, once the
/// link is full.
fn flooded(
    lab: &Lab,
    len: usize,
    span: Duration,
    counter: fn(&LinkCounters) -> u64,
) -> Result<f64, LabError> {
    // What arrives is thrown away, and not answered.
    let _sink = lab.run("server", || UdpSocket::bind((SERVER, 9)))?.map_err(failed("a socket"))?;
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let flood = lab.thread("client", move || {
        let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else { return };
        let datagram = vec![0; len];
        while !stop.load(Ordering::Relaxed) {
            // A full device refuses: then there is enough on its way.
            let _ = socket.send_to(&datagram, (SERVER, 9));
        }
    })?;
    let count = || (lab.now(), counter(&lab.stats()[0].1[0].link));
    std::thread::sleep(Duration::from_millis(200));
    let (begun, before) = count();
    std::thread::sleep(span);
    let (ended, after) = count();
    over.store(true, Ordering::Relaxed);
    let _ = flood.join();
    #[expect(clippy::cast_precision_loss, reason = "a count of seconds")]
    Ok((after - before) as f64 / ended.since(begun).as_secs_f64())
}

/// Returns the relative error of a link's rate under a load that exceeds it.
fn rate_error(mbps: u64, span: Duration) -> Result<f64, LabError> {
    let lab = open(
        &format!("rate = \"{mbps} Mbit/s\"\nqueue = {{ kind = \"droptail\", limit = \"100 packets\" }}"),
        false,
    )?;
    let measured = flooded(&lab, FULL, span, |link| link.delivered_bytes.get())? * 8e-6;
    #[expect(clippy::cast_precision_loss, reason = "four known rates")]
    Ok((measured / mbps as f64 - 1.0).abs())
}

/// Measures round trips over a delay of 10 ms each way. Returns the excess in seconds by quantile.
fn delays(span: Duration) -> Result<impl Fn(f64) -> f64, LabError> {
    let lab = open("delay = \"10 ms\"", false)?;
    let echo = lab.run("server", || UdpSocket::bind((SERVER, 7)))?.map_err(failed("a socket"))?;
    let over = Arc::new(AtomicBool::new(false));
    echo.set_read_timeout(Some(Duration::from_millis(100))).map_err(failed("a socket"))?;
    let stop = Arc::clone(&over);
    let server = std::thread::spawn(move || {
        let mut datagram = [0; 100];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((len, from)) = echo.recv_from(&mut datagram) {
                let _ = echo.send_to(&datagram[..len], from);
            }
        }
    });
    let client = lab.run("client", || UdpSocket::bind("0.0.0.0:0"))?.map_err(failed("a socket"))?;
    client.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed("a socket"))?;
    let mut late = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < span || late.is_empty() {
        let sent = Instant::now();
        client.send_to(b"?", (SERVER, 7)).map_err(failed("a round trip"))?;
        client.recv(&mut [0; 100]).map_err(failed("a round trip"))?;
        late.push(sent.elapsed().as_secs_f64() - 0.02);
    }
    over.store(true, Ordering::Relaxed);
    let _ = server.join();
    late.sort_by(f64::total_cmp);
    Ok(move |share: f64| {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let at = ((late.len() - 1) as f64 * share).round() as usize;
        late[at]
    })
}

/// Returns the goodput of TCP over a link without a rate, in Gbit/s.
fn unshaped(offload: bool, span: Duration) -> Result<f64, LabError> {
    let lab = open("delay = \"10 us\"\nqueue = { kind = \"droptail\", limit = \"10000 packets\" }", offload)?;
    let listener = lab.run("server", || TcpListener::bind((SERVER, 0)))?.map_err(failed("a socket"))?;
    let at: SocketAddr = listener.local_addr().map_err(failed("a socket"))?;
    let receiver = std::thread::spawn(move || -> io::Result<f64> {
        let (mut stream, _) = listener.accept()?;
        let (mut buffer, mut total, begun) = (vec![0; 1 << 20], 0u64, Instant::now());
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            total += len as u64;
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of seconds")]
        Ok(total as f64 * 8e-9 / begun.elapsed().as_secs_f64())
    });
    let mut stream = lab.run("client", move || TcpStream::connect(at))?.map_err(failed("a connection"))?;
    let (buffer, begun) = (vec![0; 1 << 20], Instant::now());
    while begun.elapsed() < span {
        stream.write_all(&buffer).map_err(failed("sending"))?;
    }
    drop(stream);
    let gone = |_| io::Error::other("the receiver has failed");
    receiver.join().map_err(gone).and_then(|received| received).map_err(failed("receiving"))
}

/// Returns the packets of 100 bytes that come out of a link in a second.
fn packets(span: Duration) -> Result<f64, LabError> {
    flooded(&open("delay = \"1 ms\"", false)?, 72, span, |link| link.delivered)
}
