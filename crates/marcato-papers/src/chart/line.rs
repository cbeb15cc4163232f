//! Lines, steps and complementary distributions.

use super::frame::{self, Frame, Key};
use super::scale::Scale;
use super::svg::{Font, Svg};
use super::{Axis, Colour};
use crate::Samples;

/// So many of a distribution's last steps are drawn whatever their size.
const TAIL: usize = 100;

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
    shape: Shape,
    dashed: bool,
    marks: bool,
    colour: Option<Colour>,
}

/// What joins points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Line,
    Step,
    /// Steps down, as far as they go.
    Ccdf,
}

impl Series {
    /// Points joined by straight lines, in the order given. A point that is not finite leaves a gap.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            shape: Shape::Line,
            dashed: false,
            marks: false,
            colour: None,
        }
    }

    /// Points whose value holds until the next one.
    pub fn step(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { shape: Shape::Step, ..Self::line(name, points) }
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
    /// distribution. Infinite samples count, so that what never came keeps the line up to the right edge; samples that
    /// are not a number are left out.
    pub fn ccdf(name: impl Into<String>, samples: impl IntoIterator<Item = f64>) -> Self {
        let steps = Samples::new(samples).ccdf();
        let top = steps.first().map(|&(least, _)| (least, 1.0));
        Self { shape: Shape::Ccdf, ..Self::line(name, top.into_iter().chain(steps)) }
    }
}

impl LineChart {
    /// A chart without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: vec![] }
    }

    /// A chart of complementary cumulative distributions of `x`: add [`Series::ccdf`]. On a logarithmic one the last
    /// step, to a share of 0, falls to the lower edge. Where there is room, each line has its name beside it.
    ///
    /// ```
    /// use marcato_papers::chart::{Axis, LineChart, Series};
    /// let svg = LineChart::ccdf("Messages", Axis::new("completion", "ms"), true)
    ///     .down_to(1e-4)
    ///     .series(Series::ccdf("LowRTT", [25.0, 31.0, 48.0]))
    ///     .series(Series::ccdf("CWR", [25.0, 25.5, 26.0]))
    ///     .to_svg();
    /// assert!(svg.contains("completion (ms)"));
    /// ```
    pub fn ccdf(title: impl Into<String>, x: Axis, log: bool) -> Self {
        let y = Axis::new("share that is greater", "ratio");
        Self::new(title, x, if log { y.log() } else { y.range(0.0, 1.0) })
    }

    /// Ends the vertical axis of a chart of shares at `least`, and begins it at 1.
    #[must_use]
    pub fn down_to(mut self, least: f64) -> Self {
        self.y = self.y.range(least, 1.0);
        self
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
        let mut tails = Vec::new();
        for (one, &(colour, mark)) in self.series.iter().zip(&looks) {
            if one.shape == Shape::Ccdf {
                let path = self.tail(one, &x_scale, &y_scale, frame);
                svg.stairs(colour, one.dashed, &path);
                tails.push((one.name.as_str(), path));
                continue;
            }
            for run in one.points.split(|point| !shown(point)).filter(|run| !run.is_empty()) {
                let places: Vec<(f64, f64)> =
                    run.iter().map(|&(x, y)| (x_scale.place(x), y_scale.place(y))).collect();
                if let Some(shape) = mark {
                    places.iter().for_each(|&place| svg.mark(colour, shape, place));
                } else if let [lone] = places.as_slice() {
                    // A line of one point would not show.
                    svg.mark(colour, 0, *lone);
                }
                let path = if one.shape == Shape::Step { stairs(&places) } else { places };
                svg.polyline(colour, one.dashed, &thin(&path));
            }
        }
        if legend.len() > 1 {
            for (name, place) in beside(&tails, frame) {
                svg.text(Font::SMALL, place, name);
            }
        }
        svg.finish()
    }

    /// The corners of a distribution: where its line comes down to, from left to right.
    fn tail(&self, one: &Series, x_scale: &Scale, y_scale: &Scale, frame: Frame) -> Vec<(f64, f64)> {
        let seen = one.points.iter().filter(|point| self.x.shows(point.0));
        // A share of 0 has no place on a logarithmic axis: it is held to the lower edge, as what is outside a range is.
        let mut path: Vec<(f64, f64)> = seen.map(|&(x, y)| (x_scale.place(x), y_scale.place(y))).collect();
        thin_tail(&mut path);
        match (one.points.last(), path.last().copied()) {
            // What never came is not below any value.
            (Some(&(_, share)), Some((_, y))) if share > 0.0 => path.push((frame.right, y)),
            _ => {}
        }
        path
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

/// Leaves out the steps, but for the last ones, that are less than a pixel from the one before. What is drawn is
/// nowhere farther than that from what was.
fn thin_tail(path: &mut Vec<(f64, f64)>) {
    let tail = path.len().saturating_sub(TAIL);
    let mut at = 0;
    let mut kept = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    path.retain(|&(x, y)| {
        let keep = at >= tail || (x - kept.0).abs() + (y - kept.1).abs() >= 1.0;
        if keep {
            kept = (x, y);
        }
        at += 1;
        keep
    });
}

/// A place for each name, above and to the right of its falling line, where it meets neither a line nor another name. A line beside
/// which there is no such place goes without: it is in the legend.
fn beside<'a>(lines: &[(&'a str, Vec<(f64, f64)>)], frame: Frame) -> Vec<(&'a str, (f64, f64))> {
    const LEVELS: u8 = 12;
    let corners: Vec<Vec<(f64, f64)>> = lines.iter().map(|(_, path)| stairs(path)).collect();
    let mut taken: Vec<Area> = Vec::new();
    let mut placed = Vec::new();
    for ((name, _), own) in lines.iter().zip(&corners) {
        // From below, where distributions differ most.
        let place = (1..LEVELS).find_map(|level| {
            let y = frame.bottom - (frame.bottom - frame.top) * f64::from(level) / f64::from(LEVELS);
            let (x, _) = own.windows(2).find_map(|pair| match pair {
                &[(x, above), (_, below)] => (above <= y && y < below).then_some((x, y)),
                _ => None,
            })?;
            let area = Area {
                left: x + 4.0,
                right: x + 8.0 + Font::SMALL.width(name),
                top: y - 15.0,
                bottom: y - 1.0,
            };
            let crossed = || {
                corners.iter().flat_map(|line| line.windows(2)).any(|pair| area.meets(&Area::around(pair)))
            };
            let free =
                area.right <= frame.right && !taken.iter().any(|other| area.meets(other)) && !crossed();
            free.then(|| {
                taken.push(area);
                (x + 6.0, y - 4.0)
            })
        });
        placed.extend(place.map(|place| (*name, place)));
    }
    placed
}

