//! Claims of a scenario, judged by the numbers of its runs.

use std::collections::{BTreeSet, HashMap};

use marcato_report::{Row, Unit};
use marcato_scenario::claim::{Band, Claim, Point, Statistic};
use marcato_scenario::record::Record;
use marcato_scenario::{Experiment, Place, Run, Scenario, ScenarioError, Setting};
use marcato_sim::scenario::{Traces, Watcher, build};
use marcato_units::Time;

use crate::document::json;
use crate::{Expression, Frame, Numbers, Tables, numbers};

/// Observer that stops a run at its first instant.
struct AtOnce;

impl Watcher for AtOnce {
    fn time(&mut self, _now: Time) {}
    fn captured(&mut self, _link: &str, _back: bool, _part: &[u8]) {}
    fn is_stopped(&self) -> bool {
        true
    }
}

/// Numbers of one run, as far as there are any.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// Completed run.
    Done(&'a Numbers),
    /// Failed run.
    Failed,
    /// Run that was not asked for.
    LeftOut,
}

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Value within its band.
    Held,
    /// Value outside its band, or missing.
    Off,
    /// Value without a band.
    Unclaimed,
    /// Claim that needs a failed run.
    NotJudged,
    /// Claim about a point that was not run.
    LeftOut,
}

impl Verdict {
    /// Returns the verdict in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Off => "off",
            Self::Unclaimed => "unclaimed",
            Self::NotJudged => "not judged",
            Self::LeftOut => "left out",
        }
    }
}

/// Claim with its measured value.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Value, band and published value.
    pub row: Row,
    /// Verdict.
    pub verdict: Verdict,
    /// Value of each seed, in their order; NaN where a run has none.
    pub values: Vec<f64>,
    /// True if the value depends on the seed. An interval of equal values would say nothing.
    pub is_random: bool,
}

impl Judged {
    /// Returns the half-width of the 95 % confidence interval of the mean.
    pub fn ci95(&self) -> Option<f64> {
        self.row.ci95().filter(|_| self.is_random)
    }
}

/// Run of a combination at its first instant.
struct Begun {
    metrics: Numbers,
    is_random: bool,
}

/// Claims of a scenario that can be judged: each metric exists at each point that it is asked for.
#[derive(Clone, Debug)]
pub struct Claims<'s> {
    scenario: &'s Scenario,
    measures: Vec<Measure>,
}

/// Value that a claim is about.
#[derive(Clone, Debug)]
struct Measure {
    expression: Expression,
    unit: Unit,
    is_random: bool,
}

impl<'s> Claims<'s> {
    /// Checks the claims of a scenario before anything runs.
    ///
    /// # Errors
    /// All claims that name an unknown metric or unit, each with its place.
    pub fn check(scenario: &'s Scenario, traces: &Traces) -> Result<Self, ScenarioError> {
        let mut known: HashMap<usize, Option<Begun>> = HashMap::new();
        let mut faults: Vec<(Place, String)> = Vec::new();
        let mut measures = Vec::new();
        for claim in scenario.claims() {
            let unit = unit(claim);
            match (Expression::parse(&claim.metric), unit) {
                (Ok(expression), Ok(unit)) => {
                    let mut is_random = false;
                    for number in combinations(claim) {
                        // A run that cannot even be built says so itself.
                        let begun = known.entry(number).or_insert_with(|| begin(scenario, number, traces));
                        let Some(Begun { metrics, is_random: depends }) = begun else { continue };
                        is_random |= *depends;
                        let unknown = expression.value(metrics).err();
                        faults.extend(unknown.map(|problem| (claim.metric_place, problem)));
                    }
                    measures.push(Measure { expression, unit, is_random });
                }
                (expression, unit) => {
                    faults.extend(expression.err().map(|problem| (claim.metric_place, problem)));
                    faults.extend(unit.err());
                }
            }
        }
        match scenario.refused(faults) {
            Some(error) => Err(error),
            None => Ok(Self { scenario, measures }),
        }
    }

    /// Returns whether there are no claims.
    pub fn is_empty(&self) -> bool {
        self.measures.is_empty()
    }

    /// Returns the numbers of the runs that the claims need, in order.
    pub fn runs(&self) -> Vec<usize> {
        let seeds = self.scenario.seeds().len();
        let numbers: BTreeSet<usize> = self.scenario.claims().iter().flat_map(combinations).collect();
        numbers.into_iter().flat_map(|number| (0..seeds).map(move |seed| number * seeds + seed)).collect()
    }

