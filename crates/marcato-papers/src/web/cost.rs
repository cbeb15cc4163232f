//! Cost of the web plane: processor time, calls that write, and memory, beside nginx.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use marcato_net::Trust;
use marcato_net::rustls::ClientConfig;
use marcato_report::{Row, Unit};
use marcato_web::Identity;
use rustix::process::Signal;
use tempfile::TempDir;

use super::client::{listens, listens_within};
use super::generator::Connections;
use super::instructions;
use super::median;
use super::process::Process;
use super::server::{Kind, identity, is_installed, plain_nginx};
use super::site::{File, Site, letters};
use crate::answer::{Answer, TOO_SHORT};
use crate::error::SimulationError;
use crate::lab::failed;
use crate::{Progress, RunOptions, prose};

/// Requests for a file.
struct Case {
    /// Size in row ids.
    size: &'static str,
    file: &'static str,
    length: usize,
    connections: usize,
    streams: usize,
    /// Requests of a round.
    requests: u64,
    /// Largest processor time over nginx's.
    bound: f64,
}

const CASES: [Case; 2] = [
    Case {
        size: "1kB",
        file: "small",
        length: 1_000,
        connections: 10,
        streams: 10,
        requests: 60_000,
        bound: 0.6,
    },
    Case {
        size: "100kB",
        file: "middle",
        length: 100_000,
        connections: 4,
        streams: 8,
        requests: 10_000,
        bound: 0.85,
    },
];
const LARGE: (&str, usize) = ("large", 10_000_000);
/// Requests of a shortened run are fewer by this factor.
const QUICK: u64 = 5;
/// Most calls that write for a response of 1 kB.
const WRITES: f64 = 0.2;
/// Requests while calls are counted, which makes them slow.
const TRACED: u64 = 5_000;
/// Requests are fewer by this factor while instructions are counted.
const PROFILED: u64 = 30;
/// Largest share of the order in the user instructions, in %.
const ORDER: f64 = 5.0;
/// Time for a server to begin to listen under valgrind.
const VALGRIND: Duration = Duration::from_secs(60);
/// Connections without requests, and responses that nobody reads: connections and streams.
const IDLE: usize = 500;
const STAGED: (usize, usize) = (5, 100);
/// Most memory of each, in kB.
const MEMORY: f64 = 64.0;
/// Time for a server to take what it can, or to free what it does not need.
const SETTLE: Duration = Duration::from_millis(500);

/// Rounds of each server, in turns.
const fn rounds(quick: bool) -> usize {
    if quick { 1 } else { 7 }
}

/// This program, if it is the command.
fn own_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    (program.file_name()? == "marcato").then_some(program)
}

/// Measures `marcato serve` and nginx as processes of their own, with files on disk, over the loopback
/// interface.
pub(super) fn cost(options: &RunOptions, progress: &mut dyn Progress) -> Result<Answer, SimulationError> {
    const TITLE: &str = "Cost of the web plane";
    let Some(program) = own_program() else {
        return Ok(Answer::new(TITLE, "Cost is measured by the command `marcato` alone.", vec![]));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (rows, missing) = runtime.block_on(measure(program, options, progress))?;
    Ok(Answer::new(TITLE, prose::text(include_str!("cost.md")) + &missing, rows))
}

/// What all servers of this part share.
struct Shared {
    program: PathBuf,
    identity: Identity,
    site: Site,
    tls: Arc<ClientConfig>,
}

impl Shared {
    fn new(program: PathBuf) -> Result<Self, SimulationError> {
        let identity = identity()?;
        let trust = identity.certificate().cloned().ok_or(SimulationError::Missing("certificate"))?;
        let mut tls = Trust::Certificate(trust).client_tls().map_err(failed)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let files = CASES.iter().map(|case| (case.file, case.length)).chain([LARGE]);
        let site = Site::new(files.map(|(name, length)| File::new(name, letters(length as u64))));
        Ok(Self { program, identity, site, tls: Arc::new(tls) })
    }

    /// Starts a server at a free port.
    fn start(&self, kind: Kind) -> Result<(Process, SocketAddr), SimulationError> {
        let addr = free()?;
        let (files, command, signal) = match kind {
            Kind::Nginx => {
                // As many as `marcato serve` has threads.
                let workers = std::thread::available_parallelism().map_or(1, usize::from);
                let (files, command) = plain_nginx(&self.site, &self.identity, &addr.to_string(), workers)?;
                // Killed, it would leave its workers behind.
                (files, command, Signal::TERM)
            }
            _ => {
                let (files, command) = self.marcato(addr)?;
                (files, command, Signal::KILL)
            }
        };
        let process = Process::start(command, files, signal)?;
        listens(addr)?;
        Ok((process, addr))
    }

    fn marcato(&self, addr: SocketAddr) -> Result<(TempDir, Command), SimulationError> {
        let files = super::server::files(&self.site, &self.identity, |_| String::new())?;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(files.path().join("site")).args(["--quiet", "--listen", &addr.to_string()]);
        command.arg("--cert").arg(files.path().join("chain.pem"));
        command.arg("--key").arg(files.path().join("key.pem"));
        Ok((files, command))
    }
}

/// Address that nothing listens at.
fn free() -> Result<SocketAddr, SimulationError> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    free.local_addr().map_err(failed)
}

