//! One compared value.
//!
//! The measured value is the mean over the seeds with its 95 % confidence interval. A value without a band
//! gives the reason ([`Row::unclaimed_because`]).

use serde::{Serialize, Serializer};

use crate::{Mean, Unit};

/// One value: what the paper prints, what was measured, and the band that the measured value must
/// lie in.
///
/// Filled by chained calls, whose order does not matter. Numbers that are not finite are kept out
/// of every output (they become null), and a claim about such a number does not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    id: String,
    what: String,
    unit: Unit,
    paper: Option<f64>,
    measured: Option<f64>,
    virtual_: Option<f64>,
    n: u32,
    ci95: Option<f64>,
    band: Band,
    why_unclaimed: Option<String>,
}

/// Claim about the measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Band {
    /// No claim.
    Unclaimed,
    /// The value lies in a closed interval; `None` leaves that end open.
    Between(Option<f64>, Option<f64>),
    /// The value lies within this percentage of the paper's value.
    Percent(f64),
    /// The value lies within this distance of the paper's value, in the row's unit.
    Absolute(f64),
}

impl Row {
    /// Creates a row without values. `id` is stable, dotted and begins with the paper
    /// (`cats.table1.cats.p0`); `what` describes the quantity in words; `unit` applies to all its
    /// numbers.
    pub fn new(id: impl Into<String>, what: impl Into<String>, unit: Unit) -> Self {
        Self {
            id: id.into(),
            what: what.into(),
            unit,
            paper: None,
            measured: None,
            virtual_: None,
            n: 0,
            ci95: None,
            band: Band::Unclaimed,
            why_unclaimed: None,
        }
    }

    /// Creates a row for a statement that is claimed to be true: measured 1 or 0, and the band is
    /// exactly 1.
    pub fn verdict(id: impl Into<String>, what: impl Into<String>, held: bool) -> Self {
        Self::new(id, what, Unit::Count).measured(f64::from(u8::from(held))).within(1.0, 1.0)
    }

    /// Sets the value that the paper prints.
    #[must_use]
    pub fn paper(mut self, value: f64) -> Self {
        self.paper = Some(value);
        self
    }

    /// Sets the value of one run.
    #[must_use]
    pub fn measured(mut self, value: f64) -> Self {
        (self.measured, self.n, self.ci95) = (Some(value), 1, None);
        self
    }

    /// Sets the value from several runs: their mean, their number and the 95 % confidence interval
    /// of the mean. Without samples, nothing is measured.
    #[must_use]
    pub fn samples(mut self, samples: &[f64]) -> Self {
        let mean = Mean::of(samples);
        (self.measured, self.n, self.ci95) = ((mean.n > 0).then_some(mean.value), mean.n, mean.ci95);
        self
    }

    /// Sets the simulator's value, shown next to the lab's.
    #[must_use]
    pub fn virtual_(mut self, value: f64) -> Self {
        self.virtual_ = Some(value);
        self
    }

    /// Claims that the measured value is at least `lo` and at most `hi`.
    #[must_use]
    pub fn within(mut self, lo: f64, hi: f64) -> Self {
        self.band = Band::Between(Some(lo), Some(hi));
        self
    }

    /// Claims that the measured value is within `percent` percent of the paper's value.
    /// Without a paper's value the claim does not hold.
    #[must_use]
    pub fn within_percent(mut self, percent: f64) -> Self {
        self.band = Band::Percent(percent);
        self
    }

    /// Claims that the measured value is within `distance`, in the row's unit, of the paper's
    /// value. Without a paper's value the claim does not hold.
    #[must_use]
    pub fn within_absolute(mut self, distance: f64) -> Self {
        self.band = Band::Absolute(distance);
        self
    }

    /// Claims that the measured value is `lo` or more.
    #[must_use]
    pub fn at_least(mut self, lo: f64) -> Self {
        self.band = Band::Between(Some(lo), None);
        self
    }

    /// Claims that the measured value is `hi` or less.
    #[must_use]
    pub fn at_most(mut self, hi: f64) -> Self {
        self.band = Band::Between(None, Some(hi));
        self
    }

    /// Withdraws the claim about the measured value, and gives the reason.
    #[must_use]
    pub fn withdrawn_because(mut self, why: impl Into<String>) -> Self {
        self.band = Band::Unclaimed;
        self.unclaimed_because(why)
    }

    /// Gives the reason for claiming nothing about the measured value. It is shown only if no band
    /// is set.
    #[must_use]
    pub fn unclaimed_because(mut self, why: impl Into<String>) -> Self {
        self.why_unclaimed = Some(why.into());
        self
    }

