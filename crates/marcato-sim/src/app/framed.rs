//! Application whose messages travel as frames, by the sender and reader of real connections.
//!
//! The papers' experiments use [`Conducted`](super::Conducted) instead: they need counts of bytes only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes as Payload;
use marcato_sched::conductor::{self, DebtError, MessageId};
use marcato_stream::{
    Inbound, Limits, Message, Missed, NotDelivered, PeerError, Pool, Reader, Received, SendError, Sender,
    Ticket,
};
use marcato_units::{Bytes, Priority, Time};

use super::plan::{Plan, Planned, PlannedApp};
use super::{Socket, Tag};

/// Application that offers each message of a plan at its time, over the same [`Sender`], [`Reader`]
/// and [`Inbound`] as a connection of `marcato-net` over the kernel's TCP.
///
/// Where [`Conducted`](super::Conducted) counts bytes, this application writes frames with content:
/// headers take room on the wire, the receiver acknowledges messages, and resets inform it of
/// abandoned ones. The simulated TCP carries lengths only, so the two ends of a [pair](Self::pair)
/// share the bytes that are on their way. Every byte of message `i` of the plan is `i`, modulo 256.
#[derive(Debug)]
pub struct Framed {
    sender: Sender<Slip>,
    reader: Reader,
    inbound: Inbound,
    plan: Plan,
    /// Bytes of one chunk.
    chunk: usize,
    /// Frames that are being written, and how many of their bytes the socket has not taken.
    frames: Vec<u8>,
    unwritten: usize,
    /// Bytes on their way from this end, and to it.
    leaving: Wire,
    arriving: Wire,
    refused: Vec<(Tag, SendError)>,
    received: Vec<(Time, Received)>,
    missed: Vec<(Time, Missed)>,
    outcomes: Arc<Mutex<Outcomes>>,
    violation: Option<PeerError>,
}

/// Outcomes of the plan's messages, in order.
type Outcomes = Vec<(Tag, Result<(), NotDelivered>)>;

/// Bytes between the two ends of a connection, in order.
type Wire = Arc<Mutex<VecDeque<u8>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ticket that records the outcome of a message of the plan.
#[derive(Debug)]
struct Slip {
    tag: Tag,
    outcomes: Arc<Mutex<Outcomes>>,
}

impl Ticket for Slip {
    fn settle(self, outcome: Result<(), NotDelivered>) {
        lock(&self.outcomes).push((self.tag, outcome));
    }
}

impl Framed {
    /// Creates the two ends of one flow, with their plans. Each writes chunks of `chunk` bytes when
    /// its socket asks for data.
    ///
    /// # Errors
    ///
    /// If the Conductor's rules are invalid.
    pub fn pair(
        conductor: conductor::Config,
        limits: Limits,
        chunk: Bytes,
        plans: [Vec<Planned>; 2],
    ) -> Result<(Self, Self), DebtError> {
        let (up, down) = (Wire::default(), Wire::default());
        let [client, server] = plans;
        let end = |plan, leaving: &Wire, arriving: &Wire| {
            Ok(Self {
                sender: Sender::new(conductor, limits)?,
                reader: Reader::new(),
                inbound: Inbound::new(limits, Pool::default()),
                plan: Plan::new(plan),
                chunk: usize::try_from(chunk.get()).unwrap_or(usize::MAX).max(1),
                frames: Vec::new(),
                unwritten: 0,
                leaving: Arc::clone(leaving),
                arriving: Arc::clone(arriving),
                refused: Vec::new(),
                received: Vec::new(),
                missed: Vec::new(),
                outcomes: Arc::default(),
                violation: None,
            })
        };
        Ok((end(client, &up, &down)?, end(server, &down, &up)?))
    }

    /// Returns the messages that arrived, in order of completion.
    pub fn received(&self) -> &[(Time, Received)] {
        &self.received
    }

    /// Returns the reports of messages that the other end abandoned.
    pub fn missed(&self) -> &[(Time, Missed)] {
        &self.missed
    }

    /// Returns the messages of the plan that were not accepted, with the reasons.
    pub fn refused(&self) -> &[(Tag, SendError)] {
        &self.refused
    }

    /// Returns the outcomes of the plan's messages so far, in order.
    pub fn outcomes(&self) -> Vec<(Tag, Result<(), NotDelivered>)> {
        lock(&self.outcomes).clone()
    }

    /// Returns the error that ended reading, if the other end violated the protocol.
    pub fn violation(&self) -> Option<PeerError> {
        self.violation
    }

    fn offer(
        &mut self,
        now: Time,
        tag: Tag,
        planned: conductor::Message,
        slip: Slip,
    ) -> Result<MessageId, SendError> {
        let len = usize::try_from(planned.len.get()).unwrap_or(usize::MAX);
        let body: Payload = vec![tag.0.to_le_bytes()[0]; len].into();
        let message = Message {
            priority: planned.priority,
            lifetime: planned.lifetime,
            redundancy: planned.redundancy,
            partial_ok: planned.partial_ok,
            ..Message::new(body)
        };
        self.sender.offer(now, &message, slip)
    }
}

impl PlannedApp for Framed {
    fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    fn accept(&mut self, tag: Tag, planned: conductor::Message, socket: &mut Socket<'_>) {
        let slip = Slip { tag, outcomes: Arc::clone(&self.outcomes) };
        if let Err(error) = self.offer(socket.now(), tag, planned, slip) {
            self.refused.push((tag, error));
        }
    }

    /// Writes the rest of a chunk, then chunk after chunk while the socket asks for data.
    fn write(&mut self, socket: &mut Socket<'_>) {
        loop {
            if self.unwritten == 0 {
                if !socket.is_writable() || !self.sender.wants_write() {
                    return;
                }
                self.frames.clear();
                self.sender.fill(socket.now(), self.chunk, &mut self.frames);
                self.unwritten = self.frames.len();
                lock(&self.leaving).extend(&self.frames);
            }
            // A chunk has frames of several levels, so its segments have none of their own.
            let taken = socket.write(Bytes::new(self.unwritten as u64), Priority::default(), Tag::default());
            if taken.is_zero() {
                return;
            }
            self.unwritten -= usize::try_from(taken.get()).unwrap_or(self.unwritten);
        }
    }

    fn read(&mut self, bytes: Bytes, socket: &mut Socket<'_>) {
        let len = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
        let arrived: Vec<u8> = {
            let mut arriving = lock(&self.arriving);
            let len = len.min(arriving.len());
            arriving.drain(..len).collect()
        };
        if self.violation.is_none()
            && let Err(error) = self.reader.feed(&arrived, &mut self.inbound, &mut self.sender)
        {
            self.violation = Some(error);
            socket.abort();
            return;
        }
        let now = socket.now();
        self.received.extend(std::iter::from_fn(|| self.inbound.take()).map(|message| (now, message)));
        self.missed.extend(std::iter::from_fn(|| self.inbound.take_missed()).map(|missed| (now, missed)));
        // Receipts leave with the next chunk.
        self.write(socket);
    }

    fn end(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}
