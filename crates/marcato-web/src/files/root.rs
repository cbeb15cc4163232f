//! Opening of files below the root.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::config::FilesError;

/// Permission to wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Only what the kernel has in memory: on threads that run other tasks.
    Cached,
    /// All of it: on threads of the blocking pool.
    Blocking,
}

/// Error returned for a path that cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    /// The kernel would wait for a disk. Only [`Access::Cached`] has this error.
    WouldBlock,
    /// Nothing has this path, or something other than a file or directory.
    NotFound,
    /// A directory has this path.
    Directory,
    /// A symbolic link on the path leaves the root, or never ends.
    Outside,
    /// This process may not read it.
    Forbidden,
    /// The process or system lacks memory or descriptors.
    Busy,
    /// The file system is broken.
    Failed,
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::NXIO | Errno::INVAL | Errno::ILSEQ => {
                Self::NotFound
            }
            Errno::ISDIR => Self::Directory,
            Errno::XDEV | Errno::LOOP => Self::Outside,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => Self::Busy,
            _ => Self::Failed,
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).map_or(Self::Failed, Self::from)
    }
}

/// Regular file, open for reading.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) metadata: Metadata,
}

/// Directory that is served.
///
/// Only its path is kept. If that is a symbolic link, then changing it changes what is served.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    /// True if the kernel itself confines paths to a directory.
    confines: bool,
}

impl Root {
    /// Checks a directory.
    ///
    /// # Errors
    /// [`FilesError`] if it cannot be opened, or is none.
    pub(super) fn new(root: PathBuf) -> Result<Self, FilesError> {
        let refuse = |error: io::Error| {
            let root = root.clone();
            match error.kind() {
                io::ErrorKind::NotADirectory => FilesError::NotDirectory { root },
                _ => FilesError::Root { root, error },
            }
        };
        // A later change of the working directory must not change the root.
        let path = std::path::absolute(&root).map_err(refuse)?;
        let handle = openat(CWD, &path, HANDLE, Mode::empty()).map_err(|error| refuse(error.into()))?;
        let confines = confines(&handle);
        Ok(Self { path, confines })
    }

    /// Opens the root.
    ///
    /// # Errors
    /// [`OpenError`] if it has been removed, or its path is not in the kernel's memory.
    pub(super) fn handle(&self, access: Access) -> Result<OwnedFd, OpenError> {
        match access {
            Access::Cached => open_cached(&self.path),
            Access::Blocking => Ok(openat(CWD, &self.path, HANDLE, Mode::empty())?),
        }
    }

    /// Opens a regular file. Its path is relative to the root, of which the caller has a handle.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be opened, or is no regular file.
    pub(super) fn file(&self, handle: &OwnedFd, path: &str, access: Access) -> Result<Opened, OpenError> {
        // Without NONBLOCK, opening a named pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(self.open(handle, path, flags, access)?);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(OpenError::Directory);
        }
        if !metadata.is_file() {
            return Err(OpenError::NotFound);
        }
        Ok(Opened { file, metadata })
    }

    /// Opens a directory for reading its entries; the root itself for an empty path.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be opened, or is none.
    pub(super) fn directory(&self, handle: &OwnedFd, path: &str) -> Result<OwnedFd, OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = if path.is_empty() { "." } else { path };
        self.open(handle, path, flags, Access::Blocking)
    }

    fn open(
        &self,
        handle: &OwnedFd,
        path: &str,
        flags: OFlags,
        access: Access,
    ) -> Result<OwnedFd, OpenError> {
        if !self.confines {
            return match access {
                Access::Cached => Err(OpenError::WouldBlock),
                Access::Blocking => {
                    let path = self.canonical(path)?;
                    Ok(openat(handle, &path, flags | OFlags::NOFOLLOW, Mode::empty())?)
                }
            };
        }
        match open_beneath(handle, Path::new(path), flags, access) {
            // A link with an absolute target counts as leaving the root, even if the target is below.
            Err(OpenError::Outside) if access == Access::Cached => Err(OpenError::WouldBlock),
            Err(OpenError::Outside) => open_beneath(handle, &self.canonical(path)?, flags, access),
            result => result,
        }
    }

    /// Returns the path without links, relative to the root.
    fn canonical(&self, path: &str) -> Result<PathBuf, OpenError> {
        let root = self.path.canonicalize()?;
        let path = root.join(path).canonicalize()?;
        let relative = path.strip_prefix(&root).map_err(|_| OpenError::Outside)?;
        Ok(if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative.to_owned() })
    }
}

