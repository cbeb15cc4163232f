//! Certificates that a client accepts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

use crate::fingerprint::Fingerprint;
use crate::identity::IdentityError;

/// Certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Every certificate signed by one of these roots.
    Roots(Arc<RootCertStore>),
    /// Only this certificate, agreed on beforehand. It may be self-signed.
    Certificate(CertificateDer<'static>),
    /// Only the certificate with this fingerprint, whatever its name and validity period.
    Fingerprint(Fingerprint),
}

impl Trust {
    /// Returns a TLS 1.3 configuration for a client with this trust, without ALPN protocols.
    ///
    /// # Errors
    ///
    /// If the certificate cannot be used.
    pub fn client_tls(&self) -> Result<ClientConfig, IdentityError> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let roots = match self {
            Self::Roots(roots) => Arc::clone(roots),
            Self::Certificate(certificate) => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate.clone())?;
                Arc::new(roots)
            }
            Self::Fingerprint(fingerprint) => {
                let verifier = Arc::new(Pinned { fingerprint: *fingerprint, provider });
                let config = config.dangerous().with_custom_certificate_verifier(verifier);
                return Ok(config.with_no_client_auth());
            }
        };
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Error returned for a peer whose certificate is not the pinned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer presented the certificate {presented}, but {expected} was expected")]
struct Mismatch {
    expected: Fingerprint,
    presented: Fingerprint,
}

/// Verifier that accepts a peer with the certificate of this fingerprint and its key.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Fingerprint::of(end_entity) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            let mismatch = Mismatch { expected: self.fingerprint, presented: Fingerprint::of(end_entity) };
            Err(rustls::Error::Other(OtherError(Arc::new(mismatch))))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
