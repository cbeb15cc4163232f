//! Dropped futures: each public async function is cut off at every poll, and nothing is lost or doubled.

use std::collections::BTreeSet;
use std::fs;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use crate::common::{NAME, body, for_both_engines, localhost, number_of, pair, server, within};
use marcato_net::{
    Bytes, Client, ClientSecurity, CloseReason, Closed, Config, ConnectionEvent, Ended, Endpoint, Engine,
    Identity, LongMessages, Message, Priority, ReconnectConfig, Reconnecting, Remote, ServerSecurity, Trust,
    streams,
};
use tokio::sync::mpsc::unbounded_channel;

/// Number of messages, requests and connections in each test.
const MANY: u64 = 20;

/// Returns the output of a future, unless it is pending after this number of polls, and is dropped then.
async fn cut<T>(work: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Begins a future again and again, and drops it after no poll, after one, after two, until one is done before.
async fn persist<T, F: Future<Output = T>>(mut begin: impl FnMut() -> F) -> T {
    within(async {
        for polls in 0.. {
            if let Some(output) = cut(begin(), polls).await {
                return output;
            }
            tokio::task::yield_now().await;
        }
        unreachable!("the range does not end")
    })
    .await
}

/// As [`persist`], for a function of a value that it changes.
macro_rules! persist {
    ($begin:expr) => {
        within(async {
            let mut polls = 0;
            loop {
                if let Some(output) = cut($begin, polls).await {
                    break output;
                }
                polls += 1;
                tokio::task::yield_now().await;
            }
        })
        .await
    };
}

/// Settings with so little room that senders wait for each message.
fn tight(engine: Engine) -> Config {
    let mut config = Config::new(engine);
    config.limits.unfinished = 1;
    config
}

async fn messages_come_once_however_often_send_and_recv_are_cut(engine: Engine) {
    let (client, accepted, _server) = within(pair(&tight(engine))).await;
    persist(|| client.established()).await.unwrap();
    let sending = tokio::spawn({
        let client = client.clone();
        async move {
            for number in 0..MANY {
                let message = Message::new(body(number, 3000)).with_receipt();
                let mut handle = persist(|| client.send(message.clone())).await.unwrap();
                if number % 2 == 0 {
                    persist!(handle.acknowledged()).unwrap();
                    persist!(handle.received()).unwrap();
                }
            }
            persist(|| client.finish()).await.unwrap();
        }
    });
    let mut received = Vec::new();
    let end = loop {
        match persist(|| accepted.recv()).await {
            Ok(message) => received.push(number_of(&message.bytes)),
            Err(end) => break end,
        }
    };
    assert_eq!(end, Closed::Finished);
    received.sort_unstable();
    assert!(received.iter().copied().eq(0..MANY), "{received:?}");
    within(sending).await.unwrap();
    let reason = CloseReason::new(7, "enough");
    let (ours, theirs) =
        tokio::join!(persist(|| client.close_with(reason.clone())), persist(|| accepted.closed()));
    assert_eq!((ours, theirs), (Ok(()), Closed::ByPeer(reason)));
    persist(|| client.close()).await.unwrap();
}

async fn requests_have_one_reply_however_often_they_are_cut(engine: Engine) {
    let (client, accepted, _server) = within(pair(&tight(engine))).await;
    let serving = tokio::spawn(async move {
        while let Ok(request) = persist(|| accepted.accept_request()).await {
            let reply = Message::new(request.message().bytes.clone());
            // One that was cut off wants no reply any more, which is no error of the server.
            let _ = within(request.reply(reply)).await;
        }
    });
    for number in 0..MANY {
        let message = Message::new(body(number, 500));
        let reply = persist(|| client.request(message.clone())).await.unwrap();
        assert_eq!(number_of(&reply.bytes), number);
    }
    // Replies that came too late are no messages.
    assert!(cut(client.recv(), 1).await.is_none());
    persist(|| client.close()).await.unwrap();
    within(serving).await.unwrap();
}

/// A reply that was cut off before it was accepted is none, and the peer learns it.
async fn a_reply_that_is_cut_is_whole_or_none(engine: Engine) {
    let (client, accepted, _server) = within(pair(&tight(engine))).await;
    for polls in 0..4 {
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.request(Message::new("?")).await.map(|reply| reply.bytes) }
        });
        let request = within(accepted.accept_request()).await.unwrap();
        // It waits for the place of this message.
        let other = accepted.send(Message::new(body(1, 50_000))).await;
        let replied = cut(request.reply(Message::new("!")), polls).await;
        drop(other);
        let reply = within(asked).await.unwrap();
        match replied {
            Some(sent) => assert_eq!((sent.is_ok(), reply.as_deref().ok()), (true, Some(&b"!"[..]))),
            None => assert!(reply.is_err(), "{reply:?}"),
        }
        within(client.recv()).await.unwrap();
    }
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.request(Message::new("?")).await.map(drop) }
    });
    let request = within(accepted.accept_request()).await.unwrap();
    asking.abort();
    persist(|| request.withdrawn()).await;
}

