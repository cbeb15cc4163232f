//! Lines, steps and complementary distributions.

use super::frame::{self, Frame, Key};
use super::scale::Scale;
use super::svg::Svg;
use super::{Axis, Colour};

/// Several series over one horizontal axis.
///
/// ```
/// use marcato_papers::chart::{Axis, LineChart, Series};
/// let svg = LineChart::new("Window", Axis::new("time", "s"), Axis::new("window", "kB"))
///     .series(Series::line("Reno", [(0.0, 10.0), (1.0, 20.0)]))
///     .series(Series::step("limit", [(0.0, 30.0), (1.0, 30.0)]).dashed())
///     .to_svg();
/// assert!(svg.contains("window (kB)"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

/// One series of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    step: bool,
    dashed: bool,
    marks: bool,
    colour: Option<Colour>,
}

impl Series {
    /// Points joined by straight lines, in the order given. A point that is not finite leaves a gap.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            step: false,
            dashed: false,
            marks: false,
            colour: None,
        }
    }

    /// Points whose value holds until the next one.
    pub fn step(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { step: true, ..Self::line(name, points) }
    }

    /// Dashes the line: for published values, or limits.
    #[must_use]
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }

    /// Marks each point.
    #[must_use]
    pub fn marks(mut self) -> Self {
        self.marks = true;
        self
    }

    /// Chooses the colour; without it each series has its own.
    #[must_use]
    pub fn colour(mut self, colour: Colour) -> Self {
        self.colour = Some(colour);
        self
    }

    /// The shares of `samples` that are greater than x, as steps down from 1: the complementary cumulative
    /// distribution. Samples that are not finite are left out.
    pub fn ccdf(name: impl Into<String>, samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|sample| sample.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let count = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
        let mut points = Vec::with_capacity(sorted.len() + 1);
        if let Some(&least) = sorted.first() {
            points.push((least, 1.0));
        }
        for (done, &sample) in (1..=count).zip(&sorted) {
            let share = f64::from(count - done) / f64::from(count);
            match points.last_mut() {
                // Equal samples are one step.
                Some(last) if last.0 == sample && done > 1 && last.1 < 1.0 => last.1 = share,
                _ => points.push((sample, share)),
            }
        }
        Self::step(name, points)
    }
}

impl LineChart {
    /// A chart without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: vec![] }
    }

    /// A chart of complementary cumulative distributions of `x`: add [`Series::ccdf`]. A logarithmic one leaves
    /// out the last step, to a share of 0.
    pub fn ccdf(title: impl Into<String>, x: Axis, log: bool) -> Self {
        let y = Axis::new("share that is greater", "ratio");
        Self::new(title, x, if log { y.log() } else { y.range(0.0, 1.0) })
    }

    /// Adds a series.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The chart as an SVG image.
    pub fn to_svg(&self) -> String {
        let looks: Vec<(Colour, Option<usize>)> = self
            .series
            .iter()
            .enumerate()
            .map(|(index, one)| (one.colour.unwrap_or(Colour::of_series(index)), one.marks.then_some(index)))
            .collect();
        let legend: Vec<(Key, &str)> = self
            .series
            .iter()
            .zip(&looks)
            .map(|(one, &(colour, mark))| (Key::Line { colour, dashed: one.dashed, mark }, one.name.as_str()))
            .collect();
        let top = Frame::top_below(&legend) + 4.0;
        let bottom = top + 290.0;
        let shown = |(x, y): &(f64, f64)| self.x.shows(*x) && self.y.shows(*y);
        let points = || self.series.iter().flat_map(|one| &one.points).filter(|point| shown(point));
        let Some(y_scale) = Scale::new(&self.y, points().map(|point| point.1), true, bottom, top) else {
            return frame::no_data(&self.title);
        };
        // Half of the last tick's label stands out to the right.
        let frame = Frame { left: frame::left_of(&y_scale), right: frame::WIDTH - 34.0, top, bottom };
        let Some(x_scale) =
            Scale::new(&self.x, points().map(|point| point.0), false, frame.left, frame.right)
        else {
            return frame::no_data(&self.title);
        };
        let mut svg = Svg::new(frame::WIDTH, bottom + 52.0, &self.title);
        frame::head(&mut svg, &self.title, &legend);
        frame::vertical(&mut svg, frame, &self.y, &y_scale);
        frame::horizontal(&mut svg, frame, &self.x, &x_scale);
        for (one, &(colour, mark)) in self.series.iter().zip(&looks) {
            for run in one.points.split(|point| !shown(point)).filter(|run| !run.is_empty()) {
                let places: Vec<(f64, f64)> =
                    run.iter().map(|&(x, y)| (x_scale.place(x), y_scale.place(y))).collect();
                if let Some(shape) = mark {
                    places.iter().for_each(|&place| svg.mark(colour, shape, place));
                } else if let [lone] = places.as_slice() {
                    // A line of one point would not show.
                    svg.mark(colour, 0, *lone);
                }
                let path = if one.step { stairs(&places) } else { places };
                svg.polyline(colour, one.dashed, &thin(&path));
            }
        }
        svg.finish()
    }
}

