//! Server of HTTP/1.1, HTTP/2 and HTTP/3.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use http::header::{ALT_SVC, CACHE_CONTROL, RETRY_AFTER};
use http::request::Parts;
use http::uri::Scheme;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use ipnet::IpNet;
use marcato_identity::{IdentityError, ServerIdentity};
use marcato_net::{LeanSocket, rustls};
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::body::Body;
use crate::client_certificate::ClientCertificate;
use crate::clock::Dates;
use crate::clocks::Overdue;
use crate::config::{Config, Limits};
use crate::counters::{Counters, ServerCounters};
use crate::decision::Decision;
use crate::early_end::EarlyEnd;
use crate::early_hints::EarlyHints;
use crate::ending::Ending;
#[cfg(feature = "http3")]
use crate::h3;
use crate::handler::WebService;
use crate::listener::{Begun, Listener, Stream, Transport};
use crate::patience::Patience;
use crate::peer_addr::PeerAddr;
use crate::proxy_header::ProxyHeader;
use crate::quic_listener::QuicListener;
use crate::rates::{Gate, Guest};
use crate::record::Record;
use crate::server_name::ServerName;
use crate::socket::Socket;
use crate::stage::Stage;
use crate::trace::ConnectionTrace;
use crate::workers::Workers;
use crate::{h1, h2};

/// First bytes of a client of HTTP/2 in cleartext (RFC 9113 §3.4). No method of HTTP/1.1 has them.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// Wait after an error of the listener, such as too many open files.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// Wait before a client that has sent less than [`PREFACE`] is asked again.
const PEEK_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);

/// Future that ends when the server shuts down.
pub(crate) type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// State that the requests of a connection share.
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) dates: Arc<Dates>,
    pub(crate) peer: PeerAddr,
    /// Client whose rates are limited.
    pub(crate) guest: Option<Guest>,
    pub(crate) trace: Option<Arc<ConnectionTrace>>,
    /// True if the connection is encrypted.
    pub(crate) is_tls: bool,
    /// Name that the client gave in its handshake of TLS.
    pub(crate) server_name: Option<ServerName>,
    /// Certificate that the client has presented.
    pub(crate) client_certificate: Option<ClientCertificate>,
    pub(crate) ending: Ending,
    /// Field that tells clients of HTTP/3, if it is answered.
    pub(crate) alt_svc: Option<HeaderValue>,
}

impl Context {
    /// Counts a connection that ends by time.
    pub(crate) fn overdue(&self, overdue: Overdue) -> EarlyEnd {
        match overdue {
            Overdue::Stuck => self.counters.stuck.one(),
            Overdue::SlowHead => self.counters.slow_heads.one(),
            Overdue::Late => {}
        }
        overdue.into()
    }

    /// Returns the response to a request that no handler sees.
    pub(crate) fn refusal(&self, head: &Parts) -> Option<Response<()>> {
        self.too_many().or_else(|| {
            let mut response = Response::new(());
            *response.status_mut() = self.fault(head)?;
            self.dates.stamp(response.headers_mut());
            Some(response)
        })
    }

