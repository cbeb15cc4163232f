//! Endpoints, which connect to peers and accept connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{self, Arc, Weak};

use marcato_identity::{Identity, ServerIdentity};
use marcato_stream::CloseReason;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::config::{Config, LocalAddress, Remote, ServerSecurity};
use crate::connect::{connect, connect_early};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::{AcceptError, ConfigError, ConnectError, ListenError, SetIdentityError};
#[cfg(feature = "quic")]
use crate::quic;
use crate::shared::Transport;
use crate::signal::{Signal, lock};
use crate::stats::EndpointStats;
use crate::target::{self, Target};
#[cfg(feature = "tcp")]
use crate::tcp;
use crate::tls;

enum Listener {
    #[cfg(feature = "tcp")]
    Tcp(tcp::Listener),
    #[cfg(feature = "quic")]
    Quic(quic::Listener),
}

/// Server's endpoint, to which peers connect. Accepted connections outlive it, unless it is
/// [closed](Self::close).
pub struct Endpoint {
    addrs: Vec<SocketAddr>,
    accepted: Mutex<mpsc::Receiver<Connection>>,
    /// Listener, until the endpoint is closed.
    listener: sync::Mutex<Option<Listener>>,
    observe: Arc<dyn Fn() -> EndpointStats + Send + Sync>,
    /// Connections that the application has accepted.
    connections: sync::Mutex<Connections>,
    closing: Signal,
    /// Reason for which it was closed.
    reason: sync::Mutex<CloseReason>,
    /// Identity presented, unless there is none of ours.
    identity: Option<Arc<ServerIdentity>>,
    /// Verifier of clients' certificates, unless there is none of ours.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// Clients that resumed a session with a certificate that is no longer accepted.
    stale: Arc<AtomicU64>,
    /// Time at which certificates are checked again, instead of the present.
    #[cfg(test)]
    pub(crate) at: Option<UnixTime>,
}

/// Accepted connections, until they have ended.
#[derive(Default)]
struct Connections {
    all: Vec<Weak<dyn Transport>>,
    /// Length at which those that have ended are removed.
    full: usize,
}

impl Connections {
    fn add(&mut self, connection: &Connection) {
        if self.all.len() >= self.full {
            self.all.retain(|transport| {
                transport.upgrade().is_some_and(|transport| transport.shared().closed().is_none())
            });
            self.full = 2 * self.all.len() + 64;
        }
        self.all.push(connection.downgrade());
    }

    fn open(&self) -> Vec<Arc<dyn Transport>> {
        self.all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("addrs", &self.addrs).finish_non_exhaustive()
    }
}

impl Listener {
    fn observe(&self) -> Arc<dyn Fn() -> EndpointStats + Send + Sync> {
        // Without an engine the type is empty, which a reference to it is not.
        match *self {
            #[cfg(feature = "tcp")]
            Self::Tcp(ref listener) => listener.observe(),
            #[cfg(feature = "quic")]
            Self::Quic(ref listener) => listener.observe(),
        }
    }
}

impl Endpoint {
    /// Lets peers connect to these addresses.
    ///
    /// If it is cancelled, the addresses are free again.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or the system refuses an address.
    pub async fn listen(
        config: &Config,
        at: &[LocalAddress],
        security: &ServerSecurity,
    ) -> Result<Self, ListenError> {
        config.takes_messages()?;
        Self::listen_any(config, at, security).await
    }

    /// Lets peers connect, for messages or plain streams.
    pub(crate) async fn listen_any(
        config: &Config,
        at: &[LocalAddress],
        security: &ServerSecurity,
    ) -> Result<Self, ListenError> {
        config.validate()?;
        if at.is_empty() {
            return Err(ConfigError::NoAddress.into());
        }
        let (sender, accepted) = mpsc::channel(config.peers.backlog.clamp(1, Semaphore::MAX_PERMITS));
        let tls = tls::server(config, security)?;
        let (addrs, listener): (_, Listener) = match config.engine {
            #[cfg(feature = "tcp")]
            Engine::Tcp => {
                let listener = tcp::Listener::new(config, at, tls.config, sender).await?;
                (listener.addrs.clone(), Listener::Tcp(listener))
            }
            #[cfg(feature = "quic")]
            Engine::Quic => {
                let listener = quic::Listener::new(config, at, tls.config, security.identity(), sender)?;
                (listener.addrs.clone(), Listener::Quic(listener))
            }
            #[cfg(not(all(feature = "tcp", feature = "quic")))]
            engine => return Err(ConfigError::NotBuilt { engine }.into()),
        };
        let (load, stale) = (listener.observe(), Arc::new(AtomicU64::new(0)));
        let failed = Arc::clone(&stale);
        let observe = Arc::new(move || {
            let (load, failed) = (load(), failed.load(Relaxed));
            EndpointStats {
                accepted: load.accepted.saturating_sub(failed),
                failed: load.failed + failed,
                ..load
            }
        });
        Ok(Self {
            addrs,
            accepted: Mutex::new(accepted),
            listener: sync::Mutex::new(Some(listener)),
            observe,
            connections: sync::Mutex::default(),
            closing: Signal::default(),
            reason: sync::Mutex::default(),
            identity: tls.identity,
            clients: tls.clients,
            stale,
            #[cfg(test)]
            at: None,
        })
    }

