//! Messages that are sent piece by piece, before they are complete.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes as Payload, BytesMut};
use marcato_sched::conductor::MessageId;
use marcato_stream::{LongId, Message};
use marcato_units::{Bytes, Priority};
use marcato_wire::Exchange;
use tokio::io::AsyncWrite;

use crate::error::{ChangeError, LongSendError, NotDelivered, SendError};
use crate::shared::{Awaited, Outcome, Ticket, Transport};
use crate::signal::WakerSlot;

/// Bytes handed over at once: over QUIC, the data of one stream.
const PART: usize = 128 << 10;

/// Sender of a message that is written piece by piece. To the receiver it is one message: if it is
/// long, [`accept_long`](crate::Connection::accept_long) returns it as it arrives.
///
/// It also implements [`AsyncWrite`], for example for `tokio::io::copy`.
///
/// Of a [stream](crate::Connection::open_stream), all that was written leaves at once, and the receiver hands it out as it
/// comes. Data of a [long message](crate::Connection::send_long) leaves in parts of 128 kB, so up to that much is held
/// back until the message is [finished](Self::finish). If the sender is dropped before that, the message is
/// [cancelled](Self::cancel).
pub struct LongSender {
    transport: Arc<dyn Transport>,
    long: LongId,
    priority: Priority,
    /// Bytes written and not handed over.
    pending: VecDeque<Payload>,
    pending_len: usize,
    written: Bytes,
    /// Parts handed over, earliest first.
    parts: VecDeque<(MessageId, Awaited)>,
    finished: bool,
    outcome: Option<Outcome>,
    /// Set if each write leaves at once.
    is_stream: bool,
    /// Set if the receiver reports when its application has taken the message. `report` is that of
    /// the last part, once it is handed over.
    receipt: bool,
    report: Option<Awaited>,
    slot: WakerSlot,
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
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        priority: Priority,
        is_stream: bool,
    ) -> Result<Self, SendError> {
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
            is_stream,
            receipt: false,
            report: None,
            slot: WakerSlot::default(),
        })
    }

    /// Returns this sender with a request for a receipt, which [`received`](Self::received) waits
    /// for. Ask before the first [`write`](Self::write): data that has been handed over does not
    /// ask for one, and the peer would refuse a message that asks in parts of it only.
    #[must_use]
    pub fn with_receipt(mut self) -> Self {
        if self.written.is_zero() {
            self.receipt = true;
        }
        self
    }

    /// Returns the number of bytes written.
    pub const fn written(&self) -> Bytes {
        self.written
    }

    /// Waits until less than [`Limits::streamed`](crate::Limits::streamed) of the message is queued
    /// and there is room at its level, and accepts the next bytes. If it is cancelled before that,
    /// it has accepted none.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the message can no longer be delivered: it is then
    /// abandoned.
    pub async fn write(&mut self, bytes: impl Into<Payload>) -> Result<(), LongSendError> {
        if self.finished {
            return Err(SendError::Ended.into());
        }
        self.hand_over(false).await?;
        self.accept(bytes.into());
        self.begin_hand_over()
    }

    /// Appends bytes to those that are not handed over.
    fn accept(&mut self, bytes: Payload) {
        self.written += Bytes::new(bytes.len() as u64);
        self.pending_len += bytes.len();
        self.pending.push_back(bytes);
    }

    /// Hands over data that can leave at once, so that it does not wait for the next call.
    fn begin_hand_over(&mut self) -> Result<(), LongSendError> {
        match self.try_hand_over(false) {
            Ok(()) | Err(LongSendError::Send(SendError::Busy { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for room for the rest, and ends the message. It can be called again, and cancelling
    /// loses nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write).
    pub async fn finish(&mut self) -> Result<(), LongSendError> {
        self.hand_over(true).await
    }

    /// Waits until the receiver has all of the message; [finish](Self::finish) it before. It can be
    /// called again, and cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// [`NotDelivered`], once that is certain, or if the connection has ended.
    pub async fn acknowledged(&mut self) -> Result<(), NotDelivered> {
        while self.outcome.is_none() {
            let Some((_, part)) = self.parts.front_mut() else { break };
            let outcome = part.wait(self.transport.shared()).await;
            self.parts.pop_front();
            if outcome.is_err() {
                self.give_up(outcome);
            }
        }
        self.outcome.clone().unwrap_or(Ok(()))
    }

    /// Waits until the peer's application has taken the last piece of the message;
    /// [finish](Self::finish) it before. It can be called again, and cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// As [`MessageHandle::received`](crate::MessageHandle::received).
    pub async fn received(&mut self) -> Result<(), NotDelivered> {
        if !self.receipt {
            return Err(NotDelivered::NoReceipt);
        }
        // Once one of its parts is lost, the fate of the message is certain.
        self.acknowledged().await?;
        match &mut self.report {
            Some(report) => report.wait(self.transport.shared()).await,
            None => Err(NotDelivered::Cancelled),
        }
    }

    /// Cancels the message. If part of it has left, the receiver is informed. Of a finished
    /// message, data already handed to the engine may still arrive, and so may the whole.
    pub fn cancel(mut self) {
        self.give_up(Err(NotDelivered::Cancelled));
    }

    /// Moves the queued rest of the message, and later writes, to another level. For the receiver,
    /// the message keeps the priority of its first byte that left.
    ///
    /// # Errors
    ///
    /// If the level is being discarded: the message stays at its level.
    pub fn reprioritise(&mut self, priority: Priority) -> Result<(), ChangeError> {
        for (id, _) in &self.parts {
            match self.transport.reprioritise(*id, priority) {
                // Earlier parts have left completely.
                Ok(()) | Err(ChangeError::TooLate) => {}
                Err(error) => return Err(error),
            }
        }
        self.priority = priority;
        Ok(())
    }

    /// Checks the outcomes of the parts handed over, and forgets those delivered.
    fn check(&mut self) -> Result<(), LongSendError> {
        if let Some(Err(error)) = &self.outcome {
            return Err(error.clone().into());
        }
        while let Some((_, part)) = self.parts.front_mut() {
            let Some(outcome) = part.now(self.transport.shared()) else { break };
            self.parts.pop_front();
            if let Err(error) = outcome {
                self.give_up(Err(error.clone()));
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn hand_over(&mut self, all: bool) -> Result<(), LongSendError> {
        std::future::poll_fn(|context| self.poll_hand_over(context, all)).await
    }

    fn poll_hand_over(&mut self, context: &mut Context<'_>, all: bool) -> Poll<Result<(), LongSendError>> {
        let transport = Arc::clone(&self.transport);
        // The closure below needs all of the sender but its slot.
        let mut slot = std::mem::take(&mut self.slot);
        let done = transport.shared().room.changes().poll_for(&mut slot, context, || {
            match self.try_hand_over(all) {
                Err(LongSendError::Send(SendError::Busy { .. })) => None,
                result => Some(result),
            }
        });
        self.slot = slot;
        done
    }

    /// Hands over all complete parts except the last, of a stream every byte, and with `all` the end.
    fn try_hand_over(&mut self, all: bool) -> Result<(), LongSendError> {
        self.check()?;
        // The last byte stays until it is known to be the last, so that its part can be marked. A stream ends with
        // a part of its own.
        let ends_empty = all && (self.is_stream || self.written.is_zero());
        let whole = all || self.is_stream;
        while !self.finished && (self.pending_len > PART || (whole && self.pending_len > 0) || ends_empty) {
            let (part, last) = (self.next_part(), all && self.pending_len <= PART);
            // All frames of a message ask for a report, or none does. docs/wire.md, "Frames".
            let message = Message::new(part.clone()).with_priority(self.priority);
            let exchange = if self.is_stream { Exchange::Stream } else { Exchange::None };
            let message = Message { receipt: self.receipt, exchange, ..message };
            let (ticket, outcome, report) = Ticket::with_receipt(self.receipt && last);
            match self.transport.offer_part(self.long, &message, last, ticket) {
                Ok(id) => {
                    self.pending_len -= part.len();
                    self.parts.push_back((id, outcome));
                    self.finished = last;
                    self.report = last.then_some(report);
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

    /// Takes at most one part's bytes from the pending ones.
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

/// Writes bytes of the message, and shuts it down by [finishing](LongSender::finish) it. A flush
/// waits until all is queued that can leave before the end is known: of a stream everything, of a long message all but
/// the last part.
impl AsyncWrite for LongSender {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.finished {
            return Poll::Ready(Err(broken(SendError::Ended.into())));
        }
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(this.poll_hand_over(context, false)).map_err(broken)?;
        let bytes = &buf[..buf.len().min(PART)];
        this.accept(Payload::copy_from_slice(bytes));
        Poll::Ready(this.begin_hand_over().map(|()| bytes.len()).map_err(broken))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_hand_over(context, false).map_err(broken)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_hand_over(context, true).map_err(broken)
    }
}

/// Returns the error of a message as one of a byte stream.
fn broken(error: LongSendError) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error)
}

impl Drop for LongSender {
    fn drop(&mut self) {
        if !self.finished {
            self.give_up(Err(NotDelivered::Cancelled));
        }
    }
}
