//! Body of a request of HTTP/3.

use std::fmt;
use std::task::{Context, Poll, ready};

use ::h3::error::StreamError;
use ::h3::server::RequestStream;
use bytes::{Buf as _, Bytes};
use http_body::Frame;

use super::transport::Receiving;
use crate::body::BodyError;

/// Body of a request of HTTP/3.
pub(crate) struct Upload {
    stream: RequestStream<Receiving, Bytes>,
    /// Bytes that have come with the head.
    first: Option<Bytes>,
    /// Bytes that the head has announced and that have not arrived.
    announced: Option<u64>,
    data_is_over: bool,
    is_over: bool,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("announced", &self.announced).field("is_over", &self.is_over).finish()
    }
}

/// Part of a body that has come with the head.
pub(super) enum First {
    /// Some of it, or nothing yet.
    More,
    /// All of it: there is no body.
    Over,
    /// Another length than the head has announced, or no body.
    Malformed,
}

impl Upload {
    pub(super) const fn new(stream: RequestStream<Receiving, Bytes>, announced: Option<u64>) -> Self {
        Self { stream, first: None, announced, data_is_over: false, is_over: false }
    }

    /// Looks at what has come with the head.
    pub(super) fn look(&mut self, cx: &mut Context<'_>) -> First {
        match self.poll_data(cx) {
            Poll::Pending => First::More,
            Poll::Ready(Some(Ok(data))) => {
                self.first = Some(data);
                First::More
            }
            Poll::Ready(Some(Err(_))) => First::Malformed,
            // There may be trailers.
            Poll::Ready(None) => match self.poll_trailers(cx) {
                Poll::Ready(None) => First::Over,
                _ => First::More,
            },
        }
    }

    /// True once everything has been read.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Bytes that the head has announced and that have not been read.
    pub(crate) fn announced(&self) -> Option<u64> {
        let first = self.first.as_ref().map_or(0, |first| first.len() as u64);
        self.announced.map(|left| left + first)
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if self.data_is_over {
            return Poll::Ready(None);
        }
        let read = match ready!(self.stream.poll_recv_data(cx)) {
            Ok(read) => read.map(|mut data| data.copy_to_bytes(data.remaining())),
            Err(error) => {
                self.is_over = true;
                return Poll::Ready(Some(Err(broken(&error))));
            }
        };
        self.data_is_over = read.is_none();
        // RFC 9114 §4.1.2: a body of another length than the head has announced is malformed.
        let read_len = read.as_ref().map_or(0, Bytes::len) as u64;
        let left = self.announced.map(|left| left.checked_sub(read_len));
        let is_malformed = match left {
            Some(None) => true,
            Some(Some(left)) => self.data_is_over && left > 0,
            None => false,
        };
        if is_malformed {
            self.stream.stop_sending(::h3::error::Code::H3_MESSAGE_ERROR);
            (self.data_is_over, self.is_over) = (true, true);
            let reason = "its length is not the one announced".to_owned();
            return Poll::Ready(Some(Err(BodyError::Http3 { reason })));
        }
        self.announced = left.flatten();
        Poll::Ready(read.map(Ok))
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let trailers = ready!(self.stream.poll_recv_trailers(cx));
        self.is_over = true;
        Poll::Ready(match trailers {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => Some(Err(broken(&error))),
        })
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match ready!(self.poll_data(cx)) {
            Some(data) => Poll::Ready(Some(data.map(Frame::data))),
            None => self.poll_trailers(cx),
        }
    }
}

fn broken(error: &StreamError) -> BodyError {
    BodyError::Http3 { reason: error.to_string() }
}
