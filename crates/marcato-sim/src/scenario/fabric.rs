//! Fabric of a world: hosts and links that carry its flows, and their counters.
//!
//! A [`World`](super::World) has the flows of an experiment, its recorders and its measurements. The hosts
//! and links that carry the flows are behind the trait [`Fabric`]. The simulator's network is one
//! implementation, and `marcato-trial` has another over real sockets. Applications, sizes, pauses, random
//! streams, warm-up, series, captures and results are the same code in both. A difference between simulation
//! and lab therefore comes from TCP, links or timers, not from the measurement.

use std::any::Any;

use marcato_link::Waiting;
use marcato_queue::FlowReport;
use marcato_units::{Bytes, Time};

use crate::{
    App, DatagramFlow, FlowError, FlowId, FlowProcess, FlowRecord, FlowSummary, FlowTally, Host,
    LinkCounters, LinkId, Load, Network, PltStats, ProcessId, ProcessStats, QueueDelays, Reception, RouteId,
    RouteStats, Side, SpawnError, Standstill, Tap, TcpFlow, TcpStats, UdpFlow, UdpStats,
};

/// Hosts and links that carry the flows of a [`World`](super::World), and count their packets.
///
/// The simulator's [`Network`] is one. A fabric of real hosts and links, on which the same
/// applications run, gives results of the same form. Nodes are numbered in the experiment's order,
/// and links too: two for each, first there and then back.
///
/// The methods are those of [`Network`], where their documentation stands.
#[expect(missing_docs, reason = "documented at Network")]
pub trait Fabric {
    fn tcp(&mut self, flow: TcpFlow) -> Result<FlowId, FlowError>;
    fn udp(&mut self, flow: UdpFlow) -> Result<FlowId, FlowError>;
    fn spawn(&mut self, process: FlowProcess) -> Result<ProcessId, SpawnError>;
    fn datagrams(&mut self, flow: DatagramFlow) -> Result<FlowId, FlowError>;

    fn now(&self) -> Time;
    fn events(&self) -> u64;

    fn watch(&mut self, flow: FlowId);
    fn tally(&self, flow: FlowId, from: Side) -> FlowTally;
    fn summary(&self, flow: FlowId, from: Side) -> FlowSummary;
    fn tcp_stats(&self, flow: FlowId, side: Side) -> Option<TcpStats>;
    fn plt_stats(&self, flow: FlowId, side: Side) -> Option<PltStats>;
    fn reception(&self, flow: FlowId, side: Side) -> Reception;
    fn udp_stats(&self, flow: FlowId) -> Option<UdpStats>;
    fn route_stats(&self, flow: FlowId, from: Side, route: RouteId) -> Option<RouteStats>;
    fn process_stats(&self, process: ProcessId) -> ProcessStats;
    fn flow_records(&self, process: ProcessId) -> &[FlowRecord];
    fn open_flows(&self, process: ProcessId) -> Vec<FlowRecord>;
    /// Application at an end of a TCP flow; `None` for other flows.
    fn any_app(&self, flow: FlowId, side: Side) -> Option<&dyn App>;
    /// Host at an end of a datagram flow; `None` for other flows.
    fn any_host(&self, flow: FlowId, side: Side) -> Option<&dyn Host>;

    fn link_counters(&self, link: LinkId) -> LinkCounters;
    fn link_load(&self, link: LinkId) -> Load;
    /// Packets and bytes that wait before a link now.
    fn backlog(&self, link: LinkId) -> marcato_queue::Backlog;
    /// Packets that the queue of a link has marked so far.
    fn marked(&self, link: LinkId) -> u64;
    /// Bytes offered to the queue of a link so far: of flows that it called responsive, and of all;
    /// `None` if it judges no flows, or [`World`](super::World) observes it.
    fn judged(&self, _link: LinkId) -> Option<[Bytes; 2]> {
        None
    }
    fn flow_report(&self, link: LinkId, flow: FlowId, from: Side) -> Option<FlowReport>;
    fn queue_delays(&self, link: LinkId) -> Option<QueueDelays>;
    fn restart_queue_delays(&mut self, link: LinkId);
    /// Backlog before a link since the last restart of the queue delays, if the fabric measures it
    /// itself.
    fn waiting(&mut self, _link: LinkId) -> Option<Waiting> {
        None
    }

    /// Warnings of the run, for its results.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    fn tap(&mut self, link: LinkId, tap: Tap);
    fn tap_together(&mut self, link: LinkId, name: &str, tap: Tap);
    fn take_taps(&mut self, secrets: &str) -> Vec<u8>;
    /// Takes a part of the pcap file of one link's tap.
    fn take_tap(&mut self, link: LinkId) -> Vec<u8>;
}

