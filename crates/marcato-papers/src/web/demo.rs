//! The page over HTTP/2 for `marcato demo`: first come, first served, and by the web plane.

use std::net::{IpAddr, SocketAddr};
use std::process::Child;
use std::sync::Arc;
use std::thread::JoinHandle;

use marcato_lab::{Lab, TcpLink};
use marcato_net::rustls::ClientConfig;
use marcato_net::{Fingerprint, Trust};
use marcato_report::chart::Jpeg;
use marcato_units::{Bytes, Duration, Rate};
use marcato_web::Identity;
use thiserror::Error;
use tokio::sync::oneshot;

use super::browser::Browser;
use super::client::{self, Signalled};
use super::page::page;
use super::server::{Kind, NAME, Plan, Running, identity, identity_of, start, start_here};
use super::site::Site;
use crate::Progress;
use crate::error::SimulationError;
use crate::lab::{failed, joined, on_host};

/// Servers, in the order of all results: first come, first served; and the web plane.
const KINDS: [Kind; 2] = [Kind::Fifo, Kind::Marcato];
/// Port of the first server in a lab. The other follows.
const PORT: u16 = 4430;
/// Time for all loads.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time after which the client that is built in asks for its stylesheet.
const LATE: Duration = Duration::from_millis(100);

/// Link and number of loads.
#[derive(Clone, Debug)]
pub struct WebDemo {
    /// Rate in each direction.
    pub rate: Rate,
    /// Delay of each direction.
    pub delay: Duration,
    /// Queue discipline, as a scenario names it. Without a lab it is a plain queue.
    pub queue: String,
    /// Capacity of the plain queue.
    pub buffer: Bytes,
    /// Probability that a packet is lost, in a lab.
    pub loss: f64,
    /// Seed of the losses.
    pub seed: u64,
    /// Loads from each server.
    pub loads: u32,
}

/// Means by which the link was emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulation {
    /// Network namespaces: packets of the kernel's TCP.
    Lab,
    /// A relay on the loopback interface: bytes.
    Relay,
}

/// Times of one load, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLoad {
    /// First contentful paint.
    pub first: Duration,
    /// Largest contentful paint.
    pub largest: Duration,
    /// End of the load.
    pub load: Duration,
}

/// Results: first come, first served; and the web plane.
#[derive(Clone, Debug)]
pub enum WebLoads {
    /// Loads in a browser, and images of the last one, with the seconds since it began.
    Browser {
        /// Loads of each server.
        loads: [Vec<PageLoad>; 2],
        /// Images of each server.
        films: [Vec<(f64, Jpeg)>; 2],
    },
    /// Loads by the client that is built in: from the request of a late stylesheet to its end.
    BuiltIn {
        /// Loads of each server.
        late: [Vec<Duration>; 2],
        /// Reason for not using a browser.
        why: String,
    },
}

/// Error returned when no page can be loaded over HTTP/2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct WebDemoError(String);

impl From<SimulationError> for WebDemoError {
    fn from(error: SimulationError) -> Self {
        Self(error.to_string())
    }
}

impl WebDemo {
    /// Loads the page from both servers in turns, in a browser if one is installed and works.
    ///
    /// # Errors
    ///
    /// If no server can be started, or no page be loaded.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<(Emulation, WebLoads), WebDemoError> {
        let why = match self.in_browser(progress) {
            Ok(Some(loads)) => return Ok(loads),
            Ok(None) => "Chromium is not installed.".to_owned(),
            Err(error) => format!("Chromium could not be used: {error}."),
        };
        progress.begin("loading the page over HTTP/2", Some(u64::from(self.loads) * 2));
        let identity = identity()?;
        let trust = identity.certificate().cloned().ok_or(SimulationError::Missing("certificate"))?;
        let mut tls = Trust::Certificate(trust).client_tls().map_err(failed)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let (tls, site) = (Arc::new(tls), client::site());
        let network = Network::open(self, &identity, &site)?;
        let mut late = [vec![], vec![]];
        for _ in 0..self.loads {
            for (addr, late) in network.servers.into_iter().zip(&mut late) {
                late.push(network.load(addr, Arc::clone(&tls))?);
                progress.advance(1);
            }
        }
        Ok((network.emulation(), WebLoads::BuiltIn { late, why }))
    }

    /// Serves the page on the loopback interface behind a link for each server, for any browser of this host.
    ///
    /// # Errors
    ///
    /// If no server can be started.
    pub fn open(&self) -> Result<OpenPages, WebDemoError> {
        let identity = identity_of(&["localhost", "127.0.0.1", NAME])?;
        let fingerprint = identity.fingerprint().ok_or(SimulationError::Missing("certificate"))?;
        let site = page();
        let network = Network::relayed(self, KINDS.map(|kind| plan(kind, 0, &site, &identity)))?;
        Ok(OpenPages { network, fingerprint })
    }

    /// Loads the page in a browser; `None` if there is none.
    fn in_browser(
        &self,
        progress: &mut dyn Progress,
    ) -> Result<Option<(Emulation, WebLoads)>, SimulationError> {
        if Browser::program().is_none() {
            return Ok(None);
        }
        progress.begin("loading the page in Chromium", Some(u64::from(self.loads) * 2 + 1));
        let network = Network::open(self, &identity()?, &page())?;
        let mut browser = Browser::start(network.servers[0], |command| network.spawn(command))?;
        // The first page takes longer: the browser loads parts of its own.
        browser.load(network.servers[1].port(), false)?;
        progress.advance(1);
        let (mut loads, mut films) = ([vec![], vec![]], [vec![], vec![]]);
        for _ in 0..self.loads {
            for ((addr, loads), film) in network.servers.iter().zip(&mut loads).zip(&mut films) {
                let loaded = browser.load(addr.port(), true)?;
                let (first, largest, load) = (loaded.first, loaded.largest, loaded.load);
                loads.push(PageLoad { first, largest, load });
                *film = loaded.film.into_iter().map(|(at, image)| (at.as_secs_f64(), image)).collect();
                progress.advance(1);
            }
        }
        Ok(Some((network.emulation(), WebLoads::Browser { loads, films })))
    }

    fn scenario(&self) -> String {
        let Self { rate, delay, queue, loss, seed, .. } = self;
        let loss = match loss {
            0.0 => String::new(),
            loss => format!("loss = {{ kind = \"random\", probability = {loss} }}"),
        };
        let link = format!(
            r#"
            rate = "{} bit/s"
            delay = "{} us"
            queue = {queue}
            {loss}
            "#,
            rate.as_bps(),
            delay.as_micros(),
        );
        super::link::scenario("demo", *seed, &link)
    }
}

