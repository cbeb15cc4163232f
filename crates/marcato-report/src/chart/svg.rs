//! SVG writer of charts.

use core::fmt::Write;

use super::Colour;
use super::look::Look;
use crate::markup::escape;

/// Style for the light and the dark look. Classes carry a prefix, because the style of an image
/// inside a page applies to the whole page. Programs that ignore `@media` show the light look.
fn style() -> String {
    let colours = |tone: fn(Colour) -> &'static str| -> String {
        let rule = |colour: Colour| {
            let (class, tone) = (colour.class(), tone(colour));
            format!(".mc-f-{class}{{fill:{tone}}}.mc-s-{class}{{stroke:{tone}}}")
        };
        Colour::ALL.into_iter().map(rule).collect()
    };
    format!(
        ".mc-bg{{fill:#ffffff}}.mc-text{{fill:#1f2328}}.mc-soft{{fill:#57606a}}.mc-grid{{stroke:#dfe3e8}}\
         .mc-axis{{stroke:#6e7781}}.mc-shade{{fill:#6e7781;fill-opacity:.14}}.mc-hatch{{stroke:#ffffff}}\
         .mc-paper{{fill:#ffffff;stroke:#1f2328}}.mc-whisker{{stroke:#1f2328}}{}\
         text{{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}}\
         @media (prefers-color-scheme:dark){{.mc-bg{{fill:#14171c}}.mc-text{{fill:#e6edf3}}.mc-soft{{fill:#9aa4af}}\
         .mc-grid{{stroke:#2b323a}}.mc-axis{{stroke:#8b949e}}.mc-shade{{fill:#8b949e}}.mc-hatch{{stroke:#14171c}}\
         .mc-paper{{fill:#14171c;stroke:#e6edf3}}.mc-whisker{{stroke:#e6edf3}}{}}}",
        colours(Colour::light),
        colours(Colour::dark)
    )
}

/// Part of a text that is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Font of a text.
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
        Self { size: 13.0, bold: false, soft: false, anchor: Anchor::Start, upright: false };
    pub(super) const SMALL: Self = Self { size: 12.0, soft: true, ..Self::LABEL };
    pub(super) const TITLE: Self = Self { size: 15.0, bold: true, ..Self::LABEL };

    pub(super) const fn at(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub(super) const fn upright(self) -> Self {
        Self { upright: true, ..self }
    }

    /// Estimated width of `text`, in pixels. It is rather too large, because the reader's font is
    /// unknown.
    pub(super) fn width(self, text: &str) -> f64 {
        let ems: f64 = text
            .chars()
            .map(|c| match c {
                'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 0.36,
                'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.98,
                'A'..='Z' => 0.74,
                // Latin and Greek; later scripts may be as wide as they are high.
                '\0'..='\u{3ff}' => 0.64,
                _ => 1.0,
            })
            .sum();
        ems * self.size * if self.bold { 1.1 } else { 1.0 }
    }
}

/// Filling and outline of a shape.
#[derive(Clone, Copy, Debug)]
pub(super) enum Paint {
    /// Filled, and hatched if the look has a pattern.
    Solid(Look),
    /// Outlined, with a hint of its colour inside.
    Outlined(Colour),
    /// Outlined, and lighter inside than a filled one: a part of it.
    Light(Colour),
    /// Filled with this depth, from 0 to 1. Text stays readable even at 1.
    Shaded(Colour, f64),
}