async fn streams_have_each_byte_once_however_often_they_are_cut(engine: Engine) {
    let mut config = Config::new(engine);
    config.limits.streamed = Bytes::new(10_000);
    config.limits.long_messages = LongMessages::Stream;
    // Shorter than the long message, which is handed out piece by piece then.
    config.limits.max_message = Bytes::new(100_000);
    let (client, accepted, _server) = within(pair(&config)).await;
    let whole = body(3, 300_000);
    for is_stream in [true, false] {
        let mut writer =
            if is_stream { client.open_stream(Priority::P1) } else { client.send_long(Priority::P1) }
                .unwrap()
                .with_receipt();
        let writing = {
            let whole = whole.clone();
            tokio::spawn(async move {
                for piece in whole.chunks(7000) {
                    persist!(writer.write(piece.to_vec())).unwrap();
                }
                persist!(writer.finish()).unwrap();
                persist!(writer.acknowledged()).unwrap();
                persist!(writer.received()).unwrap();
            })
        };
        let mut reader = persist(|| accepted.accept_long()).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(piece) = persist!(reader.next()).unwrap() {
            bytes.extend_from_slice(&piece);
        }
        assert!(bytes == whole, "{} bytes", bytes.len());
        within(writing).await.unwrap();
    }
}

async fn events_come_once_however_often_they_are_cut(engine: Engine) {
    let (client, accepted, _server) = within(pair(&Config::new(engine))).await;
    let mut events = client.events();
    let changing = tokio::spawn({
        let client = client.clone();
        async move {
            for _ in 0..MANY {
                client.discard_less_urgent_than(Priority::P3);
                tokio::task::yield_now().await;
            }
        }
    });
    for _ in 0..MANY {
        let event = persist!(events.next());
        assert_eq!(event, Some(ConnectionEvent::ThresholdChanged(Priority::P3)));
    }
    within(changing).await.unwrap();
    // Of a message that was given up, the receiver learns once.
    for _ in 0..MANY {
        let left = || client.stats().level(Priority::P1).sent.bytes;
        let before = left();
        let mut long = client.send_long(Priority::P1).unwrap();
        within(long.write(vec![0; 300_000])).await.unwrap();
        let leaves = async {
            while left() == before {
                tokio::task::yield_now().await;
            }
        };
        within(leaves).await;
        long.cancel();
        persist(|| accepted.missed()).await.unwrap();
    }
    assert!(cut(accepted.missed(), 1).await.is_none());
}

/// A client whose attempt was cut off leaves nothing that lasts.
async fn connections_come_once_however_often_they_are_cut(engine: Engine) {
    let server = server(&Config::new(engine)).await;
    let (config, to, endpoint) = (Config::new(engine), server.remote(), &server.endpoint);
    let (arrived, mut numbers) = unbounded_channel();
    let connecting = async {
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(persist(|| Endpoint::connect(&config, &to)).await.unwrap());
            clients.push(persist(|| Endpoint::connect_early(&config, &to)).await.unwrap());
            if engine == Engine::Quic {
                let client = Client::bind(&config, &[localhost().into()]).unwrap();
                clients.push(persist(|| client.connect(&to)).await.unwrap());
                clients.push(persist(|| client.connect_early(&to)).await.unwrap());
            }
        }
        let mut seen = Vec::new();
        for (number, client) in (0..).zip(&clients) {
            client.send(Message::new(body(number, 100))).await.unwrap();
            seen.extend(numbers.recv().await);
        }
        assert!(seen.iter().copied().eq(0..clients.len() as u64), "{seen:?}");
    };
    let accepting = async {
        while let Ok(connection) = persist(|| endpoint.accept()).await {
            let arrived = arrived.clone();
            tokio::spawn(async move {
                while let Ok(message) = connection.recv().await {
                    let _ = arrived.send(number_of(&message.bytes));
                }
            });
        }
    };
    within(async {
        tokio::select! {
            () = connecting => {}
            () = accepting => unreachable!("the endpoint is open"),
        }
    })
    .await;
    // Those of clients that were cut off have ended, or end now.
    endpoint.close();
    persist(|| endpoint.wait_idle()).await;
    assert!(persist(|| endpoint.accept()).await.is_err());
    drop(arrived);
    assert_eq!(within(numbers.recv()).await, None);
    let addr = endpoint.local_addrs()[0];
    drop(server);
    let security = ServerSecurity::Tls(Identity::self_signed(NAME).unwrap());
    let at = [addr.into()];
    let again = async {
        loop {
            // The address is in use until the last connection has ended.
            if let Ok(again) = persist(|| Endpoint::listen(&config, &at, &security)).await {
                return again;
            }
            tokio::task::yield_now().await;
        }
    };
    within(again).await;
}

