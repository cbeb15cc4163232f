//! Pacer: spreads the packets of a lane over a round trip.

use marcato_units::{Bytes, Duration, Time};

/// Token bucket, in bytes. The controller sets its rate: its own rate if it has one, else 1.25
/// windows per round trip (RFC 9002 §7.7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    /// Bytes per second.
    rate: u64,
    /// Bytes that may leave at once.
    burst: u64,
    /// Tokens, in bytes times nanoseconds per second: with whole bytes, low rates would lose to
    /// rounding. Urgent data is never delayed but counts, so the balance may be negative.
    tokens: i128,
    at: Time,
}

const SECOND: i128 = 1_000_000_000;

impl Pacer {
    /// Creates a full bucket, with the rate that [`adjust`](Self::adjust) sets.
    pub(crate) fn new(now: Time, own: Option<u64>, window: Bytes, srtt: Duration, mtu: Bytes) -> Self {
        let mut pacer = Self { rate: 1, burst: 0, tokens: 0, at: now };
        pacer.adjust(now, own, window, srtt, mtu);
        pacer.tokens = pacer.full();
        pacer
    }

    /// Updates the rate: the controller's `own` in bytes per second, or the derived one.
    pub(crate) fn adjust(&mut self, now: Time, own: Option<u64>, window: Bytes, srtt: Duration, mtu: Bytes) {
        self.refill(now);
        let derived = u128::from(window.get()) * 1_250_000_000 / srtt.as_nanos().max(1);
        let rate = own.unwrap_or_else(|| u64::try_from(derived).unwrap_or(u64::MAX));
        self.rate = rate.clamp(1, u64::MAX >> 8);
        // Two milliseconds' worth, at least 10 and at most 64 packets: timers fire late, and slow
        // start begins with ten.
        let span = u128::from(self.rate) * 2 / 1000;
        let (few, many) = (mtu.get() * 10, mtu.get() * 64);
        self.burst = u64::try_from(span).unwrap_or(u64::MAX).clamp(few, many.max(few));
        self.tokens = self.tokens.min(self.full());
    }

    /// Tokens of a full bucket.
    fn full(&self) -> i128 {
        i128::from(self.burst) * SECOND
    }

    fn refill(&mut self, now: Time) {
        let nanos = i128::try_from(now.since(self.at).as_nanos()).unwrap_or(i128::MAX / SECOND);
        self.at = self.at.max(now);
        let tokens = self.tokens.saturating_add(nanos.saturating_mul(i128::from(self.rate)));
        self.tokens = tokens.min(self.full());
    }

    /// Time at which a packet of this length may leave; `now` if it may leave now.
    pub(crate) fn ready(&mut self, now: Time, len: Bytes) -> Time {
        self.refill(now);
        let missing = i128::from(len.get()) * SECOND - self.tokens;
        if missing <= 0 {
            return now;
        }
        let nanos = missing / i128::from(self.rate) + 1;
        now + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Charges a packet of this length that has left.
    pub(crate) fn sent(&mut self, now: Time, len: Bytes) {
        self.refill(now);
        self.tokens -= i128::from(len.get()) * SECOND;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: Bytes = Bytes::new(1250);

    fn at_a_megabyte() -> Pacer {
        Pacer::new(Time::ZERO, Some(1_000_000), Bytes::kb(100), Duration::from_millis(50), MTU)
    }

    #[test]
    fn a_bulk_sender_is_paced_at_1_25_windows_per_round_trip() {
        let (window, srtt) = (Bytes::kb(125), Duration::from_millis(100));
        let mut pacer = Pacer::new(Time::ZERO, None, window, srtt, MTU);
        let (mut now, mut sent) = (Time::ZERO, Bytes::ZERO);
        while now < Time::from_secs(10) {
            pacer.adjust(now, None, window, srtt, MTU);
            now = now.max(pacer.ready(now, MTU));
            pacer.sent(now, MTU);
            sent += MTU;
        }
        // 1.25 MB/s · 1.25 for 10 s, and the initial burst.
        let expected = 15_625_000;
        assert!((expected..expected + 64 * MTU.get()).contains(&sent.get()), "{sent}");
    }

    #[test]
    fn after_a_pause_two_milliseconds_leave_within_bounds() {
        // 10 packets at least, and 64 at most.
        for (rate, packets) in [(1_000_000, 10), (20_000_000, 32), (1_000_000_000, 64)] {
            let mut pacer =
                Pacer::new(Time::ZERO, Some(rate), Bytes::kb(100), Duration::from_millis(50), MTU);
            for pause in [1, 60] {
                let now = Time::from_secs(pause);
                let sent =
                    std::iter::from_fn(|| (pacer.ready(now, MTU) <= now).then(|| pacer.sent(now, MTU)));
                assert_eq!(sent.count(), packets, "{rate} bytes per second");
            }
        }
    }

    #[test]
    fn a_wait_ends_when_it_says() {
        let mut pacer = at_a_megabyte();
        let mut now = Time::ZERO;
        while pacer.ready(now, MTU) <= now {
            pacer.sent(now, MTU);
        }
        now = pacer.ready(now, MTU);
        assert_eq!(pacer.ready(now, MTU), now);
        // 1250 bytes at 1 MB/s.
        assert!(now <= Time::from_micros(1251), "{now:?}");
    }

    #[test]
    fn urgent_data_goes_at_once_and_is_paid_for_by_what_comes_after() {
        let mut pacer = at_a_megabyte();
        let burst = Bytes::new(pacer.burst);
        pacer.sent(Time::ZERO, burst + Bytes::kb(100));
        let ready = pacer.ready(Time::ZERO, MTU);
        assert!(ready > Time::from_millis(101) && ready < Time::from_millis(102), "{ready:?}");
    }
}
