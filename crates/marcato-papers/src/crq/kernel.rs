//! CRQ in the kernel: transfers beside a flood, through the queues and programs of `marcato-kernel` at
//! a router of the lab.

use std::path::Path;

use marcato_kernel::{
    Attachment, Configuration, Counter, Device, Missing, QueueKind, Shaper, TcCommand, TcError,
};
use marcato_lab::Lab;
use marcato_queue::trap::{TrapConfig, TrapKind};
use marcato_queue::{Admission, Class};
use marcato_report::{Row, Unit, World};
use marcato_units::{Bytes, Duration, Rate};

use super::lab::{flood, flows};
use super::published::{Control, fct_score};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::plan::{Plan, Runs, Setup, Ticket};
use crate::{Progress, RunOptions, lab, prose};

/// Rate of the bottleneck: low enough for a kernel on an emulated processor.
pub(super) const RATE: Rate = Rate::from_mbps(10);
/// Delay of the path each way.
const DELAY: Duration = Duration::from_millis(10);
/// Round trip by which the queues are sized: the path's, and as long in the queue.
const SIZED_FOR: Duration = Duration::from_millis(40);
/// Link whose rate the kernel shapes, among the links of the scenario.
const DOWN: usize = 2;
/// Reason for claiming nothing about single values.
const SHORT: &str = "a run in real time is short, and differs from kernel to kernel";
/// Flows that are followed at once.
const FLOWS: u32 = 1024;

/// Discipline of both queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    DropTail,
    Codel,
    CodelEcn,
}

impl Kind {
    const ALL: [Self; 3] = [Self::DropTail, Self::Codel, Self::CodelEcn];

    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::DropTail => "dt",
            Self::Codel => "drop",
            Self::CodelEcn => "ecn",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::Codel => "CoDel",
            Self::CodelEcn => "CoDel, ECN",
        }
    }

    pub(super) const fn shaper(self, rate: Rate, round_trip: Duration) -> Shaper {
        let kind = match self {
            Self::DropTail => QueueKind::DropTail,
            Self::Codel => QueueKind::Codel,
            Self::CodelEcn => QueueKind::CodelEcn,
        };
        // As in the paper, every flow begins in the standard queue.
        Shaper { rate, share: 50, standard: kind, responsive: kind, round_trip, young: None }
    }

    const fn admission(self) -> Admission {
        match self {
            Self::CodelEcn => Admission::Ecn,
            Self::DropTail | Self::Codel => Admission::Loss,
        }
    }
}

/// A transfer beside a flood, through the kernel's queues.
#[derive(Clone, Debug)]
struct Transfer {
    kind: Kind,
    by: Control,
    /// Set if the programs choose queues; otherwise all traffic has the standard one.
    with_crq: bool,
    bytes: Bytes,
    /// Duration of the run. A transfer that takes longer counts as if it had ended then.
    at_most: Duration,
}

/// Facts that the kernel knows of a run.
#[derive(Clone, Copy, Debug)]
struct Judged {
    /// Share of the transfer's cycles in which it was called responsive, in %; 0 without cycles.
    responsive: f64,
    /// Set if the transfer's last packet went to the responsive queue.
    accepted: bool,
    /// Drops and marks that were booked to the transfer.
    signals: u64,
    /// Set if no packet of another flow than the transfer went to the responsive queue.
    held: bool,
}

/// Outcome of a run.
struct Seen {
    /// Completion time in ms.
    fct: f64,
    judged: Option<Judged>,
}

impl Transfer {
    fn scenario(&self, seed: u64) -> String {
        let ecn = self.kind == Kind::CodelEcn;
        let tcp = format!("tcp = {{ congestion = \"{}\", ecn = {ecn} }}", self.by.id());
        format!(
            r#"
            name = "crq-kernel"
            duration = "{at_most} ms"
            seed = {seed}
            nodes = ["web", "flooder", "router", "client"]
            link = [
                {{ name = "web", between = ["web", "router"], delay = "{half} us" }},
                {{ name = "flooder", between = ["flooder", "router"], delay = "{half} us" }},
                {{ name = "down", between = ["router", "client"], delay = "{half} us" }},
            ]
            {flows}
            "#,
            at_most = self.at_most.as_millis(),
            half = DELAY.as_micros() / 2,
            flows = flows(self.bytes, &tcp, flood(RATE, self.with_crq)),
        )
    }

    /// Sets queues up on the router's device, and puts the programs there.
    fn prepare(&self, lab: &Lab) -> Result<Option<Attachment>, SimulationError> {
        let (kind, with_crq) = (self.kind, self.with_crq);
        at_router(lab, DOWN, move |name| {
            let device = Device::find(name).map_err(lab::failed)?;
            let shaper = kind.shaper(RATE, SIZED_FOR);
            shaper
                .commands(&device)
                .iter()
                .try_for_each(|command| command.run().map(drop))
                .map_err(lab::failed)?;
            let configuration = Configuration {
                admission: kind.admission(),
                priority: shaper.priority(),
                netns: device.netns,
                ifindex: device.ifindex,
                ethernet: device.ethernet,
                ..Configuration::watching(TrapConfig::marcato())
            };
            let hold = || Attachment::hold(&device, &configuration, FLOWS).map_err(lab::failed);
            with_crq.then(hold).transpose()
        })
    }

