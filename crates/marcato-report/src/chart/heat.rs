//! Heat maps: tables of coloured cells.

use super::Colour;
use super::frame::{self, WIDTH};
use super::svg::{Anchor, Font, Paint, Svg};
use crate::text;

/// A table of values, coloured more deeply the further they are from 0: blue above, vermilion
/// below.
///
/// ```
/// use marcato_report::chart::HeatMap;
/// let svg = HeatMap::new("FCT score", -1.0, 1.0)
///     .columns([("drop-tail", "5 ms"), ("drop-tail", "100 ms")])
///     .row("TCP CUBIC", [0.7, -0.53])
///     .to_svg();
/// assert!(svg.contains("TCP CUBIC, drop-tail, 100 ms: -0.53"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    title: String,
    /// Values at which the colours are deepest.
    lo: f64,
    hi: f64,
    columns: Vec<(String, String)>,
    rows: Vec<(String, Vec<f64>, Vec<f64>)>,
}

impl HeatMap {
    /// Creates a table without cells. Colours are deepest at `lo` and at `hi`.
    pub fn new(title: impl Into<String>, lo: f64, hi: f64) -> Self {
        Self { title: title.into(), lo, hi, columns: vec![], rows: vec![] }
    }

    /// Names the columns in two lines. Neighbouring columns with the same first line share it.
    #[must_use]
    pub fn columns<A: Into<String>, B: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = (A, B)>,
    ) -> Self {
        self.columns.extend(names.into_iter().map(|(above, below)| (above.into(), below.into())));
        self
    }

    /// Adds a row with a value for each column; one that is not a number leaves its cell empty.
    #[must_use]
    pub fn row(mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        self.rows.push((name.into(), values.into_iter().collect(), vec![]));
        self
    }

    /// Sets the published values of the last row's cells, shown in brackets below the measured
    /// ones. One that is not a number is left out.
    #[must_use]
    pub fn paper(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        if let Some((_, _, published)) = self.rows.last_mut() {
            *published = values.into_iter().collect();
        }
        self
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Colour of a value, and its depth from 0 to 1.
    fn paint(&self, value: f64) -> (Colour, f64) {
        let (colour, limit) =
            if value < 0.0 { (Colour::Vermilion, self.lo) } else { (Colour::Blue, self.hi) };
        let depth = if limit == 0.0 { 0.0 } else { (value / limit).clamp(0.0, 1.0) };
        (colour, depth)
    }

    /// The table as an SVG image.
    pub fn to_svg(&self) -> String {
        let shown = self.rows.iter().flat_map(|(_, values, _)| values.iter().take(self.columns.len()));
        if !shown.copied().any(f64::is_finite) {
            return frame::no_data(&self.title);
        }
        let names = self.rows.iter().map(|(name, ..)| Font::LABEL.width(name));
        let left = 16.0 + names.fold(0.0, f64::max) + 10.0;
        let width = (WIDTH - 16.0 - left) / as_f64(self.columns.len());
        let published = self.rows.iter().any(|(_, _, published)| !published.is_empty());
        let (top, height) = (84.0, if published { 42.0 } else { 30.0 });
        let bottom = top + height * as_f64(self.rows.len());
        let mut svg = Svg::new(WIDTH, bottom + 16.0, &self.title);
        frame::head(&mut svg, &self.title, &[]);
        let mut at = 0;
        while let Some((above, _)) = self.columns.get(at) {
            let span = self.columns[at..].iter().take_while(|(other, _)| other == above).count();
            let middle = left + width * (as_f64(at) + as_f64(span) / 2.0);
            svg.text(Font::SMALL.at(Anchor::Middle), (middle, 56.0), above);
            at += span;
        }
        for (at, (_, below)) in self.columns.iter().enumerate() {
            let middle = left + width * (as_f64(at) + 0.5);
            svg.text(Font::SMALL.at(Anchor::Middle), (middle, 74.0), below);
        }
        for (line, (name, values, published)) in self.rows.iter().enumerate() {
            let y = top + height * as_f64(line);
            svg.text(Font::LABEL.at(Anchor::End), (left - 10.0, y + 19.0), name);
            for (at, (value, (above, below))) in values.iter().zip(&self.columns).enumerate() {
                if !value.is_finite() {
                    continue;
                }
                let x = left + width * as_f64(at);
                let printed = text::number(Some(*value));
                let (colour, depth) = self.paint(*value);
                let about = format!("{name}, {above}, {below}: {printed}");
                svg.rect(
                    Paint::Shaded(colour, depth),
                    (x + 1.0, y + 1.0),
                    (x + width - 1.0, y + height - 1.0),
                    &about,
                );
                svg.text(Font::LABEL.at(Anchor::Middle), (x + width / 2.0, y + 19.0), &printed);
                if let Some(paper) = published.get(at).filter(|paper| paper.is_finite()) {
                    let paper = format!("({})", text::number(Some(*paper)));
                    svg.text(Font::SMALL.at(Anchor::Middle), (x + width / 2.0, y + 34.0), &paper);
                }
            }
        }
        svg.finish()
    }
}

/// Converts a count. Counts of rows and columns are small.
fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(values: &[f64]) -> String {
        HeatMap::new("t", -1.0, 1.0)
            .columns([("a", "x"), ("a", "y"), ("b", "x")])
            .row("first", values.iter().copied())
            .to_svg()
    }

    #[test]
    fn each_finite_value_has_a_labelled_cell_and_shared_heads_merge() {
        let svg = map(&[0.5, f64::NAN, -0.25, 7.0]);
        assert!(svg.contains("<title>first, a, x: 0.5</title>"));
        assert!(svg.contains("<title>first, b, x: -0.25</title>"));
        assert!(!svg.contains("NaN") && !svg.contains("first, a, y"));
        assert_eq!(svg.matches(">a</text>").count(), 1);
        assert_eq!(svg.matches("</rect>").count(), 2, "a value beyond the last column is left out");
    }

    #[test]
    fn the_sign_sets_the_colour_and_distance_from_zero_its_depth() {
        let map = HeatMap::new("t", -2.0, 1.0);
        assert_eq!(map.paint(0.5), (Colour::Blue, 0.5));
        assert_eq!(map.paint(-0.5), (Colour::Vermilion, 0.25));
        assert_eq!(map.paint(9.0), (Colour::Blue, 1.0));
    }

    #[test]
    fn published_values_stand_in_brackets_below_those_of_their_row() {
        let map = HeatMap::new("t", -1.0, 1.0).columns([("a", "x"), ("a", "y")]);
        let svg = map.row("first", [0.5, 0.25]).paper([0.75, f64::NAN]).to_svg();
        let height = |text: &str| -> f64 {
            let line = svg.lines().find(|line| line.contains(&format!(">{text}</text>"))).unwrap();
            line.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert!(height("(0.75)") > height("0.5") && svg.matches(">(").count() == 1);
    }

    #[test]
    fn no_number_at_all_is_said() {
        assert!(map(&[f64::NAN]).contains("no data"));
        assert!(HeatMap::new("t", -1.0, 1.0).to_svg().contains("no data"));
    }
}
