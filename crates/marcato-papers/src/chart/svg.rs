//! Writing SVG.

use core::fmt::Write;

use super::Colour;
use crate::markup::escape;

/// The light and the dark look. Classes carry a prefix, for the style of an image that stands inside a page
/// is the page's too. Programs that do not know `@media` show the light look.
const STYLE: &str = "\
.mc-bg{fill:#ffffff}.mc-text{fill:#1f2328}.mc-soft{fill:#57606a}.mc-grid{stroke:#dfe3e8}.mc-axis{stroke:#6e7781}\
text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\
@media (prefers-color-scheme:dark){.mc-bg{fill:#14171c}.mc-text{fill:#e6edf3}.mc-soft{fill:#9aa4af}\
.mc-grid{stroke:#2b323a}.mc-axis{stroke:#8b949e}}";

/// Where a text is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Font {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) soft: bool,
    pub(super) anchor: Anchor,
    /// Turned a quarter to the left, to be read from below.
    pub(super) upright: bool,
}

impl Font {
    pub(super) const LABEL: Self =
        Self { size: 12.0, bold: false, soft: false, anchor: Anchor::Start, upright: false };
    pub(super) const SMALL: Self = Self { size: 11.0, soft: true, ..Self::LABEL };
    pub(super) const TITLE: Self = Self { size: 15.0, bold: true, ..Self::LABEL };

