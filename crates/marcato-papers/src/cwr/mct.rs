//! Message completion times of a source over all seeds, in ms.

use marcato_report::{Percentile, Samples};

use super::scale::Ticket;
use crate::plan::Runs;

/// Completion times of a source's messages, of all seeds together.
pub(super) fn samples(runs: &Runs, ticket: Ticket, source: usize) -> Samples {
    runs.of(ticket).into_iter().flat_map(|outcome| outcome.mcts(source)).collect()
}

/// A percentile of the completion times of a source's messages, for each seed.
pub(super) fn percentiles(runs: &Runs, ticket: Ticket, source: usize, percentile: Percentile) -> Vec<f64> {
    runs.each(ticket, |outcome| {
        outcome.mcts(source).collect::<Samples>().percentile(percentile).unwrap_or(f64::NAN)
    })
}
