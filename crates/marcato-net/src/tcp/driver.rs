//! Task that drives a connection: reads, and writes a chunk whenever the kernel has little left.

use std::io::{self, Read as _};
use std::sync::Arc;

use marcato_identity::explain_alert;
use marcato_sched::coupled::{OwnClock, PeerClock};
use marcato_stream::{Cause, CloseReason, PeerError, Reader};
use marcato_units::{Bytes, Time};
use marcato_wire::Manner;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::lean::{LeanSocket, NoTurn, Probe, Supply};
use super::liveness::Liveness;
use super::pipe::Pipe;
use super::{Phase, Tcp};
use crate::config::{Config, Limits, TcpConfig};
use crate::error::Closed;
use crate::shared::Transport;
use crate::signal::lock;
use crate::sys;

/// Bytes read at once.
const READ: usize = 64 << 10;
/// Plaintext of the largest TLS record, and so of one decryption.
const RECORD: usize = 16 << 10;

/// Reason for which driving ends early.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{}", of_tls(.0))]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("the stream ended without a tls close: data may be missing")]
    Truncated,
    #[error("the stream ended within a message")]
    CutShort,
    #[error("the peer's host was silent for {0:?}")]
    Dead(std::time::Duration),
    #[error("the peer took nothing for {0:?} while the connection was closing")]
    Stuck(std::time::Duration),
}

impl Stop {
    /// Cause of the loss, for a program.
    fn cause(&self) -> Cause {
        match self {
            Self::Io(error) => match error.kind() {
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => Cause::Reset,
                io::ErrorKind::TimedOut => Cause::TimedOut,
                _ => Cause::Network,
            },
            Self::Tls(rustls::Error::AlertReceived(alert)) => Cause::Tls { alert: Some((*alert).into()) },
            Self::Tls(_) => Cause::Tls { alert: None },
            Self::Peer(_) => Cause::Protocol,
            Self::Truncated | Self::CutShort => Cause::Cut,
            Self::Dead(_) | Self::Stuck(_) => Cause::TimedOut,
        }
    }
}

/// Returns the meaning of an error of TLS, as text. With TLS 1.3 a client's handshake ends before
/// the server has seen the client's certificate (RFC 8446 §2), so the server's alert arrives here.
fn of_tls(error: &rustls::Error) -> String {
    let alert = match error {
        rustls::Error::AlertReceived(alert) => explain_alert((*alert).into()),
        _ => None,
    };
    alert.map_or_else(|| format!("tls: {error}"), ToOwned::to_owned)
}

/// Time of the next action that no event of the socket starts.
#[derive(Debug, Default)]
struct Times {
    /// End of the wait for the peer after our end.
    linger: Option<Instant>,
    /// Set while the connection is closing: the progress last seen, and the end of the wait for
    /// more.
    progress: Option<(Progress, Instant)>,
    /// Set while the connection is closing and the application takes nothing: the end of the wait
    /// for it.
    patience: Option<Instant>,
}

/// Measure of the data that the peer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    /// Bytes that its host has acknowledged.
    acked: Bytes,
    /// Messages without its receipt.
    unfinished: usize,
}

struct Driver {
    tcp: Arc<Tcp>,
    stream: Arc<TcpStream>,
    socket: LeanSocket,
    reader: Reader,
    /// Clock that the peer may want.
    clock: OwnClock,
    /// Set once the peer was asked for its own.
    watches: bool,
    config: TcpConfig,
    limits: Limits,
    /// Buffers for reading, for decrypted bytes (`plain`) and for writing (`chunk`).
    input: Vec<u8>,
    plain: Vec<u8>,
    chunk: Vec<u8>,
    liveness: Liveness,
    times: Times,
    /// Set when the end of our direction is queued; `ended` when it has been handed to the socket.
    ending: bool,
    ended: bool,
}

pub(super) async fn drive(tcp: Arc<Tcp>, stream: Arc<TcpStream>, pipe: Pipe, config: Config) {
    let mut driver = Driver::new(Arc::clone(&tcp), stream, pipe, config);
    let closed = match driver.run().await {
        Ok(closed) => closed,
        Err(stop) => {
            if let Stop::Tls(rustls::Error::AlertReceived(alert)) = &stop {
                let _ = tcp.shared.alert.set(*alert);
            }
            Closed::lost(stop.cause(), stop.to_string())
        }
    };
    tracing::debug!(%closed, "over");
    // The socket closes before its end is reported.
    drop(driver);
    tcp.end(closed);
}