    pub(super) const fn at(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub(super) const fn upright(self) -> Self {
        Self { upright: true, ..self }
    }

    /// About how wide `text` is; rather too wide than too narrow, because the reader's font is not known.
    pub(super) fn width(self, text: &str) -> f64 {
        let ems: f64 = text
            .chars()
            .map(|c| match c {
                'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 0.36,
                'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.98,
                'A'..='Z' => 0.74,
                // Latin and Greek; whatever comes after may be as wide as it is high.
                '\0'..='\u{3ff}' => 0.64,
                _ => 1.0,
            })
            .sum();
        ems * self.size * if self.bold { 1.1 } else { 1.0 }
    }
}

/// How a shape is filled and drawn around.
#[derive(Clone, Copy, Debug)]
pub(super) enum Paint {
    /// Filled.
    Solid(Colour),
    /// Drawn around, with a hint of its colour inside.
    Outlined(Colour),
    /// Drawn around, and lighter inside than a filled one: a part of it.
    Light(Colour),
    /// Filled so deeply, from 0 to 1, and never so deeply that a text upon it could not be read.
    Shaded(Colour, f64),
}

impl Paint {
    pub(super) const fn colour(self) -> Colour {
        match self {
            Self::Solid(colour) | Self::Outlined(colour) | Self::Light(colour) | Self::Shaded(colour, _) => {
                colour
            }
        }
    }
}

/// An image being drawn.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: title.to_owned(), body: String::new() }
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#,
            Px(x1),
            Px(y1),
            Px(x2),
            Px(y2)
        );
    }

    /// A rectangle between two corners; `about` is shown when somebody points at it.
    pub(super) fn rect(&mut self, paint: Paint, (x1, y1): (f64, f64), (x2, y2): (f64, f64), about: &str) {
        let (x, y, width, height) = (x1.min(x2), y1.min(y2), (x1 - x2).abs(), (y1 - y2).abs());
        let look = match paint {
            Paint::Solid(colour) => format!(r#"fill="{}""#, colour.hex()),
            Paint::Shaded(colour, depth) => {
                format!(r#"fill="{}" fill-opacity="{:.2}""#, colour.hex(), 0.04 + 0.66 * depth)
            }
            Paint::Outlined(colour) | Paint::Light(colour) => {
                let hex = colour.hex();
                let opacity = if matches!(paint, Paint::Light(_)) { "0.4" } else { "0.15" };
                format!(r#"fill="{hex}" fill-opacity="{opacity}" stroke="{hex}" stroke-width="1.5""#)
            }
        };
        // The stroke lies inside the rectangle.
        let inset = if matches!(paint, Paint::Solid(_) | Paint::Shaded(..)) { 0.0 } else { 0.75 };
        let _ = write!(
            self.body,
            r#"<rect x="{}" y="{}" width="{}" height="{}" {look}"#,
            Px(x + inset),
            Px(y + inset),
            Px((width - 2.0 * inset).max(0.0)),
            Px((height - 2.0 * inset).max(0.0))
        );
        let _ = if about.is_empty() {
            writeln!(self.body, "/>")
        } else {
            writeln!(self.body, "><title>{}</title></rect>", escape(about))
        };
    }

    pub(super) fn polyline(&mut self, colour: Colour, dashed: bool, points: &[(f64, f64)]) {
        let places: Vec<String> = points.iter().map(|&(x, y)| format!("{},{}", Px(x), Px(y))).collect();
        let dash = if dashed { r#" stroke-dasharray="6 4""# } else { "" };
        let _ = writeln!(
            self.body,
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="2" stroke-linejoin="round"{dash}/>"#,
            places.join(" "),
            colour.hex()
        );
    }

    /// Stairs through these points: from each along to the next, then up or down. In half the text that a
    /// [`polyline`](Self::polyline) takes.
    pub(super) fn stairs(&mut self, colour: Colour, dashed: bool, points: &[(f64, f64)]) {
        let Some((&(x, y), rest)) = points.split_first() else { return };
        let mut path = format!("M{} {}", Px(x), Px(y));
        for &(x, y) in rest {
            let _ = write!(path, "H{}V{}", Px(x), Px(y));
        }
        let dash = if dashed { r#" stroke-dasharray="6 4""# } else { "" };
        let _ = writeln!(
            self.body,
            r#"<path d="{path}" fill="none" stroke="{}" stroke-width="2" stroke-linejoin="round"{dash}/>"#,
            colour.hex()
        );
    }

    /// The mark of a point; its shape differs from series to series, so that colour is not the only difference.
    pub(super) fn mark(&mut self, colour: Colour, shape: usize, (x, y): (f64, f64)) {
        let fill = colour.hex();
        let _ = match shape % 4 {
            0 => writeln!(self.body, r#"<circle cx="{}" cy="{}" r="3.5" fill="{fill}"/>"#, Px(x), Px(y)),
            1 => writeln!(
                self.body,
                r#"<rect x="{}" y="{}" width="6.5" height="6.5" fill="{fill}"/>"#,
                Px(x - 3.25),
                Px(y - 3.25)
            ),
            2 => writeln!(self.body, r#"<path d="M{} {}l4.5 8h-9z" fill="{fill}"/>"#, Px(x), Px(y - 5.0)),
            _ => writeln!(
                self.body,
                r#"<path d="M{} {}l4.5 4.5l-4.5 4.5l-4.5 -4.5z" fill="{fill}"/>"#,
                Px(x),
                Px(y - 4.5)
            ),
        };
    }

    pub(super) fn text(&mut self, font: Font, (x, y): (f64, f64), text: &str) {
        let class = if font.soft { "mc-soft" } else { "mc-text" };
        let anchor = match font.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if font.bold { r#" font-weight="600""# } else { "" };
        let turn = if font.upright {
            format!(r#" transform="rotate(-90 {} {})""#, Px(x), Px(y))
        } else {
            String::new()
        };
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{}" y="{}" font-size="{}" text-anchor="{anchor}"{weight}{turn}>{}</text>"#,
            Px(x),
            Px(y),
            Px(font.size),
            escape(text)
        );
    }

    pub(super) fn finish(self) -> String {
        let (width, height, title) = (Px(self.width), Px(self.height), escape(&self.title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n<rect class=\"mc-bg\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// A length in pixels, to a hundredth, so that the last bits of a computation never show.
#[derive(Clone, Copy)]
struct Px(f64);

impl core::fmt::Display for Px {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = format!("{:.2}", self.0);
        let short = text.trim_end_matches('0').trim_end_matches('.');
        f.write_str(if short == "-0" { "0" } else { short })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short_and_never_minus_nought() {
        let printed = [1.0, 2.5, 0.333_33, -0.001, 100.0].map(|x| Px(x).to_string());
        assert_eq!(printed, ["1", "2.5", "0.33", "0", "100"]);
    }

    #[test]
    fn text_and_titles_are_escaped() {
        let mut svg = Svg::new(10.0, 10.0, "a < b & \"c\"");
        svg.text(Font::LABEL, (0.0, 0.0), "<script>");
        svg.rect(Paint::Solid(Colour::Blue), (0.0, 0.0), (1.0, 1.0), "x > y");
        let image = svg.finish();
        assert!(image.contains("aria-label=\"a &lt; b &amp; &quot;c&quot;\""));
        assert!(image.contains("&lt;script&gt;") && !image.contains("<script>"));
        assert!(image.contains("<title>x &gt; y</title>"));
    }
}
