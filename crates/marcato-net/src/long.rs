//! Messages that are sent piece by piece, before all of them is there.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes as Payload, BytesMut};
use marcato_quic::{LongId, MessageId};
use marcato_units::{Bytes, Priority};
use tokio::sync::oneshot;

use crate::connection::Message;
use crate::error::{ChangeError, Closed, LongSendError, NotDelivered, SendError};
use crate::shared::{Shared, Transport};

/// What is handed over at once: over QUIC, what one stream carries.
const PART: usize = 128 << 10;

type Outcome = Result<(), NotDelivered>;

/// A message that is sent piece by piece. To the receiver it is one message: if it is long,
/// [`accept_long`](crate::Connection::accept_long) gives it as it comes.
///
/// What is written leaves in parts of 128 kB, so that of a message that is not [finished](Self::finish) up to as much is
/// kept back. Dropped before that, the message is [cancelled](Self::cancel).
pub struct LongSender {
    transport: Arc<dyn Transport>,
    long: LongId,
    priority: Priority,
    /// What was written and not handed over.
    pending: VecDeque<Payload>,
    pending_len: usize,
    written: Bytes,
    /// Parts that were handed over, the earliest first.
    parts: VecDeque<(MessageId, oneshot::Receiver<Outcome>)>,
    finished: bool,
    outcome: Option<Outcome>,
}

