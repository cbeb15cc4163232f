//! State shared by an application's handles and the task that drives its connection, for both
//! engines.

use std::sync::{Mutex, MutexGuard, PoisonError};

use marcato_sched::conductor::MessageId;
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_stream::{Inbound, LongId, Pool};
use marcato_units::{Bytes, Priority, Time};
use tokio::sync::oneshot;

use crate::config::{LaneConfig, Limits};
use crate::connection::Message;
use crate::error::{
    AddLaneError, ChangeError, ChangeLaneError, Closed, NotDelivered, ReserveError, SendError,
};
use crate::event::{ConnectionEvent, Events, Readers};
use crate::signal::Signal;
use crate::stats::ConnectionStats;

/// Channel that reports the outcome of a message to its sender.
#[derive(Debug)]
pub(crate) struct Ticket(oneshot::Sender<Result<(), NotDelivered>>);

impl Ticket {
    /// Creates a ticket, and the channel on which its outcome arrives.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Result<(), NotDelivered>>) {
        let (sender, outcome) = oneshot::channel();
        (Self(sender), outcome)
    }
}

impl marcato_stream::Ticket for Ticket {
    fn settle(self, outcome: Result<(), NotDelivered>) {
        // A sender that dropped the handle does not wait for the outcome.
        let _ = self.0.send(outcome);
    }
}

/// Locks a mutex, even after a panic of another thread: no state is left that would justify
/// stopping.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receiving side of a connection, and the notifications for waiting tasks.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) inbound: Mutex<Inbound>,
    /// Notified when data can be taken, or the connection has ended.
    pub(crate) readable: Signal,
    /// Notified when a message has left a queue, or the connection has ended.
    pub(crate) room: Signal,
    readers: Mutex<Readers>,
}

impl Shared {
    pub(crate) fn new(limits: Limits, pool: Pool) -> Self {
        let inbound = Mutex::new(Inbound::new(limits, pool));
        Self { inbound, readable: Signal::default(), room: Signal::default(), readers: Mutex::default() }
    }

    /// Ends the connection and notifies all waiting tasks.
    pub(crate) fn close(&self, closed: Closed) {
        lock(&self.inbound).close(closed);
        self.readable.notify_waiters();
        self.room.notify_waiters();
        lock(&self.readers).end();
    }

    /// Adds a reader of events.
    pub(crate) fn subscribe(&self) -> Events {
        lock(&self.readers).subscribe()
    }

    /// Reports an event to the application.
    pub(crate) fn report(&self, event: &ConnectionEvent) {
        lock(&self.readers).report(event);
    }

    pub(crate) fn closed(&self) -> Option<Closed> {
        lock(&self.inbound).closed().cloned()
    }
}

/// Connection of either engine, as its handles see it. No method blocks.
pub(crate) trait Transport: Send + Sync + 'static {
    fn shared(&self) -> &Shared;
    fn now(&self) -> Time;
    fn offer(&self, message: &Message, ticket: Ticket) -> Result<MessageId, SendError>;
    /// Begins a message that is handed over part by part.
    fn begin_long(&self) -> Result<LongId, SendError>;
    fn offer_part(
        &self,
        long: LongId,
        part: &Message,
        last: bool,
        ticket: Ticket,
    ) -> Result<MessageId, SendError>;
    fn cancel_long(&self, long: LongId);
    /// Returns the largest length of an unreliable message; `None` if there are none.
    fn max_unreliable(&self) -> Option<Bytes>;
    fn cancel(&self, id: MessageId) -> Result<(), ChangeError>;
    fn reprioritise(&self, id: MessageId, priority: Priority) -> Result<(), ChangeError>;
    fn discard_less_urgent_than(&self, threshold: Priority);
    fn reserve(&self, key: SourceKey, source: Source) -> Result<(), ReserveError>;
    fn release(&self, key: SourceKey) -> bool;
    fn add_lane(&self, lane: LaneConfig) -> Result<(), AddLaneError>;
    fn remove_lane(&self, lane: LaneId) -> Result<(), ChangeLaneError>;
    fn set_backup(&self, lane: LaneId, backup: bool) -> Result<(), ChangeLaneError>;
    /// Resumes reading after the application has taken something.
    fn resume(&self);
    /// Stops sending; the connection ends when all is delivered.
    fn finish(&self);
    /// Ends the connection now.
    fn abort(&self);
    fn stats(&self) -> ConnectionStats;
}
