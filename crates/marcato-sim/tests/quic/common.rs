//! Shared parts of the tests: applications that check every byte, and networks for them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes as Payload;
use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_quic::{
    Congestion, Event, Identity, LaneError, LaneRequest, Message, MessageId, MessageNumber, Piece, Session,
    SessionConfig, SocketId, Trust,
};
use marcato_sim::quic::{QuicApp, QuicContext, QuicHost, QuicRole};
use marcato_sim::{
    DatagramFlow, Family, FlowId, HostContext, LinkConfig, LinkId, Network, Packet, Route, RouteId, Side,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// Returns bytes that differ at each position of each message.
pub(crate) fn body(index: u64, len: usize) -> Payload {
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// FNV-1a hash.
pub(crate) fn hash(bytes: &[u8], from: u64) -> u64 {
    bytes.iter().fold(from, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

pub(crate) const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Message that has arrived in full or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Received {
    pub(crate) priority: Priority,
    pub(crate) len: u64,
    pub(crate) hash: u64,
    pub(crate) done: Option<Time>,
}

/// Properties of a message when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) id: MessageId,
    pub(crate) at: Time,
    pub(crate) priority: Priority,
    pub(crate) len: u64,
    pub(crate) hash: u64,
}

/// Application that sends planned messages, optionally with background data. It checks that it
/// receives each message in order, without gap, repetition or data after its end.
#[derive(Default)]
pub(crate) struct Peer {
    plan: VecDeque<(Time, Message)>,
    /// Level to keep busy with background data, and the time until which to do so.
    fill: Option<(Priority, Time)>,
    open: bool,
    /// Times between which it does not read.
    deaf: Option<(Time, Time)>,
    now: Time,
    woken: bool,
    pub(crate) sent: Vec<Sent>,
    pub(crate) refused: u64,
    pub(crate) received: BTreeMap<MessageNumber, Received>,
    pub(crate) bytes: [u64; Priority::COUNT],
    pub(crate) events: Vec<(Time, Event)>,
    made: u64,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sends these messages at these times, or as soon as there is a session.
    pub(crate) fn sending(mut self, plan: impl IntoIterator<Item = (Time, Message)>) -> Self {
        self.plan.extend(plan);
        self.plan.make_contiguous().sort_by_key(|(at, _)| *at);
        self
    }

    /// Keeps data of this level queued until a time.
    pub(crate) fn filling(self, priority: Priority, until: Time) -> Self {
        Self { fill: Some((priority, until)), ..self }
    }

    /// Stops reading between two times.
    pub(crate) fn deaf(self, from: Time, to: Time) -> Self {
        Self { deaf: Some((from, to)), ..self }
    }

    fn send(&mut self, now: Time, session: &mut Session, message: Message) -> Option<MessageId> {
        let (priority, len) = (message.priority, message.body.len() as u64);
        let hash = hash(&message.body, EMPTY);
        match session.send(now, message) {
            Ok(id) => {
                self.sent.push(Sent { id, at: now, priority, len, hash });
                Some(id)
            }
            Err(_) => {
                self.refused += 1;
                None
            }
        }
    }

    /// Returns the messages that have arrived in full.
    pub(crate) fn complete(&self) -> Vec<(Priority, u64, u64)> {
        let done = self.received.values().filter(|message| message.done.is_some());
        let mut all: Vec<_> = done.map(|it| (it.priority, it.len, it.hash)).collect();
        all.sort_unstable();
        all
    }

    /// Returns the messages that were sent.
    pub(crate) fn handed(&self) -> Vec<(Priority, u64, u64)> {
        let mut all: Vec<_> = self.sent.iter().map(|it| (it.priority, it.len, it.hash)).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(_, event)| which(event)).count()
    }

    pub(crate) fn first(&self, which: impl Fn(&Event) -> bool) -> Option<Time> {
        self.events.iter().find(|(_, event)| which(event)).map(|(at, _)| *at)
    }
}

impl QuicApp for Peer {
    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {
        let ended = self.events.iter().any(|(_, event)| matches!(event, Event::Closed { .. }));
        assert!(!ended, "{event:?} after the end");
        self.now = context.now();
        if *event == Event::Connected {
            self.open = true;
        }
        if *event != Event::Readable {
            self.events.push((context.now(), event.clone()));
        }
        if let Event::GivenUp { message, .. } = event {
            self.received.remove(message);
        }
    }

    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {
        self.bytes[piece.priority.index()] += piece.bytes.len() as u64;
        let message = self.received.entry(piece.message).or_insert(Received {
            priority: piece.priority,
            len: 0,
            hash: EMPTY,
            done: None,
        });
        assert_eq!(message.done, None, "{:?} has ended", piece.message);
        assert_eq!(message.priority, piece.priority);
        assert_eq!(message.len, piece.offset.get(), "a gap or a repetition in {:?}", piece.message);
        message.len += piece.bytes.len() as u64;
        message.hash = hash(&piece.bytes, message.hash);
        message.done = piece.last.then_some(context.now());
    }

    fn reads(&self) -> bool {
        self.deaf.is_none_or(|(from, to)| self.now < from || self.now >= to)
    }

    fn timer(&mut self, context: &mut QuicContext<'_>) {
        let now = context.now();
        self.now = now;
        self.woken |= self.deaf.is_some_and(|(_, to)| now >= to);
        while self.plan.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, message)) = self.plan.pop_front() {
                self.send(now, context.session(), message);
            }
        }
    }

    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        let now = context.now();
        self.now = now;
        let Some((priority, _)) = self.fill.filter(|(_, until)| now < *until) else { return false };
        if context.session().conducted().level(priority).queued.bytes >= Bytes::kb(100) {
            return false;
        }
        self.made += 1;
        let message = Message::new(body(1 << 40 | self.made, 100_000)).with_priority(priority);
        self.send(now, context.session(), message).is_some()
    }

    fn next_timer(&self) -> Option<Time> {
        let plan = self.plan.front().map(|(at, _)| *at).filter(|_| self.open);
        let wake = self.deaf.map(|(_, to)| to).filter(|_| !self.woken);
        [plan, wake].into_iter().flatten().min()
    }
}