impl fmt::Debug for LongSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongSender")
            .field("priority", &self.priority)
            .field("written", &self.written)
            .field("finished", &self.finished)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl LongSender {
    pub(crate) fn new(transport: Arc<dyn Transport>, priority: Priority) -> Result<Self, SendError> {
        let long = transport.begin_long()?;
        Ok(Self {
            transport,
            long,
            priority,
            pending: VecDeque::new(),
            pending_len: 0,
            written: Bytes::ZERO,
            parts: VecDeque::new(),
            finished: false,
            outcome: None,
        })
    }

    /// How much has been written.
    pub const fn written(&self) -> Bytes {
        self.written
    }

    /// Takes the next bytes, as soon as less than [`Limits::streamed`](crate::Limits::streamed) of the message waits and
    /// there is room at its level. Dropped before it is done, it has taken nothing.
    ///
    /// # Errors
    ///
    /// If the connection is over, or the message cannot be delivered any more: it is then given up.
    pub async fn write(&mut self, bytes: impl Into<Payload>) -> Result<(), LongSendError> {
        if self.finished {
            return Err(SendError::Ended.into());
        }
        self.hand_over(false).await?;
        let bytes = bytes.into();
        self.written += Bytes::new(bytes.len() as u64);
        self.pending_len += bytes.len();
        self.pending.push_back(bytes);
        // What can leave at once is not kept back until the next.
        match self.try_hand_over(false) {
            Ok(()) | Err(LongSendError::Send(SendError::Busy { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says that this was all, as soon as there is room for the rest. It can be called again, and cancelled without loss.
    ///
    /// # Errors
    ///
    /// If nothing was written, and as [`write`](Self::write).
    pub async fn finish(&mut self) -> Result<(), LongSendError> {
        if self.written.is_zero() {
            return Err(SendError::Empty.into());
        }
        self.hand_over(true).await
    }

    /// Waits until the receiver has all of it; [finish](Self::finish) it before. It can be called again, and cancelled
    /// without loss.
    ///
    /// # Errors
    ///
    /// [`NotDelivered`], once it is certain that it will not be, or the connection is over.
    pub async fn delivered(&mut self) -> Result<(), NotDelivered> {
        while self.outcome.is_none() {
            let Some((_, part)) = self.parts.front_mut() else { break };
            let outcome = part.await.unwrap_or_else(|_| Err(self.lost()));
            self.parts.pop_front();
            if outcome.is_err() {
                self.give_up(outcome);
            }
        }
        self.outcome.clone().unwrap_or(Ok(()))
    }

    /// Takes the message back. The receiver is told, if it has got a part. Of a message that is finished, what has been
    /// handed to the engine may still arrive, and the whole be delivered.
    pub fn cancel(mut self) {
        self.give_up(Err(NotDelivered::Cancelled));
    }

    /// Moves what still waits of the message, and what will be written, to another level. The receiver goes on seeing the
    /// priority of its first byte that left.
    ///
    /// # Errors
    ///
    /// If the level is being discarded: it stays where it was.
    pub fn reprioritise(&mut self, priority: Priority) -> Result<(), ChangeError> {
        for (id, _) in &self.parts {
            match self.transport.reprioritise(*id, priority) {
                // Of those before, all has left.
                Ok(()) | Err(ChangeError::TooLate) => {}
                Err(error) => return Err(error),
            }
        }
        self.priority = priority;
        Ok(())
    }

    fn lost(&self) -> NotDelivered {
        let lost = || Closed::Lost { reason: "its task has ended".to_owned() };
        NotDelivered::Closed(self.transport.shared().closed().unwrap_or_else(lost))
    }

    /// What is known of the parts that were handed over; those that have arrived are forgotten.
    fn check(&mut self) -> Result<(), LongSendError> {
        if let Some(Err(error)) = &self.outcome {
            return Err(error.clone().into());
        }
        while let Some((_, part)) = self.parts.front_mut() {
            let outcome = match part.try_recv() {
                Ok(outcome) => outcome,
                Err(oneshot::error::TryRecvError::Empty) => break,
                Err(oneshot::error::TryRecvError::Closed) => Err(self.lost()),
            };
            self.parts.pop_front();
            if let Err(error) = outcome {
                self.give_up(Err(error.clone()));
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn hand_over(&mut self, all: bool) -> Result<(), LongSendError> {
        let transport = Arc::clone(&self.transport);
        Shared::wait_for(&transport.shared().room, || match self.try_hand_over(all) {
            Err(LongSendError::Send(SendError::Busy { .. })) => None,
            result => Some(result),
        })
        .await
    }

    /// Hands over what makes whole parts, without the last, or `all`.
    fn try_hand_over(&mut self, all: bool) -> Result<(), LongSendError> {
        self.check()?;
        // The last byte stays until it is known to be the last: only then can its part say so.
        while !self.finished && (self.pending_len > PART || (all && self.pending_len > 0)) {
            let (part, last) = (self.next_part(), all && self.pending_len <= PART);
            let message = Message::new(part.clone()).with_priority(self.priority);
            let (ticket, outcome) = oneshot::channel();
            match self.transport.offer_part(self.long, &message, last, ticket) {
                Ok(id) => {
                    self.pending_len -= part.len();
                    self.parts.push_back((id, outcome));
                    self.finished = last;
                }
                Err(error) => {
                    self.pending.push_front(part);
                    if !matches!(error, SendError::Busy { .. }) {
                        self.give_up(Err(NotDelivered::Cancelled));
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Takes at most a part's bytes from what is pending.
    fn next_part(&mut self) -> Payload {
        let Some(mut first) = self.pending.pop_front() else { return Payload::new() };
        if first.len() > PART {
            let part = first.split_to(PART);
            self.pending.push_front(first);
            return part;
        }
        let mut part = BytesMut::from(first);
        while part.len() < PART
            && let Some(mut next) = self.pending.pop_front()
        {
            let take = next.len().min(PART - part.len());
            part.extend_from_slice(&next.split_to(take));
            if !next.is_empty() {
                self.pending.push_front(next);
            }
        }
        part.freeze()
    }

    fn give_up(&mut self, outcome: Outcome) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
            self.finished = true;
            self.pending.clear();
            self.pending_len = 0;
            self.transport.cancel_long(self.long);
        }
    }
}

impl Drop for LongSender {
    fn drop(&mut self) {
        if !self.finished {
            self.give_up(Err(NotDelivered::Cancelled));
        }
    }
}
