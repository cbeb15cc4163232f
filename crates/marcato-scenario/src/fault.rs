//! Errors of a scenario, with their positions.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use crate::document::Place;
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

/// One error, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the file in messages, or the option and its key: `--set link.bottleneck.rate`.
    pub file: String,
    /// Line, counted from 1; 0 if the file could not even be read.
    pub line: usize,
    /// Column, counted in characters from 1; 0 if the file could not even be read.
    pub column: usize,
    /// Problem and remedy.
    pub problem: String,
    /// Text of the line.
    pub text: String,
    /// Number of characters to underline; at least one.
    pub width: usize,
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

/// Position at which bytes stop being UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not text, for the byte 0x{byte:02x} is not UTF-8 here")]
pub(crate) struct NoText {
    /// Counted from 1.
    pub(crate) line: usize,
    /// Counted in characters from 1.
    pub(crate) column: usize,
    /// First byte that is not valid UTF-8.
    byte: u8,
    /// Text of the line, with replacements for invalid bytes.
    text: String,
}

/// Reads bytes as UTF-8 text.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, NoText> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = String::from_utf8_lossy(&bytes[..at]);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // Binary data may contain no newline. The line then extends to the end, and only its first
        // 4096 bytes are kept.
        let line = bytes[start..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        NoText {
            line: before.matches('\n').count() + 1,
            column,
            byte: bytes[at],
            text: String::from_utf8_lossy(&line[..line.len().min(4096)]).into_owned(),
        }
    })
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.iter().try_for_each(|fault| write!(f, "{fault}"))?;
        if self.more > 0 { writeln!(f, "and {} more", self.more) } else { Ok(()) }
    }
}

/// Number of faults kept for sorting. Later ones are only counted.
const KEPT: usize = 2 * MAX_FAULTS;

/// Number of characters shown of a line.
const SHOWN: usize = 120;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return writeln!(f, "{}: {}", self.file, self.problem);
        }
        // An option is identified by its key. Its only line follows, so line and column would say
        // nothing.
        if self.file.starts_with("--") {
            writeln!(f, "{}: {}", self.file, self.problem)?;
        } else {
            writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.problem)?;
        }
        // Of a long line, only the surroundings of the place are shown.
        let from = if self.column > SHOWN { self.column - SHOWN / 2 } else { 0 };
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = self.text.chars().skip(from).take(SHOWN).map(clean).collect();
        let at = self.column - 1 - from;
        let width = self.width.min(SHOWN.saturating_sub(at)).max(1);
        writeln!(f, "{:>4} | {}", self.line, text.trim_end())?;
        writeln!(f, "     | {}{}", " ".repeat(at), "^".repeat(width))
    }
}

/// Texts that positions refer to: name and content of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(pub(crate) Vec<(String, String)>);

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
        let Fault { file, line, column, .. } = locate(place, String::new(), &self.sources);
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
        let located = |(place, problem): (Place, String)| locate(place, problem, sources);
        Err(ScenarioError { faults: faults.into_iter().map(located).collect(), more })
    }
}

fn locate(place: Place, problem: String, sources: &Sources) -> Fault {
    let (file, text) = &sources.0[place.source];
    let boundary =
        |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let (start, end) = (boundary(place.start), boundary(place.end.max(place.start)));
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    Fault {
        file: file.clone(),
        line: text[..start].matches('\n').count() + 1,
        column: text[line_start..start].chars().count() + 1,
        problem,
        text: text[line_start..line_end].to_owned(),
        width: text[start..end.min(line_end).max(start)].chars().count().max(1),
    }
}
