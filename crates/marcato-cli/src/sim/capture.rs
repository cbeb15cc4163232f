//! Observer of a run from the command line.

use std::path::Path;

use marcato_papers::Progress;
use marcato_results::RunFiles;
use marcato_sim::scenario::{Completion, Watcher};
use marcato_units::Time;

use super::error::SimError;
use crate::interrupt::Interrupt;

/// Observer of a run. It shows progress, writes captures and completions, and stops the run on an
/// interrupt or a write error.
pub(crate) struct Captures<'a> {
    progress: &'a mut dyn Progress,
    interrupt: &'a Interrupt,
    seconds: u64,
    files: Option<RunFiles<'a>>,
}

impl<'a> Captures<'a> {
    /// Creates the observer. Without a directory, nothing is written.
    pub(crate) fn new(
        directory: Option<&'a Path>,
        progress: &'a mut dyn Progress,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self { progress, interrupt, seconds: 0, files: directory.map(RunFiles::new) }
    }

    /// Returns the number of whole simulated seconds.
    pub(crate) const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Moves the complete files to their final names.
    pub(crate) fn finish(self) -> Result<(), SimError> {
        Ok(self.files.map_or(Ok(()), RunFiles::finish)?)
    }
}

impl Watcher for Captures<'_> {
    fn time(&mut self, now: Time) {
        let seconds = now.as_nanos() / 1_000_000_000;
        if seconds > self.seconds {
            self.progress.advance(seconds - self.seconds);
            self.seconds = seconds;
        }
    }

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
        if let Some(files) = &mut self.files {
            files.completed(one);
        }
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.came() || self.files.as_ref().is_some_and(RunFiles::has_failed)
    }
}
