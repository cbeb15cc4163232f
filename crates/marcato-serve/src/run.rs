//! Life of the server: from its first listener to the last response.

use std::fmt::Write as _;
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use marcato_sched::Debt;
use marcato_sched::exchange::Rules;
use marcato_web::{Server, Workers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::access::{Access, OpenLog};
use crate::acme::{Event as AcmeEvent, Keeper, Settings};
use crate::certificates::Certificates;
use crate::config::{CertificateSource, Config, ConfigError, Content};
use crate::error::ServeError;
use crate::listeners::{Bound, Listeners};
use crate::monitor::Monitor;
use crate::opened::Opened;
use crate::options::Options;
use crate::router::{Router, Sites};
use crate::supervisor::{self, Sockets};

/// Printer of messages and of the access log. Each text is one or several whole lines.
pub type Print<'a> = dyn FnMut(&str) -> io::Result<()> + 'a;

/// Source of a server's configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Options of a command line.
    Options(Options),
    /// Configuration file, which is read again at SIGHUP.
    File(PathBuf),
}

impl Source {
    fn read(&self) -> Result<Config, ConfigError> {
        match self {
            Self::Options(options) => Ok(Config::from(options)),
            Self::File(path) => Config::load(path),
        }
    }
}

/// Serves sites until SIGINT or SIGTERM. Open requests are then finished; a second signal ends them.
///
/// SIGUSR1 opens the file of the access log again. SIGHUP does so and reads the configuration again. Connections and requests go on; new requests meet the new sites. A
/// configuration with errors leaves the one before in place.
///
/// # Errors
/// If nothing can be served, or the log cannot be printed.
pub fn run(source: &Source, print: &mut Print<'_>) -> Result<(), ServeError> {
    runtime()?.block_on(serve(source, print))
}

/// Checks a configuration, and all that it names, without a listener. Returns a line for people.
///
/// # Errors
/// All errors of the file, or else all that it names and that cannot be opened.
pub fn check(source: &Source) -> Result<String, ServeError> {
    let config = source.read()?;
    runtime()?.block_on(async { Opened::new(&config, &Opened::default()) })?;
    Access::check(&config)?;
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let listeners = count(config.listen.len(), "listener");
    let (sites, origins) = (count(config.sites.len(), "site"), count(config.origins.len(), "origin"));
    Ok(format!("no errors: {listeners}, {sites}, {origins}\n"))
}

/// Returns the configuration as it takes effect, as the text of a file: with the default of each key that it omits.
///
/// # Errors
/// All errors of the file.
pub fn print_config(source: &Source) -> Result<String, ServeError> {
    Ok(match source {
        Source::Options(options) => Config::print("the command line", &options.to_toml())?,
        Source::File(path) => {
            let name = path.display().to_string();
            // Another reading tells of errors.
            Config::load(path)?;
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::whole(&name, format!("cannot be read: {error}")))?;
            Config::print(&name, &text)?
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    // The workers carry the connections. What is left for this thread is to accept them, and to print.
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)
}

/// Server with its current configuration.
struct Running {
    config: Config,
    opened: Opened,
    sites: Arc<ArcSwap<Sites>>,
    certificates: Arc<Certificates>,
    listeners: Listeners,
    sockets: Sockets,
    plain: Server,
    tls: Server,
    access: Access,
    monitor: Monitor,
    /// Settings and task of the account for certificates.
    keeper: Option<(Settings, JoinHandle<()>)>,
    acme_events: mpsc::Sender<AcmeEvent>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.keeper {
            task.abort();
        }
    }
}

/// Returns the configuration of the web server.
fn web(config: &Config, access: &Access, monitor: &Monitor) -> marcato_web::Config {
    let mut web = marcato_web::Config::default();
    web.coupled = config.coupled;
    web.marks = config.marks;
    web.http3 = config.http3;
    if !config.debts {
        web.exchange.rules = Rules::Fixed(Debt::strict());
    }
    web.guess = config.guess.clone();
    web.limits = config.limits;
    web.trusted.clone_from(&config.trusted);
    // Browsers then open WebSockets on the connection that they have.
    let mut routes = config.sites.iter().flat_map(|site| &site.routes);
    web.extended_connect = routes.any(|route| matches!(route.content, Content::Origin(_)));
    web.log = config.access_log.as_ref().map(|log| log.receiver(access));
    monitor.configure(&mut web);
    web
}

