//! Plan of an application's messages and their times.

use marcato_sched::conductor::Message;
use marcato_units::{Bytes, Duration, Priority, Time};

use super::{Socket, Tag};

/// Message that an application will send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Time of the message after the start of the flow.
    pub after: Duration,
    /// Message.
    pub message: Message,
}

impl Planned {
    /// Message of `len` bytes at the start of the flow.
    pub const fn now(len: Bytes, priority: Priority) -> Self {
        Self { after: Duration::ZERO, message: Message::new(len, priority) }
    }

    /// Sets the time after the start of the flow.
    #[must_use]
    pub const fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

/// State of a plan: its messages in order of time, each labelled with its index.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    messages: Vec<Planned>,
    next: usize,
    origin: Time,
}

impl Plan {
    /// Plan of `messages`, sorted by time; those of the same time keep their order.
    pub(super) fn new(mut messages: Vec<Planned>) -> Self {
        messages.sort_by_key(|planned| planned.after);
        Self { messages, next: 0, origin: Time::ZERO }
    }

    /// Sets the start of the flow, to which times refer.
    pub(super) fn start(&mut self, now: Time) {
        self.origin = now;
    }

    /// Returns the next message that is due; if none is, sets a timer for the next one.
    pub(super) fn take_due(&mut self, socket: &mut Socket<'_>) -> Option<(Tag, Message)> {
        let planned = self.messages.get(self.next)?;
        let at = self.origin + planned.after;
        if at > socket.now() {
            socket.set_timer(at, 0);
            return None;
        }
        let tag = Tag(self.next as u64);
        self.next += 1;
        Some((tag, planned.message))
    }
}
