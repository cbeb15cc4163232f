//! Output of either end, to a file or to standard output.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::PerfError;

/// Writer of `--logfile`, or of standard output without one. What the file does not take goes to standard output:
/// nothing that was measured is lost.
pub(super) struct Log<'a> {
    file: Option<(File, PathBuf)>,
    stdout: &'a mut dyn Write,
    failed: Option<PerfError>,
}

impl<'a> Log<'a> {
    /// Opens the file, to which output is appended.
    pub(super) fn open(path: Option<&Path>, stdout: &'a mut dyn Write) -> Result<Self, PerfError> {
        let open = |path: &Path| {
            let opened = File::options().append(true).create(true).open(path);
            let failed = |source| PerfError::File { path: path.to_owned(), source };
            opened.map(|file| (file, path.to_owned())).map_err(failed)
        };
        Ok(Self { file: path.map(open).transpose()?, stdout, failed: None })
    }

    /// Returns standard output, for what belongs there although there is a file.
    pub(super) fn stdout(&mut self) -> &mut dyn Write {
        self.stdout
    }

    /// Returns whether there is a file.
    pub(super) const fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Writes a text. Only the first error is kept, for [`end`](Self::end): a run goes on without its output.
    pub(super) fn write(&mut self, text: &str) {
        if let Some((file, path)) = &mut self.file {
            match file.write_all(text.as_bytes()).and_then(|()| file.flush()) {
                Ok(()) => return,
                Err(source) => {
                    self.failed.get_or_insert(PerfError::File { path: path.clone(), source });
                    self.file = None;
                }
            }
        }
        if let Err(error) = crate::output::print(self.stdout, text) {
            self.failed.get_or_insert(PerfError::Print(error));
        }
    }

    /// Returns the first error of writing.
    ///
    /// # Errors
    /// When anything could not be written.
    pub(super) fn end(self) -> Result<(), PerfError> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl std::fmt::Debug for Log<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("file", &self.file).field("failed", &self.failed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_log_goes_on_at_standard_output_with_an_error() {
        let mut stdout = Vec::new();
        let mut log = Log::open(Some(Path::new("/dev/full")), &mut stdout).unwrap();
        log.write("one\n");
        log.write("two\n");
        let error = log.end().unwrap_err().to_string();
        assert!(error.starts_with("cannot write `/dev/full`: "), "{error}");
        assert_eq!(stdout, b"one\ntwo\n");
    }

    #[test]
    fn an_error_of_standard_output_is_told_at_the_end() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut stdout = Full;
        let mut log = Log::open(None, &mut stdout).unwrap();
        log.write("one\n");
        assert!(log.end().unwrap_err().to_string().starts_with("cannot write to standard output: "));
    }
}
