//! Claims: statements about measured values, with the published value and a band.

use std::collections::HashSet;

use marcato_document::nearest::hint;
use marcato_document::{Faults, Item, Keys, Place, Table, Value, described};

use crate::grid::{self, Grid};
use crate::limit::MAX_CLAIMS;
use crate::scenario::Setting;

described! {
    pub(crate) CLAIM: "a claim";
    /// name of the claim, unique in the file: letters, digits and `-_.@`
    "id": "required";
    /// description of the value in words
    "what": "its metric";
    /// a [metric](sim.md#a-grid), or several with `+ - * / ( ) min max`
    "metric": "required";
    /// point of the grid: a table of varied keys, each with one of its values
    "at": "the only point";
    /// keys that differ at another point, by whose value the value is divided
    "over": "none";
    /// keys that differ at another point, whose value is subtracted first
    "minus": "none";
    /// unit of the value: `us`, `ms`, `s`, `Mbit/s`, `B/RTT`, `B`, `kB`, `%` (a quotient times 100),
    /// `ratio` or `count`
    "unit": "that of the metric; `\"ratio\"` with `over`";
    /// value that a publication prints
    "published": "none";
    /// its source
    "source": "none";
    /// band: the value is at least this
    "at-least": "no lower limit";
    /// band: the value is at most this
    "at-most": "no upper limit";
    /// band around `published`: a distance, or `"1 %"` of it
    "within": "none";
    /// value over the seeds: `"mean"`, `"median"`, `"min"` or `"max"`
    "statistic": "`\"mean\"`";
}

/// Point of a grid: a combination of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Each varied key with its value.
    pub settings: Vec<Setting>,
    /// Number of the combination, counted from 0; `None` if `--set` leaves the point out.
    pub combination: Option<usize>,
}

/// Interval in which a claim's value must lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Band {
    /// No statement: the value is printed alone.
    None,
    /// Between two values, of which one may be missing.
    Between(Option<f64>, Option<f64>),
    /// At most this distance from the published value.
    Distance(f64),
    /// At most this percentage of the published value away from it.
    Percent(f64),
}

/// Value that stands for those of all seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Arithmetic mean, with its 95 % confidence interval.
    Mean,
    /// Median.
    Median,
    /// Smallest value.
    Min,
    /// Greatest value.
    Max,
}

impl Statistic {
    /// Returns its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// Statement about a value that the runs of a scenario measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Name, unique in the scenario.
    pub id: String,
    /// Description of the value, in words.
    pub what: String,
    /// Metric, or an expression of several, as in the file.
    pub metric: String,
    /// Place of the metric in the file.
    pub metric_place: Place,
    /// Point of the grid at which it is measured.
    pub at: Point,
    /// Point whose value is the divisor.
    pub over: Option<Point>,
    /// Point whose value is subtracted before.
    pub minus: Option<Point>,
    /// Unit as in the file, with its place.
    pub unit: Option<(String, Place)>,
    /// Value that a publication prints.
    pub published: Option<f64>,
    /// Source of the published value; may be empty.
    pub source: String,
    /// Interval in which the value must lie.
    pub band: Band,
    /// Value that stands for those of all seeds.
    pub statistic: Statistic,
}

/// Varied keys of a file with their values, and the grid that is left after `--set`.
pub(crate) struct Points<'a> {
    declared: Vec<(String, Vec<String>)>,
    grid: &'a Grid,
}

impl<'a> Points<'a> {
    pub(crate) fn new(root: &Table, grid: &'a Grid) -> Self {
        let mut declared: Vec<(String, Vec<String>)> = Vec::new();
        for set in grid::varied(root) {
            let value = set.item.spoken();
            match declared.iter_mut().find(|(key, _)| *key == set.key.name) {
                Some((_, values)) => values.push(value),
                None => declared.push((set.key.name, vec![value])),
            }
        }
        Self { declared, grid }
    }

    /// Reads the settings of a point. A table below a key that is not varied continues the key.
    fn settings(&self, table: &Table, before: &str, found: &mut Vec<Setting>, faults: &Faults) {
        for (key, item) in &table.entries {
            let name = if before.is_empty() { key.name.clone() } else { format!("{before}.{}", key.name) };
            match (self.declared.iter().find(|(key, _)| *key == name), &item.value) {
                (None, Value::Table(inner)) => self.settings(inner, &name, found, faults),
                (None, _) => {
                    let keys = self.declared.iter().map(|(key, _)| key.as_str());
                    faults.add(key.place, format!("the grid does not vary `{name}`: {}", hint(&name, keys)));
                }
                (Some((_, values)), _) => {
                    let value = item.spoken();
                    if !values.contains(&value) {
                        let advice = hint(&value, values.iter().map(String::as_str));
                        faults.add(item.place, format!("the grid has no `{name}` of {value}: {advice}"));
                    }
                    found.push(Setting { key: name, value });
                }
            }
        }
    }

