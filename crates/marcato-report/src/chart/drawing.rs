//! Content of a figure.

use super::look::{Looks, Named};
use super::{BarChart, HeatMap, IntervalChart, LineChart};

/// A chart of any kind, not drawn yet, or a finished SVG image.
///
/// A report draws its charts itself, so that the same name looks the same in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing(Kind);

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Line(LineChart),
    Bar(BarChart),
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
            Kind::Interval(chart) => chart.named(),
            Kind::Heat(_) | Kind::Svg(_) => vec![],
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
            Kind::Interval(chart) => chart.draw(looks),
            Kind::Heat(chart) => chart.to_svg(),
            Kind::Svg(svg) => svg.clone(),
        }
    }
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

drawing_from!(LineChart => Line, BarChart => Bar, IntervalChart => Interval, HeatMap => Heat, String => Svg);

impl From<&str> for Drawing {
    fn from(svg: &str) -> Self {
        svg.to_owned().into()
    }
}
