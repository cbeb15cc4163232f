//! HTML pages for results: text, figures and sortable tables in one file that needs no other file
//! and no network.
//!
//! A [`Page`] is filled by chained calls. [`Report`](crate::Report) builds its HTML from one, and
//! other commands use it directly.

mod section;
mod table;

use core::fmt::{Result, Write};
use std::collections::BTreeSet;

pub use self::section::Section;
pub use self::table::{Cell, Column, Table};
use crate::Figure;
use crate::chart::{Drawing, Looks};
use crate::markup::escape;

const STYLE: &str = include_str!("page.css");
/// Script that sorts tables. Without it they are readable, but stay in their first order.
const SCRIPT: &str = include_str!("sort.js");

/// An HTML page with a title, a list of contents and sections.
///
/// ```
/// use marcato_report::page::{Cell, Column, Page, Section, Table};
/// let flows = Table::new("Goodputs")
///     .column(Column::text("flow"))
///     .column(Column::number("goodput").unit("Mbit/s"))
///     .row([Cell::text("web"), Cell::number(Some(4.2))]);
/// let html = Page::new("One link")
///     .about("A web page beside a file transfer.")
///     .provenance("seed 1, Marcato 0.1.0")
///     .section(Section::new("Flows").text("The file takes what the page leaves.").table(flows))
///     .to_html();
/// assert!(html.contains("<caption>Goodputs</caption>"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    title: String,
    about: String,
    provenance: String,
    banners: Vec<String>,
    summary: Vec<String>,
    sections: Vec<Section>,
    without_script: bool,
}

impl Page {
    /// Creates a page without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Sets the introduction: a description of the run, in one or two sentences.
    #[must_use]
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    /// Sets the line that identifies the run: seed, version, commit.
    #[must_use]
    pub fn provenance(mut self, provenance: impl Into<String>) -> Self {
        self.provenance = provenance.into();
        self
    }

    /// Adds a warning above everything else.
    #[must_use]
    pub fn banner(mut self, text: impl Into<String>) -> Self {
        self.banners.push(text.into());
        self
    }

    /// Adds a line in bold below the introduction: the result in one sentence.
    #[must_use]
    pub fn summary(mut self, text: impl Into<String>) -> Self {
        self.summary.push(text.into());
        self
    }

    /// Leaves out the script that sorts tables, for pages that show what strangers have chosen: a
    /// policy can then forbid all scripts.
    #[must_use]
    pub fn without_script(mut self) -> Self {
        self.without_script = true;
        self
    }

    /// Adds a section. A page of several sections has a list of contents.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Images of all figures in order, as pairs of the image's id and its SVG text. They equal
    /// those on the page. A chart of many series has several images, as on the page.
    pub fn images(&self) -> Vec<(String, String)> {
        let images = Figure::images(self.sections.iter().flat_map(Section::figures));
        images.into_iter().map(|(id, svg, _)| (id, svg)).collect()
    }

    /// Looks of all series, shared by all figures.
    fn looks(&self) -> Looks {
        Drawing::looks(self.sections.iter().flat_map(Section::figures).map(Figure::drawing))
    }

