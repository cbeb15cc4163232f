//! Patience with the body of a request of which nothing arrives.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Poller, Poll, Wake, Waker, ready};

use http::Request;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::body::Body;
use crate::server::Context;

/// Wait of a handler for the next bytes of a body.
///
/// Requests have it as an extension. A service that bounds the wait itself ends it by [`leave`](Self::leave).
#[derive(Debug, Default)]
pub(crate) struct Wait(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Time since which the handler waits, and no byte has come.
    since: Option<Instant>,
    /// True if something has come that the handler has not looked at.
    has_come: bool,
    /// True if the wait has no bound.
    is_left: bool,
    handler: Option<Waker>,
}

impl Wait {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a handler look for bytes: `poll` returns with the result whether it is progress. What it waits
    /// for wakes the handler.
    pub(crate) fn watch<T>(
        self: &Arc<Self>,
        cx: &Poller<'_>,
        poll: impl FnOnce(&mut Poller<'_>) -> (Poll<T>, bool),
    ) -> Poll<T> {
        {
            let mut state = self.state();
            state.has_come = false;
            match &mut state.handler {
                Some(handler) => handler.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        let waker = Waker::from(Arc::clone(self));
        let (polled, is_progress) = poll(&mut Poller::from_waker(&waker));
        let mut state = self.state();
        if is_progress {
            state.since = None;
        } else if polled.is_pending() {
            state.since.get_or_insert_with(Instant::now);
        }
        polled
    }

    /// Ends the wait: the body is not wanted any more, or its reader has a bound of its own.
    pub(crate) fn leave(&self) {
        self.state().is_left = true;
    }

    fn since(&self) -> Option<Instant> {
        let state = self.state();
        state.since.filter(|_| !state.has_come && !state.is_left)
    }
}

impl Wake for Wait {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state();
        state.has_come = true;
        let handler = state.handler.take();
        drop(state);
        if let Some(handler) = handler {
            handler.wake();
        }
    }
}

/// Patience of a server with a handler that waits for a body.
pub(crate) struct Patience {
    wait: Arc<Wait>,
    context: Arc<Context>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// Watches the body of a request, which gets its wait as an extension; `None` if there is nothing to wait for.
    pub(crate) fn with(request: &mut Request<Body>, context: &Arc<Context>) -> Option<Self> {
        let wait = request.body_mut().watched()?;
        request.extensions_mut().insert(Arc::clone(&wait));
        Some(Self { wait, context: Arc::clone(context), timer: None })
    }

    /// Ends, and is counted, once nothing of the body has come for too long.
    pub(crate) fn poll(&mut self, cx: &mut Poller<'_>) -> Poll<()> {
        let limit = self.context.config.limits.stall;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        loop {
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            let until = self.wait.since().unwrap_or(now) + limit;
            if until <= now {
                self.context.counters.late_bodies.one();
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }
}
