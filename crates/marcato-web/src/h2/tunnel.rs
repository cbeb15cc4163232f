//! WebSockets of HTTP/2 for handlers that take over a connection, as those of axum do: RFC 8441.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::body::SharedUpload;
use crate::stage::Stage;

/// Protocol of the streams that may be taken over (RFC 8441 §5).
pub(crate) const WEBSOCKET: &str = "websocket";
/// Request that the library of HTTP/1.1 reads in place of the client's.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: -\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
/// Most bytes that are staged at once.
const MAX_STAGED: usize = 16 << 10;

/// Offer to take over a stream, until its handler has answered.
///
/// Handlers expect an [`OnUpgrade`], which only a connection of hyper makes. So there is one of HTTP/1.1 in
/// memory: it is upgraded when the handler accepts, and from then on its bytes are those of the stream.
pub(crate) struct Tunnel {
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
    accept: oneshot::Sender<()>,
    stage: Arc<OnceLock<Arc<Stage>>>,
}

impl Tunnel {
    /// Makes the offer for the stream of a request.
    pub(crate) fn new(upload: SharedUpload) -> Option<(Self, OnUpgrade)> {
        let stage = Arc::<OnceLock<Arc<Stage>>>::default();
        let io = Joint { before: REQUEST, head: 0, rest: Bytes::new(), upload, stage: Arc::clone(&stage) };
        let (accept, accepted) = oneshot::channel();
        let accepted = Mutex::new(Some(accepted));
        let offer = Arc::<Mutex<Option<OnUpgrade>>>::default();
        let offered = Arc::clone(&offer);
        let switch = hyper::service::service_fn(move |request: Request<Incoming>| {
            *offered.lock().unwrap_or_else(PoisonError::into_inner) = Some(hyper::upgrade::on(request));
            let accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner).take();
            async move {
                if let Some(accepted) = accepted {
                    let _ = accepted.await;
                }
                let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
                let response = response.header(CONNECTION, "upgrade").header(UPGRADE, WEBSOCKET);
                Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap_or_default())
            }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(io), switch).with_upgrades();
        let mut connection = Box::pin(async move { drop(connection.await) });
        // All of its request can be read at once.
        let _ = connection.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let offer = offer.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some((Self { connection, accept, stage }, offer))
    }

    /// Hands the stream over to the handler, which has accepted.
    pub(crate) fn open(self, stage: Arc<Stage>) {
        let Self { mut connection, accept, stage: place } = self;
        // It goes on by itself, and may be silent for as long as it likes.
        stage.rest();
        let _ = place.set(stage);
        let _ = accept.send(());
        // All of its response can be written at once.
        if connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(connection);
        }
    }
}

/// Stream of HTTP/2 as a stream of bytes, behind a request and a response of HTTP/1.1 that nobody sees.
struct Joint {
    /// Rest of the request.
    before: &'static [u8],
    /// Bytes of the empty line behind the response that were written; all four once the response is over.
    head: usize,
    /// Rest of a piece that the client has sent.
    rest: Bytes,
    upload: SharedUpload,
    /// Stage of the response, once the handler has accepted.
    stage: Arc<OnceLock<Arc<Stage>>>,
}

/// End of a head (RFC 9112 §2.1).
const EMPTY_LINE: &[u8] = b"\r\n\r\n";

impl Joint {
    /// Follows bytes to the end of the head. Returns how many belong to it.
    fn follow_head(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while self.head < EMPTY_LINE.len()
            && let Some(byte) = bytes.get(taken)
        {
            taken += 1;
            self.head = match self.head {
                head if *byte == EMPTY_LINE[head] => head + 1,
                // A carriage return that ends no line comes in no head.
                _ => 0,
            };
        }
        taken
    }
}

impl AsyncRead for Joint {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.before.is_empty() {
            let (now, later) = this.before.split_at(this.before.len().min(buf.remaining()));
            buf.put_slice(now);
            this.before = later;
            return Poll::Ready(Ok(()));
        }
        if this.stage.get().is_none() {
            return Poll::Pending;
        }
        while this.rest.is_empty() {
            match ready!(this.upload.poll_data(cx)) {
                Some(Ok(data)) => this.rest = data,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let taken = this.rest.len().min(buf.remaining());
        buf.put_slice(&this.rest[..taken]);
        this.rest.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Joint {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = self.follow_head(bytes);
        if taken > 0 || bytes.is_empty() {
            return Poll::Ready(Ok(taken));
        }
        let Some(stage) = self.stage.get() else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if !ready!(stage.poll_room(cx)) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let piece = &bytes[..bytes.len().min(MAX_STAGED)];
        stage.push(Bytes::copy_from_slice(piece));
        stage.rest();
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(stage) = self.stage.get() {
            stage.complete(None);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        // RFC 8441 §5: the end of the stream is what the end of a connection is over TCP.
        if let Some(stage) = self.stage.get() {
            stage.complete(None);
        }
    }
}
