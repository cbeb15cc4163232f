//! Client whose connections share sockets.

use std::fmt;
use std::net::SocketAddr;

use crate::config::{Config, LocalAddress, Remote};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::{ConfigError, ConnectError, ListenError};
use crate::quic::{ClientSockets, Data};
use crate::tls;

/// QUIC client whose connections share UDP sockets, instead of having one for each lane: for many
/// connections, or for a firewall that lets a certain port pass. Its connections outlive it.
///
/// ```
/// use marcato_net::{Client, ClientSecurity, Config, Endpoint, Engine, Identity, Remote};
/// use marcato_net::{ServerSecurity, Trust};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::new(Engine::Quic);
/// let identity = Identity::self_signed("example")?;
/// let trust = Trust::Certificate(identity.certificate().ok_or("none")?.clone());
/// let local = "127.0.0.1:0".parse::<std::net::SocketAddr>()?;
/// let server = Endpoint::listen(&config, &[local.into()], &ServerSecurity::Tls(identity)).await?;
///
/// let client = Client::bind(&config, &[local.into()])?;
/// let remote = Remote::new(server.local_addrs()[0], ClientSecurity::trusting("example", trust));
/// let (first, second) = (client.connect(&remote).await?, client.connect(&remote).await?);
/// assert_eq!(first.stats().lanes[0].local, second.stats().lanes[0].local);
/// # Ok(())
/// # }
/// ```
pub struct Client {
    config: Config,
    sockets: ClientSockets,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("addrs", &self.local_addrs()).finish_non_exhaustive()
    }
}

impl Client {
    /// Binds the sockets. A connection uses those of the address family and the layer of its lanes,
    /// a different one for each lane.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or not one for QUIC, or the system refuses an address.
    pub fn bind(config: &Config, at: &[LocalAddress]) -> Result<Self, ListenError> {
        config.validate()?;
        if config.engine != Engine::Quic {
            return Err(ConfigError::SharedTcp.into());
        }
        if at.is_empty() {
            return Err(ConfigError::NoAddress.into());
        }
        Ok(Self { config: config.clone(), sockets: ClientSockets::bind(config, at)? })
    }

    /// Returns the addresses of the sockets, with the ports that the system has chosen.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets.addrs()
    }

    /// Connects to a server over all lanes given; returns as soon as the first carries messages.
    ///
    /// If it is cancelled, the attempt ends: a peer that has accepted the connection sees it end.
    ///
    /// # Errors
    ///
    /// If no socket fits a lane, the server cannot be reached or fails authentication.
    pub async fn connect(&self, to: &Remote) -> Result<Connection, ConnectError> {
        self.attempt(to, Data::Ordinary).await
    }

    /// Connects as [`Endpoint::connect_early`](crate::Endpoint::connect_early) does.
    ///
    /// If it is cancelled, the attempt ends: a peer that has accepted the connection sees it end.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect), unless the connection is returned before its
    /// handshake is complete.
    pub async fn connect_early(&self, to: &Remote) -> Result<Connection, ConnectError> {
        self.attempt(to, Data::Early).await
    }

    async fn attempt(&self, to: &Remote, data: Data) -> Result<Connection, ConnectError> {
        tls::renewing(|| self.sockets.connect(&self.config, to, data)).await
    }
}
