//! Stream that this end sends on.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Payload;
use marcato_quic::streams::{End, StreamId};
use marcato_sched::exchange::Parameters;
use marcato_units::Duration;
use tokio::io::AsyncWrite;

use super::connection::Connection;
use super::waiter::Waiter;
use crate::plain::Fate;
use crate::plain::{StreamOver, WriteError};

/// Most bytes that one write of a borrowed buffer copies.
const COPIED: usize = 64 << 10;

/// Stream that this end sends on.
///
/// Dropped, it [finishes](Self::finish): the peer gets what was written.
#[derive(Debug)]
pub struct SendStream {
    connection: Connection,
    id: StreamId,
    order: Parameters,
    over: bool,
}

impl SendStream {
    pub(super) const fn new(connection: Connection, id: StreamId, order: Parameters) -> Self {
        Self { connection, id, order, over: false }
    }

    /// Identifier of the stream (RFC 9000 §2.1).
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// Order of the bytes that have not left.
    pub const fn order(&self) -> Parameters {
        self.order
    }

    /// Sets the order of the bytes that have not left, and of those to come.
    pub fn set_order(&mut self, order: Parameters) {
        self.order = order;
        self.connection.streams().order(self.id, order);
    }

    /// Writes the first bytes of `data`, as many as there is room for, and returns their number. Waits for room. If it is cancelled,
    /// nothing was written.
    ///
    /// # Errors
    ///
    /// If the stream or the connection is over.
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        poll_fn(|context| self.poll_write_plain(context, data)).await
    }

    /// Writes all of `data`, without a copy. If it is cancelled, some may have been written.
    ///
    /// # Errors
    ///
    /// If the stream or the connection is over.
    pub async fn write_chunk(&mut self, mut data: Payload) -> Result<(), WriteError> {
        while !data.is_empty() {
            let written = poll_fn(|context| self.poll_write_chunk(context, &data)).await?;
            let _ = data.split_to(written);
        }
        Ok(())
    }

    /// Polls for room, and takes the first bytes of `data` without a copy.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn poll_write_chunk(
        &mut self,
        context: &mut Context<'_>,
        data: &Payload,
    ) -> Poll<Result<usize, WriteError>> {
        if self.over {
            return Poll::Ready(Err(WriteError::Closed));
        }
        self.connection.streams().poll_write(context, self.id, data.clone())
    }

    fn poll_write_plain(
        &mut self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, WriteError>> {
        let part = data.get(..COPIED).unwrap_or(data);
        self.poll_write_chunk(context, &Payload::copy_from_slice(part))
    }

    /// Ends the stream behind what was written. The peer's acknowledgement is that of [`stopped`](Self::stopped).
    ///
    /// # Errors
    ///
    /// If the stream or the connection is over.
    pub fn finish(&mut self) -> Result<(), StreamOver> {
        if std::mem::replace(&mut self.over, true) {
            return Err(StreamOver);
        }
        self.connection.streams().finish(self.id)
    }

    /// Abandons the stream with a code below 2^62. What has not arrived may never arrive.
    ///
    /// # Errors
    ///
    /// If the stream or the connection is over.
    pub fn reset(&mut self, code: u64) -> Result<(), StreamOver> {
        self.over = true;
        self.connection.streams().reset(self.id, code)
    }

    /// Waits until the stream is over at the peer: `None` once it has all of a finished stream, or this end
    /// has reset it; else the code with which the peer has stopped it. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection ends before.
    pub async fn stopped(&self) -> Result<Option<u64>, End> {
        let mut waiter = Waiter::default();
        poll_fn(|context| self.poll_stopped(&mut waiter, context)).await
    }

    /// Polls for the end of the stream at the peer, as [`stopped`](Self::stopped).
    ///
    /// # Errors
    ///
    /// If the connection ends before.
    pub fn poll_stopped(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<u64>, End>> {
        let streams = self.connection.streams();
        let over = || match streams.fate(self.id) {
            Some(Fate::Stopped(code)) => Some(Ok(Some(code))),
            Some(Fate::Finished | Fate::Reset) => Some(Ok(None)),
            None => streams.waiting().ended().map(Err),
        };
        streams.waiting().news.poll_for(&mut waiter.0, context, over)
    }

    /// Polls for the end of the stream at the peer, as [`stopped`](Self::stopped). It needs no place for the task: news of
    /// the stream wakes the one that polled or wrote last.
    ///
    /// # Errors
    ///
    /// If the connection ends before.
    pub fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<u64>, End>> {
        match ready!(self.connection.streams().waiting().poll_fate(context, self.id)) {
            Ok(Fate::Stopped(code)) => Poll::Ready(Ok(Some(code))),
            Ok(Fate::Finished | Fate::Reset) => Poll::Ready(Ok(None)),
            Err(end) => Poll::Ready(Err(end)),
        }
    }

    /// Returns whether bytes of the stream wait, and the peer gives no credit for them: it reads too slowly, or not at all.
    pub fn is_held(&self) -> bool {
        self.connection.streams().is_held(self.id)
    }

    /// Asks for an answer as soon as the bytes written, and those that leave before them, cannot arrive within this time from now:
    /// [`late`](Self::late). With a code, the stream is then reset with it, and no byte more is sent in vain. `None` withdraws the
    /// deadline.
    ///
    /// The answer comes from the rate of the congestion window and half a round trip, so it is an estimate. Bytes in flight are
    /// not looked at.
    pub fn set_deadline(&mut self, within: Option<Duration>, reset: Option<u64>) {
        self.connection.streams().deadline(self.id, within, reset);
    }

    /// Waits until it is known that the bytes written cannot arrive by the [deadline](Self::set_deadline). Returns `false` if the stream is over
    /// before. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection ends before.
    pub async fn late(&self) -> Result<bool, End> {
        let streams = self.connection.streams();
        let known = || {
            if streams.is_late(self.id) {
                return Some(Ok(true));
            }
            match streams.fate(self.id) {
                Some(_) => Some(Ok(false)),
                None => streams.waiting().ended().map(Err),
            }
        };
        streams.waiting().news.wait_for(known).await
    }

    /// Returns the number of bytes from the start that the peer is known to have without a gap; `None` before the first was written, and once the stream is over.
    ///
    /// Retransmitted bytes may count later than they are acknowledged.
    pub fn acknowledged(&self) -> Option<u64> {
        self.connection.streams().acknowledged(self.id)
    }

    /// Waits until the peer has the first `bytes` of the stream. Returns `false` if the stream is over before. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection ends before.
    pub async fn acknowledged_to(&self, bytes: u64) -> Result<bool, End> {
        let streams = self.connection.streams();
        let reached = || {
            if streams.acknowledged(self.id).is_some_and(|acknowledged| acknowledged >= bytes) {
                return Some(Ok(true));
            }
            match streams.fate(self.id) {
                Some(fate) => Some(Ok(fate == Fate::Finished)),
                None => streams.waiting().ended().map(Err),
            }
        };
        streams.waiting().news.wait_for(reached).await
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let streams = self.connection.streams();
        if !self.over && streams.finish(self.id).is_err() {
            // Too many streams send to begin this one, so it ends without data.
            let _ = streams.reset(self.id, 0);
        }
        streams.forget(self.id, false);
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(self.get_mut().poll_write_plain(context, data));
        Poll::Ready(written.map_err(Into::into))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was written leaves by itself, in its order.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        Poll::Ready(if this.over { Ok(()) } else { this.finish().map_err(Into::into) })
    }
}
