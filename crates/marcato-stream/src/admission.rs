//! Admission of messages, and the outcomes that their senders wait for: one rule for both engines.

use marcato_units::{Bytes, Priority};
use marcato_wire::Fate;

use crate::{Held, Limits, Message, NotDelivered, SendError};

/// Receiver of the outcome of a message.
pub trait Ticket: Sized {
    /// Takes the outcome: the receiver has acknowledged the message, or it was not delivered.
    fn settle(self, outcome: Result<(), NotDelivered>);

    /// Splits off the ticket for the report that a message [with a
    /// receipt](Message::with_receipt) asks for: it is settled once the receiving application has
    /// taken the message, or never will. `None` by default.
    fn receipt(&mut self) -> Option<Self> {
        None
    }
}

/// Message that was admitted, until its outcome is known.
#[derive(Debug)]
#[must_use = "it counts at its level until it is settled"]
pub struct Admitted<T> {
    level: Priority,
    ticket: T,
}

/// Receipt of a message that was admitted, until the receiver reports about it.
#[derive(Debug)]
#[must_use = "it counts until the receiver has reported, or never will"]
pub struct Receipt<T>(T);

/// Part of a message that is handed over part by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextPart {
    /// Bytes of earlier parts that are queued.
    pub waiting: Bytes,
    /// Set if it completes the message.
    pub last: bool,
}

/// Admission of the messages of one connection.
///
/// An engine asks whether it [may take](Self::admit) a message, [counts](Self::count) it once the
/// Conductor has taken it, and settles what it got then.
///
/// ```
/// use marcato_stream::{Admission, Limits, Message, NotDelivered, SendError, Ticket};
/// use marcato_units::{Bytes, Priority};
///
/// struct Ignore;
/// impl Ticket for Ignore {
///     fn settle(self, _: Result<(), NotDelivered>) {}
/// }
///
/// let mut admission = Admission::new(Limits { unfinished: 1, ..Limits::default() });
/// let message = Message::new("hello");
/// admission.admit(&message, Bytes::ZERO, None)?;
/// let (admitted, _) = admission.count(&message, Ignore);
/// // Its level is full, and the others are not.
/// let busy = Err(SendError::Busy { priority: Priority::P2 });
/// assert_eq!(admission.admit(&message, Bytes::ZERO, None), busy);
/// admission.admit(&message.clone().with_priority(Priority::P0), Bytes::ZERO, None)?;
/// admission.settle(admitted, Ok(()));
/// admission.admit(&message, Bytes::ZERO, None)?;
/// # Ok::<(), SendError>(())
/// ```
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    /// Undelivered messages of each level.
    levels: [usize; Priority::COUNT],
    /// Receipts that the peer owes.
    receipts: usize,
}

impl Admission {
    /// Creates the admission of a connection without messages.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, levels: [0; Priority::COUNT], receipts: 0 }
    }

    /// Number of undelivered messages of each level.
    pub const fn undelivered(&self) -> [usize; Priority::COUNT] {
        self.levels
    }

    /// Checks whether there is room for a message, or for the next `part` of one, at whose level
    /// `queued` bytes wait.
    ///
    /// # Errors
    ///
    /// [`SendError::EmptyPart`], [`SendError::Busy`] if parts of its message fill
    /// [`Limits::streamed`], and the errors of [`Limits::admit`].
    pub fn admit(&self, message: &Message, queued: Bytes, part: Option<NextPart>) -> Result<(), SendError> {
        let level = message.priority;
        if message.body.is_empty() && part.is_some_and(|part| !part.last) {
            return Err(SendError::EmptyPart);
        }
        if part.is_some_and(|part| part.waiting >= self.limits.streamed) {
            return Err(SendError::Busy { priority: level });
        }
        let messages = self.levels[level.index()];
        self.limits.admit(message, Held { messages, bytes: queued, receipts: self.receipts })
    }

    /// Counts a message that was taken. Its ticket is split if it has a receipt.
    pub fn count<T: Ticket>(
        &mut self,
        message: &Message,
        mut ticket: T,
    ) -> (Admitted<T>, Option<Receipt<T>>) {
        let level = message.priority;
        let receipt = if message.receipt { ticket.receipt().map(Receipt) } else { None };
        self.levels[level.index()] += 1;
        self.receipts += usize::from(receipt.is_some());
        (Admitted { level, ticket }, receipt)
    }

    /// Ends a message: it was delivered, or never will be.
    pub fn settle<T: Ticket>(&mut self, admitted: Admitted<T>, outcome: Result<(), NotDelivered>) {
        self.levels[admitted.level.index()] -= 1;
        // A sender that dropped its handle does not wait for the outcome.
        admitted.ticket.settle(outcome);
    }

    /// Ends a receipt with the report of the receiver.
    pub fn report<T: Ticket>(&mut self, receipt: Receipt<T>, fate: Fate) {
        self.receipts -= 1;
        receipt.0.settle(match fate {
            Fate::Taken => Ok(()),
            Fate::Discarded => Err(NotDelivered::Unwanted),
        });
    }

    /// Ends a receipt that will not arrive.
    pub fn withdraw<T: Ticket>(&mut self, receipt: Receipt<T>, reason: NotDelivered) {
        self.receipts -= 1;
        receipt.0.settle(Err(reason));
    }
}
