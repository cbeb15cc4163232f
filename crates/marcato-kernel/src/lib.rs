//! Congestion-responsive queuing (CRQ) in the Linux kernel.
//!
//! Four kinds of eBPF program, in `bpf/`, do what [`Crq`](marcato_queue::Crq) does in user space:
//!
//! | program | where | work |
//! |---|---|---|
//! | `crq_egress`, or `crq_class` for packets of one class | packets that leave a device | assesses the flow, and sends the packet to its queue by `skb->priority` |
//! | `crq_subscriber` | the root queue of a device with subscribers | finds the subscriber's class |
//! | `crq_ingress` | packets that enter it, or leave by a device beside it ([`Reverse`]) | lets the flow's judge (its *trap*) see the other direction |
//! | `crq_dropped`, `crq_dequeued` | tracepoints of the kernel | book drops and marks of the device's queues |
//!
//! [`Marking`] is apart from CRQ: its programs mark the sockets of one control group ([`Group`]).
//!
//! The traps are a port of [`Trap`](marcato_queue::trap::Trap) with the same numbers: `tests/`
//! gives both the same packets and signals, and compares their whole state after each.
//!
//! [`Programs`] loads the object that was compiled when this crate was built. It needs Linux 5.15 or
//! later with BTF, and the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.
//!
//! # Design
//!
//! - *A port, file by file.* `bpf/` has the traps of `marcato-queue` and the packet reader of `marcato-wire`,
//!   one concern per header and with the same names; bounds are in `limits.h`.
//! - *The verifier follows every path*, and refuses programs with too many. The judge, loops and what few packets
//!   need are global functions, which it checks once for all arguments. What every packet passes is inline: a call
//!   takes 5 to 10 ns. A test has the bound of its work.
//! - *A packet is read in place.* The kernel's helper copies bytes of any packet, but takes 15 ns each time. It
//!   is left to packets whose headers stand in pages elsewhere. A program looks up its counters once, and reads
//!   the clock once, where a flow needs the time.
//! - *Signals wait for the next packet.* Tracepoints may come on any CPU and hold no lock. They add to a
//!   counter of the flow, by kind and cycle; the flow's next packet takes them into account. Nothing else
//!   happens to a flow in between, so its state after that packet is the same. Only the order of a loss and a
//!   mark between two packets is lost, which no preset depends on.
//! - *One CPU at a time is in a flow's state.* It enters by compare-and-swap with a bounded number of
//!   attempts. A packet that gives up is forwarded, not assessed, and counted. A lock of the kernel would
//!   allow no calls of functions.
//! - *A packet carries its cycle* in `skb->tc_index`, which no queue here writes, to the tracepoint that may
//!   see it dropped.
//! - *Nothing is dropped or held.* Whatever cannot be read or has no state goes to the standard queue.
//! - *Attachments outlive their process.* Maps and links are pinned in a file system of type bpf, so a killed
//!   daemon changes nothing. Both classes of the HTB have a parent and borrow from it, and its default is the
//!   standard queue: without the programs, all traffic has one queue and the full rate.
//! - *Below a class of somebody's tree* the same program is a filter of CRQ's own HTB there, which takes the place of the
//!   class's queue ([`Tree`]). The class stays a leaf, so the tree borrows and classifies as before.
//! - *Queues are changed and read by iproute2*, not by netlink of our own. A printed plan is then what an
//!   operator could type, and errors of `tc` are known ones. HTB is never created twice: the kernel has no
//!   change of it, so [`Shaper::changes`] changes its classes and leaves only.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod attachment;
mod codel;
mod counters;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod feature;
#[cfg(target_os = "linux")]
mod group;
#[cfg(target_os = "linux")]
mod hook;
mod layout;
#[cfg(target_os = "linux")]
mod leaf;
#[cfg(target_os = "linux")]
mod maps;
#[cfg(target_os = "linux")]
mod marks;
#[cfg(target_os = "linux")]
mod option;
#[cfg(target_os = "linux")]
mod pinned;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod queues;
#[cfg(target_os = "linux")]
mod requirements;
#[cfg(target_os = "linux")]
mod shaper;
mod state;
#[cfg(target_os = "linux")]
mod subscribers;
#[cfg(target_os = "linux")]
mod tree;

#[cfg(target_os = "linux")]
pub use attachment::{Attachment, PIN_DIRECTORY};
pub use counters::{Counter, Tally};
#[cfg(target_os = "linux")]
pub use device::Device;
#[cfg(target_os = "linux")]
pub use error::{AttachError, DeviceError, LoadError, MarkError, ParentError, TcError};
#[cfg(target_os = "linux")]
pub use feature::Feature;
#[cfg(target_os = "linux")]
pub use group::{Group, GroupError};
pub use layout::{Configuration, FlowId, ReadPacket, Reverse, Side, YoungPlace};
#[cfg(target_os = "linux")]
pub use leaf::Leaf;
pub use marcato_wire::{CodePoints, Dscp, UnknownDscp, queue_priority};
#[cfg(target_os = "linux")]
pub use marks::{Mark, MarkCounter, MarkRule, Marking, Marks, Protocol};
#[cfg(target_os = "linux")]
pub use option::{Boundaries, Heard, OptionCounter, PriorityOption, Run};
#[cfg(target_os = "linux")]
pub use pinned::{Pinned, Whereabouts};
#[cfg(target_os = "linux")]
pub use probe::{Finding, State, examine};
#[cfg(target_os = "linux")]
pub use programs::{Pass, Programs};
#[cfg(target_os = "linux")]
pub use queues::Queue;
#[cfg(target_os = "linux")]
pub use requirements::Missing;
#[cfg(target_os = "linux")]
pub use shaper::{QueueKind, Shaper, TcCommand, YoungQueue};
pub use state::FlowState;
#[cfg(target_os = "linux")]
pub use subscribers::{Prefix, Subscriber};
#[cfg(target_os = "linux")]
pub use tree::{ClassId, Seat, Tree};

/// Object with the eBPF programs; empty if there was no compiler when this crate was built.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/crq.bpf.o"));

/// Object with the eBPF programs that mark sockets; empty if there was no compiler when this crate was built.
pub const MARKS_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/marks.bpf.o"));
