//! A scenario: an experiment, and which of its settings are varied.

use std::path::Path;

use marcato_units::Seed;

use crate::experiment::Experiment;
use crate::fault::ScenarioError;

/// What is said beside the file, on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Settings as `KEY=VALUE`, for example `link.bottleneck.rate=5 Mbit/s`. What is set here is not varied.
    pub set: Vec<String>,
    /// The seed, instead of the file's; seeds are then not varied.
    pub seed: Option<u64>,
}

/// A scenario file: an experiment, and which of its settings are varied.
#[derive(Clone, Debug)]
pub struct Scenario {
    experiment: Experiment,
}

/// A setting that is varied, and what it is in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, for example `link.bottleneck.rate`.
    pub key: String,
    /// The value, as one writes it after `--set KEY=`.
    pub value: String,
}

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name among the scenario's runs, fit for a file's name: `rate=5Mbit-s,congestion=reno,seed=3`.
    pub id: String,
    /// What is set in it otherwise than in the file, the seed aside.
    pub settings: Vec<Setting>,
    /// Its seed.
    pub seed: Seed,
    /// What runs.
    pub experiment: Experiment,
}

/// The runs of a scenario, in order: the first key that is varied changes slowest, the seed fastest.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    scenario: &'a Scenario,
    next: usize,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let _ = (&self.scenario, self.next);
        None
    }
}

impl Scenario {
    /// Reads a scenario. `name` is what errors call the file.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(name, text, &Overrides::default())
    }

    /// Reads a scenario, with settings from elsewhere.
    ///
    /// # Errors
    /// Everything that is wrong with it or with the settings, each with its place.
    pub fn parse_with(name: &str, text: &str, overrides: &Overrides) -> Result<Self, ScenarioError> {
        let _ = (text, overrides);
        Err(ScenarioError::unreadable(name, "the reader is not there yet"))
    }

    /// Reads a scenario from a file, and looks whether the traces that it names are there.
    ///
    /// # Errors
    /// As [`parse_with`](Self::parse_with); or if the file cannot be read, or a trace that it names.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, ScenarioError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::unreadable(&name, &format!("cannot be read: {error}")))?;
        Self::parse_with(&name, &text, overrides)
    }

    /// The experiment as the file has it, nothing varied.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// The runs, each with its settings applied: every combination of what is varied, with every seed.
    pub fn runs(&self) -> Runs<'_> {
        Runs { scenario: self, next: 0 }
    }

    /// The command that repeats exactly this run.
    pub fn one_line(&self, run: &Run) -> String {
        let _ = run;
        String::new()
    }
}
