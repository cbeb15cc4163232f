//! Errors of a scenario, with their positions.

use marcato_document::{Fault, NoText, Report};

/// All errors of a scenario. Each is displayed with the line that contains it:
///
/// ```
/// let text = "name = \"short\"\nduration = 5\nnodes = []\nlink = []\nflow = [{ kind = \"tcp\" }]\n";
/// let error = marcato_scenario::Scenario::parse("short.toml", text).unwrap_err();
/// let first = error.faults()[0].to_string();
/// assert_eq!(
///   first.lines().collect::<Vec<_>>(),
///   [
///       "short.toml:2:12: `duration` is a span of time and needs a unit: write \"5 s\", not 5",
///       "   2 | duration = 5",
///       "     |            ^",
///   ]
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(#[from] Report);

impl ScenarioError {
    pub(crate) fn unreadable(name: &str, problem: &str) -> Self {
        Self(Fault::whole(name, problem).into())
    }

    /// Creates the error for a file that is not UTF-8 text.
    pub(crate) fn no_text(name: &str, wrong: &NoText) -> Self {
        let NoText { line, column, text, .. } = wrong;
        let problem = format!("{wrong}: save it as UTF-8, or give the path of a scenario");
        let (line, column, text) = (*line, *column, text.clone());
        Self(Fault { line, column, text, ..Fault::whole(name, problem) }.into())
    }

    /// Returns the faults in the order of the text; at least one.
    pub fn faults(&self) -> &[Fault] {
        self.0.faults()
    }
}
