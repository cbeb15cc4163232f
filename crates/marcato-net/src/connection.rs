//! A connection: messages go in, messages come out.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes as Payload;
use marcato_quic::MessageId;
use marcato_sched::conductor::Redundancy;
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_units::{Bytes, Duration, Priority, Time};
use marcato_wire::MessageNumber;
use tokio::sync::oneshot;

use crate::config::LaneConfig;
use crate::error::{
    AddLaneError, ChangeError, ChangeLaneError, Closed, NotDelivered, ReserveError, SendError,
};
use crate::inbound::{LongNext, Missed, Received};
use crate::long::LongSender;
use crate::shared::{Shared, Transport, lock};
use crate::stats::ConnectionStats;

/// A message to be sent. In the words of TAPS (RFC 9622 §9.1.3): `msgPriority` and `msgLifetime` are set here, all
/// messages are `msgReliable` unless they are [unreliable](Message::unreliable) and none is `msgOrdered` against others.
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) body: Payload,
    pub(crate) priority: Priority,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) redundancy: Redundancy,
    pub(crate) partial_ok: bool,
    pub(crate) source: Option<SourceKey>,
    pub(crate) reliable: bool,
}

impl Message {
    /// A message of priority P2 that never expires and is only of use when whole. It takes no copy: the bytes are those
    /// of `body` until they have left.
    pub fn new(body: impl Into<Payload>) -> Self {
        Self {
            body: body.into(),
            priority: Priority::default(),
            lifetime: None,
            redundancy: Redundancy::Once,
            partial_ok: false,
            source: None,
            reliable: true,
        }
    }

    /// The same message of this priority (`msgPriority`).
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// The same message, worth sending for `lifetime` only (`msgLifetime`). Once bytes of it have left it is finished
    /// all the same, unless it [allows partial delivery](Self::allowing_partial_delivery). The receiver learns that it
    /// [missed](Connection::missed) it.
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }

    /// The same message, which need not arrive (`msgReliable` is false).
    ///
    /// Over QUIC it travels in one DATAGRAM frame (RFC 9221), in its order among the others and within the congestion
    /// window, and is not sent again if it is lost. It has to fit a packet
    /// ([`max_unreliable`](Connection::max_unreliable)), travels on one lane, and waits with its level where flow control
    /// stops that. [`delivered`](MessageHandle::delivered) then says that it has left. A receiver that does not take it
    /// in time drops it, the least urgent first ([`Limits::unreliable`](crate::Limits::unreliable)).
    ///
    /// Over TCP, which has nothing of the kind, it is sent like any other message, so that a program does the same over
    /// both engines: nothing says that an unreliable message must be lost. Give it a
    /// [lifetime](Self::with_lifetime), so that there as well it is not sent when it is of no use any more.
    #[must_use]
    pub fn unreliable(self) -> Self {
        Self { reliable: false, ..self }
    }

    /// The same message, on as many lanes. Without a lane scheduler that makes copies it travels once.
    #[must_use]
    pub fn with_redundancy(self, redundancy: Redundancy) -> Self {
        Self { redundancy, ..self }
    }

    /// The same message, which may be given up after a part of it has left.
    #[must_use]
    pub fn allowing_partial_delivery(self) -> Self {
        Self { partial_ok: true, ..self }
    }

    /// The same message, made by a periodic source for which room is [reserved](Connection::reserve).
    #[must_use]
    pub fn from_source(self, source: SourceKey) -> Self {
        Self { source: Some(source), ..self }
    }
}

/// A message that was handed over. Dropping the handle changes nothing: the message goes on.
pub struct MessageHandle {
    id: MessageId,
    transport: Arc<dyn Transport>,
    outcome: oneshot::Receiver<Result<(), NotDelivered>>,
    known: Option<Result<(), NotDelivered>>,
}

impl fmt::Debug for MessageHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageHandle")
            .field("id", &self.id)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl MessageHandle {
    /// Waits until the receiver has all of the message; of an [unreliable](Message::unreliable) one over QUIC, until it
    /// has left. It can be called again, and cancelled without loss.
    ///
    /// # Errors
    ///
    /// [`NotDelivered`], once it is certain that it will not be, or the connection is over.
    pub async fn delivered(&mut self) -> Result<(), NotDelivered> {
        if let Some(known) = &self.known {
            return known.clone();
        }
        let outcome = (&mut self.outcome).await.unwrap_or_else(|_| {
            let lost = || Closed::Lost { reason: "its task has ended".to_owned() };
            Err(NotDelivered::Closed(self.transport.shared().closed().unwrap_or_else(lost)))
        });
        self.known = Some(outcome.clone());
        outcome
    }

    /// Takes the message back, if something of it still waits. The receiver is told if it has got a part.
    ///
    /// # Errors
    ///
    /// If all of it has been handed to the engine, or it was removed.
    pub fn cancel(&self) -> Result<(), ChangeError> {
        self.transport.cancel(self.id)
    }

    /// Moves what still waits of the message to another level. The receiver goes on seeing the priority of its first
    /// byte that left.
    ///
    /// # Errors
    ///
    /// If all of it has been handed to the engine or was removed, or the level is being discarded.
    pub fn reprioritise(&self, priority: Priority) -> Result<(), ChangeError> {
        self.transport.reprioritise(self.id, priority)
    }
}

