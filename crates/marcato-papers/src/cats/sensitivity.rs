//! Sensitivity to the choice of H, L and M.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::Debt;
use marcato_sched::conductor::{Multiplier, Watermarks};
use marcato_units::{Bytes, Priority};

use super::load::Load;
use super::path::{Feeding, Path, Scheme};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

/// Factors by which each parameter is changed, in percent.
const FACTORS: [u64; 5] = [25, 50, 100, 200, 400];

/// A parameter that is scaled alone; the authors' values are 100 %.
#[derive(Clone, Copy)]
enum Parameter {
    /// High watermarks, with the low ones in proportion.
    High,
    /// Low watermarks alone, at most equal to the high ones.
    Low,
    /// Payback multipliers.
    Multiplier,
}

impl Parameter {
    const ALL: [(Self, &'static str, &'static str); 3] =
        [(Self::High, "h", "H (and L with it)"), (Self::Low, "l", "L"), (Self::Multiplier, "m", "M")];

    fn scale(self, percent: u64) -> Debt {
        let mut debt = Debt::authors();
        let scaled = |bytes: Bytes| bytes * percent / 100;
        for marks in debt.watermarks.iter_mut().flatten() {
            *marks = match self {
                Self::High => Watermarks { high: scaled(marks.high), low: scaled(marks.low) },
                Self::Low => Watermarks { low: scaled(marks.low).min(marks.high), ..*marks },
                Self::Multiplier => *marks,
            };
        }
        if let Self::Multiplier = self {
            for multiplier in &mut debt.multipliers {
                let thousandths = u64::from(multiplier.as_thousandths()) * percent / 100;
                *multiplier = Multiplier::from_thousandths(u32::try_from(thousandths).unwrap_or(u32::MAX));
            }
        }
        debt
    }
}

/// The page under scaled parameters of debt.
pub(super) fn sensitivity(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let path = Path::authors();
    let mut rows = Vec::new();
    let mut chart = LineChart::new(
        "Completion of P2 and P4's longest wait against the parameters of debt",
        Axis::new("share of the authors' value", "%").log(),
        Axis::new("time", "ms"),
    );
    for (parameter, id, name) in Parameter::ALL {
        let (mut done, mut wait) = (Vec::new(), Vec::new());
        for percent in FACTORS {
            let scheme = Scheme::Conductor(parameter.scale(percent), Feeding::Lean);
            let load = Load::run(&path, scheme, seed)?;
            for (metric, what, value) in [
                ("fcp", "first contentful paint", load.fcp()),
                ("tti", "time to interactive", load.tti()),
                ("p4wait", "P4's longest wait", load.longest_wait[Priority::P4.index()]),
            ] {
                rows.push(
                    Row::new(
                        format!("cats.sensitivity.{id}{percent}.{metric}"),
                        format!("{what} with {name} at {percent} % of the authors'"),
                        Unit::Ms,
                    )
                    .measured(value),
                );
            }
            done.push((percent as f64, load.tti()));
            wait.push((percent as f64, load.longest_wait[Priority::P4.index()]));
        }
        chart = chart
            .series(Series::line(format!("P2 complete, {name}"), done).marks())
            .series(Series::line(format!("P4's wait, {name}"), wait).marks().dashed());
    }
    let mut answer =
        Answer::new("Sensitivity to H, L and M", prose::text(include_str!("sensitivity.md")), rows);
    answer.section = answer.section.figure(Figure::new(
        "sensitivity",
        chart,
        "Trade-off of the debt parameters: urgent completion against the longest wait of the background.",
    ));
    Ok(answer)
}
