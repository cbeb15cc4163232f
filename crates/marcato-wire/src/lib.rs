//! Wire formats that Marcato reads from and writes to packets. No policy is in this crate.
//!
//! Every parser takes bytes that anybody may have sent. None panics and none allocates. Malformed
//! input gives an error that names the byte and the reason.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod dscp;
mod ecn;
mod flow_tuple;
mod frame;
#[cfg(test)]
mod no_input_panics;
mod packet;
mod quic_header;
mod tcp_option;
mod tcp_segment;
mod unreliable;
mod varint;

pub use dscp::{CodePoints, Dscp, UnknownDscp, queue_priority};
pub use ecn::Ecn;
pub use flow_tuple::FlowTuple;
pub use frame::{
    ALPN, Decoded, Duplicate, EncodeError, EndReason, ErrorCode, Exchange, Fate, Frame, FrameError,
    MAX_COPIES, MAX_FRAME_HEADER, MAX_REASON, MAX_SINGLE_HEADER, Manner, MessageFrame, MessageNumber,
};
pub use packet::{IpPacket, MAX_EXTENSION_HEADERS, MAX_VLAN_TAGS, PacketError, Transport};
pub use quic_header::{QuicHeader, QuicLongType, QuicVersion};
pub use tcp_option::{
    CATS_EXID, CatsOption, EmitError, MAX_OPTIONS, SackBlock, SackBlocks, TcpOption, TcpOptionError,
    TcpOptions, emit_options, options_len,
};
pub use tcp_segment::{TcpFlags, TcpSegment, TcpTimestamps};
pub use unreliable::{UNRELIABLE_HEADER, Unreliable, UnreliableError};
pub use varint::{Truncated, VarInt};

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
