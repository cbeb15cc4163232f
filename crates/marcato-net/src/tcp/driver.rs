//! Task that drives a connection: reads, and writes a chunk whenever the kernel has little left.

use std::io;
use std::sync::Arc;

use marcato_stream::{PeerError, Reader, chunk};
use marcato_units::{Bytes, Duration, Rate, Time};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::pipe::Pipe;
use super::{Phase, Tcp, low_water};
use crate::config::{Limits, TcpConfig};
use crate::error::Closed;
use crate::shared::{Transport, lock};
use crate::sys;

/// Time for which a measurement of the connection's rate is used.
const FRESH: Duration = Duration::from_millis(10);
/// Bytes read at once.
const READ: usize = 64 << 10;
/// Plaintext of the largest TLS record, and so of one decryption.
const RECORD: usize = 16 << 10;
/// Segments above which a chunk is that of a fast connection.
const SLOW_SEGMENTS: u64 = 4;

/// Reason for which driving ends early.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("tls: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("the stream ended without a tls close: data may be missing")]
    Truncated,
    #[error("the stream ended within a message")]
    CutShort,
}

struct Driver {
    tcp: Arc<Tcp>,
    stream: Arc<TcpStream>,
    pipe: Pipe,
    reader: Reader,
    config: TcpConfig,
    limits: Limits,
    /// Buffers for reading, for decrypted bytes (`plain`) and for writing (`chunk`).
    input: Vec<u8>,
    plain: Vec<u8>,
    chunk: Vec<u8>,
    /// Bytes of a chunk on the wire, and in `measured_at` the time of that measurement.
    size: Bytes,
    measured_at: Option<Time>,
    low_water: u32,
    /// Set when we have ended our direction.
    ended: bool,
}

pub(super) async fn drive(
    tcp: Arc<Tcp>,
    stream: Arc<TcpStream>,
    pipe: Pipe,
    config: TcpConfig,
    limits: Limits,
) {
    let plain = if pipe.is_tls() { vec![0; RECORD] } else { Vec::new() };
    let mut driver = Driver {
        tcp: Arc::clone(&tcp),
        stream,
        pipe,
        reader: Reader::new(),
        config,
        limits,
        input: vec![0; READ],
        plain,
        chunk: Vec::new(),
        size: Bytes::ZERO,
        measured_at: None,
        low_water: 0,
        ended: false,
    };
    let closed = match driver.run().await {
        Ok(closed) => closed,
        Err(stop) => Closed::Lost { reason: stop.to_string() },
    };
    tracing::debug!(%closed, "over");
    // The socket closes before its end is reported.
    drop(driver);
    tcp.end(closed);
}

