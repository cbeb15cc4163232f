//! Queue disciplines of the network.
//!
//! A [`Discipline`] decides which packets wait, leave next, are dropped or are marked. It has no
//! clock, no link and no sockets: the caller passes the time and owns the packets, which the queue
//! sees through the trait [`Packet`]. So the same queue runs in the simulator, in the link
//! emulator, and as the reference for a kernel implementation. All arithmetic is on integers.
//!
//! | discipline | description |
//! |---|---|
//! | [`DropTail`] | first in, first out, with a limit |
//! | [`Codel`] | drop-tail that also drops or marks while the sojourn time stays too long (RFC 8289) |
//! | [`FqCodel`] | one CoDel for each of many groups of flows, served in turn (RFC 8290) |
//! | [`StepMark`] | drop-tail that marks above a threshold (DCTCP) |
//! | [`Red`] | drops or marks at random by the average queue (Floyd and Jacobson 1993) |
//! | [`DualPi2`] | marks by two coupled queues, one of them for L4S (RFC 9332) |
//! | [`Pie`] | drops or marks at random by the queuing latency (RFC 8033) |
//! | [`Crq`] | separates responsive from unresponsive flows (CRQ) |
//! | [`Strict`] | two classes with a queue each, best effort first; the queues may be any disciplines |
//! | [`Policer`] | a token bucket that drops what exceeds it, before any other queue (RFC 2697) |
//! | [`PushOut`] | two classes in one buffer; best effort pushes lower effort out if it is full |
//!
//! # Adding a discipline
//!
//! 1. Add one file, named after the noun. It opens with the RFC or paper section that it follows
//!    and with its deviations from that. Variables keep the names they have there.
//! 2. Add a `…Config` with a `Default` that names the source of its numbers, and `new(config) ->
//!    Result`. That refuses a configuration that cannot work, with a message that says what to set
//!    instead.
//! 3. Implement [`Discipline`]. Count every arriving packet in `enqueued` first. Its path must end
//!    in `dequeued`, in `dropped`, or in the backlog. A packet dropped on the way in is handed back
//!    in the [`Verdict`]; one dropped on the way out goes to `on_drop`. Never panic, for any `now`.
//! 4. Use no floating point. Randomness comes from a seeded stream, passed with the configuration.
//!    Allocate nothing per packet once the buffers have grown, and take at most O(log n) per packet
//!    in queue length and flows. A table that flows can grow has a limit and a counter.
//! 5. Implement [`Configuration`] for the `…Config`: users then build the discipline without naming
//!    its type. Queues can be sent between threads, for emulated links. For scenarios, add its keys and
//!    its row to `marcato-scenario/src/queue.rs`, and its name to `SEVERAL_CLASSES` there if it has
//!    classes of its own. A text for `--explain` in `explain.rs` is optional.
//! 6. Add it to the property tests in `tests/disciplines/properties.rs`, which check conservation,
//!    order, limits and work conservation over random operations, and to `benches/disciplines.rs`.
//!
//! Disciplines compose: [`Discipline`] is dyn-compatible, `Box<dyn Discipline<P>>` implements it,
//! [`Strict::of`] takes any two, and [`Filtered`] puts a rule before any.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod codel;
mod configuration;
mod counters;
mod crq;
mod discipline;
mod droptail;
mod dualpi2;
mod fifo;
mod filtered;
mod flow_table;
mod fq_codel;
mod limit;
mod nanos;
mod packet;
mod pie;
mod policer;
mod ppm;
mod pushout;
mod red;
mod release;
mod step_mark;
mod strict;
mod tagged;
pub mod trap;

pub use codel::{Codel, CodelConfig, CodelError};
pub use configuration::Configuration;
pub use counters::{Backlog, Counters, Tally};
pub use crq::{
    Admission, Aqm, Buffer, Class, ClassConfig, ClassStats, Crq, CrqConfig, CrqError, CrqStats, FlowReport,
    Queues, QuicRule, Sharing, YoungConfig,
};
pub use discipline::{Discipline, Verdict};
pub use droptail::{DropTail, DropTailConfig};
pub use dualpi2::{DualPi2, DualPi2Config, DualPi2Error};
pub use filtered::{Fate, Filter, Filtered};
pub use flow_table::{FlowTableConfig, FlowTableCounters, FlowTableError};
pub use fq_codel::{FqCodel, FqCodelConfig, FqCodelError};
pub use limit::{Limit, LimitError};
pub use packet::{FlowKey, Packet};
pub use pie::{Pie, PieConfig, PieError};
pub use policer::{Policer, PolicerConfig, PolicerError, TokenBucket};
pub use ppm::Ppm;
pub use pushout::{PushOut, PushOutConfig};
pub use red::{Red, RedConfig, RedError, RedThresholds};
pub use release::{Released, release};
pub use step_mark::{StepMark, StepMarkConfig, StepMarkError, StepThreshold};
pub use strict::{Strict, StrictConfig, StrictError};
pub use tagged::Tagged;

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
