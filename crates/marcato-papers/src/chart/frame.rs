//! What every chart has around its data: title, legend, axes.

use super::scale::Scale;
use super::svg::{Anchor, Font, Paint, Svg};
use super::{Axis, Colour};

/// The width of every chart, in pixels.
pub(super) const WIDTH: f64 = 760.0;
const MARGIN: f64 = 16.0;

/// How an entry of the legend looks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    /// A filled or outlined square.
    Box(Paint),
    /// A piece of line, with the mark of the given shape on it if there is one.
    Line { colour: Colour, dashed: bool, mark: Option<usize> },
}

/// The place left for the data, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Where the data begin below the title and the legend.
    pub(super) fn top_below(legend: &[(Key, &str)]) -> f64 {
        42.0 + if legend.len() > 1 { 20.0 * rows(legend) + 6.0 } else { 0.0 }
    }
}

/// The rows that the legend takes.
fn rows(legend: &[(Key, &str)]) -> f64 {
    let mut count = 0.0;
    place(legend, |_, _, row| count = f64::from(row) + 1.0);
    count
}

/// Calls `each` with every entry, its left edge and its row.
fn place(legend: &[(Key, &str)], mut each: impl FnMut(usize, f64, u32)) {
    let (mut x, mut row) = (MARGIN, 0);
    for (index, (_, name)) in legend.iter().enumerate() {
        let width = 28.0 + Font::LABEL.width(name) + 16.0;
        if x > MARGIN && x + width > WIDTH - MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        each(index, x, row);
        x += width;
    }
}

/// Draws the title, and the legend if it has more than one entry.
pub(super) fn head(svg: &mut Svg, title: &str, legend: &[(Key, &str)]) {
    svg.text(Font::TITLE, (MARGIN, 26.0), title);
    if legend.len() < 2 {
        return;
    }
    let mut places = vec![];
    place(legend, |index, x, row| places.push((index, x, 44.0 + 20.0 * f64::from(row))));
    for (index, x, y) in places {
        let (key, name) = legend[index];
        match key {
            Key::Box(paint) => svg.rect(paint, (x + 4.0, y), (x + 16.0, y + 12.0), ""),
            Key::Line { colour, dashed, mark } => {
                svg.polyline(colour, dashed, &[(x, y + 6.0), (x + 22.0, y + 6.0)]);
                if let Some(shape) = mark {
                    svg.mark(colour, shape, (x + 11.0, y + 6.0));
                }
            }
        }
        svg.text(Font::LABEL, (x + 28.0, y + 10.5), name);
    }
}

/// Says that there is nothing to show.
pub(super) fn no_data(title: &str) -> String {
    let mut svg = Svg::new(WIDTH, 120.0, title);
    head(&mut svg, title, &[]);
    svg.text(Font::SMALL.at(Anchor::Middle), (WIDTH / 2.0, 74.0), "no data");
    svg.finish()
}

/// Room to the left for the ticks and the title of the vertical axis.
pub(super) fn left_of(scale: &Scale) -> f64 {
    let widest = scale.ticks().iter().map(|(_, label)| Font::SMALL.width(label)).fold(0.0, f64::max);
    MARGIN + 18.0 + widest + 8.0
}

/// Draws the vertical axis with its grid.
pub(super) fn vertical(svg: &mut Svg, frame: Frame, axis: &Axis, scale: &Scale) {
    for (value, label) in scale.ticks() {
        let y = scale.place(value);
        svg.line("mc-grid", (frame.left, y), (frame.right, y));
        svg.text(Font::SMALL.at(Anchor::End), (frame.left - 8.0, y + 4.0), &label);
    }
    svg.line("mc-axis", (frame.left, frame.top), (frame.left, frame.bottom));
    let middle = f64::midpoint(frame.top, frame.bottom);
    svg.text(Font::LABEL.at(Anchor::Middle).upright(), (MARGIN + 8.0, middle), &axis.title());
}

/// Draws the horizontal axis with its grid.
pub(super) fn horizontal(svg: &mut Svg, frame: Frame, axis: &Axis, scale: &Scale) {
    for (value, label) in scale.ticks() {
        let x = scale.place(value);
        svg.line("mc-grid", (x, frame.top), (x, frame.bottom));
        svg.text(Font::SMALL.at(Anchor::Middle), (x, frame.bottom + 17.0), &label);
    }
    svg.line("mc-axis", (frame.left, frame.bottom), (frame.right, frame.bottom));
    let middle = f64::midpoint(frame.left, frame.right);
    svg.text(Font::LABEL.at(Anchor::Middle), (middle, frame.bottom + 38.0), &axis.title());
}
