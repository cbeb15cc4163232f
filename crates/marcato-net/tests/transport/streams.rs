//! Plain streams over sockets: between two of our ends, and with ends of quinn and noq.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes as Payload;
use marcato_net::streams::{
    Connection, End, Endpoint, Parameters, ReadError, RecvStream, SendDatagramError, SendStream,
    StreamsConfig, Urgency, WriteError,
};
use marcato_net::{Bytes, ClientSecurity, Config, Coupling, Engine, Identity, Remote, ServerSecurity, Trust};
use marcato_units::Seed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{NAME, body, localhost, within};

const ALPN: &[u8] = b"streams/test";

fn config() -> StreamsConfig {
    StreamsConfig::new(ALPN)
}

struct Server {
    endpoint: Endpoint,
    remote: Remote,
}

async fn server(config: &StreamsConfig) -> Server {
    let identity = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let endpoint =
        Endpoint::listen(config, &[localhost().into()], &ServerSecurity::Tls(identity)).await.unwrap();
    let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting(NAME, trust));
    Server { endpoint, remote }
}

async fn pair(config: &StreamsConfig) -> (Connection, Connection, Server) {
    let server = server(config).await;
    let connect = Endpoint::connect(config, server.remote.clone());
    let (client, accepted) = within(async { tokio::join!(connect, server.endpoint.accept()) }).await;
    (client.unwrap(), accepted.unwrap(), server)
}

#[tokio::test]
async fn a_connection_ends_with_the_code_of_the_application() {
    let (client, accepted, _server) = pair(&config()).await;
    client.close(1 << 50, b"no more");
    let end = End::Application { code: 1 << 50, reason: Payload::from_static(b"no more") };
    assert_eq!(within(accepted.closed()).await, end);
    assert_eq!((client.close_reason(), accepted.close_reason()), (Some(End::Local), Some(end.clone())));
    assert_eq!(within(accepted.open_uni()).await.unwrap_err(), end);
    assert_eq!(within(accepted.accept_bi()).await.unwrap_err(), end);
    assert_eq!(within(client.read_datagram()).await, Err(End::Local));
}

#[tokio::test]
async fn the_last_handle_of_a_connection_closes_it() {
    let (client, accepted, _server) = pair(&config()).await;
    let stream = client.open_uni().await.unwrap();
    drop(client);
    assert_eq!(accepted.close_reason(), None);
    drop(stream);
    let end = End::Application { code: 0, reason: Payload::new() };
    assert_eq!(within(accepted.closed()).await, end);
}

#[tokio::test]
async fn an_endpoint_closes_its_connections_with_a_code() {
    let (client, _accepted, server) = pair(&config()).await;
    server.endpoint.close(9, b"maintenance");
    let end = End::Application { code: 9, reason: Payload::from_static(b"maintenance") };
    assert_eq!(within(client.closed()).await, end);
    assert!(within(server.endpoint.accept()).await.is_err());
}

#[tokio::test]
async fn dropped_streams_end_and_dropped_readers_stop() {
    let (client, accepted, _server) = pair(&config()).await;
    let (mut send, recv) = within(client.open_bi()).await.unwrap();
    within(send.write_all(b"all")).await.unwrap();
    drop((send, recv));
    let (back, mut there) = within(accepted.accept_bi()).await.unwrap();
    let mut read = String::new();
    within(there.read_to_string(&mut read)).await.unwrap();
    assert_eq!(read, "all");
    assert_eq!(within(back.stopped()).await, Ok(Some(0)));
}

#[tokio::test]
async fn writes_wait_for_a_slow_reader_and_acknowledgements_come() {
    let mut config = config();
    config.streams.stream_buffer = Bytes::kb(20);
    config.transport.quic.session.stream_window = Bytes::kb(50);
    let (client, accepted, _server) = pair(&config).await;
    let mut send = within(client.open_uni()).await.unwrap();
    let whole = body(1, 400_000);
    let writing = tokio::spawn({
        let whole = whole.clone();
        async move {
            within(send.write_chunk(whole)).await.unwrap();
            assert_eq!(within(send.acknowledged_to(100_000)).await, Ok(true));
            assert!(send.acknowledged().unwrap() >= 100_000);
            send.finish().unwrap();
            assert_eq!(within(send.acknowledged_to(400_001)).await, Ok(true));
            assert_eq!(within(send.stopped()).await, Ok(None));
            assert!(send.finish().is_err() && send.reset(0).is_err());
        }
    });
    let mut recv = within(accepted.accept_uni()).await.unwrap();
    // Nothing is read, so no more than the window and the buffer is written.
    assert!(!writing.is_finished());
    let mut read = Vec::new();
    while let Some(chunk) = within(recv.read_chunk(999)).await.unwrap() {
        read.extend_from_slice(&chunk);
    }
    assert!(read == whole);
    within(writing).await.unwrap();
}

