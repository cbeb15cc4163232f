//! Messages of a connection as a stream and a sink.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;
use marcato_stream::{Message, Received};

use crate::connection::Connection;
use crate::error::SendError;
use crate::room::Place;
use crate::signal::WakerSlot;

impl Connection {
    /// Returns the messages that arrive from now on, as a stream.
    pub fn incoming(&self) -> Incoming {
        Incoming { connection: self.clone(), slot: WakerSlot::default() }
    }

    /// Returns a sink of messages to send.
    pub fn outgoing(&self) -> Outgoing {
        Outgoing { connection: self.clone(), waiting: None, place: Place::default() }
    }
}

/// Messages that arrive, as a stream: as [`Connection::recv`] returns them. It ends with the
/// connection ([`Connection::closed`] has the reason), and keeps it open until then.
pub struct Incoming {
    connection: Connection,
    slot: WakerSlot,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

impl Stream for Incoming {
    type Item = Received;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Received>> {
        let Self { connection, slot } = self.get_mut();
        let transport = connection.transport();
        let shared = transport.shared();
        let next = ready!(shared.readable.poll_for(slot, context, || shared.take()));
        transport.resume();
        Poll::Ready(next.ok())
    }
}

/// Sink of messages to send. It holds one message for whose level there is no room yet; flushing
/// and closing wait until that has been queued, not until the peer has it.
pub struct Outgoing {
    connection: Connection,
    /// Message that waits for room.
    waiting: Option<Message>,
    place: Place,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("waits", &self.waiting.is_some()).finish_non_exhaustive()
    }
}

impl Outgoing {
    /// Polls for room for the message that waits.
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let Self { connection, waiting, place } = self;
        let Some(message) = waiting else { return Poll::Ready(Ok(())) };
        let transport = connection.transport();
        let attempt = || match connection.try_send(message) {
            Err(SendError::Busy { .. }) => None,
            result => Some(result.map(drop)),
        };
        let admits = |waiting: &Message| transport.admits(waiting);
        let sent = ready!(transport.shared().room.poll_send(place, context, message, admits, attempt));
        *waiting = None;
        Poll::Ready(sent)
    }
}

impl Sink<Message> for Outgoing {
    type Error = SendError;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.get_mut().poll_waiting(context)
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), SendError> {
        let this = self.get_mut();
        match this.connection.try_send(&message) {
            Err(SendError::Busy { .. }) => {
                this.waiting = Some(message);
                Ok(())
            }
            result => result.map(drop),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.get_mut().poll_waiting(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.get_mut().poll_waiting(context)
    }
}
