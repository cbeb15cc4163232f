//! Identity of a server, and the certificates that a client accepts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, ServerConfig, SignatureScheme};

use crate::secrets::Secrets;

/// Error returned for an invalid identity or trust.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The name cannot stand in a certificate, or there is no randomness for a key.
    #[error("cannot create a certificate for {name:?}: {reason}")]
    Certificate {
        /// Name asked for.
        name: String,
        /// Reason, as text.
        reason: String,
    },
    /// The key and the certificate do not match, or are not understood.
    #[error("the key or the certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// The TLS provider has no cipher suite for QUIC's Initial packets.
    #[error(
        "the crypto provider has no cipher suite for QUIC Initial packets: enable AES-128-GCM with SHA-256"
    )]
    NoInitialSuite,
}

/// Certificate chain and key that a server presents.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    secrets: Option<Secrets>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key(), secrets: self.secrets.clone() }
    }
}

impl Identity {
    /// Creates an identity of a chain and its key, as read from files.
    pub const fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key, secrets: None }
    }

    /// Creates a self-signed certificate and its key. The signature is Ed25519, which has a fixed
    /// length, so packet sizes in virtual time do not vary from run to run.
    ///
    /// # Errors
    ///
    /// If `name` cannot stand in a certificate.
    pub fn self_signed(name: &str) -> Result<Self, IdentityError> {
        let failed = |error: rcgen::Error| IdentityError::Certificate {
            name: name.to_owned(),
            reason: error.to_string(),
        };
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(failed)?;
        let certificate =
            CertificateParams::new([name.to_owned()]).and_then(|params| params.self_signed(&key));
        let chain = vec![certificate.map_err(failed)?.der().clone()];
        Ok(Self { chain, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(), secrets: None })
    }

    /// Logs the TLS secrets of each QUIC connection that a server with this identity accepts.
    #[must_use]
    pub fn log_secrets(self, secrets: &Secrets) -> Self {
        Self { secrets: Some(secrets.clone()), ..self }
    }

    /// Returns the certificate, for a client that [accepts](Trust::Certificate) it alone.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// Returns the certificate's fingerprint, for a client that pins it.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.chain.first().map(Fingerprint::of)
    }

    /// Returns the chain and the key, for other TLS servers.
    pub fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }

    pub(crate) fn server_crypto(&self) -> Result<Arc<QuicServerConfig>, IdentityError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
        // No 0-RTT: early data can be replayed (RFC 8446 §8).
        config.max_early_data_size = 0;
        if let Some(secrets) = &self.secrets {
            config.key_log = Arc::new(secrets.clone());
        }
        Ok(Arc::new(QuicServerConfig::try_from(config).map_err(|_| IdentityError::NoInitialSuite)?))
    }
}

/// SHA-256 of a certificate: short enough to be read out.
///
/// ```
/// use marcato_quic::{Fingerprint, Identity};
/// let shown = Identity::self_signed("printer.example")?.fingerprint().ok_or("it has a certificate")?;
/// assert_eq!(shown.to_string().parse::<Fingerprint>()?, shown);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ::ring::digest::digest(&::ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Error returned for a text that is no [`Fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits, with or without colons between them")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Parses 64 hexadecimal digits, with or without colons, as `openssl x509 -fingerprint -sha256`
    /// prints them.
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let mut bytes = [0; 32];
        let mut digits = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16));
        let mut digit = || digits.next().flatten().and_then(|digit| u8::try_from(digit).ok());
        for byte in &mut bytes {
            let (high, low) = (digit().ok_or(FingerprintError)?, digit().ok_or(FingerprintError)?);
            *byte = high << 4 | low;
        }
        if digits.next().is_some() { Err(FingerprintError) } else { Ok(Self(bytes)) }
    }
}

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

    pub(crate) fn client_crypto(&self) -> Result<Arc<QuicClientConfig>, IdentityError> {
        let mut config = self.client_tls()?;
        config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
        Ok(Arc::new(QuicClientConfig::try_from(config).map_err(|_| IdentityError::NoInitialSuite)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed_here_and_by_openssl() {
        let shown = Identity::self_signed("a.example").unwrap().fingerprint().unwrap();
        assert_eq!(shown.to_string().parse(), Ok(shown));
        let pairs: Vec<String> = shown.0.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(pairs.join(":").parse(), Ok(shown));
        let text = shown.to_string();
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replacen(&text[..1], "g", 1), "ä"] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }
}
