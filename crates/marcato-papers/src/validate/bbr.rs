//! BBR version 1: the gains, the cycle and the probes of the round trip, from its pace and window.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_report::{Row, Samples, Unit};
use marcato_sim::{Congestion, LinkConfig, Side, Tcp, TcpStats};
use marcato_units::{Bytes, Rate, Seed, Time};

use super::path::{OneFlow, seconds};
use super::plan::{Plan, Values};
use super::{Answer, Ask};
use crate::error::SimulationError;
use crate::prose;

/// Payload of a segment: 52 bytes of headers make it a packet of 1500 bytes.
const MSS: f64 = 1448.0;
const RTT: f64 = 0.04;
const MBPS: u64 = 20;
/// Payload of the link in bytes per second.
const GOODPUT: f64 = MBPS as f64 * 1e6 / 8.0 * MSS / 1500.0;
/// Gains of Linux: 2885/1000 + 1/256 and its inverse in 256ths. The pace stays 1 % below.
const HIGH_GAIN: f64 = 739.0 / 256.0;
const DRAIN_GAIN: f64 = 88.0 / 256.0;
const MARGIN: f64 = 0.99;

fn flow(mbps: u64, rtt: f64, buffer: Bytes, seed: Seed) -> Result<OneFlow, SimulationError> {
    let link = || LinkConfig::new(Rate::from_mbps(mbps), seconds(rtt / 2.0));
    let queue = DropTail::new(DropTailConfig { limit: Limit::Bytes(buffer) })?;
    let config = Tcp {
        congestion: Congestion::Bbr,
        send_buffer: Bytes::new(1 << 28),
        receive_buffer: Bytes::new(1 << 28),
        ..Tcp::default()
    };
    OneFlow::new(seed, link().queue(queue), link(), config)
}

fn stats(one: &OneFlow) -> Result<TcpStats, SimulationError> {
    one.net.tcp_stats(one.flow, Side::Client).ok_or(SimulationError::Missing("TCP flow"))
}

fn pace(stats: &TcpStats) -> f64 {
    stats.pacing_rate.map_or(f64::NAN, |rate| rate.as_bytes_per_sec() as f64)
}

/// Growth of the pace per round trip, from the third to the eighth, on a far wider path.
fn startup(seed: Seed) -> Result<Values, SimulationError> {
    let rtt = 0.1;
    let mut one = flow(10_000, rtt, Bytes::new(1 << 28), seed)?;
    let mut at = |rounds: f64| {
        one.net.run_until(Time::ZERO + seconds(rounds * rtt));
        stats(&one).map(|stats| pace(&stats))
    };
    // One round trip is the handshake's, another the initial window's.
    let (third, eighth) = (at(3.5)?, at(8.5)?);
    Ok(vec![libm::pow(eighth / third, 0.2)])
}

/// Values of the rows of [`bbr`], in their order.
fn steady(seed: Seed, until: u64) -> Result<Values, SimulationError> {
    let mut one = flow(MBPS, RTT, Bytes::kb(400), seed)?;
    let mut samples = Vec::new();
    for ms in 0..until {
        one.net.run_until(Time::from_millis(ms));
        let stats = stats(&one)?;
        let window = stats.cwnd.get() as f64 / MSS;
        let in_flight = stats.in_flight.get() as f64 / (GOODPUT * RTT);
        samples.push((pace(&stats) / GOODPUT, window, in_flight));
    }
    let paces = |from: usize, to: usize| samples[from..to].iter().map(|sample| sample.0);
    let (most, least) = (|it: f64, pace: f64| it.max(pace), |it: f64, pace: f64| it.min(pace));
    // Before the handshake no round trip is known, and Linux assumes a millisecond for its pace.
    // Startup fills the pipe within a second. The cycles from 2 s to 10 s follow no probe of the
    // round trip.
    let high = paces(100, 1_000).filter(|pace| pace.is_finite()).fold(0.0, most);
    let peak = samples[100..].iter().position(|sample| sample.0 >= high).map_or(100, |at| at + 100);
    let drain = paces(peak, 1_500).fold(f64::MAX, least);
    let (up, down) = (paces(2_000, 10_000).fold(0.0, most), paces(2_000, 10_000).fold(f64::MAX, least));
    let cruise = paces(2_000, 10_000).collect::<Samples>();
    let cruise = cruise.sorted().get(cruise.len() / 2).copied().unwrap_or(f64::NAN);
    let cruising = paces(2_000, 10_000).filter(|pace| (pace / cruise - 1.0).abs() < 0.1).count() as f64 / 8e3;
    let rises: Vec<usize> = (2_001..10_000)
        .filter(|&ms| samples[ms].0 > cruise * 1.1 && samples[ms - 1].0 <= cruise * 1.1)
        .collect();
    let cycle = match (rises.first(), rises.last()) {
        (Some(first), Some(last)) if rises.len() > 1 => (last - first) as f64 / (rises.len() - 1) as f64,
        _ => f64::NAN,
    };
    // The window is four packets during a probe of the round trip.
    let probing = |ms: usize| samples[ms].1 <= 4.0;
    let begins: Vec<usize> = (1_001..samples.len()).filter(|&ms| probing(ms) && !probing(ms - 1)).collect();
    let ends: Vec<usize> = (1_001..samples.len()).filter(|&ms| !probing(ms) && probing(ms - 1)).collect();
    let gaps: Vec<f64> = begins.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let lasted: Vec<f64> = begins.iter().zip(&ends).map(|(begin, end)| (end - begin) as f64).collect();
    let window = samples[1_001..].iter().map(|sample| sample.1).fold(f64::MAX, least);
    let flights = || samples[2_000..].iter().map(|sample| sample.2);
    let mean = flights().sum::<f64>() / flights().count() as f64;
    Ok(vec![
        high / MARGIN,
        drain / MARGIN,
        up / MARGIN,
        down / MARGIN,
        cruise / MARGIN,
        cycle,
        cruising * 100.0,
        marcato_report::Mean::of(&gaps).value,
        marcato_report::Mean::of(&lasted).value,
        window,
        mean,
        flights().fold(0.0, most),
    ])
}

