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
}
