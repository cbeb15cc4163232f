//! Mark of a TCP connection: its code point (DSCP), and its place in the queues of this host.

use marcato_units::{Priority, PrioritySet};
use marcato_wire::{CodePoints, queue_priority};
use socket2::SockRef;

use crate::sys;

/// Mark of a connection. All its packets have one: a packet that overtakes those before it looks like their loss
/// (RFC 7657 §5.1), so the mark changes only while the kernel holds nothing that the peer has not acknowledged.
#[derive(Debug)]
pub(super) struct KernelMark {
    /// Code points; `None` to leave the mark alone.
    points: Option<CodePoints>,
    /// Level of the mark; `None` before the first data. In flight are then parts of the handshake at most, which the
    /// peer does not take for lost before three segments have overtaken them (RFC 5681 §3.2).
    level: Option<Priority>,
}

impl KernelMark {
    pub(super) const fn new(points: Option<CodePoints>) -> Self {
        Self { points, level: None }
    }

    /// Marks what is written next for the most urgent of these levels, if the mark may change.
    pub(super) fn follow(&mut self, socket: &SockRef<'_>, waiting: PrioritySet) {
        let Some(points) = self.points else { return };
        let Some(wanted) = Priority::ALL.into_iter().find(|level| waiting.contains(*level)) else { return };
        if self.level == Some(wanted) {
            return;
        }
        if self.level.is_some() && !sys::unsent(socket).is_ok_and(|held| held.is_zero()) {
            return;
        }
        match sys::mark_tcp(socket, points.of(wanted), queue_priority(wanted)) {
            Ok(()) => self.level = Some(wanted),
            Err(error) => {
                tracing::debug!(%error, "the connection stays unmarked: the system refuses its mark");
                self.points = None;
            }
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair(local: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(local).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Code point of a stream's packets, and their priority in queues of this host.
    fn marked(stream: &TcpStream) -> (u32, u32) {
        let socket = SockRef::from(stream);
        let field = if stream.peer_addr().unwrap().is_ipv4() { socket.tos_v4() } else { socket.tclass_v6() };
        (field.unwrap() >> 2, socket.priority().unwrap())
    }

    #[test]
    fn a_mark_changes_only_while_nothing_is_in_flight() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (mut near, mut far) = pair(local);
            let mut mark = KernelMark::new(Some(CodePoints::default()));
            mark.follow(&SockRef::from(&near), PrioritySet::EMPTY);
            assert_eq!(marked(&near), (0, 0), "nothing waits");
            mark.follow(&SockRef::from(&near), PrioritySet::one(Priority::P4).with(Priority::P3));
            assert_eq!(marked(&near), (0, 2), "P3");
            mark.follow(&SockRef::from(&near), PrioritySet::one(Priority::P4));
            assert_eq!(marked(&near), (1, 1), "P4");
            // More than both ends' buffers hold, so that some of it stays unacknowledged until the peer reads.
            near.set_nonblocking(true).unwrap();
            let mut written = 0;
            let full = loop {
                match near.write(&[7; 65_536]) {
                    Ok(len) => written += len,
                    Err(error) => break error.kind(),
                }
            };
            assert_eq!(full, ErrorKind::WouldBlock);
            mark.follow(&SockRef::from(&near), PrioritySet::URGENT);
            assert_eq!(marked(&near), (1, 1), "data is in flight");
            far.read_exact(&mut vec![0; written]).unwrap();
            while !sys::unsent(&SockRef::from(&near)).unwrap().is_zero() {
                std::thread::yield_now();
            }
            mark.follow(&SockRef::from(&near), PrioritySet::URGENT);
            assert_eq!(marked(&near), (34, 6), "{local}");
        }
    }

    #[test]
    fn the_first_data_is_marked_behind_a_handshake_in_flight() {
        let (mut near, mut far) = pair("127.0.0.1:0");
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 65_536]).is_ok() {}
        let mut mark = KernelMark::new(Some(CodePoints::default()));
        mark.follow(&SockRef::from(&near), PrioritySet::one(Priority::P4));
        assert_eq!(marked(&near), (1, 1));
        far.read_exact(&mut [0; 100]).unwrap();
    }
}
