//! Fig. 5: flow completion times of flows that compete with unresponsive traffic, with and without
//! CRQ.

use marcato_queue::trap::Signal;
use marcato_report::chart::HeatMap;
use marcato_report::{Figure, Mean, Row, Section, Unit};
use marcato_units::{Bytes, Duration};

use super::published::{Control, EACH, FIGURE_5, FIGURE_5_MULTI, FLOWS, Pair, RTTS, SINGLE, SMALL, Stack};
use super::scale::{Plan, Scale, Ticket, scores, words};
use super::scene::{self, BASELINE_CARRIES, Column, RULES};
use super::setup::{FRAMING, Setup, Transferred};
use super::testbed::{Testbed, WIRE};
use super::watched::Preset;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// A cell of Fig. 5 in one column.
#[derive(Clone, Copy)]
struct Cell {
    pair: Pair,
    rtt: Duration,
    /// Stack of the single flow; `None` for many flows together.
    stack: Option<Stack>,
    column: Column,
    paper: f64,
    baseline: Ticket,
    crq: Ticket,
    at_most: Duration,
}

impl Cell {
    fn id(&self) -> String {
        let row = self.stack.map_or("multi", Stack::id);
        format!("crq.fig5.{}.{}.{row}.{}", self.pair.id(), self.rtt.as_millis(), self.column.id())
    }

    fn name(&self) -> String {
        let row = self.stack.map_or("20 flows", Stack::name);
        format!("{}, {} ms, {row}, {}", self.pair.name(), self.rtt.as_millis(), self.column.id())
    }

    fn signal(&self) -> Signal {
        if self.pair == Pair::Ecn { Signal::Ecn } else { Signal::Loss }
    }

    fn score(&self, runs: &Runs) -> f64 {
        Mean::of(&scores(runs, self.baseline, self.crq, self.at_most)).value
    }

    fn is_quic(&self) -> bool {
        self.stack.is_some_and(Stack::is_quic)
    }

    /// Returns true if the paper's value is large enough for its sign to count.
    fn is_large(&self) -> bool {
        self.paper.abs() >= SMALL
    }

    /// Mean completion time in ms, of the baseline or with CRQ.
    fn fct(&self, runs: &Runs, ticket: Ticket) -> Vec<f64> {
        runs.each(ticket, |outcome| {
            let sum: f64 = outcome.transfers.iter().map(|it| it.ms(self.at_most)).sum();
            sum / outcome.transfers.len() as f64
        })
    }

    /// Mean share of the flows' cycles in which CRQ called them responsive, in %.
    fn responsive(&self, runs: &Runs) -> Vec<f64> {
        runs.each(self.crq, |outcome| {
            let sum: f64 = outcome.transfers.iter().map(|it| it.responsive(self.signal())).sum();
            sum / outcome.transfers.len() as f64
        })
    }

    /// Mean number of times that a flow changed its queue.
    fn changes(&self, runs: &Runs) -> Vec<f64> {
        runs.each(self.crq, |outcome| {
            let changes = |it: &Transferred| it.report.map_or(0.0, |report| f64::from(report.changes));
            outcome.transfers.iter().map(changes).sum::<f64>() / outcome.transfers.len() as f64
        })
    }

    fn rows(&self, runs: &Runs) -> Vec<Row> {
        let (id, name) = (self.id(), self.name());
        let more = |what: &str, why: &str, unit, values: &[f64]| {
            Row::new(format!("{id}.{what}"), format!("{why}, {name}"), unit).samples(values)
        };
        vec![
            Row::new(id.clone(), format!("FCT score, {name}"), Unit::Ratio)
                .paper(self.paper)
                .samples(&scores(runs, self.baseline, self.crq, self.at_most))
                .unclaimed_because(match self.column {
                    Column::Clean => CLEAN,
                    Column::Artefacts => SIGNS,
                }),
            more("baseline", "completion without CRQ", Unit::Ms, &self.fct(runs, self.baseline)),
            more("crq", "completion with CRQ", Unit::Ms, &self.fct(runs, self.crq)),
            more("changes", "times that a flow changed its queue", Unit::Count, &self.changes(runs)),
            more("responsive", "cycles that CRQ called responsive", Unit::Percent, &self.responsive(runs)),
        ]
    }
}

