//! Line charts: lines, steps and CCDFs.

use super::drawing::{MOST_SERIES, split};
use super::frame::{self, Frame, Key};
use super::look::{Look, Looks, Named, series_builders};
use super::scale::Scale;
use super::svg::{Anchor, Font, Svg, Way};
use super::{Axis, Colour};
use crate::{Samples, text};

/// Number of last steps of a distribution that are drawn at any size: the tail must stay exact.
const TAIL: usize = 100;

/// Several series over one horizontal axis.
///
/// ```
/// use marcato_report::chart::{Axis, LineChart, Series};
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
    shades: Vec<(f64, f64, String)>,
}

/// One series of points, with its style, its intervals and its published values.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    shape: Shape,
    dashed: bool,
    marks: bool,
    colour: Option<Colour>,
    like: Option<String>,
    intervals: Vec<f64>,
    paper: Vec<(f64, f64)>,
}

/// Connection between points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Line,
    Step,
    /// Steps down, to the last value or the frame's edge.
    Ccdf,
}

impl Series {
    /// Points joined by straight lines, in the order given. A point that is not finite leaves a
    /// gap.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            shape: Shape::Line,
            dashed: false,
            marks: false,
            colour: None,
            like: None,
            intervals: vec![],
            paper: vec![],
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

    series_builders!();

    /// Adds published values of the same quantity: hollow diamonds, which the legend calls `paper`.
    #[must_use]
    pub fn paper(mut self, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.paper.extend(points);
        self
    }

    /// Creates the CCDF of `samples`: the share greater than x, as steps down from 1. Infinite
    /// samples count, so messages that never completed keep the line up to the right edge. Samples
    /// that are not a number are left out.
    pub fn ccdf(name: impl Into<String>, samples: impl IntoIterator<Item = f64>) -> Self {
        let steps = Samples::new(samples).ccdf();
        let top = steps.first().map(|&(least, _)| (least, 1.0));
        Self { shape: Shape::Ccdf, ..Self::line(name, top.into_iter().chain(steps)) }
    }
}

