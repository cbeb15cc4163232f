//! Connections of any kind: in memory, of Unix sockets, with TLS, and the end of the one-liner.
#![cfg(feature = "axum")]

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Path};
use axum::routing::get as on_get;
use bytes::Bytes;
use h2::client::{self, SendRequest};
use marcato_identity::{Identity, ServerIdentity, Trust};
use marcato_net::rustls::pki_types::ServerName;
use marcato_web::{Config, Listener, Server};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::support::{fetch, fields, frame, get, read, recording, run};

/// Variable that makes this binary a server.
const SERVED: &str = "MARCATO_WEB_TEST_SERVER";

fn router() -> Router {
    Router::new()
        .route("/peer", on_get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()))
        .route("/bytes/{length}", on_get(async |Path(length): Path<usize>| vec![b'x'; length]))
}

async fn http2<T>(stream: T) -> SendRequest<Bytes>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (send, connection) = client::Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(async move { _ = connection.await });
    send.ready().await.unwrap()
}

async fn http1(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

async fn content(client: &mut SendRequest<Bytes>, path: &str) -> String {
    String::from_utf8(read(fetch(client, get(path)).await).await.unwrap()).unwrap()
}

#[test]
fn connections_in_memory_speak_both_versions() {
    run(async {
        let peer: SocketAddr = "192.0.2.1:50000".parse().unwrap();
        let server = Server::new();
        let connect = || {
            let (near, far) = tokio::io::duplex(1000);
            let server = server.clone();
            tokio::spawn(async move { server.serve_connection(far, peer, router()).await });
            near
        };
        assert!(http1(connect(), "/peer").await.ends_with("\r\n\r\n192.0.2.1:50000"));
        let client = &mut http2(connect()).await;
        assert_eq!(content(client, "/peer").await, "192.0.2.1:50000");
        // Far more than the stream takes at once.
        assert_eq!(content(client, "/bytes/1000000").await.len(), 1_000_000);
        assert_eq!(server.counters().connections, [1, 1, 0]);
    });
}

#[test]
fn an_ipv4_mapped_gateway_is_trusted_as_its_address() {
    run(async {
        let mut config = Config::default();
        config.trusted = vec!["192.0.2.0/24".parse().unwrap()];
        let server = Server::with_config(config);
        for (peer, status) in [
            ("[::ffff:192.0.2.1]:50000", 200),
            ("192.0.2.1:50000", 200),
            ("[::ffff:198.51.100.1]:50000", 421),
            ("[::192.0.2.1]:50000", 421),
        ] {
            let (near, far) = tokio::io::duplex(1000);
            let (server, peer) = (server.clone(), peer.parse().unwrap());
            tokio::spawn(async move { server.serve_connection(far, peer, router()).await });
            // RFC 9110 §7.4: only a gateway may ask for `https` in cleartext.
            let request = http::Request::get("https://a.test/peer").body(()).unwrap();
            assert_eq!(fetch(&mut http2(near).await, request).await.status(), status, "{peer}");
        }
    });
}

/// HEADERS of a request with a `priority` field, of a new name (RFC 7541 §6.2.2).
fn prioritised(stream: u32, path: &str, priority: &str) -> Vec<u8> {
    let length = u8::try_from(priority.len()).unwrap();
    let field = [b"\x00\x08priority".as_slice(), &[length], priority.as_bytes()].concat();
    frame(1, 5, stream, &[fields(path), field].concat())
}

#[test]
fn urgent_responses_overtake_others_in_memory_too() {
    run(async {
        let (mut near, far) = tokio::io::duplex(1000);
        let peer = "192.0.2.1:50000".parse().unwrap();
        let served = tokio::spawn(async move { Server::new().serve_connection(far, peer, router()).await });
        let windows = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(),
            &frame(4, 0, 0, b"\x00\x04\x7f\xff\xff\xff"),
            &frame(8, 0, 0, b"\x3f\xff\xff\xff"),
        ];
        near.write_all(&windows.concat()).await.unwrap();
        near.write_all(&prioritised(1, "/bytes/1000000", "u=5")).await.unwrap();
        // Bytes of the large response after the request for the urgent one.
        let (mut ahead, mut is_asked) = (0, false);
        loop {
            let mut header = [0; 9];
            near.read_exact(&mut header).await.unwrap();
            let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
            near.read_exact(&mut payload).await.unwrap();
            match (header[3], header[8]) {
                (0, 1) if is_asked => ahead += payload.len(),
                (0, 1) => {
                    is_asked = true;
                    near.write_all(&prioritised(3, "/bytes/20000", "u=0")).await.unwrap();
                }
                (0, 3) if header[4] & 1 == 1 => break,
                _ => {}
            }
        }
        // What had been granted, and what the stream holds.
        assert!(ahead < 64 << 10, "{ahead} bytes");
        served.abort();
    });
}

