//! Notification for waiting tasks, in futures and in `poll` functions, and the lock of what they wait for.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Notification of all tasks that wait at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signal(Arc<Notify>);

/// Slot of one waiting object in a signal, between calls of its `poll` function.
#[derive(Debug, Default)]
pub(crate) struct WakerSlot(Option<Pin<Box<OwnedNotified>>>);

impl Signal {
    /// Wakes all waiting tasks.
    pub(crate) fn notify_waiters(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `what` returns a value, which may change with each notification.
    pub(crate) async fn wait_for<T>(&self, mut what: impl FnMut() -> Option<T>) -> T {
        loop {
            let notified = self.0.notified();
            tokio::pin!(notified);
            // From here on no notification is missed.
            notified.as_mut().enable();
            if let Some(value) = what() {
                return value;
            }
            notified.await;
        }
    }

    /// Polls for a value of `what`, which may change with each notification.
    pub(crate) fn poll_for<T>(
        &self,
        slot: &mut WakerSlot,
        context: &mut Context<'_>,
        mut what: impl FnMut() -> Option<T>,
    ) -> Poll<T> {
        loop {
            let notified = || Box::pin(Arc::clone(&self.0).notified_owned());
            let mut notified = slot.0.get_or_insert_with(notified).as_mut();
            // From here on no notification is missed, as with a future.
            notified.as_mut().enable();
            if let Some(value) = what() {
                slot.0 = None;
                return Poll::Ready(value);
            }
            ready!(notified.poll(context));
            slot.0 = None;
        }
    }
}

/// Locks a mutex, even after a panic of another thread: no state is left that would justify
/// stopping.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[tokio::test]
    async fn futures_and_wakers_see_the_same_notifications() {
        let (signal, value) = (Arc::new(Signal::default()), Arc::new(AtomicU32::new(0)));
        let look = |value: &AtomicU32| Some(value.load(Relaxed)).filter(|value| *value > 0);
        let (one, seen) = (Arc::clone(&signal), Arc::clone(&value));
        let first = tokio::spawn(async move { one.wait_for(|| look(&seen)).await });
        let (other, seen) = (Arc::clone(&signal), Arc::clone(&value));
        let second = tokio::spawn(async move {
            let mut slot = WakerSlot::default();
            poll_fn(|context| other.poll_for(&mut slot, context, || look(&seen))).await
        });
        tokio::task::yield_now().await;
        signal.notify_waiters();
        tokio::task::yield_now().await;
        value.store(7, Relaxed);
        signal.notify_waiters();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (7, 7));
    }
}
