//! Where the runs that are done are kept, so that an experiment that was cut short is taken up where it was.

use std::fs;
use std::path::PathBuf;

use marcato_report::AtomicFile;
use serde::{Deserialize, Serialize};

/// A directory of outcomes, each a file of its own. A file is there as a whole or not at all.
///
/// It is a convenience: what cannot be read is made anew, what cannot be written is not kept, and neither is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf {
    directory: PathBuf,
    program: String,
}

/// What a file says.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The program that made it, the setup and the seed: all that the outcome depends on.
    of: String,
    outcome: String,
}

impl Shelf {
    /// The shelf in `directory`, which is made once there is something to keep. `program` names what makes the outcomes, down
    /// to the build: what another has put there is not taken.
    pub fn new(directory: impl Into<PathBuf>, program: impl Into<String>) -> Self {
        Self { directory: directory.into(), program: program.into() }
    }

    fn of(&self, key: &str) -> String {
        format!("{}: {key}", self.program)
    }

    fn place(&self, of: &str) -> PathBuf {
        self.directory.join(format!("{:032x}.json", fnv(of.as_bytes())))
    }

    /// The outcome that was put there under this key.
    pub(crate) fn take(&self, key: &str) -> Option<String> {
        let of = self.of(key);
        let kept: Kept = serde_json::from_slice(&fs::read(self.place(&of)).ok()?).ok()?;
        (kept.of == of).then_some(kept.outcome)
    }

    /// Puts an outcome there.
    pub(crate) fn put(&self, key: &str, outcome: &str) {
        let of = self.of(key);
        let path = self.place(&of);
        let Ok(json) = serde_json::to_vec(&Kept { of, outcome: outcome.to_owned() }) else { return };
        // Whether it has worked shows when it is looked for.
        let _ = fs::create_dir_all(&self.directory).and_then(|()| AtomicFile::write(&path, json));
    }
}

/// FNV-1a of 128 bits. The key itself stands in the file, so that two of the same name are told apart.
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
        // The check values of draft-eastlake-fnv.
        assert_eq!(fnv(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn what_somebody_has_cut_or_changed_is_not_taken() {
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
