//! Collector of faults, so that all errors of a file are reported together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::document::Place;
use crate::fault::{Fault, Sources};
use crate::quantity::Of;
use crate::schema::Schema;

/// Largest number of faults in one report. The number of further ones follows.
pub const MAX_FAULTS: usize = 50;

/// Number of faults kept for sorting. Later ones are only counted.
const KEPT: usize = 2 * MAX_FAULTS;

/// Texts of faults that differ between formats of files.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Keys of the whole file.
    pub root: &'static Schema,
    /// Whole file in a message, for example "the scenario".
    pub whole: &'static str,
    /// Returns the unit that a key most likely needs, for the advice in a message.
    pub unit: fn(&str, Of) -> &'static str,
}

/// Kinds of tables that a program adds to those of the format, for example plug-ins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedKinds(BTreeMap<(&'static str, String), Vec<String>>);

impl AddedKinds {
    /// Adds a kind with the names of its keys to a family. Returns false if the family has the name.
    pub fn add(&mut self, family: &'static str, name: &str, keys: Vec<String>) -> bool {
        let entry = (family, name.to_owned());
        let is_new = !self.0.contains_key(&entry);
        if is_new {
            self.0.insert(entry, keys);
        }
        is_new
    }

    /// Returns the names of a family, each with its keys.
    pub fn of(&self, family: &str) -> impl Iterator<Item = (&str, &[String])> {
        let of_family = self.0.iter().filter(move |((of, _), _)| *of == family);
        of_family.map(|((_, name), keys)| (name.as_str(), keys.as_slice()))
    }
}

/// Collector of faults, and the names that decide on some of them. Readers add to it and continue,
/// so that all errors are reported together.
#[derive(Debug)]
pub struct Faults {
    format: &'static Format,
    found: RefCell<Vec<(Place, String)>>,
    /// Number of faults not kept.
    more: Cell<usize>,
    /// Nouns of things of which not all names are known.
    nameless: RefCell<Vec<&'static str>>,
    /// Kinds that the program adds, which are no faults.
    kinds: Rc<AddedKinds>,
    /// Texts that are read.
    sources: Rc<Sources>,
}

impl Faults {
    /// Creates an empty collector for readers of texts of a format.
    pub fn new(format: &'static Format, sources: &Rc<Sources>) -> Self {
        Self {
            format,
            found: RefCell::default(),
            more: Cell::default(),
            nameless: RefCell::default(),
            kinds: Rc::default(),
            sources: Rc::clone(sources),
        }
    }

    /// Creates an empty collector for a table that no text has.
    pub fn without_text(format: &'static Format) -> Self {
        Self::new(format, &Rc::default())
    }

    /// Sets the kinds that the program adds.
    #[must_use]
    pub fn knowing(self, kinds: &Rc<AddedKinds>) -> Self {
        Self { kinds: Rc::clone(kinds), ..self }
    }

    /// Returns an empty collector with the same format, kinds and texts.
    pub fn fresh(&self) -> Self {
        Self::new(self.format, &self.sources).knowing(&self.kinds)
    }

    /// Returns the format.
    pub const fn format(&self) -> &'static Format {
        self.format
    }

    /// Returns the kinds that the program adds.
    pub fn kinds(&self) -> &AddedKinds {
        &self.kinds
    }

    /// Returns a place as a fault without a problem, for messages of later steps, which do not have
    /// the text. A table that no text has is nowhere.
    pub fn position(&self, place: Place) -> Option<Fault> {
        self.sources.0.get(place.source)?;
        Some(self.sources.locate(place, String::new()))
    }

    /// Returns whether the text at a place begins with a character.
    pub(crate) fn begins_with(&self, place: Place, first: char) -> bool {
        let text = self.sources.0.get(place.source).and_then(|(_, text)| text.get(place.start..));
        text.is_some_and(|text| text.starts_with(first))
    }

    /// Adds a fault.
    pub fn add(&self, place: Place, problem: impl Into<String>) {
        let (mut found, problem) = (self.found.borrow_mut(), problem.into());
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

    /// Records that not all names of this kind are known, for example of "node". An unknown name is
    /// then no fault.
    pub fn forget_names(&self, what: &'static str) {
        self.nameless.borrow_mut().push(what);
    }

    /// Returns whether all names of this kind are known.
    pub fn has_names(&self, what: &str) -> bool {
        !self.nameless.borrow().contains(&what)
    }

    /// Appends to each fault the text that `note` returns for it.
    pub fn annotate(&self, note: impl Fn(Place, &str) -> Option<String>) {
        for (place, problem) in self.found.borrow_mut().iter_mut() {
            if let Some(note) = note(*place, problem) {
                *problem += &note;
            }
        }
    }

    /// Returns a copy of the faults found so far.
    pub fn so_far(&self) -> Vec<(Place, String)> {
        self.found.borrow().clone()
    }

    /// Returns whether further faults are only counted, so that composing their messages is wasted.
    pub fn is_full(&self) -> bool {
        self.found.borrow().len() >= KEPT
    }

    /// Returns each fault in two forms: unchanged, and with `note` appended.
    pub fn noted(self, note: &str) -> impl Iterator<Item = ((Place, String), (Place, String))> {
        self.found.into_inner().into_iter().map(move |(place, problem)| {
            let noted = format!("{problem}{note}");
            ((place, problem), (place, noted))
        })
    }

    /// Returns a report if there are any faults.
    ///
    /// # Errors
    /// The report.
    pub fn into_result(self) -> Result<(), Report> {
        let mut faults = self.found.into_inner();
        if faults.is_empty() {
            return Ok(());
        }
        // A key missing from the whole file has no particular place, so its fault comes last.
        faults.sort_by_key(|(place, _)| (*place == Place::START, *place));
        let more = self.more.get() + faults.len().saturating_sub(MAX_FAULTS);
        faults.truncate(MAX_FAULTS);
        let located = |(place, problem): (Place, String)| self.sources.locate(place, problem);
        Err(Report { faults: faults.into_iter().map(located).collect(), more })
    }
}

/// Faults of a text, as people see them: each with the line that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    faults: Vec<Fault>,
    /// Number of further faults that are not kept.
    more: usize,
}

impl Report {
    /// Returns the faults in the order of the text; at least one.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl std::error::Error for Report {}

impl From<Fault> for Report {
    fn from(fault: Fault) -> Self {
        Self { faults: vec![fault], more: 0 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.iter().try_for_each(|fault| write!(f, "{fault}"))?;
        if self.more > 0 { writeln!(f, "and {} more", self.more) } else { Ok(()) }
    }
}
