//! Connecting to a server over lanes, by sockets of one connection or of several.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use marcato_quic::SocketId;
use marcato_units::Layer;
use rustls::AlertDescription;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::hub::{Hub, Quic};
use super::socket::Socket;
use super::{any_address, driver, low_address, request, session_config};
use crate::config::{Config, LaneConfig, LocalAddress, Remote};
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::{Alerted, Cause, Closed, ConfigError, ConnectError, ListenError};
use crate::signal::lock;
use crate::tls::{self, ClientTls};

/// Returns the lanes of a client, with the implied ones of the low layer.
fn with_low_lanes(config: &Config, lanes: &[LaneConfig]) -> Result<Vec<LaneConfig>, ConfigError> {
    let mut all = lanes.to_vec();
    if config.quic.layered && lanes.iter().all(|lane| lane.layer == Layer::High) {
        for lane in lanes {
            let local = lane.local.map(|local| SocketAddr::new(local.ip(), 0));
            let remote = low_address(lane.remote)?;
            all.push(LaneConfig { local, remote, layer: Layer::Low, ..*lane });
        }
    }
    Ok(all)
}

/// Server with everything that connecting to it needs.
struct Wanted<'a> {
    tls: ClientTls<'a>,
    /// Lanes, at least one, with the implied ones of the low layer.
    lanes: Vec<LaneConfig>,
    first: SocketAddr,
}

impl<'a> Wanted<'a> {
    async fn new(config: &Config, to: &'a Remote, data: Data) -> Result<Self, ConnectError> {
        let mut tls = tls::client(config, &to.security).await?.ok_or(ConfigError::PlaintextQuic)?;
        if data == Data::Early {
            tls.allow_early_data();
        }
        let lanes = with_low_lanes(config, &to.lanes)?;
        let Some(first) = lanes.first().map(|lane| lane.remote) else {
            return Err(ConfigError::NoAddress.into());
        };
        let most = usize::from(config.quic.session.max_lanes);
        if lanes.len() > most {
            let given = lanes.len();
            return Err(ConfigError::TooManyLanes { engine: Engine::Quic, most, given }.into());
        }
        Ok(Self { tls, lanes, first })
    }
}

/// Time from which data may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// From the end of the handshake on.
    Ordinary,
    /// At once, if there is a ticket for it.
    Early,
}

/// Connects over all lanes of `to`; returns when data may leave.
pub(crate) async fn connect(config: &Config, to: &Remote, data: Data) -> Result<Connection, ConnectError> {
    let wanted = Wanted::new(config, to, data).await?;
    let mut sockets = Vec::new();
    for lane in &wanted.lanes {
        let addr = lane.local.unwrap_or_else(|| any_address(lane.remote));
        let socket = Socket::bind(addr, lane.layer, config.quic.socket_buffer);
        sockets.push(Arc::new(socket.map_err(|source| ConnectError::Bind { addr, source })?));
    }
    let places: Vec<SocketId> = (0..=u8::MAX).map(SocketId).take(sockets.len()).collect();
    let hub = Hub::new(sockets, config)?;
    let connecting = begin(&hub, config, &wanted, &places)?;
    let span = tracing::debug_span!("quic", remote = %wanted.first);
    tokio::spawn(driver::drive(Arc::clone(&hub)).instrument(span));
    ready(config, &wanted, connecting).await
}

/// Connection during its handshake.
struct Connecting {
    connection: Connection,
    quic: Weak<Quic>,
    /// Channel that reports the end of the handshake.
    connected: oneshot::Receiver<Result<(), Closed>>,
}

