//! What strict priority promises: the high class does not know that there is a low one.

use marcato_queue::{DropTail, DropTailConfig, Limit, Strict};
use marcato_sim::{DatagramFlow, LinkConfig, Network, Packet, Route, UdpFlow};
use marcato_units::{Bytes, Duration, Layer, Rate, Seed, Time};

use super::path::Error;
use super::plan::{Plan, Values};
use super::source::{Sizes, Source, Taker};
use super::watch::Watched;
use super::{Answer, Ask};
use crate::{Row, Unit};

const RATE: u64 = 8;

/// When each high packet began to leave, and how long it was, with low packets of `low` bytes without end beside it.
fn departures(seed: Seed, low: Option<u64>, until: Time) -> Result<Vec<(Time, u64)>, Error> {
    let mut net = Network::new(seed);
    let (from, to) = (net.node("from"), net.node("to"));
    let class = |packets| {
        Ok::<DropTail<Packet>, Error>(DropTail::new(DropTailConfig { limit: Limit::Packets(packets) })?)
    };
    let (queue, seen) = Watched::new(Strict::of(class(1_000_000)?, class(100)?), true);
    let link = || LinkConfig::new(Rate::from_mbps(RATE), Duration::from_millis(5));
    net.link(from, to, link().queue(queue), link());
    // 400 bytes on average, three quarters of the link.
    let gap = Duration::from_nanos(400 * 8 * 1_000 / RATE * 4 / 3);
    let high = Source::new(Sizes::Exponential, 400, gap, until);
    net.datagrams(DatagramFlow::new(high, Taker::default(), vec![Route::new(from, to)]))?;
    if let Some(low) = low {
        let flood = UdpFlow::new(from, to, Rate::from_mbps(10), Bytes::new(low - 28));
        net.udp(UdpFlow { layer: Layer::Low, ..flood })?;
    }
    net.run_until(until + Duration::from_secs(10));
    let left = std::mem::take(&mut seen.borrow_mut().left);
    Ok(left)
}

/// Packets; whether both are the same packets in the same order; the greatest delay by the low class in ms, and the
/// least, and the mean.
fn compare(seed: Seed, low: u64, until: Time) -> Result<Values, Error> {
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
                Row::new(id("most"), "longest that the low class holds a high packet up (one low packet: it is not pre-empted)", Unit::Ms)
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
        let text = "High packets of 400 bytes on average, exponentially distributed, as a Poisson process of 6 Mbit/s at 8 \
            Mbit/s, with and without a flood of low packets. A link finishes the packet that it sends, so a high packet may \
            wait for the rest of one low packet, which delays all of its busy period as much, and never more. The bound is \
            proportional to the low packet's size: with smaller ones what is left goes to nothing, as pre-emption would \
            have it.";
        Answer::new("Strict priority", text, rows)
    })
}
