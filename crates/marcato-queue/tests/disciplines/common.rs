//! Packet for tests.

use std::iter;

use marcato_queue::{Discipline, FlowKey, Limit, Packet};
use marcato_units::{Bytes, Layer, Time};
use marcato_wire::Ecn;

/// Packet with a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) id: u64,
    pub(crate) len: u64,
    pub(crate) ecn: Ecn,
    pub(crate) layer: Layer,
}

impl Probe {
    /// Full-sized best-effort packet that cannot be marked.
    pub(crate) fn new(id: u64) -> Self {
        Self { id, len: 1500, ecn: Ecn::NotEct, layer: Layer::High }
    }

    /// Full-sized packet of lower effort.
    pub(crate) fn low(id: u64) -> Self {
        Self { layer: Layer::Low, ..Self::new(id) }
    }

    pub(crate) fn with_len(self, len: u64) -> Self {
        Self { len, ..self }
    }

    pub(crate) fn with_ecn(self, ecn: Ecn) -> Self {
        Self { ecn, ..self }
    }
}

impl Packet for Probe {
    fn len(&self) -> Bytes {
        Bytes::new(self.len)
    }

    fn flow(&self) -> FlowKey {
        FlowKey::new(self.id)
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        assert!(self.ecn.is_capable(), "a packet that is not ECN-capable must not be marked");
        self.ecn = Ecn::Ce;
    }

    fn layer(&self) -> Layer {
        self.layer
    }
}

/// Numbers of all packets that `queue` returns at `now`.
pub(crate) fn drain<D: Discipline<Probe>>(queue: &mut D, now: Time) -> Vec<u64> {
    iter::from_fn(|| queue.dequeue(now)).map(|probe| probe.id).collect()
}

/// Limit of `limit` bytes.
pub(crate) fn bytes(limit: u64) -> Limit {
    Limit::Bytes(Bytes::new(limit))
}