    /// Judges each claim by the runs, whose numbers `cell` returns for the number of a run.
    pub fn judge<'n>(&self, cell: impl Fn(usize) -> Cell<'n>) -> Vec<Judged> {
        let claims = self.scenario.claims().iter().zip(&self.measures);
        claims.map(|(claim, measure)| self.one(claim, measure, &cell)).collect()
    }

    fn one<'n>(&self, claim: &Claim, measure: &Measure, cell: &impl Fn(usize) -> Cell<'n>) -> Judged {
        let Measure { expression, unit, is_random } = measure;
        let (unit, is_random) = (*unit, *is_random);
        let row = Row::new(&claim.id, &claim.what, unit);
        let row = claim.published.into_iter().fold(row, Row::paper);
        let row = match claim.band {
            Band::None => row,
            Band::Between(Some(least), Some(most)) => row.within(least, most),
            Band::Between(Some(least), None) => row.at_least(least),
            Band::Between(None, Some(most)) => row.at_most(most),
            Band::Between(None, None) => row,
            Band::Distance(distance) => row.within_absolute(distance),
            Band::Percent(percent) => row.within_percent(percent),
        };
        let seeds = self.scenario.seeds().len();
        // Missing points are reported before failed runs: they would be missing in any case.
        let of = |point: &Point, seed: usize| {
            let cell = point.combination.map_or(Cell::LeftOut, |number| cell(number * seeds + seed));
            match cell {
                Cell::Done(numbers) => Ok(expression.value(numbers).unwrap_or(f64::NAN)),
                Cell::Failed => Err(Verdict::NotJudged),
                Cell::LeftOut => Err(Verdict::LeftOut),
            }
        };
        let value = |seed: usize| {
            let own = of(&claim.at, seed)?;
            let minus = claim.minus.as_ref().map(|point| of(point, seed)).transpose()?;
            let over = claim.over.as_ref().map(|point| of(point, seed)).transpose()?;
            let difference = minus.map_or(own, |minus| own - minus);
            Ok(match (over, unit) {
                (None, _) => difference,
                (Some(over), Unit::Percent) => 100.0 * difference / over,
                (Some(over), _) => difference / over,
            })
        };
        let all: Vec<Result<f64, Verdict>> = (0..seeds).map(value).collect();
        let failed = all.contains(&Err(Verdict::NotJudged));
        let values: Vec<f64> = all.iter().filter_map(|value| value.ok()).collect();
        if failed || values.is_empty() {
            let verdict = if failed { Verdict::NotJudged } else { Verdict::LeftOut };
            return Judged { row, verdict, values, is_random };
        }
        let row = match claim.statistic {
            // A seed without a value leaves the mean without one: that of the others would claim too much.
            _ if values.iter().any(|value| !value.is_finite()) => row,
            Statistic::Mean => row.samples(&values),
            Statistic::Median => row.measured(median(&values)),
            Statistic::Min => row.measured(values.iter().copied().fold(f64::INFINITY, f64::min)),
            Statistic::Max => row.measured(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        };
        let verdict = match row.ok() {
            None => Verdict::Unclaimed,
            Some(true) => Verdict::Held,
            Some(false) => Verdict::Off,
        };
        Judged { row, verdict, values, is_random }
    }

    /// Returns a line for each claim.
    pub fn frame(&self, judged: &[Judged]) -> Frame {
        let claims = || self.scenario.claims().iter();
        let rows = || judged.iter().map(|judged| &judged.row);
        let other = |of: fn(&Claim) -> Option<&Point>| {
            claims().map(move |claim| of(claim).map(|point| differing(point, &claim.at)).unwrap_or_default())
        };
        Frame::new()
            .text("claim", claims().map(|claim| claim.id.as_str()))
            .text("what", claims().map(|claim| claim.what.as_str()))
            .text("metric", claims().map(|claim| claim.metric.as_str()))
            .text("at", claims().map(|claim| listed(claim.at.settings.iter())))
            .text("over", other(|claim| claim.over.as_ref()))
            .text("minus", other(|claim| claim.minus.as_ref()))
            .text("statistic", claims().map(|claim| claim.statistic.name()))
            .text("unit", rows().map(|row| row.unit().symbol()))
            .number("published", rows().map(Row::paper_value))
            .text("source", claims().map(|claim| claim.source.as_str()))
            .number("measured", rows().map(Row::measured_value))
            .number("ci95", judged.iter().map(Judged::ci95))
            .count("n", judged.iter().map(|judged| judged.values.len() as u64))
            .number("at_least", rows().map(Row::lo))
            .number("at_most", rows().map(Row::hi))
            .text("verdict", judged.iter().map(|judged| judged.verdict.name()))
    }
}