    /// Returns what the programs say of the transfer: the largest flow of TCP.
    fn judged(&self, attachment: &Attachment) -> Result<Judged, SimulationError> {
        let tcp = attachment.flows().filter(|(_, state)| state.kind == Some(TrapKind::Tcp));
        let flows: Vec<_> = tcp.map(|(_, state)| state).collect();
        let transfer =
            flows.iter().max_by_key(|state| state.bytes).ok_or(SimulationError::Missing("flow"))?;
        let at = usize::from(self.kind == Kind::CodelEcn);
        let responsive =
            100.0 * f64::from(transfer.responsive_cycles[at]) / f64::from(transfer.cycles.max(1));
        let responsive_packets = attachment.counter(Counter::Responsive).map_err(lab::failed)?.packets;
        Ok(Judged {
            responsive,
            accepted: transfer.queue == Some(Class::Responsive),
            signals: transfer.signals.iter().map(|count| u64::from(*count)).sum(),
            held: responsive_packets <= flows.iter().map(|state| state.packets).sum(),
        })
    }
}

/// Runs a function in the network namespace of the router, with the name of its device at a link.
pub(super) fn at_router<T: Send + 'static>(
    lab: &Lab,
    link: usize,
    job: impl FnOnce(&str) -> Result<T, SimulationError> + Send + 'static,
) -> Result<T, SimulationError> {
    let (host, device) = lab.device(link, false).ok_or(SimulationError::Missing("link"))?;
    let device = device.to_owned();
    lab.run(host, move || job(&device)).map_err(lab::failed)?
}

impl Setup for Transfer {
    type Outcome = Seen;

    fn cost(&self) -> u64 {
        self.at_most.as_secs()
    }

    fn run(&self, seed: u64) -> Result<Seen, SimulationError> {
        let mut attachment = None;
        let outcome = lab::run_prepared(&self.scenario(seed), |lab| {
            attachment = self.prepare(lab)?;
            Ok(())
        })?;
        let transfer = outcome.flows.first().ok_or(SimulationError::Missing("flow"))?;
        Ok(Seen {
            fct: transfer.completions().first().copied().unwrap_or(self.at_most.as_secs_f64() * 1e3),
            // Their maps remain when the device is gone.
            judged: attachment.map(|attachment| self.judged(&attachment)).transpose()?,
        })
    }
}

/// Runs of one transfer, with and without CRQ.
struct Cell {
    kind: Kind,
    by: Control,
    at_most: Duration,
    baseline: Ticket<Transfer>,
    crq: Ticket<Transfer>,
}

impl Cell {
    fn rows(&self, runs: &Runs) -> Vec<Row> {
        let id = format!("crq.kernel.{}.{}", self.kind.id(), self.by.id());
        let name = format!("TCP {}, {}", self.by.id().to_uppercase(), self.kind.name());
        let row = |end: &str, what: &str, unit: Unit, samples: Vec<f64>| {
            let row = Row::new(format!("{id}.{end}"), format!("{what}, {name}"), unit).samples(&samples);
            row.withdrawn_because(SHORT)
        };
        let fct = |ticket| runs.each(ticket, |seen: &Seen| seen.fct.min(self.at_most.as_secs_f64() * 1e3));
        let (without, with) = (fct(self.baseline), fct(self.crq));
        let scores = without.iter().zip(&with).map(|(&b, &c)| fct_score(b, c)).collect();
        let judged =
            |value: fn(Judged) -> f64| runs.each(self.crq, |seen: &Seen| seen.judged.map_or(f64::NAN, value));
        let held = runs.of(self.crq).iter().all(|seen| seen.judged.is_some_and(|judged| judged.held));
        #[expect(clippy::cast_precision_loss, reason = "a transfer has few signals")]
        let signals = judged(|it| it.signals as f64);
        vec![
            row("baseline", "flow completion time without CRQ", Unit::Ms, without),
            row("crq", "flow completion time with CRQ", Unit::Ms, with),
            row("score", "FCT score", Unit::Ratio, scores),
            row("responsive", "cycles called responsive", Unit::Percent, judged(|it| it.responsive)),
            row(
                "accepted",
                "its last packet in the responsive queue",
                Unit::Count,
                judged(|it| f64::from(u8::from(it.accepted))),
            ),
            row("signals", "drops and marks booked to it", Unit::Count, signals),
            Row::verdict(
                format!("{id}.flood.held"),
                format!("no other flow is in the responsive queue, {name}"),
                held,
            ),
        ]
    }
}

