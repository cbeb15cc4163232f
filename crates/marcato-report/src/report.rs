//! A document with sections of text and figures around it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

use crate::chart::Drawing;
use crate::page::Page;
use crate::scorecard::Scorecard;
use crate::{AtomicFile, Document, Row, html, text};

/// A [`Document`] with the text and figures that present it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    title: String,
    about: String,
    against: String,
    document: Document,
    sections: Vec<Section>,
}

/// Part of a report: text, a table of rows, figures. Each is optional.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    title: String,
    text: String,
    rows: Vec<String>,
    figures: Vec<Figure>,
}

/// A figure: a drawing and its caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    id: String,
    drawing: Drawing,
    caption: String,
    folded: bool,
}

impl Section {
    /// Creates a section without contents.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Sets the text: plain, with an empty line between paragraphs.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Adds the rows with these ids to the section's table.
    #[must_use]
    pub fn rows<I: Into<String>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.rows.extend(ids.into_iter().map(Into::into));
        self
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(mut self, figure: Figure) -> Self {
        self.figures.push(figure);
        self
    }

    /// Takes the figures of the section.
    pub fn into_figures(self) -> Vec<Figure> {
        self.figures
    }
}

impl Figure {
    /// Sets the name of the figure.
    #[must_use]
    pub fn renamed(self, id: impl Into<String>) -> Self {
        Self { id: id.into(), ..self }
    }

    /// Creates a figure named `id` (lower-case letters, digits and `-`: it becomes a file name).
    /// The drawing is a chart of [`chart`](crate::chart), or an SVG image, which is embedded
    /// unchanged.
    pub fn new(id: impl Into<String>, drawing: impl Into<Drawing>, caption: impl Into<String>) -> Self {
        Self { id: id.into(), drawing: drawing.into(), caption: caption.into(), folded: false }
    }

    /// Folds the figure on a page, under the title of its chart, for figures beyond those that a page
    /// shows at once.
    #[must_use]
    pub fn folded(self) -> Self {
        Self { folded: true, ..self }
    }

    /// Name of the figure, unique in its report.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Chart or image of the figure.
    pub const fn drawing(&self) -> &Drawing {
        &self.drawing
    }

    /// The image on its own. In a [`Page`] the same series may have other colours, because figures
    /// share them.
    pub fn svg(&self) -> String {
        self.drawing.draw(&Drawing::looks([&self.drawing]))
    }

    /// Caption below the figure.
    pub fn caption(&self) -> &str {
        &self.caption
    }

    pub(crate) const fn is_folded(&self) -> bool {
        self.folded
    }

    /// Name of one of its images: that of the figure, and for [parts](Drawing::parts) after the first
    /// also their number.
    pub(crate) fn image_id(&self, part: usize) -> String {
        if part == 0 { self.id.clone() } else { format!("{}-part-{}", self.id, part + 1) }
    }

    /// Images of these figures, with shared colours: id, SVG and caption of each. A chart of more
    /// series than [`MOST_SERIES`](crate::chart::MOST_SERIES) gives several images.
    pub fn images<'a>(figures: impl IntoIterator<Item = &'a Self>) -> Vec<(String, String, String)> {
        let figures: Vec<&Self> = figures.into_iter().collect();
        let looks = Drawing::looks(figures.iter().map(|figure| &figure.drawing));
        let images = |figure: &&Self| {
            let parts = figure.drawing.parts().into_iter().enumerate();
            parts
                .map(|(part, (drawing, _))| {
                    (figure.image_id(part), drawing.draw(&looks), figure.caption.clone())
                })
                .collect::<Vec<_>>()
        };
        figures.iter().flat_map(images).collect()
    }
}

impl Report {
    /// Creates a report without sections. `about` describes the run in one or two sentences.
    pub fn new(title: impl Into<String>, about: impl Into<String>, document: Document) -> Self {
        let against = "paper".to_owned();
        Self { title: title.into(), about: about.into(), against, document, sections: vec![] }
    }

    /// Heads the column of published values with `against` instead of `paper`, for values that no
    /// paper prints. JSON and CSV call the column `paper` in either case.
    #[must_use]
    pub fn against(mut self, against: impl Into<String>) -> Self {
        self.against = against.into();
        self
    }

    /// Adds a section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// The report's title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Description of the run, in one or two sentences.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Heading of the column of published values.
    pub(crate) fn column(&self) -> &str {
        &self.against
    }

    /// Warning shown at the top if the run was a quick one.
    pub(crate) fn banner(&self) -> Option<String> {
        self.document.quick().then(|| {
            format!(
                "A quick run: it is shorter or smaller than the full one, and everything below describes it. Its figures are not \
                 comparable with the {}'s.",
                self.against
            )
        })
    }

