//! Stream that this end sends on.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Payload;
use marcato_quic::streams::{End, StreamId};
use marcato_sched::exchange::Parameters;
use tokio::io::AsyncWrite;

use super::connection::Connection;
use super::error::{StreamOver, WriteError};
use super::waiter::Waiter;
use crate::quic::Fate;

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
        self.connection.quic().order_plain(self.id, order);
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
        self.connection.quic().poll_write_plain(context, self.id, data.clone())
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
        self.connection.quic().finish_plain(self.id)
    }

    /// Abandons the stream with a code below 2^62. What has not arrived may never arrive.
    ///
    /// # Errors
    ///
    /// If the stream or the connection is over.
    pub fn reset(&mut self, code: u64) -> Result<(), StreamOver> {
        self.over = true;
        self.connection.quic().reset_plain(self.id, code)
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
        let quic = self.connection.quic();
        let over = || match quic.fate(self.id) {
            Some(Fate::Stopped(code)) => Some(Ok(Some(code))),
            Some(Fate::Finished | Fate::Reset) => Some(Ok(None)),
            None => quic.plain().ended().map(Err),
        };
        quic.plain().news.poll_for(&mut waiter.0, context, over)
    }

    /// Returns the number of bytes from the start that the peer is known to have without a gap; `None` before the first was written, and once the stream is over.
    ///
    /// Retransmitted bytes may count later than they are acknowledged.
    pub fn acknowledged(&self) -> Option<u64> {
        self.connection.quic().acknowledged_plain(self.id)
    }

    /// Waits until the peer has the first `bytes` of the stream. Returns `false` if the stream is over before. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection ends before.
    pub async fn acknowledged_to(&self, bytes: u64) -> Result<bool, End> {
        let quic = self.connection.quic();
        let reached = || {
            if quic.acknowledged_plain(self.id).is_some_and(|acknowledged| acknowledged >= bytes) {
                return Some(Ok(true));
            }
            match quic.fate(self.id) {
                Some(fate) => Some(Ok(fate == Fate::Finished)),
                None => quic.plain().ended().map(Err),
            }
        };
        quic.plain().news.wait_for(reached).await
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let quic = self.connection.quic();
        if !self.over && quic.finish_plain(self.id).is_err() {
            // Too many streams send to begin this one, so it ends without data.
            let _ = quic.reset_plain(self.id, 0);
        }
        quic.forget_plain(self.id, false);
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
