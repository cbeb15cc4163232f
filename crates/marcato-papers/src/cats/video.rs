//! Video segments with priorities over cellular and satellite paths. CATS §IV names the case.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::Debt;
use marcato_sim::{Loss, Planned};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

use super::path::{Feeding, Path, Scheme, Transfer};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

const SEGMENT: Duration = Duration::from_secs(2);
const SEGMENTS: u32 = 30;
/// Time that the player waits, beyond the first segment's length, before it plays that segment.
const START_UP: Duration = Duration::from_secs(1);
const BASE: Planned = Planned::now(Bytes::kb(60), Priority::P1);
const ENHANCEMENT: Planned = Planned::now(Bytes::kb(140), Priority::P3);
/// More than either path carries during the run.
const BACKGROUND: Planned = Planned::now(Bytes::kb(40_000), Priority::P4);

/// A background upload from the start, and each segment's base and enhancement when it is ready.
fn plan() -> Vec<Planned> {
    let segments = (0..SEGMENTS).flat_map(|i| [BASE.after(SEGMENT * i), ENHANCEMENT.after(SEGMENT * i)]);
    std::iter::once(BACKGROUND).chain(segments).collect()
}

/// Quality of the playback.
struct Viewing {
    /// From the offer of each segment's base layer to its last byte, in ms.
    base: Vec<f64>,
    /// Share of base layers later than their deadline, in %.
    late: f64,
    /// Share of enhancement layers that arrive by their deadline, in %.
    enhanced: f64,
    /// Total time for which a player that waits for base layers stalls, in ms.
    stalled: f64,
}

impl Viewing {
    fn of(transfer: &Transfer) -> Result<Self, SimulationError> {
        let budget = (SEGMENT + START_UP).as_secs_f64() * 1e3;
        let (mut base, mut enhanced) = (Vec::new(), 0);
        for place in 1..transfer.plan().len() {
            let delay = transfer.delay(place)?;
            if transfer.plan()[place].message.priority == Priority::P1 {
                base.push(delay);
            } else if delay <= budget {
                enhanced += 1;
            }
        }
        let count = f64::from(SEGMENTS);
        let late = base.iter().filter(|&&delay| delay > budget).count() as f64;
        // Each segment plays when the previous one has ended and its base layer has arrived. Each
        // wait beyond the deadline delays all later segments.
        let stalled = base.iter().fold(0.0, |stalled, delay| f64::max(stalled, delay - budget));
        Ok(Self { base, late: 100.0 * late / count, enhanced: 100.0 * f64::from(enhanced) / count, stalled })
    }
}

/// Rates of a link that are drawn anew every 500 ms, between 0.4 and 4 Mbit/s.
fn cellular_rates(seed: u64) -> Vec<(Time, Rate)> {
    let mut stream = Seed::new(seed).stream("cats/cellular");
    let rate = |kbps| Rate::from_kbps(400 + kbps);
    (0..160).map(|k| (Time::from_millis(500 * k), rate(stream.below(3_601)))).collect()
}

/// Path of 40 ms one way.
fn cellular() -> Result<Path, SimulationError> {
    Ok(Path {
        bottleneck: Rate::from_mbps(4),
        delay: Duration::from_millis(30),
        queue: DropTail::new(DropTailConfig { limit: Limit::Packets(100) })?,
        ..Path::authors()
    })
}

/// Path of a 600 ms round trip and 4 Mbit/s that loses one packet in a thousand.
fn satellite() -> Path {
    let path = Path {
        bottleneck: Rate::from_mbps(4),
        delay: Duration::from_millis(290),
        loss: Loss::Random(0.001),
        ..Path::authors()
    };
    // 128 KiB per round trip would be 1.7 Mbit/s: the buffers hold twice the bandwidth-delay
    // product instead.
    path.with_tcp(|tcp| (tcp.send_buffer, tcp.receive_buffer) = (Bytes::kb(600), Bytes::kb(600)))
}

/// Base layers, enhancements and stalls on both paths.
pub(super) fn video(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let rates = cellular_rates(seed);
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for (path_id, path_name, path) in
        [("cellular", "cellular", cellular()?), ("satellite", "satellite", satellite())]
    {
        let mut chart = LineChart::new(
            format!("Base layers over the {path_name} path"),
            Axis::new("offered at", "s"),
            Axis::new("delay", "ms"),
        );
        for (id, name, scheme) in [
            ("fifo", "FIFO", Scheme::Writers([0, 0, 0, 0, 1])),
            ("strict", "strict order, lean", Scheme::Conductor(Debt::strict(), Feeding::Lean)),
            ("cats", "CATS, lean", Scheme::Conductor(Debt::authors(), Feeding::Lean)),
            ("marcato", "Marcato, lean", Scheme::Conductor(Debt::marcato(), Feeding::Lean)),
        ] {
            let plan = plan();
            let mut transfer = path.open(scheme.feeding(), path.app(scheme, plan.clone())?, &plan, seed)?;
            if path_id == "cellular" {
                let bottleneck = transfer.bottleneck;
                for &(at, rate) in &rates {
                    transfer.net.simulator()?.set_rate_at(bottleneck, at, rate);
                }
            }
            transfer.net.run_until(Time::from_secs(63))?;
            let viewing = Viewing::of(&transfer)?;
            for (metric, what, value, unit) in [
                ("late", "base layers late", viewing.late, Unit::Percent),
                ("enhanced", "enhancement layers in time", viewing.enhanced, Unit::Percent),
                ("stalled", "playback stalls", viewing.stalled, Unit::Ms),
                (
                    "base.max",
                    "base layer, greatest delay",
                    viewing.base.iter().copied().fold(0.0, f64::max),
                    Unit::Ms,
                ),
                (
                    "background",
                    "background upload",
                    transfer.arrived(0)?.get() as f64 * 8.0 / 63.0 / 1e6,
                    Unit::MbitPerS,
                ),
            ] {
                rows.push(
                    Row::new(
                        format!("cats.video.{path_id}.{id}.{metric}"),
                        format!("{what}, {path_name}, {name}"),
                        unit,
                    )
                    .measured(value),
                );
            }
            let points = (0..SEGMENTS).map(|i| (SEGMENT * i).as_secs_f64()).zip(viewing.base);
            chart = chart.series(Series::line(name, points).marks());
        }
        figures.push(Figure::new(
            format!("video-{path_id}"),
            chart,
            "The deadline of a base layer is 3000 ms after its offer.",
        ));
    }
    let trace = LineChart::new(
        "Rate of the cellular link",
        Axis::new("time", "s").range(0.0, 63.0),
        Axis::new("rate", "Mbit/s"),
    )
    .series(Series::step("rate", rates.iter().map(|&(at, rate)| (at.as_secs_f64(), rate.as_mbps_f64()))));
    let mut answer =
        Answer::new("Video segments with priorities", prose::text(include_str!("video.md")), rows);
    answer.section = answer.section.figure(Figure::new("video-rate", trace, "As drawn from the first seed."));
    answer.section = figures.into_iter().fold(answer.section, marcato_report::Section::figure);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cellular_rates_stay_in_bounds_and_depend_on_the_seed() {
        let rates = cellular_rates(1);
        assert!(rates.iter().all(|(_, rate)| (400_000..=4_000_000).contains(&rate.as_bps())));
        assert_ne!(rates, cellular_rates(2));
    }
}
