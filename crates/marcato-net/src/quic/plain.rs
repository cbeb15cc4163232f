//! Plain streams of a connection: waiting tasks, and the calls of handles.

use std::collections::HashMap;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bytes::Bytes as Payload;
use marcato_quic::Session;
use marcato_quic::streams::{
    DatagramError, Direction, End, ReadError as SessionReadError, StreamEvent, StreamId,
    WriteError as SessionWriteError,
};
use marcato_sched::exchange::Parameters;
use marcato_units::{Duration, Time};

use super::hub::Quic;
use crate::error::{Cause, Closed};
use crate::signal::{Signal, lock};
use crate::streams::{ReadError, SendDatagramError, StreamOver, WriteError};

/// Fate of a stream that this end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The peer has all of it.
    Finished,
    /// The peer reads no more of it.
    Stopped(u64),
    /// This end has reset it.
    Reset,
}

/// Stream that a handle sends on.
#[derive(Debug, Default)]
struct Sending {
    writer: Option<Waker>,
    fate: Option<Fate>,
}

/// Streams that handles send on, and those of the peer that nobody has accepted.
#[derive(Debug, Default)]
struct Senders {
    streams: HashMap<StreamId, Sending>,
    /// Bidirectional streams of the peer that were accepted.
    accepted: u64,
}

impl Senders {
    /// Returns a stream for the fate that it meets. The peer may stop one before it is accepted.
    fn meeting(&mut self, stream: StreamId, of_peer: bool) -> Option<&mut Sending> {
        if of_peer && stream.index() >= self.accepted {
            return Some(self.streams.entry(stream).or_default());
        }
        self.streams.get_mut(&stream)
    }
}

/// Tasks that wait for plain streams. The handles of the application bound the maps.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    readers: Mutex<HashMap<StreamId, Option<Waker>>>,
    senders: Mutex<Senders>,
    /// Notified of further streams of the peer, of more streams allowed, of datagrams, of progress of
    /// acknowledgement, and of the end.
    pub(crate) news: Signal,
    end: Mutex<Option<End>>,
}

impl Plain {
    /// Tells the tasks that wait for it of an event.
    pub(super) fn event(&self, event: StreamEvent, client: bool) {
        match event {
            StreamEvent::Readable(stream) => {
                if let Some(waker) = lock(&self.readers).get_mut(&stream).and_then(Option::take) {
                    waker.wake();
                }
                return;
            }
            StreamEvent::Writable(stream) => self.sender(stream, None, client),
            StreamEvent::Finished(stream) => self.sender(stream, Some(Fate::Finished), client),
            StreamEvent::Stopped { stream, code } => self.sender(stream, Some(Fate::Stopped(code)), client),
            _ => {}
        }
        if !matches!(event, StreamEvent::Writable(_)) {
            self.news.notify_waiters();
        }
    }

    fn sender(&self, stream: StreamId, fate: Option<Fate>, client: bool) {
        let of_peer = stream.initiator().is_client() != client;
        if let Some(sending) = lock(&self.senders).meeting(stream, of_peer) {
            sending.fate = sending.fate.or(fate);
            if let Some(waker) = sending.writer.take() {
                waker.wake();
            }
        }
    }

    /// Tells all tasks of the end.
    pub(super) fn end(&self, end: End) {
        lock(&self.end).get_or_insert(end);
        lock(&self.readers).values_mut().filter_map(Option::take).for_each(Waker::wake);
        lock(&self.senders)
            .streams
            .values_mut()
            .filter_map(|sending| sending.writer.take())
            .for_each(Waker::wake);
        self.news.notify_waiters();
    }

    /// Returns the end of the connection; `None` before it.
    pub(crate) fn ended(&self) -> Option<End> {
        lock(&self.end).clone()
    }

    fn lost(&self) -> End {
        let stopped = || End::Lost { cause: Cause::Stopped, reason: "its task has ended".to_owned() };
        self.ended().unwrap_or_else(stopped)
    }
}

