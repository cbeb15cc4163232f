//! Aggregates over the flows of one name: the instances of a `count`, or the connections of a
//! process.

/// Joint results of several flows.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupOutcome {
    /// Name of the flow in the file.
    pub name: String,
    /// Kind of the flow, as in a file.
    pub kind: &'static str,
    /// Goodput of all members together, in Mbit/s: their bytes over the time from the first member's
    /// begin to the last one's end, as far as it is measured.
    pub goodput: f64,
    /// Goodput of each member, in Mbit/s: of each instance over its lifetime; of each complete
    /// connection of a process over its completion time. Instances that were over before the
    /// warm-up ended are no members.
    pub members: Vec<f64>,
    /// Completion times of all members except bulk data, in ms; infinite as in
    /// [`Times::samples`](super::Times::samples).
    pub completions: Vec<f64>,
}

impl GroupOutcome {
    /// Returns the mean goodput of the members, in Mbit/s; `None` without members.
    pub fn mean(&self) -> Option<f64> {
        (!self.members.is_empty()).then(|| self.members.iter().sum::<f64>() / self.members.len() as f64)
    }

    /// Returns Jain's index of the members' goodputs: 1 if all are equal, 1/n if one of n has
    /// everything. `None` if all are 0.
    ///
    /// R. Jain, D. Chiu and W. Hawe, DEC-TR-301, 1984: the square of the sum over n times the sum
    /// of squares.
    pub fn jain(&self) -> Option<f64> {
        let sum: f64 = self.members.iter().sum();
        let squares: f64 = self.members.iter().map(|goodput| goodput * goodput).sum();
        (squares > 0.0).then(|| sum * sum / (self.members.len() as f64 * squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(members: Vec<f64>) -> GroupOutcome {
        GroupOutcome { name: "f".into(), kind: "tcp", goodput: 0.0, members, completions: Vec::new() }
    }

    #[test]
    fn the_index_is_one_among_equals_and_a_share_where_one_has_all() {
        assert_eq!(group(vec![3.0; 5]).jain(), Some(1.0));
        assert_eq!(group(vec![0.0, 7.0, 0.0, 0.0]).jain(), Some(0.25));
        // (1 + 2 + 3)^2 / (3 x (1 + 4 + 9)).
        assert_eq!(group(vec![1.0, 2.0, 3.0]).jain(), Some(36.0 / 42.0));
        assert_eq!((group(vec![0.0, 0.0]).jain(), group(vec![]).jain()), (None, None));
        assert_eq!((group(vec![1.0, 2.0]).mean(), group(vec![]).mean()), (Some(1.5), None));
    }

    proptest! {
        #[test]
        fn the_index_lies_between_a_share_and_one_and_has_no_unit(
            members in proptest::collection::vec(0.001f64..1e4, 1..20), unit in 0.01f64..100.0
        ) {
            let n = members.len() as f64;
            let index = group(members.clone()).jain().unwrap();
            prop_assert!((1.0 / n - 1e-9..=1.0 + 1e-9).contains(&index), "{index}");
            let scaled = group(members.iter().map(|goodput| goodput * unit).collect()).jain().unwrap();
            prop_assert!((index - scaled).abs() < 1e-9);
        }
    }
}
