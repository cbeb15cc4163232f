//! Body of a response that may be compressed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes as Payload, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use marcato_units::Bytes;
use pin_project_lite::pin_project;

use super::Shared;
use super::codec::{Codec, CodecError, Encoder, Purpose, Step};
use crate::handler::BoxError;

/// Most bytes of a frame. The server stages as many for a response.
const FRAME: usize = 16 << 10;
/// Bytes of output that an encoder may be ahead of its client, beyond the first frame. An encoder with little
/// left to do then ends, and frees its memory, however slowly the client reads.
const AHEAD: usize = 64 << 10;
/// Input of a step. The thread serves nobody else meanwhile.
const STEP: usize = 16 << 10;
/// Input after which other tasks of the thread have their turn.
const TURN: usize = 32 << 10;
/// Room that an encoder gets at once.
const ROOM: usize = 8 << 10;

pin_project! {
    /// Body that is compressed while it is sent, or passes as it is.
    ///
    /// What has arrived is flushed whenever the rest lets the encoder wait: nothing is delayed.
    pub struct CompressedBody<B> {
        #[pin]
        body: B,
        // `None` for a body that passes as it is.
        work: Option<Box<Work>>,
    }
}

impl<B> CompressedBody<B> {
    /// Creates a body that passes as it is.
    pub const fn plain(body: B) -> Self {
        Self { body, work: None }
    }

    pub(super) fn compressed(body: B, work: Work) -> Self {
        Self { body, work: Some(Box::new(work)) }
    }

    /// Returns true if the body is compressed here.
    pub const fn is_compressed(&self) -> bool {
        self.work.is_some()
    }
}

impl<B> fmt::Debug for CompressedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedBody").field("work", &self.work).finish_non_exhaustive()
    }
}

impl<B> Body for CompressedBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Payload;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Payload>, BoxError>>> {
        let this = self.project();
        match this.work {
            Some(work) => work.poll(this.body, cx),
            None => {
                let frame = ready!(this.body.poll_frame(cx));
                Poll::Ready(frame.map(|frame| match frame {
                    Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
                    Err(error) => Err(error.into()),
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.work {
            Some(work) => work.is_over(),
            None => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.work {
            Some(work) if work.is_over() => SizeHint::with_exact(0),
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

/// Encoder with its memory.
#[derive(Debug)]
struct Held {
    encoder: Encoder,
    memory: Bytes,
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.counts.give(self.memory);
    }
}

/// Compression of a body.
#[derive(Debug)]
pub(super) struct Work {
    /// Encoder, until it has written everything.
    held: Option<Held>,
    /// Rest of a piece of the body.
    input: Payload,
    /// Output of the encoder that nobody has taken.
    output: BytesMut,
    /// True if the encoder has taken something that it may not have written.
    is_dirty: bool,
    /// Task of the encoder besides taking input.
    purpose: Purpose,
    /// True if all output is to leave, however little it is.
    is_urgent: bool,
    /// True until a frame has left.
    is_first: bool,
    trailers: Option<HeaderMap>,
    /// Input since others had their turn.
    turn: usize,
}

impl Work {
    /// Begins with an encoder. Returns `None` if memory is lacking.
    pub(super) fn begin(shared: &Arc<Shared>, codec: Codec, len: Option<u64>) -> Option<Self> {
        let memory = codec.memory();
        if !shared.counts.take(memory, shared.config.memory) {
            shared.counts.crowded.one();
            return None;
        }
        let Ok(encoder) = codec.encoder(len) else {
            shared.counts.give(memory);
            shared.counts.failed.one();
            return None;
        };
        shared.counts.compressed(codec.coding());
        Some(Self {
            held: Some(Held { encoder, memory, shared: Arc::clone(shared) }),
            input: Payload::new(),
            output: BytesMut::new(),
            is_dirty: false,
            purpose: Purpose::Process,
            is_urgent: false,
            is_first: true,
            trailers: None,
            turn: 0,
        })
    }

    fn is_over(&self) -> bool {
        self.held.is_none() && self.output.is_empty() && self.trailers.is_none()
    }

    fn poll<B>(
        &mut self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Payload>, BoxError>>>
    where
        B: Body<Error: Into<BoxError>>,
    {
        loop {
            let wanted = if self.is_first { FRAME } else { AHEAD };
            let Some(held) = &mut self.held else {
                let frame = self.frame().or_else(|| self.trailers.take().map(Frame::trailers));
                return Poll::Ready(frame.map(Ok));
            };
            if self.output.len() >= wanted {
                return Poll::Ready(self.frame().map(Ok));
            }
            if self.turn >= TURN {
                self.turn = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !self.input.is_empty() || self.purpose != Purpose::Process {
                let step = match held.step(&self.input, &mut self.output, self.purpose) {
                    Ok(step) => step,
                    Err(error) => return Poll::Ready(Some(Err(self.fail(error.into(), true)))),
                };
                self.input.advance(step.read);
                self.is_dirty |= step.read > 0;
                // A step that reads nothing takes its time too.
                self.turn += step.read.max(ROOM / 4);
                match self.purpose {
                    // What was flushed leaves before the body is asked again: one that keeps up with the encoder
                    // would hold it back otherwise.
                    Purpose::Flush if step.done => {
                        (self.purpose, self.is_dirty) = (Purpose::Process, false);
                        self.is_urgent = true;
                    }
                    Purpose::Finish if step.done => self.held = None,
                    _ => {}
                }
                continue;
            }
            if self.is_urgent && !self.output.is_empty() {
                return Poll::Ready(self.frame().map(Ok));
            }
            self.is_urgent = false;
            match body.as_mut().poll_frame(cx) {
                Poll::Pending => {
                    self.turn = 0;
                    if self.is_dirty {
                        self.purpose = Purpose::Flush;
                        continue;
                    }
                    if self.output.is_empty() {
                        return Poll::Pending;
                    }
                    self.is_urgent = true;
                }
                Poll::Ready(None) => self.purpose = Purpose::Finish,
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(self.fail(error.into(), false))));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(mut data) => self.input = data.copy_to_bytes(data.remaining()),
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.purpose = Purpose::Finish;
                    }
                },
            }
        }
    }

    /// Takes the next frame of the output.
    fn frame(&mut self) -> Option<Frame<Payload>> {
        if self.output.is_empty() {
            return None;
        }
        self.is_first = false;
        let len = self.output.len().min(FRAME);
        Some(Frame::data(self.output.split_to(len).freeze()))
    }

    /// Ends with an error.
    fn fail(&mut self, error: BoxError, is_ours: bool) -> BoxError {
        if let Some(held) = self.held.take()
            && is_ours
        {
            held.shared.counts.failed.one();
        }
        self.output.clear();
        self.trailers = None;
        error
    }
}

impl Held {
    /// Compresses some input, behind what the output has.
    fn step(&mut self, input: &[u8], output: &mut BytesMut, purpose: Purpose) -> Result<Step, CodecError> {
        let input = &input[..input.len().min(STEP)];
        let filled = output.len();
        output.resize(filled + ROOM, 0);
        let step = self.encoder.step(input, &mut output[filled..], purpose);
        let wrote = step.as_ref().map_or(0, |step| step.wrote);
        output.truncate(filled + wrote);
        let step = step?;
        self.shared.counts.passed(step.read, wrote);
        Ok(step)
    }
}
