//! `marcato validate`.

use std::io::Write;

use marcato_papers::{Experiment, Registry};

use crate::Status;
use crate::arguments::Validate;
use crate::interrupt::EndsOnInterrupt;
use crate::papers::{PapersError, directory, hand_over};
use crate::progress::Bar;

/// Runs `experiment`, which belongs to no paper, and outputs its report as `marcato papers` does.
pub(crate) fn run(
    experiment: &dyn Experiment,
    asked: &Validate,
    stdout: &mut dyn Write,
) -> Result<Status, PapersError> {
    let options = asked.runs.options()?;
    let directory = directory(asked.out.as_deref())?;
    let report = {
        let _ends = EndsOnInterrupt::leaving(&directory).map_err(PapersError::Interrupt)?;
        Registry::run(experiment, &options, &mut Bar::new())?
    };
    hand_over(&report, asked.out.as_deref(), asked.runs.format, stdout)
}
