//! Table I's page with a late P0.

use marcato_report::{Mean, Row, Unit, World};
use marcato_units::Duration;
use serde::{Deserialize, Serialize};

use super::{Plan, RULE};
use crate::answer::Answer;
use crate::cats::page::GROUPS;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Ticket, kept_as_json};
use crate::{lab, prose};

/// Payload and wire bytes of a segment, rate in kbit/s and round trip of Table I's path, in ms.
const SEGMENT: u64 = 1000;
const WIRE: u64 = 1058;
const KBIT: u64 = 2000;
const RTT: u64 = 120;
/// Times at which P0 is offered, from the start of the flow, in ms: every 20 from 300 to 1440.
const LATE: (u64, u64, usize) = (300, 1440, 20);
/// End of the third round trip with data: the first is the handshake's.
const THIRD: u64 = 4 * RTT;

/// Senders: name, congestion control, and segments of a connection that are not paced. Linux paces those
/// after the tenth.
const SENDERS: [(&str, &str, u32); 4] =
    [("cubic", "cubic", 0), ("reno", "reno", 0), ("bbr", "bbr", 0), ("bbr-linux", "bbr", 10)];

/// A page whose P0 is late.
#[derive(Clone, Debug, PartialEq)]
struct Late {
    congestion: &'static str,
    /// Segments of the connection that are not paced: a train, by which the rate is known early.
    unpaced: u32,
    coupled: &'static str,
    at: u64,
}

/// Completion of P0 over its limit, and of the whole page in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Loaded {
    ratio: f64,
    page: f64,
}

impl Late {
    /// One-way delay, the message's segments, and the one being sent, in ms.
    fn limit() -> f64 {
        let wire = (GROUPS[0].get().div_ceil(SEGMENT) + 1) * WIRE;
        RTT as f64 / 2.0 + (wire * 8) as f64 / KBIT as f64
    }

    fn scenario(&self) -> String {
        let message = |(level, bytes): (usize, &marcato_units::Bytes)| {
            let after = if level == 0 { self.at } else { 0 };
            format!(
                r#"{{ name = "p{level}", size = "{} B", priority = "p{level}", after = "{after} ms" }}"#,
                bytes.get()
            )
        };
        let messages: Vec<String> = GROUPS.iter().enumerate().map(message).collect();
        format!(
            r#"
            name = "page"
            duration = "20 s"
            nodes = ["server", "router", "browser"]
            [[link]]
            name = "uplink"
            between = ["server", "router"]
            rate = "1 Gbit/s"
            delay = "10 ms"
            [[link]]
            name = "bottleneck"
            between = ["router", "browser"]
            rate = "{KBIT} kbit/s"
            delay = "50 ms"
            queue = {{ kind = "droptail", limit = "100 packets" }}
            [[flow]]
            name = "page"
            kind = "messages"
            from = "server"
            to = "browser"
            preset = "authors"
            chunk = "{SEGMENT} B"
            congestion = "{}"
            coupled = "{}"
            messages = [{}]
            tcp = {{ mss = "{SEGMENT} B", unpaced-segments = {} }}
            "#,
            self.congestion,
            self.coupled,
            messages.join(", "),
            self.unpaced
        )
    }
}

impl crate::plan::Setup for Late {
    type Outcome = Loaded;

    kept_as_json!();

    fn cost(&self) -> u64 {
        1
    }

    fn seeds(&self) -> usize {
        1
    }

    fn run(&self, _: u64) -> Result<Loaded, SimulationError> {
        let outcome = lab::run(World::Virtual, &self.scenario())?;
        let flow = outcome.flows.first().ok_or(SimulationError::Missing("flow"))?;
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let mut loaded = Loaded { ratio: f64::NAN, page: 0.0 };
        for times in &flow.times {
            let alone = times.alone.ok_or(SimulationError::Missing("message"))?;
            let completed = alone.completed.ok_or(SimulationError::Missing("end of a message"))?;
            loaded.page = loaded.page.max(completed.as_secs_f64() * 1e3);
            if times.name == "p0" {
                loaded.ratio = ms(completed - alone.released) / Self::limit();
            }
        }
        Ok(loaded)
    }
}

/// Congestion control, and the pages with their times of P0.
type Arm = (&'static str, Vec<(u64, Ticket<Late>)>);

/// Completion of a late P0, and load of the whole page.
pub(super) fn page(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let mut arms: Vec<Arm> = Vec::new();
    for (id, congestion, unpaced) in SENDERS {
        for coupled in ["off", RULE] {
            let (from, to, step) = LATE;
            let times = (from..=to).step_by(if scale.claims { step } else { 10 * step });
            let late = times.map(|at| (at, plan.add(Late { congestion, unpaced, coupled, at })));
            arms.push((id, late.collect()));
        }
    }
    Box::new(move |runs: &Runs| {
        let mean = |late: &[(u64, Ticket<Late>)], from: u64, value: fn(&Loaded) -> f64| {
            let late = late.iter().filter(|&&(at, _)| at >= from);
            Mean::of(&late.map(|&(_, ticket)| runs.mean(ticket, value)).collect::<Vec<_>>()).value
        };
        let rows = arms.chunks(2).flat_map(|pair| {
            let [(congestion, plain), (_, coupled)] = pair else { return Vec::new() };
            let row = |id: &str, what: &str, unit, value| {
                let what = format!("Table I's page, {congestion}: {what}");
                Row::new(format!("coupled.page.{congestion}.{id}"), what, unit).measured(value)
            };
            let load = mean(coupled, 0, |it| it.page) / mean(plain, 0, |it| it.page);
            let claimed = [
                (
                    row("mean", "late P0 over its limit, after the third round trip", Unit::Ratio, {
                        mean(coupled, THIRD, |it| it.ratio)
                    }),
                    1.2,
                ),
                (row("load", "load of the page that it costs", Unit::Percent, 100.0 * (load - 1.0)), 1.0),
            ];
            let shown = [
                row(
                    "all",
                    "late P0 over its limit, at all times",
                    Unit::Ratio,
                    mean(coupled, 0, |it| it.ratio),
                ),
                row("plain", "the same without coupled mode", Unit::Ratio, mean(plain, 0, |it| it.ratio)),
            ];
            let claimed = claimed.map(|(row, most)| scale.claim(row, |row| row.at_most(most)));
            claimed.into_iter().chain(shown).collect()
        });
        let rows = rows.collect();
        Answer::new("Table I's page with a late P0", prose::text(include_str!("page.md")), rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Setup as _;

    #[test]
    fn a_late_p0_is_near_its_limit_in_coupled_mode_only() {
        let run = |coupled| Late { congestion: "cubic", unpaced: 0, coupled, at: 800 }.run(1).unwrap();
        let (plain, coupled) = (run("off"), run(RULE));
        // 8 kB in 8 segments, and one more: 9522 B.
        assert!((Late::limit() - (60.0 + 38.088)).abs() < 1e-9, "{}", Late::limit());
        assert!(coupled.ratio < 1.25 && plain.ratio > 2.0, "{coupled:?} {plain:?}");
        assert!(coupled.page < 1.01 * plain.page, "{coupled:?} {plain:?}");
    }
}
