//! Hosts at the ends of a datagram flow.
//!
//! A transport other than TCP joins the simulator as a [`Host`]: a state machine that receives datagrams and
//! the time, and returns datagrams and its next deadline. A datagram flow joins two hosts by up to 16 routes.
//! A route is a pair of interfaces with a layer, and an address at either end. Routes use the same links and
//! queues as all other flows, and their datagrams carry real bytes. Links may fail, routes may be added, and
//! a NAT may rebind an address during a run.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use marcato_units::{Layer, Seed, Stream, Time};
use marcato_wire::Ecn;

use crate::packet::Side;
use crate::route::{Path, RouteEnds, RouteId};

/// End of a datagram flow: a state machine from datagrams and time to datagrams, such as a QUIC
/// endpoint.
///
/// After every call of one of the first four methods, and after
/// [`Network::with_host`](crate::Network::with_host), the network takes all datagrams from
/// [`transmit`](Self::transmit). It then asks [`next_timer`](Self::next_timer) for the time of the
/// next call. There is no other polling: a host that wants to act at some time returns that time.
///
/// To add one, implement this trait in your own crate; after the run,
/// [`Network::host`](crate::Network::host) returns it.
///
/// ```
/// use marcato_sim::{DatagramFlow, Host, HostContext, Incoming, LinkConfig, Network, Outgoing, Route, RouteId, Side};
/// use marcato_units::{Duration, Rate, Seed, Time};
///
/// /// Returns every datagram to where it came from.
/// #[derive(Default)]
/// struct Echo {
///     waiting: Option<Incoming>,
///     seen: Vec<(Time, usize)>,
/// }
///
/// impl Host for Echo {
///     fn datagram(&mut self, now: Time, incoming: Incoming, _context: &HostContext<'_>) {
///         self.seen.push((now, incoming.route.index()));
///         self.waiting = Some(incoming);
///     }
///
///     fn transmit(&mut self, _now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
///         let incoming = self.waiting.take()?;
///         payload.extend_from_slice(&incoming.payload);
///         Some(Outgoing::to(incoming.remote))
///     }
/// }
///
/// /// Says hello over every route.
/// struct Hello(Vec<RouteId>);
///
/// impl Host for Hello {
///     fn start(&mut self, _now: Time, context: &HostContext<'_>) {
///         self.0 = context.routes().collect();
///     }
///
///     fn datagram(&mut self, _now: Time, _incoming: Incoming, _context: &HostContext<'_>) {}
///
///     fn transmit(&mut self, _now: Time, payload: &mut Vec<u8>) -> Option<Outgoing> {
///         payload.extend_from_slice(b"hello");
///         self.0.pop().map(Outgoing::over)
///     }
/// }
///
/// let mut net = Network::new(Seed::new(1));
/// let [wifi, cellular, server] = ["wifi", "cellular", "server"].map(|name| net.node(name));
/// for (interface, ms) in [(wifi, 10), (cellular, 50)] {
///     let link = || LinkConfig::delay_only(Duration::from_millis(ms));
///     net.link(interface, server, link(), link());
/// }
/// let routes = vec![Route::new(wifi, server), Route::new(cellular, server)];
/// let flow = net.datagrams(DatagramFlow::new(Hello(Vec::new()), Echo::default(), routes))?;
/// net.run_until(Time::from_secs(1));
/// let echo: &Echo = net.host(flow, Side::Server).ok_or("an echo")?;
/// assert_eq!(echo.seen, [(Time::from_millis(10), 0), (Time::from_millis(50), 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait Host: Any {
    /// Handles the beginning of the flow.
    fn start(&mut self, now: Time, context: &HostContext<'_>) {}
    /// Handles the arrival of a datagram.
    fn datagram(&mut self, now: Time, incoming: Incoming, context: &HostContext<'_>);
    /// Handles the timer at the time that [`next_timer`](Self::next_timer) returned. If the next
    /// timer is still at this instant or earlier after the call, the network calls again a
    /// nanosecond later.
    fn timer(&mut self, now: Time, context: &HostContext<'_>) {}
    /// Handles a route that was added after the flow began.
    fn route_added(&mut self, now: Time, route: RouteId, context: &HostContext<'_>) {}
    /// Writes the payload of the next datagram into `payload`, which is empty, and returns its
    /// destination; `None` if nothing may leave now. The network calls until it returns `None`: the
    /// host's own congestion control, pacing or another bound must end the calls.
    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing>;
    /// Returns when to call [`timer`](Self::timer); `None` and [`Time::MAX`] mean never.
    fn next_timer(&self) -> Option<Time> {
        None
    }
}

/// Datagram that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Route by which it came.
    pub route: RouteId,
    /// Address of its sender, as this end sees it.
    pub remote: SocketAddr,
    /// Address of this host to which it was sent, as the host knows it.
    pub local: SocketAddr,
    /// ECN code point on arrival.
    pub ecn: Ecn,
    /// Payload.
    pub payload: BytesMut,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Current address of the other end of a route.
    Route(RouteId),
    /// An address, which selects the route. A datagram to an address that the other end lost in a
    /// rebinding travels all the way. It is dropped where the NAT no longer knows the address.
    Address {
        /// Address of the other end, as this end sees it.
        remote: SocketAddr,
        /// Address of this end; `None` for any. Excludes routes that begin at another address.
        local: Option<IpAddr>,
    },
}

/// Datagram that leaves, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// Destination.
    pub to: Destination,
    /// ECN code point.
    pub ecn: Ecn,
}

impl Outgoing {
    /// Datagram over `route`, to the current address of the other end, without ECN.
    pub const fn over(route: RouteId) -> Self {
        Self { to: Destination::Route(route), ecn: Ecn::NotEct }
    }

    /// Datagram to `remote`, without ECN.
    pub const fn to(remote: SocketAddr) -> Self {
        Self { to: Destination::Address { remote, local: None }, ecn: Ecn::NotEct }
    }

    /// Sets the ECN code point.
    #[must_use]
    pub const fn ecn(self, ecn: Ecn) -> Self {
        Self { ecn, ..self }
    }
}

/// Datagrams of a host that never became packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Datagrams without a route to their destination.
    pub unroutable: u64,
    /// Datagrams longer than an IP packet can be.
    pub oversized: u64,
}

