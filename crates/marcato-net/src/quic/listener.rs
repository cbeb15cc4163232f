//! Listener: the sockets of a server, and the drivers of its sessions.
//!
//! A server may have several drivers (`QuicConfig::drivers`), so that it uses several cores. Over TCP each
//! connection has a task.
//!
//! - Each driver has its own sockets at the same addresses (`SO_REUSEPORT`), its own endpoint and its own
//!   sessions. The first socket of an address is bound to it alone and shares it afterwards, so that a second
//!   server at the same address is refused.
//! - All datagrams of a connection reach one driver, from every address and on every lane, because the
//!   connection ID that they carry decides (`Steering` in `marcato-quic`).
//! - The endpoints of the drivers are a group (`Endpoint::group`), with common keys of resets and address
//!   tokens, and common limits.
//! - Drivers end together: the kernel numbers the sockets of an address, and a closed one would change the
//!   numbers.
//! - A stateless reset that a client sends carries no ID of this endpoint, and reaches any of the drivers. If
//!   that is not the one of its connection, the connection ends by its idle timeout.

use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use marcato_identity::Identity;
use marcato_quic::ResetKey;
use marcato_stream::Pool;
use marcato_units::Layer;
use rustls::ServerConfig;
use tokio::sync::{Notify, mpsc};
use tracing::Instrument as _;

use super::drivers::{Drivers, Seat};
use super::hub::{Hub, State, endpoint_config};
use super::socket::Socket;
use super::{driver, low_address, program, session_config};
use crate::config::{Config, LocalAddress};
use crate::connection::Connection;
use crate::error::{ConfigError, ListenError};
use crate::signal::lock;
use crate::stats::EndpointStats;

/// Limit of the attempts to get two consecutive ports from the system.
const PORT_PAIRS: u32 = 32;

/// Key of stateless resets of a server, which is the same when it restarts. Servers of one certificate on other addresses
/// have others: RFC 9000 §21.11 warns of a reset that one server sends for the connections of another.
fn reset_key(identity: &Identity, addrs: &[SocketAddr]) -> ResetKey {
    let place: String = addrs.iter().map(|addr| format!(" {addr}")).collect();
    ResetKey(identity.derive(&[b"quic stateless reset", place.as_bytes()]))
}

/// Returns the sockets of a server, with the implied ones for low lanes.
fn listening(config: &Config, at: &[LocalAddress]) -> Result<Vec<Arc<Socket>>, ListenError> {
    let bind = |addr, layer| {
        let socket = Socket::bind(addr, layer, config.quic.socket_buffer);
        socket.map(Arc::new).map_err(|source| ListenError::Bind { addr, source })
    };
    let beside = config.quic.layered && at.iter().all(|local| local.layer == Layer::High);
    let (mut sockets, mut low) = (Vec::new(), Vec::new());
    for local in at {
        let mut tries = if local.addr.port() == 0 { PORT_PAIRS } else { 1 };
        loop {
            let socket = bind(local.addr, local.layer)?;
            if !beside {
                sockets.push(socket);
                break;
            }
            tries -= 1;
            // The port after one that the system has chosen may be in use.
            match low_address(socket.addr).map_err(ListenError::from).and_then(|addr| bind(addr, Layer::Low))
            {
                Ok(second) => {
                    sockets.push(socket);
                    low.push(second);
                    break;
                }
                Err(error) if tries == 0 => return Err(error),
                Err(_) => {}
            }
        }
    }
    sockets.extend(low);
    Ok(sockets)
}

/// Returns the sockets of the further drivers: one for each of the first driver's, in their order.
fn sharing(
    config: &Config,
    first: &[Arc<Socket>],
    further: u8,
) -> Result<Vec<Vec<Arc<Socket>>>, ListenError> {
    let bind = |first: &Arc<Socket>| {
        let shared = first.share().and_then(|()| first.another(config.quic.socket_buffer));
        shared.map(Arc::new).map_err(|source| ListenError::Bind { addr: first.addr, source })
    };
    // The kernel numbers the sockets of an address in the order in which they are bound.
    (0..further).map(|_| first.iter().map(bind).collect()).collect()
}

