//! Registry of the experiments.
//!
//! An experiment is a directory `src/<paper>/` that implements [`Experiment`], and a line in [`registry`].
//! The command line, its help, `all` and every output format follow. `over_seeds` runs a function per seed
//! and takes the means. A text of more than two lines is a Markdown file
//! (`prose::text(include_str!("subject.md"))`).

use marcato_report::Report;
use thiserror::Error;

use crate::{Experiment, Progress, RunError, RunOptions};

/// Papers that Marcato reproduces, in the order in which they are listed.
const PLANNED: [&str; 4] = ["cats", "plt", "cwr", "crq"];

/// Returns the experiments that are built into this program.
pub fn registry() -> Registry {
    let papers: Vec<Box<dyn Experiment>> = vec![
        Box::new(crate::Cats),
        Box::new(crate::plt::PLT),
        Box::new(crate::cwr::CWR),
        Box::new(crate::crq::CRQ),
        Box::new(crate::coupled::COUPLED),
        #[cfg(target_os = "linux")]
        Box::new(crate::Web),
    ];
    Registry::new(papers)
}

/// A set of experiments to choose from by name.
#[derive(Default)]
pub struct Registry(Vec<Box<dyn Experiment>>);

impl core::fmt::Debug for Registry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Registry").field(&self.names()).finish()
    }
}

impl Registry {
    /// Name that stands for every experiment.
    pub const ALL: &'static str = "all";

    /// Creates the registry of `experiments`, in order.
    pub fn new(experiments: Vec<Box<dyn Experiment>>) -> Self {
        Self(experiments)
    }

    /// Experiments in the order of the registry.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Experiment> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Names of the experiments, in the order of the registry.
    pub fn names(&self) -> Vec<&'static str> {
        self.iter().map(Experiment::name).collect()
    }

    /// Returns the experiments that `name` stands for: one, or all for [`ALL`](Self::ALL).
    ///
    /// # Errors
    ///
    /// Returns an error if the registry has no such experiment, or is empty.
    pub fn select(&self, name: &str) -> Result<Vec<&dyn Experiment>, SelectError> {
        let chosen: Vec<_> = self.iter().filter(|one| name == Self::ALL || one.name() == name).collect();
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let (name, built) = (name.to_owned(), self.names().join(", "));
        Err(if self.0.is_empty() {
            SelectError::Empty { name }
        } else if PLANNED.contains(&name.as_str()) {
            SelectError::Planned { name, built }
        } else {
            SelectError::Unknown { name, built }
        })
    }

    /// Checks that `experiment` runs in the world asked for, without running it.
    ///
    /// # Errors
    ///
    /// Returns [`RunError::WorldNotBuilt`] if it does not.
    pub fn check(experiment: &dyn Experiment, options: &RunOptions) -> Result<(), RunError> {
        let (paper, world, worlds) = (experiment.name(), options.world, experiment.worlds());
        if worlds.contains(&world) {
            return Ok(());
        }
        let built: Vec<_> = worlds.iter().map(|world| world.name()).collect();
        Err(RunError::WorldNotBuilt { paper, world, built: built.join(", ") })
    }

    /// Runs `experiment` if it runs in the world asked for.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not run in that world, cannot be run to its end, or reports no
    /// rows.
    pub fn run(
        experiment: &dyn Experiment,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Report, RunError> {
        Self::check(experiment, options)?;
        let report = experiment.run(options, progress)?;
        if report.document().rows().is_empty() {
            return Err(RunError::NoRows { paper: experiment.name() });
        }
        Ok(report)
    }
}

/// Error returned when no experiment can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SelectError {
    /// The registry is empty.
    #[error("cannot run `{name}`: no experiment is built into this program yet")]
    Empty {
        /// Name asked for.
        name: String,
    },
    /// The paper is one of Marcato's, but its experiments are not written yet.
    #[error("the experiments of `{name}` are planned but not built yet; choose from: {built}, all")]
    Planned {
        /// Name asked for.
        name: String,
        /// Names of the experiments that are built in.
        built: String,
    },
    /// No paper has this name.
    #[error("there is no experiment `{name}`; choose from: {built}, all")]
    Unknown {
        /// Name asked for.
        name: String,
        /// Names of the experiments that are built in.
        built: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use marcato_report::{Document, Row, Unit, World};

    struct Demo(&'static str, usize);

    impl Experiment for Demo {
        fn name(&self) -> &'static str {
            self.0
        }

        fn about(&self) -> &'static str {
            "counts"
        }

        fn run(&self, options: &RunOptions, _: &mut dyn Progress) -> Result<Report, RunError> {
            let rows = (0..self.1).map(|index| Row::new(format!("demo.{index}"), "row", Unit::Count));
            let document = rows.fold(Document::new(self.0, options), Document::row);
            Ok(Report::new("Demo", self.about(), document))
        }
    }

    fn two() -> Registry {
        Registry::new(vec![Box::new(Demo("cats", 1)), Box::new(Demo("other", 1))])
    }

    fn chosen(registry: &Registry, name: &str) -> Result<Vec<&'static str>, SelectError> {
        Ok(registry.select(name)?.iter().map(|one| one.name()).collect())
    }

    #[test]
    fn a_name_chooses_one_and_all_chooses_each() {
        assert_eq!(chosen(&two(), "other").unwrap(), ["other"]);
        assert_eq!(chosen(&two(), "all").unwrap(), ["cats", "other"]);
    }

    #[test]
    fn a_name_that_is_not_built_is_refused_and_others_are_listed() {
        assert_eq!(
            chosen(&two(), "plt").unwrap_err().to_string(),
            "the experiments of `plt` are planned but not built yet; choose from: cats, other, all"
        );
        assert_eq!(
            chosen(&two(), "dogs").unwrap_err().to_string(),
            "there is no experiment `dogs`; choose from: cats, other, all"
        );
        assert!(matches!(chosen(&Registry::default(), "all"), Err(SelectError::Empty { .. })));
    }

    #[test]
    fn a_world_that_is_not_built_is_refused() {
        let options = RunOptions::default().in_world(World::Lab);
        let error = Registry::run(&Demo("cats", 1), &options, &mut Silent).unwrap_err();
        assert_eq!(error.to_string(), "cats does not run in the world `lab` yet: use --world virtual");
    }

    #[test]
    fn reporting_nothing_is_an_error() {
        let error = Registry::run(&Demo("cats", 0), &RunOptions::default(), &mut Silent).unwrap_err();
        assert!(matches!(error, RunError::NoRows { paper: "cats" }));
    }
}
