//! Groups of endpoints that listen at the same addresses: each datagram has one owner, and the
//! limits hold for all together.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Instant;

use bytes::BytesMut;
use marcato_quic::{
    Endpoint, EndpointConfig, Event, Identity, LaneRequest, LocalSocket, Message, Pending, ResetKey,
    SessionConfig, SessionId, SocketId, Steering, Trust,
};
use marcato_units::{Duration, Seed, Time};
use marcato_wire::Ecn;

/// Address of the server's sockets.
fn server(socket: u8) -> SocketAddr {
    ([10, 0, 0, 2], 443 + u16::from(socket)).into()
}

struct Client {
    endpoint: Endpoint,
    id: SessionId,
    /// Address that the server sees, instead of the client's own.
    seen_as: Option<IpAddr>,
    /// Members that its datagrams named.
    owners: Vec<u8>,
    events: Vec<Event>,
}

impl Client {
    fn addr(&self, socket: SocketId) -> SocketAddr {
        let local = self.endpoint.socket(socket).unwrap().addr;
        SocketAddr::new(self.seen_as.unwrap_or(local.ip()), local.port())
    }
}

/// Network without delay between a group and its clients.
struct Net {
    now: Time,
    members: Vec<Endpoint>,
    steering: Steering,
    trust: Trust,
    clients: Vec<Client>,
    /// Adds this to the member that gets a datagram.
    astray: u8,
    /// Places of the peers that no application accepts.
    pending: Vec<Pending>,
    received: Vec<(usize, usize)>,
}

impl Net {
    fn new(members: u8, limits: impl FnOnce(&mut EndpointConfig)) -> Self {
        let identity = Identity::self_signed("server").unwrap();
        let trust = Trust::Certificate(identity.certificate().unwrap().clone());
        let mut net = Self {
            now: Time::ZERO,
            members: Vec::new(),
            steering: Steering::new([0; 2], NonZeroU8::MIN),
            trust,
            clients: Vec::new(),
            astray: 0,
            pending: Vec::new(),
            received: Vec::new(),
        };
        net.listen(members, 1, &identity, limits);
        net
    }

    /// Replaces the group by a new one.
    fn listen(
        &mut self,
        members: u8,
        seed: u64,
        identity: &Identity,
        limits: impl FnOnce(&mut EndpointConfig),
    ) {
        let mut config = EndpointConfig::new((0..2).map(|at| LocalSocket::new(server(at))).collect());
        config.seed = Some(Seed::new(seed));
        limits(&mut config);
        let members = NonZeroU8::new(members).unwrap();
        (self.members, self.steering) = Endpoint::group(&config, Instant::now(), members).unwrap();
        for member in &mut self.members {
            member.listen(identity, SessionConfig::default()).unwrap();
        }
    }

    /// Lets another client begin to connect, from this address.
    fn connect(&mut self, host: [u8; 4]) {
        let number = u16::try_from(self.clients.len()).unwrap();
        let sockets = (0..2).map(|at| LocalSocket::new((host, 1000 + 2 * number + at).into())).collect();
        let seed = Some(Seed::new(100 + u64::from(number)));
        let config = EndpointConfig { seed, ..EndpointConfig::new(sockets) };
        let mut endpoint = Endpoint::new(config, Instant::now()).unwrap();
        let session = SessionConfig::default();
        let id = endpoint.connect(self.now, SocketId(0), server(0), "server", &self.trust, session).unwrap();
        let (owners, events) = (Vec::new(), Vec::new());
        self.clients.push(Client { endpoint, id, seen_as: None, owners, events });
    }

