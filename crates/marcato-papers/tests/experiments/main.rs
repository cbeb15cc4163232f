//! Tests of the experiments as a whole.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cats;
mod cwr;
mod cwr_arithmetic;
mod documented;
mod plt;
