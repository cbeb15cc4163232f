//! Driver of the connections of a TCP proxy.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use marcato_units::{Duration, Seed, Time};
use socket2::SockRef;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::counters::{Open, Shared, add};
use super::line::Line;
use super::pipe::{MAX_PIECE, Output, Pipe};
use super::toxic::{NamedToxic, Side};

/// Most connections of a proxy at a time.
pub const MAX_CONNECTIONS: u64 = 16_384;
/// Time in which the target has to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Pause after the system has refused to accept a connection, for lack of descriptors for example.
const BREATH: Duration = Duration::from_millis(100);

/// Parts that all connections of a proxy share.
pub(super) struct Proxied {
    pub(super) target: String,
    /// Lines up and down.
    pub(super) lines: [Option<Arc<Mutex<Line>>>; 2],
    pub(super) toxics: watch::Receiver<Arc<Vec<NamedToxic>>>,
    pub(super) counters: Arc<Shared>,
    pub(super) epoch: Instant,
    pub(super) seed: Seed,
}

impl Proxied {
    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }
}

/// Accepts clients until it is dropped. All connections end with it.
pub(super) async fn accept(listener: TcpListener, proxied: Arc<Proxied>) {
    let mut connections = JoinSet::new();
    for number in 0_u64.. {
        let client = loop {
            match listener.accept().await {
                Ok((client, _)) => break client,
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                }
            }
        };
        while connections.try_join_next().is_some() {}
        add(&proxied.counters.accepted, 1);
        let Some(open) = Open::new(&proxied.counters, MAX_CONNECTIONS) else {
            add(&proxied.counters.refused, 1);
            reset(&client);
            continue;
        };
        let proxied = Arc::clone(&proxied);
        connections.spawn(async move {
            let _open = open;
            connect(client, number, &proxied).await;
        });
    }
}

/// Connects a client with the target, and passes on what both send.
async fn connect(client: TcpStream, number: u64, proxied: &Arc<Proxied>) {
    let target = match tokio::time::timeout(CONNECT, TcpStream::connect(&proxied.target)).await {
        Ok(Ok(target)) => target,
        refused => {
            // A client of the target itself would be refused, too.
            let reason = refused.map_or_else(
                |late| late.to_string(),
                |result| match result {
                    Ok(_) => String::new(),
                    Err(error) => error.to_string(),
                },
            );
            tracing::debug!(reason, target = proxied.target, "the target cannot be reached");
            add(&proxied.counters.unreachable, 1);
            reset(&client);
            return;
        }
    };
    let _ = client.set_nodelay(true);
    let _ = target.set_nodelay(true);
    let toxics = Arc::clone(&proxied.toxics.borrow());
    let now = proxied.now();
    let pipe = |side, line: &Option<Arc<Mutex<Line>>>, name: &str| {
        let mut pipe = Pipe::new(side, line.clone(), proxied.seed.stream(&format!("{name}/{number}")));
        pipe.set_toxics(now, &toxics);
        pipe
    };
    let [up, down] = &proxied.lines;
    let (up, down) = (pipe(Side::Upstream, up, "up"), pipe(Side::Downstream, down, "down"));
    let ((from_client, to_client), (from_target, to_target)) = (client.into_split(), target.into_split());
    let one = |from, to, pipe, side| Way { from, to, pipe, side, proxied: Arc::clone(proxied), told: 0 };
    let mut up = one(from_client, to_target, up, Side::Upstream);
    let mut down = one(from_target, to_client, down, Side::Downstream);
    let ending = {
        let (up, down) = (up.run(), down.run());
        tokio::pin!(up, down);
        let (ending, is_up) = tokio::select! {
            ending = &mut up => (ending, true),
            ending = &mut down => (ending, false),
        };
        // A stream that its sender has ended leaves the other one.
        match (ending, is_up) {
            (Ending::Half, true) => down.await,
            (Ending::Half, false) => up.await,
            (ending, _) => ending,
        }
    };
    for mut way in [up, down] {
        way.count();
        if ending == Ending::Reset {
            reset(way.to.as_ref());
            // Dropped, it would end its stream in order before.
            way.to.forget();
        }
    }
}

