//! Detection of a standstill: time that does not advance.

use marcato_units::Time;

/// Number of events at one instant that is always legal.
const FIRST_LOOK: u64 = 1_000_000;
/// Additional events at one instant per packet and flow, beyond [`FIRST_LOOK`]. A packet passes at
/// most 255 links at one instant, and so does a response to it.
const EACH: u64 = 512;

/// Error of a run in which events follow each other without end at one instant.
///
/// It happens where packets and their acknowledgements travel in no time: on a cycle of links
/// without delay and without rate. A run stops after 1 000 000 events at one instant. The limit
/// grows by 512 for each flow, each packet in the network, and each UDP packet sent at that
/// instant. If a round trip takes a nanosecond or more, each packet causes at most two events per
/// link and instant. No such run comes near the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "time stands still at {at} after {events} events at this instant: a cycle of links has neither \
     delay nor rate: set one of them on a link of each cycle"
)]
pub struct Standstill {
    /// Instant at which time stopped.
    pub at: Time,
    /// Events at this instant.
    pub events: u64,
}

/// Counter of the events at the present instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    events: u64,
    /// Number of events at which to look; after the first look, number at which to give up.
    limit: u64,
    looked: bool,
    /// UDP packets sent at this instant: an open loop, which may send any number.
    pub(super) unasked: u64,
}

impl Instant {
    pub(super) const fn new() -> Self {
        Self { events: 0, limit: FIRST_LOOK, looked: false, unasked: 0 }
    }

    /// Counts an event. `held` returns the packets and flows of the network, and is called rarely.
    #[inline]
    pub(super) fn count(
        &mut self,
        at: Time,
        advanced: bool,
        held: impl FnOnce() -> u64,
    ) -> Option<Standstill> {
        if advanced {
            *self = Self { events: 1, ..Self::new() };
            return None;
        }
        self.events += 1;
        if self.events < self.limit { None } else { self.look(at, held()) }
    }

    #[cold]
    fn look(&mut self, at: Time, held: u64) -> Option<Standstill> {
        if self.looked {
            return Some(Standstill { at, events: self.events });
        }
        self.looked = true;
        self.limit = self.limit.saturating_add(held.saturating_add(self.unasked).saturating_mul(EACH));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_ends_after_a_million_plus_512_events_per_packet() {
        let mut instant = Instant::new();
        let at = Time::from_millis(3);
        let ended = (1u64..).find_map(|_| instant.count(at, false, || 100)).map(|it| (it.at, it.events));
        assert_eq!(ended, Some((at, 1_000_000 + 512 * 100)));
    }

    #[test]
    fn each_instant_counts_for_itself() {
        let mut instant = Instant::new();
        for _ in 0..3 {
            assert_eq!(instant.count(Time::ZERO, true, || 0), None);
            assert!((0..999_998).all(|_| instant.count(Time::ZERO, false, || 0).is_none()));
        }
    }
}
