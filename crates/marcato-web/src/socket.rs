//! Socket under HTTP/2: one of the kernel's TCP, or any other byte stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use marcato_net::{CoupledStats, LeanSocket, NoTurn, Supply};
use marcato_units::{Bytes, PrioritySet, Rate, Time};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::time::Instant;

use crate::listener::Stream;

/// Chunk for a byte stream whose rate nobody measures: 16 KiB.
const CHUNK: usize = 16 << 10;

/// Leave to send a chunk.
#[derive(Debug)]
#[must_use = "a chunk is recorded by spending its turn"]
pub(crate) struct Turn {
    /// Most plaintext bytes of the chunk.
    pub(crate) payload: usize,
    lean: Option<marcato_net::Turn>,
}

/// Socket under HTTP/2.
#[derive(Debug)]
pub(crate) enum Socket {
    /// TCP of the kernel, which keeps little unsent.
    Lean(Box<LeanSocket>),
    /// Any other byte stream, in plaintext for us: TLS is below. Order holds as far as the stream takes no
    /// more than it can send.
    Other(Other),
}

impl From<LeanSocket> for Socket {
    fn from(socket: LeanSocket) -> Self {
        Self::Lean(Box::new(socket))
    }
}

/// Byte stream that takes what it is given when it can.
pub(crate) struct Other {
    stream: Box<dyn Stream>,
    /// Bytes that the stream has not taken, from `at` on.
    queue: Vec<u8>,
    at: usize,
    /// True while the stream may hold bytes that it has taken.
    holds: bool,
    /// Bytes that were taken and not told of.
    untold: usize,
    /// Task of the connection.
    waker: Waker,
}

impl std::fmt::Debug for Other {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Other").field("queued", &(self.queue.len() - self.at)).finish_non_exhaustive()
    }
}

impl Other {
    fn is_pending(&self) -> bool {
        self.at < self.queue.len() || self.holds
    }

    fn register(&mut self, cx: &Context<'_>) {
        if !self.waker.will_wake(cx.waker()) {
            self.waker = cx.waker().clone();
        }
    }

    /// Gives the stream what it takes. The task is woken when it takes more.
    fn push(&mut self) -> io::Result<()> {
        let mut cx = Context::from_waker(&self.waker);
        while let Some(rest) = self.queue.get(self.at..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut self.stream).poll_write(&mut cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(taken)) => {
                    self.at += taken;
                    self.untold += taken;
                    self.holds = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
        self.queue.clear();
        self.at = 0;
        if self.holds && Pin::new(&mut self.stream).poll_flush(&mut cx)?.is_ready() {
            self.holds = false;
        }
        Ok(())
    }
}

impl Socket {
    pub(crate) fn other(stream: Box<dyn Stream>) -> Self {
        let waker = Waker::noop().clone();
        Self::Other(Other { stream, queue: Vec::new(), at: 0, holds: false, untold: 0, waker })
    }

    /// Sets the levels that are urgent in coupled mode.
    pub(crate) fn with_urgent(self, levels: PrioritySet) -> Self {
        match self {
            Self::Lean(socket) => (*socket).with_urgent(levels).into(),
            other @ Self::Other(_) => other,
        }
    }

    /// True while what was queued has not been taken.
    pub(crate) fn is_pending(&self) -> bool {
        match self {
            Self::Lean(socket) => socket.is_pending(),
            Self::Other(other) => other.is_pending(),
        }
    }

    /// Rate as last measured; zero where nobody measures it.
    pub(crate) fn rate(&self) -> Rate {
        match self {
            Self::Lean(socket) => socket.rate(),
            Self::Other(_) => Rate::ZERO,
        }
    }

    /// State of coupled mode; `None` until it acts.
    pub(crate) fn coupled(&self) -> Option<CoupledStats> {
        match self {
            Self::Lean(socket) => socket.coupled(),
            Self::Other(_) => None,
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Lean(socket) => socket.poll_read(cx, buf),
            Self::Other(other) => {
                other.register(cx);
                Pin::new(&mut other.stream).poll_read(cx, buf)
            }
        }
    }

    /// Waits until more can be flushed.
    pub(crate) fn poll_write_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Lean(socket) => socket.poll_write_ready(cx),
            Self::Other(other) => {
                other.register(cx);
                other.push()?;
                if other.untold > 0 || !other.is_pending() { Poll::Ready(Ok(())) } else { Poll::Pending }
            }
        }
    }

    /// Queues bytes, and empties the buffer.
    pub(crate) fn queue(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Lean(socket) => socket.queue(bytes),
            Self::Other(other) => {
                other.queue.append(bytes);
                Ok(())
            }
        }
    }

    /// Queues the end of TLS, where that is ours.
    pub(crate) fn queue_end(&mut self) {
        match self {
            Self::Lean(socket) => socket.queue_end(),
            Self::Other(_) => {}
        }
    }

    /// Hands on what was queued, and returns the number of bytes that were taken.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        match self {
            Self::Lean(socket) => socket.flush(),
            Self::Other(other) => {
                other.push()?;
                Ok(std::mem::take(&mut other.untold))
            }
        }
    }

    /// Returns the leave to send the next chunk.
    pub(crate) fn turn(&mut self, now: Time, supply: Supply) -> io::Result<Result<Turn, NoTurn>> {
        match self {
            Self::Lean(socket) => {
                let turn = socket.turn(now, supply)?;
                Ok(turn.map(|turn| Turn { payload: turn.payload(), lean: Some(turn) }))
            }
            Self::Other(other) if other.is_pending() => Ok(Err(NoTurn::Pending)),
            Self::Other(_) => Ok(Ok(Turn { payload: CHUNK, lean: None })),
        }
    }

    /// Records the levels of a chunk that is queued next, by its turn.
    pub(crate) fn spend(&mut self, turn: Turn) {
        if let (Self::Lean(socket), Some(turn)) = (self, turn.lean) {
            socket.spend(turn);
        }
    }

    /// Largest chunk at the latest turn, in bytes on the wire.
    pub(crate) fn chunk(&self) -> Bytes {
        match self {
            Self::Lean(socket) => socket.chunk().wire,
            Self::Other(_) => Bytes::new(CHUNK as u64),
        }
    }

    /// Ends the wait for the next look at coupled mode.
    pub(crate) fn release(&mut self) {
        if let Self::Lean(socket) = self {
            socket.release();
        }
    }

    /// Time at which to ask coupled mode again.
    pub(crate) fn look(&self) -> Option<Instant> {
        match self {
            Self::Lean(socket) => socket.look(),
            Self::Other(_) => None,
        }
    }

    /// Ends our direction.
    pub(crate) fn shut_down(&mut self) -> io::Result<()> {
        match self {
            Self::Lean(socket) => socket.shut_down(),
            Self::Other(other) => {
                match Pin::new(&mut other.stream).poll_shutdown(&mut Context::from_waker(&other.waker)) {
                    Poll::Ready(result) => result,
                    Poll::Pending => Ok(()),
                }
            }
        }
    }
}
