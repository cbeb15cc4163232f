//! Files written during a run.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use marcato_papers::Progress;
use marcato_report::AtomicFile;
use marcato_sim::scenario::{Completion, Watcher};
use marcato_units::Time;

use super::completions::Completions;
use super::error::SimError;
use super::result::direction;
use crate::interrupt::Interrupt;

/// Observer of a run. It shows progress, writes captures and completions, and stops the run on an
/// interrupt or a write error.
pub(crate) struct Captures<'a> {
    directory: Option<&'a Path>,
    progress: &'a mut dyn Progress,
    interrupt: &'a Interrupt,
    seconds: u64,
    files: BTreeMap<String, AtomicFile>,
    completions: Option<Completions<'a>>,
    error: Option<SimError>,
}

impl<'a> Captures<'a> {
    /// Creates the observer. Without a directory, nothing is written.
    pub(crate) fn new(
        directory: Option<&'a Path>,
        progress: &'a mut dyn Progress,
        interrupt: &'a Interrupt,
    ) -> Self {
        let completions = directory.map(Completions::new);
        Self { directory, progress, interrupt, seconds: 0, files: BTreeMap::new(), completions, error: None }
    }

    /// Returns the number of whole simulated seconds.
    pub(crate) const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Moves the complete files to their final names.
    pub(crate) fn finish(self) -> Result<(), SimError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let Some(directory) = self.directory else { return Ok(()) };
        for (name, file) in self.files {
            file.commit().map_err(SimError::file(&directory.join(name)))?;
        }
        self.completions.map_or(Ok(()), Completions::finish)
    }

    /// Appends to a file. After the first error, nothing more is written.
    fn append(&mut self, name: &str, part: &[u8]) {
        let Some(directory) = self.directory else { return };
        if self.error.is_none()
            && let Err(error) = self.put(directory, name, part)
        {
            self.error = Some(SimError::file(&directory.join(name))(error));
        }
    }

    fn put(&mut self, directory: &Path, name: &str, part: &[u8]) -> io::Result<()> {
        if !self.files.contains_key(name) {
            self.files.insert(name.to_owned(), AtomicFile::create(&directory.join(name))?);
        }
        self.files.get_mut(name).map_or(Ok(()), |file| file.write_all(part))
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
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name = format!("{}.{}.pcap", link.chars().map(plain).collect::<String>(), direction(back));
        self.append(&name, part);
    }

    fn captured_together(&mut self, part: &[u8]) {
        self.append("capture.pcapng", part);
    }

    fn secrets(&mut self, lines: &str) {
        self.append("quic.keys", lines.as_bytes());
    }

    fn completed(&mut self, one: &Completion<'_>) {
        if self.error.is_none()
            && let Some(completions) = &mut self.completions
        {
            self.error = completions.add(one).err();
        }
    }

    fn is_stopped(&self) -> bool {
        self.error.is_some() || self.interrupt.came()
    }
}
