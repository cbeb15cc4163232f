//! DCTCP's sawtooth.

use marcato_queue::{Limit, StepMark, StepMarkConfig, StepThreshold};
use marcato_report::{Row, Unit};
use marcato_sim::{Bulk, Congestion, DelayedAck, LinkConfig, Network, Tcp, TcpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

use super::formula::DctcpSawtooth;
use super::path::plain;
use super::plan::{Plan, Values};
use super::watch::watched;
use super::{Answer, Ask};
use crate::error::SimulationError;
use crate::prose;

/// Marking threshold K, in packets.
const THRESHOLD: u64 = 40;
/// Bandwidth-delay product: 1 Gbit/s and 1 ms in packets of 1500 bytes.
const PRODUCT: f64 = 1e9 * 1e-3 / 12_000.0;

/// Values of a run: the longest and the shortest queue in packets, the marked share, and the used
/// share of the link in %. The queue includes the packet in transmission.
fn run(flows: u64, until: u64, seed: Seed) -> Result<Values, SimulationError> {
    let mut net = Network::new(seed);
    let (client, server) = (net.node("client"), net.node("server"));
    let (limit, threshold) = (Limit::Packets(10_000), StepThreshold::Packets(THRESHOLD));
    let (queue, seen) = watched(StepMark::new(StepMarkConfig { limit, threshold })?, false);
    let delay = Duration::from_micros(500);
    let there = LinkConfig::new(Rate::from_mbps(1000), delay).queue(queue);
    let (link, _) = net.link(client, server, there, LinkConfig::delay_only(delay));
    let config =
        Tcp { mss: 1460, congestion: Congestion::Dctcp, ecn: true, delayed_ack: DelayedAck::NONE, ..plain() };
    let mut stream = seed.stream("validate/dctcp");
    for _ in 0..flows {
        let start = Time::from_nanos(stream.below(10_000_000));
        net.tcp(TcpFlow::new(client, server, config.clone(), Bulk::endless()).start(start))?;
    }
    // After a second, slow start has no effect any more.
    let begin = Time::from_secs(1);
    net.run_until(begin);
    seen.borrow_mut().forget();
    let (before, carried) = (net.queue_counters(link).0, net.link_counters(link).carried_bytes);
    let end = Time::from_secs(until);
    net.run_until(end);
    let (after, bytes) = (net.queue_counters(link).0, net.link_counters(link).carried_bytes - carried);
    let packets = (after.dequeued.packets - before.dequeued.packets) as f64;
    let marked = (after.marked.packets - before.marked.packets) as f64;
    let busy = (bytes * 8).get() as f64 / 1e9 / (end - begin).as_secs_f64();
    debug_assert!(bytes > Bytes::ZERO);
    let seen = seen.borrow();
    Ok(vec![seen.most as f64 + 1.0, seen.least as f64 + 1.0, marked / packets, busy * 100.0])
}

pub(super) fn dctcp(plan: &mut Plan) -> Ask {
    let until = plan.pick(11, 3);
    let cells =
        [1u64, 2, 10].map(|flows| (flows, plan.each(100 * until, move |seed| run(flows, until, seed))));
    Box::new(move |runs| {
        let mut rows = Vec::new();
        for (flows, ticket) in cells {
            let n = flows as f64;
            let theory = DctcpSawtooth::new(n, PRODUCT, THRESHOLD as f64);
            let id = |what: &str| format!("validate.dctcp.{flows}.{what}");
            let claims = flows == 1;
            // Each flow adds a packet while the mark is in flight, and another if the flows are not
            // synchronised.
            rows.push(
                Row::new(id("most"), format!("{flows} flows, longest queue in packets: K + N (±{}: a packet of each flow, and the one being sent)", n + 1.0), Unit::Count)
                    .paper(theory.most)
                    .samples(&runs.each(ticket, 0))
                    .within_absolute(n + 1.0),
            );
            let amplitude: Vec<f64> = runs
                .each(ticket, 0)
                .iter()
                .zip(runs.each(ticket, 1))
                .map(|(most, least)| most - least)
                .collect();
            let row = Row::new(
                id("amplitude"),
                format!(
                    "{flows} flows, longest less shortest queue{}",
                    if claims {
                        " (±25 %: a window of 123 loses 8, whole packets, and alpha moves within a cycle)"
                    } else {
                        ": not claimed, flows are not in step"
                    }
                ),
                Unit::Count,
            )
            .paper(theory.amplitude)
            .samples(&amplitude);
            rows.push(if claims { row.within_percent(25.0) } else { row });
            let row = Row::new(id("alpha"), format!("{flows} flows, share of packets marked, which alpha estimates{}", if claims { " (±25 %: the round trip of a reduction, in which the window stands still, is one of eight)" } else { ": not claimed" }), Unit::Ratio)
                .paper(theory.alpha)
                .samples(&runs.each(ticket, 2));
            rows.push(if claims { row.within_percent(25.0) } else { row });
            rows.push(
                Row::new(
                    id("busy"),
                    format!("{flows} flows, share of the link in use: the queue never runs dry"),
                    Unit::Percent,
                )
                .paper(100.0)
                .samples(&runs.each(ticket, 3))
                .at_least(99.5),
            );
        }
        let text = prose::text(include_str!("dctcp.md"));
        Answer::new("DCTCP's sawtooth", text, rows)
    })
}
