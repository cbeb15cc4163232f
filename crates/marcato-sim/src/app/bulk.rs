//! One transfer, and somebody who takes it.

use marcato_units::{Bytes, Priority};

use super::{App, Socket, Tag};

/// Writes so many bytes as fast as they are taken, then closes.
#[derive(Clone, Debug)]
pub struct Bulk {
    left: Bytes,
    priority: Priority,
    tag: Tag,
}

impl Bulk {
    /// A transfer of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { left: bytes, priority: Priority::default(), tag: Tag::default() }
    }

    /// A transfer that never ends.
    pub fn endless() -> Self {
        Self::new(Bytes::MAX)
    }

    /// With this priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }
}

impl App for Bulk {
    fn writable(&mut self, socket: &mut Socket<'_>) {
        // The socket takes what it has room for and asks again when there is more.
        self.left -= socket.write(self.left, self.priority, self.tag);
        if self.left.is_zero() {
            socket.close();
        }
    }
}

/// Reads everything, says nothing, and closes when the other end does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sink;

impl App for Sink {
    fn finished(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}
