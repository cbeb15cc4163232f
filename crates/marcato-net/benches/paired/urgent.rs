//! Urgent messages behind bulk data without end: one-way times, and the bytes in flight at
//! hand-over.

use std::time::Duration;

use crate::link::{PACKET, Place, Shape};
use crate::peer::Pair;
use crate::print::Print;
use crate::stack::Stack;
use crate::table::{Asked, Report, Row, percentile};
use crate::worker::{Failure, Purpose};

/// Interval between urgent messages.
const INTERVAL_MS: u32 = 50;
/// Payload of a full segment: 1500 bytes without the headers of IPv4 and of TCP with timestamps.
const SEGMENT: f64 = 1448.0;
/// Link rate in Mbit/s for which there is a target for the time beyond the bytes in flight.
const ASKED_AT: u32 = 2;
/// Time to wait for messages that were handed over.
const PATIENCE: Duration = Duration::from_secs(12);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) messages: u32,
    /// Time before the first message, so that the queues are full.
    pub(crate) warm: Duration,
}

/// Measurements of one message.
#[derive(Clone, Copy, Debug)]
struct Journey {
    /// One-way time in milliseconds; `None` if it did not arrive in time.
    took: Option<f64>,
    in_flight: f64,
    unsent: f64,
    lost: u64,
}

