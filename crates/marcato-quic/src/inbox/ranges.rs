//! Sets of integers that mostly grow from 0 upwards without gaps.

use std::collections::BTreeMap;

/// Set of integers: all below a floor, and disjoint, non-adjacent half-open ranges above it.
///
/// Numbers that count up from 0 nearly in order form one floor, and take memory only where there
/// are gaps. Examples are the bytes of a stream and the numbers of messages. Every operation costs
/// O(log ranges), plus the ranges that it merges.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    floor: u64,
    above: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Least number that is not in the set.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Number of ranges above the floor, which is the number of gaps.
    pub(crate) fn gaps(&self) -> usize {
        self.above.len()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.covered_to(number).is_some()
    }

    /// End of the range that contains `number`; `None` if none does.
    fn covered_to(&self, number: u64) -> Option<u64> {
        if number < self.floor {
            return Some(self.floor);
        }
        let (_, &end) = self.above.range(..=number).next_back()?;
        (number < end).then_some(end)
    }

    /// First part of `start..end` that is not in the set.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let from = self.covered_to(start).unwrap_or(start);
        if from >= end {
            return None;
        }
        let to = self.above.range(from..).next().map_or(end, |(&next, _)| next.min(end));
        Some((from, to))
    }

    /// Adds `start..end`, and merges ranges that touch it.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        if let Some((&before, &before_end)) = self.above.range(..start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.above.range(start..=end).next() {
            self.above.remove(&next);
            end = end.max(next_end);
        }
        if start <= self.floor {
            self.floor = self.floor.max(end);
        } else {
            self.above.insert(start, end);
        }
    }

    /// Adds `number`.
    pub(crate) fn insert_one(&mut self, number: u64) {
        self.insert(number, number.saturating_add(1));
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test numbers are small")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_in_order_takes_no_room() {
        let mut set = RangeSet::default();
        for number in 0..1000 {
            set.insert_one(number);
            assert_eq!((set.floor(), set.gaps()), (number + 1, 0));
        }
    }

    proptest! {
        #[test]
        fn a_range_set_agrees_with_a_plain_set_of_numbers(
            inserts in prop::collection::vec((0u64..60, 0u64..12), 0..30), probe in (0u64..70, 0u64..20)
        ) {
            let mut set = RangeSet::default();
            let mut numbers = [false; 100];
            for (start, len) in inserts {
                set.insert(start, start + len);
                numbers[start as usize..(start + len) as usize].fill(true);
            }
            for number in 0..100u64 {
                prop_assert_eq!(set.contains(number), numbers[number as usize]);
            }
            prop_assert_eq!(set.floor(), numbers.iter().position(|&in_it| !in_it).unwrap() as u64);
            let (start, end) = (probe.0, probe.0 + probe.1);
            let first = (start..end).find(|&n| !numbers[n as usize]);
            let gap = first.map(|from| (from, (from..end).find(|&n| numbers[n as usize]).unwrap_or(end)));
            prop_assert_eq!(set.first_gap(start, end), gap);
            // Disjoint, ascending, never touching, not even the floor.
            let list: Vec<_> = set.above.iter().map(|(&start, &end)| (start, end)).collect();
            prop_assert!(list.windows(2).all(|w| w[0].1 < w[1].0));
            prop_assert!(list.iter().all(|&(start, end)| set.floor < start && start < end));
        }
    }
}
