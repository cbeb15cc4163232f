//! Responses that a client may reset.

/// Responses that a client may reset, beyond four for each that it takes. Someone who turns pages quickly
/// stays far below; a client that only makes the server work does not (CVE-2023-44487).
const MAX_RESETS: u64 = 500;

/// Responses that the client has reset, and those that have been sent as a whole.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    reset: u64,
    completed: u64,
}

impl Resets {
    pub(crate) const fn reset(&mut self) {
        self.reset += 1;
    }

    pub(crate) const fn complete(&mut self) {
        self.completed += 1;
    }

    /// True if the client has reset more than it may.
    pub(crate) const fn is_spent(&self) -> bool {
        self.reset > MAX_RESETS + 4 * self.completed
    }
}
