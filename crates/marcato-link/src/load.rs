//! Bytes that a link has carried, and those that it could have carried.

use marcato_units::{Bytes, Rate, Time};

/// Bytes that a link has put on its wire up to a time, and those that it could have put there. The
/// quotient of two differences is the link's utilisation over a span, and is never above 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes on the wire, framing included. A packet in transmission counts by the part that has
    /// left.
    pub carried: f64,
    /// Bytes that could have been on the wire; infinite without a rate and a trace. A new rate
    /// counts from the end of the transmission in progress.
    pub capacity: f64,
}

/// Greatest relative rounding error of a full link's utilisation.
const ROUNDING: f64 = 1e-9;

impl Load {
    /// Returns the share of the link's capacity that was used since `before`; `None` if the capacity
    /// was unbounded or zero.
    pub fn utilisation_since(self, before: Self) -> Option<f64> {
        let (carried, capacity) = (self.carried - before.carried, self.capacity - before.capacity);
        if !capacity.is_finite() || capacity <= 0.0 {
            return None;
        }
        let share = carried / capacity;
        // Both are sums of many floats, so only their rounding errors are removed.
        Some(if share > 1.0 && share < 1.0 + ROUNDING {
            1.0
        } else if share < 0.0 && share > -ROUNDING {
            0.0
        } else {
            share
        })
    }
}

/// Bytes that a link with a rate could have carried.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Bytes up to `upto`.
    bytes: f64,
    upto: Time,
    /// Rate before `upto` and after it; `None` is unbounded.
    rates: [Option<Rate>; 2],
}

impl Course {
    /// Creates the course of a link that begins with this rate; `None` is unbounded.
    pub const fn new(rate: Option<Rate>) -> Self {
        Self { bytes: 0.0, upto: Time::ZERO, rates: [rate; 2] }
    }

    /// Changes the rate from `at` on, which is not before the last change.
    pub fn change(&mut self, at: Time, rate: Rate) {
        *self = Self { bytes: self.at(at), upto: at, rates: [self.rates[1], Some(rate)] };
    }

    /// Returns the bytes up to `now`, which may precede the last change by less than a packet's
    /// time.
    pub fn at(&self, now: Time) -> f64 {
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

/// Returns the bytes of a transmission from `from` to `to` that have not left at `now`.
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
    fn zero_or_infinite_capacity_has_no_utilisation() {
        let load = |carried, capacity| Load { carried, capacity };
        assert_eq!(load(10.0, 20.0).utilisation_since(load(5.0, 10.0)), Some(0.5));
        assert_eq!(load(5.0, 10.0).utilisation_since(load(5.0, 10.0)), None);
        assert_eq!(load(8.0, f64::INFINITY).utilisation_since(load(5.0, f64::INFINITY)), None);
    }

    #[test]
    fn half_a_packet_is_left_in_the_middle_of_its_time() {
        assert_eq!(rest(Bytes::new(1000), ms(2), ms(4), ms(3)), 500.0);
        assert_eq!(rest(Bytes::new(1000), ms(2), ms(4), ms(4)), 0.0);
    }
}
