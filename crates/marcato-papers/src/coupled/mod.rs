//! Coupled mode: our own background data no longer delays our urgent data.
//!
//! No paper has it; CATS §VI names it as future work. Each file holds one question; `COUPLED` runs
//! them all.

mod alone;
mod cell;
mod cellular;
#[cfg(target_os = "linux")]
#[cfg(target_os = "linux")]
mod lab;
mod page;
mod share;
mod sockets;
mod traffic;
mod wild;

use marcato_report::{Config, Row};

use crate::paper::Paper;

/// Rule that is measured, as in a scenario.
const RULE: &str = "fast";

/// Lengths of the runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Seconds measured, in each of which comes an urgent message.
    seconds: u64,
    /// True if the claims of full runs are made.
    claims: bool,
}

impl Scale {
    const fn of(quick: bool) -> Self {
        if quick { Self { seconds: 20, claims: false } } else { Self { seconds: 120, claims: true } }
    }

    /// Row with its bound, which a short run does not claim.
    fn claim(self, row: Row, bounded: impl FnOnce(Row) -> Row) -> Row {
        if self.claims { bounded(row) } else { row.unclaimed_because(crate::answer::TOO_SHORT) }
    }
}

type Plan = crate::plan::Plan<Scale>;
type Ticket = crate::plan::Ticket<cell::Cell>;

/// Experiments of coupled mode.
pub(crate) const COUPLED: Paper<Scale> = Paper {
    name: "coupled",
    about: "coupled mode: a connection's own background data no longer delays its urgent data",
    unit: "coupled, simulated seconds at 10 Mbit/s",
    questions: &[
        alone::tuned,
        alone::held_out,
        page::page,
        share::beside,
        share::late,
        share::among,
        traffic::cross,
        traffic::loss,
        traffic::support,
        cellular::cellular,
        wild::wild,
    ],
    scale: Scale::of,
    config,
    #[cfg(target_os = "linux")]
    lab: lab::report,
};

/// Configuration, for the record.
fn config(scale: Scale) -> Config {
    Config::new().set("rule", RULE).set("seconds", scale.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Experiment as _, RunOptions, Silent};

    #[test]
    fn every_row_is_documented_and_every_documented_row_is_printed() {
        crate::validate::documented::check(&COUPLED.without_outcomes(Scale::of(false)));
    }

    #[test]
    fn a_quick_run_measures_every_row_and_claims_none() {
        let mut options = RunOptions::repeated(1, 1).unwrap();
        options.quick = true;
        let report = COUPLED.run(&options, &mut Silent).unwrap();
        let rows = report.document().rows();
        assert!(rows.iter().all(|row| row.ok().is_none()));
        let unmeasured: Vec<_> =
            rows.iter().filter(|row| row.measured_value().is_none()).map(|row| row.id()).collect();
        // A message that is not complete at the end of a run has no time, and may be the 99 %.
        assert!(unmeasured.iter().all(|id| id.ends_with("p99")), "{unmeasured:?}");
    }
}
