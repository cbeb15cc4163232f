//! Charts of values in named rows.

use super::drawing::apart;
use super::frame::{self, Frame, Key};
use super::look::{Look, Looks, Named, series_builders};
use super::scale::Scale;
use super::svg::{Anchor, Font, Svg};
use super::{Axis, Colour};
use crate::text;

/// Height of the line of one series in a row.
const LINE: f64 = 18.0;
/// Space between two rows.
const GAP: f64 = 12.0;
/// Widest column of names, as a part of the image; longer names stand above their rows.
const NAMES: f64 = 0.4;

/// Values along a horizontal axis, as marks with whiskers, in named rows: means under settings that
/// are not numbers.
///
/// A row holds a line for each series, one below the other.
///
/// ```
/// use marcato_report::chart::{Axis, DotChart, Dots};
/// let svg = DotChart::new("Goodput", Axis::new("goodput", "Mbit/s"))
///     .rows(["droptail", "codel"])
///     .dots(Dots::new("web", [4.2, 5.1]).intervals([0.2, 0.1]))
///     .to_svg();
/// assert!(svg.contains("codel, web: 5.1 ± 0.1"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DotChart {
    title: String,
    axis: Axis,
    rows: Vec<String>,
    dots: Vec<Dots>,
}

/// Values of one series: one in each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Dots {
    name: String,
    values: Vec<f64>,
    colour: Option<Colour>,
    like: Option<String>,
    intervals: Vec<f64>,
}

impl Dots {
    /// Creates a series with one value for each row in order. A value that is not a number leaves its
    /// place empty.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().collect();
        Self { name: name.into(), values, colour: None, like: None, intervals: vec![] }
    }

    series_builders!();

    fn named(&self) -> Named<'_> {
        (self.like.as_deref().unwrap_or(&self.name), self.colour)
    }

    /// Half-width of the interval of a row; `None` if there is none to draw.
    fn half(&self, row: usize) -> Option<f64> {
        self.intervals.get(row).copied().filter(|half| *half > 0.0 && half.is_finite())
    }
}

impl DotChart {
    /// Creates a chart without rows; `axis` is the horizontal one.
    pub fn new(title: impl Into<String>, axis: Axis) -> Self {
        Self { title: title.into(), axis, rows: vec![], dots: vec![] }
    }

    /// Names the rows, from top to bottom.
    #[must_use]
    pub fn rows<I: Into<String>>(mut self, names: impl IntoIterator<Item = I>) -> Self {
        self.rows.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds a series. Values beyond the last row are left out.
    #[must_use]
    pub fn dots(mut self, dots: Dots) -> Self {
        self.dots.push(dots);
        self
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Charts with the same axis of at most [`MOST_SERIES`](super::MOST_SERIES) series each, and the names of these.
    pub(super) fn parts(&self) -> Vec<(Self, Vec<String>)> {
        let chart = |dots, axis| Self { axis, dots, ..self.clone() };
        apart(&self.dots, &self.axis, || self.reaches(), |dots| &dots.name, Dots::named, chart)
    }

    /// Values of all rows, and the ends of their intervals.
    fn reaches(&self) -> impl Iterator<Item = f64> {
        let count = self.rows.len();
        self.dots.iter().flat_map(move |dots| {
            dots.values.iter().take(count).enumerate().flat_map(|(row, &value)| {
                let half = dots.half(row).unwrap_or(0.0);
                [value - half, value, value + half]
            })
        })
    }

    /// The series by name.
    pub(super) fn named(&self) -> Vec<Named<'_>> {
        self.dots.iter().map(Dots::named).collect()
    }

    /// The chart as an SVG image on its own.
    pub fn to_svg(&self) -> String {
        self.draw(&Looks::assign([self.named()]))
    }

    /// The chart as an SVG image of a report that assigned these looks.
    pub(super) fn draw(&self, looks: &Looks) -> String {
        let looks: Vec<Look> = self.dots.iter().map(|dots| looks.of(dots.named())).collect();
        let entries = self.dots.iter().zip(&looks);
        let entries = entries.map(|(dots, &look)| (Key::Mark(look), dots.name.clone()));
        let legend = frame::legend(&self.title, entries.collect());
        let widest = self.rows.iter().map(|row| Font::LABEL.width(row)).fold(0.0, f64::max);
        let above = widest + 26.0 > frame::WIDTH * NAMES;
        let heading = if above { 20.0 } else { 0.0 };
        let height = heading + LINE * as_f64(self.dots.len()) + GAP;
        let top = Frame::top_below(&legend) + 4.0;
        let bottom = top + height * as_f64(self.rows.len());
        let left = if above { 16.0 } else { 16.0 + widest + 10.0 };
        let labels = self.dots.iter().flat_map(|dots| dots.values.iter().take(self.rows.len()));
        let label = labels.map(|&value| Font::SMALL.width(&printed(value))).fold(0.0, f64::max);
        let frame = Frame { left, right: frame::WIDTH - (label + 16.0).max(34.0), top, bottom };
        // Dots cannot be cut at the frame: for them a window is a range like any other.
        let axis = self.axis.clone().uncut();
        let Some(scale) = Scale::new(&axis, self.reaches(), true, frame.left, frame.right) else {
            return frame::no_data(&self.title);
        };
        let mut svg = Svg::new(frame::WIDTH, bottom + 52.0, &self.title);
        frame::head(&mut svg, &self.title, &legend);
        frame::horizontal(&mut svg, frame, &self.axis, &scale);
        for (row, name) in self.rows.iter().enumerate() {
            let start = top + height * as_f64(row) + GAP / 2.0;
            if above {
                svg.text(Font::LABEL, (left + 6.0, start + 14.0), name);
            } else {
                let middle = start + LINE * as_f64(self.dots.len()) / 2.0;
                svg.text(Font::LABEL.at(Anchor::End), (left - 10.0, middle + 4.0), name);
            }
            for (line, (dots, look)) in self.dots.iter().zip(&looks).enumerate() {
                let shown = dots.values.get(row).copied().filter(|&value| self.axis.shows(value));
                let Some(value) = shown else { continue };
                let place = (scale.place(value), start + heading + LINE * (as_f64(line) + 0.5));
                let mut about = format!("{name}, {}: {}", dots.name, printed(value));
                let mut end = place.0;
                if let Some(half) = dots.half(row) {
                    about = format!("{about} ± {}", printed(half));
                    // On a logarithmic axis an interval may begin at or below 0, which has no place.
                    let low = value - half;
                    let low = if self.axis.shows(low) { scale.place(low) } else { frame.left };
                    end = scale.place(value + half);
                    let colour = (self.dots.len() > 1).then_some(look.colour);
                    svg.whisker_across(colour, place.1, low.max(frame.left), end);
                }
                svg.named_mark(look.colour, look.shape(), place, &about);
                svg.text(Font::SMALL, (end.max(place.0 + 4.0) + 6.0, place.1 + 4.0), &printed(value));
            }
        }
        svg.line("mc-axis", (frame.left, top), (frame.left, bottom));
        svg.finish()
    }
}

fn printed(value: f64) -> String {
    text::number(Some(value))
}

/// Converts a count. Counts of rows and series are small.
fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(dots: Dots) -> String {
        DotChart::new("t", Axis::new("time", "ms")).rows(["one", "two"]).dots(dots).to_svg()
    }

