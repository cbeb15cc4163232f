//! Servers of the web experiments.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use marcato_lab::Lab;
use marcato_net::Coupling;
use marcato_net::rustls::pki_types::PrivateKeyDer;
use marcato_web::{Body, Config, Identity, Server, ServerIdentity};
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use super::client::FILES;
use crate::error::SimulationError;
use crate::lab::{failed, on_host};

/// Name in the servers' certificate.
pub(super) const NAME: &str = "web.marcato";
pub(super) const PORT: u16 = 443;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The web plane with its defaults.
    Marcato,
    /// The web plane without coupled mode.
    Lean,
    /// hyper as it is: the same service, with the library's own order.
    Hyper,
    /// nginx with small records and chunks, if it is installed.
    Nginx,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Marcato, Self::Lean, Self::Hyper, Self::Nginx];

    /// Name in row ids.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Marcato => "marcato",
            Self::Lean => "lean",
            Self::Hyper => "hyper",
            Self::Nginx => "nginx",
        }
    }

    /// Name for people.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Marcato => "Marcato",
            Self::Lean => "Marcato without coupled mode",
            Self::Hyper => "hyper",
            Self::Nginx => "nginx",
        }
    }

    /// Program that has to be installed; `None` for those that are built in.
    pub(super) const fn program(self) -> Option<&'static str> {
        match self {
            Self::Nginx => Some("nginx"),
            Self::Marcato | Self::Lean | Self::Hyper => None,
        }
    }

    /// True if the server can run here.
    pub(super) fn is_installed(self) -> bool {
        let exists = |program: &str| {
            std::env::var_os("PATH")
                .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
                || Path::new("/usr/sbin").join(program).is_file()
        };
        self.program().is_none_or(exists)
    }
}

/// Running server. It ends when this is dropped.
pub(super) enum Running {
    /// Thread of this process, which ends when the other end of the channel does.
    Thread { end: Option<oneshot::Sender<()>>, thread: Option<JoinHandle<Result<(), SimulationError>>> },
    /// Program, and its files.
    Program { child: Child, _files: TempDir },
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Thread { end, thread } => {
                drop(end.take());
                // Its clients have what they asked for, so its error means nothing.
                let _ = thread.take().map(JoinHandle::join);
            }
            Self::Program { child, .. } => {
                // Killed, it would leave its workers behind. It may have ended by itself.
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
                let _ = child.wait();
            }
        }
    }
}

/// Service of the web plane: the files, from memory.
#[derive(Clone, Copy, Debug)]
struct Files;

impl Service<Request<Body>> for Files {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(answer(request.uri().path())))
    }
}

/// Starts a server on the host `server` of a lab. Connections have this congestion control.
pub(super) fn start(
    kind: Kind,
    lab: &Lab,
    identity: &Identity,
    congestion: &'static str,
    patience: Duration,
) -> Result<Running, SimulationError> {
    let listener = lab.run("server", move || listen(congestion)).map_err(failed)?.map_err(failed)?;
    if kind == Kind::Nginx {
        return nginx(lab, &listener, identity);
    }
    let presented = ServerIdentity::new(identity).map_err(failed)?;
    let (end, ended) = oneshot::channel();
    let thread = on_host(lab, "server", patience, move || async move {
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let served = async {
            if kind == Kind::Hyper {
                return hyper(listener, &presented).await;
            }
            let mut config = Config::default();
            if kind == Kind::Lean {
                config.coupled = Coupling::Off;
            }
            let server = Server::with_config(config).identity(&presented).map_err(failed)?;
            server.serve(listener, Files).await;
            Ok(())
        };
        tokio::select! {
            served = served => served,
            _ = ended => Ok(()),
        }
    })?;
    Ok(Running::Thread { end: Some(end), thread: Some(thread) })
}

/// Opens a socket whose connections have a congestion control. Outside the first network namespace the
/// system lets only sockets choose BBR.
fn listen(congestion: &str) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_congestion(congestion.as_bytes())?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Returns an identity that all servers can read.
pub(super) fn identity() -> Result<Identity, SimulationError> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let params = rcgen::CertificateParams::new([NAME.to_owned()]).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Ok(Identity::new(vec![certificate.into()], key))
}

/// Content of a file: letters that differ from segment to segment.
fn content(length: u64) -> Bytes {
    (0..length).map(|at| b'a' + u8::try_from(at / 1000 % 26).unwrap_or(0)).collect()
}

/// Answers a request from memory.
fn answer(path: &str) -> Response<Full<Bytes>> {
    match FILES.iter().find(|(name, ..)| *name == path) {
        Some((_, length, ..)) => Response::new(Full::new(content(*length))),
        None => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

async fn hyper(listener: TcpListener, presented: &Arc<ServerIdentity>) -> Result<(), SimulationError> {
    let mut tls = presented.server_tls(None).map_err(failed)?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    loop {
        let (stream, _) = listener.accept().await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                Ok::<_, Infallible>(answer(request.uri().path()))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A client that goes away ends its connection.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Starts nginx with a socket that is open already, as it passes those on when it replaces itself.
fn nginx(
    lab: &Lab,
    listener: &std::net::TcpListener,
    identity: &Identity,
) -> Result<Running, SimulationError> {
    let files = tempfile::tempdir().map_err(failed)?;
    let write = |name: &str, content: &[u8]| std::fs::write(files.path().join(name), content).map_err(failed);
    for (path, length, ..) in FILES {
        write(path.trim_start_matches('/'), &content(length))?;
    }
    write("chain.pem", identity.chain_pem().as_bytes())?;
    write("key.pem", identity.key_pem().as_bytes())?;
    let dir = files.path().display();
    let config = format!(
        "user root; worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/errors;
        events {{}}
        http {{
            access_log off;
            client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
            uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
            server {{
                listen {PORT} ssl http2; root {dir};
                ssl_certificate {dir}/chain.pem; ssl_certificate_key {dir}/key.pem; ssl_protocols TLSv1.3;
                ssl_buffer_size 4k; http2_chunk_size 4k;
            }}
        }}"
    );
    write("nginx.conf", config.as_bytes())?;
    let mut command = Command::new("nginx");
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty()).map_err(failed)?;
    command.env("NGINX", format!("{};", listener.as_raw_fd()));
    command.arg("-c").arg(files.path().join("nginx.conf")).arg("-e").arg(files.path().join("errors"));
    let child = lab.spawn("server", command).map_err(failed)?;
    Ok(Running::Program { child, _files: files })
}
