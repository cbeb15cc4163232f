//! The disciplines as their users see them, in virtual time.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod codel;
mod common;
mod droptail;
mod properties;
mod strict;