    /// Returns the status for a request that this server does not take.
    fn fault(&self, head: &Parts) -> Option<StatusCode> {
        // RFC 6585 §5: the server answers with 431 to fields that are too large all together.
        if head.headers.len() > self.config.limits.fields {
            return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
        // RFC 9220 §3: the server answers with 501 to protocols that it does not know. RFC 8441 §4 has them
        // in requests of CONNECT alone.
        if head.extensions.get::<::h2::ext::Protocol>().is_some_and(|it| it.as_str() != h2::WEBSOCKET) {
            return Some(StatusCode::NOT_IMPLEMENTED);
        }
        let scheme = head.uri.scheme()?;
        if *scheme == Scheme::HTTP {
            return None;
        }
        // RFC 9110 §4.2: this server has resources of two schemes.
        if *scheme != Scheme::HTTPS {
            return Some(StatusCode::BAD_REQUEST);
        }
        // RFC 9110 §7.4: a request for https MUST be rejected unless its connection is secured, or comes
        // from a trusted gateway.
        (!self.is_tls && !self.config.trusts(self.peer.0.ip())).then_some(StatusCode::MISDIRECTED_REQUEST)
    }

    /// Returns the response to a request that comes too early: 429 (RFC 6585 §4).
    fn too_many(&self) -> Option<Response<()>> {
        let wait = self.guest.as_ref()?.request().err()?;
        self.counters.requests_over_rate.one();
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        self.dates.stamp(response.headers_mut());
        Some(response)
    }

    /// Response to a prefetch of a client that saves data.
    pub(crate) fn declined(&self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.dates.stamp(headers);
        response
    }

    /// Gives a request what its handler may use: its client, its decision, and hints that leave before the response. Returns
    /// the patience with its body.
    pub(crate) fn equip(
        self: &Arc<Self>,
        request: &mut Request<Body>,
        decision: Decision,
        stage: &Arc<Stage>,
    ) -> Option<Patience> {
        let patience = Patience::with(request, self);
        self.introduce(request.extensions_mut());
        request.extensions_mut().insert(decision);
        if request.method() == Method::CONNECT {
            request.extensions_mut().insert(self.ending.clone());
        }
        request.extensions_mut().insert(EarlyHints::new(Arc::clone(stage)));
        patience
    }

    /// Tells a client of HTTP/3 (RFC 9114 §3.1.1), unless the service has said something else.
    pub(crate) fn advertise(&self, headers: &mut HeaderMap) {
        if let Some(alt_svc) = &self.alt_svc {
            headers.entry(ALT_SVC).or_insert_with(|| alt_svc.clone());
        }
    }

    /// Tells a request of its client.
    pub(crate) fn introduce(&self, extensions: &mut Extensions) {
        extensions.insert(self.peer);
        #[cfg(feature = "axum")]
        extensions.insert(axum::extract::ConnectInfo(self.peer.0));
        if let Some(name) = &self.server_name {
            extensions.insert(name.clone());
        }
        if let Some(certificate) = &self.client_certificate {
            extensions.insert(certificate.clone());
        }
    }

    /// Counts and logs a request that is over.
    pub(crate) fn log(&self, record: &Record) {
        // A request that no longer counts as open is complete in its trace.
        record.trace_end();
        self.counters.ended.one();
        if let Some(log) = &self.config.log {
            log(&record.ended(Instant::now()));
        }
    }
}

/// Server of HTTP/1.1, HTTP/2 and HTTP/3 that sends what matters first.
///
/// It serves any tower service, such as a `Router` of axum. With TLS, clients choose the version by
/// ALPN, and HTTP/3 on the UDP port of the same number. In cleartext they speak HTTP/1.1, or HTTP/2 with prior knowledge (RFC 9113 §3.3).
///
/// ```no_run
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use marcato_web::{Body, Server};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let hello = tower::service_fn(async |_: Request<Body>| {
///     Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("hello")))
/// });
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// Server::new().serve(listener, hello).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Server {
    config: Arc<RwLock<Arc<Config>>>,
    tls: Option<Arc<RwLock<Arc<ServerConfig>>>>,
    counters: Arc<Counters>,
    dates: Arc<Dates>,
    connections: Arc<Semaphore>,
    most_connections: usize,
    workers: Option<Workers>,
    gate: Arc<RwLock<Option<Arc<Gate>>>>,
    /// Networks whose connections begin with a header of the PROXY protocol.
    balancers: Arc<[IpNet]>,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// Creates a server for cleartext, with the default configuration.
    pub fn new() -> Self {
        Self::with_config(Config::default())
    }

    /// Creates a server for cleartext.
    pub fn with_config(config: Config) -> Self {
        let connections = config.limits.connections.clamp(1, Semaphore::MAX_PERMITS);
        let gate = Gate::new(&config);
        Self {
            gate: Arc::new(RwLock::new(gate)),
            config: Arc::new(RwLock::new(Arc::new(config))),
            tls: None,
            counters: Arc::default(),
            dates: Arc::default(),
            connections: Arc::new(Semaphore::new(connections)),
            most_connections: connections,
            workers: None,
            balancers: Arc::default(),
        }
    }

    /// Uses TLS 1.3 with an identity, which can be replaced while the server runs.
    ///
    /// # Errors
    /// If the identity cannot be used.
    pub fn identity(self, identity: &Arc<ServerIdentity>) -> Result<Self, IdentityError> {
        Ok(self.tls(identity.server_tls(None)?))
    }

    /// Uses TLS as configured. A configuration that names no protocols offers HTTP/2 and HTTP/1.1.
    #[must_use]
    pub fn tls(mut self, tls: ServerConfig) -> Self {
        self.tls = Some(Arc::new(RwLock::new(offering(tls))));
        self
    }

    /// Uses TLS as configured for connections that come from now on, also in clones. HTTP/3 of listeners that are open
    /// stays as it was. A server for cleartext stays one.
    pub fn replace_tls(&self, tls: ServerConfig) {
        if let Some(current) = &self.tls {
            *current.write().unwrap_or_else(PoisonError::into_inner) = offering(tls);
        }
    }

    fn current_tls(&self) -> Option<Arc<ServerConfig>> {
        Some(Arc::clone(&self.tls.as_ref()?.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Carries connections on these threads. Otherwise they are tasks of the runtime that serves.
    #[must_use]
    pub fn workers(mut self, workers: Workers) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Expects a header of the [PROXY protocol](crate::ProxyHeader) on each connection from these networks, and takes
    /// the client's address from it. A connection without one is closed. HTTP/3 is then not answered.
    #[must_use]
    pub fn balancers(mut self, networks: impl Into<Arc<[IpNet]>>) -> Self {
        self.balancers = networks.into();
        self
    }

    /// Returns the counters since the server was created. Its clones share them.
    pub fn counters(&self) -> ServerCounters {
        let forgotten_addresses = self.gate().map_or(0, |gate| gate.addresses().1);
        ServerCounters { forgotten_addresses, ..self.counters.read() }
    }

    /// Number of connections that are open.
    pub fn open_connections(&self) -> usize {
        self.most_connections.saturating_sub(self.connections.available_permits())
    }

    /// Uses a configuration for connections that come from now on, also in clones. The bound of connections
    /// stays. Changing the rates of addresses resets their counts.
    pub fn configure(&self, config: Config) {
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if !gate.as_ref().is_some_and(|gate| gate.is_of(&config)) {
            *gate = Gate::new(&config);
        }
        drop(gate);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Plain streams on which HTTP/3 is answered; `None` if it is not.
    #[cfg(feature = "http3")]
    pub(crate) fn quic_streams(&self) -> Option<marcato_net::streams::StreamsConfig> {
        let config = self.config();
        config.http3.then(|| h3::streams(&config))
    }

    /// TLS of HTTP/3: that of the other versions, but for the name of the protocol.
    #[cfg(feature = "http3")]
    pub(crate) fn quic_tls(&self) -> Option<Arc<ServerConfig>> {
        let mut tls = ServerConfig::clone(&*self.current_tls()?);
        tls.alpn_protocols = vec![h3::ALPN.to_vec()];
        // Early data can be replayed (RFC 8446 §8).
        tls.max_early_data_size = 0;
        Some(Arc::new(tls))
    }

    fn gate(&self) -> Option<Arc<Gate>> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn config(&self) -> Arc<Config> {
        // It is replaced whole, so a panic leaves no partial one.
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of requests that are not over.
    pub fn open_requests(&self) -> usize {
        let open = self.counters.requests.get().saturating_sub(self.counters.ended.get());
        usize::try_from(open).unwrap_or(usize::MAX)
    }

    /// Number of addresses whose rates are in use.
    pub fn known_addresses(&self) -> usize {
        self.gate().map_or(0, |gate| gate.addresses().0)
    }

    /// Serves connections until SIGINT or SIGTERM. Open requests are then finished, within the
    /// [grace](crate::Limits::grace); a second signal ends them at once.
    ///
    /// A process that has called it ends by these signals no more. [`serve_until`](Self::serve_until) leaves
    /// them to the program.
    pub async fn serve<L, S>(&self, listener: L, service: S)
    where
        L: Listener,
        S: WebService,
    {
        let mut signals = EndSignals::listen();
        let (ending, ended) = oneshot::channel::<()>();
        let mut served = std::pin::pin!(self.serve_until(listener, service, async { _ = ended.await }));
        tokio::select! {
            () = &mut served => return,
            () = signals.next() => drop(ending),
        }
        tokio::select! {
            () = &mut served => {}
            () = signals.next() => {}
        }
    }

    /// Serves connections until `end` does. Open requests are then finished, within the
    /// [grace](crate::Limits::grace).
    pub async fn serve_until<L, S>(&self, mut listener: L, service: S, end: impl Future<Output = ()>)
    where
        L: Listener,
        S: WebService,
    {
        let (ending, ended) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut end = std::pin::pin!(end);
        // The header is one of TCP: a balancer says nothing of clients over UDP.
        let beside = listener.local_addr().filter(|_| self.balancers.is_empty());
        let quic = QuicListener::bind(self, beside).await;
        let alt_svc = quic.alt_svc();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                client = quic.accept() => {
                    self.begin_quic(client, &service, Ending(ended.clone()), &mut tasks);
                    continue;
                }
                Some(_) = tasks.join_next() => continue,
                () = &mut end => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let Some(entrance) = self.enter(peer) else { continue };
            let (server, service) = (self.clone(), service.clone());
            let ending = Ending(ended.clone());
            let alt_svc = alt_svc.clone();
            let transport = Transport::new(stream);
            let seat = self.workers.as_ref().and_then(Workers::seat);
            let Some(seat) = seat else {
                tasks.spawn(server.connection(transport, entrance, service, ending, alt_svc));
                continue;
            };
            let runtime = seat.runtime().clone();
            // The socket is to wake the thread that carries it.
            let unbound = match transport {
                Transport::Tcp(stream) => stream.into_std().map(Unbound::Tcp),
                // Its own runtime wakes that thread.
                Transport::Other(stream) => Ok(Unbound::Other(stream)),
            };
            let carry = async move {
                let transport = unbound.and_then(|unbound| match unbound {
                    Unbound::Tcp(stream) => TcpStream::from_std(stream).map(Transport::Tcp),
                    Unbound::Other(stream) => Ok(Transport::Other(stream)),
                });
                match transport {
                    Ok(transport) => server.connection(transport, entrance, service, ending, alt_svc).await,
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be handed to its thread");
                        server.counters.failed_handshakes.one();
                    }
                }
                drop(seat);
            };
            tasks.spawn_on(carry, &runtime);
        }
        drop((listener, ended));
        quic.refuse();
        let _ = ending.send(true);
        while tasks.join_next().await.is_some() {}
        // Tunnels that are no connections any more hold the other ends.
        let _ = tokio::time::timeout(self.config().limits.grace, ending.closed()).await;
    }

    /// Serves one connection until it ends: of any byte stream, such as one in memory for a test, or one
    /// whose first bytes were the PROXY protocol. `peer` is the address that requests have as
    /// [`PeerAddr`], and that [rates](crate::Limits::request_rate) count for.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use http::{Request, Response};
    /// # use http_body_util::Full;
    /// # use marcato_web::{Body, Server};
    /// # use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hello = tower::service_fn(async |_: Request<Body>| {
    ///     Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("hello")))
    /// });
    /// let (mut client, server) = tokio::io::duplex(1024);
    /// let peer = "192.0.2.1:50000".parse()?;
    /// tokio::spawn(async move { Server::new().serve_connection(server, peer, hello).await });
    /// client.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").await?;
    /// let mut response = String::new();
    /// client.read_to_string(&mut response).await?;
    /// assert!(response.ends_with("\r\n\r\nhello"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve_connection<T, S>(&self, io: T, peer: SocketAddr, service: S)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: WebService,
    {
        self.serve_connection_until(io, peer, service, std::future::pending()).await;
    }

    /// Serves one connection as [`serve_connection`](Self::serve_connection) does. When `end` does, open
    /// requests are finished.
    pub async fn serve_connection_until<T, S, E>(&self, io: T, peer: SocketAddr, service: S, end: E)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: WebService,
        E: Future<Output = ()>,
    {
        let Some(entrance) = self.enter(peer) else { return };
        let (ending, ended) = watch::channel(false);
        let served = self.clone().connection(Transport::new(io), entrance, service, Ending(ended), None);
        let whole = async {
            served.await;
            // A tunnel that is no connection any more holds the other end.
            ending.closed().await;
        };
        let mut whole = std::pin::pin!(whole);
        tokio::select! {
            () = &mut whole => return,
            () = end => {}
        }
        let _ = ending.send(true);
        // The connection takes one time of grace at most, and a tunnel another.
        let _ = tokio::time::timeout(self.config().limits.grace.saturating_mul(2), whole).await;
    }

    /// Admits a connection; `None` if there are too many.
    fn enter(&self, peer: SocketAddr) -> Option<Entrance> {
        self.counters.accepted.one();
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            self.counters.crowded.one();
            return None;
        };
        // The client of a balancer is known later.
        let is_balancer = self.is_balancer(peer);
        let guest = if is_balancer { None } else { self.invite(peer)? };
        Some(Entrance { peer: PeerAddr(peer), guest, is_balancer, _permit: permit })
    }

    /// Counts a connection of an address; `None` if there are too many.
    fn invite(&self, peer: SocketAddr) -> Option<Option<Guest>> {
        let entered = self.gate().map_or(Ok(None), |gate| gate.enter(peer.ip()));
        entered.inspect_err(|refusal| self.counters.refuse(*refusal)).ok()
    }

    fn is_balancer(&self, peer: SocketAddr) -> bool {
        let address = peer.ip().to_canonical();
        self.balancers.iter().any(|network| network.contains(&address))
    }

    async fn connection<S>(
        self,
        transport: Transport,
        entrance: Entrance,
        service: S,
        ending: Ending,
        alt_svc: Option<HeaderValue>,
    ) where
        S: WebService,
    {
        let Entrance { mut peer, mut guest, is_balancer, _permit } = entrance;
        let mut transport = transport;
        let config = self.config();
        if let Transport::Tcp(stream) = &transport
            && let Err(error) = prepare(stream, &config.limits)
        {
            tracing::debug!(%error, "a connection ended before it began");
            self.counters.failed_handshakes.one();
            return;
        }
        let limit = config.limits.handshake;
        let mut ended = ending.clone();
        let shutdown: Shutdown = Box::pin(async move { ended.begun().await });
        let (chunk, coupled, marks) = (config.chunk, config.coupled, config.marks);
        let began = Instant::now();
        if is_balancer {
            let header = tokio::time::timeout(limit, ProxyHeader::read(&mut transport)).await;
            match header.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(ProxyHeader::Own) => {}
                Ok(ProxyHeader::Client(client)) => peer = PeerAddr(client),
                Err(error) => {
                    tracing::debug!(%error, peer = %peer.0, "a balancer told of no client");
                    self.counters.failed_handshakes.one();
                    return;
                }
            }
            match self.invite(peer.0) {
                Some(invited) => guest = invited,
                None => return,
            }
        }
        // The time for the header is part of that for the handshake.
        let limit = limit.saturating_sub(began.elapsed());
        let shaken = tokio::time::timeout(limit, self.shake_hands(transport)).await;
        let (shaken, Hello { is_http2, server_name, client_certificate }) = match shaken {
            Ok(Ok(shaken)) => shaken,
            Ok(Err(error)) => {
                tracing::debug!(%error, "handshake failed");
                self.counters.failed_handshakes.one();
                return;
            }
            Err(_) => {
                self.counters.failed_handshakes.one();
                return;
            }
        };
        let context = Arc::new(Context {
            trace: config.traces.as_ref().map(|traces| traces.connection(peer.0)),
            config,
            counters: Arc::clone(&self.counters),
            dates: Arc::clone(&self.dates),
            peer,
            guest,
            is_tls: self.tls.is_some(),
            server_name,
            client_certificate,
            ending,
            alt_svc,
        });
        self.counters.connect(is_http2);
        let result = if is_http2 {
            let socket = match shaken {
                Shaken::Tls(stream) => {
                    let (stream, connection) = stream.into_inner();
                    LeanSocket::tls(stream, connection, chunk, coupled).with_marks(marks).into()
                }
                Shaken::Plain(stream) => LeanSocket::plain(stream, chunk, coupled).with_marks(marks).into(),
                Shaken::Other(stream) => Socket::other(stream),
            };
            h2::serve(socket, service, context, shutdown).await
        } else {
            match shaken {
                Shaken::Tls(stream) => h1::serve(*stream, service, context, shutdown).await,
                Shaken::Plain(stream) => h1::serve(stream, service, context, shutdown).await,
                Shaken::Other(stream) => h1::serve(stream, service, context, shutdown).await,
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, peer = %peer.0, "a connection ended early");
            self.counters.broken.one();
        }
    }

    /// Completes the handshake of TLS, if there is one. Returns what the client has told of itself.
    async fn shake_hands(&self, transport: Transport) -> io::Result<(Shaken, Hello)> {
        let named = |connection: &rustls::ServerConnection| Hello {
            is_http2: connection.alpn_protocol() == Some(b"h2"),
            server_name: connection.server_name().map(|name| ServerName(name.into())),
            client_certificate: connection.peer_certificates().and_then(ClientCertificate::of),
        };
        let plain = |is_http2| Hello { is_http2, server_name: None, client_certificate: None };
        let acceptor = self.current_tls().map(TlsAcceptor::from);
        Ok(match (transport, acceptor) {
            (Transport::Tcp(stream), Some(acceptor)) => {
                let stream = acceptor.accept(stream).await?;
                let hello = named(stream.get_ref().1);
                (Shaken::Tls(Box::new(stream)), hello)
            }
            (Transport::Other(stream), Some(acceptor)) => {
                let stream = acceptor.accept(stream).await?;
                let hello = named(stream.get_ref().1);
                (Shaken::Other(Box::new(stream)), hello)
            }
            (Transport::Tcp(stream), None) => {
                let is_http2 = has_preface(&stream).await?;
                (Shaken::Plain(stream), plain(is_http2))
            }
            (Transport::Other(stream), None) => {
                let (is_http2, stream) = Begun::read(stream, PREFACE).await?;
                (Shaken::Other(Box::new(stream)), plain(is_http2))
            }
        })
    }
}

#[cfg(not(feature = "http3"))]
impl Server {
    /// Serves no connection over QUIC: there is none.
    fn begin_quic<S>(&self, client: std::convert::Infallible, _: &S, _: Ending, _: &mut JoinSet<()>) {
        match client {}
    }
}

#[cfg(feature = "http3")]
impl Server {
    /// Serves a connection over QUIC in a task of its own.
    fn begin_quic<S: WebService>(
        &self,
        client: marcato_net::streams::Connection,
        service: &S,
        ending: Ending,
        tasks: &mut JoinSet<()>,
    ) {
        // Its address is that of its first lane, so there is one until the connection has ended.
        let Some(peer) = client.remote_addr() else { return };
        let Some(entrance) = self.enter(peer) else {
            client.close(h3::REFUSED, b"too many connections");
            return;
        };
        let (server, service) = (self.clone(), service.clone());
        let seat = self.workers.as_ref().and_then(Workers::seat);
        let runtime = seat.as_ref().map(|seat| seat.runtime().clone());
        let carry = async move {
            server.quic_connection(client, entrance, service, ending).await;
            drop(seat);
        };
        match runtime {
            Some(runtime) => tasks.spawn_on(carry, &runtime),
            None => tasks.spawn(carry),
        };
    }

    async fn quic_connection<S: WebService>(
        self,
        client: marcato_net::streams::Connection,
        entrance: Entrance,
        service: S,
        ending: Ending,
    ) {
        let Entrance { peer, guest, _permit, .. } = entrance;
        let config = self.config();
        let mut ended = ending.clone();
        let shutdown: Shutdown = Box::pin(async move { ended.begun().await });
        let context = Arc::new(Context {
            trace: config.traces.as_ref().map(|traces| traces.connection(peer.0)),
            config,
            counters: Arc::clone(&self.counters),
            dates: Arc::clone(&self.dates),
            peer,
            guest,
            is_tls: true,
            server_name: client.server_name().map(|name| ServerName(name.into())),
            client_certificate: client.peer_identity().and_then(|peer| ClientCertificate::of(peer.chain())),
            ending,
            alt_svc: None,
        });
        self.counters.connect_http3();
        if let Err(error) = h3::serve(client, service, context, shutdown).await {
            tracing::debug!(%error, peer = %peer.0, "a connection ended early");
            self.counters.broken.one();
        }
    }
}

/// Facts that a client tells of itself before its first request.
struct Hello {
    is_http2: bool,
    server_name: Option<ServerName>,
    client_certificate: Option<ClientCertificate>,
}

/// Returns TLS that offers HTTP/2 and HTTP/1.1, unless it names protocols.
fn offering(mut tls: ServerConfig) -> Arc<ServerConfig> {
    if tls.alpn_protocols.is_empty() {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Arc::new(tls)
}

/// Right of a connection to be served, until it is dropped.
struct Entrance {
    peer: PeerAddr,
    /// Client whose rates are limited.
    guest: Option<Guest>,
    /// True if the connection begins with a header that tells of its client.
    is_balancer: bool,
    _permit: OwnedSemaphorePermit,
}

/// Byte stream on its way to another thread.
enum Unbound {
    Tcp(std::net::TcpStream),
    Other(Box<dyn Stream>),
}

/// Byte stream after its handshake.
enum Shaken {
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
    Other(Box<dyn Stream>),
}

/// Signals that end a server.
struct EndSignals {
    #[cfg(unix)]
    signals: Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

impl EndSignals {
    fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let both =
                signal(SignalKind::interrupt()).and_then(|it| Ok((it, signal(SignalKind::terminate())?)));
            let signals = both.inspect_err(|error| {
                tracing::warn!(%error, "signals cannot be handled: they end the process at once");
            });
            Self { signals: signals.ok() }
        }
        #[cfg(not(unix))]
        Self {}
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        match &mut self.signals {
            Some((interrupt, terminate)) => tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            },
            None => std::future::pending().await,
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Sets the options of a connection: no delay, and the kernel finds dead peers.
fn prepare(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(limits.idle))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(limits.stall))?;
    Ok(())
}

/// Returns whether a client begins with the preface of HTTP/2. Its bytes stay in the kernel.
async fn has_preface(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if seen == PREFACE.len() || first[..seen] != PREFACE[..seen] {
            return Ok(first[..seen] == *PREFACE);
        }
        // The kernel reports the same bytes again at once.
        sleep(PEEK_AGAIN).await;
    }
}
