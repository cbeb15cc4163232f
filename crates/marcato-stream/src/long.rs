//! Messages that are handed over part by part.

/// Identifier of a message that is handed over part by part, within its connection; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LongId(pub u64);
