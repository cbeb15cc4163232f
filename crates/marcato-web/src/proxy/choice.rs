//! Choice of the upstream for a request.

use std::cmp::Ordering;

use tokio::time::Instant;

/// Upstream among which the choice is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) in_flight: u32,
    pub(super) limit: u32,
    pub(super) weight: u32,
    pub(super) healthy: bool,
    pub(super) last_failure: Option<Instant>,
    /// True if this request has failed there.
    pub(super) tried: bool,
}

impl Candidate {
    /// Compares the requests in flight per weight.
    fn load(&self, other: &Self) -> Ordering {
        let load = |this: &Self, other: &Self| u64::from(this.in_flight) * u64::from(other.weight);
        load(self, other).cmp(&load(other, self))
    }
}

/// Chooser of upstreams.
///
/// It takes the healthy upstream with the fewest requests in flight per weight. Upstreams of equal
/// load take turns by stride scheduling: each choice moves the upstream's pass on by `STRIDE /
/// weight`, and the lowest pass is next.
#[derive(Clone, Debug)]
pub(super) struct Chooser {
    passes: Vec<u64>,
    /// Pass of the latest choice. Upstreams that were out of rotation do not catch up.
    now: u64,
}

/// Pass of a choice with weight 1: a multiple of every weight up to 16, so that small ones are
/// exact.
const STRIDE: u64 = 720_720;

impl Chooser {
    pub(super) fn new(upstreams: usize) -> Self {
        Self { passes: vec![0; upstreams], now: 0 }
    }

    /// Returns the index of the chosen upstream; `None` if all that may be used are full.
    ///
    /// If none is healthy, the one that failed least recently is chosen. A healthy upstream where
    /// the request has failed already comes after the other healthy ones, and before unhealthy
    /// ones.
    pub(super) fn choose(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let any_healthy = candidates.iter().any(|candidate| candidate.healthy);
        // Requests that overload the healthy upstreams are refused: an unhealthy one would not take
        // them better.
        let chosen = candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| {
                candidate.healthy == any_healthy && candidate.in_flight < candidate.limit
            })
            .min_by(|(i, a), (j, b)| {
                let by_health = if any_healthy {
                    a.tried.cmp(&b.tried).then_with(|| a.load(b))
                } else {
                    a.tried.cmp(&b.tried).then_with(|| a.last_failure.cmp(&b.last_failure))
                };
                by_health.then_with(|| self.pass(*i).cmp(&self.pass(*j)))
            })
            .map(|(index, candidate)| (index, candidate.weight))?;
        let (index, weight) = chosen;
        self.now = self.pass(index);
        if let Some(pass) = self.passes.get_mut(index) {
            *pass = self.now.saturating_add(STRIDE / u64::from(weight.max(1)));
        }
        Some(index)
    }

    fn pass(&self, index: usize) -> u64 {
        self.passes.get(index).map_or(self.now, |pass| (*pass).max(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Duration;
    use proptest::prelude::*;

    fn upstream(in_flight: u32, weight: u32) -> Candidate {
        Candidate { in_flight, limit: 10, weight, healthy: true, last_failure: None, tried: false }
    }

    fn choose(candidates: &[Candidate]) -> Option<usize> {
        Chooser::new(candidates.len()).choose(candidates)
    }

    #[test]
    fn the_least_loaded_upstream_is_chosen() {
        assert_eq!(choose(&[upstream(3, 1), upstream(2, 1), upstream(4, 1)]), Some(1));
        assert_eq!(choose(&[upstream(5, 3), upstream(2, 1)]), Some(0));
        assert_eq!(choose(&[upstream(7, 3), upstream(2, 1)]), Some(1));
    }

    #[test]
    fn idle_upstreams_take_turns_by_weight() {
        let candidates = [upstream(0, 1), upstream(0, 3)];
        let mut chooser = Chooser::new(2);
        let mut counts = [0; 2];
        for _ in 0..400 {
            counts[chooser.choose(&candidates).unwrap()] += 1;
        }
        assert_eq!(counts, [100, 300]);
    }

    #[test]
    fn a_returning_upstream_does_not_catch_up() {
        let mut chooser = Chooser::new(2);
        let down = Candidate { healthy: false, ..upstream(0, 1) };
        for _ in 0..100 {
            assert_eq!(chooser.choose(&[upstream(0, 1), down]), Some(0));
        }
        let both = [upstream(0, 1), upstream(0, 1)];
        let choices: Vec<_> = (0..4).filter_map(|_| chooser.choose(&both)).collect();
        assert_eq!(choices.iter().filter(|index| **index == 1).count(), 2);
    }

    #[test]
    fn unhealthy_and_full_upstreams_are_skipped() {
        let down = Candidate { healthy: false, ..upstream(0, 1) };
        let full = upstream(10, 1);
        assert_eq!(choose(&[down, upstream(9, 1), full]), Some(1));
        assert_eq!(choose(&[down, full]), None);
        assert_eq!(choose(&[full]), None);
    }

    #[test]
    fn the_least_recently_failed_is_tried_if_all_are_unhealthy() {
        let now = Instant::now();
        let failed = |seconds| Candidate {
            healthy: false,
            last_failure: Some(now + Duration::from_secs(seconds)),
            ..upstream(0, 1)
        };
        assert_eq!(choose(&[failed(3), failed(1), failed(2)]), Some(1));
        let tried = Candidate { tried: true, ..failed(1) };
        assert_eq!(choose(&[failed(3), tried, failed(2)]), Some(2));
    }

    #[test]
    fn a_retry_prefers_another_healthy_upstream() {
        let tried = Candidate { tried: true, ..upstream(0, 1) };
        let down = Candidate { healthy: false, ..upstream(0, 1) };
        assert_eq!(choose(&[tried, upstream(9, 1)]), Some(1));
        assert_eq!(choose(&[tried, down]), Some(0));
    }

    proptest! {
        #[test]
        fn a_choice_is_never_full_nor_needlessly_unhealthy(
            upstreams in proptest::collection::vec((0..4_u32, 1..5_u32, any::<bool>(), any::<bool>()), 0..6),
        ) {
            let candidates: Vec<_> = upstreams
                .iter()
                .map(|&(in_flight, weight, healthy, tried)| {
                    Candidate { limit: 3, healthy, tried, ..upstream(in_flight, weight) }
                })
                .collect();
            if let Some(index) = choose(&candidates) {
                prop_assert!(candidates[index].in_flight < 3);
                prop_assert!(candidates[index].healthy || candidates.iter().all(|c| !c.healthy));
            } else {
                let healthy = candidates.iter().any(|c| c.healthy);
                prop_assert!(candidates.iter().all(|c| c.healthy != healthy || c.in_flight >= 3));
            }
        }
    }
}
