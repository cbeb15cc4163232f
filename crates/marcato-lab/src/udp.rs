//! An emulated link between a client and a server on real UDP sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use marcato_queue::FlowKey;
use marcato_units::{Seed, Time};
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use crate::{Datagram, Link, LinkConfig, LinkCounters, LinkError};

/// The longest datagram that UDP knows.
const LONGEST: usize = 65_535;
/// Datagrams read from one socket before the other has its turn.
const READS: usize = 64;
/// What is asked of the system for each socket, each way. It may give less.
const SOCKET_BUFFER: usize = 4_000_000;

/// Why there is no emulated link.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The link cannot be so.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system gives no socket beside the server's.
    #[error("cannot open a udp socket at {addr} for the emulated link: {source}")]
    Socket {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// Both directions of a link between a client and a server; it works until it is dropped.
///
/// It listens beside the server, on an address of the same host, and sends on what comes in. It belongs to one client:
/// the address from which the first datagram came. What others send is thrown away and [counted](Self::strangers).
#[derive(Debug)]
pub struct UdpLink {
    addr: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

/// What is told of a link while it works.
#[derive(Debug, Default)]
struct Shared {
    forward: LinkCounters,
    back: LinkCounters,
    strangers: u64,
}

impl UdpLink {
    /// A link to `server`, at a port that the system chooses: `forward` leads there, `back` from there to the client.
    /// What they lose is drawn from the streams `loss/forward` and `loss/back` of `seed`.
    ///
    /// # Errors
    ///
    /// If a direction cannot be so, or the system gives no socket.
    pub async fn open(
        server: SocketAddr,
        forward: LinkConfig<Datagram>,
        back: LinkConfig<Datagram>,
        seed: Seed,
    ) -> Result<Self, OpenError> {
        let links = [Link::new("forward", forward, seed)?, Link::new("back", back, seed)?];
        let beside = SocketAddr::new(server.ip(), 0);
        let failed = |source| OpenError::Socket { addr: beside, source };
        let outside = bind(beside).await.map_err(failed)?;
        let inside = bind(beside).await.map_err(failed)?;
        // So that nobody but the server is heard on it.
        inside.connect(server).await.map_err(failed)?;
        let addr = outside.local_addr().map_err(failed)?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let relay = Relay {
            outside,
            inside,
            links,
            client: None,
            epoch: Instant::now(),
            input: vec![0; LONGEST].into(),
            strangers: 0,
            shared: Arc::clone(&shared),
        };
        let task = tokio::spawn(relay.run());
        Ok(Self { addr, shared, task })
    }

    /// Where the client has to send to instead of to the server.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What the direction to the server has done.
    pub fn forward(&self) -> LinkCounters {
        lock(&self.shared).forward
    }

    /// What the direction to the client has done.
    pub fn back(&self) -> LinkCounters {
        lock(&self.shared).back
    }

    /// Datagrams that were thrown away because they came from somebody else than the client.
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

/// The task behind a [`UdpLink`].
struct Relay {
    /// Towards the client.
    outside: UdpSocket,
    /// Towards the server.
    inside: UdpSocket,
    /// There and back.
    links: [Link<Datagram>; 2],
    client: Option<SocketAddr>,
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
            // An error of readiness is met again, and passed over, when reading.
            tokio::select! {
                _ = self.outside.readable() => {}
                _ = self.inside.readable() => {}
                () = tokio::time::sleep_until(at.into()), if next.is_some() => {}
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// Takes in what has come; whether there may be more.
    fn read(&mut self) -> bool {
        let mut more = false;
        for reads in (0..READS).rev() {
            match self.outside.try_recv_from(&mut self.input) {
                Ok((len, from)) => {
                    let client = *self.client.get_or_insert(from);
                    if client == from {
                        let (now, datagram) = (self.now(), Datagram::new(FLOW, &self.input[..len]));
                        self.links[0].send(now, datagram);
                    } else {
                        self.strangers += 1;
                    }
                    more |= reads == 0;
                }
                // Also what the network says of datagrams that were sent here: nobody listens at their port.
                Err(_) => break,
            }
        }
        for reads in (0..READS).rev() {
            match self.inside.try_recv(&mut self.input) {
                Ok(len) => {
                    let (now, datagram) = (self.now(), Datagram::new(FLOW, &self.input[..len]));
                    self.links[1].send(now, datagram);
                    more |= reads == 0;
                }
                Err(_) => break,
            }
        }
        more
    }

    /// Hands out what has arrived. A datagram that the system does not take is lost, as on any network.
    async fn deliver(&mut self) {
        let now = self.now();
        while let Some(datagram) = self.links[0].poll(now) {
            if let Err(error) = self.inside.send(datagram.payload()).await {
                tracing::trace!(%error, "not delivered to the server");
            }
        }
        while let Some(datagram) = self.links[1].poll(now) {
            let Some(client) = self.client else { continue };
            if let Err(error) = self.outside.send_to(datagram.payload(), client).await {
                tracing::trace!(%error, "not delivered to the client");
            }
        }
    }
}

/// A link between one client and one server carries one flow.
const FLOW: FlowKey = FlowKey::new(0);
