//! Sensitivity to parameters that the paper leaves open.

use marcato_report::{Row, Unit};
use marcato_sched::LcmConfig;
use marcato_sched::lowprio::{Epoch, Fraction, Growth, TimeoutLoss};
use marcato_sim::PltConfig;
use marcato_units::Bytes;

use super::published::{LARGE_BUFFER, PACKET, SMALL_BUFFER};
use super::scale::Plan;
use super::single::Single;
use super::world::plt;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Ticket;
use crate::prose;

/// Losses at which each choice is tried: none, one far below the target, and the target.
const LOSSES: [(f64, &str); 3] = [(0.0, "0"), (1e-3, "1e-3"), (5e-3, "5e-3")];

const fn with(lcm: LcmConfig) -> PltConfig {
    PltConfig::new(lcm)
}

/// Choices, each with its name in row ids, its description and its configuration.
fn choices() -> Vec<(String, String, PltConfig)> {
    let lcm = LcmConfig::paper();
    let mut choices = vec![("base".to_owned(), "as in all other rows".to_owned(), plt())];
    for (parts, weight) in [(8, 125), (4, 250), (1, 1000)] {
        let config = LcmConfig { weight: Fraction::per_mille(weight), ..lcm };
        let what =
            if parts == 1 { "no averaging of loss rates".into() } else { format!("EWMA weight 1/{parts}") };
        choices.push((format!("weight{parts}"), what, with(config)));
    }
    for packets in [10, 100] {
        let initial_window = Bytes::new(packets * u64::from(PACKET));
        let config = LcmConfig { initial_window, ..lcm };
        choices.push((
            format!("iw{packets}"),
            format!("initial window of the LCM {packets} packets"),
            with(config),
        ));
    }
    let always = LcmConfig { growth: Growth::Always, ..lcm };
    choices.push((
        "always".into(),
        "the window also grows in epochs that it did not limit".into(),
        with(always),
    ));
    let epoch = LcmConfig { epoch: Epoch::RoundTrip, ..lcm };
    choices.push(("rtt".into(), "epochs of a round trip".into(), with(epoch)));
    let apart = LcmConfig { timeout_loss: TimeoutLoss::Apart, ..lcm };
    choices.push(("apart".into(), "packets that a timeout declares lost do not enter P".into(), with(apart)));
    for times in [1, 2] {
        let config = PltConfig { low_retransmissions: times, ..plt() };
        choices.push((
            format!("resend{times}"),
            format!("the LCM sends a lost packet again up to {times} times"),
            config,
        ));
    }
    choices.push((
        "relief".into(),
        "the LCM helps out if twice the HCM's window waits for repair (footnote 2)".into(),
        PltConfig { relief: Some(2), ..plt() },
    ));
    choices
}

/// Goodput of a single flow for each choice.
pub(super) fn sensitivity(plan: &mut Plan) -> Ask {
    let span = plan.scale.tendency;
    let mut cells = Vec::new();
    for (id, what, config) in choices() {
        for (loss, name) in LOSSES {
            for (buffer, suffix, words) in
                [(SMALL_BUFFER, "", "small buffer"), (LARGE_BUFFER, ".large", "large buffer")]
            {
                let ticket = plan.add(Single::paper(loss, buffer, Some(config), span));
                let id = format!("plt.sensitivity.{id}.{name}{suffix}");
                cells.push((id, format!("goodput of PLT, {what}, loss {name}, {words}"), ticket));
            }
        }
    }
    Box::new(move |runs| {
        let row = |(id, what, ticket): (String, String, Ticket<Single>)| {
            Row::new(id, what, Unit::MbitPerS).samples(&runs.each(ticket, |flow| flow.goodput))
        };
        Answer::new(
            "Choices on which the paper is silent",
            prose::text(&format!(include_str!("sensitivity.md"), span = span.words())),
            cells.into_iter().map(row).collect(),
        )
    })
}
