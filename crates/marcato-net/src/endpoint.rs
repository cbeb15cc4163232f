//! Endpoints, which connect to peers and accept connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use marcato_units::Bytes;
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::config::{Config, Engine, LocalAddress, Remote, ServerSecurity};
use crate::connection::Connection;
use crate::error::{AcceptError, ConfigError, ConnectError, ListenError};
#[cfg(feature = "quic")]
use crate::quic;
use crate::target::{self, Target};
#[cfg(feature = "tcp")]
use crate::tcp;

enum Listener {
    #[cfg(feature = "tcp")]
    Tcp(tcp::Listener),
    #[cfg(feature = "quic")]
    Quic(quic::Listener),
}

/// Counters and current load of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Current connections.
    pub connections: usize,
    /// Handshakes in progress.
    pub handshakes: usize,
    /// Bytes of received data that the connections hold.
    pub held: Bytes,
    /// Peers accepted.
    pub accepted: u64,
    /// Peers refused because of the limit of connections.
    pub refused: u64,
    /// Peers refused because too many of their address were in their handshake, or waited for it.
    pub crowded: u64,
    /// Peers asked to prove that they receive packets at their address. Only over QUIC.
    pub retried: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Datagrams that belonged to no connection and began none. Only over QUIC.
    pub stray: u64,
}

/// Server's endpoint, to which peers connect. Accepted connections outlive it.
pub struct Endpoint {
    addrs: Vec<SocketAddr>,
    accepted: Mutex<mpsc::Receiver<Connection>>,
    listener: Listener,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("addrs", &self.addrs).finish_non_exhaustive()
    }
}

impl Config {
    fn validate(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        for (limit, zero) in [
            ("queued", limits.queued.is_zero()),
            ("unfinished", limits.unfinished == 0),
            ("max_message", limits.max_message.is_zero()),
            ("open_messages", limits.open_messages == 0),
            ("streamed", limits.streamed.is_zero()),
            ("open", limits.open.is_zero()),
            ("unread", limits.unread.is_zero()),
            ("unread_messages", limits.unread_messages == 0),
            ("memory", limits.memory.is_zero()),
            ("receipts", limits.receipts == 0),
        ] {
            if zero {
                return Err(ConfigError::Zero { limit });
            }
        }
        #[cfg(feature = "quic")]
        if self.quic.layered && self.engine == Engine::Tcp {
            return Err(ConfigError::LayeredTcp);
        }
        Ok(())
    }
}

/// Connects over all lanes of `to`.
pub(crate) async fn connect(config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
    config.validate()?;
    match config.engine {
        #[cfg(feature = "tcp")]
        Engine::Tcp => tcp::connect(config, to).await,
        #[cfg(feature = "quic")]
        Engine::Quic => quic::connect(config, to).await,
        #[cfg(not(all(feature = "tcp", feature = "quic")))]
        engine => Err(ConfigError::NotBuilt { engine }.into()),
    }
}

impl Endpoint {
    /// Lets peers connect to these addresses.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or the system refuses an address.
    pub async fn listen(
        config: &Config,
        at: &[LocalAddress],
        security: &ServerSecurity,
    ) -> Result<Self, ListenError> {
        config.validate()?;
        if at.is_empty() {
            return Err(ConfigError::NoAddress.into());
        }
        let backlog = match config.engine {
            #[cfg(feature = "tcp")]
            Engine::Tcp => config.tcp.backlog,
            #[cfg(feature = "quic")]
            Engine::Quic => config.quic.backlog,
            #[cfg(not(all(feature = "tcp", feature = "quic")))]
            engine => return Err(ConfigError::NotBuilt { engine }.into()),
        };
        let (sender, accepted) = mpsc::channel(backlog.clamp(1, Semaphore::MAX_PERMITS));
        let (addrs, listener) = match config.engine {
            #[cfg(feature = "tcp")]
            Engine::Tcp => {
                let listener = tcp::Listener::new(config, at, security, sender).await?;
                (listener.addrs.clone(), Listener::Tcp(listener))
            }
            #[cfg(feature = "quic")]
            Engine::Quic => {
                let listener = quic::Listener::new(config, at, security, sender)?;
                (listener.addrs.clone(), Listener::Quic(listener))
            }
            #[cfg(not(all(feature = "tcp", feature = "quic")))]
            engine => return Err(ConfigError::NotBuilt { engine }.into()),
        };
        Ok(Self { addrs, accepted: Mutex::new(accepted), listener })
    }

    /// Connects to a server: to a [`Remote`] over all lanes given, or by its name and port
    /// (`"example.com:4433"`, or [`Named`](crate::Named)) over one. Returns as soon as the first
    /// lane carries messages.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, the server cannot be reached or fails authentication.
    pub async fn connect(config: &Config, to: impl Into<Target>) -> Result<Connection, ConnectError> {
        match to.into() {
            Target::Remote(remote) => connect(config, &remote).await,
            Target::Named(named) => target::connect(config, &named).await,
        }
    }

    /// Returns the addresses that peers can connect to, with the ports that the system has chosen.
    /// Those for low lanes because of [`QuicConfig::layered`](crate::QuicConfig::layered) follow.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Returns the counters and current load.
    pub fn stats(&self) -> EndpointStats {
        self.observe()()
    }

    /// Returns a function that reads the statistics, even after the endpoint was dropped.
    pub(crate) fn observe(&self) -> Arc<dyn Fn() -> EndpointStats + Send + Sync> {
        match self.listener {
            #[cfg(feature = "tcp")]
            Listener::Tcp(ref listener) => listener.observe(),
            #[cfg(feature = "quic")]
            Listener::Quic(ref listener) => listener.observe(),
        }
    }

    /// Waits for the next peer that connects. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the endpoint accepts no more connections.
    pub async fn accept(&self) -> Result<Connection, AcceptError> {
        self.accepted.lock().await.recv().await.ok_or(AcceptError::Closed)
    }
}
