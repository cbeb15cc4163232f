//! Late stylesheets over HTTP/3, by the client aioquic.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use marcato_lab::Lab;
use marcato_report::{Row, Unit};
use serde::Deserialize;
use serde_json::json;

use super::client::{FILES, Loaded, site};
use super::late::{DELAYS, DOWN, PATIENCE, PORT, loads};
use super::link::Link;
use super::server::{Kind, NAME, Plan, identity, start};
use super::{median, ms};
use crate::answer::{Answer, TOO_SHORT};
use crate::error::SimulationError;
use crate::lab::failed;
use crate::{Progress, RunOptions, prose};

/// Program of the client, which needs aioquic.
const CLIENT: &str = include_str!("late_http3.py");
/// Variable with the interpreter that has aioquic.
const INTERPRETER: &str = "MARCATO_AIOQUIC_PYTHON";
/// Servers that answer HTTP/3.
const KINDS: [Kind; 3] = [Kind::Marcato, Kind::Lean, Kind::Caddy];

/// Interpreter of Python that has aioquic; `None` if there is none.
fn interpreter() -> Option<String> {
    let named = std::env::var(INTERPRETER).ok();
    let candidates = named.into_iter().chain(["python3".to_owned()]);
    let has_client = |python: &String| {
        let mut command = Command::new(python);
        command.args(["-c", "import aioquic"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    candidates.into_iter().find(has_client)
}

/// Times of a load in seconds, as the client prints them.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Printed {
    late: f64,
    all: f64,
}

/// Measures late stylesheets over HTTP/3 on every link, with every server that is installed.
pub(super) fn late(options: &RunOptions, progress: &mut dyn Progress) -> Result<Answer, SimulationError> {
    let links = if options.quick { &Link::OF_HTTP3[..1] } else { &Link::OF_HTTP3[..] };
    let (installed, missing) = Kind::installed(&KINDS);
    let mut text = prose::text(include_str!("late_http3.md")) + &missing;
    let Some(python) = interpreter() else {
        text += &format!(
            "\n\naioquic is not installed, so nothing was measured. Install it, and name its interpreter by {INTERPRETER}."
        );
        return Ok(Answer::new("Late stylesheets over HTTP/3", text, Vec::new()));
    };
    let cases = links.len() * DELAYS.len() * installed.len() * options.seeds().len();
    progress.begin("web, cases of HTTP/3 in the lab", Some(cases as u64));
    let mut rows = Vec::new();
    for link in links {
        for delay in DELAYS {
            for &kind in &installed {
                let (mut late, mut all, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
                for &seed in options.seeds() {
                    let count = loads(options.quick);
                    let (loaded, lost) = measure(&python, kind, link, delay, count, seed)?;
                    late.push(
                        median(loaded.iter().map(|load| ms(load.late)))
                            / (link.quic_limit().as_secs_f64() * 1e3),
                    );
                    all.push(median(loaded.iter().map(|load| ms(load.all))));
                    dropped.push(lost as f64 / count as f64);
                    progress.advance(1);
                }
                let place = format!("{}.{delay}.{}", link.name, kind.name());
                let where_ = format!("{} over HTTP/3 on {}, +{delay} ms", kind.title(), link.name);
                let row = Row::new(
                    format!("web.h3.late.{place}"),
                    format!("stylesheet over QUIC's limit: {where_}"),
                    Unit::Ratio,
                )
                .samples(&late);
                rows.push(match (kind, delay) {
                    (Kind::Marcato, _) if options.quick => row.unclaimed_because(TOO_SHORT),
                    (Kind::Marcato, 100) => row.at_most(1.15),
                    (Kind::Marcato, _) => row.at_most(1.2),
                    _ => row,
                });
                let row = Row::new(format!("web.h3.all.{place}"), format!("everything: {where_}"), Unit::Ms);
                rows.push(row.samples(&all));
                let row = Row::new(
                    format!("web.h3.drops.{place}"),
                    format!("packets dropped per load: {where_}"),
                    Unit::Count,
                );
                rows.push(row.samples(&dropped));
            }
        }
    }
    Ok(Answer::new("Late stylesheets over HTTP/3", text, rows))
}

/// Runs a case in a lab of its own: this many loads, one after the other. Returns them, and the packets that were dropped.
fn measure(
    python: &str,
    kind: Kind,
    link: &Link,
    delay: u64,
    count: usize,
    seed: u64,
) -> Result<(Vec<Loaded>, u64), SimulationError> {
    let experiment = crate::lab::experiment(&link.scenario(seed))?;
    let lab = Lab::open(&experiment, &Default::default(), Default::default()).map_err(failed)?;
    let identity = identity()?;
    let (address, _) = lab.addresses("server").ok_or(SimulationError::Missing("server"))?;
    let site = site();
    // The kernel's congestion control is that of HTTP/2, which is not used here.
    let congestion = "cubic";
    let plan = Plan {
        kind,
        site: &site,
        identity: &identity,
        port: PORT,
        congestion,
        http3: true,
        patience: PATIENCE,
    };
    let running = start(&lab, &plan)?;
    let loaded = load(&lab, python, address, delay, count)?;
    let dropped = lab.counters(DOWN.0, DOWN.1).map_or(0, |counters| counters.dropped);
    drop(running);
    Ok((loaded, dropped))
}

/// Loads the page by the client, on the host `client`.
fn load(
    lab: &Lab,
    python: &str,
    address: Ipv4Addr,
    delay: u64,
    count: usize,
) -> Result<Vec<Loaded>, SimulationError> {
    let mut command = Command::new(python);
    command.args(["-c", CLIENT, &address.to_string(), &PORT.to_string(), NAME, &delay.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.spawn("client", command).map_err(failed)?;
    let files: Vec<_> = FILES
        .iter()
        .map(|file| {
            json!({
                "name": file.name, "length": file.length, "urgency": file.urgency,
                "incremental": file.incremental, "destination": file.destination,
            })
        })
        .collect();
    let asked = format!("{}\n", json!(files)).repeat(count);
    // A client that ends early says why on its standard error.
    let _ = child.stdin.take().map(|mut input| input.write_all(asked.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let loaded: Vec<Loaded> = printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Printed>(line).ok())
        .map(|Printed { late, all }| Loaded {
            late: Duration::from_secs_f64(late.max(0.0)),
            all: Duration::from_secs_f64(all.max(0.0)),
        })
        .collect();
    if loaded.len() < count {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("it said nothing");
        return Err(SimulationError::Lab(format!("the client of HTTP/3: {last}")));
    }
    Ok(loaded)
}
