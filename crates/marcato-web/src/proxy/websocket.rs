//! WebSocket over HTTP/2 and HTTP/3, passed on over HTTP/1.1: RFC 8441, RFC 9220.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use marcato_units::Duration;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use super::activity::{Activity, IdleTimer};
use super::body::ProxyBodyError;
use super::counters::Totals;
use super::farewell::{ANSWER, Farewell, Side};
use super::origin::Permit;
use super::upgrade::TUNNEL_BUFFER;
use super::upload::BoxError;
use crate::ending::Ending;

/// Suffix of the key whose digest proves that an origin speaks WebSocket (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Protocol that an extended CONNECT names (RFC 8441 §5).
pub(super) const PROTOCOL: &str = "websocket";

/// Handshake of WebSocket with an upstream, in place of the client's.
pub(super) struct Handshake {
    key: String,
}

impl Handshake {
    /// Draws a key; `None` if the system has no randomness.
    pub(super) fn new() -> Option<Self> {
        let mut nonce = [0; 16];
        SystemRandom::new().fill(&mut nonce).ok()?;
        Some(Self { key: base64(&nonce) })
    }

    /// Writes the fields that HTTP/2 does not have (RFC 8441 §5).
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        if let Ok(key) = HeaderValue::from_str(&self.key) {
            headers.insert(header::SEC_WEBSOCKET_KEY, key);
        }
        headers.entry(header::SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
    }

    /// Returns true if the origin proves that it took part in the handshake (RFC 6455 §4.1).
    pub(super) fn is_accepted(&self, headers: &HeaderMap) -> bool {
        let mut input = self.key.as_bytes().to_vec();
        input.extend_from_slice(GUID);
        let proof = base64(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &input).as_ref());
        headers
            .get(header::SEC_WEBSOCKET_ACCEPT)
            .is_some_and(|accept| accept.as_bytes().trim_ascii() == proof.as_bytes())
    }
}

/// Encodes bytes in base64 with padding (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_usize, |group, byte| group << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let symbol = ALPHABET[group >> (18 - 6 * digit) & 63];
            text.push(if digit <= chunk.len() { char::from(symbol) } else { '=' });
        }
    }
    text
}

/// Direction of a tunnel from the upstream: the body of the response.
pub(super) struct Download {
    state: State,
    timer: IdleTimer,
    idle: Duration,
    buffer: BytesMut,
    ends: Ends,
    /// Body of the request until both directions begin.
    upload: Option<UnsyncBoxBody<Bytes, BoxError>>,
    activity: Arc<Activity>,
    /// Task of the other direction.
    task: Option<JoinHandle<()>>,
    /// Close frame to the client when the server ends.
    farewell: Option<Farewell>,
    /// Wait for the end of the server.
    ending: Option<Wait>,
    /// Wait for both sides to close, once the server ends.
    patience: Option<Wait>,
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

enum State {
    Switching(OnUpgrade),
    Open(ReadHalf<TokioIo<Upgraded>>),
    Closed,
}

/// Owners that both directions of a tunnel share.
#[derive(Clone)]
struct Ends {
    _permit: Arc<Permit>,
    totals: Arc<Totals>,
}

impl Download {
    pub(super) fn new(
        origin: OnUpgrade,
        upload: UnsyncBoxBody<Bytes, BoxError>,
        idle: Duration,
        permit: Permit,
        totals: Arc<Totals>,
        ending: Option<Ending>,
    ) -> Self {
        totals.tunnels.one();
        let activity = Arc::new(Activity::new());
        Self {
            state: State::Switching(origin),
            timer: IdleTimer::new(Arc::clone(&activity), idle),
            idle,
            buffer: BytesMut::new(),
            ends: Ends { _permit: Arc::new(permit), totals },
            upload: Some(upload),
            activity,
            task: None,
            farewell: ending.clone().map(|ending| Farewell::new(ending, Side::Client)),
            ending: ending.map(|mut ending| -> Wait { Box::pin(async move { ending.begun().await }) }),
            patience: None,
        }
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ProxyBodyError>>> {
        loop {
            if matches!(self.state, State::Open(_)) {
                if self.is_over(cx) {
                    self.close();
                } else if self.patience.is_some()
                    && let Some(farewell) = self.farewell.as_mut().filter(|farewell| farewell.is_due())
                {
                    return Poll::Ready(Some(Ok(farewell.say().into())));
                }
            }
            let polled = match &mut self.state {
                State::Closed => return Poll::Ready(None),
                State::Switching(origin) => match Pin::new(origin).poll(cx) {
                    Poll::Ready(Ok(upgraded)) => {
                        self.open(upgraded);
                        continue;
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(ProxyBodyError::Upstream(error))),
                    Poll::Pending => Poll::Pending,
                },
                State::Open(origin) => {
                    self.buffer.resize(TUNNEL_BUFFER, 0);
                    let mut buffer = ReadBuf::new(&mut self.buffer);
                    Pin::new(origin)
                        .poll_read(cx, &mut buffer)
                        .map_ok(|()| buffer.filled().len())
                        .map_err(ProxyBodyError::Tunnel)
                }
            };
            return match polled {
                Poll::Ready(Ok(0)) => {
                    self.state = State::Closed;
                    Poll::Ready(None)
                }
                Poll::Ready(Ok(len)) => {
                    self.timer.progress();
                    let bytes = self.buffer.get(..len).unwrap_or_default();
                    let passed = self.farewell.as_mut().map_or(len, |farewell| farewell.pass(bytes));
                    if passed == 0 {
                        continue;
                    }
                    self.ends.totals.tunnel_received.add(passed);
                    Poll::Ready(Some(Ok(self.buffer.split_to(passed).freeze())))
                }
                Poll::Ready(Err(error)) => {
                    self.close();
                    Poll::Ready(Some(Err(error)))
                }
                Poll::Pending => {
                    if self.timer.poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.ends.totals.idle_tunnels.one();
                    self.close();
                    Poll::Ready(Some(Err(ProxyBodyError::IdleTunnel { idle: self.idle })))
                }
            };
        }
    }

    /// True if the server ends, and both sides have closed or had time to.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ending.as_mut().is_some_and(|ending| ending.as_mut().poll(cx).is_ready()) {
            self.ending = None;
            self.patience = Some(Box::pin(tokio::time::sleep(ANSWER)));
        }
        let Some(patience) = &mut self.patience else { return false };
        if patience.as_mut().poll(cx).is_ready() {
            return true;
        }
        if !self.farewell.as_ref().is_some_and(Farewell::is_over) {
            return false;
        }
        // The other direction ends once the client has closed.
        self.task.as_mut().is_none_or(|task| Pin::new(task).poll(cx).is_ready())
    }

