//! Who a server is, and whom a client believes.

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

/// Why an identity, or a trust in one, is none.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A name that no certificate can carry, or no randomness for a key.
    #[error("cannot make a certificate for {name:?}: {reason}")]
    Certificate {
        /// The name asked for.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// The key and the certificate do not belong together, or are not understood.
    #[error("the key or the certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// There is no cipher suite for the first packets.
    #[error("the cryptography offers no suite for QUIC's first packets")]
    NoInitialSuite,
}

/// A certificate chain and its key: what a server shows.
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
    /// A chain and its key as read from files.
    pub const fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key, secrets: None }
    }

    /// A certificate that nobody but its maker vouches for. Its signature is Ed25519, which always has the same length:
    /// two runs in virtual time then have packets of equal sizes.
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

    /// Notes the TLS secrets of each QUIC connection that a server of this identity accepts.
    #[must_use]
    pub fn log_secrets(self, secrets: &Secrets) -> Self {
        Self { secrets: Some(secrets.clone()), ..self }
    }

    /// The certificate itself, for a client that is to [trust](Trust::Certificate) it alone.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// What the certificate is recognised by, for a client that is told of it by hand.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.chain.first().map(Fingerprint::of)
    }

    /// The chain and the key, for other TLS servers.
    pub fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }

    pub(crate) fn server_crypto(&self) -> Result<Arc<QuicServerConfig>, IdentityError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
        config.max_early_data_size = 0;
        if let Some(secrets) = &self.secrets {
            config.key_log = Arc::new(secrets.clone());
        }
        Ok(Arc::new(QuicServerConfig::try_from(config).map_err(|_| IdentityError::NoInitialSuite)?))
    }
}

/// The SHA-256 of a certificate: short enough to be read out.
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
    /// That of this certificate.
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

/// Why a text is no [`Fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits, with or without colons between them")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// As `openssl x509 -fingerprint -sha256` prints it, too.
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

/// Whom a client believes.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Whoever shows a certificate that one of these has signed.
    Roots(Arc<RootCertStore>),
    /// Only this certificate, which its owner may have signed: what is agreed on beforehand.
    Certificate(CertificateDer<'static>),
    /// Only the certificate of this fingerprint, whatever name it is for and until when.
    Fingerprint(Fingerprint),
}

impl Trust {
    /// TLS 1.3 for a client that believes so, without any protocol of its own yet.
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

/// The peer has another certificate than the one that is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer presented the certificate {presented}, but {expected} was expected")]
struct Mismatch {
    expected: Fingerprint,
    presented: Fingerprint,
}

/// Believes whoever shows the certificate of this fingerprint, and has its key.
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
