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
    /// Digest of its URI, the same in every process.
    pub(super) seed: u64,
}

/// Tie of a request to upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tie {
    /// None: the upstream with the fewest requests in flight.
    Least,
    /// None: upstreams take turns.
    Turns,
    /// Requests with the same digest belong to the same upstream.
    Digest(u64),
    /// Requests of a client that an upstream has served; none yet for a new client.
    Upstream(Option<usize>),
}

impl Candidate {
    /// Compares the requests in flight per weight.
    fn load(&self, other: &Self) -> Ordering {
        let load = |this: &Self, other: &Self| u64::from(this.in_flight) * u64::from(other.weight);
        load(self, other).cmp(&load(other, self))
    }

    /// Rank of the upstream for requests with a digest: rendezvous hashing with weights (Thaler and Ravishankar,
    /// "Using name-based mappings to increase hit rates", 1998). If an upstream is left out, only its own
    /// requests move.
    fn rank(&self, digest: u64) -> f64 {
        let mixed = mixed(digest ^ mixed(self.seed));
        // 53 bits, from 2^-54 to 1: a float holds them exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let part = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -f64::from(self.weight.max(1)) / part.ln()
    }
}

/// Mixes all bits of a number (the finalizer of SplitMix64; Steele, Lea and Flood, 2014).
const fn mixed(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
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
    pub(super) fn choose(&mut self, candidates: &[Candidate], tie: Tie) -> Option<usize> {
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
                    let by_tie = match tie {
                        Tie::Turns => Ordering::Equal,
                        Tie::Digest(digest) => b.rank(digest).total_cmp(&a.rank(digest)),
                        Tie::Upstream(Some(own)) => (*i != own).cmp(&(*j != own)).then_with(|| a.load(b)),
                        Tie::Least | Tie::Upstream(None) => a.load(b),
                    };
                    a.tried.cmp(&b.tried).then(by_tie)
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
        Candidate { in_flight, limit: 10, weight, healthy: true, last_failure: None, tried: false, seed: 0 }
    }

    fn choose(candidates: &[Candidate]) -> Option<usize> {
        Chooser::new(candidates.len()).choose(candidates, Tie::Least)
    }

    fn tied(candidates: &[Candidate], tie: Tie) -> Option<usize> {
        Chooser::new(candidates.len()).choose(candidates, tie)
    }

    #[test]
    fn turns_ignore_the_load() {
        let candidates = [upstream(9, 1), upstream(0, 1)];
        let mut chooser = Chooser::new(2);
        let chosen: Vec<_> = (0..4).filter_map(|_| chooser.choose(&candidates, Tie::Turns)).collect();
        assert_eq!(chosen, [0, 1, 0, 1]);
    }

    #[test]
    fn a_client_stays_with_its_upstream_until_that_is_down() {
        let tie = Tie::Upstream(Some(0));
        assert_eq!(tied(&[upstream(9, 1), upstream(0, 1)], tie), Some(0));
        assert_eq!(tied(&[upstream(10, 1), upstream(0, 1)], tie), Some(1));
        let down = Candidate { healthy: false, ..upstream(0, 1) };
        assert_eq!(tied(&[down, upstream(3, 1), upstream(2, 1)], tie), Some(2));
        assert_eq!(tied(&[upstream(1, 1), upstream(0, 1)], Tie::Upstream(None)), Some(1));
        let tried = Candidate { tried: true, ..upstream(0, 1) };
        assert_eq!(tied(&[tried, upstream(3, 1)], tie), Some(1));
    }

    #[test]
    fn digests_share_upstreams_and_move_only_if_theirs_is_down() {
        let seeded = |seed: u64, weight: u32| Candidate { seed, ..upstream(0, weight) };
        let all = [seeded(11, 1), seeded(22, 2), seeded(33, 1)];
        let mut counts = [0_u32; 3];
        for digest in 0..4000 {
            let chosen = tied(&all, Tie::Digest(digest)).unwrap();
            assert_eq!(tied(&all, Tie::Digest(digest)), Some(chosen));
            counts[chosen] += 1;
            let mut without = all;
            without[1].healthy = false;
            let then = tied(&without, Tie::Digest(digest)).unwrap();
            assert!(then == chosen || chosen == 1, "{digest}");
        }
        for (count, expected) in counts.into_iter().zip([1000, 2000, 1000]) {
            assert!(count.abs_diff(expected) < 150, "{counts:?}");
        }
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
            counts[chooser.choose(&candidates, Tie::Least).unwrap()] += 1;
        }
        assert_eq!(counts, [100, 300]);
    }

    #[test]
    fn a_returning_upstream_does_not_catch_up() {
        let mut chooser = Chooser::new(2);
        let down = Candidate { healthy: false, ..upstream(0, 1) };
        for _ in 0..100 {
            assert_eq!(chooser.choose(&[upstream(0, 1), down], Tie::Least), Some(0));
        }
        let both = [upstream(0, 1), upstream(0, 1)];
        let choices: Vec<_> = (0..4).filter_map(|_| chooser.choose(&both, Tie::Least)).collect();
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
