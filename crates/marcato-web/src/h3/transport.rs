//! Plain streams as the library wants them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use ::h3::error::Code;
use ::h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use bytes::{Buf as _, Bytes};
use marcato_net::Cause;
use marcato_net::streams::{
    Connection, End, Parameters, ReadError, RecvStream, SendStream, StreamOver, Waiter, WriteError,
};

use super::shared::Shared;
use crate::control::ControlReader;

/// Most bytes that one read returns.
const READ: usize = 64 << 10;

/// Order of the server's own streams: with the default urgency, and before all responses of it. They are neither urgent,
/// which would make coupled mode act for every client, nor held back.
fn of_control() -> Parameters {
    Parameters { order: i64::MAX, ..Parameters::default() }
}

/// Connection of plain streams.
pub(super) struct Transport {
    opener: Opener,
    both: Waiter,
    one: Waiter,
    shared: Arc<Shared>,
}

/// Opener of streams of a connection.
pub(super) struct Opener {
    connection: Connection,
    waiter: Waiter,
}

impl Transport {
    pub(super) fn new(connection: Connection, shared: Arc<Shared>) -> Self {
        let opener = Opener { connection, waiter: Waiter::default() };
        Self { opener, both: Waiter::default(), one: Waiter::default(), shared }
    }
}

fn ended(end: End) -> ConnectionErrorIncoming {
    match end {
        End::Application { code, .. } => ConnectionErrorIncoming::ApplicationClose { error_code: code },
        End::Lost { cause: Cause::TimedOut, .. } => ConnectionErrorIncoming::Timeout,
        end => ConnectionErrorIncoming::Undefined(Arc::new(end)),
    }
}

fn with_connection(end: End) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: ended(end) }
}

fn unwritable(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        WriteError::Ended(end) => with_connection(end),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn unreadable(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        ReadError::Ended(end) => with_connection(end),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

/// Returns the id of a stream as the library has it.
fn id(stream: u64) -> StreamId {
    // Both have ids below 2^62 (RFC 9000 §2.1).
    StreamId::try_from(stream).expect("an id of QUIC is one of the library")
}

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = Both;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        let opened = ready!(self.connection.poll_open_bi(&mut self.waiter, cx)).map_err(with_connection)?;
        Poll::Ready(Ok(Both::new(opened.0, opened.1)))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        let mut opened =
            ready!(self.connection.poll_open_uni(&mut self.waiter, cx)).map_err(with_connection)?;
        opened.set_order(of_control());
        Poll::Ready(Ok(Sending::new(opened)))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(code.value(), reason);
    }
}

impl quic::OpenStreams<Bytes> for Transport {
    type BidiStream = Both;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        quic::OpenStreams::<Bytes>::close(&mut self.opener, code, reason);
    }
}

impl quic::Connection<Bytes> for Transport {
    type RecvStream = Receiving;
    type OpenStreams = Opener;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Receiving, ConnectionErrorIncoming>> {
        let stream = ready!(self.opener.connection.poll_accept_uni(&mut self.one, cx)).map_err(ended)?;
        let tap = Some((ControlReader::default(), Arc::clone(&self.shared)));
        Poll::Ready(Ok(Receiving { stream, tap }))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Both, ConnectionErrorIncoming>> {
        loop {
            let accepted = self.opener.connection.poll_accept_bi(&mut self.both, cx);
            let (send, recv) = ready!(accepted).map_err(ended)?;
            let mut both = Both::new(send, recv);
            if self.shared.accept(&both.send.outgoing) {
                return Poll::Ready(Ok(both));
            }
            // RFC 9114 §5.2: it is beyond the last request that GOAWAY has announced.
            let rejected = Code::H3_REQUEST_REJECTED.value();
            quic::SendStream::<Bytes>::reset(&mut both, rejected);
            quic::RecvStream::stop_sending(&mut both, rejected);
        }
    }

    fn opener(&self) -> Opener {
        Opener { connection: self.opener.connection.clone(), waiter: Waiter::default() }
    }
}

/// Stream that the server sends on. The library, and the task of a request, share it.
#[derive(Debug)]
pub(super) struct Outgoing {
    id: u64,
    stream: Mutex<SendStream>,
}

impl Outgoing {
    /// Number of the stream.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    fn locked(&self) -> MutexGuard<'_, SendStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_order(&self, order: Parameters) {
        self.locked().set_order(order);
    }

