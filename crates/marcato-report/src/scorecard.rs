//! Comparison of a report with the values that its paper prints.
//!
//! Its summary counts deviations above 15 %, claimed or not, because "0 outside" says nothing about values
//! without a band.

use core::fmt;

use crate::{Document, Row};

/// Deviation in % of the paper's value above which a value counts as far.
pub(crate) const FAR: f64 = 15.0;

/// Every value that a paper prints next to the measured one, by the paper's tables and figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scorecard<'a> {
    /// Groups in the paper's order, one for each table or figure.
    pub(crate) groups: Vec<Group<'a>>,
    /// Reasons for claiming no band, each once, in the order of first use.
    pub(crate) reasons: Vec<&'a str>,
}

/// Values of one table or figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group<'a> {
    /// Name of the table or figure in the paper.
    pub(crate) name: String,
    /// Rows in the order of the document.
    pub(crate) rows: Vec<&'a Row>,
}

/// Counts of the values that a paper prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Values that the paper prints.
    pub(crate) values: usize,
    /// Values within their bands.
    pub(crate) within: usize,
    /// Values outside their bands.
    pub(crate) outside: usize,
    /// Values without a claim.
    pub(crate) unclaimed: usize,
    /// Values that deviate by more than [`FAR`], or were not measured.
    pub(crate) far: usize,
    /// Far values with a claim.
    pub(crate) far_claimed: usize,
}

impl Tally {
    pub(crate) fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        rows.into_iter().fold(Self::default(), |mut tally, row| {
            tally.values += 1;
            match row.ok() {
                Some(true) => tally.within += 1,
                Some(false) => tally.outside += 1,
                None => tally.unclaimed += 1,
            }
            let far = is_far(row);
            tally.far += usize::from(far);
            tally.far_claimed += usize::from(far && row.ok().is_some());
            tally
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { values, within, outside, unclaimed, far, far_claimed } = self;
        write!(
            f,
            "{values} values that the paper prints: {within} within their band, {outside} outside, {unclaimed} unclaimed; \
             {far} deviate by more than {FAR} %, {far_claimed} of them claimed"
        )
    }
}

/// Returns true if a value is far from the paper's. A value that was not measured is far; against a
/// paper's 0, any other value is.
fn is_far(row: &Row) -> bool {
    match (row.deviation(), row.deviation_percent()) {
        (_, Some(percent)) => percent.abs() > FAR,
        (Some(deviation), None) => deviation != 0.0,
        (None, None) => true,
    }
}

impl<'a> Scorecard<'a> {
    /// Scorecard of a document; `None` if it has no published value.
    pub(crate) fn of(document: &'a Document) -> Option<Self> {
        let mut groups: Vec<(Place, Group<'a>)> = Vec::new();
        let mut reasons = Vec::new();
        for row in document.rows().iter().filter(|row| row.paper_value().is_some()) {
            let place = Place::of(row.id());
            match groups.iter_mut().find(|(other, _)| *other == place) {
                Some((_, group)) => group.rows.push(row),
                None => groups.push((place.clone(), Group { name: place.name(), rows: vec![row] })),
            }
        }
        groups.sort_by(|(a, _), (b, _)| a.cmp(b));
        let groups: Vec<Group<'a>> = groups.into_iter().map(|(_, group)| group).collect();
        for row in groups.iter().flat_map(|group| &group.rows).filter(|row| row.ok().is_none()) {
            if let Some(why) = row.why_unclaimed().filter(|why| !reasons.contains(why)) {
                reasons.push(why);
            }
        }
        (!groups.is_empty()).then_some(Self { groups, reasons })
    }

    /// Rows in the paper's order, each with the name of its table or figure.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &'a Row)> {
        self.groups.iter().flat_map(|group| group.rows.iter().map(|row| (group.name.as_str(), *row)))
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally::of(self.rows().map(|(_, row)| row))
    }

