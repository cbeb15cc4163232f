//! Response of a request: what its handler puts on its stage is written to its stream.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use ::h3::error::{Code, StreamError};
use ::h3::server::RequestStream;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Response, StatusCode};
use marcato_net::streams::{End as ConnectionEnd, WriteError};
use marcato_wire::VarInt;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::shared::Entry;
use super::transport::{Outgoing, Sending};
use crate::decision::Decision;
use crate::hints::content_length;
use crate::inbox::Inbox;
use crate::stage::{End, Head, Progress, Stage};
use crate::trace::Outcome;

/// Most bytes of one frame of content.
const FRAME: usize = 64 << 10;
/// Most bytes of content that are copied behind the head of their frame, so that both are one write.
const JOINED: usize = 2 << 10;
/// Type of the frames of content (RFC 9114 §7.2.1).
const DATA: u64 = 0x00;

/// Writer of a response.
pub(super) struct Responder {
    entry: Entry,
    outgoing: Arc<Outgoing>,
    library: RequestStream<Sending, Bytes>,
    stage: Arc<Stage>,
    inbox: Arc<Inbox>,
    handler: Option<AbortHandle>,
    /// True once the head was sent.
    begun: bool,
    end: Option<End>,
}

/// Reason for which a response ends early.
#[derive(Debug)]
enum Broken {
    /// The client wants no more of it.
    Stopped,
    /// The connection has ended.
    Ended(ConnectionEnd),
    /// The client gave no credit for too long.
    Stalled,
    /// Its handler failed.
    Failed,
    /// It cannot be sent.
    Unsendable,
}

impl From<WriteError> for Broken {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(_) => Self::Stopped,
            WriteError::Ended(end) => Self::Ended(end),
            _ => Self::Unsendable,
        }
    }
}

impl From<StreamError> for Broken {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::RemoteTerminate { .. } => Self::Stopped,
            error => {
                tracing::debug!(%error, "a response cannot be sent");
                Self::Unsendable
            }
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stage.close();
        if let Some(handler) = &self.handler {
            handler.abort();
        }
    }
}

impl Responder {
    pub(super) const fn new(
        entry: Entry,
        outgoing: Arc<Outgoing>,
        library: RequestStream<Sending, Bytes>,
        stage: Arc<Stage>,
        inbox: Arc<Inbox>,
    ) -> Self {
        Self { entry, outgoing, library, stage, inbox, handler: None, begun: false, end: None }
    }

    /// Decision about the request.
    pub(super) const fn decision(&self) -> Decision {
        self.entry.decision
    }

    /// Lets the handler run in a task of its own.
    pub(super) fn spawn(&mut self, handler: impl Future<Output = ()> + Send + 'static) {
        self.handler = Some(tokio::spawn(handler).abort_handle());
    }

    /// Writes the response, until it has arrived or cannot.
    pub(super) async fn run(mut self) {
        let broken = match self.write().await {
            Ok(()) => {
                self.entry.complete = true;
                return;
            }
            Err(broken) => broken,
        };
        match broken {
            Broken::Stopped => {
                self.entry.record(|record| record.trace_failure(Outcome::Reset));
                self.entry.reset_by_client();
            }
            Broken::Stalled => {
                tracing::debug!(stream = self.outgoing.id(), "the client takes nothing of a response");
                self.entry.context().counters.stalled.one();
                self.outgoing.reset(Code::H3_REQUEST_CANCELLED);
            }
            Broken::Failed => {
                self.entry.context().counters.failed.one();
                self.entry.record(|record| record.trace_failure(Outcome::Failed));
                self.outgoing.reset(Code::H3_INTERNAL_ERROR);
            }
            Broken::Unsendable => self.outgoing.reset(Code::H3_INTERNAL_ERROR),
            // A client that has all may end the connection before its last acknowledgement arrives.
            Broken::Ended(ConnectionEnd::Application { code, .. })
                if self.end.is_some() && (code == 0 || code == Code::H3_NO_ERROR.value()) =>
            {
                self.entry.complete = true;
            }
            Broken::Ended(_) => {}
        }
    }