impl Driver {
    async fn run(&mut self) -> Result<Closed, Stop> {
        // Bytes that arrived with the end of the handshake.
        if self.receive(0)? {
            return self.at_end();
        }
        let mut deadline: Option<Instant> = None;
        loop {
            tokio::task::consume_budget().await;
            if lock(&self.tcp.state).phase == Phase::Aborted {
                return Ok(Closed::Local);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Closed::Local);
            }
            let wrote = self.write()?;
            if self.ended && deadline.is_none() {
                deadline = Some(Instant::now() + self.config.linger);
            }
            let reading = self.ended || !self.is_full();
            let mut read = false;
            if reading {
                match self.stream.try_read(&mut self.input) {
                    Ok(0) => return self.at_eof(),
                    Ok(len) => {
                        if self.receive(len)? {
                            return self.at_end();
                        }
                        read = true;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The peer has received all its data, and does not wait for us.
                    Err(_) if self.ended => return Ok(Closed::Local),
                    Err(error) => return Err(error.into()),
                }
            }
            if wrote || read {
                continue;
            }
            let writing =
                self.pipe.is_pending() || (!self.ended && lock(&self.tcp.state).sender.wants_write());
            let at = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                () = self.tcp.wake.notified() => {}
                ready = self.stream.readable(), if reading => ready?,
                ready = self.stream.writable(), if writing => ready?,
                () = tokio::time::sleep_until(at), if deadline.is_some() => {}
            }
        }
    }

    fn is_full(&self) -> bool {
        lock(&self.tcp.state).sender.receipts() >= self.limits.receipts
            || lock(&self.tcp.shared.inbound).is_full()
    }

    /// Writes the rest of a chunk, or the next one if the kernel has little left. Returns whether
    /// anything was written.
    fn write(&mut self) -> Result<bool, Stop> {
        let mut any = self.pipe.flush(&self.stream)?;
        if self.pipe.is_pending() || self.ended {
            return Ok(any);
        }
        let now = self.tcp.now();
        let (wanted, done) = {
            let state = lock(&self.tcp.state);
            let done = state.phase == Phase::Finishing && state.sender.is_idle();
            (state.sender.wants_write(), done)
        };
        if done {
            self.pipe.queue_end();
            self.pipe.flush(&self.stream)?;
            // TLS's closing alert is a few bytes. If even they do not fit, the peer is not reading
            // anyway.
            SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write)?;
            self.ended = true;
            return Ok(true);
        }
        if !wanted || !self.is_writable()? {
            return Ok(any);
        }
        let budget = chunk::plain(self.measure(now)?, self.pipe.is_tls());
        self.chunk.clear();
        lock(&self.tcp.state).sender.fill(now, budget, &mut self.chunk);
        if !self.chunk.is_empty() {
            self.pipe.queue(&self.chunk)?;
            self.pipe.flush(&self.stream)?;
            any = true;
        }
        // Messages have left the queue, or have expired in it.
        self.tcp.shared.room.notify_waiters();
        Ok(any)
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

    /// Returns the bytes of a chunk on the wire, at the connection's present rate.
    fn measure(&mut self, now: Time) -> io::Result<Bytes> {
        if self.measured_at.is_some_and(|at| now.since(at) < FRESH) {
            return Ok(self.size);
        }
        self.measured_at = Some(now);
        let socket = SockRef::from(&*self.stream);
        // Without measurements by the system, chunks are Ethernet segments.
        let (mss, rate) = sys::tcp_info(&socket)
            .map_or((Bytes::new(1448), Rate::ZERO), |info| (info.mss, info.delivery_rate));
        self.size = self.config.chunk.on_wire(mss, rate);
        let low_water = low_water(self.size, self.size > mss * SLOW_SEGMENTS);
        if low_water != self.low_water {
            self.low_water = low_water;
            #[cfg(target_os = "linux")]
            socket.set_tcp_notsent_lowat(low_water)?;
        }
        Ok(self.size)
    }

    /// Processes the bytes read. Returns whether the peer has ended its direction.
    fn receive(&mut self, len: usize) -> Result<bool, Stop> {
        let Self { pipe, reader, tcp, input, plain, ended, .. } = self;
        let mut state = lock(&tcp.state);
        let mut inbound = lock(&tcp.shared.inbound);
        let over = pipe.receive::<Stop>(&input[..len], plain, |bytes| {
            // After our end we send no more receipts, so the bytes are ignored.
            if *ended { Ok(()) } else { Ok(reader.feed(bytes, &mut inbound, &mut state.sender)?) }
        })?;
        drop((inbound, state));
        tcp.shared.readable.notify_waiters();
        tcp.shared.room.notify_waiters();
        Ok(over)
    }

    /// Determines the outcome once the peer sends nothing more.
    fn at_end(&self) -> Result<Closed, Stop> {
        if self.ended {
            return Ok(Closed::Local);
        }
        if !self.reader.is_between_frames() || lock(&self.tcp.shared.inbound).open_messages() > 0 {
            return Err(Stop::CutShort);
        }
        Ok(Closed::ByPeer)
    }

    fn at_eof(&self) -> Result<Closed, Stop> {
        // RFC 8446 §6.1: each side must send close_notify before it closes. Without it, the end of
        // the data may have been cut off.
        if self.pipe.is_tls() && !self.ended {
            return Err(Stop::Truncated);
        }
        self.at_end()
    }
}