    /// Number, from 1, of the reason for claiming nothing about a row.
    pub(crate) fn reason(&self, row: &Row) -> Option<usize> {
        let why = row.why_unclaimed().filter(|_| row.ok().is_none())?;
        self.reasons.iter().position(|&reason| reason == why).map(|at| at + 1)
    }
}

/// A table or figure, from the second part of a row's id. Tables come first, then figures, then all
/// else by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Table(u32),
    Figure(u32),
    Other(String),
}

impl Place {
    fn of(id: &str) -> Self {
        let part = id.split(['.', '@']).nth(1).unwrap_or(id);
        let number = |prefix: &str| part.strip_prefix(prefix)?.parse::<u32>().ok();
        match (number("table"), number("fig")) {
            (Some(number), _) => Self::Table(number),
            (_, Some(number)) => Self::Figure(number),
            _ => Self::Other(part.to_owned()),
        }
    }

    fn name(&self) -> String {
        match self {
            // Papers number their tables in Roman numerals, and none here has more than three.
            Self::Table(number @ 1..=3) => {
                format!("Table {}", "I".repeat(usize::try_from(*number).unwrap_or(1)))
            }
            Self::Table(number) => format!("Table {number}"),
            Self::Figure(number) => format!("Fig. {number}"),
            Self::Other(name) => format!("text: {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Provenance, Unit};

    fn row(id: &str, paper: f64, measured: f64) -> Row {
        Row::new(id, "what", Unit::Ms).paper(paper).measured(measured)
    }

    fn document() -> Document {
        Document::new("x", Provenance::of_seeds([1]))
            .row(row("x.gain", 10.0, 30.0).unclaimed_because("the testbed is unknown"))
            .row(row("x.fig10.a", 100.0, 80.0).unclaimed_because("too short"))
            .row(row("x.fig9.a", 100.0, 84.0).within_percent(20.0))
            .row(row("x.table1.a", 100.0, 115.0).within_percent(1.0))
            .row(row("x.table1@rtt.b", 0.0, 0.1).unclaimed_because("too short"))
            .row(Row::new("x.table1.c", "no paper value", Unit::Ms).measured(1.0))
            .row(Row::new("x.table2.a", "not measured", Unit::Ms).paper(1.0).within_percent(1.0))
    }

    #[test]
    fn the_scorecard_lists_only_printed_values_in_paper_order() {
        let document = document();
        let card = Scorecard::of(&document).unwrap();
        let names: Vec<&str> = card.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["Table I", "Table II", "Fig. 9", "Fig. 10", "text: gain"]);
        let ids: Vec<&str> = card.groups[0].rows.iter().map(|row| row.id()).collect();
        assert_eq!(ids, ["x.table1.a", "x.table1@rtt.b"]);
        assert!(Scorecard::of(&Document::new("y", Provenance::of_seeds([1]))).is_none());
    }

    #[test]
    fn far_values_are_counted_whether_claimed_or_not() {
        let document = document();
        let tally = Scorecard::of(&document).unwrap().tally();
        // A deviation of exactly 15 % is not far. Any deviation from 0 is, and so is a value that
        // was not measured.
        assert_eq!(tally, Tally { values: 6, within: 1, outside: 2, unclaimed: 3, far: 5, far_claimed: 2 });
        assert_eq!(
            tally.to_string(),
            "6 values that the paper prints: 1 within their band, 2 outside, 3 unclaimed; 5 deviate by more than 15 %, 2 \
             of them claimed"
        );
    }

    #[test]
    fn a_reason_that_serves_many_has_one_number() {
        let document = document();
        let card = Scorecard::of(&document).unwrap();
        assert_eq!(card.reasons, ["too short", "the testbed is unknown"]);
        let numbers: Vec<_> = card.rows().map(|(_, row)| card.reason(row)).collect();
        assert_eq!(numbers, [None, Some(1), None, None, Some(1), Some(2)]);
    }
}
