//! Parts around the data of every chart: title, legend, axes.

use super::Axis;
use super::look::Look;
use super::scale::Scale;
use super::svg::{Anchor, Font, Paint, Svg};

/// Width of every chart, in pixels.
pub(super) const WIDTH: f64 = 760.0;
const MARGIN: f64 = 16.0;

/// Symbol of an entry of the legend.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    /// A filled or outlined square.
    Box(Paint),
    /// A piece of line, with the look's mark on it if the points are marked.
    Line { look: Look, dashed: bool, mark: bool },
    /// The look's mark alone.
    Mark(Look),
    /// The mark of published values.
    Paper,
}

/// Entries of a legend. A single entry whose name the title already contains is left out.
pub(super) fn legend(title: &str, entries: Vec<(Key, String)>) -> Vec<(Key, String)> {
    match entries.as_slice() {
        [(_, name)] if name.is_empty() || title.to_lowercase().contains(&name.to_lowercase()) => vec![],
        _ => entries,
    }
}

/// Area of the data, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Top edge of the data, below the title and the legend.
    pub(super) fn top_below(legend: &[(Key, String)]) -> f64 {
        42.0 + if legend.is_empty() { 0.0 } else { 20.0 * rows(legend) + 6.0 }
    }

    /// Returns true if a place is inside or on an edge. The slack absorbs rounding.
    pub(super) fn holds(&self, (x, y): (f64, f64)) -> bool {
        let slack = 1e-6;
        (self.left - slack..=self.right + slack).contains(&x)
            && (self.top - slack..=self.bottom + slack).contains(&y)
    }

    /// Pieces of a line that are inside, cut exactly at the edges.
    pub(super) fn clip(&self, path: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        if path.iter().all(|&place| self.holds(place)) {
            return vec![path.to_vec()];
        }
        let mut pieces: Vec<Vec<(f64, f64)>> = vec![];
        for pair in path.windows(2) {
            let &[from, to] = pair else { continue };
            let Some((start, end)) = self.segment(from, to) else { continue };
            match pieces.last_mut() {
                Some(piece) if piece.last() == Some(&start) => piece.push(end),
                _ => pieces.push(vec![start, end]),
            }
        }
        pieces
    }

    /// Part of a straight line that is inside (Liang and Barsky, 1984).
    fn segment(&self, from: (f64, f64), to: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let (mut enters, mut leaves) = (0.0_f64, 1.0_f64);
        for (delta, room) in [
            (-dx, from.0 - self.left),
            (dx, self.right - from.0),
            (-dy, from.1 - self.top),
            (dy, self.bottom - from.1),
        ] {
            if delta == 0.0 {
                if room < 0.0 {
                    return None;
                }
            } else if delta < 0.0 {
                enters = enters.max(room / delta);
            } else {
                leaves = leaves.min(room / delta);
            }
        }
        let at = |share: f64| (from.0 + share * dx, from.1 + share * dy);
        let start = if enters == 0.0 { from } else { at(enters) };
        let end = if leaves >= 1.0 { to } else { at(leaves) };
        (enters <= leaves).then_some((start, end))
    }
}

/// Number of rows that the legend takes.
fn rows(legend: &[(Key, String)]) -> f64 {
    let mut count = 0.0;
    place(legend, |_, _, row| count = f64::from(row) + 1.0);
    count
}

/// Calls `each` with every entry, its left edge and its row.
fn place(legend: &[(Key, String)], mut each: impl FnMut(usize, f64, u32)) {
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

/// Draws the title and the legend.
pub(super) fn head(svg: &mut Svg, title: &str, legend: &[(Key, String)]) {
    svg.text(Font::TITLE, (MARGIN, 26.0), title);
    let mut places = vec![];
    place(legend, |index, x, row| places.push((index, x, 44.0 + 20.0 * f64::from(row))));
    for (index, x, y) in places {
        let (key, name) = &legend[index];
        match *key {
            Key::Box(paint) => svg.rect(paint, (x + 4.0, y), (x + 16.0, y + 12.0), ""),
            Key::Line { look, dashed, mark } => {
                svg.polyline(look, dashed, &[(x, y + 6.0), (x + 22.0, y + 6.0)]);
                if mark {
                    svg.mark(look.colour, look.shape(), (x + 11.0, y + 6.0));
                }
            }
            Key::Mark(look) => svg.mark(look.colour, look.shape(), (x + 11.0, y + 6.0)),
            Key::Paper => svg.paper(None, (x + 11.0, y + 6.0), ""),
        }
        svg.text(Font::LABEL, (x + 28.0, y + 10.5), name);
    }
}

/// Chart that shows "no data".
pub(super) fn no_data(title: &str) -> String {
    let mut svg = Svg::new(WIDTH, 120.0, title);
    head(&mut svg, title, &[]);
    svg.text(Font::SMALL.at(Anchor::Middle), (WIDTH / 2.0, 74.0), "no data");
    svg.finish()
}

/// Left edge of the data: leaves room for the ticks and the title of the vertical axis.
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
