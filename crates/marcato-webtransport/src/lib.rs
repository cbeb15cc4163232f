//! Plain streams of Marcato behind the traits of `web-transport-trait`, which Media over QUIC and other protocols accept.
//!
//! A [`Session`] is one connection of [`marcato_net::streams`]: raw QUIC, where the application protocol is the
//! negotiated ALPN. It has both halves of the traits, the one of futures and the one of `poll` functions.
//!
//! # Priorities
//! The traits give a stream one number, the greater the sooner. A [`Session`] makes [`Parameters`] of it by a function of
//! its owner, [`Session::with_order`]. Without one, the number is the [order](Parameters::order) within the default
//! level. With one, the most urgent tracks can be given an urgent level: [coupled mode](marcato_net::Config::coupled)
//! then keeps background tracks out of the queue that these meet.
//!
//! ```
//! use marcato_net::Priority;
//! use marcato_webtransport::{Parameters, Session};
//!
//! # fn example(connection: marcato_net::streams::Connection) -> Session {
//! // `moq-net` 0.3 numbers its streams from 255 downwards, the most urgent first.
//! let level = |number| if number >= 254 { Priority::P0 } else { Priority::P3 };
//! Session::new(connection).with_order(move |number| Parameters::default().ordered(number).at_level(level(number)))
//! # }
//! ```
//!
//! # Differences
//! - A dropped stream that was not finished is reset with code 0, as the traits recommend. One of
//!   `marcato-net` finishes.
//! - Codes of the peer above 2^32 are reported as `u32::MAX`.
//! - A datagram for which there is no room is dropped, as the traits allow.
#![forbid(unsafe_code)]

mod error;
mod recv;
mod send;
mod session;
mod traits;

pub use error::Error;
pub use marcato_net::streams::Parameters;
pub use recv::RecvStream;
pub use send::SendStream;
pub use session::Session;