impl Times {
    /// Returns the earliest of them, and of the next check of the peer's host.
    fn next(&self, check: Instant) -> Instant {
        let progress = self.progress.map(|(_, until)| until);
        let others = [progress, self.patience];
        // After our end, only the linger time counts.
        self.linger.unwrap_or_else(|| others.into_iter().flatten().fold(check, Instant::min))
    }
}

impl Driver {
    fn new(tcp: Arc<Tcp>, stream: Arc<TcpStream>, pipe: Pipe, config: Config) -> Self {
        let Config { tcp: settings, coupled, limits, marks, .. } = config;
        let plain = if pipe.is_tls() { vec![0; RECORD] } else { Vec::new() };
        Self {
            socket: LeanSocket::new(Arc::clone(&stream), pipe, settings.chunk, coupled).with_marks(marks),
            stream,
            reader: Reader::new(),
            clock: OwnClock::new(),
            watches: false,
            limits,
            input: vec![0; READ],
            plain,
            chunk: Vec::new(),
            liveness: Liveness::new(settings.idle_timeout, tcp.now()),
            config: settings,
            times: Times::default(),
            ending: false,
            ended: false,
            tcp,
        }
    }

    /// Time of the next action that no event of the socket starts.
    fn next_time(&self) -> Instant {
        self.times.next(self.instant(self.liveness.due()))
    }

    fn instant(&self, at: Time) -> Instant {
        self.tcp.epoch + at.since(Time::ZERO)
    }