impl LineChart {
    /// Creates a chart without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: vec![], shades: vec![] }
    }

    /// Creates a chart of CCDFs of `x`: add [`Series::ccdf`]. On a logarithmic axis the last step,
    /// to a share of 0, falls to the lower edge. If there is room, each line has its name next to
    /// it.
    ///
    /// ```
    /// use marcato_report::chart::{Axis, LineChart, Series};
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

    /// Limits the vertical axis of a chart of shares to `least` and 1. Lines end there too.
    #[must_use]
    pub fn down_to(mut self, least: f64) -> Self {
        self.y = self.y.window(least, 1.0);
        self
    }

    /// Shades a span of the horizontal axis and names it, for instance the warm-up that is not
    /// measured. It does not make the axis longer.
    #[must_use]
    pub fn shade(mut self, from: f64, to: f64, name: impl Into<String>) -> Self {
        self.shades.push((from, to, name.into()));
        self
    }

    /// Adds a series, drawn on top of the previous ones.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Charts with the same axes of at most [`MOST_SERIES`] series each, and the names of these.
    pub(super) fn parts(&self) -> Vec<(Self, Vec<String>)> {
        let chart = |series: Vec<Series>, (x, y): (&Axis, &Axis)| {
            let names = series.iter().map(|one| one.name.clone()).collect();
            (Self { series, x: x.clone(), y: y.clone(), ..self.clone() }, names)
        };
        if self.series.len() <= MOST_SERIES {
            return vec![chart(self.series.clone(), (&self.x, &self.y))];
        }
        let shown = |(x, y): &(f64, f64)| self.x.shows(*x) && self.y.shows(*y);
        let points = || self.series.iter().flat_map(Series::reaches).filter(shown);
        let x = self.x.clone().holding(points().map(|point| point.0));
        let y = self.y.clone().holding(points().map(|point| point.1));
        split(&self.series, |one| one.named().0).into_iter().map(|part| chart(part, (&x, &y))).collect()
    }

    /// The series by name.
    pub(super) fn named(&self) -> Vec<Named<'_>> {
        self.series.iter().map(Series::named).collect()
    }

    /// The chart as an SVG image on its own.
    pub fn to_svg(&self) -> String {
        self.draw(&Looks::assign([self.named()]))
    }

    /// The chart as an SVG image of a report that assigned these looks.
    pub(super) fn draw(&self, looks: &Looks) -> String {
        let shown = |(x, y): &(f64, f64)| self.x.shows(*x) && self.y.shows(*y);
        let looks: Vec<Look> = self.series.iter().map(|one| looks.of(one.named())).collect();
        let entries =
            self.series.iter().zip(&looks).map(|(one, &look)| {
                (Key::Line { look, dashed: one.dashed, mark: one.marks }, self.entry(one))
            });
        let published = self.series.iter().any(|one| one.paper.iter().any(shown));
        let paper = published.then(|| (Key::Paper, "paper".to_owned()));
        let legend = frame::legend(&self.title, entries.chain(paper).collect());
        let top = Frame::top_below(&legend) + 4.0;
        let bottom = top + 290.0;
        let points = || self.series.iter().flat_map(Series::reaches).filter(shown);
        let Some(y_scale) = Scale::new(&self.y, points().map(|point| point.1), true, bottom, top) else {
            return frame::no_data(&self.title);
        };
        // Half of the last tick's label extends beyond the frame to the right.
        let frame = Frame { left: frame::left_of(&y_scale), right: frame::WIDTH - 34.0, top, bottom };
        let Some(x_scale) =
            Scale::new(&self.x, points().map(|point| point.0), false, frame.left, frame.right)
        else {
            return frame::no_data(&self.title);
        };
        let mut svg = Svg::new(frame::WIDTH, bottom + 52.0, &self.title);
        self.shade_spans(&mut svg, &x_scale, frame);
        frame::head(&mut svg, &self.title, &legend);
        frame::vertical(&mut svg, frame, &self.y, &y_scale);
        frame::horizontal(&mut svg, frame, &self.x, &x_scale);
        let mut tails = Vec::new();
        for (one, &look) in self.series.iter().zip(&looks) {
            if one.shape == Shape::Ccdf {
                let (path, beyond) = self.tail(one, &x_scale, &y_scale, frame);
                svg.stairs(look, one.dashed, &path);
                if let (Some(most), Some(&place)) = (beyond, path.last()) {
                    svg.arrow(look.colour, Way::Right, place, &format!("{}: {}", one.name, printed(most)));
                }
                tails.push((one.name.as_str(), path));
                continue;
            }
            for run in one.points.split(|point| !shown(point)).filter(|run| !run.is_empty()) {
                let places: Vec<(f64, f64)> =
                    run.iter().map(|&(x, y)| (x_scale.place(x), y_scale.place(y))).collect();
                // A line of one point would be invisible.
                if one.marks || places.len() == 1 {
                    let shape = if one.marks { look.shape() } else { 0 };
                    let seen = places.iter().filter(|place| frame.holds(**place));
                    seen.for_each(|&place| svg.mark(look.colour, shape, place));
                }
                let path = if one.shape == Shape::Step { stairs(&places) } else { places };
                for piece in frame.clip(&thin(&path)) {
                    svg.polyline(look, one.dashed, &piece);
                }
            }
            let colour = (self.series.len() > 1).then_some(look.colour);
            one.whiskers(&mut svg, colour, &self.y, (&x_scale, &y_scale), frame);
            for (way, (x, y)) in self.beyond(one) {
                let edge = if way == Way::Up { frame.top } else { frame.bottom };
                svg.arrow(
                    look.colour,
                    way,
                    (x_scale.place(x), edge),
                    &format!("{}: {}", one.name, printed(y)),
                );
            }
        }
        for (one, &look) in self.series.iter().zip(&looks) {
            let colour = (self.series.len() > 1).then_some(look.colour);
            for &(x, y) in one.paper.iter().filter(|point| shown(point)) {
                let about = format!("{}, paper: {}", one.name, printed(y));
                let place = (x_scale.place(x), y_scale.place(y));
                if frame.holds(place) {
                    svg.paper(colour, place, &about);
                }
            }
        }
        if legend.len() > 1 {
            for (name, place) in beside(&tails, frame) {
                svg.text(Font::SMALL, place, name);
            }
        }
        svg.finish()
    }

    /// Draws the spans of [`shade`](Self::shade), cut at the frame.
    fn shade_spans(&self, svg: &mut Svg, x_scale: &Scale, frame: Frame) {
        for (from, to, name) in self.shades.iter().filter(|(from, to, _)| self.x.shows(*to) && from < to) {
            let from = if self.x.shows(*from) { x_scale.place(*from) } else { frame.left };
            let (left, right) = (from.max(frame.left), x_scale.place(*to).min(frame.right));
            if left < right {
                svg.shade((left, frame.top), (right, frame.bottom));
                let width = Font::SMALL.width(name);
                if width + 6.0 <= right - left {
                    let middle = f64::midpoint(left, right);
                    svg.text(Font::SMALL.at(Anchor::Middle), (middle, frame.top + 13.0), name);
                } else {
                    svg.text(Font::SMALL, (left + 3.0, frame.top + 13.0), name);
                }
            }
        }
    }

    /// Values farthest above and below the window of the vertical axis, with their places.
    fn beyond(&self, one: &Series) -> Vec<(Way, (f64, f64))> {
        let (Some(lo), Some(hi)) = (self.y.lo, self.y.hi) else { return vec![] };
        if !self.y.cut || one.shape == Shape::Ccdf {
            return vec![];
        }
        let seen = |x: f64| match (self.x.cut, self.x.lo, self.x.hi) {
            (true, Some(lo), Some(hi)) => (lo..=hi).contains(&x),
            _ => true,
        };
        let seen = || {
            let shown = one.points.iter().filter(|point| self.x.shows(point.0) && self.y.shows(point.1));
            shown.copied().filter(|point| seen(point.0))
        };
        let above = seen().filter(|point| point.1 > hi).max_by(|a, b| a.1.total_cmp(&b.1));
        let below = seen().filter(|point| point.1 < lo).min_by(|a, b| a.1.total_cmp(&b.1));
        above.map(|at| (Way::Up, at)).into_iter().chain(below.map(|at| (Way::Down, at))).collect()
    }

    /// Greatest value of a distribution that the window of the horizontal axis leaves out.
    fn longest(&self, one: &Series) -> Option<f64> {
        let hi = self.x.hi.filter(|_| self.x.cut && one.shape == Shape::Ccdf)?;
        let shown = one.points.iter().map(|point| point.0).filter(|&x| self.x.shows(x));
        shown.max_by(f64::total_cmp).filter(|&most| most > hi)
    }

    /// Legend of a series: its name, and its farthest value if it leaves the frame.
    fn entry(&self, one: &Series) -> String {
        let far = self.beyond(one).into_iter().map(|(_, (_, y))| y).chain(self.longest(one));
        let far: Vec<String> = far.map(printed).collect();
        if far.is_empty() { one.name.clone() } else { format!("{} (to {})", one.name, far.join(" and ")) }
    }

    /// Corners of a distribution's line, from left to right, and the greatest value if the line is
    /// cut at the right edge before it.
    fn tail(
        &self,
        one: &Series,
        x_scale: &Scale,
        y_scale: &Scale,
        frame: Frame,
    ) -> (Vec<(f64, f64)>, Option<f64>) {
        let seen = one.points.iter().filter(|point| self.x.shows(point.0));
        // A share of 0 has no place on a logarithmic axis: its line falls to the lower edge.
        let height = |y: f64| if self.y.shows(y) { y_scale.place(y) } else { frame.bottom };
        let mut path: Vec<(f64, f64)> = seen.map(|&(x, y)| (x_scale.place(x), height(y))).collect();
        thin_tail(&mut path);
        let mut cut: Vec<(f64, f64)> = Vec::with_capacity(path.len() + 1);
        for &(x, y) in &path {
            let before = cut.last().map_or(y, |&(_, before)| before);
            if x > frame.right + 1e-6 {
                cut.push((frame.right, before));
                return (cut, self.longest(one));
            }
            cut.push((x.max(frame.left), y.min(frame.bottom)));
            if y > frame.bottom + 1e-6 {
                return (cut, None);
            }
        }
        match (one.points.last(), cut.last().copied()) {
            // Samples without a value (infinite) keep the share above 0 up to the right edge.
            (Some(&(_, share)), Some((_, y))) if share > 0.0 => cut.push((frame.right, y)),
            _ => {}
        }
        (cut, None)
    }
}

