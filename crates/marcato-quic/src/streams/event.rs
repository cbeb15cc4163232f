//! Events of plain streams.

use noq_proto::StreamId;

use super::Direction;

/// Event of plain streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEvent {
    /// The peer has opened streams of this kind, to be [accepted](crate::Session::accept_stream).
    Incoming(Direction),
    /// The peer allows more streams of this kind.
    Available(Direction),
    /// There is data, an end or a reset to be [read](crate::Session::read_stream_data).
    Readable(StreamId),
    /// A write that was refused may be tried again.
    Writable(StreamId),
    /// More of a [watched](crate::Session::watch_stream) stream is acknowledged.
    Acknowledged(StreamId),
    /// The peer has acknowledged all of the stream and its end.
    Finished(StreamId),
    /// The peer reads no more of the stream. What was not sent is dropped.
    Stopped {
        /// Stream concerned.
        stream: StreamId,
        /// Code of the application.
        code: u64,
    },
    /// The bytes of a stream cannot arrive by its [deadline](crate::Session::set_stream_deadline).
    Late {
        /// Stream concerned.
        stream: StreamId,
        /// Code with which the session has reset it, if the owner wanted that.
        reset: Option<u64>,
    },
    /// A datagram was dropped before it was sent: it expired, or has become too long for a packet.
    DatagramDropped,
}
