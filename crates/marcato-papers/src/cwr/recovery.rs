//! Completion times of messages with a lost packet.

use marcato_report::{Percentile, Row, Samples, Unit};
use marcato_units::{Bytes, Duration};

use super::published::{Periodic, REPAIRED_RTTS, SAME_RTT, Scheduler};
use super::scale::Plan;
use super::setup::Setup;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Time from the release to the completion of a message with a lost packet.
pub(super) fn recovery(plan: &mut Plan) -> Ask {
    let source = Periodic { period: Duration::from_millis(50), size: Bytes::kb(25) };
    let setup = Setup::paper(Scheduler::Cwr, SAME_RTT, &[source], plan.scale.long);
    let packets = plan.add(setup.clone());
    // Without the packet threshold (RFC 9002 §6.1.1), only the time threshold of 9/8 of a round
    // trip remains (§6.1.2).
    let time = plan.add(setup.with_session(|session| session.packet_threshold = u32::MAX));
    let claims = plan.scale.claims;
    Box::new(move |runs: &Runs| {
        let rtt = SAME_RTT[0].as_secs_f64() * 1e3;
        let mut rows = Vec::new();
        for (name, rule, ticket, least, paper) in [
            ("packets", "three later packets acknowledged", packets, 1.5, None),
            ("time", "9/8 of a round trip alone", time, REPAIRED_RTTS, Some(REPAIRED_RTTS)),
        ] {
            let messages = runs.of(ticket).into_iter().flat_map(|outcome| outcome.sources.iter().flatten());
            let repaired: Samples =
                messages.filter(|it| it.was_repaired(SAME_RTT[0])).map(|it| it.mct / rtt).collect();
            let of = |thousandths| {
                let percentile = Percentile::from_thousandths(thousandths);
                percentile.and_then(|it| repaired.percentile(it)).unwrap_or(f64::NAN)
            };
            let row = |suffix: &str, which: &str, unit| {
                let id = format!("cwr.recovery.{name}{suffix}");
                Row::new(id, format!("{which} that lost a packet, CWR; loss detected after {rule}"), unit)
            };
            let earliest =
                row("", "earliest completion of messages, in round trips,", Unit::Ratio).measured(of(0));
            let earliest = match paper {
                Some(paper) => earliest.paper(paper),
                None => earliest,
            };
            rows.push(if claims {
                earliest.at_least(least)
            } else {
                earliest.unclaimed_because(crate::answer::TOO_SHORT)
            });
            let median = row(".median", "median completion of messages, in round trips,", Unit::Ratio);
            rows.push(median.measured(of(500)));
            rows.push(row(".count", "messages of all seeds", Unit::Count).measured(repaired.len() as f64));
        }
        Answer::new(
            "Recovery: delay of a message with a lost packet",
            prose::text(include_str!("recovery.md")),
            rows,
        )
    })
}