/// Plan of a server of a page.
const fn plan<'a>(kind: Kind, port: u16, site: &'a Site, identity: &'a Identity) -> Plan<'a> {
    Plan { kind, site, identity, port, congestion: "cubic", http3: false, patience: PATIENCE }
}

/// Both servers of a page behind links on the loopback interface. They serve until this is dropped.
pub struct OpenPages {
    network: Network,
    fingerprint: Fingerprint,
}

impl OpenPages {
    /// Returns the addresses of the links: first come, first served; and the web plane.
    pub const fn addrs(&self) -> [SocketAddr; 2] {
        self.network.servers
    }

    /// Returns the fingerprint of the certificate of both servers.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Both servers behind a link of their own, or in one lab.
struct Network {
    // Servers end before their network does.
    _running: Vec<Running>,
    servers: [SocketAddr; 2],
    place: Place,
}

enum Place {
    Lab(Lab),
    Relay { _end: oneshot::Sender<()>, _thread: JoinHandle<Result<(), SimulationError>> },
}

impl Network {
    /// Opens a lab with both servers, or relays where there can be no lab.
    fn open(demo: &WebDemo, identity: &Identity, site: &Site) -> Result<Self, SimulationError> {
        let plan = |kind, port| plan(kind, port, site, identity);
        let experiment = crate::lab::experiment(&demo.scenario())?;
        let Ok(lab) = Lab::open(&experiment, &Default::default(), Default::default()) else {
            return Self::relayed(demo, KINDS.map(|kind| plan(kind, 0)));
        };
        let (address, _) = lab.addresses("server").ok_or(SimulationError::Missing("server"))?;
        let (mut running, mut servers) = (Vec::new(), Vec::new());
        for (port, kind) in (PORT..).zip(KINDS) {
            running.push(start(&lab, &plan(kind, port))?);
            servers.push(SocketAddr::new(IpAddr::V4(address), port));
        }
        let servers = servers.try_into().map_err(|_| SimulationError::Missing("server"))?;
        Ok(Self { _running: running, servers, place: Place::Lab(lab) })
    }

    fn relayed(demo: &WebDemo, plans: [Plan<'_>; 2]) -> Result<Self, SimulationError> {
        let (mut running, mut behind) = (Vec::new(), Vec::new());
        for plan in &plans {
            let (server, addr) = start_here(plan)?;
            running.push(server);
            behind.push(addr);
        }
        let (end, ended) = oneshot::channel::<()>();
        let (opened, open) = std::sync::mpsc::channel();
        let WebDemo { rate, delay, buffer, .. } = *demo;
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
            runtime.block_on(async {
                let mut links = Vec::new();
                for addr in behind {
                    links.push(TcpLink::open(addr, rate, delay, buffer).await.map_err(failed)?);
                }
                // Nobody waits any more if opening took too long.
                let _ = opened.send(links.iter().map(TcpLink::addr).collect::<Vec<_>>());
                // It ends with its other end.
                let _ = ended.await;
                Ok(())
            })
        });
        let servers = open.recv().map_err(|_| SimulationError::Missing("link"))?;
        let servers = servers.try_into().map_err(|_| SimulationError::Missing("link"))?;
        Ok(Self { _running: running, servers, place: Place::Relay { _end: end, _thread: thread } })
    }

