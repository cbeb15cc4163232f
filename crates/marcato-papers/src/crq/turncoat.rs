//! Beyond the paper: time until CRQ notices that a flow stops or resumes responding.

use marcato_queue::{
    Admission, Aqm, Buffer, Class, ClassConfig, CrqConfig, FlowTableConfig, Queues, QuicRule,
};
use marcato_report::{Row, Unit};
use marcato_units::{Bytes, Duration, Rate, Time};

use super::scale::{Plan, Ticket};
use super::setup::{Bottleneck, Guest, Outcome, Setup};
use super::watched::Preset;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const LINK: Rate = Rate::from_mbps(20);
const RTT: Duration = Duration::from_millis(20);
/// Length of each phase: the flow responds, does not, and responds again.
const PHASE: Duration = Duration::from_secs(60);

fn planned(plan: &mut Plan, rules: Preset, ecn: bool) -> (Ticket, Duration) {
    let phase = plan.scale.span(PHASE);
    let class = ClassConfig {
        aqm: Aqm::Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn },
        buffer: Buffer::Bytes(Bytes::kb(250)),
        share: 1,
    };
    let admission = if ecn { Admission::Ecn } else { Admission::Loss };
    let config = CrqConfig {
        standard: class,
        queues: Queues::Two { responsive: class, admission },
        trap: rules.rules(),
        quic: QuicRule::Handshake,
        flows: FlowTableConfig { flows: 1024, ..FlowTableConfig::default() },
        ..CrqConfig::new(LINK, RTT, ecn)
    };
    let setup = Setup::new(LINK, RTT, Bottleneck::Crq(config), ecn);
    let guest = Some(Guest::Turncoat(phase, 2 * phase));
    (plan.add(Setup { guest, at_most: 3 * phase, seeds: 1, ..setup }), phase)
}

/// Time from `from` until the guest is in `class`, in ms; not a number if that is not before
/// `until`.
fn wait(outcome: &Outcome, class: Class, from: Time, until: Time) -> f64 {
    let before = outcome.classes.iter().rev().find(|&&(at, _)| at <= from).map(|&(_, class)| class);
    if before == Some(class) {
        return 0.0;
    }
    let found = outcome.classes.iter().find(|&&(at, it)| at > from && at <= until && it == class);
    found.map_or(f64::NAN, |&(at, _)| at.since(from).as_secs_f64() * 1e3)
}

/// Share of the time from `from` to `until` in the responsive queue, in %.
fn share(outcome: &Outcome, from: Time, until: Time) -> f64 {
    let ends = outcome.classes.iter().skip(1).map(|&(at, _)| at).chain([Time::MAX]);
    let spans = outcome.classes.iter().zip(ends).filter(|&(&(_, class), _)| class == Class::Responsive);
    let inside = spans.map(|(&(begin, _), end)| end.min(until).since(begin.max(from)).as_secs_f64());
    inside.sum::<f64>() * 100.0 / until.since(from).as_secs_f64()
}

/// Each set of rules, at queues that drop and at queues that mark.
pub(super) fn turncoat(plan: &mut Plan) -> Ask {
    let text =
        prose::text(&format!(include_str!("turncoat.md"), span = plan.scale.span(PHASE).as_secs_f64()));
    let mut cells = Vec::new();
    for rules in Preset::ALL {
        for (signal, ecn) in [("loss", false), ("ecn", true)] {
            let (ticket, phase) = planned(plan, rules, ecn);
            cells.push((rules, signal, ticket, phase));
        }
    }
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for &(rules, signal, ticket, phase) in &cells {
            let at = |phases: u32| Time::ZERO + phases * phase;
            let of = |name: &str, what: &str, unit, value: &dyn Fn(&Outcome) -> f64| {
                let id = format!("crq.turncoat.{}.{signal}.{name}", rules.id());
                let what = format!("{what}, {signal}, {} rules", rules.id());
                Row::new(id, what, unit).samples(&runs.each(ticket, value))
            };
            let wait =
                |class, from, until| move |outcome: &Outcome| wait(outcome, class, at(from), at(until));
            let share = |from, until| move |outcome: &Outcome| share(outcome, at(from), at(until));
            rows.push(of(
                "accepted",
                "from the beginning to the responsive queue",
                Unit::Ms,
                &wait(Class::Responsive, 0, 1),
            ));
            rows.push(of(
                "detected",
                "from the end of its answers to the standard queue",
                Unit::Ms,
                &wait(Class::Standard, 1, 2),
            ));
            rows.push(of(
                "forgiven",
                "from the return of its answers to the responsive queue",
                Unit::Ms,
                &wait(Class::Responsive, 2, 3),
            ));
            rows.push(of(
                "good",
                "time in the responsive queue while it answers",
                Unit::Percent,
                &share(0, 1),
            ));
            rows.push(of(
                "bad",
                "time in the responsive queue while it does not",
                Unit::Percent,
                &share(1, 2),
            ));
            rows.push(of(
                "again",
                "time in the responsive queue while it answers again",
                Unit::Percent,
                &share(2, 3),
            ));
        }
        Answer::new("Beyond: flows that stop responding and resume", text, rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_shares_are_read_off_the_changes() {
        let at = Time::from_secs;
        let outcome = Outcome {
            transfers: Vec::new(),
            floods: Vec::new(),
            frames: Vec::new(),
            guest: Bytes::ZERO,
            classes: vec![(at(1), Class::Standard), (at(4), Class::Responsive), (at(12), Class::Standard)],
            skipped: 0,
            lasted: Duration::from_secs(20),
        };
        assert_eq!(wait(&outcome, Class::Responsive, at(0), at(10)), 4000.0);
        assert_eq!(wait(&outcome, Class::Standard, at(10), at(20)), 2000.0);
        assert!(wait(&outcome, Class::Responsive, at(13), at(20)).is_nan());
        assert_eq!(wait(&outcome, Class::Standard, at(13), at(20)), 0.0);
        assert_eq!(share(&outcome, at(0), at(10)), 60.0);
        assert_eq!(share(&outcome, at(10), at(20)), 20.0);
    }
}
