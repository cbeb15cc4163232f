//! Time that the head of a request of HTTP/1.1 takes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::framing::Framing;

/// Time at which the head of a request began that is not complete.
///
/// The library counts the time between two requests as that for the head of the next one, so that it
/// cannot close slow heads sooner than idle connections. This begins with the first byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadTimer(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Requests that are not over. What is read meanwhile is mostly their content.
    open: AtomicUsize,
    since: Mutex<Option<Instant>>,
    /// True once the bytes are no requests any more.
    is_tunnel: AtomicBool,
    /// True once a byte was refused.
    is_refused: AtomicBool,
}

/// Request whose head is complete. It is over when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest(HeadTimer);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}

impl HeadTimer {
    /// Notes that a head is complete.
    pub(crate) fn complete(&self) -> OpenRequest {
        self.0.open.fetch_add(1, Relaxed);
        *self.locked() = None;
        OpenRequest(self.clone())
    }

    /// Time at which the head that is not complete began.
    pub(crate) fn since(&self) -> Option<Instant> {
        *self.locked()
    }

    /// Notes that the connection becomes a tunnel. What comes then is no request.
    pub(crate) fn tunnel(&self) {
        self.0.is_tunnel.store(true, Relaxed);
    }

    fn refuse(&self) {
        self.0.is_refused.store(true, Relaxed);
        *self.locked() = None;
    }

    /// True if the client has sent bytes that frame a request in a way that is not accepted.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.is_refused.load(Relaxed)
    }

    fn read(&self) {
        if self.0.open.load(Relaxed) == 0 {
            self.locked().get_or_insert_with(Instant::now);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Byte stream whose reads are timed, and followed until they are refused.
#[derive(Debug)]
pub(crate) struct Timed<I> {
    io: I,
    timer: HeadTimer,
    framing: Framing,
    /// Bytes that are read once one was refused.
    last: &'static [u8],
    /// Time for which the client may still send after the last answer.
    linger: Option<Pin<Box<Sleep>>>,
}

/// Time for the client to end its direction after ours.
const LINGER: Duration = Duration::from_secs(1);

impl<I> Timed<I> {
    pub(crate) const fn new(io: I, timer: HeadTimer) -> Self {
        Self { io, timer, framing: Framing::new(), last: b"\r\n\r\n", linger: None }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Timed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, timer, framing, last, .. } = &mut *self;
        if timer.is_refused() {
            let (now, later) = last.split_at(last.len().min(buf.remaining()));
            buf.put_slice(now);
            *last = later;
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(io).poll_read(cx, buf))?;
        if buf.filled().len() == before {
            return Poll::Ready(Ok(()));
        }
        timer.read();
        if !timer.0.is_tunnel.load(Relaxed)
            && let Some(at) = framing.follow(&buf.filled()[before..])
        {
            timer.refuse();
            // The library answers a head with this byte with 400, and no other part of a request can have
            // it either. It looks once the head has ended; then the stream is over.
            buf.filled_mut()[before + at] = 0;
            buf.set_filled(before + at + 1);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Timed<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, timer, linger, .. } = &mut *self;
        if linger.is_none() {
            ready!(Pin::new(&mut *io).poll_shutdown(cx))?;
            if !timer.is_refused() && timer.since().is_none() {
                return Poll::Ready(Ok(()));
            }
        }
        // RFC 9112 §9.6: a socket that is closed with unread data resets the connection, and the client
        // could lose the answer to a request that was not read to its end.
        let linger = linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut scratch = [0; 1024];
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut *io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return linger.as_mut().poll(cx).map(Ok),
            }
            if linger.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_begins_with_its_first_byte_and_content_is_none() {
        let timer = HeadTimer::default();
        assert_eq!(timer.since(), None);
        timer.read();
        let since = timer.since();
        assert!(since.is_some());
        timer.read();
        assert_eq!(timer.since(), since);
        let request = timer.complete();
        timer.read();
        assert_eq!(timer.since(), None);
        drop(request);
        timer.read();
        assert!(timer.since().is_some());
    }
}
