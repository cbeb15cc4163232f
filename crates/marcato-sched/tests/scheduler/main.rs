//! The Conductor, the exchange, lanes and the low layer as their users see them, in virtual time.

mod admission;
mod common;
mod exchange;
mod invariants;
mod lanes;
mod lowprio;
mod model;
mod scenarios;
mod wire_order;
