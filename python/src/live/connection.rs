//! Connections, and handles of their messages.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use marcato_net::{
    Bytes, ChangeError, CloseReason, Connection as Net, LaneConfig, LaneId, Layer, LongMessage, LongSender,
    Message as Sending, MessageHandle, NotDelivered, SendError,
};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::shared::{Message, Open, level, none, priority, socket_address, take};
use super::stats;
use super::waiting::{Many, Operation, Own, runtime};
use crate::error;

/// Connection to a peer.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Connection(Own<Net>);

impl Connection {
    pub(super) fn object(py: Python<'_>, connection: Net) -> PyResult<Py<PyAny>> {
        Self(Own::new(connection)).into_py_any(py)
    }
}

/// Properties of a message to be sent: its level, its lifetime in ns, and whether it is unreliable,
/// asks for a receipt, and is useful in part.
#[derive(FromPyObject)]
pub(crate) struct Properties(String, Option<u64>, bool, bool, bool);

impl Properties {
    /// Copies the content into a message with these properties.
    fn message(&self, data: &[u8]) -> PyResult<Sending> {
        let Self(level, lifetime, unreliable, receipt, partial_ok) = self;
        Ok(Sending {
            priority: priority(level)?,
            lifetime: lifetime.map(Duration::from_nanos),
            reliable: !unreliable,
            receipt: *receipt,
            partial_ok: *partial_ok,
            ..Sending::new(data.to_vec())
        })
    }
}

#[pymethods]
impl Connection {
    /// Queues a message as soon as there is room; the result is its handle.
    fn send(&self, data: &[u8], properties: Properties) -> PyResult<Operation> {
        let (connection, message) = (self.0.get()?.clone(), properties.message(data)?);
        Operation::of(async move { connection.send(message).await }, Sent::object, error::send)
    }

    /// Waits for the most urgent message that has arrived.
    fn receive(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::of(async move { connection.recv().await }, Message::object, error::closed)
    }

    /// Sends a request, and waits for the reply.
    fn request(&self, data: &[u8], properties: Properties) -> PyResult<Operation> {
        let (connection, message) = (self.0.get()?.clone(), properties.message(data)?);
        Operation::of(async move { connection.request(message).await }, Message::object, error::request)
    }

    /// Waits for a request of the peer.
    fn accept_request(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::of(async move { connection.accept_request().await }, Request::object, error::closed)
    }

    /// Begins a message that is sent piece by piece.
    fn stream(&self, py: Python<'_>, level: &str, receipt: bool) -> PyResult<Writer> {
        let sender = self.0.get()?.send_long(priority(level)?).map_err(|error| error::send(py, &error))?;
        let sender = if receipt { sender.with_receipt() } else { sender };
        Ok(Writer(Own::new(Arc::new(Many::new(Some(sender))))))
    }

    /// Waits for the next long message that begins to arrive.
    fn accept_stream(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::of(async move { connection.accept_long().await }, Pieces::object, error::closed)
    }

    /// Waits for the next message that the peer has abandoned, and returns the error that tells of it.
    fn missed(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        let missed = |py: Python<'_>, missed| error::missed(py, &missed).into_py_any(py);
        Operation::of(async move { connection.missed().await }, missed, error::closed)
    }

    /// Sends no more, and waits until all messages are acknowledged.
    fn finish(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::of(async move { connection.finish().await }, none, error::closed)
    }

    /// Ends the connection when all messages are acknowledged.
    fn close(&self, code: u32, reason: &str) -> PyResult<Operation> {
        let (connection, reason) = (self.0.get()?.clone(), CloseReason::new(code, reason));
        Operation::of(async move { connection.close_with(reason).await }, none, error::closed)
    }

    /// Ends the connection now.
    fn abort(&self, given: Option<(u32, String)>) -> PyResult<()> {
        let connection = self.0.get()?;
        match given {
            None => connection.abort(),
            Some((code, reason)) => connection.abort_with(CloseReason::new(code, reason)),
        }
        Ok(())
    }

    /// Waits for the end of the connection, and returns the error that tells of it.
    fn closed(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        let end = |py: Python<'_>, end| error::closed(py, &end).into_py_any(py);
        Operation::sure(async move { connection.closed().await }, end)
    }

