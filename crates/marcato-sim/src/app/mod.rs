//! Applications at the ends of TCP flows.

mod bulk;
mod collector;
mod conducted;
mod conducting;
mod coupled;
mod exchange;
mod framed;
mod mirror;
mod onoff;
mod plan;
mod slow_reader;
mod writers;

use std::any::Any;
use std::collections::VecDeque;

pub use bulk::{Bulk, Sink};
pub use collector::{Arrival, Collector};
pub use conducted::Conducted;
pub(crate) use conducting::Conducting;
pub use coupled::Coupled;
pub use exchange::{Exchange, RequestResponse, Requester, Responder};
pub use framed::Framed;
use marcato_units::{Bytes, Priority, Seed, Stream, Time};
pub use mirror::Mirror;
pub use onoff::OnOff;
pub use plan::Planned;
pub use slow_reader::SlowReader;
pub(crate) use writers::Turns;
pub use writers::Writers;

use crate::packet::Side;
use crate::tcp::TcpStats;

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
    /// Handles an acknowledgement, also a selective one, of data of this end. Returns true to have
    /// [`writable`](Self::writable) called even if the send buffer has no more room than before.
    fn acknowledged(&mut self, socket: &mut Socket<'_>) -> bool {
        false
    }
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
    seed: Seed,
    /// Name of the flow.
    name: &'a str,
    side: Side,
}

impl<'a> FlowStreams<'a> {
    /// Creates the streams of the application at this side of the flow `name`.
    pub const fn new(seed: Seed, name: &'a str, side: Side) -> Self {
        Self { seed, name, side }
    }

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

/// One end of a connection that carries bytes in order, below a [`Socket`]. The simulator's TCP is
/// one; a socket of the kernel can be another.
pub trait ByteStream {
    /// Writes `len` bytes, or as many as fit. Returns how many.
    fn write(&mut self, len: Bytes, priority: Priority) -> Bytes;
    /// Returns the stream offset one beyond the last byte written.
    fn write_offset(&self) -> u64;
    /// Returns the free space of the send buffer.
    fn room(&self) -> Bytes;
    /// Returns the bytes written and not yet sent.
    fn unsent(&self) -> Bytes;
    /// Returns the bytes sent that are neither acknowledged nor lost.
    fn in_flight(&self) -> Bytes {
        self.stats().in_flight
    }
    /// Returns true if the stream asks for more data.
    fn is_writable(&self) -> bool;
    /// Returns true if the handshake is complete.
    fn is_established(&self) -> bool;
    /// Ends this direction after all data written.
    fn close(&mut self);
    /// Resets the connection.
    fn abort(&mut self);
    /// Stops or resumes reading.
    fn set_reading(&mut self, reading: bool);
    /// Bounds what one read takes.
    fn bound_reads(&mut self, most: Bytes);
    /// Returns the counters.
    fn stats(&self) -> TcpStats;
}

/// Labels of data that one end has sent and the other has not yet received: stream offset of each
/// run's end, and its label.
#[derive(Clone, Debug, Default)]
pub struct Ledger(VecDeque<(u64, Tag)>);

impl Ledger {
    /// Records that the data up to the offset `end` has the label `tag`.
    fn push(&mut self, end: u64, tag: Tag) {
        match self.0.back_mut() {
            Some((last_end, last)) if *last == tag => *last_end = end,
            _ => self.0.push_back((end, tag)),
        }
    }

    /// Takes the first run of the data from offset `at` up to `upto`: its label and length.
    pub fn take(&mut self, at: u64, upto: u64) -> Option<(Tag, Bytes)> {
        let &(end, tag) = self.0.front()?;
        if end <= upto {
            self.0.pop_front();
        }
        Some((tag, Bytes::new(end.min(upto).saturating_sub(at))))
    }
}

/// Application's view of its connection.
pub struct Socket<'a> {
    now: Time,
    stream: &'a mut dyn ByteStream,
    ledger: &'a mut Ledger,
    timers: &'a mut Vec<(Time, u32)>,
}

impl<'a> Socket<'a> {
    /// Creates the view of an end. Labels go to `ledger`, from which the other end takes them, and
    /// requested timers to `timers`.
    pub fn new(
        now: Time,
        stream: &'a mut dyn ByteStream,
        ledger: &'a mut Ledger,
        timers: &'a mut Vec<(Time, u32)>,
    ) -> Self {
        Self { now, stream, ledger, timers }
    }
}

impl Socket<'_> {
    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Writes `len` bytes labelled `tag`, or as many as fit the send buffer. Returns how many.
    pub fn write(&mut self, len: Bytes, priority: Priority, tag: Tag) -> Bytes {
        let taken = self.stream.write(len, priority);
        if !taken.is_zero() {
            self.ledger.push(self.stream.write_offset(), tag);
        }
        taken
    }

    /// Returns the free space of the send buffer.
    pub fn room(&self) -> Bytes {
        self.stream.room()
    }

    /// Returns the bytes written and not yet sent.
    pub fn unsent(&self) -> Bytes {
        self.stream.unsent()
    }

    /// Returns the bytes sent that are neither acknowledged nor lost.
    pub fn in_flight(&self) -> Bytes {
        self.stream.in_flight()
    }

    /// Returns true if the socket asks for more data: by its low watermark if it has one, else by
    /// room.
    pub fn is_writable(&self) -> bool {
        self.stream.is_writable()
    }

    /// Returns true if the handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.stream.is_established()
    }

    /// Closes this end: no more data will be written.
    pub fn close(&mut self) {
        self.stream.close();
    }

    /// Aborts the connection at once: resets the other end and discards unsent data.
    pub fn abort(&mut self) {
        self.stream.abort();
    }

    /// Stops or resumes reading; unread data closes the receive window.
    pub fn set_reading(&mut self, reading: bool) {
        self.stream.set_reading(reading);
    }

    /// Bounds what one read takes. After each, the application stops reading, or is given the rest
    /// at the next event.
    pub fn bound_reads(&mut self, most: Bytes) {
        self.stream.bound_reads(most);
    }

    /// Requests a call of [`App::timer`] with `token` at `at`.
    pub fn set_timer(&mut self, at: Time, token: u32) {
        self.timers.push((at.max(self.now), token));
    }

    /// Returns the counters of the connection.
    pub fn stats(&self) -> TcpStats {
        self.stream.stats()
    }
}