#[tokio::test]
async fn urgent_streams_overtake_background_of_the_same_connection() {
    let mut config = config();
    config.transport.coupled = Coupling::Auto;
    config.streams.stream_buffer = Bytes::new(8 << 20);
    let (client, accepted, _server) = pair(&config).await;
    let mut bulk = within(client.open_uni()).await.unwrap();
    bulk.set_order(Parameters::sequential(Urgency::LEAST));
    within(bulk.write_chunk(vec![0; 8 << 20].into())).await.unwrap();
    bulk.finish().unwrap();
    let mut urgent = within(client.open_uni()).await.unwrap();
    urgent.set_order(Parameters::sequential(Urgency::MOST));
    within(urgent.write_all(&[1; 1000])).await.unwrap();
    urgent.finish().unwrap();
    let mut streams =
        [within(accepted.accept_uni()).await.unwrap(), within(accepted.accept_uni()).await.unwrap()];
    streams.sort_by_key(RecvStream::id);
    let [mut first, mut second] = streams;
    let mut read = Vec::new();
    within(second.read_to_end(&mut read)).await.unwrap();
    assert_eq!(read, [1; 1000]);
    // The receiver's window is smaller than the bulk, which nobody has read.
    assert_eq!(bulk.acknowledged().map(|bytes| bytes < 8 << 20), Some(true));
    read.clear();
    within(first.read_to_end(&mut read)).await.unwrap();
    assert_eq!(read.len(), 8 << 20);
    assert_eq!(bulk.order().urgency, Urgency::LEAST);
}

#[tokio::test]
async fn datagrams_are_bounded_and_arrive() {
    let (client, accepted, _server) = pair(&config()).await;
    let most = client.max_datagram_size().unwrap();
    let too_long = client.send_datagram(vec![0; most + 1].into());
    assert!(
        matches!(too_long, Err(SendDatagramError::TooLong { limit }) if limit == Bytes::new(most as u64))
    );
    client.send_datagram(vec![7; most].into()).unwrap();
    assert_eq!(within(accepted.read_datagram()).await.unwrap(), vec![7; most]);
    let mut none = config();
    none.transport.limits.unreliable = Bytes::ZERO;
    let (client, _accepted, _server) = pair(&none).await;
    assert_eq!(client.send_datagram(Payload::new()), Err(SendDatagramError::Disabled));
}

#[tokio::test]
async fn messages_and_streams_do_not_mix_by_mistake() {
    let mut config = Config::new(Engine::Quic);
    config.quic.session.protocol =
        marcato_quic::Protocol::Streams(Box::new(marcato_quic::streams::StreamsConfig::new(ALPN)));
    let identity = Identity::self_signed(NAME).unwrap();
    let at = [localhost().into()];
    let refused = marcato_net::Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await;
    assert!(refused.unwrap_err().to_string().contains("streams::Endpoint"));
}

/// A stack at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    Ours,
    Quinn,
    Noq,
}

/// Connection of any stack. Endpoints of others have to outlive it.
#[expect(dead_code, reason = "the endpoints are only kept")]
enum Peer {
    Ours(Connection),
    Quinn(quinn::Connection, quinn::Endpoint),
    Noq(noq::Connection, noq::Endpoint),
}

enum Sending {
    Ours(SendStream),
    Quinn(quinn::SendStream),
    Noq(noq::SendStream),
}

enum Receiving {
    Ours(RecvStream),
    Quinn(quinn::RecvStream),
    Noq(noq::RecvStream),
}

/// Manner in which a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// The sender finishes.
    Finished,
    /// The sender resets it with this code after all of it was read.
    Reset(u32),
    /// The reader stops it with this code after all of it was read.
    Stopped(u32),
}

