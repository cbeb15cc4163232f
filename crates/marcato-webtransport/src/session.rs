//! Session: one connection of plain streams.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use marcato_net::marcato_units::Rate;
use marcato_net::streams::{Connection, End, Parameters, SendDatagramError, Waiter};

use crate::error::Error;
use crate::recv::RecvStream;
use crate::send::SendStream;

/// Function that makes the order of a stream from its number.
pub(crate) type Order = Arc<dyn Fn(i64) -> Parameters + Send + Sync>;

/// Tasks that wait in `poll` functions of one handle.
#[derive(Debug, Default)]
struct Waiters {
    accept_uni: Waiter,
    accept_bi: Waiter,
    open_uni: Waiter,
    open_bi: Waiter,
    datagram: Waiter,
    closed: Waiter,
}

/// Session over raw QUIC. It is cheap to clone; the last clone closes the connection.
pub struct Session {
    connection: Connection,
    order: Order,
    waiters: Waiters,
}

impl Clone for Session {
    fn clone(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            order: Arc::clone(&self.order),
            waiters: Waiters::default(),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Session {
    /// Creates the session of a connection.
    pub fn new(connection: Connection) -> Self {
        let order = Arc::new(|number| Parameters::default().ordered(number));
        Self { connection, order, waiters: Waiters::default() }
    }

    /// Returns this session, with streams in the order that `order` makes of the number of each.
    #[must_use]
    pub fn with_order(self, order: impl Fn(i64) -> Parameters + Send + Sync + 'static) -> Self {
        Self { order: Arc::new(order), ..self }
    }

    /// Connection of the session.
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    fn send(&self, stream: marcato_net::streams::SendStream) -> SendStream {
        SendStream::new(stream, Arc::clone(&self.order))
    }

    pub(crate) fn accept_uni_next(&mut self, context: &mut Context<'_>) -> Poll<Result<RecvStream, Error>> {
        let accepted = self.connection.poll_accept_uni(&mut self.waiters.accept_uni, context);
        accepted.map_ok(RecvStream::new).map_err(Error::from)
    }

    pub(crate) fn accept_bi_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), Error>> {
        let accepted = self.connection.poll_accept_bi(&mut self.waiters.accept_bi, context);
        accepted.map_ok(|(send, recv)| (self.send(send), RecvStream::new(recv))).map_err(Error::from)
    }

    pub(crate) fn open_uni_next(&mut self, context: &mut Context<'_>) -> Poll<Result<SendStream, Error>> {
        let opened = self.connection.poll_open_uni(&mut self.waiters.open_uni, context);
        opened.map_ok(|send| self.send(send)).map_err(Error::from)
    }

    pub(crate) fn open_bi_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), Error>> {
        let opened = self.connection.poll_open_bi(&mut self.waiters.open_bi, context);
        opened.map_ok(|(send, recv)| (self.send(send), RecvStream::new(recv))).map_err(Error::from)
    }

    pub(crate) fn datagram_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        self.connection.poll_read_datagram(&mut self.waiters.datagram, context).map_err(Error::from)
    }

    pub(crate) fn ends(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        self.connection.poll_closed(&mut self.waiters.closed, context).map(Error::from)
    }

    pub(crate) fn datagram(&self, data: Bytes) -> Result<(), Error> {
        match self.connection.send_datagram(data) {
            // Nobody waits for room: a datagram that is late is of no use.
            Ok(()) | Err(SendDatagramError::Busy) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn longest_datagram(&self) -> usize {
        self.connection.max_datagram_size().unwrap_or_default()
    }

    pub(crate) fn alpn(&self) -> Option<&str> {
        std::str::from_utf8(self.connection.alpn()?).ok()
    }

    pub(crate) fn end(&self, code: u32, reason: &str) {
        self.connection.close(code.into(), reason.as_bytes());
    }

    pub(crate) fn figures(&self) -> Figures {
        let lanes = self.connection.stats().lanes;
        Figures {
            bytes: lanes.iter().map(|lane| lane.sent_bytes.get()).sum(),
            packets: lanes.iter().map(|lane| lane.sent).sum(),
            lost: lanes.iter().map(|lane| lane.lost).sum(),
            rtt: lanes.iter().map(|lane| lane.srtt).min(),
            rate: lanes
                .iter()
                .filter(|lane| !lane.srtt.is_zero())
                .map(|lane| Rate::from_bytes_over(lane.cwnd, lane.srtt).as_bps())
                .sum(),
        }
    }

    /// Returns the end of the session; `None` before it.
    pub fn close_reason(&self) -> Option<End> {
        self.connection.close_reason()
    }
}

/// Statistics of a session, as the traits ask for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    pub(crate) rtt: Option<std::time::Duration>,
    /// Bytes that the windows allow in a round trip, as bits per second.
    pub(crate) rate: u64,
}
