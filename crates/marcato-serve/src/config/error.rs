//! Errors of a configuration file.

use std::fmt;

use marcato_document::{Fault, Report};

/// All errors of a configuration. Each is displayed with the line that contains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError(#[from] Report);

impl ConfigError {
    /// Returns the faults in the order of the text; at least one.
    pub fn faults(&self) -> &[Fault] {
        self.0.faults()
    }

    /// Creates an error without a position in the text.
    pub(crate) fn whole(file: &str, problem: impl Into<String>) -> Self {
        Self(Fault::whole(file, problem).into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().trim_end())
    }
}