/// Path of a test's network.
pub(crate) struct PathSpec {
    pub(crate) up: LinkConfig,
    pub(crate) down: LinkConfig,
}

/// Path with equal links in both directions.
pub(crate) fn path(mbps: u64, one_way_ms: u64) -> PathSpec {
    let link = || LinkConfig::new(Rate::from_mbps(mbps), ms(one_way_ms));
    PathSpec { up: link(), down: link() }
}

impl PathSpec {
    pub(crate) fn map(self, change: impl Fn(LinkConfig) -> LinkConfig) -> Self {
        Self { up: change(self.up), down: change(self.down) }
    }
}

/// Client and server, with a path for each lane.
pub(crate) struct Pair {
    pub(crate) net: Network,
    pub(crate) flow: FlowId,
    /// Links from the client, and from the server, for each path.
    pub(crate) links: Vec<(LinkId, LinkId)>,
}

/// Configuration of a pair.
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) client: SessionConfig,
    pub(crate) server: SessionConfig,
    pub(crate) family: Family,
    pub(crate) tune: fn(&mut marcato_quic::EndpointConfig),
}

impl Setup {
    pub(crate) fn new(seed: u64, config: &SessionConfig) -> Self {
        Self { seed, client: config.clone(), server: config.clone(), family: Family::V4, tune: |_| {} }
    }

    pub(crate) fn pair(self, paths: Vec<PathSpec>, client: Peer, server: Peer) -> Pair {
        let mut net = Network::new(Seed::new(self.seed));
        let far = net.node("server");
        let mut links = Vec::new();
        let mut routes = Vec::new();
        for (index, path) in paths.into_iter().enumerate() {
            let near = net.node(&format!("client/{index}"));
            links.push(net.link(near, far, path.up, path.down));
            routes.push(Route::new(near, far));
        }
        self.over(net, links, routes, client, server)
    }

    /// Sets up the pair over an existing network.
    pub(crate) fn over(
        self,
        mut net: Network,
        links: Vec<(LinkId, LinkId)>,
        routes: Vec<Route>,
        client: Peer,
        server: Peer,
    ) -> Pair {
        let (identity, trust) = identity();
        let epoch = Instant::now();
        let role = QuicRole::Client { trust, name: "server".to_owned() };
        let client = QuicHost::new(role, self.client, epoch, client);
        let server =
            QuicHost::new(QuicRole::Server { identity }, self.server, epoch, server).tuned(self.tune);
        let flow = DatagramFlow::new(client, server, routes).family(self.family);
        let flow = net.datagrams(flow).unwrap();
        Pair { net, flow, links }
    }
}

pub(crate) fn identity() -> (Identity, Trust) {
    let identity = Identity::self_signed("server").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    (identity, trust)
}

impl Pair {
    pub(crate) fn new(
        seed: u64,
        config: &SessionConfig,
        paths: Vec<PathSpec>,
        client: Peer,
        server: Peer,
    ) -> Self {
        Setup::new(seed, config).pair(paths, client, server)
    }

    pub(crate) fn run(&mut self, until_ms: u64) -> &mut Self {
        self.net.run_until(at(until_ms));
        self
    }

    pub(crate) fn host(&self, side: Side) -> &QuicHost {
        self.net.host(self.flow, side).unwrap()
    }

