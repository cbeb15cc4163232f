//! Chance: whether a run depends on its seed.

use crate::experiment::Experiment;
use crate::flow::{Flow, FlowKind, PacketArrivals, TcpEnds};
use crate::link::{Direction, Loss};
use crate::tcp::Congestion;
use crate::traffic::{OnOff, Pause, Release, Size, Source};

impl Experiment {
    /// Whether anything that is measured depends on [`seed`](Self::seed).
    ///
    /// If not, runs with different seeds give the same numbers, and repeating a run says nothing about uncertainty.
    /// Initial sequence numbers are drawn in any case; they appear in captures only.
    pub fn is_random(&self) -> bool {
        let links = self.links.iter().flat_map(|link| [&link.there, &link.back]);
        links.into_iter().any(direction) || self.flows.iter().any(flow)
    }
}

// The patterns below name every variant on purpose: a new one has to say whether it draws.

fn direction(direction: &Direction) -> bool {
    let lost = match &direction.loss {
        Loss::None | Loss::Every { .. } | Loss::Script { .. } => false,
        Loss::Random { probability } => *probability > 0.0 && *probability < 1.0,
        Loss::GilbertElliott(_) => true,
    };
    lost || direction.jitter.is_some()
}

fn flow(flow: &Flow) -> bool {
    !flow.start_jitter.is_zero() || kind(&flow.kind)
}

fn kind(kind: &FlowKind) -> bool {
    match kind {
        FlowKind::Tcp(it) => ends(&it.tcp) || it.on_off.as_ref().is_some_and(on_off),
        FlowKind::Udp(it) => {
            let arrivals = match it.arrivals {
                PacketArrivals::Constant | PacketArrivals::Ticks { .. } => false,
                PacketArrivals::Poisson => true,
            };
            arrivals || it.on_off.as_ref().is_some_and(on_off)
        }
        // Its connections begin as a Poisson process.
        FlowKind::TcpProcess(_) => true,
        FlowKind::RequestResponse(it) => ends(&it.tcp) || size(&it.response) || pause(&it.think),
        FlowKind::Messages(it) => ends(&it.tcp) || it.sources.iter().any(source),
        // Keys, connection identifiers and the spin bit's use are drawn for each session.
        FlowKind::Quic(_) => true,
    }
}

fn ends(ends: &TcpEnds) -> bool {
    [&ends.from, &ends.to].iter().any(|tcp| match tcp.congestion {
        Congestion::Reno | Congestion::Cubic { .. } | Congestion::Dctcp => false,
        // The phase in which probing for bandwidth begins.
        Congestion::Bbr => true,
    })
}

const fn size(size: &Size) -> bool {
    match size {
        Size::Constant(_) => false,
        Size::Exponential { .. } | Size::Pareto { .. } | Size::LogNormal { .. } => true,
    }
}

const fn pause(pause: &Pause) -> bool {
    match pause {
        Pause::Constant(_) => false,
        Pause::Exponential { .. } => true,
    }
}

const fn on_off(on_off: &OnOff) -> bool {
    pause(&on_off.on) || pause(&on_off.off)
}

const fn source(source: &Source) -> bool {
    match source.release {
        Release::Periodic => false,
        Release::Jittered(_) | Release::Poisson => true,
    }
}
