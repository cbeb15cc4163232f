//! The page over the kernel's TCP: questions of CATS in a lab, beside their simulation.

use marcato_report::Row;
use marcato_sim::Congestion;

use super::path::Path;
use super::{interactive, late, net, tables};
use crate::answer::Answer;
use crate::error::SimulationError;

type Question = fn(&Path, u64) -> Result<Answer, SimulationError>;

/// Questions with their titles, in the order of the report. Schemes in use today are not among them:
/// their HTTP/1.1 waits for acknowledgements, which a kernel does not report.
const QUESTIONS: &[(&str, Question)] = &[
    ("Table I, Fig. 2 and Fig. 3", tables::table1_on),
    ("Table I by marcato-net", net::table1_on),
    ("Table II", tables::table2_on),
    ("late urgent data", late::late_on),
    ("keystrokes", interactive::interactive_on),
];

/// Text of each question.
const TEXT: &str = "The same applications over the kernel's TCP, across links of the lab. Beside each value is that of \
    the simulator. Segments carry no option with a priority.";

/// Congestion control of the kernel, with the mark of its rows' ids.
struct Stack {
    mark: &'static str,
    name: &'static str,
    congestion: Congestion,
    /// Set if it is the authors', whose numbers the paper prints.
    is_published: bool,
}

const STACKS: [Stack; 2] = [
    Stack { mark: "", name: "BBR", congestion: Congestion::Bbr, is_published: true },
    Stack { mark: "@cubic", name: "CUBIC", congestion: Congestion::CUBIC, is_published: false },
];

/// Number of questions of a quick run: Table I, twice.
pub(super) const QUICK: usize = 2;
/// Number of questions of all congestion controls.
pub(super) const COUNT: usize = QUESTIONS.len() * STACKS.len();

/// Title of a question.
pub(super) fn title(number: usize) -> String {
    let (question, _) = QUESTIONS[number % QUESTIONS.len()];
    format!("{question}, {} of the kernel", STACKS[number / QUESTIONS.len()].name)
}

/// Answers a question in virtual time and in a lab. Its rows are those of virtual time, with both
/// values. The bands of virtual time say nothing about a kernel, so rows claim nothing; but the lab
/// must show what the paper is about: urgent groups leave first.
pub(super) fn answer(number: usize, seed: u64) -> Result<Answer, SimulationError> {
    let (_, question) = QUESTIONS[number % QUESTIONS.len()];
    let stack = &STACKS[number / QUESTIONS.len()];
    let path = Path::authors().with_tcp(|tcp| tcp.congestion = stack.congestion.clone());
    let simulated = question(&path, seed)?;
    let real = question(&path.in_lab(), seed)?;
    let virtual_of = |row: &Row| {
        let same = simulated.rows.iter().find(|other| other.id() == row.id());
        same.and_then(Row::measured_value)
    };
    let rows = real.rows.iter().map(|row| {
        let what = format!("{}, {} of the kernel", row.what(), stack.name);
        let made = Row::new(marked(row.id(), stack.mark), what, row.unit());
        let made = row.measured_value().into_iter().fold(made, Row::measured);
        let made = virtual_of(row).into_iter().fold(made, Row::virtual_);
        let paper = row.paper_value().filter(|_| stack.is_published);
        paper.into_iter().fold(made, Row::paper)
    });
    let rows: Vec<Row> = rows.chain(urgent_first(&real.rows, stack)).collect();
    let mut answer = Answer::new(&title(number), TEXT, rows);
    let figures = real.section.into_figures().into_iter();
    let figures = figures.map(|figure| {
        let id = format!("{}-{}", figure.id(), stack.name.to_lowercase());
        figure.renamed(id)
    });
    answer.section = figures.fold(answer.section, marcato_report::Section::figure);
    Ok(answer)
}

/// Id with the mark of a congestion control behind its question: `cats.table1@cubic.fifo.p0`.
fn marked(id: &str, mark: &str) -> String {
    let end = id.match_indices('.').nth(1).map_or(id.len(), |(at, _)| at);
    format!("{}{mark}{}", &id[..end], &id[end..])
}

/// Returns whether CATS has delivered the groups of the page in the order of their priorities, and P0
/// before FIFO did, if these rows are those of Table I.
fn urgent_first(rows: &[Row], stack: &Stack) -> Option<Row> {
    let value = |id: String| rows.iter().find(|row| row.id() == id).and_then(Row::measured_value);
    let group = |scheme: &str, group: usize| value(format!("cats.table1.{scheme}.p{group}"));
    let cats: Vec<f64> = (0..5).map(|number| group("cats", number)).collect::<Option<_>>()?;
    let held = cats.is_sorted() && cats[0] < group("fifo", 0)?;
    let what = format!("CATS delivers groups by priority, and P0 before FIFO, {} of the kernel", stack.name);
    Some(Row::verdict(marked("cats.table1.order", stack.mark), what, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_behind_the_question() {
        assert_eq!(marked("cats.table1.fifo.p0", "@cubic"), "cats.table1@cubic.fifo.p0");
        assert_eq!(marked("cats.firstbyte", "@cubic"), "cats.firstbyte@cubic");
        assert_eq!(marked("cats.table1.fifo.p0", ""), "cats.table1.fifo.p0");
    }

    #[test]
    fn the_order_is_a_claim_about_the_lab() {
        let rows = |cats: [f64; 5], fifo: f64| -> Vec<Row> {
            let row = |id: String, value| Row::new(id, "", marcato_report::Unit::Ms).measured(value);
            let cats = cats.into_iter().enumerate();
            let cats = cats.map(|(group, value)| row(format!("cats.table1.cats.p{group}"), value));
            cats.chain([row("cats.table1.fifo.p0".into(), fifo)]).collect()
        };
        let held = |rows: &[Row]| urgent_first(rows, &STACKS[0]).unwrap().measured_value();
        assert_eq!(held(&rows([1.0, 2.0, 3.0, 4.0, 5.0], 5.0)), Some(1.0));
        assert_eq!(held(&rows([1.0, 3.0, 2.0, 4.0, 5.0], 5.0)), Some(0.0), "P2 before P1");
        assert_eq!(held(&rows([5.0, 5.0, 5.0, 5.0, 5.0], 5.0)), Some(0.0), "no better than FIFO");
        assert!(urgent_first(&[], &STACKS[0]).is_none());
    }
}