/// Host's view of the network: its side and its routes.
#[derive(Clone, Copy)]
pub struct HostContext<'a> {
    pub(crate) side: Side,
    pub(crate) seed: Seed,
    /// Name of the flow.
    pub(crate) name: &'a str,
    pub(crate) routes: &'a [RouteEnds],
    pub(crate) paths: &'a [Path],
}

impl HostContext<'_> {
    /// Returns the side on which the host is.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Returns the routes, in the order in which they were added.
    pub fn routes(&self) -> impl ExactSizeIterator<Item = RouteId> + Clone + use<> {
        // At most `MAX_ROUTES`.
        (0..u8::try_from(self.routes.len()).unwrap_or(u8::MAX)).map(RouteId)
    }

    /// Returns this host's own address on a route. A NAT may have replaced it without the host's
    /// knowledge.
    pub fn local(&self, route: RouteId) -> Option<SocketAddr> {
        Some(self.routes.get(route.index())?[self.side.index()].local())
    }

    /// Returns the address of the other end of a route, as this host sees it.
    pub fn remote(&self, route: RouteId) -> Option<SocketAddr> {
        Some(self.routes.get(route.index())?[self.side.peer().index()].public())
    }

    /// Returns the class in which the network serves a route.
    pub fn layer(&self, route: RouteId) -> Option<Layer> {
        Some(self.paths.get(route.index())?.layer)
    }

    /// Returns the host's stream of random numbers called `name`, from its beginning. It depends on
    /// the network's seed, the flow, the side and `name`.
    pub fn stream(&self, name: &str) -> Stream {
        let side = match self.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        self.seed.stream(&format!("{}/{side}/{name}", self.name))
    }
}
