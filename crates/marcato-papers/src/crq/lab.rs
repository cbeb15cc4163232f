//! CRQ before the kernel's TCP: transfers beside a flood, through a link of the lab, and simulated.

use marcato_queue::{Class, FlowReport};
use marcato_report::{Config, Document, Report, Row, Unit, World};
use marcato_sim::scenario::FlowOutcome;
use marcato_units::{Bytes, Duration, Rate};

use super::kernel;
use super::published::{ASSESSED_AT, Control, RTTS, fct_score};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::plan::{Plan, Runs, Setup, Ticket};
use crate::{Progress, RunError, RunOptions, lab, prose};

/// Queue of the bottleneck. All have CoDel with the target and interval of Fig. 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bottleneck {
    /// One queue for all traffic.
    Baseline,
    /// Congestion-responsive queuing.
    Crq,
}

/// A transfer beside a flood.
#[derive(Clone, Debug)]
struct Transfer {
    world: World,
    rtt: Duration,
    bottleneck: Bottleneck,
    by: Control,
    bytes: Bytes,
    /// Duration of the run. A transfer that takes longer counts as if it had ended then.
    at_most: Duration,
}

/// State of a flow in CRQ at the end.
#[derive(Clone, Copy, Debug)]
struct Judged {
    /// Share of its cycles in which it was called responsive, in %; 0 without cycles.
    responsive: f64,
    class: Class,
}

impl From<FlowReport> for Judged {
    fn from(report: FlowReport) -> Self {
        Self { responsive: 100.0 * report.responsive().unwrap_or(0.0), class: report.class }
    }
}

/// Outcome of a run.
struct Seen {
    /// Completion time in ms.
    fct: f64,
    /// Verdicts on the transfer and on the flood; `None` without CRQ.
    verdicts: [Option<Judged>; 2],
    /// Goodput of the flood in Mbit/s.
    flood: f64,
}

impl Transfer {
    fn scenario(&self, seed: u64) -> String {
        let kind = match self.bottleneck {
            Bottleneck::Baseline => r#"kind = "codel""#,
            // As in the paper, every flow begins in the standard queue.
            Bottleneck::Crq => r#"kind = "crq", young-share = 0"#,
        };
        format!(
            r#"
            name = "crq"
            duration = "{at_most} ms"
            seed = {seed}
            nodes = ["web", "flooder", "router", "client"]
            link = [
                {{ name = "web", between = ["web", "router"], delay = "{quarter} us" }},
                {{ name = "flooder", between = ["flooder", "router"], delay = "{quarter} us" }},
                {{ name = "down", between = ["router", "client"], rate = "{rate} bit/s", delay = "{quarter} us",
                   queue = {{ {kind}, target = "500 us", interval = "20 ms" }},
                   back = {{ queue = "droptail" }} }},
            ]
            {flows}
            "#,
            at_most = self.at_most.as_millis(),
            flows = flows(
                self.bytes,
                &format!("congestion = \"{}\"", self.by.id()),
                flood(ASSESSED_AT, self.bottleneck == Bottleneck::Crq)
            ),
            quarter = self.rtt.as_micros() / 4,
            rate = ASSESSED_AT.as_bps(),
        )
    }
}

/// Rate of the flood's IP packets: half of the rate of its queue, as in CRQ §IV-C1.
pub(super) const fn flood(link: Rate, with_crq: bool) -> Rate {
    Rate::from_bps(link.as_bps() / if with_crq { 4 } else { 2 })
}

/// Flows of a scenario: a transfer from `web` by TCP, with these further keys, and a flood from `flooder`.
pub(super) fn flows(bytes: Bytes, tcp: &str, flood: Rate) -> String {
    format!(
        r#"
            [[flow]]
            name = "transfer"
            kind = "tcp"
            from = "web"
            to = "client"
            size = "{bytes} B"
            {tcp}
            [[flow]]
            name = "flood"
            kind = "udp"
            from = "flooder"
            to = "client"
            start = "1 s"
            rate = "{flood} bit/s"
            payload = "1448 B"
            "#,
        bytes = bytes.get(),
        flood = flood.as_bps(),
    )
}

impl Setup for Transfer {
    type Outcome = Seen;

    fn cost(&self) -> u64 {
        self.at_most.as_secs()
    }

    fn run(&self, seed: u64) -> Result<Seen, SimulationError> {
        let outcome = lab::run(self.world, &self.scenario(seed))?;
        let [transfer, flood] = &*outcome.flows else { return Err(SimulationError::Missing("flow")) };
        let judged = |flow: &FlowOutcome| flow.report.map(Judged::from);
        Ok(Seen {
            fct: transfer.completions().first().copied().unwrap_or(self.at_most.as_secs_f64() * 1e3),
            verdicts: [judged(transfer), judged(flood)],
            flood: flood.goodput,
        })
    }
}

/// Runs of one transfer, with and without CRQ.
struct Cell {
    rtt: Duration,
    by: Control,
    at_most: Duration,
    baseline: Ticket<Transfer>,
    crq: Ticket<Transfer>,
}

impl Cell {
    fn id(&self) -> String {
        format!("crq.lab.{}.{}", self.rtt.as_millis(), self.by.id())
    }

    fn name(&self) -> String {
        format!("TCP {}, {} ms", self.by.id().to_uppercase(), self.rtt.as_millis())
    }

