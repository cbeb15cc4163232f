//! Life of the server: from its first listener to the last response.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use marcato_web::files::{Files, FilesConfig};
use marcato_web::proxy::{Proxy, ProxyConfig};
use marcato_web::{Config, Identity, Server, ServerIdentity, Workers};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::access::Access;
use crate::error::ServeError;
use crate::options::{Content, Options, Tls};
use crate::site::Site;

/// Name in a self-signed certificate. Browsers warn of it under any other.
const NAME: &str = "localhost";

/// Printer of messages and of the access log. Each text is one or several whole lines.
pub type Print<'a> = dyn FnMut(&str) -> io::Result<()> + 'a;

/// Serves a site until SIGINT or SIGTERM. Open requests are then finished; a second signal ends them.
///
/// # Errors
/// If nothing can be served, or the log cannot be printed.
pub fn run(options: &Options, print: &mut Print<'_>) -> Result<(), ServeError> {
    // The workers carry the connections. What is left for this thread is to accept them, and to print.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(ServeError::Runtime)?.block_on(serve(options, print))
}

/// Returns a site, and its name for people.
fn site(content: &Content) -> Result<(Site, String), ServeError> {
    match content {
        Content::Directory { path, listing } => {
            let config = FilesConfig { listing: *listing, ..FilesConfig::new(path) };
            Ok((Site::Files(Files::new(config)?), path.display().to_string()))
        }
        Content::Origin(uri) => Ok((Site::Origin(Proxy::new(ProxyConfig::to(uri))?), uri.clone())),
    }
}

/// Returns the server's certificate; `None` in cleartext.
fn identity(tls: &Tls) -> Result<Option<Identity>, ServeError> {
    match tls {
        Tls::Cleartext => Ok(None),
        Tls::SelfSigned => Ok(Some(Identity::self_signed(NAME)?)),
        Tls::Files { chain, key } => Ok(Some(Identity::from_pem_files(chain, key)?)),
    }
}

async fn serve(options: &Options, print: &mut Print<'_>) -> Result<(), ServeError> {
    let (site, name) = site(&options.content)?;
    let (access, mut lines) = Access::new();
    let mut config = Config::default();
    config.coupled = options.coupled;
    // Browsers then open WebSockets on the connection that they have.
    config.extended_connect = matches!(site, Site::Origin(_));
    if options.access_log {
        config.log = Some(access.log());
    }
    let workers = Workers::one_per_core().map_err(ServeError::Runtime)?;
    let mut server = Server::with_config(config).workers(workers);
    let mut presented = None;
    let mut hello = format!("serving {name}\n");
    if let Some(identity) = identity(&options.tls)? {
        let fingerprint = identity.fingerprint();
        let identity = ServerIdentity::new(&identity)?;
        server = server.identity(&identity)?;
        presented = Some(identity);
        if let Some(fingerprint) = fingerprint {
            let kind = match options.tls {
                Tls::SelfSigned => " (self-signed: browsers ask before they accept it)",
                _ => "",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(hello, "certificate {fingerprint}{kind}");
        }
    }
    let scheme = if presented.is_some() { "https" } else { "http" };
    // From here on a signal ends the server in order.
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    let (ending, ended) = watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for addr in &options.listen {
        let listener = listen(*addr).await?;
        let at = listener.local_addr().map_err(|source| ServeError::Listen { addr: *addr, source })?;
        let _ = writeln!(hello, "listening on {scheme}://{at}");
        let (server, site, mut ended) = (server.clone(), site.clone(), ended.clone());
        serving.spawn(async move {
            let end = async { _ = ended.wait_for(|ended| *ended).await };
            server.serve_until(listener, site, end).await;
        });
    }
    print(&hello).map_err(ServeError::Print)?;
    loop {
        tokio::select! {
            Some(line) = lines.recv() => print(&line).map_err(ServeError::Print)?,
            event = signals.next() => match event {
                Event::End => break,
                Event::Reload => {
                    if let (Some(presented), Tls::Files { chain, key }) = (&presented, &options.tls) {
                        let next = Identity::from_pem_files(chain, key).map_err(ServeError::from);
                        let said = match next.and_then(|next| Ok(presented.replace(&next)?)) {
                            Ok(()) => "certificate reloaded\n".to_owned(),
                            // The one before stays.
                            Err(error) => format!("certificate not reloaded: {error}\n"),
                        };
                        print(&said).map_err(ServeError::Print)?;
                    }
                }
            },
        }
    }
    print("ending: open requests are finished; a second signal ends at once\n").map_err(ServeError::Print)?;
    let _ = ending.send(true);
    loop {
        tokio::select! {
            served = serving.join_next() => if served.is_none() { break },
            Some(line) = lines.recv() => print(&line).map_err(ServeError::Print)?,
            Event::End = signals.next() => break,
        }
    }
    while let Ok(line) = lines.try_recv() {
        print(&line).map_err(ServeError::Print)?;
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
    print(&format!("{summary}\n")).map_err(ServeError::Print)?;
    Ok(())
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
