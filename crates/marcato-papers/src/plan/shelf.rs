//! Store of completed runs, from which an interrupted experiment resumes.

use std::fs;
use std::path::PathBuf;

use marcato_report::AtomicFile;
use serde::{Deserialize, Serialize};

/// A directory of outcomes, one file for each. A file is complete or absent.
///
/// The store is a convenience: an outcome that cannot be read is computed again, and one that
/// cannot be written is not kept. Neither is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf {
    directory: PathBuf,
    program: String,
}

/// Content of a file.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// Program, setup and seed: all that the outcome depends on.
    of: String,
    outcome: String,
}

impl Shelf {
    /// Creates the shelf in `directory`, which is created when the first outcome is kept. `program`
    /// identifies the program, down to the build: outcomes that another one kept are not used.
    pub fn new(directory: impl Into<PathBuf>, program: impl Into<String>) -> Self {
        Self { directory: directory.into(), program: program.into() }
    }

    fn of(&self, key: &str) -> String {
        format!("{}: {key}", self.program)
    }

    fn place(&self, of: &str) -> PathBuf {
        self.directory.join(format!("{:032x}.json", fnv(of.as_bytes())))
    }

    /// Outcome that was kept under this key.
    pub(crate) fn take(&self, key: &str) -> Option<String> {
        let of = self.of(key);
        let kept: Kept = serde_json::from_slice(&fs::read(self.place(&of)).ok()?).ok()?;
        (kept.of == of).then_some(kept.outcome)
    }

    /// Keeps an outcome under this key.
    pub(crate) fn put(&self, key: &str, outcome: &str) {
        let of = self.of(key);
        let path = self.place(&of);
        let Ok(json) = serde_json::to_vec(&Kept { of, outcome: outcome.to_owned() }) else { return };
        // A failure shows when the outcome is looked up and missing.
        let _ = fs::create_dir_all(&self.directory).and_then(|()| AtomicFile::write(&path, json));
    }
}

/// FNV-1a of 128 bits. The file holds the key itself, so that a collision of names is detected.
fn fnv(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_by_fnv_1a() {
        // Check values of draft-eastlake-fnv.
        assert_eq!(fnv(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn a_kept_run_that_was_cut_or_changed_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(directory.path(), "a program");
        shelf.put("a run", "17");
        assert_eq!(shelf.take("a run").as_deref(), Some("17"));
        assert_eq!(shelf.take("another"), None);
        let path = shelf.place(&shelf.of("a run"));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 2]).unwrap();
        assert_eq!(shelf.take("a run"), None);
        fs::write(&path, String::from_utf8(whole).unwrap().replace("a run", "a ruin")).unwrap();
        assert_eq!(shelf.take("a run"), None);
    }
}
