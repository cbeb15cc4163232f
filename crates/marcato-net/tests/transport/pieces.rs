//! Messages that are sent piece by piece, over both engines.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;

use crate::common::{body, close, for_both_engines, number_of, pair, within};
use futures_core::Stream as _;
use futures_sink::Sink as _;
use marcato_net::{
    CloseReason, Closed, Config, Connection, Engine, LongMessages, LongSendError, Message, MissedReason,
    NotDelivered, SendError,
};
use marcato_units::{Bytes, Priority};
use ring::digest::{Context, SHA256, digest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};

/// Returns a configuration in which the receiver streams long messages, too.
fn config(engine: Engine) -> Config {
    let mut config = Config::new(engine);
    config.limits.max_message = Bytes::new(1 << 20);
    config.limits.long_messages = LongMessages::Stream;
    config
}

/// Reads the next long message to its end, and returns its priority and its hash.
async fn receive_long(connection: &Connection) -> (Priority, Vec<u8>) {
    let mut long = within(connection.accept_long()).await.unwrap();
    let mut context = Context::new(&SHA256);
    while let Some(piece) = within(long.next()).await.unwrap() {
        context.update(&piece);
    }
    (long.priority(), context.finish().as_ref().to_vec())
}

async fn pieces_of_any_size_become_one_message(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    for (len, piece) in [(1, 1), (5000, 7), (131_072, 131_072), (131_073, 4096), (20 << 20, 300_001)] {
        let sent = body(3, len);
        let writing = client.clone();
        let whole = sent.clone();
        let writer = tokio::spawn(async move {
            let mut long = writing.send_long(Priority::P3).unwrap();
            let mut at = 0;
            while at < len {
                let end = (at + piece).min(len);
                long.write(whole.slice(at..end)).await.unwrap();
                at = end;
            }
            assert_eq!(long.written(), Bytes::new(len as u64));
            long.finish().await.unwrap();
            long.acknowledged().await.unwrap();
            assert_eq!(long.write("more").await, Err(SendError::Ended.into()));
        });
        if len <= 1 << 20 {
            let received = within(server.recv()).await.unwrap();
            assert_eq!((received.priority, received.bytes), (Priority::P3, sent));
        } else {
            let hash = digest(&SHA256, &sent).as_ref().to_vec();
            assert_eq!(receive_long(&server).await, (Priority::P3, hash));
        }
        within(writer).await.unwrap();
    }
    // A message counts once, however many parts it was handed over in.
    let level = client.stats().level(Priority::P3);
    assert_eq!(
        (level.sent.messages, level.sent.bytes),
        (5, server.stats().level(Priority::P3).received.bytes)
    );
    close(client, server).await;
}