async fn reconnecting_clients_lose_nothing_when_they_are_cut(engine: Engine) {
    let server = server(&tight(engine)).await;
    let client = Reconnecting::new(&tight(engine), server.remote(), &ReconnectConfig::default()).unwrap();
    let serving = tokio::spawn(async move {
        let accepted = within(server.endpoint.accept()).await.unwrap();
        let mut received = Vec::new();
        for number in 0..MANY {
            within(accepted.send(Message::new(body(number, 100)))).await.unwrap();
        }
        let asked = tokio::spawn({
            let accepted = accepted.clone();
            async move { accepted.request(Message::new("?")).await.map(|reply| reply.bytes) }
        });
        let requests = async {
            while let Ok(request) = accepted.accept_request().await {
                let reply = Message::new(request.message().bytes.clone());
                let _ = request.reply(reply).await;
            }
        };
        let messages = async {
            while let Ok(message) = accepted.recv().await {
                received.push(number_of(&message.bytes));
            }
        };
        within(async { tokio::join!(requests, messages) }).await;
        assert_eq!(within(asked).await.unwrap().unwrap(), b"!"[..]);
        received
    });
    for number in 0..MANY {
        let message = Message::new(body(number, 2000)).with_receipt();
        let mut delivery = match number % 2 {
            0 => persist(|| client.send(message.clone())).await.unwrap(),
            _ => persist(|| client.send_at_most_once(message.clone())).await.unwrap(),
        };
        persist!(delivery.acknowledged()).unwrap();
        persist!(delivery.received()).unwrap();
        let ask = Message::new(body(number, 200));
        let reply = match number % 2 {
            0 => persist(|| client.request(ask.clone())).await.unwrap(),
            _ => persist(|| client.request_at_least_once(ask.clone())).await.unwrap(),
        };
        assert_eq!(number_of(&reply.bytes), number);
        let message = persist(|| client.recv()).await.unwrap();
        assert_eq!(number_of(&message.bytes), number);
    }
    let request = persist(|| client.accept_request()).await.unwrap();
    within(request.reply(Message::new("!"))).await.unwrap();
    persist(|| client.close()).await.unwrap();
    assert!(matches!(persist(|| client.closed()).await, Ended::Local));
    let received = within(serving).await.unwrap();
    assert!(received.iter().copied().eq(0..MANY), "{received:?}");
}

for_both_engines! {
    messages_come_once_however_often_send_and_recv_are_cut
    requests_have_one_reply_however_often_they_are_cut
    a_reply_that_is_cut_is_whole_or_none
    streams_have_each_byte_once_however_often_they_are_cut
    events_come_once_however_often_they_are_cut
    connections_come_once_however_often_they_are_cut
    reconnecting_clients_lose_nothing_when_they_are_cut
}

/// Returns both ends of a connection of plain streams of which little waits.
async fn plain() -> (streams::Connection, streams::Connection, streams::Endpoint) {
    let mut config = streams::StreamsConfig::new("cut");
    (config.streams.stream_buffer, config.streams.max_bidirectional) = (Bytes::kb(10), 1);
    let identity = Identity::self_signed(NAME).unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let at = [localhost().into()];
    let security = ServerSecurity::Tls(identity);
    let endpoint = persist(|| streams::Endpoint::listen(&config, &at, &security)).await.unwrap();
    let to = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting(NAME, trust));
    let client = async { within(streams::Endpoint::connect(&config, to)).await.unwrap() };
    let accepted = async { persist(|| endpoint.accept()).await.unwrap() };
    let (client, accepted) = tokio::join!(client, accepted);
    (client, accepted, endpoint)
}

