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

/// Declares [`Fabric`], and implements it for [`Network`]: the methods of `reads` and `changes` are those that it
/// has under the same names, and those of `differs` have a body there.
macro_rules! fabric {
    (
        $(#[$about:meta])*
        reads { $(fn $read:ident($($r:ident: $read_type:ty),*) $(-> $read_value:ty)?;)* }
        changes { $(fn $change:ident($($c:ident: $change_type:ty),*) $(-> $change_value:ty)?;)* }
        differs { $($differs:tt)* }
        network { $($network:tt)* }
    ) => {
        $(#[$about])*
        pub trait Fabric {
            $(fn $read(&self, $($r: $read_type),*) $(-> $read_value)?;)*
            $(fn $change(&mut self, $($c: $change_type),*) $(-> $change_value)?;)*
            $($differs)*
        }

        impl Fabric for Network {
            $(fn $read(&self, $($r: $read_type),*) $(-> $read_value)? {
                self.$read($($r),*)
            })*
            $(fn $change(&mut self, $($c: $change_type),*) $(-> $change_value)? {
                self.$change($($c),*)
            })*
            $($network)*
        }
    };
}

fabric! {
    /// Hosts and links that carry the flows of a [`World`](super::World), and count their packets.
    ///
    /// The simulator's [`Network`] is one. A fabric of real hosts and links, on which the same
    /// applications run, gives results of the same form. Nodes are numbered in the experiment's order,
    /// and links too: two for each, first there and then back.
    ///
    /// The methods are those of [`Network`], where their documentation stands.
    #[expect(missing_docs, reason = "documented at Network")]
    reads {
        fn now() -> Time;
        fn events() -> u64;

        fn tally(flow: FlowId, from: Side) -> FlowTally;
        fn summary(flow: FlowId, from: Side) -> FlowSummary;
        fn tcp_stats(flow: FlowId, side: Side) -> Option<TcpStats>;
        fn plt_stats(flow: FlowId, side: Side) -> Option<PltStats>;
        fn reception(flow: FlowId, side: Side) -> Reception;
        fn udp_stats(flow: FlowId) -> Option<UdpStats>;
        fn route_stats(flow: FlowId, from: Side, route: RouteId) -> Option<RouteStats>;
        fn process_stats(process: ProcessId) -> ProcessStats;
        fn flow_records(process: ProcessId) -> &[FlowRecord];
        fn open_flows(process: ProcessId) -> Vec<FlowRecord>;
        fn any_app(flow: FlowId, side: Side) -> Option<&dyn App>;
        fn any_host(flow: FlowId, side: Side) -> Option<&dyn Host>;

        fn link_counters(link: LinkId) -> LinkCounters;
        fn link_load(link: LinkId) -> Load;
        fn flow_report(link: LinkId, flow: FlowId, from: Side) -> Option<FlowReport>;
    }
    changes {
        fn tcp(flow: TcpFlow) -> Result<FlowId, FlowError>;
        fn udp(flow: UdpFlow) -> Result<FlowId, FlowError>;
        fn spawn(process: FlowProcess) -> Result<ProcessId, SpawnError>;
        fn datagrams(flow: DatagramFlow) -> Result<FlowId, FlowError>;

        fn watch(flow: FlowId);
        fn restart_queue_delays(link: LinkId);
        fn tap(link: LinkId, tap: Tap);
        fn tap_together(link: LinkId, name: &str, tap: Tap);
        fn take_taps(secrets: &str) -> Vec<u8>;
    }
    differs {
        /// Packets and bytes that wait before a link now.
        fn backlog(&self, link: LinkId) -> marcato_queue::Backlog;
        /// Packets that the queue of a link has marked so far.
        fn marked(&self, link: LinkId) -> u64;
        /// Bytes offered to the queue of a link so far: of flows that it called responsive, and of all;
        /// `None` if it judges no flows, or [`World`](super::World) observes it.
        fn judged(&self, _link: LinkId) -> Option<[Bytes; 2]> {
            None
        }
        /// Delays in the queue of a link, if they are measured.
        fn queue_delays(&self, link: LinkId) -> Option<QueueDelays>;
        /// Backlog before a link since the last restart of the queue delays, if the fabric measures it
        /// itself.
        fn waiting(&mut self, _link: LinkId) -> Option<Waiting> {
            None
        }
        /// Takes a part of the pcap file of one link's tap.
        fn take_tap(&mut self, link: LinkId) -> Vec<u8>;
        /// Warnings of the run, for its results.
        fn warnings(&self) -> Vec<String> {
            Vec::new()
        }
    }
    network {
        fn backlog(&self, link: LinkId) -> marcato_queue::Backlog {
            self.queue_counters(link).1
        }

        fn marked(&self, link: LinkId) -> u64 {
            self.queue_counters(link).0.marked.packets
        }

        fn queue_delays(&self, link: LinkId) -> Option<QueueDelays> {
            self.queue_delays(link).cloned()
        }

        fn take_tap(&mut self, link: LinkId) -> Vec<u8> {
            let mut part = Vec::new();
            // The link has a tap, and writing to a vector cannot fail.
            let drained = self.drain_tap(link, &mut part);
            debug_assert!(drained.is_ok());
            part
        }
    }
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

impl Advance for Network {
    type Error = Standstill;

    fn advance(&mut self, until: Time) -> Result<(), Standstill> {
        self.try_run_until(until)
    }
}
