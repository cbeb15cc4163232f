//! Upgrades of HTTP/1.1: RFC 9110 §7.8.

use std::io;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use marcato_units::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::activity::Activity;
use super::counters::Totals;
use super::farewell::{ANSWER, Farewell, Side};
use super::headers::{has_token, tokens};
use super::origin::Permit;
use crate::counter::Count;
use crate::ending::Ending;

/// Bytes that a tunnel reads at once in each direction: 16 KiB.
pub(super) const TUNNEL_BUFFER: usize = 16 * 1024;

/// Returns the protocols to which a request upgrades; `None` if it does not.
///
/// Upgrades to HTTP itself are left out. Past the upgrade, the proxy would not see the requests,
/// and its rules would not hold for them.
pub(super) fn requested(headers: &HeaderMap) -> Option<HeaderValue> {
    if !has_token(headers, &header::CONNECTION, b"upgrade") {
        return None;
    }
    let others: Vec<&[u8]> = tokens(headers, &header::UPGRADE)
        .filter(|token| {
            let name = token.split(|byte| *byte == b'/').next().unwrap_or_default();
            !["h2c", "h2", "h3", "http", "tls"].iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
        })
        .collect();
    if others.is_empty() { None } else { HeaderValue::from_bytes(&others.join(b", ".as_slice())).ok() }
}

/// Returns the protocol to which a response switches, if the request asked for it.
pub(super) fn accepted(headers: &HeaderMap, requested: &HeaderValue) -> Option<HeaderValue> {
    let mut chosen = tokens(headers, &header::UPGRADE);
    let (protocol, None) = (chosen.next()?, chosen.next()) else { return None };
    // RFC 9110 §7.8: a server MUST NOT switch to a protocol that the client did not ask for.
    let asked = requested
        .as_bytes()
        .split(|byte| *byte == b',')
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(protocol));
    if asked { HeaderValue::from_bytes(protocol).ok() } else { None }
}

/// Tunnel that an upgrade opens.
pub(super) struct Tunnel {
    pub(super) idle: Duration,
    pub(super) permit: Permit,
    pub(super) totals: Arc<Totals>,
    /// Held until the tunnel ends, so that the server waits for it.
    pub(super) ending: Option<Ending>,
    pub(super) is_websocket: bool,
}

impl Tunnel {
    /// Joins both sides of an upgrade once they have switched.
    pub(super) async fn join(self, client: OnUpgrade, origin: OnUpgrade) {
        let Self { idle, permit, totals, ending, is_websocket } = self;
        totals.tunnels.one();
        let upstream = permit.origin.uri();
        // The response to the client goes out first, and its connection ends if it does not.
        let (origin, client) = match tokio::try_join!(origin, client) {
            Ok(sides) => sides,
            Err(error) => {
                tracing::debug!(origin = upstream, %error, "upgrade failed");
                return;
            }
        };
        let closing = ending.as_ref().filter(|_| is_websocket);
        match copy(TokioIo::new(client), TokioIo::new(origin), idle, &totals, closing).await {
            Ok(End::Closed) => {}
            Ok(End::Idle) => totals.idle_tunnels.one(),
            Err(error) => tracing::debug!(origin = upstream, %error, "tunnel broke"),
        }
    }
}

/// End of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides closed it, or the server ended.
    Closed,
    /// No byte passed for too long.
    Idle,
}

/// Copies in both directions until both sides have closed. With a notice of the server's end, the bytes are
/// those of a WebSocket.
async fn copy<C, O>(
    client: C,
    origin: O,
    idle: Duration,
    totals: &Totals,
    ending: Option<&Ending>,
) -> io::Result<End>
where
    C: AsyncRead + AsyncWrite,
    O: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let farewell = |to| ending.map(|ending| Farewell::new(ending.clone(), to));
    let (client_read, client_write) = tokio::io::split(client);
    let (origin_read, origin_write) = tokio::io::split(origin);
    let both = async {
        tokio::try_join!(
            pump(client_read, origin_write, &activity, &totals.tunnel_sent, farewell(Side::Origin)),
            pump(origin_read, client_write, &activity, &totals.tunnel_received, farewell(Side::Client)),
        )
    };
    tokio::select! {
        ended = both => ended.map(|_| End::Closed),
        () = activity.silence(idle) => Ok(End::Idle),
        () = patience(ending.cloned()) => Ok(End::Closed),
    }
}

