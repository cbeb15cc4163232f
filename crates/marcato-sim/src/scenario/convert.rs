//! Conversion of a scenario's terms to the simulator's configuration.

use marcato_queue::Discipline;
use marcato_scenario::plugin::Plugin;
use marcato_scenario::queue::{QueueError, Site};
use marcato_scenario::{link, queue, traffic};
use marcato_sched::conductor::{self, Debt};
use marcato_units::{Bytes, Duration, Stream};

use super::Traces;
use super::error::BuildError;
use super::plugins::{Plugins, QueueSite};
use crate::packet::Packet;
use crate::{Congestion, Distribution, DistributionError, LinkConfig, Loss, Tcp, TcpEnd};

/// Returns the configuration of one end of the TCP flow `flow`.
pub(super) fn tcp(flow: &str, tcp: &Tcp, plugins: &Plugins) -> Result<TcpEnd, BuildError> {
    let own_congestion = match &tcp.congestion {
        Congestion::Plugin(plugin) => Some(plugins.make_congestion(flow, plugin)?),
        _ => None,
    };
    Ok(TcpEnd { own_congestion, ..tcp.clone().into() })
}

pub(super) const fn debt(preset: traffic::DebtRules) -> Debt {
    match preset {
        traffic::DebtRules::Authors => Debt::authors(),
        traffic::DebtRules::Paper => Debt::paper(),
        traffic::DebtRules::Marcato => Debt::marcato(),
        traffic::DebtRules::Strict => Debt::strict(),
    }
}

/// Packets that coupled mode lets stand in the queue; `None` if a flow is not coupled.
pub(super) const fn coupling(coupled: traffic::Coupling) -> Option<u64> {
    match coupled {
        traffic::Coupling::Off => None,
        traffic::Coupling::Fast(fast) => Some(fast.queued_packets as u64),
    }
}

/// Returns a Conductor's configuration.
pub(super) fn conductor(preset: traffic::DebtRules, chunk: Bytes) -> conductor::Config {
    conductor::Config { chunk, ..conductor::Config::with_debt(debt(preset)) }
}

pub(super) fn size(size: &traffic::Size) -> Result<Distribution<Bytes>, DistributionError> {
    match *size {
        traffic::Size::Constant(bytes) => Ok(Distribution::constant(bytes)),
        traffic::Size::Exponential { mean } => Distribution::exponential(mean),
        traffic::Size::Pareto { shape, mean, most } => Distribution::capped_pareto(shape, mean, most),
        traffic::Size::LogNormal { mean, sigma } => Distribution::log_normal(mean, sigma),
    }
}

pub(super) fn pause(pause: &traffic::Pause) -> Result<Distribution<Duration>, DistributionError> {
    match *pause {
        traffic::Pause::Constant(span) => Ok(Distribution::constant(span)),
        traffic::Pause::Exponential { mean } => Distribution::exponential(mean),
    }
}

/// Transmitter of a link, for the queue before it.
#[derive(Clone, Copy)]
pub(super) struct Transmitter<'a> {
    /// Name of the link.
    pub(super) link: &'a str,
    pub(super) rate: &'a link::Capacity,
    pub(super) mtu: Bytes,
    pub(super) plugins: &'a Plugins,
}

/// Creates the queue before a transmitter; `stream` returns the random stream of the class with a
/// name.
pub(super) fn queue(
    of: Transmitter<'_>,
    queue: &queue::Queue,
    stream: &dyn Fn(&str) -> Stream,
) -> Result<Box<dyn Discipline<Packet> + Send>, BuildError> {
    let rate = of.rate.fixed();
    let own = |plugin: &Plugin, stream| {
        of.plugins.make_queue(of.link, plugin, QueueSite::new(rate, of.mtu, stream))
    };
    queue.build(&Site { rate, stream }, &own).map_err(|error| match error {
        QueueError::Refused(source) => BuildError::Queue { link: of.link.to_owned(), source },
        QueueError::Plugin(error) => error,
    })
}

pub(super) fn loss(link: &str, loss: &link::Loss) -> Result<Loss, BuildError> {
    loss.model().map_err(|source| BuildError::Bursts { link: link.to_owned(), source })
}

/// Returns a propagation delay with the constant part of its direction's jitter.
pub(super) fn delay(direction: &link::Direction, delay: Duration) -> Duration {
    delay.saturating_add(direction.jitter.as_ref().map_or(Duration::ZERO, |spread| spread.model().1))
}

/// Returns the configuration of one direction of a link.
pub(super) fn direction(
    link: &str,
    mtu: Bytes,
    direction: &link::Direction,
    traces: &Traces,
) -> Result<LinkConfig, BuildError> {
    let bare = LinkConfig::delay_only(delay(direction, direction.delay));
    let config = match &direction.rate {
        link::Capacity::Unlimited => bare,
        link::Capacity::Rate(rate) => LinkConfig { rate: Some(*rate), ..bare },
        link::Capacity::Trace(path) => {
            let trace = traces
                .get(path)
                .cloned()
                .ok_or_else(|| BuildError::NoSuchTrace { link: link.to_owned(), trace: path.clone() })?;
            bare.trace(trace)
        }
    };
    let duplication = direction.duplication;
    let config = LinkConfig { bleaches: direction.bleach_ecn, duplication, ..config };
    let config = config.framing(direction.framing).mtu(mtu).loss(loss(link, &direction.loss)?);
    Ok(match &direction.jitter {
        None => config,
        Some(spread) => config.jitter(spread.model().0),
    })
}