async fn journeys(stack: Stack, place: &Place, plan: Plan) -> Result<Vec<Journey>, Failure> {
    let mut pair = Pair::connect(stack, place, Purpose::Urgent).await?;
    pair.sender.ask("bulk", Duration::ZERO).await?;
    tokio::time::sleep(plan.warm).await;
    let handing = Duration::from_millis(u64::from(plan.messages * INTERVAL_MS));
    let handed = pair.sender.ask(&format!("urgent {} {INTERVAL_MS}", plan.messages), handing).await?;
    let mut journeys = Vec::new();
    for message in handed.split(' ') {
        let numbers: Vec<u64> = message.split(':').map(str::parse).collect::<Result<_, _>>()?;
        let [_, in_flight, unsent, lost] = numbers[..] else { return Err("not a message".into()) };
        journeys.push(Journey { took: None, in_flight: in_flight as f64, unsent: unsent as f64, lost });
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let arrived = pair.receiver.ask("urgent", Duration::ZERO).await?;
        for message in arrived.split(' ').filter(|message| !message.is_empty()) {
            let (number, took) = message.split_once(':').ok_or("not a message")?;
            let took: u64 = took.parse()?;
            if let Some(journey) = journeys.get_mut(number.parse::<usize>()?) {
                journey.took = Some(took as f64 / 1e6);
            }
        }
        let missing = journeys.iter().any(|journey| journey.took.is_none());
        if !missing || tokio::time::Instant::now() >= deadline {
            return Ok(journeys);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Measures all stacks over one place.
pub(crate) async fn measure(
    name: &str,
    place: &Place,
    shape: Option<Shape>,
    stacks: &[Stack],
    plan: Plan,
    report: &mut Report,
    print: Print,
) {
    let mut splits = Vec::new();
    print.line(&format!(
        "{:<26} {:>9} {:>9} {:>9} {:>9} {:>12} {:>16}",
        "ms", "p50", "p90", "p99", "most", "not in time", "in flight, kB"
    ));
    for &stack in stacks {
        print.progress(&format!("urgent, {name}: {}", stack.what()));
        let journeys = match journeys(stack, place, plan).await {
            Ok(journeys) => journeys,
            Err(error) => {
                report.failed.push(format!("urgent, {name}, {}: {error}", stack.name()));
                continue;
            }
        };
        // A lost message counts as infinite: slower than every message that arrived.
        let mut took: Vec<f64> =
            journeys.iter().map(|journey| journey.took.unwrap_or(f64::INFINITY)).collect();
        took.sort_by(f64::total_cmp);
        let late = took.iter().filter(|took| took.is_infinite()).count();
        let percentiles = [50.0, 90.0, 99.0, 100.0].map(|percent| percentile(&took, percent));
        let [p50, p90, p99, most] = percentiles;
        let mut ahead: Vec<f64> = journeys.iter().map(|journey| journey.in_flight + journey.unsent).collect();
        ahead.sort_by(f64::total_cmp);
        let ahead = percentile(&ahead, 50.0) / 1e3;
        let known = if stack.is_marcato() { format!("{ahead:.1}") } else { "-".to_owned() };
        print.line(&format!(
            "{:<26} {p50:>9.2} {p90:>9.2} {p99:>9.2} {most:>9.2} {late:>12} {known:>16}",
            stack.what()
        ));
        if stack.is_marcato() {
            let id = format!("urgent.{name}.{}.in_flight.p50", stack.name());
            report.rows.push(Row::new(id, "kB", ahead, took.len()));
        }
        for (what, value) in ["p50", "p90", "p99", "max"].into_iter().zip(percentiles) {
            let id = format!("urgent.{name}.{}.{what}", stack.name());
            report.rows.push(Row::new(id, "ms", value, took.len()));
        }
        let id = format!("urgent.{name}.{}.late", stack.name());
        report.rows.push(Row::new(id, "count", late as f64, took.len()));
        if let Some(shape) = shape
            && matches!(stack, Stack::MarcatoTcpTls | Stack::MarcatoTcpTlsBbr)
        {
            splits.push((stack, shape, journeys));
        }
    }
    print.line("");
    for (stack, shape, journeys) in splits {
        split(name, stack, shape, &journeys, report, print);
    }
}

/// Splits the one-way times into the transmission of the bytes in flight at hand-over, which had to
/// leave first, and the rest. The link adds no delay, so the target of the rest is three packets'
/// time alone.
fn split(name: &str, stack: Stack, shape: Shape, journeys: &[Journey], report: &mut Report, print: Print) {
    let ms = |bytes: f64| shape.ms(bytes / SEGMENT * PACKET);
    let bound = shape.ms(3.0 * PACKET);
    let mut parts: [Vec<f64>; 5] = Default::default();
    // The rest for messages that had no loss ahead of them.
    let mut clear = Vec::new();
    for (at, journey) in journeys.iter().enumerate() {
        let took = journey.took.unwrap_or(f64::INFINITY);
        let (in_flight, unsent) = (ms(journey.in_flight), ms(journey.unsent));
        let rest = took - in_flight - unsent;
        for (part, value) in parts.iter_mut().zip([took, in_flight, unsent, in_flight + unsent, rest]) {
            part.push(value);
        }
        // The counter of losses increases when data is retransmitted. A retransmission may precede
        // this message if it happens before the arrival, or happened so recently that it is still
        // in the queue.
        let steps = |ms: f64| {
            let mut counts = 0..journeys.len();
            counts.find(|&count| count as f64 * f64::from(INTERVAL_MS) >= ms).unwrap_or(journeys.len())
        };
        let first = at.saturating_sub(1 + steps(f64::from(shape.queue_ms)));
        let last = (at + steps(took)).min(journeys.len() - 1);
        let (before, lost) = (journeys[first].lost, journeys[last].lost);
        if lost == before {
            clear.push(rest);
        }
    }
    for part in parts.iter_mut().chain([&mut clear]) {
        part.sort_by(f64::total_cmp);
    }
    print.line(&format!(
        "{}, {} Mbit/s: of {} urgent messages, {} had nothing lost before them. Three packets take {bound:.1} ms.",
        stack.what(),
        shape.mbps,
        journeys.len(),
        clear.len()
    ));
    print.line(&format!("{:<34} {:>9} {:>9} {:>9} {:>9}", "ms", "p50", "p90", "p99", "most"));
    let [took, in_flight, unsent, ahead, rest] = &parts;
    for (what, id, values) in [
        ("one way, all", "took", took),
        ("in flight: sent, not acknowledged", "in_flight", in_flight),
        ("in flight: in the kernel, not sent", "unsent", unsent),
        ("in flight, together", "ahead", ahead),
        ("rest", "rest", rest),
        ("rest, nothing lost before it", "rest.clear", &clear),
    ] {
        let [p50, p90, p99, most] = [50.0, 90.0, 99.0, 100.0].map(|percent| percentile(values, percent));
        let mut row = Row::new(format!("split.{name}.{}.{id}.max", stack.name()), "ms", most, values.len());
        row.asked = (id.starts_with("rest") && !values.is_empty() && shape.mbps == ASKED_AT)
            .then_some(Asked::AtMost(bound));
        print.line(&format!("{what:<34} {p50:>9.2} {p90:>9.2} {p99:>9.2} {most:>9.2}  {}", row.verdict()));
        for (percent, value) in [("p50", p50), ("p90", p90), ("p99", p99)] {
            let id = format!("split.{name}.{}.{id}.{percent}", stack.name());
            report.rows.push(Row::new(id, "ms", value, values.len()));
        }
        report.rows.push(row);
    }
    let within = rest.iter().filter(|rest| **rest <= bound).count();
    let id = format!("split.{name}.{}.within", stack.name());
    report.rows.push(Row::new(id, "ratio", within as f64 / rest.len().max(1) as f64, rest.len()));
    print.line(&format!("{within} of {} within three packets' time of what was in flight", rest.len()));
    print.line("");
}
