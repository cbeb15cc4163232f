//! Sets of sequence ranges.

use std::collections::VecDeque;

/// Set of disjoint, non-adjacent half-open ranges in ascending order.
///
/// A TCP receiver stores what arrived out of order; a sender stores what was SACKed. Look-ups are
/// binary searches, except at the upper end, where a transfer grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the lowest range.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.ranges.front().copied()
    }

    /// Iterates over the ranges in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    /// Returns the highest range.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        self.ranges.back().copied()
    }

    /// Removes the lowest range.
    pub(crate) fn remove_first(&mut self) {
        self.ranges.pop_front();
    }

    /// Returns the range that contains `point`.
    pub(crate) fn covering(&self, point: u64) -> Option<(u64, u64)> {
        let last = self.last()?;
        let range = if last.0 <= point {
            last
        } else {
            let after = self.ranges.partition_point(|&(start, _)| start <= point);
            *self.ranges.get(after.checked_sub(1)?)?
        };
        (point < range.1).then_some(range)
    }

    /// Returns the first part of `start..end` that is not in the set.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let from = self.covering(start).map_or(start, |(_, covered)| covered);
        if from >= end {
            return None;
        }
        if self.last().is_none_or(|(last, _)| last <= from) {
            return Some((from, end));
        }
        let after = self.ranges.partition_point(|&(start, _)| start <= from);
        let to = self.ranges.get(after).map_or(end, |&(next, _)| next.min(end));
        Some((from, to))
    }

    /// Adds `start..end`, and merges it with ranges that overlap or touch.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.ranges.back_mut() {
            Some(last) if last.0 > start => {}
            Some(last) if last.1 >= start => {
                last.1 = last.1.max(end);
                return;
            }
            _ => {
                self.ranges.push_back((start, end));
                return;
            }
        }
        // The ranges that overlap or touch lie between these two indices.
        let first = self.ranges.partition_point(|&(_, e)| e < start);
        let last = self.ranges.partition_point(|&(s, _)| s <= end);
        if first == last {
            self.ranges.insert(first, (start, end));
            return;
        }
        let merged = (self.ranges[first].0.min(start), self.ranges[last - 1].1.max(end));
        self.ranges[first] = merged;
        self.ranges.drain(first + 1..last);
    }

    /// Removes everything below `point`.
    pub(crate) fn remove_below(&mut self, point: u64) {
        while let Some(range) = self.ranges.front_mut() {
            if range.1 <= point {
                self.ranges.pop_front();
            } else {
                range.0 = range.0.max(point);
                break;
            }
        }
    }

    /// Returns the number of bytes in the set.
    #[cfg(test)]
    fn total(&self) -> u64 {
        self.ranges.iter().map(|&(start, end)| end - start).sum()
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test numbers are small, or wrap on purpose")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut ranges = Ranges::default();
        ranges.insert(10, 20);
        ranges.insert(30, 40);
        ranges.insert(20, 30);
        assert_eq!(ranges.first(), Some((10, 40)));
        assert_eq!(ranges.len(), 1);
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_plain_set_of_points(
            inserts in prop::collection::vec((0u64..60, 0u64..12), 0..30), cut in 0u64..60, probe in (0u64..60, 0u64..20)
        ) {
            let mut ranges = Ranges::default();
            let mut points = [false; 80];
            for (start, len) in inserts {
                ranges.insert(start, start + len);
                points[start as usize..(start + len) as usize].fill(true);
            }
            ranges.remove_below(cut);
            points[..cut as usize].fill(false);
            prop_assert_eq!(ranges.total(), points.iter().filter(|&&p| p).count() as u64);
            for point in 0..80u64 {
                prop_assert_eq!(ranges.covering(point).is_some(), points[point as usize]);
            }
            let (start, end) = (probe.0, probe.0 + probe.1);
            let first = (start..end).find(|&p| !points[p as usize]);
            let gap = first.map(|from| (from, (from..end).find(|&p| points[p as usize]).unwrap_or(end)));
            prop_assert_eq!(ranges.first_gap(start, end), gap);
            // Disjoint, ascending, never adjacent.
            let list: Vec<_> = ranges.ranges.iter().copied().collect();
            prop_assert!(list.windows(2).all(|w| w[0].1 < w[1].0));
        }
    }
}
