//! Connecting and listening.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use marcato_net::{CloseReason, Endpoint, LocalAddress, Named, Remote, Target};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::Connection;
use super::security::{self, Identity, Trust};
use super::settings::Settings;
use super::shared::{none, socket_address};
use super::stats;
use super::waiting::{Operation, Own};
use crate::error;

/// Returns the server that an address names.
fn target(
    address: &str,
    name: Option<&str>,
    trust: Option<&Trust>,
    identity: Option<&Identity>,
    plaintext: bool,
) -> PyResult<Target> {
    if let Some(name) = name {
        let addr = socket_address(address)?;
        return Ok(Remote::new(addr, security::client(name, trust, identity, plaintext)).into());
    }
    let mut named = Named::new(address);
    if let Some(Trust(trust)) = trust {
        named = named.trusting(trust.clone());
    }
    if let Some(Identity(identity)) = identity {
        named = named.presenting(identity.clone());
    }
    Ok(if plaintext { named.plaintext() } else { named }.into())
}

/// Connects to a server.
#[pyfunction]
#[pyo3(signature = (address, settings, name, trust, identity, plaintext))]
pub(crate) fn connect(
    address: &str,
    settings: &Bound<'_, PyDict>,
    name: Option<&str>,
    trust: Option<&Bound<'_, Trust>>,
    identity: Option<&Bound<'_, Identity>>,
    plaintext: bool,
) -> PyResult<Operation> {
    let config = settings.extract::<Settings>()?.config()?;
    let target = target(address, name, trust.map(Bound::get), identity.map(Bound::get), plaintext)?;
    let connected = async move { Endpoint::connect(&config, target).await };
    Operation::of(connected, Connection::object, error::connect)
}

/// Lets peers connect.
#[pyfunction]
#[pyo3(signature = (addresses, settings, identity, clients))]
#[expect(clippy::needless_pass_by_value, reason = "lists of Python become vectors")]
pub(crate) fn listen(
    addresses: Vec<String>,
    settings: &Bound<'_, PyDict>,
    identity: Option<&Bound<'_, Identity>>,
    clients: Vec<PyRef<'_, Trust>>,
) -> PyResult<Operation> {
    let config = settings.extract::<Settings>()?.config()?;
    let security = security::server(identity.map(Bound::get), &clients);
    let at: Vec<_> =
        addresses.iter().map(|one| local(one)).collect::<PyResult<Vec<_>>>()?.into_iter().flatten().collect();
    let listener = |py: Python<'_>, endpoint| Listener(Own::new(Arc::new(endpoint))).into_py_any(py);
    Operation::of(async move { Endpoint::listen(&config, &at, &security).await }, listener, error::listen)
}

/// Returns the addresses that a text names: `:4433` names all of this host.
fn local(text: &str) -> PyResult<Vec<LocalAddress>> {
    let wrong = || {
        PyValueError::new_err(format!(
            "`{text}` is no local address: write \"127.0.0.1:4433\", \"[::1]:0\", or \":4433\" for all addresses"
        ))
    };
    if let Some(port) = text.strip_prefix(':') {
        return port.parse().map(LocalAddress::any).map_err(|_| wrong());
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        let port: u16 = port.parse().map_err(|_| wrong())?;
        return Ok(vec![SocketAddr::from((IpAddr::from([127, 0, 0, 1]), port)).into()]);
    }
    Ok(vec![text.parse::<SocketAddr>().map_err(|_| wrong())?.into()])
}

/// Endpoint to which peers connect.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Listener(Own<Arc<Endpoint>>);

#[pymethods]
impl Listener {
    /// Addresses that peers can connect to.
    #[getter]
    fn local_addresses(&self) -> PyResult<Vec<String>> {
        Ok(self.0.get()?.local_addrs().iter().map(ToString::to_string).collect())
    }

    /// Waits for the next peer that connects; the result is `None` once the listener is closed.
    fn accept(&self) -> PyResult<Operation> {
        let endpoint = Arc::clone(self.0.get()?);
        let connection = |py: Python<'_>, accepted| match accepted {
            Ok(connection) => Connection::object(py, connection),
            Err(_closed) => Ok(py.None()),
        };
        Operation::sure(async move { endpoint.accept().await }, connection)
    }

    /// Presents another identity in handshakes from now on.
    fn set_identity(&self, py: Python<'_>, identity: &Identity) -> PyResult<()> {
        self.0.get()?.set_identity(&identity.0).map_err(|error| error::identity(py, error))
    }

    /// Returns the load and the counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::listener(py, &self.0.get()?.stats())
    }

    /// Accepts no more peers, and ends connections once everything is delivered.
    fn close(&self, code: u32, reason: &str) -> PyResult<()> {
        self.0.get()?.close_with(CloseReason::new(code, reason));
        Ok(())
    }

    /// Accepts no more peers, and ends connections at once.
    fn abort(&self, given: Option<(u32, String)>) -> PyResult<()> {
        let endpoint = self.0.get()?;
        match given {
            None => endpoint.abort(),
            Some((code, reason)) => endpoint.abort_with(CloseReason::new(code, reason)),
        }
        Ok(())
    }

    /// Waits until every accepted connection has ended.
    fn wait_idle(&self) -> PyResult<Operation> {
        let endpoint = Arc::clone(self.0.get()?);
        Operation::sure(async move { endpoint.wait_idle().await }, none)
    }
}
