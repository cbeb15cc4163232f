//! Runs of a grid: every combination with every seed, on all cores.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use marcato_papers::Progress as _;
use marcato_report::{COMMIT, Mean, VERSION};
use marcato_results::document::{config, json};
use marcato_results::{Frame, Numbers, Row, Tables, numbers};
use marcato_scenario::record::Record;
use marcato_scenario::{Experiment, Run, Scenario, Setting};
use marcato_sim::scenario::{Traces, Watcher, build};
use marcato_units::Time;
use serde::Serialize;
use serde_json::Value;

use super::error::{Kept, SimError};
use super::store::Store;
use crate::interrupt::Interrupt;
use crate::progress::Bar;

/// Combination of varied settings, with the means over its seeds.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) settings: Vec<Setting>,
    pub(crate) seeds: Vec<u64>,
    /// Means in the order of the documents; without intervals where nothing is random.
    pub(crate) metrics: Vec<(String, Mean)>,
    /// True if its runs depend on their seeds.
    pub(crate) is_random: bool,
    /// Command that repeats the combination with all its seeds.
    pub(crate) one_line: String,
}

/// Message of a worker.
enum Told {
    /// Virtual seconds that have passed.
    Seconds(u64),
    /// Index and document of a completed run, which was written if there is a store.
    Done(usize, String),
    /// Index and error of a failed run.
    Failed(usize, SimError),
    /// Error of writing a completed run.
    Unkept(SimError),
}

/// Observer of a run: reports its progress, and stops it on request.
struct Watch<'a> {
    seconds: u64,
    tell: &'a mut dyn FnMut(u64),
    stop: &'a dyn Fn() -> bool,
}

impl Watcher for Watch<'_> {
    fn time(&mut self, now: Time) {
        let passed = now.as_nanos() / 1_000_000_000;
        if passed > self.seconds {
            (self.tell)(passed - self.seconds);
            self.seconds = passed;
        }
    }

    fn captured(&mut self, _link: &str, _back: bool, _part: &[u8]) {}

    fn is_stopped(&self) -> bool {
        (self.stop)()
    }
}

/// Executes one run and returns its document; `None` if it was stopped.
fn one(
    run: &Run,
    traces: &Traces,
    tell: &mut dyn FnMut(u64),
    stop: &dyn Fn() -> bool,
) -> Result<Option<String>, SimError> {
    let failed = |problem: String| SimError::Run { id: run.id.clone(), problem };
    let mut watch = Watch { seconds: 0, tell, stop };
    let attempt = || -> Result<Option<String>, SimError> {
        // Recording does not influence the run, and the document contains no records.
        let experiment = Experiment { record: Record::default(), ..run.experiment.clone() };
        let world = build(&experiment, traces).map_err(|error| failed(error.to_string()))?;
        let outcome = world.run(&mut watch).map_err(|error| failed(error.to_string()))?;
        if stop() {
            return Ok(None);
        }
        let tables = Tables::of(&outcome);
        Ok(Some(json(run, &outcome, &tables)))
    };
    // A panic in one run must not end the others.
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| Err(SimError::Panic(run.id.clone())))
}