/// The connection ends with its last handle.
struct Handle(Arc<dyn Transport>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection over either engine. It is cheap to clone; with the last clone the connection ends at once, so
/// [`close`](Self::close) it first.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("stats", &self.stats()).finish()
    }
}

impl Connection {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self(Arc::new(Handle(transport)))
    }

    fn transport(&self) -> &dyn Transport {
        &*self.0.0
    }

    fn shared(&self) -> &Shared {
        self.transport().shared()
    }

    /// To look at it, also after its end. That does not keep it from ending.
    pub(crate) fn share(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.0.0)
    }

    /// The connection's time now: what the releases of a [`Source`] are told in.
    pub fn now(&self) -> Time {
        self.transport().now()
    }

    /// Hands a message over, if there is room for it.
    ///
    /// # Errors
    ///
    /// [`SendError::Busy`] if as much of its level waits as may, and what [`send`](Self::send) says.
    pub fn try_send(&self, message: &Message) -> Result<MessageHandle, SendError> {
        let (ticket, outcome) = oneshot::channel();
        let id = self.transport().offer(message, ticket)?;
        Ok(MessageHandle { id, transport: Arc::clone(&self.0.0), outcome, known: None })
    }

    /// Hands a message over, as soon as there is room for it at its level. Dropped before that, it has sent nothing.
    ///
    /// # Errors
    ///
    /// If the connection is over or being closed, or the message cannot be sent at all.
    pub async fn send(&self, message: Message) -> Result<MessageHandle, SendError> {
        Shared::wait_for(&self.shared().room, || match self.try_send(&message) {
            Err(SendError::Busy { .. }) => None,
            result => Some(result),
        })
        .await
    }

    /// Begins a message that is sent piece by piece, for such as are not there as a whole or are too long to be kept in
    /// memory.
    ///
    /// # Errors
    ///
    /// If the connection is over or being closed.
    pub fn send_long(&self, priority: Priority) -> Result<LongSender, SendError> {
        LongSender::new(Arc::clone(&self.0.0), priority)
    }

    /// The longest [unreliable](Message::unreliable) message that can be sent now; `None` if the peer takes none, or the
    /// connection is over. Over TCP it is the longest message of all.
    pub fn max_unreliable(&self) -> Option<Bytes> {
        self.transport().max_unreliable()
    }

    /// The most urgent of the messages that have wholly arrived; waits for one. What had arrived when the connection
    /// ended is still given.
    ///
    /// While nobody takes messages, reading stops at [`Limits::unread`](crate::Limits::unread), and the peer is slowed
    /// down: an urgent message then waits as well. It can be cancelled without loss.
    ///
    /// # Errors
    ///
    /// If the connection is over.
    pub async fn recv(&self) -> Result<Received, Closed> {
        let received = Shared::wait_for(&self.shared().readable, || {
            let mut inbound = lock(&self.shared().inbound);
            inbound.take().map(Ok).or_else(|| inbound.closed().cloned().map(Err))
        });
        let received = received.await?;
        self.transport().resume();
        Ok(received)
    }

    /// The next long message that has begun to arrive, if they are to be
    /// [streamed](crate::LongMessages::Stream); waits for one.
    ///
    /// # Errors
    ///
    /// If the connection is over.
    pub async fn accept_long(&self) -> Result<LongMessage, Closed> {
        let begun = Shared::wait_for(&self.shared().readable, || {
            let mut inbound = lock(&self.shared().inbound);
            inbound.take_long().map(Ok).or_else(|| inbound.closed().cloned().map(Err))
        });
        let (number, priority) = begun.await?;
        Ok(LongMessage { number, priority, transport: Arc::clone(&self.0.0), ended: false })
    }

    /// The next message that the peer has given up, for example because its lifetime was over; waits for one.
    ///
    /// # Errors
    ///
    /// If the connection is over.
    pub async fn missed(&self) -> Result<Missed, Closed> {
        Shared::wait_for(&self.shared().readable, || {
            let mut inbound = lock(&self.shared().inbound);
            inbound.take_missed().map(Ok).or_else(|| inbound.closed().cloned().map(Err))
        })
        .await
    }

    /// Announces a periodic source, so that room in the congestion window is kept for its messages
    /// ([`from_source`](Message::from_source)) when they are due. Announced again, it is changed.
    ///
    /// # Errors
    ///
    /// If the source cannot be, or the engine cannot keep room: kernel TCP.
    pub fn reserve(&self, key: SourceKey, source: Source) -> Result<(), ReserveError> {
        self.transport().reserve(key, source)
    }

    /// Takes an announcement back; `false` if there was none.
    pub fn release(&self, key: SourceKey) -> bool {
        self.transport().release(key)
    }

    /// Adds a lane while the connection runs: the client's part. It carries data as soon as the path has been validated;
    /// [`stats`](Self::stats) tell when it is usable. Called within the runtime.
    ///
    /// ```no_run
    /// # async fn roam(connection: &marcato_net::Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// use marcato_net::LaneConfig;
    /// // The server's second address, by another interface of ours.
    /// let lane = LaneConfig::new("[2001:db8::2]:4433".parse()?).from("[2001:db8:1::7]:0".parse()?);
    /// connection.add_lane(lane)?;
    /// // Later, the first one goes.
    /// let first = connection.stats().lanes[0].id;
    /// connection.remove_lane(first)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Over TCP, at a server, if the system refuses the address, if there are as many lanes as may be, or if another lane
    /// goes to the same address.
    pub fn add_lane(&self, lane: LaneConfig) -> Result<(), AddLaneError> {
        self.transport().add_lane(lane)
    }

    /// Gives up a lane while the connection runs. What is under way on it is sent again on others.
    ///
    /// # Errors
    ///
    /// Over TCP, if there is no such lane, or it is the last.
    pub fn remove_lane(&self, lane: LaneId) -> Result<(), ChangeLaneError> {
        self.transport().remove_lane(lane)
    }

    /// Says whether a lane is to be used only while no other can be. The peer is told, and does the same.
    ///
    /// # Errors
    ///
    /// Over TCP, or if there is no such lane.
    pub fn set_backup(&self, lane: LaneId, backup: bool) -> Result<(), ChangeLaneError> {
        self.transport().set_backup(lane, backup)
    }

    /// Refuses messages less urgent than `threshold` from now on and drops those that wait (Save-Data). With
    /// [`Priority::P4`] everything is sent again.
    pub fn discard_less_urgent_than(&self, threshold: Priority) {
        self.transport().discard_less_urgent_than(threshold);
    }

    /// How the connection is.
    pub fn stats(&self) -> ConnectionStats {
        self.transport().stats()
    }

    /// Ends the connection when all that was sent has been delivered; nothing more can be sent from now on. If the peer
    /// does not take what was sent, this waits as long: give it a timeout and [`abort`](Self::abort) after that.
    ///
    /// # Errors
    ///
    /// If the connection was lost before everything was delivered.
    pub async fn close(&self) -> Result<(), Closed> {
        self.transport().finish();
        match self.closed().await {
            Closed::Here => Ok(()),
            other => Err(other),
        }
    }

    /// Ends the connection now. What has not been delivered may be lost.
    pub fn abort(&self) {
        self.transport().abort();
    }

    /// Waits until the connection is over, and says why.
    pub async fn closed(&self) -> Closed {
        Shared::wait_for(&self.shared().readable, || self.shared().closed()).await
    }
}

