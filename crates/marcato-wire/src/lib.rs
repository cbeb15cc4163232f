//! Wire formats: what Marcato reads from and writes to packets, and nothing that decides anything.
//!
//! Every parser here takes bytes that anybody may have sent. None panics and none allocates; what is malformed
//! gives an error that says which byte and why.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod ecn;

pub use ecn::Ecn;
