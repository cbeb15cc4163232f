//! Congestion controllers other than Reno in the HCM (PLT §5).

use marcato_report::{Row, Unit};
use marcato_sim::Congestion;

use super::published::SMALL_BUFFER;
use super::scale::Plan;
use super::single::Single;
use super::world::plt;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Ticket;

const LOSSES: [(f64, &str); 4] = [(0.0, "0"), (1e-4, "1e-4"), (1e-3, "1e-3"), (1e-2, "1e-2")];

const CONTROLS: [(&str, Congestion); 3] =
    [("reno", Congestion::Reno), ("cubic", Congestion::CUBIC), ("bbr", Congestion::Bbr)];

/// Goodput of a single flow by the controller of its HCM.
pub(super) fn controllers(plan: &mut Plan) -> Ask {
    let span = plan.scale.tendency;
    let mut cells = Vec::new();
    for (name, congestion) in CONTROLS {
        for (loss, id) in LOSSES {
            for (who, config) in [("tcp", None), ("plt", Some(plt()))] {
                let setup = Single {
                    congestion: congestion.clone(),
                    ..Single::paper(loss, SMALL_BUFFER, config, span)
                };
                let what = if who == "plt" { "with a low layer" } else { "alone" };
                cells.push((
                    format!("plt.hcm.{name}.{id}.{who}"),
                    format!("goodput of {name} {what}, loss {id}, small buffer"),
                    plan.add(setup),
                ));
            }
        }
    }
    Box::new(move |runs| {
        let row = |(id, what, ticket): (String, String, Ticket<Single>)| {
            Row::new(id, what, Unit::MbitPerS).samples(&runs.each(ticket, |flow| flow.goodput))
        };
        Answer::new(
            "Other controls at the high layer",
            format!(
                "A single flow with the small buffer, {}. The paper asks whether a more aggressive control than \
             TCP's would be a better choice for the HCM.",
                span.words()
            ),
            cells.into_iter().map(row).collect(),
        )
    })
}
