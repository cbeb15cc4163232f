//! C interface of Marcato: prioritised messages and streams over kernel TCP and multipath QUIC.
//!
//! Its users read `include/marcato.h`, which a test compares with this code. The design in short:
//!
//! - A [context](context::Context) has one thread that moves the data. Everything else is named by
//!   numbers, so that a number used after its end is an error and no access to freed memory.
//! - No call blocks, but for `marcato_wait`. What cannot be done yet returns `MARCATO_AGAIN`, and the
//!   [ready list](ready::ReadyList) tells later that it is worth another call. A file descriptor or a
//!   callback tells an event loop that the list has entries.
//! - Data is copied once into the library, and not at all out of it: a received message is read in place.

pub mod abi;
mod context;
mod failure;
mod objects;
mod options;
mod ready;
mod slot;
