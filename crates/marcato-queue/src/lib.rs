//! The network's brain: queue disciplines.
//!
//! A [`Discipline`] decides what waits, what leaves next, and what is dropped or marked. It has no clock, no
//! link and no sockets: the caller says what time it is and owns the packets, of which the queue knows only what
//! the trait [`Packet`] tells. So the same queue runs in the simulator, in the link emulator, and as the reference
//! that a kernel implementation is compared with. All arithmetic is on integers.
//!
//! | discipline | what it is |
//! |---|---|
//! | [`DropTail`] | first in, first out, with a limit |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod counters;
mod discipline;
mod droptail;
mod limit;
mod packet;
#[cfg(test)]
mod testing;

pub use counters::{Backlog, Counters, Tally};
pub use discipline::{Discipline, Verdict};
pub use droptail::{DropTail, DropTailConfig};
pub use limit::{Limit, LimitError};
pub use packet::{FlowKey, Packet};
