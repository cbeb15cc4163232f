//! Grouped bars.

use super::frame::{self, Frame, Key};
use super::scale::Scale;
use super::svg::{Anchor, Font, Paint, Svg};
use super::{Axis, Colour};
use crate::text;

/// Groups of bars that stand side by side, each with its value above it.
///
/// ```
/// use marcato_papers::chart::{Axis, BarChart, Bars, Colour};
/// let svg = BarChart::new("Completion times", Axis::new("completion", "ms"))
///     .groups(["P0", "P1"])
///     .bars(Bars::new("CATS, paper", [130.0, 282.0]).colour(Colour::Blue).outlined())
///     .bars(Bars::new("CATS, measured", [130.5, 282.0]).colour(Colour::Blue))
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

/// The bars of one series: one in each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    name: String,
    values: Vec<f64>,
    parts: Vec<f64>,
    colour: Option<Colour>,
    outlined: bool,
}

impl Bars {
    /// A series with one value for each group in order; a value that is not a number leaves its place empty.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().collect();
        Self { name: name.into(), values, parts: vec![], colour: None, outlined: false }
    }

    /// Chooses the colour; without it each series has its own.
    #[must_use]
    pub fn colour(mut self, colour: Colour) -> Self {
        self.colour = Some(colour);
        self
    }

    /// How much of each bar is stacked on top in a lighter shade: the part that [`BarChart::part`] names. The values of
    /// the series are the totals. A part is held between nothing and its total; one that is not a number is not drawn.
    #[must_use]
    pub fn parts(mut self, parts: impl IntoIterator<Item = f64>) -> Self {
        self.parts = parts.into_iter().collect();
        self
    }

    /// Draws outlines instead of filled bars: for published values beside measured ones of the same colour.
    #[must_use]
    pub fn outlined(mut self) -> Self {
        self.outlined = true;
        self
    }
}

impl BarChart {
    /// A chart without bars; `axis` is the vertical one.
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

    /// Says what the lighter part of bars is: see [`Bars::parts`].
    #[must_use]
    pub fn part(mut self, name: impl Into<String>) -> Self {
        self.part = Some(name.into());
        self
    }

    /// The chart as an SVG image.
    pub fn to_svg(&self) -> String {
        let count = self.groups.len();
        let paints: Vec<Paint> = self
            .bars
            .iter()
            .enumerate()
            .map(|(index, bars)| {
                let colour = bars.colour.unwrap_or(Colour::of_series(index));
                if bars.outlined { Paint::Outlined(colour) } else { Paint::Solid(colour) }
            })
            .collect();
        let part = self.part.as_deref().map(|name| (Key::Box(Paint::Light(Colour::Grey)), name));
        let legend: Vec<(Key, &str)> = self
            .bars
            .iter()
            .zip(&paints)
            .map(|(bars, &paint)| (Key::Box(paint), bars.name.as_str()))
            .chain(part)
            .collect();
        // Room above the plot for the value of the highest bar.
        let top = Frame::top_below(&legend) + 14.0;
        let bottom = top + 270.0;
        let values = || self.bars.iter().flat_map(|bars| bars.values.iter().copied().take(count));
        let Some(scale) = Scale::new(&self.axis, values(), true, bottom, top) else {
            return frame::no_data(&self.title);
        };
        let frame = Frame { left: frame::left_of(&scale), right: frame::WIDTH - 16.0, top, bottom };
        let mut svg = Svg::new(frame::WIDTH, bottom + 34.0, &self.title);
        frame::head(&mut svg, &self.title, &legend);
        frame::vertical(&mut svg, frame, &self.axis, &scale);

        let ground = scale.place(if self.axis.log { scale.lo() } else { 0.0 });
        let pitch = (frame.right - frame.left) / as_f64(count);
        let width = (pitch * 0.92 / as_f64(self.bars.len())).min(64.0);
        let first = (pitch - width * as_f64(self.bars.len())) / 2.0;
        let widest = values().map(|value| Font::SMALL.width(&printed(value))).fold(0.0, f64::max);
        // Where the labels would run into each other they stand on end.
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
                let part = bars.parts.get(group).copied().filter(|part| part.is_finite());
                if let Some(part) = part.map(|part| part.clamp(value.min(0.0), value.max(0.0))) {
                    let name = self.part.as_deref().unwrap_or("part");
                    let split = scale.place(value - part);
                    svg.rect(paint, (from, split), (to, ground), &about);
                    let about = format!("{about}, {name}: {}", printed(part));
                    svg.rect(Paint::Light(paint.colour()), (from, y), (to, split), &about);
                } else {
                    svg.rect(paint, (from, y), (to, ground), &about);
                }
                let middle = x + width / 2.0;
                if upright {
                    svg.text(Font::SMALL.upright(), (middle + 4.0, y.min(ground) - 5.0), &printed(value));
                } else {
                    svg.text(Font::SMALL.at(Anchor::Middle), (middle, y.min(ground) - 5.0), &printed(value));
                }
            }
            svg.text(Font::LABEL.at(Anchor::Middle), (left + pitch / 2.0, bottom + 20.0), name);
        }
        svg.line("mc-axis", (frame.left, ground), (frame.right, ground));
        svg.finish()
    }
}

fn printed(value: f64) -> String {
    text::number(Some(value))
}

/// Counts of bars and groups are small.
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
        // 270 pixels are 200 Mbit/s; what is drawn around lies inside by 0.75 at either side.
        let near = |height: f64, mbps: f64| (height - mbps * 1.35).abs() < 1.51;
        assert!(near(height("<title>10 kB, LowRTT: 160</title>"), 120.0));
        assert!(near(height("<title>10 kB, LowRTT: 160, priority data: 40</title>"), 40.0));
        // No part is greater than the whole, or less than nothing.
        assert!(near(height("<title>50 kB, LowRTT: 100, priority data: 100</title>"), 100.0));
        assert!(near(height("<title>50 kB, CWR: 80</title>"), 80.0));
        assert!(!svg.contains("none, LowRTT") && !svg.contains("NaN"));
        assert!(!svg.contains("10 kB, CWR: 80, priority"), "what is not a number is not drawn");
        assert_eq!(svg.matches("fill-opacity=\"0.4\"").count(), 4, "three parts and the legend");
        assert!(svg.contains(">priority data</text>"));
    }

    #[test]
    fn the_same_chart_is_the_same_text() {
        assert_eq!(chart(&[1.0, 2.0]), chart(&[1.0, 2.0]));
    }
}