/// Returns whether any claim is off.
pub fn is_off(judged: &[Judged]) -> bool {
    judged.iter().any(|judged| judged.verdict == Verdict::Off)
}

fn listed<'a>(settings: impl Iterator<Item = &'a Setting>) -> String {
    settings.map(|one| format!("{} = {}", one.key, one.value)).collect::<Vec<_>>().join(", ")
}

/// Returns the settings of a point that differ from those of another.
fn differing(point: &Point, from: &Point) -> String {
    listed(point.settings.iter().filter(|one| !from.settings.contains(one)))
}

/// Returns the combinations that a claim needs.
fn combinations(claim: &Claim) -> impl Iterator<Item = usize> {
    let points = [Some(&claim.at), claim.over.as_ref(), claim.minus.as_ref()];
    points.into_iter().flatten().filter_map(|point| point.combination)
}

/// Begins a run of a combination and stops it, which tells the metrics that it has; `None` if it
/// cannot be built.
fn begin(scenario: &Scenario, combination: usize, traces: &Traces) -> Option<Begun> {
    let run = scenario.run(combination * scenario.seeds().len())?;
    let experiment = Experiment { record: Record::default(), ..run.experiment.clone() };
    let outcome = build(&experiment, traces).ok()?.run(&mut AtOnce).ok()?;
    let metrics = numbers(&json(&run, &outcome, &Tables::of(&outcome)));
    Some(Begun { metrics, is_random: experiment.is_random() })
}

/// Executes a run without its records, and returns its numbers.
///
/// # Errors
/// If the run cannot be built, or does not come to its end.
pub fn measure(run: &Run, traces: &Traces) -> Result<Numbers, String> {
    let experiment = Experiment { record: Record::default(), ..run.experiment.clone() };
    let world = build(&experiment, traces).map_err(|error| error.to_string())?;
    let outcome = world.run(&mut |_: Time| {}).map_err(|error| error.to_string())?;
    Ok(numbers(&json(run, &outcome, &Tables::of(&outcome))))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len() / 2, sorted.len() % 2) {
        (half, 0) => f64::midpoint(sorted[half - 1], sorted[half]),
        (half, _) => sorted[half],
    }
}

