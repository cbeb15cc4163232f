//! Kernel socket that is fed one chunk at a time, and keeps little unsent (CATS §II-C).

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use marcato_sched::coupled::Coupling;
use marcato_stream::{ChunkRule, chunk};
use marcato_units::{Bytes, Duration, PrioritySet, Rate, Time};
use marcato_wire::CodePoints;
use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::coupled::KernelCoupling;
use super::mark::KernelMark;
use super::pipe::Pipe;
use crate::stats::CoupledStats;
use crate::sys;

/// Time for which a measurement of the connection's rate is used.
const FRESH: Duration = Duration::from_millis(10);
/// Segments above which a chunk is that of a fast connection.
const SLOW_SEGMENTS: u64 = 4;
/// Segments that leave a paced socket at once, at least (Linux, `bbr_min_tso_segs`), and time whose bytes do at
/// higher rates (`sk_pacing_shift`).
const BURST_SEGMENTS: u64 = 2;
const BURST: Duration = Duration::from_millis(1);
/// Most bytes that leave at once (Linux, `gso_max_size`).
const BURST_MOST: Bytes = Bytes::new(64 << 10);
/// Largest multiple of the delivery rate at which BBR paces: 2/ln 2, in its startup, and a little for what the
/// delivery rate lags behind.
const PACING_GAIN: u64 = 3;
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

/// Data that the owner of a socket has.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// Levels at which there has been data.
    pub used: PrioritySet,
    /// Levels of the data that can be sent now.
    pub waiting: PrioritySet,
    /// True if no urgent data has come for a while ([`ChunkRule::quiet_after`]).
    pub quiet: bool,
    /// Connections at which the kernel is asked for its unsent bytes.
    pub probe: Probe,
}

/// Connections at which the kernel is asked whether it has [little left](LeanSocket::turn), before a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// All.
    Always,
    /// Slow ones. A fast one finds out by a write that blocks.
    IfSlow,
    /// None: the kernel has been asked, and nothing was written since.
    Never,
}

/// Leave to send a chunk. Whoever sends it [spends](LeanSocket::spend) it.
#[derive(Debug)]
#[must_use = "a chunk is recorded by spending its turn"]
pub struct Turn {
    payload: usize,
    levels: PrioritySet,
}

impl Turn {
    /// Most plaintext bytes of the chunk, which then ends with a TLS record.
    pub const fn payload(&self) -> usize {
        self.payload
    }
}

/// Reason for which no chunk may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTurn {
    /// The kernel has not accepted all of what was queued.
    Pending,
    /// The kernel has too much left: wait until it [accepts data](LeanSocket::poll_write_ready).
    Full,
    /// Coupled mode holds data back until [`look`](LeanSocket::look).
    Held {
        /// Plaintext bytes that a chunk would have, for what the peer waits for: it is not held back.
        payload: usize,
    },
}

