//! Seeded identifiers, fixed keys and a certificate, for repeatable runs.
//! certificate.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use marcato_units::{Seed, Stream};
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::crypto::{CryptoError, HandshakeTokenKey};
use noq_proto::{ClientConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig, ServerConfig};
use ring::{aead, hmac};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::pair::Who;

/// Name in the certificate.
pub(super) const NAME: &str = "marcato.test";

/// Connection identifiers from a seeded stream. The engine's own generators use the system's
/// randomness.
struct SeededIds(Stream);

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.next_u64().to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Seals tokens with a fixed key.
struct TokenKey(aead::LessSafeKey);

impl TokenKey {
    fn new() -> Self {
        Self(aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_256_GCM, &[7; 32]).unwrap()))
    }

    fn nonce(nonce: u128) -> aead::Nonce {
        let mut bytes = [0; 12];
        bytes.copy_from_slice(&nonce.to_le_bytes()[..12]);
        aead::Nonce::assume_unique_for_key(bytes)
    }
}

impl HandshakeTokenKey for TokenKey {
    fn seal(&self, nonce: u128, data: &mut Vec<u8>) -> Result<(), CryptoError> {
        self.0.seal_in_place_append_tag(Self::nonce(nonce), aead::Aad::empty(), data).map_err(|_| CryptoError)
    }

    fn open<'a>(&self, nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        self.0
            .open_in_place(Self::nonce(nonce), aead::Aad::empty(), data)
            .map(|plain| &*plain)
            .map_err(|_| CryptoError)
    }
}

struct Certificate {
    der: CertificateDer<'static>,
    key: Vec<u8>,
}

/// Returns the process's certificate. It uses Ed25519, whose signatures have a fixed length: with
/// ECDSA the size of the server's flight would vary from run to run.
fn certificate() -> &'static Certificate {
    static CERTIFICATE: OnceLock<Certificate> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Certificate { der, key: key.serialize_der() }
    })
}

/// Returns the configuration of an endpoint that draws only from `seed`.
pub(super) fn endpoint(seed: Seed, who: Who) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &[5; 64])));
    let name = format!("engine/{who:?}");
    let mut draws = seed.stream(&name);
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&draws.next_u64().to_be_bytes());
    }
    config.rng_seed(Some(bytes));
    let ids = seed.stream(&format!("{name}/ids"));
    config.cid_generator(Arc::new(move || Box::new(SeededIds(ids.clone()))));
    config
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns a client's configuration with empty caches.
pub(super) fn client(seed: Seed) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate().der.clone()).unwrap();
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let first = seed.stream("engine/first id").next_u64();
    config.initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&first.to_be_bytes())));
    config
}

/// Returns a server's configuration with empty caches.
pub(super) fn server() -> ServerConfig {
    let certificate = certificate();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certificate.key.clone()));
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der.clone()], key)
        .unwrap();
    ServerConfig::new(Arc::new(QuicServerConfig::try_from(tls).unwrap()), Arc::new(TokenKey::new()))
}
