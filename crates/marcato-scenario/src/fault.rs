//! Errors of a scenario, with their positions.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use marcato_document::{Fault, NoText, Place, Sources};

use crate::limit::MAX_FAULTS;
use crate::plugin::{PluginNames, Position};

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
pub struct ScenarioError {
    faults: Vec<Fault>,
    /// Number of further faults that are not kept.
    more: usize,
}

impl ScenarioError {
    pub(crate) fn unreadable(name: &str, problem: &str) -> Self {
        let fault = Fault {
            file: name.to_owned(),
            line: 0,
            column: 0,
            problem: problem.to_owned(),
            text: String::new(),
            width: 1,
        };
        Self { faults: vec![fault], more: 0 }
    }

    /// Creates the error for a file that is not UTF-8 text.
    pub(crate) fn no_text(name: &str, wrong: &NoText) -> Self {
        let NoText { line, column, text, .. } = wrong;
        let fault = Fault {
            file: name.to_owned(),
            line: *line,
            column: *column,
            problem: format!("{wrong}: save it as UTF-8, or give the path of a scenario"),
            text: text.clone(),
            width: 1,
        };
        Self { faults: vec![fault], more: 0 }
    }

    /// Returns the faults in the order of the text; at least one.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.iter().try_for_each(|fault| write!(f, "{fault}"))?;
        if self.more > 0 { writeln!(f, "and {} more", self.more) } else { Ok(()) }
    }
}

/// Number of faults kept for sorting. Later ones are only counted.
const KEPT: usize = 2 * MAX_FAULTS;

/// Collector of faults, and the names that decide on some of them. Readers add to it and continue,
/// so that all errors are reported together.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: RefCell<Vec<(Place, String)>>,
    /// Number of faults not kept.
    more: Cell<usize>,
    /// Flags that the set of nodes, or of links, is unknown.
    nameless: Cell<[bool; 2]>,
    /// Names of plug-ins, which are no faults.
    plugins: Rc<PluginNames>,
    /// Texts that are read.
    sources: Rc<Sources>,
}

impl Faults {
    /// Creates an empty collector for readers of these texts that know these plug-ins.
    pub(crate) fn knowing(plugins: &Rc<PluginNames>, sources: &Rc<Sources>) -> Self {
        Self { plugins: Rc::clone(plugins), sources: Rc::clone(sources), ..Self::default() }
    }

    /// Returns an empty collector with the same plug-ins and texts.
    pub(crate) fn fresh(&self) -> Self {
        Self::knowing(&self.plugins, &self.sources)
    }

    /// Returns a position for messages of later steps, which do not have the text.
    pub(crate) fn position(&self, place: Place) -> Option<Position> {
        // A collector without texts belongs to a table that no file has.
        self.sources.0.get(place.source)?;
        let Fault { file, line, column, .. } = self.sources.locate(place, String::new());
        Some(Position { file, line, column })
    }

    /// Returns the names of plug-ins.
    pub(crate) fn plugins(&self) -> &PluginNames {
        &self.plugins
    }

    pub(crate) fn add(&self, place: Place, problem: String) {
        let mut found = self.found.borrow_mut();
        // A default that two tables share is one fault.
        if found.iter().any(|(at, said)| *at == place && *said == problem) {
            return;
        }
        if found.len() < KEPT {
            found.push((place, problem));
        } else {
            self.more.set(self.more.get() + 1);
        }
    }

    /// Records that nodes and links could not all be read. An unknown name is then no fault.
    pub(crate) fn forget_names(&self) {
        self.nameless.set([true; 2]);
    }

    /// Records that the set of nodes is unknown.
    pub(crate) fn forget_nodes(&self) {
        let [_, links] = self.nameless.get();
        self.nameless.set([true, links]);
    }

    /// Returns whether all names of this kind are known: `node`, `link` or any other.
    pub(crate) fn has_names(&self, what: &str) -> bool {
        let [nodes, links] = self.nameless.get();
        !(nodes && what == "node" || links && what == "link")
    }

    /// Appends to each fault the text that `note` returns for it.
    pub(crate) fn annotate(&self, note: impl Fn(Place, &str) -> Option<String>) {
        for (place, problem) in self.found.borrow_mut().iter_mut() {
            if let Some(note) = note(*place, problem) {
                *problem += &note;
            }
        }
    }

    /// Returns a copy of the faults found so far.
    pub(crate) fn so_far(&self) -> Vec<(Place, String)> {
        self.found.borrow().clone()
    }

    /// Returns whether further faults are only counted, so that composing their messages is wasted.
    pub(crate) fn is_full(&self) -> bool {
        self.found.borrow().len() >= KEPT
    }

    /// Returns each fault in two forms: unchanged, and with `note` appended.
    pub(crate) fn noted(self, note: &str) -> impl Iterator<Item = ((Place, String), (Place, String))> {
        self.found.into_inner().into_iter().map(move |(place, problem)| {
            let noted = format!("{problem}{note}");
            ((place, problem), (place, noted))
        })
    }

    /// Returns an error if there are any faults.
    pub(crate) fn into_error(self) -> Result<(), ScenarioError> {
        let sources = &self.sources;
        let mut faults = self.found.into_inner();
        if faults.is_empty() {
            return Ok(());
        }
        // A key missing from the whole file has no particular place, so its fault comes last.
        faults.sort_by_key(|(place, _)| (*place == Place::START, *place));
        let more = self.more.get() + faults.len().saturating_sub(MAX_FAULTS);
        faults.truncate(MAX_FAULTS);
        let located = |(place, problem): (Place, String)| sources.locate(place, problem);
        Err(ScenarioError { faults: faults.into_iter().map(located).collect(), more })
    }
}
