//! Hosts: what runs at the ends of a datagram flow.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use marcato_units::{Layer, Seed, Stream, Time};
use marcato_wire::Ecn;

use crate::packet::Side;
use crate::route::{Path, RouteEnds, RouteId};

/// An end of a datagram flow: whatever turns datagrams and the time into datagrams, such as a QUIC endpoint.
///
/// After every call of one of the first four methods, and after [`Network::with_host`](crate::Network::with_host), the
/// network takes all that [`transmit`](Self::transmit) has to give, and then asks [`next_timer`](Self::next_timer) when
/// to come back. Nothing else is asked for: a host that wants to act at some time names it there.
///
/// To add one, implement this in your own crate; after the run get it back by [`Network::host`](crate::Network::host).
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
    /// The flow begins.
    fn start(&mut self, now: Time, context: &HostContext<'_>) {}
    /// A datagram has arrived.
    fn datagram(&mut self, now: Time, incoming: Incoming, context: &HostContext<'_>);
    /// The time has come that [`next_timer`](Self::next_timer) named. If it still names this instant or an earlier one
    /// after the call, it is called again a nanosecond later.
    fn timer(&mut self, now: Time, context: &HostContext<'_>) {}
    /// The flow, which has begun, has been given another route.
    fn route_added(&mut self, now: Time, route: RouteId, context: &HostContext<'_>) {}
    /// Writes the payload of the next datagram that may leave into `payload`, which is empty, and says where it goes;
    /// `None` if nothing may leave now. Asked again until it says so: a host that always has something to send has to
    /// be stopped by its own congestion control, pacing or bound.
    fn transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Outgoing>;
    /// When [`timer`](Self::timer) wants to be called; `None` and [`Time::MAX`] are never.
    fn next_timer(&self) -> Option<Time> {
        None
    }
}

/// A datagram that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The route by which it came.
    pub route: RouteId,
    /// Where it came from, as seen from here.
    pub remote: SocketAddr,
    /// The address of this host that it came to, as the host knows it.
    pub local: SocketAddr,
    /// Its ECN code point, as the network left it.
    pub ecn: Ecn,
    /// Its payload.
    pub payload: BytesMut,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// To the address that the other end of a route has at present.
    Route(RouteId),
    /// To an address, which names the route. One that the other end had earlier is as good as lost: the datagram goes
    /// all the way and is dropped where a NAT no longer knows it.
    Address {
        /// The address of the other end, as seen from here.
        remote: SocketAddr,
        /// The address of this end, if it matters: a route that begins elsewhere is not taken.
        local: Option<IpAddr>,
    },
}

/// A datagram that leaves; its payload stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// Where it goes.
    pub to: Destination,
    /// Its ECN code point.
    pub ecn: Ecn,
}

impl Outgoing {
    /// Over `route`, to whatever address the other end has, without ECN.
    pub const fn over(route: RouteId) -> Self {
        Self { to: Destination::Route(route), ecn: Ecn::NotEct }
    }

    /// To `remote`, without ECN.
    pub const fn to(remote: SocketAddr) -> Self {
        Self { to: Destination::Address { remote, local: None }, ecn: Ecn::NotEct }
    }

    /// With this code point.
    #[must_use]
    pub const fn ecn(self, ecn: Ecn) -> Self {
        Self { ecn, ..self }
    }
}

/// Datagrams of a host that never became packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// No route leads, or led, to where they should have gone.
    pub unroutable: u64,
    /// They were longer than an IP packet can be.
    pub oversized: u64,
}

/// What a host may know of the network: its side and its routes.
#[derive(Clone, Copy)]
pub struct HostContext<'a> {
    pub(crate) side: Side,
    pub(crate) seed: Seed,
    /// The flow's name.
    pub(crate) name: &'a str,
    pub(crate) routes: &'a [RouteEnds],
    pub(crate) paths: &'a [Path],
}

impl HostContext<'_> {
    /// The side on which the host is.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// The routes, in the order in which they were added.
    pub fn routes(&self) -> impl ExactSizeIterator<Item = RouteId> + Clone + use<> {
        // At most `MAX_ROUTES`.
        (0..u8::try_from(self.routes.len()).unwrap_or(u8::MAX)).map(RouteId)
    }

    /// This host's own address on a route. A NAT may have put another in its place, of which the host does not know.
    pub fn local(&self, route: RouteId) -> Option<SocketAddr> {
        Some(self.routes.get(route.index())?[self.side.index()].local())
    }

    /// The address of the other end of a route, as seen from here.
    pub fn remote(&self, route: RouteId) -> Option<SocketAddr> {
        Some(self.routes.get(route.index())?[self.side.peer().index()].public())
    }

    /// The class in which the network serves a route.
    pub fn layer(&self, route: RouteId) -> Option<Layer> {
        Some(self.paths.get(route.index())?.layer)
    }

    /// The host's stream of random numbers called `name`, from its beginning. It depends on the network's seed, the
    /// flow, the side and `name`.
    pub fn stream(&self, name: &str) -> Stream {
        let side = match self.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        self.seed.stream(&format!("{}/{side}/{name}", self.name))
    }
}