/// Returns the unit of a claim: as given, a quotient, or that at the end of the metric's name.
fn unit(claim: &Claim) -> Result<Unit, (Place, String)> {
    if let Some((name, place)) = &claim.unit {
        let symbols = Unit::ALL.map(Unit::symbol);
        let found =
            Unit::ALL.into_iter().find(|unit| unit.symbol() == name || (name == "us" && *unit == Unit::Us));
        let hint = || marcato_scenario::nearest::hint(name, symbols);
        return found.ok_or_else(|| (*place, format!("there is no unit `{name}`: {}", hint())));
    }
    if claim.over.is_some() {
        return Ok(Unit::Ratio);
    }
    let column = claim.metric.rsplit('.').next().unwrap_or_default();
    let ends = [
        ("_mbit_per_s", Unit::MbitPerS),
        ("_ms", Unit::Ms),
        ("_s", Unit::Seconds),
        ("_percent", Unit::Percent),
        ("_bytes", Unit::Bytes),
        ("_index", Unit::Ratio),
    ];
    Ok(ends.into_iter().find(|(end, _)| column.ends_with(end)).map_or(Unit::Count, |(_, unit)| unit))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use marcato_scenario::Overrides;

    use super::*;

    const GRID: &str = r#"
        name = "grid"
        duration = "2 s"
        topology = { kind = "dumbbell", rate = "10 Mbit/s", delay = "10 ms" }
        [[flow]]
        name = "bulk"
        kind = "tcp"
        from = "client-1"
        to = "server-1"
        [grid]
        seeds = 3
        vary = { "topology.rate" = ["5 Mbit/s", "10 Mbit/s"] }
    "#;

    /// Judges one claim by goodputs of 1, 2, 6 and of 10, 10, 12 Mbit/s.
    fn judged(claim: &str) -> Judged {
        let text =
            format!("{GRID}\n[[claim]]\nid = \"x\"\nmetric = \"flow.bulk.goodput_mbit_per_s\"\n{claim}\n");
        let scenario = Scenario::parse("grid.toml", &text).unwrap();
        let claims = Claims::check(&scenario, &Traces::new()).unwrap();
        let goodputs = [1.0, 2.0, 6.0, 10.0, 10.0, 12.0];
        let runs = goodputs.map(|goodput| vec![("flow.bulk.goodput_mbit_per_s".to_owned(), goodput)]);
        claims.judge(|run| Cell::Done(&runs[run])).remove(0)
    }

    const AT_5: &str = "at = { \"topology.rate\" = \"5 Mbit/s\" }";

    #[test]
    fn a_statistic_stands_for_the_seeds() {
        for (statistic, value) in [("mean", 3.0), ("median", 2.0), ("min", 1.0), ("max", 6.0)] {
            let judged = judged(&format!("{AT_5}\nstatistic = \"{statistic}\""));
            assert_eq!(judged.row.measured_value(), Some(value), "{statistic}");
        }
    }

    #[test]
    fn values_of_two_points_are_paired_by_seed() {
        let over = judged(&format!("{AT_5}\nover = {{ \"topology.rate\" = \"10 Mbit/s\" }}"));
        assert_eq!((over.values, over.row.unit()), (vec![0.1, 0.2, 0.5], Unit::Ratio));
        let minus = judged(&format!("{AT_5}\nminus = {{ \"topology.rate\" = \"10 Mbit/s\" }}"));
        assert_eq!((minus.values, minus.row.unit()), (vec![-9.0, -8.0, -6.0], Unit::MbitPerS));
        let other = "{ \"topology.rate\" = \"10 Mbit/s\" }";
        let gain = judged(&format!("{AT_5}\nunit = \"%\"\nminus = {other}\nover = {other}"));
        assert_eq!(gain.values, [-90.0, -80.0, -50.0]);
    }

    #[test]
    fn a_band_includes_its_ends() {
        for (band, verdict) in [
            ("at-least = 3", Verdict::Held),
            ("at-least = 3.1", Verdict::Off),
            ("at-least = 1\nat-most = 3", Verdict::Held),
            ("at-most = 2.9", Verdict::Off),
            ("published = 4\nwithin = 1", Verdict::Held),
            ("published = 4\nwithin = \"24 %\"", Verdict::Off),
            ("published = 4", Verdict::Unclaimed),
        ] {
            assert_eq!(judged(&format!("{AT_5}\n{band}")).verdict, verdict, "{band}");
        }
    }

    #[test]
    fn nothing_random_gives_no_interval() {
        // The interval of the row is kept for reports of several seeds.
        let judged = judged(AT_5);
        assert!(judged.row.ci95().is_some() && judged.ci95().is_none());
    }

    #[test]
    fn a_run_has_the_same_metrics_at_its_first_and_last_instant() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let set = vec!["duration=2 s".to_owned(), "warm-up=1 s".to_owned()];
        let overrides = Overrides { set, seed: Some(1), ..Overrides::default() };
        let mut seen = 0;
        for file in std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|end| end != "toml") {
                continue;
            }
            let scenario = Scenario::load(&file, &overrides).unwrap();
            for run in scenario.runs().take(4) {
                let read = |name: &str| {
                    let text = std::fs::read_to_string(scenario.dir().join(name)).unwrap();
                    (name.to_owned(), text.parse().unwrap())
                };
                let traces: Traces = run.experiment.traces().into_iter().map(read).collect();
                let names = |watcher: &mut dyn Watcher| -> Vec<String> {
                    let outcome = build(&run.experiment, &traces).unwrap().run(watcher).unwrap();
                    let numbers = numbers(&json(&run, &outcome, &Tables::of(&outcome)));
                    numbers.into_iter().map(|(name, _)| name).collect()
                };
                assert_eq!(names(&mut AtOnce), names(&mut |_: Time| {}), "{}", run.id);
                seen += 1;
            }
        }
        assert!(seen > 12, "{seen}");
    }
}
