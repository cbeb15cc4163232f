//! Error of sessions and streams.

use marcato_net::streams::{End, ReadError, SendDatagramError, StreamOver, WriteError};

/// Error of a session or a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session has ended.
    #[error(transparent)]
    Session(#[from] End),
    /// The stream takes no data.
    #[error(transparent)]
    Write(WriteError),
    /// The stream was not read to its end.
    #[error(transparent)]
    Read(ReadError),
    /// The datagram was not accepted.
    #[error(transparent)]
    Datagram(SendDatagramError),
    /// The stream is over at this end.
    #[error(transparent)]
    Over(#[from] StreamOver),
}

/// Returns the number of a code in the traits.
fn short(code: u64) -> u32 {
    u32::try_from(code).unwrap_or(u32::MAX)
}

impl Error {
    /// Code and reason with which an application has closed the session.
    pub(crate) fn of_session(&self) -> Option<(u32, String)> {
        let end = match self {
            Self::Session(end)
            | Self::Write(WriteError::Ended(end))
            | Self::Read(ReadError::Ended(end))
            | Self::Datagram(SendDatagramError::Ended(end)) => end,
            _ => return None,
        };
        match end {
            End::Application { code, reason } => {
                Some((short(*code), String::from_utf8_lossy(reason).into_owned()))
            }
            _ => None,
        }
    }

    /// Code with which the peer has stopped or reset the stream.
    pub(crate) fn of_stream(&self) -> Option<u32> {
        match self {
            Self::Write(WriteError::Stopped(code)) | Self::Read(ReadError::Reset(code)) => Some(short(*code)),
            _ => None,
        }
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Ended(end) => Self::Session(end),
            error => Self::Write(error),
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Ended(end) => Self::Session(end),
            error => Self::Read(error),
        }
    }
}

impl From<SendDatagramError> for Error {
    fn from(error: SendDatagramError) -> Self {
        match error {
            SendDatagramError::Ended(end) => Self::Session(end),
            error => Self::Datagram(error),
        }
    }
}
