//! Streams that need the task of their connection.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use marcato_sched::order::StreamId;

/// Streams that need the task of their connection: a handler has produced something, the client has
/// reset the stream, or has given it credit.
///
/// A stream is in it once at most, so it is as long as there are streams.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: VecDeque<StreamId>,
    task: Option<Waker>,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the task of the connection for the next stream.
    pub(crate) fn register(&self, task: &Waker) {
        let mut state = self.state();
        match &mut state.task {
            Some(registered) => registered.clone_from(task),
            none => *none = Some(task.clone()),
        }
    }

    /// Returns the next stream.
    pub(crate) fn take(&self) -> Option<StreamId> {
        self.state().streams.pop_front()
    }

    /// True if no stream needs the task.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().streams.is_empty()
    }

    fn put(&self, stream: StreamId) {
        let mut state = self.state();
        state.streams.push_back(stream);
        let task = state.task.clone();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Bell of a stream: ringing it puts the stream into the inbox, until it is [taken](Self::answer).
#[derive(Debug)]
pub(crate) struct Bell {
    stream: StreamId,
    inbox: Arc<Inbox>,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) const fn new(stream: StreamId, inbox: Arc<Inbox>) -> Self {
        Self { stream, inbox, rung: AtomicBool::new(false) }
    }

    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, AcqRel) {
            self.inbox.put(self.stream);
        }
    }

    /// Lets the bell ring again. The task calls it before it looks at the stream.
    pub(crate) fn answer(&self) {
        // Acquire: what the task reads next must not be read before. A change after it rings again.
        self.rung.swap(false, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_in_the_inbox_once_until_it_is_answered() {
        let inbox = Arc::new(Inbox::default());
        let bells = [1, 3].map(|stream| Bell::new(StreamId(stream), Arc::clone(&inbox)));
        bells[0].ring();
        bells[1].ring();
        bells[0].ring();
        assert_eq!([inbox.take(), inbox.take(), inbox.take()], [Some(StreamId(1)), Some(StreamId(3)), None]);
        bells[0].ring();
        assert!(inbox.is_empty(), "stream 1 was not answered");
        bells[0].answer();
        bells[0].ring();
        assert_eq!(inbox.take(), Some(StreamId(1)));
    }
}
