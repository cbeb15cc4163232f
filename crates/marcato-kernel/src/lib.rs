//! Congestion-responsive queuing (CRQ) in the Linux kernel.
//!
//! Three kinds of eBPF program, in `bpf/`, do what [`Crq`](marcato_queue::Crq) does in user space:
//!
//! | program | where | work |
//! |---|---|---|
//! | `crq_egress` | packets that leave a device | assesses the flow, and sends the packet to its queue by `skb->priority` |
//! | `crq_ingress` | packets that enter it | shows the flow's other direction to its trap |
//! | `crq_dropped`, `crq_dequeued` | tracepoints of the kernel | book drops and marks of the device's queues |
//!
//! The traps are a port of [`Trap`](marcato_queue::trap::Trap) with the same numbers: `tests/`
//! gives both the same packets and signals, and compares their whole state after each.
//!
//! [`Programs`] loads the object that was compiled when this crate was built. It needs Linux 5.15 or
//! later with BTF, and the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.
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
mod hook;
mod layout;
#[cfg(target_os = "linux")]
mod maps;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod queues;
#[cfg(target_os = "linux")]
mod requirements;
mod shaper;
mod state;

#[cfg(target_os = "linux")]
pub use attachment::{Attachment, PIN_DIRECTORY};
pub use counters::{Counter, Tally};
#[cfg(target_os = "linux")]
pub use device::Device;
#[cfg(target_os = "linux")]
pub use error::{AttachError, DeviceError, LoadError, TcError};
pub use layout::{Configuration, FlowId, ReadPacket};
#[cfg(target_os = "linux")]
pub use programs::{Pass, Programs};
#[cfg(target_os = "linux")]
pub use queues::Queue;
#[cfg(target_os = "linux")]
pub use requirements::Missing;
pub use shaper::{QueueKind, Shaper, TcCommand};
pub use state::FlowState;

/// Object with the eBPF programs; empty if there was no compiler when this crate was built.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/crq.bpf.o"));
