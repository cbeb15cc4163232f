//! Certificates that a server accepts from its clients.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::fingerprint::Fingerprint;
use crate::identity::IdentityError;
use crate::trust::{Trust, check_period, roots};

/// Certificates that a server accepts from its clients, and whether each client needs one.
///
/// Each [`Trust`] means the same as for a client, except that names do not count: the application
/// decides by [`PeerIdentity`](crate::PeerIdentity) what each client may do.
///
/// ```
/// use marcato_identity::{ClientAuth, Identity, Trust};
///
/// let meter = Identity::self_signed("meter.example")?;
/// let pinned = Trust::Fingerprint(meter.fingerprint().ok_or("it has a certificate")?);
/// let server = Identity::self_signed("hub.example")?;
/// let tls = server.server_tls(Some(&ClientAuth::required([pinned])))?;
/// # let _ = tls;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClientAuth {
    accepted: Vec<Trust>,
    required: bool,
}

impl ClientAuth {
    /// Requires of each client a certificate that one of these accepts.
    pub fn required(accepted: impl IntoIterator<Item = Trust>) -> Self {
        Self { accepted: accepted.into_iter().collect(), required: true }
    }

    /// Accepts clients without a certificate, and those with one that one of these accepts.
    pub fn optional(accepted: impl IntoIterator<Item = Trust>) -> Self {
        Self { accepted: accepted.into_iter().collect(), required: false }
    }

    /// Returns the verifier of a server with these rules.
    ///
    /// # Errors
    ///
    /// If nothing is accepted, or a certificate cannot be used.
    pub fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, IdentityError> {
        let provider = Arc::new(ring::default_provider());
        let mut anchors = RootCertStore::empty();
        let (mut certificates, mut fingerprints) = (Vec::new(), Vec::new());
        for trust in &self.accepted {
            match trust {
                Trust::Roots(of_system) => anchors.extend(of_system.roots.iter().cloned()),
                Trust::Authority(authorities) => {
                    for authority in authorities {
                        anchors.add(authority.clone())?;
                    }
                }
                Trust::Certificate(certificate) => {
                    certificates.push((certificate.clone(), roots(std::slice::from_ref(certificate))?));
                }
                Trust::Fingerprint(fingerprint) => fingerprints.push(*fingerprint),
            }
        }
        let authorities = if anchors.is_empty() {
            None
        } else {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(anchors), Arc::clone(&provider)).build();
            Some(verifier.map_err(|error| Error::General(error.to_string()))?)
        };
        if authorities.is_none() && certificates.is_empty() && fingerprints.is_empty() {
            return Err(IdentityError::NoAuthority);
        }
        let required = self.required;
        Ok(Arc::new(Clients { authorities, certificates, fingerprints, required, provider }))
    }
}

/// Error returned for a client whose certificate is not among the accepted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client presented the certificate {presented}, which is not accepted here")]
struct NotAccepted {
    presented: Fingerprint,
}

/// Verifier of clients' certificates.
#[derive(Debug)]
struct Clients {
    authorities: Option<Arc<dyn ClientCertVerifier>>,
    /// Certificates agreed on beforehand; each is also the only one in its store.
    certificates: Vec<(CertificateDer<'static>, Arc<RootCertStore>)>,
    fingerprints: Vec<Fingerprint>,
    required: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.authorities {
            // RFC 8446 §4.2.4: a client may present only what the authorities named have signed,
            // which a pinned certificate need not be.
            Some(authorities) if self.certificates.is_empty() && self.fingerprints.is_empty() => {
                authorities.root_hint_subjects()
            }
            _ => &[],
        }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let presented = Fingerprint::of(end_entity);
        if self.fingerprints.contains(&presented) {
            return Ok(ClientCertVerified::assertion());
        }
        if let Some((known, roots)) = self.certificates.iter().find(|(known, _)| known == end_entity) {
            check_period(&ParsedCertificate::try_from(known)?, roots, now, &self.provider)?;
            return Ok(ClientCertVerified::assertion());
        }
        match &self.authorities {
            Some(authorities) => authorities.verify_client_cert(end_entity, intermediates, now),
            None => {
                let error = OtherError(Arc::new(NotAccepted { presented }));
                Err(Error::InvalidCertificate(CertificateError::Other(error)))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_accept_nobody_are_an_error() {
        for none in [vec![], vec![Trust::Authority(vec![])]] {
            let error = ClientAuth::required(none.clone()).verifier().unwrap_err();
            assert!(matches!(error, IdentityError::NoAuthority), "{error}");
            ClientAuth::optional(none).verifier().unwrap_err();
        }
    }
}