impl Paint {
    pub(super) const fn colour(self) -> Colour {
        match self {
            Self::Solid(look) => look.colour,
            Self::Outlined(colour) | Self::Light(colour) | Self::Shaded(colour, _) => colour,
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

    /// Draws a rectangle between two corners; `about` is its tooltip.
    pub(super) fn rect(&mut self, paint: Paint, (x1, y1): (f64, f64), (x2, y2): (f64, f64), about: &str) {
        let (x, y, width, height) = (x1.min(x2), y1.min(y2), (x1 - x2).abs(), (y1 - y2).abs());
        let look = match paint {
            Paint::Solid(look) => format!(r#"class="mc-f-{}""#, look.colour.class()),
            Paint::Shaded(colour, depth) => {
                format!(r#"class="mc-f-{}" fill-opacity="{:.2}""#, colour.class(), 0.04 + 0.66 * depth)
            }
            Paint::Outlined(colour) | Paint::Light(colour) => {
                let class = colour.class();
                let opacity = if matches!(paint, Paint::Light(_)) { "0.4" } else { "0.15" };
                format!(r#"class="mc-f-{class} mc-s-{class}" fill-opacity="{opacity}" stroke-width="1.5""#)
            }
        };
        // Insets the stroke, so that it lies inside the rectangle.
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
        if let Paint::Solid(look) = paint {
            self.hatch(look.pattern, (x, y), (x + width, y + height));
        }
    }

    /// Draws stripes across an area: horizontal for pattern 1, vertical for 2, both for 3.
    fn hatch(&mut self, pattern: u8, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let steps = |from: f64, to: f64| {
            (1..u16::MAX).map(move |step| from + 4.0 * f64::from(step)).take_while(move |&at| at < to)
        };
        let mut path = String::new();
        if pattern & 1 != 0 {
            steps(y1, y2).for_each(|y| path.push_str(&format!("M{} {}H{}", Px(x1), Px(y), Px(x2))));
        }
        if pattern & 2 != 0 {
            steps(x1, x2).for_each(|x| path.push_str(&format!("M{} {}V{}", Px(x), Px(y1), Px(y2))));
        }
        if !path.is_empty() {
            let _ = writeln!(self.body, r#"<path class="mc-hatch" d="{path}" stroke-width="1.2"/>"#);
        }
    }

    /// Draws a JPEG image, given as base64, into a frame; `about` is its tooltip. Without an image the
    /// frame is white.
    pub(super) fn picture(
        &mut self,
        jpeg: Option<&str>,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        about: &str,
    ) {
        let place = format!(r#"x="{}" y="{}" width="{}" height="{}""#, Px(x), Px(y), Px(width), Px(height));
        let title = format!("<title>{}</title>", escape(about));
        let _ = writeln!(self.body, r##"<rect class="mc-axis" fill="#ffffff" {place}>{title}</rect>"##);
        if let Some(jpeg) = jpeg {
            let _ = writeln!(
                self.body,
                r#"<image {place} preserveAspectRatio="xMidYMin slice" href="data:image/jpeg;base64,{jpeg}">{title}</image>"#
            );
        }
    }

    /// Draws a grey area behind the data.
    pub(super) fn shade(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.body,
            r#"<rect class="mc-shade" x="{}" y="{}" width="{}" height="{}"/>"#,
            Px(x1),
            Px(y1),
            Px(x2 - x1),
            Px(y2 - y1)
        );
    }

    /// Draws an interval around a value: a line with a bar at either end, in the colour of its series
    /// if it has one.
    pub(super) fn whisker(&mut self, colour: Option<Colour>, x: f64, low: f64, high: f64) {
        let (left, right) = (Px(x - 4.0), Px(x + 4.0));
        let _ = writeln!(
            self.body,
            r#"<path class="mc-whisker{stroke}" d="M{left} {low}H{right}M{left} {high}H{right}M{x} {low}V{high}" fill="none" stroke-width="1.2"/>"#,
            stroke = stroke(colour),
            x = Px(x),
            low = Px(low),
            high = Px(high)
        );
    }

    /// Draws a horizontal interval, as [`whisker`](Self::whisker) draws a vertical one.
    pub(super) fn whisker_across(&mut self, colour: Option<Colour>, y: f64, left: f64, right: f64) {
        let (top, bottom) = (Px(y - 4.0), Px(y + 4.0));
        let _ = writeln!(
            self.body,
            r#"<path class="mc-whisker{stroke}" d="M{left} {top}V{bottom}M{right} {top}V{bottom}M{left} {y}H{right}" fill="none" stroke-width="1.2"/>"#,
            stroke = stroke(colour),
            y = Px(y),
            left = Px(left),
            right = Px(right)
        );
    }

    /// Draws a published value: a hollow diamond, in the colour of its series if it has one.
    pub(super) fn paper(&mut self, colour: Option<Colour>, (x, y): (f64, f64), about: &str) {
        let stroke = stroke(colour);
        let _ = write!(
            self.body,
            r#"<path class="mc-paper{stroke}" d="M{} {}l5.5 5.5l-5.5 5.5l-5.5 -5.5z" stroke-width="1.8""#,
            Px(x),
            Px(y - 5.5)
        );
        let _ = if about.is_empty() {
            writeln!(self.body, "/>")
        } else {
            writeln!(self.body, "><title>{}</title></path>", escape(about))
        };
    }

    /// Draws an arrow head with its tip at a place, for data that continue beyond the frame.
    pub(super) fn arrow(&mut self, colour: Colour, way: Way, (x, y): (f64, f64), about: &str) {
        let wings = match way {
            Way::Up => "l4.5 9h-9z",
            Way::Down => "l4.5 -9h-9z",
            Way::Right => "l-9 4.5v-9z",
        };
        let _ = writeln!(
            self.body,
            r#"<path class="mc-f-{}" d="M{} {}{wings}"><title>{}</title></path>"#,
            colour.class(),
            Px(x),
            Px(y),
            escape(about)
        );
    }

    pub(super) fn polyline(&mut self, look: Look, dashed: bool, points: &[(f64, f64)]) {
        let places: Vec<String> = points.iter().map(|&(x, y)| format!("{},{}", Px(x), Px(y))).collect();
        let _ = writeln!(
            self.body,
            r#"<polyline class="mc-s-{}" points="{}" fill="none" stroke-width="2" stroke-linejoin="round"{}/>"#,
            look.colour.class(),
            places.join(" "),
            dash(look, dashed)
        );
    }

    /// Draws stairs through these points: horizontally to the next, then vertically. The text is
    /// half as long as that of a [`polyline`](Self::polyline).
    pub(super) fn stairs(&mut self, look: Look, dashed: bool, points: &[(f64, f64)]) {
        let Some((&(x, y), rest)) = points.split_first() else { return };
        let mut path = format!("M{} {}", Px(x), Px(y));
        for &(x, y) in rest {
            let _ = write!(path, "H{}V{}", Px(x), Px(y));
        }
        let _ = writeln!(
            self.body,
            r#"<path d="{path}" class="mc-s-{}" fill="none" stroke-width="2" stroke-linejoin="round"{}/>"#,
            look.colour.class(),
            dash(look, dashed)
        );
    }

    /// Draws the mark of a point. Its shape differs between series, so that colour is not the only
    /// difference.
    pub(super) fn mark(&mut self, colour: Colour, shape: usize, place: (f64, f64)) {
        self.named_mark(colour, shape, place, "");
    }

    /// Draws a [`mark`](Self::mark) whose tooltip is `about`.
    pub(super) fn named_mark(&mut self, colour: Colour, shape: usize, (x, y): (f64, f64), about: &str) {
        let class = colour.class();
        let end = |element: &str| match about {
            "" => "/>".to_owned(),
            _ => format!("><title>{}</title></{element}>", escape(about)),
        };
        let mut path = |from: (f64, f64), d: &str| {
            let (x, y) = (Px(x + from.0), Px(y + from.1));
            let _ = writeln!(self.body, r#"<path class="mc-f-{class}" d="M{x} {y}{d}"{}"#, end("path"));
        };
        match shape % 8 {
            1 => path((-3.25, -3.25), "h6.5v6.5h-6.5z"),
            2 => path((0.0, -5.0), "l4.5 8h-9z"),
            3 => path((0.0, -4.5), "l4.5 4.5l-4.5 4.5l-4.5 -4.5z"),
            4 => path((0.0, 5.0), "l4.5 -8h-9z"),
            // An upright cross, a diagonal one, and an hourglass.
            5 => path((-1.25, -4.5), "h2.5v3.25h3.25v2.5h-3.25v3.25h-2.5v-3.25h-3.25v-2.5h3.25z"),
            6 => path(
                (0.0, -1.8),
                "l2.7 -2.7l1.8 1.8l-2.7 2.7l2.7 2.7l-1.8 1.8l-2.7 -2.7l-2.7 2.7l-1.8 -1.8l2.7 -2.7l-2.7 -2.7l1.8 -1.8z",
            ),
            7 => path((-4.0, -4.5), "h8l-8 9h8z"),
            _ => {
                let _ = writeln!(
                    self.body,
                    r#"<circle class="mc-f-{class}" cx="{}" cy="{}" r="3.5"{}"#,
                    Px(x),
                    Px(y),
                    end("circle")
                );
            }
        }
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
             <style>{}</style>\n<rect class=\"mc-bg\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n{}</svg>\n",
            style(),
            self.body
        )
    }
}

/// Class that strokes with the colour of a series, after another class.
fn stroke(colour: Option<Colour>) -> String {
    colour.map(|colour| format!(" mc-s-{}", colour.class())).unwrap_or_default()
}

/// Dashes of a line: the plain dashes if asked for, else those of its look.
fn dash(look: Look, dashed: bool) -> &'static str {
    match look.pattern {
        _ if dashed => r#" stroke-dasharray="6 4""#,
        0 => "",
        1 => r#" stroke-dasharray="2 3""#,
        2 => r#" stroke-dasharray="14 4""#,
        _ => r#" stroke-dasharray="10 3 2 3""#,
    }
}

/// Direction of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
    Right,
}

/// A length in pixels, rounded to a hundredth, so that the last bits of a computation never show.
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
        svg.rect(Paint::Solid(Look::of(0)), (0.0, 0.0), (1.0, 1.0), "x > y");
        let image = svg.finish();
        assert!(image.contains("aria-label=\"a &lt; b &amp; &quot;c&quot;\""));
        assert!(image.contains("&lt;script&gt;") && !image.contains("<script>"));
        assert!(image.contains("<title>x &gt; y</title>"));
    }
}
