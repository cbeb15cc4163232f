//! No datagrams make an endpoint panic, keep more than its limits, answer without bound, or end
//! another party's session. The input is a script of what strangers and the network do. A client
//! and a server shake hands, send messages and are idle by turns.
#![no_main]

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use marcato_quic::{
    Endpoint, EndpointConfig, Identity, LocalSocket, Message, SessionConfig, SocketId, Trust,
};
use marcato_units::{Duration, Priority, Seed, Time};
use marcato_wire::Ecn;

const MAX_SESSIONS: usize = 4;

/// Identity shared by all inputs: creating one takes far longer than running an input.
fn identity() -> &'static (Identity, Trust) {
    static IDENTITY: OnceLock<(Identity, Trust)> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let identity = Identity::self_signed("server").expect("a name");
        let trust = Trust::Certificate(identity.certificate().expect("one").clone());
        (identity, trust)
    })
}

struct World {
    now: Time,
    ends: [Endpoint; 2],
    addrs: [SocketAddr; 2],
    /// Datagrams in flight, with their receivers.
    wire: Vec<(usize, Vec<u8>)>,
    /// Latest datagram of each end.
    latest: [Vec<u8>; 2],
}

impl World {
    fn collect(&mut self) {
        for from in [0, 1] {
            let mut buf = Vec::new();
            let mut polls = 0;
            while self.ends[from].poll_transmit(self.now, NonZeroUsize::MIN, &mut buf).is_some() {
                self.latest[from].clone_from(&buf);
                if self.wire.len() < 256 {
                    self.wire.push((1 - from, std::mem::take(&mut buf)));
                }
                buf.clear();
                polls += 1;
                assert!(polls < 10_000, "endless datagrams");
            }
            while self.ends[from].poll_event().is_some() {}
            let ids: Vec<_> = self.ends[from].sessions().collect();
            assert!(ids.len() <= MAX_SESSIONS + 1);
            for id in ids {
                if let Some(session) = self.ends[from].session(id) {
                    while session.read(self.now).is_some() {}
                    assert!(
                        session.load().notes <= marcato_quic::MAX_NOTES && session.load().in_flight < 10_000
                    );
                }
            }
        }
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, bytes: &[u8]) {
        self.ends[to].handle_datagram(self.now, SocketId(0), from, Ecn::NotEct, BytesMut::from(bytes));
    }
}

fuzz_target!(|script: &[u8]| {
    let (identity, trust) = identity();
    let epoch = Instant::now();
    let addrs = [SocketAddr::from(([10, 0, 0, 1], 1000)), SocketAddr::from(([10, 0, 0, 2], 443))];
    let ends = [0u8, 1].map(|index| {
        let mut config = EndpointConfig::new(vec![LocalSocket::new(addrs[usize::from(index)])]);
        config.seed = Some(Seed::new(u64::from(index)));
        config.max_sessions = MAX_SESSIONS;
        Endpoint::new(config, epoch).expect("a socket")
    });
    let mut world =
        World { now: Time::ZERO, ends, addrs, wire: Vec::new(), latest: [Vec::new(), Vec::new()] };
    world.ends[1].listen(identity, SessionConfig::default()).expect("an identity");
    let client = world.ends[0]
        .connect(world.now, SocketId(0), addrs[1], "server", trust, SessionConfig::default())
        .expect("a server");
    world.collect();
    let mut script = script.iter().copied();
    let mut sent = 0;
    while let (Some(what), Some(detail)) = (script.next(), script.next()) {
        let end = usize::from(what & 1);
        let stranger = SocketAddr::from(([10, 9, 9, detail & 3], 9));
        match what >> 1 & 7 {
            // The first datagram in flight, or all of them, arrives.
            0 => {
                let count = if detail & 1 == 0 { 1 } else { world.wire.len() };
                for (to, bytes) in world.wire.drain(..count.min(world.wire.len())).collect::<Vec<_>>() {
                    let from = world.addrs[1 - to];
                    world.deliver(to, from, &bytes);
                }
            }
            // A datagram is lost.
            1 => {
                world.wire.pop();
            }
            // Time passes.
            2 => {
                world.now += Duration::from_micros(u64::from(detail) * u64::from(detail) * 100);
                for end in [0, 1] {
                    let now = world.now;
                    world.ends[end].handle_timeout(now);
                }
            }
            // A sent datagram arrives changed, from its sender or from a stranger.
            3 => {
                let mut bytes = world.latest[1 - end].clone();
                for _ in 0..=detail & 7 {
                    let (Some(at), Some(with)) = (script.next(), script.next()) else { break };
                    // Headers are at the front: most changes go there.
                    let at = if detail & 8 == 0 { usize::from(at) & 31 } else { usize::from(at) * 6 };
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= with;
                    }
                }
                let from = if detail & 16 == 0 { world.addrs[1 - end] } else { stranger };
                world.deliver(end, from, &bytes);
            }
            // Arbitrary bytes arrive.
            4 => {
                let bytes: Vec<u8> = script.by_ref().take(usize::from(detail)).collect();
                world.deliver(end, stranger, &bytes);
            }
            // A sent datagram arrives again, truncated, or from elsewhere.
            5 => {
                let bytes = world.latest[1 - end].clone();
                let len = if detail & 1 == 0 { bytes.len() } else { usize::from(detail) * 5 };
                let from = if detail & 2 == 0 { world.addrs[1 - end] } else { stranger };
                world.deliver(end, from, &bytes[..len.min(bytes.len())]);
            }
            // An end sends a message.
            6 if sent < 64 => {
                sent += 1;
                let id = if end == 0 { Some(client) } else { world.ends[1].sessions().next() };
                let (now, priority) = (world.now, Priority::ALL[usize::from(detail) % 5]);
                if let Some(session) = id.and_then(|id| world.ends[end].session(id)) {
                    let message =
                        Message::new(vec![detail; usize::from(detail) * 20 + 1]).with_priority(priority);
                    let _ = session.send(now, message);
                }
            }
            _ => {}
        }
        world.collect();
    }
});
