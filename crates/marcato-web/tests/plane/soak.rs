//! Soak: many requests through a proxy, some of which are reset half-way.
//!
//! Every content that arrives whole has the digest that it should have. In the end nothing is left: no
//! request, no connection, and no task.
#![cfg(feature = "proxy")]
#![allow(clippy::cast_possible_truncation, reason = "Lengths are small.")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Running, get_with, run_for, until};
use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use marcato_units::Seed;
use marcato_web::proxy::{Proxy, ProxyConfig, Upstream};
use marcato_web::{Body, Server};
use ring::digest::{Context, Digest, SHA256, digest};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections of the client, and requests at once on each.
const CONNECTIONS: u64 = 4;
const AT_ONCE: usize = 32;
/// Largest piece that the origin has at once.
const PIECE: usize = 9000;

/// Content of a number: repeatable, and of its own bytes.
fn content(number: u64, length: usize) -> Bytes {
    let mut random = Seed::new(number).stream("content");
    let words = (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
    words.take(length).collect()
}

/// Length of the content of a number: mostly small files, some large ones, some without content.
fn length(number: u64) -> usize {
    let mut random = Seed::new(number).stream("length");
    match random.below(20) {
        0 => 0,
        1 => 100_000 + random.below(200_000) as usize,
        _ => 1 + random.below(20_000) as usize,
    }
}

/// Origin: the path is a number, whose content comes in pieces.
async fn origin(request: Request<Body>) -> Result<Response<StreamBody<Pieces>>, Infallible> {
    let number = request.uri().path().trim_start_matches('/').parse().unwrap();
    Ok(Response::new(StreamBody::new(Pieces(content(number, length(number))))))
}

struct Pieces(Bytes);

impl futures_core::Stream for Pieces {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let len = self.0.len().min(PIECE);
        let piece = self.0.split_to(len);
        std::task::Poll::Ready((len > 0).then(|| Ok(Frame::data(piece))))
    }
}

/// What a request came to.
enum End {
    Whole(usize),
    Reset,
}

/// Makes a request, and resets it after so many bytes if it is told to.
async fn ask(mut client: SendRequest<Bytes>, number: u64) -> End {
    let mut random = Seed::new(number).stream("client");
    let length = length(number);
    // Many of the others arrive in one frame, after which there is nothing to reset.
    let reset_after = (random.below(2) == 0).then(|| random.below(length as u64 / 2 + 1) as usize);
    let request = get_with(&format!("/{number}"), &format!("u={}", random.below(8)));
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    if reset_after == Some(0) {
        // Before the head, mostly.
        drop(response);
        return End::Reset;
    }
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200, "{number}");
    let (mut body, mut taken, mut seen) = (response.into_body(), 0, Context::new(&SHA256));
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        seen.update(&data);
        taken += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
        if reset_after.is_some_and(|after| taken >= after) && taken < length {
            return End::Reset;
        }
    }
    let expected: Digest = digest(&SHA256, &content(number, length));
    assert_eq!((taken, seen.finish().as_ref()), (length, expected.as_ref()), "{number}");
    End::Whole(length)
}

/// Makes so many requests, and prints the outcome.
async fn soak(requests: u64) {
    let origins = Running::start(Server::new(), tower::service_fn(origin)).await;
    let upstreams = ["http", "h2c"].map(|scheme| Upstream::new(format!("{scheme}://{}", origins.addr)));
    let config = ProxyConfig { upstreams: upstreams.to_vec(), ..ProxyConfig::default() };
    let proxy = Proxy::new(config).unwrap();
    let front = Running::start(Server::new(), proxy.clone()).await;

    let (mut whole, mut reset, mut bytes) = (0, 0, 0);
    let mut clients = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let mut builder = client::Builder::new();
        builder.initial_window_size(40_000).initial_connection_window_size(300_000);
        let client = front.client_with(&mut builder).await;
        let numbers = (connection..requests).step_by(CONNECTIONS as usize);
        clients.spawn(async move {
            let (places, mut asked) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
            let mut ends = Vec::new();
            for number in numbers {
                let place = Arc::clone(&places).acquire_owned().await.unwrap();
                let client = client.clone();
                asked.spawn(async move {
                    let end = ask(client, number).await;
                    drop(place);
                    end
                });
                while let Some(end) = asked.try_join_next() {
                    ends.push(end.unwrap());
                }
            }
            ends.extend(asked.join_all().await);
            ends
        });
    }
    while let Some(ends) = clients.join_next().await {
        for end in ends.unwrap() {
            match end {
                End::Whole(length) => (whole, bytes) = (whole + 1, bytes + length),
                End::Reset => reset += 1,
            }
        }
    }
    assert_eq!(whole + reset, requests);
    assert!(reset > requests / 10 && whole > requests / 2, "{whole} whole, {reset} reset");

    // The client's connections are gone, and with them all that they had.
    until(|| front.server.open_connections() == 0).await;
    let of_proxy = proxy.counters();
    until(|| proxy.counters().upstreams.iter().all(|upstream| upstream.in_flight == 0)).await;
    let (front, origins) = (front.end().await, {
        drop(proxy);
        origins.end().await
    });
    assert_eq!((front.open_requests(), origins.open_requests(), origins.open_connections()), (0, 0, 0));
    let counters = front.counters();
    assert_eq!((counters.violations, counters.stuck, counters.failed), (0, 0, 0), "{counters:?}");
    // A request that is reset at once may never be seen.
    assert!(counters.requests <= requests && counters.requests >= whole, "{counters:?}");
    assert_eq!(of_proxy.bad_gateways + of_proxy.timeouts + of_proxy.overloaded, 0, "{of_proxy:?}");
    until(|| tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0).await;
    println!(
        "{requests} requests: {whole} whole with {:.1} MB, all digests right; {reset} reset, {} of them seen as such; \
         {} connections to origins; no request, connection or task left",
        bytes as f64 / 1e6,
        counters.cancelled,
        of_proxy.upstreams.iter().map(|upstream| upstream.connections).sum::<u64>(),
    );
}

#[test]
fn two_thousand_requests_leave_nothing_behind() {
    run_for(Duration::from_secs(120), soak(2000));
}

#[test]
#[ignore = "takes a minute"]
fn a_hundred_thousand_requests_leave_nothing_behind() {
    run_for(Duration::from_secs(1800), soak(100_000));
}