/// Listener, until it is dropped.
pub(crate) struct Listener {
    /// Hubs of its drivers, at least one.
    hubs: Arc<[Arc<Hub>]>,
    drivers: Option<Arc<Drivers>>,
    pool: Pool,
    pub(crate) addrs: Vec<SocketAddr>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        for hub in &*self.hubs {
            let mut state = lock(&hub.state);
            state.endpoint.set_room(0);
            // A connection that came while the endpoint ended may still wait in the channel. It goes with
            // the last sender, and its end takes the same lock.
            let accepted = state.accepted.take();
            drop(state);
            drop(accepted);
            hub.wake.notify_one();
        }
    }
}

impl Listener {
    pub(crate) fn observe(&self) -> Arc<dyn Fn() -> EndpointStats + Send + Sync> {
        let (hubs, drivers, pool) = (Arc::clone(&self.hubs), self.drivers.clone(), self.pool.clone());
        Arc::new(move || {
            let mut sum = EndpointStats { held: pool.held(), ..EndpointStats::default() };
            if let Some(drivers) = &drivers {
                (sum.handed_over, sum.overrun) = drivers.counters();
            }
            hubs.iter().for_each(|hub| hub.add_stats(&mut sum));
            sum
        })
    }

    pub(crate) fn new(
        config: &Config,
        at: &[LocalAddress],
        tls: Option<Arc<ServerConfig>>,
        identity: Option<&Identity>,
        accepted: mpsc::Sender<Connection>,
    ) -> Result<Self, ListenError> {
        Self::with(config, at, tls, identity, accepted, true)
    }

    /// Creates a listener whose datagrams the kernel gives to the drivers that own them, if it
    /// `steers`.
    fn with(
        config: &Config,
        at: &[LocalAddress],
        tls: Option<Arc<ServerConfig>>,
        identity: Option<&Identity>,
        accepted: mpsc::Sender<Connection>,
        steers: bool,
    ) -> Result<Self, ListenError> {
        let tls = tls.ok_or(ConfigError::PlaintextQuic)?;
        // Without a way to share addresses, one driver has to do.
        let drivers = u8::try_from(config.quic.drivers).ok().filter(|_| cfg!(unix));
        let count = drivers.and_then(NonZeroU8::new).unwrap_or(NonZeroU8::MIN);
        let first = listening(config, at)?;
        let addrs: Vec<_> = first.iter().map(|socket| socket.addr).collect();
        let further = sharing(config, &first, count.get() - 1)?;
        let epoch = Instant::now();
        let mut endpoint = endpoint_config(config, &first);
        if endpoint.reset_key.is_none() {
            endpoint.reset_key = identity.map(|identity| reset_key(identity, &addrs));
        }
        let group = marcato_quic::Endpoint::group(&endpoint, epoch, count);
        let (mut endpoints, steering) = group?;
        let drivers =
            (count > NonZeroU8::MIN).then(|| Arc::new(Drivers::new(steering, config.quic.socket_buffer)));
        if drivers.is_some() && steers {
            let program = program::program(&steering);
            for socket in &first {
                if let Err(error) = socket.steer(&program) {
                    tracing::debug!(%error, addr = %socket.addr, "the system cannot steer datagrams: drivers hand them over");
                }
            }
        }
        for endpoint in &mut endpoints {
            // A peer whose handshake completes is sure of a place in the application's queue.
            endpoint.set_room(accepted.max_capacity());
            endpoint.listen_with(Arc::clone(&tls), session_config(config))?;
        }
        let pool = Pool::new(config.limits.memory);
        let sockets = std::iter::once(first).chain(further);
        let hub = |(index, (endpoint, sockets))| {
            let state = State { accepted: Some(accepted.clone()), ..State::new(endpoint, sockets) };
            Arc::new(Hub {
                state: Mutex::new(state),
                wake: Notify::new(),
                epoch,
                limits: config.limits,
                pool: pool.clone(),
                buffer: config.quic.socket_buffer,
                marks: config.marks,
                client: false,
                seat: drivers.as_ref().map(|drivers| Seat::new(drivers, index)),
            })
        };
        let hubs: Arc<[Arc<Hub>]> = (0..).zip(endpoints.into_iter().zip(sockets)).map(hub).collect();
        for (driver, hub) in hubs.iter().enumerate() {
            let span = tracing::debug_span!("quic", listening = ?addrs, driver);
            tokio::spawn(driver::drive(Arc::clone(hub)).instrument(span));
        }
        Ok(Self { hubs, drivers, pool, addrs })
    }
}

