//! Charts of time spans in rows.

use super::frame::{self, Frame, Key};
use super::look::{Looks, Named};
use super::scale::Scale;
use super::svg::{Anchor, Font, Paint, Svg};
use super::{Axis, Colour};

/// Spans along a horizontal axis, in rows: a waterfall, or the packets on a wire.
///
/// A row holds one line of spans for each category, one below the other, or a common one if
/// [`overlaid`](Self::overlaid).
///
/// ```
/// use marcato_report::chart::{Axis, Interval, IntervalChart};
/// let svg = IntervalChart::new("Page load", Axis::new("time", "ms"))
///     .interval(Interval::new("P0", "baseline", 1293.0, 1327.0))
///     .interval(Interval::new("P0", "CATS", 0.0, 130.0).label("130"))
///     .to_svg();
/// assert!(svg.contains("P0, CATS: 0 to 130"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalChart {
    title: String,
    axis: Axis,
    colours: Vec<(String, Colour)>,
    outlined: Vec<String>,
    intervals: Vec<Interval>,
    overlaid: bool,
}

/// A span of a row, in a category.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    row: String,
    category: String,
    start: f64,
    end: f64,
    label: String,
}

impl Interval {
    /// Creates the span from `start` to `end` in the named row and category. It is left out if its
    /// ends are not finite, or if it ends before it starts.
    pub fn new(row: impl Into<String>, category: impl Into<String>, start: f64, end: f64) -> Self {
        Self { row: row.into(), category: category.into(), start, end, label: String::new() }
    }

    /// Writes `label` next to the end of the span.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }
}

impl IntervalChart {
    /// Creates a chart without spans; `axis` is the horizontal one.
    pub fn new(title: impl Into<String>, axis: Axis) -> Self {
        let title = title.into();
        Self { title, axis, colours: vec![], outlined: vec![], intervals: vec![], overlaid: false }
    }

    /// Adds a span. Rows are drawn from top to bottom, and categories listed in the legend, in the
    /// order of first use.
    #[must_use]
    pub fn interval(mut self, interval: Interval) -> Self {
        self.intervals.push(interval);
        self
    }

    /// Adds spans.
    #[must_use]
    pub fn intervals(mut self, intervals: impl IntoIterator<Item = Interval>) -> Self {
        self.intervals.extend(intervals);
        self
    }

    /// Chooses the colour of the category `name`; by default, each category has its own.
    #[must_use]
    pub fn colour(mut self, name: impl Into<String>, colour: Colour) -> Self {
        self.colours.push((name.into(), colour));
        self
    }

    /// Draws the category `name` as an outline, behind others that it surrounds. Add its spans first.
    #[must_use]
    pub fn outlined(mut self, name: impl Into<String>) -> Self {
        self.outlined.push(name.into());
        self
    }

    /// Draws all categories of a row on one line, for categories that never overlap in time, or are
    /// [outlined](Self::outlined).
    #[must_use]
    pub fn overlaid(mut self) -> Self {
        self.overlaid = true;
        self
    }

    fn shown(&self) -> impl Iterator<Item = &Interval> {
        let axis = &self.axis;
        let seen = |one: &&Interval| axis.shows(one.start) && axis.shows(one.end) && one.start <= one.end;
        self.intervals.iter().filter(seen)
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// The categories by name.
    pub(super) fn named(&self) -> Vec<Named<'_>> {
        let chosen =
            |name: &str| self.colours.iter().find(|(other, _)| other == name).map(|&(_, colour)| colour);
        in_order(self.shown().map(|one| one.category.as_str()))
            .into_iter()
            .map(|name| (name, chosen(name)))
            .collect()
    }

    /// The chart as an SVG image on its own.
    pub fn to_svg(&self) -> String {
        self.draw(&Looks::assign([self.named()]))
    }

    /// The chart as an SVG image of a report that assigned these looks.
    pub(super) fn draw(&self, looks: &Looks) -> String {
        let shown: Vec<&Interval> = self.shown().collect();
        let rows = in_order(shown.iter().map(|one| one.row.as_str()));
        let named = self.named();
        let categories: Vec<&str> = named.iter().map(|&(name, _)| name).collect();
        let paint = |name: Named<'_>| match self.outlined.iter().any(|outlined| outlined == name.0) {
            true => Paint::Outlined(looks.of(name).colour),
            false => Paint::Solid(looks.of(name)),
        };
        let paints: Vec<Paint> = named.iter().map(|&name| paint(name)).collect();
        let entries =
            categories.iter().zip(&paints).map(|(&name, &paint)| (Key::Box(paint), name.to_owned()));
        let legend = frame::legend(&self.title, entries.collect());

