//! Connections and messages: the application's interface.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use marcato_identity::PeerIdentity;
use marcato_sched::lane::LaneId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_stream::{CloseReason, Message, Missed, Received};
use marcato_units::{Bytes, Priority, Time};

use crate::config::LaneConfig;
use crate::error::{
    AddLaneError, ChangeLaneError, Closed, ExportError, RequestError, ReserveError, SendError,
};
use crate::event::{ConnectionEvent, Events};
use crate::long::LongSender;
use crate::long_message::LongMessage;
use crate::message_handle::{MessageHandle, offer};
use crate::request::{Asked, Request};
use crate::shared::{Shared, Transport};
use crate::signal::lock;
use crate::stats::ConnectionStats;

/// Owner of the transport: the connection ends with its last handle.
struct Handle(Arc<dyn Transport>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.abort(None);
    }
}

/// Connection over either engine. It is cheap to clone. With the last clone the connection ends at
/// once, so [`close`](Self::close) it first.
///
/// Handles are equal if they are of one connection, so a connection can be the key of a map.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("stats", &self.stats()).finish()
    }
}

impl PartialEq for Connection {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Connection {}

impl Hash for Connection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.stable_id().hash(state);
    }
}

impl Connection {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self(Arc::new(Handle(transport)))
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.0.0
    }

    fn shared(&self) -> &Shared {
        self.transport().shared()
    }

    /// Returns a number that all handles of this connection share, and no other connection of the process has while one
    /// of them exists.
    pub fn stable_id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns the transport without keeping the connection's memory.
    pub(crate) fn downgrade(&self) -> Weak<dyn Transport> {
        Arc::downgrade(&self.0.0)
    }

    /// Returns the transport for inspection, also after its end. It does not keep the connection
    /// open.
    #[cfg(feature = "metrics")]
    pub(crate) fn share(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.0.0)
    }

    /// Returns the connection's current time, in which the releases of a [`Source`] are given.
    pub fn now(&self) -> Time {
        self.transport().now()
    }

    /// Queues a message, if there is room for it.
    ///
    /// # Errors
    ///
    /// [`SendError::Busy`] if the queue of its level is full, or the message has to wait until the
    /// [handshake is complete](Self::established), and the errors of [`send`](Self::send).
    pub fn try_send(&self, message: &Message) -> Result<MessageHandle, SendError> {
        offer(&self.0.0, message)
    }

    /// Queues a message as soon as there is room for it at its level. If it is cancelled before
    /// that, nothing is sent.
    ///
    /// Tasks that wait here are woken one for each place that becomes free, in the order in which they began to wait.
    /// A task that was woken has to be polled or dropped, as with a semaphore.
    ///
    /// # Errors
    ///
    /// If the connection has ended or is closing, or the message cannot be sent at all.
    pub async fn send(&self, message: Message) -> Result<MessageHandle, SendError> {
        let attempt = || match self.try_send(&message) {
            Err(SendError::Busy { .. }) => None,
            result => Some(result),
        };
        self.shared().room.send(&message, |waiting| self.transport().admits(waiting), attempt).await
    }

    /// Sends a request as soon as there is room for it, and waits for the reply. Both are messages,
    /// each with its own priority. The reply is received whole, so it has at most
    /// [`Limits::max_message`](crate::Limits::max_message) bytes. Any number of requests up to
    /// [`Limits::requests`](crate::Limits::requests) may be open, and their replies come in any
    /// order. At the limit, it waits. Cancelling abandons the request: the peer learns of it
    /// ([`Request::withdrawn`]), and a reply that comes nevertheless is discarded and counted.
    ///
    /// ```
    /// # use marcato_net::{
    /// #     ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Priority, Remote,
    /// #     ServerSecurity, Trust,
    /// # };
    /// /// Answers each request in a task, so that none waits for another.
    /// async fn serve(connection: Connection) {
    ///     while let Ok(request) = connection.accept_request().await {
    ///         tokio::spawn(async move {
    ///             let text = request.message().bytes.to_ascii_uppercase();
    ///             let reply = Message::new(text).with_priority(request.message().priority);
    ///             request.reply(reply).await
    ///         });
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let identity = Identity::self_signed("shout.example")?;
    /// # let trust = Trust::Certificate(identity.certificate().ok_or("it has one")?.clone());
    /// # let config = Config::new(Engine::Quic);
    /// # let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// # let endpoint = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
    /// # let remote =
    /// #     Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("shout.example", trust));
    /// # let (connected, server) = tokio::join!(Endpoint::connect(&config, &remote), endpoint.accept());
    /// # let (connection, server) = (connected?, server?);
    /// tokio::spawn(serve(server));
    /// let urgent = connection.request(Message::new("now").with_priority(Priority::P0));
    /// let other = connection.request(Message::new("some time"));
    /// let (urgent, other) = tokio::try_join!(urgent, other)?;
    /// assert_eq!((&urgent.bytes[..], &other.bytes[..]), (&b"NOW"[..], &b"SOME TIME"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the request cannot be sent or is abandoned, if the peer does not reply
    /// ([`NoReply`](crate::NoReply)), or if the connection ends before the reply.
    pub async fn request(&self, message: Message) -> Result<Received, RequestError> {
        Asked::begin(&self.0.0, message).await?.reply().await
    }

    /// Waits for a [request](Self::request) of the peer, and takes the most urgent.
    /// [`recv`](Self::recv) does not return requests. Cancelling loses nothing.
    ///
    /// At most [`Limits::requests`](crate::Limits::requests) may be without a reply; more are
    /// refused. Requests that are not accepted count as unread messages.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn accept_request(&self) -> Result<Request, Closed> {
        let accepted = self.shared().readable.wait_for(|| {
            let mut inbound = lock(&self.shared().inbound);
            if let Some(closed) = inbound.closed() {
                return Some(Err(closed.clone()));
            }
            inbound.take_request().map(Ok).or_else(|| inbound.ended().map(Err))
        });
        let (exchange, message) = accepted.await?;
        self.transport().resume();
        Ok(Request::new(message, exchange, Arc::clone(&self.0.0)))
    }

    /// Begins a message that is sent piece by piece, because it is not complete yet or too long for
    /// memory.
    ///
    /// # Errors
    ///
    /// If the connection has ended or is closing.
    pub fn send_long(&self, priority: Priority) -> Result<LongSender, SendError> {
        LongSender::new(Arc::clone(&self.0.0), priority, false)
    }

    /// Opens a stream to the peer: bytes that arrive in the order in which they were written, each as soon as it can.
    /// For keystrokes, a log, or the output of a program.
    ///
    /// The peer gets it by [`accept_long`](Self::accept_long) with its first bytes, whatever its
    /// [`Limits::long_messages`](crate::Limits::long_messages). Streams of different priorities are ordered as messages
    /// are; a stream does not wait for another's lost packet. For the other direction, the peer opens a stream of its
    /// own.
    ///
    /// # Errors
    ///
    /// If the connection has ended or is closing.
    pub fn open_stream(&self, priority: Priority) -> Result<LongSender, SendError> {
        LongSender::new(Arc::clone(&self.0.0), priority, true)
    }

    /// Returns the longest [unreliable](Message::unreliable) message that can be sent now; `None`
    /// if the peer accepts none, or the connection has ended. Over TCP it is the longest message of
    /// all.
    pub fn max_unreliable(&self) -> Option<Bytes> {
        self.transport().max_unreliable()
    }

    /// Waits for a message that has wholly arrived, and takes the most urgent. Messages that had
    /// arrived before the connection ended are still returned.
    ///
    /// While the application takes no messages of a level, the peer holds the level from
    /// [`Limits::unread`](crate::Limits::unread) on; other levels go on. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the peer has [finished](Self::finish) sending.
    pub async fn recv(&self) -> Result<Received, Closed> {
        let received = self.shared().readable.wait_for(|| self.shared().take()).await?;
        self.transport().resume();
        Ok(received)
    }

    /// Waits for the next [stream](Self::open_stream) of the peer that begins to arrive, or long message, if they are
    /// [streamed](crate::LongMessages::Stream). A stream that nobody accepts counts as an unread message.
    ///
    /// Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn accept_long(&self) -> Result<LongMessage, Closed> {
        let begun = self.shared().readable.wait_for(|| {
            let mut inbound = lock(&self.shared().inbound);
            inbound.take_long().map(Ok).or_else(|| inbound.ended().map(Err))
        });
        let (number, priority, early) = begun.await?;
        Ok(LongMessage::new(number, priority, early, Arc::clone(&self.0.0)))
    }

    /// Waits for the next message that the peer has abandoned, for example because its lifetime
    /// ended.
    ///
    /// Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn missed(&self) -> Result<Missed, Closed> {
        self.shared()
            .readable
            .wait_for(|| {
                let mut inbound = lock(&self.shared().inbound);
                inbound.take_missed().map(Ok).or_else(|| inbound.ended().map(Err))
            })
            .await
    }

    /// Declares a periodic source, so that room in the congestion window is kept for its messages
    /// ([`from_source`](Message::from_source)) when they are due. Declaring it again changes it.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the engine cannot keep room: kernel TCP.
    pub fn reserve(&self, key: SourceKey, source: Source) -> Result<(), ReserveError> {
        self.transport().reserve(key, source)
    }

    /// Withdraws a source; returns `false` if there was none.
    pub fn release(&self, key: SourceKey) -> bool {
        self.transport().release(key)
    }

    /// Adds a lane while the connection runs: only at a client. It carries data as soon as the path
    /// has been validated; [`stats`](Self::stats) reports when it is usable. Call it within the
    /// runtime.
    ///
    /// ```no_run
    /// # async fn roam(connection: &marcato_net::Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// use marcato_net::LaneConfig;
    /// // The server's second address, by another interface of ours.
    /// let lane = LaneConfig::new("[2001:db8::2]:4433".parse()?).from("[2001:db8:1::7]:0".parse()?);
    /// connection.add_lane(lane)?;
    /// // Later, the first one goes.
    /// let first = connection.stats().lanes[0].id;
    /// connection.remove_lane(first)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Over TCP, at a server, if the system refuses the address, at the limit of lanes, or if
    /// another lane goes to the same address.
    pub fn add_lane(&self, lane: LaneConfig) -> Result<(), AddLaneError> {
        self.transport().add_lane(lane)
    }

    /// Closes a lane while the connection runs. Its packets in flight are sent again on other
    /// lanes.
    ///
    /// # Errors
    ///
    /// Over TCP, if there is no such lane, or it is the last.
    pub fn remove_lane(&self, lane: LaneId) -> Result<(), ChangeLaneError> {
        self.transport().remove_lane(lane)
    }

    /// Sets whether a lane is used only while no other is available. The peer is informed, and does
    /// the same.
    ///
    /// # Errors
    ///
    /// Over TCP, or if there is no such lane.
    pub fn set_backup(&self, lane: LaneId, backup: bool) -> Result<(), ChangeLaneError> {
        self.transport().set_backup(lane, backup)
    }

    /// Refuses messages less urgent than `threshold` from now on and drops those queued
    /// (Save-Data). [`Priority::P4`] accepts every level again.
    pub fn discard_less_urgent_than(&self, threshold: Priority) {
        self.transport().discard_less_urgent_than(threshold);
        self.shared().report(&ConnectionEvent::ThresholdChanged(threshold));
    }

    /// Waits until the handshake is complete. Only connections with early data exist before: those
    /// of [`Endpoint::connect_early`](crate::Endpoint::connect_early), and at a server those of
    /// clients whose early data it has accepted. Others return at once.
    ///
    /// A server that acts on an [early](Received::early) message only after this acts on no replay:
    /// an attacker cannot complete the handshake. It may still get the message twice if several
    /// servers share the name, because a client sends again what one of them rejects.
    ///
    /// It can be called again, and cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended, for example because the handshake has failed.
    pub async fn established(&self) -> Result<(), Closed> {
        let established = || {
            let over = self.shared().closed().map(Err);
            over.or_else(|| (!self.transport().is_early()).then_some(Ok(())))
        };
        self.shared().readable.wait_for(established).await
    }

    /// Returns the address of the peer: over QUIC, that of the first lane. After the end, it is the
    /// last one.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.stats().lanes.first().and_then(|lane| lane.remote)
    }

    /// Returns the identity that the peer has proved, also after the end. At a server, it is `None`
    /// for a client without a certificate, which only [`ServerSecurity::Mutual`] asks for; at
    /// either end, it is `None` in plaintext.
    ///
    /// [`ServerSecurity::Mutual`]: crate::ServerSecurity::Mutual
    pub fn peer_identity(&self) -> Option<&PeerIdentity> {
        self.shared().handshake.get()?.peer.as_ref()
    }

    /// Returns the application's protocol that was negotiated, also after the end; `None` in
    /// plaintext.
    ///
    /// ```
    /// use marcato_net::{ClientSecurity, Config, Endpoint, Identity, Remote, ServerSecurity, Trust};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let protocols = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    /// let config = Config { alpn: protocols(&["chat/2", "chat/1"]), ..Config::default() };
    /// let identity = Identity::self_signed("chat.example")?;
    /// let trust = Trust::Certificate(identity.certificate().ok_or("none")?.clone());
    /// let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// let server = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
    ///
    /// let old = Config { alpn: protocols(&["chat/1"]), ..Config::default() };
    /// let remote = Remote::new(server.local_addrs()[0], ClientSecurity::trusting("chat.example", trust));
    /// let client = Endpoint::connect(&old, &remote).await?;
    /// assert_eq!(client.alpn(), Some(&b"chat/1"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn alpn(&self) -> Option<&[u8]> {
        self.shared().handshake.get()?.alpn.as_deref()
    }

    /// Returns the name of the server that the client has asked for (RFC 6066 §3), also after the end: at a server, `None` if the
    /// client has asked for none; at a client, and in plaintext, always `None`.
    pub fn server_name(&self) -> Option<&str> {
        self.shared().handshake.get()?.server_name.as_deref()
    }

    /// Returns whether the connection has resumed the TLS session of an earlier one
    /// ([`Sessions`](crate::Sessions)), also after the end. The
    /// [identity of the peer](Self::peer_identity) is that of the earlier one then.
    pub fn resumed(&self) -> bool {
        self.shared().handshake.get().is_some_and(|handshake| handshake.resumed)
    }

    /// Fills `out` with keying material of the connection (RFC 8446 §7.5): secret bytes that the
    /// other end gets for the same label and context, for example to bind a login to this very
    /// connection. The label should begin with `EXPORTER` and name its purpose (RFC 5705 §4).
    ///
    /// ```
    /// use marcato_net::{ClientSecurity, Config, Endpoint, Identity, Remote, ServerSecurity, Trust};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = Config::default();
    /// # let identity = Identity::self_signed("chat.example")?;
    /// # let trust = Trust::Certificate(identity.certificate().ok_or("none")?.clone());
    /// # let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// # let server = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
    /// # let remote = Remote::new(server.local_addrs()[0], ClientSecurity::trusting("chat.example", trust));
    /// let (client, accepted) = tokio::join!(Endpoint::connect(&config, &remote), server.accept());
    /// let (client, accepted) = (client?, accepted?);
    /// let [mut near, mut far] = [[0; 32]; 2];
    /// client.export_keying_material(&mut near, b"EXPORTER-chat-login", b"alice")?;
    /// accepted.export_keying_material(&mut far, b"EXPORTER-chat-login", b"alice")?;
    /// assert_eq!(near, far);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// In plaintext, after the end of the connection, or for no bytes or more than TLS derives. `out`
    /// is then of no use.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        if self.shared().closed().is_some() {
            return Err(ExportError::Closed);
        }
        self.transport().export(out, label, context)
    }

    /// Returns the connection's events from now on, as a stream.
    ///
    /// ```no_run
    /// # async fn watch(connection: &marcato_net::Connection) {
    /// use marcato_net::ConnectionEvent;
    ///
    /// let mut events = connection.events();
    /// while let Some(event) = events.next().await {
    ///     if let ConnectionEvent::LaneDown { lane, reason, .. } = event {
    ///         eprintln!("lane {lane:?} is down: {reason:?}");
    ///     }
    /// }
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        self.shared().subscribe()
    }

    /// Returns the connection's state and counters.
    pub fn stats(&self) -> ConnectionStats {
        self.transport().stats()
    }

    /// Ends the connection when all messages have been [acknowledged](MessageHandle::acknowledged);
    /// no more can be sent from now on. It waits for no receipt of the peer's application. The
    /// peer's messages that this application has taken are reported before the end.
    ///
    /// A peer that takes them slowly is waited for. If it takes nothing, this ends over TCP after
    /// `TcpConfig::close_timeout`, and over QUIC not at all: set a timeout and then
    /// [`abort`](Self::abort).
    ///
    /// The acknowledgements come with the peer's own messages, so [`recv`](Self::recv) has to go on.
    /// If the inbox stays full for `TcpConfig::linger`, further messages are declined over TCP, and
    /// the peer learns that they were not delivered.
    ///
    /// Cancelling does not undo it; [`closed`](Self::closed) waits for the end, too.
    ///
    /// # Errors
    ///
    /// If the connection was lost before everything was delivered.
    pub async fn close(&self) -> Result<(), Closed> {
        self.close_with(CloseReason::default()).await
    }

    /// Ends the connection as [`close`](Self::close) does, and gives the peer's application this
    /// reason ([`Closed::ByPeer`]). The first reason given counts.
    ///
    /// ```
    /// # use marcato_net::{
    /// #     ClientSecurity, CloseReason, Closed, Config, Endpoint, Identity, Remote, ServerSecurity, Trust,
    /// # };
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let identity = Identity::self_signed("game.example")?;
    /// # let trust = Trust::Certificate(identity.certificate().ok_or("it has one")?.clone());
    /// # let config = Config::default();
    /// # let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// # let endpoint = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
    /// # let remote =
    /// #     Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("game.example", trust));
    /// # let (connected, server) = tokio::join!(Endpoint::connect(&config, &remote), endpoint.accept());
    /// # let (connection, server) = (connected?, server?);
    /// const MAINTENANCE: u32 = 7;
    /// let told = CloseReason::new(MAINTENANCE, "back at noon");
    /// let (closed, learnt) = tokio::join!(server.close_with(told.clone()), connection.closed());
    /// closed?;
    /// assert_eq!(learnt, Closed::ByPeer(told));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancelling does not undo it; [`closed`](Self::closed) waits for the end, too.
    ///
    /// # Errors
    ///
    /// If the connection was lost before everything was delivered.
    pub async fn close_with(&self, reason: CloseReason) -> Result<(), Closed> {
        self.transport().close(reason);
        match self.closed().await {
            Closed::Local => Ok(()),
            other => Err(other),
        }
    }

    /// Sends no more messages, replies included, and waits until all are
    /// [acknowledged](MessageHandle::acknowledged). The peer's [`recv`](Self::recv) returns
    /// [`Closed::Finished`] after the last of them. The peer goes on sending: the connection ends
    /// when either end closes it. Cancelling does not undo it.
    ///
    /// ```
    /// # use marcato_net::{
    /// #     ClientSecurity, Closed, Config, Endpoint, Identity, Message, Remote, ServerSecurity, Trust,
    /// # };
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let identity = Identity::self_signed("sum.example")?;
    /// # let trust = Trust::Certificate(identity.certificate().ok_or("it has one")?.clone());
    /// # let config = Config::default();
    /// # let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
    /// # let endpoint = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
    /// # let remote =
    /// #     Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("sum.example", trust));
    /// # let (connected, server) = tokio::join!(Endpoint::connect(&config, &remote), endpoint.accept());
    /// # let (connection, server) = (connected?, server?);
    /// for number in 1..=10_u8 {
    ///     connection.send(Message::new(vec![number])).await?;
    /// }
    /// connection.finish().await?;
    ///
    /// // The server knows that it has all numbers, and can still answer.
    /// let mut sum = 0;
    /// let end = loop {
    ///     match server.recv().await {
    ///         Ok(number) => sum += number.bytes[0],
    ///         Err(end) => break end,
    ///     }
    /// };
    /// assert_eq!(end, Closed::Finished);
    /// server.send(Message::new(vec![sum])).await?;
    /// assert_eq!(connection.recv().await?.bytes[..], [55]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the connection ends before.
    pub async fn finish(&self) -> Result<(), Closed> {
        self.transport().finish();
        let delivered = || {
            let over = self.shared().closed().map(Err);
            over.or_else(|| self.transport().is_delivered().then_some(Ok(())))
        };
        self.shared().room.changes().wait_for(delivered).await
    }

    /// Ends the connection now. Undelivered messages may be lost. The peer learns that it was lost
    /// ([`Closed::Lost`]).
    pub fn abort(&self) {
        self.transport().abort(None);
    }

    /// Ends the connection as [`abort`](Self::abort) does, and gives the peer's application this
    /// reason ([`Closed::Aborted`]), unless the path or the peer is dead. Over TCP, the connection
    /// ends once the peer has it, or after `TcpConfig::linger`.
    pub fn abort_with(&self, reason: CloseReason) {
        self.transport().abort(Some(reason));
    }

    /// Returns the reason for which the connection has ended; `None` before that. It does not wait.
    ///
    /// [`Closed::cause`] tells a program what happened, and [`Closed::is_retryable`] whether another connection may
    /// succeed.
    pub fn close_reason(&self) -> Option<Closed> {
        self.shared().closed()
    }

    /// Waits until the connection has ended, and returns the reason.
    ///
    /// It can be called again, and cancelling loses nothing.
    pub async fn closed(&self) -> Closed {
        self.shared().readable.wait_for(|| self.shared().closed()).await
    }
}
