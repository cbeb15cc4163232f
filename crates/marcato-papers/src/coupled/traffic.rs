//! Beside short flows and packets that respond to nothing; over a link that loses packets at random; and with
//! support of the network.

use marcato_report::{Percentile, Row, Unit};

use super::cell::{Cell, Path};
use super::{Plan, RULE, Scale, Ticket};
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

const PATH: Path = Path { mbit: 10, rtt: 40, bdp: 4.0 };

/// Rows of a cell: times without and with coupled mode, and the share of goodput.
fn rows(runs: &Runs, name: &str, what: &str, arms: [Ticket; 2], most: Option<f64>) -> Vec<Row> {
    let [plain, coupled] = arms;
    let id = |of: &str| format!("coupled.{name}.{of}");
    let ratio = |of: &str, words: &str, ticket, percentile| {
        let samples = runs.each(ticket, |seen: &super::cell::Seen| seen.percentile(percentile));
        Row::new(id(of), format!("{words} over the limit, {what}"), Unit::Ratio).samples(&samples)
    };
    let before = runs.mean(plain, |seen| seen.sum());
    let share = runs.each(coupled, |seen| seen.sum() / before);
    let p50 = ratio("p50", "median", coupled, Percentile::P50);
    vec![
        most.into_iter().fold(p50, Row::at_most),
        ratio("p99", "99 %", coupled, Percentile::P99),
        ratio("plain.p50", "median without coupled mode", plain, Percentile::P50),
        ratio("plain.p99", "99 % without coupled mode", plain, Percentile::P99),
        Row::new(id("share"), format!("goodput over plain's, {what}"), Unit::Ratio).samples(&share),
    ]
}

fn arms(plan: &mut Plan, cell: &Cell) -> [Ticket; 2] {
    ["off", RULE].map(|coupled| plan.add(Cell { coupled, ..cell.clone() }))
}

/// Short TCP flows at a part of the link's rate, and UDP.
pub(super) fn cross(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let cell = Cell::new(PATH, "cubic", "off", scale.seconds);
    let mut all = Vec::new();
    for load in [20, 50, 80] {
        let others = format!(
            r#"
            [[flow]]
            name = "short"
            kind = "tcp-process"
            from = "sender"
            to = "receiver"
            load = "{} kbit/s"
            size = {{ kind = "pareto", shape = 1.5, mean = "24 kB", most = "10 MB" }}
            most-open = 10000
            "#,
            100 * load
        );
        // At higher loads others fill the queue, which only the network can prevent.
        let most = (load == 20).then_some(2.0);
        let what = format!("short flows at {load} % of the link");
        all.push((format!("short.{load}"), what, arms(plan, &Cell { others, ..cell.clone() }), most));
    }
    for load in [30, 50] {
        let others = format!(
            r#"
            [[flow]]
            name = "udp"
            kind = "udp"
            from = "sender"
            to = "receiver"
            rate = "{} kbit/s"
            arrivals = "poisson"
            "#,
            100 * load
        );
        let what = format!("Poisson UDP at {load} % of the link");
        all.push((format!("udp.{load}"), what, arms(plan, &Cell { others, ..cell.clone() }), Some(1.7)));
    }
    Box::new(move |runs: &Runs| {
        let rows = all.iter().flat_map(|(id, what, tickets, most)| {
            rows(runs, id, what, *tickets, most.filter(|_| scale.claims))
        });
        Answer::new("Beside other traffic", prose::text(include_str!("cross.md")), rows.collect())
    })
}

/// Random losses of the wire: one packet of two thousand, which are about fifty in a full run.
pub(super) fn loss(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let all = super::cell::CONTROLS.map(|congestion| {
        let cell = Cell {
            loss: r#"{ kind = "random", probability = 0.0005 }"#,
            ..Cell::new(PATH, congestion, "off", scale.seconds)
        };
        (congestion, arms(plan, &cell))
    });
    Box::new(move |runs: &Runs| {
        let rows = all.iter().flat_map(|(congestion, tickets)| {
            let what = format!("{congestion} with random losses of 0.05 %");
            rows(runs, &format!("loss.{congestion}"), &what, *tickets, None)
        });
        Answer::new("With random losses", prose::text(include_str!("loss.md")), rows.collect())
    })
}

