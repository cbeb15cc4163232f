//! Error at a position of a text.

use std::fmt;

use crate::document::Place;

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

/// Number of characters shown of a line.
const SHOWN: usize = 120;

impl Fault {
    /// Creates a fault of a whole file, without a position. It may even lack a file: an option of a
    /// command line has neither.
    pub fn whole(file: &str, problem: impl Into<String>) -> Self {
        let (file, problem, text) = (file.to_owned(), problem.into(), String::new());
        Self { file, line: 0, column: 0, problem, text, width: 1 }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return writeln!(f, "{}", self.problem);
        }
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
pub struct Sources(pub Vec<(String, String)>);

impl Sources {
    /// Returns the fault at a place. If the place is of a text that is not here, the fault has no
    /// position.
    pub fn locate(&self, place: Place, problem: String) -> Fault {
        let Some((file, text)) = self.0.get(place.source) else { return Fault::whole("", problem) };
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
}
