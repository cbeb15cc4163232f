//! Guarantee of strict priority: low packets do not affect the high class.

use marcato_queue::{DropTail, DropTailConfig, Limit, Strict};
use marcato_report::{Row, Unit};
use marcato_sim::{DatagramFlow, LinkConfig, Loss, Network, Packet, Route, Side, UdpFlow};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};

use super::plan::{Plan, Values};
use super::source::{Sizes, Source, Taker};
use super::watch::watched;
use super::{Answer, Ask};
use crate::error::SimulationError;
use crate::prose;

const RATE: u64 = 8;

/// Service of a link's low class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    /// The link finishes a low packet in transmission.
    Finishes,
    /// A high packet interrupts a low one, which resumes later.
    PreEmpts,
}

/// Record of the high packets: departures with lengths, times of drops, and number of arrivals.
#[derive(PartialEq)]
struct High {
    left: Vec<(Time, u64)>,
    dropped: Vec<Time>,
    arrived: u64,
}

/// Record of the high packets while endless low packets of `low` bytes compete, and the used share
/// of the link.
fn run(seed: Seed, service: Service, low: Option<u64>, until: Time) -> Result<(High, f64), SimulationError> {
    let mut net = Network::new(seed);
    let (from, to) = (net.node("from"), net.node("to"));
    let class = |packets| {
        Ok::<DropTail<Packet>, SimulationError>(DropTail::new(DropTailConfig {
            limit: Limit::Packets(packets),
        })?)
    };
    let link = || LinkConfig::new(Rate::from_mbps(RATE), Duration::from_millis(5));
    let (there, seen) = match service {
        Service::Finishes => {
            let (queue, seen) = watched(Strict::of(class(1_000_000)?, class(100)?), true);
            (link().queue(queue), seen)
        }
        Service::PreEmpts => {
            // The queue is so short that it drops, and the wire loses packets: neither may depend
            // on the low class.
            let (queue, seen) = watched(class(8)?, true);
            (link().queue(queue).preempt(class(100)?).loss(Loss::Random(1e-3)), seen)
        }
    };
    let (there, _) = net.link(from, to, there, link());
    // 400 bytes on average, three quarters of the link.
    let gap = Duration::from_nanos(400 * 8 * 1_000 / RATE * 4 / 3);
    let high = Source::new(Sizes::Exponential, 400, gap, until);
    let high = net.datagrams(DatagramFlow::new(high, Taker::default(), vec![Route::new(from, to)]))?;
    if let Some(low) = low {
        let flood = UdpFlow::new(from, to, Rate::from_mbps(10), Bytes::new(low - 28));
        net.udp(UdpFlow { layer: Layer::Low, ..flood })?;
    }
    net.run_until(until);
    let used =
        net.link_counters(there).carried_bytes.get() as f64 * 8e-6 / (RATE as f64 * until.as_secs_f64());
    net.run_until(until + Duration::from_secs(10));
    let seen = std::mem::take(&mut *seen.borrow_mut());
    let arrived = net.tally(high, Side::Client).arrived;
    Ok((High { left: seen.left, dropped: seen.dropped, arrived }, used))
}

/// Departure and length of each high packet, while endless low packets of `low` bytes compete.
fn departures(seed: Seed, low: Option<u64>, until: Time) -> Result<Vec<(Time, u64)>, SimulationError> {
    Ok(run(seed, Service::Finishes, low, until)?.0.left)
}

/// Values of a link that pre-empts, in this order:
///
/// - high packets that left;
/// - high packets that were dropped;
/// - high packets that the wire lost;
/// - 1 if the low class changed none of this;
/// - used share of the link in %.
fn pre_empted(seed: Seed, low: u64, until: Time) -> Result<Values, SimulationError> {
    let ((alone, _), (beside, used)) =
        (run(seed, Service::PreEmpts, None, until)?, run(seed, Service::PreEmpts, Some(low), until)?);
    let (left, dropped) = (alone.left.len() as f64, alone.dropped.len() as f64);
    let lost = left - alone.arrived as f64;
    Ok(vec![left, dropped, lost, f64::from(u8::from(alone == beside)), used * 100.0])
}

/// Values of a comparison, in this order:
///
/// - number of packets;
/// - 1 if both runs have the same packets in the same order;
/// - greatest, least and mean delay by the low class in ms.
fn compare(seed: Seed, low: u64, until: Time) -> Result<Values, SimulationError> {
    let (alone, beside) = (departures(seed, None, until)?, departures(seed, Some(low), until)?);
    let sizes = |packets: &[(Time, u64)]| packets.iter().map(|packet| packet.1).collect::<Vec<_>>();
    let same = sizes(&alone) == sizes(&beside);
    let late: Vec<f64> = alone
        .iter()
        .zip(&beside)
        .map(|(alone, beside)| beside.0.as_millis_f64() - alone.0.as_millis_f64())
        .collect();
    let most = late.iter().copied().fold(f64::MIN, f64::max);
    let least = late.iter().copied().fold(f64::MAX, f64::min);
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    Ok(vec![alone.len() as f64, f64::from(u8::from(same)), most, least, mean])
}

pub(super) fn priority(plan: &mut Plan) -> Ask {
    let until = Time::from_secs(plan.pick(300, 40));
    let exact = plan.each(600, move |seed| pre_empted(seed, 1000, until));
    let cells = [1000u64, 100].map(|low| (low, plan.each(600, move |seed| compare(seed, low, until))));
    Box::new(move |runs| {
        let mut rows = Vec::new();
        for (low, ticket) in cells {
            let residual = (low * 8) as f64 / RATE as f64 / 1e3;
            let id = |what: &str| format!("validate.priority.{low}.{what}");
            rows.push(
                Row::new(id("same"), format!("same high packets, sizes and order with low packets of {low} bytes as without (1 is yes)"), Unit::Count)
                    .paper(1.0)
                    .samples(&runs.each(ticket, 1))
                    .within(1.0, 1.0),
            );
            rows.push(
                Row::new(
                    id("most"),
                    "longest delay of a high packet by the low class (one low packet: it is not pre-empted)",
                    Unit::Ms,
                )
                .paper(residual)
                .samples(&runs.each(ticket, 2))
                .within(residual * 0.9, residual + 1e-6),
            );
            rows.push(
                Row::new(id("least"), "least: never earlier than alone", Unit::Ms)
                    .paper(0.0)
                    .samples(&runs.each(ticket, 3))
                    .within(0.0, residual),
            );
            rows.push(Row::new(id("mean"), "mean", Unit::Ms).samples(&runs.each(ticket, 4)));
        }
        let id = |what: &str| format!("validate.priority.preempted.{what}");
        let what = [
            "high packets that left",
            "of packets, high ones that their queue dropped",
            "high ones that the wire lost",
        ];
        for (place, (name, what)) in ["left", "dropped", "lost"].into_iter().zip(what).enumerate() {
            rows.push(Row::new(id(name), what, Unit::Count).samples(&runs.each(exact, place)));
        }
        rows.push(
            Row::new(id("same"), "the same high packets leave, are dropped and arrive at the same nanosecond with low packets as without, where they are pre-empted (1 is yes)", Unit::Count)
                .paper(1.0)
                .samples(&runs.each(exact, 3))
                .within(1.0, 1.0),
        );
        rows.push(
            Row::new(id("used"), "of the link, with low packets always waiting", Unit::Percent)
                .paper(100.0)
                .samples(&runs.each(exact, 4))
                .within(99.9, 100.0 + 1e-2),
        );
        let text = prose::text(include_str!("priority.md"));
        Answer::new("Strict priority", text, rows)
    })
}