#[test]
fn connections_over_the_limit_are_refused_in_memory_too() {
    run(async {
        let mut config = Config::default();
        config.limits.connections = 1;
        let server = Server::with_config(config);
        let peer = "192.0.2.1:50000".parse().unwrap();
        let (near, far) = tokio::io::duplex(1000);
        let first = server.clone();
        let first = tokio::spawn(async move { first.serve_connection(far, peer, router()).await });
        let client = &mut http2(near).await;
        assert_eq!(content(client, "/bytes/1").await, "x");
        let (mut near, far) = tokio::io::duplex(1000);
        server.serve_connection(far, peer, router()).await;
        assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
        assert_eq!((server.counters().crowded, server.open_connections()), (1, 1));
        first.abort();
    });
}

#[test]
fn rates_count_for_the_client_that_a_program_names() {
    run(async {
        let mut config = Config::default();
        config.limits.open_per_address = NonZeroU32::new(1);
        let server = Server::with_config(config);
        let connect = |peer: &str| {
            let (near, far) = tokio::io::duplex(1000);
            let (server, peer) = (server.clone(), peer.parse().unwrap());
            tokio::spawn(async move { server.serve_connection(far, peer, router()).await });
            near
        };
        let first = &mut http2(connect("192.0.2.1:50000")).await;
        assert_eq!(content(first, "/bytes/1").await, "x");
        assert_eq!(connect("192.0.2.1:50001").read(&mut [0]).await.unwrap(), 0);
        let second = &mut http2(connect("192.0.2.2:50000")).await;
        assert_eq!(content(second, "/bytes/1").await, "x");
        assert_eq!(server.counters().connections_over_open, 1);
    });
}

#[test]
fn a_connection_in_memory_that_ends_early_is_a_failed_handshake() {
    run(async {
        let server = Server::new();
        for begun in [&b""[..], b"PRI * HTTP/2.0"] {
            let (mut near, far) = tokio::io::duplex(1000);
            near.write_all(begun).await.unwrap();
            drop(near);
            server.serve_connection(far, "192.0.2.1:50000".parse().unwrap(), router()).await;
        }
        assert_eq!((server.counters().failed_handshakes, server.counters().connections), (2, [0, 0, 0]));
    });
}

/// Listener that fails before it accepts.
struct Failing(TcpListener, bool);

impl Listener for Failing {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        if std::mem::take(&mut self.1) {
            return Err(io::Error::other("no more descriptors"));
        }
        self.0.accept().await
    }
}

/// Listener that keeps a handle of each socket that it hands over.
struct Keeping(TcpListener, mpsc::UnboundedSender<socket2::Socket>);

impl Listener for Keeping {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.accept().await?;
        self.1.send(socket2::SockRef::from(&stream).try_clone()?).map_err(io::Error::other)?;
        Ok((stream, peer))
    }
}

#[test]
fn sockets_do_not_delay_and_find_clients_that_are_gone() {
    run(async {
        let mut config = Config::default();
        (config.limits.stall, config.limits.idle) = (Duration::from_secs(7), Duration::from_secs(11));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (keep, mut kept) = mpsc::unbounded_channel();
        let served = tokio::spawn(async move {
            Server::with_config(config).serve(Keeping(listener, keep), router()).await;
        });
        let client = &mut http2(TcpStream::connect(addr).await.unwrap()).await;
        assert_eq!(content(client, "/bytes/3").await, "xxx");
        let socket = kept.recv().await.unwrap();
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(11));
        // Bytes that a client does not acknowledge for that long end its connection.
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(7)));
        served.abort();
    });
}

#[test]
fn a_listener_that_fails_is_asked_again() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            Server::new().serve_until(Failing(listener, true), router(), async { _ = ended.await }).await;
        });
        let stream = TcpStream::connect(addr).await.unwrap();
        assert!(http1(stream, "/bytes/3").await.ends_with("\r\n\r\nxxx"));
        drop(end);
        served.await.unwrap();
    });
}

