//! Proxies for TCP and UDP that make a link worse. They need no privileges, no namespaces and no devices.
//!
//! A [`Pipe`] decides for one direction of a connection, without sockets and clocks. Drivers move bytes between sockets
//! and pipes. Datagrams of UDP go through a [`Link`], as packets of a lab do. [`Proxies`] is a set of
//! proxies that changes while it works.
//!
//! TCP is ended on both sides, so connections carry bytes: nothing is lost, and a link or a toxic that is slower than
//! the sender stops it. Each side may end its stream before the other, as without a proxy.

mod counters;
mod line;
mod pipe;
mod tcp;
mod toxic;
mod udp;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use marcato_scenario::brief::{Brief, BriefLink, Disorder};
use marcato_scenario::link::{Added, Capacity, Direction, Jitter, Loss, RandomLoss};
use marcato_scenario::queue::Queue;
use marcato_units::Seed;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Mutex as Turns, watch};
use tokio::task::JoinHandle;

pub use self::counters::ProxyCounters;
use self::counters::Shared;
pub use self::line::Line;
pub use self::pipe::{MAX_HELD, MAX_PIECE, Output, Pipe};
pub use self::tcp::MAX_CONNECTIONS;
use self::tcp::Proxied;
pub use self::toxic::{NamedToxic, Side, Toxic};
pub use self::udp::MAX_CLIENTS;
use self::udp::Relay;
use crate::build::{Traces, build};
use crate::{Datagram, Link};

/// Most proxies at a time.
pub const MAX_PROXIES: usize = 1024;
/// Most toxics of a proxy.
pub const MAX_TOXICS: usize = 64;
/// Longest name of a proxy or toxic, in bytes.
pub const MAX_NAME: usize = 256;

/// Protocol of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Connections of TCP.
    #[default]
    Tcp,
    /// Datagrams of UDP.
    Udp,
}

/// Configuration of a proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyConfig {
    /// Name, unique among the proxies.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Address on which it listens; port 0 lets the system choose.
    pub listen: String,
    /// Address of the target.
    pub target: String,
    /// Set if it accepts clients.
    pub enabled: bool,
    /// Link between client and target; `None` does nothing.
    pub link: Option<BriefLink>,
    /// Traces that the link names.
    pub traces: Traces,
    /// Toxics in addition to the link.
    pub toxics: Vec<NamedToxic>,
}

/// Proxy as it works at present.
#[derive(Clone, Debug)]
pub struct ProxyView {
    /// Configuration; it listens at the port that the system has chosen.
    pub config: ProxyConfig,
    /// Counters.
    pub counters: ProxyCounters,
}

/// Error returned when a proxy cannot be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// No proxy of this name.
    #[error("proxy not found: `{0}`")]
    NotFound(String),
    /// Name of another proxy.
    #[error("proxy already exists: `{0}`")]
    Exists(String),
    /// No toxic of this name.
    #[error("toxic not found: `{0}`")]
    NoToxic(String),
    /// Name of another toxic.
    #[error("toxic already exists: `{0}`")]
    ToxicExists(String),
    /// Toxic of another protocol.
    #[error("invalid toxic type: a proxy of {protocol} has no such toxic, use one of {known}")]
    Unsuitable {
        /// Protocol of the proxy.
        protocol: &'static str,
        /// Kinds that it has.
        known: &'static str,
    },
    /// A name that is empty or too long.
    #[error("a name has 1 to {MAX_NAME} bytes and no `/`: rename `{0}`")]
    Name(String),
    /// Too many proxies or toxics.
    #[error("there are {most} {what} already, which is the limit: remove one")]
    TooMany {
        /// Limit.
        most: usize,
        /// Kind of thing.
        what: &'static str,
    },
    /// The address cannot be used.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// Given address.
        addr: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The link cannot be emulated.
    #[error("the link of `{name}`: {problem}")]
    Link {
        /// Name of the proxy.
        name: String,
        /// Problem and its remedy.
        problem: String,
    },
}

/// Tasks of a proxy, which end when it is dropped.
struct Running {
    work: Work,
    task: JoinHandle<()>,
}

enum Work {
    Tcp(watch::Sender<Arc<Vec<NamedToxic>>>),
    Udp(Arc<Relay>),
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Proxy {
    config: ProxyConfig,
    counters: Arc<Shared>,
    running: Option<Running>,
}

/// Set of proxies, which changes while it works. They end when it is dropped.
pub struct Proxies {
    seed: Seed,
    all: Turns<BTreeMap<String, Proxy>>,
}

impl Proxies {
    /// Creates an empty set. All random numbers come from `seed`.
    pub fn new(seed: Seed) -> Self {
        Self { seed, all: Turns::default() }
    }