/// TCP socket that keeps little unsent, in plaintext or with TLS.
///
/// Data that the kernel holds cannot be overtaken. So its owner decides about the next chunk only when it
/// has its [`turn`](Self::turn): when the kernel has little left, and coupled mode, which keeps the
/// bottleneck's queue short as well, holds nothing back. The feeder of messages and the web plane share it.
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
    /// Set if the congestion controller measures rates; `None` until it has been asked for.
    measures_rates: Option<bool>,
    coupled: KernelCoupling,
    mark: KernelMark,
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
            measures_rates: None,
            coupled: KernelCoupling::new(coupling),
            mark: KernelMark::new(None),
        }
    }

    /// Sets the levels that are urgent in coupled mode: the others are held back for them. P0 and P1 are by
    /// default.
    #[must_use]
    pub const fn with_urgent(mut self, levels: PrioritySet) -> Self {
        self.coupled.set_urgent(levels);
        self
    }

    /// Sets the code points by which packets are [marked](crate::Config::marks); `None`, the default, leaves their
    /// marks alone.
    #[must_use]
    pub const fn with_marks(mut self, marks: Option<CodePoints>) -> Self {
        self.mark = KernelMark::new(marks);
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

    /// Rate at which the connection carries data, as measured for the latest [`turn`](Self::turn); zero
    /// before that.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Chunk at that rate; of no bytes before the first turn.
    pub const fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// State of coupled mode; `None` until it acts.
    pub fn coupled(&self) -> Option<CoupledStats> {
        self.coupled.stats()
    }

    /// Takes note of the peer's clock (docs/wire.md, CLOCK).
    pub(super) fn heard(&mut self, now: Time, clock: u32) {
        self.coupled.heard(now, clock);
    }

    /// Returns whether the kernel has sent all that was written, so that what is written now leaves at once.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_pending()
            && sys::tcp_info(&SockRef::from(&*self.stream)).is_ok_and(|info| info.unsent.is_zero())
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

    /// Waits until the kernel accepts data, after [`flush`](Self::flush) has left some or a turn was refused
    /// as [`Full`](NoTurn::Full).
    ///
    /// # Errors
    ///
    /// If the runtime ends.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    /// Queues bytes, which leave in records of their own, and empties the buffer.
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

    /// Measures the connection, and returns the leave to send its next chunk.
    ///
    /// Coupled mode begins if it is due, even while the kernel is full: its governor then sees what leaves.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn turn(&mut self, now: Time, supply: Supply) -> io::Result<Result<Turn, NoTurn>> {
        if self.is_pending() {
            return Ok(Err(NoTurn::Pending));
        }
        self.coupled.begin(now, &SockRef::from(&*self.stream), supply.used);
        let Chunk { wire, slow } = self.measure(now, supply.quiet)?;
        let probes = match supply.probe {
            Probe::Always => true,
            Probe::IfSlow => slow,
            Probe::Never => false,
        };
        if probes && !self.is_writable()? {
            return Ok(Err(NoTurn::Full));
        }
        let room = self.coupled.room(now, &SockRef::from(&*self.stream), supply.waiting, wire, slow);
        let payload = |wire| chunk::plain(wire, self.pipe.is_tls());
        if room.is_zero() {
            return Ok(Err(NoTurn::Held { payload: payload(wire) }));
        }
        Ok(Ok(Turn { payload: payload(room), levels: supply.waiting }))
    }

    /// Records the levels of a chunk that is queued next, by its turn. It gets its [mark](Self::with_marks) if that may
    /// change.
    #[expect(clippy::needless_pass_by_value, reason = "a turn is spent once")]
    pub fn spend(&mut self, turn: Turn) {
        self.coupled.chunk(turn.levels);
        self.mark.follow(&SockRef::from(&*self.stream), turn.levels);
    }

    /// Ends the wait for the next look. A turn that is still [held back](NoTurn::Held) begins it again.
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

    /// Returns whether the kernel has less unsent than the low-water mark. The runtime's own
    /// readiness is that of the latest edge. A chunk granted on it would wait in the kernel while
    /// more urgent data arrives.
    fn is_writable(&self) -> io::Result<bool> {
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
    fn measure(&mut self, now: Time, quiet: bool) -> io::Result<Chunk> {
        if quiet == self.quiet && self.measured_at.is_some_and(|at| now.since(at) < FRESH) {
            return Ok(self.chunk);
        }
        self.measured_at = Some(now);
        self.quiet = quiet;
        let socket = SockRef::from(&*self.stream);
        let info = sys::tcp_info(&socket).ok();
        // Without measurements by the system, chunks are Ethernet segments.
        let (mss, rate) = info.map_or((ETHERNET, Rate::ZERO), |info| (info.mss, info.delivery_rate));
        self.rate = rate;
        let wire = self.rule.on_wire(mss, rate, quiet);
        self.chunk = Chunk { wire, slow: wire <= mss * SLOW_SEGMENTS };
        let measures_rates = *self.measures_rates.get_or_insert_with(|| measures_rates(&socket));
        let pacing = info.and_then(|info| info.pacing_rate).filter(|_| measures_rates);
        let low_water = low_water(self.chunk, pacing.map_or(Bytes::ZERO, |pacing| burst(pacing, rate, mss)));
        if low_water != self.low_water {
            self.low_water = low_water;
            #[cfg(target_os = "linux")]
            socket.set_tcp_notsent_lowat(low_water)?;
        }
        Ok(self.chunk)
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

/// Returns the low-water mark for unsent bytes, above those that are always left to the kernel.
fn low_water(chunk: Chunk, reserve: Bytes) -> u32 {
    // A socket counts as writable while twice the unsent bytes are less than the mark. A mark of
    // one byte therefore means: nothing unsent.
    let unsent = if chunk.slow { reserve } else { chunk.wire + reserve };
    let mark = unsent.get().saturating_mul(2).saturating_add(u64::from(chunk.slow));
    u32::try_from(mark).unwrap_or(u32::MAX)
}

/// Returns the bytes, in whole segments, that leave at once at this pacing rate. Before a connection has
/// measured its delivery rate, its pacing rate is a guess.
fn burst(pacing: Rate, delivery: Rate, mss: Bytes) -> Bytes {
    let fastest = delivery.bytes_in(BURST) * PACING_GAIN;
    let segments = pacing.bytes_in(BURST).min(fastest).min(BURST_MOST).get().div_ceil(mss.get().max(1));
    mss * segments.max(BURST_SEGMENTS)
}

/// Returns whether the congestion controller of a socket measures rates, as all versions of BBR do.
///
/// Such a controller takes a write that finds nothing unsent for a pause of the application, and ignores the
/// rates before it (Linux, `tcp_rate_check_app_limited`). Fed one chunk at a time, it would never learn that the
/// path is full: it would stay in its startup, with twice the bandwidth-delay product in the queue.
fn measures_rates(socket: &SockRef<'_>) -> bool {
    #[cfg(target_os = "linux")]
    return socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr"));
    #[cfg(not(target_os = "linux"))]
    return false;
}
