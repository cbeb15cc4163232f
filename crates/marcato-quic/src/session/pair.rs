//! Two endpoints with one session between them, lines that join them, and time that moves from
//! event to event.
//!
//! Each lane has a socket at either end and a line in either direction, with its own delay and
//! loss.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes as Payload, BytesMut};
use marcato_identity::{Identity, Trust};
use marcato_sched::conductor::MessageId;
use marcato_units::{Bytes, Duration, Priority, Seed, Stream, Time};
use marcato_wire::{Ecn, Fate, MessageNumber};
use rustls::ClientConfig;

use super::{Message, Session, SessionStats};
use crate::admission::Pending;
use crate::config::SessionConfig;
use crate::controller::Congestion;
use crate::endpoint::{Endpoint, EndpointConfig, LocalSocket, ResetKey, SessionId, SocketId};
use crate::event::Event;
use crate::lane::LaneRequest;

/// Side of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Client,
    Server,
}

impl Who {
    const BOTH: [Self; 2] = [Self::Client, Self::Server];

    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// One direction of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) delay: Duration,
    /// Probability that a datagram is lost; 1 for a dead line.
    pub(super) loss: f64,
}

/// Datagram that an end has sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) from: Who,
    pub(super) left: Time,
    /// Time of its arrival; `None` if it was lost.
    pub(super) arrives: Option<Time>,
    pub(super) len: usize,
    /// Level for which it is marked.
    pub(super) level: Option<Priority>,
}

struct InFlight {
    to: Who,
    lane: u8,
    data: BytesMut,
}

/// Message that an end has read in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) at: Time,
    pub(super) priority: Priority,
    pub(super) body: Vec<u8>,
    /// Set if it arrived early.
    pub(super) early: bool,
}

/// One end: its endpoint, and everything that its session reported.
struct End {
    endpoint: Endpoint,
    id: Option<SessionId>,
    /// Set if the end reads messages as soon as they arrive.
    reads: bool,
    /// Set if the end reports each message once it has read it.
    reports: bool,
    events: Vec<(Time, Event)>,
    partial: BTreeMap<MessageNumber, Vec<u8>>,
    received: Vec<Received>,
}

/// Both ends, the lines between them, and the time.
pub(super) struct Pair {
    pub(super) now: Time,
    ends: [End; 2],
    /// Lines of each lane, indexed by the sending side.
    lines: Vec<[Line; 2]>,
    draws: Stream,
    /// Datagrams that the client's socket of a lane still accepts; unlimited if it has no entry.
    room: BTreeMap<u8, usize>,
    /// Address from which the client's datagrams come; `None` for its own.
    pub(super) client_moved_to: Option<SocketAddr>,
    /// Datagrams in flight, by time of arrival and order of sending.
    in_flight: BTreeMap<(Time, usize), InFlight>,
    /// Every datagram so far.
    pub(super) passed: Vec<Passed>,
}

pub(super) fn address(who: Who, lane: u8) -> SocketAddr {
    match who {
        Who::Client => SocketAddr::from(([10, 0, lane, 1], 1000)),
        Who::Server => SocketAddr::from(([10, 0, lane, 2], 443)),
    }
}

/// Returns a message of `len` bytes whose content depends on the offset.
pub(super) fn message(priority: Priority, len: usize) -> Message {
    Message::new(body(len)).with_priority(priority)
}

