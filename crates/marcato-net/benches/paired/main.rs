//! Real sockets, in pairs: Marcato against its foundations and against alternatives, in one run.
//!
//! `cargo bench -p marcato-net --bench paired [-- [--quick] [--mtu BYTES] [--only TEXT] [--format text|json]]`
//!
//! 1. Bulk data over the loopback interface, where processors are the limit: goodput and CPU s per
//!    GB. All stacks send datagrams of the same size: 1452 bytes, which networks carry, and 4096.
//! 2. Bulk data over links of 1 Gbit/s and 100 Mbit/s.
//! 3. Urgent messages of 1 kB each 50 ms behind bulk data without end, over the loopback interface
//!    and over links of 20 and 2 Mbit/s: percentiles of their one-way times.
//! 4. The same over kernel TCP on 2 Mbit/s, split into the data in flight at hand-over and the
//!    rest.
//!
//! Each end is a separate process with one thread. Links are HTB between network namespaces and
//! need root; without it, they are skipped with a notice. The bench asserts no times: each ratio is
//! printed with its target and whether it was met. The exit status is 1 only if a stack delivers
//! wrong bytes, or fails.

mod body;
mod bulk;
mod clock;
mod link;
mod marcato;
mod peer;
mod print;
mod quic;
mod stack;
mod streams;
mod table;
mod tcp;
mod urgent;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use bulk::Comparison;
use link::{Link, Place, Shape};
use peer::Pair;
use print::Print;
use stack::Stack;
use table::Report;
use worker::{Failure, Purpose};

const USAGE: &str =
    "usage: cargo bench -p marcato-net --bench paired -- [--quick] [--mtu BYTES] [--only PART] [--format text|json]
  --quick   fewer and shorter runs
  --mtu     size of datagrams on the loopback interface, 1200 to 4096, instead of 1452 and 4096
  --only    only parts whose name contains PART: check, bulk.loopback-1452, bulk.loopback-4096, bulk.1000mbit, bulk.100mbit,
            urgent.loopback, urgent.20mbit, urgent.2mbit";

/// Comparisons on loopback, with datagrams of equal size.
const LOOPBACK: [Comparison; 7] = [
    (Stack::MarcatoQuic, Stack::Noq, Some(1.0)),
    (Stack::MarcatoStreams, Stack::Noq, Some(1.0)),
    (Stack::MarcatoQuicOne, Stack::NoqOne, Some(0.80)),
    (Stack::MarcatoQuic, Stack::Quinn, Some(0.95)),
    (Stack::MarcatoStreams, Stack::Quinn, Some(0.95)),
    (Stack::MarcatoTcpTls, Stack::TcpTls, None),
    (Stack::MarcatoTcp, Stack::Tcp, Some(0.90)),
];
const GIGABIT: [Comparison; 6] = [
    (Stack::MarcatoQuic, Stack::Noq, Some(0.98)),
    (Stack::MarcatoStreams, Stack::Noq, Some(0.98)),
    (Stack::MarcatoQuicOne, Stack::NoqOne, Some(0.98)),
    (Stack::MarcatoQuic, Stack::Quinn, None),
    (Stack::MarcatoTcpTls, Stack::TcpTls, Some(0.97)),
    (Stack::MarcatoTcp, Stack::Tcp, Some(0.98)),
];
/// Comparisons on slower links, without a target for QUIC, which has one at 1 Gbit/s only.
const SLOWER: [Comparison; 4] = [
    (Stack::MarcatoQuic, Stack::Noq, None),
    (Stack::MarcatoQuic, Stack::Quinn, None),
    (Stack::MarcatoTcpTls, Stack::TcpTls, Some(0.97)),
    (Stack::MarcatoTcp, Stack::Tcp, Some(0.98)),
];
const URGENT: [Stack; 6] = [
    Stack::MarcatoTcpTls,
    Stack::MarcatoQuic,
    Stack::MarcatoStreams,
    Stack::Quinn,
    Stack::TcpTlsTwo,
    Stack::TcpTls,
];

struct Arguments {
    quick: bool,
    json: bool,
    only: Option<String>,
    /// Sizes of datagrams on the loopback interface.
    mtus: Vec<u16>,
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self { quick: false, json: false, only: None, mtus: vec![link::ETHERNET, 4096] };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Argument that `cargo bench` passes to every bench.
                "--bench" => {}
                "--quick" => parsed.quick = true,
                "--mtu" => {
                    let mtu = arguments.next().and_then(|mtu| mtu.parse().ok());
                    let mtu = mtu.filter(|mtu| (1200..=4096).contains(mtu));
                    parsed.mtus = vec![mtu.ok_or("--mtu is 1200 to 4096")?];
                }
                "--only" => parsed.only = Some(arguments.next().ok_or("--only needs a part's name")?),
                "--format" => match arguments.next().as_deref() {
                    Some("json") => parsed.json = true,
                    Some("text") => parsed.json = false,
                    _ => return Err("--format is text or json".to_owned()),
                },
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        Ok(parsed)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| part.contains(only.as_str()))
    }
}

