//! Decisions made before any run.

use super::scale::Plan;
use crate::answer::Answer;
use crate::paper::Ask;
use crate::plan::Runs;
use crate::prose;

/// Settings that the paper leaves open, with their values here.
pub(super) fn declared(_: &mut Plan) -> Ask {
    Box::new(|_: &Runs| {
        Answer::new(
            "Declarations before any run, and differences from the paper",
            prose::text(include_str!("declared.md")),
            Vec::new(),
        )
    })
}