async fn a_writer_waits_for_its_reader(engine: Engine) {
    const LEN: usize = 64 << 20;
    let config = config(engine);
    let (client, server, _listener) = pair(&config).await;
    let writing = client.clone();
    let writer = tokio::spawn(async move {
        let mut long = writing.send_long(Priority::P4).unwrap();
        let piece = body(1, 1 << 20);
        let mut peak = Bytes::ZERO;
        for _ in 0..LEN >> 20 {
            long.write(piece.clone()).await.unwrap();
            peak = peak.max(writing.stats().level(Priority::P4).backlog.bytes);
        }
        long.finish().await.unwrap();
        long.acknowledged().await.unwrap();
        peak
    });
    // The application does not read yet, so the level is held and the writer has to wait.
    within(async {
        while server.stats().received.holds[4] == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!writer.is_finished());
    // An urgent message on the same connection does not wait for the writer.
    client.send(Message::new("urgent").with_priority(Priority::P0)).await.unwrap();
    let mut long = within(server.accept_long()).await.unwrap();
    let mut len = 0;
    while let Some(piece) = within(long.next()).await.unwrap() {
        len += piece.len();
    }
    assert_eq!(len, LEN);
    assert_eq!(within(server.recv()).await.unwrap().bytes, b"urgent"[..]);
    let peak = within(writer).await.unwrap();
    // One part more than the limit, because the last is accepted while there is room for a byte.
    assert!(peak <= config.limits.streamed + Bytes::new(128 << 10), "{peak} waited");
    close(client, server).await;
}

async fn what_is_cancelled_or_dropped_halfway_is_missed(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    for cancel in [true, false] {
        let mut long = client.send_long(Priority::P1).unwrap();
        for _ in 0..20 {
            within(long.write(body(1, 150_000))).await.unwrap();
        }
        let mut receiving = within(server.accept_long()).await.unwrap();
        assert!(within(receiving.next()).await.unwrap().is_some());
        if cancel {
            long.cancel();
        } else {
            drop(long);
        }
        let missed = within(async {
            loop {
                match receiving.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it was never finished"),
                    Err(missed) => return missed,
                }
            }
        })
        .await;
        assert_eq!(missed.reason, MissedReason::Cancelled);
        assert_eq!(within(server.missed()).await.unwrap().number, missed.number);
    }
    // Nothing of this message was written, so the receiver never learns of it.
    drop(client.send_long(Priority::P1).unwrap());
    let mut after = client.send(Message::new("after")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().bytes, b"after"[..]);
    within(after.acknowledged()).await.unwrap();
    assert_eq!(server.stats().received.missed, 2);
    assert_eq!(client.stats().unfinished, [0; 5]);
    close(client, server).await;
}

async fn a_storm_of_cancelled_long_messages_loses_nothing_else(engine: Engine) {
    const COUNT: u64 = 60;
    const LEN: usize = 700_000;
    let (client, server, _listener) = pair(&config(engine)).await;
    let receiver = tokio::spawn(async move {
        let mut seen = BTreeSet::new();
        while let Ok(received) = server.recv().await {
            let number = number_of(&received.bytes);
            assert_eq!(received.bytes, body(number, LEN));
            assert!(seen.insert(number), "{number} came twice");
        }
        (seen, server.closed().await)
    });
    let senders: Vec<_> = (0..COUNT)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let priority = Priority::ALL[usize::try_from(number % 5).unwrap()];
                let mut long = client.send_long(priority).unwrap();
                let whole = body(number, LEN);
                for part in 0..7 {
                    long.write(whole.slice(part * 100_000..(part + 1) * 100_000)).await.unwrap();
                    if number % 3 == 1 && part == 4 {
                        long.cancel();
                        return None;
                    }
                    if number % 3 == 2 && part == 3 {
                        long.reprioritise(Priority::P0).unwrap();
                    }
                }
                long.finish().await.unwrap();
                long.acknowledged().await.unwrap();
                Some(number)
            })
        })
        .collect();
    let mut delivered = BTreeSet::new();
    for sender in senders {
        delivered.extend(within(sender).await.unwrap());
    }
    assert_eq!(delivered.len(), 40);
    within(client.close()).await.unwrap();
    let (seen, closed) = within(receiver).await.unwrap();
    assert_eq!(closed, Closed::ByPeer(CloseReason::default()));
    assert_eq!(seen, delivered);
}

/// By default an application takes no long messages, but it takes streams.
async fn each_write_to_a_stream_arrives_without_a_further_one(engine: Engine) {
    let (client, server, _listener) = pair(&Config::new(engine)).await;
    let mut keys = client.open_stream(Priority::P0).unwrap();
    keys.write_all(b"l").await.unwrap();
    let mut read_keys = within(server.accept_long()).await.unwrap();
    assert_eq!(read_keys.priority(), Priority::P0);
    assert_eq!(within(read_keys.next()).await, Ok(Some("l".into())));
    let mut screen = server.open_stream(Priority::P1).unwrap();
    let mut read_screen = None;
    for number in 0..50u64 {
        let line = format!("line {number}");
        keys.write(line.clone()).await.unwrap();
        let mut read = vec![0; line.len()];
        within(read_keys.read_exact(&mut read)).await.unwrap();
        screen.write(read).await.unwrap();
        if read_screen.is_none() {
            read_screen = Some(within(client.accept_long()).await.unwrap());
        }
        let mut echo = vec![0; line.len()];
        within(read_screen.as_mut().unwrap().read_exact(&mut echo)).await.unwrap();
        assert_eq!(echo, line.as_bytes());
    }
    // Each direction ends by itself.
    keys.finish().await.unwrap();
    assert_eq!(within(read_keys.next()).await, Ok(None));
    assert_eq!(within(keys.acknowledged()).await, Ok(()));
    screen.write("bye").await.unwrap();
    let mut read_screen = read_screen.unwrap();
    assert_eq!(within(read_screen.next()).await, Ok(Some("bye".into())));
    screen.cancel();
    let missed = within(read_screen.next()).await.unwrap_err();
    assert_eq!(missed.reason, MissedReason::Cancelled);
    assert_eq!(client.stats().level(Priority::P0).sent.messages, 1);
    close(client, server).await;
}

