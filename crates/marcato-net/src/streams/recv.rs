//! Stream that this end reads.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Payload;
use marcato_quic::streams::{End, StreamId};
use tokio::io::{AsyncRead, ReadBuf};

use super::connection::Connection;
use crate::plain::{ReadError, StreamOver};

/// Stream that this end reads, in order.
///
/// Reading gives the peer room for as many more bytes, so a reader that pauses makes the peer pause. Dropped
/// before its end, it [stops](Self::stop) the stream with code 0.
#[derive(Debug)]
pub struct RecvStream {
    connection: Connection,
    id: StreamId,
    over: bool,
}

impl RecvStream {
    pub(super) const fn new(connection: Connection, id: StreamId) -> Self {
        Self { connection, id, over: false }
    }

    /// Identifier of the stream (RFC 9000 §2.1).
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// Waits for the next bytes, at most `most`, without a copy; `None` at the end of the stream. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the peer has reset the stream, or the connection has ended.
    pub async fn read_chunk(&mut self, most: usize) -> Result<Option<Payload>, ReadError> {
        poll_fn(|context| self.poll_read_chunk(context, most)).await
    }

    /// Polls for the next bytes, as [`read_chunk`](Self::read_chunk).
    ///
    /// # Errors
    ///
    /// As [`read_chunk`](Self::read_chunk).
    pub fn poll_read_chunk(
        &mut self,
        context: &mut Context<'_>,
        most: usize,
    ) -> Poll<Result<Option<Payload>, ReadError>> {
        if self.over {
            return Poll::Ready(Ok(None));
        }
        let read = ready!(self.connection.streams().poll_read(context, self.id, most));
        self.over = !matches!(read, Ok(Some(_)));
        Poll::Ready(read)
    }

    /// Waits for the next bytes and copies them into `buf`. Returns their number; `None` at the end of the stream. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// As [`read_chunk`](Self::read_chunk).
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<Option<usize>, ReadError> {
        if buf.is_empty() {
            return Ok(Some(0));
        }
        let chunk = self.read_chunk(buf.len()).await?;
        Ok(chunk.map(|chunk| {
            buf[..chunk.len()].copy_from_slice(&chunk);
            chunk.len()
        }))
    }

    /// Polls for a reset by the peer, without reading: returns its code. Pending at the end of the stream, too. The task that polled or read last is
    /// woken by news of either.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<Result<u64, End>> {
        if self.over {
            return Poll::Pending;
        }
        let reset = self.connection.streams().poll_reset(context, self.id);
        self.over |= reset.is_ready();
        reset
    }

    /// Tells the peer that this end reads no more, with a code below 2^62.
    ///
    /// # Errors
    ///
    /// If the stream or the connection is over.
    pub fn stop(&mut self, code: u64) -> Result<(), StreamOver> {
        if std::mem::replace(&mut self.over, true) {
            return Err(StreamOver);
        }
        self.connection.streams().stop(self.id, code)
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        let streams = self.connection.streams();
        if !self.over {
            let _ = streams.stop(self.id, 0);
        }
        streams.forget(self.id, true);
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let chunk = ready!(self.get_mut().poll_read_chunk(context, buf.remaining()))?;
        if let Some(chunk) = chunk {
            buf.put_slice(&chunk);
        }
        Poll::Ready(Ok(()))
    }
}