    /// Adds a proxy, and starts it if it is enabled.
    ///
    /// # Errors
    /// If its name is taken, its link or a toxic cannot be, or it cannot listen.
    pub async fn create(&self, config: ProxyConfig) -> Result<ProxyView, ProxyError> {
        let mut all = self.all.lock().await;
        check_name(&config.name)?;
        if all.contains_key(&config.name) {
            return Err(ProxyError::Exists(config.name));
        }
        if all.len() >= MAX_PROXIES {
            return Err(ProxyError::TooMany { most: MAX_PROXIES, what: "proxies" });
        }
        config.toxics.iter().try_for_each(|toxic| check_toxic(config.protocol, toxic))?;
        check_link(&config)?;
        let mut proxy = Proxy { config, counters: Arc::default(), running: None };
        if proxy.config.enabled {
            self.start(&mut proxy).await?;
        }
        let view = proxy.view();
        all.insert(proxy.config.name.clone(), proxy);
        Ok(view)
    }

    /// Changes a proxy. It closes its connections if it listens elsewhere, has another target, or is disabled.
    ///
    /// # Errors
    /// If there is no such proxy, or it cannot listen; it is then disabled.
    pub async fn update(
        &self,
        name: &str,
        listen: Option<String>,
        target: Option<String>,
        enabled: Option<bool>,
    ) -> Result<ProxyView, ProxyError> {
        let mut all = self.all.lock().await;
        let proxy = found(&mut all, name)?;
        let (listen, target) =
            (listen.filter(|to| *to != proxy.config.listen), target.filter(|to| *to != proxy.config.target));
        let enabled = enabled.unwrap_or(proxy.config.enabled);
        if listen.is_some() || target.is_some() || !enabled {
            proxy.stop().await;
        }
        if let Some(listen) = listen {
            proxy.config.listen = listen;
        }
        if let Some(target) = target {
            proxy.config.target = target;
        }
        proxy.config.enabled = false;
        if enabled {
            if proxy.running.is_none() {
                self.start(proxy).await?;
            }
            proxy.config.enabled = true;
        }
        Ok(proxy.view())
    }

    /// Removes a proxy, and closes its connections.
    ///
    /// # Errors
    /// If there is no such proxy.
    pub async fn delete(&self, name: &str) -> Result<(), ProxyError> {
        let mut all = self.all.lock().await;
        let mut proxy = all.remove(name).ok_or_else(|| ProxyError::NotFound(name.to_owned()))?;
        proxy.stop().await;
        Ok(())
    }

    /// Returns a proxy.
    ///
    /// # Errors
    /// If there is no such proxy.
    pub async fn get(&self, name: &str) -> Result<ProxyView, ProxyError> {
        found(&mut *self.all.lock().await, name).map(|proxy| proxy.view())
    }

    /// Returns all proxies, by name.
    pub async fn all(&self) -> Vec<ProxyView> {
        self.all.lock().await.values().map(Proxy::view).collect()
    }

    /// Adds a toxic to a proxy. It acts on open connections, too.
    ///
    /// # Errors
    /// If there is no such proxy, or the name of the toxic is taken.
    pub async fn add_toxic(&self, name: &str, toxic: NamedToxic) -> Result<(), ProxyError> {
        let mut all = self.all.lock().await;
        let proxy = found(&mut all, name)?;
        check_toxic(proxy.config.protocol, &toxic)?;
        if proxy.config.toxics.iter().any(|other| other.name == toxic.name) {
            return Err(ProxyError::ToxicExists(toxic.name));
        }
        if proxy.config.toxics.len() >= MAX_TOXICS {
            return Err(ProxyError::TooMany { most: MAX_TOXICS, what: "toxics" });
        }
        proxy.config.toxics.push(toxic);
        self.apply(proxy)
    }

    /// Changes a toxic of a proxy, on open connections, too.
    ///
    /// # Errors
    /// If there is no such proxy or toxic.
    pub async fn update_toxic(&self, name: &str, toxic: NamedToxic) -> Result<(), ProxyError> {
        let mut all = self.all.lock().await;
        let proxy = found(&mut all, name)?;
        check_toxic(proxy.config.protocol, &toxic)?;
        match proxy.config.toxics.iter_mut().find(|other| other.name == toxic.name) {
            Some(place) => *place = toxic,
            None => return Err(ProxyError::NoToxic(toxic.name)),
        }
        self.apply(proxy)
    }

    /// Removes a toxic of a proxy.
    ///
    /// # Errors
    /// If there is no such proxy or toxic.
    pub async fn remove_toxic(&self, name: &str, toxic: &str) -> Result<(), ProxyError> {
        let mut all = self.all.lock().await;
        let proxy = found(&mut all, name)?;
        let place = proxy.config.toxics.iter().position(|other| other.name == toxic);
        proxy.config.toxics.remove(place.ok_or_else(|| ProxyError::NoToxic(toxic.to_owned()))?);
        self.apply(proxy)
    }

