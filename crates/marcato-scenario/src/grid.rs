//! Parameter grid: the settings that vary from run to run.

use marcato_document::{Faults, Item, Key, Keys, Table, Value, described, integer_of, no_table};
use marcato_units::Seed;

use crate::limit::{MAX_LIST, MAX_RUNS};
use crate::read::FORMAT;
use crate::setting::Set;

described! {
    pub(crate) GRID: "a grid";
    /// number of seeds, counted from `seed`; or a list of them
    "seeds": "`seed` alone";
    /// a table of keys, each with a list of its values
    "vary": "nothing";
}

/// Key with its values: several if the grid varies it, one if `--set` fixes it.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) key: Key,
    pub(crate) values: Vec<Item>,
}

/// Parameter grid of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// Varied keys; the first changes slowest.
    pub(crate) axes: Vec<Axis>,
    /// Seeds, which change fastest.
    pub(crate) seeds: Vec<u64>,
}

impl Grid {
    /// Returns the number of combinations of settings, not counting seeds.
    pub(crate) fn combinations(&self) -> usize {
        self.axes.iter().fold(1, |product, axis| product.saturating_mul(axis.values.len()))
    }

    /// Returns the settings to check: every combination, or each value separately if there are more
    /// than `most` combinations.
    pub(crate) fn samples(&self, most: usize) -> Box<dyn Iterator<Item = Vec<Set>> + '_> {
        if self.combinations() <= most {
            return Box::new((0..self.combinations()).map(|number| self.combination(number)));
        }
        let each = self.axes.iter().flat_map(|axis| {
            axis.values.iter().map(|value| vec![Set { key: axis.key.clone(), item: value.clone() }])
        });
        Box::new(each.take(most))
    }

    /// Returns the settings of a combination, counted from 0.
    pub(crate) fn combination(&self, mut number: usize) -> Vec<Set> {
        let mut sets: Vec<Set> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            let item = axis.values[number % axis.values.len()].clone();
            number /= axis.values.len();
            sets.push(Set { key: axis.key.clone(), item });
        }
        sets.reverse();
        sets
    }
}

/// Returns each key that the file's grid varies with each of its values. Faults of the grid are
/// reported elsewhere.
pub(crate) fn varied(root: &Table) -> Vec<Set> {
    let vary = root.get("grid").and_then(Item::as_table).and_then(|grid| grid.get("vary")?.as_table());
    let mut axes = Vec::new();
    if let Some(vary) = vary {
        collect(vary, "", &mut axes, &Faults::without_text(&FORMAT));
    }
    let sets = |Axis { key, values }: Axis| {
        values.into_iter().map(move |item| Set { key: key.clone(), item }).collect::<Vec<_>>()
    };
    axes.into_iter().flat_map(sets).collect()
}

/// Reads `[grid]`. `seed` is the file's seed. Keys in `given` and a `given_seed` are fixed, so the
/// grid does not vary them. The seeds of a table `quick` replace the grid's.
pub(crate) fn read(
    root: &Table,
    seed: Seed,
    given: &[Set],
    given_seed: Option<u64>,
    quick: Option<&Table>,
    faults: &Faults,
) -> Grid {
    let nothing = Table::empty(root.place);
    let table = match root.get("grid") {
        Some(Item { value: Value::Table(table), .. }) => table,
        Some(other) => {
            faults.add(other.place, no_table("grid", other));
            &nothing
        }
        None => &nothing,
    };
    let keys = Keys::open(table, &GRID, faults);
    let own = seeds(&keys, seed);
    let seeds = quick.map_or(own, |quick| seeds(&Keys::trusting(quick, &GRID, faults), seed));
    let seeds = given_seed.map_or(seeds, |seed| vec![seed]);
    let mut axes = Vec::new();
    if let Some(vary) = keys.table("vary") {
        collect(vary, "", &mut axes, faults);
    }
    for axis in &mut axes {
        if let Some(set) = given.iter().rev().find(|set| set.key.name == axis.key.name) {
            axis.values = vec![set.item.clone()];
        }
        for set in given {
            let whole = &axis.key.name;
            let Some(part) =
                set.key.name.strip_prefix(whole.as_str()).and_then(|rest| rest.strip_prefix('.'))
            else {
                continue;
            };
            let first = part.split('.').next().unwrap_or(part);
            if axis.values.iter().filter_map(Item::as_table).any(|table| table.get(first).is_some()) {
                let problem =
                    format!("the grid varies `{whole}` with its `{first}`: set {whole} as a whole instead");
                faults.add(set.key.place, problem);
            }
        }
    }
    let grid = Grid { axes, seeds };
    let runs = grid.combinations().saturating_mul(grid.seeds.len());
    if runs > MAX_RUNS {
        let problem = format!(
            "this grid has {runs} runs, but at most {MAX_RUNS} are possible: vary less, or use fewer seeds"
        );
        faults.add(table.place, problem);
    }
    grid
}

