//! Table of completions, written during the run.

use std::io::{self, Write as _};
use std::path::Path;

use marcato_report::AtomicFile;
use marcato_sim::scenario::Completion;

use crate::files::FileError;
use crate::frame::Frame;
use crate::parquet::{Writer, failed};

/// Number of rows kept in memory, and size of a Parquet row group.
const CHUNK: usize = 16_384;

/// Writer of `completions.csv` and `completions.parquet`. Its memory is bounded, since a run may
/// have millions of completions.
pub(crate) struct Completions<'a> {
    directory: &'a Path,
    rows: CompletionRows,
    files: Option<Files>,
}

struct Files {
    csv: AtomicFile,
    parquet: Writer<AtomicFile>,
}

/// Completions of a run as rows of a table.
#[derive(Clone, Debug, Default)]
pub struct CompletionRows {
    flow: Vec<String>,
    what: Vec<String>,
    priority: Vec<String>,
    size: Vec<u64>,
    start: Vec<f64>,
    end: Vec<Option<f64>>,
    state: Vec<&'static str>,
}

impl CompletionRows {
    /// Adds a row.
    pub fn add(&mut self, one: &Completion<'_>) {
        self.flow.push(one.flow.to_owned());
        self.what.push(one.what.to_owned());
        self.priority.push(one.priority.map(|priority| priority.to_string()).unwrap_or_default());
        self.size.push(one.size.get());
        self.start.push(one.start.as_secs_f64());
        self.end.push(one.end.map(|end| end.as_secs_f64()));
        self.state.push(match one.end {
            _ if one.is_refused => "refused",
            Some(_) => "completed",
            None => "unfinished",
        });
    }

    /// Returns the table.
    pub fn frame(self) -> Frame {
        Frame::new()
            .text("flow", self.flow)
            .text("what", self.what)
            .text("priority", self.priority)
            .count("size_bytes", self.size)
            .number("start_s", self.start)
            .number("end_s", self.end)
            .text("state", self.state)
    }
}

impl<'a> Completions<'a> {
    /// Creates a writer to this directory.
    pub(crate) fn new(directory: &'a Path) -> Self {
        Self { directory, rows: CompletionRows::default(), files: None }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub(crate) fn add(&mut self, one: &Completion<'_>) -> Result<(), FileError> {
        self.rows.add(one);
        if self.rows.flow.len() < CHUNK { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), FileError> {
        let frame = std::mem::take(&mut self.rows).frame();
        if frame.is_empty() {
            return Ok(());
        }
        let path = self.directory.join("completions.csv");
        self.put(&frame).map_err(FileError::of(&path))
    }

    fn put(&mut self, frame: &Frame) -> io::Result<()> {
        let files = match &mut self.files {
            Some(files) => files,
            None => {
                let mut csv = AtomicFile::create(&self.directory.join("completions.csv"))?;
                csv.write_all(frame.csv_head().as_bytes())?;
                let parquet = AtomicFile::create(&self.directory.join("completions.parquet"))?;
                let parquet = Writer::new(parquet, frame).map_err(failed)?;
                self.files.insert(Files { csv, parquet })
            }
        };
        files.csv.write_all(frame.csv_rows().as_bytes())?;
        files.parquet.add(frame).map_err(failed)
    }

    /// Moves the complete files to their final names; there are none if nothing was timed.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub(crate) fn finish(mut self) -> Result<(), FileError> {
        self.flush()?;
        let Some(Files { csv, parquet }) = self.files else { return Ok(()) };
        let path = self.directory.join("completions.csv");
        csv.commit().map_err(FileError::of(&path))?;
        let path = self.directory.join("completions.parquet");
        parquet.finish().map_err(failed).and_then(AtomicFile::commit).map_err(FileError::of(&path))
    }
}