    /// Stable, dotted name of the row.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Description of the measured quantity, in words.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Unit of all the row's numbers.
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Value that the paper prints, if any.
    pub fn paper_value(&self) -> Option<f64> {
        finite(self.paper)
    }

    /// Measured value: the mean if there were several runs.
    pub fn measured_value(&self) -> Option<f64> {
        finite(self.measured)
    }

    /// The simulator's value, next to the lab's.
    pub fn virtual_value(&self) -> Option<f64> {
        finite(self.virtual_)
    }

    /// Measured value minus the paper's, in the row's unit; `None` if either is missing.
    pub fn deviation(&self) -> Option<f64> {
        finite(self.paper_value().zip(self.measured_value()).map(|(paper, measured)| measured - paper))
    }

    /// Deviation in % of the paper's value; `None` if that is 0.
    pub fn deviation_percent(&self) -> Option<f64> {
        let paper = self.paper_value().filter(|&paper| paper != 0.0)?;
        finite(self.deviation().map(|deviation| 100.0 * deviation / paper.abs()))
    }

    /// Reason for claiming nothing, if one was given.
    pub fn why_unclaimed(&self) -> Option<&str> {
        self.why_unclaimed.as_deref()
    }

    /// Number of runs that the measured value is the mean of.
    pub const fn n(&self) -> u32 {
        self.n
    }

    /// Half-width of the 95 % confidence interval of the mean; `None` for fewer than two runs.
    pub fn ci95(&self) -> Option<f64> {
        finite(self.ci95)
    }

    /// Least value that the claim allows.
    pub fn lo(&self) -> Option<f64> {
        finite(self.limits().0)
    }

    /// Greatest value that the claim allows.
    pub fn hi(&self) -> Option<f64> {
        finite(self.limits().1)
    }

    /// Returns true if the claim holds, and `None` if nothing is claimed. A claim about a value
    /// that was not measured, or against a limit that is not a number, does not hold.
    pub fn ok(&self) -> Option<bool> {
        if self.band == Band::Unclaimed {
            return None;
        }
        let (lo, hi) = self.limits();
        let inside = |value: f64| lo.is_none_or(|lo| value >= lo) && hi.is_none_or(|hi| value <= hi);
        Some((lo.is_some() || hi.is_some()) && self.measured_value().is_some_and(inside))
    }

    fn limits(&self) -> (Option<f64>, Option<f64>) {
        let around = |distance: f64| match self.paper {
            Some(paper) => (Some(paper - distance), Some(paper + distance)),
            None => (None, None),
        };
        match self.band {
            Band::Unclaimed => (None, None),
            Band::Between(lo, hi) => (lo, hi),
            Band::Percent(percent) => around(self.paper.unwrap_or(0.0).abs() * percent / 100.0),
            Band::Absolute(distance) => around(distance),
        }
    }

