//! Client that connects again after the loss of its connection.
//!
//! It is part of this crate because only the transport knows which messages a lost connection had, and which of
//! them the peer's application has taken. `examples/server_restart.rs` shows it.

mod backoff;
mod config;
mod delivery;
mod driver;
mod end;
mod event;
mod unacknowledged;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use marcato_stream::{Message, NoReply, Received};
use marcato_units::{Bytes, Priority, PrioritySet, Time};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::config::Config;
use crate::connection::Connection;
use crate::error::{ChangeError, Closed, ConfigError, NotDelivered, RequestError, SendError};
use crate::event::{Events, Readers};
use crate::request::Request;
use crate::room::Room;
use crate::shared::{Settled, Ticket};
use crate::signal::{Signal, lock};
use crate::target::Target;
use backoff::Backoff;
pub use config::ReconnectConfig;
pub use delivery::{Delivery, Undelivered};
use driver::Driver;
pub use end::Ended;
pub use event::ReconnectingEvent;
use unacknowledged::{Guarantee, Unacknowledged};

/// Limit of lost connections whose received messages wait for the application.
const SET_ASIDE: usize = 4;

/// State and counters of a [`Reconnecting`] client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconnectingStats {
    /// Connections established so far.
    pub connections: u64,
    /// Attempts to connect that failed.
    pub failures: u64,
    /// Messages of each level that the peer has not acknowledged.
    pub messages: [usize; Priority::COUNT],
    /// Bytes of each level that the peer has not acknowledged.
    pub bytes: [Bytes; Priority::COUNT],
    /// Times that a message was offered again after a loss.
    pub offered_again: u64,
    /// Messages that were given up although the peer may have them.
    pub uncertain: u64,
    /// Received messages that were [discarded](ReconnectingEvent::Discarded).
    pub discarded: u64,
}

/// Phase of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// No messages are accepted; those kept are delivered.
    Finishing,
    /// The application has aborted the client.
    Aborted,
}

/// State shared by an application's handles and the task that connects.
struct Client {
    config: Config,
    to: Target,
    settings: ReconnectConfig,
    state: Mutex<State>,
    /// Wakes the task that connects.
    wake: Notify,
    /// Notified when there is another connection or none, or the client has ended.
    changed: Signal,
    /// Notified when a message is kept no longer, or the client has ended.
    room: Room,
    readers: Mutex<Readers<ReconnectingEvent>>,
    /// Channel for the outcomes of messages on their connection.
    settled: mpsc::UnboundedSender<Settled>,
    epoch: Instant,
}

struct State {
    messages: Unacknowledged,
    phase: Phase,
    connection: Option<Connection>,
    /// Lost connections with received messages, the oldest first.
    aside: VecDeque<Connection>,
    ended: Option<Ended>,
    /// Number of connections so far, and so that of the current one.
    connections: u64,
    failures: u64,
    discarded: u64,
}

impl State {
    /// Keeps a lost connection for the messages that the application has not taken. Returns the
    /// number of those discarded instead.
    fn set_aside(&mut self, connection: Connection) -> u64 {
        self.aside.push_back(connection);
        let mut discarded = 0;
        while self.aside.len() > SET_ASIDE {
            let Some(oldest) = self.aside.pop_front() else { break };
            while let Some(Ok(_)) = oldest.transport().shared().take() {
                discarded += 1;
            }
        }
        self.discarded += discarded;
        discarded
    }
}

impl Client {
    /// Accepts a message, if there is room for it.
    fn keep(self: &Arc<Self>, message: &Message, guarantee: Guarantee) -> Result<Delivery, SendError> {
        let mut state = lock(&self.state);
        if let Some(ended) = &state.ended {
            return Err(SendError::Closed(ended.clone().into()));
        }
        if state.phase != Phase::Open {
            return Err(SendError::Closed(Closed::Local));
        }
        let accepted = state.messages.accept(self.now(), message, guarantee)?;
        let offered = self.offer(&mut state);
        drop(state);
        if !offered {
            // The task waits for room, or for the end of a lifetime.
            self.wake.notify_one();
        }
        let (outcome, report) = (accepted.outcome, accepted.report);
        Ok(Delivery { id: accepted.id, client: Arc::clone(self), outcome, report })
    }

