//! Coupled mode on the kernel's TCP, in a lab.

use marcato_net::Coupling;
use marcato_report::{Document, Report, Row, Unit};

use super::kernel::{Cell, Measured, Times, measure};
use crate::answer::Answer;
use crate::{Progress, RunError, RunOptions, prose};

/// Measures each cell without and with coupled mode.
pub(super) fn report(options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
    let cells: Vec<Cell> = Cell::all().collect();
    let cells = if options.quick { &cells[..1] } else { &cells[..] };
    let times = Times::default();
    let mut rows = Vec::new();
    let seeds = options.seeds();
    progress.begin("coupled, runs in the lab", Some(2 * (cells.len() * seeds.len()) as u64));
    for cell in cells {
        let mut runs: [Vec<Measured>; 2] = [Vec::new(), Vec::new()];
        for &seed in seeds {
            for (place, coupled) in [Coupling::Off, Coupling::Auto].into_iter().enumerate() {
                let measured = measure(cell, coupled, times, seed);
                runs[place].push(measured.map_err(|error| RunError::failed("coupled", error))?);
                progress.advance(1);
            }
        }
        rows.extend(rows_of(cell, times, &runs, !options.quick));
    }
    let answer = Answer::new("The kernel's TCP", prose::text(include_str!("lab.md")), rows);
    let document = Document::new("coupled", options).with_rows(answer.rows);
    let about = "coupled mode on the kernel's TCP: late urgent messages beside our own background";
    Ok(Report::new("Coupled mode in the lab", about, document).section(answer.section))
}

fn rows_of(cell: &Cell, times: Times, [plain, coupled]: &[Vec<Measured>; 2], claims: bool) -> Vec<Row> {
    let name = cell.congestion.name();
    let row = |of: &str, what: &str, unit, runs: &[Measured], value: &dyn Fn(&Measured) -> f64| {
        let what = format!("{what}, {} Mbit/s, {name}", cell.mbit);
        let samples: Vec<f64> = runs.iter().map(value).collect();
        Row::new(format!("coupled.kernel.{}.{name}.{of}", cell.mbit), what, unit).samples(&samples)
    };
    let goodput = |runs: &[Measured]| {
        let each = runs.iter().map(|run| run.goodput.as_mbps_f64());
        each.sum::<f64>() / runs.len() as f64
    };
    let before = goodput(plain);
    let cost = |run: &Measured| 100.0 * (1.0 - run.goodput.as_mbps_f64() / before);
    let p95 = row("p95", "95 % over the limit", Unit::Ratio, coupled, &|run| run.quantile(0.95));
    let cost = row("cost", "goodput that it costs", Unit::Percent, coupled, &cost);
    // ProbeRTT of the kernel's BBR empties the path, and nothing above it can prevent that.
    let claims = claims && name == "cubic";
    let processor = |run: &Measured| 100.0 * run.processor.as_secs_f64() / times.whole().as_secs_f64();
    let bounded = |row: Row, most| if claims { row.at_most(most) } else { row };
    vec![
        row("p50", "median over the limit", Unit::Ratio, coupled, &|run| run.quantile(0.5)),
        bounded(p95, 1.25),
        row("max", "largest over the limit", Unit::Ratio, coupled, &|run| run.quantile(1.0)),
        bounded(cost, 1.0),
        row("compete", "time without a cap", Unit::Percent, coupled, &|run| run.compete()),
        row("processor", "processor time of the sender", Unit::Percent, coupled, &processor),
        row("plain.processor", "the same without coupled mode", Unit::Percent, plain, &processor),
        row("plain.p50", "median without coupled mode", Unit::Ratio, plain, &|run| run.quantile(0.5)),
        row("plain.p95", "95 % without coupled mode", Unit::Ratio, plain, &|run| run.quantile(0.95)),
    ]
}