/// All cells of a column by a set of rules, with at most `seeds` seeds. By rules other than the
/// figure's, QUIC is left out: nothing is claimed of it, and its runs take long.
fn cells(plan: &mut Plan, column: Column, rules: Preset, seeds: usize) -> Vec<Cell> {
    let scale = plan.scale;
    let mut cells = Vec::new();
    for (place, pair) in Pair::ALL.into_iter().enumerate() {
        for (at, rtt) in RTTS.into_iter().enumerate() {
            let from = scale.udp_from(rtt);
            let (b, c) = (scene::baseline(pair, rtt, column), scene::against(pair, rtt, column, rules));
            let c = Setup { seeds, ..c };
            let at_most = b.at_most;
            let stacks = Stack::ALL.into_iter().zip(FIGURE_5);
            for (stack, paper) in stacks.filter(|(stack, _)| rules == RULES || !stack.is_quic()) {
                let [baseline, crq] = [&b, &c]
                    .map(|setup| plan.add(scene::single(setup.clone(), stack, scale.bytes(SINGLE), from)));
                let paper = paper[2 * place + at];
                cells.push(Cell { pair, rtt, stack: Some(stack), column, paper, baseline, crq, at_most });
            }
            let [baseline, crq] =
                [b, c].map(|setup| plan.add(scene::multi(setup, FLOWS, scale.bytes(EACH), from)));
            let paper = FIGURE_5_MULTI[2 * place + at];
            cells.push(Cell { pair, rtt, stack: None, column, paper, baseline, crq, at_most });
        }
    }
    cells
}

/// Fig. 5, in both columns: FCT scores, with the completion times and the state of CRQ behind them.
pub(super) fn figure_5(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let (claims, signs) = (scale.claims, scale.signs);
    let columns = Column::ALL.map(|column| cells(plan, column, RULES, usize::MAX));
    Box::new(move |runs: &Runs| {
        let mut rows: Vec<Row> = columns.iter().flatten().flat_map(|cell| cell.rows(runs)).collect();
        for (cells, column) in columns.iter().zip(Column::ALL) {
            let checked = column == Column::Artefacts;
            rows.extend(checks(runs, cells, column, claims && checked, signs && checked));
        }
        let given_up = columns.iter().flatten().flat_map(|cell| [cell.baseline, cell.crq]).map(|ticket| {
            let missing = |outcome: &super::setup::Outcome| {
                outcome.transfers.iter().filter(|it| it.fct.is_none()).count() as f64
            };
            runs.each(ticket, missing).iter().sum::<f64>()
        });
        let what = "transfers given up after 900 s, which count as if they had ended then";
        rows.push(Row::new("crq.fig5.given-up", what, Unit::Count).measured(given_up.sum()));
        rows.push(skipped(runs, columns.iter().flatten()));
        let mut answer = Answer::new("Fig. 5: completion beside unresponsive traffic", "", rows);
        for (cells, column) in columns.iter().zip(Column::ALL) {
            answer.section = answer.section.figure(picture(runs, cells, column, RULES));
        }
        answer.section = paper(answer.section);
        answer.section = explained(answer.section, runs, &columns[0], scale);
        answer
    })
}

/// Fig. 5 by the other sets of rules, without claims.
pub(super) fn presets(plan: &mut Plan) -> Ask {
    let others = [Preset::Paper, Preset::Marcato];
    let all = others.map(|rules| (rules, Column::ALL.map(|column| cells(plan, column, rules, 1))));
    Box::new(move |runs: &Runs| {
        let mut rows = Vec::new();
        let mut figures = Vec::new();
        for (rules, columns) in &all {
            let what = |row: &Row| format!("{}, {} rules", row.what(), rules.id());
            for (cells, column) in columns.iter().zip(Column::ALL) {
                for cell in cells {
                    let id = format!("{}.{}", cell.id(), rules.id());
                    let name = format!("FCT score, {}, {} rules", cell.name(), rules.id());
                    let scores = scores(runs, cell.baseline, cell.crq, cell.at_most);
                    let row = Row::new(id, name, Unit::Ratio).paper(cell.paper).samples(&scores);
                    rows.push(row.unclaimed_because(OTHER_RULES));
                }
                let of_quic = |row: &Row| ["small.", "quic-"].iter().any(|it| row.id().contains(it));
                for row in checks(runs, cells, column, false, false).into_iter().filter(|row| !of_quic(row)) {
                    let id = format!("{}.{}", row.id(), rules.id());
                    let value = row.measured_value().unwrap_or(f64::NAN);
                    rows.push(Row::new(id, what(&row), Unit::Count).measured(value));
                }
                figures.push(picture(runs, cells, column, *rules));
            }
        }
        let answer =
            Answer::new("Fig. 5 by other rules", prose::text(include_str!("figure5-presets.md")), rows);
        Answer { section: figures.into_iter().fold(answer.section, Section::figure), ..answer }
    })
}

