//! Looks of the series of a report.

use std::collections::{BTreeMap, BTreeSet};

use super::Colour;

/// Look of a series: colour, dashes or hatching, and the shape of its marks. Two looks differ in
/// more than colour, unless their colours differ for readers with any colour vision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Look {
    pub(super) colour: Colour,
    /// 0 for a plain line or area; the image maps the other numbers to dashes or hatching.
    pub(super) pattern: u8,
}

impl Look {
    /// Number of looks.
    pub(super) const COUNT: usize = Colour::ALL.len() * Self::PATTERNS;
    const PATTERNS: usize = 4;

    /// Look number `index`: all colours plain, then all with the next pattern. They repeat after
    /// the last.
    pub(super) fn of(index: usize) -> Self {
        let colour = Colour::ALL[index % Colour::ALL.len()];
        let pattern = (index / Colour::ALL.len()) % Self::PATTERNS;
        Self { colour, pattern: u8::try_from(pattern).unwrap_or(0) }
    }

    pub(super) const fn plain(colour: Colour) -> Self {
        Self { colour, pattern: 0 }
    }

    /// Shape of the marks: it differs between colours, and between patterns of one colour.
    pub(super) fn shape(self) -> usize {
        let colour = Colour::ALL.iter().position(|&colour| colour == self.colour).unwrap_or(0);
        colour + usize::from(self.pattern)
    }
}

/// Builders that bars and lines share, for series with the fields `colour`, `like` and `intervals`.
macro_rules! series_builders {
    () => {
        /// Chooses the colour. By default, each name has its own, the same in all charts of a
        /// report.
        #[must_use]
        pub fn colour(mut self, colour: Colour) -> Self {
            self.colour = Some(colour);
            self
        }

        /// Gives this series the colour of the one called `name`, for instance for the same flows
        /// under another condition.
        #[must_use]
        pub fn like(mut self, name: impl Into<String>) -> Self {
            self.like = Some(name.into());
            self
        }

        /// Sets the half-width of each value's confidence interval, in the order of the values. One
        /// that is not a number is not drawn.
        #[must_use]
        pub fn intervals(mut self, half_widths: impl IntoIterator<Item = f64>) -> Self {
            self.intervals = half_widths.into_iter().collect();
            self
        }
    };
}
pub(super) use series_builders;

/// Name of a series, with the colour chosen for it, if any.
pub(super) type Named<'a> = (&'a str, Option<Colour>);

/// Look of each series of a report, by name: a name has one look in all charts.
///
/// Names that occur in one chart never share a look, as long as there are enough looks. Names that
/// never occur together may, once all colours are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looks(BTreeMap<String, Look>);

impl Looks {
    /// Assigns looks to the series of several charts, in order of first appearance.
    pub(super) fn assign<'a>(charts: impl IntoIterator<Item = Vec<Named<'a>>>) -> Self {
        let charts: Vec<Vec<Named<'_>>> = charts.into_iter().collect();
        let mut looks = BTreeMap::<String, Look>::new();
        // A colour chosen for a name in any chart applies in all of them.
        for &(name, chosen) in charts.iter().flatten() {
            if let Some(colour) = chosen {
                looks.entry(name.to_owned()).or_insert(Look::plain(colour));
            }
        }
        for &(name, _) in charts.iter().flatten() {
            if looks.contains_key(name) {
                continue;
            }
            let with = charts.iter().filter(|chart| chart.iter().any(|(other, _)| *other == name));
            let met: BTreeSet<Look> = with
                .flatten()
                .filter_map(|&(other, chosen)| chosen.map(Look::plain).or_else(|| looks.get(other).copied()))
                .collect();
            // A colour that no other name has, while there is one. If one chart has more names than
            // there are looks, some repeat.
            let unused = |look: &Look| !looks.values().any(|other| other.colour == look.colour);
            let plain = (0..Colour::ALL.len()).map(Look::of).find(|look| !met.contains(look) && unused(look));
            let free = plain.or_else(|| (0..Look::COUNT).map(Look::of).find(|look| !met.contains(look)));
            looks.insert(name.to_owned(), free.unwrap_or(Look::of(looks.len())));
        }
        Self(looks)
    }

    pub(super) fn of(&self, (name, chosen): Named<'_>) -> Look {
        let known = self.0.get(name).copied();
        match chosen {
            Some(colour) => known.filter(|look| look.colour == colour).unwrap_or(Look::plain(colour)),
            None => known.unwrap_or(Look::of(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn auto<'a>(names: &[&'a str]) -> Vec<Named<'a>> {
        names.iter().map(|&name| (name, None)).collect()
    }

    #[test]
    fn no_two_of_12_or_more_looks_share_colour_with_pattern_or_mark() {
        let looks: Vec<Look> = (0..Look::COUNT).map(Look::of).collect();
        assert!(looks.len() >= 12);
        assert_eq!(looks.iter().collect::<BTreeSet<_>>().len(), looks.len());
        let marks: BTreeSet<_> = looks.iter().map(|look| (look.colour, look.shape() % 8)).collect();
        assert_eq!(marks.len(), looks.len());
    }

    #[test]
    fn a_name_keeps_its_look_whatever_its_place() {
        let looks = Looks::assign([auto(&["LowRTT", "CWR", "CWR-Red"]), auto(&["CWR-Red", "CWR"])]);
        let of = |name| looks.of((name, None));
        assert_eq!(of("CWR"), Look::of(1));
        assert_eq!(of("CWR-Red"), Look::of(2));
    }

    #[test]
    fn names_that_never_meet_differ_while_colours_last() {
        let six = ["a", "b", "c", "d", "e", "f"];
        let looks = Looks::assign(six.map(|name| auto(&[name])));
        let seen: BTreeSet<Look> = six.iter().map(|&name| looks.of((name, None))).collect();
        assert_eq!(seen.len(), six.len());
        let looks = Looks::assign(["a", "b", "c", "d", "e", "f", "g"].map(|name| auto(&[name])));
        assert_eq!(looks.of(("g", None)), Look::of(0));
    }

    #[test]
    fn a_chosen_colour_holds_in_every_chart_and_for_one_name_only() {
        let looks =
            Looks::assign([vec![("CATS", None), ("other", None)], vec![("CATS", Some(Colour::Blue))]]);
        assert_eq!(looks.of(("CATS", None)), Look::plain(Colour::Blue));
        assert_eq!(looks.of(("other", None)), Look::plain(Colour::Vermilion));
    }

    proptest! {
        #[test]
        fn names_that_meet_in_a_chart_never_look_alike(
            charts in prop::collection::vec(prop::collection::btree_set(0..20_u8, 1..13), 1..12),
        ) {
            let names: Vec<String> = (0..20).map(|name| format!("series {name}")).collect();
            let charts: Vec<Vec<Named<'_>>> = charts
                .iter()
                .map(|chart| chart.iter().map(|&name| (names[usize::from(name)].as_str(), None)).collect())
                .collect();
            let looks = Looks::assign(charts.clone());
            for chart in charts {
                let seen: BTreeSet<Look> = chart.iter().map(|&name| looks.of(name)).collect();
                prop_assert_eq!(seen.len(), chart.len());
            }
        }
    }
}
