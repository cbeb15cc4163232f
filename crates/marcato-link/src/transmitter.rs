//! Transmitter of a link: when each packet has left.

use marcato_units::{Bytes, Rate, Time};

use crate::load::{self, Course, Load};
use crate::opportunities::Opportunities;
use crate::trace::Trace;

/// Transmitter of a link, which sends one packet after another: at a rate, at the opportunities of a trace,
/// or each at once.
///
/// ```
/// use marcato_link::Transmitter;
/// use marcato_units::{Bytes, Rate, Time};
///
/// let mut transmitter = Transmitter::new(Some(Rate::from_mbps(2)), None);
/// assert!(transmitter.may_begin(Time::ZERO));
/// assert_eq!(transmitter.begin(Time::ZERO, Bytes::new(1000)), Time::from_millis(4));
/// assert_eq!(transmitter.free_at(), Time::from_millis(4));
/// ```
#[derive(Debug)]
pub struct Transmitter {
    rate: Option<Rate>,
    opportunities: Option<Box<Opportunities>>,
    /// End of the latest transmission; with a trace, the opportunity after it if that is known.
    free_at: Time,
    /// Length and beginning of the latest transmission.
    latest: (Bytes, Time),
    /// Bytes that could have been carried, without a trace.
    course: Course,
}

impl Transmitter {
    /// Creates an idle transmitter. Without rate and trace it sends at once; with a trace, the rate matters
    /// only if it is [`Rate::ZERO`]: opportunities then pass unused.
    pub fn new(rate: Option<Rate>, trace: Option<Trace>) -> Self {
        Self {
            rate,
            opportunities: trace.map(|trace| Box::new(Opportunities::new(trace))),
            free_at: Time::ZERO,
            latest: (Bytes::ZERO, Time::ZERO),
            course: Course::new(rate),
        }
    }

    /// Returns the present rate; `None` if there never was one.
    #[inline]
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// True at rate 0: a transmission would never end, so packets wait in their queue.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.rate == Some(Rate::ZERO)
    }

    /// True if it has neither a rate nor a trace.
    #[inline]
    pub const fn sends_at_once(&self) -> bool {
        self.rate.is_none() && self.opportunities.is_none()
    }

    /// Time from which on the next transmission may begin.
    #[inline]
    pub const fn free_at(&self) -> Time {
        self.free_at
    }

    /// Changes the rate for every packet that has not begun to leave.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.rate = Some(rate);
        // The packet in transmission finishes at the rate at which it began.
        self.course.change(self.free_at.max(now), rate);
    }

    /// Lets no transmission begin before `now`.
    pub fn idle_until(&mut self, now: Time) {
        self.free_at = self.free_at.max(now);
    }

    /// Returns whether a packet may begin to leave at `now`, when the transmitter is free. With a trace it
    /// may have to wait for the next opportunity, until [`free_at`](Self::free_at).
    #[inline]
    pub fn may_begin(&mut self, now: Time) -> bool {
        let Some(opportunities) = &mut self.opportunities else { return true };
        let next = opportunities.next(now);
        if next > now {
            self.free_at = next;
        }
        next <= now
    }

    /// Sends a packet of `on_wire` bytes from `now` on. Returns the time at which it has left.
    #[inline]
    pub fn begin(&mut self, now: Time, on_wire: Bytes) -> Time {
        self.latest = (on_wire, now);
        self.free_at = match (&mut self.opportunities, self.rate) {
            (Some(opportunities), _) => opportunities.take(on_wire),
            (None, Some(rate)) => now + rate.transmission_time(on_wire),
            (None, None) => now,
        };
        self.free_at
    }

    /// Returns the bytes carried up to `now`, and those that could have been. `begun` are the bytes of all
    /// transmissions that have begun.
    pub fn load(&self, now: Time, begun: Bytes) -> Load {
        let begun = begun.get() as f64;
        match &self.opportunities {
            Some(opportunities) => {
                Load { carried: begun - opportunities.promised(now), capacity: opportunities.capacity(now) }
            }
            None => {
                let rest = load::rest(self.latest.0, self.latest.1, self.free_at, now);
                Load { carried: begun - rest, capacity: self.course.at(now) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_new_rate_holds_for_packets_that_have_not_begun() {
        // 1000 bytes at 8 kbit/s take a second.
        let mut transmitter = Transmitter::new(Some(Rate::from_kbps(8)), None);
        let packet = Bytes::new(1000);
        assert_eq!(transmitter.begin(ms(0), packet), ms(1000));
        transmitter.set_rate(ms(500), Rate::from_kbps(16));
        assert_eq!(transmitter.free_at(), ms(1000));
        let half = transmitter.load(ms(500), packet);
        assert_eq!((half.carried, half.capacity), (500.0, 500.0));
        assert_eq!(transmitter.begin(ms(1000), packet), ms(1500));
        let both = transmitter.load(ms(1500), packet * 2);
        assert_eq!((both.carried, both.capacity), (2000.0, 2000.0));
    }

    #[test]
    fn packets_wait_for_the_opportunities_of_a_trace() {
        // An opportunity for 1504 bytes every 10 ms, as in mahimahi.
        let mut transmitter = Transmitter::new(None, Some(Trace::from_millis([10]).unwrap()));
        assert!(!transmitter.sends_at_once() && !transmitter.may_begin(ms(3)));
        assert_eq!(transmitter.free_at(), ms(10));
        assert!(transmitter.may_begin(ms(10)));
        assert_eq!(transmitter.begin(ms(10), Bytes::new(1504)), ms(10));
        assert!(!transmitter.may_begin(ms(10)));
        assert_eq!(transmitter.free_at(), ms(20));
    }

    #[test]
    fn nothing_begins_at_rate_0_and_all_at_once_without_a_rate() {
        let mut stopped = Transmitter::new(Some(Rate::from_mbps(1)), None);
        stopped.set_rate(ms(5), Rate::ZERO);
        stopped.idle_until(ms(7));
        assert!(stopped.is_stopped() && stopped.free_at() == ms(7));
        let mut at_once = Transmitter::new(None, None);
        assert!(at_once.sends_at_once() && at_once.may_begin(ms(5)));
        assert_eq!(at_once.begin(ms(5), Bytes::new(1500)), ms(5));
    }
}
