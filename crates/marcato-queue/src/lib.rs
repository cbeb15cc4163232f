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
//! | [`Codel`] | drop-tail that also drops or marks when packets keep waiting too long (RFC 8289) |
//! | [`FqCodel`] | a CoDel for each of many groups of flows, served in turn (RFC 8290) |
//! | [`StepMark`] | drop-tail that marks above a threshold (DCTCP) |
//! | [`Red`] | drops or marks at random by the average queue (Floyd and Jacobson 1993) |
//! | [`Pie`] | drops or marks at random by the queuing latency (RFC 8033) |
//! | [`Crq`] | flows that answer congestion signals apart from those that do not (CRQ) |
//! | [`Strict`] | two classes with a queue of their own each, best effort first; the queues may be any disciplines |
//! | [`PushOut`] | two classes in one buffer; best effort pushes lower effort out when it is full |
//!
//! # Adding a discipline
//!
//! 1. One file, named after the noun, which opens with the RFC or paper section that it follows and with where it
//!    leaves that. Variables keep the names they have there.
//! 2. A `…Config` with a `Default` that says where its numbers come from, and `new(config) -> Result`, which refuses
//!    what could never work, with a message that says what to set instead.
//! 3. Implement [`Discipline`]. Count what comes into `enqueued` first; then whatever path a packet takes must end
//!    in `dequeued`, in `dropped`, or in the backlog. A packet dropped on the way in is handed back in the
//!    [`Verdict`]; one dropped on the way out goes to `on_drop`. Never panic, whatever `now` is.
//! 4. No floating point; whoever needs randomness gets a seeded stream with its configuration; nothing allocated per packet once the buffers have grown; at most O(log n) per packet in
//!    queue length and flows. A table that flows can grow has a limit and a counter.
//! 5. Add it to the property tests in `tests/disciplines/properties.rs`, which hold every discipline to conservation,
//!    order, limits and work conservation over random operations, and to `benches/disciplines.rs`.
//!
//! Disciplines compose: [`Discipline`] is dyn-compatible, `Box<dyn Discipline<P>>` is one too, and [`Strict::of`]
//! takes any two.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod codel;
mod counters;
mod crq;
mod discipline;
mod droptail;
mod fifo;
mod flow_table;
mod fq_codel;
mod limit;
mod packet;
mod pie;
mod ppm;
mod pushout;
mod red;
mod step_mark;
mod strict;
pub mod trap;

pub use codel::{Codel, CodelConfig, CodelError};
pub use counters::{Backlog, Counters, Tally};
pub use crq::{
    Admission, Aqm, Buffer, Class, ClassConfig, ClassStats, Crq, CrqConfig, CrqError, CrqStats, FlowReport,
    Queues, QuicRule, Sharing,
};
pub use discipline::{Discipline, Verdict};
pub use droptail::{DropTail, DropTailConfig};
pub use flow_table::{FlowTableConfig, FlowTableCounters, FlowTableError};
pub use fq_codel::{FqCodel, FqCodelConfig, FqCodelError};
pub use limit::{Limit, LimitError};
pub use packet::{FlowKey, Packet};
pub use pie::{Pie, PieConfig, PieError};
pub use ppm::Ppm;
pub use pushout::{PushOut, PushOutConfig};
pub use red::{Red, RedConfig, RedError, RedThresholds};
pub use step_mark::{StepMark, StepMarkConfig, StepMarkError, StepThreshold};
pub use strict::{Strict, StrictConfig, StrictError};
