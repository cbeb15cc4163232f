//! Applications at the ends of TCP flows.

mod bulk;
mod collector;
mod conducted;
mod exchange;
mod fifo;
mod framed;
mod mirror;
mod onoff;
mod plan;
mod writers;

use std::any::Any;

pub use bulk::{Bulk, Sink};
pub use collector::{Arrival, Collector};
pub use conducted::Conducted;
pub use exchange::{Exchange, RequestResponse, Requester, Responder};
pub use fifo::Fifo;
pub use framed::Framed;
use marcato_units::{Bytes, Priority, Seed, Stream, Time};
pub use mirror::Mirror;
pub use onoff::OnOff;
pub use plan::Planned;
pub use writers::Writers;

use crate::packet::Side;
use crate::tcp::{Connection, TcpStats};

/// Label of the bytes of a write, which tells the receiving application what arrived. In a real
/// transport, message frames carry it; in virtual time it takes no bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Application at one end of a flow. Every method has a default that does nothing.
///
/// To add one, implement this trait beside [`Bulk`] or in your own crate; after the run,
/// [`Network::app`](crate::Network::app) returns it.
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait App: Any {
    /// Handles the flow's naming: an application that needs random numbers takes its streams here.
    /// Called once, before all other methods.
    fn named(&mut self, streams: &FlowStreams<'_>) {}
    /// Handles the beginning of the flow; the connection is not yet established, but may be written
    /// to.
    fn start(&mut self, socket: &mut Socket<'_>) {}
    /// Handles the establishment of the connection.
    fn connected(&mut self, socket: &mut Socket<'_>) {}
    /// Handles an abandoned handshake: no other end responds.
    fn failed(&mut self, socket: &mut Socket<'_>) {}
    /// Handles a reset or refusal by the other end: no more data is sent or received.
    fn reset(&mut self, socket: &mut Socket<'_>) {}
    /// Handles room in the socket. Called again as long as it writes. After a call without a write,
    /// the next follows an acknowledgement of data or a call of another method.
    fn writable(&mut self, socket: &mut Socket<'_>) {}
    /// Handles `bytes` labelled `tag` that have arrived, in the order of the stream.
    fn received(&mut self, tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {}
    /// Handles a timer set by [`Socket::set_timer`].
    fn timer(&mut self, token: u32, socket: &mut Socket<'_>) {}
    /// Handles the end of the other end's stream, after all its data.
    fn finished(&mut self, socket: &mut Socket<'_>) {}
}

/// Random numbers of a flow: streams that depend on the network's seed, the flow's name and their
/// own.
pub struct FlowStreams<'a> {
    pub(crate) seed: Seed,
    /// Name of the flow.
    pub(crate) name: &'a str,
    pub(crate) side: Side,
}

impl FlowStreams<'_> {
    /// Returns this end's stream called `what`, from its beginning.
    pub fn stream(&self, what: &str) -> Stream {
        let side = match self.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        self.seed.stream(&format!("{}/{side}/app/{what}", self.name))
    }

    /// Returns the flow's stream called `what`, from its beginning, which is the same at both ends.
    pub fn shared(&self, what: &str) -> Stream {
        self.seed.stream(&format!("{}/app/{what}", self.name))
    }
}

/// Labels of data that one end has sent and the other has not yet received: stream offset of each
/// run's end, and its label.
pub(crate) type Ledger = std::collections::VecDeque<(u64, Tag)>;

/// Application's view of its connection.
pub struct Socket<'a> {
    pub(crate) now: Time,
    pub(crate) tcp: &'a mut Connection,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) timers: &'a mut Vec<(Time, u32)>,
}

impl Socket<'_> {
    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Writes `len` bytes labelled `tag`, or as many as fit the send buffer. Returns how many.
    pub fn write(&mut self, len: Bytes, priority: Priority, tag: Tag) -> Bytes {
        let taken = self.tcp.write(len, priority);
        if !taken.is_zero() {
            let end = self.tcp.write_offset();
            match self.ledger.back_mut() {
                Some((last_end, last)) if *last == tag => *last_end = end,
                _ => self.ledger.push_back((end, tag)),
            }
        }
        taken
    }

    /// Returns the free space of the send buffer.
    pub fn room(&self) -> Bytes {
        self.tcp.room()
    }

    /// Returns the bytes written and not yet sent.
    pub fn unsent(&self) -> Bytes {
        self.tcp.unsent()
    }

    /// Returns true if the socket asks for more data: by its low watermark if it has one, else by
    /// room.
    pub fn is_writable(&self) -> bool {
        self.tcp.is_writable()
    }

    /// Returns true if the handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.tcp.is_established()
    }

    /// Closes this end: no more data will be written.
    pub fn close(&mut self) {
        self.tcp.close();
    }

    /// Aborts the connection at once: resets the other end and discards unsent data.
    pub fn abort(&mut self) {
        self.tcp.abort();
    }

    /// Stops or resumes reading; unread data closes the receive window.
    pub fn set_reading(&mut self, reading: bool) {
        self.tcp.set_reading(reading);
    }

    /// Requests a call of [`App::timer`] with `token` at `at`.
    pub fn set_timer(&mut self, at: Time, token: u32) {
        self.timers.push((at.max(self.now), token));
    }

    /// Returns the counters of the connection.
    pub fn stats(&self) -> TcpStats {
        self.tcp.stats()
    }
}
