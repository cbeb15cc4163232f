//! Emulated link between clients and servers on real UDP sockets.
//!
//! An ordinary UDP socket does not expose marks, so ECN and DSCP end at the link. The destination port tells
//! the layer of a datagram ([`UdpLink::open_ports`]).

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use marcato_queue::{FlowKey, Packet as _};
use marcato_units::{Layer, Seed, Time};
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use crate::{Datagram, Link, LinkConfig, LinkCounters, LinkError};

/// Longest UDP datagram.
const MAX_DATAGRAM: usize = 65_535;
/// Datagrams read from one socket before the other has its turn.
const READS: usize = 64;
/// Buffer size requested for each socket, in each direction. The system may grant less.
const SOCKET_BUFFER: usize = 4_000_000;

/// Error returned when an emulated link cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration of a direction is invalid.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No port was given, so the link would lead nowhere.
    #[error("a link needs a port: give at least one")]
    NoPort,
    /// The system gives no socket on the server's address.
    #[error("cannot open a {protocol} socket at {addr} for the emulated link: {source}")]
    Socket {
        /// Protocol of the socket.
        protocol: &'static str,
        /// Address requested.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
}

/// Port of a link: forwards datagrams to a server, and the server's answers back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Address of the server.
    pub server: SocketAddr,
    /// Class in which the link serves the datagrams of this port, both ways. An ordinary socket
    /// does not report a datagram's DSCP, but each lane of a layered connection has a port of its
    /// own.
    pub layer: Layer,
}

impl Port {
    /// Creates a port of the high layer.
    pub const fn new(server: SocketAddr) -> Self {
        Self { server, layer: Layer::High }
    }

    /// Sets the layer.
    #[must_use]
    pub const fn in_layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }
}

/// Both directions of a link between clients and servers; it works until it is dropped.
///
/// It listens on the address of each server, at another port, and forwards what it receives. Each
/// of its ports belongs to one client: the address of the first datagram. Datagrams from others are
/// discarded and [counted](Self::strangers). All ports share the two directions, and their queues.
#[derive(Debug)]
pub struct UdpLink {
    addr: SocketAddr,
    addrs: Vec<SocketAddr>,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

/// Counters published while the link works.
#[derive(Debug, Default)]
struct Shared {
    forward: LinkCounters,
    back: LinkCounters,
    strangers: u64,
}

impl UdpLink {
    /// Opens a link to `server`, at a port that the system chooses. `forward` is the direction to
    /// the server, `back` the one to the client.
    ///
    /// Losses are drawn from the streams `loss/forward` and `loss/back` of `seed`.
    ///
    /// # Errors
    ///
    /// If the configuration of a direction is invalid, or the system gives no socket.
    pub async fn open(
        server: SocketAddr,
        forward: LinkConfig<Datagram>,
        back: LinkConfig<Datagram>,
        seed: Seed,
    ) -> Result<Self, OpenError> {
        Self::open_ports(&[Port::new(server)], forward, back, seed).await
    }

    /// Opens a link with several ports, which share it.
    ///
    /// # Errors
    ///
    /// If the configuration of a direction is invalid, there is no port, or the system gives no
    /// socket.
    pub async fn open_ports(
        ports: &[Port],
        forward: LinkConfig<Datagram>,
        back: LinkConfig<Datagram>,
        seed: Seed,
    ) -> Result<Self, OpenError> {
        let Some(&Port { server: first, .. }) = ports.first() else { return Err(OpenError::NoPort) };
        let links = [Link::new("forward", forward, seed)?, Link::new("back", back, seed)?];
        let (mut pairs, mut addrs) = (Vec::new(), Vec::new());
        for port in ports {
            let beside = SocketAddr::new(port.server.ip(), 0);
            let failed = |source| OpenError::Socket { protocol: "udp", addr: beside, source };
            let outside = bind(beside).await.map_err(failed)?;
            let inside = bind(beside).await.map_err(failed)?;
            // A connected socket receives from the server only.
            inside.connect(port.server).await.map_err(failed)?;
            addrs.push(outside.local_addr().map_err(failed)?);
            pairs.push(Pair { outside, inside, client: None, layer: port.layer });
        }
        let shared = Arc::new(Mutex::new(Shared::default()));
        let relay = Relay {
            pairs,
            links,
            epoch: Instant::now(),
            input: vec![0; MAX_DATAGRAM].into(),
            strangers: 0,
            shared: Arc::clone(&shared),
        };
        let task = tokio::spawn(relay.run());
        let addr = addrs.first().copied().unwrap_or(first);
        Ok(Self { addr, addrs, shared, task })
    }

    /// Address that the client uses instead of the first server's.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Addresses that clients use instead of the servers', in the order of the ports.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Counters of the direction to the servers.
    pub fn forward(&self) -> LinkCounters {
        lock(&self.shared).forward
    }

    /// Counters of the direction to the clients.
    pub fn back(&self) -> LinkCounters {
        lock(&self.shared).back
    }

