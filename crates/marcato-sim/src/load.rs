//! What a link has carried, and what it could have.

use marcato_units::{Bytes, Rate, Time};

/// Bytes that a link has put on its wire up to a time, and those that it could have put there. The share that one
/// difference of two has in the other is the link's utilisation, and never above 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes on the wire, framing included. Of a packet that is being sent, the part that has left.
    pub carried: f64,
    /// Bytes that could have been there; infinite without a rate and without a trace. A new rate counts from when the
    /// packet is out that was being sent at the old one.
    pub capacity: f64,
}

/// What a link with a rate could have carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// Bytes up to a time.
    bytes: f64,
    upto: Time,
    /// The rate before that time, and after it; `None` is without bound.
    rates: [Option<Rate>; 2],
}

impl Course {
    pub(crate) const fn new(rate: Option<Rate>) -> Self {
        Self { bytes: 0.0, upto: Time::ZERO, rates: [rate; 2] }
    }

    /// The rate is another from `at` on, which is not before the last change.
    pub(crate) fn change(&mut self, at: Time, rate: Rate) {
        *self = Self { bytes: self.at(at), upto: at, rates: [self.rates[1], Some(rate)] };
    }

    /// Bytes up to `now`; less than a packet's time before the last change at the earliest.
    pub(crate) fn at(&self, now: Time) -> f64 {
        let bytes = |rate: Option<Rate>, from: Time, to: Time| match rate {
            Some(rate) => rate.as_bps() as f64 / 8.0 * to.since(from).as_secs_f64(),
            None => f64::INFINITY,
        };
        if now < self.upto {
            self.bytes - bytes(self.rates[0], now, self.upto)
        } else {
            self.bytes + bytes(self.rates[1], self.upto, now)
        }
    }
}

/// The part of a packet on the transmitter that has not left at `now`, if it began at `from` and is out at `to`.
pub(crate) fn rest(len: Bytes, from: Time, to: Time, now: Time) -> f64 {
    let (whole, left) = (to.since(from), to.since(now));
    if left.is_zero() { 0.0 } else { len.get() as f64 * left.as_secs_f64() / whole.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn capacity_follows_the_changes_of_a_rate() {
        let mut course = Course::new(Some(Rate::from_kbps(8)));
        let from = course.at(ms(1_000));
        course.change(ms(2_000), Rate::ZERO);
        assert_eq!(course.at(ms(2_800)) - course.at(ms(2_200)), 0.0);
        assert_eq!(course.at(ms(1_500)), 1_500.0);
        course.change(ms(3_000), Rate::from_kbps(16));
        assert_eq!(course.at(ms(4_000)) - from, 3_000.0);
        assert_eq!(Course::new(None).at(ms(1)), f64::INFINITY);
    }

    #[test]
    fn half_a_packet_is_left_in_the_middle_of_its_time() {
        assert_eq!(rest(Bytes::new(1000), ms(2), ms(4), ms(3)), 500.0);
        assert_eq!(rest(Bytes::new(1000), ms(2), ms(4), ms(4)), 0.0);
    }
}