    pub(crate) fn peer(&self, side: Side) -> &Peer {
        self.host(side).app().unwrap()
    }

    pub(crate) fn session(&self, side: Side) -> &Session {
        self.host(side).session().unwrap()
    }

    /// Calls `act` with a session, now.
    pub(crate) fn with<R>(&mut self, side: Side, act: impl FnOnce(&mut Session, Time) -> R) -> R {
        self.net
            .with_host(self.flow, side, |host: &mut QuicHost, now, _| act(host.session_mut().unwrap(), now))
            .unwrap()
    }

    /// Sends a message now.
    pub(crate) fn send(&mut self, side: Side, message: Message) -> MessageId {
        let sent = Sent {
            id: self.with(side, |session, now| session.send(now, message.clone())).unwrap(),
            at: self.net.now(),
            priority: message.priority,
            len: message.body.len() as u64,
            hash: hash(&message.body, EMPTY),
        };
        self.net
            .with_host(self.flow, side, |host: &mut QuicHost, _, _| {
                host.app_mut::<Peer>().unwrap().sent.push(sent);
            })
            .unwrap();
        sent.id
    }

    pub(crate) fn route(&mut self, index: usize) -> RouteId {
        let route = |_: &mut QuicHost, _, context: &HostContext<'_>| context.routes().nth(index);
        self.net.with_host(self.flow, Side::Client, route).flatten().unwrap()
    }

    /// Returns the address of an end of a route, as the other end sees it.
    pub(crate) fn address(&mut self, side: Side, index: usize) -> SocketAddr {
        let route = self.route(index);
        self.net.address(self.flow, side, route).unwrap()
    }

    /// Lets the client request a lane over a route.
    pub(crate) fn add_lane(&mut self, index: usize) -> Result<(), LaneError> {
        let remote = self.address(Side::Server, index);
        let request = LaneRequest::new(SocketId(u8::try_from(index).unwrap()), remote);
        self.with(Side::Client, |session, now| session.add_lane(now, request))
    }

    /// Asserts that everything that `from` sent has arrived exactly once, byte for byte.
    pub(crate) fn assert_delivered(&self, from: Side) {
        let to = match from {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        let (handed, complete) = (self.peer(from).handed(), self.peer(to).complete());
        assert_eq!(handed.len(), complete.len(), "messages from the {from:?}");
        assert!(handed == complete, "messages from the {from:?} differ");
    }

    /// Returns the number of streams for messages that an end has opened.
    pub(crate) fn streams_opened(&self, side: Side) -> u64 {
        self.session(side).stats().streams
    }

    /// Asserts that nothing is left over at either end.
    pub(crate) fn assert_clean(&self) {
        for side in [Side::Client, Side::Server] {
            let session = self.session(side);
            let load = session.load();
            assert_eq!(load, Default::default(), "{side:?}");
            let inbox = session.inbox_load();
            assert_eq!(
                (inbox.unread_messages, inbox.open_messages, inbox.parked_pieces, inbox.ahead_pieces),
                (0, 0, 0, 0),
                "{side:?}"
            );
            assert!(session.queued().messages == 0, "{side:?}");
        }
    }

    /// Returns the times from sending to arrival of the messages of one level, in the order in
    /// which they were sent.
    pub(crate) fn delays(&self, from: Side, priority: Priority) -> Vec<Duration> {
        let to = match from {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        let received = &self.peer(to).received;
        let arrived: BTreeMap<u64, Time> =
            received.values().filter_map(|it| Some((it.hash, it.done?))).collect();
        let sent = self.peer(from).sent.iter().filter(|sent| sent.priority == priority);
        sent.filter_map(|sent| Some(*arrived.get(&sent.hash)? - sent.at)).collect()
    }
}

/// All congestion controllers.
pub(crate) const CONTROLLERS: [Congestion; 3] = [Congestion::RENO, Congestion::Cubic, Congestion::Bbr3];

/// Messages of these lengths and levels at constant intervals.
pub(crate) fn every(
    from: Time,
    gap: Duration,
    count: u64,
    priority: Priority,
    len: usize,
) -> impl Iterator<Item = (Time, Message)> {
    (0..count).map(move |index| {
        let at = from + Duration::from_nanos(u64::try_from(gap.as_nanos()).unwrap() * index);
        (at, Message::new(body(u64::from(priority as u8) << 32 | index, len)).with_priority(priority))
    })
}

/// Returns the number of cases for a property, unless PROPTEST_CASES overrides it.
pub(crate) fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

/// Drop-tail queue of `packets` packets.
pub(crate) fn short_queue(packets: u64) -> DropTail<Packet> {
    DropTail::new(DropTailConfig { limit: Limit::Packets(packets) }).unwrap()
}