    /// Lets time pass, in steps of a millisecond.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_millis(1);
            while self.step() {}
        }
    }

    /// Passes on what both ends send. Returns whether there was anything.
    fn step(&mut self) -> bool {
        let (now, mut any, mut out) = (self.now, false, Vec::new());
        for client in &mut self.clients {
            client.endpoint.handle_timeout(now);
            while let Some(sent) = client.endpoint.poll_transmit(now, NonZeroUsize::MIN, &mut out) {
                any = true;
                let owner = self.steering.owner(&out);
                client.owners.push(owner);
                let member = (owner + self.astray) % self.steering.members();
                let socket = SocketId((0..2).find(|at| server(*at) == sent.to).unwrap());
                let from = client.addr(sent.socket);
                let datagram = BytesMut::from(&out[..]);
                self.members[usize::from(member)].handle_datagram(now, socket, from, Ecn::NotEct, datagram);
                out.clear();
            }
            client.events.extend(std::iter::from_fn(|| client.endpoint.poll_event()).map(|(_, event)| event));
        }
        for (index, member) in self.members.iter_mut().enumerate() {
            member.handle_timeout(now);
            while let Some(sent) = member.poll_transmit(now, NonZeroUsize::MIN, &mut out) {
                any = true;
                for client in &mut self.clients {
                    let mut sockets = (0..2).map(SocketId);
                    if let Some(socket) = sockets.find(|socket| client.addr(*socket) == sent.to) {
                        let datagram = BytesMut::from(&out[..]);
                        client.endpoint.handle_datagram(
                            now,
                            socket,
                            server(sent.socket.0),
                            Ecn::NotEct,
                            datagram,
                        );
                    }
                }
                out.clear();
            }
            while let Some((id, event)) = member.poll_event() {
                match event {
                    Event::Connected => self.pending.extend(member.take_pending(id)),
                    Event::Readable => {
                        while let Some(piece) = member.session(id).unwrap().read(now) {
                            self.received.push((index, piece.bytes.len()));
                        }
                    }
                    _ => {}
                }
            }
        }
        any
    }

    /// Returns the clients that are connected.
    fn connected(&self) -> usize {
        self.clients.iter().filter(|client| client.events.contains(&Event::Connected)).count()
    }

    fn sum(&self, counter: impl Fn(marcato_quic::EndpointStats) -> u64) -> u64 {
        self.members.iter().map(|member| counter(member.stats())).sum()
    }
}

#[test]
fn all_datagrams_of_a_connection_have_one_owner() {
    let mut net = Net::new(3, |_| {});
    for number in 1..=12 {
        net.connect([10, 0, 1, number]);
    }
    net.pass(Duration::from_secs(1));
    assert_eq!(net.connected(), 12);
    for number in 0..12 {
        let client = &mut net.clients[number];
        // A second lane, by other sockets at both ends.
        let session = client.endpoint.session(client.id).unwrap();
        session.add_lane(net.now, LaneRequest::new(SocketId(1), server(1))).unwrap();
    }
    net.pass(Duration::from_secs(1));
    for (number, client) in net.clients.iter_mut().enumerate() {
        // A new address, as after a NAT has forgotten the old one.
        assert_eq!(client.endpoint.peek(client.id).unwrap().lanes().count(), 2);
        client.seen_as = Some([10, 0, 2, u8::try_from(number).unwrap()].into());
    }
    net.pass(Duration::from_secs(1));
    for client in &mut net.clients {
        let session = client.endpoint.session(client.id).unwrap();
        session.send(net.now, Message::new(vec![7; 5000])).unwrap();
    }
    net.pass(Duration::from_secs(1));
    let mut loads = [0; 3];
    for client in &net.clients {
        let owner = client.owners[0];
        assert!(client.owners.iter().all(|other| *other == owner), "{:?}", client.owners);
        loads[usize::from(owner)] += 1;
    }
    let sessions: Vec<usize> = net.members.iter().map(|member| member.stats().sessions).collect();
    assert_eq!(sessions, loads);
    assert!(loads.iter().all(|load| *load > 0), "{loads:?}");
    let bytes: usize = net.received.iter().map(|(_, len)| len).sum();
    assert_eq!(bytes, 12 * 5000);
    assert_eq!(net.sum(|stats| stats.stray), 0);
}

#[test]
fn sessions_and_their_limit_are_counted_over_all_members() {
    let mut net = Net::new(4, |config| config.max_sessions = 3);
    for number in 1..=8 {
        net.connect([10, 0, 1, number]);
    }
    net.pass(Duration::from_secs(1));
    assert_eq!((net.connected(), net.sum(|stats| stats.refused)), (3, 5));
    let owners: Vec<usize> = net.members.iter().map(|member| member.stats().sessions).collect();
    assert!(owners.iter().filter(|sessions| **sessions > 0).count() > 1, "{owners:?}");
}

