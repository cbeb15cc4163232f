//! Figures of claims.

use std::collections::HashSet;

use marcato_document::nearest::hint;
use marcato_document::{Faults, Item, Keys, Table, described};

use crate::claim::Claim;
use crate::limit::MAX_CLAIMS;

described! {
    pub(crate) FIGURE: "a figure";
    /// name of the figure, unique in the file, and of its image: lower-case letters, digits and `-`
    "id": "required";
    /// title above the chart
    "title": "its `id`";
    /// text below the chart
    "caption": "none";
    /// label of the vertical axis
    "label": "required";
    /// names of groups of bars, from left to right
    "groups": "none: lines, over `x`";
    /// horizontal axis of lines: its `label` and `values`, and whether it is `log`
    "x": "none: bars, in `groups`";
    /// lines or bars, each a table: its `name`, and the `claims` whose values it shows, one for each group or
    /// value of `x`; published values are marked
    "series": "required";
}

described! {
    pub(crate) SERIES: "a series of a figure";
    /// name in the legend
    "name": "required";
    /// ids of claims, one for each group or value
    "claims": "required";
}

described! {
    pub(crate) AXIS: "the x of a figure";
    /// label of the axis
    "label": "required";
    /// unit of the values
    "unit": "none";
    /// values, one for each claim of a series
    "values": "required";
    /// logarithmic axis
    "log": "`false`";
}

/// Chart of claims' values.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name, unique in the scenario.
    pub id: String,
    /// Title above the chart.
    pub title: String,
    /// Text below the chart; may be empty.
    pub caption: String,
    /// Label of the vertical axis.
    pub label: String,
    /// Horizontal positions.
    pub along: Along,
    /// Series: the name of each, and the indices of its claims.
    pub series: Vec<(String, Vec<usize>)>,
}

/// Horizontal positions of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Along {
    /// Groups of bars.
    Groups(Vec<String>),
    /// Values of lines.
    Values {
        /// Label of the axis.
        label: String,
        /// Unit of the axis; may be empty.
        unit: String,
        /// Values.
        values: Vec<f64>,
        /// True for a logarithmic axis.
        log: bool,
    },
}

impl Along {
    /// Returns the number of positions.
    pub const fn len(&self) -> usize {
        match self {
            Self::Groups(names) => names.len(),
            Self::Values { values, .. } => values.len(),
        }
    }

    /// Returns whether there are no positions.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads `[[figure]]`.
pub(crate) fn figures(root: &Table, claims: &[Claim], faults: &Faults) -> Vec<Figure> {
    let keys = Keys::trusting(root, &crate::read::ROOT, faults);
    let mut ids = HashSet::new();
    let mut figures = Vec::new();
    for table in keys.tables("figure", MAX_CLAIMS) {
        let Some(figure) = figure(table, claims, faults) else { continue };
        if ids.insert(figure.id.clone()) {
            figures.push(figure);
        } else {
            faults.add(table.place_of("id"), format!("there are two figures `{}`: rename one", figure.id));
        }
    }
    figures
}

fn figure(table: &Table, claims: &[Claim], faults: &Faults) -> Option<Figure> {
    let keys = Keys::open(table, &FIGURE, faults);
    keys.need("id", "state what it is called, for example id = \"delay\"");
    keys.need("label", "state what is shown, for example label = \"delay\"");
    keys.need(
        "series",
        "state what is shown, for example series = [{ name = \"CoDel\", claims = [\"delay.codel\"] }]",
    );
    let groups = keys.item("groups").map(|_| keys.strings("groups", MAX_CLAIMS));
    let along = match (groups, keys.table("x")) {
        (Some(groups), None) => Along::Groups(groups.into_iter().map(|(name, _)| name.to_owned()).collect()),
        (None, Some(x)) => axis(x, faults)?,
        _ => {
            faults.add(keys.here(), "a figure has `groups` of bars, or `x` of lines: give one of them");
            return None;
        }
    };
    let mut series = Vec::new();
    for table in keys.tables("series", MAX_CLAIMS) {
        let keys = Keys::open(table, &SERIES, faults);
        keys.need("name", "state its name in the legend, for example name = \"CoDel\"");
        keys.need("claims", "state whose values it shows, for example claims = [\"delay.codel\"]");
        let shown = keys.strings("claims", MAX_CLAIMS);
        if shown.len() != along.len() {
            let problem = format!(
                "the series has {} claims, but there are {} positions: give one for each",
                shown.len(),
                along.len()
            );
            keys.fault("claims", problem);
        }
        let place = |(id, at): (&str, _)| {
            let found = claims.iter().position(|claim| claim.id == id);
            if found.is_none() {
                let advice = hint(id, claims.iter().map(|claim| claim.id.as_str()));
                faults.add(at, format!("there is no claim `{id}`: {advice}"));
            }
            found
        };
        let places = shown.into_iter().filter_map(place).collect();
        series.push((keys.string("name").unwrap_or_default().to_owned(), places));
    }
    let is_plain = |id: &str| id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let id = keys.some_string("id")?.to_owned();
    if !is_plain(&id) || id.len() > crate::limit::MAX_NAME {
        keys.fault("id", "a figure's id also names its image: use lower-case letters, digits and `-`");
        return None;
    }
    Some(Figure {
        title: keys.string("title").map_or_else(|| id.clone(), ToOwned::to_owned),
        caption: keys.string("caption").unwrap_or_default().to_owned(),
        label: keys.string("label").unwrap_or_default().to_owned(),
        id,
        along,
        series,
    })
}

fn axis(table: &Table, faults: &Faults) -> Option<Along> {
    let keys = Keys::open(table, &AXIS, faults);
    keys.need("label", "state what varies, for example label = \"rate\"");
    keys.need("values", "state where the claims are, for example values = [5, 10]");
    let mut values = Vec::new();
    for Item { value, place } in keys.list("values", MAX_CLAIMS).unwrap_or_default() {
        match value {
            marcato_document::Value::Integer(number) => values.push(*number as f64),
            marcato_document::Value::Float(number) if number.is_finite() => values.push(*number),
            other => faults.add(*place, format!("`values` are numbers, not {}", other.what())),
        }
    }
    let text = |key| keys.string(key).unwrap_or_default().to_owned();
    Some(Along::Values {
        label: text("label"),
        unit: text("unit"),
        values,
        log: keys.boolean("log").unwrap_or(false),
    })
}