macro_rules! stack {
    ($module:ident, $connect:ident, $listen:ident, $peer:ident) => {
        async fn $connect(to: SocketAddr, trust: &Trust) -> Peer {
            let mut tls = trust.client_tls().unwrap();
            tls.alpn_protocols = vec![ALPN.to_vec()];
            let crypto = $module::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
            #[allow(unused_mut, reason = "one of the two needs it")]
            let mut endpoint = $module::Endpoint::client(localhost()).unwrap();
            endpoint.set_default_client_config($module::ClientConfig::new(Arc::new(crypto)));
            Peer::$peer(within(endpoint.connect(to, NAME).unwrap()).await.unwrap(), endpoint)
        }

        fn $listen(identity: &Identity) -> $module::Endpoint {
            let mut tls = identity.server_tls(None).unwrap();
            tls.alpn_protocols = vec![ALPN.to_vec()];
            let crypto = $module::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
            let config = $module::ServerConfig::with_crypto(Arc::new(crypto));
            $module::Endpoint::server(config, localhost()).unwrap()
        }
    };
}

stack!(quinn, connect_quinn, listen_quinn, Quinn);
stack!(noq, connect_noq, listen_noq, Noq);

/// Returns both ends of a connection between two stacks.
async fn join(client: Stack, server: Stack) -> (Peer, Peer, Option<Server>) {
    let identity = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let connect = async |to: SocketAddr| match client {
        Stack::Ours => {
            let remote = Remote::new(to, ClientSecurity::trusting(NAME, trust.clone()));
            Peer::Ours(within(Endpoint::connect(&config(), remote)).await.unwrap())
        }
        Stack::Quinn => connect_quinn(to, &trust).await,
        Stack::Noq => connect_noq(to, &trust).await,
    };
    match server {
        Stack::Ours => {
            let at = [localhost().into()];
            let security = ServerSecurity::Tls(identity);
            let endpoint = Endpoint::listen(&config(), &at, &security).await.unwrap();
            let to = endpoint.local_addrs()[0];
            let (near, far) = within(async { tokio::join!(connect(to), endpoint.accept()) }).await;
            let remote = Remote::new(to, ClientSecurity::trusting(NAME, trust.clone()));
            (near, Peer::Ours(far.unwrap()), Some(Server { endpoint, remote }))
        }
        Stack::Quinn => {
            let endpoint = listen_quinn(&identity);
            let accept = async { endpoint.accept().await.unwrap().await.unwrap() };
            let (near, far) =
                within(async { tokio::join!(connect(endpoint.local_addr().unwrap()), accept) }).await;
            (near, Peer::Quinn(far, endpoint), None)
        }
        Stack::Noq => {
            let endpoint = listen_noq(&identity);
            let accept = async { endpoint.accept().await.unwrap().await.unwrap() };
            let (near, far) =
                within(async { tokio::join!(connect(endpoint.local_addr().unwrap()), accept) }).await;
            (near, Peer::Noq(far, endpoint), None)
        }
    }
}

impl Peer {
    async fn open(&self, both: bool) -> (Sending, Option<Receiving>) {
        match (self, both) {
            (Self::Ours(it), true) => {
                let (send, recv) = it.open_bi().await.unwrap();
                (Sending::Ours(send), Some(Receiving::Ours(recv)))
            }
            (Self::Quinn(it, _), true) => {
                let (send, recv) = it.open_bi().await.unwrap();
                (Sending::Quinn(send), Some(Receiving::Quinn(recv)))
            }
            (Self::Noq(it, _), true) => {
                let (send, recv) = it.open_bi().await.unwrap();
                (Sending::Noq(send), Some(Receiving::Noq(recv)))
            }
            (Self::Ours(it), false) => (Sending::Ours(it.open_uni().await.unwrap()), None),
            (Self::Quinn(it, _), false) => (Sending::Quinn(it.open_uni().await.unwrap()), None),
            (Self::Noq(it, _), false) => (Sending::Noq(it.open_uni().await.unwrap()), None),
        }
    }

    async fn accept(&self, both: bool) -> (Option<Sending>, Receiving) {
        match (self, both) {
            (Self::Ours(it), true) => {
                let (send, recv) = it.accept_bi().await.unwrap();
                (Some(Sending::Ours(send)), Receiving::Ours(recv))
            }
            (Self::Quinn(it, _), true) => {
                let (send, recv) = it.accept_bi().await.unwrap();
                (Some(Sending::Quinn(send)), Receiving::Quinn(recv))
            }
            (Self::Noq(it, _), true) => {
                let (send, recv) = it.accept_bi().await.unwrap();
                (Some(Sending::Noq(send)), Receiving::Noq(recv))
            }
            (Self::Ours(it), false) => (None, Receiving::Ours(it.accept_uni().await.unwrap())),
            (Self::Quinn(it, _), false) => (None, Receiving::Quinn(it.accept_uni().await.unwrap())),
            (Self::Noq(it, _), false) => (None, Receiving::Noq(it.accept_uni().await.unwrap())),
        }
    }

