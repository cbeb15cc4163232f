//! Files that are there as a whole or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use marcato_papers::{COMMIT, VERSION};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::error::SimError;

/// Writes a file so that nobody ever sees a part of it: beside its place first, and then into it.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), SimError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(SimError::file(path))?;
    file.write_all(content).map_err(SimError::file(path))?;
    place(file, path)
}

/// Puts a file that has been written beside its place into it.
pub(crate) fn place(file: tempfile::NamedTempFile, path: &Path) -> Result<(), SimError> {
    readable(&file).map_err(SimError::file(path))?;
    file.persist(path).map_err(|error| SimError::file(path)(error.error))?;
    Ok(())
}

/// A temporary file is its owner's alone; results are as any other file.
fn readable(file: &tempfile::NamedTempFile) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    let _ = file;
    Ok(())
}

/// What the results in a directory are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: String,
    commit: String,
    /// SHA-256 of everything that its runs are made from.
    scenario: String,
}

impl Manifest {
    /// The manifest of a scenario that is made from these parts.
    pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Context::new(&SHA256);
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let scenario = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { version: VERSION.to_owned(), commit: COMMIT.to_owned(), scenario }
    }

    fn program(&self) -> String {
        format!("{} ({})", self.version, self.commit)
    }
}

/// The directory of a grid: a manifest, a file for each run, and what they add up to.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
}

impl Store {
    /// Opens or makes the directory of this scenario. `is_resumed` insists that it is there.
    pub(crate) fn open(directory: &Path, manifest: &Manifest, is_resumed: bool) -> Result<Self, SimError> {
        let runs = directory.join("runs");
        fs::create_dir_all(&runs).map_err(SimError::file(&runs))?;
        let path = directory.join("manifest.json");
        match fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Manifest>(&bytes).ok()) {
            Some(found) if found == *manifest => {}
            Some(found) if found.program() != manifest.program() => {
                let (theirs, ours) = (found.program(), manifest.program());
                return Err(SimError::OtherVersion { path: directory.to_owned(), theirs, ours });
            }
            Some(_) => return Err(SimError::OtherScenario(directory.to_owned())),
            None if is_resumed => return Err(SimError::NothingToResume(directory.to_owned())),
            // Runs without a manifest are of nobody knows what.
            None if holds_runs(&runs) => return Err(SimError::OtherScenario(directory.to_owned())),
            None => {
                let json = serde_json::to_string_pretty(manifest).unwrap_or_default() + "\n";
                write(&path, json.as_bytes())?;
            }
        }
        Ok(Self { directory: directory.to_owned() })
    }

    fn run(&self, id: &str) -> PathBuf {
        self.directory.join("runs").join(format!("{id}.json"))
    }

    /// The document of a run that is done; `None` if it is not.
    pub(crate) fn load(&self, id: &str) -> Option<String> {
        let text = fs::read_to_string(self.run(id)).ok()?;
        // What somebody else has written there, or cut, is made anew.
        serde_json::from_str::<serde_json::Value>(&text).ok()?.get("flows")?;
        Some(text)
    }

    /// Keeps the document of a run.
    pub(crate) fn save(&self, id: &str, document: &str) -> Result<(), SimError> {
        write(&self.run(id), document.as_bytes())
    }

    /// Writes a file beside the runs.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> Result<(), SimError> {
        write(&self.directory.join(name), content)
    }
}

fn holds_runs(runs: &Path) -> bool {
    let is_result = |entry: fs::DirEntry| entry.path().extension().is_some_and(|it| it == "json");
    fs::read_dir(runs).is_ok_and(|entries| entries.flatten().any(is_result))
}
