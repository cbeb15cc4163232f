//! Writing results.

use std::io::{self, ErrorKind, Write};

/// Writes `text` to `stdout` in one go.
pub(crate) fn print(stdout: &mut dyn Write, text: &str) -> io::Result<()> {
    forgive_broken_pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// A reader that stops reading (`marcato … | head`) is not a failure.
pub(crate) fn forgive_broken_pipe(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}
