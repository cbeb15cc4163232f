//! Events of a connection.

use crate::signal::lock;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
#[cfg(feature = "quic")]
use marcato_quic::{LaneLoss, LowLaneChange};
#[cfg(feature = "quic")]
use marcato_sched::lane::LaneId;
use marcato_units::Priority;
#[cfg(feature = "quic")]
use marcato_units::Time;

/// Limit of the events that wait for one reader.
const WAITING: usize = 256;

/// Change of a connection that the application may want to know.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// A lane carries data from now on. A lane that was reopened has a new identifier.
    #[cfg(feature = "quic")]
    LaneUp(LaneId),
    /// Nothing that was sent on this lane was acknowledged for too long. Its data is sent on other
    /// lanes.
    #[cfg(feature = "quic")]
    LaneStalled(LaneId),
    /// A stalled lane answers again.
    #[cfg(feature = "quic")]
    LaneRecovered(LaneId),
    /// The remote address of a lane has changed.
    #[cfg(feature = "quic")]
    LaneMoved(LaneId),
    /// The peer asks for this lane to be used only if no other is available, or withdraws that.
    #[cfg(feature = "quic")]
    LaneBackup {
        /// Lane concerned.
        lane: LaneId,
        /// Set if the lane is to be a backup.
        backup: bool,
    },
    /// A low lane changed state. Only with [`Config::layered`](crate::Config::layered).
    #[cfg(feature = "quic")]
    LowLane {
        /// Lane concerned.
        lane: LaneId,
        /// Change of its state.
        change: LowLaneChange,
    },
    /// A lane was given up, or could not be opened.
    #[cfg(feature = "quic")]
    LaneDown {
        /// Lane concerned; `None` if it never had an identifier.
        lane: Option<LaneId>,
        /// Reason for its end.
        reason: LaneLoss,
        /// Time at which it is reopened, as of [`Connection::now`](crate::Connection::now); `None`
        /// for never.
        reopens_at: Option<Time>,
    },
    /// Messages less urgent than this are refused from now on
    /// ([`discard_less_urgent_than`](crate::Connection::discard_less_urgent_than)).
    ThresholdChanged(Priority),
    /// The reader was too slow, and lost this number of events.
    Missed(u64),
}

/// Event that can stand for those that a reader has lost.
pub trait Missable: Clone {
    /// Returns the event that reports the loss of this number.
    fn missed(events: u64) -> Self;
}

impl Missable for ConnectionEvent {
    fn missed(events: u64) -> Self {
        Self::Missed(events)
    }
}

/// Events of a connection from a certain time on, or those of a
/// [`Reconnecting`](crate::Reconnecting) client, as a stream that ends with its source.
///
/// At most 256 events wait to be read. Later ones are lost, and reported as one
/// [`Missed`](ConnectionEvent::Missed).
pub struct Events<E = ConnectionEvent>(Arc<Mutex<Queue<E>>>);

/// Events that wait for a reader.
#[derive(Debug)]
struct Queue<E> {
    events: VecDeque<E>,
    missed: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl<E: Missable> Queue<E> {
    const fn new(ended: bool) -> Self {
        Self { events: VecDeque::new(), missed: 0, ended, waker: None }
    }

    fn push(&mut self, event: &E) {
        if self.missed > 0 || self.events.len() >= WAITING {
            self.missed += 1;
        } else {
            self.events.push_back(event.clone());
        }
        self.wake();
    }

    fn end(&mut self) {
        self.ended = true;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn pop(&mut self) -> Option<E> {
        let missed = || {
            let missed = std::mem::take(&mut self.missed);
            (missed > 0).then(|| E::missed(missed))
        };
        self.events.pop_front().or_else(missed)
    }
}

impl<E> fmt::Debug for Events<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("waiting", &lock(&self.0).events.len()).finish()
    }
}

impl<E: Missable> Events<E> {
    /// Hands the reader an event that no other one gets.
    pub(crate) fn begin_with(&self, event: &E) {
        lock(&self.0).push(event);
    }

    /// Waits for the next event; `None` once their source has ended. Cancelling loses nothing.
    pub async fn next(&mut self) -> Option<E> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<E: Missable> Stream for Events<E> {
    type Item = E;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<E>> {
        let mut queue = lock(&self.0);
        match queue.pop() {
            Some(event) => Poll::Ready(Some(event)),
            None if queue.ended => Poll::Ready(None),
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Readers of the events of one source.
#[derive(Debug)]
pub(crate) struct Readers<E = ConnectionEvent> {
    queues: Vec<Arc<Mutex<Queue<E>>>>,
    ended: bool,
}

impl<E> Default for Readers<E> {
    fn default() -> Self {
        Self { queues: Vec::new(), ended: false }
    }
}

impl<E: Missable> Readers<E> {
    /// Adds a reader.
    pub(crate) fn subscribe(&mut self) -> Events<E> {
        let queue = Arc::new(Mutex::new(Queue::new(self.ended)));
        if !self.ended {
            self.forget_dropped();
            self.queues.push(Arc::clone(&queue));
        }
        Events(queue)
    }

    /// Hands an event to every reader.
    pub(crate) fn report(&mut self, event: &E) {
        self.forget_dropped();
        self.queues.iter().for_each(|queue| lock(queue).push(event));
    }

    /// Ends all streams, once their events have been read.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.queues.drain(..).for_each(|queue| lock(&queue).end());
    }

    fn forget_dropped(&mut self) {
        self.queues.retain(|queue| Arc::strong_count(queue) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: ConnectionEvent = ConnectionEvent::ThresholdChanged(Priority::P2);

    #[tokio::test]
    async fn each_reader_gets_every_event_and_then_the_end() {
        let mut readers = Readers::default();
        let (mut first, mut second) = (readers.subscribe(), readers.subscribe());
        readers.report(&EVENT);
        readers.end();
        for events in [&mut first, &mut second] {
            assert_eq!(events.next().await, Some(EVENT));
            assert_eq!(events.next().await, None);
        }
        assert_eq!(readers.subscribe().next().await, None);
    }

    #[tokio::test]
    async fn a_slow_reader_learns_how_many_events_it_missed() {
        let mut readers = Readers::default();
        let mut events = readers.subscribe();
        for _ in 0..WAITING + 3 {
            readers.report(&EVENT);
        }
        for _ in 0..WAITING {
            assert_eq!(events.next().await, Some(EVENT));
        }
        assert_eq!(events.next().await, Some(ConnectionEvent::Missed(3)));
        readers.report(&EVENT);
        assert_eq!(events.next().await, Some(EVENT));
    }

    #[test]
    fn a_dropped_reader_holds_no_memory() {
        let mut readers = Readers::default();
        drop(readers.subscribe());
        readers.report(&EVENT);
        assert!(readers.queues.is_empty());
    }
}
