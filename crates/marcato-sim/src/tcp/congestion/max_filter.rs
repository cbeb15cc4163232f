//! Running maximum over a window, in constant space.

/// Best three measurements of a window, each later than the one before and no greater. The maximum
/// of the last `window` ticks is then known when the best ages out. Kathleen Nichols' algorithm, as
/// used in Linux (`win_minmax`) and BBR. It is exact for monotone data, and may miss an
/// intermediate peak otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MaxFilter {
    best: [Sample; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: u64,
    value: u64,
}

impl MaxFilter {
    pub(crate) fn max(&self) -> u64 {
        self.best[0].value
    }

    /// Adds the measurement `value` at tick `at`.
    pub(crate) fn update(&mut self, window: u64, at: u64, value: u64) {
        let new = Sample { at, value };
        let best = &mut self.best;
        if value >= best[0].value || at - best[2].at > window {
            *best = [new; 3];
            return;
        }
        if value >= best[1].value {
            best[1] = new;
            best[2] = new;
        } else if value >= best[2].value {
            best[2] = new;
        }
        let age = at - best[0].at;
        if age > window {
            // The best has aged out; the second may have, too.
            *best = [best[1], best[2], new];
            if at - best[0].at > window {
                *best = [best[1], best[2], new];
            }
        } else if best[1].at == best[0].at && age > window / 4 {
            // A quarter of the window has passed without a second best: use this one.
            best[1] = new;
            best[2] = new;
        } else if best[2].at == best[1].at && age > window / 2 {
            best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Without a second best by then, a later measurement would have to be the next maximum.
    #[test]
    fn a_successor_is_chosen_after_a_quarter_and_half_of_the_window() {
        let after = |values: &[(u64, u64)]| {
            let mut filter = MaxFilter::default();
            values.iter().for_each(|(at, value)| filter.update(12, *at, *value));
            filter.max()
        };
        assert_eq!(after(&[(0, 100), (3, 60), (4, 50), (6, 40), (7, 30), (12, 20)]), 100);
        // At 3 no quarter has passed; the one at 4 is the successor, and that at 11 the one after half.
        assert_eq!(after(&[(0, 100), (3, 60), (4, 50), (6, 40), (7, 30), (13, 20)]), 50);
        assert_eq!(after(&[(0, 100), (4, 50), (7, 30), (8, 25), (13, 20), (17, 10)]), 30);
    }

    #[test]
    fn a_maximum_lasts_for_its_window_and_no_longer() {
        let mut filter = MaxFilter::default();
        filter.update(10, 0, 100);
        for at in 1..=10 {
            filter.update(10, at, 50);
            assert_eq!(filter.max(), 100, "at {at}");
        }
        filter.update(10, 11, 50);
        assert_eq!(filter.max(), 50);
    }

    #[test]
    fn a_greater_value_replaces_everything() {
        let mut filter = MaxFilter::default();
        filter.update(10, 0, 100);
        filter.update(10, 1, 120);
        assert_eq!(filter.max(), 120);
    }

    #[test]
    fn a_falling_series_is_followed() {
        let mut filter = MaxFilter::default();
        for at in 0..100u64 {
            filter.update(10, at, 1000 - at);
            let truth = 1000 - at.saturating_sub(10);
            assert!(filter.max() <= truth && filter.max() >= 1000 - at, "at {at}: {}", filter.max());
        }
    }
    proptest! {
        /// The maximum is a measurement of the window, no less than the latest, and the true one while the series falls
        /// or rises. The second and the third best are later ones, and no greater.
        #[test]
        fn the_maximum_is_a_measurement_of_the_window(
            window in 1u64..40, steps in prop::collection::vec((1u64..15, 0u64..8), 1..80),
        ) {
            let mut filter = MaxFilter::default();
            let (mut at, mut all) = (0, Vec::new());
            for (step, value) in steps {
                at += step;
                filter.update(window, at, value + 1);
                all.push((at, value + 1));
                let within = || all.iter().filter(|(when, _)| at - when <= window);
                let truth = within().map(|(_, value)| *value).max().unwrap();
                prop_assert!(filter.max() > value && filter.max() <= truth, "{} of {truth}", filter.max());
                let [first, second, third] = filter.best.map(|sample| (sample.at, sample.value));
                prop_assert!(within().any(|sample| *sample == first), "{first:?} of {all:?}");
                prop_assert!(first.0 <= second.0 && second.0 <= third.0, "{:?}", filter);
                prop_assert!(first.1 >= second.1 && second.1 >= third.1, "{:?}", filter);
                // Whatever came after the third best is no greater.
                let later = |since: u64| all.iter().filter(move |(when, _)| *when > since).map(|(_, value)| *value).max();
                prop_assert!(later(third.0).is_none_or(|value| value < third.1), "{:?} of {all:?}", filter);
            }
        }
    }
}