fn printed(value: f64) -> String {
    text::number(Some(value))
}

impl Series {
    fn named(&self) -> Named<'_> {
        (self.like.as_deref().unwrap_or(&self.name), self.colour)
    }

    /// Extent of the drawing: points, the ends of their intervals, published points.
    fn reaches(&self) -> impl Iterator<Item = (f64, f64)> {
        let ends = self.points.iter().zip(&self.intervals);
        let ends = ends.flat_map(|(&(x, y), &half)| [(x, y - half), (x, y + half)]);
        self.points.iter().copied().chain(ends).chain(self.paper.iter().copied())
    }

    /// Draws the intervals, in the colour of the series if the chart has others.
    fn whiskers(
        &self,
        svg: &mut Svg,
        colour: Option<Colour>,
        axis: &Axis,
        (x_scale, y_scale): (&Scale, &Scale),
        frame: Frame,
    ) {
        for (&(x, y), &half) in self.points.iter().zip(&self.intervals) {
            let place = (x_scale.place(x), y_scale.place(y));
            if !(axis.shows(y) && half > 0.0 && half.is_finite() && frame.holds(place)) {
                continue;
            }
            // On a logarithmic axis an interval may begin at or below 0, which has no place.
            let low =
                if axis.shows(y - half) { y_scale.place(y - half).min(frame.bottom) } else { frame.bottom };
            let high = if axis.shows(y + half) { y_scale.place(y + half).max(frame.top) } else { frame.top };
            svg.whisker(colour, place.0, low, high);
        }
    }
}

