//! Emulated links in real time: packets of real sockets pass queues of `marcato-queue`.
//!
//! A [`Lab`] makes a real network of a scenario's nodes and links: hosts are network namespaces, in which the
//! kernel's TCP and UDP and any program run (Linux only). Links can be used alone, too:
//!
//! A [`Link`] is one direction: a queue, a transmitter with a rate or a trace, loss, and a line with
//! delay and jitter. It has no clock and no socket, so that it can be checked in virtual time. A
//! [`UdpLink`] puts two of them between a client and a server on real UDP sockets. It needs no
//! privileges, and is transparent to the program under test, which only sends to another port. A
//! [`TcpLink`] does the same for TCP, with bytes in the place of packets, and [`proxy`] has many of both, with faults
//! that change while they work.
//!
//! ```
//! use marcato_lab::{LinkConfig, UdpLink};
//! use marcato_units::{Duration, Rate, Seed};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
//! let link = || LinkConfig::new(Rate::from_mbps(2), Duration::from_millis(5));
//! let between = UdpLink::open(server.local_addr()?, link(), link(), Seed::new(1)).await?;
//!
//! let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
//! client.send_to(b"hello", between.addr()).await?;
//! let mut datagram = [0; 8];
//! let (len, _) = server.recv_from(&mut datagram).await?;
//! assert_eq!(&datagram[..len], b"hello");
//! assert_eq!(between.forward().delivered, 1);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
mod buffers;
mod build;
#[cfg(target_os = "linux")]
mod clock;
mod datagram;
#[cfg(target_os = "linux")]
mod emulator;
#[cfg(target_os = "linux")]
mod entrance;
mod ip_datagram;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
mod leftover;
mod link;
#[cfg(target_os = "linux")]
mod namespace;
mod packet_log;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod prompt;
pub mod proxy;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "system calls without a safe form")]
mod sys;
mod tcp;
#[cfg(target_os = "linux")]
mod tun;
mod udp;
#[cfg(target_os = "linux")]
mod wiring;

pub use build::Traces;
#[cfg(target_os = "linux")]
pub use clock::LabClock;
pub use datagram::Datagram;
#[cfg(target_os = "linux")]
pub use emulator::DirectionStats;
#[cfg(target_os = "linux")]
pub use entrance::{EnterError, enter_host};
pub use ip_datagram::IpDatagram;
#[cfg(target_os = "linux")]
pub use lab::{HostError, Lab, LabError, LabOptions};
#[cfg(target_os = "linux")]
pub use leftover::{Leftover, VARIABLE};
pub use link::{
    Link, LinkChange, LinkConfig, LinkCounters, LinkError, LinkMeasurement, LinkPacket, MAX_UNDER_WAY,
    PacketEvent, Sojourns, Watcher,
};
pub use marcato_link::{
    DelaySummary, Histogram, Jitter, JitterError, Load, Loss, Trace, TraceError, Waiting,
};
pub use packet_log::{PACKET_COLUMNS, PacketLog};
#[cfg(target_os = "linux")]
pub use plan::{MAX_NODES, PlanError};
#[cfg(target_os = "linux")]
pub use prompt::Prompt;
pub use tcp::TcpLink;
pub use udp::{OpenError, Port, UdpLink};
#[cfg(target_os = "linux")]
pub use wiring::WiringError;

/// Makes this process root of a user namespace of its own, in which it may open a [`Lab`] without
/// privileges.
///
/// # Errors
///
/// If the process has more than one thread, or the system does not let users create namespaces.
#[cfg(target_os = "linux")]
pub fn enter_user_namespace() -> std::io::Result<()> {
    sys::enter_user_namespace()
}