/// Streams of many windows in writes of any size, beside messages and each other.
async fn a_stream_arrives_in_the_order_of_its_writes(engine: Engine) {
    let (client, server, _listener) = pair(&Config::new(engine)).await;
    let writers: Vec<_> = [Priority::P2, Priority::P3]
        .into_iter()
        .map(|priority| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut stream = client.open_stream(priority).unwrap();
                let whole = body(priority as u64, 3 << 20);
                let mut at = 0;
                for step in 0.. {
                    let end = (at + 1 + step * step * 97 % 20_011).min(whole.len());
                    stream.write(whole.slice(at..end)).await.unwrap();
                    at = end;
                    if at == whole.len() {
                        break;
                    }
                }
                stream.finish().await.unwrap();
                stream.acknowledged().await.unwrap();
            })
        })
        .collect();
    let messages = client.clone();
    let other = tokio::spawn(async move {
        for number in 0..200 {
            messages.send(Message::new(body(number, 5000)).with_priority(Priority::P1)).await.unwrap();
        }
    });
    let streams = [within(server.accept_long()).await.unwrap(), within(server.accept_long()).await.unwrap()];
    let mut readers = Vec::new();
    for mut stream in streams {
        readers.push(tokio::spawn(async move {
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            assert!(read == body(stream.priority() as u64, 3 << 20), "{}", stream.priority());
        }));
    }
    let mut numbers = BTreeSet::new();
    while numbers.len() < 200 {
        assert!(numbers.insert(number_of(&within(server.recv()).await.unwrap().bytes)));
    }
    for task in readers.into_iter().chain(writers).chain([other]) {
        within(task).await.unwrap();
    }
    close(client, server).await;
}

async fn a_writer_learns_that_its_connection_is_over(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut long = client.send_long(Priority::P2).unwrap();
    within(long.write(body(1, 500_000))).await.unwrap();
    drop(server);
    let error = within(async {
        loop {
            if let Err(error) = long.write(body(1, 500_000)).await {
                return error;
            }
        }
    })
    .await;
    assert!(
        matches!(
            error,
            LongSendError::Send(SendError::Closed(_)) | LongSendError::NotDelivered(NotDelivered::Closed(_))
        ),
        "{error}"
    );
    within(long.acknowledged()).await.unwrap_err();
    assert!(matches!(client.send_long(Priority::P2), Err(SendError::Closed(_))));
}

/// An application that copies a file needs nothing but `AsyncWrite` and `AsyncRead`.
async fn long_messages_are_byte_streams(engine: Engine) {
    const LEN: usize = 3 << 20;
    let (client, server, _listener) = pair(&config(engine)).await;
    let sent = body(5, LEN);
    let (writing, mut source) = (client.clone(), std::io::Cursor::new(sent.clone()));
    let writer = tokio::spawn(async move {
        let mut long = writing.send_long(Priority::P3).unwrap();
        assert_eq!(tokio::io::copy(&mut source, &mut long).await.unwrap(), LEN as u64);
        long.flush().await.unwrap();
        long.shutdown().await.unwrap();
        long.acknowledged().await.unwrap();
        let error = long.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    });
    let mut long = within(server.accept_long()).await.unwrap();
    // A short buffer leaves the rest of a piece for the next read, of either kind.
    let mut first = [0; 3];
    within(long.read_exact(&mut first)).await.unwrap();
    let mut received = first.to_vec();
    received.extend_from_slice(&within(long.next()).await.unwrap().unwrap());
    within(long.read_to_end(&mut received)).await.unwrap();
    assert!(received == sent);
    within(writer).await.unwrap();
    close(client, server).await;
}

