//! Task that connects, and connects again after each loss.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use marcato_identity::explain_alert;
use marcato_units::Time;
use tokio::sync::mpsc;

use super::backoff::Backoff;
use super::end::Ended;
use super::event::ReconnectingEvent;
use super::{Client, Phase};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::{Closed, ConnectError};
use crate::shared::Settled;
use crate::signal::lock;

/// Outcomes of messages that are processed before senders have their turn.
const TOGETHER: usize = 64;

pub(super) struct Driver {
    pub(super) client: Arc<Client>,
    pub(super) settled: mpsc::UnboundedReceiver<Settled>,
    pub(super) backoff: Backoff,
}

impl Driver {
    pub(super) async fn drive(mut self) {
        let Err(ended) = self.run().await;
        tracing::debug!(%ended, "over");
        self.drain();
        self.client.end(&ended);
    }

    async fn run(&mut self) -> Result<std::convert::Infallible, Ended> {
        loop {
            let connection = self.connect().await?;
            self.backoff.up(self.client.now());
            self.client.install(&connection);
            let closed = self.serve(&connection).await?;
            self.drain();
            tracing::debug!(%closed, "lost");
            let again = self.client.tries_again_after(&connection, &closed);
            self.client.lost(connection, &closed);
            if !again {
                return Err(Ended::Peer(closed));
            }
            self.pause(&closed.to_string()).await?;
        }
    }

    /// Connects, after any number of attempts.
    async fn connect(&mut self) -> Result<Connection, Ended> {
        loop {
            let client = Arc::clone(&self.client);
            let addr = client.to.clone();
            let attempt = async { Some(Endpoint::connect(&client.config, addr).await) };
            let end = self.backoff.gives_up_at();
            let attempt = async {
                tokio::select! {
                    done = attempt => done,
                    () = client.until(end) => None,
                }
            };
            let error = match self.meanwhile(attempt).await? {
                Some(Ok(connection)) => return Ok(connection),
                Some(Err(error)) => Arc::new(error),
                None => return Err(self.gave_up("the last attempt did not end in time")),
            };
            tracing::debug!(%error, "cannot connect");
            self.client.failed(&error);
            if !error.is_retryable() {
                return Err(Ended::Refused(error));
            }
            self.pause(&error.to_string()).await?;
        }
    }

    /// Waits for the next attempt after a failure.
    async fn pause(&mut self, reason: &str) -> Result<(), Ended> {
        let Some(next) = self.backoff.down(self.client.now()) else { return Err(self.gave_up(reason)) };
        self.client.report(&ReconnectingEvent::NextAttempt(next));
        let client = Arc::clone(&self.client);
        self.meanwhile(client.until(Some(next))).await
    }

    fn gave_up(&self, reason: &str) -> Ended {
        let limit = self.client.settings.give_up_after.unwrap_or(Duration::MAX);
        Ended::GaveUp { limit, reason: reason.to_owned() }
    }

    /// Waits for something without a connection. Messages expire meanwhile, and the application may
    /// end the client.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Ended> {
        let mut work = std::pin::pin!(work);
        loop {
            let deadline = self.client.expire();
            if self.client.is_done() {
                return Err(Ended::Local);
            }
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.client.wake.notified() => {}
                () = self.client.until(deadline) => {}
            }
        }
    }

    /// Serves the application until the connection is lost.
    async fn serve(&mut self, connection: &Connection) -> Result<Closed, Ended> {
        let client = Arc::clone(&self.client);
        let mut closed = std::pin::pin!(connection.closed());
        loop {
            let deadline = client.expire();
            match client.phase() {
                Phase::Aborted => {
                    connection.abort();
                    return Err(Ended::Local);
                }
                Phase::Finishing if client.is_done() => return self.finish(connection).await,
                Phase::Open | Phase::Finishing => {}
            }
            let offered = client.offer_all();
            let room = connection.transport().shared().room.changes();
            tokio::select! {
                settled = self.settled.recv() => {
                    if let Some(settled) = settled {
                        client.settle(settled);
                    }
                    for _ in 1..TOGETHER {
                        let Ok(settled) = self.settled.try_recv() else { break };
                        client.settle(settled);
                    }
                }
                closed = &mut closed => return Ok(closed),
                () = room.wait_for(|| client.offer_all().then_some(())), if !offered => {}
                () = client.wake.notified() => {}
                () = client.until(deadline) => {}
            }
        }
    }

    /// Ends the last connection after everything has been delivered.
    async fn finish(&mut self, connection: &Connection) -> Result<Closed, Ended> {
        let mut closing = std::pin::pin!(connection.close());
        loop {
            tokio::select! {
                // The peer has all messages, so the reason for the end does not matter.
                _ = &mut closing => return Err(Ended::Local),
                () = self.client.wake.notified() => {
                    if self.client.phase() == Phase::Aborted {
                        connection.abort();
                    }
                }
            }
        }
    }

    /// Processes the outcomes that arrived before the end of a connection.
    fn drain(&mut self) {
        while let Ok(settled) = self.settled.try_recv() {
            self.client.settle(settled);
        }
    }
}