    /// Offers the connection all messages that wait, as far as it accepts them. Returns whether none
    /// waits any more.
    fn offer(&self, state: &mut State) -> bool {
        let Some(connection) = &state.connection else { return !state.messages.is_waiting() };
        let mut levels = PrioritySet::ALL;
        while let Some((id, message)) = state.messages.next(self.now(), levels) {
            let ticket = Ticket::for_client(&self.settled, state.connections, id, message.receipt);
            match connection.transport().offer(&message, ticket) {
                Ok(name) => state.messages.offered(id, name),
                // Later messages of the level do not overtake this one.
                Err(SendError::Busy { priority }) => levels = levels.without(priority),
                // They wait for the next connection.
                Err(SendError::Closed(_)) => break,
                Err(error) => state.messages.refused(id, error),
            }
        }
        !state.messages.is_waiting()
    }

    fn cancel(&self, id: u64) -> Result<(), ChangeError> {
        let mut state = lock(&self.state);
        let name = state.messages.cancel(id)?;
        if let (Some(name), Some(connection)) = (name, &state.connection) {
            connection.transport().cancel(name)?;
            // The transport may be lost before it reports this. The message must not come again then.
            state.messages.cancelled(id);
        }
        drop(state);
        self.room.notify_waiters();
        self.wake.notify_one();
        Ok(())
    }

    fn reprioritise(&self, id: u64, priority: Priority) -> Result<(), ChangeError> {
        let mut state = lock(&self.state);
        let name = state.messages.offered_as(id)?;
        if let (Some(name), Some(connection)) = (name, &state.connection) {
            connection.transport().reprioritise(name, priority)?;
        }
        state.messages.reprioritise(id, priority);
        drop(state);
        self.room.notify_waiters();
        self.wake.notify_one();
        Ok(())
    }

    fn report(&self, event: &ReconnectingEvent) {
        lock(&self.readers).report(event);
    }

    fn finish(&self, phase: Phase) {
        let mut state = lock(&self.state);
        if state.phase != Phase::Aborted {
            state.phase = phase;
        }
        drop(state);
        self.room.notify_waiters();
        self.wake.notify_one();
    }

    /// Waits for a connection other than `over`, which has ended.
    async fn current(&self, over: Option<&Connection>) -> Result<Connection, Ended> {
        let current = || {
            let state = lock(&self.state);
            match &state.connection {
                Some(connection) if !over.is_some_and(|over| over == connection) => {
                    Some(Ok(connection.clone()))
                }
                _ => state.ended.clone().map(Err),
            }
        };
        self.changed.wait_for(current).await
    }

    /// Waits for the connection from which the application gets the next message, other than `over`,
    /// of which it has taken everything.
    async fn source(&self, over: Option<&Connection>) -> Result<Connection, Ended> {
        let is_over = |connection: &Connection| over.is_some_and(|over| over == connection);
        let source = || {
            let mut state = lock(&self.state);
            state.aside.retain(|connection| !is_over(connection));
            let current = state.connection.as_ref().filter(|connection| !is_over(connection));
            match state.aside.front().or(current) {
                Some(connection) => Some(Ok(connection.clone())),
                None => state.ended.clone().map(Err),
            }
        };
        self.changed.wait_for(source).await
    }
}

/// Owner of the client: it ends with its last handle.
struct Owner(Arc<Client>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.finish(Phase::Aborted);
    }
}

