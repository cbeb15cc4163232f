//! Tests of whole simulations.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bbr;
mod conducted;
mod coupled;
mod datagrams;
mod framed;
mod l4s;
mod links;
mod observe;
mod outcome;
mod plt;
mod processes;
mod properties;
mod recorders;
mod recovery;
mod rivals;
mod scenario;
mod theory;
mod wild;
mod world;
mod written;
mod young;
