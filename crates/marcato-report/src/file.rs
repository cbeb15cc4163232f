//! Files that are complete or absent.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file that appears at its path only when it is complete.
///
/// The content goes to a temporary file in the same directory, which [`commit`](Self::commit)
/// renames. After a full disk, an error or an interrupt, any previous file is unchanged and no
/// temporary file remains. Devices and pipes, which cannot be replaced by renaming, are written
/// directly.
///
/// ```
/// use std::io::Write;
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("rows.csv");
/// let mut file = marcato_report::AtomicFile::create(&path)?;
/// file.write_all(b"id,measured\n")?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert!(path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    content: Content,
    path: PathBuf,
}

#[derive(Debug)]
enum Content {
    /// Temporary file in the directory of the path.
    Beside(BufWriter<NamedTempFile>),
    /// Device or pipe, written directly.
    InPlace(File),
}

impl AtomicFile {
    /// Begins a file to appear at `path`, whose directory must exist.
    ///
    /// # Errors
    /// Returns an error if no file can be created in the directory.
    pub fn create(path: &Path) -> io::Result<Self> {
        // A symbolic link is kept, and its target is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            let content = Content::InPlace(File::options().write(true).open(&path)?);
            return Ok(Self { content, path });
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = Builder::new();
        // A temporary file is readable by its owner only; results get the permissions of ordinary
        // files, as the umask allows.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let content = Content::Beside(BufWriter::new(builder.tempfile_in(directory)?));
        Ok(Self { content, path })
    }

    /// Renames the file to its path.
    ///
    /// # Errors
    /// Returns an error if the rest of the content cannot be written, or the file cannot be
    /// renamed. A previous file then stays.
    pub fn commit(self) -> io::Result<()> {
        match self.content {
            Content::Beside(file) => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.persist(&self.path).map(drop).map_err(|error| error.error)
            }
            Content::InPlace(mut file) => file.flush(),
        }
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create) and [`commit`](Self::commit).
    pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
        let mut file = Self::create(path)?;
        file.write_all(content.as_ref())?;
        file.commit()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.content {
            Content::Beside(file) => file.write(bytes),
            Content::InPlace(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.content {
            Content::Beside(file) => file.flush(),
            Content::InPlace(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(directory).unwrap().map(name).collect()
    }

    #[test]
    fn an_uncommitted_file_leaves_the_old_one_and_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.csv");
        AtomicFile::write(&path, "old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(&[b'n'; 100_000]).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(directory.path()), ["rows.csv"]);
        AtomicFile::write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let [link, target] = ["link", "target"].map(|name| directory.path().join(name));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        AtomicFile::write(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        AtomicFile::write(Path::new("/dev/null"), "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(AtomicFile::write(directory.path(), "a directory").is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error() {
        let error = AtomicFile::write(Path::new("/dev/full"), "no room").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