/// Collects the varied keys. `link.bottleneck.rate = [...]` without quotes is a nested table in
/// TOML, and means the same as with quotes.
fn collect(vary: &Table, before: &str, axes: &mut Vec<Axis>, faults: &Faults) {
    for (key, item) in &vary.entries {
        let name = if before.is_empty() { key.name.clone() } else { format!("{before}.{}", key.name) };
        match &item.value {
            Value::Table(inner) => collect(inner, &name, axes, faults),
            Value::Array(values) if values.is_empty() => {
                faults.add(item.place, format!("`{name}` has no values: give it some, or leave it out"));
            }
            Value::Array(values) => {
                let spoken: Vec<String> = values.iter().map(Item::spoken).collect();
                for (index, value) in values.iter().enumerate() {
                    // The check for duplicates is quadratic. Longer lists exceed the limit of runs
                    // in any case.
                    if index < MAX_LIST.min(1000) && spoken[..index].contains(&spoken[index]) {
                        faults.add(
                            value.place,
                            format!("`{name}` has the value {} twice: leave one out", spoken[index]),
                        );
                    }
                }
                if axes.iter().any(|axis| axis.key.name == name) {
                    faults.add(key.place, format!("`{name}` is varied twice: leave one out"));
                } else {
                    axes.push(Axis { key: Key::new(name, key.place), values: values.clone() });
                }
            }
            other => {
                let what = other.what();
                faults.add(
                    item.place,
                    format!("`{name}` is varied over a list of values, not over {what}: put it into [ ]"),
                );
                // The axis is kept, so that the key and its value are checked as well.
                axes.push(Axis { key: Key::new(name, key.place), values: vec![item.clone()] });
            }
        }
    }
}

fn seeds(keys: &Keys<'_>, seed: Seed) -> Vec<u64> {
    let first = seed.get();
    match keys.item("seeds").map(|item| &item.value) {
        None => vec![first],
        Some(Value::Array(_)) => {
            let items = keys.list("seeds", MAX_RUNS).unwrap_or_default();
            let mut seeds: Vec<u64> = Vec::new();
            for item in items {
                let Some(seed) = integer_of("seeds", item, 0..=Seed::MAX, keys.faults) else {
                    continue;
                };
                if seeds.contains(&seed) {
                    keys.faults.add(item.place, format!("the seed {seed} is given twice: remove one"));
                } else {
                    seeds.push(seed);
                }
            }
            if items.is_empty() {
                keys.fault("seeds", "there are no seeds: state how many, for example seeds = 10");
            }
            if seeds.is_empty() { vec![first] } else { seeds }
        }
        Some(_) => {
            let many = keys.integer("seeds", 1..=MAX_RUNS as u64).unwrap_or(1);
            match first.checked_add(many - 1).filter(|last| *last <= Seed::MAX) {
                Some(last) => (first..=last).collect(),
                None => {
                    let (most, problem) = (Seed::MAX, "give a lower `seed`");
                    keys.fault(
                        "seeds",
                        format!("a seed is 0 to {most}: from {first} on there are not {many}, {problem}"),
                    );
                    vec![first]
                }
            }
        }
    }
}
