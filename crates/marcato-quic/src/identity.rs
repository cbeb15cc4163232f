//! Who a server is, and whom a client believes.

use std::sync::Arc;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, crypto::ring};

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
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Identity {
    /// A chain and its key as read from files.
    pub const fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key }
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
        Ok(Self { chain, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() })
    }

    /// The certificate itself, for a client that is to [trust](Trust::Certificate) it alone.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// The chain and the key, for other TLS servers.
    pub fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }

    pub(crate) fn server_crypto(&self) -> Result<Arc<QuicServerConfig>, IdentityError> {
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
        config.max_early_data_size = 0;
        Ok(Arc::new(QuicServerConfig::try_from(config).map_err(|_| IdentityError::NoInitialSuite)?))
    }
}

/// Whom a client believes.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Whoever shows a certificate that one of these has signed.
    Roots(Arc<RootCertStore>),
    /// Only this certificate, which its owner may have signed: what is agreed on beforehand.
    Certificate(CertificateDer<'static>),
}

impl Trust {
    pub(crate) fn client_crypto(&self) -> Result<Arc<QuicClientConfig>, IdentityError> {
        let roots = match self {
            Self::Roots(roots) => Arc::clone(roots),
            Self::Certificate(certificate) => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate.clone())?;
                Arc::new(roots)
            }
        };
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![marcato_wire::ALPN.to_vec()];
        Ok(Arc::new(QuicClientConfig::try_from(config).map_err(|_| IdentityError::NoInitialSuite)?))
    }
}
