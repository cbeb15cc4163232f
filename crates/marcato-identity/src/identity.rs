//! Identity of a server: its certificate and key.

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::fingerprint::Fingerprint;
use crate::secrets::Secrets;

/// Error returned for an invalid identity or trust.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// No authority was given.
    #[error("give the certificate of at least one authority")]
    NoAuthority,
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

    /// Returns the certificate, for a client that [accepts](crate::Trust::Certificate) it alone.
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

    /// Returns the log of secrets that a QUIC server with this identity fills, if there is one.
    pub const fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_ref()
    }
}
