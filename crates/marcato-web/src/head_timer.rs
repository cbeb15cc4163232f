//! Time that the head of a request of HTTP/1.1 takes.

use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

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

    fn read(&self) {
        if self.0.open.load(Relaxed) == 0 {
            self.locked().get_or_insert_with(Instant::now);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Byte stream whose reads are timed.
#[derive(Debug)]
pub(crate) struct Timed<I> {
    io: I,
    timer: HeadTimer,
}

impl<I> Timed<I> {
    pub(crate) const fn new(io: I, timer: HeadTimer) -> Self {
        Self { io, timer }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Timed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.timer.read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Timed<I> {
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
        Pin::new(&mut self.io).poll_shutdown(cx)
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
