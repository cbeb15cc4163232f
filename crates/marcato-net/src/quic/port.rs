//! Port: a socket of the hub with the datagrams that it has not accepted.
//!
//! The driver reports a full socket by `Endpoint::set_socket_full`. Sessions then pass over the lanes that
//! leave by it, as over a lane that waits for its pacer, and their windows do not grow. What is sent once
//! there is room is chosen at that moment, so urgent data leaves first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use marcato_quic::Transmit;
use marcato_units::{Bytes, Time};
use marcato_wire::{CodePoints, Dscp};

use super::backlog::Backlog;
use super::socket::{Route, Socket};

/// Limit of the batches that wait for a full socket. Sessions feed no lane whose socket is full,
/// so only control packets come on top of the batch that found it full.
const MAX_STUCK: usize = 64;

/// Batch of datagrams that the socket has not accepted in full.
#[derive(Debug)]
struct Stuck {
    transmit: Transmit,
    bytes: Vec<u8>,
    /// Number of the bytes that the socket has accepted.
    from: usize,
}

/// Socket with the batches that wait for room in it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) socket: Arc<Socket>,
    stuck: VecDeque<Stuck>,
    backlog: Backlog,
    /// Code points by which packets are marked.
    marks: Option<CodePoints>,
}

impl Port {
    /// Creates a port, of which the kernel holds at most `most` bytes.
    pub(super) fn new(socket: Arc<Socket>, most: Bytes, marks: Option<CodePoints>) -> Self {
        Self { socket, stuck: VecDeque::new(), backlog: Backlog::new(most), marks }
    }

