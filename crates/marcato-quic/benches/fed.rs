//! Sender's cost of feeding packet by packet: the bare engine against the session, with the same
//! number of datagrams per poll. Both send one large message in memory, over two lanes whose
//! windows never fill; only the sender's time counts.
//!
//! `cargo bench -p marcato-quic --bench fed` prints MB/s of one core, CPU s per GB, and ratios
//! within one run.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration as Span, Instant};

use bytes::{Bytes as Payload, BytesMut};
use marcato_quic::{
    Batch, Congestion, Endpoint, EndpointConfig, Identity, LaneRequest, LocalSocket, Message, Pacing,
    PathScheduler, SessionConfig, SessionId, SocketId, Trust,
};
use marcato_sched::conductor::{Config, Debt};
use marcato_units::{Bytes, Duration, Priority, Seed, Time};
use marcato_wire::Ecn;
use noq_proto::congestion::NewRenoConfig;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EndpointConfig as EngineConfig, Event,
    FourTuple, PathStatus, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use rustls::RootCertStore;

const MTU: u16 = 1452;
const MESSAGE: usize = 64 << 20;
/// Window in bytes: more than is ever in flight.
const WINDOW: u64 = 1 << 30;
/// One-way delay between the two ends.
const DELAY: Duration = Duration::from_micros(200);
/// Datagrams that leave in one instant: a full socket buffer.
const BURST: usize = 400;

/// Datagram in flight: its lane and its bytes.
type Datagram = (u8, Vec<u8>);

fn client_addr(lane: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, lane + 1), 5000 + u16::from(lane)).into()
}

fn server_addr(lane: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 1, lane + 1), 6000 + u16::from(lane)).into()
}

/// One end of a connection.
trait End {
    fn handle(&mut self, now: Time, datagrams: Vec<Datagram>);
    fn transmit(&mut self, now: Time, most: usize) -> Vec<Datagram>;
    /// Bytes that this end has handed to its application.
    fn received(&self) -> usize;
    /// Returns whether this end may begin to send a message.
    fn ready(&self) -> bool;
    fn send(&mut self, now: Time, body: Payload);
    fn next_timeout(&self) -> Option<Time>;
}

/// Splits the result of one poll into datagrams.
fn split(lane: u8, bytes: &[u8], segment: Option<usize>, out: &mut Vec<Datagram>) {
    out.extend(bytes.chunks(segment.unwrap_or(bytes.len()).max(1)).map(|part| (lane, part.to_vec())));
}

/// A session behind its endpoint.
struct Fed {
    endpoint: Endpoint,
    client: bool,
    session: Option<SessionId>,
    lanes: usize,
    received: usize,
    buf: Vec<u8>,
}

impl Fed {
    fn pair(datagrams: usize, identity: &Identity, epoch: Instant) -> [Box<dyn End>; 2] {
        let batch = NonZeroUsize::new(datagrams).expect("at least one");
        let config = SessionConfig {
            conductor: Config { max_queued: Bytes::new(1 << 32), ..Config::with_debt(Debt::strict()) },
            path_scheduler: PathScheduler::LowRtt,
            congestion: Congestion::RENO,
            initial_window: Some(Bytes::new(WINDOW)),
            pacing: Pacing::Off,
            batch: Batch { packets: batch.get(), span: Duration::from_millis(1) },
            initial_mtu: MTU,
            mtu_discovery: false,
            stream_window: Bytes::kb(2000),
            receive_window: Bytes::kb(64_000),
            send_window: Bytes::kb(64_000),
            ..SessionConfig::default()
        };
        let sockets = |addr: fn(u8) -> SocketAddr| (0..2).map(|lane| LocalSocket::new(addr(lane))).collect();
        let endpoint = |addr, seed| {
            let config = EndpointConfig { seed: Some(Seed::new(seed)), ..EndpointConfig::new(sockets(addr)) };
            Endpoint::new(config, epoch).expect("two sockets")
        };
        let (mut client, mut server) = (endpoint(client_addr, 1), endpoint(server_addr, 2));
        server.listen(identity, config.clone()).expect("a good configuration");
        let trust = Trust::Certificate(identity.certificate().expect("one").clone());
        let id = client
            .connect(Time::ZERO, SocketId(0), server_addr(0), "server", &trust, config)
            .expect("a good configuration");
        let request = LaneRequest::new(SocketId(1), server_addr(1));
        client.session(id).expect("it").add_lane(Time::ZERO, request).expect("the second lane");
        let end = |endpoint, client, session| {
            Box::new(Self { endpoint, client, session, lanes: 0, received: 0, buf: Vec::new() })
                as Box<dyn End>
        };
        [end(client, true, Some(id)), end(server, false, None)]
    }

