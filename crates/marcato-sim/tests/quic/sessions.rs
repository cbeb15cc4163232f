//! Tests of how sessions begin and end, and of the effects of third parties.

use std::num::NonZeroUsize;
use std::time::Instant;

use bytes::BytesMut;
use marcato_quic::{Endpoint, EndpointConfig, Event, LocalSocket, Message, SessionConfig, SocketId};
use marcato_sim::{Loss, Side};
use marcato_units::{Priority, Seed, Time};
use marcato_wire::{Ecn, ErrorCode};

use crate::common::*;

/// Returns the whole visible state of a run.
fn run(seed: u64, other_flow: bool) -> String {
    let config = SessionConfig { trace_windows: true, ..Default::default() };
    let paths = [path(20, 10), path(10, 30)].map(|path| path.map(|link| link.loss(Loss::Random(0.02))));
    let peer = || {
        Peer::new().sending(every(at(100), ms(20), 50, Priority::P0, 5000)).filling(Priority::P3, at(1000))
    };
    let mut pair = Pair::new(seed, &config, paths.into(), peer(), peer());
    if other_flow {
        // Separate links, so that the flow could interfere only by its draws.
        let [a, b] = ["a", "b"].map(|name| pair.net.node(name));
        let link =
            || marcato_sim::LinkConfig::new(marcato_units::Rate::from_mbps(5), ms(5)).loss(Loss::Random(0.1));
        pair.net.link(a, b, link(), link());
        let (identity, trust) = identity();
        let role = marcato_sim::quic::QuicRole::Client { trust, name: "server".to_owned() };
        let epoch = Instant::now();
        let client = marcato_sim::quic::QuicHost::new(role, config.clone(), epoch, peer());
        let role = marcato_sim::quic::QuicRole::Server { identity };
        let server = marcato_sim::quic::QuicHost::new(role, config, epoch, peer());
        let routes = vec![marcato_sim::Route::new(a, b)];
        pair.net.datagrams(marcato_sim::DatagramFlow::new(client, server, routes)).unwrap();
    }
    pair.run(5000);
    let mut all = String::new();
    for side in [Side::Client, Side::Server] {
        let session = pair.session(side);
        all += &format!("{:?} {:?} {:?}\n", session.stats(), session.received(), session.conducted());
        all += &format!("{:?}\n{:?}\n", session.lanes().collect::<Vec<_>>(), pair.peer(side).received);
        all += &format!("{:?}\n", pair.peer(side).events);
        for index in [0, 1] {
            let route = pair.route(index);
            all += &format!("{:?}\n", pair.net.route_stats(pair.flow, side, route));
        }
    }
    all
}

#[test]
fn a_seed_is_a_run_and_other_flows_do_not_disturb_it() {
    let first = run(1, false);
    assert!(first == run(1, false));
    assert!(first == run(1, true));
    assert!(first != run(2, false));
}

#[test]
fn a_quiet_session_and_its_lanes_are_kept_alive() {
    let mut pair =
        Pair::new(1, &SessionConfig::default(), vec![path(20, 10), path(20, 20)], Peer::new(), Peer::new());
    // Twenty times the idle timeout of a lane.
    pair.run(200_000);
    for side in [Side::Client, Side::Server] {
        assert!(pair.session(side).is_open());
        assert_eq!(pair.session(side).lanes().count(), 2, "{side:?}");
        assert_eq!(
            pair.peer(side).count(|event| matches!(event, Event::LaneDown { .. } | Event::LaneStalled(_))),
            0
        );
    }
    pair.send(Side::Server, Message::new(body(1, 5000)).with_priority(Priority::P0));
    pair.run(201_000);
    pair.assert_delivered(Side::Server);
}

#[test]
fn without_keep_alive_a_quiet_session_ends_at_its_idle_timeout() {
    let config = SessionConfig { keep_alive: None, lane_idle_timeout: None, ..Default::default() };
    let mut pair = Pair::new(1, &config, vec![path(20, 10)], Peer::new(), Peer::new());
    pair.run(60_000);
    for side in [Side::Client, Side::Server] {
        let ended = pair.peer(side).first(|event| matches!(event, Event::Closed { .. })).unwrap();
        assert!(ended >= at(30_000) && ended < at(30_500), "{side:?}: {ended:?}");
        // Its owner has been notified, and the session is gone.
        assert_eq!(pair.host(side).endpoint().unwrap().sessions().count(), 0);
    }
}