#[tokio::test]
async fn plain_streams_have_each_byte_once_when_they_are_cut() {
    let (client, accepted, _endpoint) = plain().await;
    let writing = tokio::spawn(async move {
        for number in 0..MANY {
            let (mut send, recv) = persist(|| client.open_bi()).await.unwrap();
            let whole = body(number, 50_000);
            let mut written = 0;
            while written < whole.len() {
                written += persist!(send.write(&whole[written..])).unwrap();
            }
            persist(|| send.acknowledged_to(20_000)).await.unwrap();
            send.set_deadline(Some(marcato_net::Duration::from_secs(1000)), None);
            assert!(cut(send.late(), 1).await.is_none());
            send.finish().unwrap();
            assert_eq!(persist(|| send.stopped()).await, Ok(None));
            drop(recv);
            let mut uni = persist(|| client.open_uni()).await.unwrap();
            within(uni.write_chunk(whole)).await.unwrap();
            client.send_datagram(vec![3; 10].into()).unwrap();
        }
        client
    });
    for number in 0..MANY {
        let (_send, mut recv) = persist(|| accepted.accept_bi()).await.unwrap();
        let mut read = Vec::new();
        let mut buf = [0; 777];
        while let Some(len) = persist!(recv.read(&mut buf)).unwrap() {
            read.extend_from_slice(&buf[..len]);
        }
        assert!(read == body(number, 50_000));
        let mut uni = persist(|| accepted.accept_uni()).await.unwrap();
        read.clear();
        while let Some(chunk) = persist!(uni.read_chunk(999)).unwrap() {
            read.extend_from_slice(&chunk);
        }
        assert!(read == body(number, 50_000));
        assert_eq!(persist(|| accepted.read_datagram()).await.unwrap(), [3; 10][..]);
    }
    within(writing).await.unwrap().close(5, b"");
    assert!(matches!(persist(|| accepted.closed()).await, streams::End::Application { code: 5, .. }));
}

/// A chunk that is cut off is sent in part, and no byte twice.
#[tokio::test]
async fn a_chunk_that_is_cut_is_written_in_part() {
    let (client, accepted, _endpoint) = plain().await;
    let mut send = within(client.open_uni()).await.unwrap();
    let whole = body(1, 50_000);
    assert!(cut(send.write_chunk(whole.clone()), 1).await.is_none());
    drop(send);
    let mut recv = within(accepted.accept_uni()).await.unwrap();
    let mut read = Vec::new();
    while let Some(chunk) = within(recv.read_chunk(usize::MAX)).await.unwrap() {
        read.extend_from_slice(&chunk);
    }
    assert!(!read.is_empty() && read.len() < whole.len() && whole.starts_with(&read));
}

/// Async functions that a file of this crate makes public, and whether their documentation says what
/// cancelling does.
fn public(path: &Path, into: &mut Vec<(String, bool)>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            public(&entry.unwrap().path(), into);
        }
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    let mut said = false;
    for line in text.lines().map(str::trim_start) {
        if let Some(name) = line.strip_prefix("pub async fn ") {
            into.push((name.split('(').next().unwrap_or_default().to_owned(), said));
        }
        said = line.starts_with("///") && (said || line.to_lowercase().contains("cancel"))
            || line.starts_with("#[") && said;
    }
}

#[test]
fn each_async_function_says_what_cancelling_does_and_is_cut() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut functions = Vec::new();
    public(&source, &mut functions);
    assert!(functions.len() > 30, "{functions:?}");
    let silent: Vec<_> = functions.iter().filter(|(_, said)| !said).map(|(name, _)| name).collect();
    assert!(silent.is_empty(), "their documentation does not say what cancelling does: {silent:?}");
    let tests = include_str!("cancel.rs");
    let is_cut = |name: &str| {
        let call = format!("{name}(");
        tests.lines().any(|line| (line.contains("persist") || line.contains("cut(")) && line.contains(&call))
    };
    let missing: BTreeSet<_> =
        functions.iter().map(|(name, _)| name.as_str()).filter(|name| !is_cut(name)).collect();
    assert!(missing.is_empty(), "no test cuts them: {missing:?}");
}
