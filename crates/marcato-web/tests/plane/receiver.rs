//! Slow receiver: a client of HTTP/2 that reads the next frame when its test tells it to, beside a server in the same
//! thread.
//!
//! Time stands still but where a test lets it [`pass`]. No task ever sleeps meanwhile, since each wait of the
//! receiver lets all others run. What the server does is then a matter of what the receiver has read and sent, not
//! of the machine's load. The connection is a real one over loopback, with the segments and the receive buffer that
//! the test names.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use h2::Reason;
use marcato_units::Bytes;
use marcato_web::{Config, Server};
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{PATIENCE, RawFrame, frame, until};

/// Types of frames (RFC 9113 §6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
/// Flag of the last frame of a stream.
const END_STREAM: u8 = 1;

/// Payload of a segment that a receiver asks for.
const SEGMENT: u32 = 1000;
/// Turns of the runtime after which a server has done all that it can do at once.
const SETTLED: usize = 300;

/// Runs a test in one thread, in which time passes by [`pass`] only.
pub(crate) fn run_still(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(test);
}

/// Keeps the runtime from being idle, so that its time stands still.
pub(crate) fn stand_still() {
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
}

/// Lets time pass for all tasks.
pub(crate) async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    settle().await;
}

/// Lets all tasks run for a while: enough for what they can do at once.
pub(crate) async fn settle() {
    for _ in 0..SETTLED {
        tokio::task::yield_now().await;
    }
}

/// Waits until all tasks wait for something else than time, or for a later time than the next tenth of a second. Fails
/// the test if one goes on for ever.
pub(crate) async fn rest() {
    let (_ends, ended) = mpsc::channel::<()>();
    let (tell, late) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            _ = tell.send(());
        }
    });
    // The runtime moves its clock only when it has nothing to do.
    let rest = tokio::time::timeout(Duration::from_millis(100), late).await;
    assert!(rest.is_err(), "a task never rests");
}

/// Configuration of a server whose chunks have this many segments at any rate, and whose background is not held back.
pub(crate) fn chunks_of(segments: u32) -> Config {
    let mut config = Config::default();
    config.chunk.min_segments = segments;
    config.chunk.span = marcato_units::Duration::ZERO;
    config.coupled = marcato_net::Coupling::Off;
    config
}

/// Receiver, and what it has read.
pub(crate) struct Receiver {
    stream: TcpStream,
    unread: Vec<u8>,
    next: u32,
    /// Content read so far: stream and bytes of each frame.
    pub(crate) content: Vec<(u32, usize)>,
    /// Streams that have ended, in this order.
    pub(crate) ended: Vec<u32>,
    /// Streams that the server has reset, and its reasons.
    pub(crate) resets: Vec<(u32, Reason)>,
}

/// Windows and buffer of a receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) stream_window: u32,
    /// Bytes by which it enlarges the window of the connection at once.
    pub(crate) more_window: u32,
    /// Bytes of the kernel's receive buffer that it asks for.
    pub(crate) buffer: u32,
}

impl Default for Terms {
    /// Windows that never close, and a small buffer.
    fn default() -> Self {
        Self { stream_window: 0x7fff_ffff, more_window: 0x7fff_0000, buffer: 8 << 10 }
    }
}

