//! Signals: the late stylesheet of clients that tell their order in different ways.

use marcato_report::{Row, Unit};

use super::client::Signalled;
use super::late::measure;
use super::link::Link;
use super::server::Kind;
use super::{median, ms};
use crate::answer::{Answer, TOO_SHORT};
use crate::error::SimulationError;
use crate::{Progress, RunOptions, prose};

/// Congestion control, and ms until the stylesheet is asked for.
const CONGESTION: &str = "cubic";
const DELAY: u64 = 100;
/// Largest difference from the middle of all, in %.
const APART: f64 = 3.0;

/// Loads with each kind of signals, for each seed.
const fn loads(quick: bool) -> usize {
    if quick { 1 } else { 7 }
}

/// Measures the late stylesheet with each kind of signals, in turns.
pub(super) fn signals(options: &RunOptions, progress: &mut dyn Progress) -> Result<Answer, SimulationError> {
    progress.begin("web, signals", Some(options.seeds().len() as u64));
    let link = &Link::ALL[0];
    let limit = ms(link.limit());
    // For each kind of signals, the median of each seed.
    let mut late: [Vec<f64>; Signalled::ALL.len()] = Default::default();
    for &seed in options.seeds() {
        let turns = Signalled::ALL.repeat(loads(options.quick));
        let case = measure(Kind::Marcato, link, CONGESTION, DELAY, &turns, seed)?;
        for (place, late) in late.iter_mut().enumerate() {
            let own = case.loads.iter().skip(place).step_by(Signalled::ALL.len());
            late.push(median(own.map(|load| ms(load.late) / limit)));
        }
        progress.advance(1);
    }
    let text = prose::text(include_str!("signals.md"));
    Ok(Answer::new("Signals of clients", text, rows(&late, !options.quick)))
}

fn rows(late: &[Vec<f64>], claimed: bool) -> Vec<Row> {
    let middle = median(late.iter().map(|late| median(late.iter().copied())));
    let row = |(signalled, late): (Signalled, &Vec<f64>)| {
        let id = format!("web.signals.{}", signalled.name());
        let what = format!("stylesheet over the limit, signalled by {}", signalled.title());
        let row = Row::new(id, what, Unit::Ratio).samples(late);
        if claimed {
            row.within(middle * (1.0 - APART / 100.0), middle * (1.0 + APART / 100.0))
        } else {
            row.unclaimed_because(TOO_SHORT)
        }
    };
    Signalled::ALL.into_iter().zip(late).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_lead_to_another_order_are_outside() {
        let held = |none: f64| {
            let rows = rows(&[vec![1.05], vec![1.06], vec![1.07], vec![none]], true);
            rows.iter().map(Row::ok).collect::<Vec<_>>()
        };
        assert_eq!(held(1.05), [Some(true); 4]);
        assert_eq!(held(2.0), [Some(true), Some(true), Some(true), Some(false)]);
    }
}