    async fn datagram(&self, data: &'static [u8], other: &Self) -> Payload {
        let data = Payload::from_static(data);
        match self {
            Self::Ours(it) => it.send_datagram(data).unwrap(),
            Self::Quinn(it, _) => it.send_datagram(data).unwrap(),
            Self::Noq(it, _) => it.send_datagram(data).unwrap(),
        }
        match other {
            Self::Ours(it) => it.read_datagram().await.unwrap(),
            Self::Quinn(it, _) => it.read_datagram().await.unwrap(),
            Self::Noq(it, _) => it.read_datagram().await.unwrap(),
        }
    }

    fn close(&self, code: u32) {
        match self {
            Self::Ours(it) => it.close(code.into(), b"over"),
            Self::Quinn(it, _) => it.close(code.into(), b"over"),
            Self::Noq(it, _) => it.close(code.into(), b"over"),
        }
    }

    /// Waits for the end, and returns the code and reason of the other application.
    async fn closed(&self) -> (u64, Payload) {
        match self {
            Self::Ours(it) => match it.closed().await {
                End::Application { code, reason } => (code, reason),
                end => panic!("{end}"),
            },
            Self::Quinn(it, _) => match it.closed().await {
                quinn::ConnectionError::ApplicationClosed(close) => {
                    (close.error_code.into_inner(), close.reason)
                }
                end => panic!("{end}"),
            },
            Self::Noq(it, _) => match it.closed().await {
                noq::ConnectionError::ApplicationClosed(close) => {
                    (close.error_code.into_inner(), close.reason)
                }
                end => panic!("{end}"),
            },
        }
    }
}

impl Sending {
    async fn write(&mut self, data: &[u8]) {
        match self {
            Self::Ours(it) => it.write_all(data).await.unwrap(),
            Self::Quinn(it) => it.write_all(data).await.unwrap(),
            Self::Noq(it) => it.write_all(data).await.unwrap(),
        }
    }

    fn finish(&mut self) {
        match self {
            Self::Ours(it) => it.finish().unwrap(),
            Self::Quinn(it) => it.finish().unwrap(),
            Self::Noq(it) => it.finish().unwrap(),
        }
    }

    fn reset(&mut self, code: u32) {
        match self {
            Self::Ours(it) => it.reset(code.into()).unwrap(),
            Self::Quinn(it) => it.reset(code.into()).unwrap(),
            Self::Noq(it) => it.reset(code.into()).unwrap(),
        }
    }

    async fn stopped(&mut self) -> Option<u64> {
        match self {
            Self::Ours(it) => it.stopped().await.unwrap(),
            Self::Quinn(it) => it.stopped().await.unwrap().map(quinn::VarInt::into_inner),
            Self::Noq(it) => it.stopped().await.unwrap().map(noq::VarInt::into_inner),
        }
    }
}

impl Receiving {
    /// Reads exactly this many bytes.
    async fn read(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        match self {
            Self::Ours(it) => it.read_exact(&mut data).await.map(drop).unwrap(),
            Self::Quinn(it) => it.read_exact(&mut data).await.unwrap(),
            Self::Noq(it) => it.read_exact(&mut data).await.unwrap(),
        }
        data
    }

    /// Waits for the end: the code of a reset, if it is one.
    async fn end(&mut self) -> Option<u64> {
        match self {
            Self::Ours(it) => match it.read_chunk(1).await {
                Ok(None) => None,
                Err(ReadError::Reset(code)) => Some(code),
                other => panic!("{other:?}"),
            },
            Self::Quinn(it) => match it.read_chunk(1, true).await {
                Ok(None) => None,
                Err(quinn::ReadError::Reset(code)) => Some(code.into_inner()),
                other => panic!("{other:?}"),
            },
            Self::Noq(it) => match it.read_chunk(1).await {
                Ok(None) => None,
                Err(noq::ReadError::Reset(code)) => Some(code.into_inner()),
                other => panic!("{other:?}"),
            },
        }
    }

    fn stop(&mut self, code: u32) {
        match self {
            Self::Ours(it) => it.stop(code.into()).unwrap(),
            Self::Quinn(it) => it.stop(code.into()).unwrap(),
            Self::Noq(it) => it.stop(code.into()).unwrap(),
        }
    }
}