/// Between two points, first along and then up or down.
fn stairs(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut path = Vec::with_capacity(places.len() * 2);
    for &(x, y) in places {
        if let Some(&(_, before)) = path.last() {
            path.push((x, before));
        }
        path.push((x, y));
    }
    path
}

/// The same line with at most four points (first, lowest, highest, last) in each half pixel of width, so that a
/// long recording makes no huge image.
fn thin(path: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let column = |place: (f64, f64)| libm::floor(place.0 * 2.0);
    let mut kept = Vec::new();
    for run in path.chunk_by(|&a, &b| column(a) == column(b)) {
        if run.len() <= 4 {
            kept.extend_from_slice(run);
            continue;
        }
        let by_height = |a: &usize, b: &usize| run[*a].1.total_cmp(&run[*b].1);
        let lowest = (0..run.len()).min_by(by_height).unwrap_or(0);
        let highest = (0..run.len()).max_by(by_height).unwrap_or(0);
        let mut indices = [0, lowest.min(highest), lowest.max(highest), run.len() - 1].to_vec();
        indices.dedup();
        kept.extend(indices.into_iter().map(|index| run[index]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn axes() -> LineChart {
        LineChart::new("t", Axis::new("time", "s"), Axis::new("rate", "Mbit/s"))
    }

    #[test]
    fn a_ccdf_steps_down_from_one_to_nought() {
        let series = Series::ccdf("s", [3.0, 1.0, f64::NAN, 2.0, 2.0]);
        assert_eq!(series.points, [(1.0, 1.0), (1.0, 0.75), (2.0, 0.25), (3.0, 0.0)]);
        assert_eq!(Series::ccdf("s", [2.0, 2.0]).points, [(2.0, 1.0), (2.0, 0.0)]);
        assert!(Series::ccdf("s", []).points.is_empty());
    }

    #[test]
    fn a_point_that_is_not_finite_leaves_a_gap() {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 2.0)];
        let svg = axes().series(Series::line("s", points)).to_svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert!(axes().to_svg().contains("no data"));
        assert!(axes().series(Series::line("s", [(f64::NAN, 1.0)])).to_svg().contains("no data"));
        let log = LineChart::ccdf("t", Axis::new("time", "ms").log(), true);
        assert!(log.series(Series::ccdf("s", [0.0, -1.0])).to_svg().contains("no data"));
    }

    #[test]
    fn a_long_recording_makes_a_small_image() {
        let points = (0..200_000).map(|i| (f64::from(i), libm::sin(f64::from(i))));
        let svg = axes().series(Series::line("s", points)).to_svg();
        assert!(svg.len() < 150_000, "{} bytes", svg.len());
    }

    #[test]
    fn steps_go_along_before_they_go_up() {
        assert_eq!(stairs(&[(0.0, 1.0), (1.0, 2.0)]), [(0.0, 1.0), (1.0, 1.0), (1.0, 2.0)]);
    }

    proptest! {
        #[test]
        fn any_points_are_drawn_without_a_panic(
            points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..40), log: bool, step: bool,
        ) {
            let (x, y) = (Axis::new("x", ""), Axis::new("y", ""));
            let chart = if log { LineChart::new("t", x.log(), y.log()) } else { LineChart::new("t", x, y) };
            let series = if step { Series::step("s", points) } else { Series::line("s", points) };
            let svg = chart.series(series.marks()).to_svg();
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }
}
