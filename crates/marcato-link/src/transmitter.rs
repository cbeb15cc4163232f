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
