//! Weights and dependencies of RFC 7540, added to the requests of a client whose library sends none.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of the client's preface (RFC 9113 §3.4).
const PREFACE: usize = 24;
/// Bytes of a frame's header (RFC 9113 §4.1).
const HEADER: usize = 9;
/// Type and flags of HEADERS (RFC 9113 §6.2).
const HEADERS: u8 = 0x01;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// Bytes of a dependency and a weight (RFC 7540 §6.2).
const FIELDS: u32 = 5;
/// Bit of an exclusive dependency (RFC 7540 §5.3.1).
const EXCLUSIVE: u32 = 1 << 31;
/// Weights of Chromium by urgency.
const BY_URGENCY: [u16; 8] = [256, 220, 183, 147, 110, 74, 37, 1];

/// Weights of the requests of a connection, in the order of the requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights(Arc<Mutex<Vec<u16>>>);

impl Weights {
    /// Gives the next request the weight that Chromium has for an urgency.
    pub(super) fn push(&self, urgency: u8) {
        let weight = BY_URGENCY.get(usize::from(urgency)).copied().unwrap_or(1);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(weight);
    }

    /// Weight of a stream, and the stream on which it depends: as in Chromium, the last one before it whose
    /// weight is not less. `None` without a weight.
    fn of(&self, stream: u32) -> Option<(u32, u16)> {
        let weights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(stream.checked_sub(1)? / 2).ok()?;
        let weight = *weights.get(place)?;
        let parent = weights[..place].iter().rposition(|before| *before >= weight);
        let parent = parent.and_then(|place| u32::try_from(2 * place + 1).ok()).unwrap_or(0);
        Some((parent, weight))
    }
}

/// Part of the outgoing bytes that comes next.
#[derive(Debug)]
enum Next {
    /// Bytes that stay as they are: the preface, or a frame's content.
    Same(usize),
    /// Header of a frame, of which this much is known.
    Header(BytesMut),
}

/// Stream of a client of HTTP/2 that adds weights to its HEADERS frames, which must not be padded.
#[derive(Debug)]
pub(super) struct Weighted<T> {
    inner: T,
    weights: Weights,
    next: Next,
    out: BytesMut,
}

impl<T> Weighted<T> {
    pub(super) fn new(inner: T, weights: Weights) -> Self {
        Self { inner, weights, next: Next::Same(PREFACE), out: BytesMut::new() }
    }

    /// Takes bytes of the library.
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.next {
                Next::Same(left) => {
                    let now = bytes.len().min(*left);
                    self.out.put_slice(&bytes[..now]);
                    bytes = &bytes[now..];
                    *left -= now;
                    if *left == 0 {
                        self.next = Next::Header(BytesMut::with_capacity(HEADER));
                    }
                }
                Next::Header(known) => {
                    let now = bytes.len().min(HEADER - known.len());
                    known.put_slice(&bytes[..now]);
                    bytes = &bytes[now..];
                    if known.len() == HEADER {
                        let header = std::mem::take(known);
                        let content = self.header(header);
                        self.next = match content {
                            0 => Next::Header(BytesMut::with_capacity(HEADER)),
                            content => Next::Same(content),
                        };
                    }
                }
            }
        }
    }

    /// Puts out a frame's header, with a priority where there is one. Returns the bytes of its content.
    fn header(&mut self, mut header: BytesMut) -> usize {
        let length = (&header[..3]).get_uint(3);
        let stream = (&header[5..]).get_u32();
        let content = usize::try_from(length).unwrap_or(usize::MAX);
        let given = if header[3] == HEADERS && header[4] & (PADDED | PRIORITY) == 0 {
            self.weights.of(stream)
        } else {
            None
        };
        let Some((parent, weight)) = given else {
            self.out.put_slice(&header);
            return content;
        };
        header[4] |= PRIORITY;
        self.out.put_uint(length + u64::from(FIELDS), 3);
        self.out.put_slice(&header[3..]);
        self.out.put_u32(parent | EXCLUSIVE);
        // A weight is one more than its byte.
        self.out.put_u8(u8::try_from(weight.saturating_sub(1)).unwrap_or(u8::MAX));
        content
    }
}

impl<T: AsyncWrite + Unpin> Weighted<T> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.out))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Weighted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        self.feed(bytes);
        // What does not leave now, a flush sends.
        if let Poll::Ready(Err(error)) = self.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Weighted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use marcato_web::{Event, FrameReader};

    use super::*;

    /// Preface, SETTINGS, three requests with content of 3 bytes, and a WINDOW_UPDATE.
    fn client() -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        for stream in [1, 3, 5] {
            bytes.extend([0, 0, 3, HEADERS, 0x05, 0, 0, 0, stream, 1, 2, 3]);
        }
        bytes.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        bytes
    }

    fn priorities(pieces: usize) -> (Vec<(u64, u64, u16, bool)>, usize) {
        let weights = Weights::default();
        [5, 5, 0].into_iter().for_each(|urgency| weights.push(urgency));
        let mut weighted = Weighted::new((), weights);
        client().chunks(pieces).for_each(|piece| weighted.feed(piece));
        let (mut reader, mut found) = (FrameReader::new(FrameReader::MAX_FRAME_SIZE), Vec::new());
        let read = reader.feed(&weighted.out, |event| {
            if let Event::Headers { stream, dependency: Some(dependency) } = event {
                let weight = dependency.weight.get();
                found.push((stream.0, dependency.parent.0, weight, dependency.exclusive));
            }
        });
        assert!(read.is_ok(), "{read:?}");
        (found, weighted.out.len())
    }

    #[test]
    fn requests_depend_on_the_last_one_that_is_not_less_urgent() {
        for pieces in [1, 7, 1000] {
            let (found, length) = priorities(pieces);
            assert_eq!(found, [(1, 0, 74, true), (3, 1, 74, true), (5, 0, 256, true)]);
            assert_eq!(length, client().len() + 3 * FIELDS as usize);
        }
    }

    #[test]
    fn requests_without_a_weight_stay_as_they_are() {
        let mut weighted = Weighted::new((), Weights::default());
        weighted.feed(&client());
        assert_eq!(weighted.out, client());
    }
}
