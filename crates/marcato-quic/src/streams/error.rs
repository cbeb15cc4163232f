//! Errors of plain streams, one for each operation.

use marcato_units::Bytes;

/// Error returned when a stream takes no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Enough data waits, or too many streams send.
    #[error("the stream has no room: write again after `StreamEvent::Writable`")]
    Blocked,
    /// The peer reads no more of it.
    #[error("the peer reads no more of this stream: code {0}")]
    Stopped(u64),
    /// The stream is finished or reset, is the peer's alone, or does not exist.
    #[error("the stream cannot be written to: it is finished, reset or unknown")]
    Closed,
}

/// Error returned when a stream has no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing has arrived that was not read.
    #[error("nothing has arrived: read again after `StreamEvent::Readable`")]
    Blocked,
    /// The peer has reset the stream.
    #[error("the peer has reset this stream: code {0}")]
    Reset(u64),
    /// The stream has been read to its end, was stopped, is this end's alone, or does not exist.
    #[error("the stream cannot be read: it has ended, was stopped, or is unknown")]
    Closed,
}

/// Error returned for a stream that is over, or does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream is over or unknown")]
pub struct StreamUnknown;

/// Error returned when a datagram is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// The peer takes none, or this end has disabled them.
    #[error("the connection has no datagrams: both ends have to enable them")]
    Disabled,
    /// It does not fit a packet.
    #[error("a datagram has at most {limit} now: send it on a stream, or in parts")]
    TooLong {
        /// Most bytes now.
        limit: Bytes,
    },
    /// Enough datagrams wait.
    #[error("enough datagrams wait: send it later, or drop it")]
    Blocked,
    /// The session is not open.
    #[error("the connection is not open")]
    Closed,
}