/// Client that keeps a connection to a server: it connects, and connects again after each loss. It
/// is cheap to clone. With the last clone it ends at once, so [`close`](Self::close) it first.
///
/// ```
/// use std::time::Duration;
///
/// use marcato_net::{
///     ClientSecurity, Config, Endpoint, Identity, Message, ReconnectConfig, Reconnecting, Remote,
///     ServerSecurity, Trust,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::default();
/// let identity = Identity::self_signed("meters.example")?;
/// let trust = Trust::Certificate(identity.certificate().ok_or("none")?.clone());
/// let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
/// let server = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
///
/// let remote = Remote::new(server.local_addrs()[0], ClientSecurity::trusting("meters.example", trust));
/// let settings = ReconnectConfig { first: Duration::from_millis(10), ..ReconnectConfig::default() };
/// let client = Reconnecting::new(&config, remote, &settings)?;
///
/// // There is no connection yet: the message waits for it.
/// let mut reading = client.send(Message::new("17.2 kWh").with_receipt()).await?;
/// // The first connection is lost before the server's application has taken anything.
/// server.accept().await?.abort();
/// // The message comes again on the next one.
/// let connection = server.accept().await?;
/// assert_eq!(connection.recv().await?.bytes, "17.2 kWh");
/// reading.received().await?;
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// | sent with | on a loss | the peer's application gets it |
/// |---|---|---|
/// | [`send`](Self::send) | offered again until the peer's transport has acknowledged it | at least once, unless the peer loses what it has acknowledged |
/// | `send`, [with a receipt](Message::with_receipt) | offered again until the peer's application has taken it | at least once |
/// | [`send_at_most_once`](Self::send_at_most_once) | given up as [uncertain](Undelivered::Uncertain), if a connection had it | at most once |
/// | [`request`](Self::request) | fails, if a connection had it | at most once |
/// | [`request_at_least_once`](Self::request_at_least_once) | sent again until there is a reply | at least once |
///
/// An acknowledgement is one of the peer's transport: a server that dies before its application
/// has taken the message loses it. A receipt closes that gap.
///
/// "At least once" ends with the client, with the message's lifetime, and when the message is
/// cancelled or declined. Within each level, messages are offered again in their order, before
/// later ones, and with the rest of their lifetime. One that arrived just before a loss, and whose
/// acknowledgement was lost, arrives twice: on two connections, which nothing at the server links.
/// An application that cannot take that puts a key of its own into each message, for example the
/// sender's name and a number. Its server remembers the keys that it has processed, and ignores a
/// message with a known key.
///
/// # Attempts
///
/// [`ReconnectConfig`] sets the delays. These failures end the client, because the next attempt
/// would meet them as well:
///
/// - an invalid configuration, an address or a name that cannot be used;
/// - a refused certificate of either end, and other failures of TLS;
/// - a peer without TLS, with TLS instead of plaintext, or with none of the protocols;
/// - a peer whose application has closed the connection, unless
///   [`after_close_by_peer`](ReconnectConfig::after_close_by_peer) is set.
///
/// All others are met with another attempt: no address for the name, no route, a refused or lost
/// connection, no answer in time, a server at its limits, a local address that is not there now. So
/// is the end of the current [`connection`](Self::connection) by this application.
///
/// # Memory
///
/// Messages are kept until they are acknowledged. [`Limits::queued`](crate::Limits::queued) and
/// [`Limits::unfinished`](crate::Limits::unfinished) bound them, level by level: at the limit,
/// `send` waits. Long messages and other parts of a connection are used through
/// [`connection`](Self::connection), and are lost with it.
#[derive(Clone)]
pub struct Reconnecting(Arc<Owner>);

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting").field("stats", &self.stats()).finish()
    }
}