    /// Datagrams discarded because they came from an address other than the client's.
    pub fn strangers(&self) -> u64 {
        lock(&self.shared).strangers
    }
}

impl Drop for UdpLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn bind(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(addr).await?;
    let options = SockRef::from(&socket);
    let _ = options.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = options.set_send_buffer_size(SOCKET_BUFFER);
    Ok(socket)
}

/// Sockets of a port.
struct Pair {
    /// Socket towards the client.
    outside: UdpSocket,
    /// Socket towards the server.
    inside: UdpSocket,
    client: Option<SocketAddr>,
    layer: Layer,
}

/// Task of a [`UdpLink`].
struct Relay {
    pairs: Vec<Pair>,
    /// Directions to the servers and back.
    links: [Link<Datagram>; 2],
    epoch: Instant,
    input: Box<[u8]>,
    strangers: u64,
    shared: Arc<Mutex<Shared>>,
}

impl Relay {
    async fn run(mut self) {
        loop {
            tokio::task::consume_budget().await;
            let read = self.read();
            self.deliver().await;
            let told = Shared {
                forward: *self.links[0].counters(),
                back: *self.links[1].counters(),
                strangers: self.strangers,
            };
            *lock(&self.shared) = told;
            if read {
                continue;
            }
            let next = self.links.iter().filter_map(Link::next_event).min();
            let at = next.map_or(self.epoch, |at| self.epoch + at.since(Time::ZERO));
            // An error of readiness recurs on reading, where it is ignored.
            let readable = poll_fn(|context| {
                let mut ready = false;
                for pair in &self.pairs {
                    ready |= pair.outside.poll_recv_ready(context).is_ready();
                    ready |= pair.inside.poll_recv_ready(context).is_ready();
                }
                if ready { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::select! {
                () = readable => {}
                () = tokio::time::sleep_until(at.into()), if next.is_some() => {}
            }
        }
    }

    /// Reads pending datagrams; returns true if there may be more.
    fn read(&mut self) -> bool {
        let mut more = false;
        let epoch = self.epoch;
        let now = || Time::ZERO + epoch.elapsed();
        for (flow, pair) in (0..).map(FlowKey::new).zip(&mut self.pairs) {
            for reads in (0..READS).rev() {
                match pair.outside.try_recv_from(&mut self.input) {
                    Ok((len, from)) => {
                        let client = *pair.client.get_or_insert(from);
                        if client == from {
                            let datagram = Datagram::new(flow, &self.input[..len]);
                            self.links[0].send(now(), datagram.in_layer(pair.layer));
                        } else {
                            self.strangers += 1;
                        }
                        more |= reads == 0;
                    }
                    // Includes errors of earlier sends, such as an unreachable port.
                    Err(_) => break,
                }
            }
            for reads in (0..READS).rev() {
                match pair.inside.try_recv(&mut self.input) {
                    Ok(len) => {
                        let datagram = Datagram::new(flow, &self.input[..len]);
                        self.links[1].send(now(), datagram.in_layer(pair.layer));
                        more |= reads == 0;
                    }
                    Err(_) => break,
                }
            }
        }
        more
    }

    /// Delivers the datagrams that have arrived. One that the system does not take is lost, as on
    /// any network.
    async fn deliver(&mut self) {
        let now = Time::ZERO + self.epoch.elapsed();
        let pairs = &self.pairs;
        let pair_of = |datagram: &Datagram| {
            // Flows are numbered as ports are.
            pairs
                .iter()
                .zip((0..).map(FlowKey::new))
                .find(|(_, flow)| *flow == datagram.flow())
                .map(|it| it.0)
        };
        while let Some(datagram) = self.links[0].poll(now) {
            let Some(pair) = pair_of(&datagram) else { continue };
            if let Err(error) = pair.inside.send(datagram.payload()).await {
                tracing::trace!(%error, "not delivered to the server");
            }
        }
        while let Some(datagram) = self.links[1].poll(now) {
            let Some(pair) = pair_of(&datagram) else { continue };
            let Some(client) = pair.client else { continue };
            if let Err(error) = pair.outside.send_to(datagram.payload(), client).await {
                tracing::trace!(%error, "not delivered to the client");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use marcato_queue::{Strict, StrictConfig};
    use marcato_units::{Duration, Rate};

    use super::*;

    #[tokio::test]
    async fn a_port_of_the_high_layer_is_served_before_one_of_the_low() {
        const MANY: usize = 100;
        let bind = || async { UdpSocket::bind("127.0.0.1:0").await.unwrap() };
        let (high, low) = (bind().await, bind().await);
        // 1000 bytes in 80 ms: the low port's 100 datagrams would take 8 s.
        let slow = || LinkConfig::new(Rate::from_kbps(100), Duration::ZERO);
        let forward = slow().queue(Strict::new(StrictConfig::default()).unwrap());
        let ports = [
            Port::new(high.local_addr().unwrap()),
            Port::new(low.local_addr().unwrap()).in_layer(Layer::Low),
        ];
        let link = UdpLink::open_ports(&ports, forward, slow(), Seed::new(1)).await.unwrap();
        let clients = [bind().await, bind().await];
        for _ in 0..MANY {
            clients[1].send_to(&[1; 972], link.addrs()[1]).await.unwrap();
        }
        clients[0].send_to(&[0; 972], link.addrs()[0]).await.unwrap();
        let mut datagram = [0; 1000];
        let (_, from) = high.recv_from(&mut datagram).await.unwrap();
        assert_eq!(datagram[0], 0);
        let mut before = 0;
        while low.try_recv_from(&mut datagram).is_ok() {
            before += 1;
        }
        assert!(before < MANY, "{before}");
        // Each port has its own way back.
        high.send_to(b"back", from).await.unwrap();
        assert_eq!(clients[0].recv(&mut datagram).await.unwrap(), 4);
        assert_eq!((link.strangers(), link.addr()), (0, link.addrs()[0]));
    }
}