impl Hub {
    /// Adds the counters and the load of this driver.
    fn add_stats(&self, sum: &mut EndpointStats) {
        let state = lock(&self.state);
        let stats = state.endpoint.stats();
        sum.connections += state.connections.len();
        sum.handshakes += stats.handshakes;
        sum.waiting += stats.waiting;
        // The session's endpoint counts a peer as accepted when its handshake begins.
        sum.accepted += stats.accepted.saturating_sub(stats.failed).saturating_sub(stats.handshakes as u64);
        sum.refused += stats.refused;
        sum.retried += stats.retried;
        sum.failed += stats.failed;
        sum.stray += stats.stray;
        sum.discarded += state.discarded;
        sum.crowded += stats.crowded;
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use marcato_identity::{Identity, Trust};
    use tokio::net::UdpSocket;

    use super::*;
    use crate::config::{ClientSecurity, LaneConfig, Remote, ServerSecurity};
    use crate::engine::Engine;
    use crate::quic::Data;
    use marcato_stream::Message;

    const LIMIT: Duration = Duration::from_secs(60);

    struct Server {
        listener: Listener,
        accepted: mpsc::Receiver<Connection>,
        remote: Remote,
    }

    fn listen(config: &Config, at: &[LocalAddress], steers: bool) -> Server {
        let identity = Identity::self_signed("drivers.test").unwrap();
        let trust = Trust::Certificate(identity.certificate().unwrap().clone());
        let tls = crate::tls::server(config, &ServerSecurity::Tls(identity)).unwrap();
        let (sender, accepted) = mpsc::channel(config.peers.backlog);
        let listener = Listener::with(config, at, tls.config, None, sender, steers).unwrap();
        let remote = Remote::new(listener.addrs[0], ClientSecurity::trusting("drivers.test", trust));
        Server { listener, accepted, remote }
    }

    fn config(drivers: usize) -> Config {
        let mut config = Config::new(Engine::Quic);
        config.quic.drivers = drivers;
        config
    }

    fn localhost() -> LocalAddress {
        std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()
    }

    /// Returns both ends of a connection.
    async fn connected(config: &Config, server: &mut Server) -> (Connection, Connection) {
        let connect = super::super::connect(config, &server.remote, Data::Ordinary);
        let both = async { tokio::join!(connect, server.accepted.recv()) };
        let (client, accepted) = tokio::time::timeout(LIMIT, both).await.unwrap();
        let (client, accepted) = (client.unwrap(), accepted.unwrap());
        accepted.transport().accepted();
        (client, accepted)
    }

    fn loads(server: &Server) -> Vec<usize> {
        server.listener.hubs.iter().map(|hub| lock(&hub.state).connections.len()).collect()
    }

    async fn exchange(from: &Connection, to: &Connection, len: usize) {
        from.send(Message::new(vec![5; len])).await.unwrap();
        let received = tokio::time::timeout(LIMIT, to.recv()).await.unwrap().unwrap();
        assert_eq!(received.bytes, vec![5; len]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn connections_spread_over_the_drivers() {
        let config = config(3);
        let mut server = listen(&config, &[localhost()], true);
        let mut pairs = Vec::new();
        // That one of three drivers gets none of them has a probability of 2e-5.
        for _ in 0..30 {
            pairs.push(connected(&config, &mut server).await);
        }
        assert!(loads(&server).iter().all(|load| *load > 0), "{:?}", loads(&server));
        for (client, accepted) in &pairs {
            exchange(client, accepted, 50_000).await;
            exchange(accepted, client, 50_000).await;
        }
        let stats = (server.listener.observe())();
        assert_eq!((stats.connections, stats.accepted, stats.overrun), (30, 30, 0));
        // Elsewhere, the kernel cannot be programmed.
        if cfg!(target_os = "linux") {
            assert_eq!(stats.handed_over, 0);
        }
    }

    /// The kernel chooses by addresses, so two lanes of a connection arrive at different drivers.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_steering_drivers_hand_datagrams_over() {
        let config = config(4);
        let mut server = listen(&config, &[localhost(), localhost()], false);
        let second = LaneConfig::new(server.listener.addrs[1]);
        server.remote = server.remote.clone().and_lane(second);
        let mut pairs = Vec::new();
        for _ in 0..8 {
            pairs.push(connected(&config, &mut server).await);
        }
        assert_eq!(loads(&server).iter().sum::<usize>(), 8);
        for (client, accepted) in &pairs {
            exchange(client, accepted, 300_000).await;
            exchange(accepted, client, 300_000).await;
        }
        let stats = (server.listener.observe())();
        assert!(stats.handed_over > 100, "{stats:?}");
        assert_eq!(stats.overrun, 0);
        let lanes = |connection: &Connection| connection.stats().lanes.len();
        // A lane opens in its own time.
        let all_have_both = async {
            while !pairs.iter().all(|(_, accepted)| lanes(accepted) == 2) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, all_have_both).await.expect("both lanes of each connection open");
    }

    /// The connection ends with the channel, and needs the lock of the listener's state for it.
    #[test]
    fn a_connection_that_nobody_takes_ends_with_its_listener() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (client, listener) = runtime.block_on(async {
            let config = config(1);
            let mut server = listen(&config, &[localhost()], true);
            let (client, accepted) = connected(&config, &mut server).await;
            let sender = lock(&server.listener.hubs[0].state).accepted.clone().unwrap();
            // A place that was taken before the application stopped can still be used.
            let place = sender.try_reserve_owned().unwrap();
            drop(server.accepted);
            drop(place.send(accepted));
            (client, server.listener)
        });
        let (done, dropped) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(listener);
            done.send(())
        });
        let dropped = dropped.recv_timeout(LIMIT);
        let ended =
            dropped.map(|()| runtime.block_on(async { tokio::time::timeout(LIMIT, client.recv()).await }));
        // Threads that hang would be waited for.
        runtime.shutdown_background();
        assert!(ended.unwrap().unwrap().is_err());
    }

    /// A driver that had no connection left would close its sockets, and with them the way to the
    /// others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn drivers_end_together() {
        let config = config(4);
        for steers in [true, false] {
            let mut server = listen(&config, &[localhost()], steers);
            let addr = server.listener.addrs[0];
            let (client, accepted) = connected(&config, &mut server).await;
            let hubs = Arc::clone(&server.listener.hubs);
            drop(server.listener);
            for _ in 0..20 {
                exchange(&client, &accepted, 20_000).await;
                tokio::task::yield_now().await;
            }
            client.close().await.unwrap();
            drop(accepted);
            // Each driver holds its hub until it ends.
            let ended = async {
                while hubs.iter().any(|hub| Arc::strong_count(hub) > 1) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LIMIT, ended).await.unwrap();
            drop(hubs);
            // Every socket is closed.
            UdpSocket::bind(addr).await.unwrap();
        }
    }
}
