//! Pace of background data in slow start.
//!
//! A window that doubles leaves twice as fast as the bottleneck sends it on, and half of it stands in the
//! queue, although all of it fits the path. QUIC lanes pace by themselves, and the feeder of simulated TCP
//! has no timer.

use marcato_units::{Bytes, Duration, Rate, Time};

/// Time by which looks come late. Bytes of that time, and of a segment, leave together.
const LATE: Duration = Duration::from_millis(2);

/// Pacer of what may be written, in whole segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pacer {
    /// Earliest time from which bytes may leave that are written now.
    earliest: Time,
    /// Time at which the bytes written so far would have left at the pace.
    until: Time,
}

impl Pacer {
    /// Returns how many bytes of `size` may be written now: whole segments.
    pub(super) fn room(&mut self, now: Time, pace: Rate, size: Bytes, mss: Bytes) -> Bytes {
        let burst = LATE + pace.transmission_time(mss);
        self.earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(burst);
        if now < self.until {
            return Bytes::ZERO;
        }
        let due = pace.bytes_in(now.since(self.until).min(burst)).max(mss);
        Bytes::new(due.get() / mss.get() * mss.get()).min(size)
    }

    /// Takes note of bytes that were written since.
    pub(super) fn wrote(&mut self, pace: Rate, bytes: Bytes) {
        self.until = self.until.max(self.earliest) + pace.transmission_time(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes::new(1250);
    /// A segment in each millisecond.
    const PACE: Rate = Rate::from_mbps(10);

    /// Segments written in 100 ms, if the pacer is asked at an interval in µs.
    fn written(interval: usize) -> f64 {
        let mut pacer = Pacer::default();
        let asked = (0..100_000).step_by(interval).map(|at| {
            let room = pacer.room(Time::from_micros(at), PACE, MSS * 8, MSS);
            pacer.wrote(PACE, room);
            room.get()
        });
        asked.sum::<u64>() as f64 / MSS.get() as f64
    }

    #[test]
    fn bytes_leave_at_the_pace_however_often_it_is_asked() {
        for interval in [50, 400, 1100, 1900] {
            let segments = written(interval);
            assert!((97.0..=103.0).contains(&segments), "{interval} µs: {segments}");
        }
    }

    #[test]
    fn a_pause_earns_no_more_than_a_burst() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.room(Time::from_secs(9), PACE, MSS * 8, MSS), MSS * 3);
    }
}
