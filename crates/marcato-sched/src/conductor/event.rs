//! What the Conductor tells whoever watches.

use marcato_units::{Bytes, Priority};

use super::error::OfferError;
use super::message::{Grant, Message, MessageId};

/// Why a message was removed before all of it was granted.
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

/// Something that happened to a message or a level.
///
/// An application that keeps payload by [`MessageId`] frees it at a [`Granted`](Self::Granted) with `fin` that
/// was not refused, and at [`Removed`](Self::Removed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message was accepted.
    Offered {
        /// Its name.
        id: MessageId,
        /// What was offered.
        message: Message,
    },
    /// A message was not accepted.
    OfferRefused {
        /// What was offered.
        message: Message,
        /// Why not.
        reason: OfferError,
    },
    /// A chunk was granted.
    Granted(Grant),
    /// The engine took only a part of the latest grant.
    Refused {
        /// That grant.
        grant: Grant,
        /// How much of it was taken.
        taken: Bytes,
    },
    /// The rest of a message changed its level.
    Reprioritised {
        /// Its name.
        id: MessageId,
        /// Where it was.
        from: Priority,
        /// Where it is.
        to: Priority,
    },
    /// A message left before all of it was granted.
    Removed {
        /// Its name.
        id: MessageId,
        /// Its level.
        priority: Priority,
        /// How much of it had been granted.
        sent: Bytes,
        /// How much of it never will be.
        rest: Bytes,
        /// Why.
        reason: Removal,
    },
    /// A level fell into debt.
    InDebt(Priority),
    /// A level became eligible again.
    Eligible(Priority),
    /// All non-empty levels were in debt, and the debts were redistributed.
    Redistributed,
}

/// Watches a Conductor. Any `FnMut(Event)` does.
///
/// It is called in the middle of the operation, once per event, and nothing is kept for it.
pub trait Observer {
    /// `event` has just happened.
    fn observe(&mut self, event: Event);
}

/// Watches nothing, at no cost.
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

/// Remembers which messages were removed, and why, until it is asked: for owners of payload or of anything else by
/// [`MessageId`].
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, Default)]
pub struct Removals(alloc::vec::Vec<(MessageId, Removal)>);

#[cfg(feature = "alloc")]
impl Removals {
    /// The removals since the last call, the earliest first.
    pub fn take(&mut self) -> impl Iterator<Item = (MessageId, Removal)> + '_ {
        self.0.drain(..)
    }
}

#[cfg(feature = "alloc")]
impl Observer for Removals {
    fn observe(&mut self, event: Event) {
        if let Event::Removed { id, reason, .. } = event {
            self.0.push((id, reason));
        }
    }
}
