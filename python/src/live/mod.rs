//! Live transport: messages over real sockets, for event loops of Python.
//!
//! Classes of this module are internal. `pymarcato/_transport.py` has what users see.

pub(crate) mod connection;
pub(crate) mod listener;
pub(crate) mod security;
mod settings;
pub(crate) mod shared;
mod stats;
pub(crate) mod waiting;
