//! Long messages that are read while they arrive.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Payload;
use futures_core::Stream;
use marcato_stream::{LongNext, Missed};
use marcato_units::Priority;
use marcato_wire::MessageNumber;
use tokio::io::{AsyncRead, ReadBuf};

use crate::shared::Transport;
use crate::signal::{WakerSlot, lock};

/// Long message that is arriving. If it is dropped before its end, the rest is discarded on
/// arrival.
///
/// Its bytes are read piece by piece ([`next`](Self::next)), as a [`Stream`] of pieces, or by
/// [`AsyncRead`], for example with `tokio::io::copy`. All three return each byte once.
pub struct LongMessage {
    number: MessageNumber,
    priority: Priority,
    early: bool,
    transport: Arc<dyn Transport>,
    /// Part of a piece that was read into a buffer too short for all of it.
    rest: Payload,
    ended: bool,
    slot: WakerSlot,
}

impl fmt::Debug for LongMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongMessage")
            .field("number", &self.number)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

impl LongMessage {
    pub(crate) fn new(
        number: MessageNumber,
        priority: Priority,
        early: bool,
        transport: Arc<dyn Transport>,
    ) -> Self {
        let (rest, slot) = (Payload::new(), WakerSlot::default());
        Self { number, priority, early, transport, rest, ended: false, slot }
    }

    /// Returns the sender's number for it.
    pub const fn number(&self) -> MessageNumber {
        self.number
    }

    /// Returns the priority given by the sender.
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns whether bytes of it arrived as early data: it may be a replay
    /// ([`Received::early`](crate::Received::early)).
    pub const fn early(&self) -> bool {
        self.early
    }

    /// Waits for the next bytes; `None` once all have been returned. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the sender abandoned it, or the connection ended: the bytes returned so far are void.
    pub async fn next(&mut self) -> Result<Option<Payload>, Missed> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }
}

impl Stream for LongMessage {
    type Item = Result<Payload, Missed>;

    /// Polls for the next piece. After an error the stream has ended.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Payload, Missed>>> {
        let this = self.get_mut();
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut this.rest))));
        }
        if this.ended {
            return Poll::Ready(None);
        }
        let shared = this.transport.shared();
        let next = ready!(shared.readable.poll_for(&mut this.slot, context, || {
            match lock(&shared.inbound).next_of(this.number) {
                LongNext::Wait => None,
                LongNext::Piece(piece) => Some(Some(Ok(piece))),
                LongNext::End(end) => Some(end.err().map(Err)),
            }
        }));
        this.ended = !matches!(next, Some(Ok(_)));
        this.transport.resume();
        Poll::Ready(next)
    }
}

impl AsyncRead for LongMessage {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match ready!(self.as_mut().poll_next(context)) {
            None => Poll::Ready(Ok(())),
            Some(Ok(mut piece)) => {
                let taken = piece.split_to(piece.len().min(buf.remaining()));
                buf.put_slice(&taken);
                self.rest = piece;
                Poll::Ready(Ok(()))
            }
            Some(Err(missed)) => Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, missed))),
        }
    }
}

impl Drop for LongMessage {
    fn drop(&mut self) {
        if !self.ended {
            lock(&self.transport.shared().inbound).forget_long(self.number);
            self.transport.resume();
        }
    }
}
