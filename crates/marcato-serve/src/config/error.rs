//! Errors of a configuration file.

use std::cell::{Cell, RefCell};
use std::fmt;

use marcato_document::{Fault, Place, Sources};

/// Most faults of a report; further ones are counted.
const MAX_FAULTS: usize = 50;

/// All errors of a configuration. Each is displayed with the line that contains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    faults: Vec<Fault>,
    /// Number of further faults.
    more: usize,
}

impl ConfigError {
    /// Returns the faults in the order of the text; at least one.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Creates an error without a position in the text.
    pub(crate) fn whole(file: &str, problem: String) -> Self {
        let (file, text) = (file.to_owned(), String::new());
        Self { faults: vec![Fault { file, line: 0, column: 0, problem, text, width: 1 }], more: 0 }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Options of a command line have neither file nor lines.
        let shown = |fault: &Fault| match fault.file.is_empty() {
            true => format!("{}\n", fault.problem),
            false => fault.to_string(),
        };
        let mut text: String = self.faults.iter().map(shown).collect();
        if self.more > 0 {
            text += &format!("and {} more", self.more);
        }
        f.write_str(text.trim_end())
    }
}

/// Collector of faults. Readers add to it and go on, so that all errors are reported together.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: RefCell<Vec<(Place, String)>>,
    more: Cell<usize>,
}

impl Faults {
    pub(crate) fn add(&self, place: Place, problem: impl Into<String>) {
        let (mut found, problem) = (self.found.borrow_mut(), problem.into());
        if found.iter().any(|(at, said)| *at == place && *said == problem) {
            return;
        }
        if found.len() < 2 * MAX_FAULTS {
            found.push((place, problem));
        } else {
            self.more.set(self.more.get() + 1);
        }
    }

    /// Returns an error if there are any faults.
    pub(crate) fn into_result(self, sources: &Sources) -> Result<(), ConfigError> {
        let mut found = self.found.into_inner();
        if found.is_empty() {
            return Ok(());
        }
        // A key that is missing from the whole file has no place of its own, and comes last.
        found.sort_by_key(|(place, _)| (*place == Place::START, *place));
        let more = self.more.get() + found.len().saturating_sub(MAX_FAULTS);
        found.truncate(MAX_FAULTS);
        let locate = |(place, problem)| match sources.0.is_empty() {
            false => sources.locate(place, problem),
            // Options of a command line have no text.
            true => Fault { file: String::new(), line: 0, column: 0, problem, text: String::new(), width: 1 },
        };
        Err(ConfigError { faults: found.into_iter().map(locate).collect(), more })
    }
}
