//! Identity of an end: its certificate and key.

use std::path::Path;

use ::ring::hkdf;
#[cfg(feature = "self-signed")]
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::crypto::ring;
#[cfg(feature = "self-signed")]
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig};

use crate::client_auth::ClientAuth;
use crate::fingerprint::Fingerprint;
use crate::pem::{Pem, PemError, section};
use crate::secrets::Secrets;
use crate::server_identity::ServerIdentity;

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
    /// No authority and no other certificate to accept was given.
    #[error("nothing would be accepted: give the certificate of at least one authority, or one to pin")]
    NoAuthority,
    /// The TLS provider has no cipher suite for QUIC's Initial packets.
    #[error(
        "the crypto provider has no cipher suite for QUIC Initial packets: enable AES-128-GCM with SHA-256"
    )]
    NoInitialSuite,
}

/// Certificate chain and key that a server presents, or a client to a server that asks for it.
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

/// Identities are equal if their chain and key are.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain && self.key == other.key
    }
}

impl Identity {
    /// Creates an identity of a chain and its key, as read from files.
    pub const fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key, secrets: None }
    }

    /// Reads a chain and its key from PEM files, as authorities issue them: the certificate of this
    /// end first, then those of intermediate authorities. Both may be in one file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (chain_pem, key_pem) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    /// use marcato_identity::{Identity, PemError};
    ///
    /// let created = Identity::self_signed("chat.example")?;
    /// std::fs::write(&chain_pem, created.chain_pem())?;
    /// std::fs::write(&key_pem, created.key_pem())?;
    ///
    /// let identity = Identity::from_pem_files(&chain_pem, &key_pem)?;
    /// assert_eq!(identity.fingerprint(), created.fingerprint());
    /// // Errors name the file.
    /// let error = Identity::from_pem_files(&chain_pem, &chain_pem).unwrap_err();
    /// assert!(matches!(error, PemError::NoKey { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is damaged, a part is missing, or the key is another's.
    pub fn from_pem_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, PemError> {
        Self::read(&Pem::read(chain.as_ref())?, &Pem::read(key.as_ref())?)
    }

    /// Reads a chain and its key from PEM data, like [`from_pem_files`](Self::from_pem_files).
    ///
    /// # Errors
    ///
    /// If the data is damaged, a part is missing, or the key is another's.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, PemError> {
        Self::read(&Pem::of(chain), &Pem::of(key))
    }

    fn read(chain: &Pem, key: &Pem) -> Result<Self, PemError> {
        let identity = Self::new(chain.certificates()?, key.key()?);
        let unusable = |pem: &Pem, source| Err(PemError::Unusable { origin: pem.origin.clone(), source });
        match identity.certified() {
            Ok(_) => Ok(identity),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(PemError::OtherKey { certificate: chain.origin.clone(), key: key.origin.clone() })
            }
            Err(source @ Error::InvalidCertificate(_)) => unusable(chain, source),
            Err(source) => unusable(key, source),
        }
    }

    /// Returns the chain with a signer, if the key is its own.
    pub(crate) fn certified(&self) -> Result<CertifiedKey, Error> {
        let (chain, key) = self.parts();
        CertifiedKey::from_der(chain, key, &ring::default_provider())
    }

    /// Creates a self-signed certificate and its key. The signature is Ed25519, which has a fixed
    /// length, so packet sizes in virtual time do not vary from run to run.
    ///
    /// # Errors
    ///
    /// If `name` cannot stand in a certificate.
    #[cfg(feature = "self-signed")]
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

    /// Logs the TLS secrets of each connection that a server with this identity accepts.
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

    /// Returns the chain in PEM.
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|certificate| section("CERTIFICATE", certificate)).collect()
    }

    /// Returns the key in PEM, not encrypted: only the owner may read the file that it is kept in.
    pub fn key_pem(&self) -> String {
        let label = match &self.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        section(label, self.key.secret_der())
    }

    /// Returns a TLS 1.3 configuration for a server with this identity, without ALPN protocols.
    /// Without `clients`, it asks them for no certificate.
    ///
    /// # Errors
    ///
    /// If the key is another's, or a certificate cannot be used.
    pub fn server_tls(&self, clients: Option<&ClientAuth>) -> Result<ServerConfig, IdentityError> {
        ServerIdentity::new(self)?.server_tls(clients)
    }

    /// Returns the chain and the key, for other TLS servers.
    pub fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }

    /// Derives a secret of 64 bytes for this purpose from the private key (HKDF, RFC 5869). It is the same as long as
    /// the key is, and tells nothing about the key or the secrets for other purposes.
    pub fn derive(&self, purpose: &[&[u8]]) -> [u8; 64] {
        /// Length of a secret.
        struct Secret;
        impl hkdf::KeyType for Secret {
            fn len(&self) -> usize {
                64
            }
        }
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"marcato").extract(self.key.secret_der());
        let mut secret = [0; 64];
        // HKDF gives up to 255 times 32 bytes, so this does not fail.
        let filled = key.expand(purpose, Secret).and_then(|okm| okm.fill(&mut secret));
        debug_assert!(filled.is_ok(), "64 bytes are within HKDF's limit");
        secret
    }

    /// Returns the log of secrets that a server with this identity fills, if there is one.
    pub const fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_ref()
    }
}

#[cfg(all(test, feature = "self-signed"))]
mod tests {
    use super::*;

    #[test]
    fn derived_secrets_are_those_of_key_and_purpose() {
        let identity = Identity::self_signed("a.test").unwrap();
        let secret = identity.derive(&[b"one", b" more"]);
        assert_eq!(identity.clone().derive(&[b"one more"]), secret);
        assert_ne!(identity.derive(&[b"two"]), secret);
        assert_ne!(Identity::self_signed("a.test").unwrap().derive(&[b"one more"]), secret);
        assert_ne!(secret[..32], secret[32..]);
    }
}