/// Returns `len` bytes whose content depends on the offset.
pub(super) fn body(len: usize) -> Payload {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

impl Pair {
    /// Joins two ends by lanes without loss, one for each round-trip time in milliseconds. All
    /// lanes are up when it returns.
    pub(super) fn new(round_trips: &[u64], client: &SessionConfig, server: &SessionConfig) -> Self {
        let mut pair = Self::begin(round_trips, client, server, None);
        pair.run_until(|pair| pair.session(Who::Client).is_open());
        for lane in 1..u8::try_from(round_trips.len()).unwrap() {
            let request = LaneRequest::new(SocketId(lane), address(Who::Server, lane));
            pair.session(Who::Client).add_lane(Time::ZERO, request).unwrap();
        }
        let up = |pair: &Self, who| {
            let events = pair.end(who).events.iter();
            events.filter(|(_, event)| matches!(event, Event::LaneUp(_))).count() == round_trips.len() - 1
        };
        pair.run_until(|pair| Who::BOTH.into_iter().all(|who| up(pair, who)));
        // The rest of the handshake is acknowledged, and its events are of no interest.
        pair.pass(Duration::from_secs(1));
        pair.ends.iter_mut().for_each(|end| end.events.clear());
        pair.passed.clear();
        pair
    }

    /// Lets the client begin to connect. It trusts the server's certificate if `trust` is `None`.
    pub(super) fn begin(
        round_trips: &[u64],
        client: &SessionConfig,
        server: &SessionConfig,
        trust: Option<Trust>,
    ) -> Self {
        Self::begin_with(round_trips, client, server, trust, None)
    }

    /// Lets the client begin to connect to a server whose sockets have a congestion control of their own.
    pub(super) fn begin_with(
        round_trips: &[u64],
        client: &SessionConfig,
        server: &SessionConfig,
        trust: Option<Trust>,
        of_sockets: Option<Congestion>,
    ) -> Self {
        let lanes = u8::try_from(round_trips.len()).unwrap();
        let seed = Seed::new(7);
        let (epoch, now) = (Instant::now(), Time::ZERO);
        let end = |who| {
            let congestion = of_sockets.filter(|_| who == Who::Server);
            let socket = |lane| LocalSocket { congestion, ..LocalSocket::new(address(who, lane)) };
            let sockets = (0..lanes).map(socket).collect();
            let reset_key = Some(ResetKey([7; 64]));
            let config = EndpointConfig { seed: Some(seed), reset_key, ..EndpointConfig::new(sockets) };
            End {
                endpoint: Endpoint::new(config, epoch).unwrap(),
                id: None,
                reads: true,
                reports: false,
                events: Vec::new(),
                partial: BTreeMap::new(),
                received: Vec::new(),
            }
        };
        let mut ends = Who::BOTH.map(end);
        let identity = Identity::self_signed("server").unwrap();
        ends[Who::Server as usize].endpoint.listen(&identity, server.clone()).unwrap();
        let trust = trust.unwrap_or_else(|| Trust::Certificate(identity.certificate().unwrap().clone()));
        let near = &mut ends[Who::Client as usize];
        let to = address(Who::Server, 0);
        let id = near.endpoint.connect(now, SocketId(0), to, "server", &trust, client.clone()).unwrap();
        near.id = Some(id);
        let line = |rtt: &u64| [Line { delay: Duration::from_millis(*rtt) / 2, loss: 0.0 }; 2];
        Self {
            now,
            ends,
            lines: round_trips.iter().map(line).collect(),
            draws: seed.stream("session/pair"),
            room: BTreeMap::new(),
            client_moved_to: None,
            in_flight: BTreeMap::new(),
            passed: Vec::new(),
        }
    }

    /// Lets the client connect once more, with a configuration of TLS that the first connections
    /// may have used. What was recorded before is forgotten.
    pub(super) fn connect_again(&mut self, tls: &Arc<ClientConfig>, session: &SessionConfig) {
        let (now, to) = (self.now, address(Who::Server, 0));
        self.ends.iter_mut().for_each(|end| {
            end.events.clear();
            end.partial.clear();
            end.received.clear();
        });
        self.passed.clear();
        let near = &mut self.ends[Who::Client as usize];
        let (tls, session) = (Arc::clone(tls), session.clone());
        let id = near.endpoint.connect_with(now, SocketId(0), to, "server", tls, session).unwrap();
        near.id = Some(id);
    }

    /// Takes the place of the client among those that the server's application has not accepted.
    pub(super) fn take_pending(&mut self) -> Option<Pending> {
        let end = &mut self.ends[Who::Server as usize];
        end.endpoint.take_pending(end.id?)
    }

    fn end(&self, who: Who) -> &End {
        &self.ends[who as usize]
    }

    /// Replaces the server's endpoint by one that knows nothing but perhaps the key of resets.
    pub(super) fn restart_server(&mut self, reset_key: Option<ResetKey>) {
        let end = &mut self.ends[Who::Server as usize];
        let sockets = (0..).map_while(|lane| end.endpoint.socket(SocketId(lane)).copied()).collect();
        let seed = Some(Seed::new(8));
        let config = EndpointConfig { seed, reset_key, ..EndpointConfig::new(sockets) };
        end.endpoint = Endpoint::new(config, Instant::now()).unwrap();
        end.id = None;
    }

    /// Returns the endpoint of one end.
    pub(super) fn endpoint(&mut self, who: Who) -> &mut Endpoint {
        &mut self.ends[who as usize].endpoint
    }

    /// Returns the session of one end.
    pub(super) fn session(&mut self, who: Who) -> &mut Session {
        let end = &mut self.ends[who as usize];
        end.endpoint.session(end.id.unwrap()).unwrap()
    }

    /// Offers a message at one end.
    pub(super) fn send(&mut self, who: Who, message: Message) -> MessageId {
        let now = self.now;
        self.session(who).send(now, message).unwrap()
    }

    /// Offers a message at one end, and waits until that end has learned of its delivery.
    pub(super) fn deliver(&mut self, who: Who, message: Message) {
        let sent = self.send(who, message);
        self.run_until(|pair| pair.delivered(who, sent).is_some());
    }

    /// Makes an end leave its messages unread.
    pub(super) fn stop_reading(&mut self, who: Who) {
        self.ends[who as usize].reads = false;
    }

    /// Makes an end report each message once it has read it.
    pub(super) fn report_at_once(&mut self, who: Who) {
        self.ends[who as usize].reports = true;
    }

    /// Returns the direction of a lane in which `from` sends.
    pub(super) fn line(&mut self, lane: usize, from: Who) -> &mut Line {
        &mut self.lines[lane][from as usize]
    }

    /// Lets the client's socket of a lane accept this many datagrams, until it is full.
    pub(super) fn set_room(&mut self, lane: u8, datagrams: usize) {
        self.room.insert(lane, datagrams);
        self.ends[Who::Client as usize].endpoint.set_socket_full(SocketId(lane), datagrams == 0);
    }

    /// Makes a lane lose every datagram from now on.
    pub(super) fn kill(&mut self, lane: usize) {
        for who in Who::BOTH {
            self.line(lane, who).loss = 1.0;
        }
    }

    /// Makes a lane lose no datagram from now on.
    pub(super) fn revive(&mut self, lane: usize) {
        for who in Who::BOTH {
            self.line(lane, who).loss = 0.0;
        }
    }

    /// Returns the events of one end since all lanes are up.
    pub(super) fn events(&self, who: Who) -> impl Iterator<Item = &Event> {
        self.end(who).events.iter().map(|(_, event)| event)
    }

    /// Returns the events of one end with their times.
    pub(super) fn timed_events(&self, who: Who) -> impl Iterator<Item = &(Time, Event)> {
        self.end(who).events.iter()
    }

    /// Returns the time at which the sender learned that a message was delivered.
    pub(super) fn delivered(&self, who: Who, message: MessageId) -> Option<Time> {
        let mut events = self.end(who).events.iter();
        events.find(|(_, event)| *event == Event::Delivered(message)).map(|(at, _)| *at)
    }

    /// Returns the messages that one end has read, in the order of their completion.
    pub(super) fn received(&self, who: Who) -> &[Received] {
        &self.end(who).received
    }

    /// Returns the session's counters at one end.
    pub(super) fn stats(&mut self, who: Who) -> SessionStats {
        self.session(who).stats()
    }

    /// Lets `span` pass.
    pub(super) fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            self.settle();
            if !self.advance(until) {
                return;
            }
        }
    }

    /// Lets time pass until `done` returns true. A minute is a failure.
    pub(super) fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let until = self.now + Duration::from_secs(60);
        loop {
            self.settle();
            if done(self) {
                return;
            }
            assert!(self.advance(until), "it did not happen within a minute");
        }
    }

    /// Lets both ends send and report what they can at this moment.
    fn settle(&mut self) {
        let mut buf = Vec::new();
        for who in Who::BOTH {
            let mut sent = 0;
            loop {
                buf.clear();
                let end = &mut self.ends[who as usize];
                let transmit = end.endpoint.poll_transmit(self.now, NonZeroUsize::MIN, &mut buf);
                if let Some(session) = end.id.and_then(|id| end.endpoint.session(id)) {
                    let left = session.lanes.iter().find(|lane| !lane.gate.is_as_the_controller_says());
                    assert!(left.is_none(), "a poll leaves a gate changed: {left:?}");
                }
                if let Some(transmit) = transmit {
                    let segment = transmit.segment.unwrap_or(transmit.len);
                    for datagram in buf[..transmit.len].chunks(segment) {
                        self.send_datagram(who, transmit.socket.0, BytesMut::from(datagram));
                        if let Some(passed) = self.passed.last_mut() {
                            passed.level = transmit.level;
                        }
                        let room = self.room.get_mut(&transmit.socket.0).filter(|_| who == Who::Client);
                        if let Some(room) = room {
                            *room = room.saturating_sub(1);
                            let full = *room == 0;
                            let endpoint = &mut self.ends[who as usize].endpoint;
                            endpoint.set_socket_full(transmit.socket, full);
                        }
                    }
                    sent += 1;
                    assert!(sent < 100_000, "{who:?} sends without end");
                } else if !self.report(who) {
                    break;
                }
            }
        }
    }

    /// Takes the events of one end, and what it may read. Returns whether it read anything.
    fn report(&mut self, who: Who) -> bool {
        let (now, end) = (self.now, &mut self.ends[who as usize]);
        while let Some((id, event)) = end.endpoint.poll_event() {
            end.id = Some(id);
            end.events.push((now, event));
        }
        let Some(session) = end.id.filter(|_| end.reads).and_then(|id| end.endpoint.session(id)) else {
            return false;
        };
        let mut any = false;
        while let Some(piece) = session.read(now) {
            any = true;
            let partial = end.partial.entry(piece.message).or_default();
            assert_eq!(piece.offset, Bytes::new(partial.len() as u64));
            partial.extend_from_slice(&piece.bytes);
            if piece.last {
                let body = std::mem::take(partial);
                end.partial.remove(&piece.message);
                if end.reports {
                    session.report(piece.message, Fate::Taken);
                }
                end.received.push(Received { at: now, priority: piece.priority, body, early: piece.early });
            }
        }
        any
    }

    /// Sends a datagram of one end on a lane.
    pub(super) fn send_datagram(&mut self, from: Who, lane: u8, data: BytesMut) {
        let Line { delay, loss } = self.lines[usize::from(lane)][from as usize];
        let lost = self.draws.chance(loss);
        let arrives = (!lost).then_some(self.now + delay);
        self.passed.push(Passed { from, left: self.now, arrives, len: data.len(), level: None });
        if let Some(at) = arrives {
            self.in_flight.insert((at, self.passed.len()), InFlight { to: from.other(), lane, data });
        }
    }

    /// Advances to the next arrival or timer up to `until`; returns `false` if there is none.
    fn advance(&mut self, until: Time) -> bool {
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let timers = self.ends.iter().filter_map(|end| end.endpoint.next_timeout());
        let Some(next) = timers.chain(arrival).min().filter(|next| *next <= until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let InFlight { to, lane, data } = entry.remove();
            let moved = self.client_moved_to.filter(|_| to == Who::Server);
            let from = moved.unwrap_or_else(|| address(to.other(), lane));
            let endpoint = &mut self.ends[to as usize].endpoint;
            endpoint.handle_datagram(self.now, SocketId(lane), from, Ecn::NotEct, data);
        }
        for end in &mut self.ends {
            if end.endpoint.next_timeout().is_some_and(|at| at <= self.now) {
                end.endpoint.handle_timeout(self.now);
            }
        }
        true
    }
}
