//! Messages that one end of a connection has released.

use std::sync::{Mutex, MutexGuard, PoisonError};

use marcato_units::Bytes;

use super::protocol::Total;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages that one end of a connection has released.
#[derive(Debug)]
pub(crate) struct Released {
    /// Set if release times are kept. A server needs their number only.
    times: bool,
    sources: Mutex<Vec<Source>>,
}

#[derive(Clone, Debug, Default)]
struct Source {
    total: Total,
    /// Release times in ns, by sequence number.
    times: Vec<u64>,
}

impl Released {
    /// Creates an account of this number of sources.
    pub(crate) fn new(sources: usize, times: bool) -> Self {
        Self { times, sources: Mutex::new(vec![Source::default(); sources]) }
    }

    /// Counts a message that was released at this time.
    pub(crate) fn push(&self, source: u8, at: u64, len: Bytes) {
        self.count(source, len);
        if self.times {
            self.with(source, |source| source.times.push(at));
        }
    }

    /// Counts a message whose release time does not matter.
    pub(crate) fn count(&self, source: u8, len: Bytes) {
        self.with(source, |source| {
            source.total.messages += 1;
            source.total.bytes += len.get();
        });
    }

    /// Reverts the count of a message that was cancelled.
    pub(crate) fn take_back(&self, source: u8, len: Bytes) {
        self.with(source, |source| {
            source.total.messages = source.total.messages.saturating_sub(1);
            source.total.bytes = source.total.bytes.saturating_sub(len.get());
        });
    }

    fn with(&self, source: u8, then: impl FnOnce(&mut Source)) {
        if let Some(source) = lock(&self.sources).get_mut(usize::from(source)) {
            then(source);
        }
    }

    /// Returns the amount released of each source.
    pub(crate) fn totals(&self) -> Vec<Total> {
        lock(&self.sources).iter().map(|source| source.total).collect()
    }

    /// Returns the release time of a message.
    pub(crate) fn time(&self, source: usize, sequence: usize) -> Option<u64> {
        lock(&self.sources).get(source)?.times.get(sequence).copied()
    }

    /// Returns the release times of a source, by sequence number.
    pub(crate) fn times(&self, source: usize) -> Vec<u64> {
        lock(&self.sources).get(source).map(|source| source.times.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_counts_and_a_client_keeps_the_times() {
        for (times, expected) in [(true, vec![7, 9]), (false, vec![])] {
            let released = Released::new(2, times);
            released.push(0, 7, Bytes::new(100));
            released.push(0, 9, Bytes::new(100));
            released.count(1, Bytes::new(50));
            released.count(1, Bytes::new(60));
            released.take_back(1, Bytes::new(60));
            let totals = [Total { messages: 2, bytes: 200 }, Total { messages: 1, bytes: 50 }];
            assert_eq!(released.totals(), totals);
            assert_eq!(
                (released.times(0), released.time(0, 1)),
                (expected.clone(), expected.get(1).copied())
            );
        }
    }
}
