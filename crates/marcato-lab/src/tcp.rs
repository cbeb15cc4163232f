//! Emulated link between clients and a server on real TCP sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use marcato_units::{Bytes, Duration, Rate};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, MutexGuard, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::OpenError;

/// Payload of a segment, and the bytes that TCP and IP add to it.
const SEGMENT: u16 = 1400;
const HEADERS: usize = 52;
/// Lateness of a timer that the transmitter makes up for.
const LATE: Duration = Duration::from_millis(5);

/// Both directions of a link between clients and a server of TCP; it works until it is dropped.
///
/// It carries bytes, not packets, as it ends the connections of both sides: none is lost, and a queue
/// that is full stops its sender. Congestion control sees the loopback interface alone. All connections
/// share the link. It needs no privileges, unlike a lab.
///
/// A server that sizes its writes by the delivery rate takes the link for the loopback interface, too:
/// its chunks should have one [`SEGMENT`](Self::SEGMENT).
#[derive(Debug)]
pub struct TcpLink {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl TcpLink {
    /// Payload of a segment, for the server and for clients.
    pub const SEGMENT: Bytes = Bytes::new(SEGMENT as u64);

    /// Opens a link to `server`, at a port that the system chooses. Each direction has this rate and
    /// delay, and each connection a queue of about `buffer` in front of it.
    ///
    /// # Errors
    ///
    /// If the system gives no socket.
    pub async fn open(
        server: SocketAddr,
        rate: Rate,
        delay: Duration,
        buffer: Bytes,
    ) -> Result<Self, OpenError> {
        let beside = SocketAddr::new(server.ip(), 0);
        let failed = |source| OpenError::Socket { protocol: "tcp", addr: beside, source };
        let listener = listen(beside, buffer).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let lines = [(), ()].map(|()| Arc::new(Line { rate, delay, free: Mutex::new(Instant::now()) }));
        let task = tokio::spawn(relay(listener, server, lines, buffer));
        Ok(Self { addr, task })
    }

    /// Address that clients use instead of the server's.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sizes the queue of a socket: the bytes that it takes before it is read. Segments are those of a path
/// outside this host.
fn size(socket: &SockRef<'_>, buffer: Bytes) -> io::Result<()> {
    // The system doubles what it is asked for, and uses a half of it for its own records.
    socket.set_recv_buffer_size(usize::try_from(buffer.get()).unwrap_or(usize::MAX))?;
    socket.set_tcp_mss(SEGMENT.into())
}

fn listen(addr: SocketAddr, buffer: Bytes) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    size(&SockRef::from(&socket), buffer)?;
    socket.bind(&addr.into())?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

async fn connect(server: SocketAddr, buffer: Bytes) -> io::Result<TcpStream> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    size(&SockRef::from(&socket), buffer)?;
    socket.connect(server).await
}

/// Accepts clients without end.
async fn relay(listener: TcpListener, server: SocketAddr, lines: [Arc<Line>; 2], buffer: Bytes) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        // Those that have ended need no memory.
        while connections.try_join_next().is_some() {}
        let [forward, back] = lines.clone();
        connections.spawn(async move {
            let Ok(server) = connect(server, buffer).await else { return };
            if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
                return;
            }
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::join!(pump(from_client, to_server, &forward), pump(from_server, to_client, &back));
        });
    }
}

/// One direction: a transmitter, and the way after it.
#[derive(Debug)]
struct Line {
    rate: Rate,
    delay: Duration,
    /// Time at which the transmitter is free. Connections wait for it in turns.
    free: Mutex<Instant>,
}

impl Line {
    /// Waits until the transmitter is free.
    async fn turn(&self) -> MutexGuard<'_, Instant> {
        let free = self.free.lock().await;
        sleep_until(*free).await;
        free
    }

    /// Transmits bytes. Returns the time at which the last one arrives.
    fn transmit(&self, free: &mut Instant, length: usize) -> Instant {
        let now = Instant::now();
        let start = if now.saturating_duration_since(*free) > LATE { now } else { *free };
        *free = start + self.rate.transmission_time(Bytes::new((length + HEADERS) as u64));
        *free + self.delay
    }
}

/// Passes on the bytes of one direction of a connection until it ends.
async fn pump(from: OwnedReadHalf, mut to: OwnedWriteHalf, line: &Line) {
    // As long as the way: the transmitter paces what goes in.
    let (sender, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let send = async move {
        loop {
            // What is not read waits in the queue.
            if from.readable().await.is_err() {
                break;
            }
            let mut free = line.turn().await;
            let mut segment = vec![0; SEGMENT.into()];
            let read = match from.try_read(&mut segment) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => break,
            };
            segment.truncate(read);
            if sender.send((line.transmit(&mut free, read), segment)).is_err() {
                break;
            }
        }
    };
    let deliver = async move {
        while let Some((at, segment)) = under_way.recv().await {
            sleep_until(at).await;
            if to.write_all(&segment).await.is_err() {
                return;
            }
        }
        // The other side may have ended first.
        let _ = to.shutdown().await;
    };
    tokio::join!(send, deliver);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn bytes_arrive_whole_and_no_faster_than_the_link() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = listener.local_addr().unwrap();
        let (rate, delay) = (Rate::from_mbps(10), Duration::from_millis(20));
        let link = TcpLink::open(server, rate, delay, Bytes::kb(50)).await.unwrap();
        let sent: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let answer = sent.clone();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), 7);
            stream.write_all(&answer).await.unwrap();
        });
        let mut client = TcpStream::connect(link.addr()).await.unwrap();
        let began = Instant::now();
        client.write_u8(7).await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert!(received == sent, "{} bytes", received.len());
        // The first bytes may leave as if they had come in time.
        let limit = delay * 2 + rate.transmission_time(Bytes::kb(100)) - LATE;
        assert!(began.elapsed() >= limit, "{:?} below {limit:?}", began.elapsed());
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_ends_the_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = listener.local_addr().unwrap();
        drop(listener);
        let link = TcpLink::open(server, Rate::from_mbps(10), Duration::ZERO, Bytes::kb(50)).await.unwrap();
        let mut client = TcpStream::connect(link.addr()).await.unwrap();
        let read = client.read(&mut [0; 1]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}