/// Transfer of a run, and the start of UDP, in words.
fn text(scale: Scale) -> String {
    let [first, second] = RTTS.map(|rtt| scale.udp_from(rtt).as_secs_f64());
    let from = if first == second { format!("{first} s") } else { format!("{first} or {second} s") };
    prose::text(&format!(
        include_str!("figure5.md"),
        single = words(scale.bytes(SINGLE)),
        from = from,
        each = words(scale.bytes(EACH)),
    ))
}

/// Reason for claiming nothing about single scores.
const SIGNS: &str = "the signs of Fig. 5 are checked together (crq.fig5.signs.artefacts); the size of a \
    score depends on machines of the testbed about which little is known";

/// Reason for claiming nothing about the column without the testbed.
const CLEAN: &str = "the column `clean` is what the paper's text describes, but its figure was made in the testbed, which the \
    column `artefacts` models";

/// Reason for claiming nothing about other rules.
const OTHER_RULES: &str = "the paper's figure was made by the authors' rules";

/// Returns true if two scores have the same sign.
fn agree(paper: f64, measured: f64) -> bool {
    paper * measured > 0.0
}

/// Rows that count the cells of a column that agree with the paper.
fn checks(runs: &Runs, cells: &[Cell], column: Column, claims: bool, signs_claimed: bool) -> Vec<Row> {
    let count = |of: &dyn Fn(&Cell) -> bool| cells.iter().filter(|cell| of(cell)).count() as f64;
    let row = |id: &str, what: &str, value: f64, least: f64, claims: bool| {
        let id = format!("crq.fig5.{id}.{}", column.id());
        let row = Row::new(id, format!("{what}, {}", column.id()), Unit::Count).measured(value);
        if claims { row.at_least(least) } else { row }
    };
    let agrees = |cell: &Cell| agree(cell.paper, cell.score(runs));
    let is_cubic = |cell: &Cell| {
        matches!(cell.stack, Some(Stack::OneWay(Control::Cubic) | Stack::BothWays(Control::Cubic)))
    };
    let signs = count(&|cell| !cell.is_quic() && cell.is_large() && agrees(cell));
    let quic = count(&|cell| cell.is_quic() && cell.is_large() && agrees(cell));
    let small = count(&|cell| !cell.is_large() && cell.score(runs).abs() <= 0.2);
    let small_tcp = count(&|cell| !cell.is_quic() && !cell.is_large() && cell.score(runs).abs() <= 0.2);
    let cubic = count(&|cell| is_cubic(cell) && cell.score(runs) > 0.0);
    let multi = count(&|cell| cell.stack.is_none() && cell.score(runs) > 0.0);
    let mut rows = vec![
        row(
            "signs",
            "of 33 cells of TCP and of 20 flows that are 0.1 or more: same sign as the paper",
            signs,
            28.0,
            signs_claimed,
        ),
        row("small", "of 11 cells that are below 0.1: within 0.2 of 0", small, 11.0, claims),
        row("cubic", "of 16 cells of TCP CUBIC: positive", cubic, 16.0, claims),
        row("multi", "of 8 cells of 20 flows: positive", multi, 8.0, claims),
    ];
    rows.push(row("small-tcp", "of 7 of those that are TCP's: the same", small_tcp, 0.0, false));
    let what = format!("of 12 cells of QUIC that are 0.1 or more: same sign as the paper, {}", column.id());
    rows.push(Row::new(format!("crq.fig5.quic-signs.{}", column.id()), what, Unit::Count).measured(quic));
    rows
}

/// Row with the number of connections that were skipped.
fn skipped<'a>(runs: &Runs, cells: impl Iterator<Item = &'a Cell>) -> Row {
    let quic: Vec<f64> = cells
        .filter(|cell| cell.is_quic())
        .take(1)
        .flat_map(|cell| runs.each(cell.crq, |outcome| outcome.skipped as f64))
        .collect();
    let what = "connections skipped before one whose spin bit spins, in single runs of QUIC";
    Row::new("crq.quic.skipped", what, Unit::Count).samples(&quic)
}

