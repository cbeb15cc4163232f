//! What is wrong with a file, and where.

use std::fmt;

/// Everything that is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    faults: Vec<Fault>,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What errors call the file, or the option that it was said with.
    pub file: String,
    /// The line, counted from 1; 0 if the file could not even be read.
    pub line: usize,
    /// The column, counted in characters from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl ScenarioError {
    pub(crate) fn unreadable(name: &str, problem: &str) -> Self {
        Self {
            faults: vec![Fault { file: name.to_owned(), line: 0, column: 0, problem: problem.to_owned() }],
        }
    }

    /// What is wrong, in the order of the text; at least one.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "{}: {}", fault.file, fault.problem)?;
        }
        Ok(())
    }
}
