//! Events of the Conductor, for an observer.

use marcato_units::{Bytes, Priority};

use super::error::OfferError;
use super::message::{Grant, Message, MessageId};

/// Reason for which a message was removed before all of it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// The application cancelled it.
    Cancelled,
    /// Its level is being discarded (Save-Data).
    Discarded,
    /// Its lifetime was over.
    Expired,
    /// It was shed under persistent congestion.
    Shed,
    /// A more urgent message needed its room.
    Evicted,
}

/// Event of a message or a level.
///
/// An application that keeps payload by [`MessageId`] frees it at two events: at a
/// [`Granted`](Self::Granted) with `fin` that was not refused, and at [`Removed`](Self::Removed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message was accepted.
    Offered {
        /// Id of the message.
        id: MessageId,
        /// Message offered.
        message: Message,
    },
    /// A message was not accepted.
    OfferRefused {
        /// Message offered.
        message: Message,
        /// Reason for the refusal.
        reason: OfferError,
    },
    /// A chunk was granted.
    Granted(Grant),
    /// The engine took only a part of the latest grant.
    Refused {
        /// Latest grant.
        grant: Grant,
        /// Bytes that the engine took.
        taken: Bytes,
    },
    /// The rest of a message changed its level.
    Reprioritised {
        /// Id of the message.
        id: MessageId,
        /// Previous level.
        from: Priority,
        /// New level.
        to: Priority,
    },
    /// A message was removed before all of it was granted.
    Removed {
        /// Id of the message.
        id: MessageId,
        /// Level at its removal.
        priority: Priority,
        /// Bytes granted before.
        sent: Bytes,
        /// Bytes that will never be granted.
        rest: Bytes,
        /// Reason for the removal.
        reason: Removal,
    },
    /// A level fell into debt.
    InDebt(Priority),
    /// A level became eligible again.
    Eligible(Priority),
    /// All non-empty levels were in debt, and the debts were redistributed.
    Redistributed,
}

/// Receiver of a Conductor's events. Any `FnMut(Event)` implements it.
///
/// It is called during the operation, once per event. Nothing is buffered for it.
pub trait Observer {
    /// Called when `event` has just happened.
    fn observe(&mut self, event: Event);
}

/// Observer that ignores every event, at no cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unobserved;

impl Observer for Unobserved {
    #[inline]
    fn observe(&mut self, _: Event) {}
}

impl<F: FnMut(Event)> Observer for F {
    #[inline]
    fn observe(&mut self, event: Event) {
        self(event);
    }
}

/// Message that the Conductor removed before all of it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Removed {
    /// Id of the message.
    pub id: MessageId,
    /// Bytes granted before.
    pub sent: Bytes,
    /// Reason for the removal.
    pub reason: Removal,
}

/// Observer that collects removed messages until their owner takes them, with
/// [`take`](Self::take), [`pop_first`](Self::pop_first) or [`pop_last`](Self::pop_last).
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, Default)]
pub struct Removals(alloc::collections::VecDeque<Removed>);

#[cfg(feature = "alloc")]
impl Removals {
    /// Takes all removals, the earliest first.
    pub fn take(&mut self) -> impl Iterator<Item = Removed> + '_ {
        self.0.drain(..)
    }

    /// Takes the earliest removal, for owners that cause further ones while they take them.
    pub fn pop_first(&mut self) -> Option<Removed> {
        self.0.pop_front()
    }

    /// Takes the latest removal, for owners that cause further ones while they take them.
    pub fn pop_last(&mut self) -> Option<Removed> {
        self.0.pop_back()
    }
}

#[cfg(feature = "alloc")]
impl Observer for Removals {
    fn observe(&mut self, event: Event) {
        if let Event::Removed { id, sent, reason, .. } = event {
            self.0.push_back(Removed { id, sent, reason });
        }
    }
}
