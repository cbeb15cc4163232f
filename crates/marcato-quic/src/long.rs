//! Messages that are handed over part by part: what their parts share.
//!
//! To the Conductor and to the engine each part is a message of its own. On the wire they are one: the frames of all
//! parts have one number, one priority, and offsets that go on from part to part (`docs/wire.md`, "Messages").

use marcato_sched::conductor::MessageId;
use marcato_units::{Bytes, Priority};
use marcato_wire::MessageNumber;

/// The name of a message that is handed over part by part, within its session. No name is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LongId(pub u64);

/// Where a part belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) long: LongId,
    /// Where in the whole it begins.
    pub(crate) base: u64,
    /// Whether the whole ends with it.
    pub(crate) last: bool,
}

/// A message that is handed over part by part.
#[derive(Debug, Default)]
pub(crate) struct Long {
    /// Its number and its priority on the wire, once its first byte has left.
    pub(crate) told: Option<(MessageNumber, Priority)>,
    /// How long it is so far.
    pub(crate) len: Bytes,
    /// The parts that are not wholly acknowledged. As many as the owner hands over ahead.
    pub(crate) parts: Vec<MessageId>,
    /// No other part comes: the last is here, or it was given up.
    pub(crate) over: bool,
}
