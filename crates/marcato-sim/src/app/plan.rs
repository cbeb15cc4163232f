//! What an application is going to send, and when.

use marcato_sched::conductor::Message;
use marcato_units::{Bytes, Duration, Priority, Time};

use super::{Socket, Tag};

/// A message that an application is going to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When, from the start of the flow.
    pub after: Duration,
    /// What.
    pub message: Message,
}

impl Planned {
    /// A message of `len` bytes at the start of the flow.
    pub const fn now(len: Bytes, priority: Priority) -> Self {
        Self { after: Duration::ZERO, message: Message::new(len, priority) }
    }

    /// The same, `after` the start of the flow.
    #[must_use]
    pub const fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

/// A plan under way: its messages in order of time, each labelled with its place.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    messages: Vec<Planned>,
    next: usize,
    origin: Time,
}

impl Plan {
    /// A plan of `messages`, which are brought into order; those of the same time keep theirs.
    pub(super) fn new(mut messages: Vec<Planned>) -> Self {
        messages.sort_by_key(|planned| planned.after);
        Self { messages, next: 0, origin: Time::ZERO }
    }

    /// The flow begins.
    pub(super) fn start(&mut self, now: Time) {
        self.origin = now;
    }

    /// The next message that is due; or, if none is, a timer for when one will be.
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
