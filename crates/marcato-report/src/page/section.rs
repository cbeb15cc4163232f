//! Parts of a page.

use core::fmt::{Result, Write};

use super::Table;
use crate::Figure;
use crate::chart::Looks;
use crate::markup::escape;

/// Part of a [`Page`](super::Page) with its own heading. Its contents are shown in the order in
/// which they were added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    title: String,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Text(String),
    Code(String),
    Link { text: String, target: String },
    Figure(Box<Figure>),
    Table(Table),
}

impl Section {
    /// Creates a section without contents.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: vec![] }
    }

    /// Adds plain text; an empty line ends a paragraph.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.blocks.push(Block::Text(text.into()));
        self
    }

    /// Adds preformatted text in a monospaced font, such as a scenario.
    #[must_use]
    pub fn code(mut self, text: impl Into<String>) -> Self {
        self.blocks.push(Block::Code(text.into()));
        self
    }

    /// Adds a link to a relative target.
    #[must_use]
    pub fn link(mut self, text: impl Into<String>, target: impl Into<String>) -> Self {
        self.blocks.push(Block::Link { text: text.into(), target: target.into() });
        self
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(mut self, figure: Figure) -> Self {
        self.blocks.push(Block::Figure(Box::new(figure)));
        self
    }

    /// Adds a table. A table without rows is left out.
    #[must_use]
    pub fn table(mut self, table: Table) -> Self {
        self.blocks.push(Block::Table(table));
        self
    }

    /// Heading of the section.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Figures of the section, in order.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Figure(figure) => Some(&**figure),
            _ => None,
        })
    }

    pub(super) fn write(&self, page: &mut String, anchor: &str, looks: &Looks) -> Result {
        writeln!(
            page,
            "<section>\n<h2 id=\"{anchor}\">{} <a class=\"here\" href=\"#{anchor}\" aria-label=\"Link to this section\">#</a></h2>",
            escape(&self.title)
        )?;
        for block in &self.blocks {
            match block {
                Block::Text(text) => {
                    for paragraph in text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
                        writeln!(page, "<p>{}</p>", escape(paragraph))?;
                    }
                }
                Block::Link { text, target } => {
                    writeln!(page, "<p><a href=\"{}\">{}</a></p>", escape(target), escape(text))?;
                }
                Block::Code(text) => writeln!(page, "<pre>{}</pre>", escape(text))?,
                Block::Figure(figure) => self::figure(page, figure, looks)?,
                Block::Table(table) => table.write(page, &self.title)?,
            }
        }
        page.push_str("</section>\n");
        Ok(())
    }
}

/// Writes a figure: the first image, and below it those of further series, folded. A browser without
/// script unfolds them too.
fn figure(page: &mut String, figure: &Figure, looks: &Looks) -> Result {
    let title = figure.drawing().title();
    if figure.is_folded() {
        let name = if title.is_empty() { figure.id() } else { title };
        writeln!(page, "<details>\n<summary>{}</summary>", escape(name))?;
    }
    writeln!(page, "<figure id=\"{}\">", escape(figure.id()))?;
    for (part, (drawing, names)) in figure.drawing().parts().into_iter().enumerate() {
        if part > 0 {
            let (count, names) = (names.len(), names.join(", "));
            writeln!(page, "<details>\n<summary>{count} more: {}</summary>", escape(&names))?;
        }
        let svg = drawing.draw(looks);
        writeln!(page, "<div class=\"scroll\" tabindex=\"0\">\n{}\n</div>", svg.trim())?;
        if part > 0 {
            writeln!(page, "</details>")?;
        }
    }
    let caption = figure.caption();
    if !caption.is_empty() && !repeats(caption, title) {
        writeln!(page, "<figcaption>{}</figcaption>", escape(caption))?;
    }
    writeln!(page, "</figure>")?;
    if figure.is_folded() {
        writeln!(page, "</details>")?;
    }
    Ok(())
}

/// Returns true if a caption says only what the title does.
pub(super) fn repeats(caption: &str, title: &str) -> bool {
    caption.trim_end_matches('.').eq_ignore_ascii_case(title)
}
