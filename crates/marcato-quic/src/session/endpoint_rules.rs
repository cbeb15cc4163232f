//! Rules of an endpoint: its sockets, those that connect to it, and its counters.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Instant;

use marcato_identity::{Identity, Trust};
use marcato_units::{Duration, Layer, Priority, Seed, Time};
use marcato_wire::{Ecn, ErrorCode};

use super::pair::{Pair, Who, address, message};
use crate::config::{SessionConfig, SessionConfigError};
use crate::endpoint::{ConnectError, Endpoint, EndpointConfig, EndpointError, LocalSocket, SocketId};
use crate::event::Event;
use crate::lane::LaneRequest;
use crate::low::LowLanes;

use Who::{Client, Server};

const ONE: NonZeroUsize = NonZeroUsize::MIN;

/// Endpoint with sockets at these addresses, changed by `tune`.
fn endpoint(addresses: &[SocketAddr], tune: impl Fn(&mut EndpointConfig)) -> Endpoint {
    let sockets = addresses.iter().map(|addr| LocalSocket::new(*addr)).collect();
    let mut config = EndpointConfig { seed: Some(Seed::new(3)), ..EndpointConfig::new(sockets) };
    tune(&mut config);
    Endpoint::new(config, Instant::now()).unwrap()
}

/// Passes all datagrams between two endpoints, without any delay.
fn exchange(now: Time, ends: &mut [(Endpoint, SocketAddr); 2]) {
    let mut buf = Vec::new();
    loop {
        let mut any = false;
        for from in 0..2 {
            buf.clear();
            while let Some(transmit) = ends[from].0.poll_transmit(now, ONE, &mut buf) {
                let source = ends[from].1;
                for datagram in buf.chunks(transmit.segment.unwrap_or(transmit.len).max(1)) {
                    ends[1 - from].0.handle_datagram(now, SocketId(0), source, Ecn::NotEct, datagram.into());
                }
                any = true;
                buf.clear();
            }
        }
        if !any {
            return;
        }
    }
}

fn events(endpoint: &mut Endpoint) -> Vec<Event> {
    std::iter::from_fn(|| endpoint.poll_event()).map(|(_, event)| event).collect()
}

#[test]
fn endpoints_and_connections_that_cannot_be_are_errors() {
    let at = address(Client, 0);
    for given in [0, 257] {
        let config = EndpointConfig::new(vec![LocalSocket::new(at); given]);
        let error = Endpoint::new(config, Instant::now()).unwrap_err();
        assert!(matches!(error, EndpointError::Sockets { given: of } if of == given), "{error}");
    }
    let mut client = endpoint(&[at, at], |config| {
        config.max_sessions = 1;
        config.sockets[1].layer = Layer::Low;
    });
    let trust = Trust::Certificate(Identity::self_signed("server").unwrap().certificate().unwrap().clone());
    let mut connect = |socket, session: SessionConfig| {
        client.connect(Time::ZERO, SocketId(socket), address(Server, 0), "server", &trust, session)
    };
    let plain = SessionConfig::default();
    assert!(matches!(connect(2, plain.clone()), Err(ConnectError::Socket(SocketId(2)))));
    let low_lanes = Some(LowLanes::default());
    let layered = SessionConfig { low_lanes, ..plain.clone() };
    assert!(matches!(connect(1, layered), Err(ConnectError::LowFirst(SocketId(1)))));
    let invalid = SessionConfig { max_lanes: 0, ..plain.clone() };
    assert!(matches!(
        connect(0, invalid),
        Err(ConnectError::Session(SessionConfigError::Lanes { asked: 0 }))
    ));
    // None of these has taken the only place.
    connect(1, plain.clone()).unwrap();
    assert!(matches!(connect(0, plain), Err(ConnectError::TooMany { limit: 1 })));
}

