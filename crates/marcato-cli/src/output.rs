//! Output of results.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes `text` to `stdout` at once, and flushes it.
pub(crate) fn print(stdout: &mut dyn Write, text: &str) -> io::Result<()> {
    forgive_broken_pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Ignores a broken pipe: a reader that stops early (`marcato … | head`) is no failure.
pub(crate) fn forgive_broken_pipe(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Directory for results, opened before work begins. It removes what it created if that is still empty when the
/// value is dropped: a command that ends early leaves no directory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Directories that did not exist before, the innermost first.
    created: Vec<PathBuf>,
}

impl Directory {
    /// Creates a directory if it is missing, and checks that files can be created in it. Called before a run, so
    /// that it fails early.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be created.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let missing = |part: &&Path| !part.as_os_str().is_empty() && !part.exists();
        let created = path.ancestors().take_while(missing).map(Path::to_path_buf).collect();
        let opened = Self { created };
        std::fs::create_dir_all(path)?;
        tempfile::tempfile_in(path)?;
        Ok(opened)
    }

    /// Removes the directories that were created and are still empty. A process that exits at once drops nothing.
    pub(crate) fn leave(&self) {
        for path in &self.created {
            // One that has files stays, and so do those above it.
            if std::fs::remove_dir(path).is_err() {
                break;
            }
        }
    }

    /// Keeps what was created, also if it is empty.
    pub(crate) fn keep(mut self) {
        self.created.clear();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_stays_empty_is_removed_again() {
        let base = tempfile::tempdir().unwrap();
        let (above, path) = (base.path().join("a"), base.path().join("a/b"));
        let opened = Directory::open(&path).unwrap();
        assert!(path.is_dir());
        drop(opened);
        assert!(!above.exists() && base.path().is_dir());
        let opened = Directory::open(&path).unwrap();
        std::fs::write(above.join("file"), "").unwrap();
        drop(opened);
        assert!(above.is_dir() && !path.exists(), "only the empty part goes");
        Directory::open(&above).unwrap().leave();
        assert!(above.is_dir(), "it was there before");
        Directory::open(&path).unwrap().keep();
        assert!(path.is_dir());
        assert!(Directory::open(&above.join("file")).is_err());
    }
}