/// Begins a session by these sockets, one for each lane.
fn begin(
    hub: &Arc<Hub>,
    config: &Config,
    wanted: &Wanted<'_>,
    places: &[SocketId],
) -> Result<Connecting, ConnectError> {
    let (connecting, connected) = oneshot::channel();
    let mut state = lock(&hub.state);
    let now = hub.now();
    let session = session_config(config);
    let first = places.first().copied().unwrap_or_default();
    let tls = Arc::clone(&wanted.tls.config);
    let id = state.endpoint.connect_with(now, first, wanted.first, wanted.tls.name, tls, session)?;
    let quic = hub.adopt(&mut state, id, Some(connecting));
    // If the caller stops waiting, the connection ends with this handle.
    let handle = Arc::downgrade(&quic);
    let connection = Connection::new(quic);
    let mut lanes = Ok(());
    if let Some(session) = state.endpoint.session(id) {
        let mut further = places.iter().zip(&wanted.lanes).skip(1);
        lanes = further.try_for_each(|(socket, lane)| session.add_lane(now, request(*socket, lane)));
    }
    drop(state);
    hub.wake.notify_one();
    lanes?;
    Ok(Connecting { connection, quic: handle, connected })
}

/// Waits until data may leave: for the handshake, unless there is early data.
async fn ready(
    config: &Config,
    wanted: &Wanted<'_>,
    connecting: Connecting,
) -> Result<Connection, ConnectError> {
    if !connecting.connection.transport().is_early() {
        return established(config, wanted, connecting).await;
    }
    let Connecting { connection, quic, connected } = connecting;
    let timeout = config.peers.handshake_timeout;
    // A handshake that fails ends the connection.
    tokio::spawn(async move {
        let late = tokio::time::timeout(timeout, connected).await.is_err();
        if let Some(quic) = quic.upgrade().filter(|_| late) {
            quic.time_out();
        }
    });
    Ok(connection)
}

/// Waits for the handshake.
async fn established(
    config: &Config,
    wanted: &Wanted<'_>,
    Connecting { connection, connected, .. }: Connecting,
) -> Result<Connection, ConnectError> {
    let addr = wanted.first;
    match tokio::time::timeout(config.peers.handshake_timeout, connected).await {
        Err(_) => Err(ConnectError::TimedOut { addr }),
        Ok(Ok(Ok(()))) => {
            wanted.tls.check(addr, connection.transport().shared().handshake.get())?;
            Ok(connection)
        }
        Ok(Ok(Err(closed))) => Err(match connection.transport().shared().alert.get() {
            None => {
                let cause = closed.cause().unwrap_or(Cause::Stopped);
                ConnectError::Ended { addr, cause, reason: why(closed) }
            }
            Some(AlertDescription::NoApplicationProtocol) => ConnectError::Protocol { addr },
            Some(alert) => {
                ConnectError::Tls { addr, source: Alerted { alert: *alert, reason: why(closed) }.into() }
            }
        }),
        Ok(Err(_)) => {
            let reason = "its task has ended".to_owned();
            Err(ConnectError::Ended { addr, cause: Cause::Stopped, reason })
        }
    }
}