impl Quic {
    /// Changes the session of plain streams, and wakes its driver.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    fn plainly<T>(&self, change: impl FnOnce(Time, &mut Session) -> T) -> Result<T, End> {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        let (_, session) = state.connection(self).ok_or_else(|| self.plain.lost())?;
        if let Some(end) = session.end() {
            return Err(end.clone());
        }
        let changed = change(now, session);
        drop(state);
        self.hub.wake.notify_one();
        Ok(changed)
    }

    /// Opens a stream; `None` if the peer allows none now.
    pub(crate) fn open_plain(
        &self,
        direction: Direction,
        order: Parameters,
    ) -> Result<Option<StreamId>, End> {
        let stream = self.plainly(|_, session| session.open_stream(direction, order))?;
        if let Some(stream) = stream {
            self.adopt_plain(stream, direction == Direction::Both, true);
        }
        Ok(stream)
    }

    /// Accepts a stream of the peer; `None` if there is none.
    pub(crate) fn accept_plain(&self, direction: Direction) -> Result<Option<StreamId>, End> {
        let stream = self.plainly(|_, session| session.accept_stream(direction))?;
        if let Some(stream) = stream {
            self.adopt_plain(stream, true, direction == Direction::Both);
        }
        Ok(stream)
    }

    /// Prepares for the handles of a stream.
    fn adopt_plain(&self, stream: StreamId, reads: bool, sends: bool) {
        if reads {
            lock(&self.plain.readers).insert(stream, None);
        }
        if sends {
            let mut senders = lock(&self.plain.senders);
            let of_peer = stream.initiator().is_client() != self.hub.client;
            senders.accepted += u64::from(of_peer);
            senders.streams.entry(stream).or_default();
        }
    }

    /// Takes bytes to send: all, or the first part.
    pub(crate) fn poll_write_plain(
        &self,
        context: &mut Context<'_>,
        stream: StreamId,
        data: Payload,
    ) -> Poll<Result<usize, WriteError>> {
        let written = self.plainly(|_, session| {
            let written = session.write_stream(stream, data);
            if written == Err(SessionWriteError::Blocked) {
                // Under the lock under which events are dispatched, so none is missed.
                if let Some(sending) = lock(&self.plain.senders).streams.get_mut(&stream) {
                    sending.writer = Some(context.waker().clone());
                }
            }
            written
        });
        match written {
            Err(end) => Poll::Ready(Err(WriteError::Ended(end))),
            Ok(Err(SessionWriteError::Blocked)) => Poll::Pending,
            Ok(Err(SessionWriteError::Stopped(code))) => Poll::Ready(Err(WriteError::Stopped(code))),
            Ok(Err(_)) => Poll::Ready(Err(match self.fate(stream) {
                Some(Fate::Stopped(code)) => WriteError::Stopped(code),
                _ => WriteError::Closed,
            })),
            Ok(Ok(len)) => Poll::Ready(Ok(len)),
        }
    }

    /// Ends a stream.
    pub(crate) fn finish_plain(&self, stream: StreamId) -> Result<(), StreamOver> {
        match self.plainly(|_, session| session.finish_stream(stream)) {
            Ok(Ok(())) => Ok(()),
            _ => Err(StreamOver),
        }
    }

    pub(crate) fn reset_plain(&self, stream: StreamId, code: u64) -> Result<(), StreamOver> {
        match self.plainly(|_, session| session.reset_stream(stream, code)) {
            Ok(Ok(())) => {
                self.plain.sender(stream, Some(Fate::Reset), self.hub.client);
                self.plain.news.notify_waiters();
                Ok(())
            }
            _ => Err(StreamOver),
        }
    }

    /// Returns the fate of a stream that a handle sends on; `None` while it has none.
    pub(crate) fn fate(&self, stream: StreamId) -> Option<Fate> {
        lock(&self.plain.senders).streams.get(&stream).and_then(|sending| sending.fate)
    }

    pub(crate) fn order_plain(&self, stream: StreamId, order: Parameters) {
        // Of a connection that has ended, no order matters.
        let _ = self.plainly(|_, session| session.order_stream(stream, order));
    }

    /// Returns the bytes that the peer is known to have; `None` if the session keeps no account of the stream.
    pub(crate) fn acknowledged_plain(&self, stream: StreamId) -> Option<u64> {
        let acknowledged = self.plainly(|_, session| {
            session.watch_stream(stream);
            session.acknowledged_of(stream)
        });
        acknowledged.ok().flatten().map(marcato_units::Bytes::get)
    }

    /// Takes the next bytes of a stream; `None` at its end.
    pub(crate) fn poll_read_plain(
        &self,
        context: &mut Context<'_>,
        stream: StreamId,
        most: usize,
    ) -> Poll<Result<Option<Payload>, ReadError>> {
        let read = self.plainly(|_, session| {
            let read = session.read_stream_data(stream, most);
            if read == Err(SessionReadError::Blocked)
                && let Some(waker) = lock(&self.plain.readers).get_mut(&stream)
            {
                *waker = Some(context.waker().clone());
            }
            read
        });
        match read {
            Err(end) => Poll::Ready(Err(ReadError::Ended(end))),
            Ok(Err(SessionReadError::Blocked)) => Poll::Pending,
            Ok(Err(SessionReadError::Reset(code))) => Poll::Ready(Err(ReadError::Reset(code))),
            Ok(Err(_)) => Poll::Ready(Err(ReadError::Closed)),
            Ok(Ok(data)) => Poll::Ready(Ok(data)),
        }
    }

    /// Polls for a reset of a stream by the peer.
    pub(crate) fn poll_reset_plain(
        &self,
        context: &mut Context<'_>,
        stream: StreamId,
    ) -> Poll<Result<u64, End>> {
        let reset = self.plainly(|_, session| {
            let code = session.stream_reset(stream);
            if code.is_none()
                && let Some(waker) = lock(&self.plain.readers).get_mut(&stream)
            {
                *waker = Some(context.waker().clone());
            }
            code
        });
        match reset {
            Err(end) => Poll::Ready(Err(end)),
            Ok(Some(code)) => Poll::Ready(Ok(code)),
            Ok(None) => Poll::Pending,
        }
    }

    pub(crate) fn stop_plain(&self, stream: StreamId, code: u64) -> Result<(), StreamOver> {
        match self.plainly(|_, session| session.stop_stream(stream, code)) {
            Ok(Ok(())) => Ok(()),
            _ => Err(StreamOver),
        }
    }

    /// Forgets the handle that read a stream, or that sent on it.
    pub(crate) fn forget_plain(&self, stream: StreamId, reads: bool) {
        if reads {
            lock(&self.plain.readers).remove(&stream);
        } else {
            lock(&self.plain.senders).streams.remove(&stream);
        }
    }

    pub(crate) fn send_plain_datagram(
        &self,
        data: Payload,
        order: Parameters,
        lifetime: Option<Duration>,
    ) -> Result<(), SendDatagramError> {
        match self.plainly(|now, session| session.send_datagram(now, data, order, lifetime)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(DatagramError::Disabled)) => Err(SendDatagramError::Disabled),
            Ok(Err(DatagramError::TooLong { limit })) => Err(SendDatagramError::TooLong { limit }),
            Ok(Err(DatagramError::Blocked)) => Err(SendDatagramError::Busy),
            Ok(Err(_)) => Err(SendDatagramError::Ended(self.plain.lost())),
            Err(end) => Err(SendDatagramError::Ended(end)),
        }
    }

    pub(crate) fn read_plain_datagram(&self) -> Result<Option<Payload>, End> {
        self.plainly(|_, session| session.read_datagram().map(|datagram| datagram.body))
    }

    pub(crate) fn max_plain_datagram(&self) -> Option<usize> {
        self.plainly(|_, session| session.max_stream_datagram()).ok().flatten()
    }

    /// Ends the connection with a code of the application.
    pub(crate) fn close_plain(&self, code: u64, reason: &[u8]) {
        let now = self.hub.now();
        let mut state = lock(&self.hub.state);
        if let Some((_, session)) = state.connection(self) {
            session.close_streams(now, code, reason);
            state.end(now, self.id, Closed::Local);
        }
        drop(state);
        self.hub.wake.notify_one();
    }

    /// Tasks that wait for plain streams.
    pub(crate) const fn plain(&self) -> &Plain {
        &self.plain
    }
}