    /// Begins the other direction in a task of its own.
    fn open(&mut self, upgraded: Upgraded) {
        let (read, write) = tokio::io::split(TokioIo::new(upgraded));
        self.state = State::Open(read);
        if let Some(upload) = self.upload.take() {
            let (ends, activity) = (self.ends.clone(), Arc::clone(&self.activity));
            let ending = self.farewell.as_ref().map(|farewell| farewell.ending.clone());
            let farewell = ending.map(|ending| Farewell::new(ending, Side::Origin));
            self.task = Some(tokio::spawn(async move {
                if let Err(error) = send(upload, write, &activity, &ends, farewell).await {
                    tracing::debug!(%error, "tunnel broke");
                }
            }));
        }
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.upload = None;
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // RFC 8441 §5: the end of the stream ends both directions.
        self.close();
    }
}

async fn send(
    mut from: UnsyncBoxBody<Bytes, BoxError>,
    mut to: WriteHalf<TokioIo<Upgraded>>,
    activity: &Activity,
    ends: &Ends,
    mut farewell: Option<Farewell>,
) -> io::Result<()> {
    loop {
        let Some(frame) = Farewell::or_next(&mut farewell, &mut to, from.frame()).await? else { continue };
        let Some(frame) = frame else { return to.shutdown().await };
        let Ok(mut data) = frame.map_err(io::Error::other)?.into_data() else { continue };
        if let Some(farewell) = &mut farewell {
            data.truncate(farewell.pass(&data));
            if farewell.is_over() {
                return Ok(());
            }
        }
        to.write_all(&data).await?;
        to.flush().await?;
        activity.touch();
        ends.totals.tunnel_sent.add(data.len());
    }
}

/// Boxes the client's direction of a tunnel.
pub(super) fn upload<B>(body: B) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    UnsyncBoxBody::new(body.map_err(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn the_proof_is_that_of_rfc_6455() {
        let handshake = Handshake { key: "dGhlIHNhbXBsZSBub25jZQ==".to_owned() };
        let mut headers = HeaderMap::new();
        assert!(!handshake.is_accepted(&headers));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".parse().unwrap());
        assert!(handshake.is_accepted(&headers));
        assert!(!Handshake::new().unwrap().is_accepted(&headers));
    }
}
