//! Connections to an upstream.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use marcato_units::Duration;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::config::{ProxyConfig, Roots};
use super::error::ProxyError;
use super::upload::{BoxError, Outbound};
use super::upstream::{Scheme, Target};
use crate::proxy_header::{ProxyHeader, ProxyVersion};

/// Bytes that are read ahead of a body over HTTP/1.1, unless a head may be larger: 64 KiB.
const READ_AHEAD: usize = 64 * 1024;
/// Flow-control window of a response over HTTP/2: 256 KiB, as much as is read ahead of its client.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Largest flow-control window (RFC 9113 §6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// Use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Requests, over either version.
    Requests,
    /// A request that upgrades, which HTTP/1.1 alone has.
    Upgrade,
}

/// Sender of requests over a new connection.
pub(super) enum Connected {
    Http1(http1::SendRequest<Outbound>),
    Http2(http2::SendRequest<Outbound>),
}

/// Maker of connections to one upstream.
pub(super) struct Connector {
    scheme: Scheme,
    uri: Uri,
    tcp: HttpConnector,
    /// Path of a Unix socket, in place of an address.
    socket: Option<PathBuf>,
    /// Header that tells the client of each connection, if there is one.
    header: Option<ProxyVersion>,
    tls: Option<Tls>,
    connection_window: u32,
    /// Most bytes of the head of a response.
    most_head: u32,
    /// Most fields of a response.
    most_fields: usize,
}

struct Tls {
    /// Offers HTTP/2 and HTTP/1.1.
    any: TlsConnector,
    /// Offers HTTP/1.1 alone.
    http1: TlsConnector,
    name: ServerName<'static>,
}

/// TLS configurations of a proxy.
#[derive(Clone)]
pub(super) struct TlsConfigs {
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl TlsConfigs {
    pub(super) fn new(roots: &Roots) -> Result<Self, ProxyError> {
        let roots = match roots {
            Roots::Given(roots) => Arc::clone(roots),
            Roots::Native => {
                let mut store = rustls::RootCertStore::empty();
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                Arc::new(store)
            }
        };
        if roots.is_empty() {
            return Err(ProxyError::Roots);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut any = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http1 = any.clone();
        any.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { any: Arc::new(any), http1: Arc::new(http1) })
    }
}

impl Connector {
    pub(super) fn new(
        target: &Target,
        tls: Option<&TlsConfigs>,
        config: &ProxyConfig,
    ) -> Result<Self, ProxyError> {
        let host = target.host();
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let uri = Uri::builder()
            .scheme("http")
            .authority(format!("{bracketed}:{}", target.port))
            .path_and_query("/")
            .build()
            .map_err(|_| ProxyError::ServerName { host: host.to_owned() })?;
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(config.connect_timeout));
        let tls = match tls {
            Some(configs) if target.scheme == Scheme::Tls => Some(Tls {
                any: TlsConnector::from(Arc::clone(&configs.any)),
                http1: TlsConnector::from(Arc::clone(&configs.http1)),
                name: ServerName::try_from(host.to_owned())
                    .map_err(|_| ProxyError::ServerName { host: host.to_owned() })?,
            }),
            _ => None,
        };
        // One slow client holds back one stream's window. The connection's covers all of them, so
        // that it stops no other response.
        let connection_window = STREAM_WINDOW.saturating_mul(config.max_in_flight).min(MAX_WINDOW);
        Ok(Self {
            scheme: target.scheme,
            uri,
            tcp,
            socket: target.socket.clone(),
            header: config.proxy_protocol,
            tls,
            connection_window,
            most_head: u32::try_from(config.response_head.get()).unwrap_or(u32::MAX),
            most_fields: config.response_fields as usize,
        })
    }

    /// Most fields of a response.
    pub(super) const fn most_fields(&self) -> usize {
        self.most_fields
    }

    pub(super) const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// True if each connection is of one client.
    pub(super) const fn tells_client(&self) -> bool {
        self.header.is_some()
    }

