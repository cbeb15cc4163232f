//! Tests of scenarios as their authors write them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod claims;
mod examples;
mod flows;
mod meaning;
mod plugins;
mod properties;
mod reference;
mod wrong;
