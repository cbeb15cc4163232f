//! Errors of plain streams, one for each operation.

use std::io;

use marcato_quic::streams::End;
use marcato_units::Bytes;

/// Error returned when a stream takes no data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer reads no more of it.
    #[error("the peer reads no more of this stream: code {0}")]
    Stopped(u64),
    /// The stream was finished or reset at this end.
    #[error("the stream was finished or reset: open another one")]
    Closed,
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Ended(#[from] End),
}

/// Error returned when a stream is not read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer has reset the stream.
    #[error("the peer has reset this stream: code {0}")]
    Reset(u64),
    /// This end has stopped the stream.
    #[error("the stream was stopped: open another one")]
    Closed,
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Ended(#[from] End),
}

/// Error returned when a datagram is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendDatagramError {
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
    Busy,
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Ended(#[from] End),
}

/// Error returned for a stream that is over at this end, or whose connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream is over")]
pub struct StreamOver;

/// Returns the kind that programs expect of the end of a connection.
const fn kind(end: &End) -> io::ErrorKind {
    match end {
        End::Application { .. } => io::ErrorKind::ConnectionAborted,
        End::Lost { .. } => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::NotConnected,
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) => io::ErrorKind::BrokenPipe,
            WriteError::Closed => io::ErrorKind::NotConnected,
            WriteError::Ended(end) => kind(end),
        };
        Self::new(kind, error)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) => io::ErrorKind::ConnectionReset,
            ReadError::Closed => io::ErrorKind::NotConnected,
            ReadError::Ended(end) => kind(end),
        };
        Self::new(kind, error)
    }
}

impl From<StreamOver> for io::Error {
    fn from(error: StreamOver) -> Self {
        Self::new(io::ErrorKind::NotConnected, error)
    }
}