    /// Horizontal places of the left end, the mark and the right end of the first whisker.
    fn places(svg: &str) -> [f64; 3] {
        let after = |line: &str, mark: &str| -> f64 {
            line.split(mark).nth(1).unwrap().split([' ', '"']).next().unwrap().parse().unwrap()
        };
        let whisker = svg.lines().find(|line| line.contains("mc-whisker\" d")).unwrap();
        let mark = svg.lines().find(|line| line.contains("<title>one")).unwrap();
        let right = whisker.split('M').nth(2).unwrap();
        [after(whisker, "d=\"M"), after(mark, "cx=\""), right.split(' ').next().unwrap().parse().unwrap()]
    }

    #[test]
    fn a_mark_lies_in_the_middle_of_its_whisker() {
        let svg = chart(Dots::new("s", [10.0, 20.0]).intervals([2.0, f64::NAN]));
        let [left, mark, right] = places(&svg);
        assert!(left < mark && (mark - left - (right - mark)).abs() < 0.03, "{left} {mark} {right}");
        assert_eq!(svg.matches("mc-whisker\" d").count(), 1);
        assert!(svg.contains("<title>one, s: 10 ± 2</title>") && svg.contains("<title>two, s: 20</title>"));
    }

    #[test]
    fn dots_stand_on_an_axis_from_nought() {
        assert!(chart(Dots::new("s", [90.0, 100.0])).contains(">0</text>"));
    }

    #[test]
    fn long_names_stand_whole_above_their_rows() {
        let name = "{ kind = \"codel\", target = \"5 ms\", interval = \"100 ms\" }";
        let svg = DotChart::new("t", Axis::new("x", "")).rows([name]).dots(Dots::new("s", [1.0])).to_svg();
        let line = svg.lines().find(|line| line.contains("interval = ") && line.contains("<text")).unwrap();
        assert!(line.contains("x=\"22\"") && !line.contains("text-anchor=\"end\""), "{line}");
    }

    #[test]
    fn values_that_are_not_numbers_have_no_dot() {
        let svg = chart(Dots::new("s", [f64::NAN, 1.0, 2.0]));
        assert!(!svg.contains("NaN") && !svg.contains("one, s") && svg.contains("two, s: 1"));
        assert!(chart(Dots::new("s", [])).contains("no data"));
    }
}
