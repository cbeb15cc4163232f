//! Reassembly of the stream from two layers.

use crate::ranges::Ranges;

/// Received parts of the stream.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Offset below which everything has arrived.
    next: u64,
    /// Ranges that arrived beyond.
    beyond: Ranges,
    /// Bytes in order that the application has not read.
    unread: u64,
    pub(crate) received: u64,
    pub(crate) received_low: u64,
    pub(crate) duplicates: u64,
    pub(crate) most_ranges: u64,
}

impl Reassembly {
    /// Adds bytes `offset..offset + len`, from a low packet or from the HCM.
    pub(crate) fn insert(&mut self, offset: u64, len: u64, low: bool) {
        let (start, end) = (offset.max(self.next), offset + len);
        let mut news = 0;
        let beyond = self.beyond.first();
        if start == self.next && start < end && beyond.is_none_or(|(from, _)| end <= from) {
            // Most common case: the next missing bytes, without overlap.
            news = end - start;
            match beyond {
                Some((from, until)) if from == end => {
                    self.beyond.remove_first();
                    self.advance(until);
                }
                _ => self.advance(end),
            }
        } else if start < end {
            let mut from = start;
            while let Some((gap, gap_end)) = self.beyond.first_gap(from, end) {
                news += gap_end - gap;
                from = gap_end;
            }
            self.beyond.insert(start, end);
            if let Some((_, covered)) = self.beyond.covering(self.next) {
                self.beyond.remove_below(covered);
                self.advance(covered);
            }
            self.most_ranges = self.most_ranges.max(self.beyond.len() as u64);
        }
        self.received += news;
        self.duplicates += len - news;
        if low {
            self.received_low += news;
        }
    }

    fn advance(&mut self, next: u64) {
        self.unread += next - self.next;
        self.next = next;
    }

    /// Takes the bytes in order.
    pub(crate) fn read(&mut self) -> u64 {
        std::mem::take(&mut self.unread)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Handles pieces that arrive twice, early or in part.
        #[test]
        fn reassembly_equals_a_plain_set_of_bytes(
            pieces in prop::collection::vec((0u64..60, 0u64..12, any::<bool>()), 0..60),
        ) {
            let mut reassembly = Reassembly::default();
            let mut arrived = BTreeSet::new();
            let (mut low, mut came, mut read) = (0, 0, 0);
            for (offset, len, is_low) in pieces {
                let before = arrived.len();
                arrived.extend(offset..offset + len);
                came += len;
                low += if is_low { arrived.len() - before } else { 0 };
                reassembly.insert(offset, len, is_low);
                read += reassembly.read();
                prop_assert_eq!(read, (0..).find(|byte| !arrived.contains(byte)).unwrap_or_default());
                prop_assert_eq!(reassembly.received, arrived.len() as u64);
                prop_assert_eq!(reassembly.received_low, low as u64);
                prop_assert_eq!(reassembly.duplicates, came - arrived.len() as u64);
            }
        }
    }

    #[test]
    fn each_byte_counts_once_and_is_read_in_order() {
        let mut reassembly = Reassembly::default();
        reassembly.insert(1000, 1000, true);
        assert_eq!(reassembly.read(), 0);
        reassembly.insert(500, 1000, false);
        reassembly.insert(0, 500, false);
        assert_eq!(reassembly.read(), 2000);
        reassembly.insert(0, 2500, true);
        assert_eq!(reassembly.read(), 500);
        assert_eq!((reassembly.received, reassembly.received_low, reassembly.duplicates), (2500, 1500, 2500));
    }
}
