//! Byte stream under the library of HTTP/2.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use marcato_sched::order::StreamId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::error_code::ErrorCode;
use crate::frames::{Event, FrameReader};
use crate::signals::Signals;
use crate::socket::Socket;

/// Bytes from which on the library has to wait: the largest chunk by default, and 64 KiB of HEADERS and frames of its
/// own.
const MAX_COLLECTED: usize = 320 << 10;
/// Most frames that carry signals between two requests. Browsers send six at the start and two for each
/// request.
const MAX_SIGNALS: u32 = 1000;
/// Most SETTINGS and PING frames between two requests or pieces of content. Clients that measure the path
/// send one PING for what they have received.
const MAX_ANSWERS: u64 = 1000;

/// Byte stream under the library of HTTP/2, shared with the task of the connection.
///
/// The library flushes after each frame. So what it writes is only collected here, and the task sends it
/// when the library has been asked for all it has. What it reads passes the reader of signals.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<Mutex<Inner>>);

/// State of a wire.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) socket: Socket,
    /// Bytes that the library has written and the socket has not been given.
    out: Vec<u8>,
    reader: FrameReader,
    pub(super) signals: Signals,
    /// Frames of signals since the head of the latest request.
    frames: u32,
    /// Stream of that request.
    newest: StreamId,
    /// Frames that the library had to answer when the latest request came, or content was granted.
    answered: u64,
    /// Head of a request that is not complete, and the time at which it began.
    head: Option<(u32, Instant)>,
    /// Error of the connection that the library does not see.
    violation: Option<Violation>,
}

/// Violation of the protocol that the library does not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A frame is malformed, or prioritises too many streams.
    Frame(ErrorCode),
    /// Signals or resets alone keep the server busy.
    Flood,
}

impl Wire {
    pub(super) fn new(socket: Socket, signals: Signals) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            socket,
            out: Vec::new(),
            reader: FrameReader::new(FrameReader::MAX_FRAME_SIZE),
            signals,
            frames: 0,
            newest: StreamId(0),
            answered: 0,
            head: None,
            violation: None,
        })))
    }

    /// Returns the state. The library is not called while it is borrowed.
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Bytes that the library has written and the socket has not been given.
    pub(super) const fn collected(&self) -> usize {
        self.out.len()
    }

    /// True if something is left to be sent.
    pub(super) fn is_pending(&self) -> bool {
        self.socket.is_pending() || !self.out.is_empty()
    }

    /// Gives the socket what the library has written, once it has taken all before. Returns the bytes
    /// that the kernel has accepted.
    pub(super) fn flush(&mut self) -> io::Result<usize> {
        let mut flushed = self.socket.flush()?;
        if !self.out.is_empty() && !self.socket.is_pending() {
            self.socket.queue(&mut self.out)?;
            flushed += self.socket.flush()?;
        }
        Ok(flushed)
    }

    /// Bytes of content that the client has allowed on the connection so far.
    pub(super) const fn allowed(&self) -> u64 {
        FrameReader::INITIAL_WINDOW.saturating_add(self.reader.credit())
    }

    /// Notes that a request was taken, or content granted: a client may send more frames that have to be answered.
    pub(super) const fn granted(&mut self) {
        self.answered = self.reader.counters().answered;
    }

    /// Time at which the head of a request began that is not complete.
    pub(super) fn head_since(&self) -> Option<Instant> {
        self.head.map(|(_, since)| since)
    }

    /// Returns the violation of the client, if there is one.
    pub(super) const fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    /// Reads the signals in bytes that go to the library.
    fn tap(&mut self, bytes: &[u8]) {
        let Self { reader, signals, frames, newest, answered, head, violation, .. } = self;
        let result = reader.feed(bytes, |event| {
            // The library reports a request once it has read all that has come, perhaps with the signals of the next.
            match event {
                Event::Headers { stream, .. } if stream > *newest => (*newest, *frames) = (stream, 0),
                _ => *frames += 1,
            }
            if let Err(error) = signals.event(event) {
                violation.get_or_insert(Violation::Frame(error.code()));
            }
        });
        if let Err(error) = result {
            violation.get_or_insert(Violation::Frame(error.code()));
        }
        *head = reader.open_head().map(|number| match *head {
            Some((known, since)) if known == number => (number, since),
            _ => (number, Instant::now()),
        });
        if *frames > MAX_SIGNALS || reader.counters().answered - *answered > MAX_ANSWERS {
            violation.get_or_insert(Violation::Flood);
        }
    }

    /// Returns ready if the library may write. The task asks it again after each [`flush`](Self::flush), so that nobody
    /// has to be woken.
    const fn poll_room(&self) -> Poll<()> {
        if self.out.len() < MAX_COLLECTED { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        let before = buf.filled().len();
        ready!(inner.socket.poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        inner.tap(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.inner();
        ready!(inner.poll_room());
        inner.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.inner();
        ready!(inner.poll_room());
        for part in parts {
            inner.out.extend_from_slice(part);
        }
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The task ends the connection when all has left.
        Poll::Ready(Ok(()))
    }
}
