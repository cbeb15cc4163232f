//! `marcato validate`.

use std::io::Write;

use marcato_papers::{Experiment, Registry};

use crate::Status;
use crate::arguments::{Format, Validate};
use crate::interrupt::EndsOnInterrupt;
use crate::output;
use crate::papers::{PapersError, directory};
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
    // Rows that cannot be written are printed nevertheless.
    let written = asked.out.as_ref().map_or(Ok(()), |out| report.write(out));
    let document = report.document();
    let printed = match asked.runs.format {
        Format::Text => report.to_text(),
        Format::Json => document.to_json(),
        Format::Csv => document.to_csv(),
    };
    output::print(stdout, &printed).map_err(PapersError::Print)?;
    written?;
    Ok(if document.holds() { Status::Ok } else { Status::Outside })
}