/// A byte stream that breaks off is no shorter message.
async fn a_cancelled_byte_stream_ends_with_an_error(engine: Engine) {
    let (client, server, _listener) = pair(&config(engine)).await;
    let mut long = client.send_long(Priority::P3).unwrap();
    within(AsyncWriteExt::write_all(&mut long, &vec![7; 2 << 20])).await.unwrap();
    let mut arriving = within(server.accept_long()).await.unwrap();
    drop(long);
    let error = within(arriving.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
    assert!(error.to_string().ends_with("it cancelled it"), "{error}");
    close(client, server).await;
}

/// Messages pass as a sink and a stream, in the order of their priorities.
async fn a_sink_and_a_stream_carry_messages(engine: Engine) {
    const COUNT: u64 = 200;
    let mut config = config(engine);
    // There is room for a few at a time.
    config.limits.queued = Bytes::kb(300);
    let (client, server, _listener) = pair(&config).await;
    let mut sink = client.outgoing();
    let sender = tokio::spawn(async move {
        for number in 0..COUNT {
            poll_fn(|context| Pin::new(&mut sink).poll_ready(context)).await.unwrap();
            Pin::new(&mut sink).start_send(Message::new(body(number, 100_000))).unwrap();
        }
        poll_fn(|context| Pin::new(&mut sink).poll_close(context)).await.unwrap();
    });
    let mut stream = server.incoming();
    for number in 0..COUNT {
        let received = within(poll_fn(|context| Pin::new(&mut stream).poll_next(context))).await.unwrap();
        assert_eq!(number_of(&received.bytes), number);
    }
    within(sender).await.unwrap();
    drop(stream);
    let mut stream = server.incoming();
    client.abort();
    assert_eq!(within(poll_fn(|context| Pin::new(&mut stream).poll_next(context))).await, None);
}

for_both_engines! {
    long_messages_are_byte_streams
    a_cancelled_byte_stream_ends_with_an_error
    a_sink_and_a_stream_carry_messages
    pieces_of_any_size_become_one_message
    a_writer_waits_for_its_reader
    what_is_cancelled_or_dropped_halfway_is_missed
    a_storm_of_cancelled_long_messages_loses_nothing_else
    a_writer_learns_that_its_connection_is_over
    each_write_to_a_stream_arrives_without_a_further_one
    a_stream_arrives_in_the_order_of_its_writes
}

async fn a_gibibyte_is_written_and_read_piece_by_piece(engine: Engine) {
    const PIECES: u64 = 1 << 10;
    let (client, server, _listener) = pair(&config(engine)).await;
    let writer = tokio::spawn(async move {
        let mut context = Context::new(&SHA256);
        let mut long = client.send_long(Priority::P3).unwrap();
        for number in 0..PIECES {
            let piece = body(number, 1 << 20);
            context.update(&piece);
            long.write(piece).await.unwrap();
        }
        long.finish().await.unwrap();
        long.acknowledged().await.unwrap();
        (client, context.finish().as_ref().to_vec())
    });
    let (_, received) = receive_long(&server).await;
    let (client, sent) = within(writer).await.unwrap();
    assert_eq!(received, sent);
    assert_eq!(client.stats().level(Priority::P3).sent.bytes, Bytes::new(PIECES << 20));
    close(client, server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes some ten seconds"]
async fn a_gibibyte_over_tcp() {
    a_gibibyte_is_written_and_read_piece_by_piece(Engine::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes some ten seconds"]
async fn a_gibibyte_over_quic() {
    a_gibibyte_is_written_and_read_piece_by_piece(Engine::Quic).await;
}