    async fn run(&mut self) -> Result<Closed, Stop> {
        // Bytes that arrived with the end of the handshake.
        if self.receive(0)? {
            return self.at_end();
        }
        // One timer for all waits: it changes far less often than the socket is awaited.
        let mut timer = std::pin::pin!(tokio::time::sleep_until(self.next_time()));
        loop {
            tokio::task::consume_budget().await;
            if lock(&self.tcp.state).phase == Phase::Aborted {
                // Without TLS, the end of the stream between two frames would be a regular one. A
                // reset is none.
                if !self.socket.is_tls() {
                    SockRef::from(&*self.stream).set_linger(Some(std::time::Duration::ZERO))?;
                }
                return Ok(Closed::Local);
            }
            // While the peer takes nothing, messages expire all the same.
            let expired = lock(&self.tcp.state).sender.expire(self.tcp.now());
            if expired {
                self.tcp.freed();
            }
            let wrote = match self.write() {
                Ok(wrote) => wrote,
                Err(stop) => return Err(self.last_alert().unwrap_or(stop)),
            };
            let full = self.is_full();
            if self.is_over(full)? {
                return Ok(Closed::Local);
            }
            let reading = self.ended || !full || self.is_declining() || self.is_aborting();
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
                    Err(_) if self.ended || self.is_aborting() => return Ok(Closed::Local),
                    Err(error) => return Err(error.into()),
                }
            }
            if read {
                // What has arrived is in the processor's cache. Applications on this thread take it
                // now.
                tokio::task::yield_now().await;
            }
            if wrote || read {
                continue;
            }
            let (wants_write, expiry) = {
                let state = lock(&self.tcp.state);
                (state.sender.wants_write(), state.sender.next_expiry())
            };
            let look = self.socket.look();
            let writing = self.socket.is_pending() || (!self.ended && wants_write && look.is_none());
            let expiry = expiry.map(|at| self.instant(at));
            let next = expiry.into_iter().chain(look).fold(self.next_time(), Instant::min);
            if timer.deadline() != next {
                timer.as_mut().reset(next);
            }
            tokio::select! {
                () = self.tcp.wake.notified() => {}
                ready = self.stream.readable(), if reading => ready?,
                // Without reading, nothing else would report a reset or the kernel's timeout.
                ready = self.stream.ready(Interest::ERROR), if !reading => {
                    ready?;
                    self.take_error()?;
                }
                ready = self.stream.writable(), if writing => ready?,
                () = &mut timer => {}
            }
        }
    }

    /// Returns the alert that the peer has sent before it closed the connection, if there is one: it
    /// says more than the failure of the write that met the closed connection.
    fn last_alert(&mut self) -> Option<Stop> {
        if !self.socket.is_tls() {
            return None;
        }
        // The runtime may not have seen yet that the socket is readable, so the kernel is asked.
        let stream = Arc::clone(&self.stream);
        while let Ok(len @ 1..) = (&*SockRef::from(&*stream)).read(&mut self.input) {
            if let Err(stop) = self.receive(len) {
                return matches!(stop, Stop::Tls(_)).then_some(stop);
            }
        }
        None
    }

    /// Returns the socket's error, if it has one.
    fn take_error(&self) -> io::Result<()> {
        let error = || -> io::Result<()> {
            self.stream.take_error()?.map_or_else(|| Err(io::ErrorKind::WouldBlock.into()), Err)
        };
        match self.stream.try_io(Interest::ERROR, error) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Does what is due by time. Returns whether the connection is over; `full` states whether
    /// reading has to stop for the application.
    fn is_over(&mut self, full: bool) -> Result<bool, Stop> {
        let now = Instant::now();
        let phase = lock(&self.tcp.state).phase;
        if self.ended || phase == Phase::Aborting {
            let linger = *self.times.linger.get_or_insert(now + self.config.linger);
            // Whatever the peer still sends, it has taken all our data.
            self.times.progress = None;
            self.times.patience = None;
            return Ok(now >= linger);
        }
        if self.tcp.now() >= self.liveness.due() {
            let info = sys::tcp_info(&SockRef::from(&*self.stream)).ok();
            if self.liveness.check(self.tcp.now(), info.as_ref().map(Into::into)) {
                return Err(Stop::Dead(self.liveness.limit()));
            }
        }
        if phase != Phase::Finishing {
            return Ok(false);
        }
        // The receipts that closing waits for come after messages that the application may never
        // take.
        if full && !self.is_declining() {
            let patience = *self.times.patience.get_or_insert(now + self.config.linger);
            if now >= patience {
                tracing::debug!("messages are declined: the application takes none while closing");
                lock(&self.tcp.shared.inbound).decline();
                self.tcp.shared.readable.notify_waiters();
            }
        } else {
            self.times.patience = None;
        }
        let (before, until) = match self.times.progress {
            Some((_, until)) if now < until => return Ok(false),
            Some(seen) => seen,
            None => (Progress { acked: Bytes::ZERO, unfinished: usize::MAX }, now),
        };
        let progress = self.progress();
        if progress == before {
            return Err(Stop::Stuck(self.config.close_timeout));
        }
        self.times.progress = Some((progress, until.max(now) + self.config.close_timeout));
        Ok(false)
    }

    fn progress(&self) -> Progress {
        let info = sys::tcp_info(&SockRef::from(&*self.stream)).unwrap_or_default();
        let unfinished = lock(&self.tcp.state).sender.unfinished().iter().sum();
        Progress { acked: info.acked, unfinished }
    }

    /// Returns whether messages are declined because the connection is closing.
    fn is_declining(&self) -> bool {
        lock(&self.tcp.shared.inbound).is_declining()
    }

    /// Returns whether the application aborts the connection, and only the reason is still sent.
    fn is_aborting(&self) -> bool {
        lock(&self.tcp.state).phase == Phase::Aborting
    }

    fn is_full(&self) -> bool {
        let receipts = lock(&self.tcp.state).sender.receipts();
        let mut inbound = lock(&self.tcp.shared.inbound);
        receipts + inbound.answers() >= self.limits.receipts || inbound.is_full()
    }

    /// Queues the reports about messages that the application has taken, and the ends of exchanges.
    fn queue_answers(&self) {
        let mut state = lock(&self.tcp.state);
        let mut inbound = lock(&self.tcp.shared.inbound);
        while let Some(answer) = inbound.take_answer() {
            state.sender.answer(answer);
        }
    }

    /// Writes the rest of a chunk, or the next one if the kernel has little left. Returns whether
    /// anything was written.
    fn write(&mut self) -> Result<bool, Stop> {
        let flushed = self.socket.flush()?;
        self.socket.release();
        let mut any = flushed > 0;
        if self.socket.is_pending() || self.ended {
            return Ok(any);
        }
        if self.ending {
            self.socket.shut_down()?;
            self.ended = true;
            return Ok(true);
        }
        self.queue_answers();
        let now = self.tcp.now();
        let (wanted, used, waiting, end, quiet) = {
            let state = lock(&self.tcp.state);
            let end = match state.phase {
                Phase::Finishing if state.sender.is_idle() => Some((Manner::Closed, state.reason.clone())),
                Phase::Aborting => Some((Manner::Aborted, state.reason.clone())),
                _ => None,
            };
            let sender = &state.sender;
            let quiet = sender.is_quiet(now, self.config.chunk.quiet_after);
            (sender.wants_write(), sender.used(), sender.waiting(), end, quiet)
        };
        if let Some((manner, reason)) = end {
            if manner == Manner::Aborted || !reason.is_none() {
                self.chunk.clear();
                reason.write(manner, &mut self.chunk);
                self.socket.queue(&mut self.chunk)?;
            }
            self.socket.queue_end();
            self.ending = true;
            return Ok(true);
        }
        if !wanted {
            return Ok(any);
        }
        let turn = self.socket.turn(now, Supply { used, waiting, quiet, probe: Probe::Always })?;
        let held = turn.is_err();
        self.chunk.clear();
        {
            let mut state = lock(&self.tcp.state);
            state.coupled = self.socket.coupled();
            if state.coupled.is_some() && !self.watches {
                self.watches = true;
                state.sender.watch(PeerClock::INTERVAL_MS);
            }
            match turn {
                Ok(turn) => {
                    state.sender.fill(now, turn.payload(), &mut self.chunk);
                    self.socket.spend(turn);
                }
                // The peer waits for these, and they are few.
                Err(NoTurn::Held { payload }) => state.sender.fill_answers(payload, &mut self.chunk),
                Err(NoTurn::Pending | NoTurn::Full) => return Ok(any),
            }
        }
        if !self.chunk.is_empty() {
            self.socket.queue(&mut self.chunk)?;
            self.socket.flush()?;
            any = true;
        } else if held {
            return Ok(any);
        }
        // Messages have left the queue, or have expired in it.
        self.tcp.freed();
        Ok(any)
    }

    /// Processes the bytes read. Returns whether the peer has ended its direction.
    fn receive(&mut self, len: usize) -> Result<bool, Stop> {
        let Self { socket, reader, clock, tcp, input, plain, ended, .. } = self;
        let mut state = lock(&tcp.state);
        let mut inbound = lock(&tcp.shared.inbound);
        let over = socket.receive::<Stop>(&input[..len], plain, |bytes| {
            // After our end we send no more receipts, so the bytes are ignored.
            if *ended { Ok(()) } else { Ok(reader.feed(bytes, &mut inbound, &mut state.sender)?) }
        })?;
        drop(inbound);
        let (now, news) = (tcp.now(), reader.take_news());
        if let Some(interval) = news.watch {
            clock.watch(interval);
        }
        if let Some(time) = news.clock {
            socket.heard(now, time);
        }
        if news.data && clock.is_due(now) && socket.is_idle() {
            state.sender.tell_clock(clock.tell(now));
        }
        drop(state);
        let over = over || matches!(reader.closed(), Some(Closed::Aborted(_)));
        tcp.shared.readable.notify_waiters();
        tcp.freed();
        Ok(over)
    }

    /// Determines the outcome once the peer sends nothing more.
    fn at_end(&self) -> Result<Closed, Stop> {
        if self.ended || self.is_aborting() {
            return Ok(Closed::Local);
        }
        let announced = self.reader.closed();
        if let Some(aborted @ Closed::Aborted(_)) = announced {
            return Ok(aborted);
        }
        if !self.reader.is_between_frames() || lock(&self.tcp.shared.inbound).open_messages() > 0 {
            return Err(Stop::CutShort);
        }
        Ok(announced.unwrap_or_else(|| Closed::ByPeer(CloseReason::default())))
    }

    fn at_eof(&self) -> Result<Closed, Stop> {
        // RFC 8446 §6.1: each side must send close_notify before it closes. Without it, the end of
        // the data may have been cut off.
        let aborted = matches!(self.reader.closed(), Some(Closed::Aborted(_)));
        if self.socket.is_tls() && !self.ended && !self.is_aborting() && !aborted {
            return Err(Stop::Truncated);
        }
        self.at_end()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use bytes::Bytes as Payload;
    use marcato_sched::coupled::Coupling;
    use marcato_stream::{Message, Pool};
    use marcato_units::Priority;
    use marcato_wire::{Decoded, Frame};
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::connection::Connection;
    use crate::engine::Engine;
    use crate::message_handle::offer;

    /// Driver of a connection over plain TCP, its application's handle, and its peer.
    async fn driver(config: &Config) -> (Driver, Connection, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(addr), listener.accept());
        let (stream, pipe) = (Arc::new(near.unwrap()), Pipe::plain());
        let tcp = Tcp::new(config, &stream, &pipe, Pool::new(config.limits.memory)).unwrap();
        let connection = Connection::new(Arc::clone(&tcp) as Arc<dyn Transport>);
        (Driver::new(tcp, stream, pipe, config.clone()), connection, far.unwrap().0)
    }

    /// The peer may wait for a receipt before it sends more, whatever the queue of the path is.
    #[tokio::test]
    async fn receipts_leave_while_coupled_mode_holds_data_back() {
        let config = Config { coupled: Coupling::On, ..Config::new(Engine::Tcp) };
        let (mut driver, connection, mut peer) = driver(&config).await;
        driver.socket.hold_back();
        let transport: Arc<dyn Transport> = Arc::clone(&driver.tcp) as _;
        let _message = offer(&transport, &Message::new(vec![4; 1000]).with_priority(Priority::P4)).unwrap();
        assert!(driver.write().unwrap(), "WATCH");
        assert!(!driver.write().unwrap());
        assert!(driver.socket.look().is_some(), "the data is held back");

        // MESSAGE with LAST and RECEIPT, at offset 0, with one byte.
        peer.write_all(&[1, 0, 2, 3, 0, 1, 7]).await.unwrap();
        driver.stream.readable().await.unwrap();
        let len = driver.stream.try_read(&mut driver.input).unwrap();
        assert!(!driver.receive(len).unwrap());
        assert_eq!(connection.recv().await.unwrap().bytes, Payload::from_static(&[7]));
        assert!(driver.write().unwrap());
        assert!(!driver.write().unwrap());
        peer.readable().await.unwrap();
        let mut sent = [0; 100];
        let len = peer.try_read(&mut sent).unwrap();
        // WATCH and DONE, and nothing of the message.
        assert_eq!(sent[..len], [9, 20, 3, 0]);
    }

    /// Bytes that a driver writes after it has received these.
    async fn answered(driver: &mut Driver, peer: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
        peer.write_all(bytes).await.unwrap();
        driver.stream.readable().await.unwrap();
        let len = driver.stream.try_read(&mut driver.input).unwrap();
        assert!(!driver.receive(len).unwrap());
        let mut sent = [0; 100];
        if !driver.write().unwrap() {
            return Vec::new();
        }
        peer.readable().await.unwrap();
        let len = peer.try_read(&mut sent).unwrap();
        sent[..len].to_vec()
    }

    #[tokio::test]
    async fn a_peer_that_asks_hears_the_clock_when_data_comes() {
        let (mut driver, _connection, mut peer) = driver(&Config::new(Engine::Tcp)).await;
        // MESSAGE with RECEIPT, without end, at offsets 0, 1 and so on, with one byte.
        let data = |at: u8| [1, 0, 2, 2, at, 1, 7];
        assert!(answered(&mut driver, &mut peer, &data(0)).await.is_empty(), "nobody has asked");
        // WATCH, a minute: no machine is as slow as that.
        assert!(answered(&mut driver, &mut peer, &[9, 0x80, 0, 0xea, 0x60]).await.is_empty(), "no data");
        let clock = answered(&mut driver, &mut peer, &data(1)).await;
        assert!(matches!(
            Frame::decode(&clock),
            Ok(Decoded::Frame { frame: Frame::Clock { .. }, len }) if len == clock.len()
        ));
        assert!(answered(&mut driver, &mut peer, &data(2)).await.is_empty(), "once in an interval");
    }
}