        let lines = if self.overlaid { 1.0 } else { as_f64(categories.len()) };
        let (thickness, gap) = (16.0, 12.0);
        let top = Frame::top_below(&legend) + 4.0;
        let bottom = top + as_f64(rows.len()) * (thickness * lines + gap);
        let name_width = rows.iter().map(|row| Font::LABEL.width(row)).fold(0.0, f64::max);
        let label_width = shown.iter().map(|one| Font::SMALL.width(&one.label)).fold(0.0, f64::max);
        let left = (16.0 + name_width + 10.0).min(frame::WIDTH * 0.4);
        let right = frame::WIDTH - (label_width + 12.0).clamp(34.0, frame::WIDTH * 0.3);
        let frame = Frame { left, right, top, bottom };
        let ends = shown.iter().flat_map(|one| [one.start, one.end]);
        // Spans cannot be cut at the frame: for them a window is a range like any other.
        let axis = self.axis.clone().uncut();
        let Some(scale) = Scale::new(&axis, ends, false, left, right) else {
            return frame::no_data(&self.title);
        };
        let mut svg = Svg::new(frame::WIDTH, bottom + 52.0, &self.title);
        frame::head(&mut svg, &self.title, &legend);
        frame::horizontal(&mut svg, frame, &self.axis, &scale);
        let row_top = |row: usize| top + as_f64(row) * (thickness * lines + gap) + gap / 2.0;
        for (index, row) in rows.iter().enumerate() {
            let middle = row_top(index) + thickness * lines / 2.0;
            svg.text(Font::LABEL.at(Anchor::End), (left - 10.0, middle + 4.0), row);
        }
        for one in shown {
            let row = rows.iter().position(|&name| name == one.row).unwrap_or(0);
            let category = categories.iter().position(|&name| name == one.category).unwrap_or(0);
            let line = if self.overlaid { 0.0 } else { as_f64(category) };
            let y = row_top(row) + thickness * line;
            let (x1, x2) = (scale.place(one.start), scale.place(one.end));
            let about = format!("{}, {}: {} to {}", one.row, one.category, one.start, one.end);
            // Even the shortest span is visible: an outline needs room inside.
            let least = if matches!(paints[category], Paint::Outlined(_)) { 3.0 } else { 1.0 };
            svg.rect(paints[category], (x1, y + 1.0), (x2.max(x1 + least), y + thickness - 1.0), &about);
            if !one.label.is_empty() {
                svg.text(Font::SMALL, (x2 + 5.0, y + thickness - 4.0), &one.label);
            }
        }
        svg.line("mc-axis", (left, top), (left, bottom));
        svg.finish()
    }
}

/// Each name once, in the order of first use.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = vec![];
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// Converts a count. Counts of rows and categories are small.
fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(intervals: &[(f64, f64)]) -> String {
        let spans = intervals.iter().map(|&(start, end)| Interval::new("row", "category", start, end));
        IntervalChart::new("t", Axis::new("time", "ms")).intervals(spans).to_svg()
    }

    #[test]
    fn spans_that_are_no_spans_are_left_out() {
        let svg = chart(&[(0.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)]);
        assert_eq!(svg.matches("</rect>").count(), 1);
    }

    #[test]
    fn an_outlined_category_is_behind_the_others() {
        let svg = IntervalChart::new("t", Axis::new("time", "ms"))
            .outlined("open")
            .interval(Interval::new("row", "open", 0.0, 9.0))
            .interval(Interval::new("row", "P0", 3.0, 5.0))
            .overlaid()
            .to_svg();
        let (open, level) = (svg.find("row, open").unwrap(), svg.find("row, P0").unwrap());
        assert!(open < level && svg[..open].contains("fill-opacity=\"0.15\""), "{svg}");
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert!(chart(&[]).contains("no data"));
        assert!(chart(&[(1.0, 0.0)]).contains("no data"));
    }

    #[test]
    fn a_category_has_the_colour_chosen_for_it() {
        let chart = IntervalChart::new("t", Axis::new("time", "ms"))
            .interval(Interval::new("row", "a", 0.0, 1.0))
            .colour("a", Colour::Purple);
        assert!(chart.to_svg().contains("class=\"mc-f-purple\""));
    }

    #[test]
    fn a_span_without_length_still_shows() {
        assert!(chart(&[(1.0, 1.0), (0.0, 5.0)]).contains("width=\"1\""));
    }

    #[test]
    fn categories_lie_one_below_the_other_unless_overlaid() {
        let two = IntervalChart::new("t", Axis::new("time", "ms"))
            .interval(Interval::new("row", "a", 0.0, 1.0))
            .interval(Interval::new("row", "b", 1.0, 2.0));
        assert!(two.to_svg().len() > 10 && two.to_svg() != two.clone().overlaid().to_svg());
        let heights = |svg: String| {
            svg.lines()
                .filter(|line| line.contains("</rect>"))
                .map(|line| line.split("y=\"").nth(1).unwrap().split('"').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let apart = heights(two.to_svg());
        let together = heights(two.overlaid().to_svg());
        assert!(apart[0] != apart[1] && together[0] == together[1]);
    }
}
