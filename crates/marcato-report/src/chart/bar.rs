//! Grouped bars.

use super::drawing::apart;
use super::frame::{self, Frame, Key};
use super::look::{Looks, Named, series_builders};
use super::scale::Scale;
use super::svg::{Anchor, Font, Paint, Svg};
use super::{Axis, Colour};
use crate::text;

/// Groups of bars that stand side by side, each with its value above it.
///
/// ```
/// use marcato_report::chart::{Axis, BarChart, Bars, Colour};
/// let svg = BarChart::new("Completion times", Axis::new("completion", "ms"))
///     .groups(["P0", "P1"])
///     .bars(Bars::new("CATS", [130.5, 282.0]).paper([130.0, 282.0]).colour(Colour::Blue))
///     .to_svg();
/// assert!(svg.starts_with("<svg"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    title: String,
    axis: Axis,
    groups: Vec<String>,
    bars: Vec<Bars>,
    part: Option<String>,
}

/// Bars of one series: one in each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    name: String,
    values: Vec<f64>,
    parts: Vec<f64>,
    intervals: Vec<f64>,
    paper: Vec<f64>,
    colour: Option<Colour>,
    like: Option<String>,
    outlined: bool,
}

impl Bars {
    /// Creates a series with one value for each group in order. A value that is not a number leaves
    /// its place empty.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().collect();
        let (name, parts, intervals, paper) = (name.into(), vec![], vec![], vec![]);
        Self { name, values, parts, intervals, paper, colour: None, like: None, outlined: false }
    }

    series_builders!();

    /// Adds published values of the same quantity, in the order of the groups. They are drawn as
    /// hollow diamonds, which the legend calls `paper`. One that is not a number is not drawn.
    #[must_use]
    pub fn paper(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        self.paper = values.into_iter().collect();
        self
    }

    /// Sets the part of each bar that is drawn at its top in a lighter shade; [`BarChart::part`]
    /// names it. The values of the series are the totals. A part that is not between 0 and its
    /// total is not drawn.
    #[must_use]
    pub fn parts(mut self, parts: impl IntoIterator<Item = f64>) -> Self {
        self.parts = parts.into_iter().collect();
        self
    }

    /// Draws outlines instead of filled bars, for computed values next to measured ones of the same
    /// colour.
    #[must_use]
    pub fn outlined(mut self) -> Self {
        self.outlined = true;
        self
    }
}

impl BarChart {
    /// Creates a chart without bars; `axis` is the vertical one.
    pub fn new(title: impl Into<String>, axis: Axis) -> Self {
        Self { title: title.into(), axis, groups: vec![], bars: vec![], part: None }
    }

