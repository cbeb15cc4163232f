//! Emulated links in real time: packets of real sockets pass queues of `marcato-queue`.
//!
//! A [`Link`] is one direction: a queue, a transmitter with a rate or a trace, loss, and a line with
//! delay and jitter. It has no clock and no socket, so that it can be checked in virtual time. A
//! [`UdpLink`] puts two of them between a client and a server on real UDP sockets. It needs no
//! privileges, and is transparent to the program under test, which only sends to another port.
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
#![forbid(unsafe_code)]

mod datagram;
mod line;
mod link;
mod udp;

pub use datagram::Datagram;
pub use link::{Link, LinkConfig, LinkCounters, LinkError, MAX_UNDER_WAY};
pub use marcato_link::{Jitter, JitterError, Loss, Trace, TraceError};
pub use udp::{OpenError, Port, UdpLink};
