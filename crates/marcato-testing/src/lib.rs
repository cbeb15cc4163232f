//! Needs of tests, and a count of the tests that are skipped without them.
//!
//! A test that needs more than a machine with Rust names its needs by [`absent!`]. Where one is missing, the test is
//! skipped: a line on standard error says so, past the capture of the test harness, and the file that the variable
//! `MARCATO_SKIPS` names gets the same line. `make test` ends with the count and the list of them.
//!
//! A need is looked at by itself, never by the failure of what the test does. Whatever fails on a machine that has
//! all needs fails the test.

mod need;
mod skip;
mod timely;

pub use need::Need;
pub use skip::skip;
pub use timely::timely;

/// Returns whether something is missing that the calling test needs, and counts the test as skipped if so.
///
/// ```ignore
/// if absent!(Need::Root, Need::Program("tc")) {
///     return;
/// }
/// ```
#[macro_export]
macro_rules! absent {
    ($($need:expr),+ $(,)?) => {
        [$($need),+].into_iter().find_map($crate::Need::missing).is_some_and(|why| {
            $crate::skip(env!("CARGO_PKG_NAME"), &why);
            true
        })
    };
}
