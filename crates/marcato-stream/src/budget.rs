//! Memory budget that the connections of an endpoint share.
//!
//! Each connection has a fair share of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use marcato_units::Bytes;

/// Bytes of received data that all connections of an endpoint may hold together.
///
/// While the connections hold more, each may hold no more than its fair share: the budget divided
/// by their number. So they never hold more than twice the budget, and a connection within its
/// share is never affected by others.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    most: u64,
    held: AtomicU64,
    holders: AtomicU64,
}

impl Budget {
    pub(crate) fn new(most: Bytes) -> Self {
        Self(Arc::new(Counts { most: most.get(), held: AtomicU64::new(0), holders: AtomicU64::new(0) }))
    }

    /// Returns the share of a further connection.
    pub(crate) fn share(&self) -> Share {
        self.0.holders.fetch_add(1, Relaxed);
        Share { budget: self.clone(), held: 0 }
    }

    /// Bytes held by all connections.
    pub(crate) fn held(&self) -> Bytes {
        Bytes::new(self.0.held.load(Relaxed))
    }
}

/// Part of a budget that one connection holds. It is released on drop.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    held: u64,
}

impl Share {
    /// Records the bytes that the connection holds now.
    pub(crate) fn set(&mut self, held: u64) {
        let total = &self.budget.0.held;
        if held >= self.held {
            total.fetch_add(held - self.held, Relaxed);
        } else {
            total.fetch_sub(self.held - held, Relaxed);
        }
        self.held = held;
    }

    /// Returns the fair share if the budget is exceeded and the connection holds more than that.
    pub(crate) fn exceeded(&self) -> Option<u64> {
        let Counts { most, held, holders } = &*self.budget.0;
        if held.load(Relaxed) <= *most {
            return None;
        }
        let fair = most / holders.load(Relaxed).max(1);
        (self.held > fair).then_some(fair)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
        self.budget.0.holders.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_above_their_fair_share_are_affected() {
        let budget = Budget::new(Bytes::new(100));
        let (mut small, mut large) = (budget.share(), budget.share());
        large.set(90);
        assert_eq!(large.exceeded(), None);
        small.set(50);
        assert_eq!((small.exceeded(), large.exceeded()), (None, Some(50)));
        drop(large);
        assert_eq!((budget.held(), small.exceeded()), (Bytes::new(50), None));
        drop(small);
        assert_eq!(budget.held(), Bytes::ZERO);
    }
}
