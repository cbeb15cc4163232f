//! Driver of a UDP proxy.
//!
//! Each client has a socket of its own towards the target, as behind a NAT. All share the two directions of one link.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use marcato_queue::{FlowKey, Packet as _};
use marcato_units::{Duration, Time};
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use super::counters::{Open, Shared, add};
use crate::{Datagram, Link};

/// Most clients of a proxy at a time.
pub const MAX_CLIENTS: u64 = 4096;
/// Time without datagrams after which a client is forgotten: NATs keep the mapping of a UDP flow for two minutes (RFC
/// 4787 §4.3).
const IDLE: Duration = Duration::from_secs(120);
/// Longest UDP datagram.
const MAX_DATAGRAM: usize = 65_535;
/// Buffer size requested for each socket that clients share. The system may grant less.
const SOCKET_BUFFER: usize = 4_000_000;
/// Older links, which deliver what they have.
const MAX_OLD: usize = 8;
/// Most datagrams in a direction of a link.
const MAX_INSIDE: u64 = 16_384;
/// Interval at which idle clients are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// Client with its socket towards the target.
struct Client {
    addr: SocketAddr,
    socket: Arc<UdpSocket>,
    used: Instant,
    reader: AbortHandle,
    _open: Open,
}

/// State that the tasks share.
struct State {
    /// Links up and down; the last of each takes what comes.
    links: [Vec<Link<Datagram>>; 2],
    clients: HashMap<u64, Client>,
    by_addr: HashMap<SocketAddr, u64>,
    next: u64,
    /// Datagrams lost by links that have been counted.
    told: u64,
    /// Last look for idle clients.
    looked: Instant,
}

/// Datagrams of a proxy.
pub(super) struct Relay {
    pub(super) outside: UdpSocket,
    pub(super) target: String,
    pub(super) counters: Arc<Shared>,
    state: Mutex<State>,
    epoch: Instant,
    wake: Notify,
}

