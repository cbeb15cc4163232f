//! Content of a figure.

use super::look::{Looks, Named};
use super::{Axis, BarChart, DotChart, HeatMap, IntervalChart, LineChart};

/// Largest number of series that a page shows in one image. More lines than colours cannot be told
/// apart.
pub const MOST_SERIES: usize = 6;

/// A chart of any kind, not drawn yet, or a finished SVG image.
///
/// A report draws its charts itself, so that the same name looks the same in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing(Kind);

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Line(LineChart),
    Bar(BarChart),
    Dot(DotChart),
    Interval(IntervalChart),
    Heat(HeatMap),
    Svg(String),
}

impl Drawing {
    /// Series by name; empty for a finished image.
    fn named(&self) -> Vec<Named<'_>> {
        match &self.0 {
            Kind::Line(chart) => chart.named(),
            Kind::Bar(chart) => chart.named(),
            Kind::Dot(chart) => chart.named(),
            Kind::Interval(chart) => chart.named(),
            Kind::Heat(_) | Kind::Svg(_) => vec![],
        }
    }

    /// Title of a chart; empty for a finished image.
    pub(crate) fn title(&self) -> &str {
        match &self.0 {
            Kind::Line(chart) => chart.title(),
            Kind::Bar(chart) => chart.title(),
            Kind::Dot(chart) => chart.title(),
            Kind::Interval(chart) => chart.title(),
            Kind::Heat(chart) => chart.title(),
            Kind::Svg(_) => "",
        }
    }

    /// Drawings of at most [`MOST_SERIES`] series each, with equal axes, and the names of the series
    /// in each. Series of one colour stay together.
    pub(crate) fn parts(&self) -> Vec<(Self, Vec<String>)> {
        match &self.0 {
            Kind::Line(chart) => parts(chart.parts()),
            Kind::Bar(chart) => parts(chart.parts()),
            Kind::Dot(chart) => parts(chart.parts()),
            Kind::Interval(_) | Kind::Heat(_) | Kind::Svg(_) => vec![(self.clone(), vec![])],
        }
    }

    /// Looks of all names in these drawings.
    pub(crate) fn looks<'a>(drawings: impl IntoIterator<Item = &'a Self>) -> Looks {
        Looks::assign(drawings.into_iter().map(Self::named))
    }

    /// SVG image with these looks.
    pub(crate) fn draw(&self, looks: &Looks) -> String {
        match &self.0 {
            Kind::Line(chart) => chart.draw(looks),
            Kind::Bar(chart) => chart.draw(looks),
            Kind::Dot(chart) => chart.draw(looks),
            Kind::Interval(chart) => chart.draw(looks),
            Kind::Heat(chart) => chart.to_svg(),
            Kind::Svg(svg) => svg.clone(),
        }
    }
}

fn parts<C>(charts: Vec<(C, Vec<String>)>) -> Vec<(Drawing, Vec<String>)>
where
    Drawing: From<C>,
{
    charts.into_iter().map(|(chart, names)| (chart.into(), names)).collect()
}

/// Returns charts of at most [`MOST_SERIES`] series each, and the names of these. If there are several, each has the
/// same axis, which holds all values.
pub(super) fn apart<S: Clone, C, R: Iterator<Item = f64>>(
    series: &[S],
    axis: &Axis,
    reaches: impl FnOnce() -> R,
    name: fn(&S) -> &str,
    named: fn(&S) -> Named<'_>,
    chart: impl Fn(Vec<S>, Axis) -> C,
) -> Vec<(C, Vec<String>)> {
    let part = |series: Vec<S>, axis: &Axis| {
        let names = series.iter().map(|one| name(one).to_owned()).collect();
        (chart(series, axis.clone()), names)
    };
    if series.len() <= MOST_SERIES {
        return vec![part(series.to_vec(), axis)];
    }
    let axis = axis.clone().holding(reaches());
    split(series, |one| named(one).0).into_iter().map(|series| part(series, &axis)).collect()
}

/// Splits series into runs of at most [`MOST_SERIES`]. Those of one colour, by `named`, stay together,
/// even if they are more.
pub(super) fn split<S: Clone>(series: &[S], named: impl Fn(&S) -> &str) -> Vec<Vec<S>> {
    let mut groups: Vec<Vec<S>> = vec![];
    for one in series {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| named(first) == named(one))) {
            Some(group) => group.push(one.clone()),
            None => groups.push(vec![one.clone()]),
        }
    }
    let mut parts: Vec<Vec<S>> = vec![];
    for group in groups {
        match parts.last_mut().filter(|part| part.len() + group.len() <= MOST_SERIES) {
            Some(part) => part.extend(group),
            None => parts.push(group),
        }
    }
    parts
}

macro_rules! drawing_from {
    ($($from:ty => $kind:ident),*) => {
        $(impl From<$from> for Drawing {
            fn from(chart: $from) -> Self {
                Self(Kind::$kind(chart))
            }
        })*
    };
}

drawing_from!(
    LineChart => Line, BarChart => Bar, DotChart => Dot, IntervalChart => Interval, HeatMap => Heat, String => Svg
);

impl From<&str> for Drawing {
    fn from(svg: &str) -> Self {
        svg.to_owned().into()
    }
}