    /// Comparison of the paper's values with the measured ones; `None` if the published values are
    /// not a paper's.
    pub(crate) fn scorecard(&self) -> Option<Scorecard<'_>> {
        if self.against == "paper" { Scorecard::of(&self.document) } else { None }
    }

    /// The rows and their provenance.
    pub const fn document(&self) -> &Document {
        &self.document
    }

    /// Figures of all sections, in order.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.sections.iter().flat_map(|section| &section.figures)
    }

    /// The rows as aligned tables for a terminal, one per section, and a closing line that counts
    /// them.
    pub fn to_text(&self) -> String {
        text::of(self)
    }

    /// The report as a page.
    pub fn to_page(&self) -> Page {
        html::of(self)
    }

    /// The report as one HTML page that needs no other file and no network.
    pub fn to_html(&self) -> String {
        self.to_page().to_html()
    }

    /// Writes `report.html`, `rows.json`, `rows.csv` and each figure as `ID.svg` into `directory`,
    /// which is created if it is missing. Files of those names are replaced; others are left alone.
    ///
    /// # Errors
    ///
    /// Returns an error if the report is inconsistent (nothing is written then), or if a file
    /// cannot be written. Each file is complete or absent.
    pub fn write(&self, directory: &Path) -> Result<(), WriteError> {
        self.check()?;
        fs::create_dir_all(directory).map_err(|source| WriteError::io(directory, source))?;
        let file = |name: &str, content: &str| {
            let path = directory.join(name);
            AtomicFile::write(&path, content).map_err(|source| WriteError::io(&path, source))
        };
        let page = self.to_page();
        file("report.html", &page.to_html())?;
        file("rows.json", &self.document.to_json())?;
        file("rows.csv", &self.document.to_csv())?;
        page.images().iter().try_for_each(|(id, svg)| file(&format!("{id}.svg"), svg))
    }

    /// Each section that shows rows, with these rows; then the rows that no section names.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, Vec<&Row>)> {
        let named = self.sections.iter().map(|section| (section.title.as_str(), self.rows_of(section)));
        named.chain([("Other rows", self.other_rows())]).filter(|(_, rows)| !rows.is_empty())
    }

    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(crate) fn rows_of(&self, section: &Section) -> Vec<&Row> {
        section.rows.iter().filter_map(|id| self.document.rows().iter().find(|row| row.id() == id)).collect()
    }

    pub(crate) fn other_rows(&self) -> Vec<&Row> {
        let named: BTreeSet<&str> =
            self.sections.iter().flat_map(|section| &section.rows).map(String::as_str).collect();
        self.document.rows().iter().filter(|row| !named.contains(row.id())).collect()
    }

    fn check(&self) -> Result<(), WriteError> {
        let mut ids = BTreeSet::new();
        for row in self.document.rows() {
            if !ids.insert(row.id()) {
                return Err(WriteError::DuplicateRow { id: row.id().to_owned() });
            }
        }
        for section in &self.sections {
            if let Some(id) = section.rows.iter().find(|id| !ids.contains(id.as_str())) {
                return Err(WriteError::UnknownRow { section: section.title.clone(), id: id.clone() });
            }
        }
        let mut figures = BTreeSet::new();
        for figure in self.figures() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if figure.id.is_empty() || !figure.id.chars().all(plain) {
                return Err(WriteError::FigureName { id: figure.id.clone() });
            }
            for part in 0..figure.drawing.parts().len() {
                let id = figure.image_id(part);
                if figures.contains(&id) {
                    return Err(WriteError::DuplicateFigure { id });
                }
                figures.insert(id);
            }
        }
        Ok(())
    }
}

impl Section {
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn body(&self) -> &str {
        &self.text
    }

    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }
}

/// Error returned when a report cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Two rows have the same id.
    #[error("two rows are called `{id}`: give each its own id")]
    DuplicateRow {
        /// Id of both rows.
        id: String,
    },
    /// A section shows a row that the document does not have.
    #[error("the section `{section}` shows the row `{id}`, which does not exist")]
    UnknownRow {
        /// Title of the section.
        section: String,
        /// Id of the missing row.
        id: String,
    },
    /// Two figures have the same name, so that one file would replace the other.
    #[error("two figures are called `{id}`: give each its own name")]
    DuplicateFigure {
        /// Name of both figures.
        id: String,
    },
    /// A figure's name cannot be a file name.
    #[error("`{id}` cannot name a figure: use lower-case letters, digits and `-`")]
    FigureName {
        /// Rejected name.
        id: String,
    },
    /// A file system operation failed.
    #[error("cannot write `{}`: {source}", path.display())]
    Io {
        /// File or directory that could not be written.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

impl WriteError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}