#[test]
fn room_is_shared_until_the_application_has_accepted() {
    let mut net = Net::new(4, |_| {});
    net.members[0].set_room(3);
    for number in 1..=8 {
        net.connect([10, 0, 1, number]);
        net.pass(Duration::from_millis(100));
    }
    assert_eq!((net.connected(), net.pending.len()), (3, 3));
    // The others wait for their turn.
    assert_eq!(net.sum(|stats| stats.waiting as u64), 5);
    net.pending.clear();
    net.pass(Duration::from_millis(500));
    assert_eq!((net.connected(), net.sum(|stats| stats.waiting as u64)), (6, 2));
    assert_eq!(net.sum(|stats| stats.refused), 0);
}

#[test]
fn strangers_of_one_host_are_counted_over_all_members() {
    let mut net = Net::new(4, |config| {
        config.validate_addresses = true;
        config.max_handshakes_per_address = 2;
    });
    for _ in 0..8 {
        net.connect([10, 0, 1, 1]);
    }
    // Two round trips: a Retry, and the beginning of the handshake.
    net.now += Duration::from_millis(1);
    let mut out = Vec::new();
    for round in 0..2 {
        for client in &mut net.clients {
            while client.endpoint.poll_transmit(net.now, NonZeroUsize::MIN, &mut out).is_some() {
                let member = usize::from(net.steering.owner(&out));
                let (from, datagram) = (client.addr(SocketId(0)), BytesMut::from(&out[..]));
                net.members[member].handle_datagram(net.now, SocketId(0), from, Ecn::NotEct, datagram);
                out.clear();
                if round == 0 {
                    net.members[member].poll_transmit(net.now, NonZeroUsize::MIN, &mut out).unwrap();
                    let retry = BytesMut::from(&out[..]);
                    client.endpoint.handle_datagram(net.now, SocketId(0), server(0), Ecn::NotEct, retry);
                    out.clear();
                    break;
                }
            }
        }
    }
    assert_eq!((net.sum(|stats| stats.retried), net.sum(|stats| stats.waiting as u64)), (8, 6));
    assert_eq!(net.sum(|stats| stats.handshakes as u64), 2);
}

/// A token proves an address to every member (RFC 9000 §8.1.1).
#[test]
fn an_address_proved_to_one_member_is_proved_to_all() {
    let mut net = Net::new(2, |config| config.validate_addresses = true);
    net.connect([10, 0, 1, 1]);
    let mut out = Vec::new();
    let client = &mut net.clients[0];
    let from = client.addr(SocketId(0));
    client.endpoint.poll_transmit(net.now, NonZeroUsize::MIN, &mut out).unwrap();
    net.members[0].handle_datagram(net.now, SocketId(0), from, Ecn::NotEct, BytesMut::from(&out[..]));
    out.clear();
    net.members[0].poll_transmit(net.now, NonZeroUsize::MIN, &mut out).unwrap();
    client.endpoint.handle_datagram(net.now, SocketId(0), server(0), Ecn::NotEct, BytesMut::from(&out[..]));
    out.clear();
    client.endpoint.poll_transmit(net.now, NonZeroUsize::MIN, &mut out).unwrap();
    assert_eq!(net.steering.owner(&out), 0);
    net.members[1].handle_datagram(net.now, SocketId(0), from, Ecn::NotEct, BytesMut::from(&out[..]));
    assert_eq!((net.members[0].stats().retried, net.members[1].stats().retried), (1, 0));
    assert_eq!(net.members[1].stats().handshakes, 1);
}

/// RFC 9000 §10.3: whichever member of the next group gets a datagram, the reset is the right one.
#[test]
fn every_member_resets_the_sessions_of_a_predecessor() {
    for astray in 0..2 {
        let key = Some(ResetKey([7; 64]));
        let mut net = Net::new(3, |config| config.reset_key.clone_from(&key));
        for number in 1..=6 {
            net.connect([10, 0, 1, number]);
        }
        net.pass(Duration::from_secs(1));
        assert_eq!(net.connected(), 6);
        net.listen(2, 2, &Identity::self_signed("server").unwrap(), |config| config.reset_key = key);
        net.astray = astray;
        for number in 0..6 {
            let client = &mut net.clients[number];
            let session = client.endpoint.session(client.id).unwrap();
            session.send(net.now, Message::new(vec![7; 500])).unwrap();
            // Resets are limited in their number: a member sends one every 40 ms.
            net.pass(Duration::from_millis(50));
            let closed = |event: &Event| matches!(event, Event::Closed { .. });
            assert!(net.clients[number].events.iter().any(closed), "client {number}, {astray} astray");
        }
    }
}
