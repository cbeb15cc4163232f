//! Wire formats: what Marcato reads from and writes to packets, and nothing that decides anything.
//!
//! Every parser here takes bytes that anybody may have sent. None panics and none allocates; what is malformed
//! gives an error that says which byte and why.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod ecn;
mod frame;
mod tcp_option;
mod unreliable;
mod varint;

pub use ecn::Ecn;
pub use frame::{
    ALPN, Decoded, EncodeError, ErrorCode, Frame, FrameError, MAX_COPIES, MAX_FRAME_HEADER, MessageFrame,
    MessageNumber, Twin,
};
pub use tcp_option::{
    CATS_EXID, CatsOption, EmitError, MAX_OPTIONS, SackBlock, SackBlocks, TcpOption, TcpOptionError,
    TcpOptions, emit_options, options_len,
};
pub use unreliable::{UNRELIABLE_HEADER, Unreliable, UnreliableError};
pub use varint::{Truncated, VarInt};