/// Text of the reason for which a connection ended.
fn why(closed: Closed) -> String {
    match closed {
        Closed::Lost { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// Sockets that several client connections share, until it is dropped.
pub(crate) struct ClientSockets {
    hub: Arc<Hub>,
}

impl ClientSockets {
    pub(crate) fn bind(config: &Config, at: &[LocalAddress]) -> Result<Self, ListenError> {
        let bind = |local: &LocalAddress| {
            let socket = Socket::bind(local.addr, local.layer, config.quic.socket_buffer);
            socket.map(Arc::new).map_err(|source| ListenError::Bind { addr: local.addr, source })
        };
        let sockets = at.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let hub = Hub::new(sockets, config)?;
        lock(&hub.state).shared = true;
        let span = tracing::debug_span!("quic", client = ?at);
        tokio::spawn(driver::drive(Arc::clone(&hub)).instrument(span));
        Ok(Self { hub })
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        lock(&self.hub.state).sockets.iter().map(|socket| socket.addr).collect()
    }

    pub(crate) async fn connect(
        &self,
        config: &Config,
        to: &Remote,
        data: Data,
    ) -> Result<Connection, ConnectError> {
        let wanted = Wanted::new(config, to, data).await?;
        let mut places = Vec::new();
        for lane in &wanted.lanes {
            let place = lock(&self.hub.state).place(lane, &places);
            places.push(place.ok_or(ConfigError::NoSocket { remote: lane.remote })?);
        }
        let connecting = begin(&self.hub, config, &wanted, &places)?;
        ready(config, &wanted, connecting).await
    }
}

impl Drop for ClientSockets {
    fn drop(&mut self) {
        lock(&self.hub.state).shared = false;
        self.hub.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_lanes_are_implied_beside_high_ones_alone() {
        let [near, far] = ["192.0.2.1:700", "198.51.100.1:443"].map(|addr| addr.parse().unwrap());
        let mut config = Config::new(Engine::Quic);
        let high = [LaneConfig::new(far).as_backup(), LaneConfig::new(far).from(near)];
        let mixed = [LaneConfig::new(far), LaneConfig::new(far).in_layer(Layer::Low)];
        for lanes in [&high[..], &mixed] {
            assert_eq!(with_low_lanes(&config, lanes).unwrap(), lanes);
        }
        config.quic.layered = true;
        assert_eq!(with_low_lanes(&config, &mixed).unwrap(), mixed);
        // To the next port of the server, and from the same host by any port.
        let beside = LaneConfig::new("198.51.100.1:444".parse().unwrap()).in_layer(Layer::Low);
        let low = [beside.as_backup(), beside.from("192.0.2.1:0".parse().unwrap())];
        assert_eq!(with_low_lanes(&config, &high).unwrap(), [high, low].concat());
        let last = "198.51.100.1:65535".parse().unwrap();
        let error = with_low_lanes(&config, &[LaneConfig::new(last)]).unwrap_err();
        assert!(matches!(error, ConfigError::NoLowPort { addr } if addr == last), "{error}");
    }

    #[tokio::test]
    async fn a_lane_gets_a_free_socket_of_its_address_and_layer() {
        let config = Config::new(Engine::Quic);
        let bind = |addr: &str, layer| {
            Arc::new(Socket::bind(addr.parse().unwrap(), layer, config.quic.socket_buffer).unwrap())
        };
        let sockets = vec![
            bind("127.0.0.1:0", Layer::High),
            bind("127.0.0.1:0", Layer::Low),
            bind("127.0.0.2:0", Layer::High),
            bind("127.0.0.1:0", Layer::High),
        ];
        let addrs: Vec<_> = sockets.iter().map(|socket| socket.addr).collect();
        let hub = Hub::new(sockets, &config).unwrap();
        let place = |lane, taken: &[u8]| {
            let taken: Vec<_> = taken.iter().map(|id| SocketId(*id)).collect();
            lock(&hub.state).place(&lane, &taken).map(|id| id.0)
        };
        let any = LaneConfig::new("127.0.0.1:443".parse().unwrap());
        for (taken, expected) in
            [(&[][..], Some(0)), (&[0], Some(2)), (&[2], Some(0)), (&[0, 2], Some(3)), (&[0, 2, 3], None)]
        {
            assert_eq!(place(any, taken), expected, "{taken:?} taken");
        }
        assert_eq!(
            (place(any.in_layer(Layer::Low), &[]), place(any.in_layer(Layer::Low), &[1])),
            (Some(1), None)
        );
        for (at, addr) in (0..).zip(&addrs).filter(|(at, _)| *at != 1) {
            assert_eq!(place(any.from(*addr), &[]), Some(at));
        }
        let of_host = |host: &str| any.from(format!("{host}:0").parse().unwrap());
        assert_eq!((place(of_host("127.0.0.1"), &[0]), place(of_host("127.0.0.2"), &[])), (Some(3), Some(2)));
        assert_eq!(place(of_host("127.0.0.3"), &[]), None);
        let v6 = LaneConfig::new("[::1]:443".parse().unwrap());
        assert_eq!(place(v6, &[]), None);
    }
}
