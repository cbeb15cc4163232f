//! Bulk transfer, and its receiver.

use marcato_units::{Bytes, Priority};

use super::{App, Socket, Tag};

/// Application that writes a number of bytes as fast as the socket accepts them, then closes.
#[derive(Clone, Debug)]
pub struct Bulk {
    left: Bytes,
    priority: Priority,
    tag: Tag,
}

impl Bulk {
    /// Transfer of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { left: bytes, priority: Priority::default(), tag: Tag::default() }
    }

    /// Transfer without end.
    pub fn endless() -> Self {
        Self::new(Bytes::MAX)
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }
}

impl App for Bulk {
    fn writable(&mut self, socket: &mut Socket<'_>) {
        // The socket takes what fits, and asks again when it has room.
        self.left -= socket.write(self.left, self.priority, self.tag);
        if self.left.is_zero() {
            socket.close();
        }
    }
}

/// Application that reads everything, writes nothing, and closes when the other end does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sink;

impl App for Sink {
    fn finished(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}
