//! Shares of two flows on one link, by their round trips.

use marcato_report::{Row, Unit};
use marcato_sim::{
    Arrivals, Bulk, Congestion, FlowId, LinkConfig, Loss, Network, Side, Tcp, TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

use super::formula::{jain, mathis_window};
use super::path::{fifo, plain, seconds, whole, wide};
use super::plan::{Plan, Values};
use super::{Answer, Ask, cubic};
use crate::error::SimulationError;
use crate::prose;

/// Bytes that each of two Reno flows delivers between two times. Each has its own access link, and
/// they share one link.
fn two(
    shared: LinkConfig,
    round_trips: [f64; 2],
    congestion: Congestion,
    background: Option<Rate>,
    seed: Seed,
    times: [Time; 2],
) -> Result<[f64; 2], SimulationError> {
    let mut net = Network::new(seed);
    let (router, server) = (net.node("router"), net.node("server"));
    net.link(router, server, shared, wide(Duration::ZERO)?);
    let config = Tcp { congestion, ..plain() };
    let mut stream = seed.stream("validate/rtt");
    let mut flows: Vec<FlowId> = Vec::new();
    for (name, rtt) in ["near", "far"].into_iter().zip(round_trips) {
        let client = net.node(name);
        net.link(client, router, wide(seconds(rtt / 2.0))?, wide(seconds(rtt / 2.0))?);
        let start = Time::from_nanos(stream.below(1_000_000_000));
        let flow = TcpFlow::new(client, server, config.clone(), Bulk::endless()).start(start);
        flows.push(net.tcp(flow)?);
    }
    if let Some(rate) = background {
        // Random background traffic breaks phase effects: without it, a queue would always drop the
        // same flow's packets. Floyd and Jacobson (1992), §4.
        net.udp(UdpFlow {
            arrivals: Arrivals::Poisson,
            ..UdpFlow::new(router, server, rate, Bytes::new(72))
        })?;
    }
    let got = |net: &Network, flow| net.reception(flow, Side::Server).bytes.get() as f64;
    net.run_until(times[0]);
    let before = [got(&net, flows[0]), got(&net, flows[1])];
    net.run_until(times[1]);
    Ok([got(&net, flows[0]) - before[0], got(&net, flows[1]) - before[1]])
}

/// Bytes of both flows at 20 Mbit/s with a drop-tail buffer of `buffer` packets.
fn droptail(
    buffer: u64,
    round_trips: [f64; 2],
    congestion: Congestion,
    until: u64,
    seed: Seed,
) -> Result<[f64; 2], SimulationError> {
    let shared = LinkConfig::new(Rate::from_mbps(20), Duration::ZERO).queue(fifo(buffer)?);
    let times = [Time::from_secs(50), Time::from_secs(50 + until)];
    two(shared, round_trips, congestion, Some(Rate::from_kbps(200)), seed, times)
}

pub(super) fn rtt(plan: &mut Plan) -> Ask {
    const NEAR: f64 = 0.04;
    const BUFFER: u64 = 25;
    const P: f64 = 1e-3;
    let span = plan.pick(1200, 200);
    let equal = [("reno", Congestion::Reno), ("cubic", Congestion::CUBIC)].map(|(name, congestion)| {
        let ticket = plan.each(span * 3, move |seed| {
            Ok(vec![jain(&droptail(100, [0.08, 0.08], congestion.clone(), span, seed)?)])
        });
        (name, ticket)
    });
    let ratios = [2.0, 4.0];
    let shared = ratios.map(|ratio| {
        let ticket = plan.each(span * 3, move |seed| {
            let [near, far] = droptail(BUFFER, [NEAR, NEAR * ratio], Congestion::Reno, span, seed)?;
            Ok(vec![near / far])
        });
        (ratio, ticket)
    });
    // Number of losses of the far flow.
    let losses = plan.pick(1500.0, 250.0);
    let random = ratios.map(|ratio| {
        let ticket = plan.each(whole(losses * (1.0 + ratio) / P / 1e3), move |seed| {
            let cycle = NEAR * ratio / (P * mathis_window(P));
            let times = [20.0, 20.0 + losses].map(|cycles| Time::ZERO + seconds(cycles * cycle));
            let shared = wide(Duration::ZERO)?.loss(Loss::Random(P));
            let [near, far] = two(shared, [NEAR, NEAR * ratio], Congestion::Reno, None, seed, times)?;
            Ok(vec![near / far])
        });
        (ratio, ticket)
    });
    let stages = plan.pick(20, 4);
    let cubic = [0.1, 0.2, 0.4].map(|rtt| {
        plan.once(stages * 100, move || -> Result<Values, SimulationError> {
            cubic::window(rtt, 1e-5, stages, false)
        })
    });
    Box::new(move |runs| {
        let mut rows = Vec::new();
        for (name, ticket) in equal {
            rows.push(
                Row::new(
                    format!("validate.fair.{name}"),
                    format!("two equal {name} flows, drop-tail, Jain's index of delivered bytes"),
                    Unit::Ratio,
                )
                .paper(1.0)
                .samples(&runs.each(ticket, 0))
                .at_least(0.99),
            );
        }
        for (ratio, ticket) in shared {
            // The queue adds up to 10 ms to either round trip.
            let queue = BUFFER as f64 * 8e3 / 20e6;
            let least = (NEAR * ratio + queue) / (NEAR + queue);
            rows.push(
                Row::new(format!("validate.rtt.droptail.{ratio}"), format!("two Reno flows, drop-tail, round trips 1:{ratio}: rate of the near one over the far one's; if each loss meets both, its square (from {least:.2}, if losses are independent and the queue full, to 10 % above the square)"), Unit::Ratio)
                    .paper(ratio * ratio)
                    .samples(&runs.each(ticket, 0))
                    .within(least, ratio * ratio * 1.1),
            );
        }
        for (ratio, ticket) in random {
            // The standard deviation of a cycle is about half of its mean.
            let three = 1.0 + 300.0 * 0.6 * ((1.0 + 1.0 / ratio) / losses).sqrt();
            rows.push(
                Row::new(format!("validate.rtt.random.{ratio}"), format!("two Reno flows, independent losses of 0.1 %, round trips 1:{ratio} (±{three:.1} %: three standard errors of {losses:.0} cycles, and 1 %)"), Unit::Ratio)
                    .paper(ratio)
                    .samples(&runs.each(ticket, 0))
                    .within_percent(three),
            );
        }
        let [near, far, farther] = cubic.map(|ticket| runs.mean(ticket, 0));
        for (ratio, window) in [(2.0, far), (4.0, farther)] {
            rows.push(
                Row::new(format!("validate.rtt.cubic.{ratio}"), format!("two CUBIC flows, every 100 000th lost, 100 ms and {} ms: RTT^0.25 (±4 %: recovery's round trip of a stage)", 100.0 * ratio), Unit::Ratio)
                    .paper(libm::pow(ratio, 0.25))
                    .measured(near / (window / ratio))
                    .within_percent(4.0),
            );
        }
        let text = prose::text(include_str!("rtt.md"));
        Answer::new("Fairness and round trips", text, rows)
    })
}
