//! Sojourn times of packets in the queue of a link.

use marcato_link::Histogram;
use marcato_units::{Duration, Time};

/// Place of a waiting packet in its link's [`Sojourns`]; the default is none.
///
/// It fits the padding of a packet. The arrival time itself would make every packet larger, also on
/// links that are not watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp([u8; 3]);

/// Greatest number of waiting packets whose sojourns are measured, which is the highest stamp.
const MOST: u32 = (1 << 24) - 1;

impl Stamp {
    /// Stamp of this place.
    fn new(place: u32) -> Self {
        let [a, b, c, _] = (place + 1).to_le_bytes();
        Self([a, b, c])
    }

    fn place(self) -> Option<u32> {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0]).checked_sub(1)
    }
}

/// Sojourn times of the packets that have left a queue, from arrival to the beginning of
/// transmission. Dropped packets do not count.
#[derive(Clone, Debug, Default)]
pub struct QueueDelays {
    /// Packets since the watch began.
    pub packets: u64,
    /// Sum of their sojourn times.
    pub sum: Duration,
    spans: Option<Histogram>,
}

impl QueueDelays {
    /// Creates the sojourn times of a queue that measures them itself: all packets, the sum of their
    /// times, and the distribution since the last restart.
    pub fn new(packets: u64, sum: Duration, spans: Histogram) -> Self {
        let spans = Some(spans).filter(|spans| spans.count() > 0);
        Self { packets, sum, spans }
    }

    /// Returns the sojourn times since the last [restart](crate::Network::restart_queue_delays);
    /// `None` if no packet has left.
    pub const fn spans(&self) -> Option<&Histogram> {
        self.spans.as_ref()
    }

    fn record(&mut self, span: Duration) {
        self.packets += 1;
        self.sum += span;
        // A histogram takes ten kilobytes, so links that carry nothing allocate none.
        self.spans.get_or_insert_default().record(span);
    }
}

/// Arrival times of the packets in a queue, and sojourn times of those that have left. O(1) per
/// packet.
#[derive(Debug, Default)]
pub(crate) struct Sojourns {
    /// Arrival times, by place.
    arrivals: Vec<Time>,
    free: Vec<u32>,
    pub(crate) left: QueueDelays,
}

impl Sojourns {
    /// Records the arrival of a packet at the queue.
    pub(crate) fn enter(&mut self, now: Time, stamp: &mut Stamp) {
        *stamp = match (self.free.pop(), u32::try_from(self.arrivals.len())) {
            (Some(place), _) => {
                self.arrivals[place as usize] = now;
                Stamp::new(place)
            }
            (None, Ok(place)) if place < MOST => {
                self.arrivals.push(now);
                Stamp::new(place)
            }
            _ => Stamp::default(),
        };
    }

    /// Records a packet that passes without waiting.
    pub(crate) fn pass(&mut self) {
        self.left.record(Duration::ZERO);
    }

    /// Records a packet that begins to leave. A packet that arrived before the watch is ignored.
    pub(crate) fn leave(&mut self, now: Time, stamp: &mut Stamp) {
        if let Some(place) = self.free_place(stamp) {
            self.left.record(now.since(self.arrivals[place as usize]));
        }
    }

    /// Forgets a packet that was dropped.
    pub(crate) fn forget(&mut self, stamp: &mut Stamp) {
        self.free_place(stamp);
    }

    /// Restarts the distribution; waiting packets keep their arrival times.
    pub(crate) fn restart(&mut self) {
        self.left.spans = None;
    }

    fn free_place(&mut self, stamp: &mut Stamp) -> Option<u32> {
        let place = std::mem::take(stamp).place()?;
        self.free.push(place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_each_packet_has_its_own_time() {
        let mut sojourns = Sojourns::default();
        let mut stamps = [Stamp::default(); 3];
        for (stamp, at) in stamps.iter_mut().zip([1, 2, 3]) {
            sojourns.enter(Time::from_millis(at), stamp);
        }
        sojourns.leave(Time::from_millis(12), &mut stamps[1]);
        sojourns.forget(&mut stamps[0]);
        sojourns.enter(Time::from_millis(13), &mut stamps[0]);
        sojourns.leave(Time::from_millis(13), &mut stamps[0]);
        sojourns.leave(Time::from_millis(23), &mut stamps[2]);
        // It has already left, so it is not counted twice.
        sojourns.leave(Time::from_millis(99), &mut stamps[2]);
        assert_eq!(sojourns.arrivals.len(), 3);
        assert_eq!((sojourns.left.packets, sojourns.left.sum), (3, Duration::from_millis(30)));
        let spans = sojourns.left.spans().unwrap();
        assert_eq!((spans.min(), spans.max()), (Some(Duration::ZERO), Some(Duration::from_millis(20))));
        sojourns.restart();
        assert!(sojourns.left.spans().is_none() && sojourns.left.packets == 3);
    }

    #[test]
    fn stamps_stand_for_all_places_and_the_default_for_none() {
        assert_eq!(Stamp::default().place(), None);
        for place in [0, 1, 255, 256, MOST - 1] {
            assert_eq!(Stamp::new(place).place(), Some(place));
        }
    }
}