    const fn emulation(&self) -> Emulation {
        match self.place {
            Place::Lab(_) => Emulation::Lab,
            Place::Relay { .. } => Emulation::Relay,
        }
    }

    /// Starts a command where the clients are.
    fn spawn(&self, mut command: std::process::Command) -> Result<Child, SimulationError> {
        match &self.place {
            Place::Lab(lab) => lab.spawn("client", command).map_err(failed),
            Place::Relay { .. } => command.spawn().map_err(failed),
        }
    }

    /// Loads by the client that is built in. Returns the time of the late stylesheet.
    fn load(&self, addr: SocketAddr, tls: Arc<ClientConfig>) -> Result<Duration, SimulationError> {
        let load = move || async move { client::load(addr, tls, LATE, Signalled::Both).await };
        let loaded = match &self.place {
            Place::Lab(lab) => joined(on_host(lab, "client", PATIENCE, load)?)?,
            Place::Relay { .. } => {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
                runtime.block_on(load())?
            }
        };
        Ok(loaded.late)
    }
}

#[cfg(test)]
mod tests {
    use marcato_testing::{Need, absent};

    use super::*;

    fn demo() -> WebDemo {
        WebDemo {
            rate: Rate::from_mbps(2),
            delay: Duration::from_millis(50),
            queue: "\"codel\"".to_owned(),
            buffer: Bytes::kb(25),
            loss: 0.0,
            seed: 1,
            loads: 1,
        }
    }

    #[test]
    fn the_scenario_is_read_with_and_without_losses() {
        for loss in [0.0, 0.01] {
            let read = crate::lab::experiment(&WebDemo { loss, ..demo() }.scenario());
            assert!(read.is_ok(), "{:?}", read.err());
        }
    }

    /// Loads files of the page that is open, the last one late. Returns the shortest time of the late file in
    /// three loads from each server.
    fn late(pages: &OpenPages, files: [client::Asked; 5]) -> [Duration; 2] {
        let mut tls = Trust::Fingerprint(pages.fingerprint()).client_tls().unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = Arc::new(tls);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let load = |addr| {
            let load = client::load_files(addr, Arc::clone(&tls), LATE, Signalled::Both, files);
            runtime.block_on(load).unwrap().late
        };
        pages.addrs().map(|addr| [(); 3].map(|()| load(addr)).into_iter().min().unwrap())
    }

    #[test]
    fn an_open_page_has_its_late_stylesheet_earlier_in_order() {
        let pages = demo().open().unwrap();
        let length = |name: &str| {
            let site = page();
            site.files().iter().find(|file| file.name == name).unwrap().content.len() as u64
        };
        let file = |name, urgency, incremental, destination| client::Asked {
            name,
            length: length(name),
            urgency,
            incremental,
            destination,
        };
        // As a browser asks: scripts and images before the stylesheet that another imports.
        let [fifo, ordered] = late(
            &pages,
            [
                file("analytics.js", 5, false, "script"),
                file("app.js", 3, false, "script"),
                file("hero.bmp", 2, true, "image"),
                file("1.bmp", 5, true, "image"),
                file("late.css", 0, false, "style"),
            ],
        );
        assert!(ordered < fifo, "{ordered:?} against {fifo:?}");
    }

    #[test]
    fn a_browser_paints_an_open_page_earlier_in_order() {
        if absent!(Need::OneOf(&super::super::browser::PROGRAMS)) {
            return;
        }
        let pages = demo().open().unwrap();
        let spawn = |mut command: std::process::Command| command.spawn().map_err(failed);
        let mut browser = Browser::start(pages.addrs()[0], spawn).unwrap();
        // The first page takes longer: the browser loads parts of its own.
        browser.load(pages.addrs()[1].port(), false).unwrap();
        let [fifo, ordered] = pages.addrs().map(|addr| {
            let loads = [(); 3].map(|()| browser.load(addr.port(), false).unwrap().first);
            loads.into_iter().min().unwrap()
        });
        assert!(ordered < fifo, "{ordered:?} against {fifo:?}");
    }

    #[test]
    fn late_stylesheets_overtake_behind_a_relay_too() {
        let (identity, site) = (identity().unwrap(), client::site());
        let network = Network::relayed(&demo(), KINDS.map(|kind| plan(kind, 0, &site, &identity))).unwrap();
        let trust = identity.certificate().cloned().unwrap();
        let mut tls = Trust::Certificate(trust).client_tls().unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = Arc::new(tls);
        // Other work of this machine makes loads later: the best against the worst of three.
        let load = |addr| network.load(addr, Arc::clone(&tls)).unwrap();
        let [fifo, ordered] = network.servers.map(|addr| [(); 3].map(|()| load(addr)));
        assert!(
            ordered.iter().min() < fifo.map(|late| late / 2).iter().max(),
            "{ordered:?} against {fifo:?}"
        );
    }
}
