//! Host that runs an end of a QUIC session.

use std::any::Any;
use std::num::NonZeroUsize;
use std::time::Instant;

use marcato_quic::{
    Endpoint, EndpointConfig, EndpointStats, Identity, LaneRequest, LocalSocket, Session, SessionConfig,
    SessionId, SocketId, Trust,
};
use marcato_units::{Seed, Time};

use super::app::{QuicApp, QuicContext};
use crate::host::{Destination, Host, HostContext, Incoming, Outgoing};
use crate::route::RouteId;

/// Role of a host in a session.
#[derive(Clone, Debug)]
pub enum QuicRole {
    /// Client: opens the session over route 0, and requests a lane on each other route.
    Client {
        /// Certificates that it accepts.
        trust: Trust,
        /// Name in the server's certificate.
        name: String,
    },
    /// Server: waits for the session.
    Server {
        /// Certificate and key that it presents.
        identity: Identity,
    },
}

/// End of a QUIC session in virtual time, with an application on it. It has a socket for each
/// route.
pub struct QuicHost {
    role: QuicRole,
    config: SessionConfig,
    epoch: Instant,
    app: Box<dyn QuicApp>,
    endpoint: Option<Endpoint>,
    session: Option<SessionId>,
    /// Latest batch of datagrams that have not all left.
    batch: Vec<u8>,
    at: usize,
    segment: usize,
    outgoing: Option<Outgoing>,
    error: Option<String>,
    tune: Option<Tune>,
}

/// Function that changes the configuration of an endpoint.
type Tune = Box<dyn Fn(&mut EndpointConfig)>;

/// Greatest number of datagrams that the engine returns at once.
const BATCH: NonZeroUsize = NonZeroUsize::new(10).unwrap();

impl QuicHost {
    /// Creates a host. The engine measures time as instants; `epoch` stands for the beginning of
    /// virtual time. No result depends on it.
    pub fn new(role: QuicRole, config: SessionConfig, epoch: Instant, app: impl QuicApp) -> Self {
        Self {
            role,
            config,
            epoch,
            app: Box::new(app),
            endpoint: None,
            session: None,
            batch: Vec::new(),
            at: 0,
            segment: 0,
            outgoing: None,
            error: None,
            tune: None,
        }
    }

    /// Sets a function that changes the endpoint's default configuration, which has one socket for
    /// each route.
    #[must_use]
    pub fn tuned(self, tune: impl Fn(&mut EndpointConfig) + 'static) -> Self {
        Self { tune: Some(Box::new(tune)), ..self }
    }

    /// Returns the application, if it is an `A`.
    pub fn app<A: QuicApp>(&self) -> Option<&A> {
        (&*self.app as &dyn Any).downcast_ref()
    }

    /// Returns the application, if it is an `A`, for changes.
    pub fn app_mut<A: QuicApp>(&mut self) -> Option<&mut A> {
        (&mut *self.app as &mut dyn Any).downcast_mut()
    }

    /// Returns the session, once there is one.
    pub fn session(&self) -> Option<&Session> {
        self.endpoint.as_ref()?.peek(self.session?)
    }

    /// Returns the session for changes, once there is one. Call it within
    /// [`Network::with_host`](crate::Network::with_host), so that the network sends what follows
    /// from them.
    pub fn session_mut(&mut self) -> Option<&mut Session> {
        self.endpoint.as_mut()?.session(self.session?)
    }

    /// Returns the counters of the endpoint.
    pub fn endpoint_stats(&self) -> Option<EndpointStats> {
        self.endpoint.as_ref().map(Endpoint::stats)
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// Returns the reason why a session could not be opened, if it failed.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    fn begin(&mut self, now: Time, context: &HostContext<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let sockets = context.routes().filter_map(|route| {
            Some(LocalSocket { layer: context.layer(route)?, ..LocalSocket::new(context.local(route)?) })
        });
        let mut config = EndpointConfig::new(sockets.collect());
        config.seed = Some(Seed::new(context.stream("quic").next_u64()));
        if let Some(tune) = &self.tune {
            tune(&mut config);
        }
        let mut endpoint = Endpoint::new(config, self.epoch)?;
        match &self.role {
            QuicRole::Server { identity } => endpoint.listen(identity, self.config.clone())?,
            QuicRole::Client { trust, name } => {
                let mut routes = context.routes();
                let first = routes.next().and_then(|route| context.remote(route)).ok_or("no route")?;
                let config = self.config.clone();
                let id = endpoint.connect(now, SocketId(0), first, name, trust, config)?;
                self.session = Some(id);
                for route in routes {
                    add_lane(&mut endpoint, id, now, route, context);
                }
            }
        }
        self.endpoint = Some(endpoint);
        Ok(())
    }

    /// Passes events to the application. Returns true if there were any.
    fn dispatch(&mut self, now: Time) -> bool {
        let Some(endpoint) = &mut self.endpoint else { return false };
        let mut any = false;
        while let Some((id, event)) = endpoint.poll_event() {
            any = true;
            self.session = Some(id);
            let Some(session) = endpoint.session(id) else { continue };
            deliver(&mut *self.app, now, session);
            self.app.event(&event, &mut QuicContext { now, session });
        }
        any
    }

    /// Asks the application for more data. Returns true if it supplied some.
    fn idle(&mut self, now: Time) -> bool {
        let (Some(endpoint), Some(id)) = (&mut self.endpoint, self.session) else { return false };
        match endpoint.peek(id) {
            Some(session) if session.is_open() => {}
            _ => return false,
        }
        let Some(session) = endpoint.session(id) else { return false };
        self.app.idle(&mut QuicContext { now, session })
    }

    fn next_of_batch(&mut self, payload: &mut Vec<u8>) -> Option<Outgoing> {
        let outgoing = self.outgoing?;
        let end = (self.at + self.segment).min(self.batch.len());
        payload.extend_from_slice(&self.batch[self.at..end]);
        self.at = end;
        if end == self.batch.len() {
            self.outgoing = None;
        }
        Some(outgoing)
    }
}

