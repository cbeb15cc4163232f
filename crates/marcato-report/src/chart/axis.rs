//! Axes of charts.

/// Largest magnitude that is drawn. No measured quantity is larger, and without larger values every
/// sum and difference stays finite.
const BEYOND: f64 = 1e100;

/// An axis: label, unit and range.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    label: String,
    unit: String,
    pub(super) log: bool,
    pub(super) lo: Option<f64>,
    pub(super) hi: Option<f64>,
    pub(super) cut: bool,
    /// Data that are not drawn here, but that the range must hold: those of the chart's other parts.
    pub(super) others: Option<(f64, f64)>,
}

impl Axis {
    /// Creates an axis over the range of the data. The `unit` may be empty for a plain number.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
            log: false,
            lo: None,
            hi: None,
            cut: false,
            others: None,
        }
    }

    /// Makes the axis logarithmic; values that are not positive are then left out.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Shows at least this range. Data outside it make the axis longer.
    #[must_use]
    pub fn range(mut self, lo: f64, hi: f64) -> Self {
        (self.lo, self.hi) = (Some(lo), Some(hi));
        self
    }

    /// Shows exactly this range of a [line chart](super::LineChart): a window on longer data. Lines
    /// end at the frame, an arrow marks the place, and the legend has the value farthest outside.
    /// Other charts show at least this range.
    #[must_use]
    pub fn window(self, lo: f64, hi: f64) -> Self {
        Self { cut: true, ..self.range(lo, hi) }
    }

    /// Turns a window into a range.
    pub(super) fn uncut(self) -> Self {
        Self { cut: false, ..self }
    }

    /// Makes the range hold these values too, so that the parts of one chart have equal axes.
    pub(super) fn holding(mut self, values: impl Iterator<Item = f64>) -> Self {
        let shown: Vec<f64> = values.filter(|&value| self.shows(value)).collect();
        let (lo, hi) = (shown.iter().copied().reduce(f64::min), shown.iter().copied().reduce(f64::max));
        self.others = lo.zip(hi);
        self
    }

    /// Returns true if `value` has a place on the axis.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.abs() <= BEYOND && (!self.log || value >= 1.0 / BEYOND)
    }

    pub(super) fn title(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }
}
