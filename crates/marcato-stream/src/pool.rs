//! Memory for messages under assembly.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes as Payload;
use marcato_units::Bytes;

use crate::budget::{Budget, Share};

/// Length in bytes below which messages use the allocator, which is fast for them.
const MIN_POOLED: usize = 32 << 10;
/// Limit of the bytes kept for reuse, per endpoint, or per connection without an endpoint.
const KEPT: usize = 4 << 20;

/// Locks the free blocks, even after a panic of another thread: each operation leaves them whole.
fn lock(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks of memory that applications have released. Without them, each long message would be
/// assembled in fresh pages. The system's clearing of these takes a fifth of a receiver's processor
/// time.
///
/// The connections that share a pool share a budget as well: the bytes of received data that they
/// hold together.
#[derive(Clone, Debug)]
pub struct Pool {
    free: Arc<Mutex<Free>>,
    budget: Budget,
}

impl Default for Pool {
    /// Creates a pool without a budget.
    fn default() -> Self {
        Self::new(Bytes::MAX)
    }
}

impl Pool {
    /// Creates a pool for connections that may hold `budget` bytes of received data together. While
    /// they hold more, each may hold no more than its fair share: the budget divided by their
    /// number.
    pub fn new(budget: Bytes) -> Self {
        Self { free: Arc::default(), budget: Budget::new(budget) }
    }

    /// Returns the bytes of received data that the connections hold.
    pub fn held(&self) -> Bytes {
        self.budget.held()
    }

    pub(crate) fn share(&self) -> Share {
        self.budget.share()
    }
}

#[derive(Debug, Default)]
struct Free {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Free {
    /// Takes a block for `len` bytes, with room to grow: a message tends to be as long as the
    /// previous ones.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |block: &Vec<u8>| (len..=8 * len).contains(&block.capacity());
        let fitting = self.blocks.iter().enumerate().filter(|(_, block)| fits(block));
        let (at, _) = fitting.max_by_key(|(_, block)| block.capacity())?;
        let block = self.blocks.swap_remove(at);
        self.bytes -= block.capacity();
        Some(block)
    }

    fn put(&mut self, mut block: Vec<u8>) {
        if block.capacity() >= MIN_POOLED && self.bytes + block.capacity() <= KEPT {
            block.clear();
            self.bytes += block.capacity();
            self.blocks.push(block);
        }
    }
}

/// Received bytes of an incomplete message, in order.
#[derive(Debug, Default)]
pub(crate) struct Part(Vec<u8>);

impl Part {
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Appends `bytes`, in a larger block if necessary.
    pub(crate) fn extend(&mut self, bytes: &[u8], pool: &Pool) {
        let len = self.0.len() + bytes.len();
        if len > self.0.capacity() && len >= MIN_POOLED {
            // The size doubles each time, so that each byte is moved once on average.
            let wanted = len.max(2 * self.0.capacity()).next_power_of_two();
            let mut free = lock(&pool.free);
            let mut block = free.take(wanted).unwrap_or_default();
            block.reserve_exact(wanted);
            block.extend_from_slice(&self.0);
            free.put(mem::replace(&mut self.0, block));
        }
        self.0.extend_from_slice(bytes);
    }

    /// Returns the content for the application. It holds a block of at most four times its length.
    pub(crate) fn freeze(self, pool: &Pool) -> Payload {
        let Self(bytes) = self;
        if bytes.capacity() < MIN_POOLED {
            return bytes.into();
        }
        // A copy, so that a short message does not hold a large block.
        if bytes.len() < bytes.capacity() / 4 {
            let exact = Payload::copy_from_slice(&bytes);
            lock(&pool.free).put(bytes);
            return exact;
        }
        Payload::from_owner(Block { bytes, pool: Arc::downgrade(&pool.free) })
    }
}

/// Block in the hands of an application.
struct Block {
    bytes: Vec<u8>,
    pool: Weak<Mutex<Free>>,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            lock(&pool).put(mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pool: &Pool, len: usize) -> Payload {
        let mut part = Part::default();
        let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
        for piece in bytes.chunks(1400) {
            part.extend(piece, pool);
        }
        let frozen = part.freeze(pool);
        assert_eq!(frozen, bytes);
        frozen
    }

    #[test]
    fn the_block_of_a_message_that_was_dropped_serves_the_next() {
        let pool = Pool::default();
        let place = |message: &Payload| message.as_ptr() as usize;
        let first = place(&message(&pool, 1 << 20));
        let places: Vec<_> = (0..10).map(|_| place(&message(&pool, 1 << 20))).collect();
        assert!(places.iter().all(|at| *at == first), "{first} {places:?}");
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_short_messages_keep_nothing() {
        let pool = Pool::default();
        let held: Vec<_> = (0..20).map(|_| message(&pool, 1 << 20)).collect();
        drop(held);
        let kept = lock(&pool.free).bytes;
        assert!((KEPT / 2..=KEPT).contains(&kept), "{kept}");
        assert_eq!(lock(&pool.free).blocks.iter().map(Vec::capacity).sum::<usize>(), kept);
        let short = Pool::default();
        drop(message(&short, MIN_POOLED / 2));
        assert_eq!(lock(&short.free).bytes, 0);
    }

    #[test]
    fn a_message_does_not_hold_a_block_much_longer_than_itself() {
        let pool = Pool::default();
        lock(&pool.free).put(Vec::with_capacity(1 << 20));
        let held = message(&pool, 50_000);
        assert!(lock(&pool.free).bytes >= 1 << 20);
        drop(held);
    }

    #[test]
    fn a_message_may_outlive_its_pool() {
        let held = message(&Pool::default(), 100_000);
        assert_eq!(held.len(), 100_000);
    }
}
