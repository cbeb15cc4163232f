//! Messages that are handed over part by part: state shared by their parts.
//!
//! To the Conductor and to the engine each part is a separate message. On the wire they are one:
//! the frames of all parts have one number, one priority, and offsets that continue from part to
//! part (`docs/wire.md`, "Messages").

use marcato_sched::conductor::MessageId;
pub use marcato_stream::LongId;
use marcato_units::{Bytes, Priority};
use marcato_wire::MessageNumber;

/// Position of a part in its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) long: LongId,
    /// Offset in the whole message at which it begins.
    pub(crate) base: u64,
    /// Set if the whole message ends with it.
    pub(crate) last: bool,
}

/// Message that is handed over part by part.
#[derive(Debug, Default)]
pub(crate) struct Long {
    /// Number and priority on the wire, once the first byte has left.
    pub(crate) announced: Option<(MessageNumber, Priority)>,
    /// Length so far.
    pub(crate) len: Bytes,
    /// Parts that are not wholly acknowledged: as many as the owner hands over ahead.
    pub(crate) parts: Vec<MessageId>,
    /// Set when no other part follows: the last was handed over, or the message was abandoned.
    pub(crate) over: bool,
}
