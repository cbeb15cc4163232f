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

/// Server whose cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Marcato,
    /// nginx as it comes: it opens the file of each request.
    Nginx,
    /// nginx with a cache of open files, as `marcato serve` has one of small files.
    Caching,
}

impl Server {
    /// Name in row ids.
    const fn name(self) -> &'static str {
        match self {
            Self::Marcato => "marcato",
            Self::Nginx => "nginx",
            Self::Caching => "nginx-caching",
        }
    }

    /// Name for people.
    const fn title(self) -> &'static str {
        match self {
            Self::Marcato => "Marcato",
            Self::Nginx => "nginx",
            Self::Caching => "nginx with a cache of open files",
        }
    }
}

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
    fn start(&self, server: Server) -> Result<(Process, SocketAddr), SimulationError> {
        let addr = free()?;
        let caches = match server {
            Server::Marcato => None,
            Server::Nginx => Some(false),
            Server::Caching => Some(true),
        };
        let (files, command, signal) = if let Some(caches) = caches {
            // As many as `marcato serve` has threads.
            let workers = std::thread::available_parallelism().map_or(1, usize::from);
            let (files, command) =
                plain_nginx(&self.site, &self.identity, &addr.to_string(), workers, caches)?;
            // Killed, it would leave its workers behind.
            (files, command, Signal::TERM)
        } else {
            let (files, command) = self.marcato(addr)?;
            (files, command, Signal::KILL)
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
    let (kinds, mut missing) = Kind::installed(&[Kind::Nginx]);
    let mut servers = vec![Server::Marcato];
    if !kinds.is_empty() {
        servers.extend([Server::Nginx, Server::Caching]);
    }
    let shared = Shared::new(program)?;
    let rounds = rounds(options.quick);
    progress.begin("web, cost", Some((CASES.len() * rounds + 4) as u64));
    let mut rows = Vec::new();
    for case in &CASES {
        rows.extend(processor(&shared, case, &servers, rounds, options.quick, progress).await?);
    }
    if is_installed("strace") {
        for &server in servers.iter().filter(|server| **server != Server::Caching) {
            rows.push(writes(&shared, &CASES[0], server).await?);
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
    asked: &[Server],
    rounds: usize,
    quick: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Row>, SimulationError> {
    let requests = if quick { case.requests / QUICK } else { case.requests };
    let mut servers = Vec::new();
    for &server in asked {
        let (process, addr) = shared.start(server)?;
        let connections = Connections::open(addr, &shared.tls, case.connections).await?;
        // Warm: the file is known, and threads have started.
        connections.ask(case.file, case.length, case.streams, requests / 4).await?;
        servers.push((server, process, connections, Vec::new()));
    }
    for _ in 0..rounds {
        for (_, process, connections, times) in &mut servers {
            let before = process.cpu()?;
            connections.ask(case.file, case.length, case.streams, requests).await?;
            times.push((process.cpu()? - before).as_secs_f64() * 1e6 / requests as f64);
        }
        progress.advance(1);
    }
    let of = |server: Server| {
        let measured = servers.iter().find(|(other, ..)| *other == server);
        measured.map(|(_, _, _, times)| median(times.iter().copied()))
    };
    Ok(processor_rows(case, asked, of, !quick))
}

fn processor_rows(
    case: &Case,
    servers: &[Server],
    of: impl Fn(Server) -> Option<f64>,
    claimed: bool,
) -> Vec<Row> {
    let size = case.size;
    let mut rows = Vec::new();
    for &server in servers {
        let what = format!("processor time of a request for {size}: {}", server.title());
        let row = Row::new(format!("web.cpu.{size}.{}", server.name()), what, Unit::Us);
        rows.extend(of(server).map(|time| row.measured(time)));
    }
    for (name, nginx) in [("ratio", Server::Nginx), ("ratio-caching", Server::Caching)] {
        let (Some(marcato), Some(time)) = (of(Server::Marcato), of(nginx)) else { continue };
        let what = format!("processor time of a request for {size}: Marcato over {}", nginx.title());
        let row = Row::new(format!("web.cpu.{size}.{name}"), what, Unit::Ratio).measured(marcato / time);
        rows.push(match nginx {
            Server::Nginx if claimed => row.at_most(case.bound),
            Server::Nginx => row.unclaimed_because(TOO_SHORT),
            _ => row,
        });
    }
    rows
}

/// Counts the calls that write, for each response.
async fn writes(shared: &Shared, case: &Case, server: Server) -> Result<Row, SimulationError> {
    let (process, addr) = shared.start(server)?;
    let connections = Connections::open(addr, &shared.tls, case.connections).await?;
    connections.ask(case.file, case.length, case.streams, TRACED).await?;
    let trace = process.trace()?;
    connections.ask(case.file, case.length, case.streams, TRACED).await?;
    let calls = trace.end()? as f64 / TRACED as f64;
    let what = format!("calls that write, for a response of {}: {}", case.size, server.title());
    let row = Row::new(format!("web.writes.{}.{}", case.size, server.name()), what, Unit::Count);
    let row = row.measured(calls);
    Ok(if server == Server::Marcato { row.at_most(WRITES) } else { row })
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
    let (process, addr) = shared.start(Server::Marcato)?;
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
    let (process, addr) = shared.start(Server::Marcato)?;
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
    fn the_bound_is_a_share_of_nginx_as_it_comes() {
        let held = |marcato: f64| {
            let of = |server| {
                Some(match server {
                    Server::Marcato => marcato,
                    Server::Nginx => 10.0,
                    Server::Caching => 7.0,
                })
            };
            let rows =
                processor_rows(&CASES[0], &[Server::Marcato, Server::Nginx, Server::Caching], of, true);
            rows.iter().skip(3).map(|row| (row.id().to_owned(), row.ok())).collect::<Vec<_>>()
        };
        let expected = |ok| {
            vec![("web.cpu.1kB.ratio".to_owned(), Some(ok)), ("web.cpu.1kB.ratio-caching".to_owned(), None)]
        };
        assert_eq!([held(6.0), held(6.1)], [expected(true), expected(false)]);
    }
}
