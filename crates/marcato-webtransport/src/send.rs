//! Stream that this end sends on.

use std::fmt;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use marcato_net::streams::{SendStream as Inner, Waiter};

use crate::error::Error;
use crate::session::Order;

/// Most bytes that one write takes from a buffer.
const PIECE: usize = 64 << 10;

/// Stream that this end sends on. Dropped before it is finished, it is reset.
pub struct SendStream {
    inner: Inner,
    order: Order,
    finished: bool,
    waiter: Waiter,
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl SendStream {
    pub(crate) fn new(inner: Inner, order: Order) -> Self {
        Self { inner, order, finished: false, waiter: Waiter::default() }
    }

    /// Stream of `marcato-net`.
    pub const fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn write_some(
        &mut self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let part = Bytes::copy_from_slice(data.get(..PIECE).unwrap_or(data));
        self.inner.poll_write_chunk(context, &part).map_err(Error::from)
    }

    /// Writes from a buffer, which loses exactly the bytes that were accepted.
    pub(crate) fn write_from<B: Buf>(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<Result<usize, Error>> {
        let written = self.write_some(context, buf.chunk());
        if let Poll::Ready(Ok(len)) = written {
            buf.advance(len);
        }
        written
    }

    pub(crate) async fn write_whole(&mut self, chunk: Bytes) -> Result<(), Error> {
        Ok(self.inner.write_chunk(chunk).await?)
    }

    pub(crate) fn rank(&mut self, number: i64) {
        let order = (self.order)(number);
        self.inner.set_order(order);
    }

    pub(crate) fn end(&mut self) -> Result<(), Error> {
        self.inner.finish()?;
        self.finished = true;
        Ok(())
    }

    pub(crate) fn abandon(&mut self, code: u32) {
        self.finished = true;
        // One that is over needs no reset.
        let _ = self.inner.reset(code.into());
    }

    pub(crate) fn ends(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let stopped = self.inner.poll_stopped(&mut self.waiter, context);
        stopped.map(|stopped| match stopped? {
            Some(code) => Err(Error::Write(marcato_net::streams::WriteError::Stopped(code))),
            None => Ok(()),
        })
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if !self.finished {
            self.abandon(0);
        }
    }
}
