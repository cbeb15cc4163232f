//! Writing results.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Writes `text` to `stdout` in one go.
pub(crate) fn print(stdout: &mut dyn Write, text: &str) -> io::Result<()> {
    forgive_broken_pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// A reader that stops reading (`marcato … | head`) is not a failure.
pub(crate) fn forgive_broken_pipe(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Makes a directory if it is missing, and sees to it that files can be made in it: before a run takes its time.
pub(crate) fn writable_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    tempfile::tempfile_in(path).map(drop)
}