    fn events(&mut self, now: Time) {
        while let Some((id, event)) = self.endpoint.poll_event() {
            self.session = Some(id);
            self.lanes += usize::from(matches!(event, marcato_quic::Event::LaneUp(_)));
            if event == marcato_quic::Event::Readable {
                let Some(session) = self.endpoint.session(id) else { continue };
                while let Some(piece) = session.read(now) {
                    self.received += piece.bytes.len();
                }
            }
        }
    }
}

impl End for Fed {
    fn handle(&mut self, now: Time, datagrams: Vec<Datagram>) {
        if self.endpoint.next_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        for (lane, bytes) in datagrams {
            let from = if self.client { server_addr(lane) } else { client_addr(lane) };
            let payload = BytesMut::from(&bytes[..]);
            self.endpoint.handle_datagram(now, SocketId(lane), from, Ecn::NotEct, payload);
        }
    }

    fn transmit(&mut self, now: Time, most: usize) -> Vec<Datagram> {
        let mut out = Vec::new();
        loop {
            self.buf.clear();
            match self.endpoint.poll_transmit(now, NonZeroUsize::new(10).expect("ten"), &mut self.buf) {
                Some(transmit) => split(transmit.socket.0, &self.buf, transmit.segment, &mut out),
                None => {
                    self.events(now);
                    self.buf.clear();
                    match self.endpoint.poll_transmit(now, NonZeroUsize::new(10).expect("ten"), &mut self.buf)
                    {
                        Some(transmit) => split(transmit.socket.0, &self.buf, transmit.segment, &mut out),
                        None => return out,
                    }
                }
            }
            if out.len() >= most {
                return out;
            }
        }
    }

    fn received(&self) -> usize {
        self.received
    }

    fn ready(&self) -> bool {
        self.lanes == 1
    }

    fn send(&mut self, now: Time, body: Payload) {
        let session = self.session.and_then(|id| self.endpoint.session(id)).expect("a session");
        session.send(now, Message::new(body).with_priority(Priority::P2)).expect("room for one message");
    }

    fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout()
    }
}

/// Engine without a session.
struct Bare {
    endpoint: noq_proto::Endpoint,
    conn: Option<(ConnectionHandle, Connection)>,
    client: bool,
    epoch: Instant,
    datagrams: NonZeroUsize,
    confirmed: bool,
    opened: bool,
    up: bool,
    sending: Option<(StreamId, Payload)>,
    received: usize,
}

