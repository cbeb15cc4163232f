//! Bulk data: pairs of stacks in turn, each alone, over the same place.

use std::time::Duration;

use crate::link::Place;
use crate::peer::Pair;
use crate::print::Print;
use crate::stack::Stack;
use crate::table::{Asked, Report, Row};
use crate::worker::{Failure, Purpose};

/// Two stacks to compare, and the required ratio of their goodputs, if any.
pub(crate) type Comparison = (Stack, Stack, Option<f64>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Time before the first mark, so that windows are open.
    pub(crate) warm: Duration,
    /// Time between the marks.
    pub(crate) window: Duration,
}

/// One run: goodput in MB/s, CPU s per GB of both ends together, and the sender's share of it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: f64,
    cpu: f64,
    sender: f64,
}

async fn sample(stack: Stack, place: &Place, plan: Plan) -> Result<Sample, Failure> {
    let mut pair = Pair::connect(stack, place, Purpose::Bulk).await?;
    pair.sender.ask("bulk", Duration::ZERO).await?;
    tokio::time::sleep(plan.warm).await;
    let first = (pair.sender.mark().await?, pair.receiver.mark().await?);
    tokio::time::sleep(plan.window).await;
    let last = (pair.sender.mark().await?, pair.receiver.mark().await?);
    let bytes = last.1.bytes.saturating_sub(first.1.bytes) as f64;
    if bytes == 0.0 {
        return Err("nothing arrived".into());
    }
    let sender = last.0.cpu.saturating_sub(first.0.cpu) as f64;
    let receiver = last.1.cpu.saturating_sub(first.1.cpu) as f64;
    let span = last.1.at.saturating_sub(first.1.at) as f64;
    Ok(Sample { rate: bytes / span * 1e3, cpu: (sender + receiver) / bytes, sender: sender / bytes })
}

/// Measures all pairs over one place, in rounds.
pub(crate) async fn measure(
    name: &str,
    place: &Place,
    comparisons: &[Comparison],
    plan: Plan,
    report: &mut Report,
    print: Print,
) {
    let mut stacks: Vec<Stack> = Vec::new();
    for stack in comparisons.iter().flat_map(|&(ours, theirs, _)| [ours, theirs]) {
        if !stacks.contains(&stack) {
            stacks.push(stack);
        }
    }
    let mut samples: Vec<Vec<Option<Sample>>> = vec![Vec::new(); stacks.len()];
    for round in 0..plan.rounds {
        // Rounds alternate the order, so that no stack always follows the same one.
        let mut order: Vec<usize> = (0..stacks.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            print.progress(&format!(
                "bulk, {name}, round {} of {}: {}",
                round + 1,
                plan.rounds,
                stacks[at].what()
            ));
            let sample = sample(stacks[at], place, plan).await;
            let sample = sample.inspect_err(|error| {
                report.failed.push(format!("bulk, {name}, {}: {error}", stacks[at].name()));
            });
            samples[at].push(sample.ok());
        }
    }
    print.line(&format!(
        "{:<26} {:>10} {:>19} {:>10} {:>10}",
        "", "MB/s", "(least to most)", "CPU s/GB", "of sender"
    ));
    for (stack, samples) in stacks.iter().zip(&samples) {
        let all = |value: fn(&Sample) -> f64| samples.iter().flatten().map(value).collect::<Vec<_>>();
        let id = |what: &str| format!("bulk.{name}.{}.{what}", stack.name());
        let rate = Row::median(id("goodput"), "MB/s", &all(|sample| sample.rate));
        let cpu = Row::median(id("cpu"), "s/GB", &all(|sample| sample.cpu));
        let sender = Row::median(id("cpu.sender"), "s/GB", &all(|sample| sample.sender));
        let (least, most) = rate.range.unwrap_or((f64::NAN, f64::NAN));
        print.line(&format!(
            "{:<26} {:>10.1} {:>19} {:>10.3} {:>10.3}",
            stack.what(),
            rate.value,
            format!("({least:.1} to {most:.1})"),
            cpu.value,
            sender.value
        ));
        report.rows.extend([rate, cpu, sender]);
    }
    print.line("");
    for &(ours, theirs, asked) in comparisons {
        let of = |stack| stacks.iter().position(|&other| other == stack).map(|at| &samples[at]);
        let (Some(mine), Some(other)) = (of(ours), of(theirs)) else { continue };
        let ratios = |value: fn(&Sample) -> f64| -> Vec<f64> {
            let rounds = mine.iter().zip(other);
            rounds.filter_map(|(mine, other)| Some(value(mine.as_ref()?) / value(other.as_ref()?))).collect()
        };
        let id = |what: &str| format!("bulk.{name}.{}/{}.{what}", ours.name(), theirs.name());
        let mut rate = Row::median(id("goodput"), "ratio", &ratios(|sample| sample.rate));
        rate.asked = asked.map(Asked::AtLeast);
        let cpu = Row::median(id("cpu"), "ratio", &ratios(|sample| sample.cpu));
        let (least, most) = rate.range.unwrap_or((f64::NAN, f64::NAN));
        print.line(&format!(
            "{:<52} goodput {:.3} ({least:.3} to {most:.3}), CPU per byte {:.2}  {}",
            format!("{} : {}", ours.what(), theirs.what()),
            rate.value,
            cpu.value,
            rate.verdict()
        ));
        report.rows.extend([rate, cpu]);
    }
    print.line("");
}
