//! Files that are written atomically.

use std::fs;
use std::path::{Path, PathBuf};

use marcato_report::{AtomicFile, COMMIT, VERSION};
use marcato_results::fingerprint;
use serde::{Deserialize, Serialize};

use super::error::SimError;

/// Writes a file atomically: readers see all of it or nothing.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), SimError> {
    AtomicFile::write(path, content).map_err(SimError::file(path))
}

/// Identity of the scenario whose results a directory has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: String,
    commit: String,
    /// SHA-256 of everything that determines its runs.
    scenario: String,
}

impl Manifest {
    /// Returns the manifest of a scenario that consists of these parts.
    pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self { version: VERSION.to_owned(), commit: COMMIT.to_owned(), scenario: fingerprint(parts) }
    }

    fn program(&self) -> String {
        format!("{} ({})", self.version, self.commit)
    }

    /// Checks that a directory has no results of another scenario, and returns whether it has a
    /// manifest.
    pub(crate) fn check(&self, directory: &Path) -> Result<bool, SimError> {
        let found = fs::read(directory.join(MANIFEST)).ok();
        match found.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok()) {
            Some(found) if found == *self => Ok(true),
            Some(found) if found.program() != self.program() => {
                let (theirs, ours) = (found.program(), self.program());
                Err(SimError::OtherVersion { path: directory.to_owned(), theirs, ours })
            }
            Some(_) => Err(SimError::OtherScenario(directory.to_owned())),
            // Results without a manifest have an unknown origin, so they are refused.
            None if holds_results(directory) => Err(SimError::OtherScenario(directory.to_owned())),
            None => Ok(false),
        }
    }

    /// Writes the manifest into a directory.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), SimError> {
        // Serialising strings cannot fail.
        let json = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        write(&directory.join(MANIFEST), json.as_bytes())
    }
}

const MANIFEST: &str = "manifest.json";

/// Directory of a grid: a manifest, a file for each run, and the summaries.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
}

impl Store {
    /// Opens or creates the directory of this scenario. With `is_resumed`, it must have results
    /// already.
    pub(crate) fn open(directory: &Path, manifest: &Manifest, is_resumed: bool) -> Result<Self, SimError> {
        let is_there = manifest.check(directory)?;
        if is_resumed && !is_there {
            return Err(SimError::NothingToResume(directory.to_owned()));
        }
        let runs = directory.join("runs");
        fs::create_dir_all(&runs).map_err(SimError::file(&runs))?;
        if !is_there {
            manifest.write(directory)?;
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// Returns the directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of a run's document.
    pub(crate) fn run(&self, id: &str) -> PathBuf {
        self.directory.join("runs").join(format!("{id}.json"))
    }

    /// Returns the document of a completed run; `None` if the run has to be executed.
    pub(crate) fn load(&self, id: &str) -> Option<String> {
        let text = fs::read_to_string(self.run(id)).ok()?;
        // A truncated or foreign file is ignored, and its run repeated.
        serde_json::from_str::<serde_json::Value>(&text).ok()?.get("flows")?;
        Some(text)
    }

    /// Writes the document of a run.
    pub(crate) fn save(&self, id: &str, document: &str) -> Result<(), SimError> {
        write(&self.run(id), document.as_bytes())
    }

    /// Writes a file next to the runs.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> Result<(), SimError> {
        write(&self.directory.join(name), content)
    }
}

fn holds_results(directory: &Path) -> bool {
    let is_result = |entry: fs::DirEntry| entry.path().extension().is_some_and(|it| it == "json");
    let has_runs = |entries: fs::ReadDir| entries.flatten().any(is_result);
    directory.join("result.json").exists() || fs::read_dir(directory.join("runs")).is_ok_and(has_runs)
}