/// Fabric whose time advances.
pub trait Advance: Fabric {
    /// Error that ends a run.
    type Error: std::error::Error;

    /// Runs the flows until this time.
    ///
    /// # Errors
    /// If the fabric cannot go on.
    fn advance(&mut self, until: Time) -> Result<(), Self::Error>;
}

impl dyn Fabric + '_ {
    /// Application at an end of a TCP flow, if it is an `A`.
    pub fn app<A: App>(&self, flow: FlowId, side: Side) -> Option<&A> {
        (self.any_app(flow, side)? as &dyn Any).downcast_ref()
    }

    /// Host at an end of a datagram flow, if it is an `H`.
    pub fn host<H: Host>(&self, flow: FlowId, side: Side) -> Option<&H> {
        (self.any_host(flow, side)? as &dyn Any).downcast_ref()
    }
}

impl Fabric for Network {
    fn tcp(&mut self, flow: TcpFlow) -> Result<FlowId, FlowError> {
        self.tcp(flow)
    }

    fn udp(&mut self, flow: UdpFlow) -> Result<FlowId, FlowError> {
        self.udp(flow)
    }

    fn spawn(&mut self, process: FlowProcess) -> Result<ProcessId, SpawnError> {
        self.spawn(process)
    }

    fn datagrams(&mut self, flow: DatagramFlow) -> Result<FlowId, FlowError> {
        self.datagrams(flow)
    }

    fn now(&self) -> Time {
        self.now()
    }

    fn events(&self) -> u64 {
        self.events()
    }

    fn watch(&mut self, flow: FlowId) {
        self.watch(flow);
    }

    fn tally(&self, flow: FlowId, from: Side) -> FlowTally {
        self.tally(flow, from)
    }

    fn summary(&self, flow: FlowId, from: Side) -> FlowSummary {
        self.summary(flow, from)
    }

    fn tcp_stats(&self, flow: FlowId, side: Side) -> Option<TcpStats> {
        self.tcp_stats(flow, side)
    }

    fn plt_stats(&self, flow: FlowId, side: Side) -> Option<PltStats> {
        self.plt_stats(flow, side)
    }

    fn reception(&self, flow: FlowId, side: Side) -> Reception {
        self.reception(flow, side)
    }

    fn udp_stats(&self, flow: FlowId) -> Option<UdpStats> {
        self.udp_stats(flow)
    }

    fn route_stats(&self, flow: FlowId, from: Side, route: RouteId) -> Option<RouteStats> {
        self.route_stats(flow, from, route)
    }

    fn process_stats(&self, process: ProcessId) -> ProcessStats {
        self.process_stats(process)
    }

    fn flow_records(&self, process: ProcessId) -> &[FlowRecord] {
        self.flow_records(process)
    }

    fn open_flows(&self, process: ProcessId) -> Vec<FlowRecord> {
        self.open_flows(process)
    }

    fn any_app(&self, flow: FlowId, side: Side) -> Option<&dyn App> {
        self.any_app(flow, side)
    }

    fn any_host(&self, flow: FlowId, side: Side) -> Option<&dyn Host> {
        self.any_host(flow, side)
    }

    fn link_counters(&self, link: LinkId) -> LinkCounters {
        self.link_counters(link)
    }

    fn link_load(&self, link: LinkId) -> Load {
        self.link_load(link)
    }

    fn backlog(&self, link: LinkId) -> marcato_queue::Backlog {
        self.queue_counters(link).1
    }

    fn marked(&self, link: LinkId) -> u64 {
        self.queue_counters(link).0.marked.packets
    }

    fn flow_report(&self, link: LinkId, flow: FlowId, from: Side) -> Option<FlowReport> {
        self.flow_report(link, flow, from)
    }

    fn queue_delays(&self, link: LinkId) -> Option<QueueDelays> {
        self.queue_delays(link).cloned()
    }

    fn restart_queue_delays(&mut self, link: LinkId) {
        self.restart_queue_delays(link);
    }

    fn tap(&mut self, link: LinkId, tap: Tap) {
        self.tap(link, tap);
    }

    fn tap_together(&mut self, link: LinkId, name: &str, tap: Tap) {
        self.tap_together(link, name, tap);
    }

    fn take_taps(&mut self, secrets: &str) -> Vec<u8> {
        self.take_taps(secrets)
    }

    fn take_tap(&mut self, link: LinkId) -> Vec<u8> {
        let mut part = Vec::new();
        // The link has a tap, and writing to a vector cannot fail.
        let drained = self.drain_tap(link, &mut part);
        debug_assert!(drained.is_ok());
        part
    }
}

impl Advance for Network {
    type Error = Standstill;

    fn advance(&mut self, until: Time) -> Result<(), Standstill> {
        self.try_run_until(until)
    }
}
