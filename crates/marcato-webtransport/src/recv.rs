//! Stream that this end reads.

use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes};
use marcato_net::streams::{ReadError, RecvStream as Inner};

use crate::error::Error;

/// Stream that this end reads. Dropped before its end, it is stopped with code 0.
#[derive(Debug)]
pub struct RecvStream {
    inner: Inner,
    /// End of the stream, once it was met.
    end: Option<Result<(), Error>>,
    /// Bytes that were read while waiting for the end.
    ahead: Option<Bytes>,
}

impl RecvStream {
    pub(crate) const fn new(inner: Inner) -> Self {
        Self { inner, end: None, ahead: None }
    }

    /// Stream of `marcato-net`.
    pub const fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn chunk(
        &mut self,
        context: &mut Context<'_>,
        most: usize,
    ) -> Poll<Result<Option<Bytes>, Error>> {
        if most == 0 {
            return Poll::Ready(Ok(Some(Bytes::new())));
        }
        if let Some(ahead) = &mut self.ahead {
            let part = ahead.split_to(most.min(ahead.len()));
            self.ahead.take_if(|ahead| ahead.is_empty());
            return Poll::Ready(Ok(Some(part)));
        }
        if let Some(end) = &self.end {
            return Poll::Ready(end.clone().map(|()| None));
        }
        let read = ready!(self.inner.poll_read_chunk(context, most)).map_err(Error::from);
        match &read {
            Ok(Some(_)) => {}
            Ok(None) => self.end = Some(Ok(())),
            Err(error) => self.end = Some(Err(error.clone())),
        }
        Poll::Ready(read)
    }

    pub(crate) fn read_some(
        &mut self,
        context: &mut Context<'_>,
        data: &mut [u8],
    ) -> Poll<Result<Option<usize>, Error>> {
        let mut room = &mut *data;
        self.read_into(context, &mut room)
    }

    pub(crate) fn read_into<B: BufMut>(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<Result<Option<usize>, Error>> {
        let room = buf.remaining_mut().min(PIECE);
        let chunk = ready!(self.chunk(context, room))?;
        Poll::Ready(Ok(chunk.map(|chunk| {
            let len = chunk.len();
            buf.put(chunk);
            len
        })))
    }

    pub(crate) fn refuse(&mut self, code: u32) {
        // One that is over needs no stop.
        if self.inner.stop(code.into()).is_ok() {
            self.end.get_or_insert(Ok(()));
        }
        self.ahead = None;
    }

    /// Polls for the end of the stream: its last byte was read, or either end has given it up. While there is data, reads
    /// make progress towards the end, and a reset ends it at once.
    pub(crate) fn ends(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.ahead.is_none() && self.end.is_none() {
            match self.chunk(context, PIECE) {
                Poll::Ready(Ok(Some(chunk))) => self.ahead = Some(chunk),
                Poll::Ready(_) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        if let Some(end) = &self.end {
            return Poll::Ready(end.clone());
        }
        let reset = ready!(self.inner.poll_reset(context));
        // What was not read of it is void.
        self.ahead = None;
        let error = reset.map_or_else(Error::Session, |code| Error::Read(ReadError::Reset(code)));
        Poll::Ready(self.end.insert(Err(error)).clone())
    }
}

/// Most bytes that one read copies.
const PIECE: usize = 64 << 10;