    /// Names the groups, from left to right.
    #[must_use]
    pub fn groups<I: Into<String>>(mut self, names: impl IntoIterator<Item = I>) -> Self {
        self.groups.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds a series. Values beyond the last group are left out.
    #[must_use]
    pub fn bars(mut self, bars: Bars) -> Self {
        self.bars.push(bars);
        self
    }

    /// Names the lighter part of bars: see [`Bars::parts`].
    #[must_use]
    pub fn part(mut self, name: impl Into<String>) -> Self {
        self.part = Some(name.into());
        self
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Charts with the same axis of at most [`MOST_SERIES`](super::MOST_SERIES) series each, and the names of these.
    pub(super) fn parts(&self) -> Vec<(Self, Vec<String>)> {
        let chart = |bars, axis| Self { axis, bars, ..self.clone() };
        apart(&self.bars, &self.axis, || self.reaches(), |bars| &bars.name, Bars::named, chart)
    }

    /// Values, the ends of their intervals, and published values.
    fn reaches(&self) -> impl Iterator<Item = f64> {
        let count = self.groups.len();
        self.bars.iter().flat_map(move |bars| {
            let values = bars.values.iter().copied().take(count);
            values.chain(bars.paper.iter().copied().take(count)).chain(bars.ends(count))
        })
    }

    /// The series by name.
    pub(super) fn named(&self) -> Vec<Named<'_>> {
        self.bars.iter().map(Bars::named).collect()
    }

    /// The chart as an SVG image on its own.
    pub fn to_svg(&self) -> String {
        self.draw(&Looks::assign([self.named()]))
    }

    /// The chart as an SVG image of a report that assigned these looks.
    pub(super) fn draw(&self, looks: &Looks) -> String {
        let count = self.groups.len();
        let paints: Vec<Paint> = self
            .bars
            .iter()
            .map(|bars| {
                let look = looks.of(bars.named());
                if bars.outlined { Paint::Outlined(look.colour) } else { Paint::Solid(look) }
            })
            .collect();
        let part = self.part.clone().map(|name| (Key::Box(Paint::Light(Colour::Grey)), name));
        let published = || self.bars.iter().flat_map(|bars| bars.paper.iter().copied().take(count));
        let paper = published().any(|value| self.axis.shows(value));
        let paper = paper.then(|| (Key::Paper, "paper".to_owned()));
        let entries =
            self.bars.iter().zip(&paints).map(|(bars, &paint)| (Key::Box(paint), bars.name.clone()));
        let legend = frame::legend(&self.title, entries.chain(part).chain(paper).collect());
        // Room above the plot for the value of the highest bar.
        let top = Frame::top_below(&legend) + 14.0;
        let bottom = top + 270.0;
        let values = || self.bars.iter().flat_map(|bars| bars.values.iter().copied().take(count));
        // Bars cannot be cut at the frame: for them a window is a range like any other.
        let axis = self.axis.clone().uncut();
        let Some(scale) = Scale::new(&axis, self.reaches(), true, bottom, top) else {
            return frame::no_data(&self.title);
        };
        let frame = Frame { left: frame::left_of(&scale), right: frame::WIDTH - 16.0, top, bottom };
        let mut svg = Svg::new(frame::WIDTH, bottom + 34.0, &self.title);
        frame::head(&mut svg, &self.title, &legend);
        frame::vertical(&mut svg, frame, &self.axis, &scale);

        // The ground is at 0, or at the axis's lower end if a range begins above 0.
        let ground = scale.place(if self.axis.log { scale.lo() } else { scale.lo().max(0.0) });
        let pitch = (frame.right - frame.left) / as_f64(count);
        let width = (pitch * 0.92 / as_f64(self.bars.len())).min(64.0);
        let first = (pitch - width * as_f64(self.bars.len())) / 2.0;
        let widest = values().map(|value| Font::SMALL.width(&printed(value))).fold(0.0, f64::max);
        // Labels that would overlap are turned upright.
        let upright = widest > width - 2.0;
        for (group, name) in self.groups.iter().enumerate() {
            let left = frame.left + pitch * as_f64(group);
            for (index, (bars, &paint)) in self.bars.iter().zip(&paints).enumerate() {
                let Some(value) = bars.values.get(group).copied().filter(|&value| self.axis.shows(value))
                else {
                    continue;
                };
                let (x, y) = (left + first + width * as_f64(index), scale.place(value));
                let about = format!("{name}, {}: {}", bars.name, printed(value));
                let (from, to) = (x + 1.0, x + width - 1.0);
                let whole = value.min(0.0)..=value.max(0.0);
                if let Some(part) = bars.parts.get(group).copied().filter(|part| whole.contains(part)) {
                    let name = self.part.as_deref().unwrap_or("part");
                    let split = scale.place(value - part);
                    svg.rect(paint, (from, split), (to, ground), &about);
                    let about = format!("{about}, {name}: {}", printed(part));
                    svg.rect(Paint::Light(paint.colour()), (from, y), (to, split), &about);
                } else {
                    svg.rect(paint, (from, y), (to, ground), &about);
                }
                let middle = x + width / 2.0;
                let mut above = y.min(ground);
                let half = bars.intervals.get(group).copied().filter(|half| *half > 0.0 && half.is_finite());
                if let Some(half) = half {
                    let low = if self.axis.shows(value - half) { scale.place(value - half) } else { bottom };
                    let high = scale.place(value + half);
                    svg.whisker(None, middle, low.min(bottom), high);
                    above = above.min(high);
                }
                let published = bars.paper.get(group).copied().filter(|&paper| self.axis.shows(paper));
                if let Some(paper) = published {
                    let place = scale.place(paper);
                    let about = format!("{name}, {}, paper: {}", bars.name, printed(paper));
                    svg.paper(None, (middle, place), &about);
                    // A diamond just above its bar would cover the number.
                    if place < above + 6.0 && place > above - 18.0 {
                        above = place - 6.0;
                    }
                }
                if upright {
                    svg.text(Font::SMALL.upright(), (middle + 4.0, above - 5.0), &printed(value));
                } else {
                    svg.text(Font::SMALL.at(Anchor::Middle), (middle, above - 5.0), &printed(value));
                }
            }
            svg.text(Font::LABEL.at(Anchor::Middle), (left + pitch / 2.0, bottom + 20.0), name);
        }
        svg.line("mc-axis", (frame.left, ground), (frame.right, ground));
        svg.finish()
    }
}

impl Bars {
    fn named(&self) -> Named<'_> {
        (self.like.as_deref().unwrap_or(&self.name), self.colour)
    }

    /// Both ends of the intervals of the first `count` bars.
    fn ends(&self, count: usize) -> impl Iterator<Item = f64> {
        let values = self.values.iter().zip(&self.intervals).take(count);
        values.flat_map(|(&value, &half)| [value - half, value + half])
    }
}

fn printed(value: f64) -> String {
    text::number(Some(value))
}

