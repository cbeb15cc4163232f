//! Delivery of a message by a reconnecting client.

use std::fmt;
use std::sync::Arc;

use marcato_units::Priority;

use super::Client;
use super::end::Ended;
use crate::error::{Cause, ChangeError, Closed, NotDelivered, SendError};
use crate::shared::Awaited;

/// Error returned when a reconnecting client does not know of a message's delivery.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Undelivered {
    /// The message will not be delivered.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
    /// The connection refused the message.
    #[error(transparent)]
    Refused(SendError),
    /// The client ended before it had sent the message.
    #[error("the client ended before it had sent the message: {0}")]
    NotSent(Ended),
    /// The message may or may not have arrived. It is not offered again: it is one to be sent [at
    /// most once](crate::Reconnecting::send_at_most_once), it was given up meanwhile, or the client
    /// has ended.
    #[error("the message may or may not have arrived, and is not sent again: {0}")]
    Uncertain(NotDelivered),
}

/// Fate of a message at its receiver.
pub(super) type Fate = Result<(), Undelivered>;

/// Returns the error for a message whose client no longer reports fates.
fn lost() -> Undelivered {
    let closed = Closed::lost(Cause::Stopped, "the client's task has ended");
    Undelivered::Uncertain(closed.into())
}

/// Handle of a message that a [`Reconnecting`](crate::Reconnecting) client has accepted. Dropping
/// it does not cancel the message.
pub struct Delivery {
    pub(super) id: u64,
    pub(super) client: Arc<Client>,
    pub(super) outcome: Awaited<Undelivered>,
    pub(super) report: Awaited<Undelivered>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("id", &self.id)
            .field("outcome", &self.outcome)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Delivery {
    /// Waits until the peer's transport has all of the message, on whichever connection. It can be
    /// called again, and cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// [`Undelivered`], once that is certain, or once the message will not be sent again.
    pub async fn acknowledged(&mut self) -> Result<(), Undelivered> {
        self.outcome.wait_or(lost).await
    }

    /// Waits until the peer's application has taken the message. It can be called again, and
    /// cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// [`NotDelivered::NoReceipt`] for a message sent without
    /// [`with_receipt`](crate::Message::with_receipt), and the errors of
    /// [`acknowledged`](Self::acknowledged).
    pub async fn received(&mut self) -> Result<(), Undelivered> {
        self.report.wait_or(lost).await
    }

    /// Cancels the message, if part of it is still queued. It is not offered again then. If an
    /// earlier connection has carried it, it may nevertheless have arrived.
    ///
    /// # Errors
    ///
    /// If all of it has been handed to the engine, or it was removed.
    pub fn cancel(&self) -> Result<(), ChangeError> {
        self.client.cancel(self.id)
    }

    /// Moves the queued rest of the message to another level, also for further connections.
    ///
    /// # Errors
    ///
    /// If all of it has been handed to the engine or was removed, or the level is being discarded.
    pub fn reprioritise(&self, priority: Priority) -> Result<(), ChangeError> {
        self.client.reprioritise(self.id, priority)
    }
}
