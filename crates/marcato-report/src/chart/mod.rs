//! Charts as SVG text: [bars](BarChart), [lines, steps and CCDFs](LineChart), [intervals](IntervalChart), [heat
//! maps](HeatMap).
//!
//! Each chart is a value that is filled by chaining and then drawn by `to_svg`, or given to a [`Figure`](crate::Figure),
//! whose report draws it. The image has its own title, axes with units and a legend; it follows the reader's light or dark
//! preference, has no outside resource, and is the same text on every machine.
//!
//! A series has a colour, a pattern and a mark by its name. In a report a name keeps them in all charts.
//!
//! Every number is drawn where its axis says. Where a window is asked for, lines end at its edge, and an arrow and the legend
//! say how far they go. Numbers that are not finite (or beyond 10^100), and numbers that are not positive on a logarithmic
//! axis, are left out; a chart without any number says that it has no data.

mod axis;
mod bar;
mod colour;
mod drawing;
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
pub use drawing::Drawing;
pub use heat::HeatMap;
pub use interval::{Interval, IntervalChart};
pub use line::{LineChart, Series};
pub(crate) use look::Looks;