    /// Enables all proxies and removes all toxics.
    ///
    /// # Errors
    /// If a proxy cannot listen.
    pub async fn reset(&self) -> Result<(), ProxyError> {
        let mut all = self.all.lock().await;
        for proxy in all.values_mut() {
            proxy.config.toxics.clear();
            self.apply(proxy)?;
            if proxy.running.is_none() {
                self.start(proxy).await?;
                proxy.config.enabled = true;
            }
        }
        Ok(())
    }

    /// Has toxics act on open connections.
    fn apply(&self, proxy: &Proxy) -> Result<(), ProxyError> {
        match proxy.running.as_ref().map(|running| &running.work) {
            Some(Work::Tcp(toxics)) => drop(toxics.send(Arc::new(proxy.config.toxics.clone()))),
            Some(Work::Udp(relay)) => relay.replace(links(&proxy.config, self.seed)?),
            None => {}
        }
        Ok(())
    }

    async fn start(&self, proxy: &mut Proxy) -> Result<(), ProxyError> {
        let config = &proxy.config;
        let failed = |source| ProxyError::Listen { addr: config.listen.clone(), source };
        let counters = Arc::clone(&proxy.counters);
        let (running, addr) = match config.protocol {
            Protocol::Tcp => {
                let lines = lines(config, self.seed);
                let listener = TcpListener::bind(&config.listen).await.map_err(failed)?;
                let addr = listener.local_addr().map_err(failed)?;
                let (sender, toxics) = watch::channel(Arc::new(config.toxics.clone()));
                let proxied = Proxied {
                    target: config.target.clone(),
                    lines,
                    toxics,
                    counters,
                    epoch: Instant::now(),
                    seed: Seed::new(self.seed.stream(&format!("proxy/{}", config.name)).below(Seed::MAX)),
                };
                let task = tokio::spawn(tcp::accept(listener, Arc::new(proxied)));
                (Running { work: Work::Tcp(sender), task }, addr)
            }
            Protocol::Udp => {
                let links = links(config, self.seed)?;
                let outside = UdpSocket::bind(&config.listen).await.map_err(failed)?;
                let addr = outside.local_addr().map_err(failed)?;
                let relay = Arc::new(Relay::new(outside, config.target.clone(), counters, links));
                let task = tokio::spawn(Arc::clone(&relay).run());
                (Running { work: Work::Udp(relay), task }, addr)
            }
        };
        proxy.running = Some(running);
        // A port that the system has chosen stays, also after the proxy was disabled.
        proxy.config.listen = addr.to_string();
        Ok(())
    }
}

impl Proxy {
    fn view(&self) -> ProxyView {
        ProxyView { config: self.config.clone(), counters: self.counters.read() }
    }

    /// Ends all connections, and waits for the port to be free.
    async fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.task.abort();
            let _ = (&mut running.task).await;
        }
    }
}

fn found<'a>(all: &'a mut BTreeMap<String, Proxy>, name: &str) -> Result<&'a mut Proxy, ProxyError> {
    all.get_mut(name).ok_or_else(|| ProxyError::NotFound(name.to_owned()))
}

fn check_name(name: &str) -> Result<(), ProxyError> {
    let fits = !name.is_empty() && name.len() <= MAX_NAME && !name.contains('/');
    if fits { Ok(()) } else { Err(ProxyError::Name(name.chars().take(MAX_NAME).collect())) }
}

fn check_toxic(protocol: Protocol, of: &NamedToxic) -> Result<(), ProxyError> {
    check_name(&of.name)?;
    match protocol {
        Protocol::Tcp if !of.toxic.is_for_tcp() => Err(ProxyError::Unsuitable {
            protocol: "tcp",
            known: "latency, bandwidth, slow_close, timeout, reset_peer, slicer, limit_data",
        }),
        Protocol::Udp if !of.toxic.is_for_udp() => Err(ProxyError::Unsuitable {
            protocol: "udp",
            known: "latency, bandwidth, timeout, loss, reorder, duplicate, corrupt",
        }),
        _ => Ok(()),
    }
}

