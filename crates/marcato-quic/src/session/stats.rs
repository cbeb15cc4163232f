//! Counters and current load of a session.

use marcato_units::Bytes;

/// Counters of a session since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Chunks handed to the engine for the first time.
    pub chunks: u64,
    /// Chunks handed to the engine again as copies for another lane.
    pub copies: u64,
    /// Bytes that `chunks` counted against the windows of their lanes, packet overhead included.
    /// Retransmissions are excluded.
    pub first: Bytes,
    /// Bytes that `copies` counted in the same way: a budget for copies compares this with `first`.
    pub copied: Bytes,
    /// Chunks sent again on another lane because their lane had stalled or closed.
    pub reinjected: u64,
    /// Packets that left on another lane than the session had chosen.
    pub misrouted: u64,
    /// Chunks that stayed in the engine because their lane could not send at that moment.
    pub kept: u64,
    /// Streams opened for messages.
    pub streams: u64,
    /// Times that flow control stopped a message, for lack of credit or of streams.
    pub flow_blocked: u64,
    /// Data packets sent on a lane without room, because acknowledgements could leave in no other
    /// way.
    pub overdrawn: u64,
    /// Calls of the engine's `poll_transmit`.
    pub polls: u64,
    /// Unreliable messages sent.
    pub datagrams_sent: u64,
    /// Unreliable messages dropped before sending, because no packet was large enough any more.
    pub datagrams_unsent: u64,
    /// Unreliable messages received.
    pub datagrams_received: u64,
    /// Received unreliable messages dropped because the owner did not read them in time.
    pub datagrams_dropped: u64,
    /// Messages of which bytes, or at least a stream, were given to the engine before this client's
    /// handshake was complete.
    pub early: u64,
    /// Early messages that the server has accepted as such.
    pub early_accepted: u64,
    /// Early messages that the server has rejected, and that were sent again after the handshake.
    pub early_rejected: u64,
    /// Messages that expired before any part was sent and were not reported to the receiver,
    /// because too many reports were waiting.
    pub unreported: u64,
}

/// Current load of a session, without what the Conductor and the inbox count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionLoad {
    /// Packets with message data in flight: neither acknowledged nor declared lost. The lanes'
    /// windows bound them.
    pub in_flight: usize,
    /// Packets that the engine has to retransmit. Each was in flight, so the lanes' windows bound
    /// them.
    pub retransmissions: usize,
    /// Runs waiting for retransmission on another lane. Each was a packet in flight, and is entered
    /// once.
    pub repairs: usize,
    /// Copies of the latest chunk still to be sent: fewer than there are lanes.
    pub duplicates: usize,
    /// Small frames for which the engine has no credit, at most [`MAX_NOTES`](crate::MAX_NOTES).
    pub notes: usize,
    /// Reports to the peer that wait for these. The owner bounds them.
    pub reports: usize,
    /// Streams waiting to be read: no more than the peer may open.
    pub unread: usize,
    /// Events that the owner has not polled.
    pub events: usize,
    /// Lanes waiting to be opened or reopened, at most
    /// [`SessionConfig::max_lanes`](crate::SessionConfig::max_lanes).
    pub requests: usize,
    /// Messages not wholly acknowledged, at most
    /// [`SessionConfig::max_unfinished`](crate::SessionConfig::max_unfinished) and the Conductor's
    /// reserve for P0.
    pub unfinished: usize,
}