/// Waits until both sides of a WebSocket had time to answer the close frames of a server that ends.
async fn patience(ending: Option<Ending>) {
    match ending {
        Some(mut ending) => {
            ending.begun().await;
            tokio::time::sleep(ANSWER).await;
        }
        None => std::future::pending().await,
    }
}

async fn pump<R, W>(
    mut from: R,
    mut to: W,
    activity: &Activity,
    count: &Count,
    mut farewell: Option<Farewell>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; TUNNEL_BUFFER];
    loop {
        let read = from.read(&mut buffer);
        let Some(len) = Farewell::or_next(&mut farewell, &mut to, read).await?.transpose()? else { continue };
        if len == 0 {
            return to.shutdown().await;
        }
        let Some(mut bytes) = buffer.get(..len) else { return Ok(()) };
        if let Some(farewell) = &mut farewell {
            let passed = farewell.pass(bytes);
            // Both sides are closed once the other direction has ended as well.
            if farewell.is_over() {
                return Ok(());
            }
            bytes = &bytes[..passed];
        }
        to.write_all(bytes).await?;
        to.flush().await?;
        activity.touch();
        count.add(bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;
    use tokio::time::Instant;

    const IDLE: Duration = Duration::from_secs(10);

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn an_upgrade_is_named_in_connection() {
        assert_eq!(requested(&map(&[("upgrade", "websocket")])), None);
        let headers = map(&[("upgrade", "websocket"), ("connection", "keep-alive, Upgrade")]);
        assert_eq!(requested(&headers).unwrap(), "websocket");
    }

    #[test]
    fn upgrades_to_http_are_left_out() {
        let with = |value| requested(&map(&[("upgrade", value), ("connection", "upgrade")]));
        for value in ["h2c", "HTTP/2.0", "TLS/1.0", "H2C, h2", ""] {
            assert_eq!(with(value), None, "{value}");
        }
        assert_eq!(with("h2c, websocket, SPDY/3.1").unwrap(), "websocket, SPDY/3.1");
    }

    #[test]
    fn an_origin_switches_to_what_was_asked_for() {
        let asked = HeaderValue::from_static("websocket, SPDY/3.1");
        assert_eq!(accepted(&map(&[("upgrade", "WebSocket")]), &asked).unwrap(), "WebSocket");
        assert_eq!(accepted(&map(&[("upgrade", "h2c")]), &asked), None);
        assert_eq!(accepted(&map(&[("upgrade", "websocket, spdy/3.1")]), &asked), None);
        assert_eq!(accepted(&map(&[]), &asked), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_passes_bytes_and_ends_with_both_sides() {
        let ((mut client, client_far), (mut origin, origin_far)) = (duplex(64), duplex(64));
        let totals = Arc::<Totals>::default();
        let tunnel = tokio::spawn({
            let totals = Arc::clone(&totals);
            async move { copy(client_far, origin_far, IDLE, &totals, None).await.unwrap() }
        });
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut text = String::new();
        origin.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "question");
        // One side is closed; the other still answers.
        origin.write_all(b"answer").await.unwrap();
        drop(origin);
        text.clear();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "answer");
        assert_eq!(tunnel.await.unwrap(), End::Closed);
        assert_eq!((totals.tunnel_sent.get(), totals.tunnel_received.get()), (8, 6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_is_closed() {
        let ((_client, client_far), (_origin, origin_far)) = (duplex(64), duplex(64));
        let start = Instant::now();
        let end = copy(client_far, origin_far, IDLE, &Totals::default(), None).await.unwrap();
        assert_eq!((end, start.elapsed()), (End::Idle, IDLE));
    }
}