/// Refuses what the link cannot do to connections of TCP.
fn check_link(config: &ProxyConfig) -> Result<(), ProxyError> {
    let (Protocol::Tcp, Some(BriefLink { link, disorder })) = (config.protocol, &config.link) else {
        return Ok(());
    };
    let wrong = |way: &Direction| {
        let kind = way.queue.kind();
        match &way.queue {
            _ if way.loss != Loss::None => Some("`loss`".to_owned()),
            _ if way.duplication > 0.0 => Some("`duplicate`".to_owned()),
            Queue::DropTail(_) => None,
            _ => Some(format!("`{kind}`")),
        }
    };
    let disordered = |disorder: &Disorder| match disorder {
        of if of.reordering > 0.0 => Some("`reorder`".to_owned()),
        of if of.corruption > 0.0 => Some("`corrupt`".to_owned()),
        _ => None,
    };
    let wrong =
        [&link.there, &link.back].into_iter().find_map(wrong).or(disorder.iter().find_map(disordered));
    match wrong {
        Some(piece) => Err(ProxyError::Link {
            name: config.name.clone(),
            problem: format!(
                "a proxy of TCP carries bytes, not packets, and has neither losses nor a queue that drops: leave {piece} \
                 out, or use `marcato lab run`"
            ),
        }),
        None => Ok(()),
    }
}

/// Creates the lines up and down of a TCP proxy.
fn lines(config: &ProxyConfig, seed: Seed) -> [Option<Arc<Mutex<Line>>>; 2] {
    let Some(BriefLink { link, .. }) = &config.link else { return [None, None] };
    [false, true].map(|back| {
        let (way, name) = if back { (&link.back, "back") } else { (&link.there, "there") };
        let trace = match &way.rate {
            Capacity::Trace(path) => config.traces.get(path).cloned(),
            Capacity::Rate(_) | Capacity::Unlimited => None,
        };
        let stream = seed.stream(&format!("jitter/{}/{name}", config.name));
        let line = Line::new(way, link.changes_of(back).cloned(), trace, stream);
        Some(Arc::new(Mutex::new(line)))
    })
}

/// Creates the links up and down of a UDP proxy.
fn links(config: &ProxyConfig, seed: Seed) -> Result<[Link<Datagram>; 2], ProxyError> {
    let failed = |problem: String| ProxyError::Link { name: config.name.clone(), problem };
    let given = config.link.clone().map_or_else(|| Brief::default().link(), Ok);
    let BriefLink { mut link, mut disorder } = given.map_err(|error| failed(error.to_string()))?;
    for of in &config.toxics {
        let (way, disorder) = match of.side {
            Side::Upstream => (&mut link.there, &mut disorder[0]),
            Side::Downstream => (&mut link.back, &mut disorder[1]),
        };
        worsen(way, disorder, of);
    }
    let name = &config.name;
    link.name.clone_from(name);
    let one = |back: bool| {
        let disorder = disorder[usize::from(back)];
        // Datagrams are fragmented, if need be, beyond the proxy.
        build(&link, back, &config.traces, seed, None, disorder).map_err(failed)
    };
    Ok([one(false)?, one(true)?])
}

/// Adds a toxic to a direction of a link.
fn worsen(way: &mut Direction, disorder: &mut Disorder, of: &NamedToxic) {
    let lost = |way: &Direction, share: f64| {
        let before = match way.loss {
            Loss::Random(RandomLoss { probability }) => probability,
            _ => 0.0,
        };
        Loss::Random(RandomLoss { probability: either(before, share) })
    };
    match of.toxic {
        Toxic::Latency { latency, jitter } => {
            let least = latency.saturating_sub(jitter);
            way.delay = way.delay.saturating_add(least);
            if !jitter.is_zero() {
                let before = match way.jitter.map(|jitter| jitter.added) {
                    Some(Added::Uniform { most, .. }) => most,
                    _ => marcato_units::Duration::ZERO,
                };
                let most = before.saturating_add(latency.saturating_add(jitter).saturating_sub(least));
                let added = Added::Uniform { least: marcato_units::Duration::ZERO, most };
                way.jitter = Some(Jitter { added, reorder: false });
            }
        }
        Toxic::Bandwidth { rate } if rate == marcato_units::Rate::ZERO => way.loss = lost(way, 1.0),
        Toxic::Bandwidth { rate } => {
            let rate = way.rate.fixed().map_or(rate, |before| before.min(rate));
            way.rate = Capacity::Rate(rate);
        }
        Toxic::Timeout { .. } => way.loss = lost(way, of.toxicity),
        Toxic::Loss(share) => way.loss = lost(way, share * of.toxicity),
        Toxic::Reorder(share) => disorder.reordering = either(disorder.reordering, share * of.toxicity),
        Toxic::Duplicate(share) => way.duplication = either(way.duplication, share * of.toxicity),
        Toxic::Corrupt(share) => disorder.corruption = either(disorder.corruption, share * of.toxicity),
        Toxic::SlowClose { .. }
        | Toxic::ResetPeer { .. }
        | Toxic::Slicer { .. }
        | Toxic::LimitData { .. } => {}
    }
}

/// Probability of one of two independent events, or both.
fn either(a: f64, b: f64) -> f64 {
    1.0 - (1.0 - a) * (1.0 - b)
}
