//! Body of a response.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use marcato_units::Duration;
use thiserror::Error;

use super::activity::IdleTimer;
use super::complaints::{Kind as Complaint, with_causes};
use super::counters::Totals;
use super::headers::strip_trailers;
use super::origin::Permit;
use super::pool::Lease;
use super::websocket::Download;

/// Body of a response, streamed from the upstream as the client takes it.
///
/// Dropped before its end, it stops the upstream's response.
pub struct ProxyBody(Kind);

enum Kind {
    /// The proxy's own text.
    Text(Bytes),
    Relay(Box<Relay>),
    Tunnel(Box<Download>),
}

impl ProxyBody {
    pub(super) const fn text(text: &'static str) -> Self {
        Self(Kind::Text(Bytes::from_static(text.as_bytes())))
    }

    /// Returns true for a text of the proxy itself, which no upstream has sent.
    pub const fn is_of_proxy(&self) -> bool {
        matches!(self.0, Kind::Text(_))
    }

    pub(super) fn relay(incoming: Incoming, ends: Ends, timer: IdleTimer, idle: Duration) -> Self {
        let mut relay = Relay { incoming, ends: Some(ends), timer, idle };
        if relay.incoming.is_end_stream() {
            relay.finish();
        }
        Self(Kind::Relay(Box::new(relay)))
    }

    pub(super) fn tunnel(download: Download) -> Self {
        Self(Kind::Tunnel(Box::new(download)))
    }
}

/// Body of an upstream's response.
struct Relay {
    incoming: Incoming,
    /// Present until the body ends.
    ends: Option<Ends>,
    timer: IdleTimer,
    idle: Duration,
}

/// Owners that a response releases at its end.
pub(super) struct Ends {
    pub(super) permit: Permit,
    pub(super) lease: Option<Lease>,
    pub(super) totals: Arc<Totals>,
}

impl Relay {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyBodyError>>> {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Pending if self.ends.is_none() => Poll::Pending,
            Poll::Pending => {
                if self.timer.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let error = ProxyBodyError::Idle { idle: self.idle };
                self.fail(&error);
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                self.timer.progress();
                if let Some(trailers) = frame.trailers_mut() {
                    strip_trailers(trailers);
                } else if let (Some(data), Some(ends)) = (frame.data_ref(), &self.ends) {
                    ends.permit.origin.tally.received.add(data.len());
                }
                if self.incoming.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let error = ProxyBodyError::Upstream(error);
                self.fail(&error);
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
        }
    }

    /// Gives the connection back.
    fn finish(&mut self) {
        if let Some(Ends { lease: Some(lease), .. }) = self.ends.take() {
            lease.finish();
        }
    }

    /// Closes the connection.
    fn fail(&mut self, error: &ProxyBodyError) {
        if let Some(ends) = self.ends.take() {
            ends.totals.broken_responses.one();
            ends.permit.origin.complain(Complaint::Body, "cut short", || {
                with_causes(&error.to_string(), std::error::Error::source(error))
            });
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = ProxyBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyBodyError>>> {
        match &mut self.get_mut().0 {
            Kind::Text(text) if text.is_empty() => Poll::Ready(None),
            Kind::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Kind::Relay(relay) => relay.poll_frame(cx),
            Kind::Tunnel(download) => {
                download.poll_data(cx).map(|data| data.map(|data| data.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Text(text) => text.is_empty(),
            Kind::Relay(relay) => relay.incoming.is_end_stream(),
            Kind::Tunnel(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Text(text) => SizeHint::with_exact(u64::try_from(text.len()).unwrap_or(u64::MAX)),
            Kind::Relay(relay) => relay.incoming.size_hint(),
            Kind::Tunnel(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ProxyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Text(_) => "text",
            Kind::Relay(_) => "relay",
            Kind::Tunnel(_) => "tunnel",
        };
        f.debug_tuple("ProxyBody").field(&kind).finish()
    }
}

/// Error of a response's body. The server then resets the stream or closes the connection.
#[derive(Debug, Error)]
pub enum ProxyBodyError {
    /// The upstream fell silent within the body.
    #[error("origin sent nothing for {idle:?}: raise `body-idle-timeout`, or reset the response")]
    Idle {
        /// Longest silence.
        idle: Duration,
    },
    /// The upstream's connection broke within the body.
    #[error("origin's response broke, reset the response: {0}")]
    Upstream(#[source] hyper::Error),
    /// The upstream's side of a tunnel broke.
    #[error("origin's side of the tunnel broke, reset the response: {0}")]
    Tunnel(#[source] io::Error),
    /// No byte passed the tunnel for too long.
    #[error("tunnel was silent for {idle:?}: raise `tunnel-idle-timeout`, or reset the response")]
    IdleTunnel {
        /// Longest silence.
        idle: Duration,
    },
}