/// Disciplines that this kernel has.
pub(super) fn kinds() -> Result<Vec<Kind>, SimulationError> {
    let probe = Transfer {
        kind: Kind::DropTail,
        by: Control::Cubic,
        with_crq: false,
        bytes: Bytes::new(1),
        // It is not run, but its flood has to begin within it.
        at_most: Duration::from_secs(2),
    };
    let experiment = lab::experiment(&probe.scenario(1))?;
    let lab = Lab::open(&experiment, &Default::default(), Default::default()).map_err(lab::failed)?;
    at_router(&lab, DOWN, |name| {
        let has = |kind: &Kind| match kind {
            Kind::DropTail => Ok(true),
            Kind::Codel | Kind::CodelEcn => {
                let words = ["qdisc", "replace", "dev", name, "root", "codel"];
                match TcCommand(words.map(str::to_owned).to_vec()).run() {
                    Ok(_) => Ok(true),
                    Err(TcError::Kind { .. }) => Ok(false),
                    Err(error) => Err(lab::failed(error)),
                }
            }
        };
        let mut kinds = Vec::new();
        for kind in Kind::ALL {
            if has(&kind)? {
                kinds.push(kind);
            }
        }
        Ok(kinds)
    })
}

/// Runs the transfers through every discipline that this kernel has.
fn run(options: &RunOptions, progress: &mut dyn Progress) -> Result<(Vec<Cell>, Runs), SimulationError> {
    let kinds = kinds()?;
    let controls = if options.quick { &Control::ALL[..1] } else { &Control::ALL[..] };
    let (bytes, at_most) = if options.quick {
        (Bytes::kb(4000), Duration::from_secs(15))
    } else {
        (Bytes::kb(20_000), Duration::from_secs(60))
    };
    let mut plan = Plan::new(());
    let mut cells = Vec::new();
    for &kind in &kinds {
        for &by in controls {
            let mut add = |with_crq| plan.add(Transfer { kind, by, with_crq, bytes, at_most });
            let (baseline, crq) = (add(false), add(true));
            cells.push(Cell { kind, by, at_most, baseline, crq });
        }
    }
    Ok((cells, lab::run_plan(&plan, "CRQ in the kernel", World::Lab, options, progress)?))
}

/// Returns what this system lacks for the programs.
pub(super) fn missing() -> Vec<String> {
    // Programs that are held need no pins, and so no file system for them.
    let all = Missing::all(Path::new("/")).into_iter();
    all.filter(|it| !matches!(it, Missing::PinDirectory(_))).map(|it| it.to_string()).collect()
}

/// Answers the question, or says why this system cannot.
pub(super) fn answer(options: &RunOptions, progress: &mut dyn Progress) -> Result<Answer, SimulationError> {
    const TITLE: &str = "Transfers beside a flood, through CRQ in the kernel";
    let missing = missing();
    if !missing.is_empty() {
        return Ok(Answer::new(
            TITLE,
            format!("Not run. This system lacks {}.", missing.join("; ")),
            Vec::new(),
        ));
    }
    let (cells, runs) = run(options, progress)?;
    let rows = cells.iter().flat_map(|cell| cell.rows(&runs)).collect();
    Ok(Answer::new(TITLE, prose::text(include_str!("kernel.md")), rows))
}

#[cfg(test)]
mod tests {
    use marcato_testing::skip;

    use super::*;

    /// Outcomes without and with CRQ.
    fn both(kind: Kind) -> [Seen; 2] {
        let run = |with_crq| {
            let (bytes, at_most) = (Bytes::kb(6000), Duration::from_secs(12));
            Transfer { kind, by: Control::Cubic, with_crq, bytes, at_most }.run(1).unwrap()
        };
        [run(false), run(true)]
    }

    // In real time, and as root. `tools/kernel-tests/run` calls it in several kernels.
    #[test]
    #[ignore = "sends for a minute in real time"]
    fn kernel_queues_judge_transfers_beside_a_flood() {
        let missing = missing();
        if !missing.is_empty() {
            return skip(env!("CARGO_PKG_NAME"), &format!("this system lacks {}", missing.join("; ")));
        }
        for kind in kinds().unwrap() {
            let [baseline, crq] = both(kind);
            let judged = crq.judged.unwrap();
            let score = fct_score(baseline.fct, crq.fct);
            eprintln!(
                "crq.kernel.{}.cubic: {:.0} ms without, {:.0} ms with CRQ, score {score:.2}, {judged:?}",
                kind.id(),
                baseline.fct,
                crq.fct
            );
            assert!(baseline.judged.is_none());
            assert!(judged.held, "another flow is in the responsive queue, {kind:?}");
            assert!(judged.signals > 0, "{kind:?}");
            assert!(judged.responsive > 0.0, "the transfer was never called responsive, {kind:?}");
            // 6 MB take 5 s alone, and 9 s beside a flood that leaves nothing back.
            assert!(score > -0.3, "{kind:?}: {score}");
        }
    }
}
