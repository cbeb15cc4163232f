//! Servers of the web experiments.

mod built_in;
mod caddy;
mod h2o;
mod nginx;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::Duration;

use marcato_lab::Lab;
use marcato_net::rustls::pki_types::PrivateKeyDer;
use marcato_web::Identity;
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::site::Site;
use crate::error::SimulationError;
use crate::lab::failed;

pub(super) use built_in::start_here;
pub(super) use nginx::plain as plain_nginx;

/// Name in the servers' certificate.
pub(super) const NAME: &str = "web.marcato";
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The web plane with its defaults.
    Marcato,
    /// The web plane without coupled mode.
    Lean,
    /// The web plane with all responses of one urgency, and without coupled mode: first come, first served.
    Fifo,
    /// hyper as it is: the same service, with the library's own order.
    Hyper,
    /// nginx with small records and chunks, if it is installed.
    Nginx,
    /// h2o with its optimisation of latency on every link, if it is installed.
    H2o,
    /// Caddy with its defaults, if it is installed.
    Caddy,
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Marcato, Self::Lean, Self::Hyper, Self::Nginx, Self::H2o, Self::Caddy];

    /// Name in row ids.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Marcato => "marcato",
            Self::Lean => "lean",
            Self::Fifo => "fifo",
            Self::Hyper => "hyper",
            Self::Nginx => "nginx",
            Self::H2o => "h2o",
            Self::Caddy => "caddy",
        }
    }

    /// Name for people.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Marcato => "Marcato",
            Self::Lean => "Marcato without coupled mode",
            Self::Fifo => "FIFO",
            Self::Hyper => "hyper",
            Self::Nginx => "nginx",
            Self::H2o => "h2o",
            Self::Caddy => "Caddy",
        }
    }

    /// Programs that have to be installed: none for those that are built in.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["nginx"],
            Self::H2o => &["h2o"],
            // It takes no open socket, so its routes choose the congestion control.
            Self::Caddy => &["caddy", "ip"],
            Self::Marcato | Self::Lean | Self::Fifo | Self::Hyper => &[],
        }
    }

    /// True if the server can run here.
    pub(super) fn is_installed(self) -> bool {
        self.programs().iter().all(|program| is_installed(program))
    }

    /// Those of these kinds that can run here, and a sentence about the others.
    pub(super) fn installed(kinds: &[Self]) -> (Vec<Self>, String) {
        let (installed, missing): (Vec<_>, Vec<_>) = kinds.iter().partition(|kind| kind.is_installed());
        let word = |kind: &Self| format!("\n\n{} is not installed, so it is missing here.", kind.title());
        (installed, missing.iter().map(word).collect())
    }
}

/// True if a program is in the search path, or where Debian has servers.
pub(super) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
        || Path::new("/usr/sbin").join(program).is_file()
}

/// Server to be started in a lab.
#[derive(Clone, Debug)]
pub(super) struct Plan<'a> {
    pub(super) kind: Kind,
    pub(super) site: &'a Site,
    pub(super) identity: &'a Identity,
    pub(super) port: u16,
    /// Congestion control of its connections.
    pub(super) congestion: &'static str,
    /// True if it answers HTTP/3 too. A browser would change to it.
    pub(super) http3: bool,
    /// Time for which it serves at most.
    pub(super) patience: Duration,
}

/// Running server. It ends when this is dropped.
pub(super) enum Running {
    /// Thread of this process, which ends when the other end of the channel does.
    Thread { end: Option<oneshot::Sender<()>>, thread: Option<JoinHandle<Result<(), SimulationError>>> },
    /// Program, its files, and the signal that ends it at once.
    Program { child: Child, _files: TempDir, signal: Signal },
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Thread { end, thread } => {
                drop(end.take());
                // Its clients have what they asked for, so its error means nothing.
                let _ = thread.take().map(JoinHandle::join);
            }
            Self::Program { child, signal, .. } => {
                // It may have ended by itself.
                let _ = kill_process(Pid::from_child(child), *signal);
                let _ = child.wait();
            }
        }
    }
}

/// Starts a server on the host `server` of a lab.
pub(super) fn start(lab: &Lab, plan: &Plan<'_>) -> Result<Running, SimulationError> {
    if plan.kind == Kind::Caddy {
        return caddy::start(lab, plan);
    }
    let (congestion, port) = (plan.congestion, plan.port);
    let listener = lab.run("server", move || listen(congestion, port)).map_err(failed)?.map_err(failed)?;
    match plan.kind {
        Kind::Nginx => nginx::start(lab, plan, &listener),
        Kind::H2o => h2o::start(lab, plan, &listener),
        _ => built_in::start(lab, plan, listener),
    }
}

/// Opens a socket whose connections have a congestion control. Outside the first network namespace the
/// system lets only sockets choose BBR.
fn listen(congestion: &str, port: u16) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_congestion(congestion.as_bytes())?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Returns an identity that all servers can read.
pub(super) fn identity() -> Result<Identity, SimulationError> {
    identity_of(&[NAME])
}

/// Returns an identity of these names and addresses that all servers can read.
pub(super) fn identity_of(names: &[&str]) -> Result<Identity, SimulationError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let params = rcgen::CertificateParams::new(names).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Ok(Identity::new(vec![certificate.into()], key))
}

/// Writes what a program needs into a new directory: the site below `site`, certificate, key, and a
/// configuration.
pub(super) fn files(
    site: &Site,
    identity: &Identity,
    configuration: impl FnOnce(&Path) -> String,
) -> Result<TempDir, SimulationError> {
    let files = tempfile::tempdir().map_err(failed)?;
    let root = files.path().join("site");
    std::fs::create_dir(&root).map_err(failed)?;
    site.write(&root)?;
    for (name, content) in [
        ("chain.pem", identity.chain_pem()),
        ("key.pem", identity.key_pem()),
        ("configuration", configuration(files.path())),
    ] {
        std::fs::write(files.path().join(name), content).map_err(failed)?;
    }
    Ok(files)
}

/// Passes a socket on to the programs that are started from now on. Returns its number.
fn inherited(listener: &std::net::TcpListener) -> Result<i32, SimulationError> {
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty()).map_err(failed)?;
    Ok(listener.as_raw_fd())
}

/// Starts a program on the host `server`.
fn program(lab: &Lab, command: Command, files: TempDir, signal: Signal) -> Result<Running, SimulationError> {
    let child = lab.spawn("server", command).map_err(failed)?;
    Ok(Running::Program { child, _files: files, signal })
}
