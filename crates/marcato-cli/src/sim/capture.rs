//! Captures, written as they come.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use marcato_papers::Progress;
use marcato_sim::scenario::Watcher;
use marcato_units::Time;
use tempfile::NamedTempFile;

use super::error::SimError;
use super::result::direction;
use super::store;

/// Follows a run: shows how far it is, and writes what is captured into files beside their places.
pub(crate) struct Captures<'a> {
    directory: Option<&'a Path>,
    progress: &'a mut dyn Progress,
    seconds: u64,
    files: BTreeMap<String, NamedTempFile>,
    error: Option<(PathBuf, io::Error)>,
}

impl<'a> Captures<'a> {
    /// Without a directory, captures are let go.
    pub(crate) fn new(directory: Option<&'a Path>, progress: &'a mut dyn Progress) -> Self {
        Self { directory, progress, seconds: 0, files: BTreeMap::new(), error: None }
    }

    /// Puts the files into their places.
    pub(crate) fn finish(self) -> Result<(), SimError> {
        if let Some((path, source)) = self.error {
            return Err(SimError::File { path, source });
        }
        let Some(directory) = self.directory else { return Ok(()) };
        self.files.into_iter().try_for_each(|(name, file)| store::place(file, &directory.join(name)))
    }

    fn put(&mut self, directory: &Path, name: &str, part: &[u8]) -> io::Result<()> {
        if !self.files.contains_key(name) {
            self.files.insert(name.to_owned(), NamedTempFile::new_in(directory)?);
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
        let Some(directory) = self.directory else { return };
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name = format!("{}.{}.pcap", link.chars().map(plain).collect::<String>(), direction(back));
        if self.error.is_none()
            && let Err(error) = self.put(directory, &name, part)
        {
            self.error = Some((directory.join(name), error));
        }
    }
}
