//! Window that the other end offers.

use super::sender::AckInfo;

/// Offered window, and the segment that set it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerWindow {
    size: u64,
    /// Window of the last acknowledgement.
    before: u64,
    /// SND.WL1: sequence number of the segment of the last update. RFC 9293 §3.10.7.4.
    seq: u64,
    /// SND.WL2: its acknowledgement number.
    ack: u64,
}

impl PeerWindow {
    /// Window that the handshake offers.
    pub(crate) const fn new(size: u64) -> Self {
        Self { size, before: size, seq: 0, ack: 0 }
    }

    /// Handles an acknowledgement while `una` is SND.UNA. Returns true if it offers what the last one did.
    pub(crate) fn on_ack(&mut self, info: &AckInfo<'_>, una: u64) -> bool {
        // RFC 9293 §3.10.7.4: an older segment must not restore an older window.
        if info.ack > una || (info.seq, info.ack) >= (self.seq, self.ack) {
            (self.size, self.seq, self.ack) = (info.window, info.seq, info.ack);
        }
        std::mem::replace(&mut self.before, info.window) == info.window
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.size > 0
    }

    /// Returns how many bytes from SND.NXT on it has room for.
    pub(crate) fn room(&self, una: u64, nxt: u64) -> u64 {
        (una + self.size).saturating_sub(nxt)
    }
}