impl Relay {
    pub(super) fn new(
        outside: UdpSocket,
        target: String,
        counters: Arc<Shared>,
        links: [Link<Datagram>; 2],
    ) -> Self {
        let options = SockRef::from(&outside);
        let _ = options.set_recv_buffer_size(SOCKET_BUFFER);
        let _ = options.set_send_buffer_size(SOCKET_BUFFER);
        let state = State {
            links: links.map(|link| vec![link]),
            clients: HashMap::new(),
            by_addr: HashMap::new(),
            next: 0,
            told: 0,
            looked: Instant::now(),
        };
        Self {
            outside,
            target,
            counters,
            state: Mutex::new(state),
            epoch: Instant::now(),
            wake: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// Sends what comes from now on through other links. Those in use deliver what they have.
    pub(super) fn replace(&self, links: [Link<Datagram>; 2]) {
        let mut state = self.lock();
        for (all, link) in state.links.iter_mut().zip(links) {
            all.retain(|old| old.inside() > 0);
            let surplus = (all.len() + 1).saturating_sub(MAX_OLD);
            for old in all.drain(..surplus) {
                add(&self.counters.discarded, old.inside());
            }
            all.push(link);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Works until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut readers = JoinSet::new();
        let deliverer = Arc::clone(&self);
        let mut parts = JoinSet::new();
        parts.spawn(async move { deliverer.deliver().await });
        let mut input = vec![0; MAX_DATAGRAM];
        let _ = self.outside.writable().await;
        loop {
            // Errors are those of earlier datagrams, such as an unreachable port.
            let Ok((length, from)) = self.outside.recv_from(&mut input).await else { continue };
            while readers.try_join_next().is_some() {}
            let known = {
                let mut state = self.lock();
                let number = state.by_addr.get(&from).copied();
                if let Some(client) = number.and_then(|number| state.clients.get_mut(&number)) {
                    client.used = Instant::now();
                }
                number
            };
            let number = match known {
                Some(number) => number,
                None => match self.welcome(from, &mut readers).await {
                    Some(number) => number,
                    None => continue,
                },
            };
            self.send(0, number, &input[..length]);
        }
    }

    /// Opens the socket of a new client. Returns its number.
    async fn welcome(self: &Arc<Self>, from: SocketAddr, readers: &mut JoinSet<()>) -> Option<u64> {
        let Some(open) = Open::new(&self.counters, MAX_CLIENTS) else {
            add(&self.counters.refused, 1);
            return None;
        };
        let socket = match self.towards_target().await {
            Ok(socket) => Arc::new(socket),
            Err(error) => {
                tracing::debug!(%error, target = self.target, "the target cannot be reached");
                add(&self.counters.unreachable, 1);
                return None;
            }
        };
        add(&self.counters.accepted, 1);
        // Until the runtime has seen that a socket is writable, it refuses to try.
        let _ = socket.writable().await;
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let (relay, own) = (Arc::clone(self), Arc::clone(&socket));
        let reader = readers.spawn(async move {
            let mut input = vec![0; MAX_DATAGRAM];
            loop {
                match own.recv(&mut input).await {
                    Ok(length) => relay.send(1, number, &input[..length]),
                    // A refusal of the target ends no flow: it may come to life.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        add(&relay.counters.unreachable, 1);
                    }
                    Err(_) => return,
                }
            }
        });
        state.by_addr.insert(from, number);
        state
            .clients
            .insert(number, Client { addr: from, socket, used: Instant::now(), reader, _open: open });
        Some(number)
    }

    async fn towards_target(&self) -> io::Result<UdpSocket> {
        let mut last = io::ErrorKind::NotFound.into();
        for target in tokio::net::lookup_host(&self.target).await? {
            let any: SocketAddr = match target {
                SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            match socket.connect(target).await {
                Ok(()) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends a datagram into a direction of the link.
    fn send(&self, way: usize, client: u64, payload: &[u8]) {
        let mut state = self.lock();
        // Read under the lock, so that time never runs backwards from one call to the next.
        let now = self.now();
        if way == 1
            && let Some(client) = state.clients.get_mut(&client)
        {
            client.used = Instant::now();
        }
        if let Some(link) = state.links[way].last_mut() {
            if link.inside() < MAX_INSIDE {
                link.send(now, Datagram::new(FlowKey::new(client), payload));
            } else {
                add(&self.counters.discarded, 1);
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Delivers datagrams at their times.
    async fn deliver(&self) {
        loop {
            let next = self.step();
            let sleep = next.map_or(LOOK, |at| at.since(self.now()).min(LOOK));
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Delivers what is due. Returns the time of the next event.
    fn step(&self) -> Option<Time> {
        let mut state = self.lock();
        let now = self.now();
        let State { links, clients, by_addr, told, looked, .. } = &mut *state;
        for (way, links) in links.iter_mut().enumerate() {
            for link in links.iter_mut() {
                while let Some(datagram) = link.poll(now) {
                    let Some(client) = clients.get(&datagram.flow().get()) else { continue };
                    let payload = datagram.payload();
                    // One that a full socket does not take is lost, as on any network.
                    let (sent, counter) = match way {
                        0 => (client.socket.try_send(payload), &self.counters.bytes_up),
                        _ => (self.outside.try_send_to(payload, client.addr), &self.counters.bytes_down),
                    };
                    match sent {
                        Ok(_) => add(counter, payload.len() as u64),
                        Err(_) => add(&self.counters.discarded, 1),
                    }
                }
            }
        }
        let lost: u64 = links
            .iter()
            .flatten()
            .map(|link| {
                let counters = link.counters();
                counters.lost + counters.dropped + counters.discarded + counters.too_big
            })
            .sum();
        add(&self.counters.discarded, lost.saturating_sub(*told));
        *told = lost;
        if looked.elapsed() < LOOK {
            return links.iter().flatten().filter_map(Link::next_event).min();
        }
        *looked = Instant::now();
        let idle: Vec<u64> = clients
            .iter()
            .filter(|(_, client)| client.used.elapsed() > IDLE)
            .map(|(number, _)| *number)
            .collect();
        for number in idle {
            if let Some(client) = clients.remove(&number) {
                by_addr.remove(&client.addr);
                client.reader.abort();
            }
        }
        links.iter().flatten().filter_map(Link::next_event).min()
    }
}