/// A long message that is arriving. Dropped before its end, the rest of it is thrown away as it comes.
pub struct LongMessage {
    number: MessageNumber,
    priority: Priority,
    transport: Arc<dyn Transport>,
    ended: bool,
}

impl fmt::Debug for LongMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongMessage")
            .field("number", &self.number)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

impl LongMessage {
    /// The sender's number for it.
    pub const fn number(&self) -> MessageNumber {
        self.number
    }

    /// What it matters to its sender.
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// Its next bytes; `None` once all of it has been given. Waits for them. It can be cancelled without loss.
    ///
    /// # Errors
    ///
    /// If the sender gave it up, or the connection ended: what was given of it is void.
    pub async fn next(&mut self) -> Result<Option<Payload>, Missed> {
        if self.ended {
            return Ok(None);
        }
        let shared = self.transport.shared();
        let next = Shared::wait_for(&shared.readable, || match lock(&shared.inbound).next_of(self.number) {
            LongNext::Wait => None,
            LongNext::Piece(piece) => Some(Ok(Some(piece))),
            LongNext::End(end) => Some(end.map(|()| None)),
        })
        .await;
        self.ended = !matches!(next, Ok(Some(_)));
        self.transport.resume();
        next
    }
}

impl Drop for LongMessage {
    fn drop(&mut self) {
        if !self.ended {
            lock(&self.transport.shared().inbound).forget_long(self.number);
            self.transport.resume();
        }
    }
}