fn add_lane(endpoint: &mut Endpoint, id: SessionId, now: Time, route: RouteId, context: &HostContext<'_>) {
    let socket = SocketId(u8::try_from(route.index()).unwrap_or(u8::MAX));
    let (Some(remote), Some(layer)) = (context.remote(route), context.layer(route)) else { return };
    let request = LaneRequest { layer, ..LaneRequest::new(socket, remote) };
    if let Some(session) = endpoint.session(id) {
        // A session that already has the most lanes goes without this one.
        let _ = session.add_lane(now, request);
    }
}

/// Passes received data to the application while it reads.
fn deliver(app: &mut dyn QuicApp, now: Time, session: &mut Session) {
    while app.reads()
        && let Some(piece) = session.read(now)
    {
        app.received(piece, &mut QuicContext { now, session });
    }
}

impl Host for QuicHost {
    fn start(&mut self, now: Time, context: &HostContext<'_>) {
        self.app.start(now, context);
        if let Err(error) = self.begin(now, context) {
            self.error = Some(error.to_string());
        }
    }

    fn datagram(&mut self, now: Time, incoming: Incoming, _: &HostContext<'_>) {
        let Some(endpoint) = &mut self.endpoint else { return };
        let socket = SocketId(u8::try_from(incoming.route.index()).unwrap_or(u8::MAX));
        endpoint.handle_datagram(now, socket, incoming.remote, incoming.ecn, incoming.payload);
    }

    fn timer(&mut self, now: Time, _: &HostContext<'_>) {
        let Some(endpoint) = &mut self.endpoint else { return };
        if endpoint.next_timeout().is_some_and(|at| at <= now) {
            endpoint.handle_timeout(now);
        }
        if self.app.next_timer().is_some_and(|at| at <= now)
            && let Some(session) = self.session.and_then(|id| endpoint.session(id))
        {
            self.app.timer(&mut QuicContext { now, session });
            deliver(&mut *self.app, now, session);
        }
    }

    fn route_added(&mut self, now: Time, route: RouteId, context: &HostContext<'_>) {
        let Some(endpoint) = &mut self.endpoint else { return };
        if let (Some(addr), Some(layer)) = (context.local(route), context.layer(route)) {
            // Routes and sockets have the same numbers.
            let _ = endpoint.add_socket(LocalSocket { layer, ..LocalSocket::new(addr) });
        }
        if let (QuicRole::Client { .. }, Some(id)) = (&self.role, self.session) {
            add_lane(endpoint, id, now, route, context);
        }
    }

    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
        loop {
            if let Some(outgoing) = self.next_of_batch(payload) {
                return Some(outgoing);
            }
            let endpoint = self.endpoint.as_mut()?;
            self.batch.clear();
            if let Some(transmit) = endpoint.poll_transmit(now, BATCH, &mut self.batch) {
                self.at = 0;
                self.segment = transmit.segment.unwrap_or(transmit.len).max(1);
                let local = endpoint.socket(transmit.socket).map(|socket| socket.addr.ip());
                let to = Destination::Address { remote: transmit.to, local };
                self.outgoing = Some(Outgoing { to, ecn: transmit.ecn });
                continue;
            }
            if !self.dispatch(now) && !self.idle(now) {
                return None;
            }
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let endpoint = self.endpoint.as_ref()?.next_timeout();
        let app = self.app.next_timer().filter(|_| self.session.is_some());
        [endpoint, app].into_iter().flatten().min()
    }
}
