//! Kernel socket that is fed one chunk at a time, and keeps little unsent (CATS §II-C).

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use marcato_sched::coupled::Coupling;
use marcato_stream::{ChunkRule, chunk};
use marcato_units::{Bytes, Duration, PrioritySet, Rate, Time};
use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::coupled::KernelCoupling;
use super::pipe::Pipe;
use crate::stats::CoupledStats;
use crate::sys;

/// Time for which a measurement of the connection's rate is used.
const FRESH: Duration = Duration::from_millis(10);
/// Segments above which a chunk is that of a fast connection.
const SLOW_SEGMENTS: u64 = 4;
/// Payload of an Ethernet segment with timestamps, where the system measures nothing.
const ETHERNET: Bytes = Bytes::new(1448);

/// Chunk that a socket takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Bytes on the wire, in whole segments.
    pub wire: Bytes,
    /// True if its segments are few: each chunk then waits until the kernel has sent the one before.
    pub slow: bool,
}

/// TCP socket that keeps little unsent, in plaintext or with TLS.
///
/// Data that the kernel holds cannot be overtaken. So its owner decides about the next chunk only when
/// the kernel [has little left](Self::is_writable), and [asks](Self::room) coupled mode, which keeps the
/// bottleneck's queue short as well. The feeder of messages and the web plane share it.
///
/// All calls return at once. Those that begin with `poll` register the task for a wake-up.
pub struct LeanSocket {
    stream: Arc<TcpStream>,
    pipe: Pipe,
    rule: ChunkRule,
    /// Latest chunk, and in `measured_at` the time of that measurement.
    chunk: Chunk,
    rate: Rate,
    quiet: bool,
    measured_at: Option<Time>,
    low_water: u32,
    coupled: KernelCoupling,
}

impl std::fmt::Debug for LeanSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeanSocket")
            .field("stream", &self.stream)
            .field("tls", &self.pipe.is_tls())
            .finish_non_exhaustive()
    }
}

impl LeanSocket {
    /// Creates a socket that sends plaintext.
    pub fn plain(stream: TcpStream, rule: ChunkRule, coupling: Coupling) -> Self {
        Self::new(Arc::new(stream), Pipe::plain(), rule, coupling)
    }

    /// Creates a socket whose TLS handshake is complete.
    pub fn tls(
        stream: TcpStream,
        connection: impl Into<rustls::Connection>,
        rule: ChunkRule,
        coupling: Coupling,
    ) -> Self {
        Self::new(Arc::new(stream), Pipe::tls(connection.into()), rule, coupling)
    }

    pub(crate) fn new(stream: Arc<TcpStream>, pipe: Pipe, rule: ChunkRule, coupling: Coupling) -> Self {
        Self {
            stream,
            pipe,
            rule,
            chunk: Chunk { wire: Bytes::ZERO, slow: true },
            rate: Rate::ZERO,
            quiet: false,
            measured_at: None,
            low_water: 0,
            coupled: KernelCoupling::new(coupling),
        }
    }

    /// Sets the levels that are urgent in coupled mode: the others are held back for them. P0 and P1 are by
    /// default.
    #[must_use]
    pub const fn with_urgent(mut self, levels: PrioritySet) -> Self {
        self.coupled.set_urgent(levels);
        self
    }

    /// Stream of the socket, for its addresses, options and readiness.
    pub fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// True with TLS.
    pub const fn is_tls(&self) -> bool {
        self.pipe.is_tls()
    }

    /// True while the kernel has not accepted everything that was queued.
    pub fn is_pending(&self) -> bool {
        self.pipe.is_pending()
    }

    /// Rate at which the connection carries data, as last [measured](Self::measure); zero before that.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// State of coupled mode; `None` until it acts.
    pub fn coupled(&self) -> Option<CoupledStats> {
        self.coupled.stats()
    }

    /// Reads decrypted bytes. None are added to `buf` if the peer has ended its direction.
    ///
    /// # Errors
    ///
    /// If the connection is broken, TLS fails, or the stream ends without the end of TLS.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.pipe.read(&self.stream, buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_read_ready(cx))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Waits until the kernel accepts data, after [`flush`](Self::flush) has left some or
    /// [`is_writable`](Self::is_writable) was false.
    ///
    /// # Errors
    ///
    /// If the runtime ends.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    /// Queues bytes, which leave in [records](Self::room) of their own, and empties the buffer.
    ///
    /// # Errors
    ///
    /// If TLS has ended.
    pub fn queue(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.pipe.queue(bytes)?;
        // Without TLS this is the other buffer, which had been sent.
        bytes.clear();
        Ok(())
    }