    /// Reads a point. Keys that the table lacks have the values of `base`, or the only one of the grid.
    fn point(&self, item: Option<&Item>, key: &str, base: Option<&Point>, keys: &Keys<'_>) -> Point {
        let mut given = Vec::new();
        match item.map(|item| (&item.value, item.place)) {
            Some((Value::Table(table), _)) => self.settings(table, "", &mut given, keys.faults),
            Some((other, place)) => {
                let problem = format!("`{key}` is a table of varied keys, not {}", other.what());
                keys.faults.add(place, problem);
            }
            None => {}
        }
        if base.is_some() && given.is_empty() {
            keys.fault(key, format!("`{key}` names no other point: give a varied key with another value"));
        }
        let mut settings = Vec::new();
        let mut combination = Some(0);
        for axis in &self.grid.axes {
            let name = &axis.key.name;
            let inherited = || base.and_then(|base| base.settings.iter().find(|one| one.key == *name));
            let only = || match axis.values.as_slice() {
                [one] => Some(one.spoken()),
                _ => None,
            };
            let known =
                given.iter().find(|one| one.key == *name).or_else(inherited).map(|one| one.value.clone());
            let Some(value) = known.or_else(only) else {
                let example = axis.values.first().map(Item::spoken).unwrap_or_default();
                let problem = format!(
                    "the claim leaves `{name}` open, which the grid varies: add it to `at`, for example at = {{ \
                     \"{name}\" = \"{example}\" }}"
                );
                keys.faults.add(item.map_or(keys.here(), |item| item.place), problem);
                return Point { settings, combination: None };
            };
            let place = axis.values.iter().position(|item| item.spoken() == value);
            combination = combination.zip(place).map(|(number, place)| number * axis.values.len() + place);
            settings.push(Setting { key: name.clone(), value });
        }
        Point { settings, combination }
    }
}

/// Reads `[[claim]]`.
pub(crate) fn claims(root: &Table, points: &Points<'_>, faults: &Faults) -> Vec<Claim> {
    let keys = Keys::trusting(root, &crate::read::ROOT, faults);
    let mut ids = HashSet::new();
    let mut claims = Vec::new();
    for table in keys.tables("claim", MAX_CLAIMS) {
        let Some(claim) = claim(table, points, faults) else { continue };
        if ids.insert(claim.id.clone()) {
            claims.push(claim);
        } else {
            faults.add(table.place_of("id"), format!("there are two claims `{}`: rename one", claim.id));
        }
    }
    claims
}

fn claim(table: &Table, points: &Points<'_>, faults: &Faults) -> Option<Claim> {
    let keys = Keys::open(table, &CLAIM, faults);
    keys.need("id", "state what it is called, for example id = \"delay.codel\"");
    keys.need("metric", "state what is measured, for example metric = \"flow.bulk.goodput_mbit_per_s\"");
    let at = points.point(keys.item("at"), "at", None, &keys);
    let other = |key| keys.item(key).map(|item| points.point(Some(item), key, Some(&at), &keys));
    let (over, minus) = (other("over"), other("minus"));
    let number = |key| keys.number(key, f64::MIN..=f64::MAX);
    let published = number("published");
    let (least, most) = (number("at-least"), number("at-most"));
    if least.zip(most).is_some_and(|(least, most)| least > most) {
        keys.fault("at-most", "`at-most` is below `at-least`: no value lies in this band");
    }
    let band = match (within(&keys), least, most) {
        (Some(_), None, None) if published.is_none() && keys.item("published").is_none() => {
            keys.fault("within", "`within` needs the value that the band lies around: add `published`");
            Band::None
        }
        (Some(within), None, None) => within,
        (Some(_), ..) => {
            keys.fault("within", "a band is `within`, or `at-least` and `at-most`: leave one out");
            Band::None
        }
        (None, None, None) => Band::None,
        (None, least, most) => Band::Between(least, most),
    };
    let words = [Statistic::Mean, Statistic::Median, Statistic::Min, Statistic::Max];
    let statistic = keys.word("statistic", &words.map(|word| (word.name(), word))).unwrap_or(Statistic::Mean);
    let unit = keys.some_string("unit").map(|unit| (unit.to_owned(), keys.place("unit")));
    let source = keys.string("source").unwrap_or_default().to_owned();
    let id = keys.some_string("id").filter(|id| is_id(id, &keys))?.to_owned();
    let metric = keys.some_string("metric")?.to_owned();
    let what = keys.string("what").map_or_else(|| metric.clone(), ToOwned::to_owned);
    let metric_place = keys.place("metric");
    Some(Claim { id, what, metric, metric_place, at, over, minus, unit, published, source, band, statistic })
}

/// Reads a band around the published value.
fn within(keys: &Keys<'_>) -> Option<Band> {
    let Some(text) = keys.item("within")?.as_str() else {
        return keys.number("within", 0.0..=f64::MAX).map(Band::Distance);
    };
    let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    match percent.filter(|percent| percent.is_finite() && *percent >= 0.0) {
        Some(percent) => Some(Band::Percent(percent)),
        None => {
            keys.fault(
                "within",
                "`within` is a distance or a share of the published value, for example \"1 %\"",
            );
            None
        }
    }
}

/// Checks the characters of an id, which also names files and arguments.
fn is_id(id: &str, keys: &Keys<'_>) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let is_good = id.len() <= 128 && id.chars().all(good);
    if !is_good {
        keys.fault("id", "an id has at most 128 letters, digits and `-_.@`: rename the claim");
    }
    is_good
}
