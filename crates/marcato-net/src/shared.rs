//! State shared by an application's handles and the task that drives its connection, for both
//! engines.

use std::sync::{Mutex, OnceLock};

use marcato_sched::conductor::MessageId;
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_stream::{CloseReason, Inbound, LongId, Message, Pool, Received};
use marcato_units::{Bytes, Priority, Time};
use rustls::AlertDescription;
use tokio::sync::{mpsc, oneshot};

use crate::config::{LaneConfig, Limits};
use crate::error::{
    AddLaneError, Cause, ChangeError, ChangeLaneError, Closed, ExportError, NotDelivered, ReserveError,
    SendError,
};
use crate::event::{ConnectionEvent, Events, Readers};
use crate::room::Room;
use crate::signal::{Signal, lock};
use crate::stats::ConnectionStats;
use crate::tls::Handshake;

/// Channel that reports the outcome of a message to its sender.
#[derive(Debug)]
pub(crate) struct Ticket {
    outcome: Channel,
    /// Channel for the report of the receiver, if the message asks for one.
    receipt: Option<Channel>,
}

/// Channel for one outcome.
#[derive(Debug)]
enum Channel {
    /// To the handle of the message.
    Handle(oneshot::Sender<Outcome>),
    /// To the client that keeps the message for further connections.
    Client { settled: mpsc::UnboundedSender<Settled>, connection: u64, message: u64, receipt: bool },
}

/// Outcome of a message on one of the connections of a reconnecting client.
#[derive(Debug)]
pub(crate) struct Settled {
    /// Number of the connection.
    pub(crate) connection: u64,
    /// Name of the message, which is the same on all connections.
    pub(crate) message: u64,
    /// Set for the report of the receiver.
    pub(crate) receipt: bool,
    pub(crate) outcome: Outcome,
}

/// Outcome of a message at its receiver.
pub(crate) type Outcome = Result<(), NotDelivered>;

impl Ticket {
    /// Creates a ticket, and the outcome that it will learn.
    pub(crate) fn new() -> (Self, Awaited) {
        let (outcome, awaited) = oneshot::channel();
        (Self { outcome: Channel::Handle(outcome), receipt: None }, Awaited::new(awaited))
    }

    /// Creates a ticket and its outcome, and the outcome of the report if there is a `receipt`.
    pub(crate) fn with_receipt(receipt: bool) -> (Self, Awaited, Awaited) {
        let (mut ticket, outcome) = Self::new();
        if !receipt {
            return (ticket, outcome, Awaited::known(Err(NotDelivered::NoReceipt)));
        }
        let (sender, report) = oneshot::channel();
        ticket.receipt = Some(Channel::Handle(sender));
        (ticket, outcome, Awaited::new(report))
    }

    /// Creates a ticket for a message that outlives its connection. It sends at most two outcomes,
    /// so the number of messages bounds the channel.
    pub(crate) fn for_client(
        settled: &mpsc::UnboundedSender<Settled>,
        connection: u64,
        message: u64,
        receipt: bool,
    ) -> Self {
        let channel = |receipt| Channel::Client { settled: settled.clone(), connection, message, receipt };
        Self { outcome: channel(false), receipt: receipt.then(|| channel(true)) }
    }
}

/// Outcome that the application can wait for, more than once.
#[derive(Debug)]
pub(crate) enum Awaited<E = NotDelivered> {
    Pending(oneshot::Receiver<Result<(), E>>),
    Known(Result<(), E>),
}

impl<E: Clone> Awaited<E> {
    /// Waits for the outcome; it is `lost` if nobody will report it. Cancelling loses nothing.
    pub(crate) async fn wait_or(&mut self, lost: impl FnOnce() -> E) -> Result<(), E> {
        match self {
            Self::Known(outcome) => outcome.clone(),
            Self::Pending(pending) => {
                let outcome = pending.await.unwrap_or_else(|_| Err(lost()));
                *self = Self::Known(outcome.clone());
                outcome
            }
        }
    }
}

impl Awaited {
    const fn new(outcome: oneshot::Receiver<Outcome>) -> Self {
        Self::Pending(outcome)
    }

    pub(crate) const fn known(outcome: Outcome) -> Self {
        Self::Known(outcome)
    }

    /// Waits for the outcome. Cancelling loses nothing.
    pub(crate) async fn wait(&mut self, shared: &Shared) -> Outcome {
        self.wait_or(|| shared.lost()).await
    }