    /// Makes a connection for a client. The caller limits the time.
    pub(super) async fn connect(
        &self,
        purpose: Purpose,
        client: Option<SocketAddr>,
    ) -> Result<Connected, ConnectError> {
        let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        #[cfg(unix)]
        if let Some(path) = &self.socket {
            let failed = |error: std::io::Error| ConnectError::Tcp(error.into());
            let mut stream = tokio::net::UnixStream::connect(path).await.map_err(failed)?;
            self.tell(&mut stream, client, unspecified).await.map_err(failed)?;
            return self.http1(TokioIo::new(stream)).await;
        }
        #[cfg(not(unix))]
        if self.socket.is_some() {
            return Err(ConnectError::Tcp("this system has no Unix sockets: give an address".into()));
        }
        let mut tcp = self.tcp.clone();
        poll_fn(|cx| tcp.poll_ready(cx)).await.map_err(|error| ConnectError::Tcp(error.into()))?;
        let stream = tcp.call(self.uri.clone()).await.map_err(|error| ConnectError::Tcp(error.into()))?;
        let mut stream = stream.into_inner();
        let to = stream.peer_addr().unwrap_or(unspecified);
        self.tell(&mut stream, client, to).await.map_err(|error| ConnectError::Tcp(error.into()))?;
        let stream = TokioIo::new(stream);
        let Some(tls) = &self.tls else {
            return if self.scheme == Scheme::Http2 {
                self.http2(stream).await
            } else {
                self.http1(stream).await
            };
        };
        // A connection of HTTP/2 would have requests of several clients.
        let is_alone = purpose == Purpose::Upgrade || self.tells_client();
        let connector = if is_alone { &tls.http1 } else { &tls.any };
        let stream =
            connector.connect(tls.name.clone(), stream.into_inner()).await.map_err(ConnectError::Tls)?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.http2(TokioIo::new(stream)).await
        } else {
            self.http1(TokioIo::new(stream)).await
        }
    }

    /// Writes the header that tells of a client, if there is to be one.
    async fn tell(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        client: Option<SocketAddr>,
        to: SocketAddr,
    ) -> std::io::Result<()> {
        let Some(version) = self.header else { return Ok(()) };
        let header = client.map_or(ProxyHeader::Own, ProxyHeader::Client);
        stream.write_all(&header.write(version, to)).await
    }

    async fn http1<T>(&self, io: T) -> Result<Connected, ConnectError>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            // The buffer alone would refuse a head that comes in parts, and pass one that comes whole.
            .max_header_size(self.most_head as usize)
            .max_headers(self.most_fields)
            .max_buf_size(READ_AHEAD.max(self.most_head as usize))
            .handshake(io)
            .await
            .map_err(ConnectError::Handshake)?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection to origin ended");
            }
        });
        Ok(Connected::Http1(sender))
    }

    async fn http2<T>(&self, io: T) -> Result<Connected, ConnectError>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(self.connection_window)
            .max_header_list_size(self.most_head)
            // A peer that vanished is noticed before a request is sent to it.
            .keep_alive_interval(Some(Duration::from_secs(20)))
            .keep_alive_timeout(Duration::from_secs(10))
            .handshake(io)
            .await
            .map_err(ConnectError::Handshake)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to origin ended");
            }
        });
        Ok(Connected::Http2(sender))
    }
}

/// Error returned when no connection is made.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    #[error("origin does not accept a connection, check its address: {0}")]
    Tcp(BoxError),
    #[error("origin fails the TLS handshake, check its certificate and versions: {0}")]
    Tls(std::io::Error),
    #[error("origin fails the HTTP handshake, check its protocol: {0}")]
    Handshake(hyper::Error),
    #[error("no connection in time, check the origin or raise `connect-timeout`")]
    Timeout,
    #[error("origin of HTTP/2 has no upgrades: use http:// or https://")]
    NoUpgrade,
}

impl ConnectError {
    /// Returns the error of the connection.
    pub(super) fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tcp(error) => Some(&**error),
            Self::Tls(error) => Some(error),
            Self::Handshake(error) => Some(error),
            Self::Timeout | Self::NoUpgrade => None,
        }
    }
}
