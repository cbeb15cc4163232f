//! Judge of CRQ §III-A1 and of its authors' program: the majority of all votes of a flow's life.

use super::assessment::{History, Ruling};
use super::{TrapConfig, Verdict};

/// Votes on one kind of signal: one per signalled cycle, none of which ages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Majority {
    pub(super) responsive: u32,
    pub(super) unresponsive: u32,
}

impl Majority {
    pub(super) const fn new() -> Self {
        Self { responsive: 0, unresponsive: 0 }
    }

    /// Looks for a reduced window in the cycles that the configuration names. CRQ §III-A1: in the
    /// second.
    pub(super) fn rule(config: &TrapConfig, history: History<'_>) -> Ruling {
        let last = config.response.last;
        (config.response.first..=last)
            .find(|&after| history.is_reduced(config, last, last - after, 0))
            .map_or(Ruling::Refused, Ruling::Answered)
    }

    pub(super) fn vote(&mut self, answered: bool) {
        let votes = if answered { &mut self.responsive } else { &mut self.unresponsive };
        *votes = votes.saturating_add(1);
    }

    /// As many votes for as against are enough to be responsive.
    pub(super) const fn verdict(self) -> Verdict {
        if self.responsive == 0 && self.unresponsive == 0 {
            Verdict::Unclassified
        } else if self.responsive >= self.unresponsive {
            Verdict::Responsive
        } else {
            Verdict::Unresponsive
        }
    }
}