async fn measure(
    program: PathBuf,
    options: &RunOptions,
    progress: &mut dyn Progress,
) -> Result<(Vec<Row>, String), SimulationError> {
    let (kinds, mut missing) = Kind::installed(&[Kind::Marcato, Kind::Nginx]);
    let shared = Shared::new(program)?;
    let rounds = rounds(options.quick);
    progress.begin("web, cost", Some((CASES.len() * rounds + 4) as u64));
    let mut rows = Vec::new();
    for case in &CASES {
        rows.extend(processor(&shared, case, &kinds, rounds, options.quick, progress).await?);
    }
    if is_installed("strace") {
        for &kind in &kinds {
            rows.push(writes(&shared, &CASES[0], kind).await?);
        }
    } else {
        missing += "\n\nstrace is not installed, so calls are not counted here.";
    }
    progress.advance(1);
    if is_installed("valgrind") {
        for case in &CASES {
            rows.push(order(&shared, case).await?);
        }
    } else {
        missing += "\n\nvalgrind is not installed, so instructions are not counted here.";
    }
    progress.advance(1);
    rows.push(idle(&shared).await?);
    progress.advance(1);
    rows.push(staged(&shared).await?);
    progress.advance(1);
    Ok((rows, missing))
}

/// Measures processor time for each request, of all servers in turns.
async fn processor(
    shared: &Shared,
    case: &Case,
    kinds: &[Kind],
    rounds: usize,
    quick: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Row>, SimulationError> {
    let requests = if quick { case.requests / QUICK } else { case.requests };
    let mut servers = Vec::new();
    for &kind in kinds {
        let (process, addr) = shared.start(kind)?;
        let connections = Connections::open(addr, &shared.tls, case.connections).await?;
        // Warm: the file is known, and threads have started.
        connections.ask(case.file, case.length, case.streams, requests / 4).await?;
        servers.push((kind, process, connections, Vec::new()));
    }
    for _ in 0..rounds {
        for (_, process, connections, times) in &mut servers {
            let before = process.cpu()?;
            connections.ask(case.file, case.length, case.streams, requests).await?;
            times.push((process.cpu()? - before).as_secs_f64() * 1e6 / requests as f64);
        }
        progress.advance(1);
    }
    let of = |kind: Kind| {
        let server = servers.iter().find(|(other, ..)| *other == kind);
        server.map(|(_, _, _, times)| median(times.iter().copied()))
    };
    Ok(processor_rows(case, kinds, of, !quick))
}

fn processor_rows(case: &Case, kinds: &[Kind], of: impl Fn(Kind) -> Option<f64>, claimed: bool) -> Vec<Row> {
    let size = case.size;
    let mut rows = Vec::new();
    for &kind in kinds {
        let what = format!("processor time of a request for {size}: {}", kind.title());
        let row = Row::new(format!("web.cpu.{size}.{}", kind.name()), what, Unit::Us);
        rows.extend(of(kind).map(|time| row.measured(time)));
    }
    if let (Some(marcato), Some(nginx)) = (of(Kind::Marcato), of(Kind::Nginx)) {
        let what = format!("processor time of a request for {size}: Marcato over nginx");
        let row = Row::new(format!("web.cpu.{size}.ratio"), what, Unit::Ratio).measured(marcato / nginx);
        rows.push(if claimed { row.at_most(case.bound) } else { row.unclaimed_because(TOO_SHORT) });
    }
    rows
}

/// Counts the calls that write, for each response.
async fn writes(shared: &Shared, case: &Case, kind: Kind) -> Result<Row, SimulationError> {
    let (process, addr) = shared.start(kind)?;
    let connections = Connections::open(addr, &shared.tls, case.connections).await?;
    connections.ask(case.file, case.length, case.streams, TRACED).await?;
    let trace = process.trace()?;
    connections.ask(case.file, case.length, case.streams, TRACED).await?;
    let calls = trace.end()? as f64 / TRACED as f64;
    let what = format!("calls that write, for a response of {}: {}", case.size, kind.title());
    let row = Row::new(format!("web.writes.{}.{}", case.size, kind.name()), what, Unit::Count);
    let row = row.measured(calls);
    Ok(if kind == Kind::Marcato { row.at_most(WRITES) } else { row })
}

/// Share of the order in the user instructions of a server, by callgrind. Connections are open already.
async fn order(shared: &Shared, case: &Case) -> Result<Row, SimulationError> {
    let addr = free()?;
    let (files, server) = shared.marcato(addr)?;
    let profile = tempfile::NamedTempFile::new().map_err(failed)?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--instr-atstart=no"]);
    command.arg(format!("--callgrind-out-file={}", profile.path().display()));
    command.arg(server.get_program()).args(server.get_args());
    let process = Process::start(command, files, Signal::TERM)?;
    listens_within(addr, VALGRIND)?;
    let connections = Connections::open(addr, &shared.tls, case.connections).await?;
    let requests = case.requests / PROFILED;
    connections.ask(case.file, case.length, case.streams, requests).await?;
    count(&process, "on")?;
    connections.ask(case.file, case.length, case.streams, requests).await?;
    count(&process, "off")?;
    drop(connections);
    // It ends in order, and writes its profile.
    drop(process);
    let found = instructions::read(&std::fs::read_to_string(profile.path()).map_err(failed)?);
    let what = format!("order and signals in the user instructions of a request for {}", case.size);
    let row = Row::new(format!("web.order.{}", case.size), what, Unit::Percent);
    Ok(row.measured(100.0 * found.order as f64 / found.total as f64).at_most(ORDER))
}

/// Begins or ends to count the instructions of a server under callgrind.
fn count(process: &Process, state: &str) -> Result<(), SimulationError> {
    let mut command = Command::new("callgrind_control");
    let done = command.args(["-i", state, &process.id().to_string()]).output().map_err(failed)?;
    if done.status.success() {
        return Ok(());
    }
    Err(SimulationError::Lab(format!("callgrind_control: {}", String::from_utf8_lossy(&done.stderr).trim())))
}

/// Memory of connections that have had one request each.
async fn idle(shared: &Shared) -> Result<Row, SimulationError> {
    let (process, addr) = shared.start(Kind::Marcato)?;
    let [small, ..] = &CASES;
    let warm = Connections::open(addr, &shared.tls, 10).await?;
    warm.ask(small.file, small.length, small.streams, 1_000).await?;
    let before = process.memory()?;
    let connections = Connections::open(addr, &shared.tls, IDLE).await?;
    connections.ask(small.file, small.length, 1, IDLE as u64).await?;
    tokio::time::sleep(SETTLE).await;
    let row = Row::new("web.memory.idle", "memory of a connection without requests", Unit::Kilobytes);
    Ok(row.measured(each(before, process.memory()?, IDLE)).at_most(MEMORY))
}

/// Memory of responses that the client does not read.
async fn staged(shared: &Shared) -> Result<Row, SimulationError> {
    let (process, addr) = shared.start(Kind::Marcato)?;
    let (connections, streams) = STAGED;
    let [small, ..] = &CASES;
    let connections = Connections::open(addr, &shared.tls, connections).await?;
    connections.ask(small.file, small.length, small.streams, 1_000).await?;
    let before = process.memory()?;
    let neglected = connections.neglect(LARGE.0, streams).await?;
    tokio::time::sleep(SETTLE).await;
    let row = Row::new("web.staged", "memory of a response that is not read", Unit::Kilobytes);
    Ok(row.measured(each(before, process.memory()?, neglected.len())).at_most(MEMORY))
}

/// Share of each in what a server has gained, in kB.
fn each(before: u64, after: u64, count: usize) -> f64 {
    after.saturating_sub(before) as f64 / 1e3 / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_a_share_of_nginx() {
        let held = |marcato: f64| {
            let of = |kind| Some(if kind == Kind::Marcato { marcato } else { 10.0 });
            let rows = processor_rows(&CASES[0], &[Kind::Marcato, Kind::Nginx], of, true);
            rows.iter().map(|row| (row.id().to_owned(), row.ok())).collect::<Vec<_>>()
        };
        let ids = ["web.cpu.1kB.marcato", "web.cpu.1kB.nginx", "web.cpu.1kB.ratio"].map(str::to_owned);
        assert_eq!(held(6.0), ids.clone().into_iter().zip([None, None, Some(true)]).collect::<Vec<_>>());
        assert_eq!(held(6.1), ids.into_iter().zip([None, None, Some(false)]).collect::<Vec<_>>());
    }
}