impl Running {
    fn start(
        config: Config,
        access: Access,
        acme_events: mpsc::Sender<AcmeEvent>,
    ) -> Result<Self, ServeError> {
        // The engine of TLS for requests to authorities; another may have been chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let opened = Opened::new(&config, &Opened::default())?;
        let sockets = Sockets::take().map_err(ServeError::Sockets)?;
        let listeners = Listeners::default();
        let bound = listeners.bind(&config, &sockets)?;
        let certificates = Certificates::new();
        let mut monitor = Monitor::new(&config)?;
        let log = Access::open(&config)?;
        let plain = Server::with_config(web(&config, &access, &monitor))
            .workers(Workers::one_per_core().map_err(ServeError::Runtime)?);
        monitor.begin(&plain).map_err(ServeError::Listen)?;
        let tls = plain.clone().tls(certificates.server_tls(config.min_tls)?);
        let sites = Arc::new(ArcSwap::from_pointee(Sites::default()));
        let mut running = Self {
            config: Config::default(),
            opened: Opened::default(),
            sites,
            certificates,
            listeners,
            sockets,
            plain,
            tls,
            access,
            monitor,
            keeper: None,
            acme_events,
        };
        running.apply(config, opened, bound, log).map_err(ServeError::Listen)?;
        Ok(running)
    }

    /// Uses a configuration whose parts are all open.
    fn apply(&mut self, config: Config, opened: Opened, bound: Bound, log: OpenLog) -> io::Result<()> {
        self.access.apply(log)?;
        self.plain.configure(web(&config, &self.access, &self.monitor));
        self.monitor.opened(&opened);
        self.certificates.accept(opened.clients());
        self.certificates.present(opened.names(&config));
        if config.min_tls != self.config.min_tls {
            let tls = self.certificates.server_tls(config.min_tls).map_err(io::Error::other)?;
            self.tls.replace_tls(tls);
        }
        self.sites.store(Arc::clone(&opened.sites));
        let (plain, tls) = (&self.plain, &self.tls);
        let (sites, certificates, monitor) = (&self.sites, &self.certificates, &self.monitor);
        self.listeners.apply(&config, bound, |plaintext| {
            let server = if plaintext { plain.clone() } else { tls.clone() };
            let (sites, certificates) = (Arc::clone(sites), Arc::clone(certificates));
            let watched = monitor.watched(());
            let router = move |state| {
                let router = Router::new(Arc::clone(&sites), Arc::clone(&certificates), state, !plaintext);
                watched.clone().with(router)
            };
            (server, Box::new(router))
        })?;
        self.keep_certificates(&config);
        (self.config, self.opened) = (config, opened);
        Ok(())
    }

    /// Asks for certificates by ACME, if sites need them.
    fn keep_certificates(&mut self, config: &Config) {
        let of_acme = |site: &&crate::config::Site| site.certificate.value == CertificateSource::Acme;
        let names = |site: &crate::config::Site| site.hosts.iter().map(ToString::to_string).collect();
        let sites: Vec<Vec<String>> = config.sites.iter().filter(of_acme).map(names).collect();
        let settings = config.acme.as_ref().filter(|_| !sites.is_empty()).map(|acme| Settings {
            state: config.path(&acme.state.value),
            directory: acme.directory.clone(),
            contacts: acme.contacts.clone(),
            ca: acme.ca.as_ref().map(|ca| config.path(&ca.value)),
            renew_before: acme.renew_before,
            dns_hook: acme.dns_hook.clone(),
            sites,
        });
        if self.keeper.as_ref().map(|(settings, _)| settings) == settings.as_ref() {
            return;
        }
        if let Some((_, task)) = self.keeper.take() {
            task.abort();
        }
        self.keeper = settings.map(|settings| {
            let (certificates, events) = (Arc::clone(&self.certificates), self.acme_events.clone());
            let keeper = Keeper { settings: settings.clone(), certificates, events };
            (settings, tokio::spawn(keeper.run()))
        });
    }

