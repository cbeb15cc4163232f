//! Operation that goes on between two calls.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use crate::ready::{ReadyList, lock};

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Operation that goes on between two calls, and lists an event when it is worth another one.
pub(crate) struct Slot<T> {
    pending: Mutex<Option<Pending<T>>>,
    waker: Waker,
}

impl<T> Slot<T> {
    pub(crate) fn new(list: &Arc<ReadyList>, object: u64, event: u32) -> Self {
        Self { pending: Mutex::default(), waker: list.waker(object, event) }
    }

    /// Returns the result, or `None`: an event tells when it is worth another call.
    pub(crate) fn poll<F>(&self, runtime: &Handle, begin: impl FnOnce() -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut pending = lock(&self.pending);
        let mut operation = pending.take().unwrap_or_else(|| Box::pin(begin()));
        let _entered = runtime.enter();
        match operation.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => {
                *pending = Some(operation);
                None
            }
        }
    }
}