impl Receiver {
    pub(crate) async fn connect(addr: SocketAddr, terms: Terms) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(terms.buffer).unwrap();
        SockRef::from(&socket).set_tcp_mss(SEGMENT).unwrap();
        let stream = socket.connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut receiver = Self {
            stream,
            unread: Vec::new(),
            next: 1,
            content: Vec::new(),
            ended: Vec::new(),
            resets: Vec::new(),
        };
        let window = [b"\0\x04".as_slice(), &terms.stream_window.to_be_bytes()].concat();
        let mut preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &window)].concat();
        if terms.more_window > 0 {
            preface.extend(credit(0, terms.more_window));
        }
        receiver.send(&preface).await;
        receiver
    }

    pub(crate) async fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Asks for paths, each with the value of its `priority` field, in one write. Returns their streams.
    pub(crate) async fn ask<const N: usize>(&mut self, requests: [(&str, &str); N]) -> [u32; N] {
        self.ask_after(&[], requests).await
    }

    /// Asks as [`ask`](Self::ask) does, with these frames before the requests in the same write.
    pub(crate) async fn ask_after<const N: usize>(
        &mut self,
        before: &[u8],
        requests: [(&str, &str); N],
    ) -> [u32; N] {
        let mut frames = before.to_vec();
        let streams = requests.map(|(path, priority)| {
            let stream = self.next;
            self.next += 2;
            frames.extend(frame(HEADERS, 5, stream, &fields(path, priority)));
            stream
        });
        self.send(&frames).await;
        streams
    }

    /// Changes the priority of a stream (RFC 9218 §7.1).
    pub(crate) async fn update(&mut self, stream: u32, priority: &str) {
        let payload = [&stream.to_be_bytes(), priority.as_bytes()].concat();
        self.send(&frame(0x10, 0, 0, &payload)).await;
    }

    /// Gives credit for a stream, or for the connection if it is 0.
    pub(crate) async fn credit(&mut self, stream: u32, bytes: u32) {
        self.send(&credit(stream, bytes)).await;
    }

    /// Returns the next frame; `None` at the end of the connection. A PING of the server is answered.
    pub(crate) async fn next(&mut self) -> Option<RawFrame> {
        let began = Instant::now();
        loop {
            if let Some(next) = self.take() {
                if (next.0, next.1) == (PING, 0) {
                    self.send(&frame(PING, 1, 0, &next.3)).await;
                }
                return Some(next);
            }
            assert!(began.elapsed() < PATIENCE, "the test hangs");
            // No more than the frame is read: the rest stays in the kernel, and stops the server.
            let mut part = vec![0; self.wanted()];
            match self.stream.try_read(&mut part) {
                Ok(0) => return None,
                Ok(read) => self.unread.extend(&part[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::task::yield_now().await;
                }
                Err(_) => return None,
            }
        }
    }

    /// Returns the next content: its stream and bytes.
    pub(crate) async fn content(&mut self) -> (u32, usize) {
        loop {
            let (kind, _, stream, payload) = self.next().await.expect("the connection is open");
            if kind == DATA && !payload.is_empty() {
                return (stream, payload.len());
            }
        }
    }

    /// Reads until a stream has ended.
    pub(crate) async fn read_until_end(&mut self, stream: u32) {
        while !self.ended.contains(&stream) {
            self.next().await.expect("the connection is open");
        }
    }

    /// Reads until the server has reset a stream, and returns its reason.
    pub(crate) async fn read_until_reset(&mut self, stream: u32) -> Reason {
        loop {
            if let Some((_, reason)) = self.resets.iter().find(|(of, _)| *of == stream) {
                return *reason;
            }
            self.next().await.expect("the connection is open");
        }
    }

    /// Reads content until there are so many bytes of it more.
    pub(crate) async fn read_bytes(&mut self, bytes: usize) {
        let until = self.bytes() + bytes;
        while self.bytes() < until {
            self.content().await;
        }
    }

    /// Reads all frames that come while time stands still.
    pub(crate) async fn drain(&mut self) {
        let mut idle = 0;
        while idle < SETTLED {
            let mut part = vec![0; self.wanted()];
            match self.stream.try_read(&mut part) {
                Ok(read @ 1..) => {
                    self.unread.extend(&part[..read]);
                    self.take();
                    idle = 0;
                }
                Ok(0) | Err(_) => {
                    idle += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Returns the bytes of other streams that come before the next content of a stream.
    pub(crate) async fn ahead_of(&mut self, stream: u32) -> usize {
        let before = self.bytes();
        loop {
            let (next, len) = self.content().await;
            if next == stream {
                return self.bytes() - before - len;
            }
        }
    }

    /// Bytes of content read so far.
    pub(crate) fn bytes(&self) -> usize {
        self.content.iter().map(|(_, len)| len).sum()
    }

    /// Bytes of content that the server has granted and this client has not read.
    pub(crate) fn unread(&self, server: &Server) -> usize {
        let granted: Bytes = server.counters().granted.into_iter().sum();
        usize::try_from(granted.get()).unwrap() - self.bytes()
    }

    /// Bytes in the kernel's receive buffer.
    pub(crate) fn received(&self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1 << 16];
        SockRef::from(&self.stream).peek(&mut buffer).unwrap_or(0)
    }

    /// Size of the kernel's receive buffer, which is all that may wait in it.
    pub(crate) fn buffer(&self) -> usize {
        SockRef::from(&self.stream).recv_buffer_size().unwrap()
    }

    /// Streams of the content, without repetitions: a stream is in it again if another came in between.
    pub(crate) fn turns(&self) -> Vec<u32> {
        let mut turns: Vec<u32> = self.content.iter().map(|(stream, _)| *stream).collect();
        turns.dedup();
        turns
    }

    /// Bytes of each of the [turns](Self::turns).
    pub(crate) fn sizes(&self) -> Vec<(u32, usize)> {
        let mut sizes: Vec<(u32, usize)> = Vec::new();
        for (stream, len) in &self.content {
            match sizes.last_mut() {
                Some((last, size)) if last == stream => *size += len,
                _ => sizes.push((*stream, *len)),
            }
        }
        sizes
    }

    /// Bytes of all content up to the last of each stream, in the order of the streams.
    pub(crate) fn ends(&self, streams: &[u32]) -> Vec<usize> {
        let end = |stream| {
            let last = self.content.iter().rposition(|(of, _)| *of == stream).unwrap();
            self.content[..=last].iter().map(|(_, len)| len).sum()
        };
        streams.iter().copied().map(end).collect()
    }

    /// Bytes that a frame lacks.
    fn wanted(&self) -> usize {
        match self.unread.get(..3) {
            Some(len) if self.unread.len() >= 9 => 9 + length(len) - self.unread.len(),
            _ => 9 - self.unread.len(),
        }
    }

    fn take(&mut self) -> Option<RawFrame> {
        let header = self.unread.first_chunk::<9>()?;
        let len = length(&header[..3]);
        if self.unread.len() < 9 + len {
            return None;
        }
        let (kind, flags) = (header[3], header[4]);
        let stream = u32::from_be_bytes(*header.last_chunk().unwrap());
        let payload = self.unread[9..].to_vec();
        self.unread.clear();
        if kind == DATA {
            self.content.push((stream, payload.len()));
        }
        if kind == RST_STREAM {
            self.resets.push((stream, u32::from_be_bytes(*payload.first_chunk().unwrap()).into()));
        }
        if kind <= HEADERS && flags & END_STREAM != 0 {
            self.ended.push(stream);
        }
        Some((kind, flags, stream, payload))
    }
}

fn length(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte))
}

/// WINDOW_UPDATE.
pub(crate) fn credit(stream: u32, bytes: u32) -> Vec<u8> {
    frame(8, 0, stream, &bytes.to_be_bytes())
}

/// Fields of a request, compressed (RFC 7541), with a `priority` field unless that is empty.
fn fields(path: &str, priority: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut fields = [b"\x82\x86\x41\x04test\x44".as_slice(), &text(path)].concat();
    if !priority.is_empty() {
        fields.extend([&[0], text("priority").as_slice(), &text(priority)].concat());
    }
    fields
}

/// Waits for the end of a task that ends by itself, while all others run.
pub(crate) async fn ended<T>(task: tokio::task::JoinHandle<T>) -> T {
    until(|| task.is_finished()).await;
    let mut task = task;
    poll_fn(|cx| std::pin::Pin::new(&mut task).poll(cx)).await.unwrap()
}
