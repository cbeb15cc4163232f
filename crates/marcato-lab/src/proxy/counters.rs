//! Counters of a proxy.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that the tasks of a proxy share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) accepted: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    pub(super) discarded: AtomicU64,
}

/// Counters of a proxy since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounters {
    /// Connections that clients have opened; with UDP, clients.
    pub accepted: u64,
    /// Those that are open.
    pub open: u64,
    /// Connections that were refused since [`MAX_CONNECTIONS`](super::MAX_CONNECTIONS) were open; with UDP, datagrams of
    /// further clients.
    pub refused: u64,
    /// Connections whose target could not be reached.
    pub unreachable: u64,
    /// Payload delivered to the target.
    pub bytes_up: u64,
    /// Payload delivered to clients.
    pub bytes_down: u64,
    /// Bytes that toxics have discarded; with UDP, datagrams that the link or a full socket has lost.
    pub discarded: u64,
}

impl Shared {
    pub(super) fn read(&self) -> ProxyCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProxyCounters {
            accepted: of(&self.accepted),
            open: of(&self.open),
            refused: of(&self.refused),
            unreachable: of(&self.unreachable),
            bytes_up: of(&self.bytes_up),
            bytes_down: of(&self.bytes_down),
            discarded: of(&self.discarded),
        }
    }
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// Count of an open connection, which ends when it is dropped.
pub(super) struct Open(std::sync::Arc<Shared>);

impl Open {
    /// Counts one more, unless there are `most`.
    pub(super) fn new(shared: &std::sync::Arc<Shared>, most: u64) -> Option<Self> {
        let before = shared.open.fetch_add(1, Ordering::Relaxed);
        let open = Self(std::sync::Arc::clone(shared));
        (before < most).then_some(open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