#[cfg(unix)]
#[test]
fn unix_sockets_are_served_with_and_without_tls() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::self_signed("localhost").unwrap();
        let certificate = identity.certificate().unwrap().clone();
        let identity = ServerIdentity::new(&identity).unwrap();
        let secure = Server::new().identity(&identity).unwrap();
        let mut ends = Vec::new();
        for (name, server) in [("plain", Server::new()), ("tls", secure)] {
            let listener = tokio::net::UnixListener::bind(dir.path().join(name)).unwrap();
            let (end, ended) = oneshot::channel::<()>();
            let serve = async move {
                server.serve_until(listener, router(), async { _ = ended.await }).await;
            };
            ends.push((end, tokio::spawn(serve)));
        }
        let connect =
            async |name: &str| tokio::net::UnixStream::connect(dir.path().join(name)).await.unwrap();
        assert!(http1(connect("plain").await, "/peer").await.ends_with("\r\n\r\n[::]:0"));
        assert_eq!(content(&mut http2(connect("plain").await).await, "/bytes/300000").await.len(), 300_000);
        for protocol in ["h2", "http/1.1"] {
            let mut config = Trust::Certificate(certificate.clone()).client_tls().unwrap();
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let name = ServerName::try_from("localhost").unwrap();
            let stream = connector.connect(name, connect("tls").await).await.unwrap();
            let response = match protocol {
                "h2" => content(&mut http2(stream).await, "/bytes/300000").await,
                _ => http1(stream, "/bytes/300000").await.split("\r\n\r\n").nth(1).unwrap().to_owned(),
            };
            assert_eq!(response.len(), 300_000, "{protocol}");
        }
        for (end, task) in ends {
            drop(end);
            task.await.unwrap();
        }
    });
}

/// Listener behind a load balancer that tells each client's address by the PROXY protocol, version 1 or 2.
///
/// A task reads the header of each connection: one that is slow to send it delays no other.
struct Balanced(mpsc::Receiver<(TcpStream, SocketAddr)>);

impl Balanced {
    fn new(listener: TcpListener) -> Self {
        let (send, receive) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let send = send.clone();
                tokio::spawn(async move {
                    let header = tokio::time::timeout(Duration::from_secs(10), client_of(&mut stream));
                    // A connection without a header is closed: its address would be that of the balancer.
                    if let Ok(Ok(peer)) = header.await {
                        _ = send.send((stream, peer)).await;
                    }
                });
            }
        });
        Self(receive)
    }
}

impl Listener for Balanced {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

/// Reads the header of the PROXY protocol, and no byte beyond it.
async fn client_of(stream: &mut TcpStream) -> io::Result<SocketAddr> {
    const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
    let fault = || io::Error::from(io::ErrorKind::InvalidData);
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if start != SIGNATURE {
        // Version 1: a line of at most 107 bytes, as `PROXY TCP4 192.0.2.1 198.51.100.1 50000 443`.
        let mut line = start.to_vec();
        while !line.ends_with(b"\r\n") {
            if line.len() == 107 {
                return Err(fault());
            }
            line.push(stream.read_u8().await?);
        }
        let line = String::from_utf8(line).map_err(|_| fault())?;
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let ["PROXY", "TCP4" | "TCP6", client, _, port, _] = words[..] else { return Err(fault()) };
        let (client, port) = (client.parse().map_err(|_| fault())?, port.parse().map_err(|_| fault())?);
        return Ok(SocketAddr::new(client, port));
    }
    let (version, family) = (stream.read_u8().await?, stream.read_u8().await?);
    let mut addresses = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut addresses).await?;
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    match (version, family) {
        (0x21, 0x11) if addresses.len() >= 12 => {
            let client: [u8; 4] = addresses[..4].try_into().map_err(|_| fault())?;
            Ok(SocketAddr::new(client.into(), port(&addresses[8..])))
        }
        (0x21, 0x21) if addresses.len() >= 36 => {
            let client: [u8; 16] = addresses[..16].try_into().map_err(|_| fault())?;
            Ok(SocketAddr::new(client.into(), port(&addresses[32..])))
        }
        _ => Err(fault()),
    }
}

/// Header of version 2 for TCP over IPv6, with something that follows the addresses.
fn version2(client: SocketAddr) -> Vec<u8> {
    let SocketAddr::V6(client) = client else { panic!("of IPv6") };
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x29".to_vec();
    header.extend(client.ip().octets());
    header.extend([0; 16]);
    header.extend(client.port().to_be_bytes());
    header.extend([1, 187]);
    // PP2_TYPE_NOOP of two bytes.
    header.extend([4, 0, 2, 0, 0]);
    header
}

