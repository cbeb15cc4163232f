//! Requests and replies.

use std::fmt;
use std::sync::Arc;

use marcato_stream::{Message, NoReply, Received};
use marcato_wire::Exchange;

use crate::error::{NotDelivered, RequestError, SendError};
use crate::message_handle::{MessageHandle, offer};
use crate::shared::Transport;
use crate::signal::lock;

/// Request of this end, until its reply is taken. If it is dropped before, the request is
/// abandoned.
pub(crate) struct Asked {
    transport: Arc<dyn Transport>,
    exchange: u64,
    handle: MessageHandle,
    /// Set if the request has not reached the peer, and never will.
    lost: bool,
}

impl Asked {
    /// Sends a request as soon as there is room for it, and as few are open as the limit allows.
    pub(crate) async fn begin(transport: &Arc<dyn Transport>, message: Message) -> Result<Self, SendError> {
        if !message.reliable {
            return Err(SendError::NeedsReliable);
        }
        let mut message = message;
        let shared = transport.shared();
        shared
            .room
            .changes()
            .wait_for(|| {
                if let Some(closed) = shared.closed() {
                    return Some(Err(closed.into()));
                }
                let exchange = lock(&shared.inbound).begin_request()?;
                message.exchange = Exchange::Request(exchange);
                let offered = offer(transport, &message);
                if offered.is_err() {
                    lock(&shared.inbound).forget_request(exchange);
                }
                match offered {
                    Err(SendError::Busy { .. }) => None,
                    result => Some(result.map(|handle| Self {
                        transport: Arc::clone(transport),
                        exchange,
                        handle,
                        lost: false,
                    })),
                }
            })
            .await
    }

    /// Waits for the reply.
    pub(crate) async fn reply(mut self) -> Result<Received, RequestError> {
        let transport = Arc::clone(&self.transport);
        let shared = transport.shared();
        let reply = shared.readable.wait_for(|| lock(&shared.inbound).take_reply(self.exchange));
        let reply = tokio::select! {
            biased;
            reply = reply => reply,
            Err(error) = self.handle.acknowledged() => {
                self.lost = true;
                return Err(match error {
                    NotDelivered::Closed(closed) => NoReply::Closed(closed).into(),
                    error => error.into(),
                });
            }
        };
        Ok(reply?)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let shared = self.transport.shared();
        let unknown = lock(&shared.inbound).forget_request(self.exchange);
        // A request that has left whole is withdrawn. Any other is cancelled like a message.
        if unknown && !self.lost && self.handle.cancel().is_err() {
            lock(&shared.inbound).withdraw(self.exchange);
        }
        // The reply may have been the data for which reading had stopped.
        self.transport.resume();
        shared.room.notify_waiters();
    }
}

/// Request of the peer, which waits for a reply. If it is dropped without one, the peer learns that
/// there is none.
pub struct Request {
    message: Received,
    exchange: u64,
    transport: Arc<dyn Transport>,
    replied: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("message", &self.message).finish_non_exhaustive()
    }
}

impl Request {
    pub(crate) const fn new(message: Received, exchange: u64, transport: Arc<dyn Transport>) -> Self {
        Self { message, exchange, transport, replied: false }
    }

    /// Returns the request's message.
    pub const fn message(&self) -> &Received {
        &self.message
    }

    /// Queues the reply as soon as there is room for it at its level, which need not be the
    /// request's. If it is cancelled before that, there is no reply. A reply that is abandoned later
    /// counts as none, too.
    ///
    /// # Errors
    ///
    /// [`SendError::Withdrawn`] if the peer wants no reply any more, and the errors of
    /// [`Connection::send`](crate::Connection::send).
    pub async fn reply(mut self, message: Message) -> Result<MessageHandle, SendError> {
        if !message.reliable {
            return Err(SendError::NeedsReliable);
        }
        let transport = Arc::clone(&self.transport);
        let shared = transport.shared();
        let reply = Message { exchange: Exchange::Reply(self.exchange), ..message };
        let sent = shared
            .room
            .changes()
            .wait_for(|| {
                if let Some(closed) = shared.closed() {
                    return Some(Err(closed.into()));
                }
                if !lock(&shared.inbound).awaits_reply(self.exchange) {
                    return Some(Err(SendError::Withdrawn));
                }
                match offer(&transport, &reply) {
                    Err(SendError::Busy { .. }) => None,
                    result => Some(result),
                }
            })
            .await;
        self.replied = sent.is_ok();
        sent
    }

    /// Waits until the peer wants no reply any more, or the connection has ended. Work for the reply
    /// can stop then.
    ///
    /// It can be called again, and cancelling loses nothing.
    pub async fn withdrawn(&self) {
        let shared = self.transport.shared();
        let withdrawn = || (!lock(&shared.inbound).awaits_reply(self.exchange)).then_some(());
        shared.readable.wait_for(withdrawn).await;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        lock(&self.transport.shared().inbound).close_request(self.exchange, self.replied);
        self.transport.resume();
    }
}