/// Background data on a connection of its own in the low class of a strict queue, and urgent data in the high
/// class, whose window is kept in pauses or not.
struct Layers {
    warm: Ticket,
    cold: Ticket,
    /// All data on one connection through a drop-tail queue.
    plain: Ticket,
}

impl Layers {
    fn add(plan: &mut Plan) -> Self {
        let plain = Cell::new(PATH, "cubic", "off", plan.scale.seconds);
        let class = PATH.droptail();
        // Its name makes it one of ours, so that its goodput counts.
        let background = r#"
            [[flow]]
            name = "ours-background"
            kind = "tcp"
            from = "sender"
            to = "receiver"
            layer = "low"
            tcp = { send-buffer = "64 MB", receive-buffer = "64 MB" }
        "#;
        let cold = Cell {
            queue: format!(r#"{{ kind = "strict", high = {class}, low = {class} }}"#),
            bulk: false,
            others: background.into(),
            ..plain.clone()
        };
        // RFC 5681 §4.1 has a sender return to the initial window of ten segments; a message has fourteen.
        let warm = Cell { keys: ", slow-start-after-idle = false", ..cold.clone() };
        Self { warm: plan.add(warm), cold: plan.add(cold), plain: plan.add(plain) }
    }

    fn rows(&self, runs: &Runs, scale: Scale) -> Vec<Row> {
        let id = |of: &str| format!("coupled.support.layers.{of}");
        let ratio = |of: &str, words: &str, ticket, percentile| {
            let samples = runs.each(ticket, |seen: &super::cell::Seen| seen.percentile(percentile));
            Row::new(id(of), format!("{words} over the limit, two layers"), Unit::Ratio).samples(&samples)
        };
        let before = runs.mean(self.plain, |seen| seen.sum());
        let share = runs.each(self.warm, |seen| seen.sum() / before);
        let p50 = ratio("p50", "median with a warm window", self.warm, Percentile::P50);
        vec![
            scale.claim(p50, |row| row.at_most(1.05)),
            ratio("p99", "99 % with a warm window", self.warm, Percentile::P99),
            ratio("cold.p50", "median with a cold window", self.cold, Percentile::P50),
            ratio("cold.p99", "99 % with a cold window", self.cold, Percentile::P99),
            Row::new(id("share"), "goodput over plain's, two layers", Unit::Ratio).samples(&share),
        ]
    }
}

/// Queues that help: one for each flow, one that marks early, and one with two classes.
pub(super) fn support(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let cell = Cell::new(PATH, "cubic", "off", scale.seconds);
    let fq = Cell { queue: r#""fq-codel""#.into(), ..cell.clone() };
    let marking = Cell {
        queue: r#"{ kind = "step-mark", threshold = "2 ms", limit = "400 kB" }"#.into(),
        congestion: "dctcp",
        keys: ", ecn = true",
        ..cell.clone()
    };
    let beside = Cell { others: super::cell::tcp("cubic", 1), ..fq.clone() };
    let all = [
        ("support.fq-codel", "FQ-CoDel", arms(plan, &fq)),
        ("support.fq-codel-beside", "FQ-CoDel beside a CUBIC flow", arms(plan, &beside)),
        ("support.marking", "DCTCP with marks at 2 ms", arms(plan, &marking)),
    ];
    let layers = Layers::add(plan);
    Box::new(move |runs: &Runs| {
        let rows = all.iter().flat_map(|(id, what, tickets)| rows(runs, id, what, *tickets, None));
        let rows = rows.chain(layers.rows(runs, scale)).collect();
        Answer::new("With support of the network", prose::text(include_str!("support.md")), rows)
    })
}
