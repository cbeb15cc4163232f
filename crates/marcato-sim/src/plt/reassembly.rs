//! The stream as it comes by two layers.

use crate::ranges::Ranges;

/// What has arrived of the stream.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Everything below has arrived.
    next: u64,
    /// What arrived beyond.
    beyond: Ranges,
    /// In order and not yet handed to the application.
    unread: u64,
    pub(crate) received: u64,
    pub(crate) received_low: u64,
    pub(crate) duplicates: u64,
    pub(crate) most_ranges: u64,
}

impl Reassembly {
    /// Bytes `offset..offset + len` have arrived, by a low packet or by the HCM.
    pub(crate) fn insert(&mut self, offset: u64, len: u64, low: bool) {
        let (start, end) = (offset.max(self.next), offset + len);
        let mut news = 0;
        if start == self.next && start < end && self.beyond.is_empty() {
            // In order and nothing waits: nearly always.
            news = end - start;
            self.advance(end);
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

    /// Takes what is in order.
    pub(crate) fn read(&mut self) -> u64 {
        std::mem::take(&mut self.unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