impl Reconnecting {
    /// Creates a client, which begins to connect. Call it within the runtime.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(
        config: &Config,
        to: impl Into<Target>,
        settings: &ReconnectConfig,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        settings.validate()?;
        let (sender, settled) = mpsc::unbounded_channel();
        let client = Arc::new(Client {
            config: config.clone(),
            to: to.into(),
            settings: settings.clone(),
            state: Mutex::new(State {
                messages: Unacknowledged::new(config.limits),
                phase: Phase::Open,
                connection: None,
                aside: VecDeque::new(),
                ended: None,
                connections: 0,
                failures: 0,
                discarded: 0,
            }),
            wake: Notify::new(),
            changed: Signal::default(),
            room: Room::default(),
            readers: Mutex::default(),
            settled: sender,
            epoch: Instant::now(),
        });
        let backoff = Backoff::new(settings, client.now());
        let driver = Driver { client: Arc::clone(&client), settled, backoff };
        tokio::spawn(driver.drive().instrument(tracing::debug_span!("reconnecting")));
        Ok(Self(Arc::new(Owner(client))))
    }

    fn client(&self) -> &Arc<Client> {
        &self.0.0
    }

    /// Returns the client's time, in which its events state times.
    pub fn now(&self) -> Time {
        self.client().now()
    }

    /// Accepts a message as soon as there is room for it at its level, and delivers it at least
    /// once. If this is cancelled before that, nothing is sent. An
    /// [unreliable](Message::unreliable) message is offered on one connection only.
    ///
    /// # Errors
    ///
    /// If the client has ended or is closing, or the message cannot be sent at all.
    pub async fn send(&self, message: Message) -> Result<Delivery, SendError> {
        self.keep(&message, Guarantee::AtLeastOnce).await
    }

    /// Accepts a message as soon as there is room for it at its level, and delivers it at most once:
    /// if the connection that has it is lost, it is given up as
    /// [uncertain](Undelivered::Uncertain). As long as no connection has it, it waits for one.
    ///
    /// If it is cancelled before that, nothing is sent.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send).
    pub async fn send_at_most_once(&self, message: Message) -> Result<Delivery, SendError> {
        self.keep(&message, Guarantee::AtMostOnce).await
    }

    /// Accepts a message, if there is room for it, and delivers it at least once.
    ///
    /// # Errors
    ///
    /// [`SendError::Busy`] if its level is full, and the errors of [`send`](Self::send).
    pub fn try_send(&self, message: &Message) -> Result<Delivery, SendError> {
        self.client().keep(message, Guarantee::AtLeastOnce)
    }

    async fn keep(&self, message: &Message, guarantee: Guarantee) -> Result<Delivery, SendError> {
        let client = self.client();
        let attempt = || match client.keep(message, guarantee) {
            Err(SendError::Busy { .. }) => None,
            result => Some(result),
        };
        let admits = |waiting: &Message| lock(&client.state).messages.admits(waiting);
        client.room.send(message, admits, attempt).await
    }

    /// Sends a request as soon as there is a connection with room for it, and waits for the reply,
    /// as [`Connection::request`] does. If the connection is lost before the reply, the request may
    /// or may not have been served.
    ///
    /// Cancelling abandons the request, as that of a connection.
    ///
    /// # Errors
    ///
    /// Those of [`Connection::request`], and if the client ends before there is a connection.
    pub async fn request(&self, message: Message) -> Result<Received, RequestError> {
        self.ask(message, Guarantee::AtMostOnce).await
    }

    /// Sends a request, and sends it again on the next connection if one is lost before the reply:
    /// for requests that may be served twice.
    ///
    /// Cancelling abandons the request, as that of a connection.
    ///
    /// # Errors
    ///
    /// Those of [`request`](Self::request), except the loss of a connection.
    pub async fn request_at_least_once(&self, message: Message) -> Result<Received, RequestError> {
        self.ask(message, Guarantee::AtLeastOnce).await
    }

    async fn ask(&self, message: Message, guarantee: Guarantee) -> Result<Received, RequestError> {
        let client = self.client();
        let deadline = message.lifetime.map(|lifetime| client.now() + lifetime);
        let mut over = None;
        loop {
            let connection = tokio::select! {
                connection = client.current(over.as_ref()) => connection,
                () = client.until(deadline) => return Err(NotDelivered::Expired.into()),
            };
            let connection = connection.map_err(|ended| SendError::Closed(ended.into()))?;
            let lifetime = deadline.map(|at| at.since(client.now()));
            let asked = connection.request(Message { lifetime, ..message.clone() }).await;
            match asked {
                // No connection has had it.
                Err(RequestError::Send(SendError::Closed(_))) => {}
                Err(
                    RequestError::NotDelivered(NotDelivered::Closed(_))
                    | RequestError::NoReply(NoReply::Closed(_)),
                ) if guarantee == Guarantee::AtLeastOnce => {}
                result => return result,
            }
            over = Some(connection);
        }
    }

    /// Waits for a message that has wholly arrived, on whichever connection, and takes the most
    /// urgent of the oldest one. Cancelling loses nothing. Messages that had arrived before the end
    /// of the client are still returned.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn recv(&self) -> Result<Received, Ended> {
        let mut over = None;
        loop {
            let source = self.client().source(over.as_ref()).await?;
            if let Ok(received) = source.recv().await {
                return Ok(received);
            }
            over = Some(source);
        }
    }

    /// Waits for a request of the peer on the current connection or a later one, and takes the most
    /// urgent. Requests end with their connection.
    ///
    /// Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn accept_request(&self) -> Result<Request, Ended> {
        let mut over = None;
        loop {
            let connection = self.client().current(over.as_ref()).await?;
            if let Ok(request) = connection.accept_request().await {
                return Ok(request);
            }
            over = Some(connection);
        }
    }

    /// Returns the current connection, if there is one. If the application ends it, the client
    /// connects again.
    pub fn connection(&self) -> Option<Connection> {
        lock(&self.client().state).connection.clone()
    }

    /// Returns the client's events from now on, as a stream. It begins with
    /// [`Connected`](ReconnectingEvent::Connected) if there is a connection now.
    pub fn events(&self) -> Events<ReconnectingEvent> {
        let state = lock(&self.client().state);
        let events = lock(&self.client().readers).subscribe();
        if state.connection.is_some() {
            events.begin_with(&ReconnectingEvent::Connected);
        }
        events
    }

    /// Returns the client's state and counters.
    pub fn stats(&self) -> ReconnectingStats {
        let state = lock(&self.client().state);
        let (counters, held) = (state.messages.counters(), state.messages.held());
        ReconnectingStats {
            connections: state.connections,
            failures: state.failures,
            messages: held.map(|(messages, _)| messages),
            bytes: held.map(|(_, bytes)| bytes),
            offered_again: counters.offered_again,
            uncertain: counters.uncertain,
            discarded: state.discarded,
        }
    }

    /// Ends the client once all its messages have been acknowledged, on whichever connection, and
    /// those with a receipt taken; no more can be sent from now on. Without a connection it goes on
    /// trying, as long as [`ReconnectConfig::give_up_after`] allows.
    ///
    /// Cancelling does not undo it; [`closed`](Self::closed) waits for the end, too.
    ///
    /// # Errors
    ///
    /// If the client ended for another reason; messages may be undelivered then.
    pub async fn close(&self) -> Result<(), Ended> {
        self.client().finish(Phase::Finishing);
        match self.closed().await {
            Ended::Local => Ok(()),
            other => Err(other),
        }
    }

    /// Ends the client and its connection now. Undelivered messages may be lost.
    pub fn abort(&self) {
        self.client().finish(Phase::Aborted);
    }

    /// Waits until the client has ended, and returns the reason.
    ///
    /// It can be called again, and cancelling loses nothing.
    pub async fn closed(&self) -> Ended {
        self.client().changed.wait_for(|| lock(&self.client().state).ended.clone()).await
    }
}
