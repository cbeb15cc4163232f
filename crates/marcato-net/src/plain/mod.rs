//! Plain streams of a connection, as their handles see it.

mod error;
mod fate;
mod waiting;

use std::task::{Context, Poll};

use bytes::Bytes as Payload;
use marcato_quic::streams::{Direction, End, StreamId};
use marcato_sched::exchange::{GroupId, Parameters, Weight, WeightError};
use marcato_units::Duration;

pub use error::{ReadError, SendDatagramError, StreamOver, WriteError};
pub(crate) use fate::Fate;
pub(crate) use waiting::Plain;

/// Connection of plain streams, as its handles see it. No method blocks.
pub(crate) trait Streams: Send + Sync {
    /// Opens a stream; `None` if the peer allows none now.
    fn open(&self, direction: Direction, order: Parameters) -> Result<Option<StreamId>, End>;
    /// Accepts a stream of the peer; `None` if there is none.
    fn accept(&self, direction: Direction) -> Result<Option<StreamId>, End>;
    /// Takes bytes to send: all, or the first part.
    fn poll_write(
        &self,
        context: &mut Context<'_>,
        stream: StreamId,
        data: Payload,
    ) -> Poll<Result<usize, WriteError>>;
    /// Ends a stream.
    fn finish(&self, stream: StreamId) -> Result<(), StreamOver>;
    fn reset(&self, stream: StreamId, code: u64) -> Result<(), StreamOver>;
    /// Returns the fate of a stream that a handle sends on; `None` while it has none.
    fn fate(&self, stream: StreamId) -> Option<Fate>;
    fn order(&self, stream: StreamId, order: Parameters);
    /// Expects streams of this order.
    fn expect(&self, order: Parameters);
    /// Returns whether bytes of a stream wait, and the peer gives no credit for them.
    fn is_held(&self, stream: StreamId) -> bool;
    fn weigh(&self, group: GroupId, weight: Weight) -> Result<(), WeightError>;
    fn deadline(&self, stream: StreamId, within: Option<Duration>, reset: Option<u64>);
    fn is_late(&self, stream: StreamId) -> bool;
    /// Returns the bytes that the peer is known to have; `None` if the session keeps no account of the stream.
    fn acknowledged(&self, stream: StreamId) -> Option<u64>;
    /// Takes the next bytes of a stream; `None` at its end.
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        stream: StreamId,
        most: usize,
    ) -> Poll<Result<Option<Payload>, ReadError>>;
    /// Polls for a reset of a stream by the peer.
    fn poll_reset(&self, context: &mut Context<'_>, stream: StreamId) -> Poll<Result<u64, End>>;
    fn stop(&self, stream: StreamId, code: u64) -> Result<(), StreamOver>;
    /// Forgets the handle that read a stream, or that sent on it.
    fn forget(&self, stream: StreamId, reads: bool);
    fn send_datagram(
        &self,
        data: Payload,
        order: Parameters,
        lifetime: Option<Duration>,
    ) -> Result<(), SendDatagramError>;
    fn read_datagram(&self) -> Result<Option<Payload>, End>;
    fn max_datagram(&self) -> Option<usize>;
    /// Ends the connection with a code of the application.
    fn close(&self, code: u64, reason: &[u8]);
    /// Tasks that wait for plain streams.
    fn waiting(&self) -> &Plain;
}