#[test]
fn closing_gives_the_peer_a_reason_and_frees_both_ends() {
    for closer in [Side::Client, Side::Server] {
        let busy = || Peer::new().filling(Priority::P4, at(5000));
        let paths = [path(20, 10), path(20, 20)].map(|path| path.map(|link| link.queue(short_queue(50))));
        let mut pair = Pair::new(3, &SessionConfig::default(), paths.into(), busy(), busy());
        pair.run(1000);
        pair.with(closer, |session, now| session.close(now, ErrorCode::NoError, "enough"));
        let refused = pair.with(closer, |session, now| {
            session.send(now, Message::new(body(1, 10)).with_priority(Priority::P0))
        });
        assert_eq!(refused, Err(marcato_quic::SendError::Closed(marcato_quic::Closed::Local)));
        pair.run(1100);
        for side in [Side::Client, Side::Server] {
            assert_eq!(pair.peer(side).count(|event| matches!(event, Event::Closed { .. })), 1, "{side:?}");
        }
        let other = if closer == Side::Client { Side::Server } else { Side::Client };
        let reason = pair.peer(other).events.iter().find_map(|(time, event)| match event {
            Event::Closed { reason, .. } => Some((*time, reason.clone())),
            _ => None,
        });
        let (time, reason) = reason.unwrap();
        // One way over the slower lane, 30 ms for 50 queued packets, and a packet time.
        assert!(time < at(1051), "{time:?}");
        assert!(reason.contains("enough"), "{reason}");
        pair.run(10_000);
        for side in [Side::Client, Side::Server] {
            assert_eq!(pair.host(side).endpoint().unwrap().sessions().count(), 0, "{side:?}");
            assert_eq!(pair.host(side).endpoint().unwrap().next_timeout(), None, "{side:?}");
        }
    }
}

#[test]
fn a_peer_that_vanishes_is_given_up_after_the_idle_timeout() {
    let peer = || Peer::new().filling(Priority::P4, at(60_000));
    let mut pair = Pair::new(4, &SessionConfig::default(), vec![path(20, 10), path(20, 20)], peer(), peer());
    for (up, down) in pair.links.clone() {
        pair.net.set_link_up_at(up, at(1000), false);
        pair.net.set_link_up_at(down, at(1000), false);
    }
    pair.run(60_000);
    for side in [Side::Client, Side::Server] {
        let ended = pair.peer(side).first(|event| matches!(event, Event::Closed { .. })).unwrap();
        // 30 s after the last packet arrived, which had waited in a queue.
        assert!(ended > at(31_000) && ended < at(32_000), "{side:?}: {ended:?}");
        let events = pair.peer(side).events.len();
        assert!(events < 2000, "{side:?}: {events} events");
        assert_eq!(pair.host(side).endpoint().unwrap().sessions().count(), 0);
    }
}

/// Endpoints without a network: each receives the other's datagrams at once, from one address each.
pub(crate) struct Wire {
    now: Time,
    ends: [Endpoint; 2],
    addrs: [std::net::SocketAddr; 2],
    /// Datagrams from the first and from the second, and the longest.
    sent: [u64; 2],
}

impl Wire {
    fn new(server: impl Fn(&mut EndpointConfig)) -> (Self, marcato_quic::Trust) {
        let addrs = ["10.0.0.1:1000", "10.0.0.2:443"].map(|addr| addr.parse().unwrap());
        let epoch = Instant::now();
        let (identity, trust) = identity();
        let ends = [0, 1].map(|index| {
            let mut config = EndpointConfig::new(vec![LocalSocket::new(addrs[index])]);
            config.seed = Some(Seed::new(index as u64));
            if index == 1 {
                server(&mut config);
            }
            Endpoint::new(config, epoch).unwrap()
        });
        let mut wire = Self { now: Time::ZERO, ends, addrs, sent: [0, 0] };
        wire.ends[1].listen(&identity, SessionConfig::default()).unwrap();
        (wire, trust)
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            let mut quiet = true;
            for from in [0, 1] {
                let mut buf = Vec::new();
                while let Some(transmit) =
                    self.ends[from].poll_transmit(self.now, NonZeroUsize::MIN, &mut buf)
                {
                    quiet = false;
                    self.sent[from] += 1;
                    let (addr, to) = (self.addrs[from], 1 - from);
                    let payload = BytesMut::from(&buf[..]);
                    self.ends[to].handle_datagram(self.now, SocketId(0), addr, transmit.ecn, payload);
                    buf.clear();
                }
            }
            self.now += ms(1);
            let now = self.now;
            self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
            if quiet {
                break;
            }
        }
    }

    /// Wire with a session whose server has this configuration; round trips take 2 ms.
    pub(crate) fn fast(config: SessionConfig) -> Self {
        let (mut wire, _) = Self::new(|_| {});
        let (identity, trust) = identity();
        wire.ends[1].listen(&identity, config).unwrap();
        wire.connect(&trust);
        for _ in 0..50 {
            wire.settle();
        }
        wire
    }

    /// Lets the server send 500 kB in as few polls as possible; returns the datagram sizes of each
    /// poll.
    pub(crate) fn batches(&mut self, max: NonZeroUsize, priority: Priority) -> Vec<Vec<usize>> {
        let id = self.ends[1].sessions().next().unwrap();
        let now = self.now;
        let message = Message::new(body(1, 500_000)).with_priority(priority);
        self.ends[1].session(id).unwrap().send(now, message).unwrap();
        let mut all = Vec::new();
        let mut buf = Vec::new();
        while let Some(transmit) = self.ends[1].poll_transmit(now, max, &mut buf) {
            assert_eq!(transmit.len, buf.len());
            let segment = transmit.segment.unwrap_or(transmit.len);
            all.push(buf.chunks(segment).map(<[u8]>::len).collect());
            buf.clear();
        }
        all
    }

    fn connect(&mut self, trust: &marcato_quic::Trust) -> marcato_quic::SessionId {
        let (now, to) = (self.now, self.addrs[1]);
        self.ends[0].connect(now, SocketId(0), to, "server", trust, SessionConfig::default()).unwrap()
    }

    fn events(&mut self, end: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.ends[end].poll_event()).map(|(_, event)| event).collect()
    }
}

