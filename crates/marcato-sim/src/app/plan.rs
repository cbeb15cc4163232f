//! Plan of an application's messages and their times, and the application that follows one.

use std::any::Any;

use marcato_sched::conductor::Message;
use marcato_units::{Bytes, Duration, Priority, Time};

use super::{App, Socket, Tag};

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
    fn start(&mut self, now: Time) {
        self.origin = now;
    }

    /// Returns the next message that is due; if none is, sets a timer for the next one.
    fn take_due(&mut self, socket: &mut Socket<'_>) -> Option<(Tag, Message)> {
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

/// Application that sends the messages of a [`Plan`], each at its time.
///
/// The plan uses the application's timer; the methods of [`App`] that a type needs besides are
/// methods here.
#[diagnostic::on_unimplemented(message = "`{Self}` does not implement `App`")]
pub(super) trait PlannedApp: Any {
    /// Returns the plan.
    fn plan(&mut self) -> &mut Plan;

    /// Accepts a message whose time has come. [`write`](Self::write) follows.
    fn accept(&mut self, tag: Tag, message: Message, socket: &mut Socket<'_>);

    /// Writes accepted messages while the socket takes data.
    fn write(&mut self, socket: &mut Socket<'_>);

    /// Handles an acknowledgement: [`App::acknowledged`].
    fn acked(&mut self, _socket: &mut Socket<'_>) -> bool {
        false
    }

    /// Handles received bytes: [`App::received`].
    fn read(&mut self, _bytes: Bytes, _socket: &mut Socket<'_>) {}

    /// Handles the end of the other end's stream: [`App::finished`].
    fn end(&mut self, _socket: &mut Socket<'_>) {}
}

impl<T: PlannedApp> App for T {
    fn start(&mut self, socket: &mut Socket<'_>) {
        self.plan().start(socket.now());
        self.timer(0, socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        while let Some((tag, message)) = self.plan().take_due(socket) {
            self.accept(tag, message, socket);
        }
        self.write(socket);
    }

    fn acknowledged(&mut self, socket: &mut Socket<'_>) -> bool {
        self.acked(socket)
    }

    fn received(&mut self, _tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        self.read(bytes, socket);
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        self.end(socket);
    }
}
