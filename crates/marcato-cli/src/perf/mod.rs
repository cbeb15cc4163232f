//! `marcato perf`: a generator of periodic messages and background data (CWR §III-A), with its
//! measurements, in either direction or both.

mod book;
mod bounds;
mod client;
mod clock;
mod cpu;
mod daemon;
mod direction;
mod generator;
mod interval;
mod lane;
pub mod load;
mod log;
mod measured;
mod outcome;
pub(crate) mod plan;
mod ports;
pub mod protocol;
pub(crate) mod quantity;
mod released;
pub mod scheduler;
mod send;
mod server;
mod service;
mod signals;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use marcato_net::{Closed, ConnectError, ListenError, ReserveError, SendError};
use marcato_quic::IdentityError;
use marcato_report::WriteError;
use thiserror::Error;
use tokio::runtime::Runtime;

pub(crate) use client::{backlog, fingerprint, idle_timeout, run as client};
pub(crate) use interval::interval;
pub(crate) use server::run as server;

/// Longest silence that either end tolerates. A server reports ten times a second, and a client
/// exchanges clock readings even if its sources are slow.
///
/// The engines have the same timeout, so that the application notices first and reports the reason.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

/// Name in a server's self-signed certificate.
const NAME: &str = "marcato-perf";

/// Error that prevents a result.
#[derive(Debug, Error)]
pub(crate) enum PerfError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    #[error("cannot start: {0}")]
    Runtime(io::Error),
    #[error("the server in the background has ended: {0}")]
    Daemon(String),
    #[error("`{name}` has no address: {source}")]
    Resolve { name: String, source: io::Error },
    #[error(transparent)]
    Pem(#[from] marcato_net::PemError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{0}; choose another address or port with --listen, or stop the program that uses this one")]
    Listen(#[from] ListenError),
    #[error(
        "{addr} does not speak tls: check that `marcato perf server` runs there, and name its port with --port"
    )]
    NotPerf { addr: SocketAddr },
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Connect(#[from] ConnectError),
    #[error(
        "no low lane to {server} could be opened: start its `marcato perf server` with --layered, and \
         allow udp port {port} in both directions; a network may also drop packets marked DSCP LE"
    )]
    NoLowLane { server: String, port: u16 },
    #[error("{0}")]
    Refused(String),
    #[error("the data of {server} is wrong: {error}")]
    Data { server: String, error: book::BookError },
    #[error("{server} accepts the connection but sends nothing: check that it runs `marcato perf server`")]
    Silent { server: String },
    #[error("the connection ended before the run did: {0}")]
    Lost(#[from] Closed),
    #[error(
        "nothing was received from {server} for {idle}: check that it still runs and that the network \
         reaches it, or raise --idle-timeout"
    )]
    Quiet { server: String, idle: String },
    #[error("{server} did not confirm that it has received everything")]
    Unconfirmed { server: String },
    #[error("interrupted")]
    Interrupted,
    #[error("interrupted before anything was measured: nothing was written")]
    NothingMeasured,
    #[error("the run is incomplete: {0}")]
    Incomplete(String),
    #[error("cannot send: {0}")]
    Send(#[from] SendError),
    #[error("cannot send: {0}")]
    Generator(#[from] generator::GeneratorError),
    #[error("cannot reserve room for the sources: {0}")]
    Reserve(#[from] ReserveError),
    #[error("the server's answer is wrong: {0}")]
    Protocol(#[from] protocol::ProtocolError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot write `{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Print(io::Error),
}

/// Part of the engine's error for a certificate other than the pinned one.
const MISMATCH: &str = "was expected";

/// Returns advice for a connection that could not be established.
fn remedy(error: &ConnectError) -> &'static str {
    let text = error.to_string();
    if text.contains(MISMATCH) {
        "; compare it with the fingerprint that the server printed: without --cert the server makes a new certificate at each start"
    } else if text.contains("certificate") {
        "; name the server's certificate with --fingerprint (the server prints it) or --ca FILE"
    } else if matches!(error, ConnectError::Config(_) | ConnectError::Bind { .. }) {
        ""
    } else {
        "; check that `marcato perf server` runs there with the same --engine, and that no firewall blocks it"
    }
}

pub(crate) fn runtime() -> Result<Runtime, PerfError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(PerfError::Runtime)
}

/// Returns the first address of a name.
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, PerfError> {
    let failed = |source| PerfError::Resolve { name: host.to_owned(), source };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(failed)?;
    let mut addr = found.next().ok_or_else(|| failed(io::Error::from(io::ErrorKind::NotFound)))?;
    if let SocketAddr::V6(addr) = &mut addr
        && !addr.ip().is_unicast_link_local()
    {
        // Only link-local addresses have zones. Packets from others come without, as if from another server.
        addr.set_scope_id(0);
    }
    Ok(addr)
}

async fn resolve_all(lanes: &[plan::LaneSpec], port: u16) -> Result<Vec<SocketAddr>, PerfError> {
    let mut addrs = Vec::new();
    for lane in lanes {
        let (host, port) = lane.host_port(port).map_err(PerfError::Usage)?;
        addrs.push(resolve(&host, port).await?);
    }
    Ok(addrs)
}