    /// Returns the outcome, if it is known.
    pub(crate) fn now(&mut self, shared: &Shared) -> Option<Outcome> {
        if let Self::Pending(outcome) = self {
            match outcome.try_recv() {
                Ok(outcome) => *self = Self::Known(outcome),
                Err(oneshot::error::TryRecvError::Empty) => return None,
                Err(oneshot::error::TryRecvError::Closed) => *self = Self::Known(Err(shared.lost())),
            }
        }
        if let Self::Known(outcome) = self { Some(outcome.clone()) } else { None }
    }
}

impl marcato_stream::Ticket for Ticket {
    fn settle(self, outcome: Outcome) {
        match self.outcome {
            // A sender that dropped the handle does not wait for the outcome.
            Channel::Handle(handle) => _ = handle.send(outcome),
            // Nor does a client that has ended.
            Channel::Client { settled, connection, message, receipt } => {
                _ = settled.send(Settled { connection, message, receipt, outcome });
            }
        }
    }

    fn receipt(&mut self) -> Option<Self> {
        Some(Self { outcome: self.receipt.take()?, receipt: None })
    }
}

/// Receiving side of a connection, and the notifications for waiting tasks.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) inbound: Mutex<Inbound>,
    /// Notified when data can be taken, or the connection has ended.
    pub(crate) readable: Signal,
    /// Notified when a message has left a queue, or the connection has ended.
    pub(crate) room: Room,
    readers: Mutex<Readers>,
    /// Results of the TLS handshake; unset before its end, and in plaintext.
    pub(crate) handshake: OnceLock<Handshake>,
    /// TLS alert with which the peer, or this end in the handshake, has ended the connection.
    pub(crate) alert: OnceLock<AlertDescription>,
}

impl Shared {
    pub(crate) fn new(limits: Limits, pool: Pool) -> Self {
        let inbound = Mutex::new(Inbound::new(limits, pool));
        Self {
            inbound,
            readable: Signal::default(),
            room: Room::default(),
            readers: Mutex::default(),
            handshake: OnceLock::new(),
            alert: OnceLock::new(),
        }
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

    /// Takes the next message, or the reason of the end if none is left.
    pub(crate) fn take(&self) -> Option<Result<Received, Closed>> {
        let mut inbound = lock(&self.inbound);
        inbound.take().map(Ok).or_else(|| inbound.ended().map(Err))
    }

    pub(crate) fn closed(&self) -> Option<Closed> {
        lock(&self.inbound).closed().cloned()
    }

    /// Returns the outcome of a message whose connection has ended without one.
    pub(crate) fn lost(&self) -> NotDelivered {
        let lost = || Closed::lost(Cause::Stopped, "its task has ended");
        NotDelivered::Closed(self.closed().unwrap_or_else(lost))
    }
}

/// Connection of either engine, as its handles see it. No method blocks.
pub(crate) trait Transport: Send + Sync + 'static {
    fn shared(&self) -> &Shared;
    /// Returns the plain streams of the connection, if its engine has some.
    #[cfg(feature = "quic")]
    fn streams(&self) -> Option<&dyn crate::plain::Streams> {
        None
    }
    fn now(&self) -> Time;
    fn offer(&self, message: &Message, ticket: Ticket) -> Result<MessageId, SendError>;
    /// Returns whether there may be room for a message now. One that can never be sent needs none.
    fn admits(&self, message: &Message) -> bool;
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
    /// Fills `out` with keying material of the TLS session.
    fn export(&self, out: &mut [u8], label: &[u8], context: &[u8]) -> Result<(), ExportError>;
    /// Records that the application has accepted the connection.
    fn accepted(&self) {}
    /// Resumes reading after the application has taken something.
    fn resume(&self);
    /// Accepts no more messages, and informs the peer after those accepted.
    fn finish(&self);
    /// Returns whether the handshake is not complete, and early data may leave or has arrived.
    fn is_early(&self) -> bool {
        false
    }
    /// Returns whether every message has been delivered or dropped.
    fn is_delivered(&self) -> bool;
    /// Stops sending; the connection ends with this reason when all is delivered.
    fn close(&self, reason: CloseReason);
    /// Ends the connection now. The peer learns the reason, if there is one.
    fn abort(&self, reason: Option<CloseReason>);
    fn stats(&self) -> ConnectionStats;
}
