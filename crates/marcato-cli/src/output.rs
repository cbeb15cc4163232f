//! Output of results.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Writes `text` to `stdout` at once, and flushes it.
pub(crate) fn print(stdout: &mut dyn Write, text: &str) -> io::Result<()> {
    forgive_broken_pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Ignores a broken pipe: a reader that stops early (`marcato … | head`) is no failure.
pub(crate) fn forgive_broken_pipe(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Creates a directory if it is missing, and checks that files can be created in it. Called before
/// a run, so that it fails early.
pub(crate) fn writable_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    tempfile::tempfile_in(path).map(drop)
}
