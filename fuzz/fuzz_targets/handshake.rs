//! No input before a completed handshake, over TCP or QUIC, causes a panic or is accepted as a
//! message. Over QUIC, the server validates addresses and has few places. The target `datagrams`
//! covers the time within and after the handshake of two honest ends.
#![no_main]

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use marcato_quic::{Endpoint, EndpointConfig, Event, Identity, LocalSocket, SessionConfig, SocketId, Trust};
use marcato_units::{Duration, Seed, Time};
use marcato_wire::Ecn;

/// Identity shared by all inputs: creating one takes far longer than running an input.
fn identity() -> &'static (Identity, Trust) {
    static IDENTITY: OnceLock<(Identity, Trust)> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let identity = Identity::self_signed("server").expect("a name");
        let trust = Trust::Certificate(identity.certificate().expect("one").clone());
        (identity, trust)
    })
}

fn endpoint(addr: SocketAddr, seed: u64, change: impl FnOnce(&mut EndpointConfig)) -> Endpoint {
    let mut config = EndpointConfig::new(vec![LocalSocket::new(addr)]);
    config.seed = Some(Seed::new(seed));
    change(&mut config);
    Endpoint::new(config, Instant::now()).expect("a socket")
}

fn quic(script: &[u8]) {
    let (identity, trust) = identity();
    let server_addr = SocketAddr::from(([10, 0, 0, 2], 443));
    let mut server = endpoint(server_addr, 1, |config| {
        config.max_sessions = 3;
        config.max_handshakes = 1;
        config.handshake_timeout = Some(Duration::from_secs(1));
    });
    server.listen(identity, SessionConfig::default()).expect("an identity");
    let mut script = script.iter().copied();
    let mut now = Time::ZERO;
    let (mut clients, mut latest) = (Vec::new(), Vec::new());
    while let (Some(what), Some(detail)) = (script.next(), script.next()) {
        let from = SocketAddr::from(([10, 0, 1, detail & 7], 1000));
        let mut bytes = latest.clone();
        match what & 7 {
            // Another client connects.
            0 | 1 if clients.len() < 6 => {
                let addr = SocketAddr::from(([10, 0, 1, clients.len() as u8], 1000));
                let mut client = endpoint(addr, 2 + clients.len() as u64, |_| {});
                let _ =
                    client.connect(now, SocketId(0), server_addr, "server", trust, SessionConfig::default());
                clients.push((addr, client));
            }
            // A client's latest datagram arrives changed.
            2 | 3 => {
                for _ in 0..=detail & 7 {
                    let (Some(at), Some(with)) = (script.next(), script.next()) else { break };
                    if let Some(byte) = bytes.get_mut(usize::from(at)) {
                        *byte ^= with;
                    }
                }
                server.handle_datagram(now, SocketId(0), from, Ecn::NotEct, BytesMut::from(&bytes[..]));
            }
            // It arrives truncated, or once more.
            4 => {
                bytes.truncate(usize::from(detail) * 5);
                server.handle_datagram(now, SocketId(0), from, Ecn::NotEct, BytesMut::from(&bytes[..]));
            }
            // Arbitrary bytes arrive.
            5 => {
                let bytes: Vec<u8> = script.by_ref().take(usize::from(detail)).collect();
                server.handle_datagram(now, SocketId(0), from, Ecn::NotEct, BytesMut::from(&bytes[..]));
            }
            6 => now += Duration::from_millis(u64::from(detail) * 8),
            _ => {}
        }
        server.handle_timeout(now);
        // Both sides send all their datagrams. Whether those of the other side arrive depends on
        // the input.
        for (addr, client) in &mut clients {
            client.handle_timeout(now);
            let mut out = Vec::new();
            while client.poll_transmit(now, NonZeroUsize::MIN, &mut out).is_some() {
                latest.clone_from(&out);
                if what & 8 == 0 {
                    server.handle_datagram(now, SocketId(0), *addr, Ecn::NotEct, BytesMut::from(&out[..]));
                }
                out.clear();
            }
            while client.poll_event().is_some() {}
        }
        let mut out = Vec::new();
        let mut polls = 0;
        while let Some(transmit) = server.poll_transmit(now, NonZeroUsize::MIN, &mut out) {
            if let Some((_, client)) =
                clients.iter_mut().find(|(addr, _)| *addr == transmit.to && what & 16 == 0)
            {
                client.handle_datagram(now, SocketId(0), server_addr, Ecn::NotEct, BytesMut::from(&out[..]));
            }
            out.clear();
            polls += 1;
            assert!(polls < 10_000, "endless datagrams");
        }
        while let Some((_, event)) = server.poll_event() {
            assert!(!matches!(event, Event::Readable | Event::Datagram | Event::GivenUp { .. }), "{event:?}");
        }
        let stats = server.stats();
        assert!(stats.handshakes <= stats.sessions && stats.sessions <= 4, "{stats:?}");
    }
}

fuzz_target!(|script: &[u8]| match script.split_first() {
    Some((0..=127, script)) => marcato_net::fuzzing::tcp_handshake(script),
    Some((_, script)) => quic(script),
    None => {}
});