impl Client {
    /// Returns the time, as of [`Reconnecting::now`](super::Reconnecting::now).
    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// Waits until this time; for ever without one.
    pub(super) async fn until(&self, at: Option<Time>) {
        match at {
            Some(at) => tokio::time::sleep_until(self.epoch + at.since(Time::ZERO)).await,
            None => std::future::pending().await,
        }
    }

    /// Gives up the messages that waited for too long. Returns the time of the next one.
    fn expire(&self) -> Option<Time> {
        let mut state = lock(&self.state);
        let expired = state.messages.expire(self.now());
        if expired {
            self.room.freed(|message| state.messages.admits(message));
        }
        state.messages.next_deadline()
    }

    fn phase(&self) -> Phase {
        lock(&self.state).phase
    }

    /// Returns whether the application has ended the client, and nothing is left to deliver.
    fn is_done(&self) -> bool {
        let state = lock(&self.state);
        match state.phase {
            Phase::Open => false,
            Phase::Finishing => state.messages.is_empty(),
            Phase::Aborted => true,
        }
    }

    /// Offers what waits. Returns whether the connection has accepted all of it.
    fn offer_all(&self) -> bool {
        self.offer(&mut lock(&self.state))
    }

    fn settle(&self, settled: Settled) {
        let mut state = lock(&self.state);
        // Outcomes on an earlier connection were processed with its loss.
        if settled.connection == state.connections {
            state.messages.settle(settled);
        }
        self.room.freed(|message| state.messages.admits(message));
    }

    /// Makes a connection the current one.
    fn install(&self, connection: &Connection) {
        let mut state = lock(&self.state);
        state.connections += 1;
        state.connection = Some(connection.clone());
        self.offer(&mut state);
        // A reader that subscribes now learns of it from the state, or from the event.
        self.report(&ReconnectingEvent::Connected);
        drop(state);
        self.changed.notify_waiters();
    }

    fn failed(&self, error: &Arc<ConnectError>) {
        lock(&self.state).failures += 1;
        self.report(&ReconnectingEvent::Failed(Arc::clone(error)));
    }

    /// Sets the current connection aside.
    fn lost(&self, connection: Connection, closed: &Closed) {
        let mut state = lock(&self.state);
        state.connection = None;
        let discarded = state.set_aside(connection);
        state.messages.lost(closed);
        self.report(&ReconnectingEvent::Lost(closed.clone()));
        if discarded > 0 {
            self.report(&ReconnectingEvent::Discarded(discarded));
        }
        drop(state);
        self.changed.notify_waiters();
        self.room.notify_waiters();
    }

    fn tries_again_after(&self, connection: &Connection, closed: &Closed) -> bool {
        // With TLS 1.3, a client's handshake ends before the server has seen the client's
        // certificate (RFC 8446 §2).
        let alert = connection.transport().shared().alert.get();
        let is_refused = alert.is_some_and(|alert| explain_alert((*alert).into()).is_some());
        match closed {
            Closed::ByPeer(_) | Closed::Aborted(_) => self.settings.after_close_by_peer,
            _ => !is_refused,
        }
    }

