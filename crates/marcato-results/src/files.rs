//! Files of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use marcato_report::AtomicFile;
use marcato_scenario::Run;
use marcato_sim::scenario::{Completion, Outcome};

use crate::completions::Completions;
use crate::tables::{Tables, direction};
use crate::{parquet, report};

/// Error of writing a file.
#[derive(Debug)]
pub struct FileError {
    /// Path of the file.
    pub path: PathBuf,
    /// Cause.
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self { path: path.to_owned(), source }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write `{}`: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Files that grow during a run: captures, secrets and completions.
///
/// A watcher of the run passes on what it receives. Files appear under their names when the run is
/// complete. After the first error, nothing more is written.
pub struct RunFiles<'a> {
    directory: &'a Path,
    files: BTreeMap<String, AtomicFile>,
    completions: Completions<'a>,
    error: Option<FileError>,
}

impl<'a> RunFiles<'a> {
    /// Creates the writer of the files in `directory`, which exists.
    pub fn new(directory: &'a Path) -> Self {
        let completions = Completions::new(directory);
        Self { directory, files: BTreeMap::new(), completions, error: None }
    }

    /// Returns whether a file could not be written: the run need not go on.
    pub const fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Adds a part of the capture of one direction of a link.
    pub fn captured(&mut self, link: &str, back: bool, part: &[u8]) {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name = format!("{}.{}.pcap", link.chars().map(plain).collect::<String>(), direction(back));
        self.append(&name, part);
    }

    /// Adds a part of the common capture.
    pub fn captured_together(&mut self, part: &[u8]) {
        self.append("capture.pcapng", part);
    }

    /// Adds secrets of QUIC connections.
    pub fn secrets(&mut self, lines: &str) {
        self.append("quic.keys", lines.as_bytes());
    }

    /// Adds a completion.
    pub fn completed(&mut self, one: &Completion<'_>) {
        if self.error.is_none() {
            self.error = self.completions.add(one).err();
        }
    }

    /// Moves the complete files to their final names.
    ///
    /// # Errors
    /// The first error of writing, now or during the run.
    pub fn finish(self) -> Result<(), FileError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        for (name, file) in self.files {
            file.commit().map_err(FileError::of(&self.directory.join(name)))?;
        }
        self.completions.finish()
    }

    fn append(&mut self, name: &str, part: &[u8]) {
        if self.error.is_none()
            && let Err(error) = self.put(name, part)
        {
            self.error = Some(FileError::of(&self.directory.join(name))(error));
        }
    }

    fn put(&mut self, name: &str, part: &[u8]) -> io::Result<()> {
        if !self.files.contains_key(name) {
            self.files.insert(name.to_owned(), AtomicFile::create(&self.directory.join(name))?);
        }
        self.files.get_mut(name).map_or(Ok(()), |file| file.write_all(part))
    }
}

/// Writes the files of a completed run: its document, tables, report and figures.
///
/// # Errors
/// When a file cannot be written.
pub fn write(out: &Path, one: &Run, outcome: &Outcome, tables: &Tables, json: &str) -> Result<(), FileError> {
    let file = |name: &str, content: &[u8]| {
        let path = out.join(name);
        AtomicFile::write(&path, content).map_err(FileError::of(&path))
    };
    file("result.json", json.as_bytes())?;
    for (name, frame) in tables.named() {
        // A table without rows has no file.
        if !frame.is_empty() {
            file(&format!("{name}.csv"), frame.to_csv().as_bytes())?;
            let name = format!("{name}.parquet");
            let bytes =
                parquet::of(frame).map_err(parquet::failed).map_err(FileError::of(&out.join(&name)))?;
            file(&name, &bytes)?;
        }
    }
    let page = report::of(one, outcome, tables);
    file("report.html", page.to_html().as_bytes())?;
    page.images().into_iter().try_for_each(|(id, svg)| file(&format!("{id}.svg"), svg.as_bytes()))
}
