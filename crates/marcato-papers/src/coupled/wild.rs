//! On paths as people have them: jitter, changing routes and rates, traffic on the way back, losses, and others.

use std::fmt::Write as _;

use marcato_report::{Percentile, Row, Unit};

use super::cell::{Cell, Path, Seen, tcp};
use super::{Plan, RULE, Ticket};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const PATH: Path = Path { mbit: 12, rtt: 45, bdp: 3.0 };

/// Seeds of each situation, beyond those of the command.
const SEEDS: u64 = 5;
/// Seconds measured.
const SECONDS: u64 = 100;
/// Largest share of the goodput, in percent, that a situation may cost; of jitter up to 10 ms, and of others.
pub(super) const MAX_COST_OF_JITTER: f64 = 1.5;
pub(super) const MAX_COST: f64 = 5.0;

/// Situation: its name, what it is in words, and the cell.
struct Situation {
    name: &'static str,
    what: &'static str,
    most: f64,
    cell: Cell,
}

/// Changes of the link, one each so many seconds: an even and an odd one in turn.
fn alternating(every: u64, until: u64, odd: &str, even: &str) -> String {
    let mut changes = String::from("changes = [");
    for (number, at) in (every..until).step_by(usize::try_from(every).unwrap_or(1)).enumerate() {
        let keys = if number % 2 == 0 { odd } else { even };
        // Writing to a string cannot fail.
        let _ = write!(changes, "{{ at = \"{at} s\", way = \"there\", {keys} }}, ");
    }
    changes + "]"
}

