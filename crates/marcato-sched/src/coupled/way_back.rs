//! Queueing delay on the way back, by the peer's timestamps.

use marcato_units::{Duration, Time};

/// Age at which a bucket of the least delay is closed. A clock of 50 ppm has gone 3 ms astray by then.
const BUCKET: Duration = Duration::from_secs(60);

/// Estimator of the time that acknowledgements wait on the way back.
///
/// A download of the same user, or a slow uplink of the peer, delays acknowledgements. That lengthens the round trip,
/// and says nothing about the queue that our data meets. A timestamp that the peer has put into an acknowledgement
/// (RFC 7323 §3.2) tells the two apart, without a common clock: only differences count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayBack {
    tick: Duration,
    /// First difference of the clocks, in ticks; later ones are relative to it.
    first: Option<u32>,
    /// Least differences of the bucket before and of this one, in nanoseconds, and its beginning.
    least: [i64; 2],
    bucket: Time,
}

impl WayBack {
    /// Estimator for a peer whose timestamps count ticks of this length.
    pub const fn new(tick: Duration) -> Self {
        Self { tick, first: None, least: [i64::MAX; 2], bucket: Time::ZERO }
    }

    /// Takes note of an acknowledgement that arrives now and was sent at this timestamp. Returns the time that it has
    /// waited on the way, beyond the least of the last minute or two, as far as ticks can tell.
    #[expect(clippy::cast_possible_truncation, reason = "the timestamp clock wraps by design")]
    pub fn acknowledged(&mut self, now: Time, stamp: u32) -> Duration {
        let tick = self.tick.as_nanos().max(1);
        let elapsed = now.since(Time::ZERO).as_nanos();
        let difference = ((elapsed / tick) as u32).wrapping_sub(stamp);
        let first = *self.first.get_or_insert(difference);
        // Within a tick, our own clock knows more.
        let ticks = i64::from(difference.wrapping_sub(first).cast_signed());
        let delay = ticks.saturating_mul(tick as i64) + (elapsed % tick) as i64;
        if now.since(self.bucket) >= BUCKET {
            (self.least, self.bucket) = ([self.least[1], i64::MAX], now);
        }
        self.least[1] = self.least[1].min(delay);
        let least = self.least[0].min(self.least[1]);
        // Each of both was rounded by up to a tick.
        let waited = delay.saturating_sub(least).saturating_sub(tick as i64);
        Duration::from_nanos(u64::try_from(waited).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    /// Waits that are told for acknowledgements that were sent and arrive at these times in ms, by a peer whose clock
    /// began elsewhere.
    fn waits(offset: u32, sent: &[(u64, u64)]) -> std::vec::Vec<u64> {
        let mut way = WayBack::new(TICK);
        let told = sent.iter().map(|&(sent, arrives)| {
            let stamp = offset.wrapping_add(u32::try_from(sent).unwrap());
            way.acknowledged(Time::from_millis(arrives), stamp)
        });
        told.map(|wait| u64::try_from(wait.as_millis()).unwrap()).collect()
    }

    #[test]
    fn clocks_that_differ_tell_the_wait_of_an_acknowledgement() {
        for offset in [0, 77_000, u32::MAX - 5] {
            // 20 ms without a queue, and a tick less than what comes on top.
            assert_eq!(waits(offset, &[(0, 20), (10, 30), (20, 70), (30, 80), (40, 60)]), [0, 0, 29, 29, 0]);
        }
    }

    #[test]
    fn an_estimate_that_began_in_a_queue_is_corrected() {
        assert_eq!(waits(5, &[(0, 80), (10, 30), (20, 100)]), [0, 0, 59]);
    }

    #[test]
    fn a_tick_more_or_less_is_no_wait() {
        let mut way = WayBack::new(TICK);
        for micros in (0..50_000u64).step_by(333) {
            let stamp = u32::try_from(micros / 1000).unwrap();
            let now = Time::from_micros(micros + 20_400);
            assert_eq!(way.acknowledged(now, stamp), Duration::ZERO);
        }
    }

    #[test]
    fn a_clock_that_goes_astray_is_forgiven() {
        let mut way = WayBack::new(TICK);
        for second in 0..600u64 {
            // 50 ppm slower than ours: 30 ms in ten minutes.
            let stamp = u32::try_from(second * 1000 - second / 20).unwrap();
            let wait = way.acknowledged(Time::from_millis(second * 1000 + 20), stamp);
            assert!(wait <= Duration::from_millis(6), "{second} s: {wait:?}");
        }
    }
}