#[cfg(target_os = "linux")]
use linux::{HANDLE, confines, open_beneath, open_cached};
#[cfg(not(target_os = "linux"))]
use others::{HANDLE, confines, open_beneath, open_cached};

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    use rustix::io::Errno;

    use super::{Access, OpenError};

    /// Flags of a handle of the root.
    pub(super) const HANDLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    /// Attempts at a path that others rename while the kernel follows it.
    const ATTEMPTS: usize = 8;

    /// Returns true if the kernel has `openat2`. Linux before 5.6 and some sandboxes lack it.
    pub(super) fn confines(root: &OwnedFd) -> bool {
        openat2(root, ".", HANDLE, Mode::empty(), ResolveFlags::BENEATH).is_ok()
    }

    /// Opens a path without leaving a directory.
    pub(super) fn open_beneath(
        directory: &OwnedFd,
        path: &Path,
        flags: OFlags,
        access: Access,
    ) -> Result<OwnedFd, OpenError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if access == Access::Cached {
            return cached(openat2(directory, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED));
        }
        let mut result = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            result = openat2(directory, path, flags, Mode::empty(), resolve);
            // openat2(2): a rename elsewhere may leave the kernel unsure about a `..` in a link.
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        Ok(result?)
    }

    /// Opens a directory whose path is in the kernel's memory.
    pub(super) fn open_cached(path: &Path) -> Result<OwnedFd, OpenError> {
        cached(openat2(CWD, path, HANDLE, Mode::empty(), ResolveFlags::CACHED))
    }

    /// Converts the result of an `openat2` that must not wait.
    fn cached(result: Result<OwnedFd, Errno>) -> Result<OwnedFd, OpenError> {
        result.map_err(|error| match error {
            // Linux before 5.12 refuses the flag with INVAL, and sandboxes refuse the call.
            Errno::AGAIN | Errno::INTR | Errno::INVAL | Errno::NOSYS | Errno::PERM => OpenError::WouldBlock,
            error => error.into(),
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod others {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::OFlags;

    use super::{Access, OpenError};

    /// Flags of a handle of the root.
    pub(super) const HANDLE: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

    /// Returns false: there is no `openat2`.
    pub(super) const fn confines(_: &OwnedFd) -> bool {
        false
    }

    /// Returns an error: there is no `openat2`.
    pub(super) const fn open_beneath(
        _: &OwnedFd,
        _: &Path,
        _: OFlags,
        _: Access,
    ) -> Result<OwnedFd, OpenError> {
        Err(OpenError::Failed)
    }

    /// Returns an error: there is no `openat2`.
    pub(super) const fn open_cached(_: &Path) -> Result<OwnedFd, OpenError> {
        Err(OpenError::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Directory `root` with files and links, and a file `secret` beside it.
    fn tree() -> tempfile::TempDir {
        let outer = tempfile::tempdir().unwrap();
        let at = |path: &str| outer.path().join(path);
        fs::create_dir_all(at("root/dir")).unwrap();
        fs::write(at("root/dir/file"), "inside").unwrap();
        fs::write(at("secret"), "outside").unwrap();
        symlink("dir/file", at("root/relative")).unwrap();
        symlink("../dir/file", at("root/dir/upwards")).unwrap();
        symlink(at("root/dir/file"), at("root/absolute")).unwrap();
        symlink("../secret", at("root/escape")).unwrap();
        symlink(at("secret"), at("root/absolute-escape")).unwrap();
        symlink("..", at("root/dir/up")).unwrap();
        symlink("../..", at("root/dir/out")).unwrap();
        symlink("loop", at("root/loop")).unwrap();
        outer
    }

    /// Both ways to confine a path.
    fn roots(outer: &tempfile::TempDir) -> [Root; 2] {
        let path = outer.path().join("root");
        let root = Root::new(path.clone()).unwrap();
        [root, Root { path, confines: false }]
    }

    fn open(root: &Root, path: &str) -> Result<u64, OpenError> {
        let handle = root.handle(Access::Blocking)?;
        root.file(&handle, path, Access::Blocking).map(|opened| opened.metadata.len())
    }

    #[test]
    fn links_within_the_root_are_followed() {
        let outer = tree();
        for root in roots(&outer) {
            for path in ["dir/file", "relative", "dir/upwards", "absolute", "dir/up/dir/file"] {
                assert_eq!(open(&root, path), Ok(6), "{path} {root:?}");
            }
        }
    }

    #[test]
    fn links_that_leave_the_root_are_refused() {
        let outer = tree();
        for root in roots(&outer) {
            for path in ["escape", "absolute-escape", "dir/out/secret", "loop"] {
                assert_eq!(open(&root, path), Err(OpenError::Outside), "{path} {root:?}");
            }
        }
    }

    #[test]
    fn cached_access_never_leaves_the_root_either() {
        let outer = tree();
        for root in roots(&outer) {
            let handle = root.handle(Access::Blocking).unwrap();
            for path in ["escape", "absolute-escape", "dir/out/secret", "loop"] {
                let result = root.file(&handle, path, Access::Cached).map(|_| ());
                assert_eq!(result, Err(OpenError::WouldBlock), "{path} {root:?}");
            }
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let outer = tree();
        let socket = outer.path().join("root/socket");
        let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        for root in roots(&outer) {
            assert_eq!(open(&root, "dir"), Err(OpenError::Directory));
            assert_eq!(open(&root, "none"), Err(OpenError::NotFound));
            assert_eq!(open(&root, "dir/file/none"), Err(OpenError::NotFound));
            assert_eq!(open(&root, "socket"), Err(OpenError::NotFound));
            assert_eq!(open(&root, &"x".repeat(300)), Err(OpenError::NotFound));
        }
    }

    #[test]
    fn a_root_must_be_a_directory() {
        let outer = tree();
        let new = |path: &str| Root::new(outer.path().join(path)).map(|_| ());
        assert!(new("root/dir").is_ok());
        assert!(matches!(new("secret"), Err(FilesError::NotDirectory { .. })));
        assert!(matches!(new("none"), Err(FilesError::Root { .. })));
    }

    #[test]
    fn a_link_to_the_root_may_change() {
        let outer = tree();
        let link = outer.path().join("current");
        symlink(outer.path().join("root"), &link).unwrap();
        let root = Root::new(link.clone()).unwrap();
        assert_eq!(open(&root, "dir/file"), Ok(6));
        fs::remove_file(&link).unwrap();
        symlink(outer.path(), &link).unwrap();
        assert_eq!(open(&root, "dir/file"), Err(OpenError::NotFound));
        assert_eq!(open(&root, "secret"), Ok(7));
    }
}
