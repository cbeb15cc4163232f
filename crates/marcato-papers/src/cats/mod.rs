//! CATS: "A Conductor-driven Asymmetric Transport Scheme for Semantic Prioritization" (arXiv
//! 2603.13945).
//!
//! Reproduces Tables I and II and Figs. 2 and 3 in the configuration that the authors ran. Variants
//! and questions that the paper leaves open follow. Each file holds one question; [`Cats`] runs
//! them all.

mod conductor;
mod delays;
mod fairness;
mod files;
mod interactive;
#[cfg(target_os = "linux")]
mod lab;
mod late;
mod load;
#[cfg(target_os = "linux")]
mod net;
pub mod page;
pub(crate) mod path;
mod placeholder;
mod published;
mod saving;
mod sensitivity;
mod tables;
mod today;
mod video;
mod watched;

use marcato_report::{Config, Document, Report, World};

use crate::answer::Answer;
use crate::error::SimulationError;
use crate::experiment::WITH_LAB;
use crate::{Experiment, File, Files, Progress, RunError, RunOptions, over_seeds};

/// The experiments of the CATS paper.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cats;

type Question = fn(u64, bool) -> Result<Answer, SimulationError>;

/// Questions, in the order of the report.
const QUESTIONS: &[(&str, Question)] = &[
    ("Table I, Fig. 2 and Fig. 3", table1),
    ("Table II", |seed, quick| of(&files::table2(), seed, quick)),
    ("variants", |seed, quick| of(&files::variants(), seed, quick)),
    ("late urgent data", late::late),
    ("schemes in use today", today::today),
    ("sensitivity", sensitivity::sensitivity),
    ("starvation", conductor::starvation),
    ("Save-Data", saving::save_data),
    ("shedding", saving::shedding),
    ("lifetimes", saving::lifetimes),
    ("keystrokes", interactive::interactive),
    ("placeholder", placeholder::placeholder),
    ("video", video::video),
    ("fairness", fairness::fairness),
];

/// Answers a question that is a file.
fn of(file: &File, seed: u64, quick: bool) -> Result<Answer, SimulationError> {
    Ok(file.answer(Some(seed), quick, 1)?)
}

/// Table I with its figures, and the arrivals behind them, which are no column of a scenario.
fn table1(seed: u64, quick: bool) -> Result<Answer, SimulationError> {
    let mut answer = of(&files::table1(), seed, quick)?;
    answer.section = answer.section.figure(tables::arrivals(&path::Path::authors(), seed)?);
    Ok(answer)
}

impl Experiment for Cats {
    fn name(&self) -> &'static str {
        "cats"
    }

    fn about(&self) -> &'static str {
        "CATS: a Conductor orders a web page over TCP BBR (arXiv 2603.13945)"
    }

    fn worlds(&self) -> &'static [World] {
        WITH_LAB
    }

    fn files(&self) -> Option<Files> {
        Some(files::all())
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        #[cfg(target_os = "linux")]
        if options.world == World::Lab {
            let count = if options.quick { lab::QUICK } else { lab::COUNT };
            let about = "CATS: the web page over TCP of the Linux kernel, across links of the lab";
            return report(("CATS in the lab", about), options, progress, count, &lab::title, &lab::answer);
        }
        let title = |number: usize| QUESTIONS[number].0.to_owned();
        let answer = |number: usize, seed| QUESTIONS[number].1(seed, options.quick);
        report(("CATS", self.about()), options, progress, QUESTIONS.len(), &title, &answer)
    }
}

/// Answers `count` questions with all seeds.
fn report(
    (name, about): (&str, &str),
    options: &RunOptions,
    progress: &mut dyn Progress,
    count: usize,
    title: &dyn Fn(usize) -> String,
    answer: &dyn Fn(usize, u64) -> Result<Answer, SimulationError>,
) -> Result<Report, RunError> {
    let mut document = Document::new("cats", options).config(config());
    let mut sections = Vec::new();
    for number in 0..count {
        progress.begin(&title(number), Some(options.seeds().len() as u64));
        let mut first = None;
        let rows = over_seeds(options, progress, |seed, progress| {
            let answer = answer(number, seed).map_err(|error| RunError::failed("cats", error))?;
            progress.advance(1);
            // Figures show the first seed; rows are means over all.
            first.get_or_insert(answer.section);
            Ok(answer.rows)
        })?;
        document = document.with_rows(rows);
        sections.extend(first);
    }
    Ok(sections.into_iter().fold(Report::new(name, about, document), Report::section))
}

/// Configuration that the authors ran, for the record.
fn config() -> Config {
    let path = path::Path::authors();
    Config::new()
        .set("bottleneck_mbps", path.bottleneck.as_mbps_f64())
        .set("bottleneck_delay_ms", path.delay.as_secs_f64() * 1e3)
        .set("access_mbps", path.access.as_mbps_f64())
        .set("access_delay_ms", path.access_delay.as_secs_f64() * 1e3)
        .set("framing_bytes", path.framing.get())
        .set("mss", path.tcp.mss)
        .set("initial_window", path.tcp.initial_window)
        .set("buffers", path.tcp.send_buffer.get())
        .set("delayed_ack", path.tcp.delayed_ack.every)
        .set("congestion", "bbr1")
        .set("debt", "authors")
        .set("feeder", "greedy")
}
