//! `marcato perf server`: receives data from clients and reports arrival times to them, and sends
//! the data that clients ask for.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use marcato_net::{
    CloseReason, CodePoints, Config, Connection, Endpoint, Limits, LocalAddress, ServerSecurity,
};
use marcato_quic::Identity;
use marcato_report::AtomicFile;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use super::bounds::Bounds;
use super::log::Log;
use super::plan::{EngineName, PlanError};
use super::ports::{Shared, shared_ports};
use super::protocol::{Refusal, Total};
use super::released::lock;
use super::service::{Cut, PATIENCE, Served, refuse, serve_one};
use super::signals::Signals;
use super::{PerfError, SILENCE};
use crate::Status;
use crate::arguments::PerfServer;
use crate::output;

/// Time for which a connection waits for a place. A client that has just ended frees its places
/// within a round trip, and the next one may follow at once.
const PLACE: Duration = Duration::from_secs(1);
/// Time for which a server that ends tells its clients.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn run(asked: &PerfServer, stdout: &mut dyn Write) -> Result<Status, PerfError> {
    if asked.daemon && !asked.detached {
        return super::daemon::start(stdout);
    }
    let mut log = Log::open(asked.logfile.as_deref(), stdout)?;
    let runtime = super::runtime()?;
    let served = runtime.block_on(serve(asked, &mut log));
    served.and_then(|()| log.end()).map(|()| Status::Ok)
}

