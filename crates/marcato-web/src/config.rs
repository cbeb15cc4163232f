//! Configuration of a server.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use marcato_net::{ChunkRule, CodePoints, Coupling};
use marcato_sched::exchange::{self, LevelTable};
use marcato_units::{Bytes, Priority, PrioritySet};

use crate::guess::GuessTable;
use crate::rates::RateLimit;
use crate::record::Record;
use crate::trace::Traces;

/// Levels for which coupled mode keeps the queue empty. A page's large images are P1: not held back, they would
/// fill the queue before the stylesheet that comes after them.
pub(crate) const KEPT_FREE_FOR: PrioritySet = PrioritySet::one(Priority::P0);

/// Receiver of the records of requests.
pub type Log = Arc<dyn Fn(&Record) + Send + Sync>;

/// Configuration of a server.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// Size of the chunks that are granted to responses.
    pub chunk: ChunkRule,
    /// Coupled mode: our own background stays out of the bottleneck's queue, so that urgent responses
    /// that come late do not wait behind it.
    ///
    /// With [`Coupling::Auto`] it acts for clients that signal an order or the destination of their
    /// requests, as browsers do, from their first response on. Others need responses of both kinds.
    pub coupled: Coupling,
    /// Code points (DSCP) by which packets of responses over HTTP/2 and HTTP/3 are marked for the network; `None`, the
    /// default, leaves them unmarked. A connection has one mark at a time: that of its most urgent response, as
    /// [`marcato_net::Config::marks`] has it. HTTP/1.1 is not marked: it has no order of urgency.
    pub marks: Option<CodePoints>,
    /// Order of the responses. The limits of responses and of staged bytes are those of
    /// [`limits`](Self::limits).
    pub exchange: exchange::Config,
    /// Guesses for clients that signal nothing.
    pub guess: GuessTable,
    /// Bounds of what clients may use.
    pub limits: Limits,
    /// Networks whose addresses have no [rates](Limits::request_rate). They are trusted gateways (RFC 9110
    /// §7.4), which may ask for resources of `https` in cleartext.
    pub trusted: Vec<IpNet>,
    /// Accepts extended CONNECT (RFC 8441), which carries WebSockets over HTTP/2 (true). Requests for other
    /// protocols are answered with 501.
    ///
    /// `WebSocketUpgrade` of axum works over both versions, on a route for any method. Other services see the
    /// extension `h2::ext::Protocol`. They take the bytes of the client as the body of the request, and give
    /// theirs as that of the response. Or they take over the stream as over HTTP/1.1: they keep the extension
    /// [`hyper::upgrade::OnUpgrade`], and answer with 200 and no content. The stream keeps its place in the
    /// order, and the bounds of memory and of [`stall`](Limits::stall) hold.
    pub extended_connect: bool,
    /// Answers HTTP/3 beside HTTP/2 (true): on the UDP port of the same number as the listener's, if connections are encrypted, the
    /// listener has an [address](crate::Listener::local_addr), and the port is free. Responses of the other versions then
    /// tell of it (`Alt-Svc`, RFC 7838).
    #[cfg(feature = "http3")]
    pub http3: bool,
    /// Runs each handler of HTTP/2 and HTTP/3 in a task of its own from the beginning.
    ///
    /// Otherwise a handler begins in the task of its connection, and leaves it where it first waits. That
    /// takes less time of the processor. Handlers that compute for long without waiting then delay the
    /// other responses of their connection.
    pub spawn: bool,
    /// Receiver of a record for each request.
    pub log: Option<Log>,
    /// Traces of the last connections. Targets of requests are in them.
    pub traces: Option<Traces>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("chunk", &self.chunk)
            .field("coupled", &self.coupled)
            .field("marks", &self.marks)
            .field("exchange", &self.exchange)
            .field("guess", &self.guess)
            .field("limits", &self.limits)
            .field("trusted", &self.trusted)
            .field("extended_connect", &self.extended_connect)
            .field("http3", &self.offers_http3())
            .field("spawn", &self.spawn)
            .field("log", &self.log.is_some())
            .field("traces", &self.traces)
            .finish()
    }
}

