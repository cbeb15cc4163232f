//! Plain streams of a connection over QUIC.

use std::task::{Context, Poll};

use bytes::Bytes as Payload;
use marcato_quic::Session;
use marcato_quic::streams::{
    DatagramError, Direction, End, ReadError as SessionReadError, StreamId, WriteError as SessionWriteError,
};
use marcato_sched::exchange::{GroupId, Parameters, Weight, WeightError};
use marcato_units::{Duration, Time};

use super::hub::Quic;
use crate::error::Closed;
use crate::plain::{Fate, Plain, ReadError, SendDatagramError, StreamOver, Streams, WriteError};
use crate::signal::lock;

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
}

impl Streams for Quic {
    /// Opens a stream; `None` if the peer allows none now.
    fn open(&self, direction: Direction, order: Parameters) -> Result<Option<StreamId>, End> {
        let stream = self.plainly(|_, session| session.open_stream(direction, order))?;
        if let Some(stream) = stream {
            self.adopt_plain(stream, direction == Direction::Both, true);
        }
        Ok(stream)
    }

    /// Accepts a stream of the peer; `None` if there is none.
    fn accept(&self, direction: Direction) -> Result<Option<StreamId>, End> {
        let stream = self.plainly(|_, session| session.accept_stream(direction))?;
        if let Some(stream) = stream {
            self.adopt_plain(stream, true, direction == Direction::Both);
        }
        Ok(stream)
    }

    /// Takes bytes to send: all, or the first part.
    fn poll_write(
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
    fn finish(&self, stream: StreamId) -> Result<(), StreamOver> {
        match self.plainly(|_, session| session.finish_stream(stream)) {
            Ok(Ok(())) => Ok(()),
            _ => Err(StreamOver),
        }
    }

    fn reset(&self, stream: StreamId, code: u64) -> Result<(), StreamOver> {
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
    fn fate(&self, stream: StreamId) -> Option<Fate> {
        lock(&self.plain.senders).streams.get(&stream).and_then(|sending| sending.fate)
    }

    fn order(&self, stream: StreamId, order: Parameters) {
        // Of a connection that has ended, no order matters.
        let _ = self.plainly(|_, session| session.order_stream(stream, order));
    }

    fn expect(&self, order: Parameters) {
        // Of a connection that has ended, nothing is expected.
        let _ = self.plainly(|_, session| session.expect_streams(order));
    }

    /// Returns whether bytes of a stream wait, and the peer gives no credit for them.
    fn is_held(&self, stream: StreamId) -> bool {
        let mut state = lock(&self.hub.state);
        state.connection(self).is_some_and(|(_, session)| session.stream_is_held(stream))
    }

    fn weigh(&self, group: GroupId, weight: Weight) -> Result<(), WeightError> {
        // Of a connection that has ended, no share matters.
        self.plainly(|_, session| session.set_stream_weight(group, weight)).unwrap_or(Ok(()))
    }

    fn deadline(&self, stream: StreamId, within: Option<Duration>, reset: Option<u64>) {
        lock(&self.plain.late).remove(&stream);
        // Of a connection that has ended, nothing arrives.
        let _ = self.plainly(|now, session| {
            session.set_stream_deadline(now, stream, within.map(|within| now + within), reset);
        });
    }

    fn is_late(&self, stream: StreamId) -> bool {
        lock(&self.plain.late).contains(&stream)
    }

    /// Returns the bytes that the peer is known to have; `None` if the session keeps no account of the stream.
    fn acknowledged(&self, stream: StreamId) -> Option<u64> {
        let acknowledged = self.plainly(|_, session| {
            session.watch_stream(stream);
            session.acknowledged_of(stream)
        });
        acknowledged.ok().flatten().map(marcato_units::Bytes::get)
    }

    /// Takes the next bytes of a stream; `None` at its end.
    fn poll_read(
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
    fn poll_reset(&self, context: &mut Context<'_>, stream: StreamId) -> Poll<Result<u64, End>> {
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

    fn stop(&self, stream: StreamId, code: u64) -> Result<(), StreamOver> {
        match self.plainly(|_, session| session.stop_stream(stream, code)) {
            Ok(Ok(())) => Ok(()),
            _ => Err(StreamOver),
        }
    }

    /// Forgets the handle that read a stream, or that sent on it.
    fn forget(&self, stream: StreamId, reads: bool) {
        if reads {
            lock(&self.plain.readers).remove(&stream);
        } else {
            lock(&self.plain.senders).streams.remove(&stream);
            lock(&self.plain.late).remove(&stream);
        }
    }

    fn send_datagram(
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

    fn read_datagram(&self) -> Result<Option<Payload>, End> {
        self.plainly(|_, session| session.read_datagram().map(|datagram| datagram.body))
    }

    fn max_datagram(&self) -> Option<usize> {
        self.plainly(|_, session| session.max_stream_datagram()).ok().flatten()
    }

    /// Ends the connection with a code of the application.
    fn close(&self, code: u64, reason: &[u8]) {
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
    fn waiting(&self) -> &Plain {
        &self.plain
    }
}
