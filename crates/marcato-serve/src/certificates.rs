//! Certificates that listeners present, by the name that a client asks for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use marcato_web::{Identity, IdentityError};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache, StoresServerSessions};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::config::{HostPattern, TlsVersion};
use crate::covered::Covered;

/// Most sessions that clients can resume.
const SESSIONS: usize = 4096;
/// Protocol of the authority that checks a name (RFC 8737 §6.2).
const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// Certificate and key of a site, ready for handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Presentable {
    pub(crate) identity: Identity,
    shown: Arc<Shown>,
}

/// Certificate as handshakes and requests need it.
#[derive(Debug)]
struct Shown {
    key: Arc<CertifiedKey>,
    covered: Covered,
    /// Names for which this program made it; none for one of an authority.
    made_for: Vec<String>,
}

/// Returns a new certificate for these names, which no authority has signed.
///
/// # Errors
/// If a name cannot stand in a certificate.
pub(crate) fn self_signed(names: &[String]) -> Result<Presentable, IdentityError> {
    let failed = |error: rcgen::Error| IdentityError::Certificate {
        name: names.join(", "),
        reason: error.to_string(),
    };
    let params = rcgen::CertificateParams::new(names).map_err(failed)?;
    let made = signed(params).map_err(failed)?;
    Ok(Presentable::made(made, names.to_vec())?)
}

/// Returns a certificate that its own key signs.
pub(crate) fn signed(params: rcgen::CertificateParams) -> Result<Identity, rcgen::Error> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok(Identity::new(vec![certificate.der().clone()], key.into()))
}

impl Presentable {
    /// # Errors
    /// If the key is another's, or TLS cannot use it.
    pub(crate) fn new(identity: Identity) -> Result<Self, rustls::Error> {
        Self::made(identity, Vec::new())
    }

    fn made(identity: Identity, made_for: Vec<String>) -> Result<Self, rustls::Error> {
        let covered = identity.certificate().map(|certificate| Covered::of(certificate)).unwrap_or_default();
        let (chain, key) = identity.parts();
        let key = Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider())?);
        Ok(Self { identity, shown: Arc::new(Shown { key, covered, made_for }) })
    }

    /// Creates one that no client of HTTP is to verify. Its certificate may have extensions that only an
    /// authority knows.
    ///
    /// # Errors
    /// If TLS cannot use the key.
    pub(crate) fn for_authority(identity: Identity) -> Result<Self, rustls::Error> {
        let (chain, key) = identity.parts();
        let key = ring::default_provider().key_provider.load_private_key(key)?;
        let key = Arc::new(CertifiedKey::new(chain, key));
        let shown = Shown { key, covered: Covered::default(), made_for: Vec::new() };
        Ok(Self { identity, shown: Arc::new(shown) })
    }

    /// Returns whether this program made it for these names.
    pub(crate) fn is_made_for(&self, names: &[String]) -> bool {
        self.shown.made_for == names
    }

    /// Returns whether no authority has signed it.
    pub(crate) fn is_self_signed(&self) -> bool {
        self.shown.is_self_signed()
    }

    /// Returns whether clients that ask for a host accept the certificate, as far as its names decide.
    pub(crate) fn covers(&self, host: &str) -> bool {
        self.shown.covered.has(host)
    }
}

impl Shown {
    fn is_self_signed(&self) -> bool {
        !self.made_for.is_empty()
    }
}

/// Certificates by name.
#[derive(Default)]
pub(crate) struct Names {
    exact: HashMap<String, Arc<Shown>>,
    below: HashMap<String, Arc<Shown>>,
    default: Option<Arc<Shown>>,
}

impl Names {
    pub(crate) fn add(&mut self, hosts: &[HostPattern], is_default: bool, certificate: &Presentable) {
        for host in hosts {
            let map = if host.is_wildcard() { &mut self.below } else { &mut self.exact };
            map.insert(host.name().to_owned(), Arc::clone(&certificate.shown));
        }
        if is_default {
            self.default = Some(Arc::clone(&certificate.shown));
        }
    }

    fn of(&self, name: &str) -> Option<&Arc<Shown>> {
        let below = || self.below.get(name.split_once('.')?.1);
        self.exact.get(name).or_else(below).or(self.default.as_ref())
    }

    /// True if every name has the same certificate in both.
    fn same(&self, other: &Self) -> bool {
        let same_map = |one: &HashMap<String, Arc<Shown>>, other: &HashMap<_, Arc<Shown>>| {
            one.len() == other.len()
                && one.iter().all(|(name, key)| other.get(name).is_some_and(|it| Arc::ptr_eq(it, key)))
        };
        same_map(&self.exact, &other.exact)
            && same_map(&self.below, &other.below)
            && match (&self.default, &other.default) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                _ => false,
            }
    }
}

struct Current {
    names: Arc<Names>,
    /// Sessions of these certificates: one that is resumed would not present the next.
    sessions: Arc<ServerSessionMemoryCache>,
}

