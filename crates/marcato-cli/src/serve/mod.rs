//! `marcato serve`: a directory, or an origin behind it, over HTTP/1.1 and HTTP/2, in the order that
//! matters.

mod access;
mod error;
mod site;

use std::fmt::Write as _;
use std::io::Write;
use std::net::SocketAddr;

use marcato_net::Identity;
use marcato_web::files::{Files, FilesConfig};
use marcato_web::proxy::{Proxy, ProxyConfig};
use marcato_web::{Config, Server};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::Status;
use crate::arguments::Serve;
use crate::output;
use access::Access;
pub(crate) use error::ServeError;
use site::Site;

/// Name in a self-signed certificate. Browsers warn of it under any other.
const NAME: &str = "localhost";

pub(crate) fn run(asked: &Serve, stdout: &mut dyn Write) -> Result<Status, ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(ServeError::Runtime)?.block_on(serve(asked, stdout))
}

/// Returns the site of the arguments, and its name for people.
fn site(asked: &Serve) -> Result<(Site, String), ServeError> {
    match (&asked.directory, &asked.to) {
        (Some(directory), _) => {
            let config = FilesConfig { listing: asked.listing, ..FilesConfig::new(directory) };
            Ok((Site::Files(Files::new(config)?), directory.display().to_string()))
        }
        (None, Some(to)) => Ok((Site::Origin(Proxy::new(ProxyConfig::to(to))?), to.clone())),
        (None, None) => Err(ServeError::Nothing),
    }
}

/// Returns the server's certificate: that of the arguments, or else a new self-signed one.
fn identity(asked: &Serve) -> Result<Identity, ServeError> {
    match (&asked.cert, &asked.key) {
        (Some(cert), Some(key)) => Ok(Identity::from_pem_files(cert, key)?),
        _ => Ok(Identity::self_signed(NAME)?),
    }
}

async fn serve(asked: &Serve, stdout: &mut dyn Write) -> Result<Status, ServeError> {
    let (site, name) = site(asked)?;
    let (access, mut lines) = Access::new();
    let mut config = Config::default();
    config.coupled = asked.coupled.into();
    // Browsers then open WebSockets on the connection that they have.
    config.extended_connect = matches!(site, Site::Origin(_));
    if !asked.quiet {
        config.log = Some(access.log());
    }
    let mut server = Server::with_config(config);
    let mut presented = None;
    let mut hello = format!("serving {name}\n");
    if !asked.plaintext {
        let identity = identity(asked)?;
        let fingerprint = identity.fingerprint();
        let identity = marcato_web::ServerIdentity::new(&identity)?;
        server = server.identity(&identity)?;
        presented = Some(identity);
        if let Some(fingerprint) = fingerprint {
            let kind =
                if asked.cert.is_some() { "" } else { " (self-signed: browsers ask before they accept it)" };
            // Writing to a string cannot fail.
            let _ = writeln!(hello, "certificate {fingerprint}{kind}");
        }
    }
    let scheme = if asked.plaintext { "http" } else { "https" };
    // From here on a signal ends the server in order.
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    let (ending, ended) = watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for addr in &asked.listen {
        let listener = listen(*addr).await?;
        let at = listener.local_addr().map_err(|source| ServeError::Listen { addr: *addr, source })?;
        let _ = writeln!(hello, "listening on {scheme}://{at}");
        let (server, site, mut ended) = (server.clone(), site.clone(), ended.clone());
        serving.spawn(async move {
            let end = async { _ = ended.wait_for(|ended| *ended).await };
            server.serve_until(listener, site, end).await;
        });
    }
    output::print(stdout, &hello).map_err(ServeError::Print)?;
    loop {
        tokio::select! {
            Some(line) = lines.recv() => output::print(stdout, &line).map_err(ServeError::Print)?,
            event = signals.next() => match event {
                Event::End => break,
                Event::Reload => {
                    if let (Some(presented), true) = (&presented, asked.cert.is_some()) {
                        let said = match identity(asked).and_then(|next| Ok(presented.replace(&next)?)) {
                            Ok(()) => "certificate reloaded\n".to_owned(),
                            // The one before stays.
                            Err(error) => format!("certificate not reloaded: {error}\n"),
                        };
                        output::print(stdout, &said).map_err(ServeError::Print)?;
                    }
                }
            },
        }
    }
    output::print(stdout, "ending: open requests are finished; a second signal ends at once\n")
        .map_err(ServeError::Print)?;
    let _ = ending.send(true);
    loop {
        tokio::select! {
            served = serving.join_next() => if served.is_none() { break },
            Some(line) = lines.recv() => output::print(stdout, &line).map_err(ServeError::Print)?,
            Event::End = signals.next() => break,
        }
    }
    while let Ok(line) = lines.try_recv() {
        output::print(stdout, &line).map_err(ServeError::Print)?;
    }
    let counters = server.counters();
    let missed = access.missed();
    let mut summary = format!(
        "served {} requests on {} connections",
        counters.requests,
        counters.connections.iter().sum::<u64>()
    );
    if missed > 0 {
        let _ =
            write!(summary, "; {missed} lines of the log are missing, because they were not read in time");
    }
    output::print(stdout, &format!("{summary}\n")).map_err(ServeError::Print)?;
    Ok(Status::Ok)
}

async fn listen(addr: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(addr).await.map_err(|source| ServeError::Listen { addr, source })
}

/// Signals of the operating system.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// Meaning of a signal.
enum Event {
    End,
    Reload,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.interrupt.recv() => Event::End,
            _ = self.terminate.recv() => Event::End,
            _ = self.hang_up.recv() => Event::Reload,
        }
    }
}