impl Bare {
    fn pair(datagrams: usize, identity: &Identity, epoch: Instant) -> [Box<dyn End>; 2] {
        let datagrams = NonZeroUsize::new(datagrams).expect("at least one");
        let transport = || {
            let mut reno = NewRenoConfig::default();
            reno.initial_window(WINDOW);
            let mut transport = TransportConfig::default();
            transport
                .initial_mtu(MTU)
                .mtu_discovery_config(None)
                .stream_receive_window(VarInt::from_u32(2_000_000))
                .receive_window(VarInt::from_u32(64_000_000))
                .send_window(64_000_000)
                .max_concurrent_multipath_paths(8)
                .congestion_controller_factory(Arc::new(reno));
            Arc::new(transport)
        };
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(identity.certificate().expect("one").clone()).expect("a certificate");
        let client_tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (chain, key) = identity.parts();
        let server_tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate");
        let server_crypto = Arc::new(QuicServerConfig::try_from(server_tls).expect("a suite"));
        let mut server_config = ServerConfig::with_crypto(server_crypto);
        server_config.transport_config(transport());
        let client_crypto = Arc::new(QuicClientConfig::try_from(client_tls).expect("a suite"));
        let mut client_config = ClientConfig::new(client_crypto);
        client_config.transport_config(transport());
        let reset = || Arc::new(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[7; 64]));
        let engine = |seed| {
            let mut config = EngineConfig::new(reset());
            config.rng_seed(Some([seed; 32]));
            Arc::new(config)
        };
        let mut client = noq_proto::Endpoint::new(engine(1), None, true);
        let server = noq_proto::Endpoint::new(engine(2), Some(Arc::new(server_config)), true);
        let conn = client.connect(epoch, client_config, server_addr(0), "server").expect("a connection");
        let end = |endpoint, conn, client| {
            Box::new(Self {
                endpoint,
                conn,
                client,
                epoch,
                datagrams,
                confirmed: false,
                opened: false,
                up: false,
                sending: None,
                received: 0,
            }) as Box<dyn End>
        };
        [end(client, Some(conn), true), end(server, None, false)]
    }

    fn instant(&self, now: Time) -> Instant {
        self.epoch + Span::from_nanos(now.as_nanos())
    }

    fn events(&mut self, now: Time) {
        let instant = self.instant(now);
        let Some((handle, conn)) = &mut self.conn else { return };
        while let Some(event) = conn.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                conn.handle_event(event);
            }
        }
        while let Some(event) = conn.poll() {
            match event {
                Event::HandshakeConfirmed => self.confirmed = true,
                Event::Path(noq_proto::PathEvent::Established { .. }) => self.up = true,
                Event::Stream(StreamEvent::Opened { dir }) => while conn.streams().accept(dir).is_some() {},
                _ => {}
            }
        }
        if self.client && self.confirmed && !self.opened {
            let tuple = FourTuple::new(server_addr(1), Some(client_addr(1).ip()));
            self.opened = conn.open_path(tuple, PathStatus::Available, instant).is_ok();
        }
        if !self.client {
            let stream = StreamId::new(noq_proto::Side::Client, Dir::Uni, 0);
            if let Ok(mut chunks) = conn.recv_stream(stream).read(false) {
                while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                    self.received += chunk.bytes.len();
                }
                let _ = chunks.finalize();
            }
        }
        if let Some((stream, body)) = &mut self.sending {
            let mut chunks = [body.clone()];
            if conn.send_stream(*stream).write_chunks(&mut &mut chunks[..]).is_ok() {
                let [rest] = chunks;
                *body = rest;
            }
        }
    }
}

impl End for Bare {
    fn handle(&mut self, now: Time, datagrams: Vec<Datagram>) {
        let instant = self.instant(now);
        if let Some((_, conn)) = &mut self.conn
            && conn.poll_timeout().is_some_and(|at| at <= instant)
        {
            conn.handle_timeout(instant);
        }
        for (lane, bytes) in datagrams {
            let (from, to) = if self.client {
                (server_addr(lane), client_addr(lane))
            } else {
                (client_addr(lane), server_addr(lane))
            };
            let tuple = FourTuple::new(from, Some(to.ip()));
            let mut buf = Vec::new();
            match self.endpoint.handle(instant, tuple, None, BytesMut::from(&bytes[..]), &mut buf) {
                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                    if let Some((_, conn)) = &mut self.conn {
                        conn.handle_event(event);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    self.conn = self.endpoint.accept(incoming, instant, &mut buf, None).ok();
                }
                Some(DatagramEvent::Response(_)) | None => {}
            }
            self.events(now);
        }
    }

