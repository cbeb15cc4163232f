//! Events of the simulation.

use marcato_units::Rate;

use crate::packet::{FlowId, Side};

/// Event of the simulation, as the agenda stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The first packet of the link's line arrives.
    Arrival { link: u32 },
    /// The link's transmitter is free.
    Ready { link: u32 },
    /// The low class of a link that pre-empts has sent something, or may begin to.
    LowReady { link: u32 },
    /// The first low packet on the line of a link that pre-empts arrives.
    LowArrival { link: u32 },
    /// The link goes up or down.
    Up { link: u32, up: bool },
    /// The link changes its rate.
    Rate { link: u32, rate: Rate },
    /// The link's delay, loss or queue changes. `change` is the number of the change.
    Change { link: u32, change: u32 },
    /// The next flow of a process begins.
    Spawn { process: u32 },
    /// The flow begins; on a UDP flow, also: its next packet leaves.
    Start { flow: FlowId },
    /// A timer of an end's TCP expires.
    Timer { flow: FlowId, side: Side, slot: u8 },
    /// The timer of a host expires.
    Host { flow: FlowId, side: Side },
    /// A timer of an end's application expires.
    App { flow: FlowId, side: Side, token: u32 },
}