/// Converts a count. Counts of bars and groups are small.
fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[f64]) -> String {
        BarChart::new("t", Axis::new("time", "ms"))
            .groups(["P0", "P1"])
            .bars(Bars::new("one", values.iter().copied()))
            .to_svg()
    }

    #[test]
    fn each_finite_value_has_a_bar_with_its_number() {
        let svg = chart(&[130.0, f64::NAN]);
        assert!(svg.contains("<title>P0, one: 130</title>"));
        assert!(!svg.contains("NaN") && !svg.contains("P1, one"));
        assert!(svg.contains(">time (ms)</text>"));
    }

    #[test]
    fn no_number_at_all_is_said() {
        assert!(chart(&[]).contains("no data"));
        assert!(chart(&[f64::NAN, f64::INFINITY]).contains("no data"));
        assert!(BarChart::new("t", Axis::new("x", "")).to_svg().contains("no data"));
    }

    #[test]
    fn surplus_values_are_left_out_and_negative_ones_hang_down() {
        let svg = chart(&[-1.0, 2.0, 3.0]);
        assert_eq!(svg.matches("</rect>").count(), 2);
    }

    #[test]
    fn published_values_and_intervals_stand_over_their_bars() {
        let bars = Bars::new("one", [100.0, 50.0]).intervals([20.0, f64::NAN]).paper([f64::NAN, 80.0]);
        let svg = BarChart::new("t", Axis::new("time", "ms")).groups(["P0", "P1"]).bars(bars).to_svg();
        let line = |with: &str| svg.lines().find(|line| line.contains(with)).unwrap();
        let after = |line: &str, mark: &str| -> f64 {
            line.split(mark).nth(1).unwrap().split(['"', 'H', 'V', 'l', ' ']).next().unwrap().parse().unwrap()
        };
        let bar = |about: &str| (after(line(about), " y=\""), after(line(about), " height=\""));
        let (top, height) = bar("<title>P0, one: 100</title>");
        let whisker = line("mc-whisker\" d");
        let ends: Vec<f64> = whisker.split('M').skip(1).take(2).map(|part| after(part, " ")).collect();
        assert!(
            (ends[0] - (top + height / 5.0)).abs() < 0.05 && (ends[1] - (top - height / 5.0)).abs() < 0.05
        );
        let (top, height) = bar("<title>P1, one: 50</title>");
        let diamond = line("<title>P1, one, paper: 80</title>").split("d=\"M").nth(1).unwrap();
        assert!((after(diamond, " ") + 5.5 - (top + height - height / 50.0 * 80.0)).abs() < 0.05);
        assert_eq!((svg.matches("mc-whisker\" d").count(), svg.contains(">paper</text>")), (1, true));
    }

    #[test]
    fn bars_of_nothing_stand_on_an_axis_that_begins_at_nought() {
        assert!(!chart(&[0.0, 0.0]).contains(">-1"));
    }

    #[test]
    fn the_seventh_series_is_hatched_where_the_first_is_plain() {
        let chart = (0..7).fold(BarChart::new("t", Axis::new("x", "")).groups(["g"]), |chart, at| {
            chart.bars(Bars::new(format!("series {at}"), [f64::from(at) + 1.0]))
        });
        let svg = chart.to_svg();
        assert_eq!(svg.matches("mc-hatch\" d").count(), 2, "the bar and the legend");
    }

    #[test]
    fn a_part_is_stacked_lighter_on_top_and_both_make_the_whole_bar() {
        let svg = BarChart::new("t", Axis::new("throughput", "Mbit/s").range(0.0, 200.0))
            .groups(["10 kB", "50 kB", "none"])
            .bars(Bars::new("LowRTT", [160.0, 100.0, f64::NAN]).parts([40.0, 500.0, 1.0]))
            .bars(Bars::new("CWR", [80.0, 80.0, 80.0]).parts([f64::NAN, -1.0]))
            .part("priority data")
            .to_svg();
        let height = |about: &str| {
            let line = svg.lines().find(|line| line.contains(about)).unwrap();
            let from = line.find("height=\"").unwrap() + 8;
            line[from..].split('"').next().unwrap().parse::<f64>().unwrap()
        };
        // 270 pixels are 200 Mbit/s; the outline takes 0.75 on either side.
        let near = |height: f64, mbps: f64| (height - mbps * 1.35).abs() < 1.51;
        assert!(near(height("<title>10 kB, LowRTT: 160</title>"), 120.0));
        assert!(near(height("<title>10 kB, LowRTT: 160, priority data: 40</title>"), 40.0));
        // A value greater than the whole, or negative, is no part.
        assert!(near(height("<title>50 kB, LowRTT: 100</title>"), 100.0));
        assert!(
            near(height("<title>50 kB, CWR: 80</title>"), 80.0) && !svg.contains("50 kB, LowRTT: 100, pri")
        );
        assert!(!svg.contains("none, LowRTT") && !svg.contains("NaN"));
        assert!(!svg.contains("10 kB, CWR: 80, priority"), "what is not a number is not drawn");
        assert_eq!(svg.matches("fill-opacity=\"0.4\"").count(), 2, "a part and the legend");
        assert!(svg.contains(">priority data</text>"));
    }

    #[test]
    fn the_same_chart_is_the_same_text() {
        assert_eq!(chart(&[1.0, 2.0]), chart(&[1.0, 2.0]));
    }
}