    /// Connects to a server: to a [`Remote`] over all lanes given, or by its name and port
    /// (`"example.com:4433"`, or [`Named`](crate::Named)) over one. Returns as soon as the first
    /// lane carries messages.
    ///
    /// If it is cancelled, the attempt ends: a peer that has accepted the connection sees it end.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, the server cannot be reached or fails authentication.
    pub async fn connect(config: &Config, to: impl Into<Target>) -> Result<Connection, ConnectError> {
        config.takes_messages()?;
        Self::connect_any(config, to.into()).await
    }

    /// Connects for messages or plain streams.
    pub(crate) async fn connect_any(config: &Config, to: Target) -> Result<Connection, ConnectError> {
        match to {
            Target::Remote(remote) => connect(config, &remote).await,
            Target::Named(named) => target::connect(config, &named).await,
        }
    }

    /// Connects like [`connect`](Self::connect), but returns at once if the session of an earlier
    /// connection can be resumed with early data (0-RTT). Messages marked
    /// [idempotent](crate::Message::idempotent) then leave with the first packets, a round trip
    /// earlier. All others wait for the handshake: [`Connection::send`] queues them after it, and
    /// [`Connection::try_send`] returns [`SendError::Busy`](crate::SendError::Busy) before.
    ///
    /// **An attacker can replay early messages** (RFC 8446 §8, RFC 9001 §9.2), so the server has to
    /// allow them ([`QuicConfig::early_data`](crate::QuicConfig::early_data)) and sees which they
    /// are ([`Received::early`](crate::Received::early)). What it rejects is sent again after the
    /// handshake, and its application gets it once.
    ///
    /// The certificates of the earlier handshakes are checked again before early data leaves. If
    /// the handshake fails, the connection ends, as its handles report ([`Connection::closed`]);
    /// [`Connection::established`] waits for it. Over TCP, with
    /// [custom](crate::ClientSecurity::Custom) configurations, without tickets, and with servers
    /// that allow no early data, this waits for the handshake as [`connect`](Self::connect) does.
    ///
    /// ```
    /// # use marcato_net::{
    /// #     ClientSecurity, Config, Endpoint, Engine, Identity, Message, Remote, ServerSecurity, Trust,
    /// # };
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let identity = Identity::self_signed("news.example")?;
    /// # let trust = Trust::Certificate(identity.certificate().ok_or("it has one")?.clone());
    /// let mut config = Config::new(Engine::Quic);
    /// // At the server.
    /// config.quic.early_data = true;
    /// # let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// # let server = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
    /// # let remote =
    /// #     Remote::new(server.local_addrs()[0], ClientSecurity::trusting("news.example", trust));
    ///
    /// // The first connection brings tickets.
    /// let first = Endpoint::connect_early(&config, &remote).await?;
    /// # let accepted = server.accept().await?;
    /// first.send(Message::new("hello")).await?.acknowledged().await?;
    ///
    /// let second = Endpoint::connect_early(&config, &remote).await?;
    /// let mut lookup = second.send(Message::new("today's news?").idempotent()).await?;
    /// let accepted = server.accept().await?;
    /// assert!(accepted.recv().await?.early);
    /// lookup.acknowledged().await?;
    /// assert_eq!(second.stats().early.accepted, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If it is cancelled, the attempt ends: a peer that has accepted the connection sees it end.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect), unless the connection is returned before its
    /// handshake is complete.
    pub async fn connect_early(config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
        config.takes_messages()?;
        connect_early(config, to).await
    }

    /// Returns the addresses that peers can connect to, with the ports that the system has chosen.
    /// Those for low lanes because of [`QuicConfig::layered`](crate::QuicConfig::layered) follow.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Presents another identity in handshakes that begin from now on, for example with a renewed
    /// certificate. Connections go on.
    ///
    /// ```
    /// use marcato_net::{Config, Endpoint, Identity, ServerSecurity};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let identity = Identity::self_signed("chat.example")?;
    /// let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// let server = Endpoint::listen(&Config::default(), &at, &ServerSecurity::Tls(identity)).await?;
    /// // Months later, perhaps with `Identity::from_pem_files`:
    /// server.set_identity(&Identity::self_signed("chat.example")?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the identity cannot be used, or the endpoint has none that could be replaced. Nothing
    /// changes then.
    pub fn set_identity(&self, identity: &Identity) -> Result<(), SetIdentityError> {
        let presented = self.identity.as_ref().ok_or(SetIdentityError::NoIdentity)?;
        Ok(presented.replace(identity)?)
    }

    /// Returns the counters and current load.
    pub fn stats(&self) -> EndpointStats {
        (self.observe)()
    }

    /// Returns a function that reads the statistics, even after the endpoint was dropped.
    #[cfg(feature = "metrics")]
    pub(crate) fn observe(&self) -> Arc<dyn Fn() -> EndpointStats + Send + Sync> {
        Arc::clone(&self.observe)
    }

