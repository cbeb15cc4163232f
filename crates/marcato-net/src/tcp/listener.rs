//! Accepts connections of peers.
//!
//! A handshake begins only if there is room among the connections that the application has not accepted
//! (`backlog`); further peers wait. Handshakes are bounded by the network of the peer.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex};

use marcato_stream::Pool;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::pipe::Pipe;
use super::strangers::{Stranger, Strangers};
use super::{Tcp, hello, prepare};
use crate::config::{Config, LocalAddress};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::{ConfigError, ListenError};
use crate::signal::lock;
use crate::stats::EndpointStats;

/// Pause after the system has refused an incoming connection, usually for lack of file descriptors.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Limit of the peers that wait in the kernel for their handshake.
const BACKLOG: u32 = 1024;

/// Listener at some addresses, until it is dropped.
pub(crate) struct Listener {
    pub(crate) addrs: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    shared: Arc<Acceptor>,
}

/// State shared by all of a listener's tasks.
struct Acceptor {
    config: Config,
    /// Memory in which the messages of all connections are assembled.
    pool: Pool,
    tls: Option<TlsAcceptor>,
    accepted: mpsc::Sender<Connection>,
    /// Set until the listener is dropped.
    open: Mutex<bool>,
    /// Permits left for handshakes and for connections.
    handshakes: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    strangers: Arc<Strangers>,
    admitted: AtomicU64,
    refused: AtomicU64,
    crowded: AtomicU64,
    failed: AtomicU64,
}

impl Drop for Listener {
    fn drop(&mut self) {
        *lock(&self.shared.open) = false;
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Listener {
    pub(crate) async fn new(
        config: &Config,
        at: &[LocalAddress],
        tls: Option<Arc<ServerConfig>>,
        accepted: mpsc::Sender<Connection>,
    ) -> Result<Self, ListenError> {
        // Errors that would affect every connection are reported now.
        super::Sender::<super::Ticket>::new(config.conductor, config.limits).map_err(ConfigError::from)?;
        let semaphore = |most: usize| Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        let shared = Arc::new(Acceptor {
            config: config.clone(),
            pool: Pool::new(config.limits.memory),
            tls: tls.map(TlsAcceptor::from),
            accepted,
            open: Mutex::new(true),
            handshakes: semaphore(config.peers.handshakes),
            connections: semaphore(config.peers.connections),
            strangers: Strangers::new(config.peers.per_address(Engine::Tcp), config.peers.handshakes),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            crowded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let mut listener = Self { addrs: Vec::new(), tasks: Vec::new(), shared };
        for local in at {
            let bind = |source| ListenError::Bind { addr: local.addr, source };
            let socket = listen(local.addr).map_err(bind)?;
            listener.addrs.push(socket.local_addr().map_err(bind)?);
            let shared = Arc::clone(&listener.shared);
            listener.tasks.push(tokio::spawn(async move {
                loop {
                    let Ok(permit) = Arc::clone(&shared.handshakes).acquire_owned().await else { return };
                    let (stream, from) = match socket.accept().await {
                        Ok(accepted) => accepted,
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept");
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                    };
                    let Some(stranger) = shared.strangers.admit(from.ip(), permit) else {
                        shared.crowded.fetch_add(1, Relaxed);
                        tracing::debug!(%from, "too many peers of its network wait for their handshake");
                        continue;
                    };
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { shared.admit(stream, stranger).await });
                }
            }));
        }
        Ok(listener)
    }
}

impl Listener {
    pub(crate) fn observe(&self) -> Arc<dyn Fn() -> EndpointStats + Send + Sync> {
        // For each address, a permit is held by the task that waits for a peer.
        let (shared, waiting) = (Arc::clone(&self.shared), self.tasks.len());
        Arc::new(move || shared.stats(waiting))
    }
}

/// Listens at an address, and only in its own family, so that both can have the same port.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if addr.is_ipv6() {
        SockRef::from(&socket).set_only_v6(true)?;
    }
    // A server that restarts gets its port although old connections linger there.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

impl Acceptor {
    fn stats(&self, waiting: usize) -> EndpointStats {
        let Self { config, handshakes, connections, admitted, refused, crowded, failed, .. } = self;
        let taken = |semaphore: &Semaphore, most: usize| {
            most.clamp(1, Semaphore::MAX_PERMITS).saturating_sub(semaphore.available_permits())
        };
        // A peer releases its permits before it is counted as failed, so the counter is read first.
        let failed = failed.load(Acquire);
        EndpointStats {
            connections: taken(connections, config.peers.connections),
            handshakes: taken(handshakes, config.peers.handshakes).saturating_sub(waiting),
            waiting: self.strangers.waiting(),
            held: self.pool.held(),
            accepted: admitted.load(Relaxed),
            refused: refused.load(Relaxed),
            crowded: crowded.load(Relaxed),
            failed,
            ..EndpointStats::default()
        }
    }
}

impl Acceptor {
    async fn admit(&self, stream: TcpStream, mut stranger: Stranger) {
        let timeout = self.config.peers.handshake_timeout;
        if tokio::time::timeout(timeout, stranger.turn()).await != Ok(true) {
            self.failed.fetch_add(1, Release);
            return;
        }
        // A peer whose handshake completes is sure of a place in the application's queue. Until
        // there is one, it waits before its handshake.
        let seat = match tokio::time::timeout(timeout, self.accepted.clone().reserve_owned()).await {
            Ok(Ok(seat)) => seat,
            Ok(Err(_)) => return,
            Err(_) => {
                self.refused.fetch_add(1, Relaxed);
                tracing::debug!("the application accepts no connections");
                return;
            }
        };
        let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() else {
            self.refused.fetch_add(1, Relaxed);
            tracing::debug!("the maximum number of connections is open");
            return;
        };
        let handshake = handshake(&self.config, self.tls.as_ref(), stream, place, self.pool.clone());
        // A handshake that fails releases its permit here.
        let done = tokio::time::timeout(timeout, handshake).await;
        match done {
            Ok(Some(connection)) => {
                self.admitted.fetch_add(1, Relaxed);
                // An endpoint that has closed takes nothing from the queue any more, so this one ends here.
                let open = lock(&self.open);
                if *open {
                    seat.send(connection);
                }
            }
            Ok(None) | Err(_) => _ = self.failed.fetch_add(1, Release),
        }
    }
}

async fn handshake(
    config: &Config,
    tls: Option<&TlsAcceptor>,
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    pool: Pool,
) -> Option<Connection> {
    prepare(&stream, &config.tcp).ok()?;
    let (stream, pipe) = match tls {
        None => {
            let greeted = hello::exchange(&stream).await;
            greeted.inspect_err(|error| tracing::debug!(%error, "no hello")).ok()?;
            (stream, Pipe::plain())
        }
        Some(tls) => {
            let stream = tls.accept(stream).await;
            let stream = stream.inspect_err(|error| tracing::debug!(%error, "tls handshake failed")).ok()?;
            let (stream, connection) = stream.into_inner();
            // A client that offers no protocol is refused.
            connection.alpn_protocol()?;
            (stream, Pipe::tls(connection.into()))
        }
    };
    Tcp::begin(config, stream, pipe, Some(place), pool).ok()
}
