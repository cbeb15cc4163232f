//! Sessions through the traits, over sockets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use marcato_net::streams::{Endpoint, Parameters, StreamsConfig};
use marcato_net::{ClientSecurity, Identity, Priority, Remote, ServerSecurity, Trust};
use marcato_webtransport::{Error, Session};
use web_transport_trait::{Error as _, RecvStream as _, SendStream as _, Session as _, Stats as _, poll};

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it takes far too long")
}

async fn pair() -> (Session, Session, Endpoint) {
    let identity = Identity::self_signed("session.test").unwrap();
    let trust = Trust::Certificate(identity.certificate().unwrap().clone());
    let config = StreamsConfig::new("session/1");
    let at = [std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()];
    let endpoint = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await.unwrap();
    let to = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("session.test", trust));
    let (client, accepted) =
        within(async { tokio::join!(Endpoint::connect(&config, to), endpoint.accept()) }).await;
    (Session::new(client.unwrap()), Session::new(accepted.unwrap()), endpoint)
}

#[tokio::test]
async fn streams_of_both_kinds_carry_their_bytes() {
    let (client, accepted, _endpoint) = pair().await;
    assert_eq!((client.protocol(), accepted.protocol()), (Some("session/1"), Some("session/1")));
    let whole: Bytes = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    let sending = tokio::spawn({
        let whole = whole.clone();
        async move {
            let mut uni = within(client.open_uni()).await.unwrap();
            uni.set_priority(i32::MIN);
            within(uni.write_chunk(whole.clone())).await.unwrap();
            uni.finish().unwrap();
            let (mut send, mut recv) = within(client.open_bi()).await.unwrap();
            within(send.write_all(&whole[..70_000])).await.unwrap();
            send.finish().unwrap();
            assert_eq!(within(recv.read_all()).await.unwrap(), whole[..10]);
            within(recv.closed()).await.unwrap();
            within(uni.closed()).await.unwrap();
            within(send.closed()).await.unwrap();
            client.stats().bytes_sent().unwrap()
        }
    });
    let mut uni = within(accepted.accept_uni()).await.unwrap();
    assert!(within(uni.read_all()).await.unwrap() == whole);
    let (mut send, mut recv) = within(accepted.accept_bi()).await.unwrap();
    assert!(within(recv.read_all()).await.unwrap() == whole[..70_000]);
    within(send.write_all(&whole[..10])).await.unwrap();
    send.finish().unwrap();
    assert!(within(sending).await.unwrap() > 370_000);
}

#[tokio::test]
async fn codes_of_streams_and_sessions_arrive() {
    let (client, accepted, _endpoint) = pair().await;
    let mut reset = within(client.open_uni()).await.unwrap();
    let mut stopped = within(client.open_uni()).await.unwrap();
    let mut dropped = within(client.open_uni()).await.unwrap();
    for stream in [&mut reset, &mut stopped, &mut dropped] {
        within(stream.write_all(b"begun")).await.unwrap();
    }
    let mut first = within(accepted.accept_uni()).await.unwrap();
    let mut second = within(accepted.accept_uni()).await.unwrap();
    let mut third = within(accepted.accept_uni()).await.unwrap();
    // The end is waited for while data is unread.
    let closed = tokio::spawn(async move { first.closed().await });
    reset.reset(77);
    let error = within(closed).await.unwrap().unwrap_err();
    assert_eq!(error.stream_error(), Some(77), "{error}");
    second.stop(78);
    assert_eq!(within(stopped.closed()).await.unwrap_err().stream_error(), Some(78));
    drop(dropped);
    let mut buf = [0; 10];
    let error = within(async {
        loop {
            if let Err(error) = third.read(&mut buf).await {
                return error;
            }
        }
    })
    .await;
    assert_eq!(error.stream_error(), Some(0));
    client.close(79, "enough");
    assert_eq!(within(accepted.closed()).await.session_error(), Some((79, "enough".to_owned())));
    assert!(matches!(within(accepted.open_bi()).await, Err(Error::Session(_))));
}

#[tokio::test]
async fn datagrams_arrive_and_too_long_ones_are_refused() {
    let (client, accepted, _endpoint) = pair().await;
    let most = client.max_datagram_size();
    client.send_datagram(vec![1; most].into()).unwrap();
    assert_eq!(within(accepted.recv_datagram()).await.unwrap(), vec![1; most]);
    assert!(client.send_datagram(vec![1; most + 1].into()).is_err());
}

#[tokio::test]
async fn the_owner_makes_the_order_of_a_priority() {
    let (client, _accepted, _endpoint) = pair().await;
    let client = client.with_order(|number| {
        Parameters::default().ordered(-number).at_level(if number > 9 { Priority::P0 } else { Priority::P4 })
    });
    let mut stream = within(client.open_uni()).await.unwrap();
    for (number, level) in [(10, Priority::P0), (9, Priority::P4)] {
        stream.set_priority(number);
        let order = stream.inner().order();
        assert_eq!((order.order, order.level), (i64::from(-number), Some(level)));
    }
}

#[tokio::test]
async fn the_half_of_poll_functions_does_the_same() {
    use poll::{RecvStream as _, SendStream as _, Session as _};
    let (mut client, mut accepted, _endpoint) = pair().await;
    let mut send = within(std::future::poll_fn(|context| client.poll_open_uni(context))).await.unwrap();
    let mut data = Bytes::from_static(b"by polling");
    while !data.is_empty() {
        within(std::future::poll_fn(|context| send.poll_write_buf(context, &mut data))).await.unwrap();
    }
    poll::SendStream::finish(&mut send).unwrap();
    let mut recv = within(std::future::poll_fn(|context| accepted.poll_accept_uni(context))).await.unwrap();
    let mut read = Vec::new();
    while within(std::future::poll_fn(|context| recv.poll_read_buf(context, &mut read)))
        .await
        .unwrap()
        .is_some()
    {}
    assert_eq!(read, b"by polling");
    within(std::future::poll_fn(|context| recv.poll_closed(context))).await.unwrap();
    within(std::future::poll_fn(|context| send.poll_closed(context))).await.unwrap();
    poll::Session::close(&mut client, 3, "");
    let end = within(std::future::poll_fn(|context| accepted.poll_closed(context))).await;
    assert_eq!(end.session_error(), Some((3, String::new())));
}