    /// Reads the configuration again. Returns a message about it.
    fn reload(&mut self, source: &Source) -> String {
        let most = self.config.limits.connections;
        let result = source.read().and_then(|config| {
            let opened = Opened::new(&config, &self.opened)?;
            let bound = self.listeners.bind(&config, &self.sockets)?;
            let log = Access::open(&config)?;
            Ok((config, opened, bound, log))
        });
        // Options of a command line stay; what may have changed are the files of the certificate.
        let what = match source {
            Source::Options(_) => "certificate",
            Source::File(_) => "configuration",
        };
        match result {
            Ok((config, opened, bound, log)) => {
                let bound_changed =
                    config.limits.connections != most || self.monitor.differs(&self.config, &config);
                if let Err(error) = self.apply(config, opened, bound, log) {
                    return format!("{what} reloaded in part: {error}\n");
                }
                let note = "; `connections` of [limits], `metrics` and `watch` change when the server is started again";
                format!("{what} reloaded{}\n", if bound_changed { note } else { "" })
            }
            // The one before stays.
            Err(error) => format!("{what} not reloaded: {error}\n"),
        }
    }

    /// Reads the certificates again; returns a message if something has changed.
    fn refresh(&mut self) -> (bool, Option<String>) {
        let (changed, result) = self.opened.refresh(&self.config);
        if changed {
            self.certificates.present(self.opened.names(&self.config));
        }
        (changed, result.err().map(|error| error.to_string()))
    }

    /// Returns the first lines for people.
    fn hello(&self) -> String {
        let mut hello = String::new();
        // Writing to a string cannot fail.
        for (index, site) in self.config.sites.iter().enumerate() {
            let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
            let of = if hosts.is_empty() { String::new() } else { format!("{}: ", hosts.join(", ")) };
            for route in &site.routes {
                let at = if route.path.is_empty() { String::new() } else { format!(" at {}", route.path) };
                let _ = match &route.content {
                    Content::Files(files) => {
                        writeln!(hello, "{of}serving {}{at}", files.value.root.display())
                    }
                    Content::Origin(name) => writeln!(hello, "{of}serving {name}{at}"),
                    Content::Redirect(redirect) => {
                        writeln!(hello, "{of}redirecting{at} to {}", redirect.to)
                    }
                };
            }
            match self.opened.certificates.get(index) {
                Some(Some(certificate)) => {
                    let kind = match certificate.is_self_signed() {
                        true => " (self-signed: browsers ask before they accept it)",
                        false => "",
                    };
                    if let Some(fingerprint) = certificate.identity.fingerprint() {
                        let _ = writeln!(hello, "{of}certificate {fingerprint}{kind}");
                    }
                }
                Some(None) => _ = writeln!(hello, "{of}certificate is to be issued"),
                None => {}
            }
        }
        if let Some(addr) = self.monitor.metrics() {
            let _ = writeln!(hello, "metrics at http://{addr}/metrics");
        }
        if self.monitor.is_watched() {
            let _ = writeln!(hello, "last connections at /.marcato/, for clients at this machine");
        }
        for (is_tls, addr) in self.listeners.addresses(&self.config) {
            let scheme = if is_tls { "https" } else { "http" };
            let _ = writeln!(hello, "listening on {scheme}://{addr}");
        }
        hello
    }
}

