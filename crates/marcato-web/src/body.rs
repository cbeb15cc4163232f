//! Body of a request.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;

use crate::patience::Wait;

/// Error of a request's body.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The stream of HTTP/2 was reset, or its connection has ended.
    #[error("the client did not send the whole body: {0}")]
    Http2(#[from] h2::Error),
    /// The stream of HTTP/3 was reset, or its connection has ended, or the body is malformed.
    #[cfg(feature = "http3")]
    #[error("the client did not send the whole body: {reason}")]
    Http3 {
        /// Cause, as text.
        reason: String,
    },
    /// The connection of HTTP/1.1 is broken, or the body is malformed.
    #[error("the client did not send the whole body: {0}")]
    Http1(#[from] hyper::Error),
    /// The body is longer than it may be.
    #[error("the body is longer than {most} bytes: answer with 413")]
    TooLong {
        /// Most bytes, as [`Body::limit`] has set them.
        most: u64,
    },
}

/// Body of a request, of any version of HTTP.
///
/// It is read as the client sends it. Data that is not read makes the client stop, by flow control.
#[derive(Debug, Default)]
pub struct Body {
    kind: Kind,
    /// Wait of its reader, if that has a bound.
    wait: Option<Arc<Wait>>,
    /// Bound of its length, and the bytes that are left of it.
    bound: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Empty,
    Http1(Incoming),
    Http2(Upload),
    #[cfg(feature = "http3")]
    Http3(Box<crate::h3::Upload>),
    /// Bytes that a handler may also take as those of a connection.
    Shared(SharedUpload),
}

/// Body of a stream of HTTP/2.
#[derive(Debug)]
struct Upload {
    stream: RecvStream,
    /// Bytes that the head has announced and that have not arrived.
    announced: Option<u64>,
    data_is_over: bool,
}

impl Upload {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.data_is_over {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // The window follows the reader.
                self.stream.flow_control().release_capacity(data.len())?;
                self.announced = self.announced.map(|left| left.saturating_sub(data.len() as u64));
                Some(Ok(data))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => {
                self.data_is_over = true;
                None
            }
        })
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match ready!(self.poll_data(cx)) {
            Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
            // RFC 9113 §8.1: a server may ask a client to stop sending, after its response.
            Some(Err(BodyError::Http2(error))) if error.reason() == Some(Reason::NO_ERROR) => {
                return Poll::Ready(None);
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => {}
        }
        let trailers: Option<HeaderMap> = ready!(self.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

/// Body of a stream of HTTP/2 that has two readers, of which one reads.
#[derive(Clone, Debug)]
pub(crate) struct SharedUpload(Arc<Mutex<Upload>>);

impl SharedUpload {
    fn locked(&self) -> MutexGuard<'_, Upload> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        self.locked().poll_data(cx)
    }
}

impl Body {
    const fn of(kind: Kind) -> Self {
        Self { kind, wait: None, bound: None }
    }

    /// Bounds the length: more bytes are an error for the reader. A tunnel has no bound.
    ///
    /// A body that announces its length says so by its size hint, before it is read.
    pub const fn limit(&mut self, most: u64) {
        if !matches!(self.kind, Kind::Shared(_)) {
            self.bound = Some((most, most));
        }
    }

    /// Counts the bytes of a frame, and replaces those beyond the bound by an error.
    fn bounded(
        &mut self,
        polled: Poll<Option<Result<Frame<Bytes>, BodyError>>>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some((most, left)) = &mut self.bound else { return polled };
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => {
                    let most = *most;
                    // The rest is not read: the client is told to stop.
                    self.kind = Kind::Empty;
                    return Poll::Ready(Some(Err(BodyError::TooLong { most })));
                }
            }
        }
        polled
    }

    /// Creates a body without data.
    pub const fn empty() -> Self {
        Self::of(Kind::Empty)
    }

    pub(crate) const fn http1(incoming: Incoming) -> Self {
        Self::of(Kind::Http1(incoming))
    }

    /// Creates the body of a stream. `announced` is its length by the head.
    pub(crate) fn http2(stream: RecvStream, announced: Option<u64>) -> Self {
        if stream.is_end_stream() {
            return Self::empty();
        }
        Self::of(Kind::Http2(Upload { stream, announced, data_is_over: false }))
    }

    #[cfg(feature = "http3")]
    pub(crate) fn http3(upload: crate::h3::Upload) -> Self {
        Self::of(Kind::Http3(Box::new(upload)))
    }

    /// Creates the body of a stream that may become a tunnel.
    pub(crate) fn shared(stream: RecvStream) -> (Self, SharedUpload) {
        let upload = Upload { stream, announced: None, data_is_over: false };
        let upload = SharedUpload(Arc::new(Mutex::new(upload)));
        (Self::of(Kind::Shared(upload.clone())), upload)
    }

    /// Lets the server know how long the reader waits; `None` if there is nothing to wait for. A tunnel may be
    /// silent.
    pub(crate) fn watched(&mut self) -> Option<Arc<Wait>> {
        if matches!(self.kind, Kind::Shared(_)) || http_body::Body::is_end_stream(self) {
            return None;
        }
        let wait = Arc::<Wait>::default();
        self.wait = Some(Arc::clone(&wait));
        Some(wait)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(wait) = &self.wait {
            wait.leave();
        }
    }
}

impl Kind {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Http1(incoming) => {
                http_body::Body::poll_frame(Pin::new(incoming), cx).map_err(BodyError::from)
            }
            Self::Http2(upload) => upload.poll_frame(cx),
            #[cfg(feature = "http3")]
            Self::Http3(upload) => upload.poll_frame(cx),
            Self::Shared(upload) => upload.locked().poll_frame(cx),
        }
    }
}

/// True unless a frame has nothing in it.
fn is_progress<E>(polled: &Poll<Option<Result<Frame<Bytes>, E>>>) -> bool {
    match polled {
        Poll::Ready(Some(Ok(frame))) => frame.data_ref().is_none_or(|data| !data.is_empty()),
        Poll::Ready(_) => true,
        Poll::Pending => false,
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { kind, wait, .. } = &mut *self;
        let polled = match wait {
            None => kind.poll_frame(cx),
            Some(wait) => wait.watch(cx, |cx| {
                let polled = kind.poll_frame(cx);
                let is_progress = is_progress(&polled);
                (polled, is_progress)
            }),
        };
        self.bounded(polled)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Http1(incoming) => incoming.is_end_stream(),
            Kind::Http2(upload) => upload.stream.is_end_stream(),
            #[cfg(feature = "http3")]
            Kind::Http3(upload) => upload.is_over(),
            Kind::Shared(upload) => upload.locked().stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Http1(incoming) => incoming.size_hint(),
            Kind::Http2(upload) => upload.announced.map_or_else(SizeHint::default, SizeHint::with_exact),
            #[cfg(feature = "http3")]
            Kind::Http3(upload) => upload.announced().map_or_else(SizeHint::default, SizeHint::with_exact),
            Kind::Shared(_) => SizeHint::default(),
        }
    }
}