    /// The page as one HTML document.
    pub fn to_html(&self) -> String {
        let mut page = String::with_capacity(64 * 1024);
        // Writing to a string cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, page: &mut String) -> Result {
        write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
            title = escape(&self.title)
        )?;
        for banner in &self.banners {
            writeln!(page, "<p class=\"banner\" role=\"note\">{}</p>", escape(banner))?;
        }
        for (class, text) in [("about", &self.about), ("run", &self.provenance)] {
            if !text.is_empty() {
                writeln!(page, "<p class=\"{class}\">{}</p>", escape(text))?;
            }
        }
        for line in &self.summary {
            writeln!(page, "<p class=\"summary\">{}</p>", escape(line))?;
        }
        let (anchors, looks) = (self.anchors(), self.looks());
        if self.sections.len() > 1 {
            page.push_str("<nav aria-label=\"Contents\">\n<ol>\n");
            for (section, anchor) in self.sections.iter().zip(&anchors) {
                writeln!(page, "<li><a href=\"#{anchor}\">{}</a></li>", escape(section.title()))?;
            }
            page.push_str("</ol>\n</nav>\n");
        }
        for (section, anchor) in self.sections.iter().zip(&anchors) {
            section.write(page, anchor, &looks)?;
        }
        if !self.without_script {
            writeln!(page, "<script>\n{SCRIPT}</script>")?;
        }
        writeln!(page, "</body>\n</html>")
    }

    /// An anchor for each section: its title in lower-case letters, digits and `-`. It differs from
    /// all other anchors and from all figure ids.
    fn anchors(&self) -> Vec<String> {
        let mut taken: BTreeSet<String> =
            self.sections.iter().flat_map(Section::figures).map(|figure| figure.id().to_owned()).collect();
        let mut anchor = |section: &Section| {
            let slug = slug(section.title());
            let numbered = (2_u32..).map(|number| format!("{slug}-{number}"));
            let free = core::iter::once(slug.clone()).chain(numbered).find(|name| !taken.contains(name));
            let free = free.unwrap_or(slug);
            taken.insert(free.clone());
            free
        };
        self.sections.iter().map(&mut anchor).collect()
    }
}

fn slug(title: &str) -> String {
    let plain = title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    let words: Vec<String> = plain.collect::<String>().split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { "section".to_owned() } else { words.join("-") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, BarChart, Bars, LineChart, Series};

    #[test]
    fn sections_have_anchors_of_their_own_that_the_contents_name() {
        let figure = Figure::new("tail", "<svg></svg>", "");
        let page = Page::new("t")
            .section(Section::new("Tail").figure(figure))
            .section(Section::new("Fig. 4: RTT & loss"))
            .section(Section::new("Fig. 4: RTT, loss"))
            .section(Section::new("Δ"));
        assert_eq!(page.anchors(), ["tail-2", "fig-4-rtt-loss", "fig-4-rtt-loss-2", "section"]);
        let html = page.to_html();
        for anchor in page.anchors() {
            assert_eq!(html.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}");
            assert!(html.contains(&format!("<li><a href=\"#{anchor}\">")), "{anchor}");
        }
    }

    #[test]
    fn a_name_has_one_colour_in_all_figures_whatever_its_place() {
        let lines = LineChart::new("a", Axis::new("x", ""), Axis::new("y", ""))
            .series(Series::line("LowRTT", [(0.0, 1.0)]))
            .series(Series::line("CWR", [(0.0, 2.0)]));
        let bars = BarChart::new("b", Axis::new("y", "")).groups(["g"]).bars(Bars::new("CWR", [1.0]));
        let page = Page::new("t").section(
            Section::new("s").figure(Figure::new("a", lines, "")).figure(Figure::new("b", bars, "")),
        );
        let images = page.images();
        assert!(
            images[0].1.contains("<polyline class=\"mc-s-vermilion\"")
                && images[1].1.contains("class=\"mc-f-vermilion\"")
        );
        assert!(!images[1].1.contains("class=\"mc-f-blue\""));
        let html = page.to_html();
        assert!(images.iter().all(|(_, svg)| html.contains(svg.trim())));
    }

    #[test]
    fn a_lone_section_needs_no_contents() {
        assert!(!Page::new("t").section(Section::new("only")).to_html().contains("<nav"));
    }

    #[test]
    fn a_banner_stands_above_everything_else() {
        let html = Page::new("t").about("about").banner("mind <this>").to_html();
        let banner = html.find("mind &lt;this&gt;").unwrap();
        assert!(banner < html.find("about</p>").unwrap());
    }

    #[test]
    fn a_page_without_script_has_none_and_links_are_escaped() {
        let section = Section::new("s").link("a < b", "x?\"><script>");
        let html = Page::new("t").section(section).without_script().to_html();
        assert!(html.contains("<p><a href=\"x?&quot;&gt;&lt;script&gt;\">a &lt; b</a></p>"), "{html}");
        assert!(!html.contains("<script") && html.ends_with("</body>\n</html>\n"));
    }

    #[test]
    fn the_page_fits_a_phone_and_asks_for_nothing() {
        let html = Page::new("t").section(Section::new("s").code("a < b")).to_html();
        assert!(html.contains("width=device-width"));
        for outside in ["src=", "://", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
