//! Receipt and acknowledgement of low packets.

use marcato_units::Time;
use marcato_units::{Duration, Layer};

use super::{PltConfig, Wide};
use crate::ranges::Ranges;

/// Greatest number of ranges in one acknowledgement: those that fit the options of a TCP header
/// without timestamps.
pub(crate) const MOST_RANGES: u32 = 4;
/// Ranges that the receiver stores. Packets below are no longer acknowledged, as the sender has
/// already given them up.
const REMEMBERED: usize = 64;

/// Acknowledgement of low packets by ranges of their numbers: that of the latest arrival first, the
/// others in descending order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LowAck {
    ranges: [(Wide, u32); MOST_RANGES as usize],
    len: u8,
}

impl LowAck {
    fn push(&mut self, (start, end): (u64, u64)) {
        if let Some(slot) = self.ranges.get_mut(usize::from(self.len)) {
            // A range of more than 2^32 packets is cut to its end.
            let len = u32::try_from(end - start).unwrap_or(u32::MAX);
            *slot = (Wide::new(end - u64::from(len)), len);
            self.len += 1;
        }
    }

    /// Iterates over the ranges, `start..end`.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges[..usize::from(self.len)]
            .iter()
            .map(|&(start, len)| (start.get(), start.get() + u64::from(len)))
    }

    /// Returns the length of its options in bytes, laid out like SACK.
    pub(crate) fn options(&self) -> u32 {
        4 + 8 * u32::from(self.len)
    }
}

/// Receiving half of the low layer.
#[derive(Debug)]
pub(crate) struct LowReceiver {
    arrived: Ranges,
    latest: u64,
    every: u32,
    delay: Duration,
    pub(crate) layer: Layer,
    pending: u32,
    ack_now: bool,
    pub(crate) ack_at: Option<Time>,
}

impl LowReceiver {
    pub(crate) fn new(config: &PltConfig) -> Self {
        Self {
            arrived: Ranges::default(),
            latest: 0,
            every: config.ack_every,
            delay: config.ack_delay,
            layer: config.ack_layer,
            pending: 0,
            ack_now: false,
            ack_at: None,
        }
    }

    /// Handles the arrival of the low packet with this number.
    pub(crate) fn on_data(&mut self, now: Time, number: u64) {
        let in_order = self.arrived.last().is_none_or(|(_, end)| number == end);
        self.arrived.insert(number, number + 1);
        while self.arrived.len() > REMEMBERED {
            self.arrived.remove_first();
        }
        self.latest = number;
        self.pending += 1;
        if !in_order || self.pending >= self.every {
            self.ack_now = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + self.delay);
        }
    }

    pub(crate) fn on_timer(&mut self, now: Time) {
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            self.ack_now = true;
        }
    }

    /// Takes the acknowledgement, if one is due.
    pub(crate) fn take_ack(&mut self) -> Option<LowAck> {
        if !std::mem::take(&mut self.ack_now) {
            return None;
        }
        self.pending = 0;
        self.ack_at = None;
        let mut ack = LowAck::default();
        let first = self.arrived.covering(self.latest);
        if let Some(range) = first {
            ack.push(range);
        }
        for range in self.arrived.iter().rev().take(MOST_RANGES as usize) {
            if Some(range) != first {
                ack.push(range);
            }
        }
        Some(ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(receiver: &mut LowReceiver) -> Option<Vec<(u64, u64)>> {
        receiver.take_ack().map(|ack| ack.ranges().collect())
    }

    #[test]
    fn the_range_of_the_latest_is_reported_first_then_the_highest() {
        let mut receiver = LowReceiver::new(&PltConfig::default());
        for number in [0, 1, 3, 5, 7, 9, 11] {
            receiver.on_data(Time::ZERO, number);
        }
        assert_eq!(ranges(&mut receiver), Some(vec![(11, 12), (9, 10), (7, 8), (5, 6)]));
        assert_eq!(ranges(&mut receiver), None);
        receiver.on_data(Time::ZERO, 2);
        assert_eq!(ranges(&mut receiver), Some(vec![(0, 4), (11, 12), (9, 10), (7, 8)]));
    }

    #[test]
    fn every_third_packet_is_acked_gaps_at_once_the_rest_by_timer() {
        let mut receiver = LowReceiver::new(&PltConfig { ack_every: 3, ..PltConfig::default() });
        let mut due = Vec::new();
        for number in [0, 1, 2, 3, 5, 6] {
            receiver.on_data(Time::ZERO, number);
            due.push(receiver.take_ack().is_some());
        }
        assert_eq!(due, [false, false, true, false, true, false]);
        assert_eq!(receiver.ack_at, Some(Time::from_millis(40)));
        receiver.on_timer(Time::from_millis(40));
        assert!(receiver.take_ack().is_some());
    }

    #[test]
    fn the_record_of_low_packets_is_bounded() {
        let mut receiver = LowReceiver::new(&PltConfig::default());
        for number in 0..1000 {
            receiver.on_data(Time::ZERO, 2 * number);
        }
        assert_eq!(receiver.arrived.len(), REMEMBERED);
    }
}
