//! Handle of a message that was accepted.

use std::fmt;
use std::sync::Arc;

use marcato_sched::conductor::MessageId;
use marcato_stream::Message;
use marcato_units::Priority;

use crate::error::{ChangeError, NotDelivered, SendError};
use crate::shared::{Awaited, Ticket, Transport};

/// Handle of an accepted message. Dropping it does not cancel the message.
pub struct MessageHandle {
    id: MessageId,
    transport: Arc<dyn Transport>,
    outcome: Awaited,
    report: Awaited,
}

impl fmt::Debug for MessageHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageHandle")
            .field("id", &self.id)
            .field("outcome", &self.outcome)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl MessageHandle {
    /// Waits until the peer's transport has all of the message; for an
    /// [unreliable](Message::unreliable) one over QUIC, until it has left. Its application may not
    /// have taken it: [`received`](Self::received). It can be called again, and cancelling loses
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`NotDelivered`], once that is certain, or if the connection has ended.
    pub async fn acknowledged(&mut self) -> Result<(), NotDelivered> {
        self.outcome.wait(self.transport.shared()).await
    }

    /// Waits until the peer's application has taken the message: its
    /// [`Connection::recv`](crate::Connection::recv) has returned it, or
    /// [`LongMessage::next`](crate::LongMessage::next) its last piece. It can be
    /// called again, and cancelling loses nothing.
    ///
    /// ```
    /// # use marcato_net::{
    /// #     ClientSecurity, Config, Endpoint, Engine, Identity, Message, Remote, ServerSecurity, Trust,
    /// # };
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let identity = Identity::self_signed("bank.example")?;
    /// # let trust = Trust::Certificate(identity.certificate().ok_or("it has one")?.clone());
    /// # let config = Config::new(Engine::Quic);
    /// # let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// # let endpoint = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
    /// # let remote =
    /// #     Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("bank.example", trust));
    /// # let (connected, server) = tokio::join!(Endpoint::connect(&config, &remote), endpoint.accept());
    /// # let (connection, server) = (connected?, server?);
    /// let mut order = connection.send(Message::new("10 shares").with_receipt()).await?;
    /// // The peer's transport has it.
    /// order.acknowledged().await?;
    /// # let peer = tokio::spawn(async move { server.recv().await.map(|_| server) });
    /// // The peer's application has it.
    /// order.received().await?;
    /// # let _ = peer.await??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotDelivered::NoReceipt`] for a message sent without
    /// [`with_receipt`](Message::with_receipt). [`NotDelivered::Unwanted`] if the application
    /// discarded it, [`NotDelivered::NotTaken`] if the connection ended before, and the errors of
    /// [`acknowledged`](Self::acknowledged).
    pub async fn received(&mut self) -> Result<(), NotDelivered> {
        self.report.wait(self.transport.shared()).await
    }

    /// Cancels the message, if part of it is still queued. If part of it has left, the receiver is
    /// informed.
    ///
    /// # Errors
    ///
    /// If all of it has been handed to the engine, or it was removed.
    pub fn cancel(&self) -> Result<(), ChangeError> {
        self.transport.cancel(self.id)
    }

    /// Moves the queued rest of the message to another level. For the receiver, the message keeps
    /// the priority of its first byte that left.
    ///
    /// # Errors
    ///
    /// If all of it has been handed to the engine or was removed, or the level is being discarded.
    pub fn reprioritise(&self, priority: Priority) -> Result<(), ChangeError> {
        self.transport.reprioritise(self.id, priority)
    }
}

/// Queues a message, if there is room for it.
pub(crate) fn offer(transport: &Arc<dyn Transport>, message: &Message) -> Result<MessageHandle, SendError> {
    let (ticket, outcome, report) = Ticket::with_receipt(message.receipt);
    let id = transport.offer(message, ticket)?;
    Ok(MessageHandle { id, transport: Arc::clone(transport), outcome, report })
}