#[test]
fn an_endpoint_counts_what_arrives_and_who_connects() {
    let config = SessionConfig::default();
    let mut pair = Pair::begin(&[20], &config, &config, None);
    pair.run_until(|pair| pair.endpoint(Server).stats().accepted == 1);
    let stats = pair.endpoint(Server).stats();
    assert_eq!((stats.handshakes, stats.sessions, stats.failed), (1, 1, 0));
    pair.run_until(|pair| pair.events(Server).any(|event| *event == Event::Connected));
    pair.send(Client, message(Priority::P2, 100_000));
    pair.pass(Duration::from_secs(1));
    let arrived = |pair: &Pair, from| pair.passed.iter().filter(|passed| passed.from == from).count() as u64;
    for (who, accepted) in [(Server, 1), (Client, 0)] {
        let from = if who == Server { Client } else { Server };
        let (datagrams, stats) = (arrived(&pair, from), pair.endpoint(who).stats());
        assert_eq!((stats.datagrams, stats.stray), (datagrams, 0), "{who:?}");
        assert_eq!((stats.accepted, stats.handshakes, stats.sessions), (accepted, 0, 1), "{who:?}");
    }
    let now = pair.now;
    // Bytes without meaning, and a handshake with an endpoint that does not listen.
    let stranger = SocketAddr::from(([10, 9, 9, 9], 9));
    pair.endpoint(Server).handle_datagram(now, SocketId(0), stranger, Ecn::NotEct, [0x40; 40][..].into());
    assert_eq!(pair.endpoint(Server).stats().stray, 1);
    let trust = Trust::Certificate(Identity::self_signed("client").unwrap().certificate().unwrap().clone());
    let (to, mut buf) = (address(Client, 0), Vec::new());
    pair.endpoint(Server).connect(now, SocketId(0), to, "client", &trust, config).unwrap();
    pair.endpoint(Server).poll_transmit(now, ONE, &mut buf).unwrap();
    let client = pair.endpoint(Client);
    client.handle_datagram(now, SocketId(0), address(Server, 0), Ecn::NotEct, buf.as_slice().into());
    let stats = client.stats();
    assert_eq!((stats.accepted, stats.refused, stats.sessions, stats.stray), (0, 0, 1, 1));
}

/// Server whose sessions may be idle for longer than any handshake takes, the trust in it, and the sessions' settings.
fn patient_server(change: impl Fn(&mut EndpointConfig)) -> (Endpoint, Trust, SessionConfig) {
    let identity = Identity::self_signed("server").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let session = SessionConfig { idle_timeout: Duration::from_secs(60), ..SessionConfig::default() };
    let mut server = endpoint(&[address(Server, 0)], change);
    server.listen(&identity, session.clone()).unwrap();
    (server, trust, session)
}

/// The time counts from the first datagram. One that ended in time is not closed later.
#[test]
fn a_handshake_that_takes_too_long_ends_at_its_deadline() {
    let limit = Duration::from_secs(5);
    let (server, trust, session) = patient_server(|config| config.handshake_timeout = Some(limit));
    let client = endpoint(&[address(Client, 0)], |_| {});
    let mut ends = [(client, address(Client, 0)), (server, address(Server, 0))];
    let connect = |now, client: &mut Endpoint| {
        let (socket, to) = (SocketId(0), address(Server, 0));
        client.connect(now, socket, to, "server", &trust, session.clone()).unwrap();
    };
    let mut now = Time::from_secs(1);
    connect(now, &mut ends[0].0);
    exchange(now, &mut ends);
    assert_eq!(events(&mut ends[1].0), [Event::Connected]);
    // Of this one, only the first datagram arrives.
    let begun = Time::from_secs(3);
    connect(begun, &mut ends[0].0);
    let mut buf = Vec::new();
    ends[0].0.poll_transmit(begun, ONE, &mut buf).unwrap();
    let server = &mut ends[1].0;
    server.handle_datagram(begun, SocketId(0), address(Client, 0), Ecn::NotEct, buf.as_slice().into());
    let closed = loop {
        while server.poll_transmit(now, ONE, &mut buf).is_some() {}
        let closed = events(server).into_iter().find(|event| matches!(event, Event::Closed { .. }));
        if let Some(Event::Closed { reason, .. }) = closed {
            break reason;
        }
        now = now.max(server.next_timeout().unwrap());
        assert!(now <= begun + limit, "{now:?}");
        server.handle_timeout(now);
    };
    assert_eq!((now, closed.as_str()), (begun + limit, "closed at this end"));
    let stats = server.stats();
    assert_eq!((stats.accepted, stats.failed, stats.handshakes), (2, 1, 0));
    let open = server.sessions().filter(|id| server.peek(*id).unwrap().is_open()).count();
    assert_eq!(open, 1);
}

/// Sessions that began before learn of it.
#[test]
fn a_lane_has_the_layer_of_the_socket_as_it_is_now() {
    let config = SessionConfig::default();
    let mut pair = Pair::begin(&[20, 20, 20], &config, &config, None);
    pair.run_until(|pair| pair.session(Client).is_open());
    let low = |lane| LocalSocket { layer: Layer::Low, ..LocalSocket::new(address(Server, lane)) };
    assert!(pair.endpoint(Server).replace_socket(SocketId(1), low(1)));
    assert!(!pair.endpoint(Server).replace_socket(SocketId(3), low(3)));
    assert_eq!(pair.endpoint(Server).add_socket(low(3)), Some(SocketId(3)));
    assert_eq!(pair.endpoint(Server).socket(SocketId(3)), Some(&low(3)));
    for lane in 1..3 {
        let (now, to) = (pair.now, address(Server, lane));
        pair.session(Client).add_lane(now, LaneRequest::new(SocketId(lane), to)).unwrap();
        pair.pass(Duration::from_millis(300));
    }
    let layers: Vec<_> = pair.session(Server).lanes().map(|(view, ..)| view.layer).collect();
    assert_eq!(layers, [Layer::High, Layer::Low, Layer::High]);
    for more in 4..=255 {
        assert_eq!(pair.endpoint(Server).add_socket(low(0)), Some(SocketId(more)));
    }
    assert_eq!(pair.endpoint(Server).add_socket(low(0)), None);
}