    /// Returns the state and the counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::connection(py, &self.0.get()?.stats())
    }

    /// Address of the peer.
    #[getter]
    fn remote_address(&self) -> PyResult<Option<String>> {
        Ok(self.0.get()?.remote_addr().map(|addr| addr.to_string()))
    }

    /// Fingerprint of the certificate that the peer has proved.
    #[getter]
    fn peer_fingerprint(&self) -> PyResult<Option<String>> {
        Ok(self.0.get()?.peer_identity().map(|peer| peer.fingerprint().to_string()))
    }

    /// Protocol of the application that was negotiated.
    #[getter]
    fn alpn(&self) -> PyResult<Option<String>> {
        Ok(self.0.get()?.alpn().map(|name| String::from_utf8_lossy(name).into_owned()))
    }

    /// Length of the longest unreliable message that can be sent now, in bytes.
    #[getter]
    fn max_unreliable_bytes(&self) -> PyResult<Option<u64>> {
        Ok(self.0.get()?.max_unreliable().map(Bytes::get))
    }

    /// Refuses messages less urgent than a level from now on, and drops those queued.
    fn discard_less_urgent_than(&self, threshold: &str) -> PyResult<()> {
        self.0.get()?.discard_less_urgent_than(priority(threshold)?);
        Ok(())
    }

    /// Adds a lane to an address of the server.
    fn add_lane(
        &self,
        py: Python<'_>,
        remote: &str,
        local: Option<&str>,
        low: bool,
        backup: bool,
    ) -> PyResult<()> {
        let layer = if low { Layer::Low } else { Layer::High };
        let lane = LaneConfig {
            local: local.map(socket_address).transpose()?,
            layer,
            backup,
            ..LaneConfig::new(socket_address(remote)?)
        };
        let runtime = runtime()?;
        let _guard = runtime.enter();
        self.0.get()?.add_lane(lane).map_err(|error| error::lane(py, &error))
    }

    /// Closes a lane.
    fn remove_lane(&self, py: Python<'_>, lane: u8) -> PyResult<()> {
        let lane = LaneId::new(lane)
            .ok_or_else(|| PyValueError::new_err(format!("there is no lane {lane}: see `stats().lanes`")))?;
        self.0.get()?.remove_lane(lane).map_err(|error| error::lane(py, &error))
    }
}

/// Handle of a message that was accepted for sending.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Sent(Own<Arc<Many<MessageHandle>>>);

impl Sent {
    fn object(py: Python<'_>, handle: MessageHandle) -> PyResult<Py<PyAny>> {
        Self(Own::new(Arc::new(Many::new(handle)))).into_py_any(py)
    }
}

#[pymethods]
impl Sent {
    /// Waits until the transport of the peer has the message.
    fn acknowledged(&self) -> PyResult<Operation> {
        let handle = Arc::clone(self.0.get()?);
        let outcome =
            async move { handle.wait(|handle, context| pin!(handle.acknowledged()).poll(context)).await };
        Operation::of(outcome, none, error::not_delivered)
    }

    /// Waits until the application of the peer has taken the message.
    fn received(&self) -> PyResult<Operation> {
        let handle = Arc::clone(self.0.get()?);
        let outcome =
            async move { handle.wait(|handle, context| pin!(handle.received()).poll(context)).await };
        Operation::of(outcome, none, error::not_delivered)
    }

    /// Cancels the message, if part of it is still queued.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get()?.lock().cancel().map_err(|error| error::change(py, &error))
    }

    /// Moves the queued rest of the message to another level.
    fn reprioritise(&self, py: Python<'_>, level: &str) -> PyResult<()> {
        self.0.get()?.lock().reprioritise(priority(level)?).map_err(|error| error::change(py, &error))
    }
}

/// Request of the peer, until it is answered.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Request {
    message: Py<Message>,
    open: Own<Open>,
}

impl Request {
    fn object(py: Python<'_>, request: marcato_net::Request) -> PyResult<Py<PyAny>> {
        let message = Py::new(py, Message::new(py, request.message()))?;
        Self { message, open: Own::new(Mutex::new(Some(request))) }.into_py_any(py)
    }
}

#[pymethods]
impl Request {
    /// Message of the request.
    #[getter]
    fn message(&self, py: Python<'_>) -> Py<Message> {
        self.message.clone_ref(py)
    }

    /// Queues the reply as soon as there is room; the result is its handle.
    fn reply(&self, py: Python<'_>, data: &[u8], properties: Properties) -> PyResult<Operation> {
        let message = properties.message(data)?;
        let request = take(py, self.open.get()?)?;
        Operation::of(async move { request.reply(message).await }, Sent::object, error::send)
    }

