//! Codes with which a connection is closed.

use core::fmt;

/// Code of the connection error that a signal demands. HTTP/2 and HTTP/3 have codes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// `PROTOCOL_ERROR` of HTTP/2 (RFC 9113 §7).
    Http2Protocol,
    /// `FRAME_SIZE_ERROR` of HTTP/2 (RFC 9113 §7).
    Http2FrameSize,
    /// `H3_FRAME_ERROR` of HTTP/3 (RFC 9114 §8.1).
    Http3Frame,
    /// `H3_ID_ERROR` of HTTP/3 (RFC 9114 §8.1).
    Http3Id,
}

impl ErrorCode {
    /// Number of the code on the wire.
    pub const fn number(self) -> u64 {
        match self {
            Self::Http2Protocol => 0x1,
            Self::Http2FrameSize => 0x6,
            Self::Http3Frame => 0x106,
            Self::Http3Id => 0x108,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http2Protocol => "PROTOCOL_ERROR",
            Self::Http2FrameSize => "FRAME_SIZE_ERROR",
            Self::Http3Frame => "H3_FRAME_ERROR",
            Self::Http3Id => "H3_ID_ERROR",
        })
    }
}
