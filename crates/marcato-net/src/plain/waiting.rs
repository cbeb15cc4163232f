//! Tasks that wait for plain streams of a connection.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use marcato_quic::streams::{End, StreamEvent, StreamId};

use super::fate::Fate;
use crate::error::Cause;
use crate::signal::{Signal, lock};

/// Stream that a handle sends on.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    pub(crate) writer: Option<Waker>,
    pub(crate) fate: Option<Fate>,
}

/// Streams that handles send on, and those of the peer that nobody has accepted.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    pub(crate) streams: HashMap<StreamId, Sending>,
    /// Bidirectional streams of the peer that were accepted.
    pub(crate) accepted: u64,
}

impl Senders {
    /// Returns a stream for the fate that it meets. The peer may stop one before it is accepted.
    fn meeting(&mut self, stream: StreamId, of_peer: bool) -> Option<&mut Sending> {
        if of_peer && stream.index() >= self.accepted {
            return Some(self.streams.entry(stream).or_default());
        }
        self.streams.get_mut(&stream)
    }
}

/// Tasks that wait for plain streams. The handles of the application bound the maps.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    pub(crate) readers: Mutex<HashMap<StreamId, Option<Waker>>>,
    pub(crate) senders: Mutex<Senders>,
    /// Streams that a handle waits to be too late, and those that are.
    pub(crate) late: Mutex<HashSet<StreamId>>,
    /// Notified of further streams of the peer, of more streams allowed, of datagrams, of progress of
    /// acknowledgement, and of the end.
    pub(crate) news: Signal,
    end: Mutex<Option<End>>,
}

impl Plain {
    /// Tells the tasks that wait for it of an event.
    pub(crate) fn event(&self, event: StreamEvent, client: bool) {
        match event {
            StreamEvent::Readable(stream) => {
                if let Some(waker) = lock(&self.readers).get_mut(&stream).and_then(Option::take) {
                    waker.wake();
                }
                return;
            }
            StreamEvent::Writable(stream) => self.sender(stream, None, client),
            StreamEvent::Finished(stream) => self.sender(stream, Some(Fate::Finished), client),
            StreamEvent::Stopped { stream, code } => self.sender(stream, Some(Fate::Stopped(code)), client),
            StreamEvent::Late { stream, reset } => {
                // A handle that is gone asks no more.
                if lock(&self.senders).streams.contains_key(&stream) {
                    lock(&self.late).insert(stream);
                }
                if reset.is_some() {
                    self.sender(stream, Some(Fate::Reset), client);
                }
            }
            _ => {}
        }
        if !matches!(event, StreamEvent::Writable(_)) {
            self.news.notify_waiters();
        }
    }

    pub(crate) fn sender(&self, stream: StreamId, fate: Option<Fate>, client: bool) {
        let of_peer = stream.initiator().is_client() != client;
        if let Some(sending) = lock(&self.senders).meeting(stream, of_peer) {
            sending.fate = sending.fate.or(fate);
            if let Some(waker) = sending.writer.take() {
                waker.wake();
            }
        }
    }

    /// Polls for the fate of a stream that a handle sends on. News of it wakes the task that polled or wrote last.
    pub(crate) fn poll_fate(&self, context: &Context<'_>, stream: StreamId) -> Poll<Result<Fate, End>> {
        let mut senders = lock(&self.senders);
        let sending = senders.streams.get_mut(&stream);
        if let Some(fate) = sending.as_ref().and_then(|sending| sending.fate) {
            return Poll::Ready(Ok(fate));
        }
        // The end is recorded before the tasks are woken, under the lock of the senders.
        if let Some(end) = self.ended() {
            return Poll::Ready(Err(end));
        }
        if let Some(sending) = sending {
            sending.writer = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Tells all tasks of the end.
    pub(crate) fn end(&self, end: End) {
        lock(&self.end).get_or_insert(end);
        lock(&self.readers).values_mut().filter_map(Option::take).for_each(Waker::wake);
        lock(&self.senders)
            .streams
            .values_mut()
            .filter_map(|sending| sending.writer.take())
            .for_each(Waker::wake);
        self.news.notify_waiters();
    }

    /// Returns the end of the connection; `None` before it.
    pub(crate) fn ended(&self) -> Option<End> {
        lock(&self.end).clone()
    }

    pub(crate) fn lost(&self) -> End {
        let stopped = || End::Lost { cause: Cause::Stopped, reason: "its task has ended".to_owned() };
        self.ended().unwrap_or_else(stopped)
    }
}