    /// Mean of one row over several runs, with its interval and `n`; `None` without runs. Id,
    /// texts, published value and band are those of the first run.
    pub fn mean_of(rows: &[&Self]) -> Option<Self> {
        let first = *rows.first()?;
        let samples: Vec<f64> = rows.iter().filter_map(|row| row.measured).collect();
        let mut mean = first.clone().samples(&samples);
        // A run that measured nothing makes the mean unmeasured: the mean of the others would claim
        // too much.
        if samples.len() < rows.len() {
            (mean.measured, mean.ci95) = (None, None);
        }
        Some(mean)
    }
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            id: &'a str,
            what: &'a str,
            unit: Unit,
            paper: Option<f64>,
            measured: Option<f64>,
            r#virtual: Option<f64>,
            n: u32,
            ci95: Option<f64>,
            lo: Option<f64>,
            hi: Option<f64>,
            ok: Option<bool>,
        }
        Shape {
            id: &self.id,
            what: &self.what,
            unit: self.unit,
            paper: self.paper_value(),
            measured: self.measured_value(),
            r#virtual: self.virtual_value(),
            n: self.n,
            ci95: self.ci95(),
            lo: self.lo(),
            hi: self.hi(),
            ok: self.ok(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row() -> Row {
        Row::new("cats.table1.cats.p0", "P0 complete, CATS", Unit::Ms)
    }

    #[test]
    fn a_percent_band_lies_around_the_papers_value() {
        let row = row().paper(200.0).within_percent(1.0);
        assert_eq!((row.lo(), row.hi()), (Some(198.0), Some(202.0)));
        assert_eq!(row.clone().measured(198.0).ok(), Some(true));
        assert_eq!(row.clone().measured(202.0).ok(), Some(true));
        assert_eq!(row.clone().measured(202.001).ok(), Some(false));
        assert_eq!(row.measured(197.999).ok(), Some(false));
    }

    #[test]
    fn a_percent_band_around_a_negative_value_is_not_upside_down() {
        let row = row().paper(-10.0).within_percent(10.0).measured(-10.5);
        assert_eq!((row.lo(), row.hi(), row.ok()), (Some(-11.0), Some(-9.0), Some(true)));
    }

    #[test]
    fn a_deviation_keeps_its_sign_and_has_no_percentage_of_zero() {
        let below = row().paper(-10.0).measured(-12.0);
        assert_eq!((below.deviation(), below.deviation_percent()), (Some(-2.0), Some(-20.0)));
        let off_zero = row().paper(0.0).measured(0.5);
        assert_eq!((off_zero.deviation(), off_zero.deviation_percent()), (Some(0.5), None));
        assert_eq!(row().paper(1.0).deviation(), None);
    }

    #[test]
    fn the_order_of_the_calls_does_not_matter() {
        let one = row().within_percent(1.0).measured(130.0).paper(130.0);
        assert_eq!(one, row().paper(130.0).measured(130.0).within_percent(1.0));
    }

    #[test]
    fn nothing_claimed_is_neither_ok_nor_outside() {
        let row = row().paper(130.0).measured(999.0);
        assert_eq!((row.lo(), row.hi(), row.ok()), (None, None, None));
    }

    #[test]
    fn a_claim_about_nothing_measured_does_not_hold() {
        assert_eq!(row().paper(130.0).within_percent(1.0).ok(), Some(false));
        assert_eq!(row().within(0.0, 1.0).measured(f64::NAN).ok(), Some(false));
        assert_eq!(row().at_least(0.0).measured(f64::INFINITY).ok(), Some(false));
    }

    #[test]
    fn a_claim_against_no_paper_value_does_not_hold() {
        assert_eq!(row().measured(1.0).within_percent(1.0).ok(), Some(false));
        assert_eq!(row().measured(1.0).within_absolute(1.0).ok(), Some(false));
        assert_eq!(row().measured(1.0).within(f64::NAN, 2.0).ok(), Some(false));
    }

    #[test]
    fn open_bands_bind_on_one_side_only() {
        assert_eq!(row().at_least(2.0).measured(1e9).ok(), Some(true));
        assert_eq!(row().at_least(2.0).measured(1.0).ok(), Some(false));
        assert_eq!(row().at_most(2.0).measured(-1e9).ok(), Some(true));
        assert_eq!(row().at_most(2.0).measured(3.0).ok(), Some(false));
        assert_eq!((row().at_most(2.0).lo(), row().at_most(2.0).hi()), (None, Some(2.0)));
    }

    #[test]
    fn a_verdict_is_one_or_nought() {
        assert_eq!(Row::verdict("a.b", "held", true).ok(), Some(true));
        let failed = Row::verdict("a.b", "held", false);
        assert_eq!((failed.measured_value(), failed.ok()), (Some(0.0), Some(false)));
    }

    #[test]
    fn samples_give_the_mean_and_its_interval() {
        let row = row().samples(&[1.0, 2.0, 3.0]).within(2.0, 2.0);
        assert_eq!((row.measured_value(), row.n(), row.ok()), (Some(2.0), 3, Some(true)));
        assert!((row.ci95().unwrap() - 4.302_652_7 / 3.0_f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn a_run_that_measured_nothing_spoils_the_mean() {
        let (measured, missing) = (row().measured(1.0), row());
        let mean = Row::mean_of(&[&measured, &missing]).unwrap();
        assert_eq!(mean.measured_value(), None);
    }

    #[test]
    fn a_row_has_exactly_the_documented_keys_in_order() {
        let row = row().paper(130.0).measured(130.5).within(128.0, 132.0);
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            r#"{"id":"cats.table1.cats.p0","what":"P0 complete, CATS","unit":"ms","paper":130.0,"measured":130.5,"virtual":null,"n":1,"ci95":null,"lo":128.0,"hi":132.0,"ok":true}"#
        );
    }

    proptest! {
        #[test]
        fn ok_is_true_exactly_inside_the_band(paper in -1e6..1e6_f64, percent in 0.0..50.0_f64, value in -1e6..1e6_f64) {
            let row = row().paper(paper).within_percent(percent).measured(value);
            let inside = row.lo().unwrap() <= value && value <= row.hi().unwrap();
            prop_assert_eq!(row.ok(), Some(inside));
        }

        #[test]
        fn any_number_serialises(paper in any::<f64>(), value in any::<f64>(), lo in any::<f64>(), hi in any::<f64>()) {
            let json = serde_json::to_string(&row().paper(paper).measured(value).within(lo, hi)).unwrap();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
        }
    }
}
