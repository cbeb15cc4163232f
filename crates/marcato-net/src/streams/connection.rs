//! Connection of plain streams.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes as Payload;
use marcato_identity::PeerIdentity;
use marcato_quic::streams::{Direction, End, StreamId};
use marcato_sched::exchange::{GroupId, Parameters, Weight, WeightError};
use marcato_sched::lane::LaneId;
use marcato_units::Duration;

use super::recv::RecvStream;
use super::send::SendStream;
use super::waiter::Waiter;
use crate::config::LaneConfig;
use crate::connection::Connection as Inner;
use crate::error::{AddLaneError, ChangeLaneError, ExportError};
use crate::event::Events;
use crate::plain::SendDatagramError;
use crate::plain::Streams;
use crate::stats::ConnectionStats;

/// Connection of plain streams. It is cheap to clone.
///
/// When the last clone and the last stream are dropped, it closes with code 0. Data that has not arrived is then
/// lost, so wait for [`SendStream::stopped`] first.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Connection(Inner);

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("streams::Connection").field("id", &self.0.stable_id()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates the connection of a transport of plain streams; `None` of any other.
    pub(super) fn new(inner: Inner) -> Option<Self> {
        inner.transport().streams().is_some().then_some(Self(inner))
    }

    pub(super) fn streams(&self) -> &dyn Streams {
        self.0.transport().streams().expect("checked when it was created")
    }

    /// Opens a stream on which both ends send. Waits until the peer allows one. The peer sees it with the first
    /// bytes. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), End> {
        Ok(self.both(self.open(Direction::Both).await?))
    }

    /// Opens a stream on which only this end sends, as [`open_bi`](Self::open_bi) does. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn open_uni(&self) -> Result<SendStream, End> {
        let id = self.open(Direction::One).await?;
        Ok(SendStream::new(self.clone(), id, Parameters::default()))
    }

    async fn open(&self, direction: Direction) -> Result<StreamId, End> {
        let mut waiter = Waiter::default();
        poll_fn(|context| self.poll_open(&mut waiter, context, direction)).await
    }

    fn poll_open(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
        direction: Direction,
    ) -> Poll<Result<StreamId, End>> {
        let streams = self.streams();
        let opened = || streams.open(direction, Parameters::default()).transpose();
        streams.waiting().news.poll_for(&mut waiter.0, context, opened)
    }

    fn both(&self, id: StreamId) -> (SendStream, RecvStream) {
        let send = SendStream::new(self.clone(), id, Parameters::default());
        (send, RecvStream::new(self.clone(), id))
    }

    /// Polls for a stream on which both ends send, as [`open_bi`](Self::open_bi).
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn poll_open_bi(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), End>> {
        self.poll_open(waiter, context, Direction::Both).map_ok(|id| self.both(id))
    }

    /// Polls for a stream on which only this end sends, as [`open_uni`](Self::open_uni).
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn poll_open_uni(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<SendStream, End>> {
        let opened = self.poll_open(waiter, context, Direction::One);
        opened.map_ok(|id| SendStream::new(self.clone(), id, Parameters::default()))
    }

    /// Polls for the next stream of the peer on which both ends send, as [`accept_bi`](Self::accept_bi).
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn poll_accept_bi(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), End>> {
        self.poll_accept(waiter, context, Direction::Both).map_ok(|id| self.both(id))
    }

    /// Polls for the next stream of the peer on which only the peer sends, as [`accept_uni`](Self::accept_uni).
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn poll_accept_uni(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, End>> {
        self.poll_accept(waiter, context, Direction::One).map_ok(|id| RecvStream::new(self.clone(), id))
    }

    fn poll_accept(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
        direction: Direction,
    ) -> Poll<Result<StreamId, End>> {
        let streams = self.streams();
        streams.waiting().news.poll_for(&mut waiter.0, context, || streams.accept(direction).transpose())
    }

    /// Polls for the next datagram, as [`read_datagram`](Self::read_datagram).
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn poll_read_datagram(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<Payload, End>> {
        let streams = self.streams();
        streams.waiting().news.poll_for(&mut waiter.0, context, || streams.read_datagram().transpose())
    }

    /// Polls for the end of the connection, as [`closed`](Self::closed).
    pub fn poll_closed(&self, waiter: &mut Waiter, context: &mut Context<'_>) -> Poll<End> {
        let plain = self.streams().waiting();
        plain.news.poll_for(&mut waiter.0, context, || plain.ended())
    }

    /// Waits for the next stream of the peer on which both ends send. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), End> {
        Ok(self.both(self.accept(Direction::Both).await?))
    }

    /// Waits for the next stream of the peer on which only the peer sends. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn accept_uni(&self) -> Result<RecvStream, End> {
        Ok(RecvStream::new(self.clone(), self.accept(Direction::One).await?))
    }

    async fn accept(&self, direction: Direction) -> Result<StreamId, End> {
        let mut waiter = Waiter::default();
        poll_fn(|context| self.poll_accept(&mut waiter, context, direction)).await
    }

    /// Sets the weight of a [group](Parameters::group) of streams: its share of the bytes of their urgency, beside other groups.
    ///
    /// # Errors
    ///
    /// If too many groups have a weight of their own.
    pub fn set_weight(&self, group: GroupId, weight: Weight) -> Result<(), WeightError> {
        self.streams().weigh(group, weight)
    }

    /// Expects streams of this order. [Coupled mode](crate::Config::coupled) keeps the queue at the bottleneck short for them from now on,
    /// and does not wait for the first of them.
    pub fn expect(&self, order: Parameters) {
        self.streams().expect(order);
    }

    /// Sends a datagram, in the default order.
    ///
    /// # Errors
    ///
    /// As [`send_datagram_in`](Self::send_datagram_in).
    pub fn send_datagram(&self, data: Payload) -> Result<(), SendDatagramError> {
        self.send_datagram_in(data, Parameters::default(), None)
    }

    /// Sends a datagram, in this order among streams and other datagrams. It is not retransmitted if lost, and dropped if it has not left
    /// after its lifetime.
    ///
    /// # Errors
    ///
    /// If the connection has none or has ended, the datagram is too long, or enough wait.
    pub fn send_datagram_in(
        &self,
        data: Payload,
        order: Parameters,
        lifetime: Option<Duration>,
    ) -> Result<(), SendDatagramError> {
        self.streams().send_datagram(data, order, lifetime)
    }

    /// Waits for the next datagram. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn read_datagram(&self) -> Result<Payload, End> {
        let mut waiter = Waiter::default();
        poll_fn(|context| self.poll_read_datagram(&mut waiter, context)).await
    }

    /// Returns the largest length in bytes of a datagram now; `None` if the peer takes none.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.streams().max_datagram()
    }

    /// Ends the connection at once, with a code below 2^62 and a reason for the peer.
    pub fn close(&self, code: u64, reason: &[u8]) {
        self.streams().close(code, reason);
    }

    /// Waits for the end of the connection. Cancelling loses nothing.
    pub async fn closed(&self) -> End {
        let mut waiter = Waiter::default();
        poll_fn(|context| self.poll_closed(&mut waiter, context)).await
    }

    /// Returns the end of the connection; `None` before it.
    pub fn close_reason(&self) -> Option<End> {
        self.streams().waiting().ended()
    }

    /// Returns the smoothed round trip of the quickest lane; zero before the first measurement and after the end.
    pub fn rtt(&self) -> Duration {
        self.stats().lanes.iter().map(|lane| lane.srtt).min().unwrap_or_default()
    }

    /// Returns the statistics of the connection and of its lanes. Counters of messages stay zero.
    pub fn stats(&self) -> ConnectionStats {
        self.0.stats()
    }

    /// Returns the events of its lanes.
    pub fn events(&self) -> Events {
        self.0.events()
    }

    /// Returns a number that all handles of this connection share, and no other connection of the process has while one
    /// of them exists.
    pub fn stable_id(&self) -> usize {
        self.0.stable_id()
    }

    /// Returns the address of the peer.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.0.remote_addr()
    }

    /// Returns the certificates of the peer.
    pub fn peer_identity(&self) -> Option<&PeerIdentity> {
        self.0.peer_identity()
    }

    /// Returns the application protocol that was negotiated.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.0.alpn()
    }

    /// Returns the name of the server that the client has asked for (RFC 6066 §3), at a server; `None` if it has asked for
    /// none.
    pub fn server_name(&self) -> Option<&str> {
        self.0.server_name()
    }

    /// Fills `out` with keying material of the TLS session (RFC 8446 §7.5).
    ///
    /// # Errors
    ///
    /// If the connection has ended, or the length is not allowed.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.0.export_keying_material(out, label, context)
    }

    /// Adds a lane, if both ends have enabled [`multipath`](marcato_quic::streams::StreamsConfig::multipath).
    ///
    /// # Errors
    ///
    /// As [`Connection::add_lane`](crate::Connection::add_lane).
    pub fn add_lane(&self, lane: LaneConfig) -> Result<(), AddLaneError> {
        self.0.add_lane(lane)
    }

    /// Closes a lane.
    ///
    /// # Errors
    ///
    /// As [`Connection::remove_lane`](crate::Connection::remove_lane).
    pub fn remove_lane(&self, lane: LaneId) -> Result<(), ChangeLaneError> {
        self.0.remove_lane(lane)
    }
}