    fn transmit(&mut self, now: Time, most: usize) -> Vec<Datagram> {
        self.events(now);
        let instant = self.instant(now);
        let mut out = Vec::new();
        let Some((_, conn)) = &mut self.conn else { return out };
        let mut buf = Vec::new();
        while out.len() < most {
            buf.clear();
            let Some(transmit) = conn.poll_transmit(instant, self.datagrams, &mut buf) else { break };
            let lane = (0..2).find(|&lane| {
                transmit.destination == if self.client { server_addr(lane) } else { client_addr(lane) }
            });
            split(lane.unwrap_or(0), &buf, transmit.segment_size, &mut out);
        }
        out
    }

    fn received(&self) -> usize {
        self.received
    }

    fn ready(&self) -> bool {
        self.up
    }

    fn send(&mut self, now: Time, body: Payload) {
        let stream = self.conn.as_mut().and_then(|(_, conn)| conn.streams().open(Dir::Uni)).expect("one");
        self.sending = Some((stream, body));
        self.events(now);
    }

    fn next_timeout(&self) -> Option<Time> {
        let at = self.conn.as_ref()?.1.poll_timeout()?;
        Some(Time::from_nanos(u64::try_from(at.duration_since(self.epoch).as_nanos()).ok()?))
    }
}

/// Returns the sender's time for one message, and the bytes that it sent.
fn transfer([mut client, mut server]: [Box<dyn End>; 2]) -> (Span, usize) {
    let body = Payload::from(vec![0; MESSAGE]);
    let mut now = Time::ZERO;
    let mut back: Vec<Datagram> = Vec::new();
    let (mut begun, mut spent, mut wire) = (false, Span::ZERO, 0);
    while server.received() < MESSAGE {
        let began = Instant::now();
        client.handle(now, std::mem::take(&mut back));
        if !begun && client.ready() {
            client.send(now, body.clone());
            begun = true;
        }
        let there = client.transmit(now, BURST);
        if begun {
            spent += began.elapsed();
            wire += there.iter().map(|(_, bytes)| bytes.len() + 28).sum::<usize>();
        }
        let later = now + DELAY;
        server.handle(later, there);
        back = server.transmit(later, usize::MAX);
        now = later + DELAY;
        if back.is_empty() {
            // Nothing is in flight, so time advances to the next timer.
            let next = [client.next_timeout(), server.next_timeout()].into_iter().flatten().min();
            now = now.max(next.unwrap_or(now));
        }
        assert!(now < Time::from_secs(600), "the transfer hangs at {}", server.received());
    }
    (spent, wire)
}

fn main() {
    let identity = Identity::self_signed("server").expect("a name");
    let epoch = Instant::now();
    let megabytes = MESSAGE as f64 / 1e6;
    println!(
        "sender, {} MiB in memory, two lanes, {MTU}-byte packets; best of 5, interleaved",
        MESSAGE >> 20
    );
    println!(
        "{:>10} {:>12} {:>12} {:>8} {:>14} {:>14} {:>12}",
        "datagrams", "bare MB/s", "fed MB/s", "ratio", "bare CPU s/GB", "fed CPU s/GB", "wire ratio"
    );
    for datagrams in [1, 4, 10] {
        let mut best = [Span::MAX; 2];
        let mut wire = [0; 2];
        for _ in 0..5 {
            for (at, pair) in [Bare::pair, Fed::pair].into_iter().enumerate() {
                let (spent, bytes) = transfer(pair(datagrams, &identity, epoch));
                best[at] = best[at].min(spent);
                wire[at] = bytes;
            }
        }
        let rate = best.map(|spent| megabytes / spent.as_secs_f64());
        println!(
            "{datagrams:>10} {:>12.0} {:>12.0} {:>8.3} {:>14.2} {:>14.2} {:>12.4}",
            rate[0],
            rate[1],
            rate[1] / rate[0],
            1e3 / rate[0],
            1e3 / rate[1],
            wire[0] as f64 / wire[1] as f64,
        );
    }
}