/// Certificates that all listeners present. They can be replaced while connections come.
pub(crate) struct Certificates {
    /// Requests read it too, so that they wait for nobody.
    current: ArcSwap<Current>,
    /// Certificates for an authority that checks a name, by that name.
    challenges: Mutex<HashMap<String, Arc<CertifiedKey>>>,
    /// Verifier of clients' certificates; none if clients are asked for none.
    clients: ArcSwapOption<Verifier>,
}

/// Verifier of the certificates that an authority has issued to clients.
pub(crate) type Verifier = Arc<dyn ClientCertVerifier>;

impl Certificates {
    pub(crate) fn new() -> Arc<Self> {
        let sessions = ServerSessionMemoryCache::new(SESSIONS);
        let current = ArcSwap::from_pointee(Current { names: Arc::default(), sessions });
        Arc::new(Self { current, challenges: Mutex::default(), clients: ArcSwapOption::empty() })
    }

    /// Presents these certificates in handshakes that begin from now on.
    pub(crate) fn present(&self, names: Names) {
        if !self.current.load().names.same(&names) {
            let sessions = ServerSessionMemoryCache::new(SESSIONS);
            self.current.store(Arc::new(Current { names: Arc::new(names), sessions }));
        }
    }

    /// Asks clients for certificates that a verifier accepts, in handshakes that begin from now on. Sessions that were
    /// begun under another one are not resumed.
    pub(crate) fn accept(&self, clients: Option<&Verifier>) {
        let current = self.clients.load();
        let is_same = match (current.as_deref(), clients) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.clients.store(clients.map(|verifier| Arc::new(Arc::clone(verifier))));
            let names = Arc::clone(&self.current.load().names);
            let sessions = ServerSessionMemoryCache::new(SESSIONS);
            self.current.store(Arc::new(Current { names, sessions }));
        }
    }

    /// Returns whether the certificate of a host covers it.
    pub(crate) fn covers(&self, host: &str) -> bool {
        self.current.load().names.of(host).is_some_and(|shown| shown.covered.has(host))
    }

    /// Returns whether a request for a host came on a connection whose certificate is for others. `name` is
    /// the one that the client gave in its handshake.
    ///
    /// Clients accept a certificate that no authority has signed against its names. It stands for the name
    /// that the client gave, or any if it gave none, as clients do for an address.
    pub(crate) fn misdirects(&self, name: Option<&str>, host: &str) -> bool {
        let current = self.current.load();
        let shown = match name {
            Some(name) => current.names.of(name),
            None => current.names.default.as_ref(),
        };
        shown.is_none_or(|shown| {
            let is_accepted = shown.is_self_signed() && name.is_none_or(|name| name == host);
            !is_accepted && !shown.covered.has(host)
        })
    }

    /// Presents a certificate to an authority that checks a name.
    pub(crate) fn challenge(&self, name: &str, certificate: &Presentable) {
        self.challenges().insert(name.to_owned(), Arc::clone(&certificate.shown.key));
    }

    /// Ends the check of a name.
    pub(crate) fn end_challenge(&self, name: &str) {
        self.challenges().remove(name);
    }

    /// Returns whether a name is being checked.
    #[cfg(test)]
    pub(crate) fn is_challenged(&self, name: &str) -> bool {
        self.challenges().contains_key(name)
    }

    /// Returns a configuration for TLS with these certificates.
    ///
    /// # Errors
    /// If the TLS library refuses its own defaults.
    pub(crate) fn server_tls(self: &Arc<Self>, least: TlsVersion) -> Result<ServerConfig, rustls::Error> {
        let versions: &[_] = match least {
            TlsVersion::V1_2 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::V1_3 => &[&rustls::version::TLS13],
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(Arc::new(Clients(Arc::clone(self))))
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.session_storage = Arc::clone(self) as Arc<dyn StoresServerSessions>;
        // No 0-RTT: early data can be replayed (RFC 8446 §8).
        config.max_early_data_size = 0;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), ACME_PROTOCOL.to_vec()];
        Ok(config)
    }

    fn challenges(&self) -> MutexGuard<'_, HashMap<String, Arc<CertifiedKey>>> {
        // Each entry is whole, so a panic leaves no partial one.
        self.challenges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> Arc<ServerSessionMemoryCache> {
        Arc::clone(&self.current.load().sessions)
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // RFC 8737 §3: the authority offers this protocol alone, and is presented nothing else.
        let mut protocols = hello.alpn().into_iter().flatten();
        if protocols.next() == Some(ACME_PROTOCOL) && protocols.next().is_none() {
            return self.challenges().get(hello.server_name()?).map(Arc::clone);
        }
        let current = self.current.load();
        let shown = match hello.server_name() {
            Some(name) => current.names.of(name),
            None => current.names.default.as_ref(),
        };
        shown.map(|shown| Arc::clone(&shown.key))
    }
}

/// Verifier of clients' certificates that can be replaced. No client needs one for its handshake: rules of access ask
/// for it, and an authority that checks a name has none.
#[derive(Debug)]
struct Clients(Arc<Certificates>);

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.0.clients.load().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Those of the verifier could be replaced meanwhile. Clients then offer any certificate of theirs.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match &*self.0.clients.load() {
            Some(verifier) => verifier.verify_client_cert(end_entity, intermediates, now),
            None => Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

impl StoresServerSessions for Certificates {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions().put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions().get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions().take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}