/// Nothing of a session is left once it has ended and its last event was taken: no place, and no timer.
#[test]
fn an_ended_session_leaves_neither_a_place_nor_a_timer() {
    let identity = Identity::self_signed("server").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let mut server = endpoint(&[address(Server, 0)], |_| {});
    server.listen(&identity, SessionConfig::default()).unwrap();
    let client = endpoint(&[address(Client, 0)], |config| config.max_sessions = 1);
    let mut ends = [(client, address(Client, 0)), (server, address(Server, 0))];
    let mut now = Time::from_secs(1);
    for round in 0..3 {
        let (socket, to) = (SocketId(0), address(Server, 0));
        let id = ends[0].0.connect(now, socket, to, "server", &trust, SessionConfig::default()).unwrap();
        exchange(now, &mut ends);
        // Both have something to be timed: data in flight, and its acknowledgement.
        for end in &mut ends {
            let of_end = end.0.sessions().next().unwrap();
            end.0.session(of_end).unwrap().send(now, message(Priority::P2, 100_000)).unwrap();
            end.0.poll_transmit(now, ONE, &mut Vec::new()).unwrap();
        }
        assert!(ends.iter().all(|(end, _)| end.next_timeout().is_some()));
        ends[0].0.session(id).unwrap().close(now, ErrorCode::NoError, "done");
        exchange(now, &mut ends);
        for (end, _) in &mut ends {
            // The engine drains for three probe timeouts.
            while let Some(at) = end.next_timeout() {
                assert!(at.since(now) < Duration::from_secs(60), "round {round}");
                now = now.max(at);
                end.handle_timeout(now);
                while end.poll_transmit(now, ONE, &mut Vec::new()).is_some() {}
                assert!(!events(end).is_empty() || end.next_timeout().is_none_or(|next| next > at));
            }
            events(end);
            assert!(end.poll_transmit(now, ONE, &mut Vec::new()).is_none());
            assert_eq!((end.stats().sessions, end.sessions().count()), (0, 0), "round {round}");
        }
    }
}

/// Three clients of one address: one begins a handshake, and the others wait. Its time ends, and then theirs.
#[test]
fn waiting_clients_have_their_turn_or_are_refused_in_time() {
    let (mut server, trust, session) = patient_server(|config| {
        config.handshake_timeout = Some(Duration::from_secs(5));
        (config.validate_addresses, config.max_handshakes_per_address) = (true, 1);
    });
    let ms = Time::from_millis;
    // Each client gets a Retry packet, and no answer to what it sends then.
    let knock = |now, port, server: &mut Endpoint| {
        let at = SocketAddr::from(([10, 0, 0, 1], port));
        let mut client = endpoint(&[at], |_| {});
        client.connect(now, SocketId(0), address(Server, 0), "server", &trust, session.clone()).unwrap();
        let mut buf = Vec::new();
        for _ in 0..2 {
            client.poll_transmit(now, ONE, &mut buf).unwrap();
            server.handle_datagram(now, SocketId(0), at, Ecn::NotEct, buf.as_slice().into());
            buf.clear();
            if server.poll_transmit(now, ONE, &mut buf).is_some() {
                client.handle_datagram(
                    now,
                    SocketId(0),
                    address(Server, 0),
                    Ecn::NotEct,
                    buf.as_slice().into(),
                );
            }
            buf.clear();
        }
    };
    for (at, port) in [(1000, 5000), (4000, 5001), (4100, 5002)] {
        knock(ms(at), port, &mut server);
    }
    let drain = |now, server: &mut Endpoint| {
        while server.poll_transmit(now, ONE, &mut Vec::new()).is_some() {}
        while server.poll_event().is_some() {}
    };
    drain(ms(4100), &mut server);
    let stats = server.stats();
    assert_eq!((stats.handshakes, stats.waiting, stats.accepted, stats.crowded), (1, 2, 1, 0));
    // The first is given up after 5 s, and the second has its turn; the third has waited for 2.5 s then.
    let mut seen = Vec::new();
    while let Some(at) = server.next_timeout().filter(|at| *at < ms(9000)) {
        server.handle_timeout(at);
        drain(at, &mut server);
        let stats = server.stats();
        let now = (stats.handshakes, stats.waiting, stats.accepted, stats.crowded);
        if seen.last().is_none_or(|(_, last)| *last != now) {
            seen.push((at, now));
        }
    }
    assert_eq!(seen, [(seen[0].0, (1, 2, 1, 0)), (ms(6000), (1, 1, 2, 0)), (ms(6600), (1, 0, 2, 1)),]);
}
