//! Sockets of an endpoint, as its sessions see them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use marcato_units::Layer;

use crate::endpoint::{LocalSocket, SocketId};
use crate::lane::LaneRequest;

/// Sockets by identifier, shared by an endpoint with its sessions.
///
/// The engine requires sessions to be `Send`, although one owner alone uses them; hence atomics.
#[derive(Clone, Debug)]
pub(crate) struct Sockets {
    list: Arc<[LocalSocket]>,
    /// Sockets whose local queue is full, as bits.
    full: Arc<[AtomicU64; 4]>,
}

impl Sockets {
    pub(crate) fn new(list: &[LocalSocket]) -> Self {
        Self { list: list.into(), full: Arc::default() }
    }

    /// Returns another list of sockets, with the same record of full ones.
    pub(crate) fn replaced(&self, list: &[LocalSocket]) -> Self {
        Self { list: list.into(), full: Arc::clone(&self.full) }
    }

    /// Request of the lane that a peer has opened to a socket.
    pub(crate) fn request(&self, socket: SocketId, remote: SocketAddr) -> LaneRequest {
        let known = self.list.get(usize::from(socket.0));
        LaneRequest {
            layer: known.map_or(Layer::High, |socket| socket.layer),
            congestion: known.and_then(|socket| socket.congestion),
            ..LaneRequest::new(socket, remote)
        }
    }

    /// Source address of packets from the socket, if it is bound to one.
    pub(crate) fn ip(&self, socket: SocketId) -> Option<IpAddr> {
        let ip = self.list.get(usize::from(socket.0))?.addr.ip();
        Some(ip).filter(|ip| !ip.is_unspecified())
    }

    /// Returns whether the socket's local queue is full.
    pub(crate) fn is_full(&self, socket: SocketId) -> bool {
        let (word, bit) = place(socket);
        self.full[word].load(Relaxed) & bit != 0
    }

    /// Records whether the socket's local queue is full. Returns whether that is a change.
    pub(crate) fn set_full(&self, socket: SocketId, full: bool) -> bool {
        let (word, bit) = place(socket);
        let word = &self.full[word];
        let before = if full { word.fetch_or(bit, Relaxed) } else { word.fetch_and(!bit, Relaxed) };
        (before & bit != 0) != full
    }
}

/// Returns the word and the bit of a socket.
const fn place(socket: SocketId) -> (usize, u64) {
    (socket.0 as usize / 64, 1 << (socket.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_socket_leaves_the_others_alone() {
        let sockets = Sockets::new(&[LocalSocket::new(([192, 0, 2, 1], 443).into())]);
        assert!(sockets.set_full(SocketId(70), true));
        assert!(!sockets.set_full(SocketId(70), true));
        let clone = sockets.replaced(&[]);
        let full: Vec<u8> = (0..=u8::MAX).filter(|id| clone.is_full(SocketId(*id))).collect();
        assert_eq!(full, [70]);
        assert!(clone.set_full(SocketId(70), false));
        assert!(!sockets.is_full(SocketId(70)));
    }
}
