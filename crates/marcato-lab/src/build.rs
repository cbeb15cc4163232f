//! Directions of links, as scenarios describe them.

use std::collections::BTreeMap;

use marcato_link::Trace;
use marcato_scenario::brief::Disorder;
use marcato_scenario::link::{self, Capacity};
use marcato_scenario::queue::{Queue, QueueError, Site, Strict};
use marcato_units::{Bytes, Seed, Stream};

use crate::link::{Link, LinkChange, LinkConfig, LinkError, LinkPacket};

/// Traces that links follow, by the path in the experiment.
pub type Traces = BTreeMap<String, Trace>;

/// Builds one direction of a link.
///
/// # Errors
///
/// If the link cannot be emulated: the problem and its remedy.
pub(crate) fn build<P: LinkPacket + Send + 'static>(
    link: &link::Link,
    back: bool,
    traces: &Traces,
    seed: Seed,
    mtu: Option<Bytes>,
    disorder: Disorder,
) -> Result<Link<P>, String> {
    let of = if back { &link.back } else { &link.there };
    if matches!(of.queue, Queue::Strict(Strict { preempt: true, .. })) {
        return Err("real transmitters do not stop within a packet: remove `preempt`".to_owned());
    }
    let way = if back { "back" } else { "there" };
    let (jitter, always) = of.jitter.map_or((None, marcato_units::Duration::ZERO), |jitter| {
        let (jitter, always) = jitter.model();
        (Some(jitter), always)
    });
    let stream = |class: &str| seed.stream(&format!("queue/{}/{way}/{class}", link.name));
    let plugin = |plugin: &marcato_scenario::plugin::Plugin, _: Stream| {
        Err(format!("the plug-in `{}` is not built into this program", plugin.name))
    };
    let build = |queue: &Queue, rate, stream: &dyn Fn(&str) -> Stream| {
        let queue = queue.build::<P, String>(&Site { rate, stream }, &plugin);
        queue.map_err(|error: QueueError<String>| error.to_string())
    };
    let queue = build(&of.queue, of.rate.fixed(), &stream)?;
    let (rate, trace) = match &of.rate {
        Capacity::Unlimited => (None, None),
        Capacity::Rate(rate) => (Some(*rate), None),
        Capacity::Trace(path) => match traces.get(path) {
            Some(trace) => (None, Some(trace.clone())),
            None => return Err(format!("the trace {path} was not read: pass it to the lab")),
        },
    };
    let loss = of.loss.model().map_err(|error| error.to_string())?;
    let config = LinkConfig {
        rate,
        trace,
        delay: of.delay.saturating_add(always),
        jitter,
        mtu,
        framing: of.framing,
        loss,
        duplication: of.duplication,
        reordering: disorder.reordering,
        corruption: disorder.corruption,
        queue,
    };
    let name = format!("{}/{way}", link.name);
    let made = Link::new(&name, config, seed);
    let mut made = made.map_err(|error: LinkError| error.to_string())?;
    for change in link.changes_of(back) {
        let at = change.at;
        if let Some(rate) = change.rate {
            made.change_at(at, LinkChange::Rate(rate));
        }
        if let Some(up) = change.up {
            made.change_at(at, LinkChange::Up(up));
        }
        if let Some(delay) = change.delay {
            let delay = delay.saturating_add(always);
            made.change_at(at, LinkChange::Delay { delay, reorder: change.reorder });
        }
        if let Some(loss) = &change.loss {
            let loss = loss.model().map_err(|error| error.to_string())?;
            made.change_at(at, LinkChange::Loss(loss));
        }
        if let Some(queue) = &change.queue {
            let stream = |class: &str| stream(&format!("{class}/{}", at.as_nanos()));
            let rate = link.rate_at(back, at).fixed();
            made.change_at(at, LinkChange::Queue(build(queue, rate, &stream)?));
        }
    }
    Ok(made)
}