#[test]
fn beyond_the_most_sessions_a_server_refuses() {
    let (mut wire, trust) = Wire::new(|config| config.max_sessions = 2);
    for _ in 0..3 {
        wire.connect(&trust);
    }
    wire.settle();
    let client = wire.events(0);
    assert_eq!(client.iter().filter(|event| **event == Event::Connected).count(), 2);
    assert_eq!(client.iter().filter(|event| matches!(event, Event::Closed { .. })).count(), 1);
    assert_eq!((wire.ends[1].stats().accepted, wire.ends[1].stats().refused), (2, 1));
    assert_eq!(wire.ends[1].sessions().count(), 2);
    // One session ends, which makes room; the new one has another identifier.
    let first = wire.ends[0].sessions().next().unwrap();
    let now = wire.now;
    wire.ends[0].session(first).unwrap().close(now, ErrorCode::NoError, "");
    wire.settle();
    for _ in 0..50 {
        wire.now += ms(100);
        wire.settle();
        wire.events(0);
        wire.events(1);
    }
    assert_eq!((wire.ends[0].sessions().count(), wire.ends[1].sessions().count()), (1, 1));
    let next = wire.connect(&trust);
    wire.settle();
    assert!(wire.events(0).contains(&Event::Connected));
    assert_ne!(next, first);
}

#[test]
fn an_address_is_validated_before_anything_is_kept_for_it() {
    let (mut wire, trust) = Wire::new(|config| config.validate_addresses = true);
    wire.connect(&trust);
    // The first datagram makes no session.
    let mut buf = Vec::new();
    let transmit = wire.ends[0].poll_transmit(Time::ZERO, NonZeroUsize::MIN, &mut buf).unwrap();
    let from = wire.addrs[0];
    wire.ends[1].handle_datagram(Time::ZERO, SocketId(0), from, transmit.ecn, BytesMut::from(&buf[..]));
    assert_eq!(wire.ends[1].sessions().count(), 0);
    wire.settle();
    assert!(wire.events(0).contains(&Event::Connected));
    assert_eq!(wire.ends[1].sessions().count(), 1);
}

#[test]
fn garbage_neither_begins_nor_ends_anything() {
    let (mut wire, trust) = Wire::new(|_| {});
    let id = wire.connect(&trust);
    wire.settle();
    let mut real = Vec::new();
    let now = wire.now;
    wire.ends[0]
        .session(id)
        .unwrap()
        .send(now, Message::new(body(1, 3000)).with_priority(Priority::P0))
        .unwrap();
    while let Some(_transmit) = wire.ends[0].poll_transmit(now, NonZeroUsize::MIN, &mut real) {}
    let mut stream = Seed::new(5).stream("garbage");
    let stranger = "10.9.9.9:99".parse().unwrap();
    for round in 0..3000u64 {
        let len = usize::try_from(stream.below(1500)).unwrap();
        let mut bytes: Vec<u8> = (0..len).map(|_| stream.next_u64().to_le_bytes()[0]).collect();
        if round % 3 == 0 {
            // Real datagrams with a few bytes changed.
            bytes = real[..len.min(real.len())].to_vec();
            for _ in 0..3 {
                let place = usize::try_from(stream.below(bytes.len().max(1) as u64)).unwrap();
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 0x55;
                }
            }
        }
        for (end, peer) in [(0, 1), (1, 0)] {
            let from = if round % 2 == 0 { wire.addrs[peer] } else { stranger };
            let payload = BytesMut::from(&bytes[..]);
            wire.ends[end].handle_datagram(now, SocketId(0), from, Ecn::NotEct, payload);
        }
    }
    // Responses to them are bounded, and no session has begun or ended.
    let answers = wire.sent;
    wire.settle();
    assert!(wire.sent[1] - answers[1] < 600, "{:?}", wire.sent);
    assert_eq!(wire.ends[1].sessions().count(), 1);
    assert_eq!(wire.ends[0].sessions().count(), 1);
    // The session still works.
    for _ in 0..40 {
        wire.now += ms(50);
        wire.settle();
    }
    let delivered = |events: Vec<Event>| events.iter().any(|event| matches!(event, Event::Delivered(_)));
    assert!(delivered(wire.events(0)));
}
