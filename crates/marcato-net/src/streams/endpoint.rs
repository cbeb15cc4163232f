//! Endpoint of plain streams.

use std::net::SocketAddr;

use marcato_quic::Protocol;
use marcato_quic::streams::StreamsConfig as SessionStreams;

use super::connection::Connection;
use crate::config::{Config, LocalAddress, ServerSecurity};
use crate::endpoint::Endpoint as Inner;
use crate::engine::Engine;
use crate::error::{AcceptError, ConfigError, ConnectError, ListenError};
use crate::stats::EndpointStats;
use crate::target::Target;

/// Configuration of plain streams.
#[derive(Clone, Debug)]
pub struct StreamsConfig {
    /// Settings of the connection that are not about messages: coupled mode, limits of peers, QUIC. The
    /// engine, the protocols and the sessions' protocol are replaced by what this configuration says.
    pub transport: Config,
    /// Application protocol, limits and order of the streams.
    pub streams: SessionStreams,
}

impl StreamsConfig {
    /// Creates the default configuration for an application protocol of this name (RFC 7301).
    pub fn new(alpn: impl Into<Vec<u8>>) -> Self {
        Self { transport: Config::new(Engine::Quic), streams: SessionStreams::new(alpn) }
    }

    /// Returns the transport's configuration, with the streams in it.
    fn merged(&self) -> Config {
        let mut config = self.transport.clone();
        config.engine = Engine::Quic;
        config.alpn.clone_from(&self.streams.alpn);
        // Early data needs the application's consent, and streams have no way to give it.
        config.quic.early_data = false;
        config.quic.session.protocol = Protocol::Streams(Box::new(self.streams.clone()));
        config
    }
}

/// Server's endpoint of plain streams. Accepted connections outlive it, unless it is [closed](Self::close).
#[derive(Debug)]
pub struct Endpoint(Inner);

impl Endpoint {
    /// Lets peers connect to these addresses.
    ///
    /// If it is cancelled, the addresses are free again.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or the system refuses an address.
    pub async fn listen(
        config: &StreamsConfig,
        at: &[LocalAddress],
        security: &ServerSecurity,
    ) -> Result<Self, ListenError> {
        Inner::listen_any(&config.merged(), at, security).await.map(Self)
    }

    /// Connects to a server: to a [`Remote`](crate::Remote), or by its name and port (`"example.com:443"`).
    ///
    /// If it is cancelled, the attempt ends.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, the server cannot be reached or fails authentication.
    pub async fn connect(config: &StreamsConfig, to: impl Into<Target>) -> Result<Connection, ConnectError> {
        let connection = Inner::connect_any(&config.merged(), to.into()).await?;
        Connection::new(connection).ok_or_else(|| ConfigError::PlaintextQuic.into())
    }

    /// Waits for the next connection. Cancelling loses none.
    ///
    /// # Errors
    ///
    /// If the endpoint is closed.
    pub async fn accept(&self) -> Result<Connection, AcceptError> {
        loop {
            if let Some(connection) = Connection::new(self.0.accept().await?) {
                return Ok(connection);
            }
        }
    }

    /// Addresses at which peers connect.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.0.local_addrs()
    }

    /// Returns the counters.
    pub fn stats(&self) -> EndpointStats {
        self.0.stats()
    }

    /// Accepts no more peers, and closes the accepted connections with this code and reason.
    pub fn close(&self, code: u64, reason: &[u8]) {
        self.0.close_plain(code, reason);
    }
}
