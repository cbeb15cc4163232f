//! Where connections come from.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use crate::config::{Config, Engine, LocalAddress, Remote, ServerSecurity};
use crate::connection::Connection;
use crate::error::{AcceptError, ConfigError, ConnectError, ListenError};
use crate::{quic, tcp};

/// Connections that wait to be accepted; beyond them, handshakes wait.
const BACKLOG: usize = 128;

enum Listener {
    Tcp(tcp::Listener),
    Quic(quic::Listener),
}

/// What an endpoint has seen, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections that there are.
    pub connections: usize,
    /// Handshakes that are under way.
    pub handshakes: usize,
    /// Peers that were let in.
    pub accepted: u64,
    /// Peers that were refused because there were as many connections as may be.
    pub refused: u64,
    /// Peers that were asked to show that they receive what is sent to their address. Only over QUIC.
    pub retried: u64,
    /// Handshakes that came to nothing.
    pub failed: u64,
    /// Datagrams that belonged to no connection and began none. Only over QUIC.
    pub stray: u64,
}

/// Where peers connect to. Connections that were accepted outlive it.
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
            ("receipts", limits.receipts == 0),
        ] {
            if zero {
                return Err(ConfigError::Zero { limit });
            }
        }
        if self.quic.layered && self.engine == Engine::Tcp {
            return Err(ConfigError::LayeredTcp);
        }
        Ok(())
    }
}

impl Endpoint {
    /// Lets peers connect to these addresses.
    ///
    /// # Errors
    ///
    /// If the configuration cannot be used or the system refuses an address.
    pub async fn listen(
        config: &Config,
        at: &[LocalAddress],
        security: &ServerSecurity,
    ) -> Result<Self, ListenError> {
        config.validate()?;
        if at.is_empty() {
            return Err(ConfigError::NoAddress.into());
        }
        let (sender, accepted) = mpsc::channel(BACKLOG);
        let (addrs, listener) = match config.engine {
            Engine::Tcp => {
                let listener = tcp::Listener::new(config, at, security, sender).await?;
                (listener.addrs.clone(), Listener::Tcp(listener))
            }
            Engine::Quic => {
                let listener = quic::Listener::new(config, at, security, sender)?;
                (listener.addrs.clone(), Listener::Quic(listener))
            }
        };
        Ok(Self { addrs, accepted: Mutex::new(accepted), listener })
    }

    /// Connects to a server, over all lanes that are given; returns as soon as the first carries messages.
    ///
    /// # Errors
    ///
    /// If the configuration cannot be used, the server cannot be reached or is not the one that was asked for.
    pub async fn connect(config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
        config.validate()?;
        match config.engine {
            Engine::Tcp => tcp::connect(config, to).await,
            Engine::Quic => quic::connect(config, to).await,
        }
    }

    /// The addresses that peers can connect to, with the ports that the system has chosen; after them those that are for
    /// low lanes because of [`QuicConfig::layered`](crate::QuicConfig::layered).
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// What the endpoint has seen, and what it holds.
    pub fn stats(&self) -> EndpointStats {
        self.observe()()
    }

    /// To look at it, also when it has been dropped.
    pub(crate) fn observe(&self) -> Arc<dyn Fn() -> EndpointStats + Send + Sync> {
        match &self.listener {
            Listener::Tcp(listener) => listener.observe(),
            Listener::Quic(listener) => listener.observe(),
        }
    }

    /// The next peer that has connected. It can be cancelled without loss.
    ///
    /// # Errors
    ///
    /// If the endpoint lets nobody in any more.
    pub async fn accept(&self) -> Result<Connection, AcceptError> {
        self.accepted.lock().await.recv().await.ok_or(AcceptError::Closed)
    }
}
