//! Observer of a run from Python.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::{Duration, Instant};

use marcato_results::{CompletionRows, RunFiles};
use marcato_sim::scenario::{Completion, Watcher};
use marcato_units::Time;
use pyo3::{PyErr, Python};

use crate::error;
use crate::plugin::Exceptions;

/// Wall-clock time between looks for signals. Attaching to the interpreter more often would slow
/// down runs beside other threads of Python.
const LOOK: Duration = Duration::from_millis(50);

/// Observer that keeps completions and captures, and stops the run on Ctrl-C.
pub(crate) struct Watch<'a> {
    pub(crate) completions: CompletionRows,
    pub(crate) files: Option<RunFiles<'a>>,
    began: Instant,
    looked: Cell<Instant>,
    /// Longest wall-clock time of the run.
    limit: Option<Duration>,
    exceptions: &'a Exceptions,
    interrupt: RefCell<Option<PyErr>>,
}

impl<'a> Watch<'a> {
    /// Creates an observer; captures go into `directory`.
    pub(crate) fn new(
        directory: Option<&'a Path>,
        limit: Option<Duration>,
        exceptions: &'a Exceptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            completions: CompletionRows::default(),
            files: directory.map(RunFiles::new),
            began: now,
            looked: Cell::new(now),
            limit,
            exceptions,
            interrupt: RefCell::new(None),
        }
    }

    /// Returns the exception of the interrupt, if there was one.
    pub(crate) fn interrupt(&self) -> Option<PyErr> {
        self.interrupt.borrow_mut().take()
    }
}

impl Watcher for Watch<'_> {
    fn time(&mut self, _now: Time) {}

    fn captured(&mut self, link: &str, back: bool, part: &[u8]) {
        if let Some(files) = &mut self.files {
            files.captured(link, back, part);
        }
    }

    fn captured_together(&mut self, part: &[u8]) {
        if let Some(files) = &mut self.files {
            files.captured_together(part);
        }
    }

    fn secrets(&mut self, lines: &str) {
        if let Some(files) = &mut self.files {
            files.secrets(lines);
        }
    }

    fn completed(&mut self, one: &Completion<'_>) {
        self.completions.add(one);
    }

    fn is_stopped(&self) -> bool {
        if self.exceptions.is_some() || self.files.as_ref().is_some_and(RunFiles::has_failed) {
            return true;
        }
        let now = Instant::now();
        if let Some(limit) = self.limit.filter(|limit| now.duration_since(self.began) >= *limit) {
            let error = Python::attach(|py| error::late(py, limit));
            self.interrupt.borrow_mut().get_or_insert(error);
            return true;
        }
        if now.duration_since(self.looked.get()) >= LOOK {
            self.looked.set(now);
            // Signals reach the main thread only; in others this is never an error.
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                self.interrupt.replace(Some(error));
            }
        }
        self.interrupt.borrow().is_some()
    }
}
