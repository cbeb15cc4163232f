//! Plain QUIC streams for any application protocol, in the order of an [`Exchange`](marcato_sched::exchange::Exchange).
//!
//! A session of [`Protocol::Streams`] speaks plain QUIC (RFC 9000, 9001, 9002, 9221): no frame and no stream
//! of Marcato's own is on the wire, and no transport parameter beyond those of the engine. Its peer may be any
//! implementation of QUIC. Lanes, gates, pacing, coupled mode and the low layer work below streams as they do
//! below messages.
//!
//! # Order
//! The application gives each stream its [`Parameters`](marcato_sched::exchange::Parameters), and may change
//! them at any time. The session keeps the bytes of a stream until its turn comes, and hands the engine one packet or one
//! batch at a time. So bytes that are written later and are more urgent overtake all that has not left.
//! Lost bytes are owed at their own level. A stream without flow-control credit waits alone: the others of its level go on.
//!
//! # Differences to messages
//! - The bytes of a stream cannot be copied to a second stream, so nothing is sent twice on two lanes. With
//!   several lanes, what is stuck on a silent one is sent again when that lane is closed, which is soon
//!   if another one works.
//! - There is no early data (0-RTT).
//! - The receiver reads each stream in order. Over 2048 unread frames of one stream end the connection, as the
//!   [crate] describes.

mod config;
mod end;
mod error;
mod event;

pub use config::{Protocol, StreamsConfig, StreamsConfigError};
pub use end::End;
pub use error::{DatagramError, ReadError, StreamUnknown, WriteError};
pub use event::StreamEvent;
pub use noq_proto::StreamId;

/// Kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both ends send.
    Both,
    /// Only the end that opens it sends.
    One,
}

impl From<Direction> for noq_proto::Dir {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Both => Self::Bi,
            Direction::One => Self::Uni,
        }
    }
}

impl From<noq_proto::Dir> for Direction {
    fn from(dir: noq_proto::Dir) -> Self {
        match dir {
            noq_proto::Dir::Bi => Self::Both,
            noq_proto::Dir::Uni => Self::One,
        }
    }
}
