//! Lets peers in.

use std::net::SocketAddr;
use std::sync::Arc;

use marcato_quic::Identity;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::pipe::Pipe;
use super::{Tcp, prepare};
use crate::config::{Config, LocalAddress, ServerSecurity};
use crate::connection::Connection;
use crate::error::{ConfigError, ListenError};

/// After the system has refused to let a peer in, for want of file descriptors as a rule, it is left alone as long.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Accepts connections at some addresses, until it is dropped.
pub(crate) struct Listener {
    pub(crate) addrs: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Listener {
    pub(crate) async fn new(
        config: &Config,
        at: &[LocalAddress],
        security: &ServerSecurity,
        accepted: mpsc::Sender<Connection>,
    ) -> Result<Self, ListenError> {
        // Whatever would fail for each connection fails now.
        super::Sender::new(config).map_err(ConfigError::from)?;
        let tls = match security {
            ServerSecurity::Plaintext => None,
            ServerSecurity::Tls(identity) => Some(TlsAcceptor::from(server_tls(identity)?)),
        };
        let config = Arc::new(config.clone());
        let permits = Arc::new(Semaphore::new(config.tcp.max_handshakes.clamp(1, Semaphore::MAX_PERMITS)));
        let mut listener = Self { addrs: Vec::new(), tasks: Vec::new() };
        for local in at {
            let bind = |source| ListenError::Bind { addr: local.addr, source };
            let socket = TcpListener::bind(local.addr).await.map_err(bind)?;
            listener.addrs.push(socket.local_addr().map_err(bind)?);
            let (config, tls) = (Arc::clone(&config), tls.clone());
            let (permits, accepted) = (Arc::clone(&permits), accepted.clone());
            listener.tasks.push(tokio::spawn(async move {
                loop {
                    let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                    let stream = match socket.accept().await {
                        Ok((stream, _)) => stream,
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept");
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                    };
                    let (config, tls, accepted) = (Arc::clone(&config), tls.clone(), accepted.clone());
                    tokio::spawn(async move {
                        let timeout = config.tcp.handshake_timeout;
                        let done = tokio::time::timeout(timeout, shake_hands(&config, tls, stream)).await;
                        if let Ok(Some(connection)) = done {
                            // If nobody accepts any more, the connection ends here.
                            let _ = accepted.send(connection).await;
                        }
                        drop(permit);
                    });
                }
            }));
        }
        Ok(listener)
    }
}

async fn shake_hands(config: &Config, tls: Option<TlsAcceptor>, stream: TcpStream) -> Option<Connection> {
    prepare(&stream, &config.tcp).ok()?;
    let (stream, pipe) = match tls {
        None => (stream, Pipe::plain()),
        Some(tls) => {
            let stream = tls.accept(stream).await;
            let stream = stream.inspect_err(|error| tracing::debug!(%error, "tls handshake failed")).ok()?;
            let (stream, connection) = stream.into_inner();
            if connection.alpn_protocol() != Some(marcato_wire::ALPN) {
                return None;
            }
            (stream, Pipe::tls(connection.into()))
        }
    };
    Tcp::begin(config, stream, pipe).ok()
}

fn server_tls(identity: &Identity) -> Result<Arc<ServerConfig>, ConfigError> {
    let (chain, key) = identity.parts();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
    Ok(Arc::new(tls))
}