    async fn write(&mut self) -> Result<(), Broken> {
        loop {
            poll_fn(|cx| self.poll_bell(cx)).await?;
            let Progress { interim, head, bytes, end } = self.stage.progress();
            for response in interim {
                self.send_head(response).await?;
            }
            if let Some(Head { response, is_end }) = head {
                self.entry.respond(response.headers());
                let (status, length) = (response.status(), content_length(response.headers()));
                self.entry.record(|record| record.head(status, length));
                self.send_head(response).await?;
                self.begun = true;
                if is_end {
                    self.end = Some(End::Complete(None));
                    return self.finish().await;
                }
            }
            if bytes > 0 {
                self.entry.record(|record| record.supplied(Instant::now()));
            }
            if matches!(end, Some(End::Failed)) {
                return self.fail().await;
            }
            while let Some(piece) = self.stage.take_piece(FRAME) {
                self.send_content(piece).await?;
            }
            if let Some(End::Complete(trailers)) = end {
                if let Some(trailers) = trailers {
                    let sending = self.library.send_trailers(trailers);
                    within_patience(&self.entry, &self.outgoing, async { Ok(sending.await?) }).await?;
                }
                self.end = Some(End::Complete(None));
                return self.finish().await;
            }
        }
    }

    /// Waits for progress of the handler, or for the end of the stream.
    fn poll_bell(&self, cx: &mut Poller<'_>) -> Poll<Result<(), Broken>> {
        self.inbox.register(cx.waker());
        if self.inbox.take().is_some() {
            return Poll::Ready(Ok(()));
        }
        self.outgoing.poll_over(cx).map(|over| Err(over.map_or_else(Broken::Ended, |_| Broken::Stopped)))
    }

    async fn send_head(&mut self, response: Response<()>) -> Result<(), Broken> {
        let sending = self.library.send_response(response);
        within_patience(&self.entry, &self.outgoing, async { Ok(sending.await?) }).await
    }

    /// Writes a piece of content, as one frame.
    async fn send_content(&self, piece: Bytes) -> Result<(), Broken> {
        let len = piece.len();
        let mut frame = [0; 2 * VarInt::MAX_LEN];
        let head = frame_head(len, &mut frame);
        if len <= JOINED {
            let mut joined = BytesMut::with_capacity(head.len() + len);
            joined.put_slice(head);
            joined.put_slice(&piece);
            self.send_bytes(joined.freeze()).await?;
        } else {
            self.send_bytes(Bytes::copy_from_slice(head)).await?;
            self.send_bytes(piece).await?;
        }
        self.entry.passed(len);
        Ok(())
    }

    async fn send_bytes(&self, mut bytes: Bytes) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let writing = poll_fn(|cx| self.outgoing.poll_write(cx, &bytes));
            let written = within_patience(&self.entry, &self.outgoing, async { Ok(writing.await?) }).await?;
            let _ = bytes.split_to(written);
        }
        Ok(())
    }

    /// Ends the response, and waits until the client has all of it.
    async fn finish(&mut self) -> Result<(), Broken> {
        self.outgoing.finish().map_err(|_| Broken::Stopped)?;
        let over = poll_fn(|cx| self.outgoing.poll_over(cx));
        let over = within_patience(&self.entry, &self.outgoing, async { over.await.map_err(Broken::Ended) });
        match over.await? {
            // RFC 9114 §4.1: a client that has all may say so.
            Some(code) if code != Code::H3_NO_ERROR.value() => Err(Broken::Stopped),
            _ => Ok(()),
        }
    }

    /// Answers for a handler that failed: with a response if none has begun.
    async fn fail(&mut self) -> Result<(), Broken> {
        if mem::replace(&mut self.begun, true) {
            return Err(Broken::Failed);
        }
        self.entry.context().counters.failed.one();
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        self.entry.record(|record| record.head(StatusCode::INTERNAL_SERVER_ERROR, None));
        self.send_head(response).await?;
        self.end = Some(End::Complete(None));
        self.finish().await
    }
}

/// Head of a frame of content of this length.
fn frame_head(len: usize, into: &mut [u8; 2 * VarInt::MAX_LEN]) -> &[u8] {
    let mut at = 0;
    for value in [DATA, len as u64] {
        let written = VarInt::new(value).and_then(|it| it.encode(into.get_mut(at..)?));
        at += written.unwrap_or_default();
    }
    &into[..at]
}

/// Writes for as long as the client takes something of the response. One that waits for its turn may wait for longer.
async fn within_patience<T>(
    entry: &Entry,
    outgoing: &Outgoing,
    write: impl Future<Output = Result<T, Broken>>,
) -> Result<T, Broken> {
    let mut write = pin!(write);
    // Most of the time there is room.
    if let Poll::Ready(written) = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await {
        return written;
    }
    let stall = entry.context().config.limits.stall;
    let mut taken = None;
    loop {
        if let Ok(written) = timeout(stall, write.as_mut()).await {
            return written;
        }
        let now = outgoing.acknowledged();
        if outgoing.is_held() && now == taken {
            return Err(Broken::Stalled);
        }
        taken = now;
    }
}