async fn serve(source: &Source, print: &mut Print<'_>) -> Result<(), ServeError> {
    let config = source.read()?;
    let (access, mut lines) = Access::new();
    let (acme_events, mut issued) = mpsc::channel(16);
    let mut running = Running::start(config, access.clone(), acme_events)?;
    // From here on a signal ends the server in order.
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    print(&running.hello()).map_err(ServeError::Print)?;
    supervisor::ready();
    let mut watchdog = Ticks::every(supervisor::watchdog());
    let mut check = Ticks::every(Some(running.config.certificate_check));
    let mut complained = None;
    loop {
        let said = tokio::select! {
            Some(line) = lines.recv() => Some(line),
            event = signals.next() => match event {
                Event::End => break,
                Event::Reload => {
                    supervisor::reloading();
                    let said = running.reload(source);
                    check = Ticks::every(Some(running.config.certificate_check));
                    supervisor::ready();
                    Some(said)
                }
                Event::Reopen => match access.reopen() {
                    Ok(true) => Some("access log reopened\n".to_owned()),
                    Ok(false) => None,
                    Err(problem) => Some(format!("access log not reopened: {problem}\n")),
                },
            },
            Some(event) = issued.recv() => Some(match event {
                AcmeEvent::Issued(said) => {
                    running.refresh();
                    format!("{said}\n")
                }
                AcmeEvent::Failed(said) => format!("{said}\n"),
            }),
            () = check.next() => {
                let (changed, error) = running.refresh();
                // The same complaint is printed once.
                let said = match &error {
                    Some(error) if complained.as_ref() != Some(error) => {
                        Some(format!("certificate not reloaded: {error}\n"))
                    }
                    _ => changed.then(|| "certificate reloaded\n".to_owned()),
                };
                complained = error;
                said
            }
            () = watchdog.next() => {
                supervisor::alive();
                None
            }
        };
        if let Some(said) = said {
            print(&said).map_err(ServeError::Print)?;
        }
    }
    supervisor::stopping();
    print("ending: open requests are finished; a second signal ends at once\n").map_err(ServeError::Print)?;
    running.listeners.end();
    loop {
        tokio::select! {
            is_one = running.listeners.next_ended() => if !is_one { break },
            Some(line) = lines.recv() => print(&line).map_err(ServeError::Print)?,
            () = watchdog.next() => supervisor::alive(),
            Event::End = signals.next() => break,
        }
    }
    access.end();
    while let Ok(line) = lines.try_recv() {
        print(&line).map_err(ServeError::Print)?;
    }
    let counters = running.plain.counters();
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
    print(&format!("{summary}\n")).map_err(ServeError::Print)
}

/// Ticks of a clock, or none.
struct Ticks(Option<tokio::time::Interval>);

impl Ticks {
    fn every(period: Option<Duration>) -> Self {
        Self(period.filter(|period| !period.is_zero()).map(|period| {
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }))
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Some(ticks) => _ = ticks.tick().await,
            None => pending().await,
        }
    }
}

/// Signals of the operating system.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    user: Signal,
}

/// Meaning of a signal.
enum Event {
    End,
    Reload,
    Reopen,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.interrupt.recv() => Event::End,
            _ = self.terminate.recv() => Event::End,
            _ = self.hang_up.recv() => Event::Reload,
            _ = self.user.recv() => Event::Reopen,
        }
    }
}

#[cfg(test)]
mod tests {
    use marcato_net::Coupling;

    use super::*;

    /// Returns the configuration of the web server for a file with these lines, and these tables behind them.
    fn web_of(lines: &str, tables: &str) -> marcato_web::Config {
        let text = format!(
            "{lines}\n[[listen]]\naddress = \"127.0.0.1:0\"\nplaintext = true\n[[site]]\nhosts = [\"localhost\"]\n\
             default = true\ndirectory = \"/\"\n{tables}"
        );
        let config = Config::parse("serve.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let (access, _lines) = Access::new();
        web(&config, &access, &Monitor::new(&config).unwrap())
    }

    #[test]
    fn a_file_without_debts_has_the_exact_order_at_every_rate() {
        let rules = |lines: &str| web_of(lines, "").exchange.rules;
        assert_eq!(rules("debts = false"), Rules::Fixed(Debt::strict()));
        assert_eq!((rules("debts = true"), rules("")), (Rules::FollowRate, Rules::FollowRate));
    }

    #[test]
    fn the_web_server_has_what_a_file_says() {
        assert_eq!(
            (web_of("", "").coupled, web_of("coupled = \"off\"", "").coupled),
            (Coupling::Auto, Coupling::Off)
        );
        assert_eq!((web_of("", "").http3, web_of("http3 = false", "").http3), (true, false));
        let mut points = marcato_net::CodePoints::default();
        assert_eq!((web_of("", "").marks, web_of("marks = true", "").marks), (None, Some(points)));
        points.set(marcato_units::Priority::P0, "ef".parse().unwrap());
        assert_eq!(web_of("", "[marks]\np0 = \"ef\"\n").marks, Some(points));
        let guess = "large-above-bytes = 7\n[guess.extensions]\npng = \"u=7\"\n";
        let web = web_of(
            "",
            &format!("[limits]\nstreams = 7\n[rates]\ntrusted = \"10.0.0.0/8\"\n[guess]\n{guess}"),
        );
        let expected = toml::from_str(&guess.replace("guess.", "")).unwrap();
        assert_eq!((web.guess, web.limits.streams), (expected, 7));
        assert_eq!(web.trusted, ["10.0.0.0/8".parse().unwrap()]);
    }
}