/// File with the number of this process, which is removed when the server ends.
#[derive(Debug)]
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path) -> Result<Self, PerfError> {
        let written = AtomicFile::write(path, format!("{}\n", std::process::id()));
        written.map_err(|source| PerfError::File { path: path.to_owned(), source })?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Somebody else may have removed it already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the server's certificate: that of the arguments, or else a new self-signed one.
fn identity(asked: &PerfServer) -> Result<Identity, PerfError> {
    let (Some(cert), Some(key)) = (&asked.cert, &asked.key) else {
        return Ok(Identity::self_signed(super::NAME)?);
    };
    Ok(Identity::from_pem_files(cert, key)?)
}

async fn serve(asked: &PerfServer, log: &mut Log<'_>) -> Result<(), PerfError> {
    let mut signals = Signals::listen().map_err(PerfError::Runtime)?;
    let identity = identity(asked)?;
    let fingerprint = identity.fingerprint();
    let security = ServerSecurity::Tls(identity);
    let engines = match asked.engine {
        Some(engine) => vec![engine],
        None => vec![EngineName::Tcp, EngineName::Quic],
    };
    if asked.layered && asked.engine == Some(EngineName::Tcp) {
        return Err(PlanError::LayeredOverTcp.into());
    }
    if let Some(local) = asked.listen.iter().find_map(|lane| lane.local) {
        return Err(PlanError::LocalListen { local }.into());
    }
    let at: Vec<LocalAddress> = if asked.listen.is_empty() {
        LocalAddress::any(asked.port)
    } else {
        super::resolve_all(&asked.listen, asked.port).await?.into_iter().map(LocalAddress::from).collect()
    };
    let listen = async |engine: EngineName, at: Vec<LocalAddress>| {
        let mut config = Config::new(engine.into()).layered(asked.layered && engine == EngineName::Quic);
        config.limits = Limits { queued: asked.backlog, ..config.limits };
        config.coupled = asked.coupled;
        config.marks = asked.marks.then(CodePoints::default);
        config.quic.session.path_scheduler = asked.path_scheduler.into();
        // More connections are accepted than served, so that surplus clients receive a refusal
        // instead of waiting.
        config.quic.session.idle_timeout = SILENCE;
        config.tcp.idle_timeout = SILENCE;
        if engine == EngineName::Quic {
            config.peers.connections = asked.max_clients.saturating_mul(2).saturating_add(16);
        }
        let endpoint = Endpoint::listen(&config, &at, &security).await?;
        let addrs = endpoint.local_addrs().to_vec();
        Ok((endpoint, addrs))
    };
    let Shared { endpoints, at, low_at } = shared_ports(&engines, at, listen).await?;
    let names: Vec<String> = endpoints.iter().map(|(engine, _)| engine.to_string()).collect();
    let mut hello = String::new();
    for addr in &at {
        hello += &format!("listening on {addr} ({})\n", names.join(" and "));
    }
    for addr in &low_at {
        hello += &format!("low lanes at {addr}\n");
    }
    if let Some(fingerprint) = fingerprint {
        hello += &format!("certificate {fingerprint}\n");
        if asked.cert.is_none() {
            let layered = if asked.layered { " --layered" } else { "" };
            hello += &format!("clients: marcato perf client HOST --fingerprint {fingerprint}{layered}\n");
        }
    }
    let _pid_file = asked.pid_file.as_deref().map(PidFile::write).transpose()?;
    if asked.detached {
        // The process that started this one reads the greeting, also if there is a log.
        let end = format!("{}{}\n", super::daemon::PID, std::process::id());
        let shown = format!("{hello}{end}");
        output::print(log.stdout(), &shown).map_err(PerfError::Print)?;
    }
    if !asked.detached || log.is_file() {
        log.write(&hello);
    }

    let places = Arc::new(Semaphore::new(asked.max_clients));
    let runs = Arc::new(Runs::default());
    let (done, mut served) = mpsc::channel::<(String, bool)>(64);
    let endpoints: Vec<_> = endpoints.into_iter().map(|(engine, one)| (engine, Arc::new(one))).collect();
    for (engine, endpoint) in &endpoints {
        let (engine, endpoint) = (*engine, Arc::clone(endpoint));
        let bounds = Bounds {
            duration: asked.max_duration,
            bitrate: asked.max_bitrate.filter(|rate| rate.as_bps() > 0),
            backlog: asked.backlog,
            connections: asked.max_clients,
            path: (engine == EngineName::Quic).then_some(asked.path_scheduler),
        };
        let (places, runs, done) = (Arc::clone(&places), Arc::clone(&runs), done.clone());
        let desk = Arc::new(Desk { engine, bounds, places, runs, served: AtomicU64::new(0), done });
        tokio::spawn(async move {
            while let Ok(connection) = endpoint.accept().await {
                let desk = Arc::clone(&desk);
                tokio::spawn(async move { desk.serve(connection).await });
            }
        });
    }
    drop(done);
    loop {
        tokio::select! {
            line = served.recv() => {
                let Some((line, ended)) = line else { return Ok(()) };
                log.write(&line);
                if ended && asked.once {
                    break;
                }
            }
            () = signals.came() => break,
        }
    }
    // Clients learn at once that the server has ended. Without a close frame, those over QUIC would wait until their
    // idle timeout.
    for (_, endpoint) in &endpoints {
        endpoint.abort_with(CloseReason::new(0, "the server was stopped"));
    }
    let farewell = async {
        // The channel ends with the last client.
        while let Some((line, _)) = served.recv().await {
            log.write(&line);
        }
        for (_, endpoint) in &endpoints {
            endpoint.wait_idle().await;
        }
    };
    // A client that takes nothing more is left.
    let _ = timeout(FAREWELL, farewell).await;
    Ok(())
}

/// State that the connections of one engine share.
struct Desk {
    engine: EngineName,
    bounds: Bounds,
    /// Free places, over all engines.
    places: Arc<Semaphore>,
    runs: Arc<Runs>,
    /// Number of connections that got a place.
    served: AtomicU64,
    /// Lines of the log; set with those that end a run.
    done: mpsc::Sender<(String, bool)>,
}

impl Desk {
    /// Serves a connection, or refuses it if no place becomes free.
    async fn serve(&self, connection: Connection) {
        // The limit of connections bounds those that wait here. Further ones are cut off.
        let Ok(Ok(place)) = timeout(PLACE, Arc::clone(&self.places).acquire_owned()).await else {
            let _ = timeout(PATIENCE, refuse(&connection, Refusal::Busy)).await;
            return;
        };
        let number = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        let who = format!("{} client {number}", self.engine);
        let began = Instant::now();
        let addr = connection.remote_addr();
        let addr = addr.map_or_else(|| "an unknown address".to_owned(), |addr| addr.to_string());
        let _ = self.done.send((format!("{who}: connected from {addr}\n"), false)).await;
        let mut nonce = None;
        let greeted = |hello: &[u8; 16]| {
            self.runs.enter(*hello);
            nonce = Some(*hello);
        };
        let served = serve_one(&connection, &self.bounds, greeted).await;
        let seconds = began.elapsed().as_secs_f64();
        let line = match served {
            Ok(served) => format!("{who}: {addr}, {seconds:.2} s{}\n", words(&served)),
            Err(Cut { error, served }) => {
                let until_then = served.as_ref().map_or_else(String::new, words);
                format!("{who}: {addr}, {seconds:.2} s{until_then}, {error}\n")
            }
        };
        drop(connection);
        drop(place);
        let ended = nonce.is_none_or(|nonce| self.runs.leave(nonce));
        let _ = self.done.send((line, ended)).await;
    }
}

/// Returns what was received and sent, for the log.
fn words(served: &Served) -> String {
    let mut words = String::new();
    if served.connections > 1 {
        // Writing to a string cannot fail.
        let _ = write!(words, ", connection {} of {}", served.number + 1, served.connections);
    }
    let sum = |totals: &[Total]| {
        let messages: u64 = totals.iter().map(|total| total.messages).sum();
        let bytes: u64 = totals.iter().map(|total| total.bytes).sum();
        format!(", {messages} messages, {bytes} bytes")
    };
    match &served.sent {
        None => words + &sum(&served.received),
        Some(sent) if served.received.is_empty() => words + &sum(sent) + " sent",
        Some(sent) => words + &sum(&served.received) + " received" + &sum(sent) + " sent",
    }
}

/// Open connections of each run, by its nonce. The limit of clients bounds their number.
#[derive(Debug, Default)]
struct Runs(Mutex<HashMap<[u8; 16], usize>>);

impl Runs {
    fn enter(&self, nonce: [u8; 16]) {
        *lock(&self.0).entry(nonce).or_default() += 1;
    }

    /// Counts the end of a connection, and returns whether it was the last of its run.
    ///
    /// A client opens all connections before it begins, so the first does not end before the last
    /// has begun.
    fn leave(&self, nonce: [u8; 16]) -> bool {
        let mut runs = lock(&self.0);
        let Some(open) = runs.get_mut(&nonce) else { return true };
        *open -= 1;
        if *open > 0 {
            return false;
        }
        runs.remove(&nonce);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_its_last_connection() {
        let runs = Runs::default();
        let (one, other) = ([1; 16], [2; 16]);
        [one, other, one].into_iter().for_each(|nonce| runs.enter(nonce));
        assert_eq!([runs.leave(one), runs.leave(other), runs.leave(one)], [false, true, true]);
        assert!(lock(&runs.0).is_empty());
    }

    #[test]
    fn the_log_says_what_went_in_each_direction() {
        let total = |messages, bytes| vec![Total { messages, bytes }];
        let mut served = Served { number: 0, connections: 1, received: total(3, 300), sent: None };
        assert_eq!(words(&served), ", 3 messages, 300 bytes");
        served.sent = Some(total(2, 20));
        assert_eq!(words(&served), ", 3 messages, 300 bytes received, 2 messages, 20 bytes sent");
        (served.received, served.number, served.connections) = (vec![], 1, 4);
        assert_eq!(words(&served), ", connection 2 of 4, 2 messages, 20 bytes sent");
    }
}
