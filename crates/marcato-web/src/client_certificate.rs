//! Certificate that a client has presented, as a request's extension.

use std::sync::Arc;

use marcato_net::rustls::pki_types::CertificateDer;

/// Certificate that a client has presented in its handshake of TLS, with those above it. A request has it as an
/// extension if the server asks for one, and its verifier has accepted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate(Arc<[CertificateDer<'static>]>);

impl ClientCertificate {
    /// Takes a chain; `None` if it is empty.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let chain: Arc<[_]> = chain.iter().map(|one| one.clone().into_owned()).collect();
        (!chain.is_empty()).then_some(Self(chain))
    }

    /// Returns the chain: the client's own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0
    }
}