/// One change of the delay there, after 40 s.
fn step(micros: u64) -> String {
    format!(r#"changes = [{{ at = "40 s", way = "there", delay = "{micros} us" }}]"#)
}

/// All situations of a sender with this congestion control.
fn situations(congestion: &'static str, seconds: u64) -> Vec<Situation> {
    let cell = Cell {
        warm_up: marcato_units::Duration::from_secs(20),
        ..Cell::new(PATH, congestion, "off", seconds)
    };
    let end = seconds + 20;
    let link = |link: String| Cell { link, ..cell.clone() };
    let jitter = |keys: &str| link(format!("jitter = {{ {keys} }}"));
    let handover = |every| {
        let [odd, even] = [72_500, 22_500].map(|delay| format!(r#"delay = "{delay} us", reorder = false"#));
        link(alternating(every, end, &odd, &even))
    };
    let flows = |count, stagger| Cell { flows: (count, stagger), ..cell.clone() };
    let others = |others: String| Cell { others, ..cell.clone() };
    let of = |name, what, cell| {
        let is_jitter = matches!(name, "jitter-5" | "jitter-10");
        Situation { name, what, most: if is_jitter { MAX_COST_OF_JITTER } else { MAX_COST }, cell }
    };
    let udp = r#"
        [[flow]]
        name = "udp"
        kind = "udp"
        from = "sender"
        to = "receiver"
        rate = "6 Mbit/s"
        on = { kind = "exponential", mean = "1 s" }
        off = { kind = "exponential", mean = "1 s" }
        "#;
    let download = r#"
        [[flow]]
        name = "download"
        kind = "tcp"
        from = "receiver"
        to = "sender"
        tcp = { send-buffer = "1 MB" }
        "#;
    let steps = if end > 40 { [step(32_500), step(72_500)] } else { [const { String::new() }; 2] };
    let [ten, fifty] = steps;
    vec![
        of("constant", "a constant line", cell.clone()),
        of("jitter-5", "jitter up to 5 ms each way", jitter(r#"kind = "uniform", most = "5 ms""#)),
        of("jitter-10", "jitter up to 10 ms each way", jitter(r#"kind = "uniform", most = "10 ms""#)),
        of("jitter-20", "jitter up to 20 ms each way", jitter(r#"kind = "uniform", most = "20 ms""#)),
        of(
            "jitter-exponential",
            "exponential jitter of 3 ms",
            jitter(r#"kind = "exponential", mean = "3 ms""#),
        ),
        of("step-10", "the path becomes 10 ms longer", link(ten)),
        of("step-50", "the path becomes 50 ms longer", link(fifty)),
        of("handover-4", "the path becomes 50 ms longer or shorter each 4 s", handover(4)),
        of("handover-15", "the path becomes 50 ms longer or shorter each 15 s", handover(15)),
        of(
            "rate",
            "the rate is 3 or 12 Mbit/s, second by second",
            link(alternating(1, end, r#"rate = "3 Mbit/s""#, r#"rate = "12 Mbit/s""#)),
        ),
        of(
            "download",
            "a download queues acknowledgements on the way back",
            Cell {
                back: r#"rate = "50 Mbit/s", queue = { kind = "droptail", limit = "281250 B" }"#,
                others: download.into(),
                ..cell.clone()
            },
        ),
        of(
            "narrow-back",
            "a way back of 100 kbit/s",
            Cell {
                back: r#"rate = "100 kbit/s", queue = { kind = "droptail", limit = "100 packets" }"#,
                ..cell.clone()
            },
        ),
        of("ledbat", "a LEDBAT++ flow", others(tcp("ledbat++", 1))),
        of("udp", "UDP of 6 Mbit/s, on and off", others(udp.into())),
        of(
            "loss",
            "random losses of 0.1 %",
            Cell { loss: r#"{ kind = "random", probability = 0.001 }"#, ..cell.clone() },
        ),
        of(
            "loss-bursts",
            "losses of 0.2 % in bursts",
            Cell { loss: r#"{ kind = "gilbert-elliott", mean = 0.002, burst = 4 }"#, ..cell.clone() },
        ),
        of("fellows-2", "two coupled flows", flows(2, 0)),
        of("fellows-4", "four coupled flows", flows(4, 0)),
        of("fellows-8", "eight coupled flows", flows(8, 0)),
        of("fellows-4-late", "four coupled flows, one each 10 s", flows(4, 10_000)),
    ]
}

/// Runs of a situation without and with coupled mode, one for each seed.
struct Arms {
    congestion: &'static str,
    situation: Situation,
    plain: Vec<Ticket>,
    coupled: Vec<Ticket>,
}

/// Delay and goodput of each situation, beside the same without coupled mode.
pub(super) fn wild(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let (seeds, seconds) = if scale.claims { (SEEDS, SECONDS) } else { (1, scale.seconds) };
    let mut all = Vec::new();
    for congestion in ["cubic", "bbr"] {
        for situation in situations(congestion, seconds) {
            let mut add = |coupled| -> Vec<Ticket> {
                let cell = |seeds_from| Cell { coupled, seeds_from, ..situation.cell.clone() };
                (0..seeds).map(|seeds_from| plan.add(cell(seeds_from))).collect()
            };
            let (plain, coupled) = (add("off"), add(RULE));
            all.push(Arms { congestion, situation, plain, coupled });
        }
    }
    Box::new(move |runs: &Runs| {
        let rows = all.iter().flat_map(|Arms { congestion, situation, plain, coupled }| {
            let each = |tickets: &[Ticket], value: &dyn Fn(&Seen) -> f64| -> Vec<f64> {
                tickets.iter().flat_map(|&ticket| runs.each(ticket, value)).collect()
            };
            let id = |of: &str| format!("coupled.wild.{}.{congestion}.{of}", situation.name);
            let what = |of: &str| format!("{of}, {}, {congestion}", situation.what);
            let ratio = |of: &str, words: &str, tickets: &[Ticket], percentile| {
                let values = each(tickets, &|seen| seen.percentile(percentile));
                Row::new(id(of), what(words), Unit::Ratio).samples(&values)
            };
            let goodput = each(plain, &|seen| seen.sum());
            let with = each(coupled, &|seen| seen.sum());
            let costs: Vec<f64> =
                goodput.iter().zip(with).map(|(plain, coupled)| 100.0 * (1.0 - coupled / plain)).collect();
            let cost = Row::new(id("cost"), what("goodput that it costs"), Unit::Percent).samples(&costs);
            let compete = each(coupled, &|seen| seen.compete);
            [
                ratio("p50", "median over the limit", coupled, Percentile::P50),
                ratio("p99", "99 % over the limit", coupled, Percentile::P99),
                ratio("plain.p50", "median without coupled mode", plain, Percentile::P50),
                ratio("plain.p99", "99 % without coupled mode", plain, Percentile::P99),
                scale.claim(cost, |row| row.at_most(situation.most)),
                Row::new(id("compete"), what("time without a cap"), Unit::Percent).samples(&compete),
            ]
        });
        Answer::new("On paths as people have them", prose::text(include_str!("wild.md")), rows.collect())
    })
}