/// Checks that a stack delivers the bytes that it was given.
async fn check(stack: Stack) -> Result<(), Failure> {
    let hash = |bytes: &[u8]| body::hex(digest(&SHA256, bytes).as_ref());
    let expected = format!(
        "{} 1 {} {}",
        body::CHECKED,
        hash(&body::pattern(1, body::CHECKED)),
        hash(&body::urgent(0, 0))
    );
    let mut pair = Pair::connect(stack, &Place::Loopback(link::ETHERNET), Purpose::Check).await?;
    pair.sender.ask("check", Duration::ZERO).await?;
    let mut hashed = String::new();
    for _ in 0..400 {
        hashed = pair.receiver.ask("hash", Duration::ZERO).await?;
        if hashed == expected {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    Err(format!("wrong bytes: bulk, urgent and their hashes are {hashed}, not {expected}").into())
}

/// Returns a link, or reports why there is none.
fn place(shape: Shape, report: &mut Report, print: Print) -> Option<Place> {
    match Link::new(shape) {
        Ok(link) => Some(Place::Link(link)),
        Err(why) => {
            let why = format!(
                "{}: no link can be made: {why}; it needs root, and `ip` and `tc` of iproute2",
                shape.name()
            );
            print.line(&format!("SKIPPED: {why}\n"));
            print.progress(&format!("SKIPPED: {why}"));
            report.skipped.push(why);
            None
        }
    }
}

async fn measure(arguments: &Arguments, report: &mut Report, print: Print) {
    let quick = arguments.quick;
    print.progress("each stack delivers what it is given");
    if !tcp::allows("cubic") {
        let why = "CUBIC for TCP on loopback: this user may not choose it, and all have the system's own";
        report.skipped.push(why.to_owned());
        print.progress(&format!("SKIPPED: {why}"));
    }
    for stack in Stack::ALL {
        if stack == Stack::MarcatoTcpTlsBbr && !tcp::allows("bbr") {
            report
                .skipped
                .push("BBR: this system does not have it, or this user may not choose it".to_owned());
            print.progress("SKIPPED: BBR: this system does not have it, or this user may not choose it");
            continue;
        }
        if let Err(error) = check(stack).await {
            report.failed.push(format!("check, {}: {error}", stack.name()));
        }
    }
    if !report.failed.is_empty() {
        return;
    }
    print.line("Every stack delivers the bytes that it is given.\n");

    let millis = Duration::from_millis;
    let bulk = |rounds, warm, window| bulk::Plan {
        rounds: if quick { 1 } else { rounds },
        warm: millis(if quick { warm / 2 } else { warm }),
        window: millis(if quick { window / 2 } else { window }),
    };
    for &mtu in &arguments.mtus {
        let name = format!("loopback-{mtu}");
        if arguments.wants(&format!("bulk.{name}")) {
            print.line(&format!(
                "Bulk data, loopback, datagrams of {mtu} bytes: processors are the limit. Medians of rounds, ratios \
                 within a round.\n"
            ));
            bulk::measure(&name, &Place::Loopback(mtu), &LOOPBACK, bulk(5, 200, 500), report, print).await;
        }
    }
    for (shape, comparisons, plan) in [
        (Shape { mbps: 1000, queue_ms: 10 }, &GIGABIT[..], bulk(3, 700, 800)),
        (Shape { mbps: 100, queue_ms: 20 }, &SLOWER[..], bulk(3, 700, 800)),
    ] {
        let name = shape.name();
        if arguments.wants(&format!("bulk.{name}"))
            && let Some(place) = place(shape, report, print)
        {
            print.line(&format!("Bulk data, {} Mbit/s, a queue of {} ms.\n", shape.mbps, shape.queue_ms));
            bulk::measure(&name, &place, comparisons, plan, report, print).await;
        }
    }

    let urgent = |messages, warm| urgent::Plan {
        messages: if quick { messages / 3 } else { messages },
        warm: millis(warm),
    };
    if arguments.wants("urgent.loopback") {
        print.line("Urgent messages of 1 kB each 50 ms behind bulk data, loopback.\n");
        let place = Place::Loopback(link::ETHERNET);
        urgent::measure("loopback", &place, None, &URGENT, urgent(60, 500), report, print).await;
    }
    let bbr = Some(Stack::MarcatoTcpTlsBbr).filter(|_| tcp::allows("bbr"));
    let with_bbr: Vec<Stack> = bbr.into_iter().chain(URGENT).collect();
    for (shape, stacks, plan) in [
        (Shape { mbps: 20, queue_ms: 100 }, &URGENT[..], urgent(60, 1500)),
        (Shape { mbps: 2, queue_ms: 100 }, &with_bbr[..], urgent(100, 3000)),
    ] {
        let name = shape.name();
        if arguments.wants(&format!("urgent.{name}"))
            && let Some(place) = place(shape, report, print)
        {
            print.line(&format!(
                "Urgent messages of 1 kB each 50 ms behind bulk data, {} Mbit/s, a queue of {} ms.\n",
                shape.mbps, shape.queue_ms
            ));
            urgent::measure(&name, &place, Some(shape), stacks, plan, report, print).await;
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == "worker") {
        let arguments: Vec<String> = arguments.skip(1).collect();
        return match worker::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("failed {error}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments = match Arguments::parse(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let print = Print { json: arguments.json };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("there is no runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::default();
    let interrupted = runtime.block_on(async {
        let terminated = async {
            match signal(SignalKind::terminate()) {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        // The future that ends later is dropped, and with it the links and the workers.
        tokio::select! {
            () = measure(&arguments, &mut report, print) => false,
            _ = tokio::signal::ctrl_c() => true,
            () = terminated => true,
        }
    });
    for failure in &report.failed {
        eprintln!("FAILED: {failure}");
    }
    if interrupted {
        eprintln!("interrupted");
        return ExitCode::from(130);
    }
    if arguments.json {
        let config = json!({
            "quick": arguments.quick,
            "urgent_bytes": body::URGENT,
            "block_bytes": body::BLOCK,
            "write_bytes": body::WRITE,
            "congestion": if tcp::allows("cubic") { "cubic" } else { "of the system" },
            "threads_per_end": 1,
        });
        println!("{:#}", report.json(&config));
    }
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