/// Bounds of what clients may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once (10 000).
    pub connections: usize,
    /// Requests at once on a connection of HTTP/2 or HTTP/3 (128).
    pub streams: u32,
    /// Bytes of the fields of a request (16 KiB): of its whole head over HTTP/1.1, and as RFC 9113 §10.5.1
    /// counts them over HTTP/2. Over HTTP/3, 64 KiB at most.
    pub header_list: Bytes,
    /// Fields of a request (100).
    pub fields: usize,
    /// Bytes staged for a response before its handler waits (16 KiB). One more piece may follow. A piece stays in memory
    /// until its last byte has left. On fast connections a response whose turn it is may stage two chunks more: the
    /// responses of a connection together at most 256 KiB.
    pub staged: Bytes,
    /// Bytes of a request's body that a client of HTTP/2 or HTTP/3 may send ahead of its reader (256 KiB). A
    /// connection may send four times as many.
    pub upload_window: u32,
    /// Time for a handshake, and for the head of a request over either version of HTTP (10 s).
    pub handshake: Duration,
    /// Time after which a connection without requests ends (75 s).
    pub idle: Duration,
    /// Time for which a client may take nothing of what waits for it (60 s). Its connection then ends. A
    /// response for which it gives no credit meanwhile is reset. A request of whose body nothing comes for that
    /// long is answered with 408, if its handler waits for it and has not answered.
    pub stall: Duration,
    /// Time for open requests after the server was told to end (30 s).
    pub grace: Duration,
    /// Requests of an address, of IPv4 or of the first 64 bits of IPv6. Others are answered with 429. No
    /// limit by default, here and in the two fields below.
    pub request_rate: Option<RateLimit>,
    /// New connections of an address. Others are closed at once.
    pub connection_rate: Option<RateLimit>,
    /// Connections of an address at once. Others are closed at once.
    pub open_per_address: Option<NonZeroU32>,
    /// Addresses whose rates are known (65 536), or [`connections`](Self::connections) if that is more. Of
    /// more addresses, those that have used least of their rates are forgotten.
    pub addresses: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            streams: 128,
            header_list: Bytes::new(16 << 10),
            fields: 100,
            staged: Bytes::new(16 << 10),
            upload_window: 256 << 10,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            request_rate: None,
            connection_rate: None,
            open_per_address: None,
            addresses: 1 << 16,
        }
    }
}

impl Default for Config {
    /// Coupled mode on connections that carry urgent and other responses, no log and no traces.
    fn default() -> Self {
        Self {
            chunk: ChunkRule::default(),
            coupled: Coupling::default(),
            marks: None,
            exchange: exchange::Config::default(),
            guess: GuessTable::default(),
            limits: Limits::default(),
            trusted: Vec::new(),
            extended_connect: true,
            #[cfg(feature = "http3")]
            http3: true,
            spawn: false,
            log: None,
            traces: None,
        }
    }
}

impl Config {
    /// True for an address of the [trusted](Self::trusted) networks.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// True if HTTP/3 is answered where it can be.
    pub(crate) const fn offers_http3(&self) -> bool {
        #[cfg(feature = "http3")]
        return self.http3;
        #[cfg(not(feature = "http3"))]
        return false;
    }

    /// Level of each urgency.
    pub(crate) const fn levels(&self) -> &LevelTable {
        &self.exchange.levels
    }

    /// Bytes staged for a response before its handler waits.
    pub(crate) fn staged(&self) -> usize {
        usize::try_from(self.limits.staged.get()).unwrap_or(usize::MAX).max(1)
    }

    /// Configuration of the exchange of a connection with this many streams.
    pub(crate) fn exchange_for(&self, streams: u32) -> exchange::Config {
        exchange::Config {
            max_responses: streams as usize,
            // The stage bounds a handler, by more than this for a single piece.
            max_staged: Bytes::new(u64::MAX),
            ..self.exchange
        }
    }
}
