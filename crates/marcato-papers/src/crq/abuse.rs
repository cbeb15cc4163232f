//! Unresponsive senders that try to be classified as responsive.

use marcato_queue::trap::Signal;
use marcato_report::{Row, Unit};
use marcato_units::{Duration, Rate};

use super::figure4::{Queue, percent};
use super::flood::{Pulse, Spin};
use super::published::{ASSESSED_AT, RTTS};
use super::scale::{Plan, Ticket};
use super::setup::{Bottleneck, Setup, Transferred, Unresponsive};
use super::watched::Preset;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Spin bit of the published attack: long cycles, then some that look as if the window had shrunk.
const GAME: Spin = Spin::Flips([1000, 1000, 6, 6]);
/// Rate above the link's.
const OVERLOAD: Rate = Rate::from_mbps(60);
/// Rate below the link's.
const UNDERLOAD: Rate = Rate::from_mbps(40);
/// Loss rates at which the attack was found to work, with their names in %.
const LOSSES: [(&str, f64); 4] = [("0.1", 0.001), ("0.5", 0.005), ("2", 0.02), ("5", 0.05)];
/// Duration of each run.
const SPAN: Duration = Duration::from_secs(60);

/// A case: its name in row ids, its name in words, the signal, and the run.
type Case = (String, String, Signal, Ticket);

fn planned(plan: &mut Plan, queue: Queue, loss: f64, rate: Rate, spin: Option<Spin>) -> Ticket {
    let rtt = RTTS[0];
    let bottleneck = Bottleneck::Watched(queue.class(ASSESSED_AT, rtt), loss);
    let setup = Setup::new(ASSESSED_AT, rtt, bottleneck, queue.marks());
    let from = Duration::from_millis(50);
    let flood = Unresponsive { rate, from, server: 0, spin, pulse: None };
    plan.add(Setup { at_most: plan.scale.span(SPAN), ..setup.flood(flood) })
}

/// Floods with pauses, so that windows shrink, and floods split over many flows.
fn evasion(plan: &mut Plan) -> Vec<Case> {
    let (rtt, queue) = (RTTS[0], Queue::Tight { ecn: false });
    let from = Duration::from_millis(50);
    let regular = Some(Spin::Flips([25; 4]));
    let alone = |rate, pulse| vec![Unresponsive { rate, from, server: 0, spin: regular, pulse }];
    let pulse = |on, period| {
        Some(Pulse { on: Duration::from_millis(on), period: Duration::from_millis(period), rest: None })
    };
    let twice = Rate::from_mbps(120);
    let part = Unresponsive {
        rate: Rate::from_bps(OVERLOAD.as_bps() / 50),
        from,
        server: 0,
        spin: regular,
        pulse: None,
    };
    let cases = [
        ("pulse20", "on for 10 of 20 ms", alone(twice, pulse(10, 20))),
        ("pulse200", "on for 100 of 200 ms", alone(twice, pulse(100, 200))),
        ("pulse2000", "on for 1 of 2 s", alone(twice, pulse(1000, 2000))),
        ("split", "50 flows that together send 60 Mbit/s into 50", vec![part; 50]),
    ];
    let plan_one = |(name, what, floods): (&str, &str, Vec<Unresponsive>)| {
        let bottleneck = Bottleneck::Watched(queue.class(ASSESSED_AT, rtt), 0.0);
        let setup = Setup::new(ASSESSED_AT, rtt, bottleneck, false);
        let setup = Setup { floods, at_most: plan.scale.span(SPAN), ..setup };
        (name.to_owned(), what.to_owned(), queue.signal(), plan.add(setup))
    };
    cases.into_iter().map(plan_one).collect()
}

/// Each case, by each set of rules.
pub(super) fn abuse(plan: &mut Plan) -> Ask {
    let claims = plan.scale.claims;
    let mut cases: Vec<Case> = Vec::new();
    for queue in [Queue::DropTail, Queue::Tight { ecn: false }, Queue::Tight { ecn: true }] {
        for (name, what, spin) in [
            ("udp", "plain UDP", None),
            ("constant0", "a spin bit that stays 0", Some(Spin::Constant(false))),
            ("constant1", "a spin bit that stays 1", Some(Spin::Constant(true))),
            ("random", "a random spin bit", Some(Spin::Random)),
            ("regular", "a spin bit that flips every 25 packets", Some(Spin::Flips([25; 4]))),
            ("game", "flips after 1000, 1000, 6, 6 packets", Some(GAME)),
        ] {
            let ticket = planned(plan, queue, 0.0, OVERLOAD, spin);
            let what = format!("{what}, 60 Mbit/s into 50");
            cases.push((format!("{name}.{}", queue.id()), what, queue.signal(), ticket));
        }
    }
    for (name, loss) in LOSSES {
        let ticket = planned(plan, Queue::DropTail, loss, UNDERLOAD, Some(GAME));
        let what = format!("flips after 1000, 1000, 6, 6 packets, loss of {name} %");
        cases.push((format!("game.loss{name}"), what, Signal::Loss, ticket));
    }
    cases.extend(evasion(plan));
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        for (name, what, signal, ticket) in &cases {
            for preset in Preset::ALL {
                let scores = runs.each(*ticket, |outcome| {
                    // A flow without cycles is never responsive.
                    let of =
                        |flood: &Transferred| percent(flood.scores[preset as usize].raw(*signal).or(Some(0)));
                    outcome.floods.iter().map(of).sum::<f64>() / outcome.floods.len() as f64
                });
                let id = format!("crq.abuse.{name}.{}", preset.id());
                let what = format!("cycles called responsive, {what}, {} rules", preset.id());
                let row = Row::new(id, what, Unit::Percent).samples(&scores);
                let claimed = claims && preset == Preset::Marcato;
                rows.push(if claimed { row.at_most(5.0) } else { row });
            }
        }
        let text = prose::text(include_str!("abuse.md"));
        Answer::new("Senders that pose as responsive", text, rows)
    })
}
