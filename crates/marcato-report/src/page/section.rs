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
                Block::Figure(figure) => writeln!(
                    page,
                    "<figure id=\"{}\">\n<div class=\"scroll\" tabindex=\"0\">\n{}\n</div>\n<figcaption>{}</figcaption>\n</figure>",
                    escape(figure.id()),
                    figure.drawing().draw(looks).trim(),
                    escape(figure.caption())
                )?,
                Block::Table(table) => table.write(page)?,
            }
        }
        page.push_str("</section>\n");
        Ok(())
    }
}
