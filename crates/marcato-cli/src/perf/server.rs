//! `marcato perf server`: receives data from clients, and reports arrival times to them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use marcato_net::{
    Closed, Config, Connection, Endpoint, Limits, LocalAddress, Message, Received, ServerSecurity,
};
use marcato_quic::Identity;
use marcato_report::AtomicFile;
use marcato_units::{Bytes, Priority};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::cpu::CpuTime;
use super::plan::{EngineName, PlanError};
use super::protocol::{
    Arrival, Hello, MAX_ARRIVALS, Piece, Refusal, Reply, Report, Request, SourceKind, Total,
};
use super::{PerfError, SILENCE, clock};
use crate::Status;
use crate::arguments::PerfServer;
use crate::output;

/// Interval of reports to a client.
const REPORTS: Duration = Duration::from_millis(100);
/// Time limit for a client's first message after connecting, and for its close after the end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest number of partly received messages. One more ends the run.
const MOST_OPEN: usize = 4096;

pub(crate) fn run(asked: &PerfServer, stdout: &mut dyn Write) -> Result<Status, PerfError> {
    if asked.daemon && !asked.detached {
        return super::daemon::start(stdout);
    }
    let mut log = asked.logfile.as_deref().map(super::log).transpose()?;
    let runtime = super::runtime()?;
    runtime.block_on(serve(asked, stdout, log.as_mut()))
}

/// Returns the server's certificate: that of the arguments, or else a new self-signed one.
fn identity(asked: &PerfServer) -> Result<Identity, PerfError> {
    let (Some(cert), Some(key)) = (&asked.cert, &asked.key) else {
        return Ok(Identity::self_signed(super::NAME)?);
    };
    Ok(Identity::from_pem_files(cert, key)?)
}

async fn serve(
    asked: &PerfServer,
    stdout: &mut dyn Write,
    log: Option<&mut File>,
) -> Result<Status, PerfError> {
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
    // Both engines share the ports: the second uses those that the system chose for the first.
    let mut at: Vec<LocalAddress> = if asked.listen.is_empty() {
        LocalAddress::any(asked.port)
    } else {
        super::resolve_all(&asked.listen, asked.port).await?.into_iter().map(LocalAddress::from).collect()
    };
    let mut low_at = Vec::new();
    let mut endpoints = Vec::new();
    for engine in engines {
        let mut config = Config::new(engine.into()).layered(asked.layered && engine == EngineName::Quic);
        // The server sends only reports and short replies, so a small queue suffices.
        config.limits = Limits { queued: Bytes::new(1 << 20), ..config.limits };
        // More connections are accepted than served, so that surplus clients receive a refusal
        // instead of waiting.
        config.quic.session.idle_timeout = SILENCE;
        config.tcp.idle_timeout = SILENCE;
        config.quic.max_connections = asked.max_clients.saturating_mul(2).saturating_add(16);
        let endpoint = Endpoint::listen(&config, &at, &security).await?;
        // The addresses of low lanes follow.
        let (own, low) = endpoint.local_addrs().split_at(at.len());
        low_at = low.to_vec();
        at = own.iter().copied().map(LocalAddress::from).collect();
        endpoints.push((engine, endpoint));
    }
    let names: Vec<String> = endpoints.iter().map(|(engine, _)| engine.to_string()).collect();
    let mut hello = String::new();
    for LocalAddress { addr, .. } in &at {
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
    if let Some(path) = &asked.pid_file {
        let written = AtomicFile::write(path, format!("{}\n", std::process::id()));
        written.map_err(|source| PerfError::File { path: path.clone(), source })?;
    }
    if asked.detached {
        // The process that started this one reads the greeting, also if there is a log.
        let end = format!("{}{}\n", super::daemon::PID, std::process::id());
        let shown = format!("{hello}{end}");
        output::print(stdout, &shown).map_err(PerfError::Print)?;
    }
    let stdout: &mut dyn Write = match log {
        Some(log) => log,
        None => stdout,
    };
    if !asked.detached || asked.logfile.is_some() {
        output::print(stdout, &hello).map_err(PerfError::Print)?;
    }

    let places = Arc::new(Semaphore::new(asked.max_clients));
    let (done, mut served) = mpsc::channel::<(String, bool)>(64);
    for (engine, endpoint) in endpoints {
        let (places, done) = (Arc::clone(&places), done.clone());
        tokio::spawn(async move {
            let mut number = 0u64;
            while let Ok(connection) = endpoint.accept().await {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    // The limit of connections bounds the refusals in progress. Further connections
                    // are cut off.
                    tokio::spawn(async move {
                        let _ = timeout(PATIENCE, refuse(&connection, Refusal::Busy)).await;
                    });
                    continue;
                };
                number += 1;
                let (who, done) = (format!("{engine} client {number}"), done.clone());
                tokio::spawn(async move {
                    let began = Instant::now();
                    let addr = connection.remote_addr();
                    let addr = addr.map_or_else(|| "an unknown address".to_owned(), |addr| addr.to_string());
                    let _ = done.send((format!("{who}: connected from {addr}\n"), false)).await;
                    let served = client(&connection).await;
                    let seconds = began.elapsed().as_secs_f64();
                    let line = match served {
                        Ok(totals) => {
                            let messages: u64 = totals.iter().map(|total| total.messages).sum();
                            let bytes: u64 = totals.iter().map(|total| total.bytes).sum();
                            format!("{who}: {addr}, {seconds:.2} s, {messages} messages, {bytes} bytes\n")
                        }
                        Err(error) => format!("{who}: {addr}, {seconds:.2} s, {error}\n"),
                    };
                    drop(connection);
                    drop(place);
                    let _ = done.send((line, true)).await;
                });
            }
        });
    }
    drop(done);
    while let Some((line, ended)) = served.recv().await {
        output::print(stdout, &line).map_err(PerfError::Print)?;
        if ended && asked.once {
            break;
        }
    }
    Ok(Status::Ok)
}

