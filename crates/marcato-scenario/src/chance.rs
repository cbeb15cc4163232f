//! Dependence of a run's results on its seed.

use crate::experiment::Experiment;
use crate::flow::{Flow, FlowKind, Listed, PacketArrivals, Payload, TcpEnds};
use crate::link::{Change, Direction, Link, Loss};
use crate::queue::Queue;
use crate::traffic::{OnOff, Pause, Release, Size, Source};

impl Experiment {
    /// Returns whether any measured value depends on [`seed`](Self::seed).
    ///
    /// If not, runs with different seeds give the same numbers, and repeating a run says nothing
    /// about uncertainty. Initial sequence numbers are always drawn, but appear only in captures.
    pub fn is_random(&self) -> bool {
        let of_link =
            |link: &Link| direction(&link.there) || direction(&link.back) || link.changes.iter().any(change);
        self.links.iter().any(of_link) || self.flows.iter().any(flow)
    }
}

// The patterns below name every field and variant on purpose. A new one does not compile until this
// module states whether it draws random numbers. Congestion controls
// and queues state it where they are declared.

fn direction(direction: &Direction) -> bool {
    let Direction { rate: _, delay: _, framing: _, queue, loss, jitter, duplication, bleach_ecn: _ } =
        direction;
    queue.is_random() || self::loss(loss) || jitter.is_some() || may_or_may_not(*duplication)
}

fn change(change: &Change) -> bool {
    let Change { at: _, way: _, rate: _, up: _, delay: _, reorder: _, loss, queue } = change;
    loss.as_ref().is_some_and(self::loss) || queue.as_ref().is_some_and(Queue::is_random)
}

fn loss(loss: &Loss) -> bool {
    match loss {
        Loss::None | Loss::Every(_) | Loss::Script(_) => false,
        Loss::Random(random) => may_or_may_not(random.probability),
        Loss::GilbertElliott(_) => true,
    }
}

/// Returns whether an event of this probability is neither impossible nor certain, so that it needs
/// a draw.
fn may_or_may_not(probability: f64) -> bool {
    probability > 0.0 && probability < 1.0
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
            let sizes = match &it.payload {
                Payload::Constant(_) | Payload::Listed(Listed { is_random: false, .. }) => false,
                Payload::Drawn { .. } | Payload::Listed(Listed { is_random: true, .. }) => true,
            };
            arrivals || sizes || it.on_off.as_ref().is_some_and(on_off)
        }
        // Connections arrive as a Poisson process.
        FlowKind::TcpProcess(_) => true,
        FlowKind::RequestResponse(it) => ends(&it.tcp) || size(&it.response) || pause(&it.think),
        // A workload has a random stream.
        FlowKind::Messages(it) => {
            ends(&it.tcp) || it.messaging.sources.iter().any(source) || it.messaging.workload.is_some()
        }
        // Keys, connection identifiers and the use of the spin bit are drawn for each session.
        FlowKind::Quic(_) => true,
    }
}

fn ends(ends: &TcpEnds) -> bool {
    [&ends.from, &ends.to].iter().any(|tcp| tcp.congestion.is_random())
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
