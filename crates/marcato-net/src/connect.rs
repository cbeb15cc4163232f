//! Connecting to a server by the addresses of its lanes.

use crate::config::{Config, Remote};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::ConnectError;
#[cfg(feature = "quic")]
use crate::quic;
#[cfg(feature = "tcp")]
use crate::tcp;
use crate::tls;

/// Connects over all lanes of `to`.
pub(crate) async fn connect(config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
    config.validate()?;
    tls::renewing(|| attempt(config, to)).await
}

/// Connects over all lanes of `to`, with early data if possible.
pub(crate) async fn connect_early(config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
    #[cfg(feature = "quic")]
    if config.engine == Engine::Quic {
        config.validate()?;
        return tls::renewing(|| quic::connect(config, to, quic::Data::Early)).await;
    }
    connect(config, to).await
}

async fn attempt(config: &Config, to: &Remote) -> Result<Connection, ConnectError> {
    match config.engine {
        #[cfg(feature = "tcp")]
        Engine::Tcp => tcp::connect(config, to).await,
        #[cfg(feature = "quic")]
        Engine::Quic => quic::connect(config, to, quic::Data::Ordinary).await,
        #[cfg(not(all(feature = "tcp", feature = "quic")))]
        engine => Err(crate::error::ConfigError::NotBuilt { engine }.into()),
    }
}
