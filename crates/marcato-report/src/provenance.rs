//! World, seeds and length of the runs behind a document.

use crate::World;

/// World, seeds and length of the runs behind a [`Document`](crate::Document).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// World of the runs.
    pub world: World,
    /// Seeds, one run for each.
    pub seeds: Vec<u64>,
    /// `true` for a shortened run, whose figures are not comparable with a full one's.
    pub quick: bool,
}

impl Provenance {
    /// Full runs in virtual time, one for each of `seeds`.
    pub fn of_seeds(seeds: impl IntoIterator<Item = u64>) -> Self {
        Self { seeds: seeds.into_iter().collect(), ..Self::default() }
    }
}
