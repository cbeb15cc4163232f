//! Coupled mode over sockets, in a lab.

use marcato_net::Coupling;
use marcato_report::{Document, Report, Row, Unit};

use super::sockets::{Cell, Measured, Situation, Times, measure};
use super::wild::{MAX_COST, MAX_COST_OF_JITTER};
use crate::answer::Answer;
use crate::{Progress, RunError, RunOptions, prose};

/// Runs of a cell without coupled mode, and with it.
type Arms = [Vec<Measured>; 2];

/// Measures each cell without and with coupled mode.
pub(super) fn report(options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
    let times = Times::default();
    let (mut constant, mut wild): (Vec<Cell>, Vec<Cell>) =
        (Cell::constant().collect(), Cell::wild().collect());
    if options.quick {
        constant.truncate(1);
        wild.clear();
    }
    let runs = (constant.len() + wild.len()) * 2 * options.seeds().len();
    progress.begin("coupled, runs in the lab", Some(runs as u64));
    let mut rows = |cells: &[Cell], of: &dyn Fn(&Cell, &Arms) -> Vec<Row>| -> Result<Vec<Row>, RunError> {
        let mut rows = Vec::new();
        for cell in cells {
            let mut runs: Arms = [Vec::new(), Vec::new()];
            for &seed in options.seeds() {
                for (place, coupled) in [Coupling::Off, Coupling::Auto].into_iter().enumerate() {
                    let measured = measure(cell, coupled, times, seed);
                    runs[place].push(measured.map_err(|error| RunError::failed("coupled", error))?);
                    progress.advance(1);
                }
            }
            rows.extend(of(cell, &runs));
        }
        Ok(rows)
    };
    let constant = rows(&constant, &|cell, runs| on_a_line(cell, times, runs, !options.quick))?;
    let wild = rows(&wild, &|cell, runs| in_trouble(cell, runs))?;
    let constant = Answer::new("The kernel's TCP", prose::text(include_str!("lab.md")), constant);
    let wild = Answer::new("Over sockets, in trouble", prose::text(include_str!("sockets.md")), wild);
    let document = Document::new("coupled", options).with_rows([constant.rows, wild.rows].concat());
    let about = "coupled mode over sockets: late urgent messages beside our own background";
    let report = Report::new("Coupled mode in the lab", about, document).section(constant.section);
    Ok(if options.quick { report } else { report.section(wild.section) })
}

/// Rows of a cell with trouble.
fn in_trouble(cell: &Cell, [plain, coupled]: &Arms) -> Vec<Row> {
    let id = |of: &str| format!("coupled.sockets.{}.{}.{of}", cell.situation.id(), cell.transport.id());
    let what = |of: &str| format!("{of}, {}, {}", cell.situation.name(), cell.transport.id());
    let row = |of: &str, words: &str, unit, runs: &[Measured], value: &dyn Fn(&Measured) -> f64| {
        let samples: Vec<f64> = runs.iter().map(value).collect();
        Row::new(id(of), what(words), unit).samples(&samples)
    };
    let goodput = |run: &Measured| run.goodput.as_mbps_f64();
    let costs: Vec<f64> = plain
        .iter()
        .zip(coupled)
        .map(|(plain, coupled)| 100.0 * (1.0 - goodput(coupled) / goodput(plain)))
        .collect();
    let cost = Row::new(id("cost"), what("goodput that it costs"), Unit::Percent).samples(&costs);
    let most = if matches!(cell.situation, Situation::Jitter(_)) { MAX_COST_OF_JITTER } else { MAX_COST };
    vec![
        row("p50", "median over the limit", Unit::Ratio, coupled, &|run| run.quantile(0.5)),
        row("p95", "95 % over the limit", Unit::Ratio, coupled, &|run| run.quantile(0.95)),
        cost.at_most(most),
        row("compete", "time without a cap", Unit::Percent, coupled, &|run| run.compete()),
        row("plain.p50", "median without coupled mode", Unit::Ratio, plain, &|run| run.quantile(0.5)),
        row("plain.p95", "95 % without coupled mode", Unit::Ratio, plain, &|run| run.quantile(0.95)),
        row("plain.goodput", "goodput without coupled mode", Unit::MbitPerS, plain, &goodput),
    ]
}

/// Rows of a cell on a constant line under the kernel's TCP.
fn on_a_line(cell: &Cell, times: Times, [plain, coupled]: &Arms, claims: bool) -> Vec<Row> {
    let name = cell.transport.congestion();
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