fn map(title: &str, value: impl Fn(Option<Stack>, Pair, Duration) -> f64, published: bool) -> HeatMap {
    let columns: Vec<_> = Pair::ALL.iter().flat_map(|&pair| RTTS.map(|rtt| (pair, rtt))).collect();
    let names = columns.iter().map(|(pair, rtt)| (pair.name().to_owned(), format!("{} ms", rtt.as_millis())));
    let map = HeatMap::new(title, -1.0, 1.0).columns(names);
    let stacks = Stack::ALL.into_iter().map(Some).chain([None]);
    stacks.fold(map, |map, stack| {
        let values: Vec<f64> = columns.iter().map(|&(pair, rtt)| value(stack, pair, rtt)).collect();
        let map = map.row(stack.map_or("20 flows", Stack::name), values);
        if published { map.paper(columns.iter().map(|&(pair, rtt)| printed(stack, pair, rtt))) } else { map }
    })
}

fn picture(runs: &Runs, cells: &[Cell], column: Column, rules: Preset) -> Figure {
    let find = |stack, pair, rtt| {
        let cell = cells.iter().find(|cell| (cell.stack, cell.pair, cell.rtt) == (stack, pair, rtt));
        cell.map_or(f64::NAN, |cell| cell.score(runs))
    };
    let mut name = column.id().to_owned();
    if rules != RULES {
        name = format!("{name}-{}", rules.id());
    }
    let map = map(&format!("FCT score, {name}"), find, true);
    Figure::new(
        format!("fig5-{name}"),
        map,
        "Blue: CRQ helps; orange: CRQ harms. The paper's score is below each, in brackets.",
    )
}

/// The paper's figure in the same colours.
fn paper(section: Section) -> Section {
    let map = map("FCT score, as printed", printed, false);
    section.figure(Figure::new("fig5-paper", map, "Fig. 5 of the paper."))
}

/// Value of a cell of the paper's figure.
fn printed(stack: Option<Stack>, pair: Pair, rtt: Duration) -> f64 {
    let at = 2 * Pair::ALL.iter().position(|&other| other == pair).unwrap_or(0) + usize::from(rtt == RTTS[1]);
    let row = stack.and_then(|stack| Stack::ALL.iter().position(|&other| other == stack));
    row.map_or(FIGURE_5_MULTI[at], |row| FIGURE_5[row][at])
}

/// Appends to the text what was measured in each cell that disagrees.
fn explained(section: Section, runs: &Runs, cells: &[Cell], scale: Scale) -> Section {
    let about = text(scale);
    let reasons = prose::text(include_str!("figure5-reasons.md"));
    let mut text = format!(
        "{about}\n\n{reasons}\n\nCells of the column `artefacts` whose sign is not the paper's, or that are small there and not here:"
    );
    let disagrees = |cell: &&Cell| {
        let score = cell.score(runs);
        if cell.is_large() { !agree(cell.paper, score) } else { score.abs() > 0.2 }
    };
    let disagreeing: Vec<&Cell> = cells.iter().filter(disagrees).collect();
    for cell in &disagreeing {
        let mean = |values: Vec<f64>| Mean::of(&values).value;
        let seconds = |ticket| mean(cell.fct(runs, ticket)) / 1e3;
        text.push_str(&format!(
            " {}: {:.2} for {:.2}, {:.1} s without CRQ and {:.1} s with, responsive in {:.0} % of its cycles;",
            cell.name(),
            cell.score(runs),
            cell.paper,
            seconds(cell.baseline),
            seconds(cell.crq),
            mean(cell.responsive(runs)),
        ));
    }
    if disagreeing.is_empty() {
        text.push_str(" none.");
    } else {
        text.pop();
        text.push('.');
    }
    section.text(text)
}