/// Has the connection reset when it is dropped.
fn reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

thread_local! {
    /// Buffer of the connections of a thread: one for each would take most of their memory.
    static INPUT: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_PIECE]);
}

/// Reads up to `room` bytes that have arrived. None are the end of the stream.
fn read(from: &OwnedReadHalf, room: usize) -> io::Result<Vec<u8>> {
    INPUT.with_borrow_mut(|input| {
        let length = from.try_read(&mut input[..room.min(MAX_PIECE)])?;
        Ok(input[..length].to_vec())
    })
}

/// End of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The sender has ended its stream, and the receiver knows. The other direction goes on.
    Half,
    /// Both directions end.
    Close,
    /// Both directions end by a reset.
    Reset,
}

/// One direction of a connection.
struct Way {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    pipe: Pipe,
    side: Side,
    proxied: Arc<Proxied>,
    /// Discarded bytes that have been counted.
    told: u64,
}

impl Way {
    async fn run(&mut self) -> Ending {
        let mut toxics = self.proxied.toxics.clone();
        // Data that are due, and those of them that are written.
        let (mut due, mut written): (Vec<u8>, usize) = (Vec::new(), 0);
        let timer = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(timer);
        loop {
            let now = self.proxied.now();
            if written == due.len() {
                match self.pipe.poll(now) {
                    Some(Output::Data(data)) => (due, written) = (data, 0),
                    Some(Output::End) => {
                        let _ = SockRef::from(self.to.as_ref()).shutdown(std::net::Shutdown::Write);
                        self.count();
                        return Ending::Half;
                    }
                    Some(Output::Close) => {
                        self.count();
                        return Ending::Close;
                    }
                    Some(Output::Reset) => {
                        self.count();
                        return Ending::Reset;
                    }
                    None => {}
                }
            }
            if written < due.len() {
                match self.to.try_write(&due[written..]) {
                    Ok(more) => {
                        written += more;
                        add(self.delivered(), more as u64);
                        continue;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Ending::Reset,
                }
            }
            let is_blocked = written < due.len();
            let room = self.pipe.room(now);
            let next = self.pipe.next_event(now).filter(|at| !is_blocked || *at > now);
            if let Some(at) = next {
                timer.as_mut().reset((self.proxied.epoch + at.since(Time::ZERO)).into());
            }
            tokio::select! {
                ready = self.from.readable(), if room > 0 => {
                    if ready.is_err() {
                        return Ending::Reset;
                    }
                    let now = self.proxied.now();
                    match read(&self.from, room) {
                        Ok(data) if data.is_empty() => self.pipe.end(now),
                        Ok(data) => {
                            self.pipe.push(now, data);
                            self.count();
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(_) => return Ending::Reset,
                    }
                }
                ready = self.to.writable(), if is_blocked => {
                    if ready.is_err() {
                        return Ending::Reset;
                    }
                }
                () = &mut timer, if next.is_some() => {}
                changed = toxics.changed() => {
                    if changed.is_err() {
                        return Ending::Close;
                    }
                    let now = self.proxied.now();
                    let all = Arc::clone(&toxics.borrow_and_update());
                    self.pipe.set_toxics(now, &all);
                }
            }
        }
    }

    fn delivered(&self) -> &AtomicU64 {
        match self.side {
            Side::Upstream => &self.proxied.counters.bytes_up,
            Side::Downstream => &self.proxied.counters.bytes_down,
        }
    }

    /// Counts what has been discarded since the last time.
    fn count(&mut self) {
        let discarded = self.pipe.discarded();
        self.proxied.counters.discarded.fetch_add(discarded - self.told, Ordering::Relaxed);
        self.told = discarded;
    }
}