/// Corners of a step function: between two points, first along and then up or down.
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

/// Leaves out steps less than a pixel from the one before, except the last ones. The drawn line is
/// nowhere farther than a pixel from the exact one.
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

/// Places each name above and to the right of its falling line, where it meets neither a line nor
/// another name. A name without such a place is left out; the legend has it.
fn beside<'a>(lines: &[(&'a str, Vec<(f64, f64)>)], frame: Frame) -> Vec<(&'a str, (f64, f64))> {
    const LEVELS: u8 = 12;
    let corners: Vec<Vec<(f64, f64)>> = lines.iter().map(|(_, path)| stairs(path)).collect();
    let mut taken: Vec<Area> = Vec::new();
    let mut placed = Vec::new();
    for ((name, _), own) in lines.iter().zip(&corners) {
        // Searches from below, where distributions differ most.
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

/// Keeps at most four points of a line (first, lowest, highest, last) in each half pixel of width,
/// so that a long recording makes no huge image.
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
        LineChart::ccdf("t", Axis::new("time", "ms").window(0.0, 100.0), true).down_to(1e-4)
    }

    /// Corners of every line drawn as stairs.
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
        // Four decades are 290 pixels. The share of a quarter lasts until 40 ms; above that, the
        // share is 0.
        assert_eq!((line.len(), last), (5, top + 290.0));
        assert!((lowest - top - 290.0 / 4.0 * libm::log10(4.0)).abs() < 0.01, "{lowest}");
        // Ticks at 0 and 100 ms give the place of 40 ms.
        assert!((line[4].0 - line[3].0 - (line[3].0 - line[2].0)).abs() < 0.02);
    }

    #[test]
    fn missing_samples_keep_a_ccdf_up_to_the_right_edge() {
        let never = [10.0, f64::INFINITY];
        let svg = delays().series(Series::ccdf("s", never)).to_svg();
        let line = &corners(&svg)[0];
        assert_eq!(line.last().map(|last| last.0), Some(frame::WIDTH - 34.0));
        assert_eq!(line[line.len() - 1].1, line[line.len() - 2].1);
        assert!(delays().series(Series::ccdf("s", [f64::INFINITY])).to_svg().contains("no data"));
    }

    #[test]
    fn long_distributions_make_a_small_image_whose_tails_are_exact() {
        // 100 000 samples each: exponential from 25 ms on, with as many scales as there are
        // colours.
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
            // The last steps, one per sample, and enough of those before.
            assert!(line.len() > TAIL + 50, "{}", line.len());
            assert!(line.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
        }
    }

    #[test]
    fn points_left_out_of_a_ccdf_are_less_than_a_pixel_apart() {
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
        // Each is once in the legend and once next to its line. The last one's name would leave the
        // frame.
        assert_eq!(["quick", "slow", "very slow"].map(|name| labels(&svg, name)), [2, 2, 1]);
        // Two equal lines: no name may stand on a line, but both have room next to it.
        let svg =
            delays().series(Series::ccdf("a", near(50.0))).series(Series::ccdf("b", near(50.0))).to_svg();
        assert_eq!((labels(&svg, "a"), labels(&svg, "b")), (2, 2));
        // A single line has its name only in the legend.
        assert_eq!(labels(&delays().series(Series::ccdf("only", near(50.0))).to_svg(), "only"), 1);
    }

    /// Points of the first line.
    fn polyline(svg: &str) -> Vec<(f64, f64)> {
        let line =
            svg.lines().find(|line| line.starts_with("<polyline") && !line.contains("points=\"16,")).unwrap();
        let points = line.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let pair = |text: &str| text.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()));
        points.split(' ').map(|point| pair(point).unwrap()).collect()
    }

    /// Height of the tick with this label.
    fn tick(svg: &str, label: &str) -> f64 {
        let line = svg
            .lines()
            .find(|line| line.contains("\"end\"") && line.contains(&format!(">{label}<")))
            .unwrap();
        line.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap() - 4.0
    }

    #[test]
    fn a_value_below_the_requested_range_is_drawn_to_scale() {
        let points = [(0.0, 99.0), (1.0, 14.5), (2.0, 80.0)];
        let chart =
            LineChart::new("t", Axis::new("buffer", ""), Axis::new("utilisation", "%").range(70.0, 102.0));
        let svg = chart.series(Series::line("s", points)).to_svg();
        let (at_50, at_100) = (tick(&svg, "50"), tick(&svg, "100"));
        let per_unit = (at_50 - at_100) / 50.0;
        for ((_, value), (_, y)) in points.into_iter().zip(polyline(&svg)) {
            assert!((y - (at_100 + (100.0 - value) * per_unit)).abs() < 0.05, "{value} at {y}");
        }
    }

    #[test]
    fn arrow_and_legend_tell_how_far_a_line_goes_beyond_its_window() {
        let chart = LineChart::new("t", Axis::new("x", ""), Axis::new("y", "").window(0.0, 10.0));
        let svg = chart.series(Series::line("s", [(0.0, 5.0), (2.0, 15.0), (4.0, 5.0)])).to_svg();
        assert!(svg.contains(">s (to 15)</text>") && svg.contains("<title>s: 15</title>"));
        let (bottom, top) = (tick(&svg, "0"), tick(&svg, "10"));
        // The line reaches the edge at x = 1, and has no part along the edge.
        let first = polyline(&svg);
        assert_eq!(first.len(), 2);
        assert!((first[0].1 - f64::midpoint(bottom, top)).abs() < 0.05 && (first[1].1 - top).abs() < 0.05);
        assert_eq!(
            svg.lines().filter(|line| line.starts_with("<polyline")).count(),
            3,
            "two pieces and the legend"
        );
    }

    #[test]
    fn a_ccdf_beyond_its_window_ends_at_the_edge_without_falling() {
        let svg = delays().series(Series::ccdf("s", [10.0, 20.0, 431.0])).to_svg();
        let line = &corners(&svg)[0];
        let (last, before) = (line[line.len() - 1], line[line.len() - 2]);
        assert_eq!((last.0, last.1), (frame::WIDTH - 34.0, before.1));
        assert!(svg.contains(">s (to 431)</text>") && svg.contains("<title>s: 431</title>"));
    }

    #[test]
    fn published_points_and_intervals_are_drawn_at_their_values() {
        let series =
            Series::line("s", [(0.0, 10.0), (1.0, 20.0)]).intervals([2.0, f64::NAN]).paper([(1.0, 30.0)]);
        let svg = axes().series(series).to_svg();
        let (at_0, at_10) = (tick(&svg, "0"), tick(&svg, "10"));
        let place = |value: f64| at_0 - (at_0 - at_10) / 10.0 * value;
        let whisker = svg.lines().find(|line| line.contains("mc-whisker\" d")).unwrap();
        let ends: Vec<f64> = whisker
            .split('M')
            .skip(1)
            .take(2)
            .map(|part| part.split(['H', ' ']).nth(1).unwrap().parse().unwrap())
            .collect();
        assert!((ends[0] - place(8.0)).abs() < 0.02 && (ends[1] - place(12.0)).abs() < 0.02, "{ends:?}");
        let diamonds: Vec<&str> = svg.lines().filter(|line| line.contains("s, paper: 30")).collect();
        let top: f64 =
            diamonds[0].split("d=\"M").nth(1).unwrap().split([' ', 'l']).nth(1).unwrap().parse().unwrap();
        assert!((top + 5.5 - place(30.0)).abs() < 0.02);
        assert!(svg.contains(">paper</text>"));
    }

    #[test]
    fn a_warm_up_is_shaded_from_its_start_to_its_end() {
        let svg =
            axes().series(Series::line("s", [(0.0, 1.0), (10.0, 2.0)])).shade(0.0, 5.0, "warm-up").to_svg();
        let line = svg.lines().find(|line| line.contains("\"mc-shade\"")).unwrap();
        let number = |name: &str| -> f64 {
            line.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let ends = polyline(&svg);
        assert!((number("x") - ends[0].0).abs() < 0.02);
        assert!((number("x") + number("width") - f64::midpoint(ends[0].0, ends[1].0)).abs() < 0.02);
        assert!(svg.contains(">warm-up</text>"));
    }

    #[test]
    fn a_lone_series_is_named_unless_the_title_does() {
        let named = |title: &str| {
            let chart = LineChart::new(title, Axis::new("time", "s"), Axis::new("rate", "Mbit/s"));
            chart.series(Series::line("Reno", [(0.0, 1.0), (1.0, 2.0)])).to_svg().contains(">Reno</text>")
        };
        assert!(named("window") && !named("window of Reno"));
    }

    #[test]
    fn a_point_that_is_not_finite_leaves_a_gap() {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 2.0)];
        let svg = axes().series(Series::line("s", points)).to_svg();
        assert_eq!(svg.matches("<polyline").count(), 3, "two pieces and the legend");
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
