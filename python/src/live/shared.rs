//! Values that calls of several classes take or return.

use std::net::SocketAddr;

use marcato_document::quantity::{self, Of};
use marcato_net::{Priority, Received};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::waiting::lock;
use crate::error;

/// Names of the levels, the most urgent first.
const LEVELS: [&str; Priority::COUNT] = ["P0", "P1", "P2", "P3", "P4"];

/// Returns the name of a level.
pub(super) const fn level(priority: Priority) -> &'static str {
    LEVELS[priority.index()]
}

/// Reads the name of a level.
pub(super) fn priority(name: &str) -> PyResult<Priority> {
    let index = LEVELS.iter().position(|level| level.eq_ignore_ascii_case(name));
    index.and_then(Priority::from_index).ok_or_else(|| {
        PyValueError::new_err(format!("`{name}` is no priority: give \"P0\" (most urgent) to \"P4\""))
    })
}

/// Reads the address of a socket.
pub(super) fn socket_address(text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| {
        PyValueError::new_err(format!(
            "`{text}` is no IP address with a port: write \"192.0.2.1:4433\" or \"[2001:db8::1]:4433\""
        ))
    })
}

/// Makes the result of an operation that only ends.
pub(super) fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

/// Reads a span of time with its unit, such as `50 ms`, in ns.
#[pyfunction]
pub(crate) fn span_ns(text: &str) -> PyResult<u64> {
    quantity::read(text, Of::Span).map_err(PyValueError::new_err)
}

/// Reads a size with its unit, such as `16 MB`, in bytes.
#[pyfunction]
pub(crate) fn size_bytes(text: &str) -> PyResult<u64> {
    quantity::read(text, Of::Size).map_err(PyValueError::new_err)
}

/// Message that has arrived.
///
/// Attributes
/// ----------
/// data : bytes
///     Content.
/// priority : str
///     Level given by the sender, ``"P0"`` to ``"P4"``.
/// number : int or None
///     Number of the sender: 0 for its first message. ``None`` for an unreliable message.
#[pyclass(frozen, module = "pymarcato")]
pub(crate) struct Message {
    data: Py<PyBytes>,
    priority: Priority,
    number: Option<u64>,
}

impl Message {
    /// Copies the content, once, into an object of Python.
    pub(super) fn new(py: Python<'_>, received: &Received) -> Self {
        Self {
            data: PyBytes::new(py, &received.bytes).unbind(),
            priority: received.priority,
            number: received.number.map(|number| number.0),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "an operation gives away its result")]
    pub(super) fn object(py: Python<'_>, received: Received) -> PyResult<Py<PyAny>> {
        Self::new(py, &received).into_py_any(py)
    }
}

#[pymethods]
impl Message {
    /// Content.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    /// Level given by the sender, ``"P0"`` to ``"P4"``.
    #[getter]
    const fn priority(&self) -> &'static str {
        level(self.priority)
    }

    /// Number of the sender; `None` for an unreliable message.
    #[getter]
    const fn number(&self) -> Option<u64> {
        self.number
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.data.as_bytes(py).len()
    }

    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<pymarcato.Message: {} bytes of {}>", self.__len__(py), self.priority())
    }
}

/// Request of the peer, until it is answered.
pub(super) type Open = std::sync::Mutex<Option<marcato_net::Request>>;

/// Takes a request that is to be answered.
pub(super) fn take(py: Python<'_>, open: &Open) -> PyResult<marcato_net::Request> {
    lock(open).take().ok_or_else(|| error::answered(py))
}