/// Effect of the drop-tail baseline's shaper on Fig. 5.
pub(super) fn shaper(plan: &mut Plan) -> Ask {
    const CARRIES: [u64; 4] = [BASELINE_CARRIES, 780, 850, 950];
    let scale = plan.scale;
    let stacks = [Stack::OneWay(Control::Bbr), Stack::OneWay(Control::Cubic)];
    let alone = CARRIES.map(|mbps| {
        let setup = scene::baseline(Pair::DropTail, RTTS[0], Column::Clean);
        let setup = Setup { wakes_late: scene::lateness(mbps, FRAMING), ..setup };
        let by = super::setup::Responder::Stack(Stack::OneWay(Control::Cubic));
        (mbps, plan.add(setup.transfer(by, scale.bytes(SINGLE), 0)))
    });
    let mut cells = Vec::new();
    for mbps in CARRIES {
        for rtt in RTTS {
            for stack in stacks {
                let from = scale.udp_from(rtt);
                let b = scene::baseline(Pair::DropTail, rtt, Column::Artefacts);
                let seeds = if mbps == BASELINE_CARRIES { usize::MAX } else { 1 };
                let b = Setup { wakes_late: scene::lateness(mbps, WIRE), seeds, ..b };
                let at_most = b.at_most;
                let c = scene::against(Pair::DropTail, rtt, Column::Artefacts, RULES);
                let [b, c] =
                    [b, c].map(|setup| plan.add(scene::single(setup, stack, scale.bytes(SINGLE), from)));
                cells.push((mbps, rtt, stack, b, c, at_most));
            }
        }
    }
    Box::new(move |runs: &Runs| {
        let goodput = |ticket: Ticket| {
            runs.each(ticket, |outcome| {
                let it = outcome.transfers.first();
                it.map_or(f64::NAN, |it| it.bytes.get() as f64 * 8e-3 / it.ms(Duration::MAX))
            })
        };
        let mut rows: Vec<Row> = alone
            .iter()
            .map(|&(mbps, ticket)| {
                let what = format!("a lone TCP CUBIC flow through the shaper that is to carry {mbps}");
                Row::new(format!("crq.shaper.{mbps}"), what, Unit::MbitPerS).samples(&goodput(ticket))
            })
            .collect();
        for &(mbps, rtt, stack, b, c, at_most) in &cells {
            let id = format!("crq.shaper.{mbps}.{}.{}", rtt.as_millis(), stack.id());
            let what = format!(
                "FCT score, {}, {} ms, {}, the baseline's shaper carries {mbps}",
                Pair::DropTail.name(),
                rtt.as_millis(),
                stack.name()
            );
            rows.push(Row::new(id, what, Unit::Ratio).samples(&scores(runs, b, c, at_most)));
        }
        let size = words(scale.bytes(SINGLE));
        let text = prose::text(&format!(include_str!("figure5-shaper.md"), size = size));
        Answer::new("Effect of the baseline's shaper on Fig. 5", text, rows)
    })
}

/// Effect of the switch before the box on Fig. 5.
pub(super) fn switch(plan: &mut Plan) -> Ask {
    let scale = plan.scale;
    let mut cells = Vec::new();
    for kb in [48, 64, 96, 192] {
        for rtt in RTTS {
            for stack in [Stack::OneWay(Control::Bbr), Stack::OneWay(Control::Cubic)] {
                let from = scale.udp_from(rtt);
                let b = scene::baseline(Pair::Drop, rtt, Column::Artefacts);
                let at_most = b.at_most;
                let c = scene::against(Pair::Drop, rtt, Column::Artefacts, RULES);
                let [b, c] = [b, c].map(|setup| {
                    let testbed = Testbed { port_buffer: Bytes::kb(kb), ..Testbed::AUTHORS };
                    let seeds = if testbed == Testbed::AUTHORS { usize::MAX } else { 1 };
                    let setup = Setup { testbed: Some(testbed), seeds, ..setup };
                    plan.add(scene::single(setup, stack, scale.bytes(SINGLE), from))
                });
                cells.push((kb, rtt, stack, b, c, at_most));
            }
        }
    }
    Box::new(move |runs: &Runs| {
        let rows = cells.iter().flat_map(|&(kb, rtt, stack, b, c, at_most)| {
            let id = format!("crq.switch.{kb}.{}.{}", rtt.as_millis(), stack.id());
            let name = format!("CoDel, drop, {} ms, {}, a switch of {kb} kB", rtt.as_millis(), stack.name());
            let baseline = runs.each(b, |outcome| outcome.transfers.iter().map(|it| it.ms(at_most)).sum());
            [
                Row::new(id.clone(), format!("FCT score, {name}"), Unit::Ratio)
                    .samples(&scores(runs, b, c, at_most)),
                Row::new(format!("{id}.baseline"), format!("completion without CRQ, {name}"), Unit::Ms)
                    .samples(&baseline),
            ]
        });
        let text = prose::text(include_str!("figure5-switch.md"));
        Answer::new("Effect of the switch on Fig. 5", text, rows.collect::<Vec<_>>())
    })
}