    /// Polls for room, and takes the first bytes of `data`.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, data: &Bytes) -> Poll<Result<usize, WriteError>> {
        self.locked().poll_write_chunk(cx, data)
    }

    /// Polls for the end of the stream at the client: the code with which it has stopped the stream, if it has.
    pub(super) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<Result<Option<u64>, End>> {
        self.locked().poll_over(cx)
    }

    /// Bytes from the start that the client is known to have.
    pub(super) fn acknowledged(&self) -> Option<u64> {
        self.locked().acknowledged()
    }

    /// True if bytes wait for which the client gives no credit.
    pub(super) fn is_held(&self) -> bool {
        self.locked().is_held()
    }

    pub(super) fn finish(&self) -> Result<(), StreamOver> {
        self.locked().finish()
    }

    pub(super) fn reset(&self, code: Code) {
        // One that is over has nothing left to reset.
        let _ = self.locked().reset(code.value());
    }
}

/// Sending half of a stream.
pub(super) struct Sending {
    outgoing: Arc<Outgoing>,
    /// Bytes of the library that wait for room.
    waiting: Bytes,
}

impl Sending {
    fn new(stream: SendStream) -> Self {
        let outgoing = Outgoing { id: u64::from(stream.id()), stream: Mutex::new(stream) };
        Self { outgoing: Arc::new(outgoing), waiting: Bytes::new() }
    }
}

impl quic::SendStream<Bytes> for Sending {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while !self.waiting.is_empty() {
            let written = ready!(self.outgoing.poll_write(cx, &self.waiting)).map_err(unwritable)?;
            self.waiting.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut data: WriteBuf<Bytes> = data.into();
        debug_assert!(self.waiting.is_empty(), "the library sends when it was told that there is room");
        self.waiting = data.copy_to_bytes(data.remaining());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(cx))?;
        Poll::Ready(self.outgoing.finish().map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, reset_code: u64) {
        self.outgoing.reset(Code::from(reset_code));
    }

    fn send_id(&self) -> StreamId {
        id(self.outgoing.id)
    }
}

/// Receiving half of a stream.
pub(super) struct Receiving {
    stream: RecvStream,
    /// Reader of updates, of a stream on which only the client sends.
    tap: Option<(ControlReader, Arc<Shared>)>,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // RFC 9114 §4.1: a server that has no need of the rest of a request says so with this code.
        let _ = self.stream.stop(Code::H3_NO_ERROR.value());
    }
}

impl quic::RecvStream for Receiving {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let read = ready!(self.stream.poll_read_chunk(cx, READ)).map_err(unreadable)?;
        if let (Some((tap, shared)), Some(bytes)) = (&mut self.tap, &read) {
            tap.feed(bytes, |update| shared.update(update));
            shared.frames(tap.take_frames());
        }
        Poll::Ready(Ok(read))
    }

    fn stop_sending(&mut self, error_code: u64) {
        let _ = self.stream.stop(error_code);
    }

    fn recv_id(&self) -> StreamId {
        id(self.stream.id().into())
    }
}

/// Stream on which both ends send.
pub(super) struct Both {
    send: Sending,
    recv: Receiving,
}

impl Both {
    fn new(send: SendStream, recv: RecvStream) -> Self {
        Self { send: Sending::new(send), recv: Receiving { stream: recv, tap: None } }
    }
}

impl quic::SendStream<Bytes> for Both {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl quic::RecvStream for Both {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.recv.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl quic::BidiStream<Bytes> for Both {
    type SendStream = Sending;
    type RecvStream = Receiving;

    fn split(self) -> (Sending, Receiving) {
        (self.send, self.recv)
    }
}
