//! Identity that a peer has proved.

use rustls::pki_types::CertificateDer;

use crate::fingerprint::Fingerprint;

/// Certificate chain of a peer, whose key it has proved to own. It is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    certificate: CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
}

impl PeerIdentity {
    /// Creates the identity of a peer that presented this chain; `None` for an empty one.
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Option<Self> {
        Some(Self { certificate: chain.first()?.clone(), chain })
    }

    /// Returns the peer's own certificate.
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the chain as presented: the peer's certificate, then those of authorities.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Returns the fingerprint of the peer's certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}