    /// Queues the end of TLS; nothing in plaintext.
    pub fn queue_end(&mut self) {
        self.pipe.queue_end();
    }

    /// Hands queued bytes to the kernel, as far as it accepts them. Returns their number.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn flush(&mut self) -> io::Result<usize> {
        let flushed = self.pipe.flush(&self.stream)?;
        self.coupled.wrote(flushed);
        Ok(flushed)
    }

    /// Returns whether the kernel has less unsent than the low-water mark. The runtime's own
    /// readiness is that of the latest edge. A chunk granted on it would wait in the kernel while
    /// more urgent data arrives.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn is_writable(&self) -> io::Result<bool> {
        let poll = || {
            if sys::poll_writable(&SockRef::from(&*self.stream))? {
                Ok(())
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        match self.stream.try_io(Interest::WRITABLE, poll) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the next chunk at the connection's present rate, and sets the low-water mark for it.
    /// `quiet` means that no urgent data has come for a while.
    ///
    /// # Errors
    ///
    /// If the mark cannot be set.
    pub fn measure(&mut self, now: Time, quiet: bool) -> io::Result<Chunk> {
        if quiet == self.quiet && self.measured_at.is_some_and(|at| now.since(at) < FRESH) {
            return Ok(self.chunk);
        }
        self.measured_at = Some(now);
        self.quiet = quiet;
        let socket = SockRef::from(&*self.stream);
        // Without measurements by the system, chunks are Ethernet segments.
        let (mss, rate) =
            sys::tcp_info(&socket).map_or((ETHERNET, Rate::ZERO), |info| (info.mss, info.delivery_rate));
        self.rate = rate;
        let wire = self.rule.on_wire(mss, rate, quiet);
        self.chunk = Chunk { wire, slow: wire <= mss * SLOW_SEGMENTS };
        let low_water = low_water(self.chunk);
        if low_water != self.low_water {
            self.low_water = low_water;
            #[cfg(target_os = "linux")]
            socket.set_tcp_notsent_lowat(low_water)?;
        }
        Ok(self.chunk)
    }

    /// Begins coupled mode if data of these levels is the condition for it. Returns whether it did.
    pub fn couple(&mut self, now: Time, used: PrioritySet) -> bool {
        self.coupled.begin(now, &SockRef::from(&*self.stream), used)
    }

    /// Returns the bytes on the wire that coupled mode allows now, in whole segments: at most `size`.
    /// Zero means that data is held back, and that [`look`](Self::look) is the time to ask again.
    /// `waiting` are the levels of data that can be sent now.
    pub fn room(&mut self, now: Time, waiting: PrioritySet, size: Bytes) -> Bytes {
        self.coupled.room(now, &SockRef::from(&*self.stream), waiting, size, self.chunk.slow)
    }

    /// Returns the plaintext bytes of a chunk of `wire` bytes, which then ends with a record.
    pub fn payload(&self, wire: Bytes) -> usize {
        chunk::plain(wire, self.pipe.is_tls())
    }

    /// Records the levels of a chunk that is written next.
    pub fn grant(&mut self, levels: PrioritySet) {
        self.coupled.chunk(levels);
    }

    /// Ends the wait for the next look. [`room`](Self::room) begins it again if data is still held.
    pub const fn release(&mut self) {
        self.coupled.release();
    }

    /// Time at which to ask coupled mode again; `None` while nothing is held back.
    pub const fn look(&self) -> Option<Instant> {
        self.coupled.look()
    }

    /// Ends our direction: nothing can be sent after it.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn shut_down(&self) -> io::Result<()> {
        SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write)
    }

    /// Makes coupled mode act, and hold all background data back.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn hold_back(&mut self) {
        self.coupled.hold_back(&SockRef::from(&*self.stream));
    }

    /// Decrypts bytes that were read from the stream. Returns whether the peer has ended its direction.
    pub(super) fn receive<E: From<io::Error> + From<rustls::Error>>(
        &mut self,
        wire: &[u8],
        scratch: &mut [u8],
        plain: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.pipe.receive(wire, scratch, plain)
    }
}

/// Returns the low-water mark for unsent bytes.
fn low_water(chunk: Chunk) -> u32 {
    // A socket counts as writable while twice the unsent bytes are less than the mark. A mark of
    // one byte therefore means: nothing unsent.
    if chunk.slow { 1 } else { u32::try_from(chunk.wire.get().saturating_mul(2)).unwrap_or(u32::MAX) }
}
