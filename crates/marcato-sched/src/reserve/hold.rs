//! Room held for one release of a source.

use marcato_units::{Bytes, Time};

use super::source::Source;
use crate::lane::LaneSet;

/// Room held for one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) release: Time,
    /// Message of this release and the time of its offer; `None` until then.
    message: Option<(u64, Time)>,
    /// Window bytes of the message yet to be sent.
    pub(super) left: Bytes,
    /// Lanes on which the room is held.
    pub(super) on: LaneSet,
    /// Lanes on which a loss ended it.
    pub(super) dropped: LaneSet,
}

impl Hold {
    /// Empty place of a hold.
    pub(super) const NONE: Self = Self::new(Time::MAX, Bytes::ZERO);

    /// Creates a hold that is on no lane yet.
    pub(super) const fn new(release: Time, left: Bytes) -> Self {
        Self { release, message: None, left, on: LaneSet::EMPTY, dropped: LaneSet::EMPTY }
    }

    /// Returns whether the message of this release has yet to be offered.
    pub(super) const fn awaits_message(&self) -> bool {
        self.message.is_none()
    }

    /// Returns whether this hold belongs to a message.
    pub(super) fn is_of(&self, message: u64) -> bool {
        self.message.is_some_and(|(of, _)| of == message)
    }

    /// Gives the hold to the message of its release, offered at `now`.
    pub(super) const fn give_to(&mut self, message: u64, now: Time) {
        self.message = Some((message, now));
    }

    /// Returns the last instant at which the hold is of use to its source.
    pub(super) fn lapse(&self, source: &Source) -> Time {
        match self.message {
            // Bounds the hold of a caller that never reports a message as complete.
            Some((_, released)) => released + source.period,
            None => source.lapse(self.release),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_hold_lapses_a_period_after_its_message_was_offered() {
        let ms = Time::from_millis;
        let source = Source::new(Duration::from_millis(80), Bytes::kb(10), ms(100));
        let mut hold = Hold::new(ms(180), Bytes::kb(10));
        assert!(hold.awaits_message() && !hold.is_of(1));
        assert_eq!(hold.lapse(&source), ms(190), "an eighth of the period after its release");
        hold.give_to(1, ms(175));
        assert!(!hold.awaits_message() && hold.is_of(1) && !hold.is_of(2));
        assert_eq!(hold.lapse(&source), ms(255));
    }
}