    fn rows(&self, runs: &Runs) -> Vec<Row> {
        let row = |id: &str, what: &str, unit: Unit, samples: Vec<f64>| {
            Row::new(format!("{}.{id}", self.id()), format!("{what}, {}", self.name()), unit)
                .samples(&samples)
        };
        // A transfer that does not complete is infinitely slow in its outcome.
        let fct = |ticket| runs.each(ticket, |seen: &Seen| seen.fct.min(self.at_most.as_secs_f64() * 1e3));
        let (without, with) = (fct(self.baseline), fct(self.crq));
        let scores = without.iter().zip(&with).map(|(&b, &c)| fct_score(b, c)).collect();
        let verdict = |of: usize, value: fn(Judged) -> f64| {
            runs.each(self.crq, |seen| seen.verdicts[of].map_or(f64::NAN, value))
        };
        let is_responsive = |judged: Judged| f64::from(u8::from(judged.class == Class::Responsive));
        vec![
            row("baseline", "flow completion time without CRQ", Unit::Ms, without),
            row("crq", "flow completion time with CRQ", Unit::Ms, with),
            row("score", "FCT score", Unit::Ratio, scores),
            row("responsive", "cycles called responsive", Unit::Percent, verdict(0, |it| it.responsive)),
            row(
                "accepted",
                "its last packet in the responsive queue",
                Unit::Count,
                verdict(0, is_responsive),
            ),
            row(
                "flood",
                "flood beside it: cycles called responsive",
                Unit::Percent,
                verdict(1, |it| it.responsive),
            ),
            row(
                "flood.accepted",
                "flood beside it: in the responsive queue",
                Unit::Count,
                verdict(1, is_responsive),
            ),
            row(
                "flood.goodput",
                "flood beside it: goodput with CRQ",
                Unit::MbitPerS,
                runs.each(self.crq, |seen| seen.flood),
            ),
        ]
    }
}

/// Cells of one world, run with every seed.
fn run(
    world: World,
    options: &RunOptions,
    progress: &mut dyn Progress,
) -> Result<(Vec<Cell>, Runs), SimulationError> {
    let mut plan = Plan::new(());
    let (rtts, controls) =
        if options.quick { (&RTTS[..1], &Control::ALL[..1]) } else { (&RTTS[..], &Control::ALL[..]) };
    let (bytes, at_most) = if options.quick {
        (Bytes::kb(20_000), Duration::from_secs(15))
    } else {
        (Bytes::kb(50_000), Duration::from_secs(60))
    };
    let mut cells = Vec::new();
    for &rtt in rtts {
        for &by in controls {
            let mut add = |bottleneck| plan.add(Transfer { world, rtt, bottleneck, by, bytes, at_most });
            let (baseline, crq) = (add(Bottleneck::Baseline), add(Bottleneck::Crq));
            cells.push(Cell { rtt, by, at_most, baseline, crq });
        }
    }
    Ok((cells, lab::run_plan(&plan, "CRQ", world, options, progress)?))
}

/// Answers the questions in virtual time and in a lab.
pub(super) fn report(options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
    let mut of = |world| run(world, options, progress).map_err(|error| RunError::failed("crq", error));
    let ((cells, simulated), (_, real)) = (of(World::Virtual)?, of(World::Lab)?);
    let mut rows = Vec::new();
    for cell in &cells {
        rows.extend(lab::beside(cell.rows(&real), &cell.rows(&simulated)));
        let in_standard =
            |seen: &&Seen| seen.verdicts[1].is_some_and(|judged| judged.class == Class::Standard);
        let held = real.of(cell.crq).iter().all(in_standard);
        let what = format!("the flood is in the standard queue, {}", cell.name());
        rows.push(Row::verdict(format!("{}.flood.held", cell.id()), what, held));
        if cell.by == Control::Cubic {
            let score = |seen: (&&Seen, &&Seen)| fct_score(seen.0.fct, seen.1.fct) > 0.0;
            let helped = real.of(cell.baseline).iter().zip(&real.of(cell.crq)).all(score);
            let what = format!("CRQ shortens the transfer, {}", cell.name());
            rows.push(Row::verdict(format!("{}.helped", cell.id()), what, helped));
        }
    }
    let config = Config::new()
        .set("rate_mbps", ASSESSED_AT.as_mbps_f64())
        .set("codel_target_ms", 0.5)
        .set("codel_interval_ms", 20.0)
        .set("kernel_rate_mbps", kernel::RATE.as_mbps_f64())
        .set("rules", "marcato");
    let answer =
        Answer::new("Transfers of the kernel beside a flood", prose::text(include_str!("lab.md")), rows);
    let kernel = kernel::answer(options, progress).map_err(|error| RunError::failed("crq", error))?;
    let rows = answer.rows.into_iter().chain(kernel.rows);
    let document = Document::new("crq", options).config(config).with_rows(rows);
    let about =
        "CRQ: TCP of the Linux kernel and a flood through CRQ, on a link of the lab and in the kernel";
    Ok(Report::new("CRQ in the lab", about, document).section(answer.section).section(kernel.section))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flood_is_judged_apart_from_the_transfer() {
        let transfer = |bottleneck| Transfer {
            world: World::Virtual,
            rtt: RTTS[0],
            bottleneck,
            by: Control::Cubic,
            bytes: Bytes::kb(10_000),
            at_most: Duration::from_secs(4),
        };
        let [baseline, crq] = [Bottleneck::Baseline, Bottleneck::Crq].map(|it| transfer(it).run(1).unwrap());
        // 10 MB take 1.6 s alone.
        assert!(baseline.fct > 1600.0 && crq.fct > 1600.0, "{} and {} ms", baseline.fct, crq.fct);
        assert!(baseline.verdicts.iter().all(Option::is_none));
        let [transfer, flood] = crq.verdicts.map(Option::unwrap);
        assert!(transfer.responsive > 50.0 && flood.responsive == 0.0, "{transfer:?}, {flood:?}");
        assert_eq!((transfer.class, flood.class), (Class::Responsive, Class::Standard));
    }
}
