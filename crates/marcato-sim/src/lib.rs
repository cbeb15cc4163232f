//! Discrete-event network simulator: Marcato in virtual time.
//!
//! Time is integer nanoseconds. It moves only from event to event, in the total order of (time,
//! insertion). All randomness comes from [seeded, named streams](marcato_units::Seed). The same
//! network with the same seed gives the same result on every machine, and an added flow does not
//! change the draws of others.
//!
//! - [`Network`]: nodes, links and flows; [`Network::run_until`] advances time.
//! - [`LinkConfig`]: rate or [`Trace`], delay and [`Jitter`], framing, MTU, [`Loss`], and a queue
//!   from [`marcato_queue`].
//! - [`TcpFlow`] and [`Tcp`]: TCP with the congestion controls of [`tcp::congestion`];
//!   [`UdpFlow`].
//! - [`PltConfig`], in a [`TcpEnd`]: a low layer under TCP, for priority-layered transport.
//! - [`DatagramFlow`]: two [`Host`]s that exchange real datagrams over several [`Route`]s.
//! - [`scenario`]: builds a network from an experiment's file, and returns its results.
//! - [`FlowProcess`]: TCP flows that come and go; [`Distribution`]: distribution of their sizes,
//!   gaps and other quantities.
//! - [`Series`], [`FlowSummary`], [`Tap`]: recorders over time, per flow and per packet.
//! - [`App`]: application at an end of a TCP flow. [`Conducted`] puts a Conductor between
//!   application and TCP; [`Framed`] the whole sender and receiver of real TCP connections.
#![forbid(unsafe_code)]

mod address;
mod agenda;
mod app;
mod change;
mod datagram;
mod distribution;
mod event;
mod flow;
mod host;
mod link;
mod network;
mod packet;
mod payload;
pub mod plt;
mod preempted;
mod process;
pub mod quic;
mod ranges;
mod record;
mod route;
pub mod scenario;
mod sojourn;
mod tally;
pub mod tcp;
mod topology;
mod wire;

pub use address::{Family, Rebinding};
pub use app::{
    App, Arrival, Bulk, ByteStream, Collector, Conducted, Coupled, Exchange, FlowStreams, Framed, Ledger,
    Mirror, OnOff, Planned, RequestResponse, Requester, Responder, Sink, SlowReader, Socket, Tag, Writers,
};
pub use change::LinkChange;
pub use datagram::{DatagramFlow, HostPair};
pub use distribution::{Distribution, DistributionError, Quantity};
pub use flow::{Arrivals, FlowError, PacketSizes, Reception, TcpFlow, UdpFlow, UdpSource, UdpStats};
pub use host::{Destination, Host, HostContext, HostStats, Incoming, Outgoing};
pub use link::{LinkConfig, LinkCounters, LinkQueue};
pub use marcato_link::{
    DelaySummary, GilbertElliott, GilbertElliottError, Histogram, Jitter, JitterError, Load, Loss, Trace,
    TraceError,
};
pub use network::{ConservationError, Network, Standstill};
pub use packet::{FlowId, Packet, Side};
pub use plt::{PltConfig, PltConfigError, PltStats};
pub use process::{
    FlowArrival, FlowArrivals, FlowOutcome, FlowProcess, FlowRecord, Process, ProcessId, ProcessStats,
    SpawnError,
};
pub use record::{FlowSummary, Series, SeriesError, Tap, TapError, TapPoint, TapStats};
pub use route::{AddRouteError, MAX_ROUTES, RebindError, Route, RouteId, RouteStats};
pub use sojourn::QueueDelays;
pub use tally::FlowTally;
pub use tcp::{
    Congestion, CongestionFactory, Cubic, DelayedAck, Fast, Growth, LossDetection, PriorityOption, Tcp,
    TcpConfigError, TcpEnd, TcpError, TcpStats,
};
pub use topology::{LinkId, NodeId, RouteError};