    /// Tells the peer that there is no reply.
    fn decline(&self, py: Python<'_>) -> PyResult<()> {
        take(py, self.open.get()?).map(drop)
    }
}

/// Message that is sent piece by piece, until it is cancelled.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Writer(Own<Arc<Many<Option<LongSender>>>>);

impl Writer {
    /// Creates an operation that waits until `poll` is ready, and has no result. `cancelled` is the
    /// error of a message that was cancelled.
    fn wait<E: Clone + Send + Sync + 'static>(
        &self,
        cancelled: E,
        mut poll: impl FnMut(&mut LongSender, &mut Context<'_>) -> Poll<Result<(), E>> + Send + 'static,
        error: fn(Python<'_>, &E) -> PyErr,
    ) -> PyResult<Operation> {
        let sender = Arc::clone(self.0.get()?);
        let done = async move {
            let done = sender.wait(|sender, context| match sender {
                Some(sender) => poll(sender, context),
                None => Poll::Ready(Err(cancelled.clone())),
            });
            done.await
        };
        Operation::of(done, none, error)
    }
}

#[pymethods]
impl Writer {
    /// Waits for room, and accepts the next bytes.
    fn write(&self, data: &[u8]) -> PyResult<Operation> {
        let data = bytes::Bytes::copy_from_slice(data);
        // A write that is dropped before it is ready has accepted nothing.
        let write = move |sender: &mut LongSender, context: &mut Context<'_>| {
            pin!(sender.write(data.clone())).poll(context)
        };
        self.wait(SendError::Ended.into(), write, error::stream)
    }

    /// Waits for room for the rest, and ends the message.
    fn finish(&self) -> PyResult<Operation> {
        let finish = |sender: &mut LongSender, context: &mut Context<'_>| pin!(sender.finish()).poll(context);
        self.wait(SendError::Ended.into(), finish, error::stream)
    }

    /// Waits until the transport of the peer has all of the message.
    fn acknowledged(&self) -> PyResult<Operation> {
        let acknowledged =
            |sender: &mut LongSender, context: &mut Context<'_>| pin!(sender.acknowledged()).poll(context);
        self.wait(NotDelivered::Cancelled, acknowledged, error::not_delivered)
    }

    /// Waits until the application of the peer has taken the last piece.
    fn received(&self) -> PyResult<Operation> {
        let received =
            |sender: &mut LongSender, context: &mut Context<'_>| pin!(sender.received()).poll(context);
        self.wait(NotDelivered::Cancelled, received, error::not_delivered)
    }

    /// Cancels the message.
    fn cancel(&self) -> PyResult<()> {
        let many = self.0.get()?;
        let sender = many.lock().take();
        drop(sender);
        many.wake();
        Ok(())
    }

    /// Moves the queued rest of the message to another level.
    fn reprioritise(&self, py: Python<'_>, level: &str) -> PyResult<()> {
        let level = priority(level)?;
        match &mut *self.0.get()?.lock() {
            Some(sender) => sender.reprioritise(level).map_err(|error| error::change(py, &error)),
            None => Err(error::change(py, &ChangeError::TooLate)),
        }
    }
}

/// Long message that is read while it arrives.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Pieces {
    long: Own<Arc<Many<LongMessage>>>,
    priority: &'static str,
}

impl Pieces {
    fn object(py: Python<'_>, long: LongMessage) -> PyResult<Py<PyAny>> {
        let priority = level(long.priority());
        Self { long: Own::new(Arc::new(Many::new(long))), priority }.into_py_any(py)
    }
}

#[pymethods]
impl Pieces {
    /// Level given by the sender.
    #[getter]
    const fn priority(&self) -> &'static str {
        self.priority
    }

    /// Waits for the next bytes; the result is `None` after the last.
    fn next(&self) -> PyResult<Operation> {
        let long = Arc::clone(self.long.get()?);
        let next = async move { long.wait(|long, context| pin!(long.next()).poll(context)).await };
        let piece = |py: Python<'_>, piece: Option<bytes::Bytes>| match piece {
            Some(piece) => PyBytes::new(py, &piece).into_py_any(py),
            None => Ok(py.None()),
        };
        Operation::of(next, piece, error::missed)
    }
}