/// A rectangle, in pixels.
#[derive(Clone, Copy, Debug)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn around(points: &[(f64, f64)]) -> Self {
        let none = Self { left: f64::MAX, right: f64::MIN, top: f64::MAX, bottom: f64::MIN };
        points.iter().fold(none, |area, &(x, y)| Self {
            left: area.left.min(x),
            right: area.right.max(x),
            top: area.top.min(y),
            bottom: area.bottom.max(y),
        })
    }

    fn meets(&self, other: &Self) -> bool {
        self.left <= other.right
            && other.left <= self.right
            && self.top <= other.bottom
            && other.top <= self.bottom
    }
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

    fn delays() -> LineChart {
        LineChart::ccdf("t", Axis::new("time", "ms").range(0.0, 100.0), true).down_to(1e-4)
    }

    /// The corners of every line drawn as stairs.
    fn corners(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let paths = svg.lines().filter_map(|line| line.strip_prefix("<path d=\"M")?.split('"').next());
        let number = |text: &str| text.parse().unwrap();
        paths
            .filter(|path| path.contains('H'))
            .map(|path| {
                let (start, rest) = path.split_once('H').unwrap();
                let (x, y) = start.split_once(' ').unwrap();
                let step = |step: &str| step.split_once('V').map(|(x, y)| (number(x), number(y))).unwrap();
                [(number(x), number(y))].into_iter().chain(rest.split('H').map(step)).collect()
            })
            .collect()
    }

    #[test]
    fn the_last_step_of_a_logarithmic_ccdf_falls_to_the_lower_edge() {
        let svg = delays().series(Series::ccdf("s", [10.0, 20.0, 30.0, 40.0])).to_svg();
        let line = &corners(&svg)[0];
        let (top, lowest, last) = (line[0].1, line[3].1, line[4].1);
        // Four decades are 290 pixels. The share of a quarter lasts until 40 ms; from there, there is none.
        assert_eq!((line.len(), last), (5, top + 290.0));
        assert!((lowest - top - 290.0 / 4.0 * libm::log10(4.0)).abs() < 0.01, "{lowest}");
        // Ticks at 0 and 100 ms tell where 40 ms is.
        assert!((line[4].0 - line[3].0 - (line[3].0 - line[2].0)).abs() < 0.02);
    }

    #[test]
    fn what_never_came_keeps_a_ccdf_up_to_the_right_edge() {
        let never = [10.0, f64::INFINITY];
        let svg = delays().series(Series::ccdf("s", never)).to_svg();
        let line = &corners(&svg)[0];
        assert_eq!(line.last().map(|last| last.0), Some(frame::WIDTH - 34.0));
        assert_eq!(line[line.len() - 1].1, line[line.len() - 2].1);
        assert!(delays().series(Series::ccdf("s", [f64::INFINITY])).to_svg().contains("no data"));
    }

    #[test]
    fn long_distributions_make_a_small_image_whose_tails_are_exact() {
        // 100 000 samples each: exponential from 25 ms on, as many scales as there are colours.
        let count = 100_000;
        let samples = |scale: f64| {
            (0..count).map(move |i| 25.0 - scale * libm::log((f64::from(i) + 0.5) / f64::from(count)))
        };
        let chart = (1..=6).fold(delays(), |chart, scale| {
            chart.series(Series::ccdf(format!("scale {scale}"), samples(f64::from(scale))))
        });
        let svg = chart.to_svg();
        assert!(svg.len() < 100_000, "{} bytes", svg.len());
        let lines = corners(&svg);
        assert_eq!(lines.len(), 6);
        for line in lines {
            // The last steps, one a sample, and enough of those before.
            assert!(line.len() > TAIL + 50, "{}", line.len());
            assert!(line.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
        }
    }

    #[test]
    fn what_is_left_out_of_a_ccdf_is_less_than_a_pixel() {
        let whole: Vec<(f64, f64)> =
            (0..10_000).map(|i| (f64::from(i) * 0.05, libm::sqrt(f64::from(i)))).collect();
        let mut thinned = whole.clone();
        thin_tail(&mut thinned);
        assert!(thinned.len() < 1000 && thinned.ends_with(&whole[whole.len() - TAIL..]));
        for &(x, y) in &whole {
            let drawn = thinned.iter().rev().find(|kept| kept.0 <= x).unwrap();
            assert!(y - drawn.1 < 1.0, "at {x}");
        }
    }

    #[test]
    fn names_stand_beside_their_lines_where_there_is_room() {
        let near = |ms: f64| (0..1000).map(move |i| ms + f64::from(i) * 0.001);
        let labels = |svg: &str, name: &str| svg.matches(&format!(">{name}</text>")).count();
        let svg = delays()
            .series(Series::ccdf("quick", near(20.0)))
            .series(Series::ccdf("slow", near(60.0)))
            .series(Series::ccdf("very slow", near(98.0)))
            .to_svg();
        // Once in the legend, once beside the line; the last would stand out of the frame.
        assert_eq!(["quick", "slow", "very slow"].map(|name| labels(&svg, name)), [2, 2, 1]);
        // Two that lie on each other: no name may stand on a line, but beside both there is room.
        let svg =
            delays().series(Series::ccdf("a", near(50.0))).series(Series::ccdf("b", near(50.0))).to_svg();
        assert_eq!((labels(&svg, "a"), labels(&svg, "b")), (2, 2));
        // A lone line needs no name.
        assert_eq!(labels(&delays().series(Series::ccdf("only", near(50.0))).to_svg(), "only"), 0);
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
            points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..40), log: bool, shape in 0..3u8,
        ) {
            let (x, y) = (Axis::new("x", ""), Axis::new("y", ""));
            let chart = if log { LineChart::new("t", x.log(), y.log()) } else { LineChart::new("t", x, y) };
            let values: Vec<f64> = points.iter().map(|point| point.0).collect();
            let series = match shape {
                0 => Series::line("s", points),
                1 => Series::step("s", points),
                _ => Series::ccdf("s", values),
            };
            let svg = chart.series(series.clone().marks()).series(series).to_svg();
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }
}