    /// Waits for the next peer that connects. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the endpoint is [closed](Self::close).
    pub async fn accept(&self) -> Result<Connection, AcceptError> {
        loop {
            let connection = self.next().await?;
            if self.admits(&connection) {
                return Ok(connection);
            }
            tracing::debug!("the certificate of a resumed session is no longer accepted");
            // A handshake that is not complete fails now, and counts as such anyway.
            if !connection.transport().is_early() {
                self.stale.fetch_add(1, Relaxed);
            }
            // In a full handshake, the client learns the reason.
            if let Some(identity) = &self.identity {
                identity.forget_sessions();
            }
            connection.abort();
        }
    }

    /// Returns whether the certificate of a client is accepted now.
    fn admits(&self, connection: &Connection) -> bool {
        let handshake = connection.transport().shared().handshake.get();
        let (Some(clients), Some(handshake)) = (&self.clients, handshake) else { return true };
        #[cfg(test)]
        let now = self.at.unwrap_or_else(UnixTime::now);
        #[cfg(not(test))]
        let now = UnixTime::now();
        tls::is_accepted(&**clients, handshake, now)
    }

    /// Waits for the next peer that has connected.
    async fn next(&self) -> Result<Connection, AcceptError> {
        let next = async { self.accepted.lock().await.recv().await };
        let closed = self.closing.wait_for(|| lock(&self.listener).is_none().then_some(()));
        let connection = tokio::select! {
            biased;
            () = closed => None,
            next = next => next,
        };
        let Some(connection) = connection else {
            // This waited in the queue when the endpoint was closed.
            self.disconnect_unaccepted();
            return Err(AcceptError::Closed);
        };
        connection.transport().accepted();
        let mut connections = lock(&self.connections);
        connections.add(&connection);
        // The endpoint may have been closed meanwhile.
        if lock(&self.listener).is_none() {
            connection.transport().close(lock(&self.reason).clone());
        }
        Ok(connection)
    }

    /// Closes the endpoint: no more peers are accepted, and every accepted connection ends once
    /// everything sent on it has been delivered, as by [`Connection::close`]. Peers that were not
    /// accepted yet are disconnected. [`wait_idle`](Self::wait_idle) waits for the end of all.
    ///
    /// ```
    /// # use marcato_net::{Config, Endpoint, Identity, ServerSecurity};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// # let security = ServerSecurity::Tls(Identity::self_signed("localhost")?);
    /// let server = Endpoint::listen(&Config::default(), &at, &security).await?;
    /// server.close();
    /// let ended = tokio::time::timeout(std::time::Duration::from_secs(30), server.wait_idle());
    /// if ended.await.is_err() {
    ///     // Peers that take nothing more.
    ///     server.abort();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self) {
        self.close_with(CloseReason::default());
    }

    /// Closes the endpoint as [`close`](Self::close) does, and gives the applications of its peers
    /// this reason.
    pub fn close_with(&self, reason: CloseReason) {
        self.stop(&reason);
        lock(&self.connections).open().iter().for_each(|transport| transport.close(reason.clone()));
    }

    /// Accepts no more peers, and disconnects those that were not accepted yet.
    fn stop(&self, reason: &CloseReason) {
        lock(&self.reason).clone_from(reason);
        *lock(&self.listener) = None;
        self.closing.notify_waiters();
        self.disconnect_unaccepted();
    }

    /// Disconnects the peers that wait to be accepted, unless a task waits for them: it does so then.
    fn disconnect_unaccepted(&self) {
        if let Ok(mut accepted) = self.accepted.try_lock() {
            accepted.close();
            while accepted.try_recv().is_ok() {}
        }
    }

    /// Closes the endpoint, and ends every accepted connection at once. Undelivered messages may be
    /// lost.
    pub fn abort(&self) {
        self.end(None);
    }

    /// Aborts the endpoint as [`abort`](Self::abort) does, and gives the applications of its peers
    /// this reason.
    pub fn abort_with(&self, reason: CloseReason) {
        self.end(Some(reason));
    }

    /// Ends the endpoint and its connections of plain streams at once.
    #[cfg(feature = "quic")]
    pub(crate) fn close_plain(&self, code: u64, reason: &[u8]) {
        self.stop(&CloseReason::default());
        for transport in lock(&self.connections).open() {
            if let Some(streams) = transport.streams() {
                streams.close(code, reason);
            }
        }
    }

    fn end(&self, reason: Option<CloseReason>) {
        self.stop(&reason.clone().unwrap_or_default());
        lock(&self.connections).open().iter().for_each(|transport| transport.abort(reason.clone()));
    }

    /// Waits until every connection accepted so far has ended.
    ///
    /// It can be called again, and cancelling loses nothing.
    pub async fn wait_idle(&self) {
        let open = lock(&self.connections).open();
        for transport in open {
            let shared = transport.shared();
            shared.readable.wait_for(|| shared.closed()).await;
        }
    }
}