pub(super) fn bbr(plan: &mut Plan) -> Ask {
    let until = plan.pick(62_000, 33_000);
    let startup = plan.each(100, startup);
    let steady = plan.each(until * 2, move |seed| steady(seed, until));
    Box::new(move |runs| {
        let round = RTT * 1e3;
        // Largest sample of ten rounds: one packet more than a round trip carries, of 66.
        let (estimate, packet) = (2.0, MSS / (GOODPUT * RTT));
        let budget = 12.0 * packet;
        let row = |place: usize, id: &str, what: &str, unit: Unit, theory: f64| {
            Row::new(format!("validate.bbr.{id}"), what, unit)
                .paper(theory)
                .samples(&runs.each(steady, place))
        };
        let gain = |place, id, what: &str, theory| {
            let what =
                format!("{what}, over the link's rate (±{estimate} %: a packet of 66 in the estimate)");
            row(place, id, &what, Unit::Ratio, theory).within_percent(estimate)
        };
        let rows = vec![
            Row::new("validate.bbr.startup", "growth of the pace per round trip in startup (±10 %: samples are of whole rounds)", Unit::Ratio)
                .paper(2.0)
                .samples(&runs.each(startup, 0))
                .within_percent(10.0),
            gain(0, "gain.startup", "greatest pace in startup", HIGH_GAIN),
            gain(1, "gain.drain", "least pace in drain", DRAIN_GAIN),
            gain(2, "gain.up", "greatest pace of a cycle", 1.25),
            gain(3, "gain.down", "least pace of a cycle", 0.75),
            gain(4, "bandwidth", "median pace, which is the bandwidth estimate", 1.0),
            row(5, "cycle", "from one faster phase to the next (to 10 round trips: a phase ends with the first acknowledgement after its time, and the faster one not before a quarter more is in flight)", Unit::Ms, 8.0 * round)
                .within(8.0 * round, 10.0 * round),
            row(6, "cruise", "share of time at gain 1 (±8: the faster phase may last two round trips, the slower end early)", Unit::Percent, 75.0)
                .within_absolute(8.0),
            row(7, "probe.period", "from one probe of the round trip to the next: 10 s since the last ended (+3 round trips: draining, a round)", Unit::Ms, 10_200.0)
                .within(10_200.0, 10_200.0 + 3.0 * round),
            row(8, "probe.length", "time with four packets in flight (+3 round trips: draining, a round)", Unit::Ms, 200.0)
                .within(200.0, 200.0 + 3.0 * round),
            row(9, "probe.window", "least window after startup, in packets", Unit::Count, 4.0).within(4.0, 4.0),
            row(10, "flight.mean", "in flight on average, in products (to 1.25: the faster phases' queue)", Unit::Ratio, 1.0)
                .within(0.95, 1.25),
            row(11, "flight.most", "most in flight, in products (12 packets more: the need of batches)", Unit::Ratio, 2.0)
                .within(1.0, 2.0 + budget),
        ];
        let text = prose::text(include_str!("bbr.md"));
        Answer::new("BBR version 1", text, rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gains_are_those_of_linux() {
        assert!((HIGH_GAIN - 2.887).abs() < 1e-3 && (HIGH_GAIN * DRAIN_GAIN - 1.0).abs() < 0.01);
        assert!((2.0 / core::f64::consts::LN_2 - HIGH_GAIN).abs() < 2e-3);
    }
}
