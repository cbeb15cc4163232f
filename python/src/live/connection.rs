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

use super::shared::{Message, Open, level, priority, take};
use super::stats;
use super::waiting::{Many, Operation, Own, runtime};
use crate::error;

/// Connection to a peer.
#[pyclass(frozen, module = "marcato._native")]
pub(crate) struct Connection(Own<Net>);

impl Connection {
    pub(super) fn new(connection: Net) -> Self {
        Self(Own::new(connection))
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
        Operation::new(async move {
            let sent = connection.send(message).await;
            Python::attach(|py| match sent {
                Ok(handle) => Sent::new(handle).into_py_any(py),
                Err(error) => Err(error::send(py, &error)),
            })
        })
    }

    /// Waits for the most urgent message that has arrived.
    fn receive(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::new(async move {
            let received = connection.recv().await;
            Python::attach(|py| match received {
                Ok(received) => Message::new(py, &received).into_py_any(py),
                Err(end) => Err(error::closed(py, &end)),
            })
        })
    }

    /// Sends a request, and waits for the reply.
    fn request(&self, data: &[u8], properties: Properties) -> PyResult<Operation> {
        let (connection, message) = (self.0.get()?.clone(), properties.message(data)?);
        Operation::new(async move {
            let reply = connection.request(message).await;
            Python::attach(|py| match reply {
                Ok(reply) => Message::new(py, &reply).into_py_any(py),
                Err(error) => Err(error::request(py, &error)),
            })
        })
    }

    /// Waits for a request of the peer.
    fn accept_request(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::new(async move {
            let accepted = connection.accept_request().await;
            Python::attach(|py| match accepted {
                Ok(request) => Request::new(py, request)?.into_py_any(py),
                Err(end) => Err(error::closed(py, &end)),
            })
        })
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
        Operation::new(async move {
            let begun = connection.accept_long().await;
            Python::attach(|py| match begun {
                Ok(long) => Pieces::new(long).into_py_any(py),
                Err(end) => Err(error::closed(py, &end)),
            })
        })
    }

    /// Waits for the next message that the peer has abandoned, and returns the error that tells of it.
    fn missed(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::new(async move {
            let missed = connection.missed().await;
            Python::attach(|py| match missed {
                Ok(missed) => error::missed(py, &missed).into_py_any(py),
                Err(end) => Err(error::closed(py, &end)),
            })
        })
    }

    /// Sends no more, and waits until all messages are acknowledged.
    fn finish(&self) -> PyResult<Operation> {
        let connection = self.0.get()?.clone();
        Operation::new(async move {
            let finished = connection.finish().await;
            Python::attach(|py| match finished {
                Ok(()) => Ok(py.None()),
                Err(end) => Err(error::closed(py, &end)),
            })
        })
    }

    /// Ends the connection when all messages are acknowledged.
    fn close(&self, code: u32, reason: &str) -> PyResult<Operation> {
        let (connection, reason) = (self.0.get()?.clone(), CloseReason::new(code, reason));
        Operation::new(async move {
            let closed = connection.close_with(reason).await;
            Python::attach(|py| match closed {
                Ok(()) => Ok(py.None()),
                Err(end) => Err(error::closed(py, &end)),
            })
        })
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
        Operation::new(async move {
            let end = connection.closed().await;
            Python::attach(|py| error::closed(py, &end).into_py_any(py))
        })
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
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                PyValueError::new_err(format!(
                    "`{text}` is no IP address with a port: write \"192.0.2.1:4433\" or \"[2001:db8::1]:0\""
                ))
            })
        };
        let layer = if low { Layer::Low } else { Layer::High };
        let lane = LaneConfig {
            local: local.map(parse).transpose()?,
            layer,
            backup,
            ..LaneConfig::new(parse(remote)?)
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
#[pyclass(frozen, module = "marcato._native")]
pub(crate) struct Sent(Own<Arc<Many<MessageHandle>>>);

impl Sent {
    fn new(handle: MessageHandle) -> Self {
        Self(Own::new(Arc::new(Many::new(handle))))
    }
}

#[pymethods]
impl Sent {
    /// Waits until the transport of the peer has the message.
    fn acknowledged(&self) -> PyResult<Operation> {
        let handle = Arc::clone(self.0.get()?);
        Operation::new(async move {
            let outcome = handle.wait(|handle, context| pin!(handle.acknowledged()).poll(context)).await;
            Python::attach(|py| outcome.map(|()| py.None()).map_err(|error| error::not_delivered(py, &error)))
        })
    }

    /// Waits until the application of the peer has taken the message.
    fn received(&self) -> PyResult<Operation> {
        let handle = Arc::clone(self.0.get()?);
        Operation::new(async move {
            let outcome = handle.wait(|handle, context| pin!(handle.received()).poll(context)).await;
            Python::attach(|py| outcome.map(|()| py.None()).map_err(|error| error::not_delivered(py, &error)))
        })
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
#[pyclass(frozen, module = "marcato._native")]
pub(crate) struct Request {
    message: Py<Message>,
    open: Own<Open>,
}

impl Request {
    fn new(py: Python<'_>, request: marcato_net::Request) -> PyResult<Self> {
        let message = Py::new(py, Message::new(py, request.message()))?;
        Ok(Self { message, open: Own::new(Mutex::new(Some(request))) })
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
        Operation::new(async move {
            let sent = request.reply(message).await;
            Python::attach(|py| match sent {
                Ok(handle) => Sent::new(handle).into_py_any(py),
                Err(error) => Err(error::send(py, &error)),
            })
        })
    }

    /// Tells the peer that there is no reply.
    fn decline(&self, py: Python<'_>) -> PyResult<()> {
        take(py, self.open.get()?).map(drop)
    }
}

/// Message that is sent piece by piece, until it is cancelled.
#[pyclass(frozen, module = "marcato._native")]
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
        Operation::new(async move {
            let done = sender.wait(|sender, context| match sender {
                Some(sender) => poll(sender, context),
                None => Poll::Ready(Err(cancelled.clone())),
            });
            let done = done.await;
            Python::attach(|py| done.map(|()| py.None()).map_err(|wrong| error(py, &wrong)))
        })
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
#[pyclass(frozen, module = "marcato._native")]
pub(crate) struct Pieces {
    long: Own<Arc<Many<LongMessage>>>,
    priority: &'static str,
}

impl Pieces {
    fn new(long: LongMessage) -> Self {
        let priority = level(long.priority());
        Self { long: Own::new(Arc::new(Many::new(long))), priority }
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
        Operation::new(async move {
            let next = long.wait(|long, context| pin!(long.next()).poll(context)).await;
            Python::attach(|py| match next {
                Ok(Some(piece)) => PyBytes::new(py, &piece).into_py_any(py),
                Ok(None) => Ok(py.None()),
                Err(missed) => Err(error::missed(py, &missed)),
            })
        })
    }
}
