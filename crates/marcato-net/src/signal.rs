//! Notification for waiting tasks, with futures and with wakers.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::shared::lock;

/// Limit of the wakers that wait at a time; at the limit, the others are woken to wait again.
const WAITING: usize = 1024;

/// Notification of all tasks that wait at a moment.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    notify: Notify,
    wakers: Mutex<Vec<Waker>>,
}

impl Signal {
    /// Wakes all waiting tasks.
    pub(crate) fn notify_waiters(&self) {
        self.notify.notify_waiters();
        let wakers = std::mem::take(&mut *lock(&self.wakers));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until `what` returns a value, which may change with each notification.
    pub(crate) async fn wait_for<T>(&self, mut what: impl FnMut() -> Option<T>) -> T {
        loop {
            let notified = self.notify.notified();
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
        context: &mut Context<'_>,
        mut what: impl FnMut() -> Option<T>,
    ) -> Poll<T> {
        if let Some(value) = what() {
            return Poll::Ready(value);
        }
        let mut wakers = lock(&self.wakers);
        if wakers.len() >= WAITING {
            wakers.drain(..).for_each(Waker::wake);
        }
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        drop(wakers);
        // The value may have come before the waker was registered.
        what().map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[tokio::test]
    async fn futures_and_wakers_see_the_same_notifications() {
        let (signal, value) = (Arc::new(Signal::default()), Arc::new(AtomicU32::new(0)));
        let look = |value: &AtomicU32| Some(value.load(Relaxed)).filter(|value| *value > 0);
        let (one, seen) = (Arc::clone(&signal), Arc::clone(&value));
        let first = tokio::spawn(async move { one.wait_for(|| look(&seen)).await });
        let (other, seen) = (Arc::clone(&signal), Arc::clone(&value));
        let second =
            tokio::spawn(async move { poll_fn(|context| other.poll_for(context, || look(&seen))).await });
        tokio::task::yield_now().await;
        signal.notify_waiters();
        tokio::task::yield_now().await;
        value.store(7, Relaxed);
        signal.notify_waiters();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (7, 7));
        assert!(lock(&signal.wakers).is_empty());
    }
}