    /// Returns whether datagrams wait for room in the socket.
    pub(super) fn is_full(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// Sends a batch, behind those that wait. What the socket does not accept is taken from
    /// `bytes`, in exchange for an empty buffer of `spare`. Returns `false` if it was discarded,
    /// because too many wait.
    pub(super) fn send(&mut self, transmit: Transmit, bytes: &mut Vec<u8>, spare: &mut Vec<Vec<u8>>) -> bool {
        let from = if self.is_full() { 0 } else { self.try_send(&transmit, bytes) };
        if from >= bytes.len() {
            return true;
        }
        if self.stuck.len() >= MAX_STUCK {
            // To QUIC that is an ordinary loss.
            return false;
        }
        let bytes = std::mem::replace(bytes, spare.pop().unwrap_or_default());
        self.stuck.push_back(Stuck { transmit, bytes, from });
        true
    }

    /// Sends what waits, as far as the socket has room. Returns whether anything left.
    pub(super) fn flush(&mut self, spare: &mut Vec<Vec<u8>>) -> bool {
        let mut any = false;
        while let Some(Stuck { transmit, bytes, from }) = self.stuck.front() {
            let dscp = mark(self.marks, transmit);
            let sent = try_send(&self.socket, &mut self.backlog, transmit, dscp, &bytes[*from..]);
            any |= sent > 0;
            let left = from + sent < bytes.len();
            if left {
                if let Some(stuck) = self.stuck.front_mut() {
                    stuck.from += sent;
                }
                break;
            }
            if let Some(Stuck { mut bytes, .. }) = self.stuck.pop_front()
                && spare.len() < MAX_STUCK
            {
                bytes.clear();
                spare.push(bytes);
            }
        }
        any
    }

    /// Keeps what the kernel holds to the time of a chunk.
    pub(super) fn limit_backlog(&mut self, now: Time) {
        if self.backlog.is_due(now)
            && let Some(limit) = self.backlog.adjust(now, self.socket.unsent())
        {
            self.socket.limit_backlog(limit);
        }
    }

    fn try_send(&mut self, transmit: &Transmit, bytes: &[u8]) -> usize {
        try_send(&self.socket, &mut self.backlog, transmit, mark(self.marks, transmit), bytes)
    }

    /// Polls for received datagrams, and for room if any wait for it.
    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let received = self.socket.poll_recv_ready(context).is_ready();
        let writable = self.is_full() && self.socket.poll_send_ready(context).is_ready();
        if received || writable { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Returns the code point of datagrams on a lane of the high layer.
fn mark(marks: Option<CodePoints>, transmit: &Transmit) -> Dscp {
    marks.zip(transmit.level).map_or(Dscp::DEFAULT, |(points, level)| points.of(level))
}

/// Sends datagrams, and returns the bytes that the socket has taken; all of them after an error,
/// which to QUIC is an ordinary loss.
fn try_send(socket: &Socket, backlog: &mut Backlog, transmit: &Transmit, dscp: Dscp, bytes: &[u8]) -> usize {
    let segment = transmit.segment.unwrap_or(transmit.len).max(1);
    let route = Route { from: transmit.from, to: transmit.to };
    let sent = match socket.send(route, bytes, segment, dscp, transmit.ecn) {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => {
            tracing::trace!(%error, to = %transmit.to, "sending failed");
            return bytes.len();
        }
    };
    backlog.wrote(Bytes::new(sent as u64));
    if sent < bytes.len() {
        backlog.filled();
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    use marcato_quic::SocketId;
    use marcato_units::Layer;
    use marcato_wire::Ecn;

    /// Returns a port whose socket is not ready to write, because no runtime has polled it.
    fn full_port() -> (Port, Transmit) {
        let local = "127.0.0.1:0".parse().unwrap();
        let socket = Socket::bind(local, Layer::High, Bytes::kb(100)).unwrap();
        let to = socket.addr;
        let transmit = Transmit {
            socket: SocketId(0),
            to,
            from: None,
            ecn: Ecn::NotEct,
            len: 9,
            segment: None,
            lane: None,
            level: None,
        };
        (Port::new(Arc::new(socket), Bytes::kb(100), None), transmit)
    }

    #[tokio::test]
    async fn a_full_port_keeps_a_bounded_number_of_batches_in_order() {
        let (mut port, transmit) = full_port();
        let mut spare = Vec::new();
        let kept = (0..100u8).filter(|number| port.send(transmit, &mut vec![*number; 9], &mut spare)).count();
        assert_eq!(kept, MAX_STUCK);
        assert!(port.is_full());
        // With room, they leave in their order, and their buffers are used again.
        std::future::poll_fn(|context| port.socket.poll_send_ready(context)).await;
        assert!(port.flush(&mut spare) && !port.is_full());
        assert_eq!(spare.len(), MAX_STUCK);
        let mut buf = bytes::BytesMut::with_capacity(65_536);
        while buf.len() < 9 * MAX_STUCK {
            std::future::poll_fn(|context| port.socket.poll_recv_ready(context)).await;
            port.socket.recv(&mut buf).unwrap();
        }
        let order: Vec<u8> = buf.chunks(9).map(|batch| batch[0]).collect();
        assert!(order.iter().copied().eq(0..u8::try_from(MAX_STUCK).unwrap()), "{order:?}");
    }
    #[tokio::test]
    async fn no_batch_overtakes_those_that_wait_for_room() {
        let (mut port, transmit) = full_port();
        let mut spare = Vec::new();
        for number in 0..3 {
            assert!(port.send(transmit, &mut vec![number; 9], &mut spare));
        }
        // The socket has room again, and nobody has flushed the port yet.
        std::future::poll_fn(|context| port.socket.poll_send_ready(context)).await;
        assert!(port.send(transmit, &mut vec![3; 9], &mut spare) && port.is_full());
        assert!(port.flush(&mut spare) && !port.is_full());
        let mut buf = bytes::BytesMut::with_capacity(65_536);
        while buf.len() < 4 * 9 {
            std::future::poll_fn(|context| port.socket.poll_recv_ready(context)).await;
            port.socket.recv(&mut buf).unwrap();
        }
        let order: Vec<u8> = buf.chunks(9).map(|batch| batch[0]).collect();
        assert_eq!(order, [0, 1, 2, 3]);
    }
}