#[test]
fn clients_behind_the_proxy_protocol_have_their_address() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (mut config, records) = recording();
        config.trusted = vec!["2001:db8::/32".parse().unwrap()];
        let (end, ended) = oneshot::channel::<()>();
        let balanced = Balanced::new(listener);
        let served = tokio::spawn(async move {
            Server::with_config(config).serve_until(balanced, router(), async { _ = ended.await }).await;
        });
        // It has not sent its header, and delays nobody.
        let _silent = TcpStream::connect(addr).await.unwrap();
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\n").await.unwrap();
        assert!(http1(stream, "/peer").await.ends_with("\r\n\r\n192.0.2.1:50000"));
        let peer: SocketAddr = "[2001:db8::7]:50001".parse().unwrap();
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&version2(peer)).await.unwrap();
        let client = &mut http2(stream).await;
        assert_eq!(content(client, "/peer").await, "[2001:db8::7]:50001");
        // Rules for addresses know it as well: that of the balancer is no trusted gateway.
        let request = http::Request::get("https://a.test/peer").body(()).unwrap();
        assert_eq!(fetch(client, request).await.status(), 200);
        for header in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], b"PROXY UNKNOWN\r\n", &[b'x'; 200]] {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(header).await.unwrap();
            let mut rest = Vec::new();
            _ = stream.read_to_end(&mut rest).await;
            assert!(rest.is_empty());
        }
        drop(end);
        served.await.unwrap();
        let peers: Vec<_> = records.lock().unwrap().iter().map(|record| record.peer.0.ip()).collect();
        assert_eq!(peers, ["192.0.2.1".parse::<IpAddr>().unwrap(), peer.ip(), peer.ip()]);
    });
}

#[test]
fn a_single_connection_has_the_address_of_its_header() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"PROXY TCP6 2001:db8::7 ::1 50001 443\r\n").await.unwrap();
        let peer = client_of(&mut far).await.unwrap();
        tokio::spawn(async move { Server::new().serve_connection(far, peer, router()).await });
        assert!(http1(near, "/peer").await.ends_with("\r\n\r\n[2001:db8::7]:50001"));
    });
}

/// Server that is killed if its test fails.
struct Process(Child);

impl Process {
    /// Starts a server of its own. Returns with it the lines that it prints, its address first.
    fn serving() -> (Self, impl FnMut() -> String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // This test is the server if the variable is there.
        let test = "listeners::the_one_liner_finishes_open_requests_at_sigterm";
        command.args(["--exact", test, "--nocapture"]).env(SERVED, "1");
        let mut child = Self(command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        (child, move || lines.find_map(|line| Some(line.split_once("> ")?.1.to_owned())).unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves until a signal ends it: the work of a process that [`Process::serving`] starts.
fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "> {}", listener.local_addr().unwrap()).and_then(|()| stdout.flush()).unwrap();
        Server::new().serve(listener, router()).await;
        writeln!(stdout, "> ended").unwrap();
    });
}

#[test]
fn the_one_liner_finishes_open_requests_at_sigterm() {
    if std::env::var_os(SERVED).is_some() {
        return serve();
    }
    let (mut child, mut next) = Process::serving();
    let addr = next();
    let mut open = std::net::TcpStream::connect(&addr).unwrap();
    // More than sockets hold.
    open.write_all(b"GET /bytes/32000000 HTTP/1.1\r\nhost: a.test\r\n\r\n").unwrap();
    open.read_exact(&mut [0]).unwrap();
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    // It accepts no more.
    while std::net::TcpStream::connect(&addr).is_ok() {}
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 32_000_000 && rest.ends_with(b"xxx"), "{} bytes", rest.len());
    assert_eq!(next(), "ended");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_second_signal_ends_open_requests() {
    let (child, mut next) = Process::serving();
    let addr = next();
    let mut open = std::net::TcpStream::connect(&addr).unwrap();
    open.write_all(b"GET /bytes/32000000 HTTP/1.1\r\nhost: a.test\r\n\r\n").unwrap();
    open.read_exact(&mut [0]).unwrap();
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    while std::net::TcpStream::connect(&addr).is_ok() {}
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    assert_eq!(next(), "ended");
    let mut rest = Vec::new();
    let _ = open.read_to_end(&mut rest);
    assert!(rest.len() < 32_000_000, "{} bytes", rest.len());
}
