//! Applications: what writes into and reads from the ends of a TCP flow.

mod bulk;
mod collector;
mod conducted;
mod exchange;
mod fifo;
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
use marcato_units::{Bytes, Priority, Seed, Stream, Time};
pub use mirror::Mirror;
pub use onoff::OnOff;
pub use plan::Planned;
pub use writers::Writers;

use crate::packet::Side;
use crate::tcp::{Connection, TcpStats};

/// A label that travels beside the bytes of a write, so that the receiving application can tell what arrived. In
/// a real transport message frames say it; in virtual time it costs nothing on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// An application at one end of a flow. Every method has a default that does nothing.
///
/// To add one, implement this beside [`Bulk`] or in your own crate; after the run get it back by
/// [`Network::app`](crate::Network::app).
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait App: Any {
    /// The flow has been added and has its name: an application that needs random numbers takes its streams now. Called
    /// once, before everything else.
    fn named(&mut self, streams: &FlowStreams<'_>) {}
    /// The flow begins; the connection is not yet there, but may be written to.
    fn start(&mut self, socket: &mut Socket<'_>) {}
    /// The connection is established.
    fn connected(&mut self, socket: &mut Socket<'_>) {}
    /// The handshake was given up: nobody answers.
    fn failed(&mut self, socket: &mut Socket<'_>) {}
    /// The other end has reset the connection, or refused it: nothing more comes or goes.
    fn reset(&mut self, socket: &mut Socket<'_>) {}
    /// The socket takes more. Called again while something is written; after a call that writes nothing, not
    /// before data has been acknowledged or another method of this application has been called.
    fn writable(&mut self, socket: &mut Socket<'_>) {}
    /// `bytes` labelled `tag` have arrived, in the order of the stream.
    fn received(&mut self, tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {}
    /// A timer set by [`Socket::set_timer`] has come.
    fn timer(&mut self, token: u32, socket: &mut Socket<'_>) {}
    /// The other end has closed and all its data has arrived.
    fn finished(&mut self, socket: &mut Socket<'_>) {}
}

/// The random numbers of a flow: streams that depend on the network's seed, the flow's name and their own.
pub struct FlowStreams<'a> {
    pub(crate) seed: Seed,
    /// The flow's name.
    pub(crate) name: &'a str,
    pub(crate) side: Side,
}

impl FlowStreams<'_> {
    /// This end's stream called `what`, from its beginning.
    pub fn stream(&self, what: &str) -> Stream {
        let side = match self.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        self.seed.stream(&format!("{}/{side}/app/{what}", self.name))
    }

    /// The flow's stream called `what`, from its beginning: both ends get the same.
    pub fn shared(&self, what: &str) -> Stream {
        self.seed.stream(&format!("{}/app/{what}", self.name))
    }
}

/// What one end of a flow has sent and the other not yet received, by label.
pub(crate) type Ledger = std::collections::VecDeque<(u64, Tag)>;

/// An application's view of its connection.
pub struct Socket<'a> {
    pub(crate) now: Time,
    pub(crate) tcp: &'a mut Connection,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) timers: &'a mut Vec<(Time, u32)>,
}

impl Socket<'_> {
    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Writes `len` bytes, or as many as there is room for; returns how many. They are labelled with `tag`.
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

    /// Room in the send buffer.
    pub fn room(&self) -> Bytes {
        self.tcp.room()
    }

    /// Written and not yet sent.
    pub fn unsent(&self) -> Bytes {
        self.tcp.unsent()
    }

    /// Whether the socket asks for more: by its low watermark if it has one, else by room.
    pub fn is_writable(&self) -> bool {
        self.tcp.is_writable()
    }

    /// Whether the handshake is done.
    pub fn is_connected(&self) -> bool {
        self.tcp.is_established()
    }

    /// Nothing more will be written.
    pub fn close(&mut self) {
        self.tcp.close();
    }

    /// Gives the connection up at once: the other end is told by a reset, and what is unsent is forgotten.
    pub fn abort(&mut self) {
        self.tcp.abort();
    }

    /// Stops or resumes reading; what nobody reads closes the window.
    pub fn set_reading(&mut self, reading: bool) {
        self.tcp.set_reading(reading);
    }

    /// Asks for [`App::timer`] with `token` at `at`.
    pub fn set_timer(&mut self, at: Time, token: u32) {
        self.timers.push((at.max(self.now), token));
    }

    /// What the connection has seen and done.
    pub fn stats(&self) -> TcpStats {
        self.tcp.stats()
    }
}