/// Reason why a client was not served to its end.
#[derive(Debug, thiserror::Error)]
enum ClientError {
    #[error(transparent)]
    Protocol(#[from] super::protocol::ProtocolError),
    #[error("it said something before it said who it is, or twice")]
    Order,
    #[error("it sent data of a source that it has not announced")]
    Source,
    #[error("it left more than {MOST_OPEN} messages unfinished")]
    TooManyOpen,
    #[error("it did not answer in time")]
    Silent,
    #[error(transparent)]
    Closed(#[from] Closed),
    #[error(transparent)]
    Send(#[from] marcato_net::SendError),
}

async fn say(connection: &Connection, reply: &Reply) -> Result<(), marcato_net::SendError> {
    let mut out = Vec::new();
    reply.encode(&mut out);
    connection.send(Message::new(out).with_priority(Priority::P0)).await.map(drop)
}

async fn refuse(connection: &Connection, refusal: Refusal) {
    if say(connection, &Reply::Refused(refusal)).await.is_ok() {
        // The client closes the connection after it has read the refusal.
        let _ = connection.close().await;
    }
}

/// Serves one client to its end.
async fn client(connection: &Connection) -> Result<Vec<Total>, ClientError> {
    let first = timeout(PATIENCE, connection.recv()).await.map_err(|_| ClientError::Silent)??;
    let hello = match Request::decode(&first.bytes) {
        Ok(Request::Hello(hello)) => hello,
        Ok(_) => return Err(ClientError::Order),
        Err(error) => {
            let version = matches!(error, super::protocol::ProtocolError::Version { .. });
            let refusal = if version { Refusal::Version } else { Refusal::Protocol };
            let _ = timeout(PATIENCE, refuse(connection, refusal)).await;
            return Err(error.into());
        }
    };
    let mut book = Book::new(&hello);
    say(connection, &Reply::Welcome { host: clock::host_mark(&hello.nonce) }).await?;
    let mut ticks = interval(REPORTS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            received = connection.recv() => {
                heard = Instant::now();
                match book.take(&received?, clock::now())? {
                    Next::Nothing => {}
                    Next::Say(reply) => say(connection, &reply).await?,
                    Next::End => break,
                }
                // A full report is sent at once, which bounds the memory that a client can claim.
                if book.arrivals.len() >= MAX_ARRIVALS {
                    say(connection, &Reply::Report(book.report(false))).await?;
                }
            }
            _ = ticks.tick() => say(connection, &Reply::Report(book.report(false))).await?,
            () = sleep((heard + SILENCE).saturating_duration_since(Instant::now())) => {
                return Err(ClientError::Silent);
            }
        }
    }
    say(connection, &Reply::Report(book.report(true))).await?;
    let _ = timeout(PATIENCE, connection.closed()).await;
    Ok(book.totals)
}

/// Server's state of a run. A client can grow it to at most [`MOST_OPEN`] messages and
/// [`MAX_ARRIVALS`] arrivals.
struct Book {
    kinds: Vec<SourceKind>,
    /// CPU time of this process when the run began.
    cpu: CpuTime,
    totals: Vec<Total>,
    arrivals: Vec<Arrival>,
    /// Bytes received of each incomplete message.
    open: HashMap<(u8, u64), u64>,
}

/// Action that follows a request.
enum Next {
    Nothing,
    Say(Reply),
    End,
}

impl Book {
    fn new(hello: &Hello) -> Self {
        Self {
            kinds: hello.sources.clone(),
            cpu: CpuTime::now(),
            totals: vec![Total::default(); hello.sources.len()],
            arrivals: Vec::new(),
            open: HashMap::new(),
        }
    }

    fn take(&mut self, received: &Received, at: u64) -> Result<Next, ClientError> {
        match Request::decode(&received.bytes)? {
            Request::Hello(_) => Err(ClientError::Order),
            Request::Ping { number } => {
                Ok(Next::Say(Reply::Pong { number, received: at, answered: clock::now() }))
            }
            Request::Data(piece) => {
                self.piece(piece, received.bytes.len() as u64, at).map(|()| Next::Nothing)
            }
            Request::Finish => Ok(Next::End),
        }
    }

    fn piece(&mut self, piece: Piece, len: u64, at: u64) -> Result<(), ClientError> {
        let source = usize::from(piece.source);
        let total = self.totals.get_mut(source).ok_or(ClientError::Source)?;
        total.bytes += len;
        // The decoder refuses pieces that extend beyond their message, so complete messages have
        // exactly their length.
        if len < piece.total {
            let key = (piece.source, piece.sequence);
            if !self.open.contains_key(&key) && self.open.len() >= MOST_OPEN {
                return Err(ClientError::TooManyOpen);
            }
            let so_far = self.open.entry(key).or_default();
            *so_far += len;
            if *so_far < piece.total {
                return Ok(());
            }
            self.open.remove(&key);
        }
        total.messages += 1;
        if self.kinds[source].each {
            self.arrivals.push(Arrival { source: piece.source, sequence: piece.sequence, at });
        }
        Ok(())
    }

    fn report(&mut self, last: bool) -> Report {
        let arrivals = std::mem::take(&mut self.arrivals);
        let CpuTime { user, system } = CpuTime::now().since(self.cpu);
        let us = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Report {
            at: clock::now(),
            last,
            user: us(user),
            system: us(system),
            totals: self.totals.clone(),
            arrivals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> Book {
        let sources = vec![SourceKind { each: true }, SourceKind { each: false }];
        Book::new(&Hello { nonce: [0; 16], host: [0; 16], sources })
    }

    fn piece(source: u8, sequence: u64, offset: u64, total: u64) -> Piece {
        Piece { source, sequence, offset, total }
    }

    #[test]
    fn a_message_arrives_once_all_its_pieces_have_in_any_order() {
        let mut book = book();
        book.piece(piece(0, 0, 600, 1000), 400, 10).unwrap();
        book.piece(piece(0, 1, 0, 500), 500, 20).unwrap();
        assert_eq!(book.arrivals, [Arrival { source: 0, sequence: 1, at: 20 }]);
        book.piece(piece(0, 0, 0, 1000), 600, 30).unwrap();
        book.piece(piece(1, 0, 0, 64), 64, 40).unwrap();
        let report = book.report(true);
        assert_eq!(report.arrivals.len(), 2, "bulk is counted and not reported");
        assert_eq!(report.totals, [Total { messages: 2, bytes: 1500 }, Total { messages: 1, bytes: 64 }]);
        assert!(book.open.is_empty() && book.report(false).arrivals.is_empty());
    }

    #[test]
    fn what_a_client_can_make_grow_is_bounded() {
        let mut book = book();
        for sequence in 0..MOST_OPEN as u64 {
            book.piece(piece(0, sequence, 0, 100), 50, 0).unwrap();
        }
        assert!(matches!(book.piece(piece(0, 1 << 40, 0, 100), 50, 0), Err(ClientError::TooManyOpen)));
        book.piece(piece(0, 7, 50, 100), 50, 0).unwrap();
        assert!(matches!(book.piece(piece(2, 0, 0, 100), 50, 0), Err(ClientError::Source)));
    }
}
