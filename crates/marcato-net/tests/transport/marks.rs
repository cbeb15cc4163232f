//! Marks of packets, as the loopback interface shows them.

use std::io::Read as _;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{LIMIT, body, for_both_engines, server_at, within};
use marcato_net::{CodePoints, Config, Connection, Endpoint, Engine, Message, Priority};
use marcato_testing::{Need, absent};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Copies of the packets from and to a port.
struct Wire {
    socket: Socket,
    port: u16,
}

/// Packet of a connection.
#[derive(Debug, Clone, Copy)]
struct Seen {
    outward: bool,
    /// DSCP and ECN.
    field: u8,
}

impl Wire {
    fn of(port: u16) -> Self {
        // ETH_P_ALL, in the order of the wire.
        let all = Protocol::from(i32::from(3_u16.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(all)).unwrap();
        // Other tests' packets would fill its buffer. The ports stand behind a header of 20 bytes, or 40 of IPv6.
        let [byte, half] = [0x30, 0x28];
        let load = |size, at| SockFilter::new(size, 0, 0, at);
        let equal = |value, yes, no| SockFilter::new(0x15, yes, no, value);
        let take = |len| SockFilter::new(0x06, 0, 0, len);
        let of_family = |version, at, otherwise| {
            let number = port.into();
            [
                equal(version, 0, otherwise),
                load(half, at),
                equal(number, 2, 0),
                load(half, at + 2),
                equal(number, 0, 1),
                take(u32::MAX),
                take(0),
            ]
        };
        let mut filter = vec![load(byte, 0), SockFilter::new(0x54, 0, 0, 0xf0)];
        filter.extend(of_family(0x40, 20, 6));
        filter.extend(of_family(0x60, 40, 5));
        socket.attach_filter(&filter).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, port }
    }

    /// Packets that have passed since the last call, if `wait` at least one.
    fn seen(&self, wait: bool) -> Vec<Seen> {
        let mut packet = [0; 100];
        let mut all = Vec::new();
        self.socket.set_nonblocking(!wait).unwrap();
        while let Ok(len) = (&self.socket).read(&mut packet) {
            self.socket.set_nonblocking(true).unwrap();
            let packet = &packet[..len];
            let (field, to) = match packet[0] >> 4 {
                4 => (packet[1], &packet[22..24]),
                _ => (packet[0] << 4 | packet[1] >> 4, &packet[42..44]),
            };
            all.push(Seen { outward: *to == self.port.to_be_bytes(), field });
        }
        all
    }
}

/// Sends messages of a level until a packet of this direction has the code point. Returns those of the direction.
async fn until_marked(wire: &Wire, from: &Connection, outward: bool, level: Priority, dscp: u8) -> Vec<Seen> {
    let begun = std::time::Instant::now();
    let mut all = Vec::new();
    while begun.elapsed() < LIMIT {
        let mut handle =
            from.send(Message::new(body(7, 3000)).with_priority(level).with_receipt()).await.unwrap();
        within(handle.acknowledged()).await.unwrap();
        all.extend(wire.seen(true).into_iter().filter(|seen| seen.outward == outward));
        if all.iter().any(|seen| seen.field >> 2 == dscp) {
            return all;
        }
    }
    panic!("no packet of {level} has the code point {dscp}: {all:?}");
}

/// Takes all messages, so that they are acknowledged.
fn take_all(connection: &Connection) {
    let connection = connection.clone();
    tokio::spawn(async move { while connection.recv().await.is_ok() {} });
}

async fn packets_have_the_code_point_of_their_level(engine: Engine) {
    if absent!(Need::Root) {
        return;
    }
    let own = {
        let mut points = CodePoints::default();
        points.set(Priority::P0, "ef".parse().unwrap());
        points
    };
    for host in ["127.0.0.1:0", "[::1]:0"] {
        for (marks, expected) in
            [(None, [0; 5]), (Some(CodePoints::default()), [34, 18, 0, 0, 1]), (Some(own), [46, 18, 0, 0, 1])]
        {
            let config = Config { marks, ..Config::new(engine) };
            let server = server_at(&config, &[host.parse::<SocketAddr>().unwrap().into()]).await;
            let wire = Wire::of(server.endpoint.local_addrs()[0].port());
            let remote = server.remote();
            let (client, accepted) =
                within(async { tokio::join!(Endpoint::connect(&config, &remote), server.endpoint.accept()) })
                    .await;
            let (client, accepted) = (client.unwrap(), accepted.unwrap());
            take_all(&client);
            take_all(&accepted);
            let mut seen = wire.seen(true);
            for level in [4, 0, 3, 1, 2].map(|index| Priority::from_index(index).unwrap()) {
                for (from, outward) in [(&client, true), (&accepted, false)] {
                    seen.extend(until_marked(&wire, from, outward, level, expected[level.index()]).await);
                }
            }
            let others =
                seen.iter().find(|seen| !expected.contains(&(seen.field >> 2)) && seen.field >> 2 != 0);
            assert!(others.is_none(), "{host} {marks:?}: {others:?}");
            // The ECN bits are those that the transport has chosen: ECT(0) over QUIC.
            let ect = seen.iter().any(|seen| seen.field & 3 == 2 && seen.field >> 2 == expected[0]);
            assert!(engine == Engine::Tcp || ect, "{host}: no packet of P0 has ECT(0)");
        }
    }
}

for_both_engines! {
    packets_have_the_code_point_of_their_level
}
