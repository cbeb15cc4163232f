//! Access of the fuzz targets in `fuzz/` to private code. Only built with `--cfg fuzzing`.

use std::sync::{Arc, OnceLock};

use marcato_quic::{Identity, Trust};
use marcato_units::{Bytes, Duration, Priority, Time};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use tokio::sync::oneshot;

use crate::config::{Config, LongMessages};
use crate::connection::Message;
use crate::inbound::{Inbound, LongNext};
use crate::pool::Pool;
use crate::tcp::fuzzing::{Pipe, Reader, Sender, client_tls, server_tls};

/// Feeds the bytes of a peer after the handshake. The first ones determine their split, the data
/// being sent, and the handling of long messages. No input may make the reader panic, or hold more
/// than its limits allow.
pub fn tcp_frames(script: &[u8]) {
    let Some((&[cut, sending, reading], mut bytes)) = script.split_first_chunk() else { return };
    let mut config = Config::default();
    config.limits.max_message = Bytes::new(400);
    config.limits.open = Bytes::new(1000);
    config.limits.open_messages = 4;
    config.limits.unread = Bytes::new(2000);
    config.limits.missed = 3;
    config.limits.long_messages = if reading & 1 == 0 { LongMessages::Refuse } else { LongMessages::Stream };
    let Ok(mut sender) = Sender::new(&config) else { return };
    let mut tickets = Vec::new();
    for number in 0..sending & 7 {
        let (ticket, outcome) = oneshot::channel();
        let level = Priority::ALL[usize::from(number) % Priority::COUNT];
        let message =
            Message::new(vec![number; 30]).with_priority(level).with_lifetime(Duration::from_secs(1));
        if sender.offer(Time::ZERO, &message, ticket).is_ok() {
            tickets.push(outcome);
        }
    }
    let mut out = Vec::new();
    // The bytes written here may be acknowledged.
    sender.fill(Time::ZERO, usize::from(sending >> 3) * 8, &mut out);
    let (mut reader, mut inbound) = (Reader::new(), Inbound::new(config.limits, Pool::default()));
    let mut long = None;
    while !bytes.is_empty() && !inbound.is_full() {
        let (now, rest) = bytes.split_at((usize::from(cut) + 1).min(bytes.len()));
        bytes = rest;
        let fed = reader.feed(now, &mut inbound, &mut sender);
        let (counters, limits) = (*inbound.counters(), &config.limits);
        let most = now.len() as u64;
        assert!(counters.open_peak.get() <= limits.open.get() + most);
        assert!(counters.unread_peak.get() <= limits.unread.get() + limits.open.get() + most);
        assert!(inbound.open_messages() <= limits.open_messages);
        assert!(sender.receipts() <= script.len());
        if fed.is_err() {
            return;
        }
        if reading & 2 != 0 {
            while inbound.take().is_some() {}
            while inbound.take_missed().is_some() {}
            long = inbound.take_long().map(|(number, _)| number).or(long);
        }
        if let Some(number) = long.filter(|_| reading & 4 != 0) {
            while let LongNext::Piece(_) = inbound.next_of(number) {}
        }
        if reading & 8 != 0
            && let Some(number) = long.take()
        {
            inbound.forget_long(number);
        }
        sender.fill(Time::ZERO, 200, &mut out);
        out.clear();
    }
}

struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Returns one configuration for all inputs: creating one takes far longer than a run.
fn tls() -> &'static Tls {
    static TLS: OnceLock<Tls> = OnceLock::new();
    TLS.get_or_init(|| {
        let identity = Identity::self_signed("server").expect("a name");
        let trust = Trust::Certificate(identity.certificate().expect("one").clone());
        Tls {
            server: server_tls(&identity).expect("an identity"),
            client: client_tls(&trust).expect("a trust"),
        }
    })
}

/// Feeds arbitrary input to a server that expects TLS, or as a server's answer to a client. It is a
/// handshake that the script modifies, followed by the script's own bytes. The result has to be an
/// error or a wait for more, and no plaintext.
pub fn tcp_handshake(script: &[u8]) {
    let Some((&[whom, changes], mut script)) = script.split_first_chunk() else { return };
    let name = ServerName::try_from("server").expect("a name");
    let Ok(mut client) = ClientConnection::new(Arc::clone(&tls().client), name) else { return };
    let Ok(mut server) = ServerConnection::new(Arc::clone(&tls().server)) else { return };
    let mut wire = Vec::new();
    let _ = client.write_tls(&mut wire);
    if whom & 1 == 1 {
        // The client is the one attacked.
        let _ = server.read_tls(&mut &wire[..]);
        let _ = server.process_new_packets();
        wire.clear();
        let _ = server.write_tls(&mut wire);
    }
    for _ in 0..changes & 15 {
        let Some((&[at, more, with], rest)) = script.split_first_chunk() else { break };
        script = rest;
        if let Some(byte) = wire.get_mut(usize::from(at) + usize::from(more & 3) * 256) {
            *byte ^= with;
        }
    }
    if changes & 16 != 0 {
        wire.truncate(usize::from(changes) * 2);
    }
    if changes & 32 != 0 {
        wire.clear();
    }
    wire.extend_from_slice(script);
    let mut pipe = Pipe::tls(if whom & 1 == 1 { client.into() } else { server.into() });
    let mut scratch = vec![0; 16 << 10];
    let mut ours = 0;
    for part in wire.chunks(usize::from(whom >> 1) * 16 + 1) {
        let taken = pipe.receive::<TlsOrIo>(part, &mut scratch, |bytes| {
            ours += bytes.len();
            Ok(())
        });
        if !matches!(taken, Ok(false)) {
            break;
        }
    }
    assert_eq!(ours, 0, "bytes without a handshake");
}

/// Error that ends the reading of TLS.
struct TlsOrIo;

impl From<std::io::Error> for TlsOrIo {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl From<rustls::Error> for TlsOrIo {
    fn from(_: rustls::Error) -> Self {
        Self
    }
}