/// Executes every run that `store` does not have yet on `threads` threads, and returns the
/// documents of all runs in order, and the error that names failed runs. These have no documents.
///
/// The documents do not depend on the number of threads.
///
/// # Errors
/// After a failed write or an interrupt no further run starts, and the error states what is kept.
pub(crate) fn run(
    scenario: &Scenario,
    traces: &Traces,
    store: Option<&Store>,
    threads: usize,
    bar: &mut Bar,
    interrupt: &Interrupt,
) -> Result<(Vec<Option<String>>, Option<SimError>), SimError> {
    let runs: Vec<Run> = scenario.runs().collect();
    let mut documents: Vec<Option<String>> =
        runs.iter().map(|run| store.and_then(|store| store.load(&run.id))).collect();
    let todo: Vec<usize> = (0..runs.len()).filter(|&place| documents[place].is_none()).collect();
    let steps = todo.iter().map(|&place| runs[place].experiment.duration.as_secs()).sum();
    let says = |done: usize| format!("{done} of {} runs done, simulated seconds", runs.len());
    let mut done = runs.len() - todo.len();
    bar.begin(&says(done), Some(steps));
    let next = AtomicUsize::new(0);
    let is_full = AtomicBool::new(false);
    let stop = || is_full.load(Ordering::Relaxed) || interrupt.came();
    let (send, receive) = mpsc::channel();
    let mut problems = Vec::new();
    let mut unkept = None;
    thread::scope(|scope| {
        for _ in 0..threads.min(todo.len()) {
            let (send, next, todo, runs, stop) = (send.clone(), &next, &todo, &runs, &stop);
            scope.spawn(move || {
                while !stop()
                    && let Some(&place) = todo.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let run = &runs[place];
                    let told = Cell::new(0);
                    let mut tell = |seconds| {
                        told.set(told.get() + seconds);
                        // The receiver lives until all workers have ended.
                        let _ = send.send(Told::Seconds(seconds));
                    };
                    let ended = match one(run, traces, &mut tell, stop) {
                        Ok(Some(document)) => {
                            tell(run.experiment.duration.as_secs().saturating_sub(told.get()));
                            let kept = store.map_or(Ok(()), |store| store.save(&run.id, &document));
                            match kept {
                                Ok(()) => Told::Done(place, document),
                                Err(error) => Told::Unkept(error),
                            }
                        }
                        Ok(None) => break,
                        Err(error) => Told::Failed(place, error),
                    };
                    if send.send(ended).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for told in receive {
            match told {
                Told::Seconds(seconds) => bar.advance(seconds),
                Told::Done(place, document) => {
                    documents[place] = Some(document);
                    done += 1;
                    bar.say(says(done));
                }
                Told::Failed(place, error) => problems.push((place, error.to_string())),
                Told::Unkept(error) => {
                    // The next write would fail as well.
                    is_full.store(true, Ordering::Relaxed);
                    unkept.get_or_insert(error);
                }
            }
        }
    });
    let kept = || match store {
        Some(store) => Kept::Runs { directory: store.directory().to_owned(), done, of: runs.len() },
        None => Kept::NoDirectory { done, of: runs.len() },
    };
    if let Some(source) = unkept {
        return Err(SimError::Unkept { source: Box::new(source), kept: kept() });
    }
    if interrupt.came() && done + problems.len() < runs.len() {
        return Err(SimError::Interrupted(kept()));
    }
    problems.sort();
    let problems: Vec<String> = problems.into_iter().map(|(_, problem)| problem).collect();
    let failed = (!problems.is_empty()).then(|| SimError::Runs { count: runs.len(), problems });
    Ok((documents, failed))
}

/// Completed run, with its varied settings and its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) run: Run,
    /// Numbers in the order of its document.
    pub(crate) numbers: Numbers,
}

/// Returns the runs of a grid with the numbers of their `documents`, which are in the same order.
pub(crate) fn done(scenario: &Scenario, documents: &[String]) -> Vec<Done> {
    // New and kept documents are both read from their text, so that they give identical numbers.
    let done = |(run, document): (Run, &String)| Done { run, numbers: numbers(document) };
    scenario.runs().zip(documents).map(done).collect()
}

/// Returns the combinations, with the means over the runs of each.
pub(crate) fn points(scenario: &Scenario, done: &[Done]) -> Vec<Point> {
    let mut points: Vec<(Point, Vec<&Numbers>)> = Vec::new();
    for Done { run, numbers } in done {
        match points.last_mut().filter(|(point, _)| point.settings == run.settings) {
            Some((point, all)) => {
                point.seeds.push(run.seed.get());
                all.push(numbers);
            }
            None => {
                let point = Point {
                    one_line: one_line(scenario, run),
                    settings: run.settings.clone(),
                    seeds: vec![run.seed.get()],
                    metrics: Vec::new(),
                    is_random: run.experiment.is_random(),
                };
                points.push((point, vec![numbers]));
            }
        }
    }
    for (point, all) in &mut points {
        let Some(first) = all.first() else { continue };
        point.metrics = first
            .iter()
            .map(|(name, _)| {
                let of =
                    |run: &&Numbers| run.iter().find(|(other, _)| other == name).map(|&(_, value)| value);
                let values: Vec<f64> =
                    all.iter().filter_map(of).filter(|value: &f64| value.is_finite()).collect();
                let mean = Mean::of(&values);
                // Equal runs say nothing about uncertainty.
                (name.clone(), Mean { ci95: mean.ci95.filter(|_| point.is_random), ..mean })
            })
            .collect();
    }
    points.into_iter().map(|(point, _)| point).collect()
}

/// Returns the command that repeats a combination with all its seeds, where this command was called.
fn one_line(scenario: &Scenario, run: &Run) -> String {
    let line = scenario.one_line(run);
    let seed = format!(" --seed {}", run.seed.get());
    line.strip_suffix(&seed).unwrap_or(&line).to_owned()
}

/// Returns a line for each combination and metric.
pub(crate) fn frame(points: &[Point]) -> Frame {
    let rows: Vec<(&Point, &(String, Mean))> =
        points.iter().flat_map(|point| point.metrics.iter().map(move |metric| (point, metric))).collect();
    let keys = points.first().map_or(&[][..], |point| &point.settings);
    let frame = keys.iter().enumerate().fold(Frame::new(), |frame, (place, key)| {
        frame.text(&key.key, rows.iter().map(|(point, _)| point.settings[place].value.as_str()))
    });
    frame
        .text("metric", rows.iter().map(|(_, (metric, _))| metric.as_str()))
        .number("mean", rows.iter().map(|(_, (_, mean))| mean.value))
        .number("ci95", rows.iter().map(|(_, (_, mean))| mean.ci95))
        .count("n", rows.iter().map(|(_, (_, mean))| u64::from(mean.n)))
        .text("repeat_with", rows.iter().map(|(point, _)| point.one_line.as_str()))
}

/// Document of a grid.
#[derive(Serialize)]
struct Document<'a> {
    scenario: &'a str,
    version: &'a str,
    commit: &'a str,
    seeds: Vec<u64>,
    /// True if any run depends on its seed.
    random: bool,
    config: Value,
    rows: Vec<Row<'a>>,
}

/// Returns the document of a grid as JSON.
pub(crate) fn to_json(scenario: &Scenario, points: &[Point], frame: &Frame) -> String {
    let document = Document {
        scenario: &scenario.experiment().name,
        version: VERSION,
        commit: COMMIT,
        seeds: points.first().map(|point| point.seeds.clone()).unwrap_or_default(),
        random: points.iter().any(|point| point.is_random),
        config: config(scenario.experiment()),
        rows: frame.rows().collect(),
    };
    // Strings, finite numbers and maps with string keys cannot fail to serialise.
    serde_json::to_string_pretty(&document).map(|json| json + "\n").unwrap_or_default()
}

/// Returns a notice that runs do not depend on their seeds; `None` if all of them do.
pub(crate) fn unrandom(points: &[Point]) -> Option<String> {
    match points.iter().filter(|point| !point.is_random).count() {
        0 => None,
        all if all == points.len() => Some(
            "nothing in these runs is random: every seed gives the same numbers, and there are no intervals"
                .to_owned(),
        ),
        some => Some(format!(
            "nothing is random in {some} of {} combinations: every seed gives the same numbers there, without intervals",
            points.len()
        )),
    }
}