    fn end(&self, ended: &Ended) {
        let mut state = lock(&self.state);
        if let Some(connection) = state.connection.take() {
            let _ = state.set_aside(connection);
        }
        state.messages.end(ended);
        state.ended = Some(ended.clone());
        drop(state);
        lock(&self.readers).end();
        self.changed.notify_waiters();
        self.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use marcato_identity::{Identity, Trust};
    use marcato_stream::Ticket as _;

    use super::super::{ReconnectConfig, Reconnecting};
    use crate::config::{ClientSecurity, Config, Remote, ServerSecurity};
    use crate::endpoint::Endpoint;
    use crate::engine::Engine;
    use crate::error::NotDelivered;
    use crate::shared::Ticket;
    use marcato_stream::Message;

    const LIMIT: Duration = Duration::from_secs(120);

    async fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(LIMIT, work).await.expect("it takes far too long")
    }

    /// Client, and the server that it connects to.
    async fn client() -> (Reconnecting, Endpoint) {
        let config = Config::new(Engine::Tcp);
        let identity = Identity::self_signed("site.test").unwrap();
        let trust = Trust::Certificate(identity.certificate().unwrap().clone());
        let at = [std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()];
        let endpoint = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await.unwrap();
        let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("site.test", trust));
        let settings = ReconnectConfig { first: Duration::from_millis(1), ..ReconnectConfig::default() };
        (Reconnecting::new(&config, remote, &settings).unwrap(), endpoint)
    }

    /// Far more than are processed at once wait when the client learns of the loss.
    #[tokio::test]
    async fn outcomes_from_before_a_loss_still_count() {
        let (client, endpoint) = client().await;
        let _first = within(endpoint.accept()).await.unwrap();
        let mut all = Vec::new();
        for _ in 0..12_000 {
            all.push(client.send(Message::new("taken").with_receipt()).await.unwrap());
        }
        for delivery in &mut all {
            within(delivery.acknowledged()).await.unwrap();
        }
        for delivery in &all {
            let mut ticket = Ticket::for_client(&client.client().settled, 1, delivery.id, true);
            ticket.receipt().unwrap().settle(Ok(()));
        }
        client.connection().unwrap().abort();
        for delivery in &mut all {
            within(delivery.received()).await.unwrap();
        }
        let second = within(endpoint.accept()).await.unwrap();
        within(client.close()).await.unwrap();
        assert!(within(second.recv()).await.is_err(), "nothing comes again");
        assert_eq!(client.stats().offered_again, 0);
    }

    #[tokio::test]
    async fn outcomes_of_an_earlier_connection_change_nothing() {
        let (client, endpoint) = client().await;
        within(endpoint.accept()).await.unwrap().abort();
        let second = within(endpoint.accept()).await.unwrap();
        let mut all = Vec::new();
        for text in ["acknowledged", "taken", "cancelled", "unwanted"] {
            all.push(client.send(Message::new(text).with_receipt()).await.unwrap());
        }
        for delivery in &mut all {
            within(delivery.acknowledged()).await.unwrap();
        }
        // The first connection reports late of messages with the same names.
        let late = |id, receipt| {
            let mut ticket = Ticket::for_client(&client.client().settled, 1, id, true);
            let report = ticket.receipt().unwrap();
            if receipt { report } else { ticket }
        };
        late(all[0].id, false).settle(Ok(()));
        late(all[1].id, true).settle(Ok(()));
        late(all[2].id, false).settle(Err(NotDelivered::Cancelled));
        late(all[3].id, true).settle(Err(NotDelivered::Unwanted));
        // Outcomes are processed in their order: that of this message comes after them.
        within(client.send(Message::new("last")).await.unwrap().acknowledged()).await.unwrap();
        assert_eq!(client.stats().messages, [0, 0, 4, 0, 0]);
        // Nobody has taken them, so they come again.
        second.abort();
        let third = within(endpoint.accept()).await.unwrap();
        for text in ["acknowledged", "taken", "cancelled", "unwanted"] {
            assert_eq!(within(third.recv()).await.unwrap().bytes, text.as_bytes());
        }
        for delivery in &mut all {
            within(delivery.received()).await.unwrap();
        }
    }
}
