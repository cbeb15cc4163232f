//! Charts as SVG text: [bars](BarChart), [lines, steps and CCDFs](LineChart), [dots](DotChart),
//! [intervals](IntervalChart), [heat maps](HeatMap), [film strips](FilmStrip).
//!
//! A chart is filled by chained calls. It is then drawn by `to_svg`, or given to a
//! [`Figure`](crate::Figure), whose report draws it. The image has its own title, axes with units
//! and a legend. It follows the reader's light or dark preference, needs no outside resource, and
//! is the same text on every machine.
//!
//! The name of a series determines its colour, pattern and mark. In a report, a name keeps them in
//! all charts. A page shows at most [`MOST_SERIES`] series of a chart at once, and the others, with
//! equal axes, when a reader opens them.
//!
//! Every number is drawn at its place on the axis. With a window, lines end at its edge, and an
//! arrow and the legend give the value farthest outside. Numbers that are not finite (or beyond
//! 10^100), and numbers that are not positive on a logarithmic axis, are left out. A chart without
//! any number shows "no data".
//!
//! The charts are a few hundred lines that write SVG. The crate `plotters` was considered and rejected. Its
//! SVG has fixed colours, where these follow the reader's preference. It has no grouped bars with a value on
//! each, and no interval chart; these would have been drawn by hand from rectangles and text with either
//! library.

mod axis;
mod bar;
mod colour;
mod dot;
mod drawing;
mod film;
mod frame;
mod heat;
mod interval;
mod line;
mod look;
mod scale;
mod svg;

pub use axis::Axis;
pub use bar::{BarChart, Bars};
pub use colour::Colour;
pub use dot::{DotChart, Dots};
pub use drawing::{Drawing, MOST_SERIES};
pub use film::{FilmStrip, Jpeg};
pub use heat::HeatMap;
pub use interval::{Interval, IntervalChart};
pub use line::{LineChart, Series};
pub(crate) use look::Looks;