/// Sends on a stream, and checks that the reader gets the same bytes and the same end.
async fn one_way(sender: &mut Sending, reader: &mut Receiving, number: u64, len: usize, ending: Ending) {
    let data = body(number, len.max(8));
    let write = async {
        for part in data.chunks(30_000) {
            sender.write(part).await;
        }
        if ending == Ending::Finished {
            sender.finish();
        }
    };
    let ((), read) = tokio::join!(write, reader.read(data.len()));
    assert!(read == data, "stream {number}");
    match ending {
        Ending::Finished => {
            assert_eq!(reader.end().await, None);
            assert_eq!(sender.stopped().await, None);
        }
        Ending::Reset(code) => {
            sender.reset(code);
            assert_eq!(reader.end().await, Some(code.into()));
        }
        Ending::Stopped(code) => {
            reader.stop(code);
            assert_eq!(sender.stopped().await, Some(code.into()));
        }
    }
}

/// Runs a random program of streams over two stacks. Every byte, code and event has to be that of the program.
async fn run_program(client: Stack, server: Stack, seed: u64) {
    let (near, far, _server) = join(client, server).await;
    let mut draws = Seed::new(seed).stream("streams/program");
    let mut draw = |most: u64| draws.next_u64() % most;
    let ending = |draw: &mut dyn FnMut(u64) -> u64| match draw(3) {
        0 => Ending::Finished,
        1 => Ending::Reset(u32::try_from(draw(1 << 32)).unwrap()),
        _ => Ending::Stopped(u32::try_from(draw(1 << 32)).unwrap()),
    };
    for number in 0..12 {
        let (opener, acceptor) = if draw(2) == 0 { (&near, &far) } else { (&far, &near) };
        let both = draw(2) == 0;
        let len = usize::try_from(draw(200_000)).unwrap();
        let (there, back) = (ending(&mut draw), ending(&mut draw));
        let (mut send, recv) = opener.open(both).await;
        send.write(&[1]).await;
        let (answer, mut accepted) = acceptor.accept(both).await;
        assert_eq!(accepted.read(1).await, [1]);
        one_way(&mut send, &mut accepted, number, len, there).await;
        if let (Some(mut answer), Some(mut recv)) = (answer, recv) {
            one_way(&mut answer, &mut recv, number + 100, len / 2, back).await;
        }
    }
    assert_eq!(near.datagram(b"there", &far).await, &b"there"[..]);
    assert_eq!(far.datagram(b"back", &near).await, &b"back"[..]);
    let (ends, other) = if draw(2) == 0 { (&near, &far) } else { (&far, &near) };
    ends.close(4242);
    assert_eq!(other.closed().await, (4242, Payload::from_static(b"over")));
}

#[tokio::test]
async fn random_programs_end_alike_on_all_stacks() {
    use Stack::{Noq, Ours, Quinn};
    for seed in 0..3 {
        for (client, server) in
            [(Noq, Noq), (Ours, Ours), (Ours, Quinn), (Quinn, Ours), (Ours, Noq), (Noq, Ours)]
        {
            within(run_program(client, server, seed)).await;
        }
    }
}

#[tokio::test]
async fn a_stopped_stream_says_so_to_its_writer() {
    let (client, accepted, _server) = pair(&config()).await;
    let mut send = within(client.open_uni()).await.unwrap();
    within(send.write_all(b"x")).await.unwrap();
    within(accepted.accept_uni()).await.unwrap().stop(77).unwrap();
    let error = within(async {
        loop {
            if let Err(error) = send.write(b"more").await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(error, WriteError::Stopped(77));
}

#[tokio::test]
async fn a_stream_that_comes_too_late_is_told_to_its_sender() {
    let mut config = config();
    config.transport.quic.session.stream_window = Bytes::kb(10);
    config.streams.stream_buffer = Bytes::kb(500);
    let (client, accepted, _server) = pair(&config).await;
    // Nobody reads, so nothing more arrives, and the bytes of both streams wait.
    let mut streams = Vec::new();
    for reset in [Some(3), None] {
        let mut send = within(client.open_uni()).await.unwrap();
        within(send.write_chunk(vec![0; 400_000].into())).await.unwrap();
        send.set_deadline(Some(marcato_net::Duration::from_micros(1)), reset);
        streams.push(send);
    }
    for send in &streams {
        assert_eq!(within(send.late()).await, Ok(true));
    }
    assert_eq!(within(streams[0].stopped()).await, Ok(None));
    let mut first = within(accepted.accept_uni()).await.unwrap();
    let end = within(async {
        loop {
            match first.read_chunk(usize::MAX).await {
                Ok(Some(_)) => {}
                end => return end,
            }
        }
    })
    .await;
    assert_eq!(end, Err(ReadError::Reset(3)));
    drop(streams.pop());
}
