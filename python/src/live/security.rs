//! Identities of an end, and the certificates that it accepts.

use std::path::PathBuf;

use marcato_net::{
    ClientAuth, ClientSecurity, Fingerprint, Identity as Own, ServerSecurity, Trust as Accepted,
};
use pyo3::prelude::*;

use crate::error;

/// Certificate and key of an end.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Identity(pub(super) Own);

#[pymethods]
impl Identity {
    /// Creates a self-signed certificate for a name.
    #[staticmethod]
    fn self_signed(py: Python<'_>, name: &str) -> PyResult<Self> {
        Own::self_signed(name).map(Self).map_err(|error| error::identity(py, error))
    }

    /// Reads a chain and its key from files.
    #[staticmethod]
    fn from_pem_files(py: Python<'_>, chain: PathBuf, key: PathBuf) -> PyResult<Self> {
        Own::from_pem_files(chain, key).map(Self).map_err(|error| error::identity(py, error))
    }

    /// Reads a chain and its key from PEM data.
    #[staticmethod]
    fn from_pem(py: Python<'_>, chain: &[u8], key: &[u8]) -> PyResult<Self> {
        Own::from_pem(chain, key).map(Self).map_err(|error| error::identity(py, error))
    }

    /// SHA-256 of the certificate, as hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().map(|one| one.to_string()).unwrap_or_default()
    }

    /// Chain in PEM.
    #[getter]
    fn chain_pem(&self) -> String {
        self.0.chain_pem()
    }

    /// Key in PEM, not encrypted.
    #[getter]
    fn key_pem(&self) -> String {
        self.0.key_pem()
    }

    /// Trust in this certificate alone.
    #[getter]
    fn trust(&self, py: Python<'_>) -> PyResult<Trust> {
        let certificate = self.0.certificate().cloned();
        let none = || error::identity(py, "the identity has no certificate: read it from PEM with one");
        Ok(Trust(Accepted::Certificate(certificate.ok_or_else(none)?)))
    }
}

/// Certificates that an end accepts.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Trust(pub(super) Accepted);

#[pymethods]
impl Trust {
    /// Pins the certificate with a fingerprint.
    #[staticmethod]
    fn fingerprint(py: Python<'_>, text: &str) -> PyResult<Self> {
        let parsed: Result<Fingerprint, _> = text.parse();
        parsed.map(|one| Self(Accepted::Fingerprint(one))).map_err(|error| error::identity(py, error))
    }

    /// Accepts what the authorities in a PEM file have signed.
    #[staticmethod]
    fn from_pem_file(py: Python<'_>, authorities: PathBuf) -> PyResult<Self> {
        Accepted::from_pem_file(authorities).map(Self).map_err(|error| error::identity(py, error))
    }

    /// Accepts what the authorities in PEM data have signed.
    #[staticmethod]
    fn from_pem(py: Python<'_>, authorities: &[u8]) -> PyResult<Self> {
        Accepted::from_pem(authorities).map(Self).map_err(|error| error::identity(py, error))
    }

    /// Accepts what the authorities of the system have signed.
    #[staticmethod]
    fn system(py: Python<'_>) -> PyResult<Self> {
        marcato_net::system_trust().map(Self).map_err(|error| error::identity(py, error))
    }
}

/// Returns the security of a server; without an identity it is in plaintext.
pub(super) fn server(identity: Option<&Identity>, clients: &[PyRef<'_, Trust>]) -> ServerSecurity {
    match identity {
        None => ServerSecurity::Plaintext,
        Some(Identity(identity)) if clients.is_empty() => ServerSecurity::Tls(identity.clone()),
        Some(Identity(identity)) => ServerSecurity::Mutual {
            identity: identity.clone(),
            clients: ClientAuth::required(clients.iter().map(|trust| trust.0.clone())),
        },
    }
}

/// Returns the security of a client towards a server with this name in its certificate.
pub(super) fn client(
    name: &str,
    trust: Option<&Trust>,
    identity: Option<&Identity>,
    plaintext: bool,
) -> ClientSecurity {
    if plaintext {
        return ClientSecurity::Plaintext;
    }
    let security = match trust {
        Some(Trust(trust)) => ClientSecurity::trusting(name, trust.clone()),
        None => ClientSecurity::verified(name),
    };
    match identity {
        Some(Identity(identity)) => security.presenting(identity.clone()),
        None => security,
    }
}
